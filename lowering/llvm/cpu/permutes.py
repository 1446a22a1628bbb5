"""Shuffles and ballots over the lanes of a chunk, which is one subgroup or several: permutations of a vector.

A pattern that is known is one `shufflevector`; any other goes through memory of the thread, from which the lanes gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.language.nodes import Const, Subgroup
from vyre_py.ir.language.types import Kind, Type, u32
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import bits_type, integer, llvm_type

__all__ = ["Permutes", "takes"]

_WORD_BITS: Final = 32


def takes(s: Subgroup) -> bool:
    """Whether this is one of the ops here: a ballot, a shuffle, or one by a number that is known."""
    return s.op.name in ("ballot", "shuffle") or (s.op.name in _FROM and isinstance(s.args[1], Const))


# Shuffle by a number -> the lane that a lane gets its value from; outside of the subgroup for none.
_FROM: Final = {"shuffle_xor": lambda lane, by: lane ^ by, "shuffle_up": lambda lane, by: lane - by, "shuffle_down": lambda lane, by: lane + by}


class Permutes:
    """The subgroup ops of a kernel whose chunks are whole subgroups."""

    def __init__(self, state: State) -> None:
        self.state, self.w = state, state.w
        self.size = max(1, state.program.subgroup)
        self._memory: dict[str, str] = {}  # by the type of what it holds

    def together(self, index: int, s: Subgroup) -> int:
        """A statement that `takes` knows."""
        x = self.state.operand(s.args[0])
        if s.op.name == "ballot":
            self.state.bind(s, self._ballot(x))
        elif s.op.name == "shuffle":
            self.state.bind(s, self._shuffle(x, self.state.operand(s.args[1])))
        else:
            by = s.args[1]
            assert isinstance(by, Const)  # `takes`
            sources = [_FROM[s.op.name](lane % self.size, by.bits) for lane in range(self.state.width)]
            self.state.bind(s, self._patterned(x, sources))
        return index + 1

    # ---- ballots

    def _ballot(self, c: LaneValue) -> LaneValue:
        w, width, size = self.w, self.state.width, self.size
        every = (1 << size) - 1
        if c.is_uniform:
            return LaneValue(Variability.UNIFORM, u32, w.let(f"select i1 {c.name}, i32 {every}, i32 0"))
        bits = w.mask_bits(w.vector(c))
        if width < _WORD_BITS:
            bits = w.let(f"zext i{width} {bits} to i32")
        if width == size:
            return LaneValue(Variability.UNIFORM, u32, bits)
        vector = bits_type(_WORD_BITS, width)
        firsts = ", ".join(f"i32 {lane // size * size}" for lane in range(width))
        own = w.let(f"lshr {vector} {w.splat('i32', bits)}, <{firsts}>")
        return w.varying(u32, w.let(f"and {vector} {own}, {integer(every, _WORD_BITS, width)}"))

    # ---- shuffles

    def _patterned(self, x: LaneValue, sources: Sequence[int]) -> LaneValue:
        """What each lane gets from lane `sources[lane]` of its subgroup, zero where there is no such lane."""
        width, size = self.state.width, self.size
        if x.is_uniform and all(0 <= source < size for source in sources):
            return x
        if width == 1:
            return LaneValue(Variability.UNIFORM, x.type, "zeroinitializer")
        # Past the end of the first vector is the second one, of zeros.
        picked = [lane // size * size + source if 0 <= source < size else width for lane, source in enumerate(sources)]
        type_ = llvm_type(x.type, width)
        numbers = ", ".join(f"i32 {at}" for at in picked)
        return self.w.varying(x.type, self.w.let(f"shufflevector {type_} {self.w.vector(x)}, {type_} zeroinitializer, <{width} x i32> <{numbers}>"))

    def _shuffle(self, x: LaneValue, i: LaneValue) -> LaneValue:
        w, width, size = self.w, self.state.width, self.size
        if i.const is not None and not (width == size and i.const.bits < size):
            return self._patterned(x, [i.const.bits] * width)
        if i.is_uniform and (x.is_uniform or width == size):
            type_, found = llvm_type(x.type), x.name
            if not x.is_uniform:
                found = w.let(f"extractelement {llvm_type(x.type, width)} {w.vector(x)}, i32 {w.let(f'and i32 {i.name}, {size - 1}')}")
            inside = w.let(f"icmp ult i32 {i.name}, {size}")
            return LaneValue(Variability.UNIFORM, x.type, w.let(f"select i1 {inside}, {type_} {found}, {type_} zeroinitializer"))
        return w.varying(x.type, self._gathered(x.type, w.vector(x), w.vector(i)))

    def _gathered(self, type_: Type, x: str, i: str) -> str:
        """Any permutation. Processors gather words and larger."""
        w, width, size = self.w, self.state.width, self.size
        vector, numbers = llvm_type(type_, width), bits_type(_WORD_BITS, width)
        small = type_.bits < _WORD_BITS
        if small:
            x = w.let(f"zext {vector} {x} to {numbers}")
        held = numbers if small else vector
        if held not in self._memory:
            self._memory[held] = w.local(held, align=AREA_ALIGN)
        memory = self._memory[held]
        w.line(f"store {held} {x}, ptr {memory}, align {AREA_ALIGN}")
        inside = w.let(f"icmp ult {numbers} {i}, {integer(size, _WORD_BITS, width)}")
        at = w.let(f"and {numbers} {i}, {integer(size - 1, _WORD_BITS, width)}")
        if width > size:
            at = w.let(f"or {numbers} {at}, <{', '.join(f'i32 {lane // size * size}' for lane in range(width))}>")
        element = held.removeprefix(f"<{width} x ").removesuffix(">")
        pointers = w.let(f"getelementptr {element}, ptr {memory}, {numbers} {at}")
        arguments = ((f"<{width} x ptr>", pointers), ("i32", str(max(type_.bits, _WORD_BITS) // 8)), (w.mask_type, inside), (held, "zeroinitializer"))
        found = w.call(held, f"llvm.masked.gather.{suffix(held)}.v{width}p0", *arguments)
        if not small:
            return found
        return w.let(f"trunc {numbers} {found} to {vector}") if type_.kind is not Kind.BOOL else w.let(f"icmp ne {numbers} {found}, zeroinitializer")
