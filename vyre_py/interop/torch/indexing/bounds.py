"""How large the whole numbers of an index expression may be: whether i32 holds all of them, those on the way to the result too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, NamedTuple

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import SymT, symbol_is_type

from vyre_py.ir.cached import cached_property

__all__ = ["Bounds"]

_SMALL: Final = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)


class Interval(NamedTuple):
    """All whole numbers from one to another."""

    low: int
    high: int


_WORD: Final = Interval(-(1 << 31), (1 << 31) - 1)
Known = Callable[[Any], Interval | None]  # of a symbol, None where nothing is known


class _Beyond(Exception):
    """Some number may be one that i32 does not hold."""


class Bounds:
    """What the symbols of a kernel may be: `features` are Inductor's of it, `entries` its indices by symbol, and `dtypes` its variables' by name."""

    def __init__(self, features: Any, entries: Mapping[Any, Any], dtypes: Mapping[str, Any]) -> None:
        self._features, self._entries, self._dtypes = features, entries, dtypes

    def fits_i32(self, expr: Any, *, trusting: bool = False) -> bool:
        """Whether it is certain that i32 holds all numbers of an expression, in a kernel whose indices are of i32. `trusting` takes it for certain where
        it hangs on sizes or variables, as of an index into memory."""
        try:
            return _interval(expr, self._of_loop if trusting else self._of_symbol) is not None or trusting
        except _Beyond:
            return False

    def _of_loop(self, symbol: Any) -> Interval | None:
        length = self._entries[symbol].length if symbol in self._entries else None
        return Interval(0, int(length) - 1) if isinstance(length, sympy.Integer) else None

    def _of_symbol(self, symbol: Any) -> Interval | None:
        if symbol in self._entries:
            return self._of_loop(symbol) or Interval(0, _WORD.high)
        if symbol_is_type(symbol, SymT.TMP):
            dtype = self._dtypes.get(symbol.name)
            return Interval(torch.iinfo(dtype).min, torch.iinfo(dtype).max) if dtype in _SMALL else None
        return Interval(0, _WORD.high) if symbol in self._sizes else None

    @cached_property
    def _sizes(self) -> set[Any]:
        """The sizes of axes of loops and of what has memory: a kernel with indices of i32 runs with small ones only."""
        found = {*sympy.Mul.make_args(self._features.numel), *sympy.Mul.make_args(self._features.reduction_numel)}
        names = {name for node in self._features.scheduler_nodes() for name in (*node.get_buffer_names(), *node.used_buffer_names())}
        for buffer in map(V.graph.get_buffer, names):
            if buffer is not None and buffer.has_tensor_output():
                layout = buffer.get_layout()
                if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):  # of a view: the memory is that of the buffer behind it
                    layout = layout.real_layout()
                found |= {size for size, stride in zip(layout.size, layout.stride, strict=True) if V.graph.sizevars.statically_known_geq(stride, 1)}
        return {size for size in found if isinstance(size, sympy.Symbol)}


def _interval(expr: Any, known: Known) -> Interval | None:
    if isinstance(expr, sympy.Symbol):
        found = known(expr)
    elif isinstance(expr, sympy.Integer):
        found = Interval(int(expr), int(expr))
    else:
        parts = [_interval(part, known) for part in expr.args]
        rule = _RULES.get(type(expr).__name__)
        found = rule(*parts) if rule is not None and None not in parts else None
    if found is not None and not (_WORD.low <= found.low and found.high <= _WORD.high):
        raise _Beyond
    return found


def _sum(*parts: Interval) -> Interval:
    return Interval(sum(part.low for part in parts), sum(part.high for part in parts))


def _product(*parts: Interval) -> Interval:
    corners = [prod(corner) for corner in itertools.product(*parts)] if len(parts) < 3 else [*_product(parts[0], _product(*parts[1:]))]
    return Interval(min(corners), max(corners))


def _power(base: Interval, exponent: Interval) -> Interval | None:
    return _product(*[base] * exponent.high) if exponent.low == exponent.high and 0 < exponent.high < 64 else None


def _quotient(value: Interval, divisor: Interval) -> Interval | None:
    if divisor.low < 1:
        return None
    corners = [a // b for a, b in itertools.product(value, divisor)]
    return Interval(min(corners), max(corners))


def _remainder(_: Interval, *divisors: Interval) -> Interval | None:
    return Interval(0, divisors[-1].high - 1) if divisors[-1].low > 0 else None


def _least(*parts: Interval) -> Interval:
    return Interval(min(part.low for part in parts), min(part.high for part in parts))


def _greatest(*parts: Interval) -> Interval:
    return Interval(max(part.low for part in parts), max(part.high for part in parts))


_RULES: Final[dict[str, Callable[..., Interval | None]]] = {
    "Add": _sum, "Mul": _product, "Pow": _power, "FloorDiv": _quotient, "CleanDiv": _quotient, "PythonMod": _remainder, "Mod": _remainder,
    "ModularIndexing": _remainder, "Min": _least, "Max": _greatest, "Identity": lambda part: part,
}  # fmt: skip
