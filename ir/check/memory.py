"""Memory: valid declarations, and valid accesses.

Laws, for a Program of sound form:

* V301, V302, V303: a load needs a memory that is read, a store one that is written, an atomic one that is both.
* V304: atomics work on buffers and workgroup memory, of the types of their row.
* V305: workgroup, private and table arrays have constant axes of at least 1.
* V306: a table's data is exactly its elements; other memories have none.
* V307: a memory has 1 to `MAX_RANK` axes. The components of vectors count as none, and neither do they where they have become a
  last axis of 2 to 4, as in Programs made for a target.
* V308: a uniform_load reads a buffer or workgroup memory.
* V309: workgroup and private arrays are read_write, tables are read.
* V311: a copy_async writes a workgroup array.

A dim needs no law of its own: one that is no buffer's axis is given by name when the Program is bound.
"""

from __future__ import annotations

from math import prod
from typing import Final

from vyre_py.ir.check.findings import Findings, quoted
from vyre_py.ir.check.limits import MAX_RANK
from vyre_py.ir.check.tile_laws import check_tile_memory
from vyre_py.ir.language.describe import family, full_name
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Access,
    Atomic,
    CopyAsync,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Store,
    TileMemoryStatement,
    UniformLoad,
)
from vyre_py.ir.language.program import Program

__all__ = ["check_memory"]

_COMPONENTS: Final = (2, 3, 4)

_ACCESS: Final = {Space.WORKGROUP: Access.READ_WRITE, Space.PRIVATE: Access.READ_WRITE, Space.TABLE: Access.READ}
_SHARED = (Space.BUFFER, Space.WORKGROUP)


def _check_declaration(memory: Memory, findings: Findings) -> None:
    name = f"{memory.space.value} {quoted(memory.name)}"
    last = memory.shape[-1] if memory.rank > MAX_RANK else None
    components = isinstance(last, DimConst) and last.value in _COMPONENTS and not memory.type.is_vector
    if not 1 <= memory.rank <= MAX_RANK + components:
        findings.add("V307", memory.name, f"{name} has {memory.rank} axes")
    access = _ACCESS.get(memory.space, memory.access)
    if memory.access is not access:
        findings.add("V309", memory.name, f"{name} is {access.value}, not {memory.access.value}")
    constant = [axis.value for axis in memory.shape if isinstance(axis, DimConst) and axis.value >= 1]
    fixed = memory.space is Space.BUFFER or len(constant) == memory.rank
    if not fixed:
        findings.add("V305", memory.name, f"{name} has an axis that is not a constant of at least 1")
    if memory.space is not Space.TABLE:
        if memory.data:
            findings.add("V306", memory.name, f"{name} has data, which only a table may have")
    elif fixed and len(memory.data) != prod(constant) * memory.type.size_bytes:
        wanted = (
            f"{prod(constant)} elements of {memory.type.size_bytes} bytes"
            if prod(constant) < 1 << 64
            else "more elements than memory holds"
        )
        findings.add("V306", memory.name, f"{name} takes {wanted}, its data has {len(memory.data)} bytes")


def _check_access(index: int, statement: MemoryStatement, findings: Findings) -> None:
    memory, kind = statement.memory, type(statement)
    name = quoted(memory.name)
    if kind in (Load, UniformLoad) and not memory.access.reads:
        findings.add("V301", index, f"{name} is {memory.access.value}, so it cannot be loaded from")
    if kind is UniformLoad and memory.space not in _SHARED:
        findings.add("V308", index, f"{name} is {memory.space.value} memory")
    if kind is CopyAsync and memory.space is not Space.WORKGROUP:
        findings.add("V311", index, f"{name} is {memory.space.value} memory")
    if kind is Store and not memory.access.writes:
        is_table = memory.space is Space.TABLE
        message = f"{name} is {'a table' if is_table else memory.access.value}, so it cannot be stored to"
        findings.add("V302", index, message, "use a buffer or a private array" if is_table else None)
    if isinstance(statement, TileMemoryStatement):
        check_tile_memory(index, statement, findings)
    if isinstance(statement, Atomic):
        if memory.space not in _SHARED:
            findings.add("V304", index, f"{full_name(statement.op)} on {name}, which is {memory.space.value} memory")
        elif memory.access is not Access.READ_WRITE:
            findings.add("V303", index, f"{full_name(statement.op)} on {name}, which is {memory.access.value}")
        if memory.type not in statement.op.of:
            findings.add(
                "V304",
                index,
                f"{full_name(statement.op)} on {name}, whose elements are {memory.type}",
                f"{full_name(statement.op)} is for elements of {family(statement.op.of)}",
            )


def check_memory(program: Program, findings: Findings) -> None:
    """Reports declarations that cannot be, and accesses that a declaration does not allow."""
    for memory in program.memories:
        _check_declaration(memory, findings)
    declared = set(program.memories)
    for index, statement in enumerate(program.body):
        if isinstance(statement, MemoryStatement) and statement.memory in declared:
            _check_access(index, statement, findings)
