"""Accesses of buffers, element by element or by few neighbours, at addresses that the assembler computes, by instructions with a predicate.

Kernels on tensor cores copy hundreds of elements by themselves where rows are not aligned. As blocks and addresses of LLVM's own these take it a second, most
of that in its straight-line strength reduction, which compares each address with those before it; the assembler knows as much of them. Some together are one
piece of assembly, since LLVM takes its time over each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import memory_type

__all__ = ["TOGETHER", "TOGETHER_BYTES", "WORD_BYTES", "Column", "Place", "load", "load_together", "store", "store_words"]

TOGETHER: Final = 16  # elements that one piece of inline assembly accesses, at most
WORD_BYTES: Final = 4
TOGETHER_BYTES: Final = (4, 8)  # of neighbours that are loaded together

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
        return f".reg .b64 %at; {self.found(first, number)}"

    def found(self, first: int, number: str = "") -> str:
        """Makes `%at` the element's address."""
        multiply = "mad.lo.u64" if self.bits == 64 else "mad.wide.u32"
        return f"{multiply} %at, {number or f'${first + 1}'}, {self.size_bytes}, ${first};"

    def beside(self, other: Place) -> bool:
        """Whether another element is this one but for how far it lies beyond the same column."""
        return self.column is not None and other.column is not None and replace(other, column=replace(other.column, beyond=self.column.beyond)) == self


def load(w: Writer, type_: Type, places: Sequence[Place], inside: Sequence[str]) -> list[str]:
    """Elements of a buffer that nothing writes, each zero where its i1 is false."""
    count, (place, *_) = len(places), places
    memory, bits = memory_type(type_), 8 * type_.size_bytes
    register, held = _HELD[memory]
    flags = dict.fromkeys(inside)
    at = {flag: f"${2 * count + 1 + k}" for k, flag in enumerate(flags)}
    lines, before = [".reg .pred %in; .reg .b64 %at;"], ""
    for k, flag in enumerate(inside):
        test = "" if flag == before else f"setp.ne.u32 %in, {at[flag]}, 0; "
        lines.append(f"{test}{place.found(count, f'${count + 1 + k}')} mov.b{max(bits, 16)} ${k}, 0; @%in ld.global.nc.b{bits} ${k}, [%at];")
        before = flag
    pointer, number = place.constraints().split(",")
    registers = ",".join([*[f"=&{register}"] * count, pointer, *[number] * count, *["r"] * len(flags)])
    given = [f"ptr addrspace(1) {place.base}", *[f"i{place.bits} {one.number}" for one in places]]
    given += [f"i32 {w.shared(f'zext i1 {flag} to i32')}" for flag in flags]
    result = f"{{ {', '.join([held] * count)} }}" if count > 1 else held
    loaded = w.let(f'call {result} asm "{{ {" ".join(lines)} }}", "{registers}"({", ".join(given)})')
    found = [loaded] if count == 1 else [w.let(f"extractvalue {result} {loaded}, {k}") for k in range(count)]
    return found if held == memory else [w.let(f"trunc {held} {one} to {memory}") for one in found]


def load_together(w: Writer, type_: Type, place: Place, inside: str, width: int) -> str:
    """A vector of `width` neighbours of a buffer that nothing writes, zero where the i1 `inside` is false, unless that is "", or where their column is outside.
    It stays behind the stores before it: what never changes the assembler loads as early as it has registers for, and earlier, beside sums that fill them."""
    bits, flag = 8 * place.size_bytes, w.shared(f"zext i1 {inside} to i32") if inside else "1"
    register, held = _HELD[f"i{bits}"]
    test, operands, given = "setp.ne.u32 %in, $3, 0;", f"{place.operands()}, i32 {flag}", f"={register},{place.constraints()},r"
    if (column := place.column) is None:
        text = f".reg .pred %in; {place.address(1)} {test} mov.b{bits} $0, 0; @%in ld.global.b{bits} $0, [%at];"
    else:
        sums = f".reg .b32 %column, %place; add.u32 %column, $4, {column.beyond}; add.u32 %place, $2, $4;"
        test = f".reg .pred %in; {test} setp.lt.and.u32 %in, %column, $5, %in;"
        beyond = column.beyond * place.size_bytes
        text = f"{sums} {test} {place.address(1, '%place')} mov.b{bits} $0, 0; @%in ld.global.b{bits} $0, [%at + {beyond}];"
        given, operands = f"{given},r,r", f"{operands}, i32 {column.first}, i32 {column.extent}"
    loaded = w.let(f'call {held} asm "{{ {text} }}", "{given}"({operands})')
    return w.let(f"bitcast {held} {loaded} to <{width} x {memory_type(type_)}>")


def store_words(w: Writer, words: Sequence[str], place: Place, inside: str) -> None:
    """Stores one, two or four i32 as one, where the i1 `inside` is true."""
    count = len(words)
    listed = ", ".join([f"${k}" for k in range(count)])
    stored = f"st.global.v{count}.b32 [%at], {{{listed}}};" if count > 1 else "st.global.b32 [%at], $0;"
    text = f"{{ .reg .pred %in; {place.address(count)} setp.ne.u32 %in, ${count + 2}, 0; @%in {stored} }}"
    registers, given = ",".join([*["r"] * count, place.constraints(), "r"]), [*[f"i32 {word}" for word in words], place.operands()]
    w.line(f'call void asm sideeffect "{text}", "{registers},~{{memory}}"({", ".join(given)}, i32 {w.shared(f"zext i1 {inside} to i32")})')


def store(w: Writer, type_: Type, places: Sequence[Place], values: Sequence[str]) -> None:
    """Stores elements that lie `beside` one another, or one, each where its column is inside."""
    (place, *_), count = places, len(places)
    memory = memory_type(type_)
    register, held = _HELD[memory]
    if held != memory:
        values = [w.let(f"zext {memory} {value} to {held}") for value in values]
    stored = f"st.global.b{8 * type_.size_bytes} [%at],"
    given, taken = [*[f"{held} {value}" for value in values], place.operands()], [*[register] * count, place.constraints()]
    if (column := place.column) is None:
        lines = [place.address(1), f"{stored} $0;"]
    else:
        lines = [".reg .pred %in; .reg .b32 %column, %place; .reg .b64 %at;"]
        given, taken = [*given, f"i32 {column.first}", f"i32 {column.extent}"], [*taken, "r", "r"]
        for k, other in enumerate([one.column for one in places if one.column is not None]):
            lines.append(f"add.u32 %column, ${count + 2}, {other.beyond}; add.u32 %place, ${count + 1}, %column; setp.lt.u32 %in, %column, ${count + 3};")
            lines.append(f"{place.found(count, '%place')} @%in {stored} ${k};")
    w.line(f'call void asm sideeffect "{{ {" ".join(lines)} }}", "{",".join(taken)},~{{memory}}"({", ".join(given)})')
