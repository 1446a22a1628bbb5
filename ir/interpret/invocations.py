"""Invocations by number, as what watches a run keeps them, and what findings call them."""

from __future__ import annotations

from typing import Final

import numpy as np

from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import Array
from vyre_py.ir.text.lexer import written_name

__all__ = ["apart", "element_text", "invocation", "invocation_text", "parted", "workgroup_text"]

_LOCAL_BITS: Final = 10  # a workgroup has 1024 invocations at most (V504)


def invocation(group: Array, local: Array) -> Array:
    """The number of each invocation in the grid, from those of its workgroup and within that."""
    return group << _LOCAL_BITS | local


def apart(a: Array, b: Array) -> Array:
    """Whether invocations are of different workgroups."""
    result: Array = (a ^ b) >> _LOCAL_BITS != 0
    return result


def parted(who: int) -> tuple[int, int]:
    """The number of an invocation's workgroup in the grid, and its own within that."""
    return who >> _LOCAL_BITS, who & (1 << _LOCAL_BITS) - 1


def invocation_text(who: int, workgroup: tuple[int, int, int]) -> str:
    """Where an invocation is in its workgroup, whose size is given."""
    return _place(parted(who)[1], workgroup)


def workgroup_text(who: int, groups: tuple[int, int, int]) -> str:
    """Where an invocation's workgroup is in the grid, whose size is given."""
    return _place(parted(who)[0], groups)


def element_text(memory: Memory, extents: tuple[int, ...], element: int) -> str:
    """An element by its memory's name and its indices, from its number in the memory, or in the share of a workgroup or invocation."""
    return f"{written_name(memory.name)}[{', '.join(map(str, np.unravel_index(element, extents)))}]"


def _place(number: int, extents: tuple[int, int, int]) -> str:
    """A number as indices along as many axes as there are."""
    x, y, z = extents
    axes = (number % x, number // x % y, number // (x * y))
    return str(axes[0]) if y == z == 1 else f"({', '.join(map(str, axes if z > 1 else axes[:2]))})"
