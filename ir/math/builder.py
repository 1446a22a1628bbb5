"""How the expansions write IR: ops, polynomials and constant tables at the end of an assembler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Space, Value, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, f32, i32, u32

__all__ = ["MathBuilder", "float_", "int_", "word"]


def float_(value: float) -> Const:
    """An f32 constant; the number rounds once."""
    return const(f32, value)


def int_(value: int) -> Const:
    """An i32 constant."""
    return const(i32, value)


def word(value: int) -> Const:
    """A u32 constant."""
    return const(u32, value)


_NUMBERS: Final = frozenset({int, float})
_held = lru_cache(maxsize=1 << 12, typed=True)(const)


def _constant(type_: Type, number: float) -> Const:
    """As `const`, which takes time: the expansions have the same few. The two zeros are equal, and not held."""
    return _held(type_, number) if number else const(type_, number)


class MathBuilder:
    """Writes at the end of `out`; control flow and variables go to `out` directly."""

    def __init__(self, out: Assembler) -> None:
        self.out = out

    def __call__(self, name: str, *operands: Atom | float) -> Value:
        """The op of this name. A number stands for the constant, rounded once, of the type of the last operand that is none."""
        if not _NUMBERS.isdisjoint(map(type, operands)):
            type_ = next(x.type for x in reversed(operands) if not isinstance(x, (int, float)))
            operands = tuple([_constant(type_, x) if isinstance(x, (int, float)) else x for x in operands])
        return self.out.let(OPS[name], cast("tuple[Atom, ...]", operands))

    def cast(self, x: Atom, type_: Type) -> Value:
        """The value in another type."""
        return self.out.let(OPS["cast"], (x,), type_)

    def bitcast(self, x: Atom, type_: Type) -> Value:
        """The bits as another type."""
        return self.out.let(OPS["bitcast"], (x,), type_)

    def polynomial(self, x: Atom, coefficients: Sequence[float]) -> Atom:
        """c[0] + x (c[1] + x (c[2] + ...)) of the type of x, one fused multiply-add a step."""
        total: Atom = _constant(x.type, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self("fma", total, x, _constant(x.type, coefficient))
        return total

    def table(self, name: str, type_: Type, words: Sequence[int]) -> Memory:
        """The table of this name, unsigned type and content, declared once in a Program; a name that is taken gets a mark."""
        data = b"".join(entry.to_bytes(type_.size_bytes, "little") for entry in words)
        taken = {m.name: m for m in self.out.memories}
        while name in taken:
            there = taken[name]
            if there.space is Space.TABLE and there.type is type_ and there.data == data:
                return there
            name += "'"
        return self.out.memory(name, Space.TABLE, type_, (DimConst(len(words)),), Access.READ, data)
