"""What the functions of `vp.ops` are asked for: types, names, axes and whole numbers, each refused at the caller's own line where it does not fit."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import Place, ValidationError, shown
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = ["FLOATS", "INTEGERS", "NUMBERS", "axis_of", "one_of", "refuse", "wide", "whole"]

FLOATS: Final = (f16, bf16, f32, f64)
INTEGERS: Final = (i8, i16, i32, i64, u8, u16, u32, u64)
NUMBERS: Final = FLOATS + INTEGERS

_HERE: Final = str(Path(__file__).resolve().parent)
_T = TypeVar("_T")


def refuse(message: str, help: str) -> NoReturn:
    """Raises ValidationError B108 at the line that called `vp.ops`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(Path(frame.f_code.co_filename).resolve().parent) == _HERE:
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    raise ValidationError(finding("B108", message, Place(file, line, source=linecache.getline(file, line)), help))


def one_of(what: str, value: Any, choices: Collection[_T]) -> _T:
    """One of the types or names that there are."""
    for choice in choices:
        if choice is value or (isinstance(choice, str) and choice == value):
            return choice
    refuse(f"{what} is none of those that there are: {shown(value)}", "one of " + ", ".join(map(str, choices)))


def whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number within bounds."""
    if not is_count(value) or not least <= value <= most:
        refuse(f"{what} is a whole number from {least} to {most}, got {shown(value)}", "it is part of the Program: an array's size may be a dim instead")
    return int(value)


def axis_of(value: Any, rank: int) -> int:
    """An axis of so many, from the end where it is negative."""
    if not isinstance(value, int) or isinstance(value, bool) or not -rank <= value < rank:
        refuse(f"an array of rank {rank} has no axis {shown(value)}", f"it has the axes {', '.join(map(str, range(rank)))}; -1 is the last")
    return value % rank


def axes_of(values: Any, rank: int) -> tuple[int, ...]:
    """An order of all axes."""
    given = values if isinstance(values, Sequence) else (values,)
    axes = tuple([axis_of(value, rank) for value in given])
    if sorted(axes) != list(range(rank)):
        refuse(f"each of the {rank} axes is needed once, got {shown(values)}", "axes=(0, 2, 1) is the order in which the source's axes come")
    return axes


def wide(type_: Type) -> Type:
    """The type in which floats are computed: f32 for the small ones, f64 for f64."""
    return f64 if type_ is f64 else f32
