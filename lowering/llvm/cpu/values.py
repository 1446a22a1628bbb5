"""What a value is across the lanes of a chunk, and the writer that knows how many lanes there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.types import Type, bool_
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bits_type, integer, literal, llvm_type

__all__ = ["LaneValue", "LaneWriter", "Mask", "Variability", "calculate", "foreseen", "known_value", "variability_of"]

# The lanes that are on: an SSA name of <W x i1> (i1 for one lane), or None where all are known to be.
Mask = str | None


# Of the values that most masks are for.
_MASK_BITS: Final = 32


class Variability(Enum):
    """How a value differs between the lanes of a chunk."""

    UNIFORM = "uniform"  # one scalar for all lanes that are on
    LINEAR = "linear"  # lane k holds the scalar + k, modulo 2^32
    STEPPED = "stepped"  # lane k holds the scalar + k * step, modulo 2^32
    VARYING = "varying"  # a vector


@dataclass(frozen=True, slots=True)
class LaneValue:
    """A value: `name` is the scalar (of lane 0 for LINEAR and STEPPED) or the vector; `const` where it is a constant.

    Of an integer of 32 bits `name` is known to be `rest` past a multiple of `multiple`, a power of two; from lane to lane it grows by `step`. It is `delta`
    more than what the expression `origin` says, or than nothing but `name`: values of one `root` differ by a constant.
    """

    variability: Variability
    type: Type
    name: str
    const: Const | None = None
    step: int = 0
    multiple: int = 1
    rest: int = 0
    origin: str = ""
    delta: int = 0

    @property
    def root(self) -> str:
        """What `delta` is added to."""
        return self.origin or (_NOTHING if self.const is not None else self.name)

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes that are on hold one value."""
        return self.variability is Variability.UNIFORM


class LaneWriter(Writer):
    """A writer over chunks of `width` lanes. With one lane a vector is a scalar, and a mask an i1. `rows` is the op table of
    the machine. `narrow` says that lanes are narrower than 32 bits: vectors of so many indices would be long."""

    def __init__(self, module: ModuleText, width: int, rows: Mapping[str, Emitter], narrow: bool = False) -> None:
        super().__init__(module)
        self.width = width
        self.narrow = narrow
        self.rows = rows
        self.mask_type = bits_type(1, width)
        self.all_on = "true" if width == 1 else "splat (i1 true)"
        self._vectors: dict[tuple[str, str], str] = {}

    def block(self, label: str) -> None:
        """Begins a block; vectors made of scalars in the one before are made again, since they may not reach it."""
        super().block(label)
        self._vectors.clear()

    # ---- vectors

    def lanes(self, bits: int = 32, step: int = 1) -> str:
        """The constant 0, 1, 2, ... over the lanes, times `step`."""
        return "0" if self.width == 1 else "<" + ", ".join(f"i{bits} {k * step}" for k in range(self.width)) + ">"

    def splat(self, type_: str, name: str) -> str:
        """A vector of a scalar of an LLVM type."""
        if self.width == 1:
            return name
        key = (type_, name)
        if key not in self._vectors:
            vector = f"<{self.width} x {type_}>"
            first = self.let(f"insertelement {vector} poison, {type_} {name}, i64 0")
            self._vectors[key] = self.let(f"shufflevector {vector} {first}, {vector} poison, <{self.width} x i32> zeroinitializer")
        return self._vectors[key]

    def vector(self, value: LaneValue) -> str:
        """A value as a vector."""
        if value.variability is Variability.VARYING:
            return value.name
        if value.const is not None:
            return literal(value.const, self.width)
        every = self.splat(llvm_type(value.type), value.name)
        if value.variability is Variability.UNIFORM or self.width == 1:
            return every
        key = (f"by {value.step}", value.name)
        if key not in self._vectors:
            self._vectors[key] = self.let(f"add {bits_type(32, self.width)} {every}, {self.lanes(step=value.step)}")
        return self._vectors[key]

    def varying(self, type_: Type, name: str) -> LaneValue:
        """A VARYING value, which `name` holds; with one lane it is UNIFORM."""
        return LaneValue(Variability.UNIFORM if self.width == 1 else Variability.VARYING, type_, name)

    def linear(self, type_: Type, name: str, multiple: int = 1) -> LaneValue:
        """The LINEAR value whose lane 0 is `name`, a multiple of a power of two; with one lane it is UNIFORM."""
        return self.stepped(type_, name, 1, multiple)

    def stepped(self, type_: Type, name: str, step: int, multiple: int = 1, rest: int = 0, origin: str = "", delta: int = 0) -> LaneValue:
        """The value that grows by `step` from lane to lane."""
        step = step if self.width > 1 else 0
        return LaneValue(_OF_STEP.get(step, Variability.STEPPED), type_, name, None, step, multiple, rest, origin, delta)

    def scalar(self, value: LaneValue, mask: Mask) -> str:
        """The value of the last lane that is on, of which there must be one."""
        if value.is_uniform:
            return value.name
        vector = f"{llvm_type(value.type, self.width)} {self.vector(value)}"
        if mask is None:
            return self.let(f"extractelement {vector}, i64 {self.width - 1}")
        bits = f"i{self.width}"
        leading = self.call(bits, f"llvm.ctlz.{bits}", (bits, self.mask_bits(mask)), ("i1", "true"))
        return self.let(f"extractelement {vector}, {bits} {self.let(f'sub {bits} {self.width - 1}, {leading}')}")

    # ---- masks

    def mask_bits(self, mask: str) -> str:
        """A mask as an integer of one bit a lane."""
        return mask if self.width == 1 else self.let(f"bitcast {self.mask_type} {mask} to i{self.width}")

    def any(self, mask: Mask) -> str:
        """Whether a lane is on, as an i1."""
        if mask is None:
            return "true"
        return mask if self.width == 1 else self.let(f"icmp ne i{self.width} {self.mask_bits(mask)}, 0")

    def both(self, left: Mask, right: Mask) -> Mask:
        """The lanes that are on in both."""
        if left is None or right is None:
            return right if left is None else left
        return self.let(f"and {self.mask_type} {left}, {right}")

    def where(self, mask: Mask, condition: str) -> Mask:
        """The lanes that are on where a condition that all share holds. By numbers of one bit a lane: of a mask and a vector of the condition LLVM 22.1 makes
        wrong code for x86, where it takes a masked load apart and knows that the mask is off in one half, which it then loads as a whole."""
        if mask is None or self.width == 1:
            return self.both(mask, self.splat("i1", condition))
        bits = f"i{self.width}"
        on = self.let(f"and {bits} {self.mask_bits(mask)}, {self.let(f'sext i1 {condition} to {bits}')}")
        return self.lanes_of(on)

    def below(self, value: LaneValue, bound: str) -> str:
        """The lanes whose number of 32 bits, read as unsigned, is below a bound that all share. Of numbers that step by one these are the lanes before the
        bound, and where numbers wrap those from zero on: in narrow lanes numbers of lanes are compared, which have 8 bits."""
        if not self.narrow or value.variability is not Variability.LINEAR:
            vector = bits_type(32, self.width)
            return self.let(f"icmp ult {vector} {self.vector(value)}, {self.splat('i32', bound)}")

        def lane(number: str) -> str:
            least = self.call("i32", "llvm.umin.i32", ("i32", number), ("i32", str(self.width)))
            return self.splat("i8", self.let(f"trunc i32 {least} to i8"))

        bytes_, lanes = bits_type(8, self.width), self.lanes(8)
        end = lane(self.call("i32", "llvm.usub.sat.i32", ("i32", bound), ("i32", value.name)))
        # Past 2^32; from zero itself on nothing wraps, and the number is that of lanes that there are not.
        wraps = lane(self.let(f"sub i32 {self.let(f'sub i32 0, {value.name}')}, 1"))
        past = self.let(f"sub {bytes_} {self.let(f'sub {bytes_} {lanes}, {wraps}')}, {integer(1, 8, self.width)}")
        before = self.let(f"icmp ult {bytes_} {lanes}, {end}")
        return self.let(f"or {self.mask_type} {before}, {self.let(f'icmp ult {bytes_} {past}, {lane(bound)}')}")

    def lanes_of(self, bits: str) -> str:
        """The mask of an integer of one bit a lane, where that is not a mask's own: LLVM 22.1 takes it apart bit by bit otherwise."""
        wide = max(self.width, _MASK_BITS)
        vector = bits_type(wide, self.width)
        if self.width < wide:
            bits = self.let(f"zext i{self.width} {bits} to i{wide}")
        own = "<" + ", ".join(f"i{wide} {1 << lane}" for lane in range(self.width)) + ">"
        found = self.let(f"and {vector} {self.splat(f'i{wide}', bits)}, {own}")
        return self.let(f"icmp ne {vector} {found}, zeroinitializer")

    def negated(self, mask: str) -> str:
        """The lanes that are off."""
        return self.let(f"xor {self.mask_type} {mask}, {self.all_on}")

    def without(self, mask: Mask, off: Mask) -> str:
        """The lanes of `mask` that are not in `off`."""
        if off is None:
            return "false" if self.width == 1 else "zeroinitializer"
        rest = self.both(mask, self.negated(off))
        assert rest is not None  # the right side is a name
        return rest

    def by_mask(self, mask: str, every: Callable[[], None], some: Callable[[], None]) -> None:
        """Writes an access twice: for all lanes, and for some. Most masks are of all lanes or none, and masked accesses are dear: a masked store takes some
        processors (AMD's Zen to Zen 3) ten times as long."""
        all_on, some_on, done = self.label("every"), self.label("some"), self.label("accessed")
        self.branch(self.let(f"icmp eq i{self.width} {self.mask_bits(mask)}, -1"), all_on, some_on)
        self.block(all_on)
        every()
        self.jump(done)
        self.block(some_on)
        some()
        self.block(done)

    def spelled(self, mask: Mask) -> str:
        """A mask as an operand."""
        return self.all_on if mask is None else mask

    def blend(self, type_: str, mask: Mask, on: str, off: str) -> str:
        """`on` in the lanes that are on, `off` elsewhere; the LLVM type is that of the vectors."""
        return on if mask is None else self.let(f"select {self.mask_type} {mask}, {type_} {on}, {type_} {off}")


def calculate(w: LaneWriter, op: str, result: Type, args: Sequence[LaneValue]) -> LaneValue:
    """The value of an op: UNIFORM where all operands are, LINEAR or STEPPED where the op keeps that, else VARYING."""
    operand = args[-1].type
    how = _derived(w.width, op, result, args)
    if how is None and w.narrow and (mask := _compared(w, op, args)):
        return LaneValue(Variability.VARYING, bool_, mask)
    if how is None:
        return LaneValue(Variability.VARYING, result, w.rows[op](w, w.width, operand, result, [w.vector(a) for a in args]))
    name = w.rows[op](w, 1, operand, result, [a.name for a in args])
    return w.stepped(result, name, how.step, how.multiple, how.rest, how.origin if len(how.origin) <= _LONGEST else "", how.delta)


def _compared(w: LaneWriter, op: str, args: Sequence[LaneValue]) -> str:
    """A comparison of a number that steps by one with one that all lanes share, as `LaneWriter.below` writes it; empty for any other."""
    if op not in _BELOW or not all(_is_word(a.type) for a in args):
        return ""
    value, bound = args
    if value.is_uniform:
        value, bound, op = bound, value, _MIRRORED[op]
    if value.variability is not Variability.LINEAR or not bound.is_uniform:
        return ""
    number, limit = value.name, bound.name
    if value.type.is_signed:
        number, limit = (w.let(f"xor i32 {name}, {-_WORD // 2}") for name in (number, limit))
    itself, turned = _BELOW[op]
    least = w.below(replace(value, name=number), w.let(f"add i32 {limit}, 1") if itself else limit)
    if itself:  # nothing is above the greatest number
        least = w.let(f"or {w.mask_type} {least}, {w.splat('i1', w.let(f'icmp eq i32 {limit}, -1'))}")
    return w.negated(least) if turned else least


def foreseen(width: int, op: str, result: Type, args: Sequence[LaneValue]) -> LaneValue | None:
    """What is known of an op's value, which no code computes; None of one that differs between lanes in no known way."""
    how = _derived(width, op, result, args)
    return None if how is None else known_value(result, how.step, how.multiple, how.rest)


def known_value(type_: Type, step: int = 0, multiple: int = 1, rest: int = 0) -> LaneValue:
    """A value that has no name: it grows by `step` from lane to lane."""
    return LaneValue(_OF_STEP.get(step, Variability.STEPPED), type_, _UNNAMED, None, step, multiple, rest)


def variability_of(width: int, op: str, result: Type, args: Sequence[LaneValue]) -> Variability:
    """How the value of an op differs between lanes."""
    how = _derived(width, op, result, args)
    return Variability.VARYING if how is None else _OF_STEP.get(how.step, Variability.STEPPED)


_OF_STEP: Final = {0: Variability.UNIFORM, 1: Variability.LINEAR}
# Comparison -> whether lanes below the bound answer it or those at the bound too, and whether these answer no; what it is from the other side.
_BELOW: Final = {"lt": (False, False), "le": (True, False), "ge": (False, True), "gt": (True, True)}
_MIRRORED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_WORD: Final = 1 << 32
_NOTHING: Final = "0"  # what constants are more than
_UNNAMED: Final = "?"
_LONGEST: Final = 200  # characters of an expression, beyond which a value is taken by itself
# Steps beyond are of no use: a vector's lanes would be far apart.
_FARTHEST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Steps:
    """How a value grows from lane to lane, and what is known of lane 0's (`LaneValue`)."""

    step: int
    multiple: int = 1
    rest: int = 0
    origin: str = ""
    delta: int = 0


def _derived(width: int, op: str, result: Type, args: Sequence[LaneValue]) -> _Steps | None:
    """How the value of an op grows, which the scalars of lane 0 make; None where it has to be computed in each lane."""
    same = all(a.is_uniform for a in args)
    if all(_is_word(t) for t in (result, *[a.type for a in args])) and not any(a.variability is Variability.VARYING for a in args) and op in _STEPS:
        known = [_known(a) for a in args]
        how = _STEPS[op](width, *known)
        if how is not None and 0 <= how.step <= _FARTHEST:
            return how
    return _Steps(0) if same else None


def _is_word(type_: Type) -> bool:
    return type_.is_integer and type_.bits == 32


def _known(value: LaneValue) -> _Steps:
    """What is known of an operand; of a constant all."""
    if value.const is not None:
        return _Steps(0, _WORD, value.const.bits, _NOTHING, value.const.bits)
    return _Steps(value.step, value.multiple, value.rest, value.root, value.delta)


def _modulo(step: int, multiple: int, rest: int, origin: str, delta: int) -> _Steps:
    multiple = min(multiple, _WORD)
    return _Steps(step, multiple, rest % multiple, origin, delta)


def _sum(width: int, a: _Steps, b: _Steps) -> _Steps:
    origin = "+".join(sorted(part for part in (a.origin, b.origin) if part != _NOTHING)) or _NOTHING
    return _modulo(a.step + b.step, min(a.multiple, b.multiple), a.rest + b.rest, origin, a.delta + b.delta)


def _difference(width: int, a: _Steps, b: _Steps) -> _Steps:
    origin = a.origin if b.origin == _NOTHING else f"({a.origin})-({b.origin})"
    return _modulo(a.step - b.step, min(a.multiple, b.multiple), a.rest - b.rest, origin, a.delta - b.delta)


def _times(width: int, a: _Steps, by: int) -> _Steps:
    origin = a.origin if a.origin == _NOTHING else f"({a.origin})*{by}"
    return _modulo(a.step * by, a.multiple * (by & -by), a.rest * by, origin, a.delta * by)


def _product(width: int, a: _Steps, b: _Steps) -> _Steps | None:
    for one, other in ((a, b), (b, a)):
        if other.multiple == _WORD and other.rest:
            return _times(width, one, other.rest)
    return None


def _left(width: int, a: _Steps, b: _Steps) -> _Steps | None:
    return _times(width, a, 1 << b.rest) if b.multiple == _WORD and b.rest < 32 else None


def _right(width: int, a: _Steps, b: _Steps) -> _Steps | None:
    """Lanes that are in one block of the divisor share the quotient; others step by whole divisors."""
    block = min(a.multiple, _WORD // 2)  # whose numbers have one sign
    if b.multiple != _WORD or b.rest >= 32 or a.rest % block + (width - 1) * a.step >= block:
        return None
    divisor = 1 << b.rest
    origin = f"({a.origin}+{a.delta - a.rest % block})>>{b.rest}"
    if divisor >= block:
        return _Steps(0, origin=origin)
    far = a.rest % divisor + (width - 1) * a.step
    if a.step % divisor and far >= divisor:
        return None
    rest = a.rest % block // divisor
    return _Steps(0 if far < divisor else a.step // divisor, block // divisor, rest, origin, rest)


def _masked(width: int, a: _Steps, b: _Steps) -> _Steps | None:
    """The remainder of a division by a power of two, of lanes that are in one block of it, or at one place in theirs."""
    for one, other in ((a, b), (b, a)):
        divisor = other.rest + 1
        if other.multiple == _WORD and not divisor & other.rest and divisor <= one.multiple and one.step % divisor == 0:
            return _Steps(0, _WORD, one.rest % divisor, _NOTHING, one.rest % divisor)
        if other.multiple != _WORD or divisor & other.rest or one.rest + (width - 1) * one.step >= one.multiple:
            continue
        if divisor >= one.multiple:
            return _Steps(one.step, one.multiple, one.rest, f"({one.origin}+{one.delta - one.rest})&{other.rest}", one.rest)
        if one.rest % divisor + (width - 1) * one.step < divisor:
            return _Steps(one.step, _WORD, one.rest % divisor, _NOTHING, one.rest % divisor)
    return None


def _joined(width: int, a: _Steps, b: _Steps) -> _Steps | None:
    """Two without a bit in common below the block that the lanes are in: they step within it, and the other is a multiple of it."""
    for one, other in ((a, b), (b, a)):
        block = min(one.multiple, other.multiple, _WORD // 2)
        rest = one.rest % block
        if not other.step and not other.rest % block and rest + (width - 1) * one.step < block:
            return _Steps(one.step, block, rest, f"({one.origin}+{one.delta - rest})|({other.origin}+{other.delta})", rest)
    return None


def _same(width: int, a: _Steps) -> _Steps:
    return a


# Ops of integers of 32 bits -> how the result grows.
_STEPS: Final[dict[str, Callable[..., _Steps | None]]] = {
    "add": _sum, "sub": _difference, "mul": _product, "shl": _left, "shr": _right, "and": _masked, "or": _joined, "xor": _joined,
    "cast": _same, "bitcast": _same,
}  # fmt: skip
