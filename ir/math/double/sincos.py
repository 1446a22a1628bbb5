"""sin and cos for f64: every argument, up to the greatest; at most 1 ULP.

Method: that of `ir.math.sincos`. x = q pi/2 + r with |r| <= pi/4 (a little more where x / (pi/2) rounds the other way), then a polynomial in r^2
and a quadrant. r is a sum of two f64, so that it is good to far more than 53 bits even next to a multiple of pi/2.

* Below 2^20: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 8, with a three-part pi/2 and
  fused multiply-adds. x - q high is exact: a multiple of 2^-53 below 1. The next product is taken exactly, and added by
  D. E. Knuth's TwoSum.
* From 2^20 on: M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions (SIGNUM 18, 1983): of the bits of 1/(2 pi) only
  those from the quadrant down matter; 192 of them from a table, times the 53-bit significand, give the quadrant and the fraction
  of it to 2^-125. No f64 lies nearer to a quadrant's end than 2^-61 of it (the nearest is 6381956970095103 * 2^797: J.-M. Muller, Elementary
  Functions, 2016), so 64 bits remain.

Coefficients: (sin(r)/r - 1)/r^2 and (cos(r) - 1 + r^2/2)/r^4 in r^2 for |r| <= pi/4 + 0.006; 0.037 ULP of sin and 0.001 of cos.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from vyre_py.ir.language.nodes import Atom, Value, Variable
from vyre_py.ir.language.types import f64, i32, i64, u32, u64
from vyre_py.ir.math.builder import MathBuilder, double, int_, long_int, long_word, word
from vyre_py.ir.math.pairs import product

__all__ = ["SMALL", "cos", "reduced", "sin"]

_TWO_OVER_PI: Final = 0.6366197723675814
# Three f64 that sum to pi/2, to 2^-161.
_HIGH, _MIDDLE, _LOW = 1.5707963267948966, 6.123233995736766e-17, -1.497384905065873e-33
_SIN_TAIL: Final = (
    -0.16666666666666627, 0.00833333333332115, -0.00019841269828800478, 2.7557313342480867e-06, -2.5050703290550494e-08, 1.589360736022311e-10,
)  # fmt: skip
_COS_TAIL: Final = (
    0.04166666666666658, -0.0013888888888871117, 2.4801587287683693e-05, -2.7557313850051693e-07, 2.0875656842676426e-09, -1.135628538985687e-11,
)  # fmt: skip

# The fraction of 1/(2 pi), most significant word first, after a word of zeros for arguments that need none of the earlier bits.
_TABLE_NAME: Final = "math:one_over_two_pi_f64"
_TABLE: Final = (
    0x0000000000000000, 0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158, 0x6DC91B8E909374B8, 0x01924BBA82746487,
    0x3F877AC72C4A69CF, 0xBA208D7D4BAED121, 0x3A671C09AD17DF90, 0x4E64758E60D4CE7D, 0x272117E2EF7E4A0E, 0xC7FE25FFF7816603, 0xFBCBC462D6829B47,
    0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B, 0x5D49EEB1FAF97C5E, 0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA,
)  # fmt: skip

_SIGN: Final = 1 << 63
_LARGE_BITS: Final = 0x4130000000000000  # 2^20
_INFINITY_BITS: Final = 0x7FF0000000000000
SMALL: Final = 2.0**-27  # below it x - x^3/6 rounds to within 0.51 ULP of x


def sin(m: MathBuilder, x: Atom) -> Atom:
    """The sine of x radians: odd, -0 for -0, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    # The formulas would lose the sign of zero, and underflow.
    tiny = m("lt", m("abs", x), double(SMALL))
    return m("select", tiny, x, _in_quadrant(m, high, low, quadrant))


def cos(m: MathBuilder, x: Atom) -> Atom:
    """The cosine of x radians: even, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    return _in_quadrant(m, high, low, m("add", quadrant, int_(1)))


def _in_quadrant(m: MathBuilder, high: Atom, low: Atom, quadrant: Atom) -> Atom:
    """sin(quadrant * pi/2 + high + low)."""
    square = m("mul", high, high)
    # high + low + high^3 S - high^2 low / 2
    inner = m("fma", high, m.polynomial(square, _SIN_TAIL), m("mul", low, double(-0.5)))
    sine = m("add", high, m("fma", square, inner, low))
    # 1 - high^2/2 with its rounding error, + high^4 C - high low
    half = m("mul", square, double(0.5))
    head = m("sub", double(1.0), half)
    lost = m("sub", m("sub", double(1.0), head), half)
    turn = m("mul", m("neg", high), low)
    tail = m("fma", m("mul", square, square), m.polynomial(square, _COS_TAIL), turn)
    cosine = m("add", head, m("add", lost, tail))

    odd = m("ne", m("and", quadrant, int_(1)), int_(0))
    value = m("select", odd, cosine, sine)
    return m("select", m("ne", m("and", quadrant, int_(2)), int_(0)), m("neg", value), value)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """r as two f64, and the quadrant as an i32 of which the low two bits count."""
    q = m("round", m("mul", x, double(_TWO_OVER_PI)))
    minus = m("neg", q)
    first = m("fma", minus, double(_HIGH), x)
    shift, lost = product(m, minus, double(_MIDDLE))
    total = m("add", first, shift)
    virtual = m("sub", total, first)
    error = m("add", m("sub", first, m("sub", total, virtual)), m("sub", shift, virtual))
    rest = m("add", error, m("fma", minus, double(_LOW), lost))

    out = m.out
    high, low, quadrant = out.var(f64, total), out.var(f64, rest), out.var(i32, m.cast(q, i32))
    bits = m.bitcast(x, u64)
    magnitude = m("and", bits, long_word(_SIGN - 1))
    # One unsigned comparison for 2^20 <= |x| < infinity: infinities and NaN have become NaN above.
    out.if_(m("lt", m("sub", magnitude, long_word(_LARGE_BITS)), long_word(_INFINITY_BITS - _LARGE_BITS)))
    _reduce_large(m, bits, high, low, quadrant)
    out.end()
    return out.get(high), out.get(low), out.get(quadrant)


def _reduce_large(m: MathBuilder, bits: Atom, high: Variable, low: Variable, quadrant: Variable) -> None:
    """Payne and Hanek's reduction of the f64 with these bits, in 64-bit words."""
    fraction_high, fraction_low = _turns(m, bits)
    negative = m("shr", m.bitcast(bits, i64), long_int(63))  # 0 or -1
    # The nearest quadrant, and the signed rest of it as a 128-bit fraction.
    nearest = m.bitcast(m("shr", m("add", fraction_high, long_word(1 << 61)), long_word(62)), i64)
    m.out.set(quadrant, m.cast(m("sub", m("xor", nearest, negative), negative), i32))
    rest_high = m("or", m("shl", fraction_high, long_word(2)), m("shr", fraction_low, long_word(62)))
    rest_low = m("shl", fraction_low, long_word(2))
    # Its magnitude; a complement is a negation but for the last of 128 bits.
    flip = m.bitcast(m("shr", m.bitcast(rest_high, i64), long_int(63)), u64)
    rest_high, rest_low = m("xor", rest_high, flip), m("xor", rest_low, flip)
    # 64 significant bits, the upper 53 and the lower 11 each exact in f64. The shift is at most 61: see the module.
    zeros = m("clz", rest_high)
    significant = m("or", m("shl", rest_high, zeros), m("shr", m("shr", rest_low, long_word(1)), m("sub", long_word(63), zeros)))
    upper = m.cast(m("and", significant, long_word(0xFFFFFFFFFFFFF800)), f64)
    lower = m.cast(m("and", significant, long_word(0x7FF)), f64)
    # Times pi/2, as two f64, and 2^-(64 + zeros) with the sign.
    turned, lost = product(m, upper, double(_HIGH))
    lost = m("add", lost, m("fma", upper, double(_MIDDLE), m("mul", lower, double(_HIGH))))
    sign = m("and", m("xor", flip, bits), long_word(_SIGN))
    scale = m.bitcast(m("or", sign, m("shl", m("sub", long_word(1023 - 64), zeros), long_word(52))), f64)
    m.out.set(high, m("mul", turned, scale))
    m.out.set(low, m("mul", lost, scale))


def _turns(m: MathBuilder, bits: Atom) -> tuple[Value, Value]:
    """|x| / (2 pi) modulo 1 as a 128-bit fraction: its upper and lower words. The upper two bits are the quadrant."""
    words = m.table(_TABLE_NAME, u64, _TABLE)
    # |x| = significand * 2^(exponent - 64), the significand a full word.
    significand = m("shl", m("or", bits, long_word(1 << 52)), long_word(11))
    exponent = m("and", m("sub", m.cast(m("shr", bits, long_word(52)), u32), word(1022)), word(0x7FF))
    # A finite exponent is at most 1024; said here so that all four loads are provably inside the table.
    first, shift = m("min", m("shr", exponent, word(6)), word(len(_TABLE) - 4)), m.cast(m("and", exponent, word(63)), u64)
    entries = [m.out.load(words, (m("add", first, word(k)),)) for k in range(4)]
    # Two shifts, since one by 64 - 0 is masked to none.
    window = [
        m("or", m("shl", upper, shift), m("shr", m("shr", lower, long_word(1)), m("sub", long_word(63), shift)))
        for upper, lower in pairwise(entries)
    ]
    middle = m("mul", significand, window[1])
    low = m("add", middle, m("mul_hi", significand, window[2]))
    carry = m("select", m("lt", low, middle), long_word(1), long_word(0))
    high = m("add", m("mul", significand, window[0]), m("mul_hi", significand, window[1]))
    return m("add", high, carry), low
