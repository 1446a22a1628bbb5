"""The coefficients of `ir/math` for f64, and of special functions for f32: what each polynomial approximates, and how its coefficients are made.

    python tests/math_coefficients.py [NAME ...]    prints them, with the greatest error they leave; all without a name

A polynomial has the least squares of relative errors at the Chebyshev points of its interval (near enough the minimax one: L. N. Trefethen,
Approximation Theory and Approximation Practice, 2013, chapter 16). The first coefficients are rounded to f64 one after another, each before
what is left is fitted anew, so that the later ones make up for it; of f32 all are. Computed by mpmath with 60 digits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import mpmath
import numpy as np

__all__ = ["POLYNOMIALS", "ROOTS", "Polynomial", "Roots", "coefficients", "gamma_root", "gamma_root_places", "greatest_error"]

_DIGITS: Final = 60
_ROUNDED_SINGLY: Final = 4  # the rounding of later ones is far below that of the result
_POINTS: Final = 4  # for each coefficient

_Number = Any  # mpmath has no types


@dataclass(frozen=True)
class Polynomial:
    """`function` from `low` to `high`, by so many coefficients. `weight` is how much of an error is seen in the result, relative to it; `single` whether
    it is for f32."""

    function: Callable[[_Number], _Number]
    low: str
    high: str
    count: int
    weight: Callable[[_Number], _Number]
    single: bool = False

    def rounded(self, c: _Number) -> float:
        """A coefficient as its type holds it."""
        return float(np.float32(float(c))) if self.single else float(c)


def _points(p: Polynomial, count: int) -> list[_Number]:
    """Chebyshev points of the interval: an even number, so that its middle, where some functions are 0 / 0, is none of them."""
    low, high = mpmath.mpf(p.low), mpmath.mpf(p.high)
    return [(low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def coefficients(p: Polynomial) -> list[float]:
    """The coefficients, that of the lowest power first."""
    with mpmath.workdps(_DIGITS):
        samples = [(x, p.function(x), p.weight(x)) for x in _points(p, _POINTS * p.count)]
        fixed: list[_Number] = []
        for _ in range(p.count if p.single else min(_ROUNDED_SINGLY, p.count)):
            powers = range(len(fixed), p.count)
            rows = mpmath.matrix([[weight * x**k for k in powers] for x, _, weight in samples])
            rest = mpmath.matrix([weight * (value - _at(fixed, x)) for x, value, weight in samples])
            found = [mpmath.mpf(p.rounded(c)) for c in mpmath.lu_solve(rows, rest)]
            fixed.append(found[0])
        return [float(c) for c in fixed + found[1:]]


def greatest_error(p: Polynomial, made: list[float]) -> float:
    """The greatest relative error of the result."""
    with mpmath.workdps(_DIGITS):
        exact = [mpmath.mpf(c) for c in made]
        return float(max(abs((p.function(x) - _at(exact, x)) * p.weight(x)) for x in _points(p, 400)))


def _at(made: list[_Number], x: _Number) -> _Number:
    total = mpmath.mpf(0)
    for c in reversed(made):
        total = total * x + c
    return total


def _over_square(function: Callable[[_Number], _Number]) -> Callable[[_Number], _Number]:
    """(f(x)/x - 1)/x^2 of x^2, for an odd f."""
    return lambda z: (function(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z


def _odd(function: Callable[[_Number], _Number], high: str, count: int) -> Polynomial:
    """The tail of an odd function in x^2, up to an x^2."""
    return Polynomial(_over_square(function), "0", high, count, lambda z: z * mpmath.sqrt(z) / function(mpmath.sqrt(z)))


def _scaled_erfc(x: _Number) -> _Number:
    return mpmath.exp(x**2) * mpmath.erfc(x) * (x + 1.5)


@cache
def _scaled_erfcx(t: _Number) -> _Number:
    """exp(x^2) erfc(x) (x + 2) of t = 1 - 4 / (x + 2); for large x by the beginning of its asymptotic series."""
    x = 4 / (1 - t) - 2
    if x < 200:
        return mpmath.exp(x**2) * mpmath.erfc(x) * (x + 2)
    series = mpmath.fsum((-1) ** k * mpmath.fac2(2 * k - 1) / (2 * x**2) ** k for k in range(20))
    return series * (1 + 2 / x) / mpmath.sqrt(mpmath.pi)


@cache
def _inverse_erf(w: _Number) -> _Number:
    """erfinv(x) / x for the x above 0 with -log(1 - x^2) = w."""
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return mpmath.erfinv(x) / x


def _piece(of: Callable[[_Number], _Number], low: float, high: float, origin: float, middle: float, count: int, *, single: bool = False) -> Polynomial:
    """`_inverse_erf` for a w of the variable, from the origin, less about what it is."""
    return Polynomial(
        lambda t: _inverse_erf(of(t + origin)) - mpmath.mpf(middle), repr(low - origin), repr(high - origin), count,
        lambda t: 1 / _inverse_erf(of(t + origin)), single,
    )  # fmt: skip


def _stirling_rest(v: _Number) -> _Number:
    """What Stirling's formula lacks, times y, for y = 1 / sqrt(v)."""
    y = 1 / mpmath.sqrt(v)
    return (mpmath.loggamma(y) - (y - mpmath.mpf(0.5)) * (mpmath.log(y) - 1) - (mpmath.log(2 * mpmath.pi) - 1) / 2) * y


def _sine_loss(u: _Number) -> _Number:
    """(1 - sin(pi f) / (pi f)) / u for f = sqrt(u)."""
    turn = mpmath.pi * mpmath.sqrt(u)
    return (1 - mpmath.sin(turn) / turn) / u


def _itself(t: _Number) -> _Number:
    return t


def _square(t: _Number) -> _Number:
    return t * t


_ERFC_MIDDLE: Final = 0.8432254562445743
_SIXTH: Final = float(np.float32(math.pi**2 / 6)), math.pi**2 / 6
_ERFCX_MIDDLES: Final = float(np.float32(1.0215827)), 1.021582705242023
_QUARTER: Final = "0.6265"  # (pi/4 + 0.006)^2
_LN2: Final = math.log(2.0)

POLYNOMIALS: Final[Mapping[str, Polynomial]] = {
    "exp": Polynomial(lambda r: (mpmath.expm1(r) - r) / r**2, "-0.3467", "0.3467", 10, lambda r: r**2 / mpmath.exp(r)),
    "expm1": Polynomial(lambda r: (mpmath.expm1(r) - r) / r**2, "-0.3467", "0.3467", 11, lambda r: r**2 / mpmath.expm1(r)),
    "exp2": Polynomial(lambda r: (mpmath.power(2, r) - 1 - r * mpmath.mpf(_LN2)) / r**2, "-0.5001", "0.5001", 10, lambda r: r**2 / mpmath.power(2, r)),
    # Of s^2 for s = f / (2 + f): log1p(f) = 2 s + s^3 of this.
    "log": Polynomial(lambda z: 2 * _over_square(mpmath.atanh)(z), "0", "0.02945", 7, lambda z: z / 2),
    # Of s^2: log2(1 + f) = s (A + s^2 (A / 3 + s^2 of this)) for A = 2 / log(2).
    "log2_tail": Polynomial(
        lambda z: (mpmath.atanh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1 - z / 3) / z**2 * 2 / mpmath.log(2), "0", "0.02945", 8, lambda z: z**2 * mpmath.log(2) / 2
    ),
    "inverse_f32": Polynomial(lambda f: 1 / (2 + f), "-0.2929", "0.4143", 6, lambda f: 2 + f, single=True),
    "sinh": _odd(mpmath.sinh, "0.1202", 6),
    "cosh": Polynomial(lambda z: (mpmath.cosh(mpmath.sqrt(z)) - 1) / z, "0", "0.1202", 6, lambda z: z / mpmath.cosh(mpmath.sqrt(z))),
    "tanh": _odd(mpmath.tanh, "0.1296", 9),
    "sin": _odd(mpmath.sin, _QUARTER, 6),
    "cos": Polynomial(lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2, "0", _QUARTER, 6, lambda z: z**2 / mpmath.cos(mpmath.sqrt(z))),
    "tan": Polynomial(
        lambda b: mpmath.tan(mpmath.sqrt(b + 0.3125)) / mpmath.sqrt(b + 0.3125) - 1.125, "-0.3125", "0.314", 16,
        lambda b: mpmath.sqrt(b + 0.3125) / mpmath.tan(mpmath.sqrt(b + 0.3125)),
    ),
    "asin": _odd(mpmath.asin, "0.25", 13),
    "atan": Polynomial(
        lambda b: mpmath.atan(mpmath.sqrt(b + 0.5)) / mpmath.sqrt(b + 0.5) - 0.890625, "-0.5", "0.5", 22,
        lambda b: mpmath.sqrt(b + 0.5) / mpmath.atan(mpmath.sqrt(b + 0.5)),
    ),
    "asinh": _odd(mpmath.asinh, "0.25", 12),
    "atanh": _odd(mpmath.atanh, "0.25", 14),
    # erf(x)/x - 1 of x^2 - 1/2.
    "erf": Polynomial(
        lambda b: mpmath.erf(mpmath.sqrt(b + 0.5)) / mpmath.sqrt(b + 0.5) - 1, "-0.5", "0.5", 13,
        lambda b: mpmath.sqrt(b + 0.5) / mpmath.erf(mpmath.sqrt(b + 0.5)),
    ),
    # exp(x^2) erfc(x) (x + 3/2) of t = 1 - 4 / (x + 3/2), from x = 1/2 to 27.3, less about what it is for t = 0.
    "erfc": Polynomial(lambda t: _scaled_erfc(4 / (1 - t) - 1.5) - mpmath.mpf(_ERFC_MIDDLE), "-1", "0.8612", 25, lambda t: 1 / _scaled_erfc(4 / (1 - t) - 1.5)),
    # exp(x^2) erfc(x) (x + 2) of t = 1 - 4 / (x + 2), from x = 0 on, less about what it is for t = 0.
    "erfcx": Polynomial(lambda t: _scaled_erfcx(t) - mpmath.mpf(_ERFCX_MIDDLES[1]), "-1", "0.99999999", 29, lambda t: 1 / _scaled_erfcx(t)),
    "erfcx_f32": Polynomial(lambda t: _scaled_erfcx(t) - mpmath.mpf(_ERFCX_MIDDLES[0]), "-1", "0.9999", 13, lambda t: 1 / _scaled_erfcx(t), single=True),
    # erfinv(x) / x of w = -log(1 - x^2), and of sqrt(w) less 2.5 and 5.
    "erfinv": _piece(_itself, 0.0, 3.5, 0.0, 0.886226925452758, 20),
    "erfinv_far": _piece(_square, 1.87, 4.0, 2.5, 2.33, 28),
    "erfinv_end": _piece(_square, 4.0, 6.01, 5.0, 4.85, 20),
    "erfinv_f32": _piece(_itself, 0.0, 3.5, 0.0, float(np.float32(0.8862269)), 10, single=True),
    "erfinv_far_f32": _piece(_square, 1.87, 4.0, 2.5, float(np.float32(2.33)), 13, single=True),
    "stirling_f32": Polynomial(_stirling_rest, "1e-9", "0.015625", 3, lambda v: mpmath.mpf(1), single=True),
    # Less the first term, 1 / (12 y), which has two parts.
    "stirling": Polynomial(lambda v: (_stirling_rest(v) - mpmath.mpf(1) / 12) / v, "1e-9", "0.015625", 7, lambda v: v * mpmath.sqrt(v)),
    # Less pi^2 / 6, which has two parts.
    "sine_f32": Polynomial(lambda u: _sine_loss(u) - mpmath.mpf(_SIXTH[0]), "0", "0.25", 5, lambda u: u, single=True),
    "sine": Polynomial(lambda u: _sine_loss(u) - mpmath.mpf(_SIXTH[1]), "0", "0.25", 9, lambda u: u),
    # 1 / cbrt(1 - e).
    "cbrt": Polynomial(lambda e: (mpmath.power(1 - e, -mpmath.mpf(1) / 3) - 1) / e, "-0.1022", "0.1022", 3, lambda e: e),
}  # fmt: skip


def log_gamma(x: _Number) -> _Number:
    """log |gamma(x)|."""
    return mpmath.re(mpmath.loggamma(x)) if x > 0 else mpmath.log(abs(mpmath.gamma(x)))


@dataclass(frozen=True)
class Roots:
    """The roots of log |gamma| that a type needs: from which pole up it can tell them from the pole, how much of the distance to the pole a polynomial is for,
    and its coefficients."""

    lowest: int
    share: _Number
    count: int
    single: bool = False


ROOTS: Final[Mapping[str, Roots]] = {"f32": Roots(-9, mpmath.mpf(1) / 14, 6, single=True), "f64": Roots(-16, mpmath.mpf(1) / 20, 11)}


def gamma_root_places(roots: Roots) -> list[tuple[int, float, bool]]:
    """Of each root, from the least up: the whole number next to it, where the pole is that bounds its polynomial, and whether it is below that."""
    poles = [-n for n in range(-roots.lowest, 1, -1) for _ in range(2)][:-1]  # of -2 only the root below it is there
    return [*((pole, pole, k % 2 == 0) for k, pole in enumerate(poles)), (1, 0, False), (2, 0.75, False)]


def gamma_root(roots: Roots, place: tuple[int, float, bool]) -> tuple[float, ...]:
    """A root of log |gamma| and its slope in two parts each, with a width between, and the rest of a polynomial for log |gamma(root + d)| / d where |d| is
    below the width."""
    whole, pole, below = place
    with mpmath.workdps(_DIGITS):
        root = mpmath.mpf(whole) if whole > 0 else _gamma_root(whole, below=below)
        return _expanded(roots, root, abs(root - pole) * roots.share)


def _gamma_root(pole: int, *, below: bool) -> _Number:
    """The root within 1/2 of a pole."""
    near, far = mpmath.mpf(10) ** -40, mpmath.mpf(1) / 2
    for _ in range(200):
        middle = mpmath.sqrt(near * far)
        near, far = (middle, far) if log_gamma(pole - middle if below else pole + middle) > 0 else (near, middle)
    return pole - near if below else pole + near


def _expanded(roots: Roots, root: _Number, width: _Number) -> tuple[float, ...]:
    def rounded(value: _Number) -> float:
        return float(np.float32(float(value))) if roots.single else float(value)

    upper, slope = rounded(root), rounded(mpmath.digamma(root))
    unit = mpmath.mpf(2) ** int(mpmath.floor(mpmath.log(width, 2)))  # the powers of a small d are too far apart
    ends = str(-width / unit), str(width / unit)
    polynomial = Polynomial(
        lambda t: log_gamma(root + t * unit) / (t * unit) - slope, *ends, roots.count, lambda t: t * unit / log_gamma(root + t * unit), roots.single
    )
    made = [float(c / unit**k) for k, c in enumerate(coefficients(polynomial))]
    return (upper, rounded(root - upper), rounded(width), slope, *made)


def main(names: list[str]) -> int:
    """Prints the named ones."""
    for name in names or POLYNOMIALS:
        made = coefficients(POLYNOMIALS[name])
        worst = greatest_error(POLYNOMIALS[name], made)
        print(f"{name}: 2^{math.log2(worst):.1f}, {worst * 2.0 ** (24 if POLYNOMIALS[name].single else 53):.4f} ULP")
        print(f"    {', '.join(str(np.float32(c)) if POLYNOMIALS[name].single else repr(c) for c in made)},")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
