"""A run of a Program on the interpreter, written down: what each statement of one workgroup found, lane by lane, and what it did to memory, to step through.

The Program runs as it was written, watched for races and for reads of what nothing has written. A recording has bounds: statements that run, steps that are
kept, elements of a memory that are shown. Where one is met, the recording says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from time import monotonic
from typing import Any, ClassVar, Final, TypedDict

import numpy as np

from vyre_py.explore.faults import Faults, NotedReads, RunFinding, finding_of
from vyre_py.explore.given import arguments_of
from vyre_py.ir.check import check
from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.lanes import Batches, Lanes
from vyre_py.ir.interpret.machine import Step
from vyre_py.ir.interpret.memory import Bank
from vyre_py.ir.interpret.params import InterpretError
from vyre_py.ir.interpret.races import AccessKind, Touch
from vyre_py.ir.interpret.reports import Reports
from vyre_py.ir.interpret.watched import Watch, WatchedMachine
from vyre_py.ir.interpret.watched_tiles import WatchedTileMachine
from vyre_py.ir.language.errors import RaceError, UnwrittenRead, printable
from vyre_py.ir.language.nodes import (
    REPORT_HEAD_WORDS,
    Assert,
    Atomic,
    CopyAsync,
    Else,
    End,
    Load,
    Memory,
    MemoryStatement,
    Print,
    Set,
    Space,
    Statement,
    Store,
    TileLoad,
    TileMemoryStatement,
    UniformLoad,
    Var,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import Handlers
from vyre_py.ir.passes import unoptimised
from vyre_py.lowering.kinds import expanded_for
from vyre_py.lowering.reports import Form, forms_of

__all__ = ["Moment", "Recording", "record"]

_MOST_STATEMENTS: Final = 10_000
_MOST_SECONDS: Final = 5.0
_MOST_MOMENTS: Final = 3000
_MOST_NUMBERS: Final = 400_000
_MOST_INVOCATIONS: Final = 1 << 16
MOST_ELEMENTS: Final = 4096  # of a memory that is shown
_MOST_FINDINGS: Final = 8
_MOST_SAID: Final = 32
_WHOLE: Final = 1 << 53  # integers from here on go as text


class Moment(TypedDict):
    """One statement: its place in the text, which lanes do it ("1" and "0"; "" for all), and what comes of it. `value` is what it binds or sets, an element a
    lane, or one that all share; of a tile its elements. `touched` are the elements that lanes access, -1 outside; `changes` what is in memory now; `bad` the
    lanes that fail an assert or race here."""

    line: int
    column: int
    width: int
    does: str
    mask: str
    name: str
    type: str
    shape: list[int]
    value: list[Any] | None
    memory: str
    writes: bool
    touched: list[int]
    changes: list[tuple[int, Any]]
    said: list[str]
    bad: list[int]


class Held(TypedDict):
    """A memory as it was before the run: its elements, or the first of them; of a workgroup's own memory its share, of private arrays one a lane."""

    name: str
    space: str
    type: str
    shape: list[int]
    count: int
    first: list[Any]


class Recording(TypedDict):
    """A run: the grid, the workgroup that was written down, what went in and which of it was made up, the moments, and what was found. `ended` says why it
    ends where it ends, if it was ended."""

    groups: list[int]
    workgroup: list[int]
    subgroup: int
    group: int
    lanes: int
    tiles: bool
    given: dict[str, str]
    made_up: list[str]
    memories: list[Held]
    moments: list[Moment]
    findings: list[RunFinding]
    ended: str


class _Stopped(Exception):
    """The run has taken as long as a recording may."""


def _number(value: Any) -> Any:
    """A number as JSON holds it, floats to six digits."""
    if isinstance(value, np.bool_ | bool):
        return bool(value)
    if isinstance(value, np.integer):
        whole = int(value)
        return whole if abs(whole) < _WHOLE else str(whole)
    real = float(value)
    return float(f"{real:.6g}") if np.isfinite(real) else str(real)


def _numbers(array: Array) -> list[Any]:
    """Elements; a vector's components as a list."""
    return [_numbers(row) if isinstance(row, np.ndarray) and row.ndim else _number(row) for row in array]


class _Notes:
    """What is written down of one workgroup, while machines run."""

    def __init__(self, program: Program, group: int) -> None:
        self.program, self.group, self.faults = program, group, Faults(program, group)
        self.moments: list[Moment] = []
        self.statements = self.numbers = 0
        self.ended = ""
        self._until = monotonic() + _MOST_SECONDS

    def count(self) -> None:
        """One statement more. Raises _Stopped where it is one too many."""
        self.statements += 1
        if self.statements > _MOST_STATEMENTS or monotonic() > self._until:
            raise _Stopped

    @property
    def full(self) -> bool:
        """Whether no more is written down."""
        return len(self.moments) >= _MOST_MOMENTS or self.numbers > _MOST_NUMBERS


class _RecordingMachine(WatchedMachine):
    """A machine that writes down what each statement does, for the workgroup of its notes."""

    notes: ClassVar[_Notes]
    steps: ClassVar[Handlers[Step]] = WatchedMachine.steps

    def run(self) -> None:
        """Runs to the end of the Program, statement by statement."""
        self.steps.require(self.program)
        body, index, notes = self.program.body, 0, self.notes
        first = notes.group - self.lanes.first
        mine = slice(first * self.lanes.group_lanes, (first + 1) * self.lanes.group_lanes) if 0 <= first < self.lanes.group_count else None
        while index < len(body):
            notes.count()
            statement = body[index]
            if mine is None or notes.full or isinstance(statement, End | Else):
                following = self.steps[type(statement)](self, index, statement)
                if following <= index and mine is not None and not notes.full:  # the next turn of a loop begins
                    moment, _ = self._begun(following - 1, body[following - 1], mine)
                    notes.moments.append(moment)
                    self._done(moment, body[following - 1], mine, None)
                index = following
                continue
            moment, before = self._begun(index, statement, mine)
            notes.moments.append(moment)
            heard = len(self.reports.said)
            index = self.steps[type(statement)](self, index, statement)
            self._done(moment, statement, mine, before)
            if isinstance(statement, Print):
                moment["said"] = self._said(statement, heard, mine)

    def _begun(self, index: int, s: Statement, mine: slice) -> tuple[Moment, Array | None]:
        """The moment before it has happened, and the memory that may change."""
        place, active = self.program.place(index), self.active[mine]
        line, column, width = (place.line, place.column, place.width) if place is not None else (0, 0, 0)
        moment: Moment = {
            "line": line, "column": column, "width": width,
            "does": s.spelling if not hasattr(s, "op") else s.op.name, "mask": "" if active.all() else "".join("01"[int(on)] for on in active),
            "name": "", "type": "", "shape": [], "value": None, "memory": "", "writes": False, "touched": [], "changes": [], "said": [], "bad": [],
        }  # fmt: skip
        if isinstance(s, Assert):
            failed = active & ~np.broadcast_to(self._atom(s.condition), self.lanes.count)[mine]
            moment["bad"] = np.flatnonzero(failed).tolist()
            self.notes.faults.take_assert(s, moment["bad"])
        if not isinstance(s, MemoryStatement):
            return moment, None
        bank = self.banks[s.memory]
        moment["memory"], moment["writes"] = printable(s.memory.name), not isinstance(s, Load | UniformLoad | TileLoad)
        moment["touched"] = self.notes.faults.accessed[index] = self._accessed(bank, s, mine)[:MOST_ELEMENTS]
        return moment, bank.flat.copy() if moment["writes"] else None

    def _race(self, s: MemoryStatement, touch: Touch, later: int, does: tuple[AccessKind, AccessKind], earlier: int, statement: int) -> RaceError:
        faults, who = self.notes.faults, int(touch.who[later])
        start, count = _share(self.banks[s.memory], self.lanes, faults.group)
        if 0 <= (at := int(touch.at[later]) - start) < count:
            faults.add("race", s.memory, [at])
        if (lane := faults.lane(who)) is not None and self.notes.moments:
            self.notes.moments[-1]["bad"] = [lane]
        return super()._race(s, touch, later, does, earlier, statement)

    def _accessed(self, bank: Bank, s: MemoryStatement, mine: slice) -> list[int]:
        """The element that each lane accesses, as `_touched` says; of what accesses no single elements none."""
        return self._touched(bank, self._atoms(s.indices), self.active, mine) if isinstance(s, Load | UniformLoad | Store | CopyAsync | Atomic) else []

    @staticmethod
    def _touched(bank: Bank, indices: tuple[Array, ...], active: Array, mine: slice) -> list[int]:
        """The element of each lane in its memory's share; -1 outside, and for lanes that are off."""
        offset, inside = bank.locate(indices)
        here, on = [np.broadcast_to(a, active.shape)[mine] for a in (offset, inside)]
        own = here - bank.base[mine] if bank.base is not None else here
        found: list[int] = np.where(on & active[mine], own, -1).tolist()
        return found

    def _done(self, moment: Moment, s: Statement, mine: slice, before: Array | None) -> None:
        """What has come of it."""
        made: Array | None = None
        if s.result is not None:
            made, moment["type"] = self.values[s.result.id], str(s.result.type)
            moment["name"] = printable(self.program.value_names.get(s.result.id, ""))
        elif isinstance(s, Set | Var):
            made, moment["type"] = self.variables[s.variable.id], str(s.variable.type)
            moment["name"] = printable(self.program.variable_names.get(s.variable.id, f"t{s.variable.id}"))
        if made is not None:
            share = made if len(made) == 1 else made[mine]
            if s.result is not None and s.result.type.shape:
                moment["shape"], share = list(s.result.type.shape), share.reshape(-1)[:MOST_ELEMENTS]
            moment["value"] = _numbers(share)
            self.notes.numbers += share.size
        if before is not None and isinstance(s, MemoryStatement):
            moment["changes"] = self._changes(self.banks[s.memory], before, mine)
            self.notes.numbers += 2 * len(moment["changes"])

    def _said(self, s: Print, heard: int, mine: slice) -> list[str]:
        """What the workgroup's lanes have printed, the first of it."""
        form = Form(False, s.message, tuple([value.type for value in s.values]))
        start = self.lanes.first * self.lanes.group_lanes
        of_mine = [said for said in self.reports.said[heard:] if mine.start <= said.invocation - start < mine.stop]
        return [f"{said.global_id}: {printable(form.text(said.words))}" for said in of_mine[:_MOST_SAID]]

    def _changes(self, bank: Bank, before: Array, mine: slice) -> list[tuple[int, Any]]:
        """The elements of the share that hold other bits than before."""
        start, count = _share(bank, self.lanes, self.notes.group)
        old, new = before[start : start + count], bank.flat[start : start + count]
        differ = old.view(np.uint8).reshape(count, -1) != new.view(np.uint8).reshape(count, -1) if count else np.zeros((0, 1), np.bool_)
        at = np.flatnonzero(differ.any(axis=1))[:MOST_ELEMENTS]
        at = at[at < MOST_ELEMENTS]
        return [(int(k), value) for k, value in zip(at, _numbers(new[at]), strict=True)]


class _RecordingTileMachine(_RecordingMachine, WatchedTileMachine):
    """The same for a Program of tiles, whose lanes are workgroups."""

    steps: ClassVar[Handlers[Step]] = WatchedTileMachine.steps

    def _accessed(self, bank: Bank, s: MemoryStatement, mine: slice) -> list[int]:
        """Each element of a tile by itself."""
        if not isinstance(s, TileMemoryStatement):
            return super()._accessed(bank, s, mine)
        indices, active = self._elements(s)
        size = prod(s.shape)
        return self._touched(bank, indices, active, slice(mine.start * size, mine.stop * size))


def _share(bank: Bank, lanes: Lanes, group: int) -> tuple[int, int]:
    """Where the elements of a workgroup begin in a memory, and how many they are; all of a buffer."""
    if bank.base is None:
        return 0, len(bank.flat)
    per_group = len(bank.flat) // lanes.group_count
    return (group - lanes.first) * per_group, per_group


def _held(memory: Memory, bank: Bank, lanes: Lanes, group: int) -> Held:
    start, count = _share(bank, lanes, group)
    shape = list(bank.extents)
    if memory.space is Space.PRIVATE:
        shape = [lanes.group_lanes, *shape]
    return {
        "name": printable(memory.name), "space": memory.space.value, "type": str(memory.type), "shape": shape, "count": count,
        "first": _numbers(bank.flat[start : start + min(count, MOST_ELEMENTS)]),
    }  # fmt: skip


def record(text: str, given: Mapping[str, str] | None = None, group: int = 0) -> Recording:
    """Runs the Program that a text describes, and writes down what a workgroup does, counted along x first.

    `given` are arguments as text by name; those that are missing are made up (`explore.given`). Raises ParseError, ValidationError; InterpretError for
    arguments that do not fit, and for a grid of more invocations than a recording has; CommandError for text that is no value.
    """
    checked = check(Program.from_text(text, "program.vir"))
    program = checked.program if checked.program.of_tiles else unoptimised(checked, expand=expanded_for("reference")).program
    made = arguments_of(program, given or {})
    bound = Arguments(program, made.arguments, made.sizes)
    watch, reports = Watch(program, races=True, unwritten=True), Reports()
    with np.errstate(all="ignore"):
        batches = Batches(program, bound)
        if prod(batches.groups) * prod(batches.workgroup) > _MOST_INVOCATIONS:
            raise InterpretError(f"a recording has {_MOST_INVOCATIONS} invocations at most, and the grid has more: give smaller sizes")
        if not 0 <= group < max(1, prod(batches.groups)):
            raise InterpretError(f"there is no workgroup {group}: the grid has {prod(batches.groups)}")
        notes = _Notes(program, group)
        watch.unwritten = NotedReads(program, notes.faults)
        memories, findings = _run(program, bound, batches, watch, reports, notes)
    made_up = [name for name in made.texts if not (given or {}).get(name, "").strip()]
    return {
        "groups": list(batches.groups), "workgroup": list(batches.workgroup), "subgroup": program.subgroup, "group": group, "lanes": prod(batches.workgroup),
        "tiles": program.of_tiles, "given": made.texts, "made_up": made_up, "memories": memories, "moments": notes.moments, "findings": findings,
        "ended": notes.ended,
    }  # fmt: skip


def _run(
    program: Program, bound: Arguments, batches: Batches, watch: Watch, reports: Reports, notes: _Notes
) -> tuple[list[Held], list[RunFinding]]:
    """Runs all batches; gives the memories as they were before, and what was found."""
    base = _RecordingTileMachine if program.of_tiles else _RecordingMachine
    machine = type("_NotedMachine", (base,), {"notes": notes})
    memories: list[Held] = []
    findings: list[RunFinding] = []
    try:
        for lanes in batches:
            running = machine(program, bound, lanes, reports, watch)
            if lanes.first <= notes.group < lanes.first + lanes.group_count:
                memories = [_held(m, running.banks[m], lanes, notes.group) for m in program.memories]
            running.run()
        if watch.unwritten is not None:
            watch.unwritten.require_none(bound, batches.groups)
    except RaceError as error:
        findings += [finding_of(diagnostic, "race", notes.faults.elements("race")) for diagnostic in error.diagnostics]
    except UnwrittenRead as error:
        findings += [finding_of(diagnostic, "unwritten", notes.faults.elements("unwritten")) for diagnostic in error.diagnostics]
    except _Stopped:
        notes.ended = f"the run was ended after {notes.statements:,} statements; smaller sizes take fewer"
    failed = reports.failed
    if failed is not None:
        where = next((m for m in notes.moments if m["bad"] and m["does"] == Assert.spelling), None)
        words = REPORT_HEAD_WORDS + len(failed.words)
        form = next(form for form in forms_of(program) if form.asserts and form.message == failed.message and form.words == words)
        what = f"an assert failed first in invocation {failed.global_id}: {printable(form.text(failed.words))}"
        line = where["line"] if where is not None else 0
        findings.append({"kind": "assert", "code": "", "message": what, "help": "", "line": line, "elements": notes.faults.elements("assert")})
    if notes.full and not notes.ended:
        notes.ended = f"the first {len(notes.moments):,} statements are shown; the run went on to its end"
    return memories, findings[:_MOST_FINDINGS]
