"""log, log2, log10 and log1p for f64: every argument, subnormal arguments included; at most 1 ULP.

Method: x = 2^i (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), log x = i ln 2 + log1p(f), and with s = f / (2 + f), so that log1p(f) = 2 atanh(s),

    log1p(f) = f - f^2/2 + s (f^2/2 + s^2 P(s^2))

(K. C. Ng's log in Sun's fdlibm, 1993). f and i ln 2, whose upper part is exact, and f^2/2 are summed with their rounding errors (T. J. Dekker, 1971),
so that only small terms round. For the other bases log1p(f) becomes a product in two parts. log1p takes the logarithm of 1 + x as rounded, and
adds what rounding lost, divided by 1 + x (W. Kahan's correction).

Coefficients: 2 (atanh(s)/s - 1) / s^2 in s^2 for |s| <= 0.1716, 0.012 ULP of the logarithm.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.types import f64, i32, i64
from vyre_py.ir.math.builder import MathBuilder, double, long_int
from vyre_py.ir.math.pairs import Pair, product, sum_of

__all__ = ["log", "log10", "log1p", "log2", "log_sum", "parted", "share", "split_all"]

_LN2_HIGH, _LN2_LOW = 0.6931471805598903, 5.497923018708371e-14  # 42 bits, so that its product with an exponent is exact; and the rest
_TAIL: Final = (
    0.6666666666666736, 0.39999999999405034, 0.2857142874423165, 0.22222198403083, 0.1818357250415044, 0.15313853137902964, 0.14797840067060397,
)  # fmt: skip
_LOG2_E: Final = (1.4426950408889634, 2.0355273740931033e-17)
_LOG10_2_HIGH, _LOG10_2_LOW = 0.30102999566395283, 2.8363394551044964e-14  # 42 bits, and the rest
_LOG10_E: Final = (0.4342944819032518, 1.098319650216765e-17)

_LEAST_NORMAL: Final = 2.0**-1022
_ROOT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
_ONE_BITS: Final = 0x3FF0000000000000
_EXPONENT_MASK: Final = -(1 << 52)
_INFINITY: Final = float("inf")
_SMALL: Final = 2.0**-54  # below it log1p(x) rounds to x


def log(m: MathBuilder, x: Atom) -> Atom:
    """The natural logarithm: -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = split_all(m, x)
    return _with_ends(m, x, log_sum(m, i, f, None))


def log2(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 2: exact for powers of two, -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = split_all(m, x)
    upper, lower = _to_base(m, f, _LOG2_E)
    head, lost = sum_of(m, i, upper)
    return _with_ends(m, x, m("add", head, m("add", lower, lost)))


def log10(m: MathBuilder, x: Atom) -> Atom:
    """The logarithm to base 10: exact for 1 to 10^22, -infinity for both zeros, NaN below them, infinity for infinity."""
    i, f = split_all(m, x)
    upper, lower = _to_base(m, f, _LOG10_E)
    head, lost = sum_of(m, m("mul", i, double(_LOG10_2_HIGH)), upper)
    return _with_ends(m, x, m("add", head, m("fma", i, double(_LOG10_2_LOW), m("add", lower, lost))))


def log1p(m: MathBuilder, x: Atom) -> Atom:
    """log(1 + x): -0 for -0, -infinity for -1, NaN below it, infinity for infinity."""
    one = double(1.0)
    total, lost = sum_of(m, m("max", x, one), m("min", x, one))
    i, f, scale = parted(m, total)
    result = log_sum(m, i, f, share(m, lost, f, scale))
    other = m("select", m("eq", x, double(-1.0)), double(-_INFINITY), double(float("nan")))
    inside = m("select", m("gt", x, double(-1.0)), result, other)
    # Where x is the result: infinity, and what is so small that the sign of zero and subnormal numbers need keeping.
    itself = m("logical_or", m("lt", m("abs", x), double(_SMALL)), m("eq", x, double(_INFINITY)))
    return m("select", itself, x, inside)


def log_sum(m: MathBuilder, i: Atom, f: Atom, low: Atom | None) -> Atom:
    """i ln 2 + log1p(f) + low, for sqrt(1/2) <= 1 + f <= sqrt(2) and an i of at most 11 bits."""
    square, square_lost, rest = _terms(m, f)
    head, lost = sum_of(m, m("mul", i, double(_LN2_HIGH)), f)
    head, more = sum_of(m, head, m("neg", square))
    small: Atom = m("fma", i, double(_LN2_LOW), m("add", lost, m("sub", more, square_lost)))
    if low is not None:
        small = m("add", small, low)
    return m("add", head, m("add", rest, small))


def _terms(m: MathBuilder, f: Atom) -> tuple[Atom, Atom, Atom]:
    """f^2/2 in two parts, and log1p(f) - f + f^2/2."""
    square, lost = product(m, m("mul", f, double(0.5)), f)
    s = m("div", f, m("add", f, double(2.0)))
    z = m("mul", s, s)
    return square, lost, m("mul", s, m("fma", z, m.polynomial(z, _TAIL), square))


def _to_base(m: MathBuilder, f: Atom, factor: tuple[float, float]) -> Pair:
    """log1p(f) times a factor in two parts, as two parts."""
    square, square_lost, rest = _terms(m, f)
    head, lost = sum_of(m, f, m("neg", square))
    head, low = sum_of(m, head, m("add", rest, m("sub", lost, square_lost)))
    upper, lower = product(m, head, double(factor[0]))
    return upper, m("fma", low, double(factor[0]), m("fma", head, double(factor[1]), lower))


def parted(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """i, f, and 2^-i (0 for i above 1022), so that x = 2^i (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): for a normal x above 0."""
    exponent, f = _split(m, x)
    scale = m.bitcast(m("max", m("sub", long_int(_ONE_BITS), exponent), long_int(0)), f64)
    return _whole(m, exponent), f, scale


def share(m: MathBuilder, low: Atom, f: Atom, scale: Atom) -> Atom:
    """low / x to 3 bits, for x as parted into f and 2^-i: what log(x + low) has above log(x), when low is far below x."""
    # 1 / (1 + f) is nearly 1 - f + f^2.
    return m("mul", m("mul", low, scale), m("fma", f, f, m("sub", double(1.0), f)))


def split_all(m: MathBuilder, x: Atom) -> tuple[Atom, Atom]:
    """i as an f64, and f, so that x = 2^i (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): for x above 0, subnormal numbers included."""
    small = m("lt", x, double(_LEAST_NORMAL))
    exponent, f = _split(m, m("select", small, m("mul", x, double(2.0**52)), x))
    return m("sub", _whole(m, exponent), m("select", small, double(52.0), double(0.0))), f


def _split(m: MathBuilder, x: Atom) -> tuple[Atom, Atom]:
    """i as the i64 i * 2^52, and f."""
    bits = m.bitcast(x, i64)
    exponent = m("and", m("sub", bits, long_int(_ROOT_HALF_BITS)), long_int(_EXPONENT_MASK))
    return exponent, m("sub", m.bitcast(m("sub", bits, exponent), f64), double(1.0))


def _whole(m: MathBuilder, exponent: Atom) -> Atom:
    """i as an f64, from i * 2^52."""
    return m.cast(m.cast(m("shr", exponent, long_int(52)), i32), f64)


def _with_ends(m: MathBuilder, x: Atom, result: Atom) -> Atom:
    """The logarithm where x is no number above 0."""
    positive = m("select", m("is_inf", x), x, result)
    other = m("select", m("eq", x, double(0.0)), double(-_INFINITY), double(float("nan")))
    return m("select", m("gt", x, double(0.0)), positive, other)
