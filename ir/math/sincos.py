"""sin and cos: every argument, up to the greatest; at most 1 ULP (of f32 0.80 observed on 2^26 arguments).

Method: x = q pi/2 + r with |r| <= pi/4 (a little more where x / (pi/2) rounds the other way), then a polynomial in r^2 and a
quadrant. r is a sum of two floats, so that it is good to far more than their bits even next to a multiple of pi/2.

* Below 2^16, of f64 2^20: W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 8, with a three-part pi/2 and
  fused multiply-adds. x - q high is exact: a multiple of 2^-24 (2^-53) below 1. The next product is taken exactly, and added by
  D. E. Knuth's TwoSum.
* From there on: M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions (SIGNUM 18, 1983): of the bits of 1/(2 pi) only
  those from the quadrant down matter; 96 (192) of them from a table, times the significand, give the quadrant and the fraction
  of it to 2^-61 (2^-125). No f32 lies nearer to a quadrant's end than 2^-30 of it (the nearest is 0x1.f37c8ap+95), so 31 bits remain. No f64 does than
  2^-61 (6381956970095103 * 2^797: J.-M. Muller, Elementary Functions, 2016), so 64 remain.

Coefficients: (sin(r)/r - 1)/r^2 and (cos(r) - 1 + r^2/2)/r^4 in r^2 for |r| <= pi/4 + 0.006, relative to the result. Those of f32 are own Remez fits,
rounded one after another; 0.003 ULP of the result each. Of f64 0.037 ULP of sin and 0.001 of cos.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from vyre_py.ir.language.nodes import Atom, Value, Variable, const
from vyre_py.ir.language.types import Type, f32, f64, i32, u32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.pairs import any_sum_of, nearest, product
from vyre_py.ir.math.words import FORMATS, Format

__all__ = ["SMALL", "cos", "reduced", "sin"]

_TWO_OVER_PI: Final = 0.6366197723675814
# Three floats that sum to pi/2, to 2^-76 and 2^-161.
_HALF_PI: Final = {
    f32: (1.5707964, -4.371139e-08, -1.7151245e-15),
    f64: (1.5707963267948966, 6.123233995736766e-17, -1.497384905065873e-33),
}
_SIN_TAIL: Final = {
    f32: (-0.16666667, 0.0083333785, -0.00019852562, 2.826345e-06),
    f64: (-0.16666666666666627, 0.00833333333332115, -0.00019841269828800478, 2.7557313342480867e-06, -2.5050703290550494e-08, 1.589360736022311e-10),
}
_COS_TAIL: Final = {
    f32: (0.041666646, -0.0013887301, 2.443075e-05),
    f64: (0.04166666666666658, -0.0013888888888871117, 2.4801587287683693e-05, -2.7557313850051693e-07, 2.0875656842676426e-09, -1.135628538985687e-11),
}

# The fraction of 1/(2 pi), most significant word first, after a word of zeros for arguments that need none of the earlier bits.
_TABLE_NAMES: Final = {f32: "math:one_over_two_pi", f64: "math:one_over_two_pi_f64"}
_TABLES: Final = {
    f32: (0x00000000, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA),
    f64: (
        0x0000000000000000, 0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158, 0x6DC91B8E909374B8, 0x01924BBA82746487,
        0x3F877AC72C4A69CF, 0xBA208D7D4BAED121, 0x3A671C09AD17DF90, 0x4E64758E60D4CE7D, 0x272117E2EF7E4A0E, 0xC7FE25FFF7816603, 0xFBCBC462D6829B47,
        0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B, 0x5D49EEB1FAF97C5E, 0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA,
    ),
}  # fmt: skip

_LARGE_BITS: Final = {f32: 0x47800000, f64: 0x4130000000000000}  # 2^16 and 2^20
SMALL: Final = {f32: 2.0**-13, f64: 2.0**-27}  # below it x - x^3/6 rounds to within 0.51 ULP of x


def sin(m: MathBuilder, x: Atom) -> Atom:
    """The sine of x radians: odd, -0 for -0, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    # The formulas would lose the sign of zero, and underflow.
    tiny = m("lt", m("abs", x), SMALL[x.type])
    return m("select", tiny, x, _in_quadrant(m, high, low, quadrant))


def cos(m: MathBuilder, x: Atom) -> Atom:
    """The cosine of x radians: even, NaN for infinities."""
    high, low, quadrant = reduced(m, x)
    return _in_quadrant(m, high, low, m("add", quadrant, 1))


def _in_quadrant(m: MathBuilder, high: Atom, low: Atom, quadrant: Atom) -> Atom:
    """sin(quadrant * pi/2 + high + low)."""
    square = m("mul", high, high)
    # high + low + high^3 S - high^2 low / 2
    inner = m("fma", high, m.polynomial(square, _SIN_TAIL[high.type]), m("mul", low, -0.5))
    sine = m("add", high, m("fma", square, inner, low))
    # 1 - high^2/2 with its rounding error, + high^4 C - high low
    half = m("mul", square, 0.5)
    head = m("sub", 1.0, half)
    lost = m("sub", m("sub", 1.0, head), half)
    turn = m("mul", m("neg", high), low)
    tail = m("fma", m("mul", square, square), m.polynomial(square, _COS_TAIL[high.type]), turn)
    cosine = m("add", head, m("add", lost, tail))

    odd = m("ne", m("and", quadrant, 1), 0)
    value = m("select", odd, cosine, sine)
    return m("select", m("ne", m("and", quadrant, 2), 0), m("neg", value), value)


def reduced(m: MathBuilder, x: Atom) -> tuple[Atom, Atom, Atom]:
    """r as two floats, and the quadrant as an i32 of which the low two bits count."""
    first_part, second_part, third_part = _HALF_PI[x.type]
    q, whole = nearest(m, m("mul", x, _TWO_OVER_PI))
    minus = m("neg", q)
    first = m("fma", minus, first_part, x)
    shift, lost = product(m, minus, second_part)
    total, error = any_sum_of(m, first, shift)
    rest = m("add", error, m("fma", minus, third_part, lost))

    out, form = m.out, FORMATS[x.type]
    high, low, quadrant = out.var(x.type, total), out.var(x.type, rest), out.var(i32, _as(m, whole, i32))
    bits = m.bitcast(x, form.word)
    magnitude = m("and", bits, form.magnitude)
    # One unsigned comparison for the border <= |x| < infinity: infinities and NaN have become NaN above.
    out.if_(m("lt", m("sub", magnitude, _LARGE_BITS[x.type]), form.infinity - _LARGE_BITS[x.type]))
    _reduce_large(m, form, bits, (high, low, quadrant))
    out.end()
    return out.get(high), out.get(low), out.get(quadrant)


def _reduce_large(m: MathBuilder, form: Format, bits: Atom, results: tuple[Variable, Variable, Variable]) -> None:
    """Payne and Hanek's reduction of the float with these bits, in words as wide."""
    width, signed = form.word.bits, form.signed
    fraction_high, fraction_low = _turns(m, form, bits)
    negative = m("shr", m.bitcast(bits, signed), width - 1)  # 0 or -1
    # The nearest quadrant, and the signed rest of it as a fraction of two words.
    nearest = m.bitcast(m("shr", m("add", fraction_high, 1 << width - 3), width - 2), signed)
    m.out.set(results[2], _as(m, m("sub", m("xor", nearest, negative), negative), i32))
    rest_high = m("or", m("shl", fraction_high, 2), m("shr", fraction_low, width - 2))
    rest_low = m("shl", fraction_low, 2)
    # Its magnitude; a complement is a negation but for the last of its bits.
    flip = m.bitcast(m("shr", m.bitcast(rest_high, signed), width - 1), form.word)
    rest_high, rest_low = m("xor", rest_high, flip), m("xor", rest_low, flip)
    # A word of significant bits, as many above as the float holds and the others below, each exact. The shift is less than width - 1: see the module.
    zeros = m("clz", rest_high)
    significant = m("or", m("shl", rest_high, zeros), m("shr", m("shr", rest_low, 1), m("sub", width - 1, zeros)))
    below = (1 << width - 1 - form.fraction) - 1
    upper = m.cast(m("and", significant, form.word.maximum - below), form.type)
    lower = m.cast(m("and", significant, below), form.type)
    # Times pi/2, as two floats, and 2^-(width + zeros) with the sign.
    first_part, second_part, _ = _HALF_PI[form.type]
    turned, lost = product(m, upper, first_part)
    lost = m("add", lost, m("fma", upper, second_part, m("mul", lower, first_part)))
    sign = m("and", m("xor", flip, bits), form.sign)
    scale = m.bitcast(m("or", sign, m("shl", m("sub", form.bias - width, zeros), form.fraction)), form.type)
    m.out.set(results[0], m("mul", turned, scale))
    m.out.set(results[1], m("mul", lost, scale))


def _turns(m: MathBuilder, form: Format, bits: Atom) -> tuple[Value, Value]:
    """|x| / (2 pi) modulo 1 as a fraction of two words, the upper and the lower. The upper two bits are the quadrant."""
    width, table = form.word.bits, _TABLES[form.type]
    words = m.table(_TABLE_NAMES[form.type], form.word, table)
    # |x| = significand * 2^(exponent - width), the significand a full word.
    significand = m("shl", m("or", bits, 1 << form.fraction), width - 1 - form.fraction)
    exponent = m("and", m("sub", _as(m, m("shr", bits, form.fraction), u32), form.bias - 1), 2 * form.bias + 1)
    # A finite exponent is at most the bias and 1; said here so that all four loads are provably inside the table.
    first = m("min", m("shr", exponent, width.bit_length() - 1), len(table) - 4)
    shift = _as(m, m("and", exponent, width - 1), form.word)
    entries = [m.out.load(words, (m("add", first, k),)) for k in range(4)]
    # Two shifts, since one by width - 0 is masked to none.
    window = [m("or", m("shl", upper, shift), m("shr", m("shr", lower, 1), m("sub", width - 1, shift))) for upper, lower in pairwise(entries)]
    middle = m("mul", significand, window[1])
    low = m("add", middle, m("mul_hi", significand, window[2]))
    carry = m("select", m("lt", low, middle), const(form.word, 1), 0)
    high = m("add", m("mul", significand, window[0]), m("mul_hi", significand, window[1]))
    return m("add", high, carry), low


def _as(m: MathBuilder, x: Value, type_: Type) -> Value:
    return x if x.type is type_ else m.cast(x, type_)
