"""Arrays in WGSL: how each memory of a Program is declared, and the text of loads, stores and atomics on it.

Bytes lie four to a word in buffers and tables. A store to one takes two atomics, and then or: they leave the other bytes of the word
alone, so that neighbouring invocations may store at once. Memory that is accessed atomically anywhere is declared atomic, and
then every access is. All tables share one read-only binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vyre_py.ir.nodes import Atomic, Memory, MemoryStatement, Space, Store
from vyre_py.ir.program import Program
from vyre_py.ir.types import Scalar, bool_, u32
from vyre_py.lowering.layout import WORD_BYTES, Layout, element_count
from vyre_py.lowering.wgsl.types import is_packed, value_type, zero
from vyre_py.lowering.wgsl.words import offset_word, word_text

__all__ = ["READ", "READ_WRITE", "Array", "Arrays", "arrays_of", "atomic_text", "exchange_lines", "zero_lines"]

# How buffers are declared. A driver may turn the first into the second: see `drivers.wgpu.module`.
READ: Final = "var<storage, read>"
READ_WRITE: Final = "var<storage, read_write>"

_TABLES: Final = "tables"


@dataclass(frozen=True, slots=True)
class Array:
    """A memory as WGSL has it: elements of `element` at `name[offset + index]`; `offset` is a name, a literal, or empty.

    `packed`: bytes, four to a word. `atomic`: declared atomic. `raw`: the words hold the bits of elements of another type.
    """

    memory: Memory
    name: str
    packed: bool
    atomic: bool
    raw: bool
    offset: str

    @property
    def element(self) -> Scalar:
        """The type of the elements."""
        return self.memory.type

    @property
    def words(self) -> str:
        """The WGSL type of what lies in the array."""
        plain = "u32" if self.packed or self.raw else value_type(self.element)
        return f"atomic<{plain}>" if self.atomic else plain

    def _read(self, position: str) -> str:
        return f"atomicLoad(&{self.name}[{position}])" if self.atomic else f"{self.name}[{position}]"

    def load(self, address: str) -> str:
        """The element at an address."""
        if self.packed:
            byte = f"({self._read(f'({address}) >> 2u')} >> ((({address}) & 3u) * 8u)) & 255u"
            return f"({byte}) != 0u" if self.element is bool_ else byte
        word = self._read(address)
        if self.raw and self.element is bool_:
            return f"{word} != 0u"
        return f"bitcast<{value_type(self.element)}>({word})" if self.raw and self.element is not u32 else word

    def store(self, address: str, value: str) -> list[str]:
        """Lines that store a value at an address."""
        if self.packed:
            byte = f"select(0u, 1u, {value})" if self.element is bool_ else value
            word, shift = f"{self.name}[({address}) >> 2u]", f"((({address}) & 3u) * 8u)"
            return [f"atomicAnd(&{word}, ~(255u << {shift}));", f"atomicOr(&{word}, ({byte}) << {shift});"]
        if self.raw and self.element is bool_:
            value = f"select(0u, 1u, {value})"
        if self.atomic:
            return [f"atomicStore(&{self.name}[{address}], {value});"]
        return [f"{self.name}[{address}] = {value};"]


_ATOMICS: Final[Mapping[str, str]] = {
    "add": "atomicAdd", "sub": "atomicSub", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd", "or": "atomicOr", "xor": "atomicXor",
    "exchange": "atomicExchange",
}


def atomic_text(op: str, array: Array, address: str, operands: Sequence[str]) -> str:
    """An atomic other than compare_exchange, as an expression for the old element."""
    return f"{_ATOMICS[op]}(&{array.name}[{address}], {operands[0]})"


def exchange_lines(array: Array, address: str, operands: Sequence[str], old: str) -> list[str]:
    """Lines that compare and exchange, and put the old element into the variable `old`."""
    # The weak exchange may fail though the element was as expected: then it is tried again.
    expected, desired = operands
    return [
        "loop {",
        f"  let tried = atomicCompareExchangeWeak(&{array.name}[{address}], {expected}, {desired});",
        f"  {old} = tried.old_value;",
        f"  if (tried.exchanged || {old} != {expected}) {{ break; }}",
        "}",
    ]


@dataclass(frozen=True, slots=True)
class Arrays:
    """All memories that a Program accesses: declarations at module scope and at the kernel's head, what must be zeroed, and the words of
    all tables."""

    by_memory: Mapping[Memory, Array]
    module: tuple[str, ...]
    head: tuple[str, ...]
    workgroup: tuple[Array, ...]
    workgroup_bytes: int
    tables: bytes


def _element_bytes(memory: Memory) -> int:
    return WORD_BYTES if is_packed(memory.type) else memory.type.size_bytes


def arrays_of(program: Program, layout: Layout) -> Arrays:
    """The arrays of a Program."""
    accesses = [s for s in program.body if isinstance(s, MemoryStatement)]
    used = dict.fromkeys([s.memory for s in accesses])
    atomic = {s.memory for s in accesses if isinstance(s, Atomic) or (isinstance(s, Store) and _is_bytes(s.memory))}
    numbers = {slot.name: number for number, slot in enumerate(layout.buffers)}
    by_memory: dict[Memory, Array] = {}
    module: list[str] = []
    head: list[str] = []
    tables: list[bytes] = []
    table_bytes = 0
    for number, memory in enumerate(m for m in program.memories if m in used):
        packed = _is_bytes(memory)
        if memory.space is Space.BUFFER:
            slot = numbers[memory.name]
            array = Array(memory, f"b{slot}", packed, memory in atomic, False, f"o{slot}")
            declared = READ_WRITE if memory.access.writes else READ
            module.append(f"@group(0) @binding({slot + 1}) {declared} {array.name}: array<{array.words}>;")
            head.append(f"let {array.offset} = {word_text(offset_word(slot))};")
        elif memory.space is Space.TABLE:
            base = table_bytes // (1 if packed else WORD_BYTES)
            array = Array(memory, _TABLES, packed, False, True, f"{base}u" if base else "")
            tables.append(memory.data + bytes(-len(memory.data) % WORD_BYTES))
            table_bytes += len(tables[-1])
        else:
            # A driver was seen to lose the elements of workgroup arrays of bool, so bools are words in every array.
            array = Array(memory, f"a{number}", False, memory in atomic, memory.type is bool_, "")
            declared = f"{array.name}: array<{array.words}, {element_count(memory)}>;"
            if memory.space is Space.WORKGROUP:
                module.append(f"var<workgroup> {declared}")
            else:
                head.append(f"var {declared}")
        by_memory[memory] = array
    if tables:
        module.append(f"@group(0) @binding({len(layout.buffers) + 1}) {READ} {_TABLES}: array<u32>;")
    workgroup = tuple(a for a in by_memory.values() if a.memory.space is Space.WORKGROUP)
    size = sum(_element_bytes(a.memory) * element_count(a.memory) for a in workgroup)
    return Arrays(by_memory, tuple(module), tuple(head), workgroup, size, b"".join(tables))


def _is_bytes(memory: Memory) -> bool:
    return is_packed(memory.type) and memory.space in (Space.BUFFER, Space.TABLE)


def zero_lines(arrays: Arrays, invocations: int) -> list[str]:
    """Lines that zero the workgroup's memory together, since not every implementation does."""
    lines: list[str] = []
    for array in arrays.workgroup:
        (store,) = array.store("z", zero(array.element))
        lines += [f"for (var z = local_index; z < {element_count(array.memory)}u; z += {invocations}u) {{", f"  {store}", "}"]
    return [*lines, "workgroupBarrier();"] if lines else []
