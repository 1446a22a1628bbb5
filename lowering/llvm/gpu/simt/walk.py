"""The walk over one body: the parts that it is written by, over one state, and which of them writes each kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Barrier,
    BoxCopy,
    Break,
    ClusterBarrier,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    MatrixLoad,
    Region,
    Return,
    Set,
    Space,
    Store,
    StripCopy,
    Subgroup,
    TensorCore,
    UniformLoad,
    Var,
    WarpgroupBarrier,
    WarpgroupProduct,
    WarpgroupRegisters,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.types import f32, u64
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.ir.language.widths import whole_size
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Aligned
from vyre_py.lowering.coarsen import Coarsened
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.legal.asserts import WITHOUT_REPORTS
from vyre_py.lowering.llvm.gpu import async_copies
from vyre_py.lowering.llvm.gpu.box_copies import BoxCopies
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.grid_barrier import meet_grid
from vyre_py.lowering.llvm.gpu.grid_scan import GridScans
from vyre_py.lowering.llvm.gpu.interrupt.checks import ACCOUNT, Watch
from vyre_py.lowering.llvm.gpu.interrupt.interruptible import InterruptibleLoops
from vyre_py.lowering.llvm.gpu.loops import Loops
from vyre_py.lowering.llvm.gpu.orders import fence
from vyre_py.lowering.llvm.gpu.reciprocals import plain_reciprocals, quotient, reciprocal
from vyre_py.lowering.llvm.gpu.simt.accesses import Accesses
from vyre_py.lowering.llvm.gpu.simt.branches import Branches
from vyre_py.lowering.llvm.gpu.simt.copies import AsyncCopies
from vyre_py.lowering.llvm.gpu.simt.elements import Elements
from vyre_py.lowering.llvm.gpu.simt.guarded_rows import GuardedRows
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.gpu.simt.parameters import Parameters
from vyre_py.lowering.llvm.gpu.simt.storage import Storage
from vyre_py.lowering.llvm.gpu.simt.workgroup import Workgroup
from vyre_py.lowering.llvm.gpu.tensor_cores import TensorCores, uses_tensor_cores
from vyre_py.lowering.llvm.gpu.warps import together
from vyre_py.lowering.llvm.lines import lines_of
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import llvm_type
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import element_rows, further
from vyre_py.lowering.tiles.grid_walk import walks_grid

__all__ = ["HANDLERS", "Walk"]

# The barrier of those that compute: not the workgroup's, 0, at which those that copy wait for the end meanwhile (a cluster's barrier is that, too, where it has
# one workgroup), nor one of those behind it, by which warpgroups signal each other.
_BARRIER: Final = 8


class Walk:
    """One kernel in the making, or a function that it calls, where the `limits` are attributes that its statements ask for.

    It is `walked` where its workgroups run one after the other in those of the launch, and `calls_nothing` where no operation may become a call.
    """

    def __init__(
        self, optimised: Optimised, module: ModuleText, options: CompileOptions, layout: Layout, coarsened: Coarsened | None, *, says_unchanged: bool,
        adds_for_neighbours: bool = False,
    ) -> None:
        self.optimised, self.program = optimised, optimised.program
        copies_ahead = async_copies.copies_ahead(self.program)
        adjacent = (further(optimised) if copies_ahead else {}) | dict(coarsened.adjacent if coarsened is not None else {})
        aligned = {n.buffer: n.size_bytes for n in coarsened.needs if isinstance(n, Aligned)} if coarsened is not None else {}
        rows = coarsened.rows() if coarsened is not None else {}
        if copies_ahead or uses_tensor_cores(self.program):
            rows |= element_rows(optimised, frozenset({Space.WORKGROUP}))
        self.copied = async_copies.copied(optimised, rows)
        self.walked = options.walks and not walks_grid(self.program)  # else it walks by itself
        self.limits = ""
        w = self.w = Writer(module)
        w.shares = uses_tensor_cores(self.program)
        self.lines = lines_of(module, self.program)
        w.place = self.lines.head
        self.names = Names(w, self.program)
        self.parameters = Parameters(w, self.program, layout, options, self.names, aligned)
        self.names.divide_views()
        bases = self.parameters.bases
        self.cores = TensorCores(w, self.program, self.names.atom)
        # The assembler has products of warpgroups wait for one another wherever a kernel calls anything.
        self.calls_nothing = self.cores.has_warpgroups
        self.loops = self._loops()
        self.workgroup = Workgroup(w, self.program, self.cores, self.parameters.groups, walked=self.walked)
        self.storage = Storage(w, module, optimised, bases, self.cores, self.workgroup)
        self.boxes = BoxCopies(w, self.names.atom, self.workgroup.local_index, bases, self.parameters.boxes)
        self.branches = Branches(w, self.program, self.names, self.loops)
        self.elements = Elements(w, optimised, self.names, bases, adjacent)
        self.accesses = Accesses(
            w, module, self.program, self.names, self.parameters, self.elements, self.cores, self.workgroup, self.storage, rows, says_unchanged=says_unchanged,
            adds_for_neighbours=adds_for_neighbours,
        )  # fmt: skip
        self.accesses.done.update(self.copied.silent)
        self.copies = AsyncCopies(w, self.program, self.names, bases, self.elements, self.accesses, self.copied, rows)
        self.guarded_rows = GuardedRows(w, self.program, self.names, self.elements, self.accesses, rows, has_functions=bool(optimised.functions))
        self._reciprocals = plain_reciprocals(self.program)
        self._scans: GridScans | None = None

    def _loops(self) -> Loops:
        if (flag := self.parameters.words.get(SlotKind.CANCEL)) is None:
            return Loops(self.w, self.program)
        watch = Watch(self.w, flag, ACCOUNT if self.walked else None)
        return InterruptibleLoops(self.w, self.program, watch, self.names.atom, self.names.variables)

    def take_ticket(self) -> None:
        """Where there are scans over the grid: the workgroup's number is its ticket from here on."""
        if (words := self.parameters.words.get(SlotKind.SCANS)) is not None:
            workgroup = self.workgroup
            self._scans = GridScans(self.w, self.program, words, self.storage.told, workgroup.local_index, workgroup.barrier, self.loops.pause)
            workgroup.places = self._scans.begin()

    def let(self, index: int, s: Let) -> None:
        """Enters what an op gives."""
        if index not in self.accesses.done:
            self.names.values[s.bound.id] = self._value(index, s)

    def _value(self, index: int, s: Let) -> str:
        w, names = self.w, self.names
        if s.op.is_query:
            return self.workgroup.query(s.op)
        if (size := whole_size(s)) is not None:
            return names.size(size, u64)
        if (signature := signature_of(s)) in self.optimised.functions:
            assert signature is not None  # none of them is
            given = [f"{llvm_type(a.type)} {names.atom(a)}" for a in s.args]
            return w.let(f"call {llvm_type(signature.result)} @{signature.name}({', '.join(given)})")
        if s.op is JOINED:
            return self.cores.join(s)
        operands = self.loops.operands(index, [names.atom(a) for a in s.args])
        if self.cores.narrows(s):
            return self.cores.narrow(s.bound, operands[0])
        if s.bound in self._reciprocals:
            return reciprocal(w, operands[1])
        if s.op.name == "div" and s.bound.type is f32 and self.calls_nothing:
            return quotient(w, *operands)
        return NVPTX_EMITTERS[s.op.name](w, 1, s.args[-1].type, s.bound.type, operands)

    def var(self, index: int, s: Var) -> None:
        """Makes a variable."""
        self.names.variables[s.variable.id] = self.w.local(llvm_type(s.variable.type))
        self.set(index, s)

    def get(self, index: int, s: Get) -> None:
        """Enters what a variable holds."""
        self.names.values[s.bound.id] = self.w.let(f"load {llvm_type(s.variable.type)}, ptr {self.names.variables[s.variable.id]}")

    def set(self, index: int, s: Var | Set) -> None:
        """Changes a variable."""
        self.w.line(f"store {llvm_type(s.variable.type)} {self.names.atom(s.args[0])}, ptr {self.names.variables[s.variable.id]}")

    def if_(self, index: int, s: If) -> None:
        """Begins a block, or does all of one that stores a row."""
        first = self.guarded_rows.first(index)
        if first is None:
            self.branches.if_(index, s)
            return
        for number in range(index + 1, first):
            HANDLERS[type(self.program.body[number])](self, number, self.program.body[number])
        self.accesses.done.update(range(index + 1, first))
        self.guarded_rows.store(first, self.names.atom(s.args[0]))

    def end(self, index: int) -> None:
        """Ends the innermost block, unless it was done at once."""
        if index not in self.accesses.done:
            self.branches.end()

    def together(self, index: int, s: Subgroup) -> None:
        """Enters what a subgroup's op gives."""
        operands = [self.names.atom(a) for a in s.args]
        self.names.values[s.bound.id] = together(self.w, s, self.program.subgroup, self.workgroup.local_index, operands)

    def grid_scan(self, index: int, s: GridScan) -> None:
        """Enters what a scan over the grid gives."""
        assert self._scans is not None  # the layout has a slot for them
        self.names.values[s.bound.id] = self._scans.scan(s, self.names.atom(s.args[0]))

    def grid_barrier(self, index: int, s: GridBarrier) -> None:
        """Meets all workgroups."""
        self.workgroup.barrier()
        meet_grid(self.w, self.parameters.words[SlotKind.ARRIVALS], self.workgroup.local_index(), self.loops.pause)
        self.workgroup.barrier()

    def warpgroup_barrier(self, index: int, s: WarpgroupBarrier) -> None:
        """Meets those that compute."""
        self.cores.fence()
        self.w.line(f'call void asm sideeffect "bar.sync {_BARRIER}, {s.count};", "~{{memory}}"() convergent')

    def warpgroup_registers(self, index: int, s: WarpgroupRegisters) -> None:
        """Takes registers, or gives them away."""
        self.limits = ' "nvvm.minctasm"="1"'  # the assembler takes no heed of it otherwise
        self.w.line(f'call void asm sideeffect "setmaxnreg.{"inc" if s.more else "dec"}.sync.aligned.u32 {s.count};", ""() convergent')


HANDLERS: Final[Handlers[Callable[[Walk, int, Any], None]]] = Handlers("the ptx target", {
    Let: Walk.let, Var: Walk.var, Get: Walk.get, Set: Walk.set, Subgroup: Walk.together, GridScan: Walk.grid_scan, GridBarrier: Walk.grid_barrier,
    Load: lambda walk, index, s: walk.accesses.load(index, s),
    Store: lambda walk, index, s: walk.accesses.store(index, s),
    UniformLoad: lambda walk, index, s: walk.accesses.uniform_load(index, s),
    **dict.fromkeys(ATOMIC_KINDS, lambda walk, index, s: walk.accesses.atomic(index, s)),
    If: Walk.if_,
    Else: lambda walk, index, s: walk.branches.else_(),
    For: lambda walk, index, s: walk.branches.for_(index, s),
    Loop: lambda walk, index, s: walk.branches.loop(index, s),
    Region: lambda walk, index, s: walk.branches.region(s),
    End: lambda walk, index, s: walk.end(index),
    Break: lambda walk, index, s: walk.branches.break_(),
    Continue: lambda walk, index, s: walk.branches.continue_(),
    Return: lambda walk, index, s: walk.branches.return_(),
    Barrier: lambda walk, index, s: walk.workgroup.barrier(),
    **dict.fromkeys(FENCES.values(), lambda walk, index, s: fence(walk.w, s.scope)),
    CopyAsync: lambda walk, index, s: walk.copies.begin(index, s),
    StripCopy: lambda walk, index, s: walk.copies.strip(index, s),
    CopyCommit: lambda walk, index, s: async_copies.commit(walk.w),
    CopyWait: lambda walk, index, s: async_copies.wait(walk.w, s.groups),
    ArrivalsSet: lambda walk, index, s: walk.boxes.set(s),
    ArrivalsExpect: lambda walk, index, s: walk.boxes.expect(s),
    ArrivalsTell: lambda walk, index, s: walk.boxes.tell(s),
    ArrivalsWait: lambda walk, index, s: walk.boxes.wait(s),
    BoxCopy: lambda walk, index, s: walk.boxes.copy(s),
    ClusterBarrier: lambda walk, index, s: walk.boxes.meet(),
    TensorCore: lambda walk, index, s: walk.cores.multiply(s),
    MatrixLoad: lambda walk, index, s: walk.cores.load_matrices(s, walk.parameters.bases[s.source]),
    WarpgroupProduct: lambda walk, index, s: walk.cores.begin(s, walk.parameters.bases),
    WarpgroupWait: lambda walk, index, s: walk.cores.wait(s),
    WarpgroupSignal: lambda walk, index, s: walk.cores.signal(s),
    WarpgroupBarrier: Walk.warpgroup_barrier, WarpgroupRegisters: Walk.warpgroup_registers,
}, without={**WITHOUT_REPORTS, **WITHOUT_TILES})  # fmt: skip
