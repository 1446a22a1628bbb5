"""Each op over 64-bit integers in 32-bit words: one row per op, and conversions by the other type.

A 64-bit value is a pair of u32 words, the low one first. Rows write statements at the end of an assembler; they take a pair for each
64-bit operand, other atoms as they are, and give a pair, or an atom where the result is no 64-bit integer. Division and wide products are left to the
target as `FUNCTIONS`; the other algorithms are the schoolbook ones (H. S. Warren, "Hacker's Delight", 2nd edition, chapters 2, 5 and 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.nodes import Atom, Const, Let, const
from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.ops import OPS, swizzle_bits
from vyre_py.ir.language.types import Array, Type, bool_, f32, f64, i32, i64, u32, u64, vector_of
from vyre_py.ir.math.builder import MathBuilder, int_, word

__all__ = ["FROM_WORDS", "FUNCTIONS", "ROWS", "TO_WORDS", "Pair", "Split64Builder", "is_wide", "op_by_words", "words_of_const"]

Pair = tuple[Atom, Atom]

_ZERO: Final = word(0)
_ONES: Final = word(u32.maximum)
_WORD_PAIR: Final = vector_of(u32, 2)


def is_wide(type_: Type) -> bool:
    """Whether values of a type are pairs of words."""
    return type_ is i64 or type_ is u64


def words_of_const(const_: Const) -> Pair:
    """The two words of a 64-bit constant."""
    return word(const_.bits & u32.maximum), word(const_.bits >> 32)


class Split64Builder(MathBuilder):
    """Arithmetic on pairs of words, written at the end of `out`."""

    def each(self, name: str, *pairs: Pair) -> Pair:
        """An op on the low words, and the same op on the high ones."""
        low, high = zip(*pairs, strict=True)
        return self(name, *low), self(name, *high)

    def flag(self, condition: Atom) -> Atom:
        """1 for true, 0 for false."""
        return self.cast(condition, u32)

    def either(self, condition: Atom, a: Pair, b: Pair) -> Pair:
        """The pair `a` where the condition is true, else `b`."""
        return self("select", condition, a[0], b[0]), self("select", condition, a[1], b[1])

    def negative(self, a: Pair) -> Atom:
        """Whether the top bit is set."""
        return self("lt", self.bitcast(a[1], i32), int_(0))

    def is_zero(self, a: Pair) -> Atom:
        """Whether all bits are zero."""
        return self("eq", self("or", a[0], a[1]), _ZERO)

    def add(self, a: Pair, b: Pair) -> Pair:
        """The sum."""
        low = self("add", a[0], b[0])
        carry = self.flag(self("lt", low, b[0]))
        return low, self("add", self("add", a[1], b[1]), carry)

    def sub(self, a: Pair, b: Pair) -> Pair:
        """The difference."""
        borrow = self.flag(self("lt", a[0], b[0]))
        return self("sub", a[0], b[0]), self("sub", self("sub", a[1], b[1]), borrow)

    def neg(self, a: Pair) -> Pair:
        """The negation: all bits turned, and one more."""
        carry = self.flag(self("eq", a[0], _ZERO))
        return self("neg", a[0]), self("add", self("not", a[1]), carry)

    def magnitude(self, a: Pair) -> tuple[Atom, Pair]:
        """Whether a signed number is negative, and its magnitude as an unsigned one."""
        negative = self.negative(a)
        return negative, self.either(negative, self.neg(a), a)

    def full_product(self, a: Atom, b: Atom) -> Pair:
        """All 64 bits of the product of two words."""
        return self("mul", a, b), self("mul_hi", a, b)

    def less(self, t: Type, a: Pair, b: Pair) -> Atom:
        """a < b as numbers of type `t`."""
        high = (self.bitcast(a[1], i32), self.bitcast(b[1], i32)) if t.is_signed else (a[1], b[1])
        same = self("eq", a[1], b[1])
        return self("select", same, self("lt", a[0], b[0]), self("lt", *high))

    def leading_zeros(self, a: Pair) -> Atom:
        """How many leading bits are zero."""
        return self("select", self("eq", a[1], _ZERO), self("add", self("clz", a[0]), word(32)), self("clz", a[1]))

    def up(self, a: Pair, count: Atom) -> Pair:
        """Shifted left; the count is masked by 63."""
        step, whole = self._steps(count)
        low = self("shl", a[0], step)
        high = self("or", self("shl", a[1], step), self._left_over("shr", a[0], step))
        return self("select", whole, _ZERO, low), self("select", whole, low, high)

    def down(self, a: Pair, count: Atom, *, signed: bool) -> Pair:
        """Shifted right, with zeros or copies of the sign coming in; the count is masked by 63."""
        step, whole = self._steps(count)
        low = self("or", self("shr", a[0], step), self._left_over("shl", a[1], step))
        if not signed:
            high = self("shr", a[1], step)
            return self("select", whole, high, low), self("select", whole, _ZERO, high)
        top = self.bitcast(a[1], i32)
        high = self.bitcast(self("shr", top, self.bitcast(step, i32)), u32)
        return self("select", whole, high, low), self("select", whole, self.bitcast(self("shr", top, int_(31)), u32), high)

    def rotated(self, a: Pair, count: Atom) -> Pair:
        """Rotated left; the count is masked by 63."""
        step, whole = self._steps(count)
        low, high = self.either(whole, (a[1], a[0]), a)
        into_low, into_high = self._left_over("shr", high, step), self._left_over("shr", low, step)
        return self("or", self("shl", low, step), into_low), self("or", self("shl", high, step), into_high)

    def _steps(self, count: Atom) -> tuple[Atom, Atom]:
        """The count within a word, and whether it goes a whole word further."""
        return self("and", count, word(31)), self("ne", self("and", count, word(32)), _ZERO)

    def _left_over(self, name: str, a: Atom, step: Atom) -> Atom:
        """What a shift by `step` the other way moved out of a word: shifted by 32 - step, in two shifts, since the step may be 0."""
        return self(name, self(name, a, word(1)), self("xor", step, word(31)))

    def called(self, name: str, t: Type, a: Pair, b: Pair) -> Pair:
        """The op by the target's function, over two operands."""
        words = self.out.let(FUNCTIONS[name, t], (*a, *b))
        low, high = (self.out.let(OPS["swizzle"], (words, word(swizzle_bits(half))), u32) for half in _RESULTS[name])
        return low, high


def _function(name: str, t: Type, rows: tuple[str, ...]) -> Op:
    """The op from the words of two operands to those of what `rows` make of them. It is no op of the language: a target has a function for it, since written
    out it takes 40 to 70 statements, and some a loop, at each use."""

    def evaluate(result: Type, *words: Array) -> Array:
        low, high, *second = [w.astype(np.uint64) for w in words]
        operands = [(x | y << np.uint64(32)).view(t.dtype) for x, y in ((low, high), second)]
        made = [np.asarray(meaning(t, *operands)).view(np.uint64) for row in rows if (meaning := OPS[row].evaluate)]
        return np.stack([half for pair in made for half in (pair & np.uint64(u32.maximum), pair >> np.uint64(32))], -1).astype(np.uint32)

    return Op(
        f"{name}_{t}", 0, (Operand.U32,) * 4, Result.FIXED, frozenset(), evaluate, f"{', '.join(rows)} of {t} in words", fixed=vector_of(u32, 2 * len(rows)),
    )  # fmt: skip


_RESULTS: Final[Mapping[str, str]] = {"div": "xy", "rem": "zw", "mul_hi": "xy"}  # op -> the words of the result that are its own
_DIVIDED: Final[Mapping[Type, Op]] = {t: _function("divide", t, ("div", "rem")) for t in (i64, u64)}
# The op and its type -> the function that computes it.
FUNCTIONS: Final[Mapping[tuple[str, Type], Op]] = {
    **{(name, t): _DIVIDED[t] for name in ("div", "rem") for t in _DIVIDED},
    **{("mul_hi", t): _function("mul_hi", t, ("mul_hi",)) for t in (i64, u64)},
}


# ---------------------------------------------------------------- rows


def _mul(w: Split64Builder, t: Type, a: Pair, b: Pair) -> Pair:
    low, high = w.full_product(a[0], b[0])
    return low, w("add", high, w("add", w("mul", a[0], b[1]), w("mul", a[1], b[0])))


def _abs(w: Split64Builder, t: Type, a: Pair) -> Pair:
    return w.magnitude(a)[1] if t.is_signed else a


def _sign(w: Split64Builder, t: Type, a: Pair) -> Pair:
    some = w("logical_not", w.is_zero(a))
    if not t.is_signed:
        return w.flag(some), _ZERO
    negative = w.negative(a)
    return w("select", negative, _ONES, w.flag(some)), w("select", negative, _ONES, _ZERO)


def _min(w: Split64Builder, t: Type, a: Pair, b: Pair) -> Pair:
    return w.either(w.less(t, a, b), a, b)


def _max(w: Split64Builder, t: Type, a: Pair, b: Pair) -> Pair:
    return w.either(w.less(t, a, b), b, a)


def _abs_diff(w: Split64Builder, t: Type, a: Pair, b: Pair) -> Pair:
    rest = w.sub(a, b)
    return w.either(w.less(t, a, b), w.neg(rest), rest)


def _ctz(w: Split64Builder, t: Type, a: Pair) -> Pair:
    return w("select", w("eq", a[0], _ZERO), w("add", w("ctz", a[1]), word(32)), w("ctz", a[0])), _ZERO


def _equal(w: Split64Builder, a: Pair, b: Pair) -> Atom:
    return w("logical_and", w("eq", a[0], b[0]), w("eq", a[1], b[1]))


_Row = Callable[..., Pair | Atom]


def _call(name: str, w: Split64Builder, t: Type, a: Pair, b: Pair) -> Pair:
    return w.called(name, t, a, b)


def _wordwise(name: str) -> _Row:
    return lambda w, t, *pairs: w.each(name, *pairs)


ROWS: Final[Mapping[str, _Row]] = {
    "add": lambda w, t, a, b: w.add(a, b),
    "sub": lambda w, t, a, b: w.sub(a, b),
    "mul": _mul,
    **{name: partial(_call, name) for name in _RESULTS},
    "neg": lambda w, t, a: w.neg(a),
    "abs": _abs,
    "sign": _sign,
    "min": _min,
    "max": _max,
    "clamp": lambda w, t, x, low, high: _min(w, t, _max(w, t, x, low), high),
    "and": _wordwise("and"),
    "or": _wordwise("or"),
    "xor": _wordwise("xor"),
    "not": _wordwise("not"),
    "shl": lambda w, t, a, b: w.up(a, b[0]),
    "shr": lambda w, t, a, b: w.down(a, b[0], signed=t.is_signed),
    "rotl": lambda w, t, a, b: w.rotated(a, b[0]),
    "rotr": lambda w, t, a, b: w.rotated(a, w("neg", b[0])),
    "popcount": lambda w, t, a: (w("add", w("popcount", a[0]), w("popcount", a[1])), _ZERO),
    "clz": lambda w, t, a: (w.leading_zeros(a), _ZERO),
    "ctz": _ctz,
    "reverse_bits": lambda w, t, a: (w("reverse_bits", a[1]), w("reverse_bits", a[0])),
    "abs_diff": _abs_diff,
    "eq": lambda w, t, a, b: _equal(w, a, b),
    "ne": lambda w, t, a, b: w("logical_not", _equal(w, a, b)),
    "lt": lambda w, t, a, b: w.less(t, a, b),
    "le": lambda w, t, a, b: w("logical_not", w.less(t, b, a)),
    "gt": lambda w, t, a, b: w.less(t, b, a),
    "ge": lambda w, t, a, b: w("logical_not", w.less(t, a, b)),
    "select": lambda w, t, condition, a, b: w.either(condition, a, b),
}


# ---------------------------------------------------------------- conversions


def _to_f32(w: Split64Builder, t: Type, a: Pair) -> Atom:
    """The first 32 bits, their last one set if others follow, rounded once and moved back into place."""
    negative, size = w.magnitude(a) if t.is_signed else (None, a)
    zeros = w.leading_zeros(size)
    low, high = w.up(size, zeros)
    first = w("or", high, w.flag(w("ne", low, _ZERO)))
    # 2 to the power 32 - zeros; a product with it is exact.
    scale = w.bitcast(w("shl", w("sub", word(159), zeros), word(23)), f32)
    rounded = w("mul", w.cast(first, f32), scale)
    return rounded if negative is None else w("select", negative, w("neg", rounded), rounded)


def _to_f64(w: Split64Builder, t: Type, a: Pair) -> Atom:
    """Both words are f64 exactly, so that the sum alone rounds."""
    high = w.cast(w.bitcast(a[1], i32) if t.is_signed else a[1], f64)
    return w("add", w("mul", high, const(f64, 2.0**32)), w.cast(a[0], f64))


def _from_float(w: Split64Builder, t: Type, x: Atom) -> Pair:
    """By words: what stands above 2^32, and the rest; all steps are exact. A NaN has the words that a cast makes of it: 0."""
    size = w("abs", x) if t.is_signed else w("max", x, const(x.type, 0.0))
    upper = w("floor", w("mul", size, const(x.type, 2.0**-32)))
    pair: Pair = w.cast(w("sub", size, w("mul", upper, const(x.type, 2.0**32))), u32), w.cast(upper, u32)
    over = w("ge", size, const(x.type, 2.0 ** (64 - t.is_signed)))
    if not t.is_signed:
        return w.either(over, (_ONES, _ONES), pair)
    negative = w("lt", x, const(x.type, 0.0))
    ends = w.either(negative, words_of_const(const(t, t.minimum)), words_of_const(const(t, t.maximum)))
    return w.either(over, ends, w.either(negative, w.neg(pair), pair))


def _from_signed(w: Split64Builder, t: Type, x: Atom) -> Pair:
    return w.bitcast(x, u32), w.bitcast(w("shr", x, int_(31)), u32)


def _f64_of_words(w: Split64Builder, t: Type, a: Pair) -> Atom:
    return w.bitcast(w("vec2", *a), f64)


def _words_of_f64(w: Split64Builder, t: Type, x: Atom) -> Pair:
    pair = w.bitcast(x, _WORD_PAIR)
    low, high = (w.out.let(OPS["swizzle"], (pair, word(swizzle_bits(name))), u32) for name in "xy")
    return low, high


# (op, the other type) -> how; each takes the 64-bit type, and the value.
_Conversions = Mapping[tuple[str, Type], Callable[[Split64Builder, Type, Any], Any]]

FROM_WORDS: Final[_Conversions] = {
    ("cast", bool_): lambda w, t, a: w("ne", w("or", a[0], a[1]), _ZERO),
    ("cast", i32): lambda w, t, a: w.bitcast(a[0], i32),
    ("cast", u32): lambda w, t, a: a[0],
    ("cast", f32): _to_f32,
    ("cast", f64): _to_f64,
    ("bitcast", f64): _f64_of_words,
}
TO_WORDS: Final[_Conversions] = {
    ("cast", bool_): lambda w, t, x: (w.flag(x), _ZERO),
    ("cast", i32): _from_signed,
    ("cast", u32): lambda w, t, x: (x, _ZERO),
    ("cast", f32): _from_float,
    ("cast", f64): _from_float,
    ("bitcast", f64): _words_of_f64,
}


def op_by_words(w: Split64Builder, let: Let, args: Sequence[Pair | Atom]) -> Any:
    """An op over 64-bit integers, of whose operands the 64-bit ones are pairs; a pair where its result is one."""
    name, source, target = let.op.name, let.args[-1].type, let.bound.type
    if name in ROWS:
        return ROWS[name](w, source, *args)
    if is_wide(source) and is_wide(target):
        return args[0]  # a cast or bitcast between i64 and u64 keeps the bits
    return FROM_WORDS[name, target](w, source, args[0]) if is_wide(source) else TO_WORDS[name, source](w, target, args[0])
