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
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from vyre_py.ir.check.facts import has_grid_barrier
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
    Var,
    Variable,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.widths import whole_size
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.arrivals import meet
from vyre_py.lowering.llvm.cpu.atomics import Atomics
from vyre_py.lowering.llvm.cpu.interior import find_interior
from vyre_py.lowering.llvm.cpu.masks import CONTROL, Control, Frame
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.micro_kernels import MicroKernels
from vyre_py.lowering.llvm.cpu.permutes import Permutes
from vyre_py.lowering.llvm.cpu.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.rows import Rows
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.values import LaneValue, Mask, Variability, calculate
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
# Where one in so many operations gathers or scatters, lanes gain less by the others than they lose: such an access takes about three times what it
# does lane by lane, and any other operation an eighth. Measured with AVX2: rows of a sparse matrix, three gathers for two floating-point operations.
_SCATTERED: Final = 3


@dataclass(frozen=True, slots=True)
class LaneKernel:
    """A kernel as LLVM IR, and the bytes of scratch memory that a thread needs to run it; `workgroup_bytes` of them are workgroup memory. `scattered` says that
    so many of its accesses gather or scatter that lanes one by one are faster."""

    text: str
    scratch_bytes: int
    workgroup_bytes: int
    scattered: bool = False


class _LaneWalk:
    """Writes one kernel, statement by statement."""

    handlers: ClassVar[Mapping[type[Statement], Callable[..., int]]]

    def __init__(self, state: State) -> None:
        self.state = state
        self.w = state.w
        self.lines = lines_of(self.state.module, self.state.program)
        self.w.place = self.lines.head
        self.memories = Memories(self.state)
        self.rows = Rows(self.memories)
        self.atomics = Atomics(self.memories)
        self.permutes = Permutes(self.state)
        self.micro_kernels = MicroKernels(self.memories)
        self.control = Control(self.state)
        self.number = ""  # that of the workgroup
        self.locals: dict[int, tuple[str, Mask]] = {}  # variable -> its local, and the lanes on where it was declared
        self.slots: dict[int, tuple[str, str]] = {}  # carried uniform variable -> the type and name of its slot
        self.totals: dict[int, str] = {}  # grid scan, by its index -> where what the workgroups so far come to is kept
        self.saves: dict[int, tuple[Variable, int]] = {}  # carried varying variable -> its offset among the saved values

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
        self.memories.begin_workgroup()
        if state.plan.keeps_alive:
            self.control.fill_masks(self.control.alive_offset)
        self.control.frames.append(Frame(len(state.program.body), None, following, True, True))
        self._body()
        w.place = self.lines.head
        w.block(following)
        w.line(f"store i64 {w.let(f'add i64 {now}, 1')}, ptr {number}")
        self._next_place(places)
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
        w = self.w
        rest = "%first"
        for axis, place in zip("xyz", places, strict=True):
            count = w.let(f"zext i32 %n{axis} to i64")
            digit = w.let(f"urem i64 {rest}, {count}")
            w.line(f"store i32 {w.let(f'trunc i64 {digit} to i32')}, ptr {place}")
            rest = w.let(f"udiv i64 {rest}, {count}")

    def _next_place(self, places: list[str]) -> None:
        """Counts x, y, z up like digits, which is cheaper than dividing again."""
        w = self.w
        carry = "true"
        for axis, place in zip("xyz", places, strict=True):
            now = self.state.groups[f"workgroup_id.{axis}"]
            more = w.let(f"add i32 {now}, {w.let(f'zext i1 {carry} to i32')}")
            full = w.let(f"icmp eq i32 {more}, %n{axis}")
            w.line(f"store i32 {w.let(f'select i1 {full}, i32 0, i32 {more}')}, ptr {place}")
            carry = full

    def _body(self) -> None:
        index = 0
        while index < len(self.state.program.body):
            region = self.state.plan.regions.get(index)
            if region is None:
                index = self._statement(index)
            else:
                self._region(region)
                index = region.stop

    def _statement(self, index: int) -> int:
        statement = self.state.program.body[index]
        self.w.place = self.lines.at(index)
        self.w.require_room(index + 1, len(self.state.program.body))
        control = CONTROL.get(type(statement))
        if control is not None:
            return control(self.control, index, statement)
        return self.handlers[type(statement)](self, index, statement)

    # ---- regions

    def _region(self, region: BarrierFreeRegion) -> None:
        """A loop over the chunks of the workgroup."""
        w, state = self.w, self.state
        w.place = self.lines.head
        # Read before any chunk writes: every chunk begins with the same.
        uniform = {v: (type_, w.let(f"load {type_}, ptr {slot}")) for v in region.reads if v in self.slots for type_, slot in (self.slots[v],)}
        counter = w.local("i64")
        w.line(f"store i64 0, ptr {counter}")
        head, done, following = w.label("chunk"), w.label("chunkdone"), w.label("chunknext")
        w.block(head)
        state.region = region
        state.chunk = w.let(f"load i64, ptr {counter}")
        state.base = w.let(f"mul i32 {w.let(f'trunc i64 {state.chunk} to i32')}, {state.width}")
        self._first_mask(following)
        self.memories.begin_chunk()
        for value in region.imports:
            state.values[value] = state.restore(value)
        for variable, (type_, name) in uniform.items():
            w.line(f"store {type_} {name}, ptr {self.locals[variable][0]}")
        self._load_carried(region)
        if (interior := find_interior(self.memories, region)) is not None:
            within, border = w.label("interior"), w.label("border")
            w.branch(interior.condition, within, border)
            w.block(within)
            state.known, state.inside = interior.values, interior.inside
            self._run(region, done)
            state.mask, state.known, state.inside = None, {}, {}
            if w.open:
                w.jump(done)
            w.block(border)
        counted = state.work, state.gathers
        self._run(region, done)
        if interior is not None:
            state.work, state.gathers = counted  # few chunks are at a border
        w.block(done)
        self._save_carried(region)
        w.block(following)
        more = w.let(f"add i64 {state.chunk}, 1")
        w.line(f"store i64 {more}, ptr {counter}")
        leave = w.label("ran")
        w.end(f"br i1 {w.let(f'icmp ult i64 {more}, {state.chunks}')}, label %{head}, label %{leave}, !llvm.loop !0")
        w.block(leave)
        state.region, state.mask, state.chunk, state.base = None, None, "0", "0"

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

    # ---- variables

    def _is_uniform(self, variable: int) -> bool:
        return self.state.uniformity.variables[variable] <= Level.WORKGROUP

    def _type(self, variable: Variable) -> str:
        return llvm_type(variable.type, 1 if self._is_uniform(variable.id) else self.state.width)

    def var(self, index: int, s: Var) -> int:
        """Declares a variable: a local, and a slot beyond it where other regions see it."""
        variable = s.variable
        local = self.w.local(self._type(variable))
        self.locals[variable.id] = (local, self.state.mask)
        if variable.id in self.state.plan.carried:
            if self._is_uniform(variable.id):
                self.slots[variable.id] = (self._type(variable), self.w.local(self._type(variable)))
            else:
                self.saves[variable.id] = (variable, self.state.save_space(self._save_bytes(variable)))
        self._assign(variable, self.state.operand(s.args[0]), None)
        return index + 1

    def get(self, index: int, s: Get) -> int:
        """Reads a variable."""
        uniform = self._is_uniform(s.variable.id)
        name = self.w.let(f"load {self._type(s.variable)}, ptr {self.locals[s.variable.id][0]}")
        self.state.bind(s, LaneValue(Variability.UNIFORM, s.variable.type, name) if uniform else self.w.varying(s.variable.type, name))
        return index + 1

    def set(self, index: int, s: Set) -> int:
        """Changes a variable in the lanes that are on: all that there are in its scope, or some."""
        declared = self.locals[s.variable.id][1]
        self._assign(s.variable, self.state.operand(s.args[0]), None if declared == self.state.mask else self.state.mask)
        return index + 1

    def _assign(self, variable: Variable, value: LaneValue, mask: Mask) -> None:
        w, type_, local = self.w, self._type(variable), self.locals[variable.id][0]
        if self._is_uniform(variable.id):
            name = w.scalar(value, self.state.mask)
            # At once, since a chunk in which no lane is left must not write what it does not know.
            if variable.id in self.slots:
                w.line(f"store {type_} {name}, ptr {self.slots[variable.id][1]}")
        else:
            name = w.vector(value)
            if mask is not None:
                name = w.blend(type_, mask, name, w.let(f"load {type_}, ptr {local}"))
        w.line(f"store {type_} {name}, ptr {local}")

    def _save_bytes(self, variable: Variable) -> int:
        return variable.type.size_bytes * self.state.width

    def _load_carried(self, region: BarrierFreeRegion) -> None:
        for number in region.reads:
            if number in self.saves:
                variable, offset = self.saves[number]
                size = self._save_bytes(variable)
                found = self.state.load_elements(variable.type, self.state.width, self.state.saved_pointer(offset, size), min(size, AREA_ALIGN))
                self.w.line(f"store {self._type(variable)} {found}, ptr {self.locals[number][0]}")

    def _save_carried(self, region: BarrierFreeRegion) -> None:
        for number in region.writes:
            if number in self.saves:
                variable, offset = self.saves[number]
                size = self._save_bytes(variable)
                now = self.w.let(f"load {self._type(variable)}, ptr {self.locals[number][0]}")
                self.state.store_elements(variable.type, self.state.width, self.state.saved_pointer(offset, size), now, min(size, AREA_ALIGN))

    # ---- the rest

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
        buffers = [(name, m) for m, name in self.memories.bases.items() if m.space is Space.BUFFER]
        pointers = [name for name, _ in buffers] + list(areas)
        # What other threads may have written before a fence, an ordered atomic or a grid barrier is not apart from everything. A workgroup is one thread.
        apart = "" if orders_memory(state.program) or has_grid_barrier(state.program) else "noalias "
        promises = {name: apart if memory.access is Access.READ_WRITE else "noalias " for name, memory in buffers}
        taken = "".join([f", ptr {promises.get(name, 'noalias ')}{name}" for name in pointers]) + ", i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz"
        # Not inlined: the facts about pointers would become lists on every access, as long as the number of pointers.
        self.w.finish(f"define internal void @workgroups(ptr noalias readonly %block{taken}) noinline nounwind{self.lines.attached}")
        lines = [f"define void @{SYMBOL}(ptr %block, ptr %scratch, i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz) nounwind {{"]
        for (name, _), slot in zip(buffers, state.layout.buffers, strict=True):
            lines += [f"  {name}.at = getelementptr i8, ptr %block, i64 {slot.offset_bytes}", f"  {name} = load ptr, ptr {name}.at, align 8"]
        scratch_bytes = 0
        for name, size in areas.items():
            lines.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {scratch_bytes}")
            scratch_bytes += -(-size // AREA_ALIGN) * AREA_ALIGN
        given = "".join([f", ptr {name}" for name in pointers]) + ", i64 %first, i64 %end, i32 %nx, i32 %ny, i32 %nz"
        state.module.functions.append("\n".join([*lines, f"  call void @workgroups(ptr %block{given})", "  ret void", "}"]))
        state.module.add_global(f"@zero = internal unnamed_addr constant [{WIDEST_BYTES} x i8] zeroinitializer, align {WIDEST_BYTES}")
        workgroup_bytes = sum(Memories.size_bytes(m) for m in state.program.memories if m.space is Space.WORKGROUP)
        return LaneKernel(str(state.module), scratch_bytes, workgroup_bytes, state.gathers * _SCATTERED > state.work)


class _FunctionWalk(_LaneWalk):
    """Writes a function that an op is left to: it takes the lanes that are on, as bits, and a vector for each operand."""

    def __init__(self, signature: Signature, optimised: Optimised, caller: State) -> None:
        super().__init__(State(optimised, caller.width, caller.w.rows, _PLAIN, caller.module, f"{signature.name}_"))
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


def emit_lanes(optimised: Optimised, width: int, rows: Mapping[str, Emitter] = HOST_EMITTERS, options: CompileOptions = _PLAIN) -> LaneKernel:
    """A checked Program for `width` lanes (1 to 32, a power of two). `rows` is the op table of the machine (`ops.host_emitters`); of the
    options `debug` says that the code keeps the Program's places, `interruptible` that loops look at a flag. The text is deterministic. Raises Unsupported
    for a Program that is too long."""
    module = ModuleText()
    # Unrolling chunks and workgroups doubles the time to compile, and gains nothing: a chunk is wide already.
    module.tails += ["!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}']
    if options.debug:
        module.line_tables = LineTables(module, "object")
    return _LaneWalk(State(optimised, width, rows, options, module)).module()
