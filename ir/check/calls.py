"""Functions of a Program's own: their names, and their bodies.

Laws, for a Program of sound form:

* V111: a function's name is an identifier that is no word of the text form, and that of no op, no statement and no other function; in a Program of tiles
  it is that of no tile op, either.
* V112: a body computes its result from its operands alone. It has no queries, params and sizes, atomics, barriers, subgroup ops, tiles and returns, no memory
  but private arrays and tables, and calls no function.

Apart from these, a body keeps the laws of a Program's, but for those of grids and uniformity, which say nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.check.comparisons import decided_comparisons
from vyre_py.ir.check.findings import HEAD, Findings, quoted
from vyre_py.ir.check.form import check_form
from vyre_py.ir.check.limits import check_limits
from vyre_py.ir.check.memory import check_memory
from vyre_py.ir.check.scope import check_scope
from vyre_py.ir.check.structure import check_blocks
from vyre_py.ir.check.types import check_types
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.effects import Effect, at_most
from vyre_py.ir.language.nodes import TILE_KINDS, Atomic, Let, Space, Statement, Subgroup, Tile, Var
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.lexer import CALLED, KEYWORDS, TILE_CALLED

__all__ = ["check_functions"]

# What a statement of a body may do.
_PURE: Final = at_most(
    Effect.READS | Effect.WRITES | Effect.GETS | Effect.SETS | Effect.DECLARES | Effect.LEAVES | Effect.NESTS | Effect.BRANCHES | Effect.REPEATS
    | Effect.ENDLESS
)
_OWN: Final = (Space.BUFFER, Space.PRIVATE, Space.TABLE)  # of buffers there are operands and result alone: its form says so


def check_functions(program: Program, findings: Findings, warnings: Findings) -> None:
    """Reports functions that cannot be, and what is hardly meant in those that can, to `warnings`."""
    seen: set[str] = set()
    called = CALLED | TILE_CALLED if program.of_tiles else CALLED
    for function in program.functions:
        body = function.program
        own, doubts = Findings(body), Findings(body)
        for message in _names(function, called, seen):
            own.add("V111", HEAD, message)
        seen.add(function.name)
        _check_body(body, own, doubts)
        findings.take(own, f"function {quoted(function.name)}")
        warnings.take(doubts, f"function {quoted(function.name)}")


def _names(function: Function, called: frozenset[str], seen: set[str]) -> Iterator[str]:
    """What is wrong with a function's name."""
    if not (function.name.isidentifier() and function.name.isascii()):
        yield f"{quoted(function.name)} is no identifier: a letter or _, then letters, digits and _"
    if function.name in KEYWORDS:
        yield f"{quoted(function.name)} is a word of the text form"
    if function.name in called:
        yield f"{quoted(function.name)} is the name of an op or of a statement"
    if function.name in seen:
        yield f"another function is named {quoted(function.name)}"


def _check_body(body: Program, findings: Findings, warnings: Findings) -> None:
    check_form(body, findings)
    if findings.count or not check_blocks(body, findings):
        return
    before = findings.count
    for index, statement in enumerate(body.body):
        if message := _reach(statement):
            findings.add("V112", index, message)
    for memory in body.memories:
        if memory.space not in _OWN:
            findings.add("V112", memory.name, f"{memory.space.value} {quoted(memory.name)} is shared with others")
    if findings.count > before:  # other laws would say the same again
        return
    for law in (check_scope, check_types, check_memory, check_limits):
        law(body, findings)
    if not findings.count:
        for index, message in decided_comparisons(body):
            warnings.add("V471", index, message)


def _reach(statement: Statement) -> str:
    """What a statement does that no function may; "" where that is nothing."""
    if isinstance(statement, Let):
        return f"{statement.op.name} asks where the invocation is" if statement.op.is_query else ""
    if isinstance(statement, Var) and statement.variable.type.is_tile:
        return "a variable of tiles stands in it"
    if _PURE[type(statement)] and not isinstance(statement, TILE_KINDS):
        return ""
    said = full_name(statement.op) if isinstance(statement, (Atomic, Subgroup, Tile)) else statement.spelling
    return f"{said} stands in it"
