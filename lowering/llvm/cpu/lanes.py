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
    For,
    Get,
    GridBarrier,
    GridScan,
    Let,
    Load,
    Loop,
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
    Variable,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.widths import whole_size
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.arrivals import meet
from vyre_py.lowering.llvm.cpu.atomics import Atomics
from vyre_py.lowering.llvm.cpu.host_targets import TARGETS, HostTarget
from vyre_py.lowering.llvm.cpu.interior import Interior, find_interior, goes_along_rows
from vyre_py.lowering.llvm.cpu.masks import CONTROL, Control, Frame
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.micro_kernels import MicroKernels
from vyre_py.lowering.llvm.cpu.permutes import Permutes
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.rows import Rows
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN, State
from vyre_py.lowering.llvm.cpu.strides import Strides, Turned
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
_USUAL: Final = TARGETS["x86-64-v3"]
# Where one in so many operations gathers or scatters, lanes gain less by the others than they lose: such an access takes about three times what it
# does lane by lane, and any other operation an eighth. Measured with AVX2: rows of a sparse matrix, three gathers for two floating-point operations.
_SCATTERED: Final = 3
# Chunks along a row run together so many lanes at most, in which indices grow by less than 2^31; no fewer workgroups, since where they begin and end is looked
# for first; and no more statements than these, which are written once more for it.
_LONGEST_RUN: Final = 1 << 17
_SHORTEST_RUN: Final = 4
_LONGEST_IN_RUNS: Final = 64


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
        self.border_called = self.runs = False
        self.locals: dict[int, tuple[str, Mask]] = {}  # variable -> its local, and the lanes on where it was declared
        self.slots: dict[int, tuple[str, str]] = {}  # carried uniform variable -> the type and name of its slot
        self.totals: dict[int, str] = {}  # grid scan, by its index -> where what the workgroups so far come to is kept
        self.saves: dict[int, tuple[Variable, int]] = {}  # carried varying variable -> its offset among the saved values

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
        many = self._rows(now) if self._has_rows() else ""
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

    def _has_rows(self) -> bool:
        """Whether a workgroup has rows of whole chunks, and no order among them."""
        state, sizes = self.state, self.state.program.workgroup
        if len(state.plan.regions) != 1 or state.width == 1 or not self.border or sizes[0] % state.width or not goes_along_rows(state.program):
            return False
        return sizes[1] * sizes[2] > 1 or self._may_run()

    def _may_run(self) -> bool:
        """Whether the body is short enough to be written once more, for runs, and has no loop, beside which tests of chunks cost nothing."""
        body = self.state.program.body
        return len(body) <= _LONGEST_IN_RUNS and not any(isinstance(s, (For, Loop)) for s in body)

    def _rows(self, now: str) -> str:
        """Runs neighbouring workgroups from `now` on row by row, along which memory lies; gives how many."""
        w, state, first = self.w, self.state, self.state.groups["workgroup_id.x"]
        left = w.let(f"sub i32 %nx, {first}")
        left = w.call("i32", "llvm.umin.i32", ("i32", left), ("i32", str(_LONGEST_RUN // state.program.workgroup[0])))
        rest = w.call("i64", "llvm.umin.i64", ("i64", w.let(f"sub i64 %end, {now}")), ("i64", w.let(f"zext i32 {left} to i64")))
        many = w.let(f"trunc i64 {rest} to i32")
        self.control.frames.append(Frame(len(state.program.body), None, "", True, True))
        (region,) = state.plan.regions.values()
        row, place = w.local("i64"), w.local("i32")
        w.line(f"store i64 0, ptr {row}")
        rows, groups, ran = w.label("row"), w.label("groups"), w.label("rowran")
        w.block(rows)
        chunk = w.let(f"load i64, ptr {row}")
        end = w.let(f"add i64 {chunk}, {state.program.workgroup[0] // state.width}")
        state.row = self._row_places(chunk)
        low, high = self._run_of_row(region, chunk, first, many)
        begin = w.let(f"select i1 {w.let(f'icmp eq i32 {low}, 0')}, i32 {high}, i32 0")
        w.line(f"store i32 {begin}, ptr {place}")
        w.branch(w.let(f"icmp ult i32 {begin}, {many}"), groups, ran)
        w.block(groups)
        number = w.let(f"load i32, ptr {place}")
        state.groups["workgroup_id.x"] = w.let(f"add i32 {first}, {number}")
        self._region(region, chunk, end)
        more = w.let(f"add i32 {number}, 1")
        if low != high:
            more = w.let(f"select i1 {w.let(f'icmp eq i32 {more}, {low}')}, i32 {high}, i32 {more}")
        w.line(f"store i32 {more}, ptr {place}")
        w.end(f"br i1 {w.let(f'icmp ult i32 {more}, {many}')}, label %{groups}, label %{ran}, !llvm.loop !0")
        w.block(ran)
        w.line(f"store i64 {end}, ptr {row}")
        leave = w.label("rowsran")
        w.end(f"br i1 {w.let(f'icmp ult i64 {end}, {state.chunks}')}, label %{rows}, label %{leave}, !llvm.loop !0")
        w.block(leave)
        state.groups["workgroup_id.x"], state.row = first, None
        return many

    def _at(self, region: BarrierFreeRegion, group: str, chunk: str) -> Interior | None:
        """Goes to a chunk of a workgroup along x; gives what holds there where it lies inside."""
        state, w = self.state, self.w
        state.groups["workgroup_id.x"], state.region, state.chunk = group, region, chunk
        state.base = w.let(f"mul i32 {w.let(f'trunc i64 {chunk} to i32')}, {state.width}")
        return find_interior(self.memories, region)

    def _run_of_row(self, region: BarrierFreeRegion, chunk: str, first: str, many: str) -> tuple[str, str]:
        """Runs workgroups of a row, from a chunk on, whose chunks all lie inside. Gives the first of them, 0 or 1, and the one behind them: 0 and 0 where
        a row is short, where not all in the middle lie inside, or where the first chunk and the last do not tell."""
        w, state = self.w, self.state
        if not self._may_run():
            return "0", "0"
        begin = self._at(region, first, chunk)
        if begin is None or begin.seldom or begin.ends is None:
            return "0", "0"
        places = [w.local("i32"), w.local("i32")]
        for place in places:
            w.line(f"store i32 0, ptr {place}")
        long, some, found = w.label("long"), w.label("some"), w.label("found")
        w.branch(w.let(f"icmp uge i32 {many}, {_SHORTEST_RUN}"), long, found)
        w.block(long)
        low, high, holds = self._ends_of_run(region, chunk, first, many)
        w.branch(holds, some, found)
        w.block(some)
        for place, end in zip(places, (low, high), strict=True):
            w.line(f"store i32 {end}, ptr {place}")
        state.groups["workgroup_id.x"], state.chunk = first, chunk
        self._call_on("run", f", i32 {low}, i32 {high}")
        if not self.runs:
            self.runs = True
            _RunWalk(self).define()
        w.block(found)
        low, high = [w.let(f"load i32, ptr {place}") for place in places]
        return low, high

    def _ends_of_run(self, region: BarrierFreeRegion, chunk: str, first: str, many: str) -> tuple[str, str, str]:
        """Leaves out the first and the last workgroup where they do not lie inside, and looks at the ends of the others; gives whether all inside are."""
        w, each = self.w, self.state.program.workgroup[0] // self.state.width
        last = w.let(f"add i64 {chunk}, {each - 1}")

        def at(number: str, place: str) -> Interior:
            found = self._at(region, w.let(f"add i32 {first}, {number}"), place)
            assert found is not None  # it is of the same statements
            return found

        low = w.let(f"select i1 {at('0', chunk).condition}, i32 0, i32 1")
        left_out = w.let(f"select i1 {at(w.let(f'sub i32 {many}, 1'), last).condition}, i32 0, i32 1")
        high = w.let(f"sub i32 {many}, {left_out}")
        begin, end = at(low, chunk), at(w.let(f"sub i32 {high}, 1"), last)
        assert begin.ends is not None and end.ends is not None
        holds = w.let(f"and i1 {begin.condition}, {end.condition}")
        for (one, signed), (other, _) in zip(begin.ends, end.ends, strict=True):
            order = "sge" if signed else "uge"
            holds = w.let(f"and i1 {holds}, {w.let(f'icmp {order} i32 {other}, {one}')}")
        return low, high, holds

    def _row_places(self, chunk: str) -> tuple[str, str, str]:
        """Where a row begins that begins with a chunk: its local index, and its places along y and z."""
        w, (x, y, _) = self.w, self.state.program.workgroup
        first = w.let(f"mul i32 {w.let(f'trunc i64 {chunk} to i32')}, {self.state.width}")
        row = w.let(f"udiv i32 {first}, {x}")
        return first, w.let(f"urem i32 {row}, {y}"), w.let(f"udiv i32 {row}, {y}")

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
        # Read before any chunk writes: every chunk begins with the same.
        uniform = {v: (type_, w.let(f"load {type_}, ptr {slot}")) for v in region.reads if v in self.slots for type_, slot in (self.slots[v],)}
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
        for variable, (type_, name) in uniform.items():
            w.line(f"store {type_} {name}, ptr {self.locals[variable][0]}")
        self._load_carried(region)
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
        self._save_carried(region)
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
            self.state.fill(variable.type.bits)
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
        state.row = self._row_places("%chunk")
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
        interior = self._at(region, group, w.let(f"add i64 %chunk, {w.let(f'urem i64 {now}, {each}')}"))
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
