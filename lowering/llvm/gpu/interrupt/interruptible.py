"""Loops that check a flag (`checks`), in the walk for GPUs, at no cost in a turn of most of them.

* An innermost loop counts nothing. It is strip-mined: the inner loop runs as many turns as fit into `STRIP` units, and the clock is read between two
  strips. The test of a For also ends the strip, and so does the test of a counted Loop (`counted_loops`). Another Loop gets a test of its own, once in
  several turns, which LLVM unrolls. All exits of a strip meet behind it before some leave the loop: on NVIDIA GPUs a branch out of two loops at once
  costs one more instruction in every turn (BREAK).
* A loop that holds loops adds to one sum for all nesting: its own turns, and the units of each inner loop since that last read the clock.
* A loop with a small, known number of turns counts as its statements.

So the time between two checks is bounded for every nesting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.check.facts import has_grid_barrier, has_grid_scan
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.effects import SYNCHRONISES, Effect, any_of
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Else,
    End,
    For,
    Get,
    Let,
    Loop,
    MemoryStatement,
    Set,
    Space,
    Statement,
    Var,
)
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.gpu.interrupt.checks import STRIP, Watch
from vyre_py.lowering.llvm.gpu.interrupt.counted_loops import Counter, Counters
from vyre_py.lowering.llvm.gpu.interrupt.first_check import computed_before, first_trace
from vyre_py.lowering.llvm.gpu.loops import Block, Loops
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type

__all__ = ["InterruptibleLoops"]

_CONTENDS_OR_ORDERS: Final = any_of(Effect.CONTENDS | Effect.ORDERS)
# A loop of so many units in all is as good as its statements written out.
_SHORT: Final = 1 << 12
# A Loop of fewer units a turn is unrolled to about so many, so that its strip's test, some five instructions, does not matter.
_UNROLLED: Final = 192
_MOST_COPIES: Final = 32
_WRITTEN_OUT: Final = '!"llvm.loop.unroll.full"'

# What takes longer than an instruction, in units, when all threads do it at once and in the worst way: banks of workgroup memory in conflict,
# every thread another line of DRAM, all threads one address.
_MEMORY: Final[Mapping[Space, int]] = {Space.WORKGROUP: 16, Space.BUFFER: 64, Space.PRIVATE: 64, Space.TABLE: 64}
_ATOMIC: Final = 4096
_BARRIER: Final = 64
_WIDE: Final = 8  # arithmetic in 64 bits
_WIDE_SLOW: Final = 64
_SLOW_OPS: Final = frozenset({"div", "rem", "sqrt", "rsqrt"})
_FREE: Final = (Var, Get, Set, Else)


def _units(s: Statement) -> int:
    """How long a statement takes that opens or ends no block."""
    if _CONTENDS_OR_ORDERS[type(s)]:
        return _ATOMIC
    if SYNCHRONISES[type(s)]:
        return _BARRIER
    if isinstance(s, MemoryStatement):
        return _MEMORY[s.memory.space]
    if isinstance(s, Let) and 64 in (s.bound.type.bits, *[a.type.bits for a in s.args]):
        return _WIDE_SLOW if s.op.name in _SLOW_OPS else _WIDE
    return 0 if isinstance(s, _FREE) else 1


def _constant_trips(s: Statement) -> int | None:
    """How often a For over constants turns."""
    if isinstance(s, For) and all(isinstance(a, Const) for a in s.args):
        return len(range(*[int(a.value) for a in s.args if isinstance(a, Const)]))
    return None


@dataclass(frozen=True, slots=True)
class _CheckedLoop:
    """A loop that has to check: the units of one turn, without those of inner checked loops; and whether it is innermost, without such."""

    units: int
    innermost: bool


def _checked_loops(program: Program) -> Mapping[int, _CheckedLoop]:
    """The loops that have to check, by the index of the statement that opens them."""
    loops: dict[int, _CheckedLoop] = {}
    openers, units, nested = [-1], [0], [False]
    for index, s in enumerate(program.body):
        if s.opens:
            openers.append(index)
            units.append(1)
            nested.append(False)
        elif isinstance(s, End):
            opener, spent, has_inner = openers.pop(), units.pop(), nested.pop()
            trips = _constant_trips(program.body[opener])
            if not isinstance(program.body[opener], (For, Loop)):
                units[-1] += spent
                nested[-1] |= has_inner
            elif not has_inner and trips is not None and trips * spent <= _SHORT:
                units[-1] += trips * spent
            else:
                loops[opener] = _CheckedLoop(min(spent, STRIP), not has_inner)
                nested[-1] = True
        else:
            units[-1] += _units(s)
    return loops


def _strip_length(loop: _CheckedLoop) -> int:
    """The number of turns in a strip: a power of two."""
    return 1 << (STRIP // loop.units).bit_length() - 1


def _limit(w: Writer, counter: Counter, tested: str, bound: str, length: int) -> str:
    """What the counter, `tested` for the first time at this value, is to be compared with in a strip: the bound, or what it reaches after `length`
    turns if that comes first. The sum of a counter that is to pass a bound stops at the end of its type."""
    sign, up = "us"[counter.variable.type.is_signed], counter.step > 0
    if counter.name == "eq":
        rest = w.let(f"sub i32 {bound}, {tested}" if up else f"sub i32 {tested}, {bound}")
        some = w.call("i32", "llvm.umin.i32", ("i32", rest), ("i32", str(length)))
        return w.let(f"{'add' if up else 'sub'} i32 {tested}, {some}")
    ahead = w.call("i32", f"llvm.{sign}{'add' if up else 'sub'}.sat.i32", ("i32", tested), ("i32", str(length)))
    return w.call("i32", f"llvm.{sign}{'min' if up else 'max'}.i32", ("i32", bound), ("i32", ahead))


class InterruptibleLoops(Loops):
    """Writes the loops of a kernel with their checks."""

    def __init__(self, w: Writer, program: Program, watch: Watch, atom: Callable[[Atom], str], variables: Sequence[str]) -> None:
        super().__init__(w, program)
        self._watch, self._program = watch, program
        self._atom, self._variables = atom, variables
        self._checked_loops = _checked_loops(program)
        self._counters = Counters(program)
        # The index of a Let -> which of its operands another name takes the place of, and that.
        self._limits: dict[int, tuple[int, str]] = {}
        self._first, self._found = first_trace(program), ""
        self._pauses = bool(self._checked_loops) or has_grid_barrier(program) or has_grid_scan(program)
        # For each open loop, the outermost first: whether a loop that looks has been in it.
        self._followed = [False]

    def begin(self) -> None:
        """Starts the account and asks for the flag, if there is anything to account for: without loops an invocation is soon over, and a look that
        every thread makes would cost a kernel which does little more than that half its speed."""
        if self._pauses:
            self._watch.begin()
            self._found = self._watch.ask()

    def reach(self, index: int) -> None:
        """Ends before anything is done that takes long or that others see, if the flag was set at the beginning."""
        if index == self._first and self._found:
            self._watch.hear(self._found, [(llvm_type(value.type), self._atom(value)) for value in computed_before(self._program, index)])

    def operands(self, index: int, names: Sequence[str]) -> Sequence[str]:
        """The operands of a Let, with the strip's limit where it tests the counter of a loop."""
        if index not in self._limits:
            return names
        side, limit = self._limits[index]
        return [limit if k == side else name for k, name in enumerate(names)]

    def pause(self) -> None:
        """Reads the clock, and looks if it is time."""
        self._watch.pause()

    def for_(self, index: int, s: For, start: str, stop: str) -> tuple[Block, str]:
        """Opens a For."""
        loop = self._checked_loops.get(index)
        if loop is None:
            return super().for_(index, s, start, stop)
        self._enter()
        if loop.innermost:
            block, turn = self._for_strips(index, s, loop, self._trips(s, start, stop))
            place = self._place(s, start, turn)
        else:
            block, place = super().for_(index, s, start, stop)
        return self._counted(block), place

    def loop(self, index: int, s: Loop) -> Block:
        """Opens a Loop."""
        loop = self._checked_loops[index]
        self._enter()
        if not loop.innermost:
            return self._counted(self._endless(index, s))
        counter = self._counters.of(index)
        return self._counted(self._loop_strips(s, loop) if counter is None else self._counter_strips(s, loop, counter))

    def _endless(self, index: int, s: Loop) -> Block:
        """Opens a Loop with loops in it."""
        w = self.w
        head, again, leave = w.label("loop"), w.label("next"), w.label("done")
        w.block(head)

        def end() -> None:
            w.block(again)
            self._turned(index)
            w.jump(head)
            w.block(leave)

        return Block(s, end, again, leave)

    def _for_strips(self, index: int, s: For, loop: _CheckedLoop, turns: str) -> tuple[Block, str]:
        """Opens an innermost For of so many turns; gives the block and the number of the turn."""
        w, length = self.w, _strip_length(loop)
        counter = w.local("i32")
        w.line(f"store i32 0, ptr {counter}")
        strip, head, body, again, past, leave = [w.label(name) for name in ("strip", "for", "turn", "next", "past", "done")]
        w.block(strip)
        first = w.let(f"load i32, ptr {counter}")
        rest = w.let(f"sub i32 {turns}, {first}")
        some = w.let(f"select i1 {w.let(f'icmp ult i32 {rest}, {length}')}, i32 {rest}, i32 {length}")
        limit = w.let(f"add i32 {first}, {some}")
        w.block(head)
        turn = w.let(f"load i32, ptr {counter}")
        w.branch(w.let(f"icmp ult i32 {turn}, {limit}"), body, past)
        w.block(body)

        def end() -> None:
            w.block(again)
            w.line(f"store i32 {w.let(f'add i32 {turn}, 1')}, ptr {counter}")
            w.again(head, self.unrolls.get(index, 0))
            w.block(past)
            reached = w.let(f"load i32, ptr {counter}")
            whole = w.let(f"icmp eq i32 {reached}, {limit}")  # else a break led here
            self._next_strip(w.let(f"and i1 {whole}, {w.let(f'icmp ult i32 {limit}, {turns}')}"), strip, leave)
            self._spend_turns(w.let(f"sub i32 {reached}, {first}"), loop)

        return Block(s, end, again, past), turn

    def _counter_strips(self, s: Loop, loop: _CheckedLoop, counter: Counter) -> Block:
        """Opens an innermost Loop that counts by itself. Its own test is the strip's too, with a limit in the place of its bound."""
        w = self.w
        pointer, bound = self._variables[counter.variable.id], self._atom(self._program.body[counter.comparison].args[counter.side])
        strip, head, past, leave = [w.label(name) for name in ("strip", "loop", "past", "done")]
        w.block(strip)
        first = tested = w.let(f"load i32, ptr {pointer}")
        if counter.late:
            tested = w.let(f"add i32 {first}, {counter.step}")
        limit = _limit(w, counter, tested, bound, _strip_length(loop))
        self._limits[counter.comparison] = counter.side, limit
        w.block(head)

        def end() -> None:
            w.jump(head)
            w.block(past)
            reached = w.let(f"load i32, ptr {pointer}")
            stopped = w.let(f"icmp eq i32 {reached}, {limit}")  # else a break led here
            self._next_strip(w.let(f"and i1 {stopped}, {w.let(f'icmp ne i32 {limit}, {bound}')}"), strip, leave)
            self._spend_turns(w.let(f"sub i32 {reached}, {first}" if counter.step > 0 else f"sub i32 {first}, {reached}"), loop)

        return Block(s, end, head, past)

    def _spend_turns(self, turns: str, loop: _CheckedLoop) -> None:
        """Adds so many turns to the account, and the one that a break may have left."""
        self._watch.spend(self.w.let(f"mul i32 {self.w.let(f'add i32 {turns}, 1')}, {loop.units}"))

    def _loop_strips(self, s: Loop, loop: _CheckedLoop) -> Block:
        """Opens an innermost Loop. Its strip is a loop over groups of turns, which LLVM writes out: so its test, some five instructions, comes once
        a group, and the count of the groups is the same wherever in a group a break leaves."""
        w, length = self.w, _strip_length(loop)
        copies = min(_MOST_COPIES, length, 1 << (_UNROLLED // loop.units).bit_length())
        done, copy = w.local("i32"), w.local("i32")
        strip, group, head, body, again, turned, past, leave = [
            w.label(name) for name in ("strip", "group", "loop", "turn", "next", "turned", "past", "done")
        ]  # fmt: skip
        w.block(strip)
        w.line(f"store i32 0, ptr {done}")
        w.block(group)
        w.line(f"store i32 0, ptr {copy}")
        w.block(head)
        turn = w.let(f"load i32, ptr {copy}")
        w.branch(w.let(f"icmp ult i32 {turn}, {copies}"), body, turned)
        w.block(body)

        def end() -> None:
            w.block(again)
            w.line(f"store i32 {w.let(f'add i32 {turn}, 1')}, ptr {copy}")
            w.end(f"br label %{head}{w.module.loop(_WRITTEN_OUT)}")
            w.block(turned)
            before = w.let(f"load i32, ptr {done}")
            now = w.let(f"add i32 {before}, {copies}")
            w.line(f"store i32 {now}, ptr {done}")
            w.branch(w.let(f"icmp ult i32 {now}, {length}"), group, past)
            w.block(past)
            reached = w.let(f"load i32, ptr {done}")
            self._next_strip(w.let(f"icmp eq i32 {reached}, {length}"), strip, leave)  # else a break led here
            # The group that was left counts as a whole.
            self._watch.spend(w.let(f"mul i32 {w.let(f'add i32 {reached}, {copies}')}, {loop.units}"))

        return Block(s, end, again, past)

    def _next_strip(self, more: str, strip: str, leave: str) -> None:
        """Pauses and goes on with the next strip where there is `more`, else leaves."""
        w = self.w
        paused = w.label("pause")
        w.branch(more, paused, leave)
        w.block(paused)
        self.pause()
        w.jump(strip)
        w.block(leave)

    def _turned(self, index: int) -> None:
        if (loop := self._checked_loops.get(index)) is not None:
            self._watch.spend(str(loop.units))
            self._watch.check()

    def _enter(self) -> None:
        """Before a loop: what others did before it, in the same turn of the loop around them, is checked."""
        if self._followed[-1]:
            self._watch.check()
        self._followed[-1] = True
        self._followed.append(False)

    def _counted(self, block: Block) -> Block:
        """A block of a loop that `_enter` was told of."""

        def end() -> None:
            block.end()
            self._followed.pop()

        return replace(block, end=end)
