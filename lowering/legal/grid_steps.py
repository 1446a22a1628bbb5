"""Scans over the grid in steps, for targets whose workgroups cannot wait for one another: kernels that run one after another.

For each scan one kernel computes the value of every workgroup, as the Program does up to there, and one workgroup turns all of them into what lies before
each; the last kernel is the Program with loads in the scans' place. What stands before a scan is so computed again, which is right where it writes to no
buffer that it reads, and has no atomics on one that atomics change: other Programs are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.check import Checked
from vyre_py.ir.check.facts import capabilities
from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, Grid, dim_op
from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Atomic,
    Const,
    GridScan,
    Memory,
    MemoryStatement,
    Param,
    ReportStatement,
    Space,
    Statement,
    Store,
    Value,
    const,
)
from vyre_py.ir.language.ops import GRID_FOLDS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import MOST_SCANS, totals_name

__all__ = ["grid_steps"]

_GROUP: Final = 256  # invocations of the workgroup that folds
_WORD_BITS: Final = 32
_WRITES: Final = any_of(Effect.WRITES)


def grid_steps(checked: Checked, who: str) -> tuple[Checked, ...]:
    """The Programs that a checked one is run as, one after another, over the same hidden memories, for one that has scans. They keep the rules as it does.
    Raises Unsupported, in the name of `who`, for what cannot be run so."""
    program = checked.program
    scans = [index for index, s in enumerate(program.body) if isinstance(s, GridScan)]
    if missing := list(_missing(program, scans)):
        raise Unsupported(who, missing)
    totals = _Totals(program, scans)
    made = [one for index in scans for one in (_UpToScan(program, totals, index).run(), _folded(program, index, totals))]
    return tuple([Checked(step, analyse(step), capabilities(step)) for step in (*made, _UpToScan(program, totals, None).run())])


class _Totals:
    """One hidden buffer for all scans of a Program, since targets bind few: for each of them a part, with an element for each workgroup.

    `first` has by the index of a scan where its part begins, `count` is how many elements each has. They are of the type of the scans where those have one, and
    bits in words else.
    """

    def __init__(self, program: Program, scans: list[int]) -> None:
        declared: list[Dim | Param | Memory] = [*program.dims, *program.params, *program.buffers]
        types = {program.body[index].args[0].type for index in scans}
        self.count = _groups(program)
        ends: list[DimExpr] = [self.count, *[dim_op("mul", DimConst(number), self.count) for number in range(2, len(scans) + 1)]]
        self.first = dict(zip(scans, [DimConst(0), *ends[:-1]], strict=True))
        self.memory = Memory(totals_name(0, declared), Space.BUFFER, types.pop() if len(types) == 1 else u32, (ends[-1],), Access.READ_WRITE, hidden=True)

    def load(self, a: Assembler, place: Atom, type_: Type, name: str | None = None) -> Value:
        """A scan's value at a place of the buffer."""
        if type_ is self.memory.type:
            return a.load(self.memory, (place,), name)
        return a.let(OPS["bitcast"], (a.load(self.memory, (place,)),), type_, name)

    def store(self, a: Assembler, place: Atom, x: Atom) -> None:
        """Puts a scan's value at a place of the buffer."""
        a.store(self.memory, (place,), x if x.type is self.memory.type else a.let(OPS["bitcast"], (x,), self.memory.type))


def _missing(program: Program, scans: list[int]) -> Iterator[Missing]:
    if len(scans) > MOST_SCANS:
        yield Missing(f"{len(scans)} scans over the grid in one Program", program.place(scans[MOST_SCANS]), f"the limit is {MOST_SCANS}")
    for index in scans:
        if program.body[index].args[0].type.bits > _WORD_BITS:
            yield Missing(f"grid_scan of {program.body[index].args[0].type}", program.place(index), "scans take 32 bits here")
    before = list(enumerate(program.body[: scans[-1]]))
    read = {memory for _, s in before if type(s) is not Store for memory in _memories(s)}
    changed = {s.memory for s in program.body if isinstance(s, Atomic) and s.op.writes}
    for index, s in before:
        if isinstance(s, Atomic) and s.memory not in changed:
            continue  # it loads the same each time
        if not isinstance(s, MemoryStatement) or s.memory.space is not Space.BUFFER or not _WRITES[type(s)] or (type(s) is Store and s.memory not in read):
            continue
        what = f"a store to {s.memory.name!r}, which is read," if isinstance(s, Store) else f"an atomic on {s.memory.name!r}"
        help_ = "what stands before a scan is computed twice here: part the Program, or compile for cuda or cpu"
        yield Missing(f"{what} before a grid_scan", program.place(index), help_)


def _memories(s: Statement) -> list[Memory]:
    """The memories that a statement touches."""
    return [getattr(s, name) for name, held in s.payload.items() if held is Memory]


def _groups(program: Program) -> DimExpr:
    """How many workgroups the grid has."""
    made: DimExpr = DimConst(1)
    for extent, size in zip(program.grid.extents, program.workgroup, strict=True):
        made = dim_op("mul", made, dim_op("ceil_div", extent, DimConst(size)) if program.grid.over else extent)
    return made


class _UpToScan(Rewriter):
    """The Program with loads in the place of scans; or what it does up to one of them, whose values it stores."""

    def __init__(self, program: Program, totals: _Totals, last: int | None) -> None:
        super().__init__(program)
        self._totals, self._last = totals, last
        self.memories = [*program.memories, totals.memory]

    def run(self) -> Program:
        for index in self.indices():
            statement = self.program.body[index]
            self.place = self.program.place(index)
            if isinstance(statement, GridScan):
                if index == self._last:
                    self._publish(index, self.atom(statement.args[0]))
                    break
                self.barrier()  # as the scan is
                name = self.program.value_names.get(statement.bound.id)
                self.map[statement.bound.id] = self._totals.load(self, self._place(index), statement.bound.type, name)
            elif self._last is None or not self._is_seen(index):
                self.copy(index)
        while self.open:
            self.end()
        return self.finish()

    def _is_seen(self, index: int) -> bool:
        """Whether a statement has an effect outside the kernel, which only the last step may have."""
        s = self.program.body[index]
        return isinstance(s, ReportStatement) or (isinstance(s, Store) and s.memory.space is Space.BUFFER)

    def _op(self, name: str, *args: Atom) -> Value:
        return self.let(OPS[name], args)

    def _number(self) -> Atom:
        """The workgroup's number in the grid."""
        group: Atom = self._op("workgroup_id.z")
        for axis in "yx":
            group = self._op("add", self._op("mul", group, self._op(f"num_workgroups.{axis}")), self._op(f"workgroup_id.{axis}"))
        return group

    def _place(self, index: int) -> Atom:
        """Where the workgroup's value of a scan lies."""
        return self._op("add", self._number(), self._totals.first[index])

    def _publish(self, index: int, x: Atom) -> None:
        self.if_(self._op("eq", self._op("local_index"), Const(u32, 0)))
        self._totals.store(self, self._place(index), x)
        self.end()


def _folded(program: Program, index: int, totals: _Totals) -> Program:
    """One workgroup puts what lies before each value in its place: a piece after another, within which x[k] = op(x[k], x[k - d]) for d = 1, 2, ..."""
    scan = program.body[index]
    assert isinstance(scan, GridScan)  # the caller has looked
    a, row, type_ = Assembler(program.name, (_GROUP, 1, 1)), GRID_FOLDS[scan.fold], scan.args[0].type
    a.place, a.declared = program.place(index), dict(program.declared)
    a.dims, a.params, a.grid = list(program.dims), list(program.params), Grid(False, (DimConst(1),) * 3)
    a.memories = [*program.buffers, totals.memory]
    arrays = [a.memory(f"piece.{k}", Space.WORKGROUP, type_, (DimConst(_GROUP),), Access.READ_WRITE) for k in range(2)]
    identity, count = const(type_, row.identity(type_)), totals.count

    def op(name: str, *args: Atom) -> Value:
        return a.let(OPS[name], args)

    def fold(x: Atom, y: Atom) -> Value:
        return a.let(row.op, (x, y))

    own = op("local_index")
    before = a.var(type_, identity)
    first = a.for_(Const(u32, 0), count, Const(u32, _GROUP))
    at = op("add", first, own)
    is_one = op("lt", at, count)
    place = op("select", is_one, op("add", at, totals.first[index]), totals.memory.shape[0])  # outside, past the last workgroup
    x: Atom = op("select", is_one, totals.load(a, place, type_), identity)
    turn, distance = 0, 1
    while distance < _GROUP:
        a.store(arrays[turn], (own,), x)
        a.barrier()
        there = a.load(arrays[turn], (op("sub", own, Const(u32, distance)),))
        x = op("select", op("ge", own, Const(u32, distance)), fold(x, there), x)
        turn, distance = 1 - turn, 2 * distance
    a.store(arrays[turn], (own,), x)
    a.barrier()
    behind = op("select", op("eq", own, Const(u32, 0)), identity, a.load(arrays[turn], (op("sub", own, Const(u32, 1)),)))
    whole, so_far = a.load(arrays[turn], (Const(u32, _GROUP - 1),)), a.get(before)
    totals.store(a, place, fold(so_far, behind))
    a.set(before, fold(so_far, whole))
    a.barrier()
    a.end()
    return a.finish()
