"""Elements of f32 that neighbouring lanes add to neighbours in memory: one instruction for four of them, `red.global.add.v4.f32` (PTX 8.1, from sm_90 on).

The units that add do one lane of a warp after the other, an element or four. Lanes find out when they run whether four of them, from a multiple of four on, add
to elements that follow one another from a multiple of 16 bytes on. Then the first adds for all four; else each adds by itself.

So an addition may be another lane's. That is as good where nothing but such additions is done to the memory, since no order among them is seen, and where the
Program orders none of its accesses for others.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import Atomic, Memory, MemoryStatement, Space, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32
from vyre_py.lowering.llvm.text import Writer

__all__ = ["SINCE", "add", "added_to"]

# The first architecture that has it.
SINCE: Final = 90
_ORDERED: Final = any_of(Effect.ORDERS | Effect.COPIES | Effect.REPORTS)

# $0 is the element's address, $1 what is added. Lanes that run are those of %mask; %all is whether the four do, and lie as they must.
_TEXT: Final = """{ .reg .b32 %mask, %lane, %first, %within, %low, %high, %votes, %second, %third, %fourth; .reg .b64 %begin, %past;
.reg .pred %lies, %all, %leads;
activemask.b32 %mask; mov.b32 %lane, %laneid; and.b32 %first, %lane, 28; and.b32 %within, %lane, 3;
mov.b64 {%low, %high}, $0; shfl.sync.idx.b32 %low, %low, %first, 31, %mask; shfl.sync.idx.b32 %high, %high, %first, 31, %mask;
mov.b64 %begin, {%low, %high}; mul.wide.u32 %past, %within, 4; add.s64 %begin, %begin, %past; setp.eq.u64 %lies, %begin, $0;
and.b32 %low, %low, 15; setp.eq.and.u32 %lies, %low, 0, %lies; vote.sync.ballot.b32 %votes, %lies, %mask;
shr.u32 %votes, %votes, %first; and.b32 %votes, %votes, 15; setp.eq.u32 %all, %votes, 15; setp.eq.and.u32 %leads, %within, 0, %all;
shfl.sync.down.b32 %second, $1, 1, 31, %mask; shfl.sync.down.b32 %third, $1, 2, 31, %mask; shfl.sync.down.b32 %fourth, $1, 3, 31, %mask;
@%leads red.relaxed.gpu.global.add.v4.f32 [$0], {$1, %second, %third, %fourth};
@!%all red.relaxed.gpu.global.add.f32 [$0], $1; }""".replace("\n", " ")


def added_to(program: Program) -> frozenset[Memory]:
    """The buffers to which nothing is done but that f32 are added to them, in any order, and nobody asks what was there."""
    if any(_ORDERED[type(s)] for s in program.body):
        return frozenset()
    used = {argument.id for s in program.body for argument in s.args if isinstance(argument, Value)}
    accesses = [s for s in program.body if isinstance(s, MemoryStatement)]
    others = {s.memory for s in accesses if not (type(s) is Atomic and s.op.name == "add" and s.bound.id not in used)}
    return frozenset({s.memory for s in accesses if s.memory.space is Space.BUFFER and s.memory.type is f32} - others)


def add(w: Writer, pointer: str, value: str) -> None:
    """Adds a value to the element at a typed pointer."""
    address = w.let(f"ptrtoint {pointer} to i64")
    bits = w.let(f"bitcast float {value} to i32")
    w.line(f'call void asm sideeffect "{_TEXT}", "l,r,~{{memory}}"(i64 {address}, i32 {bits}) convergent')
