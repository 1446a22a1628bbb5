"""batch: a Program that runs another one for each of several sets of arguments, side by side along z.

    program axpy(n) {                       program axpy(n, batch) over(n, 1, batch) {
      param a: f32                            buffer a: f32[batch] read
      buffer x: f32[n] read                   buffer x: f32[n] read
      buffer y: f32[n] read_write   ->        buffer y: f32[batch, n] read_write
      let i = global_id.x                     let z = global_id.z, let i = global_id.x
      y[i] = a * x[i] + y[i]                  y[z, i] = a[z] * x[i] + y[z, i]
    }                                       }

The buffers named get one more axis, the first; the params named become buffers. All that is written is named, since no two runs may write one place. What
was alone along z finds there what it found before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from vyre_py.ir.check import check
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    GridBarrier,
    GridScan,
    Let,
    Memory,
    MemoryStatement,
    Param,
    ReportStatement,
    Space,
    TileMemoryStatement,
    Value,
)
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["batched"]

# What the only workgroup along z, and its only invocation, find there.
_ALONE: Final = {"global_id.z": 0, "local_id.z": 0, "workgroup_id.z": 0, "num_workgroups.z": 1, "workgroup_size.z": 1}
_WHOLE_GRID: Final = (GridBarrier, GridScan, ReportStatement)


class _Batcher(Rewriter):
    def __init__(self, program: Program, names: Collection[str]) -> None:
        super().__init__(program)
        taken = {dim.name for dim in program.dims} | {p.name for p in program.params} | {m.name for m in program.memories}
        name = "batch"
        while name in taken:
            name += "'"
        self.batch = self.dim(name)
        assert self.grid is not None  # a Program has one
        self.grid = Grid(self.grid.over, (*self.grid.extents[:2], self.batch))
        self.renewed = {memory: self._renewed(memory, names) for memory in program.memories}
        values = [param for param in program.params if param.name in names]
        self.params = [param for param in program.params if param.name not in names]
        columns = [Memory(param.name, Space.BUFFER, param.type, (self.batch,), Access.READ) for param in values]
        self.memories = [*self.renewed.values(), *columns]
        self.number = self.let(OPS["workgroup_id.z" if program.of_tiles else "global_id.z"], ())
        self.values: dict[Atom, Value] = {
            param: self.load(column, (self.number,), param.name) for param, column in zip(values, columns, strict=True)
        }  # fmt: skip

    def _renewed(self, memory: Memory, names: Collection[str]) -> Memory:
        if memory.space is not Space.BUFFER or memory.name not in names:
            return memory
        return Memory(memory.name, memory.space, memory.type, (self.batch, *memory.shape), memory.access)

    def atom(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom) if isinstance(atom, Param) else super().atom(atom)

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        old = self.program.body[index]
        if isinstance(old, Let) and old.op.name in _ALONE:
            self.map[old.bound.id] = Const(u32, _ALONE[old.op.name])
        elif isinstance(old, MemoryStatement) and self.renewed[old.memory] is not old.memory:
            self.place = self.program.place(index)
            args = [self.atom(a) for a in old.args]
            if isinstance(old, TileMemoryStatement):
                args.insert(old.memory.rank, Const(u32, 0))  # the tile lies at that one index
            made = None
            if old.result is not None:
                made = self.map[old.result.id] = self.value(old.result.type, self.program.value_names.get(old.result.id))
            payload = {name: getattr(old, name) for name in old.payload} | {"memory": self.renewed[old.memory]}
            self.emit(type(old)(made, (self.number, *args), **payload))
        else:
            self.copy(index)


def batched(program: Program, names: Collection[str]) -> Program | None:
    """The Program that runs a valid one for each set of arguments: buffers and params of these names have an axis more, the first, as long as there are sets.
    None where the Program uses more along z than one, has something for its grid as a whole, or would break a rule: where it asks for a param that is the
    same for a workgroup, say. Raises ValueError where something is written and not named."""
    if missing := [memory.name for memory in program.buffers if memory.access.writes and memory.name not in names]:
        raise ValueError(f"written by every run, and not named: {', '.join(missing)}")
    if program.grid.extents[2] != DimConst(1) or program.workgroup[2] > 1 or any(isinstance(s, _WHOLE_GRID) for s in program.body):
        return None
    batcher = _Batcher(program, names)
    for index in batcher.indices():
        batcher.take(index)
    made = batcher.finish()
    try:
        check(made)
    except ValidationError:
        return None
    return made
