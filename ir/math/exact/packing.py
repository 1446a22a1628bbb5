"""Packing four bytes or two halves into a u32, and taking them out again, in 32-bit arithmetic; products of bytes so packed; and
bitcasts that change the number of components. The first component is the lowest everywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import Type, f16, f32, i32, u16, u32, unsigned_of
from vyre_py.ir.math.builder import MathBuilder, float_, int_, word
from vyre_py.ir.math.exact.geometry import Components

__all__ = ["PACKING", "bitcast", "dot4_i8", "dot4_u8"]

_Writing = Callable[..., Components]


@dataclass(frozen=True, slots=True)
class _PackedComponent:
    """How a component lies in the word: in `bits` bits, signed or not."""

    count: int
    signed: bool

    @property
    def bits(self) -> int:
        """Bits of one component."""
        return 32 // self.count

    @property
    def one(self) -> float:
        """What stands for 1 where components are normalised: the greatest whole number that the bits hold."""
        return float((1 << (self.bits - self.signed)) - 1)


def _joined(m: MathBuilder, parts: Components, bits: int) -> Atom:
    """One unsigned word of unsigned parts below 2^bits."""
    shifted = [parts[0], *(m("shl", part, const(part.type, bits * k)) for k, part in enumerate(parts) if k)]
    return reduce(lambda joined, part: m("or", joined, part), shifted)


def _pack_word(m: MathBuilder, form: _PackedComponent, x: Atom) -> Atom:
    low = x if x.type is u32 else m.bitcast(x, u32)
    return m("and", low, word((1 << form.bits) - 1))


def _pack_normalised(m: MathBuilder, form: _PackedComponent, x: Atom) -> Atom:
    inside = m("clamp", x, float_(-1.0 if form.signed else 0.0), float_(1.0))
    rounded = m("round", m("mul", inside, float_(form.one)))
    return _pack_word(m, form, m.cast(rounded, i32 if form.signed else u32))


def _pack_half(m: MathBuilder, form: _PackedComponent, x: Atom) -> Atom:
    return m.cast(m.bitcast(m.cast(x, f16), u16), u32)


def _unpack_word(m: MathBuilder, form: _PackedComponent, x: Atom, k: int) -> Atom:
    """Component k, sign-extended where signed."""
    if form.signed:
        upper = m("shl", x, word(32 - form.bits * (k + 1)))
        return m("shr", m.bitcast(upper, i32), int_(32 - form.bits))
    return m("and", m("shr", x, word(form.bits * k)), word((1 << form.bits) - 1))


def _unpack_normalised(m: MathBuilder, form: _PackedComponent, x: Atom, k: int) -> Atom:
    value = m("div", m.cast(_unpack_word(m, form, x, k), f32), float_(form.one))
    # The least signed number lies below -1.
    return m("max", value, float_(-1.0)) if form.signed else value


def _unpack_half(m: MathBuilder, form: _PackedComponent, x: Atom, k: int) -> Atom:
    return m.cast(m.bitcast(m.cast(_unpack_word(m, form, x, k), u16), f16), f32)


def _packer(form: _PackedComponent, one: Callable[[MathBuilder, _PackedComponent, Atom], Atom]) -> _Writing:
    def write(m: MathBuilder, a: Components) -> Components:
        return (_joined(m, tuple([one(m, form, x) for x in a]), form.bits),)

    return write


def _unpacker(form: _PackedComponent, one: Callable[[MathBuilder, _PackedComponent, Atom, int], Atom]) -> _Writing:
    def write(m: MathBuilder, a: Components) -> Components:
        return tuple([one(m, form, a[0], k) for k in range(form.count)])

    return write


_FORMS: Final = {
    "4x8_snorm": (_PackedComponent(4, True), _pack_normalised, _unpack_normalised),
    "4x8_unorm": (_PackedComponent(4, False), _pack_normalised, _unpack_normalised),
    "4x8_sint": (_PackedComponent(4, True), _pack_word, _unpack_word),
    "4x8_uint": (_PackedComponent(4, False), _pack_word, _unpack_word),
    "2x16_snorm": (_PackedComponent(2, True), _pack_normalised, _unpack_normalised),
    "2x16_unorm": (_PackedComponent(2, False), _pack_normalised, _unpack_normalised),
    "2x16_sint": (_PackedComponent(2, True), _pack_word, _unpack_word),
    "2x16_uint": (_PackedComponent(2, False), _pack_word, _unpack_word),
    "2x16_float": (_PackedComponent(2, False), _pack_half, _unpack_half),
}

# Op -> (builder, components of the operand) -> components of the result.
PACKING: Final = {
    **{f"pack{name}": _packer(form, pack) for name, (form, pack, _) in _FORMS.items()},
    **{f"unpack{name}": _unpacker(form, unpack) for name, (form, _, unpack) in _FORMS.items()},
}


def _dot4(m: MathBuilder, form: _PackedComponent, a: Atom, b: Atom, c: Atom) -> Atom:
    products = [m("mul", *[_unpack_word(m, form, x, k) for x in (a, b)]) for k in range(form.count)]
    return reduce(lambda total, product: m("add", total, product), products, c)


def dot4_i8(m: MathBuilder, a: Atom, b: Atom, c: Atom) -> Atom:
    """c and the products of signed bytes."""
    return _dot4(m, _PackedComponent(4, True), a, b, c)


def dot4_u8(m: MathBuilder, a: Atom, b: Atom, c: Atom) -> Atom:
    """c and the products of unsigned bytes."""
    return _dot4(m, _PackedComponent(4, False), a, b, c)


def bitcast(m: MathBuilder, a: Components, target: Type) -> Components:
    """The bits of all components as as many components of the scalar type `target` as they fill, the least significant first."""
    source = a[0].type
    if source.bits == target.bits:
        return a if source is target else tuple([m.bitcast(x, target) for x in a])
    words = [_as(m, x, unsigned_of(source)) for x in a]
    wanted = unsigned_of(target)
    made: list[Atom]
    if target.bits < source.bits:
        made = [m.cast(m("shr", x, const(x.type, at)) if at else x, wanted) for x in words for at in range(0, source.bits, target.bits)]
    else:
        each = target.bits // source.bits
        wide: list[Atom] = [m.cast(x, wanted) for x in words]
        made = [_joined(m, tuple(wide[k : k + each]), source.bits) for k in range(0, len(wide), each)]
    return tuple([_as(m, x, target) for x in made])


def _as(m: MathBuilder, x: Atom, type_: Type) -> Atom:
    return x if x.type is type_ else m.bitcast(x, type_)
