"""Fold: what constants decide is computed now, and code that can't run is dropped."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Atom, Break, Const, Continue, Else, End, For, If, Let, Loop, Return, const
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, element, u32
from vyre_py.ir.language.widths import whole_size
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["evaluate_constant", "fold", "merged_end"]

_KEEPS_NAN_BITS: Final = frozenset({"select", "bitcast", "swizzle"})


def evaluate_constant(op: Op, type_: Type, args: tuple[Const, ...]) -> Const | None:
    """`op` of constants, by the op table's own evaluation; None for an op that has none, and for a vector, since no constant is
    one. A NaN that is computed is the canonical quiet one; a NaN that is moved keeps its bits."""
    if op.evaluate is None or type_.is_vector:
        return None
    with np.errstate(all="ignore"):
        made = op.evaluate(type_, *[element(a.type, a.bits).reshape(1) for a in args]).astype(type_.dtype, copy=False)
        unordered = type_.is_float and op.name not in _KEEPS_NAN_BITS and bool(np.isnan(made)[0])
    if unordered:
        return Const(type_, type_.canonical_nan)
    return Const(type_, int(made.view(f"u{type_.size_bytes}")[0]))


def merged_end(program: Program, index: int) -> int:
    """The End of the block or blocks that statement `index` opens."""
    matched = program.match[index]
    return program.match[matched] if isinstance(program.body[matched], Else) else matched


class _BlockKind(Enum):
    KEPT = auto()
    INLINED = auto()  # the branch that a constant condition picks


@dataclass(slots=True)
class _Frame:
    """An open block: `dead` after a jump, `then_dead` when the block before its Else ended dead."""

    block: _BlockKind
    index: int
    dead: bool = False
    then_dead: bool | None = None


class _Folder(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.frames = [_Frame(_BlockKind.KEPT, -1)]
        self.copied = 0  # statements that stay as they were

    def atom(self, atom: Atom) -> Atom:
        new = super().atom(atom)
        return const(u32, new.value) if isinstance(new, DimConst) and 0 <= new.value <= u32.maximum else new

    def step(self, index: int) -> int:
        """Takes in old statement `index`; gives the next one to take in."""
        statement = self.program.body[index]
        frame = self.frames[-1]
        if isinstance(statement, Else):
            return self._turn(frame, index)
        if isinstance(statement, End):
            return self._close(index)
        if frame.dead:
            return merged_end(self.program, index) + 1 if statement.opens else index + 1
        if isinstance(statement, If) and isinstance(condition := self.atom(statement.args[0]), Const):
            return self._pick(index, bool(condition.value))
        if isinstance(statement, For) and self._never_runs(statement):
            return merged_end(self.program, index) + 1
        if isinstance(statement, Let) and (folded := self._folded(statement)) is not None:
            self.map[statement.bound.id] = folded
            return index + 1
        self._keep(index)
        if statement.opens:
            self.frames.append(_Frame(_BlockKind.KEPT, index))
        frame.dead = isinstance(statement, (Break, Continue, Return))
        return index + 1

    def _keep(self, index: int) -> None:
        self.copy(index)
        for atom in self.program.body[index].args:
            if isinstance(atom, DimConst):
                return
        self.copied += 1

    def _turn(self, frame: _Frame, index: int) -> int:
        if frame.block is _BlockKind.INLINED:
            return self.program.match[index]
        self._keep(index)
        frame.then_dead, frame.dead = frame.dead, False
        return index + 1

    def _close(self, index: int) -> int:
        frame = self.frames.pop()
        opened = self.program.body[frame.index]
        if frame.block is _BlockKind.KEPT:
            self._keep(index)
        straight = frame.block is _BlockKind.INLINED or not isinstance(opened, (If, For, Loop))
        if straight or (isinstance(opened, If) and frame.then_dead):
            self.frames[-1].dead = frame.dead
        return index + 1

    def _pick(self, index: int, truth: bool) -> int:
        """Goes on in the branch that runs, without its markers; the other one is jumped over."""
        middle = self.program.match[index]
        if not truth and isinstance(self.program.body[middle], End):
            return middle + 1
        self.frames.append(_Frame(_BlockKind.INLINED, index))
        return index + 1 if truth else middle + 1

    def _never_runs(self, loop: For) -> bool:
        start, stop, step = (self.atom(a) for a in loop.args)
        if not (isinstance(start, Const) and isinstance(stop, Const) and isinstance(step, Const)):
            return False
        return start.value >= stop.value if step.value > 0 else start.value <= stop.value

    def _folded(self, let: Let) -> Const | None:
        if let.op.is_query:
            return self._query(let.op.name)
        if isinstance(size := whole_size(let), DimConst):
            return const(let.bound.type, size.value) if 0 <= size.value <= let.bound.type.maximum else None
        constants: list[Const] = []
        for arg in let.args:
            atom = self.atom(arg)
            if not isinstance(atom, Const):
                return None
            constants.append(atom)
        return evaluate_constant(let.op, let.bound.type, tuple(constants))

    def _query(self, name: str) -> Const | None:
        """The workgroup's size is known, and so is an invocation's place along an axis of one."""
        kind, _, axis = name.partition(".")
        x, y, z = self.program.workgroup
        if kind == "local_index":
            return const(u32, 0) if x * y * z == 1 else None
        if kind == "subgroup_lane":
            return const(u32, 0) if self.program.subgroup == 1 else None
        if kind == "subgroup_id":
            return const(u32, 0) if self.program.subgroup == x * y * z else None
        size = (x, y, z)["xyz".index(axis)]
        if kind == "workgroup_size":
            return const(u32, size)
        return const(u32, 0) if kind == "local_id" and size == 1 else None


def fold(program: Program) -> Program:
    """Lets of constants become constants; branches on a constant lose the block that can't run, loops without a turn and
    statements after a jump go. A Program in which nothing is to be done is given back itself."""
    folder = _Folder(program)
    index = 0
    while index < len(program.body):
        index = folder.step(index)
    return program if folder.copied == len(program.body) else folder.finish()
