"""Accesses of buffers, element by element, at addresses that the assembler computes, by instructions with a predicate.

Kernels on tensor cores copy hundreds of elements by themselves where rows are not aligned. As blocks and addresses of LLVM's own these take it a second, most
of that in its straight-line strength reduction, which compares each address with those before it; the assembler knows as much of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import memory_type

__all__ = ["Column", "Place", "load", "store"]

# Type in memory -> the constraint of its register, and what the register holds.
_HELD: Final[Mapping[str, tuple[str, str]]] = {
    "i8": ("h", "i16"), "i16": ("h", "i16"), "i32": ("r", "i32"), "i64": ("l", "i64"), "float": ("f", "float"), "double": ("d", "double"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """How far along the last axis an element lies: a number beyond the `first` that neighbours share, an i32; and the axis' extent."""

    first: str
    beyond: int
    extent: str


@dataclass(frozen=True, slots=True)
class Place:
    """An element of a buffer: its size, the name of the address of the first one, and its number, which has 32 or 64 `bits`; with a `column` that is added to
    one of 32."""

    size_bytes: int
    base: str
    number: str
    bits: int
    column: Column | None = None

    def operands(self) -> str:
        """The address of the first element, and the number, as operands of inline assembly."""
        return f"ptr addrspace(1) {self.base}, i{self.bits} {self.number}"

    def constraints(self) -> str:
        """Those of the operands."""
        return f"l,{'l' if self.bits == 64 else 'r'}"

    def address(self, first: int, number: str = "") -> str:
        """Declares `%at` and makes it the element's address, of operands `first` and the next, or a number in place of that."""
        multiply = "mad.lo.u64" if self.bits == 64 else "mad.wide.u32"
        return f".reg .b64 %at; {multiply} %at, {number or f'${first + 1}'}, {self.size_bytes}, ${first};"


def load(w: Writer, type_: Type, place: Place, inside: str) -> str:
    """An element of a buffer that nothing writes, zero where the i1 `inside` is false."""
    memory, bits = memory_type(type_), 8 * type_.size_bytes
    register, held = _HELD[memory]
    read = f"setp.ne.u32 %in, $3, 0; mov.b{max(bits, 16)} $0, 0; @%in ld.global.nc.b{bits} $0, [%at];"
    text = f"{{ .reg .pred %in; {place.address(1)} {read} }}"
    flag = w.shared(f"zext i1 {inside} to i32")
    loaded = w.let(f'call {held} asm "{text}", "={register},{place.constraints()},r"({place.operands()}, i32 {flag})')
    return loaded if held == memory else w.let(f"trunc {held} {loaded} to {memory}")


def store(w: Writer, type_: Type, place: Place, value: str) -> None:
    """Stores an element of a buffer, where its column is inside."""
    memory = memory_type(type_)
    register, held = _HELD[memory]
    if held != memory:
        value = w.let(f"zext {memory} {value} to {held}")
    stored, given, operands = f"st.global.b{8 * type_.size_bytes} [%at], $0;", f"{register},{place.constraints()}", f"{held} {value}, {place.operands()}"
    if (column := place.column) is None:
        text = f"{place.address(1)} {stored}"
    else:
        sums = f".reg .b32 %column, %place; add.u32 %column, $3, {column.beyond}; add.u32 %place, $2, %column;"
        text = f"{sums} .reg .pred %in; setp.lt.u32 %in, %column, $4; {place.address(1, '%place')} @%in {stored}"
        given, operands = f"{given},r,r", f"{operands}, i32 {column.first}, i32 {column.extent}"
    w.line(f'call void asm sideeffect "{{ {text} }}", "{given},~{{memory}}"({operands})')
