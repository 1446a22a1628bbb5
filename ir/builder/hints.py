"""Hints: what helps after a wrong call on a builder, worked out from the case at hand and written as Python."""

from __future__ import annotations

from vyre_py.ir.builder.where import ITEM
from vyre_py.ir.language.describe import PYTHON
from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.types import Kind, Type, bool_

__all__ = ["axes_hint", "convert_hint", "element_hint", "number_hint", "variable_hint"]


def axes_hint(space: Space, access: Access, name: str, type_: Type) -> str:
    """What helps where an array was declared without axes."""
    method, axis = (access.value, "n") if space is Space.BUFFER else (space.value, "64")
    return f"write the sizes behind the type: b.{method}({name!r}, {PYTHON.named(type_)}, {axis})"


def element_hint(type_: Type) -> str:
    """What helps where a tile was named for an element."""
    return f"name the type of an element: {PYTHON.named(type_.scalar)}"


def convert_hint(got: Type, type_: Type) -> str:
    """How a value of type `got` becomes one of `type_`."""
    if got.shape != type_.shape:
        return _shape_hint(got, type_)
    if got.lanes != type_.lanes:
        if type_ is bool_ and got.kind is Kind.BOOL:
            return "one bool decides: vp.all(c) or vp.any(c)"
        if got is type_.scalar:
            return PYTHON.splat(type_.lanes)
        if got.lanes < type_.lanes:
            return f"vp.vec{type_.lanes}(...) makes a vector"
        return f"take {type_.lanes} component{'s' * (type_.lanes > 1)}: v.{'xyzw'[: type_.lanes]}"
    return PYTHON.cast(type_.scalar if type_.is_tile else type_)


def _shape_hint(got: Type, type_: Type) -> str:
    """How a tile, or a scalar, becomes one of another shape."""
    if type_ is bool_:
        return "one bool decides: c.reduce('or', axis) and c.reduce('and', axis) fold along an axis, c.item() takes the last"
    if not type_.is_tile:
        return ITEM
    if not got.is_tile:
        return f"fill a tile: b.fill(x, {type_.shape})"
    return f"in ops an extent of 1 goes with any: x + b.fill(0, {type_.shape}, {PYTHON.named(type_.scalar)})"


def variable_hint(name: str, type_: Type) -> str:
    """How a variable of a type is declared."""
    return f"b.var({name!r}, {PYTHON.named(type_.scalar if type_.is_tile else type_)}{f', shape={type_.shape}' if type_.is_tile else ''})"


def number_hint(value: object, type_: Type) -> str:
    """What helps where the Python number `value` does not fit `type_`."""
    if type_ is bool_:
        return "compare: x != 0; the constants of a bool are True and False"
    if isinstance(value, bool):
        return f"write 0 or 1; a bool of the Program becomes a number by vp.cast(condition, {PYTHON.named(type_)})"
    if isinstance(value, float):
        return f"write a whole number, or convert the {type_} that it meets: vp.cast(x, vp.f32)"
    if isinstance(value, int) and value < 0:
        return f"{type_} has no numbers below zero: subtract instead, or take i32: vp.cast(x, vp.i32), vp.const(-1, vp.i32), type_=vp.i32"
    return f"write a number that {type_} holds, or convert what it meets: vp.cast(x, vp.f32)"
