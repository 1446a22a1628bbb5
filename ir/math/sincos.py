"""sin and cos for f32: every argument, up to the greatest; at most 1 ULP (0.80 observed on 2^26 arguments).

Method: x = q pi/2 + r with |r| <= pi/4 (a little more where x / (pi/2) rounds the other way), then a polynomial in r^2 and a
quadrant. r is a sum of two f32, so that it is good to far more than 24 bits even next to a multiple of pi/2.

* Below 2^16: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 8, with a three-part pi/2 and
  fused multiply-adds. x - q high is exact: a multiple of 2^-24 below 1. The next product is taken exactly, and added by
  D. E. Knuth's TwoSum.
* From 2^16 on: M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions (SIGNUM 18, 1983): of the bits of 1/(2 pi) only
  those from the quadrant down matter; 96 of them from a table, times the 24-bit significand, give the quadrant and the fraction
  of it to 2^-61. No f32 lies nearer to a quadrant's end than 2^-30 of it (the nearest is 0x1.f37c8ap+95), so 31 bits remain.

Coefficients: own Remez fits of (sin(r)/r - 1)/r^2 and (cos(r) - 1 + r^2/2)/r^4 in r^2 for |r| <= pi/4 + 0.006, relative to the
result, rounded one after another to f32; 0.003 ULP of the result each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from vyre_py.ir.language.nodes import Atom, Value, Variable
from vyre_py.ir.language.types import f32, i32, u32
from vyre_py.ir.math.builder import MathBuilder, float_, int_, word

__all__ = ["SMALL", "cos", "reduced", "sin"]

_TWO_OVER_PI: Final = 0.63661975
# Three f32 that sum to pi/2, to 2^-76.
_HIGH, _MIDDLE, _LOW = 1.5707964, -4.371139e-08, -1.7151245e-15
_SIN_TAIL: Final = (-0.16666667, 0.0083333785, -0.00019852562, 2.826345e-06)
_COS_TAIL: Final = (0.041666646, -0.0013887301, 2.443075e-05)

# The fraction of 1/(2 pi), most significant word first, after a word of zeros for arguments that need none of the earlier bits.
_TABLE_NAME: Final = "math:one_over_two_pi"
_TABLE: Final = (0x00000000, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA)

_SIGN: Final = 0x80000000
_LARGE_BITS: Final = 0x47800000  # 2^16
_INFINITY_BITS: Final = 0x7F800000
SMALL: Final = 2.0**-13  # below it x - x^3/6 rounds to within 0.51 ULP of x


def sin(m: MathBuilder, x: Atom) -> Atom:
    """The sine of x radians: odd, -0 for -0, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    # The formulas would lose the sign of zero, and underflow.
    tiny = m("lt", m("abs", x), float_(SMALL))
    return m("select", tiny, x, _in_quadrant(m, high, low, quadrant))


def cos(m: MathBuilder, x: Atom) -> Atom:
    """The cosine of x radians: even, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    return _in_quadrant(m, high, low, m("add", quadrant, int_(1)))


def _in_quadrant(m: MathBuilder, high: Atom, low: Atom, quadrant: Atom) -> Atom:
    """sin(quadrant * pi/2 + high + low)."""
    square = m("mul", high, high)
    # high + low + high^3 S - high^2 low / 2
    inner = m("fma", high, m.polynomial(square, _SIN_TAIL), m("mul", low, float_(-0.5)))
    sine = m("add", high, m("fma", square, inner, low))
    # 1 - high^2/2 with its rounding error, + high^4 C - high low
    half = m("mul", square, float_(0.5))
    head = m("sub", float_(1.0), half)
    lost = m("sub", m("sub", float_(1.0), head), half)
    turn = m("mul", m("neg", high), low)
    tail = m("fma", m("mul", square, square), m.polynomial(square, _COS_TAIL), turn)
    cosine = m("add", head, m("add", lost, tail))

    odd = m("ne", m("and", quadrant, int_(1)), int_(0))
    value = m("select", odd, cosine, sine)
    return m("select", m("ne", m("and", quadrant, int_(2)), int_(0)), m("neg", value), value)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """r as two f32, and the quadrant as an i32 of which the low two bits count."""
    q = m("round", m("mul", x, float_(_TWO_OVER_PI)))
    minus = m("neg", q)
    first = m("fma", minus, float_(_HIGH), x)
    product = m("mul", minus, float_(_MIDDLE))
    lost = m("fma", minus, float_(_MIDDLE), m("neg", product))
    total = m("add", first, product)
    virtual = m("sub", total, first)
    error = m("add", m("sub", first, m("sub", total, virtual)), m("sub", product, virtual))
    rest = m("add", error, m("fma", minus, float_(_LOW), lost))

    out = m.out
    high, low, quadrant = out.var(f32, total), out.var(f32, rest), out.var(i32, m.cast(q, i32))
    bits = m.bitcast(x, u32)
    magnitude = m("and", bits, word(~_SIGN & 0xFFFFFFFF))
    # One unsigned comparison for 2^16 <= |x| < infinity: infinities and NaN have become NaN above.
    out.if_(m("lt", m("sub", magnitude, word(_LARGE_BITS)), word(_INFINITY_BITS - _LARGE_BITS)))
    _reduce_large(m, bits, high, low, quadrant)
    out.end()
    return out.get(high), out.get(low), out.get(quadrant)


def _reduce_large(m: MathBuilder, bits: Atom, high: Variable, low: Variable, quadrant: Variable) -> None:
    """Payne and Hanek's reduction of the f32 with these bits, in 32-bit words."""
    fraction_high, fraction_low = _turns(m, bits)
    negative = m("shr", m.bitcast(bits, i32), int_(31))  # 0 or -1
    # The nearest quadrant, and the signed rest of it as a 64-bit fraction.
    nearest = m.bitcast(m("shr", m("add", fraction_high, word(1 << 29)), word(30)), i32)
    m.out.set(quadrant, m("sub", m("xor", nearest, negative), negative))
    rest_high = m("or", m("shl", fraction_high, word(2)), m("shr", fraction_low, word(30)))
    rest_low = m("shl", fraction_low, word(2))
    # Its magnitude; a complement is a negation but for the last of 64 bits.
    flip = m.bitcast(m("shr", m.bitcast(rest_high, i32), int_(31)), u32)
    rest_high, rest_low = m("xor", rest_high, flip), m("xor", rest_low, flip)
    # 32 significant bits, the upper 24 and the lower 8 each exact in f32. The shift is at most 30: see the module.
    zeros = m("clz", rest_high)
    significant = m("or", m("shl", rest_high, zeros), m("shr", m("shr", rest_low, word(1)), m("sub", word(31), zeros)))
    upper = m.cast(m("and", significant, word(0xFFFFFF00)), f32)
    lower = m.cast(m("and", significant, word(0xFF)), f32)
    # Times pi/2, as two f32, and 2^-(32 + zeros) with the sign.
    product = m("mul", upper, float_(_HIGH))
    lost = m("fma", upper, float_(_HIGH), m("neg", product))
    lost = m("add", lost, m("fma", upper, float_(_MIDDLE), m("mul", lower, float_(_HIGH))))
    sign = m("and", m("xor", flip, bits), word(_SIGN))
    scale = m.bitcast(m("or", sign, m("shl", m("sub", word(127 - 32), zeros), word(23))), f32)
    m.out.set(high, m("mul", product, scale))
    m.out.set(low, m("mul", lost, scale))


def _turns(m: MathBuilder, bits: Atom) -> tuple[Value, Value]:
    """|x| / (2 pi) modulo 1 as a 64-bit fraction: its upper and lower words. The upper two bits are the quadrant."""
    words = m.table(_TABLE_NAME, u32, _TABLE)
    # |x| = significand * 2^(exponent - 32), the significand a full word.
    significand = m("shl", m("or", bits, word(1 << 23)), word(8))
    exponent = m("and", m("sub", m("shr", bits, word(23)), word(126)), word(0xFF))
    # A finite exponent is at most 128; said here so that all four loads are provably inside the table.
    first, shift = m("min", m("shr", exponent, word(5)), word(len(_TABLE) - 4)), m("and", exponent, word(31))
    entries = [m.out.load(words, (m("add", first, word(k)),)) for k in range(4)]
    # Two shifts, since one by 32 - 0 is masked to none.
    window = [
        m("or", m("shl", upper, shift), m("shr", m("shr", lower, word(1)), m("sub", word(31), shift)))
        for upper, lower in pairwise(entries)
    ]
    middle = m("mul", significand, window[1])
    low = m("add", middle, m("mul_hi", significand, window[2]))
    carry = m("select", m("lt", low, middle), word(1), word(0))
    high = m("add", m("mul", significand, window[0]), m("mul_hi", significand, window[1]))
    return m("add", high, carry), low
