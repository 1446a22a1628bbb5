"""Sizes in C: dim expressions in signed arithmetic of 64 bits, every step of which is checked.

Python's sizes are exact. In C a step that leaves 64 bits, or divides by zero, clears `fits`, and the caller refuses. So a result is exact or is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.dims import Dim, DimConst, DimExpr

__all__ = ["Sizes"]

# Operation of `ir.language.dims.DIM_OPS` -> the C function for it.
_FUNCTIONS: Final[Mapping[str, str]] = {
    "add": """static int64_t size_add(int64_t a, int64_t b, int *fits)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        *fits = 0;
        return 0;
    }
    return a + b;
}""",
    "sub": """static int64_t size_sub(int64_t a, int64_t b, int *fits)
{
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) {
        *fits = 0;
        return 0;
    }
    return a - b;
}""",
    "mul": """static int64_t size_mul(int64_t a, int64_t b, int *fits)
{
    if (a == 0 || b == 0)
        return 0;
    if (a == INT64_MIN || b == INT64_MIN || (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b)) {
        *fits = 0;
        return 0;
    }
    return a * b;
}""",
    "ceil_div": """static int64_t size_ceil_div(int64_t a, int64_t b, int *fits)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        *fits = 0;
        return 0;
    }
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}""",
    "min": """static int64_t size_min(int64_t a, int64_t b, int *fits)
{
    (void)fits;
    return a < b ? a : b;
}""",
    "max": """static int64_t size_max(int64_t a, int64_t b, int *fits)
{
    (void)fits;
    return a > b ? a : b;
}""",
    "huge": """static int64_t size_huge(int *fits)
{
    *fits = 0;
    return 0;
}""",
}


class Sizes:
    """Dim expressions as C, over an array `dims` of the dims' sizes and an int `fits`."""

    def __init__(self, dims: Sequence[Dim]) -> None:
        self._numbers = {dim.name: number for number, dim in enumerate(dims)}
        self._used: set[str] = set()

    def expression(self, expr: DimExpr) -> str:
        """The C expression; recursion is bounded by the terms that an expression may have."""
        if isinstance(expr, DimConst):
            if expr.value < 1 << 63:
                return f"INT64_C({expr.value})"
            self._used.add("huge")
            return "size_huge(&fits)"
        if isinstance(expr, Dim):
            return f"dims[{self._numbers[expr.name]}]"
        self._used.add(expr.op)
        return f"size_{expr.op}({self.expression(expr.left)}, {self.expression(expr.right)}, &fits)"

    def functions(self) -> Iterator[str]:
        """The C functions that the expressions so far call."""
        return (text for op, text in _FUNCTIONS.items() if op in self._used)
