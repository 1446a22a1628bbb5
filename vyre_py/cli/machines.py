"""Commands that use a device: `demo`, `devices`."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import as_file, files
from pathlib import Path

import vyre_py

__all__ = ["demo", "devices"]


def demo(arguments: argparse.Namespace) -> int:
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


def devices(arguments: argparse.Namespace) -> int:
    """Which devices are here, and why the rest are not."""
    for info in vyre_py.devices():
        first, *more = info.description.splitlines()
        print(f"{info.name:14s} {'yes' if info.available else 'no ':3s}  {first}")
        for line in more:
            print(" " * 20 + line.strip())
    return 0
