"""What the functions of `vp.ops` are asked for: types, names, axes and whole numbers, each refused at the caller's own line where it does not fit."""

from __future__ import annotations

import contextlib
import linecache
import math
import operator
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from vyre_py.drivers.device import Device
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import Place, ValidationError, shown
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tensor_model import MODELS
from vyre_py.ir.language.tiles.tile_op import MAX_TILE_ELEMENTS
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = [
    "FLOATS", "INTEGERS", "NUMBERS",
    "axes_of", "axis_of", "device_of", "extents_of", "flags", "number", "one_of", "refuse", "tensor_of", "wide", "whole",
]  # fmt: skip

FLOATS: Final = (f16, bf16, f32, f64)
INTEGERS: Final = (i8, i16, i32, i64, u8, u16, u32, u64)
NUMBERS: Final = FLOATS + INTEGERS

_HERE: Final = str(Path(__file__).resolve().parent)
_OURS: Final = (_HERE, str(Path(_HERE).with_name("tuning")))  # tuning calls `vp.ops` for its own caller
_T = TypeVar("_T")


def refuse(message: str, help: str) -> NoReturn:
    """Raises ValidationError B108 at the line that called `vp.ops` or `vp.tune`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(Path(frame.f_code.co_filename).resolve().parent) in _OURS:
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    raise ValidationError(finding("B108", message, Place(file, line, source=linecache.getline(file, line)), help))


def one_of(what: str, value: Any, choices: Collection[_T]) -> _T:
    """One of the types or names that there are."""
    for choice in choices:
        if choice is value or (isinstance(choice, str) and isinstance(value, str) and choice == value):
            return choice
    refuse(f"{what} is none of those that there are: {shown(value)}", "one of " + ", ".join(map(str, choices)))


def whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number within bounds."""
    if not is_count(value) or not least <= value <= most:
        refuse(f"{what} is a whole number from {least} to {most}, got {shown(value)}", "it is part of the Program: an array's size may be a dim instead")
    return int(value)


def number(what: str, value: Any, is_right: Callable[[float], bool], example: str) -> float:
    """A number, Python's or NumPy's, that is right."""
    found = math.nan
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            found = float(value)
    if not is_right(found):
        refuse(f"{what}, got {shown(value)}", example)
    return found


def flags(**given: Any) -> list[bool]:
    """Each true or false, Python's or NumPy's."""
    for name, value in given.items():
        if not isinstance(value, (bool, np.bool_)):
            refuse(f"{name} is True or False, got {shown(value)}", f"{name}=True")
    return [bool(value) for value in given.values()]


def tensor_of(value: Any, type_: Type) -> bool | str:
    """Whether tensor cores may sum products of factors of a type, or whose bits are asked for; unless given they may for 8 and 16 bits."""
    if value is None:
        return type_.size_bytes <= u16.size_bytes
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not isinstance(value, str) or value not in MODELS or not type_.is_float:
        known = " or ".join(map(repr, MODELS)) if type_.is_float else "none, since sums of integers are exact"
        refuse(f"tensor is True, False or an architecture whose bits are known, got {shown(value)}", f"for factors of {type_} that is {known}")
    return value


def extents_of(value: Any, names: Sequence[str], example: str, *beside: int) -> tuple[int, ...]:
    """The extents of tiles, of which any two, and those beside them, are a tile's."""
    if not isinstance(value, tuple) or len(value) != len(names):
        refuse(f"tiles are a tuple of {len(names)} extents, {', '.join(names[:-1])} and {names[-1]}, got {shown(value)}", example)
    extents = tuple([whole("an extent of tiles", extent, 1, 1024) for extent in value])
    elements = math.prod(sorted([*extents, *beside])[-2:])
    if elements > MAX_TILE_ELEMENTS:
        refuse(f"tiles of {shown(value)} make one of {elements} elements, and at most {MAX_TILE_ELEMENTS} are allowed", example)
    return extents


def device_of(value: Any) -> Device:
    """A device that is open."""
    if not isinstance(value, Device):
        refuse(f"a device is needed, got {shown(value)}", 'vp.device("cuda") opens one')
    return value


def axis_of(value: Any, rank: int) -> int:
    """An axis of so many, from the end where it is negative."""
    axis = None
    if not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError):
            axis = operator.index(value)
    if axis is None or not -rank <= axis < rank:
        refuse(f"an array of rank {rank} has no axis {shown(value)}", f"it has the axes {', '.join(map(str, range(rank)))}; -1 is the last")
    return axis % rank


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
