"""The structure of a body as branches: ifs, loops, regions, and what leaves them."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Else, For, If, Loop, Region
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.gpu.loops import Block, Loops
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.text import Writer

__all__ = ["Branches"]


class Branches:
    """Those of one kernel, whose `loops` are plain or can be ended from outside."""

    def __init__(self, w: Writer, program: Program, names: Names, loops: Loops) -> None:
        self._w, self._program, self._names, self._loops = w, program, names, loops
        self._open: list[Block] = []

    def if_(self, index: int, s: If) -> None:
        """Begins the first block."""
        w = self._w
        yes, no, after = w.label("then"), w.label("else"), w.label("endif")
        has_else = isinstance(self._program.body[self._program.match[index]], Else)
        w.branch(self._names.atom(s.args[0]), yes, no if has_else else after)
        w.block(yes)
        self._open.append(Block(s, lambda: w.block(after), again=no, leave=after))

    def else_(self) -> None:
        """Ends the first block and begins the second."""
        block = self._open[-1]
        self._w.jump(block.leave)
        self._w.block(block.again)

    def for_(self, index: int, s: For) -> None:
        """Begins a counted loop."""
        block, self._names.values[s.bound.id] = self._loops.for_(index, s, self._names.atom(s.args[0]), self._names.atom(s.args[1]))
        self._open.append(block)

    def loop(self, index: int, s: Loop) -> None:
        """Begins an endless loop."""
        self._open.append(self._loops.loop(index, s))

    def region(self, s: Region) -> None:
        """Begins a region, which is nothing in code."""
        self._open.append(Block(s, lambda: None))

    def end(self) -> None:
        """Ends the innermost block."""
        self._open.pop().end()

    def break_(self) -> None:
        """Leaves the innermost loop."""
        self._depart(f"br label %{self._turned().leave}")

    def continue_(self) -> None:
        """Goes on to the innermost loop's next turn."""
        self._depart(f"br label %{self._turned().again}")

    def return_(self) -> None:
        """Leaves the kernel."""
        self._depart("ret void")

    def _depart(self, terminator: str) -> None:
        """Leaves; what follows in this block, if anything, is never reached."""
        self._w.end(terminator)
        self._w.block(self._w.label("never"))

    def _turned(self) -> Block:
        return next(b for b in reversed(self._open) if isinstance(b.opener, (For, Loop)))
