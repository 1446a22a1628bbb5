"""Sizes: dims and exact arithmetic of them, as a builder hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.ir.builder.expressions import Expr, Operand
from vyre_py.ir.builder.where import fail
from vyre_py.ir.language.dims import WORD_LIMIT, DimConst, DimExpr, dim_op, is_size
from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.types import u32
from vyre_py.ir.public import public

if TYPE_CHECKING:
    from vyre_py.ir.builder.emission import Emitter

__all__ = ["Size", "as_size", "size_op"]


@public
class Size(Expr):
    """A dim, or an exact expression of dims: a size in shapes, and a u32 where it meets values; `vp.cast(n, vp.u64)` takes it whole."""

    __slots__ = ("expr",)

    def __init__(self, builder: Emitter | None, expr: DimExpr) -> None:
        super().__init__(builder, Const(u32, expr.value) if isinstance(expr, DimConst) and expr.value < WORD_LIMIT else expr)
        self.expr = expr

    def __add__(self, other: Operand) -> Expr:
        made = size_op("add", self, other)
        return super().__add__(other) if made is None else made

    def __radd__(self, other: Operand) -> Expr:
        made = size_op("add", other, self)
        return super().__radd__(other) if made is None else made

    def __sub__(self, other: Operand) -> Expr:
        made = size_op("sub", self, other)
        return super().__sub__(other) if made is None else made

    def __rsub__(self, other: Operand) -> Expr:
        made = size_op("sub", other, self)
        return super().__rsub__(other) if made is None else made

    def __mul__(self, other: Operand) -> Expr:
        made = size_op("mul", self, other)
        return super().__mul__(other) if made is None else made

    def __rmul__(self, other: Operand) -> Expr:
        made = size_op("mul", other, self)
        return super().__rmul__(other) if made is None else made


def as_size(operand: Operand) -> DimExpr | None:
    """The dim expression of a size or a whole number, or None."""
    if isinstance(operand, Size):
        return operand.expr
    return DimConst(int(operand)) if is_size(operand) else None


def size_op(name: str, a: Operand, b: Operand) -> Size | None:
    """The exact operation on two sizes; None when one operand is no size."""
    left, right = as_size(a), as_size(b)
    if left is None or right is None:
        return None
    try:
        made = dim_op(name, left, right)
    except (OverflowError, ZeroDivisionError) as error:
        fail("B106", str(error), "compute the size in the Program, or bind it as a dim of its own")
    builder = next((o.builder for o in (a, b) if isinstance(o, Size) and o.builder is not None), None)
    return Size(builder, made)
