"""A photograph, equalised and sharpened: the same pixels, bit for bit, on every strict device.

    python examples/02_photograph.py [device ...]        writes photograph.png
"""

import sys
from importlib.resources import as_file, files
from pathlib import Path

import vyre_py as vp
from vyre_py.demo.photograph import process
from vyre_py.demo.picture import read_picture, write_picture

names = sys.argv[1:] or ["cpu", "reference"]
with as_file(files("vyre_py.examples.data") / "chelsea.png") as path:
    picture = read_picture(path)

digests = {}
for name in names:
    report = process(vp.device(name), picture)
    print(report.table(), end="\n\n")
    digests[name] = report.digest
    write_picture(Path("photograph.png"), report.picture)

strict = {digest for name, digest in digests.items() if not name.startswith("wgpu")}  # wgpu's floats are native
assert len(strict) <= 1, digests
print("photograph.png written;", digests)
