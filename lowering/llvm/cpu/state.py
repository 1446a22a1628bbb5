"""What every part of the lanes walk shares: the writer, the values so far, the lanes that are on, and where invocations are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.dims import DimConst, DimExpr
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    End,
    For,
    Let,
    Load,
    Loop,
    Memory,
    MemoryStatement,
    Param,
    Space,
    Statement,
    Value,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, u32, u64
from vyre_py.lowering.layout import Layout, SlotKind, lay_out
from vyre_py.lowering.llvm.conversions import param_value
from vyre_py.lowering.llvm.cpu.host_targets import HostTarget
from vyre_py.lowering.llvm.cpu.plan.recomputed import compute_again
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion, Plan, places_of, plan_regions
from vyre_py.lowering.llvm.cpu.values import LaneValue, LaneWriter, Mask, Variability, calculate
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.llvm.types import bits_type, literal, llvm_type, memory_type
from vyre_py.lowering.llvm.unrolling import unrolls
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import Row, element_rows

if TYPE_CHECKING:
    from vyre_py.ir.passes import Optimised

__all__ = ["AREA_ALIGN", "State"]

# Bytes at which each piece of scratch memory begins: a cache line, and the widest vector.
AREA_ALIGN: Final = 64


# How often a loop is taken to run, and how many loops within one another are counted.
_TURNS: Final = 8
_DEEPEST: Final = 3
# So many loads of one buffer between barriers are no neighbours of one another, but a tile's.
_MANY_LOADS: Final = 8

# Of what lanes gather by.
_ADDRESS_BITS: Final = 32


def _turning(program: Program) -> dict[int, int]:
    """Values that may be another one at each turn of a loop -> the innermost such loop."""
    found: dict[int, int] = {}
    loops = [-1]
    for index, s in enumerate(program.body):
        if isinstance(s, (For, Loop)):
            loops.append(index)
        elif isinstance(s, End) and program.match[index] == loops[-1]:
            loops.pop()
        if s.result is None:
            continue
        found[s.result.id] = max([found.get(a.id, -1) for a in s.args if isinstance(a, Value)], default=-1) if isinstance(s, Let) else loops[-1]
    return found


class State:
    """One kernel being written for chunks of `width` lanes.

    `mask` is the lanes that are on at the current statement, of which there is always at least one. `region` is the region being
    written, or None at the workgroup's own statements; within one, `chunk` is the chunk's number (i64) and `base` the local index
    of its first lane (i32); in a walk along rows `row` has the local index at which the row begins, and its places along y and z, and in a run of chunks
    that all lie inside `along` has the first lane's place in the grid along x.
    `ended` is the label that leaves the function. `areas` are pieces of scratch memory, by name, with their size in bytes.
    `prefix` begins the names of tables, and `element_rows` are the rows that lanes touch together. In a chunk that lies inside (`interior`), `known` has
    results that were computed before it, and `inside` the axes of
    accesses that need no check. `loops` has the loops that are open, and -1 for the region. `work` counts what lanes compute and access, turns of loops
    included as far as they can be guessed, and `gathers` those accesses that gather or scatter; `widest` is the bits of the widest values of which there
    are vectors, and `parts` says that lanes part where no mask is at first. `host` is the processor.
    """

    def __init__(
        self, optimised: Optimised, width: int, rows: Mapping[str, Emitter], options: CompileOptions, module: ModuleText, host: HostTarget,
        prefix: str = "",
    ) -> None:  # fmt: skip
        self.optimised = optimised
        self.prefix = prefix
        self.program = optimised.program
        self.uniformity = optimised.uniformity
        self.proven = optimised.proven
        self.written_first = optimised.written_first
        self.width = width
        self.module = module
        self.w = LaneWriter(self.module, width, rows, width > host.lanes)
        self.element_rows: Mapping[int, Row] = element_rows(optimised, frozenset({Space.BUFFER, Space.WORKGROUP}))
        plan = plan_regions(self.program, self.uniformity, self.proven, self.element_rows, width)
        self.plan: Plan = compute_again(plan, self.program, self.uniformity, self.proven) if width > 1 else plan
        self.layout: Layout = lay_out(self.program, options)
        self.invocations = prod(self.program.workgroup)
        self.chunks = -(-self.invocations // width)
        self.unrolls = unrolls(self.program)
        self.mask: Mask = None
        self.region: BarrierFreeRegion | None = None
        self.chunk = self.base = "0"
        self.areas: dict[str, int] = {}
        self.saved_bytes = 0
        self.values: dict[int, LaneValue] = {}
        self.known: Mapping[int, LaneValue] = {}
        self.inside: Mapping[int, int] = {}
        self._kept: dict[int, LaneValue] = {}
        self._atoms: dict[Atom, str] = {}
        self._sizes: dict[tuple[DimExpr, Type], str] = {}
        self.groups: dict[str, str] = {}
        self._flag = self.ended = ""
        self._queries = {s.bound.id: s.op.name for s in self.program.body if isinstance(s, Let) and s.op.is_query}
        self._places = places_of(self.program.body)
        self.loops: list[int] = []
        self.work = self.gathers = self.widest = 0
        self._region_loads: dict[int, Counter[Memory]] = {}
        self._turning = _turning(self.program)
        self.host = host
        self.options = options
        self.row: tuple[str, str, str] | None = None
        self.along = ""
        self.parts = False

    # ---- scratch memory

    def area(self, name: str, size_bytes: int) -> str:
        """The pointer to a new piece of scratch memory; it holds anything at all."""
        self.areas[name] = size_bytes
        return name

    def save_space(self, chunk_bytes: int) -> int:
        """The offset, in the area of saved values, of an array of `chunk_bytes` for each chunk."""
        offset = -(-self.saved_bytes // AREA_ALIGN) * AREA_ALIGN
        self.saved_bytes = offset + chunk_bytes * self.chunks
        return offset

    def saved_pointer(self, offset: int, chunk_bytes: int) -> str:
        """The current chunk's element of such an array."""
        place = self.w.let(f"mul i64 {self.chunk}, {chunk_bytes}")
        return self.w.let(f"getelementptr i8, ptr %saved, i64 {self.w.let(f'add i64 {place}, {offset}')}")

    # ---- operands

    def load_arguments(self) -> None:
        """Reads params and sizes from the argument block, once."""
        w = self.w
        for slot in self.layout.scalars:
            pointer = w.let(f"getelementptr i8, ptr %block, i64 {slot.offset_bytes}")
            word = w.let(f"load {bits_type(8 * slot.size_bytes)}, ptr {pointer}, align {slot.size_bytes}")
            if slot.param is not None:
                self._atoms[slot.param] = param_value(w, slot.type, word)
            elif slot.expr is not None:
                self._sizes[slot.expr, slot.type] = word

        if (flag := self.layout.find(SlotKind.CANCEL)) is not None:
            self._flag = w.let(f"load ptr, ptr {w.let(f'getelementptr i8, ptr %block, i64 {flag.offset_bytes}')}, align {flag.size_bytes}")

    def look(self) -> None:
        """In interruptible code: leaves the function where the flag is set. The load is volatile, so it is made each time, and unordered, so that it holds up
        no other access."""
        if self._flag:
            found = self.w.let(f"load atomic volatile i32, ptr {self._flag} unordered, align 4")
            on = self.w.label("on")
            self.w.branch(self.w.let(f"icmp eq i32 {found}, 0"), on, self.ended)
            self.w.block(on)

    def operand(self, atom: Atom) -> LaneValue:
        """What an operand is across the lanes, here."""
        if isinstance(atom, Value):
            if self.region is None and atom.id in self.plan.crossing:
                return self.restore(atom.id)
            return self.values[atom.id]
        if isinstance(atom, Const):
            return LaneValue(Variability.UNIFORM, atom.type, literal(atom), atom)
        return LaneValue(Variability.UNIFORM, atom.type, self._atoms[atom]) if isinstance(atom, Param) else self.size(atom, u32)

    def size(self, expr: DimExpr, type_: Type) -> LaneValue:
        """A size, as a u32, or whole as an i64 or u64."""
        if isinstance(expr, DimConst):
            constant = const(type_, expr.value)
            return LaneValue(Variability.UNIFORM, type_, literal(constant), constant)
        return LaneValue(Variability.UNIFORM, type_, self._sizes[expr, u32 if type_ is u32 else u64])

    @staticmethod
    def number(value: int) -> LaneValue:
        """A u32 constant."""
        constant = Const(u32, value & 0xFFFFFFFF)
        return LaneValue(Variability.UNIFORM, u32, literal(constant), constant)

    def count(self, *, gathers: bool = False) -> None:
        """Counts one operation of the lanes."""
        weight = _TURNS ** min(sum([loop >= 0 for loop in self.loops]), _DEEPEST)
        self.work += weight
        self.gathers += weight if gathers else 0
        if gathers:
            self.fill(_ADDRESS_BITS)

    def fill(self, bits: int) -> None:
        """Counts one vector of values of so many bits."""
        self.widest = max(self.widest, bits)

    def unproven(self, index: int, s: MemoryStatement) -> bool:
        """Whether an access is checked on an axis."""
        return (self.proven[index] | self.inside.get(index, 0)) != (1 << s.memory.rank) - 1

    def strides(self, s: MemoryStatement) -> bool:
        """Whether a chunk probably strides over what all chunks load: an access in a loop goes somewhere else at each turn, or there are many of one buffer
        between barriers."""
        if self.plan.has_barriers and self.region is not None and self._loads(self.region)[s.memory] >= _MANY_LOADS:
            return True
        loop = self.loops[-1] if self.loops and self.region is not None else -1
        return loop >= 0 and any(self._turning.get(a.id, -1) >= loop for a in s.indices if isinstance(a, Value))

    def streams(self, s: MemoryStatement) -> bool:
        """Whether what the next turn of the innermost loop loads follows what this one loads."""
        turned = self.program.body[self.loops[-1]] if self.loops and self.loops[-1] >= 0 else None
        return isinstance(turned, For) and s.indices[-1] == turned.bound and isinstance(turned.args[2], Const) and int(turned.args[2].value) <= self.width

    def _loads(self, region: BarrierFreeRegion) -> Counter[Memory]:
        """How many loads of each memory a region has."""
        if region.start not in self._region_loads:
            self._region_loads[region.start] = Counter(s.memory for s in self.program.body[region.start : region.stop] if isinstance(s, Load))
        return self._region_loads[region.start]

    # ---- results

    def bind(self, statement: Statement, held: LaneValue) -> None:
        """Records the value of a statement's result, and stores it where other regions need it."""
        if statement.result is None:
            return
        self.values[statement.result.id] = held
        if self.region is not None and self.is_kept(statement):
            self._keep(statement.result.id, held)

    def is_kept(self, statement: Statement) -> bool:
        """Whether a statement's result is stored for other regions."""
        value = -1 if statement.result is None else statement.result.id
        return value in self.plan.crossing and value not in self._queries and value not in self._places

    def is_elsewhere(self, value: int) -> bool:
        """Whether a value is one that a region has to import."""
        return value in self.plan.crossing or value in self.plan.again or value in self._queries or value in self._places

    def _keep(self, value: int, held: LaneValue) -> None:
        """Stores a value for later regions: once where it is uniform, else as a scalar or a vector for each chunk."""
        w = self.w
        if self.uniformity.values[value] <= Level.WORKGROUP:
            type_ = llvm_type(held.type)
            slot = w.local(type_)
            w.line(f"store {type_} {w.scalar(held, self.mask)}, ptr {slot}")
            self._kept[value] = replace(held, variability=Variability.UNIFORM, name=slot, const=None, step=0)
            return
        width = self.width if held.variability is Variability.VARYING else 1
        chunk_bytes = width * held.type.size_bytes
        offset = self.save_space(chunk_bytes)
        self._kept[value] = replace(held, name=str(offset), const=None)
        self.store_elements(held.type, width, self.saved_pointer(offset, chunk_bytes), held.name, min(chunk_bytes, AREA_ALIGN))

    def restore(self, value: int) -> LaneValue:
        """A value that another region computed, loaded here."""
        if value in self._queries:
            return self.query(self._queries[value])
        if value in self._places:
            let = self._places[value]
            return calculate(self.w, let.op.name, let.bound.type, [self.restore(a.id) if isinstance(a, Value) else self.operand(a) for a in let.args])
        kept = self._kept[value]
        if self.uniformity.values[value] <= Level.WORKGROUP:
            return replace(kept, origin="", delta=0, name=self.w.let(f"load {llvm_type(kept.type)}, ptr {kept.name}"))
        width = self.width if kept.variability is Variability.VARYING else 1
        chunk_bytes = width * kept.type.size_bytes
        pointer = self.saved_pointer(int(kept.name), chunk_bytes)
        return replace(kept, origin="", delta=0, name=self.load_elements(kept.type, width, pointer, min(chunk_bytes, AREA_ALIGN)))

    def store_elements(self, type_: Type, width: int, pointer: str, name: str, align: int) -> None:
        """Stores a scalar or vector as it lies in memory, where a bool is a byte."""
        memory = memory_type(type_, width)
        if type_.kind is Kind.BOOL:
            name = self.w.let(f"zext {llvm_type(type_, width)} {name} to {memory}")
        self.w.line(f"store {memory} {name}, ptr {pointer}, align {align}")

    def load_elements(self, type_: Type, width: int, pointer: str, align: int, *, alone: bool = False) -> str:
        """Loads a scalar or vector; what else may write to it at the same time is seen once, whatever becomes of the load. `alone` says that nothing may."""
        memory = memory_type(type_, width)
        return self.loaded(type_, width, self.w.let(f"load {memory}, ptr {pointer}, align {align}"), alone=alone)

    def loaded(self, type_: Type, width: int, name: str, *, alone: bool = False) -> str:
        """What a load gave, frozen unless this thread is alone with the memory, as a value of the language."""
        memory = memory_type(type_, width)
        frozen = name if alone else self.w.let(f"freeze {memory} {name}")
        return self.w.let(f"icmp ne {memory} {frozen}, zeroinitializer") if type_.kind is Kind.BOOL else frozen

    # ---- where invocations are

    def query(self, name: str) -> LaneValue:
        """The answer to a query of the op table."""
        w = self.w
        if name == "local_index":
            return w.linear(u32, self.base, self.width)
        what, _, letter = name.partition(".")
        axis = "xyz".index(letter)
        size = self.number(self.program.workgroup[axis])
        if what == "workgroup_size":
            return size
        if what in ("workgroup_id", "num_workgroups"):
            return LaneValue(Variability.UNIFORM, u32, self.groups[name])
        if what == "local_id":
            return self._local_id(axis)
        if self.along and axis == 0:
            return w.linear(u32, self.along, self.width)
        group = LaneValue(Variability.UNIFORM, u32, self.groups[f"workgroup_id.{letter}"])
        return calculate(w, "add", u32, (self._local_id(axis), calculate(w, "mul", u32, (group, size))))

    def _local_id(self, axis: int) -> LaneValue:
        """A place in the workgroup. Where rows are whole chunks, lanes step along x and share y and z."""
        w, sizes = self.w, self.program.workgroup
        if sizes[axis] == 1:
            return self.number(0)
        if sizes[axis] == self.invocations:
            return w.linear(u32, self.base, self.width)
        if self.row is not None:
            begin, *others = self.row
            return LaneValue(Variability.UNIFORM, u32, others[axis - 1]) if axis else w.linear(u32, w.let(f"sub i32 {self.base}, {begin}"), self.width)
        stride = prod(sizes[:axis])
        rows = sizes[0] % self.width == 0
        width = 1 if rows else self.width
        index = self.base if rows else w.vector(w.linear(u32, self.base))
        type_ = bits_type(32, width)

        def constant(value: int) -> str:
            return literal(Const(u32, value), width)

        if stride > 1:
            index = w.let(f"udiv {type_} {index}, {constant(stride)}")
        if axis < 2:
            index = w.let(f"urem {type_} {index}, {constant(sizes[axis])}")
        if not rows:
            return w.varying(u32, index)
        return w.linear(u32, index, self.width) if axis == 0 else LaneValue(Variability.UNIFORM, u32, index)
