"""The basic blocks of a loop in the walk for GPUs: a header that tests, a body, a latch, an exit.

`Loops` writes plain loops. `interruptible.InterruptibleLoops` writes loops that can be ended from outside, endless ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Const, For, Loop, Statement
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import literal
from vyre_py.lowering.llvm.unrolling import unrolls

__all__ = ["Block", "Loops"]


@dataclass(frozen=True, slots=True)
class Block:
    """An open block: `end` runs after it. For a loop, `again` is where a continue goes and `leave` where a break goes; for an If, where
    its second block begins and what follows both."""

    opener: Statement
    end: Callable[[], None]
    again: str = ""
    leave: str = ""


class Loops:
    """Writes the loops of one kernel."""

    def __init__(self, w: Writer, program: Program) -> None:
        self.w = w
        self.unrolls = unrolls(program)

    def begin(self) -> None:
        """Writes what a kernel does before its Program."""

    def reach(self, index: int) -> None:
        """Writes what comes before the statement of this index."""

    def operands(self, index: int, names: Sequence[str]) -> Sequence[str]:
        """The operands, given by name, of the Let of this index: a loop may set itself another bound."""
        return names

    def pause(self) -> None:
        """Writes what an invocation does that waits for another one, each time it has looked in vain."""

    def for_(self, index: int, s: For, start: str, stop: str) -> tuple[Block, str]:
        """Opens a For, the statement of this index, over the names of its bounds; gives the block and the name of the loop's variable."""
        w = self.w
        counter = w.local("i32")
        turns = self._trips(s, start, stop)
        w.line(f"store i32 0, ptr {counter}")
        head, body, again, leave = w.label("for"), w.label("turn"), w.label("next"), w.label("done")
        w.block(head)
        turn = w.let(f"load i32, ptr {counter}")
        w.branch(w.let(f"icmp ult i32 {turn}, {turns}"), body, leave)
        w.block(body)
        place = self._place(s, start, turn)

        def end() -> None:
            w.block(again)
            self._turned(index)
            w.line(f"store i32 {w.let(f'add i32 {turn}, 1')}, ptr {counter}")
            w.again(head, self.unrolls.get(index, 0))
            w.block(leave)

        return Block(s, end, again, leave), place

    def loop(self, index: int, s: Loop) -> Block:
        """Opens a Loop, the statement of this index."""
        w = self.w
        head, leave = w.label("loop"), w.label("done")
        w.block(head)

        def end() -> None:
            w.jump(head)
            w.block(leave)

        return Block(s, end, head, leave)

    def _turned(self, index: int) -> None:
        """Writes what comes after each turn of a For."""

    def _trips(self, s: For, start: str, stop: str) -> str:
        """How often a For turns, so that nothing wraps: the distance is below 2^32, whatever the signs."""
        w = self.w
        signed, step = s.args[0].type.is_signed, s.args[2]
        assert isinstance(step, Const)  # V208
        stride = abs(int(step.value))
        low, high = (start, stop) if int(step.value) > 0 else (stop, start)
        some = w.let(f"icmp {'s' if signed else 'u'}lt i32 {low}, {high}")
        turns = w.let(f"sub i32 {high}, {low}")
        if stride > 1:
            last = w.let(f"sub i32 {turns}, 1")
            turns = w.let(f"add i32 {w.let(f'udiv i32 {last}, {stride}')}, 1")
        return w.let(f"select i1 {some}, i32 {turns}, i32 0")

    def _place(self, s: For, start: str, turn: str) -> str:
        """The loop's variable in a turn."""
        step = s.args[2]
        assert isinstance(step, Const)  # V208
        moved = self.w.let(f"mul i32 {turn}, {literal(step)}")
        return self.w.let(f"add i32 {start}, {moved}")
