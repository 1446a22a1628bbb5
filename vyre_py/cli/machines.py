"""Commands that look at devices: `demo`, `devices`."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from pathlib import Path

from vyre_py.cli.output import say, say_json
from vyre_py.drivers.observe.progress import Progress

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
    with Progress("demo") as progress:
        report = process(chosen, picture, lambda name: progress(0, 0, name))
    write_picture(Path(arguments.out), report.picture)
    height, width = picture.shape[:2]
    if arguments.json:
        steps = [
            {
                "name": step.name, "workgroups": list(step.grid), "checks_kept": step.checks_kept, "checks_removed": step.checks_removed,
                "compile_ns": round(step.compile_ms * 1e6), "run_ns": round(step.run_ms * 1e6),
            }
            for step in report.steps
        ]  # fmt: skip
        picture_data = {"file": arguments.out, "width": width, "height": height, "sha256": report.digest}
        say_json({"device": chosen.name, "description": chosen.description, "picture": picture_data, "steps": steps})
        return 0
    say(f"{width} x {height} pixels on {chosen.name} ({chosen.description})")
    say(report.table())
    say(f"picture {arguments.out}, pixels' SHA-256 {report.digest}")
    return 0


def devices(arguments: argparse.Namespace) -> int:
    """Which devices are here, and why the rest are not."""
    from vyre_py.drivers.registry import devices as every

    found = every()
    if arguments.json:
        rows = [{"name": info.name, "available": info.available, "description": info.description} for info in found]
        say_json({"devices": rows})
        return 0
    for info in found:
        first, *more = info.description.splitlines()
        say(f"{'yes' if info.available else 'no ':3s}  {first}", lead=f"{info.name:14s} ", colour="green" if info.available else "")
        for line in more:
            say(" " * 20 + line.strip())
    return 0
