"""Where an interruptible kernel waits for its first load of the flag: as late as possible.

The load is issued at the beginning and takes some hundred cycles. Meanwhile the kernel executes statements that are quick and have no effect outside.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.effects import Effect, at_most
from vyre_py.ir.language.nodes import Else, If, Set, Value, Var
from vyre_py.ir.language.program import Program

__all__ = ["computed_before", "first_trace"]

_TRACELESS: Final = at_most(Effect.READS | Effect.GETS | Effect.SETS | Effect.DECLARES | Effect.NESTS | Effect.BRANCHES)


def first_trace(program: Program) -> int | None:
    """The index of the first statement that may take long or has an effect outside, or of an If that holds such statements; None without one.

    Only regions, and Ifs without an Else that hold all such statements, enclose it. A path that reaches none of them may skip the check.
    """
    body, match = program.body, program.match
    traces = [index for index, s in enumerate(body) if not _TRACELESS[type(s)]]
    index = 0
    while traces and index < traces[0]:
        is_parted = isinstance(body[index], If) and isinstance(body[match[index]], Else)
        end = match[match[index]] if is_parted else match[index] if isinstance(body[index], If) else index
        if traces[0] < end and (is_parted or end < traces[-1]):
            return index
        index = index + 1 if traces[0] < end else end + 1
    return traces[0] if traces else None


def computed_before(program: Program, until: int) -> list[Value]:
    """The values that are computed before the statement of this index and are used from there on, or stored in a variable."""
    body, match = program.body, program.match
    used = {atom for index, s in enumerate(body) if index >= until or isinstance(s, (Var, Set)) for atom in s.args}
    computed: list[Value] = []
    index = 0
    while index < until:
        s = body[index]
        if s.result is not None and s.result in used:
            computed.append(s.result)
        past = match[index] if isinstance(s, (If, Else)) else until
        index = past if past < until else index + 1
    return computed
