"""Subgroup ops written in simpler ones: in the end in shuffles, a ballot, and plain ops in the order that the ops' rows say.

Each function takes the builder, whose Program has subgroups of `m.out.subgroup` lanes, and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.nodes import Atom, Value, const
from vyre_py.ir.language.ops import OPS, SUBGROUPS
from vyre_py.ir.language.types import Kind, Type, u32
from vyre_py.ir.math.builder import MathBuilder, word

__all__ = ["TOGETHER", "Written", "lane", "mask_words", "subgroup_id"]

Written = Callable[..., Atom]

_WORD_BITS: Final = 32
# Of bools, the ops that fold.
_OF_BOOLS: Final = {"and": "logical_and", "or": "logical_or", "xor": "ne"}


def _together(m: MathBuilder, name: str, *operands: Atom) -> Value:
    return m.out.together(SUBGROUPS[name], operands)


def lane(m: MathBuilder) -> Value:
    """The invocation's number in its subgroup."""
    return m("and", m.out.let(OPS["local_index"], ()), word(m.out.subgroup - 1))


def subgroup_id(m: MathBuilder) -> Value:
    """The subgroup's number in its workgroup."""
    return m("shr", m.out.let(OPS["local_index"], ()), word(m.out.subgroup.bit_length() - 1))


# ---------------------------------------------------------------- shuffles


def _moved(m: MathBuilder, x: Atom, source: Atom, inside: Atom) -> Atom:
    return _together(m, "shuffle", x, m("select", inside, source, word(m.out.subgroup)))


def shuffle_xor(m: MathBuilder, x: Atom, mask: Atom) -> Atom:
    """A mask without bits beyond the subgroup leads to a lane, any other past all lanes."""
    return _together(m, "shuffle", x, m("xor", lane(m), mask))


def shuffle_up(m: MathBuilder, x: Atom, d: Atom) -> Atom:
    """From below."""
    here = lane(m)
    return _moved(m, x, m("sub", here, d), m("le", d, here))


def shuffle_down(m: MathBuilder, x: Atom, d: Atom) -> Atom:
    """From above; a sum that wraps is not taken for a lane."""
    return _moved(m, x, m("add", lane(m), d), m("lt", d, word(m.out.subgroup)))


def broadcast(m: MathBuilder, x: Atom, i: Atom) -> Atom:
    """A shuffle whose lane happens to be the same."""
    return _together(m, "shuffle", x, i)


# ---------------------------------------------------------------- masks


def all_(m: MathBuilder, c: Atom) -> Atom:
    """No lane whose c is false."""
    if m.out.subgroup > _WORD_BITS:
        return _together(m, "reduce_and", c)
    return m("eq", _together(m, "ballot", m("logical_not", c)), word(0))


def any_(m: MathBuilder, c: Atom) -> Atom:
    """Some lane whose c is true."""
    if m.out.subgroup > _WORD_BITS:
        return _together(m, "reduce_or", c)
    return m("ne", _together(m, "ballot", c), word(0))


def ballot(m: MathBuilder, c: Atom) -> Atom:
    """The bits of all lanes, put together."""
    return _ballot_word(m, 0, c)


def _ballot_word(m: MathBuilder, number: int, c: Atom) -> Atom:
    here = lane(m)
    if m.out.subgroup > _WORD_BITS:
        c = m("logical_and", c, m("eq", m("shr", here, word(_WORD_BITS.bit_length() - 1)), word(number)))
    return _together(m, "reduce_or", m("select", c, m("shl", word(1), here), word(0)))  # a count of bits is taken modulo 32


def match(m: MathBuilder, x: Atom) -> Atom:
    """Lane by lane."""
    return _match_word(m, 0, x)


def _match_word(m: MathBuilder, number: int, *parts: Atom) -> Atom:
    out = m.out
    found = out.var(u32, word(0))
    at = out.for_(word(0), word(min(_WORD_BITS, out.subgroup)), word(1))
    other = m("add", at, word(number * _WORD_BITS)) if number else at
    same: Atom | None = None
    for part in parts:
        equal = m("eq", part, _together(m, "shuffle", part, other))
        same = equal if same is None else m("logical_and", same, equal)
    assert same is not None  # there is a part
    out.set(found, m("or", out.get(found), m("select", same, m("shl", word(1), at), word(0))))
    out.end()
    return out.get(found)


def mask_words(m: MathBuilder, name: str, parts: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """The 32-bit words of a ballot or match over the components of its operand."""
    write: Written = _ballot_word if name == "ballot" else _match_word
    return tuple([write(m, number, *parts) for number in range(max(1, m.out.subgroup // _WORD_BITS))])


# ---------------------------------------------------------------- reductions and scans


def _folded(m: MathBuilder, fold: str, a: Atom, b: Atom) -> Atom:
    return m(_OF_BOOLS[fold] if a.type.kind is Kind.BOOL else fold, a, b)


def _reduced(fold: str, m: MathBuilder, x: Atom) -> Atom:
    d = m.out.subgroup // 2
    while d:
        x = _folded(m, fold, x, _together(m, "shuffle_xor", x, word(d)))
        d //= 2
    return x


def _scanned(fold: str, exclusive: bool, m: MathBuilder, x: Atom) -> Atom:
    here, d = lane(m), 1
    while d < m.out.subgroup:
        more = _folded(m, fold, x, _together(m, "shuffle_up", x, word(d)))
        x = m("select", m("ge", here, word(d)), more, x)
        d *= 2
    if not exclusive:
        return x
    type_: Type = x.type
    return m("select", m("eq", here, word(0)), const(type_, identity(fold, type_)), _together(m, "shuffle_up", x, word(1)))


def _folds(kind: str, fold: str) -> Written:
    return partial(_reduced, fold) if kind == "reduce" else partial(_scanned, fold, kind == "exclusive")


# Op -> what writes it. A shuffle is what all others come to, and no target does without.
TOGETHER: Final[Mapping[str, Written]] = {
    "shuffle_xor": shuffle_xor, "shuffle_up": shuffle_up, "shuffle_down": shuffle_down, "broadcast": broadcast, "all": all_, "any": any_, "ballot": ballot,
    "match": match, **{name: _folds(name.partition("_")[0], row.fold) for name, row in SUBGROUPS.items() if row.fold},
}  # fmt: skip
