"""integers: arithmetic on 8- and 16-bit integers becomes arithmetic on 32-bit ones, for targets that have no narrower ones.

An operand is extended, with its sign where it has one; the result is wrapped back by a cast. That alone gives most ops their meaning;
those that look at the width have a row of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let, const
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bool_, i32, u32, unsigned_of
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.passes.lets import rewrite_lets

__all__ = ["MOVES", "PLAIN", "ROWS", "is_narrow_integer", "narrow_integers"]

_WORD_BITS: Final = 32


def is_narrow_integer(type_: Type) -> bool:
    """Whether a type is an integer of 8 or 16 bits."""
    return type_.is_integer and type_.bits < _WORD_BITS


def _wide(type_: Type) -> Type:
    return i32 if type_.is_signed else u32


class _Narrow(MathBuilder):
    """Extends and wraps at the end of `out`."""

    def convert(self, x: Atom, type_: Type) -> Atom:
        """The value in another type: as it is where it has that type, at once where it is constant."""
        if x.type is type_:
            return x
        if isinstance(x, Const) and is_narrow_integer(x.type) and type_ is _wide(x.type):
            return const(type_, x.value)
        return self.cast(x, type_)

    def extended(self, x: Atom) -> Atom:
        """An operand in 32 bits, with its sign where it has one."""
        return self.convert(x, _wide(x.type)) if is_narrow_integer(x.type) else x

    def bits(self, x: Atom) -> Atom:
        """The bits of an operand as a u32, with zeros above."""
        unsigned = unsigned_of(x.type)
        if isinstance(x, Const):
            return Const(u32, x.bits)
        return self.cast(x if x.type is unsigned else self.bitcast(x, unsigned), u32)

    def count(self, x: Atom) -> Atom:
        """A shift count as it counts: masked by the width."""
        mask = const(_wide(x.type), x.type.bits - 1)
        return self("and", self.extended(x), mask)


def _shift(name: str) -> Callable[..., Atom]:
    return lambda n, t, a, b: n(name, n.extended(a), n.count(b))


def _rotated(n: _Narrow, t: Type, a: Atom, count: Atom) -> Atom:
    """Left by a u32 count that is masked; the shift down by the whole width leaves nothing."""
    x = n.bits(a)
    return n("or", n("shl", x, count), n("shr", x, n("sub", const(u32, t.bits), count)))


def _rotl(n: _Narrow, t: Type, a: Atom, b: Atom) -> Atom:
    return _rotated(n, t, a, n.convert(n.count(b), u32))


def _rotr(n: _Narrow, t: Type, a: Atom, b: Atom) -> Atom:
    back = n("and", n("neg", n.bits(b)), const(u32, t.bits - 1))
    return _rotated(n, t, a, back)


def _clz(n: _Narrow, t: Type, a: Atom) -> Atom:
    return n("sub", n("clz", n.bits(a)), const(u32, _WORD_BITS - t.bits))


def _ctz(n: _Narrow, t: Type, a: Atom) -> Atom:
    # A one above the width ends the count where the value is 0.
    return n("ctz", n("or", n.bits(a), const(u32, 1 << t.bits)))


def _reverse_bits(n: _Narrow, t: Type, a: Atom) -> Atom:
    return n("shr", n("reverse_bits", n.bits(a)), const(u32, _WORD_BITS - t.bits))


def _mul_hi(n: _Narrow, t: Type, a: Atom, b: Atom) -> Atom:
    return n("shr", n("mul", n.extended(a), n.extended(b)), const(_wide(t), t.bits))


# Ops that look at the width: over the type of the operands and the operands as they were, a 32-bit result whose low bits count.
ROWS: Final[Mapping[str, Callable[..., Atom]]] = {
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "rotl": _rotl,
    "rotr": _rotr,
    "popcount": lambda n, t, a: n("popcount", n.bits(a)),
    "clz": _clz,
    "ctz": _ctz,
    "reverse_bits": _reverse_bits,
    "mul_hi": _mul_hi,
}

# Ops whose low bits depend on the operands' low bits alone, or that find in 32 bits exactly what they find in fewer.
PLAIN: Final = frozenset({
    "add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "min", "max", "clamp", "and", "or", "xor", "not", "abs_diff", "eq", "ne", "lt", "le", "gt", "ge",
})  # fmt: skip

# Ops that only move bits and stay.
MOVES: Final = frozenset({"select", "bitcast"})


def _cast(n: _Narrow, x: Atom, target: Type) -> Atom:
    """Step by step, so that only casts between a narrow integer and a 32-bit one are left."""
    x = n.extended(x)
    if not is_narrow_integer(target):
        return n.convert(x, target)
    if x.type.is_integer or x.type is bool_:
        return n.convert(n.convert(x, _wide(target)) if x.type.bits != _WORD_BITS else x, target)
    wide = _wide(target)
    inside = n("clamp", n.convert(x, wide), const(wide, target.minimum), const(wide, target.maximum))
    return n.convert(inside, target)


def _is_touched(statement: Let) -> bool:
    return statement.op.name not in MOVES and any(is_narrow_integer(a.type) for a in (statement.bound, *statement.args))


def narrow_integers(program: Program) -> Program:
    """The Program with arithmetic on i8, i16, u8 and u16 in 32 bits; the same object without any.

    What is left of these types: casts from and to i32 and u32, bitcasts between types of one width, select, constants, params, variables and
    memories. Vectors have been taken apart before, and saturating and bit-field ops been expanded.
    """
    return rewrite_lets(program, _is_touched, _narrowed)


def _narrowed(m: MathBuilder, let: Let, args: tuple[Atom, ...]) -> Atom:
    narrow, name, type_ = _Narrow(m.out), let.op.name, let.bound.type
    if name == "cast":
        return _cast(narrow, args[0], type_)
    if name in ROWS:
        return narrow.convert(ROWS[name](narrow, args[0].type, *args), type_)
    return narrow.convert(narrow(name, *[narrow.extended(a) for a in args]), type_)
