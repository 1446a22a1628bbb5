"""The walk for GPUs: one thread for each invocation, and branches for the body's structure.

LLVM gets no assumption that a Program might break: no flags on arithmetic or addresses, and no attribute that a loop ends. Every load is frozen, so
that a value read in a race is the same value for the check and for the use that follow it.

One module because every kind of statement is written over the same state: names of values, memories and open blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from vyre_py.ir.check.facts import definitions, has_grid_scan, is_told
from vyre_py.ir.functions.called import Signature, parameters_of, result_of, signature_of
from vyre_py.ir.language.dims import DimConst, DimExpr, DimOp
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Atom,
    Atomic,
    Barrier,
    BoxCopy,
    Break,
    ClusterBarrier,
    Const,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    Fence,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    MatrixLoad,
    Memory,
    MemoryStatement,
    Param,
    Region,
    Return,
    Set,
    Space,
    Store,
    StripCopy,
    Subgroup,
    TensorCore,
    UniformLoad,
    Value,
    Var,
    WarpgroupBarrier,
    WarpgroupProduct,
    WarpgroupRegisters,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.op import Op, Order
from vyre_py.ir.language.ops import JOINED
from vyre_py.ir.language.types import Kind, Type, f32, u32, u64
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.ir.language.widths import WIDE_TYPES, whole_size
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Aligned
from vyre_py.lowering.coarsen import Coarsened
from vyre_py.lowering.layout import BOXES_ALIGN, Layout, Slot, SlotKind, element_count, lay_out
from vyre_py.lowering.legal.asserts import WITHOUT_REPORTS
from vyre_py.lowering.llvm import addressing
from vyre_py.lowering.llvm.addressing import inside, offset
from vyre_py.lowering.llvm.atomics import atomic_operation
from vyre_py.lowering.llvm.conversions import param_value
from vyre_py.lowering.llvm.gpu import async_copies, placed
from vyre_py.lowering.llvm.gpu.box_copies import BoxCopies
from vyre_py.lowering.llvm.gpu.dependent import let_next_begin, wait_for_earlier
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.grid_barrier import meet_grid
from vyre_py.lowering.llvm.gpu.grid_scan import GridScans
from vyre_py.lowering.llvm.gpu.interrupt.checks import ACCOUNT, Watch
from vyre_py.lowering.llvm.gpu.interrupt.interruptible import InterruptibleLoops
from vyre_py.lowering.llvm.gpu.loops import Block, Loops
from vyre_py.lowering.llvm.gpu.orders import fence, in_order, scope_of
from vyre_py.lowering.llvm.gpu.persistent import GROUPS, PLACES, ReadGrid, body_parameters, write_walk
from vyre_py.lowering.llvm.gpu.reciprocals import plain_reciprocals, quotient, reciprocal
from vyre_py.lowering.llvm.gpu.tensor_cores import TensorCores, uses_tensor_cores
from vyre_py.lowering.llvm.gpu.warps import gather, parts_warps, together
from vyre_py.lowering.llvm.legal import SWIZZLE_BYTES, WORKGROUP_ALIGN, shares_memory, workgroup_offsets
from vyre_py.lowering.llvm.lines import lines_of
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bits_type, bytes_literal, literal, llvm_type, memory_type, number
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import Row, element_rows, further
from vyre_py.lowering.tiles.grid_walk import walks_grid
from vyre_py.lowering.views import layout_of

__all__ = ["write_kernel"]

# Tables lie in global memory: constant memory serialises the threads that read different elements.
_POINTERS: Final[Mapping[Space, str]] = {
    Space.BUFFER: "ptr addrspace(1)",
    Space.TABLE: "ptr addrspace(1)",
    Space.WORKGROUP: "ptr addrspace(3)",
    Space.PRIVATE: "ptr",
}

_PLAIN: Final = CompileOptions()
# The barrier of those that compute: not the workgroup's, 0, at which those that copy wait for the end meanwhile (a cluster's barrier is that, too, where it has
# one workgroup), nor one of those behind it, by which warpgroups signal each other.
_BARRIER: Final = 8

# Query -> the special register, where the grid is what was launched.
_QUERIES: Final[Mapping[str, str]] = {"workgroup_id": "ctaid", "num_workgroups": "nctaid", "launched_workgroups": "nctaid"}


class _SimtWalk:
    """One kernel in the making."""

    def __init__(
        self, optimised: Optimised, module: ModuleText, options: CompileOptions, layout: Layout, coarsened: Coarsened | None, says_unchanged: bool
    ) -> None:
        self.options = options
        copies_ahead = any(isinstance(s, (BoxCopy, CopyAsync, StripCopy)) for s in optimised.program.body)
        self.adjacent = (further(optimised) if copies_ahead else {}) | dict(coarsened.adjacent if coarsened is not None else {})
        self.aligned = {n.buffer: n.size_bytes for n in coarsened.needs if isinstance(n, Aligned)} if coarsened is not None else {}
        self.leaders: dict[int, str] = {}
        self.says_unchanged, self.unchanged = says_unchanged, ""
        self.done: set[int] = set()  # accesses that another one did
        self.rows = coarsened.rows() if coarsened is not None else {}
        if copies_ahead or uses_tensor_cores(optimised.program):
            self.rows |= element_rows(optimised, frozenset({Space.WORKGROUP}))
        self.copied = async_copies.copied(optimised, self.rows)
        self.optimised = optimised
        self.program = optimised.program
        self.proven = optimised.proven
        self.reciprocals = plain_reciprocals(self.program)
        self._parts_warps = parts_warps(self.program)
        self.module = module
        self.w = Writer(module)
        self.by_cores = self.w.shares = uses_tensor_cores(self.program)
        self.made_at = definitions(self.program)
        self.lines = lines_of(module, self.program)
        self.w.place = self.lines.head
        self.values: list[str] = [""] * self.program.value_count
        self.variables: list[str] = [""] * self.program.variable_count
        self.params: dict[Param, str] = {}
        self.sizes: dict[tuple[DimExpr, Type], str] = {}
        self.bases: dict[Memory, str] = {}
        self.told = ""  # where in workgroup memory the invocation that does a uniform load tells the others what it found
        self.blocks: list[Block] = []
        self.words: dict[SlotKind, str] = {}
        self.groups: list[str] = list(GROUPS) if options.indirect else []
        self.grid_told = ""  # where in workgroup memory one invocation tells the others what grid it read
        self.walks = walks_grid(self.program)  # by itself
        self.walked = options.walks and not self.walks
        self.places: tuple[str, str, str] | None = None  # of a workgroup whose number is a ticket
        self.scans: GridScans | None = None
        self.prefix = ""  # of the names of its tables
        self.limits = ""  # attributes of the kernel
        self.parameters: dict[Memory, str] = {}  # of a function: the names of its operands
        self.result: Memory | None = None
        self.clears = False  # whether it has memory of the workgroup's
        self.layout = layout
        self.boxes = BoxCopies(self.w, self.atom, self._local_index, self.bases)
        own = {memory.name: memory for memory in self.program.buffers}
        self.signature = [self._slot(position, slot, own) for position, slot in enumerate(self.layout.slots)]
        self._bind_groups()
        self.cores = TensorCores(self.w, self.program, self.atom)
        # The assembler has products of warpgroups wait for one another wherever a kernel calls anything.
        self.calls_nothing = self.cores.has_warpgroups
        self.loops = Loops(self.w, self.program)
        if (flag := self.words.get(SlotKind.CANCEL)) is not None:
            watch = Watch(self.w, flag, ACCOUNT if self.walked else None)
            self.loops = InterruptibleLoops(self.w, self.program, watch, self.atom, self.variables)

    # ---- declarations

    def _slot(self, position: int, slot: Slot, own: Mapping[str, Memory]) -> tuple[str, str, str]:
        """Enters a kernel parameter; gives its type, attributes and name. Of a buffer the Program may have a view of its own."""
        name = f"%a{position}"
        if slot.kind is SlotKind.BOXES:
            assert slot.memory is not None  # of which they are
            self.boxes.boxes[slot.memory.name, slot.box] = name
            return "ptr", f'byval([{slot.size_bytes} x i8]) align {BOXES_ALIGN} "nvvm.grid_constant" ', name
        if slot.memory is not None:
            memory = own.get(slot.memory.name, slot.memory)
            self.bases[memory] = name
            align = max(slot.type.size_bytes, self.aligned.get(slot.name, 1))
            return "ptr addrspace(1)", f"{self._promises(memory)}align {align} ", name
        if slot.kind in (SlotKind.ARRIVALS, SlotKind.CANCEL, SlotKind.SCANS, SlotKind.GRID):
            self.words[slot.kind] = name
            return "ptr addrspace(1)", f"align {slot.type.size_bytes if slot.kind is SlotKind.GRID else slot.size_bytes} ", name
        if slot.param is not None:
            self.params[slot.param] = param_value(self.w, slot.param.type, name)
        elif slot.expr is not None:
            self.sizes[slot.expr, slot.type] = name
        else:
            self.groups.append(name)
        return bits_type(8 * slot.size_bytes), "", name

    def _promises(self, memory: Memory) -> str:
        """Attributes of a buffer. Binding proves that written memory overlaps nothing; yet LLVM takes `noalias` to mean that a barrier
        does not change the memory, so a buffer through which invocations may talk over a barrier, a fence or an ordered atomic goes without."""
        if self.options.dependent:
            return ""  # what an earlier kernel writes is there only after a wait, past which no load may move either
        if not memory.access.writes:
            return "noalias readonly "
        return "" if memory.access.reads and shares_memory(self.program) else "noalias "

    def _unchanged(self, memory: Memory) -> str:
        """What a load says of memory that nothing writes, where LLVM's code generation tries too little to see it by itself."""
        if not self.says_unchanged or memory.space is not Space.BUFFER or "readonly" not in self._promises(memory):
            return ""
        self.unchanged = self.unchanged or self.module.node("!{}")
        return f", !invariant.load {self.unchanged}"

    def memories(self) -> int:
        """Declares what is no argument and fills it with zeros where it may be read so; gives the bytes of workgroup memory."""
        offsets, zeros, size = workgroup_offsets(self.optimised)
        for index, memory in enumerate(self.program.memories):
            if self.cores.owns(memory):
                continue  # its elements are by themselves
            if memory.space is Space.PRIVATE:
                size_bytes = element_count(memory) * memory.type.size_bytes
                base = self.bases[memory] = self.w.local(f"[{size_bytes} x i8]", align=WORKGROUP_ALIGN)
                self.w.run("llvm.memset.p0.i64", ("ptr", base), ("i8", "0"), ("i64", str(size_bytes)), ("i1", "false"))
            elif memory.space is Space.WORKGROUP:
                self.bases[memory] = f"getelementptr (i8, ptr addrspace(3) @shared, i64 {offsets[memory]})"
            elif memory.space is Space.TABLE:
                name = f"@{self.prefix}table_{index}"
                self.module.add_global(f"{name} = internal addrspace(1) constant {bytes_literal(memory.data)}, align {WORKGROUP_ALIGN}")
                self.bases[memory] = name
        if zeros:
            self._clear_workgroup(zeros)
        if has_grid_scan(self.program) or any(is_told(s) for s in self.program.body):
            self.told = f"getelementptr (i8, ptr addrspace(3) @shared, i64 {size})"
            size += WORKGROUP_ALIGN
        self.clears = size > 0
        if self.options.indirect:
            self.grid_told = f"getelementptr (i8, ptr addrspace(3) @shared, i64 {size})"
            size += WORKGROUP_ALIGN
        if size:
            # One block whose size the launch gives: static arrays stop at 48 KiB.
            # Every entry of a module says the same.
            align = SWIZZLE_BYTES if uses_tensor_cores(self.program) else WORKGROUP_ALIGN
            self.module.add_global(f"@shared = external addrspace(3) global [0 x i8], align {align}")
        return size

    def _clear_workgroup(self, size_bytes: int) -> None:
        """The workgroup's threads fill the beginning of its block with zeros, 16 bytes at a time, and wait at a barrier."""
        w = self.w
        x, y, z = self.program.workgroup
        start = self._local_index()
        head, body, done = w.label("fill"), w.label("fill_more"), w.label("filled")
        before = w.current
        w.block(head)
        at, following = w.name(), w.name()
        w.line(f"{at} = phi i32 [ {start}, %{before} ], [ {following}, %{body} ]")
        w.branch(w.let(f"icmp ult i32 {at}, {size_bytes // WORKGROUP_ALIGN}"), body, done)
        w.block(body)
        wide = w.let(f"zext i32 {at} to i64")
        place = w.let(f"getelementptr <4 x i32>, ptr addrspace(3) @shared, i64 {wide}")
        w.line(f"store <4 x i32> zeroinitializer, ptr addrspace(3) {place}, align {WORKGROUP_ALIGN}")
        w.line(f"{following} = add i32 {at}, {x * y * z}")
        w.jump(head)
        w.block(done)
        self._barrier()

    # ---- atoms and queries

    def atom(self, atom: Atom) -> str:
        """The name of an operand."""
        if isinstance(atom, Value):
            return self.values[atom.id]
        if isinstance(atom, Const):
            return literal(atom)
        if isinstance(atom, Param):
            return self.params[atom]
        return self._size(atom, u32)

    def _size(self, expr: DimExpr, type_: Type) -> str:
        return str(expr.value) if isinstance(expr, DimConst) else self.sizes[expr, type_]

    def _bind_groups(self) -> None:
        """How many groups of elements the axes of views have, of which the layout has the elements: these divide them."""
        for memory in self.program.buffers:
            type_ = u64 if memory in self.program.widths.buffers else u32
            for expr in memory.shape:
                if isinstance(expr, DimOp) and (expr, type_) not in self.sizes and (expr.left, type_) in self.sizes and isinstance(expr.right, DimConst):
                    self.sizes[expr, type_] = self.w.let(f"udiv {llvm_type(type_)} {self._size(expr.left, type_)}, {expr.right.value}")

    def _register(self, name: str, axis: str) -> str:
        return self.w.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}.{axis}")

    def _local_index(self) -> str:
        x, y, _ = self.program.workgroup
        w = self.w
        place = self._register("tid", "x")
        for axis, stride in (("y", x), ("z", x * y)):
            if self.program.workgroup["xyz".index(axis)] > 1:
                rows = w.let(f"mul i32 {self._register('tid', axis)}, {stride}")
                place = w.let(f"add i32 {place}, {rows}")
        return place

    def _query(self, op: Op) -> str:
        name, _, axis = op.name.partition(".")
        if name == "local_index":
            return self._local_index()
        size = self.program.workgroup["xyz".index(axis)]
        if name == "workgroup_size":
            return str(size)
        if name == "global_id":
            first = self.w.let(f"mul i32 {self._grid('workgroup_id', axis)}, {size}")
            return self.w.let(f"add i32 {first}, {self._register('tid', axis)}")
        return self._register("tid", axis) if name == "local_id" else self._grid(name, axis)

    def _grid(self, query: str, axis: str) -> str:
        """The workgroup's place in the grid, the grid's size, or how many workgroups walk through it."""
        if self.places is not None and query == "workgroup_id":
            return self.places["xyz".index(axis)]
        if query == "num_workgroups" and (self.walks or self.walked):
            return self.groups["xyz".index(axis)]
        if self.walked:
            return PLACES["xyz".index(axis)]
        return self._register(_QUERIES[query], axis)

    def let(self, index: int, s: Let) -> None:
        if s.op.is_query:
            self.values[s.bound.id] = self._query(s.op)
        elif (size := whole_size(s)) is not None:
            self.values[s.bound.id] = self._size(size, u64)
        elif (signature := signature_of(s)) in self.optimised.functions:
            assert signature is not None  # none of them is
            operands = [f"{llvm_type(a.type)} {self.atom(a)}" for a in s.args]
            self.values[s.bound.id] = self.w.let(f"call {llvm_type(signature.result)} @{signature.name}({', '.join(operands)})")
        elif s.op is JOINED:
            self.values[s.bound.id] = self.cores.join(s)
        else:
            names = self.loops.operands(index, [self.atom(a) for a in s.args])
            if self.cores.narrows(s):
                self.values[s.bound.id] = self.cores.narrow(s.bound.type, names[0])
                return
            if s.bound in self.reciprocals:
                self.values[s.bound.id] = reciprocal(self.w, names[1])
                return
            if s.op.name == "div" and s.bound.type is f32 and self.calls_nothing:
                self.values[s.bound.id] = quotient(self.w, *names)
                return
            self.values[s.bound.id] = NVPTX_EMITTERS[s.op.name](self.w, 1, s.args[-1].type, s.bound.type, names)

    # ---- memory

    def _axes(self, s: MemoryStatement) -> tuple[list[str], list[Type], list[str], bool]:
        """Names and types of an access' indices, names of the extents, and whether those have 64 bits."""
        wide = s.memory in self.program.widths.buffers
        extents = [self._size(e, u64 if wide else u32) for e in s.memory.shape]
        return [self.atom(a) for a in s.indices], [a.type for a in s.indices], extents, wide

    def _element(self, index: int, s: MemoryStatement) -> str:
        """The element's typed pointer; every index is inside."""
        pointer, type_, access = _POINTERS[s.memory.space], memory_type(s.memory.type), self.adjacent.get(index)
        if access is not None and access.leader != index:
            base, place = self.leaders[access.leader], str(access.elements)
        else:
            base, place = self.bases[s.memory], offset(self.w, *self._axes(s))
        element = self.w.let(f"getelementptr {type_}, {pointer} {base}, i64 {place}")
        if access is not None:
            self.leaders[index] = element
        return f"{pointer} {element}"

    def _align(self, index: int, s: MemoryStatement) -> int:
        """What the element's address is known to be a multiple of."""
        return self.adjacent[index].align_bytes if index in self.adjacent else s.memory.type.size_bytes

    def _guarded(self, s: MemoryStatement, proven: int, access: Callable[[], str], given_as: tuple[str, str] | None = None) -> str:
        """Runs `access` where all indices are inside that are not `proven`; gives its result, zero where one is outside, "" if it gives none.
        The LLVM type of the result, and its zero, are the element's unless given."""
        w = self.w
        condition = inside(w, *self._axes(s), proven)
        if not condition:
            return access()
        within, past = w.label("inside"), w.label("past")
        before, known = w.current, w.known
        w.branch(condition, within, past)
        w.block(within)
        given = access()
        after = w.current
        w.block(past)
        w.known = known
        if not given:
            return ""
        type_, zero = given_as or (llvm_type(s.memory.type), "false" if s.memory.type.kind is Kind.BOOL else number(s.memory.type, 0))
        return w.let(f"phi {type_} [ {given}, %{after} ], [ {zero}, %{before} ]")

    def _is_placed(self, index: int, s: MemoryStatement) -> bool:
        """Whether an element of a buffer is accessed at the assembler's address, in a Program of many such accesses, unless it is inside in any case."""
        elements = s.memory.space is Space.BUFFER and s.memory.type.kind is not Kind.BOOL and index not in self.adjacent
        return elements and self.by_cores and self.proven[index] + 1 < 1 << s.memory.rank

    def _placed(self, index: int, s: MemoryStatement) -> tuple[placed.Place, str]:
        """Where such an element is; and whether it is inside, as far as its column does not say so."""
        w, proven, last = self.w, self.proven[index], s.memory.rank - 1
        size, base, (indices, types, extents, wide) = s.memory.type.size_bytes, self.bases[s.memory], self._axes(s)
        if wide or proven >> last or types[last] is not u32 or not WIDE_TYPES.isdisjoint(types):
            return placed.Place(size, base, *addressing.number(w, indices, types, extents, wide)), inside(w, indices, types, extents, wide, proven)
        row, column = addressing.number(w, [*indices[:last], "0"], types, extents, wide), placed.Column(*self._apart(s.indices[last]), extents[last])
        return placed.Place(size, base, *row, column), inside(w, indices[:last], types[:last], extents[:last], wide, proven)

    def _apart(self, index: Atom) -> tuple[str, int]:
        """A u32 as one that neighbours share, and how far beyond it lies."""
        first, second = self._summands(index)
        if isinstance(second, Const):
            return self.atom(first), second.bits
        then, last = (None, None) if second is None else self._summands(second)
        if then is None or not isinstance(last, Const):
            return self.atom(index), 0
        return self.w.shared(f"add i32 {self.atom(first)}, {self.atom(then)}"), last.bits

    def _summands(self, atom: Atom) -> tuple[Atom, Atom | None]:
        """The two that an atom is the sum of; itself alone if it is none."""
        made = self.program.body[self.made_at[atom.id]] if isinstance(atom, Value) else None
        return (made.args[0], made.args[1]) if isinstance(made, Let) and made.op.name == "add" else (atom, None)

    def _frozen(self, index: int, s: MemoryStatement) -> str:
        """The loaded element, one value whatever races."""
        return self._loaded(s.memory.type, f"{self._element(index, s)}, align {self._align(index, s)}{self._unchanged(s.memory)}")

    def _loaded(self, type_: Type, place: str) -> str:
        w, memory = self.w, memory_type(type_)
        loaded = w.let(f"load {memory}, {place}")
        frozen = w.let(f"freeze {memory} {loaded}")
        return w.let(f"icmp ne {memory} {frozen}, 0") if type_.kind is Kind.BOOL else frozen

    def load(self, index: int, s: Load | UniformLoad) -> None:
        if s.memory in self.parameters:
            self.values[s.bound.id] = self.parameters[s.memory]
            return
        if self.cores.owns(s.memory):
            assert isinstance(s, Load)  # a private array is loaded from by no other
            self.values[s.bound.id] = self.cores.load(s)
            return
        if index in self.copied.silent:
            return
        if index in self.rows:
            self._load_row(index, s)
        if index in self.done:
            return
        if "readonly" in self._promises(s.memory) and self._is_placed(index, s):
            w, axes = self.w, self._axes(s)
            place = placed.Place(s.memory.type.size_bytes, self.bases[s.memory], *addressing.number(w, *axes))
            self.values[s.bound.id] = placed.load(w, s.memory.type, place, inside(w, *axes, self.proven[index]))
            return
        self.values[s.bound.id] = self._guarded(s, self.proven[index], lambda: self._frozen(index, s))

    def _row(self, index: int, s: MemoryStatement, row: Row) -> str:
        """The typed pointer to a row's group, and what it is a multiple of; every index is inside."""
        element = self._element(index, s)
        if row.lanes[0]:
            element = f"{_POINTERS[s.memory.space]} {self.w.let(f'getelementptr {memory_type(s.memory.type)}, {element}, i64 {-row.lanes[0]}')}"
        return f"{element}, align {row.size_bytes(s)}"

    def _row_proven(self, index: int, s: MemoryStatement) -> int:
        """The axes that need no check: the last one's index is a number within it, where there is more than one axis."""
        return self.proven[index] | (1 << s.memory.rank - 1 if s.memory.rank > 1 else 0)

    def _load_row(self, index: int, s: Load | UniformLoad) -> None:
        """One access for neighbours: each load's value is one of its lanes."""
        w, row, type_ = self.w, self.rows[index], memory_type(s.memory.type)
        many = f"<{row.width} x {type_}>"

        def read() -> str:
            return w.let(f"freeze {many} {w.let(f'load {many}, {self._row(index, s, row)}{self._unchanged(s.memory)}')}")

        loaded = self._guarded(s, self._row_proven(index, s), read, (many, "zeroinitializer"))
        for number_, lane in enumerate(row.lanes, index):
            one = w.let(f"extractelement {many} {loaded}, i32 {lane}")
            self.values[self.program.body[number_].bound.id] = w.let(f"icmp ne {type_} {one}, 0") if s.memory.type.kind is Kind.BOOL else one
        self.done.update(range(index, index + len(row.lanes)))

    def _store_row(self, index: int, s: Store) -> None:
        w, row, type_ = self.w, self.rows[index], memory_type(s.memory.type)
        many, made = f"<{row.width} x {type_}>", "undef"
        for number_, lane in enumerate(row.lanes, index):
            value = self._in_memory(s.memory.type, self.atom(self.program.body[number_].args[-1]))
            made = w.let(f"insertelement {many} {made}, {type_} {value}, i32 {lane}")

        def write() -> str:
            w.line(f"store {many} {made}, {self._row(index, s, row)}")
            return ""

        self._guarded(s, self._row_proven(index, s), write)
        self.done.update(range(index, index + len(row.lanes)))

    def uniform_load(self, index: int, s: UniformLoad) -> None:
        self._barrier()
        if is_told(s):
            self._load_and_tell(index, s)
        else:
            self.load(index, s)
            self._barrier()

    def _load_and_tell(self, index: int, s: UniformLoad) -> None:
        """One invocation loads, and the others read what it found. They have read it before the next one is told: a uniform load begins with a barrier."""
        w, type_ = self.w, memory_type(s.memory.type)
        tell, told = w.label("tell"), w.label("told")
        place = w.let(f"getelementptr {type_}, ptr addrspace(3) {self.told}, i64 0")
        w.branch(w.let(f"icmp eq i32 {self._local_index()}, 0"), tell, told)
        w.block(tell)
        self.load(index, s)
        w.line(f"store {type_} {self._in_memory(s.memory.type, self.values[s.bound.id])}, ptr addrspace(3) {place}, align {s.memory.type.size_bytes}")
        w.jump(told)
        w.block(told)
        self._barrier()
        self.values[s.bound.id] = self._loaded(s.memory.type, f"ptr addrspace(3) {place}, align {s.memory.type.size_bytes}")

    def _in_memory(self, type_: Type, value: str) -> str:
        """A value as it lies in memory, where a bool is a byte."""
        return self.w.let(f"zext i1 {value} to {memory_type(type_)}") if type_.kind is Kind.BOOL else value

    def store(self, index: int, s: Store) -> None:
        if s.memory is self.result:
            self.w.end(f"ret {llvm_type(s.memory.type)} {self.atom(s.value)}")
            return
        if self.cores.owns(s.memory):
            self.cores.store(s)
            return
        if index in self.rows:
            self._store_row(index, s)
        if index not in self.done:
            self._write(index, s)

    def _write(self, index: int, s: Store | CopyAsync) -> None:
        """One element."""
        if self._is_placed(index, s):
            self._store_placed(index, s)
            return

        def write() -> str:
            type_, value = memory_type(s.memory.type), self._in_memory(s.memory.type, self.atom(s.value))
            self.w.line(f"store {type_} {value}, {self._element(index, s)}, align {self._align(index, s)}")
            return ""

        self._guarded(s, self.proven[index], write)

    def _store_placed(self, index: int, s: Store | CopyAsync) -> None:
        """Stores an element, and those of the statements that follow, as far as the same says that they are inside."""
        w, body, (place, is_inside) = self.w, self.program.body, self._placed(index, s)
        run: list[tuple[Store | CopyAsync, placed.Place]] = [(s, place)]
        for number_ in range(index + 1, len(body)):
            then = body[number_]
            if not isinstance(then, Store) or number_ in self.rows or not self._is_placed(number_, then):
                break
            place, other = self._placed(number_, then)
            if other != is_inside:
                break
            run.append((then, place))
            self.done.add(number_)
        within, past, known = w.label("inside"), w.label("past"), w.known
        if is_inside:
            w.branch(is_inside, within, past)
            w.block(within)
        for one, at in run:
            placed.store(w, one.memory.type, at, self.atom(one.value))
        if is_inside:
            w.block(past)
            w.known = known

    def tensor_core(self, index: int, s: TensorCore) -> None:
        self.cores.multiply(s)

    def matrix_load(self, index: int, s: MatrixLoad) -> None:
        self.cores.load_matrices(s, self.bases[s.source])

    def warpgroup_product(self, index: int, s: WarpgroupProduct) -> None:
        self.cores.begin(s, self.bases)

    def warpgroup_wait(self, index: int, s: WarpgroupWait) -> None:
        self.cores.wait(s)

    def warpgroup_signal(self, index: int, s: WarpgroupSignal) -> None:
        self.cores.signal(s)

    def warpgroup_barrier(self, index: int, s: WarpgroupBarrier) -> None:
        self.cores.fence()
        self.w.line(f'call void asm sideeffect "bar.sync {_BARRIER}, {s.count};", "~{{memory}}"() convergent')

    def cluster_barrier(self, index: int, s: ClusterBarrier) -> None:
        self.boxes.meet()

    def warpgroup_registers(self, index: int, s: WarpgroupRegisters) -> None:
        self.limits = ' "nvvm.minctasm"="1"'  # the assembler takes no heed of it otherwise
        self.w.line(f'call void asm sideeffect "setmaxnreg.{"inc" if s.more else "dec"}.sync.aligned.u32 {s.count};", ""() convergent')

    # ---- copies into workgroup memory

    def arrivals_set(self, index: int, s: ArrivalsSet) -> None:
        self.boxes.set(s)

    def arrivals_expect(self, index: int, s: ArrivalsExpect) -> None:
        self.boxes.expect(s)

    def arrivals_tell(self, index: int, s: ArrivalsTell) -> None:
        self.boxes.tell(s)

    def arrivals_wait(self, index: int, s: ArrivalsWait) -> None:
        self.boxes.wait(s)

    def box_copy(self, index: int, s: BoxCopy) -> None:
        self.boxes.copy(s)

    def copy_async(self, index: int, s: CopyAsync) -> None:
        if index in self.done:
            return
        if (number_ := self.copied.loads.get(index)) is None:
            self._write(index, s)
            return
        load, count = self.program.body[number_], self.copied.counts.get(index, 1)
        assert isinstance(load, Load)  # what is copied

        def begin() -> str:
            w, axes = self.w, self._axes(load)
            target = w.let(f"ptrtoint {self._element(index, s)} to i64")
            condition = inside(w, *axes, self._row_proven(number_, load) if count > 1 else self.proven[number_])
            place, bits = addressing.number(w, *axes) if self.by_cores else (offset(w, *axes), 64)
            if condition:
                place = w.let(f"select i1 {condition}, i{bits} {place}, i{bits} 0")  # nothing is read there, yet it is an address
            source: str | placed.Place
            if self.by_cores:
                source = placed.Place(load.memory.type.size_bytes, self.bases[load.memory], place, bits)
            else:
                element = w.let(f"getelementptr {memory_type(load.memory.type)}, ptr addrspace(1) {self.bases[load.memory]}, i64 {place}")
                source = w.let(f"ptrtoint ptr addrspace(1) {element} to i64")
            async_copies.copy(w, target, source, count * s.memory.type.size_bytes, condition)
            return ""

        self._guarded(s, self._row_proven(index, s) if count > 1 else self.proven[index], begin)
        self.done.update(range(index, index + count))

    def strip_copy(self, index: int, s: StripCopy) -> None:
        wide = s.source in self.program.widths.buffers
        extents = [self._size(e, u64 if wide else u32) for e in s.source.shape]
        indices = [self.atom(a) for a in s.args[1:]]
        places = self.bases[s.memory], self.atom(s.args[0]), self.bases[s.source]
        async_copies.copy_strip(self.w, s, places, indices, [a.type for a in s.args[1:]], extents, wide=wide)

    def copy_commit(self, index: int, s: CopyCommit) -> None:
        async_copies.commit(self.w)

    def copy_wait(self, index: int, s: CopyWait) -> None:
        async_copies.wait(self.w, s.groups)

    def atomic(self, index: int, s: Atomic) -> None:
        space, type_ = s.memory.space, s.memory.type

        def perform(order: Order) -> str:
            operands = [self.atom(a) for a in s.operands]
            return atomic_operation(self.w, s.op, type_, self._element(index, s), operands, NVPTX_EMITTERS, order, scope_of(space))

        def change() -> str:
            old = in_order(self.w, s.op, space, perform)
            return self.w.let(f"freeze {llvm_type(type_)} {old}") if s.binds else ""

        found = self._guarded(s, self.proven[index], change)
        if s.result is not None:
            self.values[s.result.id] = found

    # ---- variables

    def var(self, index: int, s: Var) -> None:
        self.variables[s.variable.id] = self.w.local(llvm_type(s.variable.type))
        self.set(index, s)

    def get(self, index: int, s: Get) -> None:
        self.values[s.bound.id] = self.w.let(f"load {llvm_type(s.variable.type)}, ptr {self.variables[s.variable.id]}")

    def set(self, index: int, s: Var | Set) -> None:
        self.w.line(f"store {llvm_type(s.variable.type)} {self.atom(s.args[0])}, ptr {self.variables[s.variable.id]}")

    # ---- control

    def if_(self, index: int, s: If) -> None:
        w = self.w
        yes, no, after = w.label("then"), w.label("else"), w.label("endif")
        has_else = isinstance(self.program.body[self.program.match[index]], Else)
        w.branch(self.atom(s.args[0]), yes, no if has_else else after)
        w.block(yes)
        self.blocks.append(Block(s, lambda: w.block(after), again=no, leave=after))

    def else_(self, index: int, s: Else) -> None:
        block = self.blocks[-1]
        self.w.jump(block.leave)
        self.w.block(block.again)

    def for_(self, index: int, s: For) -> None:
        block, self.values[s.bound.id] = self.loops.for_(index, s, self.atom(s.args[0]), self.atom(s.args[1]))
        self.blocks.append(block)

    def loop(self, index: int, s: Loop) -> None:
        self.blocks.append(self.loops.loop(index, s))

    def region(self, index: int, s: Region) -> None:
        self.blocks.append(Block(s, lambda: None))

    def end(self, index: int, s: End) -> None:
        self.blocks.pop().end()

    def _depart(self, terminator: str) -> None:
        """Leaves; what follows in this block, if anything, is never reached."""
        self.w.end(terminator)
        self.w.block(self.w.label("never"))

    def _turned(self) -> Block:
        return next(b for b in reversed(self.blocks) if isinstance(b.opener, (For, Loop)))

    def break_(self, index: int, s: Break) -> None:
        self._depart(f"br label %{self._turned().leave}")

    def continue_(self, index: int, s: Continue) -> None:
        self._depart(f"br label %{self._turned().again}")

    def return_(self, index: int, s: Return) -> None:
        self._depart("ret void")

    def _barrier(self) -> None:
        self.cores.fence()
        if self._parts_warps:
            gather(self.w, prod(self.program.workgroup), self._local_index())
        self.w.run("llvm.nvvm.barrier0")

    def barrier(self, index: int, s: Barrier) -> None:
        self._barrier()

    def fence(self, index: int, s: Fence) -> None:
        fence(self.w, s.scope)

    def together(self, index: int, s: Subgroup) -> None:
        self.values[s.bound.id] = together(self.w, s, self.program.subgroup, self._local_index(), [self.atom(a) for a in s.args])

    def take_ticket(self) -> None:
        """Where there are scans over the grid: the workgroup's number is its ticket from here on."""
        if (words := self.words.get(SlotKind.SCANS)) is not None:
            self.scans = GridScans(self.w, self.program, words, self.told, self._local_index, self._barrier, self.loops.pause)
            self.places = self.scans.begin()

    def grid_scan(self, index: int, s: GridScan) -> None:
        assert self.scans is not None  # the layout has a slot for them
        self.values[s.bound.id] = self.scans.scan(s, self.atom(s.args[0]))

    def grid_barrier(self, index: int, s: GridBarrier) -> None:
        self._barrier()
        meet_grid(self.w, self.words[SlotKind.ARRIVALS], self._local_index(), self.loops.pause)
        self._barrier()


_HANDLERS: Final[Handlers[Callable[[_SimtWalk, int, Any], None]]] = Handlers("the ptx target", {
    Let: _SimtWalk.let, Load: _SimtWalk.load, Store: _SimtWalk.store, UniformLoad: _SimtWalk.uniform_load,
    **dict.fromkeys(ATOMIC_KINDS, _SimtWalk.atomic), **dict.fromkeys(FENCES.values(), _SimtWalk.fence),
    Var: _SimtWalk.var, Get: _SimtWalk.get, Set: _SimtWalk.set,
    If: _SimtWalk.if_, Else: _SimtWalk.else_, For: _SimtWalk.for_, Loop: _SimtWalk.loop, Region: _SimtWalk.region, End: _SimtWalk.end,
    Break: _SimtWalk.break_, Continue: _SimtWalk.continue_, Return: _SimtWalk.return_, Barrier: _SimtWalk.barrier, GridBarrier: _SimtWalk.grid_barrier,
    Subgroup: _SimtWalk.together, TensorCore: _SimtWalk.tensor_core, MatrixLoad: _SimtWalk.matrix_load,
    WarpgroupProduct: _SimtWalk.warpgroup_product, WarpgroupWait: _SimtWalk.warpgroup_wait,
    WarpgroupSignal: _SimtWalk.warpgroup_signal, WarpgroupBarrier: _SimtWalk.warpgroup_barrier, WarpgroupRegisters: _SimtWalk.warpgroup_registers,
    ClusterBarrier: _SimtWalk.cluster_barrier,
    ArrivalsSet: _SimtWalk.arrivals_set, ArrivalsExpect: _SimtWalk.arrivals_expect, ArrivalsTell: _SimtWalk.arrivals_tell,
    ArrivalsWait: _SimtWalk.arrivals_wait, BoxCopy: _SimtWalk.box_copy,
    GridScan: _SimtWalk.grid_scan,
    CopyAsync: _SimtWalk.copy_async, StripCopy: _SimtWalk.strip_copy, CopyCommit: _SimtWalk.copy_commit, CopyWait: _SimtWalk.copy_wait,
}, without={**WITHOUT_REPORTS, **WITHOUT_TILES})  # fmt: skip


def _write_function(signature: Signature, optimised: Optimised, module: ModuleText, attributes: str, *, inlined: bool, calls_nothing: bool) -> None:
    """Adds the function that an op is left to, perhaps to be `inlined` wherever it is called: a call would have to keep the sums of tensor cores."""
    walk = _SimtWalk(optimised, module, _PLAIN, lay_out(optimised.program), None, says_unchanged=False)
    walk.prefix = f"{signature.name}_"
    walk.calls_nothing = calls_nothing
    walk.parameters = {memory: f"%x{k}" for k, memory in enumerate(parameters_of(optimised.program))}
    walk.result = result_of(optimised.program)
    walk.memories()
    for index, statement in enumerate(walk.program.body):
        _HANDLERS[type(statement)](walk, index, statement)
    operands = ", ".join(f"{llvm_type(memory.type)} {name}" for memory, name in walk.parameters.items())
    head = f"define internal {llvm_type(signature.result)} @{signature.name}({operands})"
    module.define(walk.w.function(f"{head} {'alwaysinline' if inlined else 'noinline nounwind'}{attributes}"))


def write_kernel(
    optimised: Optimised, module: ModuleText, symbol: str, options: CompileOptions = _PLAIN, *, flush: bool = False, coarsened: Coarsened | None = None,
    says_unchanged: bool = False,
) -> int:  # fmt: skip
    """Adds the kernel to a module, or its coarsened form, which takes the same arguments; gives its bytes of workgroup memory.

    The Program's ops all have rows (`legal.require_ops`), and a persistent one has no grid barrier and no scan over the grid. Raises Unsupported for one that
    is too long.

    To `flush` means that f32 computes with zeros in place of subnormal numbers; `says_unchanged` that loads tell which memory nothing writes.
    """
    layout = layout_of(optimised, options)
    walk = _SimtWalk(optimised if coarsened is None else coarsened.optimised, module, options, layout, coarsened, says_unchanged)
    _HANDLERS.require(walk.program)
    w = walk.w
    if options.dependent and not walk.walked:
        let_next_begin(w)
    workgroup_bytes = walk.memories()
    if options.dependent and not walk.walked:
        wait_for_earlier(w)
    walk.take_ticket()
    read = ReadGrid(walk.words[SlotKind.GRID], walk.grid_told, walk.program.workgroup) if options.indirect else None
    if read is not None and not walk.walked:
        walk.groups = read.begin(w)
    if not walk.walked:
        walk.loops.begin()
    for index, statement in enumerate(walk.program.body):
        w.place = walk.lines.at(index)
        walk.loops.reach(index)
        _HANDLERS[type(statement)](walk, index, statement)
        w.require_room(index + 1, len(walk.program.body))
    w.end("ret void")
    subnormals = ' "denormal-fp-math-f32"="preserve-sign,preserve-sign"' if flush else ""
    for signature, function in walk.optimised.functions.items():
        _write_function(signature, function, module, subnormals, inlined=walk.cores.has_products, calls_nothing=walk.calls_nothing)
    if walk.walked:
        body, arguments = f"{symbol}_workgroup", [(type_, name) for type_, _, name in walk.signature]
        flag = walk.words.get(SlotKind.CANCEL, "")
        w.finish(f"define internal void @{body}({body_parameters(arguments, flag, read=options.indirect)}) alwaysinline{subnormals}")
        copies = bool(walk.copied.loads)
        w = write_walk(module, body, arguments, read or walk.groups, flag=flag, clears=walk.clears, copies=copies, dependent=options.dependent)
    size = ",".join(map(str, walk.program.workgroup))
    parameters = ", ".join(f"{type_} {attributes}{name}" for type_, attributes, name in walk.signature)
    w.finish(f'define ptx_kernel void @{symbol}({parameters}) "nvvm.reqntid"="{size}"{walk.limits}{subnormals}{walk.lines.attached}')
    return workgroup_bytes
