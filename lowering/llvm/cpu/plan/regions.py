"""The barrier-free regions of a body, for hosts that run a workgroup on one thread.

Invocations run in chunks of lanes. All chunks reach a barrier before any passes it. So a statement that holds a barrier (or a uniform
load, which is two), and the control flow around it, belongs to the workgroup: it is scalar code. The statements between two such are a
barrier-free region: one loop over the chunks. Control flow of the workgroup is uniform over it. The checker has proven that for
barriers. An escape out of such a block belongs to the workgroup only where the uniformity analysis has proven it uniform.

Where there are barriers anyway, copies one after the other are several regions, and a loop that adds up what it loads is the workgroup's, so that each
loop over the chunks runs along memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntFlag
from itertools import pairwise
from typing import Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.check.uniformity import Uniformity
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.effects import SYNCHRONISES
from vyre_py.ir.language.nodes import (
    Atomic,
    Break,
    Continue,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Loop,
    Return,
    Set,
    Space,
    Statement,
    Store,
    Value,
    Var,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.lowering.rows import Row

__all__ = ["BarrierFreeRegion", "Escape", "Plan", "beyond", "places_of", "plan_regions"]

_ESCAPES: Final = (Break, Continue, Return)
_LOOPS: Final = (For, Loop)
# Ops that cost no more than a load, of which LLVM knows in which range the result lies.
_CHEAP: Final = frozenset({"add", "shl", "shr", "and"})
# So many copies are worth a loop each.
_FEWEST_COPIES: Final = 4
# Atomics of integers that may change places.
_IN_ANY_ORDER: Final = frozenset({"add", "sub", "or", "xor", "and", "min", "max"})


class Escape(IntFlag):
    """Ways in which some lanes, but not all, leave a block before its end."""

    NONE = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 4


def beyond(statement: Statement, flags: Escape) -> Escape:
    """Of the escapes in the block that a statement opens, those that leave it: a loop keeps breaks and continues."""
    return flags & _ABSORBED if isinstance(statement, _LOOPS) else flags


_FLAG: Final[dict[type[Statement], Escape]] = {Break: Escape.BREAK, Continue: Escape.CONTINUE, Return: Escape.RETURN}
_ABSORBED: Final = ~(Escape.BREAK | Escape.CONTINUE)


@dataclass(slots=True)
class BarrierFreeRegion:
    """Statements `start` up to `stop`, without a barrier. It reads values of other regions (`imports`), reads and writes variables that other
    regions use (`reads`, `writes`), and lanes leave it early by `escapes`."""

    start: int
    stop: int
    imports: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    escapes: Escape = Escape.NONE


@dataclass(frozen=True, slots=True)
class Plan:
    """How barriers divide a body.

    `shared[i]` says that statement i belongs to the workgroup, `has_barriers` that any does; `regions` maps the first statement of each region
    to it. `escapes[i]` tells, for a statement that opens a block, how lanes leave that block apart from its other lanes; a break and a
    continue count in their loop, not beyond. `crossing` values and `carried` variables live across regions. `keeps_alive` says that lanes
    that returned must be known to later regions; `keeps_turn` holds the workgroup's loops of which a turn may be left by some lanes. `again` has the values
    that regions which import them compute again, and what they are computed from, with the statements that do it.
    """

    shared: tuple[bool, ...]
    regions: dict[int, BarrierFreeRegion]
    escapes: tuple[Escape, ...]
    crossing: frozenset[int]
    carried: frozenset[int]
    keeps_alive: bool
    keeps_turn: frozenset[int]
    has_barriers: bool
    again: Mapping[int, int] = field(default_factory=dict)


def _owners(program: Program) -> tuple[list[int], list[int]]:
    """For each statement: the statement that opens the block around it, and the innermost loop around it; -1 for none. A marker
    that closes a block counts as standing in it."""
    parents, loops = [], []
    open_blocks: list[int] = [-1]
    open_loops: list[int] = [-1]
    for index, statement in enumerate(program.body):
        parents.append(open_blocks[-1])
        loops.append(open_loops[-1])
        if statement.opens:
            open_blocks.append(index)
            if isinstance(statement, _LOOPS):
                open_loops.append(index)
        elif isinstance(statement, End) and open_loops[-1] == open_blocks.pop():
            open_loops.pop()
    return parents, loops


def _shared(program: Program, uniformity: Uniformity, proven: Sequence[int], parents: list[int], loops: list[int]) -> list[bool]:
    """Which statements belong to the workgroup."""
    body = program.body
    uniform = [level <= Level.WORKGROUP for level in uniformity.control]
    shared = [SYNCHRONISES[type(s)] for s in body]
    if not any(shared):
        return shared
    for index, statement in enumerate(body):
        shared[index] = shared[index] or (isinstance(statement, Return) and uniform[index])
    _spread(shared, parents)
    for index, statement in enumerate(body):
        if isinstance(statement, (Break, Continue)) and uniform[index] and shared[loops[index]]:
            shared[index] = True
    _spread(shared, parents)
    for index, statement in enumerate(body):
        if isinstance(statement, For) and uniform[index] and (parents[index] < 0 or shared[parents[index]]) and _goes_along(program, uniformity, proven, index):
            shared[index] = True
    for index, statement in enumerate(body):
        if statement.opens and shared[index]:
            close = program.match[index]
            shared[close] = True
            if isinstance(body[close], Else):
                shared[program.match[close]] = True
    return shared


def _goes_along(program: Program, uniformity: Uniformity, proven: Sequence[int], index: int) -> bool:
    """Whether a loop is better taken by all chunks together, turn by turn, since it strides over what all chunks load: it counts in workgroup memory, or it
    adds up what it loads of buffers. Of the latter, chunk by chunk, the indices are not known to be inside before its turns."""
    stop, turned, loads, unknown, sets = program.match[index], {_result(program.body[index])}, 0, 0, 0
    if any(isinstance(a, Value) and uniformity.values[a.id] > Level.WORKGROUP for a in program.body[index].args):
        return False
    body = program.body[index + 1 : stop]
    counts = any(isinstance(s, Atomic) for s in body)
    for number, s in enumerate(body, index + 1):
        if not isinstance(s, (Let, Load)) and not (_only_counts(program, s) if counts else isinstance(s, (Get, Set))):
            return False
        if isinstance(s, Let) and any(isinstance(a, Value) and a.id in turned for a in s.args):
            turned.add(s.bound.id)
        if isinstance(s, Load) and s.memory.space is Space.BUFFER and any(isinstance(a, Value) and a.id in turned for a in s.args):
            loads += 1
            unknown += proven[number] != (1 << s.memory.rank) - 1
        sets += isinstance(s, Set)
    return loads > 0 if counts else 0 < sets <= unknown


def _only_counts(program: Program, s: Statement) -> bool:
    """Whether a statement is a guard, or an atomic of workgroup memory whose order among others nobody can tell."""
    if not isinstance(s, Atomic):
        return isinstance(s, (If, Else, End))
    exact = s.memory.space is Space.WORKGROUP and s.op.name in _IN_ANY_ORDER and not s.memory.type.is_float
    return exact and s.result is not None and not uses(program)[s.result.id]


def _result(s: Statement) -> int:
    assert s.result is not None  # of a For it is its value
    return s.result.id


def _spread(shared: list[bool], parents: list[int]) -> None:
    """Around a shared statement every block is shared: inner ones come later, so one walk backwards reaches all."""
    for index in range(len(shared) - 1, -1, -1):
        if shared[index] and parents[index] >= 0:
            shared[parents[index]] = True


def _escape_flags(program: Program, uniformity: Uniformity, shared: list[bool], parents: list[int], width: int) -> list[Escape]:
    """Flags by statement: those of an escape itself, or of all that is in the block it opens. With one lane nothing ever parts."""
    flags = [Escape.NONE] * len(program.body)
    if width == 1:
        return flags
    for index in range(len(program.body) - 1, -1, -1):
        statement = program.body[index]
        if isinstance(statement, _ESCAPES) and uniformity.control[index] > Level.WORKGROUP:
            flags[index] = _FLAG[type(statement)]
        if parents[index] >= 0 and flags[index]:
            flags[parents[index]] |= beyond(statement, flags[index])
    return flags


def _find_regions(program: Program, shared: list[bool], flags: list[Escape], parents: list[int]) -> tuple[dict[int, BarrierFreeRegion], list[int]]:
    """The regions, and for each statement the start of its region, or -1."""
    regions: dict[int, BarrierFreeRegion] = {}
    home = [-1] * len(shared)
    index = 0
    while index < len(shared):
        if shared[index]:
            index += 1
            continue
        region = regions[index] = BarrierFreeRegion(index, index)
        while region.stop < len(shared) and not shared[region.stop]:
            # A block's flags hold those of what is in it; what a loop of the region takes in does not leave the region.
            if parents[region.stop] < index:
                region.escapes |= beyond(program.body[region.stop], flags[region.stop])
            home[region.stop] = index
            region.stop += 1
        index = region.stop
    return regions, home


def places_of(body: Sequence[Statement]) -> dict[int, Let]:
    """Values that are computed again rather than kept for later regions, but for queries: where invocations are, scaled and shifted. Of a loaded one LLVM
    would not know that an address computed from it does not wrap."""
    queries = {s.bound.id for s in body if isinstance(s, Let) and s.op.is_query}
    found: dict[int, Let] = {}
    for s in body:
        if isinstance(s, Let) and s.op.name in _CHEAP and s.bound.type is u32 and all(a.id in queries or a.id in found for a in s.args if isinstance(a, Value)):
            found[s.bound.id] = s
    return found


def _part_copies(program: Program, uniformity: Uniformity, rows: Mapping[int, Row], regions: dict[int, BarrierFreeRegion], home: list[int]) -> None:
    """Parts regions that only copy from one array to another, so that each copy is made for all invocations before the next: along memory, not across it.
    Copies of several arrays by turns stay together: parting those of a product's two factors gained nothing, and lost a tenth. So do those that a row
    stores together."""
    places: Mapping[int, Let] = places_of(program.body)
    within = {start + k for start, row in rows.items() for k in range(1, len(row.lanes))}
    for region in list(regions.values()):
        starts, ours = [region.start], dict[int, int]()  # each value -> the copy that has it
        for index in range(region.start, region.stop):
            s = program.body[index]
            if not isinstance(s, (Let, Load, Store)) or any(ours.get(a.id, len(starts)) < len(starts) for a in s.args if isinstance(a, Value)):
                break
            if isinstance(s, Store):
                if index + 1 not in within:
                    starts.append(index + 1)
            elif isinstance(s, Load) or not (s.op.is_query or s.bound.id in places or uniformity.values[s.bound.id] <= Level.WORKGROUP):
                ours[s.bound.id] = len(starts)
        else:
            arrays = {(type(s), s.memory) for s in program.body[region.start : region.stop] if isinstance(s, (Load, Store))}
            if len(starts) > _FEWEST_COPIES and starts[-1] == region.stop and len(arrays) == len((Load, Store)):
                del regions[region.start]
                for start, stop in pairwise(starts):
                    regions[start] = BarrierFreeRegion(start, stop)
                    home[start:stop] = [start] * (stop - start)


def _crossings(program: Program, regions: dict[int, BarrierFreeRegion], home: list[int]) -> tuple[set[int], set[int]]:
    """Values and variables that live across regions; fills what each region imports, reads and writes."""
    value_home: dict[int, int] = {}
    variable_homes: dict[int, set[int]] = {}
    crossing: set[int] = set()
    imports: dict[int, dict[int, None]] = {start: {} for start in regions}
    for index, statement in enumerate(program.body):
        here = home[index]
        for atom in statement.args:
            if isinstance(atom, Value) and value_home[atom.id] not in (here, -1):
                crossing.add(atom.id)
                if here >= 0:
                    imports[here][atom.id] = None
        if statement.result is not None:
            value_home[statement.result.id] = here
        if isinstance(statement, (Var, Get, Set)):
            variable_homes.setdefault(statement.variable.id, set()).add(here)
    carried = {variable for variable, homes in variable_homes.items() if len(homes) > 1}
    for start, region in regions.items():
        reads: dict[int, None] = {}
        writes: dict[int, None] = {}
        declared: set[int] = set()
        for statement in program.body[region.start : region.stop]:
            if isinstance(statement, (Var, Get, Set)) and statement.variable.id in carried:
                variable = statement.variable.id
                if isinstance(statement, Var):
                    declared.add(variable)
                elif variable not in declared:
                    reads[variable] = None
                if not isinstance(statement, Get):
                    writes[variable] = None
        region.imports, region.reads, region.writes = tuple(imports[start]), tuple(reads), tuple(writes)
    return crossing, carried


def plan_regions(program: Program, uniformity: Uniformity, proven: Sequence[int], rows: Mapping[int, Row], width: int) -> Plan:
    """Parts a checked Program's body for `width` lanes; bits of `proven` say which axes of accesses need no check, and the statements of each of the `rows`
    stay in one region. Linear in its statements."""
    parents, loops = _owners(program)
    shared = _shared(program, uniformity, proven, parents, loops)
    flags = _escape_flags(program, uniformity, shared, parents, width)
    regions, home = _find_regions(program, shared, flags, parents)
    if any(shared):
        _part_copies(program, uniformity, rows, regions, home)
    crossing, carried = _crossings(program, regions, home)
    body = program.body
    return Plan(
        tuple(shared), regions, tuple(flags), frozenset(crossing), frozenset(carried),
        len(regions) > 1 and any(isinstance(s, Return) and home[i] >= 0 for i, s in enumerate(body)),
        frozenset(loops[i] for i, s in enumerate(body) if isinstance(s, Continue) and home[i] >= 0 and loops[i] >= 0 and shared[loops[i]]),
        any(shared),
    )
