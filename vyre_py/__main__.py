"""The command line: `vyre-py` and `python -m vyre_py`.

Exit status: 0 done, 1 the work failed (the message says why), 2 the command line was wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import vyre_py
from vyre_py.ir.errors import VyreError

__all__ = ["main"]


def _demo(arguments: argparse.Namespace) -> int:
    """The photograph: equalised and sharpened, written as PNG."""
    from vyre_py.demo.photograph import process
    from vyre_py.demo.picture import read_picture, write_picture
    from vyre_py.drivers.registry import device

    chosen = device(arguments.device)
    if arguments.picture is not None:
        picture = read_picture(Path(arguments.picture))
    else:
        with as_file(files("vyre_py.examples.data") / "chelsea.png") as path:
            picture = read_picture(path)

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{name} ...", end="", file=sys.stderr, flush=True)

    report = process(chosen, picture, progress)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    write_picture(Path(arguments.out), report.picture)
    print(f"{picture.shape[1]} x {picture.shape[0]} pixels on {chosen.name} ({chosen.description})")
    print(report.table())
    print(f"picture {arguments.out}, pixels' SHA-256 {report.digest}")
    return 0


def _devices(arguments: argparse.Namespace) -> int:
    """Which devices are here, and why the rest are not."""
    for info in vyre_py.devices():
        first, *more = info.description.splitlines()
        print(f"{info.name:14s} {'yes' if info.available else 'no ':3s}  {first}")
        for line in more:
            print(" " * 20 + line.strip())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vyre-py", description="A kernel compiler and driver for Python.")
    parser.add_argument("--version", action="version", version=f"vyre-py {vyre_py.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="equalise and sharpen a photograph on the best device")
    demo.add_argument("--device", default=None, help="cuda, wgpu, cpu or reference, with an ordinal if wanted (cuda:0)")
    demo.add_argument("--picture", default=None, help="a picture of your own (PNG or JPEG)")
    demo.add_argument("--out", default="vyre-demo.png", help="where the result goes (default %(default)s)")
    demo.set_defaults(run=_demo)
    devices = commands.add_parser("devices", help="which devices are here")
    devices.set_defaults(run=_devices)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    arguments: Any = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except VyreError as error:
        print(f"vyre-py: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
