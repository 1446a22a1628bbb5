"""What a run found wrong, and at which elements and lanes of the workgroup that is written down: races, reads of what nothing wrote, asserts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Final, TypedDict

from vyre_py.ir.check.facts import definitions
from vyre_py.ir.interpret.invocations import parted
from vyre_py.ir.interpret.unwritten import UnwrittenReads
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.errors import Diagnostic, printable
from vyre_py.ir.language.nodes import Assert, Load, Memory, MemoryStatement, Space, UniformLoad, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array

__all__ = ["Faults", "RunFinding", "NotedReads", "finding_of"]

_MOST_SOURCES: Final = 1000  # values that a condition is followed through
_MOST_ELEMENTS: Final = 4096


class RunFinding(TypedDict):
    """What was found, at a line of the text, and the elements that it is about by the name of their memory, numbered as the recording numbers them."""

    kind: str
    code: str
    message: str
    help: str
    line: int
    elements: dict[str, list[int]]


def finding_of(diagnostic: Diagnostic, kind: str, elements: Mapping[str, list[int]]) -> RunFinding:
    """A diagnostic as a finding of a kind: race or unwritten."""
    place = diagnostic.place
    return {
        "kind": kind, "code": diagnostic.code, "message": printable(diagnostic.message), "help": printable(diagnostic.help),
        "line": place.line if place is not None else 0, "elements": dict(elements),
    }  # fmt: skip


class Faults:
    """The elements at fault of a workgroup, by kind of finding. `accessed` is what each lane last accessed by each statement, -1 outside."""

    def __init__(self, program: Program, group: int) -> None:
        self.group = group
        self.accessed: dict[int, Sequence[int]] = {}
        self._program, self._bound_at = program, definitions(program)
        self._elements: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def add(self, kind: str, memory: Memory, elements: Iterable[int]) -> None:
        """Takes elements of a memory up."""
        self._elements[kind][printable(memory.name)].update(elements)

    def elements(self, kind: str) -> dict[str, list[int]]:
        """Those of a kind of finding, in order."""
        return {name: sorted(found)[:_MOST_ELEMENTS] for name, found in self._elements[kind].items()}

    def lane(self, who: int) -> int | None:
        """The lane that an invocation is, None where it is of another workgroup."""
        group, lane = parted(who)
        return lane if group == self.group else None

    def take_assert(self, s: Assert, lanes: Sequence[int]) -> None:
        """Takes up what failing lanes have loaded for the condition of an assert."""
        for index, memory in self._sources(s):
            accessed = self.accessed.get(index, ())
            self.add("assert", memory, [at for lane in lanes if lane < len(accessed) and (at := accessed[lane]) >= 0])

    def _sources(self, s: Assert) -> Iterator[tuple[int, Memory]]:
        """The loads that a condition is computed from, through values alone: what variables held before is not told apart."""
        pending, seen = list(s.args), set[int]()
        while pending and len(seen) < _MOST_SOURCES:
            atom = pending.pop()
            if not isinstance(atom, Value) or atom.id in seen:
                continue
            seen.add(atom.id)
            made = self._program.body[index := self._bound_at[atom.id]]
            if isinstance(made, Load | UniformLoad):
                yield index, made.memory
            elif not isinstance(made, MemoryStatement):
                pending += made.args


class NotedReads(UnwrittenReads):
    """Reads of what nothing has written, of which those of the workgroup that is written down are taken up by their elements."""

    def __init__(self, program: Program, faults: Faults) -> None:
        super().__init__(program)
        self._faults = faults

    def add(self, index: int, s: MemoryStatement, elements: Array, who: Array) -> None:
        """As the base class, and notes the elements."""
        super().add(index, s, elements, who)
        size = prod([extent.value for extent in s.memory.shape if isinstance(extent, DimConst)])
        for element, one in zip(elements.tolist(), who.tolist(), strict=True):
            if (lane := self._faults.lane(one)) is not None:
                self._faults.add("unwritten", s.memory, [element if s.memory.space is Space.WORKGROUP else lane * size + element])
