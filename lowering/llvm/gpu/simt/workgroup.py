"""An invocation's workgroup: its place there, its workgroup's place in the grid, and the barrier at which they meet."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from vyre_py.ir.language.op import Op
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.gpu.persistent import PLACES
from vyre_py.lowering.llvm.gpu.tensor_cores import TensorCores
from vyre_py.lowering.llvm.gpu.warps import gather, parts_warps
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.tiles.grid_walk import walks_grid

__all__ = ["Workgroup"]

# Query -> the special register, where the grid is what was launched.
_QUERIES: Final[Mapping[str, str]] = {"workgroup_id": "ctaid", "num_workgroups": "nctaid", "launched_workgroups": "nctaid"}


class Workgroup:
    """What one kernel asks of it. `groups` are the names of the grid's size, as far as the kernel is told; it is `walked` where each workgroup of the launch
    runs several. `places` are the names of its place where that is a ticket, as of `llvm.gpu.grid_scan`."""

    def __init__(self, w: Writer, program: Program, cores: TensorCores, groups: list[str], *, walked: bool) -> None:
        self._w, self._program, self._cores = w, program, cores
        self.groups, self._walked, self._walks = groups, walked, walks_grid(program)
        self.places: tuple[str, str, str] | None = None
        self._parts_warps = parts_warps(program)

    def local_index(self) -> str:
        """The number of the invocation."""
        x, y, _ = self._program.workgroup
        w = self._w
        place = self._register("tid", "x")
        for axis, stride in (("y", x), ("z", x * y)):
            if self._program.workgroup["xyz".index(axis)] > 1:
                rows = w.let(f"mul i32 {self._register('tid', axis)}, {stride}")
                place = w.let(f"add i32 {place}, {rows}")
        return place

    def query(self, op: Op) -> str:
        """What an op that is a query gives."""
        name, _, axis = op.name.partition(".")
        if name == "local_index":
            return self.local_index()
        size = self._program.workgroup["xyz".index(axis)]
        if name == "workgroup_size":
            return str(size)
        if name == "global_id":
            first = self._w.let(f"mul i32 {self._grid('workgroup_id', axis)}, {size}")
            return self._w.let(f"add i32 {first}, {self._register('tid', axis)}")
        return self._register("tid", axis) if name == "local_id" else self._grid(name, axis)

    def barrier(self) -> None:
        """Writes one of all its invocations."""
        self._cores.fence()
        if self._parts_warps:
            gather(self._w, prod(self._program.workgroup), self.local_index())
        self._w.run("llvm.nvvm.barrier0")

    def _register(self, name: str, axis: str) -> str:
        return self._w.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}.{axis}")

    def _grid(self, query: str, axis: str) -> str:
        """The workgroup's place in the grid, the grid's size, or how many workgroups walk through it."""
        if self.places is not None and query == "workgroup_id":
            return self.places["xyz".index(axis)]
        if query == "num_workgroups" and (self._walks or self._walked):
            return self.groups["xyz".index(axis)]
        if self._walked:
            return PLACES["xyz".index(axis)]
        return self._register(_QUERIES[query], axis)
