"""Which loops LLVM is told to write out several turns of: those that ask for it, and of which it can. Of any other it would complain on stderr.

It does not where threads meet, since the turns that are left over would meet elsewhere; nor where the loop becomes too long, of which its own measure is
another: no more statements are asked for here than fit that in the worst way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import For
from vyre_py.ir.language.program import Program

__all__ = ["unrolls"]

_MEETS: Final = any_of(Effect.SYNCHRONISES | Effect.CONVERGES)
_MOST_STATEMENTS: Final = 512


def unrolls(program: Program) -> Mapping[int, int]:
    """How many turns to write out, by the index of the For. Linear in the statements."""
    found: dict[int, int] = {}
    meeting = 0  # the next statement at which threads meet
    for index in range(len(program.body) - 1, -1, -1):
        s = program.body[index]
        if _MEETS[type(s)]:
            meeting = index
        if isinstance(s, For) and s.unroll:
            fits = not index < meeting < program.match[index] and s.unroll * (program.match[index] - index) <= _MOST_STATEMENTS
            if fits or s.unroll == 1:
                found[index] = s.unroll
    return found
