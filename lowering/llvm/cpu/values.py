"""What a value is across the lanes of a chunk, and the writer that knows how many lanes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bits_type, literal, llvm_type

__all__ = ["LaneValue", "LaneWriter", "Mask", "Variability", "calculate", "variability_of"]

# The lanes that are on: an SSA name of <W x i1> (i1 for one lane), or None where all are known to be.
Mask = str | None


class Variability(Enum):
    """How a value differs between the lanes of a chunk."""

    UNIFORM = "uniform"  # one scalar for all lanes that are on
    LINEAR = "linear"  # lane k holds the scalar + k, modulo 2^32
    VARYING = "varying"  # a vector


@dataclass(frozen=True, slots=True)
class LaneValue:
    """A value: `name` is the scalar (of lane 0 for LINEAR) or the vector; `const` where it is a constant."""

    variability: Variability
    type: Type
    name: str
    const: Const | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes that are on hold one value."""
        return self.variability is Variability.UNIFORM


class LaneWriter(Writer):
    """A writer over chunks of `width` lanes. With one lane a vector is a scalar, and a mask an i1. `rows` is the op table of
    the machine."""

    def __init__(self, module: ModuleText, width: int, rows: Mapping[str, Emitter]) -> None:
        super().__init__(module)
        self.width = width
        self.rows = rows
        self.mask_type = bits_type(1, width)
        self.all_on = "true" if width == 1 else "splat (i1 true)"
        self._vectors: dict[tuple[str, str], str] = {}

    def block(self, label: str) -> None:
        """Begins a block; vectors made of scalars in the one before are made again, since they may not reach it."""
        super().block(label)
        self._vectors.clear()

    # ---- vectors

    def lanes(self, bits: int = 32) -> str:
        """The constant 0, 1, 2, ... over the lanes."""
        return "0" if self.width == 1 else "<" + ", ".join(f"i{bits} {k}" for k in range(self.width)) + ">"

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
        key = ("linear", value.name)
        if key not in self._vectors:
            self._vectors[key] = self.let(f"add {bits_type(32, self.width)} {every}, {self.lanes()}")
        return self._vectors[key]

    def varying(self, type_: Type, name: str) -> LaneValue:
        """A VARYING value, which `name` holds; with one lane it is UNIFORM."""
        return LaneValue(Variability.UNIFORM if self.width == 1 else Variability.VARYING, type_, name)

    def linear(self, type_: Type, name: str) -> LaneValue:
        """The LINEAR value whose lane 0 is `name`; with one lane it is UNIFORM."""
        return LaneValue(Variability.UNIFORM if self.width == 1 else Variability.LINEAR, type_, name)

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
        return self.let(f"bitcast {bits} {on} to {self.mask_type}")

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

    def spelled(self, mask: Mask) -> str:
        """A mask as an operand."""
        return self.all_on if mask is None else mask

    def blend(self, type_: str, mask: Mask, on: str, off: str) -> str:
        """`on` in the lanes that are on, `off` elsewhere; the LLVM type is that of the vectors."""
        return on if mask is None else self.let(f"select {self.mask_type} {mask}, {type_} {on}, {type_} {off}")


def calculate(w: LaneWriter, op: str, result: Type, args: Sequence[LaneValue]) -> LaneValue:
    """The value of an op: UNIFORM where all operands are, LINEAR where the op keeps that, else VARYING."""
    variability, operand = variability_of(op, result, args), args[-1].type
    if variability is Variability.VARYING:
        return LaneValue(variability, result, w.rows[op](w, w.width, operand, result, [w.vector(a) for a in args]))
    return LaneValue(variability, result, w.rows[op](w, 1, operand, result, [a.name for a in args]))


def variability_of(op: str, result: Type, args: Sequence[LaneValue]) -> Variability:
    """How the value of an op differs between lanes."""
    if all(a.is_uniform for a in args):
        return Variability.UNIFORM
    operand = args[-1].type
    keeps = tuple([a.variability for a in args]) in _KEEP_LINEAR.get(op, ()) and result.is_integer and operand.is_integer and result.bits == operand.bits
    return Variability.LINEAR if keeps else Variability.VARYING


# Ops of integers whose result is linear for operands of these kinds: they compute on the scalar of lane 0.
_KEEP_LINEAR: Final[dict[str, tuple[tuple[Variability, ...], ...]]] = {
    "add": ((Variability.LINEAR, Variability.UNIFORM), (Variability.UNIFORM, Variability.LINEAR)),
    "sub": ((Variability.LINEAR, Variability.UNIFORM),),
    "cast": ((Variability.LINEAR,),),
    "bitcast": ((Variability.LINEAR,),),
}
