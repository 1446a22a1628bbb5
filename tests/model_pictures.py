"""Pictures of how things fit: where invocations lie, as a run has them; the floors with their folders; a Program's way, with passes and kinds of targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from svg_picture import DARK, LIGHT, MIDDLE, PALE, WARM, Picture
from tree import ROOT

import vyre_py as vp
from vyre_py.ir.passes import PASSES
from vyre_py.lowering.kinds import TARGET_KINDS

__all__ = ["MODEL_PICTURES"]

_ELEMENTS, _GROUP, _SUBGROUP = 1000, 64, 32  # as on the page
_FLOORS: Final = (
    ("vyre_py", "the face: names, command line, doors to other packages"), ("drivers", "machines: devices, memory, launches, caches"),
    ("lowering", "Programs to code"), ("ir", "the language: what a Program means"),
)  # fmt: skip
_WRAP: Final = 100  # letters of a line of folders


def model() -> str:
    """A grid, one of its workgroups, and a subgroup of that."""
    with vp.ProgramBuilder("scale", workgroup=_GROUP, subgroup=_SUBGROUP) as b:
        x, y = b.read("x", vp.f32, b.dim("n")), b.write("y", vp.f32, b.dim("m"))
        y[b.global_id(0)] = 2.0 * x[b.global_id(0)]
    device = vp.device("reference")
    before = device.telemetry.snapshot()
    device.compile_native(b.program).dispatch({"x": np.zeros(_ELEMENTS, np.float32), "m": _ELEMENTS})
    scheduled = (device.telemetry.snapshot() - before).threads_scheduled
    groups, outside = scheduled // _GROUP, scheduled - _ELEMENTS
    picture, wide = Picture(760, 330, "Grid, workgroup, subgroup, lane"), 42
    picture.text(20, 24, f"grid: {groups} workgroups for {_ELEMENTS:,} elements of y, a number for each: workgroup_id")
    for k in range(groups):
        picture.labelled(20 + 45 * k, 34, wide, 34, [str(k)], DARK if k == 1 else WARM if k == groups - 1 else LIGHT)
    picture.text(740, 86, f"the last has {outside} invocations outside: they load zeros, and their stores are dropped", anchor="end")
    picture.arrow(20 + 45 + wide / 2, 68, 20 + 45 + wide / 2, 120)
    picture.text(20, 138, f"workgroup 1: {_GROUP} invocations, which share workgroup memory and meet at barriers, by local_index")
    cell = 11
    for k in range(_GROUP):
        picture.box(20 + cell * k, 148, cell, 22, DARK if k // _SUBGROUP else MIDDLE)
    picture.arrow(20 + cell * _SUBGROUP * 1.5, 170, 20 + cell * _SUBGROUP * 1.5, 216)
    picture.text(20, 234, f"subgroup 1: {_SUBGROUP} lanes, which exchange values without memory, by subgroup_lane")
    for k in range(_SUBGROUP):
        picture.labelled(20 + 22 * k, 244, 22, 24, [str(k)], WARM if k == 5 else PALE)
    lane, place = 5, _GROUP + _SUBGROUP + 5
    sum_ = f"workgroup_id * {_GROUP} + local_id = 1 * {_GROUP} + {_SUBGROUP + lane}"
    picture.text(20, 296, f"lane {lane} here is invocation {place} of the grid: global_id = {sum_}")
    picture.text(20, 316, f"It computes y[{place}]. On a GPU it is a thread, on the CPU a lane of a vector.")
    return picture.svg()


def floors() -> str:
    """The floors with their folders, the face on top."""
    picture, top = Picture(700, 390, "The floors"), 20
    for name, words in _FLOORS:
        folders = sorted(path.parent.name for path in (ROOT / name).glob("*/__init__.py"))
        lines, line = [], ""
        for folder in folders:
            if len(line) + len(folder) > _WRAP:
                lines.append(line)
                line = ""
            line += f"{folder}/  "
        lines.append(line)
        picture.labelled(20, top, 660, 70, [f"{name}/: {words}", *[line.rstrip() for line in lines]], LIGHT if name != "ir" else MIDDLE)
        if name != "ir":
            picture.arrow(350, top + 70, 350, top + 92)
            picture.text(360, top + 86, "imports")
        top += 92
    return picture.svg()


def life() -> str:
    """What a Program goes through, and what of it is made once."""
    steps = (
        ("1 build", "Python, text,", "bytes, JSON"), ("2 check", "all findings", "at once"), ("3 optimise", "IR to IR"), ("4 lower", "for a target"),
        ("5 load", "what fits"), ("6 bind", "shapes,", "overlap"), ("7 launch", "one call"),
    )  # fmt: skip
    picture, wide = Picture(760, 300, "The way of a Program"), 92
    for k, lines in enumerate(steps):
        picture.labelled(15 + 106 * k, 20, wide, 66, lines, LIGHT if k < 5 else MIDDLE if k == 5 else DARK)
        if k < len(steps) - 1:
            picture.arrow(15 + wide + 106 * k, 53, 121 + 106 * k, 53)
    for first, last, words in ((1, 4, "cold: once per Program and device"), (5, 5, "warm: buffers"), (6, 6, "hot: each time")):
        picture.box(15 + 106 * first, 98, wide + 106 * (last - first), 3, DARK)
        picture.text(15 + 106 * first, 118, words)
    picture.text(20, 164, "The passes of step 3:")
    for k, name in enumerate(PASSES):
        picture.labelled(180 + 92 * k, 146, 84, 28, [name], PALE)
    picture.text(20, 224, "The targets of step 4:")
    made = {"reference": "the Program itself", "ptx": "PTX, machine code", "host": "objects", "wgsl": "WGSL"}
    for k, kind in enumerate(TARGET_KINDS):
        picture.labelled(180 + 140 * k, 200, 130, 42, [kind, made[kind]], LIGHT)
    picture.text(20, 274, "Each step hands on what it has proven: what is checked is not checked again, and a launch is nothing but the driver's call.")
    return picture.svg()


MODEL_PICTURES: Final[dict[str, Callable[[], str]]] = {f"docs/pictures/{make.__name__}.svg": make for make in (model, floors, life)}
