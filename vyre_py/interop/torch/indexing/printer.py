"""Expressions of indices and sizes as text: whole numbers of i32 or i64, and floats of f64, as Python computes with sizes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import sympy
import torch

from vyre_py.interop.torch.terms import literal
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["IndexPrinter", "is_float", "number_typed"]

_NUMBER: Final = re.compile(r"-?\d+")
_SUM, _PRODUCT, _NAME = range(3)  # how close the parts of a text hold together
_WORD: Final = 1 << 64
_DIGITS: Final = 22  # powers of ten up to this one are numbers of f64

# Functions of floats, by what their classes are named behind OpaqueUnaryFn_.
_FUNCTIONS: Final = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "asinh", "log2")
_FLOATS: Final = frozenset({
    "Float", "IntTrueDiv", "FloatTrueDiv", "FloatPow", "ToFloat", "TruncToFloat", "RoundDecimal", "Infinity", "NegativeInfinity", "NaN",
    *(f"OpaqueUnaryFn_{name}" for name in _FUNCTIONS),
})  # fmt: skip
# What is a float where a part of it is one.
_EITHER: Final = frozenset({"Add", "Mul", "Pow", "Min", "Max", "Abs", "FloorDiv", "CleanDiv", "PythonMod", "Mod", "Identity", "Where"})


def number_typed(text: str, index_type: str) -> str:
    """Text of an index that may be a bare number, which has its type behind it then."""
    return f"{text}{index_type}" if _NUMBER.fullmatch(text) else text


def is_float(expr: Any) -> bool:
    """Whether an expression is of floats, rather than of whole numbers or truths."""
    name = type(expr).__name__
    if isinstance(expr, sympy.Rational):
        return not isinstance(expr, sympy.Integer)
    if isinstance(expr, sympy.Symbol):
        return expr.is_integer is False
    if isinstance(expr, sympy.Pow) and not _is_natural(expr.exp):
        return True
    parts = expr.args
    if isinstance(expr, sympy.Mul) and expr.is_integer:  # a fraction among its factors leaves no rest
        parts = [part for part in parts if not isinstance(part, sympy.Rational)]
    return name in _FLOATS or (name in _EITHER and any(map(is_float, parts)))


def _is_natural(expr: Any) -> bool:
    return isinstance(expr, sympy.Integer) and expr >= 0


class IndexPrinter:
    """Prints expressions. `symbol` is asked for the text of each symbol, in the type of whole numbers.

    Division rounds down in SymPy, and toward zero in the language: where the dividend may be negative a remainder says which it is.
    """

    def __init__(self, symbol: Callable[[str], str], type_: str) -> None:
        self._symbol, self._type = symbol, type_

    def doprint(self, expr: Any) -> str:
        """The text of an expression. Raises Unsupported, which names a function that has none."""
        return self._form(expr)[0]

    def _form(self, expr: Any) -> tuple[str, int]:
        """The text, and how close its parts hold together."""
        for base in type(expr).__mro__:
            if base.__name__ in _FORMS:
                return _FORMS[base.__name__](self, expr)
        raise Unsupported("the backend vyre", [Missing(f"{type(expr).__name__} of sizes in a kernel")])

    def _within(self, expr: Any, level: int) -> str:
        """A part that others stand beside."""
        text, own = self._form(expr)
        return text if own > level else f"({text})"

    def _whole(self, expr: Any) -> str:
        return number_typed(self.doprint(expr), self._type)

    def _float(self, expr: Any) -> str:
        if isinstance(expr, sympy.Number):
            return literal(float(expr), torch.float64)
        return self.doprint(expr) if is_float(expr) else f"cast({self._whole(expr)}, f64)"

    def _alike(self, *exprs: Any) -> list[str]:
        """The texts of expressions as arguments of one call: floats where one of them is a float."""
        return [*map(self._float if any(map(is_float, exprs)) else self._whole, exprs)]

    def _sides(self, expr: Any) -> list[str]:
        """The same as operands."""
        return [text if text.isidentifier() or text.isalnum() else f"({text})" for text in self._alike(*expr.args[:2])]

    def _number(self, expr: Any) -> tuple[str, int]:
        """What is beyond i64 wraps, as whole numbers of PyTorch do."""
        number = (int(expr) + _WORD // 2) % _WORD - _WORD // 2
        return str(number), _NAME if number >= 0 else _SUM

    def _sum(self, expr: Any) -> tuple[str, int]:
        if is_float(expr):
            return " + ".join(f"({self._float(part)})" for part in expr.args), _SUM
        return " + ".join(self._within(part, _SUM) for part in expr.args), _SUM

    def _product(self, expr: Any) -> tuple[str, int]:
        if is_float(expr):
            return " * ".join(f"({self._float(part)})" for part in expr.args), _PRODUCT
        share, rest = expr.as_coeff_Mul()
        if not isinstance(share, sympy.Integer):
            return f"({self._within(share.p * rest, _PRODUCT)} / {share.q})", _NAME
        return " * ".join(self._within(part, _PRODUCT) for part in expr.args), _PRODUCT

    def _power(self, expr: Any) -> tuple[str, int]:
        base, exponent = expr.args
        if not _is_natural(exponent):
            return f"pow({self._float(base)}, {self._float(exponent)})", _NAME
        factor = f"({self._float(base)})" if is_float(base) else self._within(base, _PRODUCT)
        return " * ".join([factor] * int(exponent)) or "1", _PRODUCT

    def _natural_power(self, expr: Any) -> tuple[str, int]:
        base, exponent = expr.args
        if base == 2:
            return f"(1{self._type} << ({self._whole(exponent)}))", _NAME
        if not _is_natural(exponent):
            raise Unsupported("the backend vyre", [Missing(f"a power with the exponent {exponent} in an index")])
        return self._power(expr)

    def _quotient(self, expr: Any) -> tuple[str, int]:
        left, right = self._sides(expr)
        if is_float(expr):
            return f"floor({left} / {right})", _NAME
        if expr.args[0].is_nonnegative and expr.args[1].is_nonnegative:
            return f"({left} / {right})", _NAME
        return f"({left} / {right} - select(({left} % {right} != 0) && ((({left} % {right}) < 0) != ({right} < 0)), 1, 0))", _NAME

    def _remainder(self, expr: Any) -> tuple[str, int]:
        left, right = self._sides(expr)
        if expr.args[0].is_nonnegative and expr.args[1].is_nonnegative:
            return f"({left} % {right})", _NAME
        return f"(({left} % {right} + {right}) % {right})", _NAME

    def _remainder_of_quotient(self, expr: Any) -> tuple[str, int]:
        value, divisor, modulus = map(self._whole, expr.args)
        quotient = f"({value})" if expr.args[1] == 1 else f"(({value}) / ({divisor}))"
        return f"({quotient} % ({modulus}))", _NAME

    def _true_quotient(self, expr: Any) -> tuple[str, int]:
        left, right = map(self._float, expr.args)
        return f"(({left}) / ({right}))", _NAME

    def _to_whole(self, rounding: str, expr: Any) -> tuple[str, int]:
        (value,) = expr.args
        return (f"cast({rounding}({self._float(value)}), {self._type})", _NAME) if is_float(value) else self._form(value)

    def _of_float(self, name: str, expr: Any) -> tuple[str, int]:
        return f"{name}({', '.join(map(self._float, expr.args))})", _NAME

    def _rounded(self, expr: Any) -> tuple[str, int]:
        value, digits = expr.args
        if not isinstance(digits, sympy.Integer) or abs(digits) > _DIGITS:
            raise Unsupported("the backend vyre", [Missing(f"round to {digits} digits of a size in a kernel")])
        scale, (up, down) = literal(10.0 ** abs(int(digits)), torch.float64), "*/" if digits >= 0 else "/*"
        return f"(round(({self._float(value)}) {up} {scale}) {down} {scale})", _NAME

    def _call(self, name: str, expr: Any) -> tuple[str, int]:
        return functools.reduce(lambda left, right: f"{name}({left}, {right})", self._alike(*expr.args)), _NAME

    def _choice(self, expr: Any) -> tuple[str, int]:
        condition, yes, no = expr.args
        return f"select({self.doprint(condition)}, {', '.join(self._alike(yes, no))})", _NAME

    def _relation(self, expr: Any) -> tuple[str, int]:
        left, right = self._sides(expr)
        return f"({left} {expr.rel_op} {right})", _NAME

    def _joined(self, mark: str, expr: Any) -> tuple[str, int]:
        return f"({f' {mark} '.join(self._within(part, _PRODUCT) for part in expr.args)})", _NAME


Form = Callable[[IndexPrinter, Any], tuple[str, int]]


def _form_of(method: Callable[..., tuple[str, int]], word: str) -> Form:
    return lambda printer, expr: method(printer, word, expr)


_P: Final = IndexPrinter
# Names of classes of SymPy and PyTorch -> their text.
_FORMS: Final[Mapping[str, Form]] = {
    "Symbol": lambda printer, expr: (printer._symbol(expr.name), _NAME),
    "Integer": _P._number,
    **dict.fromkeys(("Float", "Rational", "Infinity", "NegativeInfinity", "NaN"), lambda printer, expr: (f"({printer._float(expr)})", _NAME)),
    "Add": _P._sum, "Mul": _P._product, "Pow": _P._power, "PowByNatural": _P._natural_power,
    "FloorDiv": _P._quotient, "PythonMod": _P._remainder, "Mod": _P._remainder, "ModularIndexing": _P._remainder_of_quotient,
    "IntTrueDiv": _P._true_quotient, "FloatTrueDiv": _P._true_quotient, "RoundDecimal": _P._rounded,
    "ToFloat": lambda printer, expr: (f"({printer._float(expr.args[0])})", _NAME),
    **{name: _form_of(_P._to_whole, word) for name, word in {
        "TruncToInt": "trunc", "RoundToInt": "round", "FloorToInt": "floor", "floor": "floor", "CeilToInt": "ceil", "ceiling": "ceil"}.items()},
    **{f"OpaqueUnaryFn_{name}": _form_of(_P._of_float, name) for name in _FUNCTIONS},
    "FloatPow": _form_of(_P._of_float, "pow"), "TruncToFloat": _form_of(_P._of_float, "trunc"),
    "Min": _form_of(_P._call, "min"), "Max": _form_of(_P._call, "max"), "Abs": lambda printer, expr: (f"abs({printer._alike(expr.args[0])[0]})", _NAME),
    "Where": _P._choice, "Relational": _P._relation, "Identity": lambda printer, expr: printer._form(expr.args[0]),
    **{name: _form_of(_P._joined, mark) for name, mark in {
        "And": "&&", "Or": "||", "BitwiseFn_bitwise_and": "&", "BitwiseFn_bitwise_or": "|", "BitwiseFn_bitwise_xor": "^"}.items()},
    "Not": lambda printer, expr: (f"(!{printer._within(expr.args[0], _PRODUCT)})", _NAME),
    "BooleanTrue": lambda *_: ("true", _NAME), "BooleanFalse": lambda *_: ("false", _NAME),
}  # fmt: skip
