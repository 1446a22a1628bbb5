"""Loads, stores and atomics: of an element, of a row of neighbours at once, of what one invocation tells the others."""

from __future__ import annotations

from collections.abc import Mapping

from vyre_py.ir.check.facts import is_told
from vyre_py.ir.language.nodes import Atomic, CopyAsync, Load, Memory, Space, Store, UniformLoad
from vyre_py.ir.language.op import Order
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type
from vyre_py.lowering.llvm.atomics import atomic_operation
from vyre_py.lowering.llvm.gpu import placed
from vyre_py.lowering.llvm.gpu.fast import NVPTX_EMITTERS
from vyre_py.lowering.llvm.gpu.orders import in_order, scope_of
from vyre_py.lowering.llvm.gpu.simt import neighbouring_adds
from vyre_py.lowering.llvm.gpu.simt.elements import Elements
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.gpu.simt.parameters import Parameters
from vyre_py.lowering.llvm.gpu.simt.storage import Storage
from vyre_py.lowering.llvm.gpu.simt.workgroup import Workgroup
from vyre_py.lowering.llvm.gpu.tensor_cores import TensorCores
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import llvm_type, memory_type
from vyre_py.lowering.rows import Row

__all__ = ["Accesses"]


class Accesses:
    """Those of one kernel, some of which are `rows`; in a function, `operands` are the names of what it is given, and `result` is what it returns.

    `done` are the statements that an earlier one did along with itself. Loads of memory that nothing writes say so where that is asked for (`says_unchanged`).
    """

    def __init__(
        self, w: Writer, module: ModuleText, program: Program, names: Names, parameters: Parameters, elements: Elements, cores: TensorCores,
        workgroup: Workgroup, storage: Storage, rows: Mapping[int, Row], *, says_unchanged: bool, adds_for_neighbours: bool,
    ) -> None:  # fmt: skip
        self._w, self._module, self._program, self._names, self._parameters = w, module, program, names, parameters
        self._elements, self._cores, self._workgroup, self._storage, self._rows = elements, cores, workgroup, storage, rows
        self._says_unchanged, self._unchanged_node = says_unchanged, ""
        self._added_to = neighbouring_adds.added_to(program) if adds_for_neighbours else frozenset()
        self.operands: Mapping[Memory, str] = {}
        self.result: Memory | None = None
        self.done: set[int] = set()

    # ---- loads

    def load(self, index: int, s: Load | UniformLoad) -> None:
        """Enters the loaded value, one value whatever races."""
        values = self._names.values
        if s.memory in self.operands:
            values[s.bound.id] = self.operands[s.memory]
            return
        if self._cores.owns(s.memory):
            assert isinstance(s, Load)  # a private array is loaded from by no other
            values[s.bound.id] = self._cores.load(s)
            return
        if index in self._rows and index not in self.done:
            self._load_row(index, s)
        if index in self.done:
            return
        if "readonly" in self._parameters.promises(s.memory) and self._elements.is_placed(index, s):
            self._load_placed(index, s)
            return

        def read() -> str:
            return self._loaded(s.memory.type, f"{self._elements.aligned(index, s)}{self._unchanged(s.memory)}")

        values[s.bound.id] = self._elements.guarded(s, self._elements.proven(index), read)

    def _load_placed(self, index: int, s: Load | UniformLoad) -> None:
        """Loads an element, and those of the same buffer that the statements behind load."""
        body, run = self._program.body, list[Load | UniformLoad]()
        places, flags = list[placed.Place](), list[str]()
        for number in range(index, min(index + placed.TOGETHER, len(body))):
            one = body[number]
            alike = isinstance(one, type(s)) and one.memory is s.memory and number not in self._rows and number not in self.done
            if not alike or not isinstance(one, (Load, UniformLoad)) or not self._elements.is_placed(number, one):
                break
            place, is_inside = self._elements.whole_place(number, one)
            if places and place.bits != places[0].bits:
                break
            run.append(one)
            places.append(place)
            flags.append(is_inside)
        for one, value in zip(run, placed.load(self._w, s.memory.type, places, flags), strict=True):
            self._names.values[one.bound.id] = value
        self.done.update(range(index, index + len(run)))

    def _load_row(self, index: int, s: Load | UniformLoad) -> None:
        """One access for neighbours: each load's value is one of its lanes."""
        w, row, type_ = self._w, self._rows[index], memory_type(s.memory.type)
        many = f"<{row.width} x {type_}>"

        def read() -> str:
            return w.let(f"freeze {many} {w.let(f'load {many}, {self._elements.row(index, s, row)}{self._unchanged(s.memory)}')}")

        if "readonly" in self._parameters.promises(s.memory) and self._elements.is_placed_row(s, row):
            loaded = placed.load_together(w, s.memory.type, *self._elements.place(index, s, row.width), row.width)
        else:
            loaded = self._elements.guarded(s, self._elements.row_proven(index, s), read, (many, "zeroinitializer"))
        for number, lane in enumerate(row.lanes, index):
            one = w.let(f"extractelement {many} {loaded}, i32 {lane}")
            self._names.values[self._program.body[number].bound.id] = w.let(f"icmp ne {type_} {one}, 0") if s.memory.type.kind is Kind.BOOL else one
        self.done.update(range(index, index + len(row.lanes)))

    def uniform_load(self, index: int, s: UniformLoad) -> None:
        """Loads behind a barrier what is the same for all, by each invocation or by one that tells the others."""
        self._workgroup.barrier()
        if is_told(s):
            self._load_and_tell(index, s)
        else:
            self.load(index, s)
            self._workgroup.barrier()

    def _load_and_tell(self, index: int, s: UniformLoad) -> None:
        """One invocation loads, and the others read what it found. They have read it before the next one is told: a uniform load begins with a barrier."""
        w, values, type_, align = self._w, self._names.values, memory_type(s.memory.type), s.memory.type.size_bytes
        tell, told = w.label("tell"), w.label("told")
        place = w.let(f"getelementptr {type_}, ptr addrspace(3) {self._storage.told}, i64 0")
        w.branch(w.let(f"icmp eq i32 {self._workgroup.local_index()}, 0"), tell, told)
        w.block(tell)
        self.load(index, s)
        w.line(f"store {type_} {self._in_memory(s.memory.type, values[s.bound.id])}, ptr addrspace(3) {place}, align {align}")
        w.jump(told)
        w.block(told)
        self._workgroup.barrier()
        values[s.bound.id] = self._loaded(s.memory.type, f"ptr addrspace(3) {place}, align {align}")

    def _loaded(self, type_: Type, place: str) -> str:
        w, memory = self._w, memory_type(type_)
        loaded = w.let(f"load {memory}, {place}")
        frozen = w.let(f"freeze {memory} {loaded}")
        return w.let(f"icmp ne {memory} {frozen}, 0") if type_.kind is Kind.BOOL else frozen

    def _unchanged(self, memory: Memory) -> str:
        """What a load says of memory that nothing writes, where LLVM's code generation tries too little to see it by itself."""
        if not self._says_unchanged or memory.space is not Space.BUFFER or "readonly" not in self._parameters.promises(memory):
            return ""
        self._unchanged_node = self._unchanged_node or self._module.node("!{}")
        return f", !invariant.load {self._unchanged_node}"

    # ---- stores and atomics

    def store(self, index: int, s: Store) -> None:
        """Stores an element, or returns it where that is what a function gives."""
        if s.memory is self.result:
            self._w.end(f"ret {llvm_type(s.memory.type)} {self._names.atom(s.value)}")
            return
        if self._cores.owns(s.memory):
            self._cores.store(s)
            return
        if index in self._rows and index not in self.done:
            self.store_row(index, s)
        if index not in self.done:
            self.write(index, s)

    def write(self, index: int, s: Store | CopyAsync) -> None:
        """Stores one element."""
        if self._elements.is_placed(index, s):
            self._store_placed(index, s)
            return

        def write() -> str:
            type_, value = memory_type(s.memory.type), self._in_memory(s.memory.type, self._names.atom(s.value))
            self._w.line(f"store {type_} {value}, {self._elements.aligned(index, s)}")
            return ""

        self._elements.guarded(s, self._elements.proven(index), write)

    def joined(self, index: int, s: Store | CopyAsync) -> tuple[str, str]:
        """What a row stores, as one vector: its type and name."""
        w, row, type_ = self._w, self._rows[index], memory_type(s.memory.type)
        many, made = f"<{row.width} x {type_}>", "undef"
        for number, lane in enumerate(row.lanes, index):
            value = self._in_memory(s.memory.type, self._names.atom(self._program.body[number].args[-1]))
            made = w.let(f"insertelement {many} {made}, {type_} {value}, i32 {lane}")
        return many, made

    def store_row(self, index: int, s: Store | CopyAsync) -> None:
        """Stores a row at once."""
        row, (many, made) = self._rows[index], self.joined(index, s)

        def write() -> str:
            self._w.line(f"store {many} {made}, {self._elements.row(index, s, row)}")
            return ""

        self._elements.guarded(s, self._elements.row_proven(index, s), write)
        self.done.update(range(index, index + len(row.lanes)))

    def _store_placed(self, index: int, s: Store | CopyAsync) -> None:
        """Stores an element, and those of the statements that follow, as far as the same says that they are inside."""
        w, body, (place, is_inside) = self._w, self._program.body, self._elements.place(index, s)
        run: list[tuple[Store | CopyAsync, placed.Place]] = [(s, place)]
        for number in range(index + 1, len(body)):
            then = body[number]
            if not isinstance(then, Store) or number in self._rows or not self._elements.is_placed(number, then):
                break
            place, other = self._elements.place(number, then)
            if other != is_inside:
                break
            run.append((then, place))
            self.done.add(number)
        within, past, known = w.label("inside"), w.label("past"), w.known
        if is_inside:
            w.branch(is_inside, within, past)
            w.block(within)
        while run:
            (one, at), *_ = run
            alike = (k for k, (then, other) in enumerate(run) if k == placed.TOGETHER or then.memory is not one.memory or not at.beside(other))
            count = max(1, next(alike, len(run)))
            some, run = run[:count], run[count:]
            placed.store(w, one.memory.type, [place for _, place in some], [self._names.atom(then.value) for then, _ in some])
        if is_inside:
            w.block(past)
            w.known = known

    def atomic(self, index: int, s: Atomic) -> None:
        """Changes an element, and enters the old value if it is bound."""
        space, type_ = s.memory.space, s.memory.type

        def perform(order: Order) -> str:
            operands = [self._names.atom(a) for a in s.operands]
            return atomic_operation(self._w, s.op, type_, self._elements.pointer(index, s), operands, NVPTX_EMITTERS, order, scope_of(space))

        def change() -> str:
            if s.memory in self._added_to:
                neighbouring_adds.add(self._w, self._elements.pointer(index, s), self._names.atom(s.operands[0]))
                return ""
            old = in_order(self._w, s.op, space, perform)
            return self._w.let(f"freeze {llvm_type(type_)} {old}") if s.binds else ""

        found = self._elements.guarded(s, self._elements.proven(index), change)
        if s.result is not None:
            self._names.values[s.result.id] = found

    def _in_memory(self, type_: Type, value: str) -> str:
        """A value as it lies in memory, where a bool is a byte."""
        return self._w.let(f"zext i1 {value} to {memory_type(type_)}") if type_.kind is Kind.BOOL else value
