"""Commands that look at devices: `demo`, `devices`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

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
    said = {info.name: _properties(info.name) for info in found if info.available} if arguments.all else {}
    if arguments.json:
        rows = [{"name": info.name, "available": info.available, "description": info.description} for info in found]
        say_json({"devices": [{**row, "properties": said[row["name"]]} if row["name"] in said else row for row in rows]})
        return 0
    for info in found:
        first, *more = info.description.splitlines()
        say(f"{'yes' if info.available else 'no ':3s}  {first}", lead=f"{info.name:14s} ", colour="green" if info.available else "")
        for line in more:
            say(" " * 20 + line.strip())
        for name, value in said.get(info.name, {}).items():
            say(" " * 20 + f"{name}: {_said(value)}")
    return 0


def _properties(name: str) -> dict[str, Any]:
    """All that is known of a device, by name: its limits, and what its driver says."""
    from vyre_py.drivers.registry import device

    opened = device(name)
    told = getattr(opened, "properties", None)
    parts = [opened.limits, *([] if told is None else [told])]
    values = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    return {"target": str(opened.target), **{name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}}


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join([f"{name} {one}" for name, one in value.items()])
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
