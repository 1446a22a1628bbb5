"""Dim expressions: exact, symbolic sizes that are solved from the arguments when a Program is bound.

A size is below 2^48. Where it is used as a value it is a u32, and binding fails from 2^32 on; a cast to i64 or u64 takes it whole (see
`ir.language.widths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Type, u32

__all__ = [
    "DEFAULT_WORKGROUP", "DIM_OPS", "GROUPS_LIMIT", "MAX_DIM_TERMS", "OF_TILES",
    "SIZE_LIMIT", "WORD_LIMIT", "Dim", "DimConst", "DimExpr", "DimOp", "Grid", "dim_op",
    "dims_of", "evaluate_dim", "evaluate_extent", "is_count", "is_size",
]

DEFAULT_WORKGROUP: Final = (256, 1, 1)
# The workgroup of a Program of tiles, whose invocations are the compiler's affair.
OF_TILES: Final = (0, 0, 0)
MAX_DIM_TERMS: Final = 64
# Every size and every count of elements is below it: the addresses that processors have, so that no offset in bytes leaves 64 bits.
SIZE_LIMIT: Final = 1 << 48
# What 32 bits count: sizes used as u32, invocations along an axis, and all sizes of a buffer that is indexed with 32 bits alone are below it.
WORD_LIMIT: Final = 1 << 32
# All workgroups of a grid are fewer, so that a signed word counts them.
GROUPS_LIMIT: Final = 1 << 63


def is_count(value: Any) -> bool:
    """Whether this is a whole number, Python's or NumPy's, from 0; a bool is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def is_size(value: Any) -> bool:
    """Whether this is a size: a count below `SIZE_LIMIT`."""
    return is_count(value) and bool(value < SIZE_LIMIT)


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic size: a whole number from 0 to 2^48 - 1, known when the Program is bound."""

    name: str
    terms: int = field(default=1, init=False, compare=False)

    @property
    def type(self) -> Type:
        """Every dim is a u32 where it is used as a value."""
        return u32


@dataclass(frozen=True, slots=True)
class DimConst:
    """A size known while the Program is written."""

    value: int
    terms: int = field(default=1, init=False, compare=False)

    @property
    def type(self) -> Type:
        """Every dim is a u32 where it is used as a value."""
        return u32


@dataclass(frozen=True, slots=True)
class DimOp:
    """An operation on two sizes, by name in `DIM_OPS`."""

    op: str
    left: DimExpr
    right: DimExpr
    terms: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Counted once here, so that every later walk may recurse without a guard of its own (x + x doubles a tree).
        object.__setattr__(self, "terms", self.left.terms + self.right.terms)

    @property
    def type(self) -> Type:
        """Every dim is a u32 where it is used as a value."""
        return u32


DimExpr = Dim | DimConst | DimOp


@dataclass(frozen=True, slots=True)
class Grid:
    """How many invocations run: `extents` along x, y, z count invocations where `over` is true, workgroups where it is not."""

    over: bool
    extents: tuple[DimExpr, DimExpr, DimExpr]


def _ceil_div(left: int, right: int) -> int:
    return -(-left // right)


# Name -> (exact evaluation, infix spelling or None for a call).
DIM_OPS: Final[Mapping[str, tuple[Callable[[int, int], int], str | None]]] = {
    "add": (lambda a, b: a + b, "+"),
    "sub": (lambda a, b: a - b, "-"),
    "mul": (lambda a, b: a * b, "*"),
    "ceil_div": (_ceil_div, None),
    "min": (min, None),
    "max": (max, None),
}


def dim_op(op: str, left: DimExpr, right: DimExpr) -> DimExpr:
    """`op` of two sizes, folded when both are constants and the result is a size.

    Raises OverflowError past `MAX_DIM_TERMS` terms, ZeroDivisionError for ceil_div by the constant 0.
    """
    if op == "ceil_div" and right == DimConst(0):
        raise ZeroDivisionError("ceil_div by zero")
    if isinstance(left, DimConst) and isinstance(right, DimConst):
        value = DIM_OPS[op][0](left.value, right.value)
        if value >= 0:
            return DimConst(value)
    made = DimOp(op, left, right)
    if made.terms > MAX_DIM_TERMS:
        raise OverflowError(f"a dim expression has more than {MAX_DIM_TERMS} terms")
    return made


def dims_of(expr: DimExpr) -> Iterator[Dim]:
    """The dims in an expression, left to right, repeats included."""
    if isinstance(expr, Dim):
        yield expr
    elif isinstance(expr, DimOp):
        yield from dims_of(expr.left)
        yield from dims_of(expr.right)


def evaluate_dim(expr: DimExpr, sizes: Mapping[str, int]) -> int:
    """The exact value of an expression; it may be negative, which the caller refuses.

    Raises KeyError for a dim without a size, ZeroDivisionError for ceil_div by zero.
    """
    if isinstance(expr, DimConst):
        return expr.value
    if isinstance(expr, Dim):
        return sizes[expr.name]
    return DIM_OPS[expr.op][0](evaluate_dim(expr.left, sizes), evaluate_dim(expr.right, sizes))


def evaluate_extent(expr: DimExpr, sizes: Mapping[str, int]) -> int:
    """The value of an expression as the size of an axis or of a grid: as `evaluate_dim`, but none below zero where a dim in it is zero.

    `n - 1` for n = 0 is 0: arrays of that size are empty, and a grid of that size launches nothing.
    """
    value = evaluate_dim(expr, sizes)
    return 0 if value < 0 and any(sizes[dim.name] == 0 for dim in dims_of(expr)) else value
