"""Copies from buffers into workgroup memory that the hardware does while the invocation goes on (PTX ISA, `cp.async`), from sm_80 on.

An instruction copies 4, 8 or 16 bytes, aligned to as many. So a copy is one where its value is an element of 4 or 8 bytes that was loaded from a buffer
which the Program does not write, or a row of such elements (`lowering.rows`). Any other copy is a plain store, which is done at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.check.facts import definitions, uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Access, BoxCopy, CopyAsync, Load, Space, Statement, StripCopy, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, u32
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.llvm.addressing import inside, offset
from vyre_py.lowering.llvm.gpu.placed import Place
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import memory_type
from vyre_py.lowering.rows import WIDEST_BYTES, Row

__all__ = ["COPIES_SINCE", "Copied", "commit", "copied", "copies_ahead", "copy", "copy_strip", "wait"]

# The architecture from which on there are such copies.
COPIES_SINCE: Final = 80

_NARROW_BYTES: Final = (4, 8)


@dataclass(frozen=True, slots=True)
class Copied:
    """What instructions copy: the load of each copy's value (`loads`), of how many elements an instruction is that copies several (`counts`, by the first
    copy), and the `silent` loads, which nothing else needs."""

    loads: Mapping[int, int]
    counts: Mapping[int, int]
    silent: frozenset[int]


def copies_ahead(program: Program) -> bool:
    """Whether a Program that was made for a target has copies that go on beside what it computes."""
    return any(isinstance(s, (BoxCopy, CopyAsync, StripCopy)) for s in program.body)


def copied(optimised: Optimised, rows: Mapping[int, Row]) -> Copied:
    """What instructions copy of a Program some of whose accesses are rows. Linear in the statements."""
    body = optimised.program.body
    copies = {index: s for index, s in enumerate(body) if isinstance(s, CopyAsync)}
    if not copies:
        return Copied({}, {}, frozenset())
    loads, counts = dict[int, int](), dict[int, int]()
    sources = _sources(optimised, copies)
    for index, load in sources.items():
        row = rows.get(index)
        if row is not None and _is_row(row, [sources.get(index + lane) for lane in range(row.width)], rows.get(load)):
            loads |= {index + lane: load + lane for lane in range(row.width)}
            counts[index] = row.width
        elif index not in loads and copies[index].memory.type.size_bytes in _NARROW_BYTES:
            loads[index] = load
    wide = {load + lane for index, load in loads.items() for lane in range(counts.get(index, 0))}
    beside = {first + number for first, row in rows.items() if isinstance(body[first], Load) for number in range(len(row.lanes))} - wide
    loads = {index: load for index, load in loads.items() if load not in beside}  # that of a row gives all of its elements
    return Copied(loads, counts, _silent(optimised, loads))


def _sources(optimised: Optimised, copies: Mapping[int, CopyAsync]) -> dict[int, int]:
    """The load of what a copy copies, where that could be copied."""
    body, made_at = optimised.program.body, definitions(optimised.program)
    found: dict[int, int] = {}
    for index, s in copies.items():
        load = body[made_at[s.value.id]] if isinstance(s.value, Value) else None
        if isinstance(load, Load) and load.memory.space is Space.BUFFER and load.memory.access is Access.READ and load.memory.type.kind is not Kind.BOOL:
            found[index] = made_at[load.bound.id]
    return found


def _is_row(row: Row, sources: Sequence[int | None], loaded: Row | None) -> bool:
    """Whether the copies of a row copy the elements of a row of loads, one to one."""
    first = sources[0]
    follows = first is not None and list(sources) == list(range(first, first + row.width))
    return follows and loaded == row and list(row.lanes) == list(range(row.width))


def _silent(optimised: Optimised, loads: Mapping[int, int]) -> frozenset[int]:
    """The loads whose every use is a copy by an instruction."""
    body, counts = optimised.program.body, dict[int, int]()
    for load in loads.values():
        counts[load] = counts.get(load, 0) + 1
    used = uses(optimised.program)
    return frozenset(load for load, count in counts.items() if used[_bound(body[load])] == count)


def _bound(statement: Statement) -> int:
    assert statement.result is not None  # a load's
    return statement.result.id


def copy(w: Writer, target: str, source: str | Place, size_bytes: int, inside: str) -> None:
    """Begins to copy so many bytes to an address of workgroup memory, i64, from one of a buffer, i64, or from an element; zeros where the i1 `inside` is
    false, unless that is ""."""
    short = w.let(f"trunc i64 {target} to i32")  # arithmetic on it is of 32 bits, too
    level = "cg" if size_bytes == WIDEST_BYTES else "ca"  # what goes to workgroup memory is not wanted in L1, which only the widest passes by
    named = isinstance(source, Place)
    text, registers, given = f"cp.async.{level}.shared.global [$0], [{'%at' if named else '$1'}], {size_bytes}", "r,l", f"i32 {short}, i64 {source}"
    if isinstance(source, Place):
        registers, given = f"r,{source.constraints()}", f"i32 {short}, {source.operands()}"
    if inside:
        count = w.shared(f"select i1 {inside}, i32 {size_bytes}, i32 0")
        text, registers, given = f"{text}, ${3 if named else 2}", f"{registers},r", f"{given}, i32 {count}"
    text = f"{{ {source.address(1)} {text}; }}" if isinstance(source, Place) else f"{text};"
    w.line(f'call void asm sideeffect "{text}", "{registers},~{{memory}}"({given})')


def copy_strip(
    w: Writer, s: StripCopy, places: tuple[str, str, str], indices: Sequence[str], types: Sequence[Type], extents: Sequence[str], *, wide: bool
) -> None:
    """Begins the copies of a statement; `places` are the array in workgroup memory, the first group there, and the buffer. Whether the first is inside, and
    how many rows are left from there on, is found out once; all are a constant distance apart."""
    (strip, group, base), bits, row, size = places, 64 if wide else 32, indices[s.axis], s.memory.type.size_bytes
    is_inside = inside(w, indices, types, extents[:-1], wide, 0)
    left = w.let(f"sub i{bits} {extents[s.axis]}, {w.let(f'zext i32 {row} to i64') if wide else row}")
    left = w.let(f"select i1 {is_inside}, i{bits} {left}, i{bits} 0")
    place = offset(w, [*indices, "0"], [*types, u32], extents, wide)
    place = w.let(f"select i1 {is_inside}, i64 {place}, i64 0")  # nothing is read there, yet it is an address
    element = w.let(f"getelementptr {memory_type(s.source.type)}, ptr addrspace(1) {base}, i64 {place}")
    source = w.let(f"ptrtoint ptr addrspace(1) {element} to i64")
    apart = str(s.down * size)
    for extent in extents[s.axis + 1 :]:
        apart = w.let(f"mul i64 {apart}, {extent if wide or extent.isdigit() else w.let(f'zext i32 {extent} to i64')}")
    lanes = s.memory.shape[-1]
    assert isinstance(lanes, DimConst)  # of an array in workgroup memory
    group_bytes = lanes.value * size
    first = w.let(f"getelementptr [{group_bytes} x i8], ptr addrspace(3) {strip}, i32 {group}")
    target = w.let(f"ptrtoint ptr addrspace(3) {first} to i64")
    for number in range(s.count):
        to = w.let(f"add i64 {target}, {number * s.further * group_bytes}")
        further = w.let(f"add i64 {source}, {w.let(f'mul i64 {apart}, {number}')}")
        copy(w, to, further, group_bytes, w.let(f"icmp ugt i{bits} {left}, {number * s.down}"))


def commit(w: Writer) -> None:
    """Makes a group of the copies begun."""
    w.line('call void asm sideeffect "cp.async.commit_group;", "~{memory}"()')


def wait(w: Writer, groups: int) -> None:
    """Waits for all groups but the last ones; for every copy where that is none."""
    which = f"wait_group {groups}" if groups else "wait_all"
    w.line(f'call void asm sideeffect "cp.async.{which};", "~{{memory}}"()')
