"""log, log2, log10 and log1p for f32: every argument, subnormal arguments included.

| function | bound | worst seen |
|---|---|---|
| log | 1 ULP | 0.883 |
| log2 | 1 ULP | 0.918 |
| log10 | 1 ULP | 0.874 |
| log1p | 1 ULP | 0.928 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method: x = 2^i (1 + f) with 1 + f in [0.668, 1.336), log x = i ln 2 + log1p(f), after Cody and Waite (1980), chapter 5, with the
polynomial in f itself rather than in f / (2 + f), which saves the division. (With 2/3 for 0.668, some results of log10 just below 1/8
would take small terms above 1/32, whose rounding shows.) i ln 2 has an exact upper part, and i ln 2 + f is summed with its rounding error
(T. J. Dekker, 1971, Fast2Sum). For the other bases f becomes a product in two parts. log1p takes the logarithm of 1 + x as
rounded, and adds what rounding lost, divided by 1 + x (W. Kahan's correction).

Coefficients: own minimax fits of (log1p(f) - f) / f^2 on -0.332 <= f <= 0.336, divided by the logarithm of the base, relative to the
logarithm, rounded to f32 one after another, with a local search over neighbouring values: 0.08 ULP each.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f32, i32
from vyre_py.ir.math.builder import MathBuilder, float_, int_
from vyre_py.ir.math.pairs import product, sum_of

__all__ = ["log", "log10", "log1p", "log2", "log_sum", "parted", "share"]

_LN2_HIGH, _LN2_LOW = 0.69314575, 1.4286068e-06  # 14 bits, so that its product with an exponent is exact; and the rest
_TAIL: Final = (-0.5, 0.33333212, -0.24999851, 0.200106, -0.16677718, 0.14002946, -0.1222743, 0.13998066, -0.12683788)

_LOG2_E_HIGH, _LOG2_E_LOW = 1.442695, 1.925963e-08
_LOG2_TAIL: Final = (-0.7213475, 0.48089665, -0.36067232, 0.28868935, -0.2405915, 0.20205683, -0.17657128, 0.20178556, -0.18241452)

_LOG10_2_HIGH, _LOG10_2_LOW = 0.30102539, 4.6050390e-06  # 13 bits, and the rest
_LOG10_E_HIGH, _LOG10_E_LOW = 0.4342945, -1.010305e-08
_LOG10_TAIL: Final = (-0.21714725, 0.14476429, -0.1085726, 0.08690531, -0.07243892, 0.06081001, -0.05302464, 0.060806777, -0.055338778)

_LEAST_NORMAL: Final = 2.0**-126
_LEAST_BITS: Final = 0x3F2B020C  # 0.668
_ONE_BITS: Final = 0x3F800000
_EXPONENT_MASK: Final = -(1 << 23)
_INFINITY: Final = float("inf")
_SMALL: Final = 2.0**-25  # below it log1p(x) rounds to x


def log(m: MathBuilder, x: Atom) -> Atom:
    """The natural logarithm: -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = _split_all(m, x)
    return _with_ends(m, x, log_sum(m, i, f, None))


def log2(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 2: exact for powers of two, -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = _split_all(m, x)
    upper, lower = product(m, f, float_(_LOG2_E_HIGH))
    head, lost = sum_of(m, i, upper)
    rest = m("fma", f, float_(_LOG2_E_LOW), m("add", lower, lost))
    return _with_ends(m, x, m("add", head, m("fma", m("mul", f, f), m.polynomial(f, _LOG2_TAIL), rest)))


def log10(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 10: exact for 1 to 10^10, -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = _split_all(m, x)
    upper, lower = product(m, f, float_(_LOG10_E_HIGH))
    head, lost = sum_of(m, m("mul", i, float_(_LOG10_2_HIGH)), upper)
    rest = m("fma", f, float_(_LOG10_E_LOW), m("fma", i, float_(_LOG10_2_LOW), m("add", lower, lost)))
    return _with_ends(m, x, m("add", head, m("fma", m("mul", f, f), m.polynomial(f, _LOG10_TAIL), rest)))


def log1p(m: MathBuilder, x: Atom) -> Atom:
    """log(1 + x): -0 for -0, -infinity for -1, NaN below it, infinity for infinity."""
    one = float_(1.0)
    total, lost = sum_of(m, m("max", x, one), m("min", x, one))
    i, f, scale = parted(m, total)
    result = log_sum(m, i, f, share(m, lost, f, scale))
    other = m("select", m("eq", x, float_(-1.0)), float_(-_INFINITY), float_(float("nan")))
    inside = m("select", m("gt", x, float_(-1.0)), result, other)
    # Where x is the result: infinity, and what is so small that the sign of zero and subnormal numbers need keeping.
    itself = m("logical_or", m("lt", m("abs", x), float_(_SMALL)), m("eq", x, float_(_INFINITY)))
    return m("select", itself, x, inside)


def log_sum(m: MathBuilder, i: Atom, f: Atom, low: Atom | None) -> Atom:
    """i ln 2 + log1p(f) + low, for |f| <= 1/3 and an i of at most 10 bits."""
    head, lost = sum_of(m, m("mul", i, float_(_LN2_HIGH)), f)
    rest: Atom = m("fma", i, float_(_LN2_LOW), lost)
    if low is not None:
        rest = m("add", rest, low)
    return m("add", head, m("fma", m("mul", f, f), m.polynomial(f, _TAIL), rest))


def parted(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """i, f, and 2^-i (0 for i above 126), so that x = 2^i (1 + f) with 1 + f in [0.668, 1.336): for a normal x above 0."""
    exponent, f = _split(m, x)
    scale = m.bitcast(m("max", m("sub", int_(_ONE_BITS), exponent), int_(0)), f32)
    return m("mul", m.cast(exponent, f32), float_(2.0**-23)), f, scale


def share(m: MathBuilder, low: Atom, f: Atom, scale: Atom) -> Atom:
    """low / x to 4 bits, for x as parted into f and 2^-i: what log(x + low) has above log(x), when low is far below x."""
    # 1 / (1 + f) is nearly 1 - f + f^2.
    return m("mul", m("mul", low, scale), m("fma", f, f, m("sub", float_(1.0), f)))


def _split(m: MathBuilder, x: Atom) -> tuple[Atom, Atom]:
    """i as the i32 i * 2^23, and f."""
    bits = m.bitcast(x, i32)
    exponent = m("and", m("sub", bits, int_(_LEAST_BITS)), int_(_EXPONENT_MASK))
    return exponent, m("sub", m.bitcast(m("sub", bits, exponent), f32), float_(1.0))


def _split_all(m: MathBuilder, x: Atom) -> tuple[Atom, Atom]:
    """i as an f32, and f; subnormal numbers included."""
    small = m("lt", x, float_(_LEAST_NORMAL))
    normal = m("select", small, m("mul", x, float_(2.0**23)), x)
    shift = m("select", small, float_(-23.0), float_(0.0))
    exponent, f = _split(m, normal)
    return m("fma", m.cast(exponent, f32), float_(2.0**-23), shift), f


def _with_ends(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    """The logarithm where x is no number above 0."""
    positive = m("select", m("is_inf", x), x, result)
    other = m("select", m("eq", x, float_(0.0)), float_(-_INFINITY), float_(float("nan")))
    return m("select", m("gt", x, float_(0.0)), positive, other)
