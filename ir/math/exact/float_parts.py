"""Signs, fractions and exponents of floats, and the numbers beside them: exact, but that `ldexp` and `quantize_f16` round once; and but for this and
`modf_fraction` by integers on the bit patterns, so subnormals count whatever a device does to them."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f16, f32, i32
from vyre_py.ir.math.builder import MathBuilder, int_
from vyre_py.ir.math.words import NARROW, Words, words_of

__all__ = ["copysign", "frexp_exponent", "frexp_fraction", "ldexp", "modf_fraction", "nextafter", "quantize_f16"]


def copysign(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """The magnitude of x with the sign of y."""
    w = words_of(m, x.type)
    return w.joined(w.split(x)[0], w.split(y)[1])


def nextafter(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """The number beside x toward y; y where they are equal."""
    w = words_of(m, x.type)
    (size, sign), (other, sign_of_other) = w.split(x), w.split(y)
    # Away from zero, where y lies beyond x on the same side of it.
    away = m("logical_and", m("eq", sign, sign_of_other), m("gt", other, size))
    moved = w("or", w.pick(away, w("add", size, 1), w("sub", size, 1)), sign)
    moved = w.pick(w("eq", size, 0), w("or", sign_of_other, 1), moved)
    whole = w("or", other, sign_of_other)
    same = m("logical_or", m("eq", w("or", size, sign), whole), w("eq", w("or", size, other), 0))
    nan = w("gt", w("max", size, other), w.format.infinity)
    return m.bitcast(w.pick(nan, x.type.canonical_nan, w.pick(same, whole, moved)), x.type)


def modf_fraction(m: MathBuilder, x: Atom) -> Atom:
    """x - trunc(x) with the sign of x; a zero for infinities."""
    rest = m("select", m("is_inf", x), const(x.type, 0.0), m("sub", x, m("trunc", x)))
    return copysign(m, rest, x)


def quantize_f16(m: MathBuilder, x: Atom) -> Atom:
    """The nearest number that f16 holds."""
    return m.cast(m.cast(x, f16), f32)


def _regular(w: Words, magnitude: Atom) -> Atom:
    """Whether these are the bits of a finite number other than 0."""
    return w("lt", w("sub", magnitude, 1), w.format.infinity - 1)


def frexp_fraction(m: MathBuilder, x: Atom) -> Atom:
    """x by the power of two that takes its magnitude to 0.5 up to 1; zeros, infinities and NaN stay."""
    if x.type in NARROW:
        return m.cast(frexp_fraction(m, m.cast(x, f32)), x.type)
    w = words_of(m, x.type)
    magnitude, sign = w.split(x)
    fraction = w.format.fraction
    significand = w("shr", w.normalised(magnitude)[0], w.t.bits - 1 - fraction)
    made = w("or", w("and", significand, (1 << fraction) - 1), (w.format.bias - 1) << fraction)
    return w.joined(w.pick(_regular(w, magnitude), made, magnitude), sign)


def frexp_exponent(m: MathBuilder, x: Atom) -> Atom:
    """The exponent of that power of two; 0 for zeros, infinities and NaN."""
    if x.type in NARROW:
        return frexp_exponent(m, m.cast(x, f32))
    w = words_of(m, x.type)
    magnitude = w.split(x)[0]
    count = m("sub", _signed(w, w.normalised(magnitude)[1]), int_(w.format.bias - 1))
    return m("select", _regular(w, magnitude), count, int_(0))


def ldexp(m: MathBuilder, x: Atom, e: Atom) -> Atom:
    """x * 2^e, rounded once."""
    if x.type in NARROW:
        # What f32 rounds is far below the least of their numbers.
        return m.cast(ldexp(m, m.cast(x, f32), e), x.type)
    w = words_of(m, x.type)
    magnitude, sign = w.split(x)
    fraction = w.format.fraction
    word, count = w.normalised(magnitude)
    significand = w("shr", word, w.t.bits - 1 - fraction)
    top = w.format.infinity >> fraction
    count = m("add", _signed(w, count), m("clamp", e, int_(-4 * top), int_(4 * top)))
    normal = w("add", w("shl", _word(w, m("sub", count, int_(1))), fraction), significand)
    # Below the least normal number bits are cut off: half of the last that stays is added before, less a little where that one is even.
    cut = _word(w, m("clamp", m("sub", int_(1), count), int_(1), int_(fraction + 2)))
    odd = w("and", w("shr", significand, cut), 1)
    half = w("shl", 1, w("sub", cut, 1))
    small = w("shr", w("add", significand, w("add", w("sub", half, 1), odd)), cut)
    made = w.pick(m("ge", count, int_(top)), w.format.infinity, w.pick(m("ge", count, int_(1)), normal, small))
    return w.joined(w.pick(_regular(w, magnitude), made, magnitude), sign)


def _signed(w: Words, count: Atom) -> Atom:
    """A small number, wrapped where it is negative, as an i32."""
    return w.m.bitcast(count, i32) if w.t.bits == i32.bits else w.m.cast(count, i32)


def _word(w: Words, count: Atom) -> Atom:
    """An i32 as a word, wrapped where it is negative."""
    return w.m.bitcast(count, w.t) if w.t.bits == i32.bits else w.m.cast(count, w.t)
