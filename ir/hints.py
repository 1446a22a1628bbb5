"""Hints: what helps after a wrong call on a builder, worked out from the case at hand and written as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.nodes import Access, Space
from vyre_py.ir.ops import Op, Operand
from vyre_py.ir.types import Scalar, bool_

__all__ = ["axes_hint", "convert_hint", "number_hint", "operands_hint"]

_BITWISE: Final = ("and", "or", "xor", "not")


def _spelled(type_: Scalar) -> str:
    """The type as a caller writes it."""
    return "vp.bool_" if type_ is bool_ else f"vp.{type_}"


def axes_hint(space: Space, access: Access, name: str, type_: Scalar) -> str:
    """What helps where an array was declared without axes."""
    method, axis = (access.value, "n") if space is Space.BUFFER else (space.value, "64")
    return f"write the sizes behind the type: b.{method}({name!r}, {_spelled(type_)}, {axis})"


def convert_hint(type_: Scalar) -> str:
    """How a value becomes one of `type_`."""
    return "compare: x != 0" if type_ is bool_ else f"convert it: vp.cast(x, {_spelled(type_)})"


def number_hint(value: object, type_: Scalar) -> str:
    """What helps where the Python number `value` is none of `type_`."""
    if type_ is bool_:
        return "compare: x != 0; the constants of a bool are True and False"
    if isinstance(value, bool):
        return f"write 0 or 1; a bool of the Program becomes a number by vp.cast(condition, {_spelled(type_)})"
    if isinstance(value, float):
        return f"write a whole number, or convert the {type_} that it meets: vp.cast(x, vp.f32)"
    if isinstance(value, int) and value < 0:
        return f"{type_} has no numbers below zero: subtract instead, or take i32: vp.cast(x, vp.i32), vp.const(-1, vp.i32), type_=vp.i32"
    return f"write a number that {type_} holds, or convert what it meets: vp.cast(x, vp.f32)"


def operands_hint(op: Op, operands: Sequence[Scalar], given: Scalar | None) -> str:
    """What helps where `op` does not accept operands of these types."""
    if given is not None:
        return f"{op.name} goes from one type to another; a bitcast needs the same width, and no bool"
    if any(p is Operand.BOOL and t is not bool_ for p, t in zip(op.operands, operands, strict=True)):
        return f"{op.name} needs a bool first; compare: x != 0"
    generic = [t for p, t in zip(op.operands, operands, strict=True) if p is Operand.T]
    if op.name in _BITWISE and any(t.is_float for t in generic):
        return "`&`, `|`, `^` and `~` work on whole numbers and bools, and bind tighter than comparisons: write (x > 0) & (y < 1)"
    accepted = sorted(op.of, key=str)
    mixed = [t for t in dict.fromkeys(generic) if t in op.of]
    if len(set(generic)) > 1 and mixed:
        return "convert one side: " + " or ".join(f"vp.cast(x, {_spelled(t)})" for t in mixed)
    return f"{op.name} takes {', '.join(map(str, accepted))}; convert first: vp.cast(x, {_spelled(accepted[0])})"
