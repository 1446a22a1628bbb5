"""Tiles: Programs of tiles, and the statements that only these have.

Laws, for a Program of sound form:

* V601: what a tile op takes as numbers, and the extents of an access, are u32 constants.
* V602: a Program has tiles, as values and variables, only where it is one of tiles.
* V603: a Program of tiles has nothing that is about its invocations: no workgroup and private arrays, subgroups, barriers, uniform loads, copies,
  fences, atomics of single elements, and no queries but those of workgroups.
* V604: a tile has 1 to `MAX_TILE_RANK` axes, extents of at least 1, and at most `MAX_TILE_ELEMENTS` elements, which are scalars.
* V605: a Program of tiles says how many workgroups run.
* V606: a loop has a pipelining depth only in a Program of tiles.

The other laws hold for these statements, too: V201 to V205, V301 and V302, and V304 for an atomic add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from vyre_py.ir.check.findings import HEAD, Findings, atom_text, number, quoted
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.describe import family, full_name
from vyre_py.ir.language.grids import NO_GRID
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    TILE_KINDS,
    Access,
    Atom,
    Atomic,
    Barrier,
    Const,
    CopyAsync,
    CopyCommit,
    CopyWait,
    For,
    GridBarrier,
    Let,
    Space,
    Statement,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileMemoryStatement,
    UniformLoad,
    Var,
)
from vyre_py.ir.language.ops import ATOMICS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32

if TYPE_CHECKING:
    from vyre_py.ir.builder.tiles import tile_refusals
else:
    (tile_refusals,) = deferred("vyre_py.ir.builder.tiles", "tile_refusals")

__all__ = ["check_tile_memory", "check_tile_op", "check_tiles", "is_tile_access"]

# Kind -> what to write in its place, in a Program of tiles.
_OF_INVOCATIONS: Final[Mapping[type[Statement], str]] = {
    **dict.fromkeys((Barrier, GridBarrier, *FENCES.values()), "leave it out: statements of a workgroup follow one another"),
    UniformLoad: "a load is the same for the whole workgroup: write memory[i]",
    Subgroup: "reduce and scan along an axis of a tile",
    **dict.fromkeys((CopyAsync, CopyCommit, CopyWait), "load a tile: compilers copy ahead by themselves"),
    **dict.fromkeys(ATOMIC_KINDS, "add a tile: tile_atomic_add"),
}
_WORKGROUP_QUERIES: Final = ("workgroup_id.", "num_workgroups.")
_OWN_SPACES: Final = (Space.WORKGROUP, Space.PRIVATE)


def _are_numbers(program: Program, findings: Findings, index: int, atoms: tuple[Atom, ...], what: str) -> bool:
    """Whether these are u32 constants."""
    wrong = next((atom for atom in atoms if not isinstance(atom, Const) or atom.type is not u32), None)
    if wrong is not None:
        findings.add("V601", index, f"{what} {atom_text(program, wrong)} is no constant u32")
    return wrong is None


def is_tile_access(program: Program, findings: Findings, index: int, s: TileMemoryStatement) -> bool:
    """Whether the extents of an access, whose operands are as many as it takes, are those of a tile that its memory has."""
    memory, name = s.memory, quoted(s.memory.name)
    if not _are_numbers(program, findings, index, s.args[memory.rank : 2 * memory.rank], "the extent"):
        return False
    if memory.type.is_vector:
        findings.add("V604", index, f"{name} has elements of {memory.type}, a tile scalars", "declare it with scalars, and an axis more for the components")
    elif (fault := tile_refusals.refusal_shape(s.shape)) is not None:
        findings.add("V604", index, *fault)
    else:
        return True
    return False


def check_tile_memory(index: int, s: TileMemoryStatement, findings: Findings) -> None:
    """Reports an access by tiles that the declaration of its memory does not allow."""
    memory, name = s.memory, quoted(s.memory.name)
    if isinstance(s, TileLoad):
        if not memory.access.reads:
            findings.add("V301", index, f"{name} is {memory.access.value}, so it cannot be loaded from")
    elif not memory.access.writes:
        findings.add("V302", index, f"{name} is {'a table' if memory.space is Space.TABLE else memory.access.value}, so it cannot be stored to")
    elif isinstance(s, TileAtomicAdd):
        row = ATOMICS["add"]
        if memory.access is not Access.READ_WRITE:
            findings.add("V303", index, f"{s.spelling} on {name}, which is {memory.access.value}")
        if memory.type not in row.of:
            findings.add("V304", index, f"{s.spelling} on {name}, whose elements are {memory.type}", f"{full_name(row)} is for elements of {family(row.of)}")


def check_tiles(program: Program, findings: Findings) -> None:
    """Reports tiles in a Program of invocations, and what is about invocations in one of tiles."""
    if program.of_tiles:
        _check_head(program, findings)
        for index, statement in enumerate(program.body):
            _check_whole(index, statement, findings)
    else:
        for index, statement in enumerate(program.body):
            if isinstance(statement, TILE_KINDS) or (isinstance(statement, Var) and statement.variable.type.is_tile):
                findings.add("V602", index, "a tile stands in a Program of invocations")
            elif isinstance(statement, For) and statement.pipeline:
                findings.add("V606", index, f"pipeline({number(statement.pipeline)}) stands in a Program of invocations")


def _check_head(program: Program, findings: Findings) -> None:
    if program.grid.over or program.grid == NO_GRID:
        said = "counts invocations, which it does not have" if program.grid.over else "says nothing of its grid"
        findings.add("V605", HEAD, f"a Program of tiles {said}")
    if program.subgroup:
        findings.add("V603", HEAD, "a Program of tiles has subgroups")
    for memory in program.memories:
        if memory.space in _OWN_SPACES:
            findings.add("V603", memory.name, f"{memory.space.value} array {quoted(memory.name)} stands in a Program of tiles", "hold the elements in a tile")


def _check_whole(index: int, statement: Statement, findings: Findings) -> None:
    help_ = _OF_INVOCATIONS.get(type(statement))
    if help_ is not None:
        findings.add("V603", index, f"{_written(statement)} stands in a Program of tiles", help_)
    elif isinstance(statement, Let) and statement.op.is_query and not statement.op.name.startswith(_WORKGROUP_QUERIES):
        message = f"{statement.op.name} asks for an invocation in a Program of tiles"
        findings.add("V603", index, message, "ask for workgroup_id.x; iota counts along an axis of a tile")


def _written(statement: Statement) -> str:
    """How text writes a statement."""
    if isinstance(statement, Subgroup):
        return f"subgroup_{statement.op.name}"
    return full_name(statement.op) if isinstance(statement, Atomic) else statement.spelling


def check_tile_op(program: Program, findings: Findings, index: int, s: Tile) -> None:
    """Reports a tile op whose operands and result do not fit its row."""
    op = s.op
    if len(s.args) < op.operands or not op.takes(len(s.args) - op.operands):
        findings.add("V202", index, f"{op.name} takes {', '.join([*op.names, *op.numbers])}, got {len(s.args)} operands")
        return
    if not _are_numbers(program, findings, index, s.args[op.operands :], f"{op.name} takes numbers:"):
        return
    operands = tuple([a.type for a in s.values])
    type_ = op.result_type(operands, s.numbers)
    if type_ is None:
        findings.add("V201", index, *tile_refusals.refusal_tile(op, operands, s.numbers))
    elif s.bound.type is not type_:
        findings.add("V203", index, f"{op.name} is {type_}, its result {atom_text(program, s.bound)} is {s.bound.type}")
