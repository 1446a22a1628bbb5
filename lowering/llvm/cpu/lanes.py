"""The lanes walk: invocations are SIMD lanes of one thread, `width` at a time; uniform values stay scalar, divergence is masks.

The model is ispc's (Pharr and Mark, "ispc: A SPMD compiler for high-performance CPU programming", 2012), with barriers as in
pocl: they divide a body into barrier-free regions, each a loop over the chunks of the workgroup. The kernel is
`void vyre_kernel(ptr block, ptr scratch, i64 first, i64 end, i32 x, i32 y, i32 z)`: it runs workgroups first to end, numbered with x
fastest, of a grid of x * y * z; `block` is the argument block of `lowering.layout`, `scratch` memory of the thread, aligned to 64 bytes,
which holds workgroup memory, private arrays and all that lives across barriers.

One module because functions, which ops are left to, are written by the same walk as kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from vyre_py.ir.check.facts import has_grid_barrier
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.functions.called import Signature, parameters_of, signature_of
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    Access,
    Atomic,
    Barrier,
    Fence,
    Get,
    GridBarrier,
    GridScan,
    Let,
    Load,
    Pack,
    PackedProduct,
    Set,
    Space,
    Statement,
    Store,
    Subgroup,
    UniformLoad,
    Unpack,
    Value,
    Var,
    const,
)
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.widths import whole_size
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.arrivals import meet
from vyre_py.lowering.llvm.cpu.atomics import Atomics
from vyre_py.lowering.llvm.cpu.host_targets import TARGETS, HostTarget
from vyre_py.lowering.llvm.cpu.masks import CONTROL, Control, Frame
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.micro_kernels import MicroKernels
from vyre_py.lowering.llvm.cpu.neighbours import Neighbours
from vyre_py.lowering.llvm.cpu.permutes import Permutes
from vyre_py.lowering.llvm.cpu.plan.interior import find_interior
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.rows import Rows
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.strides import Strides, Turned
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability, calculate
from vyre_py.lowering.llvm.cpu.variables import Variables
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.legal import orders_memory
from vyre_py.lowering.llvm.lines import LineTables, lines_of
from vyre_py.lowering.llvm.ops import HOST_EMITTERS
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.llvm.types import bits_type, literal, llvm_type
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import WIDEST_BYTES

if TYPE_CHECKING:
    from vyre_py.ir.passes import Optimised
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.lowering.legal.asserts import WITHOUT_REPORTS
from vyre_py.lowering.legal.plain_copies import WITHOUT_COPIES

__all__ = ["SYMBOL", "LaneKernel", "emit_lanes"]

SYMBOL: Final = "vyre_kernel"
_PLAIN: Final = CompileOptions()
_USUAL: Final = TARGETS["x86-64-v3"]
# Where one in so many operations gathers or scatters, lanes gain less by the others than they lose: such an access takes about three times what it
# does lane by lane, and any other operation an eighth. Measured with AVX2: rows of a sparse matrix, three gathers for two floating-point operations.
_SCATTERED: Final = 3


@dataclass(frozen=True, slots=True)
class LaneKernel:
    """A kernel as LLVM IR, and the bytes of scratch memory that a thread needs to run it; `workgroup_bytes` of them are workgroup memory. `scattered` says that
    so many of its accesses gather or scatter that fewer lanes are faster, `widest` of how many bits the widest values are of which it has vectors, `parts`
    that lanes part."""

    text: str
    scratch_bytes: int
    workgroup_bytes: int
    scattered: bool = False
    widest: int = 32
    parts: bool = False


class _LaneWalk:
    """Writes one kernel, statement by statement."""

    handlers: ClassVar[Mapping[type[Statement], Callable[..., int]]]

    def __init__(self, state: State, border: int = 0) -> None:
        self.state = state
        self.w = state.w
        self.lines = lines_of(self.state.module, self.state.program)
        self.w.place = self.lines.head
        self.memories = Memories(self.state)
        self.rows = Rows(self.memories)
        self.strides = Strides(self.memories, self.let)
        self.turned = Turned(self.memories, self.let)
        self.atomics = Atomics(self.memories)
        self.permutes = Permutes(self.state)
        self.micro_kernels = MicroKernels(self.memories)
        self.control = Control(self.memories)
        self.number = ""  # that of the workgroup
        self.has_interior = True
        self.border = self._border_lanes(border)
        self.neighbours = Neighbours(self.memories, self.control, bool(self.border), self._region, self._call_run)
        self.border_called = self.run_called = False
        self.variables = Variables(self.state)
        self.totals: dict[int, str] = {}  # grid scan, by its index -> where what the workgroups so far come to is kept

    def _border_lanes(self, lanes: int) -> int:
        """How many lanes the function has that chunks at a border are left to; 0 where there is none, since what they do lives on after it."""
        state = self.state
        return 0 if state.plan.has_barriers or state.areas or state.saved_bytes or state.optimised.functions else lanes

    # ---- workgroups

    def kernel(self) -> None:
        """The loop over workgroups."""
        w, state = self.w, self.state
        state.load_arguments()
        state.groups = {f"num_workgroups.{axis}": f"%n{axis}" for axis in "xyz"}
        number, places = w.local("i64"), [w.local("i32") for _ in "xyz"]
        w.line(f"store i64 %first, ptr {number}")
        some, head, body, following, done = (w.label(hint) for hint in ("some", "group", "workgroup", "next", "finished"))
        # A grid of no workgroups is nothing to divide by.
        w.branch(w.let("icmp ult i64 %first, %end"), some, done)
        w.block(some)
        self._begin_scans()
        self._first_place(places)
        w.block(head)
        now = self.number = w.let(f"load i64, ptr {number}")
        w.branch(w.let(f"icmp ult i64 {now}, %end"), body, done)
        w.block(body)
        state.ended = done
        state.look()
        for axis, place in zip("xyz", places, strict=True):
            state.groups[f"workgroup_id.{axis}"] = w.let(f"load i32, ptr {place}")
        many = self.neighbours.rows(now) if self.neighbours.has_rows() else ""
        if not many:
            self.memories.begin_workgroup()
            if state.plan.keeps_alive:
                self.control.fill_masks(self.control.alive_offset)
            self.control.frames.append(Frame(len(state.program.body), None, following, True, True))
            self._body()
        w.place = self.lines.head
        w.block(following)
        step = w.let(f"zext i32 {many} to i64") if many else "1"
        w.line(f"store i64 {w.let(f'add i64 {now}, {step}')}, ptr {number}")
        self._next_place(places, many or "1")
        w.end(f"br label %{head}, !llvm.loop !0")
        w.block(done)
        w.end("ret void")

    def _begin_scans(self) -> None:
        """Locals of the function: the launch runs the grid by one call."""
        for index, s in enumerate(self.state.program.body):
            if isinstance(s, GridScan):
                type_ = s.bound.type
                self.totals[index] = self.w.local(llvm_type(type_))
                self.w.line(f"store {llvm_type(type_)} {literal(const(type_, GRID_FOLDS[s.fold].identity(type_)))}, ptr {self.totals[index]}")

    def _first_place(self, places: list[str]) -> None:
        """Of small grids the first is the origin, for which nothing is divided."""
        w = self.w
        for place in places:
            w.line(f"store i32 0, ptr {place}")
        later, placed = w.label("later"), w.label("placed")
        w.branch(w.let("icmp eq i64 %first, 0"), placed, later)
        w.block(later)
        rest = "%first"
        for axis, place in zip("xyz", places, strict=True):
            count = w.let(f"zext i32 %n{axis} to i64")
            digit = w.let(f"urem i64 {rest}, {count}")
            w.line(f"store i32 {w.let(f'trunc i64 {digit} to i32')}, ptr {place}")
            rest = w.let(f"udiv i64 {rest}, {count}")
        w.jump(placed)
        w.block(placed)

    def _next_place(self, places: list[str], many: str) -> None:
        """Counts x, y, z up like digits, which is cheaper than dividing again."""
        w = self.w
        for axis, place in zip("xyz", places, strict=True):
            more = w.let(f"add i32 {self.state.groups[f'workgroup_id.{axis}']}, {many}")
            full = w.let(f"icmp eq i32 {more}, %n{axis}")
            w.line(f"store i32 {w.let(f'select i1 {full}, i32 0, i32 {more}')}, ptr {place}")
            many = w.let(f"zext i1 {full} to i32")

    def _body(self) -> None:
        index = 0
        while index < len(self.state.program.body):
            region = self.state.plan.regions.get(index)
            if region is None:
                index = self._statement(index)
            else:
                self._whole_region(region)
                index = region.stop

    def _statement(self, index: int) -> int:
        if index in self.strides.done:  # written ahead
            self.strides.done.remove(index)
            return index + 1
        statement = self.state.program.body[index]
        self.w.place = self.lines.at(index)
        self.w.require_room(index + 1, len(self.state.program.body))
        control = CONTROL.get(type(statement))
        if control is not None:
            return control(self.control, index, statement)
        return self.handlers[type(statement)](self, index, statement)

    # ---- regions

    def _whole_region(self, region: BarrierFreeRegion) -> None:
        """A region, for all chunks of the workgroup."""
        w, following = self.w, self.turned.blocks(region)
        if not following:
            self._region(region)
            return
        rest, done, had = w.label("rest"), w.label("copied"), self.has_interior
        w.branch(w.let(f"icmp ult i64 {following}, {self.state.chunks}"), rest, done)
        w.block(rest)
        self.has_interior = False  # what lies inside is done
        self._region(region, following)
        w.block(done)
        self.has_interior = had

    def _region(self, region: BarrierFreeRegion, first: str = "0", end: str = "") -> None:
        """A loop over the chunks of the workgroup, or over those from `first` to before `end`."""
        w, state = self.w, self.state
        w.place = self.lines.head
        shared = self.variables.shared(region)
        counter = w.local("i64")
        w.line(f"store i64 {first}, ptr {counter}")
        head, done, following = w.label("chunk"), w.label("chunkdone"), w.label("chunknext")
        w.block(head)
        state.region = region
        state.chunk = w.let(f"load i64, ptr {counter}")
        state.base = w.let(f"mul i32 {w.let(f'trunc i64 {state.chunk} to i32')}, {state.width}")
        self._first_mask(following)
        self.memories.begin_chunk()
        self._import(region)
        self.variables.share(shared)
        self.variables.load_carried(region)
        interior = find_interior(self.memories, region) if self.has_interior else None
        if interior is not None:
            within, border = w.label("interior"), w.label("border")
            w.branch(interior.condition, within, border)
            w.block(within)
            state.known, state.inside = interior.values, interior.inside
            self._run(region, done)
            state.mask, state.known, state.inside = None, {}, {}
            if w.open:
                w.jump(done)
            w.block(border)
        counted, groups = (state.work, state.gathers, state.widest, state.parts), state.groups
        if interior is not None and self.border and not interior.seldom:
            if interior.outside:
                some = w.label("some")
                w.branch(interior.outside, done, some)
                w.block(some)
            self._call_border()
        else:
            if interior is not None:
                self._hide_places()
            self._run(region, done)
        if interior is not None:  # few chunks are at a border
            state.groups, (state.work, state.gathers, state.widest, state.parts) = groups, counted
        w.block(done)
        self.variables.save_carried(region)
        w.block(following)
        more = w.let(f"add i64 {state.chunk}, 1")
        w.line(f"store i64 {more}, ptr {counter}")
        leave = w.label("ran")
        w.end(f"br i1 {w.let(f'icmp ult i64 {more}, {end or state.chunks}')}, label %{head}, label %{leave}, !llvm.loop !0")
        w.block(leave)
        state.region, state.mask, state.chunk, state.base = None, None, "0", "0"

    def _import(self, region: BarrierFreeRegion) -> None:
        """The values of other regions: where they are computed again, all that they take has an earlier number."""
        state, wanted = self.state, list(region.imports)
        found, again = set[int](), dict[int, int]()
        while wanted:
            value = wanted.pop(0)
            if value in found:
                continue
            found.add(value)
            index = state.plan.again.get(value)
            if index is None:
                state.values[value] = state.restore(value)
                continue
            again[value] = index
            wanted += [a.id for a in state.program.body[index].args if isinstance(a, Value) and state.is_elsewhere(a.id)]
        for value in sorted(again):
            s = state.program.body[again[value]]
            if isinstance(s, Load):
                self.memories.load(again[value], s)
            else:
                assert isinstance(s, Let)  # the plan has no others
                self.let(again[value], s)

    def _hide_places(self) -> None:
        """At a border, reads where the chunk is anew, in a way that LLVM can't see through: it would compute the masks of borders ahead, for all chunks."""
        w, state = self.w, self.state

        def hidden(name: str) -> str:
            place = w.local("i32")
            w.line(f"store volatile i32 {name}, ptr {place}")
            return w.let(f"load volatile i32, ptr {place}")

        state.base = hidden(state.base)
        state.groups = {query: hidden(name) if query.startswith("workgroup_id") else name for query, name in state.groups.items()}

    def _call_border(self) -> None:
        """Leaves the chunk to a function of its own, in which nothing stands in the way of the other chunks."""
        self._call_on("border")
        if not self.border_called:
            self.border_called = True
            _BorderWalk(self).define()

    def _call_run(self, low: str, high: str) -> None:
        """Leaves chunks that all lie inside to a function of its own: those of the workgroups from one to before another, along x."""
        self._call_on("run", f", i32 {low}, i32 {high}")
        if not self.run_called:
            self.run_called = True
            _RunWalk(self).define()

    def _call_on(self, function: str, given: str = "") -> None:
        """Calls a function that goes on from the chunk."""
        places = [f"ptr {name}" for name in ("%block", *self.buffers())] + [f"i64 {self.state.chunk}"]
        places += [f"i32 {self.state.groups[f'{query}.{axis}']}" for query in ("workgroup_id", "num_workgroups") for axis in "xyz"]
        self.w.line(f"call void @{function}({', '.join(places)}{given})")

    def buffers(self) -> dict[str, str]:
        """The names of the buffers, and what is promised of the pointers to them."""
        buffers = [(name, m) for m, name in self.memories.bases.items() if m.space is Space.BUFFER]
        # What other threads may have written before a fence, an ordered atomic or a grid barrier is not apart from everything. A workgroup is one thread.
        program = self.state.program
        apart = "" if orders_memory(program) or has_grid_barrier(program) else "noalias "
        return {name: apart if memory.access is Access.READ_WRITE else "noalias " for name, memory in buffers}

    def _run(self, region: BarrierFreeRegion, done: str) -> None:
        """The statements of a region, for the lanes that are on; those that leave early go to `done`."""
        self.control.enter_region(region.stop, region.escapes, done)
        index = region.start
        while index < region.stop:
            index = self._statement(index)
        self.control.leave_run()
        self.w.place = self.lines.head

    def _first_mask(self, following: str) -> None:
        """The lanes of this chunk that exist, and have not returned or gone on; a chunk without any is passed over."""
        w, state, control = self.w, self.state, self.control
        state.mask = None
        if state.invocations % state.width:
            vector = bits_type(32, state.width)
            index = w.vector(state.query("local_index"))
            state.mask = w.let(f"icmp ult {vector} {index}, {w.vector(state.number(state.invocations))}")
        kept = [control.alive_offset] if state.plan.keeps_alive else []
        if control.turns and control.turns[-1].opener in control.turn_offsets:
            kept.append(control.turn_offsets[control.turns[-1].opener])
        for offset in kept:
            state.mask = w.both(state.mask, control.kept_mask(offset))
        if kept:
            on = w.label("on")
            w.branch(w.any(state.mask), on, following)
            w.block(on)

    # ---- statements

    def var(self, index: int, s: Var) -> int:
        """Declares a variable."""
        return self.variables.var(index, s)

    def get(self, index: int, s: Get) -> int:
        """Reads a variable."""
        return self.variables.get(index, s)

    def set(self, index: int, s: Set) -> int:
        """Changes a variable."""
        return self.variables.set(index, s)

    def let(self, index: int, s: Let) -> int:
        """A calculation, or a question where the invocation is."""
        if (known := self.state.known.get(s.bound.id)) is not None:
            value = known
        elif s.op.is_query:
            value = self.state.query(s.op.name)
        elif (size := whole_size(s)) is not None:
            value = self.state.size(size, s.bound.type)
        elif (signature := signature_of(s)) in self.state.optimised.functions:
            assert signature is not None  # none of them is
            value = self._call(signature, [self.state.operand(a) for a in s.args])
        else:
            value = calculate(self.w, s.op.name, s.bound.type, [self.state.operand(a) for a in s.args])
        if not value.is_uniform:
            self.state.count()
        if value.variability is Variability.VARYING:
            self.state.fill(value.type.bits)
        self.state.bind(s, value)
        return index + 1

    def _call(self, signature: Signature, operands: Sequence[LaneValue]) -> LaneValue:
        """The result of a function: of all lanes that are on, at once; of all lanes, where they agree on the operands."""
        w, width = self.w, self.state.width
        same = all(operand.is_uniform for operand in operands)
        mask = None if same else self.state.mask
        on = "-1" if mask is None else w.mask_bits(mask)
        given = ", ".join([f"i{width} {on}", *[f"{llvm_type(o.type, width)} {w.vector(o)}" for o in operands]])
        type_ = llvm_type(signature.result, width)
        made = w.let(f"call {type_} @{signature.name}({given})")
        if same and width > 1:
            return LaneValue(Variability.UNIFORM, signature.result, w.let(f"extractelement {type_} {made}, i64 0"))
        return w.varying(signature.result, made)

    def barrier(self, index: int, s: Barrier) -> int:
        """Emits nothing: all chunks have finished the region before."""
        return index + 1

    def grid_barrier(self, index: int, s: GridBarrier) -> int:
        """Meets the other workgroups, each of which runs in a thread of its own at this time."""
        w, slot = self.w, self.state.layout.find(SlotKind.ARRIVALS)
        assert slot is not None  # the layout has one where there is a barrier
        word = w.let(f"load ptr, ptr {w.let(f'getelementptr i8, ptr %block, i64 {slot.offset_bytes}')}, align {slot.size_bytes}")
        leads = w.let(f"icmp eq i64 {self.number}, 0")
        count = w.let(f"mul i32 {w.let('mul i32 %nx, %ny')}, %nz")

        def pause() -> None:
            self.state.look()
            w.call("i32", "sched_yield")  # there may be more threads than cores

        meet(w, f"ptr {word}", leads, count, "", pause)
        return index + 1

    def grid_scan(self, index: int, s: GridScan) -> int:
        """What the workgroups before this one come to, to which its own value is added: they run in order."""
        w, type_, total = self.w, s.bound.type, self.totals[index]
        given = LaneValue(Variability.UNIFORM, type_, w.scalar(self.state.operand(s.args[0]), self.state.mask))
        before = LaneValue(Variability.UNIFORM, type_, w.let(f"load {llvm_type(type_)}, ptr {total}"))
        after = calculate(w, GRID_FOLDS[s.fold].op.name, type_, [before, given])
        w.line(f"store {llvm_type(type_)} {after.name}, ptr {total}")
        self.state.bind(s, before)
        return index + 1

    def load(self, index: int, s: Load | UniformLoad) -> int:
        """A load."""
        done = self.rows.load(index, s) if isinstance(s, Load) else None
        if done is None and isinstance(s, Load):
            done = self.strides.load(index, s)
        return self.memories.load(index, s) if done is None else done

    def store(self, index: int, s: Store) -> int:
        """A store."""
        done = self.rows.store(index, s)
        return self.memories.store(index, s) if done is None else done

    def atomic(self, index: int, s: Atomic) -> int:
        """An atomic."""
        return self.atomics.atomic(index, s)

    def fence(self, index: int, s: Fence) -> int:
        """A fence."""
        return self.atomics.fence(index, s)

    def together(self, index: int, s: Subgroup) -> int:
        """What the lanes of a subgroup do together."""
        return self.permutes.together(index, s)

    def pack(self, index: int, s: Pack) -> int:
        """A copy of a factor."""
        return self.micro_kernels.pack(index, s)

    def unpack(self, index: int, s: Unpack) -> int:
        """A copy of a result."""
        return self.micro_kernels.unpack(index, s)

    def product(self, index: int, s: PackedProduct) -> int:
        """A product of factors that were copied."""
        return self.micro_kernels.product(index, s)

    # ---- the module

    def module(self) -> LaneKernel:
        """The kernel's text: an inner function, whose pointers are known to be apart, and the outer one that finds them."""
        state = self.state
        self.kernel()
        for signature, function in state.optimised.functions.items():
            _FunctionWalk(signature, function, state).define()
        areas = {**state.areas, "%saved": state.saved_bytes} if state.saved_bytes else dict(state.areas)
        promises = self.buffers()
        pointers = [*promises, *areas]
        taken = "".join([f", ptr {promises.get(name, 'noalias ')}{name}" for name in pointers]) + ", i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz"
        # Not inlined: the facts about pointers would become lists on every access, as long as the number of pointers.
        self.w.finish(f"define internal void @workgroups(ptr noalias readonly %block{taken}) noinline nounwind{self.lines.attached}")
        lines = [f"define void @{SYMBOL}(ptr %block, ptr %scratch, i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz) nounwind {{"]
        for name, slot in zip(promises, state.layout.buffers, strict=True):
            lines += [f"  {name}.at = getelementptr i8, ptr %block, i64 {slot.offset_bytes}", f"  {name} = load ptr, ptr {name}.at, align 8"]
        scratch_bytes = 0
        for name, size in areas.items():
            lines.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {scratch_bytes}")
            scratch_bytes += -(-size // AREA_ALIGN) * AREA_ALIGN
        given = "".join([f", ptr {name}" for name in pointers]) + ", i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz"
        state.module.functions.append("\n".join([*lines, f"  call void @workgroups(ptr %block{given})", "  ret void", "}"]))
        state.module.add_global(f"@zero = internal unnamed_addr constant [{WIDEST_BYTES} x i8] zeroinitializer, align {WIDEST_BYTES}")
        workgroup_bytes = sum(Memories.size_bytes(m) for m in state.program.memories if m.space is Space.WORKGROUP)
        return LaneKernel(str(state.module), scratch_bytes, workgroup_bytes, state.gathers * _SCATTERED > state.work, state.widest, state.parts)


class _ChunkWalk(_LaneWalk):
    """Writes a function that goes on from a chunk of the caller's, by the name `function`; `given` is what it takes beside the chunk."""

    function: ClassVar[str]
    given: ClassVar[str] = ""

    def __init__(self, caller: _LaneWalk, lanes: int) -> None:
        given = caller.state
        super().__init__(State(given.optimised, lanes, given.w.rows, given.options, given.module, given.host, f"{self.function}_"))

    def define(self) -> None:
        """Adds the function to its caller's module."""
        w, state = self.w, self.state
        state.load_arguments()
        state.groups = {f"{query}.{axis}": f"%{query}.{axis}" for query in ("workgroup_id", "num_workgroups") for axis in "xyz"}
        state.ended = done = w.label("finished")
        self.control.frames.append(Frame(len(state.program.body), None, done, True, True))
        (region,) = state.plan.regions.values()  # without barriers a body is one
        self._go_on(region)
        w.block(done)
        w.end("ret void")
        taken = "".join(f", ptr {promise}{name}" for name, promise in self.buffers().items()) + ", i64 %chunk"
        places = "".join(f", i32 %{query}.{axis}" for query in ("workgroup_id", "num_workgroups") for axis in "xyz") + self.given
        head = f"define internal void @{self.function}(ptr noalias readonly %block{taken}{places}) noinline nounwind{self.lines.attached}"
        state.module.define(w.function(head))

    def _go_on(self, region: BarrierFreeRegion) -> None:
        raise NotImplementedError


class _BorderWalk(_ChunkWalk):
    """The function that chunks at a border are left to, which may have fewer lanes: it runs all of its own chunks that are in one."""

    function: ClassVar[str] = "border"

    def __init__(self, caller: _LaneWalk) -> None:
        super().__init__(caller, caller.border)
        self.ratio = caller.state.width // caller.border
        self.has_interior = self.ratio > 1

    def _go_on(self, region: BarrierFreeRegion) -> None:
        first = self.w.let(f"mul i64 %chunk, {self.ratio}")
        self._region(region, first, self.w.let(f"add i64 {first}, {self.ratio}"))


class _RunWalk(_ChunkWalk):
    """The function that runs all chunks of neighbouring workgroups of a row, which lie inside: nothing is asked."""

    function: ClassVar[str] = "run"
    given: ClassVar[str] = ", i32 %low, i32 %high"

    def __init__(self, caller: _LaneWalk) -> None:
        super().__init__(caller, caller.state.width)

    def _go_on(self, region: BarrierFreeRegion) -> None:
        w, state = self.w, self.state
        state.row = self.neighbours.row_places("%chunk")
        first, each = state.groups["workgroup_id.x"], state.program.workgroup[0] // state.width
        begin, end = [w.let(f"mul i64 {w.let(f'zext i32 {group} to i64')}, {each}") for group in ("%low", "%high")]
        counter = w.local("i64")
        w.line(f"store i64 {begin}, ptr {counter}")
        head, done, leave = w.label("inside"), w.label("insidedone"), w.label("insideran")
        w.block(head)
        now = w.let(f"load i64, ptr {counter}")
        passed = w.let(f"mul i32 {w.let(f'trunc i64 {now} to i32')}, {state.width}")
        state.along = w.let(f"add i32 {w.let(f'mul i32 {first}, {state.program.workgroup[0]}')}, {passed}")
        number = w.let(f"udiv i64 {now}, {each}")
        group = w.let(f"add i32 {first}, {w.let(f'trunc i64 {number} to i32')}")
        interior = self.neighbours.at(region, group, w.let(f"add i64 %chunk, {w.let(f'urem i64 {now}, {each}')}"))
        assert interior is not None  # it is of the caller's statements
        self.memories.begin_chunk()
        state.known, state.inside = interior.values, interior.inside
        self._run(region, done)
        w.block(done)
        more = w.let(f"add i64 {now}, 1")
        w.line(f"store i64 {more}, ptr {counter}")
        w.end(f"br i1 {w.let(f'icmp ult i64 {more}, {end}')}, label %{head}, label %{leave}, !llvm.loop !0")
        w.block(leave)


class _FunctionWalk(_LaneWalk):
    """Writes a function that an op is left to: it takes the lanes that are on, as bits, and a vector for each operand."""

    def __init__(self, signature: Signature, optimised: Optimised, caller: State) -> None:
        super().__init__(State(optimised, caller.width, caller.w.rows, _PLAIN, caller.module, caller.host, f"{signature.name}_"))
        self.signature = signature
        self.parameters = {memory: f"%x{k}" for k, memory in enumerate(parameters_of(optimised.program))}
        self.result = ""

    def define(self) -> None:
        """Adds the function to its caller's module."""
        w, state, width = self.w, self.state, self.state.width
        (region,) = state.plan.regions.values()  # without barriers a body is one
        state.region = region
        done = w.label("done")
        state.mask = "%on" if width == 1 else w.let(f"bitcast i{width} %on to {w.mask_type}")
        self._run(region, done)
        w.block(done)
        type_ = llvm_type(self.signature.result, width)
        w.end(f"ret {type_} {self.result}")
        operands = ", ".join([f"i{width} %on", *[f"{llvm_type(memory.type, width)} {name}" for memory, name in self.parameters.items()]])
        state.module.define(w.function(f"define internal {type_} @{self.signature.name}({operands}) noinline nounwind willreturn memory(none)"))

    def load(self, index: int, s: Load | UniformLoad) -> int:
        """A load, or an operand."""
        if s.memory not in self.parameters:
            return super().load(index, s)
        self.state.bind(s, self.w.varying(s.bound.type, self.parameters[s.memory]))
        return index + 1

    def store(self, index: int, s: Store) -> int:
        """The result: nothing else is stored."""
        self.result = self.w.vector(self.state.operand(s.value))
        return index + 1


HANDLERS: Final[Handlers[Callable[..., int]]] = Handlers("the cpu target", {
    Let: _LaneWalk.let, Load: _LaneWalk.load, UniformLoad: _LaneWalk.load, Store: _LaneWalk.store, Var: _LaneWalk.var,
    Get: _LaneWalk.get, Set: _LaneWalk.set, Barrier: _LaneWalk.barrier, GridBarrier: _LaneWalk.grid_barrier, **dict.fromkeys(ATOMIC_KINDS, _LaneWalk.atomic),
    **dict.fromkeys(FENCES.values(), _LaneWalk.fence),
    Subgroup: _LaneWalk.together, GridScan: _LaneWalk.grid_scan, Pack: _LaneWalk.pack, Unpack: _LaneWalk.unpack, PackedProduct: _LaneWalk.product,
}, apart=CONTROL, without={**WITHOUT_REPORTS, **WITHOUT_COPIES, **WITHOUT_TILES})  # fmt: skip
_LaneWalk.handlers = HANDLERS
_FunctionWalk.handlers = {**HANDLERS, Load: _FunctionWalk.load, Store: _FunctionWalk.store}


def emit_lanes(
    optimised: Optimised, width: int, rows: Mapping[str, Emitter] = HOST_EMITTERS, options: CompileOptions = _PLAIN, host: HostTarget = _USUAL,
    border: int = 0,
) -> LaneKernel:
    """A checked Program for `width` lanes (1 to 64, a power of two). `rows` is the op table of the machine (`ops.host_emitters`), `host` the machine; chunks at
    a border may have fewer lanes, `border`. Of the options `debug` says that the code keeps the Program's places, `interruptible` that loops look at a
    flag. The text is deterministic. Raises Unsupported for a Program that is too long."""
    module = ModuleText()
    # Unrolling chunks and workgroups doubles the time to compile, and gains nothing: a chunk is wide already.
    module.tails += ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}']
    if options.debug:
        module.line_tables = LineTables(module, "object")
    return _LaneWalk(State(optimised, width, rows, options, module, host), border or width).module()
