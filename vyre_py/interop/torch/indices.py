"""Index expressions of Inductor as text: whole numbers of the kernel's index type, i32 or i64."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from torch.utils._sympy.printers import ExprPrinter

from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["IndexPrinter", "number_typed"]

_NUMBER = re.compile(r"-?\d+")


def number_typed(text: str, index_type: str) -> str:
    """Text of an index that may be a bare number, which has its type behind it then."""
    return f"{text}{index_type}" if _NUMBER.fullmatch(text) else text


class IndexPrinter(ExprPrinter):  # type: ignore[misc]  # PyTorch has no types for this checker
    """Prints expressions. `convert` is asked for each symbol's text, in the index type.

    Division rounds down in SymPy, and toward zero in the language: where the dividend may be negative a remainder says which it is.
    """

    def __init__(self, convert: Callable[[str], str], index_type: Callable[[], str]) -> None:
        super().__init__()
        self._convert, self._index_type = convert, index_type

    def _print_Symbol(self, expr: Any) -> str:  # noqa: N802 - SymPy's printers are called by the names of its classes
        return self._convert(expr.name)

    def _pair(self, expr: Any) -> tuple[str, str]:
        left, right = (number_typed(self.doprint(part), self._index_type()) for part in expr.args[:2])
        return f"({left})", f"({right})"

    def _print_FloorDiv(self, expr: Any) -> str:  # noqa: N802 - as above
        left, right = self._pair(expr)
        if expr.args[0].is_nonnegative and expr.args[1].is_nonnegative:
            return f"({left} / {right})"
        return f"({left} / {right} - select(({left} % {right} != 0) && ((({left} % {right}) < 0) != ({right} < 0)), 1, 0))"

    def _print_PythonMod(self, expr: Any) -> str:  # noqa: N802 - as above
        left, right = self._pair(expr)
        if expr.args[0].is_nonnegative and expr.args[1].is_nonnegative:
            return f"({left} % {right})"
        return f"(({left} % {right} + {right}) % {right})"

    def _print_Mod(self, expr: Any) -> str:  # noqa: N802 - as above
        return self._print_PythonMod(expr)

    def _print_ModularIndexing(self, expr: Any) -> str:  # noqa: N802 - as above
        value, divisor, modulus = (number_typed(self.doprint(part), self._index_type()) for part in expr.args)
        quotient = f"({value})" if expr.args[1] == 1 else f"(({value}) / ({divisor}))"
        return f"({quotient} % ({modulus}))"

    def _fold(self, name: str, expr: Any) -> str:
        parts = [number_typed(self.doprint(part), self._index_type()) for part in expr.args]
        return functools.reduce(lambda left, right: f"{name}({left}, {right})", parts)

    def _print_Min(self, expr: Any) -> str:  # noqa: N802 - as above
        return self._fold("min", expr)

    def _print_Max(self, expr: Any) -> str:  # noqa: N802 - as above
        return self._fold("max", expr)

    def _print_Where(self, expr: Any) -> str:  # noqa: N802 - as above
        condition, yes, no = expr.args
        sides = (number_typed(self.doprint(part), self._index_type()) for part in (yes, no))
        return f"select({self.doprint(condition)}, {', '.join(sides)})"

    def _print_Abs(self, expr: Any) -> str:  # noqa: N802 - as above
        return f"abs({self.doprint(expr.args[0])})"

    def _relation(self, mark: str, expr: Any) -> str:
        left, right = self._pair(expr)
        return f"({left} {mark} {right})"

    def _print_Relational(self, expr: Any) -> str:  # noqa: N802 - as above
        return self._relation(expr.rel_op, expr)

    def _print_And(self, expr: Any) -> str:  # noqa: N802 - as above
        return f"({' && '.join(map(self.doprint, expr.args))})"

    def _print_Or(self, expr: Any) -> str:  # noqa: N802 - as above
        return f"({' || '.join(map(self.doprint, expr.args))})"

    def _print_PowByNatural(self, expr: Any) -> str:  # noqa: N802 - as above
        base, exponent = expr.args
        if not exponent.is_number:
            raise Unsupported("the backend vyre", [Missing(f"a power with the exponent {exponent} in an index")])
        return f"({' * '.join([f'({self.doprint(base)})'] * int(exponent)) or '1'})"

    def _print_ToFloat(self, expr: Any) -> str:  # noqa: N802 - as above
        return f"cast({number_typed(self.doprint(expr.args[0]), self._index_type())}, f64)"
