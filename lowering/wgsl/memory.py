"""Arrays in WGSL: how each memory of a Program is declared, and the text of loads, stores and atomics on it.

In buffers and tables, elements of 8 and 16 bits lie four and two to a word; elsewhere each has a word. A store to part of a word takes two atomics, `and`
and then `or`: they leave the rest of the word alone, so that neighbouring invocations may store at once. Memory that is accessed atomically anywhere is
declared atomic, and then every access is. Atomics on f32 are a compare-and-exchange loop on the bits in an `atomic<u32>`, but sums in buffers where the
target has them. All tables share one read-only binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.check.facts import is_told
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Access, Atomic, Memory, MemoryStatement, Space, Store
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bool_, f32, f64, i64, u64
from vyre_py.lowering.layout import WORD_BYTES, Layout, element_count
from vyre_py.lowering.legal.split64 import WordPairs
from vyre_py.lowering.wgsl.ops import ROWS
from vyre_py.lowering.wgsl.types import packed_bits, value_type, zero
from vyre_py.lowering.wgsl.uniform_block import offset_word, word_text

__all__ = ["READ", "READ_WRITE", "Array", "Arrays", "arrays_of", "atomic_lines", "atomic_text", "is_one_call", "table_lines", "zero_lines"]

# How buffers are declared. A driver may turn the first into the second: see `drivers.wgpu.module`.
READ: Final = "var<storage, read>"
READ_WRITE: Final = "var<storage, read_write>"

_TABLES: Final = "tables"
# Types of two words -> how they are read from them.
_OF_WORDS: Final[Mapping[Type, str]] = {f64: "f64_of_words({0}, {1})", u64: "u64_of_words({0}, {1})", i64: "bitcast<i64>(u64_of_words({0}, {1}))"}
_WORD_BITS: Final = 8 * WORD_BYTES


@dataclass(frozen=True, slots=True)
class Array:
    """A memory as WGSL has it: elements of `element` at `name[offset + index]`; `offset` is a name, a literal, or empty.

    `packed`: the bits of an element, of which several lie in a word, or 0. `atomic`: declared atomic. `raw`: the words hold the bits of elements of another
    type, those of 64 bits two words. Of `halves` (`lowering.wgsl.halves`) the elements are f16 themselves, to and from which f32 go. Of `pairs` what lies
    in the array are vectors of two words, and an address is that of a vector, of which `component` says what is meant: one word, or all of it.
    """

    memory: Memory
    name: str
    packed: int
    atomic: bool
    raw: bool
    offset: str
    pairs: bool = False
    component: str = ""
    halves: bool = False

    @property
    def element(self) -> Type:
        """The type of the elements, as accesses see them."""
        return f32 if self.halves else self.memory.type

    @property
    def words(self) -> str:
        """The WGSL type of what lies in the array."""
        if self.pairs:
            return "vec2<u32>"
        if self.halves:
            return "f16"
        plain = "u32" if self.packed or self.raw else value_type(self.element)
        return f"atomic<{plain}>" if self.atomic else plain

    def _read(self, position: str) -> str:
        return f"atomicLoad(&{self.name}[{position}])" if self.atomic else f"{self.name}[{position}]{self.component}"

    def _part(self, address: str) -> tuple[str, str]:
        """Of a packed element: the position of its word, and its first bit there."""
        count = _WORD_BITS // self.packed
        return f"({address}) >> {count.bit_length() - 1}u", f"((({address}) & {count - 1}u) * {self.packed}u)"

    def _of_bits(self, bits: str) -> str:
        """The value that the bits of a word stand for."""
        if self.element is bool_:
            return f"({bits}) != 0u" if self.packed else f"{bits} != 0u"
        return f"bitcast<{value_type(self.element)}>({bits})" if value_type(self.element) != "u32" else bits

    def _bits_of(self, value: str) -> str:
        """The word of bits that stands for a value."""
        if self.element is bool_:
            return f"select(0u, 1u, {value})"
        return f"bitcast<u32>({value})" if value_type(self.element) != "u32" else value

    def word(self, number: int) -> Array:
        """Of `pairs`: the array of the first words, or of the second."""
        return replace(self, component=(".x", ".y")[number])

    def _word(self, address: str, past: int) -> str:
        """Of a packed element: its word, or one so many words past it."""
        position, _ = self._part(address)
        return f"({position}) {'-' if past < 0 else '+'} {abs(past)}u" if past else position

    def read_word(self, address: str, past: int) -> str:
        """The word `past` that of a packed element."""
        return self._read(self._word(address, past))

    def part_of(self, word: str, place: int) -> str:
        """The packed element at a place in a word."""
        return self._of_bits(f"({word} >> {place * self.packed}u) & {(1 << self.packed) - 1}u")

    def store_words(self, address: str, values: Sequence[str], lane: int) -> list[str]:
        """Lines that store the packed elements of whole words, of which that at `lane` has the address."""
        per = _WORD_BITS // self.packed
        lines: list[str] = []
        for first in range(0, len(values), per):
            bits = " | ".join([f"(({self._bits_of(value)}) << {place * self.packed}u)" for place, value in enumerate(values[first : first + per])])
            lines.append(f"atomicStore(&{self.name}[{self._word(address, first // per - lane // per)}], {bits});")
        return lines

    def load(self, address: str) -> str:
        """The element at an address."""
        if self.packed:
            position, shift = self._part(address)
            return self._of_bits(f"({self._read(position)} >> {shift}) & {(1 << self.packed) - 1}u")
        if not self.raw:
            return f"f32({self._read(address)})" if self.halves else self._read(address)
        if self.element in _OF_WORDS:
            first = f"({address}) * 2u"
            return _OF_WORDS[self.element].format(self._read(first), self._read(f"{first} + 1u"))
        return self._of_bits(self._read(address))

    def load_together(self, address: str) -> str:
        """The element at an address of workgroup memory that is not atomic, between two barriers."""
        found = f"workgroupUniformLoad(&{self.name}[{address}])"
        return self._of_bits(found) if self.raw else found

    def store(self, address: str, value: str) -> list[str]:
        """Lines that store a value at an address."""
        bits = self._bits_of(value) if self.packed or self.raw else value
        if self.packed:
            position, shift = self._part(address)
            word = f"{self.name}[{position}]"
            return [f"atomicAnd(&{word}, ~({(1 << self.packed) - 1}u << {shift}));", f"atomicOr(&{word}, ({bits}) << {shift});"]
        if self.atomic:
            return [f"atomicStore(&{self.name}[{address}], {bits});"]
        return [f"{self.name}[{address}]{self.component} = {f'f16({bits})' if self.halves else bits};"]


_ATOMICS: Final[Mapping[str, str]] = {
    "add": "atomicAdd", "sub": "atomicSub", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd", "or": "atomicOr", "xor": "atomicXor",
    "exchange": "atomicExchange",
}
# Atomics that WGSL lacks, of the old element and the operand.
_COMPUTED: Final[Mapping[str, str]] = {"nand": "~({0} & {1})"}


# Those on f32 that some devices have, in buffers.
_SUMS: Final = frozenset({"add", "load"})


def is_one_call(op: str, array: Array) -> bool:
    """Whether an atomic on elements of an array is one call in WGSL, rather than a loop."""
    return (op in _ATOMICS and not (array.element is f32 and array.raw)) or op == "load"


def atomic_text(op: str, operands: Sequence[str], array: Array, address: str) -> str:
    """An atomic that `is_one_call`, as an expression for the old element."""
    if op == "load":
        return array.load(address)
    return f"{_ATOMICS[op]}(&{array.name}[{address}], {operands[0]})"


def atomic_lines(op: str, operands: Sequence[str], old: str, array: Array, address: str) -> list[str]:
    """Lines that do an atomic, and put the old element into the variable `old`.

    The weak exchange may fail though the element was as expected: then it is tried again.
    """
    if is_one_call(op, array):
        return [f"{old} = {atomic_text(op, operands, array, address)};"]
    place = f"&{array.name}[{address}]"
    if op in _COMPUTED:
        return _loop(place, "seen", _COMPUTED[op].format(old, operands[0]), old)
    if array.element is f32:
        row = ROWS[op]
        new = (row if isinstance(row, str) else row["f32"]).format(old, operands[0])
        return _loop(place, "bitcast<f32>(seen)", f"bitcast<u32>({new})", old)
    expected, desired = operands
    return [
        "loop {",
        f"  let tried = atomicCompareExchangeWeak({place}, {expected}, {desired});",
        f"  {old} = tried.old_value;",
        f"  if (tried.exchanged || {old} != {expected}) {{ break; }}",
        "}",
    ]


def _loop(place: str, seen: str, new: str, old: str) -> list[str]:
    """Lines that put what comes of the old element, which is of the word `seen`, in its place, again while another was put there in between."""
    return [
        "loop {",
        f"  let seen = atomicLoad({place});",
        f"  {old} = {seen};",
        f"  if (atomicCompareExchangeWeak({place}, seen, {new}).exchanged) {{ break; }}",
        "}",
    ]


@dataclass(frozen=True, slots=True)
class Arrays:
    """All memories that a Program accesses: declarations at module scope and at the kernel's head, what must be zeroed, and the words of
    all tables. `told` has an array of one element for each type of which one invocation tells its workgroup what it loaded."""

    by_memory: Mapping[Memory, Array]
    module: tuple[str, ...]
    head: tuple[str, ...]
    workgroup: tuple[Array, ...]
    told: Mapping[Type, Array]
    workgroup_bytes: int
    tables: bytes


class _Declarations:
    """Collects the arrays of a Program, memory by memory."""

    def __init__(self, layout: Layout, atomic: frozenset[Memory], summed: frozenset[Memory], halves: frozenset[Memory], tables: bytes) -> None:
        self._atomic = atomic
        self._summed = summed
        self._halves = halves
        self._numbers = {slot.name: number for number, slot in enumerate(layout.buffers)}
        self.module: list[str] = []
        self.head: list[str] = []
        self.tables = bytearray(tables)

    def _has_bits(self, memory: Memory) -> bool:
        """Whether the bits of f32 lie in a memory, since no atomics on f32 do what is done to it."""
        return memory.type is f32 and memory in self._atomic and memory not in self._summed

    def buffer(self, memory: Memory) -> Array:
        number = self._numbers[memory.name]
        atomic = memory in self._atomic
        halves, pairs = memory in self._halves, isinstance(memory, WordPairs)
        packed = 0 if halves else packed_bits(memory.type)
        array = Array(memory, f"b{number}", packed, atomic, self._has_bits(memory), f"o{number}", pairs, halves=halves)
        declared = READ_WRITE if memory.access.writes else READ
        self.module.append(f"@group(0) @binding({number + 1}) {declared} {array.name}: array<{array.words}>;")
        self.head.append(f"let {array.offset} = {word_text(offset_word(number))}{' >> 1u' if array.pairs else ''};")
        return array

    def table(self, memory: Memory) -> Array:
        size = memory.type.size_bytes
        self.tables += bytes(-len(self.tables) % max(size, WORD_BYTES))
        base = len(self.tables) // size
        self.tables += memory.data + bytes(-len(memory.data) % WORD_BYTES)
        return Array(memory, _TABLES, packed_bits(memory.type), False, True, f"{base}u" if base else "")

    def own(self, memory: Memory, number: int) -> Array:
        atomic = memory in self._atomic
        # A driver was seen to lose the elements of workgroup arrays of bool, so bools are words in every array.
        raw = memory.type is bool_ or self._has_bits(memory)
        array = Array(memory, f"a{number}", 0, atomic, raw, "")
        declared = f"{array.name}: array<{array.words}, {element_count(memory)}>;"
        if memory.space is Space.WORKGROUP:
            self.module.append(f"var<workgroup> {declared}")
        else:
            self.head.append(f"var {declared}")
        return array


def arrays_of(program: Program, layout: Layout, tables: bytes, sums: bool, halves: frozenset[Memory]) -> Arrays:
    """The arrays of a Program; its tables come after those in `tables`. With `sums` the target has atomic sums of f32; `halves` are arrays of f16."""
    accesses = [s for s in program.body if isinstance(s, MemoryStatement)]
    used = dict.fromkeys([s.memory for s in accesses])
    atomic = frozenset(s.memory for s in accesses if isinstance(s, Atomic) or (isinstance(s, Store) and _is_packed(s.memory) and s.memory not in halves))
    others = {s.memory for s in accesses if isinstance(s, Atomic) and s.op.name not in _SUMS}
    summed = frozenset(m for m in atomic - others if m.space is Space.BUFFER) if sums else frozenset()
    made = _Declarations(layout, atomic, summed, halves, tables)
    by_memory: dict[Memory, Array] = {}
    for number, memory in enumerate(m for m in program.memories if m in used):
        if memory.space is Space.BUFFER:
            by_memory[memory] = made.buffer(memory)
        elif memory.space is Space.TABLE:
            by_memory[memory] = made.table(memory)
        else:
            by_memory[memory] = made.own(memory, number)
    workgroup = tuple(a for a in by_memory.values() if a.memory.space is Space.WORKGROUP)
    types = dict.fromkeys(s.memory.type for s in accesses if is_told(s))
    told = {type_: made.own(_one_element(type_), len(program.memories) + number) for number, type_ in enumerate(types)}
    size = sum(max(a.element.size_bytes, WORD_BYTES) * element_count(a.memory) for a in (*workgroup, *told.values()))
    return Arrays(by_memory, tuple(made.module), tuple(made.head), workgroup, told, size, bytes(made.tables))


def table_lines(tables: bytes, layout: Layout) -> list[str]:
    """The declaration of what holds all tables, if there are any."""
    return [f"@group(0) @binding({len(layout.buffers) + 1}) {READ} {_TABLES}: array<u32>;"] if tables else []


def _one_element(type_: Type) -> Memory:
    return Memory("", Space.WORKGROUP, type_, (DimConst(1),), Access.READ_WRITE)


def _is_packed(memory: Memory) -> bool:
    return memory.space is Space.BUFFER and packed_bits(memory.type) > 0


def zero_lines(arrays: Arrays, written_first: frozenset[Memory], invocations: int) -> list[str]:
    """Lines that zero the workgroup's memory together, since not every implementation does, but for what is written before it is read."""
    lines: list[str] = []
    for array in [a for a in arrays.workgroup if a.memory not in written_first]:
        (store,) = array.store("z", zero(array.element))
        lines += [f"for (var z = local_index; z < {element_count(array.memory)}u; z += {invocations}u) {{", f"  {store}", "}"]
    return [*lines, "workgroupBarrier();"] if lines else []
