"""Causes: why the analysis of uniformity finds that something differs between invocations, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.ir.check.findings import place_text, quoted
from vyre_py.ir.check.uniformity import Analysis
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.nodes import (
    Atomic,
    Break,
    Continue,
    GridScan,
    If,
    Let,
    Load,
    Return,
    Subgroup,
    TileLoad,
    UniformLoad,
)
from vyre_py.ir.language.program import Program

__all__ = ["why"]

_NONE: Final = -1
_ESCAPES: Final = (Break, Continue, Return)


def why(analysis: Analysis, node: int, place: Callable[[Program, int], str] = place_text) -> str:
    """What makes a node vary: the branch or loop and the escape on the way, and where the difference comes from; `place` says where a statement stands."""
    escape = branch = _NONE
    decided = node < analysis.segments
    while analysis.cause[node] != _NONE:
        about = analysis.about[node]
        if not decided and about != _NONE:
            if type(analysis.program.body[about]) in _ESCAPES:
                escape = about if escape == _NONE else escape
            else:
                branch = about
        node = analysis.cause[node]
        decided = decided or node < analysis.segments
    origin = _origin(analysis, analysis.about[node])
    if branch == _NONE:
        return f"it depends on {origin}"
    kind = "branch" if isinstance(analysis.program.body[branch], If) else "loop"
    because = f"the {kind} at {place(analysis.program, branch)} depends on {origin}"
    if escape == _NONE:
        return because
    word = type(analysis.program.body[escape]).__name__.lower()
    return f"the {word} at {place(analysis.program, escape)} takes some invocations away: {because}"


def _origin(analysis: Analysis, index: int) -> str:
    """Where a difference between invocations begins."""
    statement = analysis.program.body[index]
    if isinstance(statement, Let):
        return statement.op.name if statement.op.is_query else "the number of the subgroup"
    if isinstance(statement, Subgroup):
        return f"what subgroup_{statement.op.name} gave, which each subgroup has for itself"
    if isinstance(statement, Atomic):
        return f"what {full_name(statement.op)} on {quoted(statement.memory.name)} gave"
    if isinstance(statement, UniformLoad):
        return f"a uniform_load from {quoted(statement.memory.name)}, which workgroups make each for itself"
    if isinstance(statement, GridScan):
        return "a grid_scan, which gives each workgroup a value of its own"
    assert isinstance(statement, (Load, TileLoad))  # nothing else differs by itself
    if index in analysis.steady:
        return f"a load from {quoted(statement.memory.name)}, which each workgroup has for itself"
    return f"a load from {quoted(statement.memory.name)}, which can be written"
