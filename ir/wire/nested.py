"""Sizes as nested values, for JSON and for Python's tuples alike: a number, a dim's name, or [operation, left, right]."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from vyre_py.ir.language.dims import DIM_OPS, MAX_DIM_TERMS, SIZE_LIMIT, Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.errors import shown

__all__ = ["Nested", "SizeError", "read_size", "size_value"]

Nested = int | str | tuple[object, ...] | list[object]
_FORM: Final = "a whole number from 0 to 2^48 - 1, a dim's name, or [operation, size, size]"


class SizeError(Exception):
    """A value is no size: the code of a rule, and what was found and expected."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def read_size(value: object, dims: Container[Dim], depth: int = 0) -> DimExpr:
    """The size that a nested value stands for. Raises SizeError."""
    if isinstance(value, str):
        if Dim(value) not in dims:
            raise SizeError("W106", f"the dim {shown(value)} is not declared")
        return Dim(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SIZE_LIMIT:
        return DimConst(int(value))
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise SizeError("W115", f"found {shown(value)}, expected {_FORM}")
    op, left, right = value
    if not isinstance(op, str) or op not in DIM_OPS:
        raise SizeError("W105", f"found {shown(op)}, expected one of {', '.join(DIM_OPS)}")
    # A tree of so many terms is never deeper, and the recursion stays short.
    if depth >= MAX_DIM_TERMS:
        raise SizeError("W107", f"a size has more than {MAX_DIM_TERMS} terms")
    made = DimOp(op, read_size(left, dims, depth + 1), read_size(right, dims, depth + 1))
    if made.terms > MAX_DIM_TERMS:
        raise SizeError("W107", f"a size has more than {MAX_DIM_TERMS} terms")
    return made


def size_value(expr: DimExpr) -> int | str | list[object]:
    """The nested value of a size of at most `MAX_DIM_TERMS` terms: the inverse of `read_size`."""
    if isinstance(expr, DimConst):
        return expr.value
    return expr.name if isinstance(expr, Dim) else [expr.op, size_value(expr.left), size_value(expr.right)]
