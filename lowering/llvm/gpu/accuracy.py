"""How far results may lie from the exact ones under numerics "fast", as data: `lowering/FAST.md` is made of it, tests hold devices to it.

An error is measured against the exact result r for the arguments x and y as the kernel sees them: in f32, with zeros of their sign in place of
subnormal numbers. It is at most the sum of a number of ULP of r and of terms 2^exponent * scale. The instructions' own errors are those
that NVIDIA states (Parallel Thread Execution ISA, floating point instructions); what is made of several adds the rounding of constants
and of the steps between:

* exp, exp10: the product x log2(base) and its constant are off by 2^-24 and 2^-26.2 (2^-25.5) of itself, which the exponential multiplies by
  ln 2 times the product: 2^-23.7 (2^-22.3) |x r|.
* log, log10: lg2's 2^-22, the product's 2^-24 and the constant's 2^-28.4 (2^-24.3), of the result, or of that for 2 where it is smaller.
* sin, cos: x less whole turns is off by 2^-23, the instruction by 2^-20.5.
* pow: lg2's and the product's errors, 2^-22 and 2^-24, multiplied by ln 2 and the exponent.
* What is expanded as in strict: steps that are flushed, of which none tried lost more than 2^-125 of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.types import Array

__all__ = ["BOUNDS", "Bound", "Term"]

# A name, as the page prints it -> the number, of the exact result and the arguments in f64.
_SCALES: Final[Mapping[str, Callable[..., Array]]] = {
    "1": lambda r, *rest: np.ones_like(r),
    "|r|": lambda r, x: np.abs(r),
    "|x r|": lambda r, x: np.abs(x * r),
    "max(1, |r|)": lambda r, x: np.maximum(1.0, np.abs(r)),
    "max(ln 2, |r|)": lambda r, x: np.maximum(np.log(2.0), np.abs(r)),
    "max(log10 2, |r|)": lambda r, x: np.maximum(np.log10(2.0), np.abs(r)),
    "|y r| max(1, |log2 x|)": lambda r, x, y: np.abs(r) * _exponent(x, y),
}

_DOMAINS: Final[Mapping[str, Callable[..., Array]]] = {
    "all": lambda x, *rest: np.ones(x.shape, np.bool_),
    "|x| <= 2^18": lambda x: np.abs(x) <= 2.0**18,
    "|y| max(1, |log2 x|) <= 2^16": lambda x, y: ~(_exponent(x, y) > 2.0**16),
}


def _exponent(x: Array, y: Array) -> Array:
    """How much an error of the logarithm counts in a power; 0 where it has none, or the power is decided without it."""
    size = np.abs(x)
    plain = (size > 0.0) & np.isfinite(size) & (size != 1.0) & ~np.isnan(y)
    return np.where(plain, np.abs(y) * np.maximum(1.0, np.abs(np.log2(np.where(plain, size, 1.0)))), 0.0)


@dataclass(frozen=True, slots=True)
class Term:
    """2^exponent times a scale, by its name."""

    exponent: float
    scale: str

    def __str__(self) -> str:
        return f"2^{self.exponent:g}" + (f" {self.scale}" if self.scale != "1" else "")


@dataclass(frozen=True, slots=True)
class Bound:
    """The error of an op over f32 on a kind of target: at most `ulp` units in the last place and the sum of the `terms`, in the `domain`.
    `form` is what computes the op."""

    op: str
    target: str
    form: str
    ulp: float = 0.0
    terms: tuple[Term, ...] = ()
    domain: str = "all"

    def __str__(self) -> str:
        return " + ".join([*([f"{self.ulp:g} ULP"] if self.ulp else []), *map(str, self.terms)])

    def allowed(self, unit: Array, exact: Array, *arguments: Array) -> Array:
        """The greatest error for exact results and arguments in f64; `unit` is the ULP of each result."""
        with np.errstate(all="ignore"):
            terms = [2.0**t.exponent * _SCALES[t.scale](exact, *arguments) for t in self.terms]
        return np.asarray(self.ulp * unit + sum(terms))

    def covers(self, *arguments: Array) -> Array:
        """Where arguments in f64 are in the domain."""
        with np.errstate(all="ignore"):
            return _DOMAINS[self.domain](*arguments)


def _ptx(op: str, form: str, *terms: tuple[float, str], ulp: float = 0.0, domain: str = "all") -> Bound:
    return Bound(op, "ptx", form, ulp, tuple([Term(*term) for term in terms]), domain)


_OF_POWER: Final = "|y r| max(1, |log2 x|)"

_APPROXIMATE: Final = (
    _ptx("div", "div.full, of 1 rcp.approx", ulp=2.0),
    _ptx("sqrt", "sqrt.approx", (-23.0, "|r|")),
    _ptx("rsqrt", "rsqrt.approx", (-22.9, "|r|")),
    # Its 2 ULP are counted from the correctly rounded result.
    _ptx("exp2", "ex2.approx", ulp=2.5),
    _ptx("exp", "ex2.approx of x log2(e)", (-23.7, "|x r|"), ulp=2.5),
    _ptx("exp10", "ex2.approx of x log2(10)", (-22.3, "|x r|"), ulp=2.5),
    _ptx("log2", "lg2.approx", (-22.0, "max(1, |r|)")),
    _ptx("log", "lg2.approx times ln(2)", (-21.6, "max(ln 2, |r|)")),
    _ptx("log10", "lg2.approx times log10(2)", (-21.4, "max(log10 2, |r|)")),
    _ptx("sin", "sin.approx of x less whole turns", (-20.0, "1"), domain="|x| <= 2^18"),
    _ptx("cos", "cos.approx of x less whole turns", (-20.0, "1"), domain="|x| <= 2^18"),
    _ptx("tanh", "tanh.approx; before sm_80 as in strict", (-10.9, "|r|")),
    _ptx("pow", "ex2.approx of y lg2.approx(|x|), and C's special values", (-22.1, _OF_POWER), ulp=2.5, domain="|y| max(1, |log2 x|) <= 2^16"),
)
_ROUNDED: Final = ("add", "sub", "mul", "fma")
_WRITTEN_OUT: Final = tuple(sorted(TRANSCENDENTAL - {bound.op for bound in _APPROXIMATE}))

# The rows of f32 by op and kind of target.
BOUNDS: Final[Mapping[tuple[str, str], Bound]] = {
    (bound.op, bound.target): bound
    for bound in (
        *(_ptx(op, "as in strict", ulp=0.5) for op in _ROUNDED),
        *_APPROXIMATE,
        *(_ptx(op, "as in strict", (-125.0, "1"), ulp=float(OPS[op].ulp)) for op in _WRITTEN_OUT),
        *(Bound(op, "host", "as in strict", 0.5) for op in (*_ROUNDED, "div", "sqrt")),
        Bound("rsqrt", "host", "as in strict", 1.5),
        *(Bound(op, "host", "as in strict", float(OPS[op].ulp)) for op in sorted(TRANSCENDENTAL)),
    )
}
