"""The two forms of sizes.

* Rows of three numbers, each after those that it is made of: interned as they are written, held against the laws of sizes, made again.
* Nested values, for JSON and for Python's tuples alike: a number, a dim's name, or [operation, left, right].
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.dims import DIM_OPS, MAX_DIM_TERMS, SIZE_LIMIT, WORD_LIMIT, Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.errors import shown
from vyre_py.ir.wire.codes import SIZE_CODES, SIZE_CONST, SIZE_DIM, SIZE_OPS
from vyre_py.ir.wire.flat import Fault

__all__ = ["Nested", "SizeError", "SizeRow", "SizeTable", "ranked", "read_size", "size_value", "sizes_of"]

_HIGH_LIMIT: Final = SIZE_LIMIT // WORD_LIMIT

SizeRow = tuple[int, int, int]  # kind; of a constant its low and high word, of a dim its number and 0, of an operation the rows of its sides


# ---------------------------------------------------------------- rows


class SizeTable:
    """The rows of sizes in the order in which they came, each once. `dims` are the numbers of the dims."""

    def __init__(self, dims: Mapping[Dim, int]) -> None:
        self.dims = dims
        self.rows: dict[SizeRow, int] = {}
        self.heights: list[int] = []

    def add(self, expr: DimExpr) -> int:
        """The number of a size. Raises KeyError for a dim that is not declared, OverflowError for a number that is no size, Fault for too many terms."""
        if expr.terms > MAX_DIM_TERMS:
            raise Fault("W107", f"a size has {expr.terms} terms, at most {MAX_DIM_TERMS} are allowed", "size_ops")
        return self._add(expr)

    def _add(self, expr: DimExpr) -> int:
        if isinstance(expr, DimConst):
            if not 0 <= expr.value < SIZE_LIMIT:
                raise OverflowError("a number that is not a size")
            return self._row((SIZE_CONST, expr.value % WORD_LIMIT, expr.value // WORD_LIMIT), 0)
        if isinstance(expr, Dim):
            return self._row((SIZE_DIM, self.dims[expr], 0), 0)
        left, right = self._add(expr.left), self._add(expr.right)
        return self._row((SIZE_CODES[expr.op], left, right), 1 + max(self.heights[left], self.heights[right]))

    def _row(self, row: SizeRow, height: int) -> int:
        number = self.rows.setdefault(row, len(self.rows))
        if number == len(self.heights):
            self.heights.append(height)
        return number


def ranked(rows: Iterable[SizeRow], dims: int) -> Iterator[tuple[int, int, int, int]]:
    """Height, kind, left and right of each row, over so many dims. Raises Fault, at the row of a table of sizes, for what is no size."""
    terms, heights = bytearray(), bytearray()
    for index, (op, left, right) in enumerate(rows):
        count, height = 1, 0
        if op == SIZE_CONST:
            if right >= _HIGH_LIMIT:
                raise Fault("W107", "a constant size is 2^48 or more", "size_right", index)
        elif op == SIZE_DIM:
            if left >= dims:
                raise Fault("W106", f"dim {left} where there are {dims}", "size_left", index)
            if right:
                raise Fault("W109", "a size that is a dim has a right side: it must be 0", "size_right", index)
        elif op not in SIZE_OPS:
            raise Fault("W105", f"{op} is not a kind of size", "size_ops", index)
        else:
            if left >= index or right >= index:
                side = "size_left" if left >= index else "size_right"
                raise Fault("W106", f"size {index} is made of size {max(left, right)}, which does not stand before it", side, index)
            count = terms[left] + terms[right]
            # Held against the limit here, so that whatever walks over a size later may recurse.
            if count > MAX_DIM_TERMS:
                raise Fault("W107", f"a size has more than {MAX_DIM_TERMS} terms", "size_ops", index)
            height = 1 + max(heights[left], heights[right])
        terms.append(count)
        heights.append(height)
        yield height, op, left, right


def sizes_of(rows: Iterable[SizeRow], dims: Sequence[Dim]) -> list[DimExpr]:
    """The sizes that rows stand for. Raises Fault as `ranked` does."""
    made: list[DimExpr] = []
    for _, op, left, right in ranked(rows, len(dims)):
        if op == SIZE_CONST:
            made.append(DimConst(right * WORD_LIMIT + left))
        else:
            made.append(dims[left] if op == SIZE_DIM else DimOp(SIZE_OPS[op], made[left], made[right]))
    return made


# ---------------------------------------------------------------- nested values


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
