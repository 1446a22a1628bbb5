"""The description of a Program that runs in a browser: all that `webgpu.js` has to know of its interface, its code and its block of scalars."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.types import Type
from vyre_py.lowering.artifact.parts import Interface, Part, Step
from vyre_py.lowering.layout import Layout, Slot, SlotKind
from vyre_py.lowering.wgsl.uniform_block import block_words, scalar_word

__all__ = ["described"]


def _size(expr: DimExpr) -> Any:
    """A constant as a number, a dim as its name, an operation as its name and two sizes."""
    if isinstance(expr, DimConst):
        return expr.value
    return expr.name if isinstance(expr, Dim) else [expr.op, _size(expr.left), _size(expr.right)]


def _typed(type_: Type) -> dict[str, Any]:
    return {"type": type_.name, "scalar": type_.scalar.name, "lanes": type_.lanes}


def _scalar(layout: Layout, slot: Slot) -> dict[str, Any]:
    word = scalar_word(layout, slot)
    if slot.expr is not None:
        return {"expr": _size(slot.expr), "word": word}
    name, byte = slot.source
    return {"param": name, "byte": byte, "bytes": slot.type.size_bytes, "slot": slot.size_bytes, "word": word}


def _step(step: Step) -> dict[str, Any]:
    image, layout = step.images[0], step.layout
    # Buffers of hidden totals are written by some steps, and bound so by all.
    bindings = [{"name": s.name, "writes": s.memory is not None and s.memory.access.writes} for s in layout.buffers]
    return {
        "code": image.code.decode("ascii"), "entry": step.entries[-1].symbol, "workgroup": list(step.workgroup), "workgroupBytes": step.workgroup_bytes,
        "grid": {"over": step.grid.over, "extents": [_size(extent) for extent in step.grid.extents]}, "words": block_words(layout),
        "bindings": bindings, "scalars": [_scalar(layout, slot) for slot in layout.scalars], "tables": b64encode(image.data).decode() if image.data else None,
    }  # fmt: skip


def described(interface: Interface, part: Part) -> dict[str, Any]:
    """The description of a part, of JSON's types."""
    buffers = [
        {"name": m.name, **_typed(m.type), "shape": [_size(axis) for axis in m.shape], "reads": m.access.reads, "writes": m.access.writes}
        for m in interface.buffers
    ]
    hidden = {slot.name: slot for step in part.steps for slot in step.layout.slots if slot.kind is SlotKind.TOTALS and slot.memory is not None}
    totals = {name: {"expr": _size(s.memory.shape[0]), "bytes": s.type.size_bytes} for name, s in hidden.items() if s.memory is not None}
    return {
        "name": interface.name, "numerics": part.numerics, "dims": [dim.name for dim in interface.dims],
        "params": [{"name": p.name, **_typed(p.type)} for p in interface.params], "buffers": buffers, "totals": totals, "steps": [_step(s) for s in part.steps],
    }  # fmt: skip
