"""log, log2, log10 and log1p: every argument, subnormal arguments included.

| function | bound | worst seen of f32 |
|---|---|---|
| log | 1 ULP | 0.883 |
| log2 | 1 ULP | 0.918 |
| log10 | 1 ULP | 0.874 |
| log1p | 1 ULP | 0.928 |

Seen over every 17th of all f32, and over all of those from 1/4 to 10 and from 32 to 160 of both signs.

Method: x = 2^i (1 + f), log x = i ln 2 + log1p(f), after Cody and Waite (1980), chapter 5. i ln 2 has an exact upper part, and i ln 2 + f is
summed with its rounding error (T. J. Dekker, 1971, Fast2Sum). For the other bases f becomes a product in two parts. log1p takes the
logarithm of 1 + x as rounded, and adds what rounding lost, divided by 1 + x (W. Kahan's correction).

* f32 has 1 + f in [0.668, 1.336), and a polynomial in f itself rather than in s = f / (2 + f), which saves the division. (With 2/3 for 0.668,
  some results of log10 just below 1/8 would take small terms above 1/32, whose rounding shows.)
* f64 has 1 + f in [sqrt(1/2), sqrt(2)). Its polynomial in f would be twice as long and its f^2/2 round too often, so that it takes

      log1p(f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + s^2 P(s^2))

  (K. C. Ng's log in Sun's fdlibm, 1993), where f^2/2 is summed with its rounding errors, too.

Coefficients, relative to the logarithm. f32: own minimax fits of (log1p(f) - f) / f^2 on -0.332 <= f <= 0.336, divided by the logarithm of the base,
rounded one after another, with a local search over neighbouring values, 0.08 ULP each. f64: 2 (atanh(s)/s - 1) / s^2 in s^2 for |s| <= 0.1716, 0.012 ULP.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import Type, f32, f64, i32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import Pair, product, sum_of, times
from vyre_py.ir.math.words import FORMATS

__all__ = ["ROOT_HALF", "log", "log10", "log1p", "log2", "log_sum", "parted", "share", "split"]

# The first part of 14 bits, of f64 42, so that its product with an exponent is exact; and the rest. Then the same of log10(2), with 13 bits.
_LN2: Final = {f32: (0.69314575, 1.4286068e-06), f64: (0.6931471805598903, 5.497923018708371e-14)}
_LOG10_2: Final = {f32: (0.30102539, 4.6050390e-06), f64: (0.30102999566395283, 2.8363394551044964e-14)}
_LOG2_E: Final = {f32: (1.442695, 1.925963e-08), f64: (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_E: Final = {f32: (0.4342945, -1.010305e-08), f64: (0.4342944819032518, 1.098319650216765e-17)}

_TAIL: Final = {
    f32: (-0.5, 0.33333212, -0.24999851, 0.200106, -0.16677718, 0.14002946, -0.1222743, 0.13998066, -0.12683788),
    f64: (0.6666666666666736, 0.39999999999405034, 0.2857142874423165, 0.22222198403083, 0.1818357250415044, 0.15313853137902964, 0.14797840067060397),
}
_LOG2_TAIL: Final = (-0.7213475, 0.48089665, -0.36067232, 0.28868935, -0.2405915, 0.20205683, -0.17657128, 0.20178556, -0.18241452)
_LOG10_TAIL: Final = (-0.21714725, 0.14476429, -0.1085726, 0.08690531, -0.07243892, 0.06081001, -0.05302464, 0.060806777, -0.055338778)

# The bits of the least 1 + f.
ROOT_HALF: Final = {f32: 0x3F3504F3, f64: 0x3FE6A09E667F3BCD}
_LEAST: Final = {f32: 0x3F2B020C, f64: ROOT_HALF[f64]}

_LEAST_NORMAL: Final = {f32: 2.0**-126, f64: 2.0**-1022}
_INFINITY: Final = float("inf")
_SMALL: Final = {f32: 2.0**-25, f64: 2.0**-54}  # below it log1p(x) rounds to x


def log(m: MathBuilder, x: Atom) -> Atom:
    """The natural logarithm: -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = split(m, x, _LEAST[x.type])
    return _with_ends(m, x, log_sum(m, i, f, None))


def log2(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 2: exact for powers of two, -infinity for both zeros, NaN below them, infinity for infinity."""
    return _to_base(m, x, None, _LOG2_E[x.type], _LOG2_TAIL)


def log10(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 10: exact for 1 to 10^10, of f64 10^22, -infinity for both zeros, NaN below them, infinity for infinity."""
    return _to_base(m, x, _LOG10_2[x.type], _LOG10_E[x.type], _LOG10_TAIL)


def log1p(m: MathBuilder, x: Atom) -> Atom:
    """log(1 + x): -0 for -0, -infinity for -1, NaN below it, infinity for infinity."""
    total, lost = sum_of(m, m("max", x, 1.0), m("min", x, 1.0))
    i, f, scale = parted(m, total)
    result = log_sum(m, i, f, share(m, lost, f, scale))
    other = m("select", m("eq", x, -1.0), const(x.type, -_INFINITY), float("nan"))
    inside = m("select", m("gt", x, -1.0), result, other)
    # Where x is the result: infinity, and what is so small that the sign of zero and subnormal numbers need keeping.
    itself = m("logical_or", m("lt", m("abs", x), _SMALL[x.type]), m("eq", x, _INFINITY))
    return m("select", itself, x, inside)


def _to_base(m: MathBuilder, x: Atom, two: tuple[float, float] | None, e: tuple[float, float], tail: tuple[float, ...]) -> Atom:
    """The logarithm to a base of which those of 2 and e are given, in two parts, None for 1; `tail` is of f32."""
    i, f = split(m, x, _LEAST[x.type])
    upper, lower = product(m, f, e[0]) if x.type is f32 else times(m, (const(f64, e[0]), const(f64, e[1])), _log1p(m, f))
    head, lost = sum_of(m, i if two is None else m("mul", i, two[0]), upper)
    small: Atom = m("add", lower, lost)
    if two is not None:
        small = m("fma", i, two[1], small)
    if x.type is f32:
        small = m("fma", f, e[1], small)
        small = m("fma", m("mul", f, f), m.polynomial(f, tail), small)
    return _with_ends(m, x, m("add", head, small))


def log_sum(m: MathBuilder, i: Atom, f: Atom, low: Atom | None) -> Atom:
    """i ln 2 + log1p(f) + low, for an f that `parted` or `split` by the same least bits gives, and an i of at most 10 bits, of f64 11."""
    high, rest = _LN2[f.type]
    if f.type is f32:
        head, lost = sum_of(m, m("mul", i, high), f)
        small: Atom = m("fma", i, rest, lost)
        if low is not None:
            small = m("add", small, low)
        return m("add", head, m("fma", m("mul", f, f), m.polynomial(f, _TAIL[f32]), small))
    square, square_lost, beyond = _terms(m, f)
    head, lost = sum_of(m, m("mul", i, high), f)
    head, more = sum_of(m, head, m("neg", square))
    small = m("fma", i, rest, m("add", lost, m("sub", more, square_lost)))
    if low is not None:
        small = m("add", small, low)
    return m("add", head, m("add", beyond, small))


def _terms(m: MathBuilder, f: Atom) -> tuple[Atom, Atom, Atom]:
    """Of an f64 f: f^2/2 in two parts, and log1p(f) - f + f^2/2."""
    square, lost = product(m, m("mul", f, 0.5), f)
    s = m("div", f, m("add", f, 2.0))
    z = m("mul", s, s)
    return square, lost, m("mul", s, m("fma", z, m.polynomial(z, _TAIL[f64]), square))


def _log1p(m: MathBuilder, f: Atom) -> Pair:
    """log1p of an f64 f in two parts."""
    square, square_lost, rest = _terms(m, f)
    head, lost = sum_of(m, f, m("neg", square))
    return sum_of(m, head, m("add", rest, m("sub", lost, square_lost)))


def parted(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """i, f, and 2^-i (0 where that is subnormal), so that x = 2^i (1 + f): for a normal x above 0."""
    form = FORMATS[x.type]
    exponent, f = _split(m, x, _LEAST[x.type])
    scale = m.bitcast(m("max", m("sub", form.bias << form.fraction, exponent), 0), x.type)
    return _whole(m, exponent, x.type, None), f, scale


def share(m: MathBuilder, low: Atom, f: Atom, scale: Atom) -> Atom:
    """low / x to 3 bits, for x as parted into f and 2^-i: what log(x + low) has above log(x), when low is far below x."""
    # 1 / (1 + f) is nearly 1 - f + f^2.
    return m("mul", m("mul", low, scale), m("fma", f, f, m("sub", 1.0, f)))


def split(m: MathBuilder, x: Atom, least: int) -> tuple[Atom, Atom]:
    """i as a float, and f, so that x = 2^i (1 + f), where 1 + f has at least these bits: for x above 0, subnormal numbers included."""
    fraction = FORMATS[x.type].fraction
    small = m("lt", x, _LEAST_NORMAL[x.type])
    normal = m("select", small, m("mul", x, 2.0**fraction), x)
    shift = m("select", small, const(x.type, -fraction), 0.0)
    exponent, f = _split(m, normal, least)
    return _whole(m, exponent, x.type, shift), f


def _split(m: MathBuilder, x: Atom, least: int) -> tuple[Atom, Atom]:
    """i as the integer i * 2^fraction, and f."""
    form = FORMATS[x.type]
    bits = m.bitcast(x, form.signed)
    exponent = m("and", m("sub", bits, least), -(1 << form.fraction))
    return exponent, m("sub", m.bitcast(m("sub", bits, exponent), x.type), 1.0)


def _whole(m: MathBuilder, exponent: Atom, type_: Type, shift: Atom | None) -> Atom:
    """i as a float, from i * 2^fraction, and the shift added."""
    fraction = FORMATS[type_].fraction
    if type_ is f32:
        i, unit = m.cast(exponent, f32), 2.0**-fraction
        return m("mul", i, unit) if shift is None else m("fma", i, unit, shift)
    # By way of i32: processors have no fast cast of i64.
    i = m.cast(m.cast(m("shr", exponent, fraction), i32), type_)
    return i if shift is None else m("add", i, shift)


def _with_ends(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    """The logarithm where x is no number above 0."""
    positive = m("select", m("is_inf", x), x, result)
    other = m("select", m("eq", x, 0.0), const(x.type, -_INFINITY), float("nan"))
    return m("select", m("gt", x, 0.0), positive, other)
