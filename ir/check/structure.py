"""Structure: the nesting of a Program's blocks, and the names of its declarations.

Laws, for a Program of sound form:

* V102: blocks nest, and `match` says how.
* V104: break and continue stand in a loop.
* V105, V106: the names of dims, params and memories are unique, and no name is empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from vyre_py.ir.check.findings import HEAD, Findings, number, quoted
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.nodes import Break, Continue, Else, End, For, If, Loop, Memory, Param, Statement
from vyre_py.ir.language.program import Program

__all__ = ["check_blocks"]

_LOOPS = (For, Loop)


def _expected_match(body: tuple[Statement, ...], findings: Findings) -> list[int] | None:
    """What `match` must be, by a stack of open blocks; None, and reports, where blocks do not nest."""
    expected = [-1] * len(body)
    stack: list[tuple[int, int]] = []  # the statement that opened, and the one (it or its Else) that the End is to join
    nested = True
    for index, statement in enumerate(body):
        if statement.opens:
            stack.append((index, index))
        elif type(statement) is Else:
            opener, join = stack[-1] if stack else (-1, -1)
            if opener < 0 or opener != join or type(body[opener]) is not If:
                findings.add("V102", index, "this Else belongs to no If")
                nested = False
            else:
                expected[opener] = index
                stack[-1] = (opener, index)
        elif type(statement) is End:
            if not stack:
                findings.add("V102", index, "this End closes no block")
                nested = False
            else:
                opener, join = stack.pop()
                expected[join], expected[index] = index, opener
    for opener, _ in stack:
        findings.add("V102", opener, f"this {type(body[opener]).__name__} is never closed")
    return expected if nested and not stack else None


def _check_loops(program: Program, findings: Findings) -> None:
    loops = 0
    for index, statement in enumerate(program.body):
        kind = type(statement)
        if kind in _LOOPS:
            loops += 1
        elif kind is End:
            loops -= type(program.body[program.match[index]]) in _LOOPS
        elif kind in (Break, Continue) and not loops:
            findings.add("V104", index, f"this {kind.__name__.lower()} is in no loop")


def _check_names(program: Program, findings: Findings) -> None:
    if not program.name:
        findings.add("V106", HEAD, "the Program has no name")
    seen: dict[str, str] = {}
    groups: tuple[tuple[str, Iterable[Dim | Param | Memory]], ...] = (
        ("dim", program.dims),
        ("param", program.params),
        ("memory", program.memories),
    )
    for kind, group in groups:
        for declared in group:
            if not declared.name:
                findings.add("V106", declared.name, f"a {kind} has no name")
            elif declared.name in seen:
                findings.add(
                    "V105", declared.name, f"{kind} {quoted(declared.name)} has the name of a {seen[declared.name]}"
                )
            seen[declared.name] = kind


def check_blocks(program: Program, findings: Findings) -> bool:
    """Reports blocks that do not nest, escapes without a loop and names that clash, for a Program of sound form. The answer is
    whether `match` can be relied on."""
    _check_names(program, findings)
    expected = _expected_match(program.body, findings)
    if expected is None:
        return False
    for index, (said, right) in enumerate(zip(program.match, expected, strict=True)):
        if said != right:
            findings.add(
                "V102",
                index,
                f"match says {number(said)} for this {type(program.body[index]).__name__}, its partner is {right}",
            )
            return False
    _check_loops(program, findings)
    return True
