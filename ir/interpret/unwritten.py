"""Reads of what nothing has written: elements of workgroup and private arrays that still are the zeros which these begin with.

The language gives those zeros, so such a Program is valid and means the same everywhere; and yet most of them forgot a store, or an index is off. So every
such read is counted while the Program runs on, and the findings come when it has ended, one for each statement.

An array that atomics change and no statement stores to counts up from its zeros, as histograms do, and is not watched. Where there is a store, it is
there to make the array begin, and an atomic on an element that it missed is a read like any other.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.check.findings import MAX_FINDINGS
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.invocations import element_text, invocation_text, workgroup_text
from vyre_py.ir.language.errors import Diagnostic, UnwrittenRead
from vyre_py.ir.language.nodes import (
    Atomic,
    AtomicStore,
    CopyAsync,
    Load,
    Memory,
    MemoryStatement,
    Space,
    Store,
    UniformLoad,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import RULES, finding
from vyre_py.ir.language.types import Array
from vyre_py.ir.text.lexer import written_name

__all__ = ["UnwrittenReads"]

_LOCAL: Final = (Space.WORKGROUP, Space.PRIVATE)


@dataclass(slots=True)
class _Reads:
    """The reads by one statement: which element of the memory the first of them was of, by whom, and how many there were."""

    memory: Memory
    element: int
    who: int
    count: int


class UnwrittenReads:
    """What one run has read that nothing had written. `watched` are the memories that are looked at."""

    def __init__(self, program: Program) -> None:
        local = [s for s in program.body if isinstance(s, MemoryStatement) and s.memory.space in _LOCAL]
        read = {s.memory for s in local if isinstance(s, (Load, UniformLoad, Atomic)) and type(s) is not AtomicStore}
        self._stored = {s.memory for s in local if isinstance(s, (Store, AtomicStore, CopyAsync))}
        self.watched = read & self._stored | read - {s.memory for s in local if isinstance(s, Atomic) and s.op.writes}
        self._program = program
        self._found: dict[int, _Reads] = {}

    def add(self, index: int, s: MemoryStatement, elements: Array, who: Array) -> None:
        """Takes reads by the statement at an index up: of which elements, and by whom; at least one."""
        found = self._found.get(index)
        if found is None:
            self._found[index] = _Reads(s.memory, int(elements[0]), int(who[0]), len(elements))
        else:
            found.count += len(elements)

    def require_none(self, arguments: Arguments, groups: tuple[int, int, int]) -> None:
        """Raises UnwrittenRead if there were any."""
        if not self._found:
            return
        findings = [self._finding(index, reads, arguments, groups) for index, reads in sorted(self._found.items())[:MAX_FINDINGS]]
        if (more := len(self._found) - MAX_FINDINGS) > 0:
            findings.append(finding("V599", f"{more} more findings are not shown"))
        raise UnwrittenRead(findings)

    def _finding(self, index: int, reads: _Reads, arguments: Arguments, groups: tuple[int, int, int]) -> Diagnostic:
        memory, program = reads.memory, self._program
        element = element_text(memory, arguments.extents[memory], reads.element)
        who = f"invocation {invocation_text(reads.who, program.workgroup)} of workgroup {workgroup_text(reads.who, groups)}"
        statement = program.body[index]
        does = "changes it by an atomic" if isinstance(statement, Atomic) and statement.op.writes else "reads it"
        count = "" if reads.count == 1 else f", the first of {reads.count:,} such accesses here"
        said = f"{element}: {who} {does}, and nothing has written it{count}"
        return finding("R102", said, program.place(index), self._help(memory))

    def _help(self, memory: Memory) -> str:
        name = written_name(memory.name)
        if memory not in self._stored:
            return f"nothing stores to {name}: what is read of it is always zero"
        if memory.space is Space.PRIVATE:
            return f"store to it first, unless the zeros are meant; each invocation has {name} of its own"
        return RULES["R102"].help
