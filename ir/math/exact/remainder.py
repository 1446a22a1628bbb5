"""rem of floats, C's fmod: exact, by integers on the bit patterns; so subnormals count whatever a device does to them. And remainder, IEEE's, which
is made of it.

Both magnitudes become full words X 2^a and D 2^b with their top bits set, and (X 2^(a - b)) mod D is taken a whole word of
the shift a turn: 8 turns at most for f32, 32 for f64, after a first one. A turn divides two words by one through a reciprocal that is made once: N. Moeller and
T. Granlund, "Improved division by invariant integers" (2011), algorithm 4. The reciprocal comes from schoolbook division with half
words as digits (D. E. Knuth, The Art of Computer Programming 2, 4.3.1, algorithm D).
"""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Const
from vyre_py.ir.language.types import f32, u32
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.words import NARROW, Words, words_of

__all__ = ["rem", "remainder"]


def rem(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x - trunc(x / y) * y, exact, with the sign of x; NaN for an infinite x and for y = 0, x for an infinite y."""
    if x.type in NARROW:
        # Exact too: the result is a multiple of the smaller unit of the two, and not above either.
        return m.cast(rem(m, m.cast(x, f32), m.cast(y, f32)), x.type)
    w = words_of(m, x.type)
    form = w.format
    bits = m.bitcast(x, form.word)
    a, b = w("and", bits, form.magnitude), w("and", m.bitcast(y, form.word), form.magnitude)
    # y is neither 0 nor NaN: one unsigned comparison.
    defined = m("logical_and", w("lt", a, form.infinity), w("lt", w("sub", b, 1), form.infinity))
    out = m.out
    result = out.var(form.word, w.pick(defined, a, form.type.canonical_nan))
    out.if_(m("logical_and", defined, w("ge", a, b)))
    out.set(result, _reduced(w, a, b))
    out.end()
    return m.bitcast(w("or", out.get(result), w("and", bits, form.sign)), x.type)


def remainder(m: MathBuilder, x: Atom, y: Atom) -> Atom:
    """x - n * y for the whole number n nearest to x / y, the even one of two; exact, a zero with the sign of x; NaN where rem's is."""
    if x.type in NARROW:
        return m.cast(remainder(m, m.cast(x, f32), m.cast(y, f32)), x.type)
    size = m("abs", y)
    # Less even multiples of y: below 2 |y|, and twice |y| may be infinite. Where |y| - rest is rounded, rest is too small to be asked about.
    rest: Atom = rem(m, m("abs", x), m("add", size, size))
    less = m("sub", rest, size)
    nearest = m("select", m("ge", less, m("sub", size, less)), m("sub", less, size), less)
    rest = m("select", m("gt", rest, m("sub", size, rest)), nearest, rest)
    w = words_of(m, x.type)
    return m.bitcast(w("xor", m.bitcast(rest, w.t), w.split(x)[1]), x.type)


def _reduced(w: Words, a: Atom, b: Atom) -> Atom:
    """The bits of a mod b, of the bits of finite a >= b > 0."""
    width = w.t.bits
    (x, upper), (d, lower) = w.normalised(a), w.normalised(b)
    shift = w("sub", upper, lower)
    reciprocal = _reciprocal(w, d)
    # x < 2 d, as both have their top bits set. Then the part of the shift that is no whole word: by two shifts, since one by
    # the width would be none.
    first = w.pick(w("ge", x, d), w("sub", x, d), x)
    part = w("and", shift, width - 1)
    over = w("shr", w("shr", first, 1), w("sub", width - 1, part))
    out = w.m.out
    rest = out.var(w.t, _remainder(w, over, w("shl", first, part), d, reciprocal))
    turns = w("shr", shift, width.bit_length() - 1)
    out.for_(Const(u32, 0), turns if w.t is u32 else w.m.cast(turns, u32), Const(u32, 1))
    out.set(rest, _remainder(w, out.get(rest), Const(w.t, 0), d, reciprocal))
    out.end()
    return _packed(w, out.get(rest), lower)


def _packed(w: Words, rest: Atom, exponent: Atom) -> Atom:
    """The bits of a remainder whose top bit would count `exponent`; exact, since a remainder is a multiple of both operands' units."""
    zeros = w("clz", rest)
    below = w("sub", w("add", zeros, 1), exponent)  # how far under the least normal number; wrapped where it is not
    normal = w("ge", below, 1 << (w.t.bits - 1))
    significand = w("shr", w("shl", rest, zeros), w.t.bits - 1 - w.format.fraction)
    # The exponent's field is 1 - below, of which the significand's top bit adds the 1.
    field = w("sub", 0, w("shl", below, w.format.fraction))
    made = w.pick(normal, w("add", field, significand), w("shr", significand, below))
    return w.pick(w("eq", rest, 0), 0, made)


def _remainder(w: Words, upper: Atom, lower: Atom, d: Atom, reciprocal: Atom) -> Atom:
    """(upper, lower) mod d for upper < d."""
    middle = w("mul", reciprocal, upper)
    quotient_low = w("add", middle, lower)
    carry = w.pick(w("lt", quotient_low, middle), 1, 0)
    quotient = w("add", w("add", w("mul_hi", reciprocal, upper), upper), w("add", carry, 1))
    rest = w("sub", lower, w("mul", quotient, d))
    rest = w.pick(w("gt", rest, quotient_low), w("add", rest, d), rest)
    return w.pick(w("ge", rest, d), w("sub", rest, d), rest)


def _reciprocal(w: Words, d: Atom) -> Atom:
    """floor((B^2 - 1) / d) - B for B = 2^width, that is (~d, B - 1) / d, with two digits of half a word."""
    half = w.t.bits // 2
    ones = (1 << half) - 1
    upper, lower = w("shr", d, half), w("and", d, ones)
    digits: list[Atom] = []
    rest = w("not", d)
    for _ in range(2):
        digit = w("div", rest, upper)
        left = w("or", w("shl", w("sub", rest, w("mul", digit, upper)), half), ones)
        product = w("mul", digit, lower)
        # A digit is at most 2 too great. Where d, added back, passes the word, the digit is right.
        short = w("lt", left, product)
        once = w("add", left, d)
        again = w.m("logical_and", short, w.m("logical_and", w("ge", once, d), w("lt", once, product)))
        digit = w("sub", w("sub", digit, w.pick(short, 1, 0)), w.pick(again, 1, 0))
        left = w.pick(again, w("add", once, d), w.pick(short, once, left))
        digits.append(digit)
        rest = w("sub", left, product)
    return w("or", w("shl", digits[0], half), digits[1])
