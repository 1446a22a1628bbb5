"""Convergence: what waits for others, or takes part with them, is reached by all of them together.

Laws, for a Program of sound form and scope:

* V401: all invocations of a workgroup reach a Barrier together.
* V402: all invocations of a workgroup reach a UniformLoad together.
* V403: the indices of a UniformLoad are the same for the whole workgroup.
* V404: all invocations of the grid reach a GridBarrier together.
* V405: all lanes of a subgroup reach a Subgroup together.
* V406: the lane of a broadcast is the same for the whole subgroup.
* V408: all invocations of the grid reach a GridScan together, and once: it stands in no loop.
* V409: the operand of a GridScan is the same for the whole workgroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from vyre_py.ir.check.causes import why
from vyre_py.ir.check.findings import Findings, atom_text
from vyre_py.ir.check.uniformity import Analysis, Uniformity
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import (
    Atom,
    Barrier,
    For,
    GridBarrier,
    GridScan,
    Loop,
    Statement,
    Subgroup,
    UniformLoad,
    Value,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program

__all__ = ["check_convergence"]


@dataclass(frozen=True, slots=True)
class _Together:
    """What a kind of statement is called, the level that its control keeps to, which invocations that are, and the code of its rule."""

    code: str
    what: str
    level: Level
    whole: str


_TOGETHER: Final[Mapping[type[Statement], _Together]] = {
    Barrier: _Together("V401", "barrier", Level.WORKGROUP, "workgroup"),
    UniformLoad: _Together("V402", "uniform_load", Level.WORKGROUP, "workgroup"),
    GridBarrier: _Together("V404", "grid_barrier", Level.GRID, "grid"),
    GridScan: _Together("V408", "grid_scan", Level.GRID, "grid"),
    Subgroup: _Together("V405", "subgroup op", Level.SUBGROUP, "subgroup"),
}


def _indices(statement: Statement) -> tuple[str, Level, tuple[Atom, ...]]:
    """The operands of a statement that must be the same for all that take part, up to which level, and the code of the rule that says so."""
    if isinstance(statement, Subgroup):
        return "V406", statement.op.index or Level.VARYING, statement.args[1:]
    if isinstance(statement, GridScan):
        return "V409", Level.WORKGROUP, statement.args
    return "V403", Level.WORKGROUP, statement.args


def _in_loops(program: Program) -> Iterator[int]:
    """The grid scans that stand in a loop."""
    ends: list[int] = []  # of the open loops
    for index, statement in enumerate(program.body):
        if ends and index == ends[-1]:
            ends.pop()
        if isinstance(statement, (For, Loop)):
            ends.append(program.match[index])
        elif ends and isinstance(statement, GridScan):
            yield index


def check_convergence(program: Program, findings: Findings) -> Uniformity:
    """Reports barriers, uniform loads and subgroup ops that not all invocations of a workgroup, of the grid, or of a subgroup take part in, alike."""
    analysis = Analysis(program)
    for index in _in_loops(program):
        findings.add("V408", index, "this grid_scan stands in a loop, and each workgroup takes part in it once")
    for index, statement in enumerate(program.body):
        rule = _TOGETHER.get(type(statement))
        if rule is None:
            continue
        segment = analysis.control[index]
        if analysis.level[segment] > rule.level:
            what = f"subgroup_{statement.op.name}" if isinstance(statement, Subgroup) else rule.what
            message = "" if findings.full else f"this {what} is not reached by the whole {rule.whole} together: {why(analysis, segment)}"
            findings.add(rule.code, index, message)
        code, level, indices = _indices(statement)
        for atom in indices:
            if isinstance(atom, Value) and analysis.level[atom.id] > level:
                what = "operand" if isinstance(statement, GridScan) else "index"
                said = f"the {what} {atom_text(program, atom)} is not the same for a whole {level.name.lower()}"
                message = "" if findings.full else f"{said}: {why(analysis, atom.id)}"
                findings.add(code, index, message)
    return analysis.uniformity()
