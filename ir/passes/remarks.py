"""Remarks: what is known of each access, in words, for who reads a Program."""

from __future__ import annotations

from collections.abc import Callable

from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import For, MemoryStatement
from vyre_py.ir.passes.pipeline import Optimised
from vyre_py.ir.text.lexer import written_name

__all__ = ["annotate", "proofs"]


def annotate(optimised: Optimised, place: Callable[[Place], str] | None = None) -> Callable[[int], str]:
    """A remark on each access for the printer: `proven`, or the axes that are checked. Where `place` says how places are called, a remark names what proves
    an index, too."""
    said = proofs(optimised, place) if place is not None else {}

    def remark(index: int) -> str:
        statement = optimised.program.body[index]
        if not isinstance(statement, MemoryStatement):
            return ""
        axes = range(statement.memory.rank)
        kept = [str(axis) for axis in axes if not optimised.proven[index] >> axis & 1]
        by = ", ".join(dict.fromkeys([said[index, axis] for axis in axes if (index, axis) in said]))
        state = f"checked axis {', '.join(kept)}" if kept else "proven"
        return f"{written_name(statement.memory.name)}: {state}{', the rest proven' if kept else ''} by {by}" if by else state

    return remark


def proofs(optimised: Optimised, place: Callable[[Place], str]) -> dict[tuple[int, int], str]:
    """For each statement and axis whose index is known to lie inside, what proves it, in words; none where nothing is proven, or not said."""
    program = optimised.program
    if not any(optimised.proven):
        return {}
    with importing:
        from vyre_py.ir.passes.bounds.reasons import reasons

    accesses = {program.place(index) for index, statement in enumerate(program.body) if isinstance(statement, MemoryStatement)}

    def words(guard: int) -> str:
        at = program.place(guard)
        where = f"statement {guard}" if at is None else place(at)
        # A guard that the passes made stands where the last store under it does.
        kind = "the loop at" if isinstance(program.body[guard], For) else "the guard made for" if at is not None and at in accesses else "the guard at"
        return f"{kind} {where}"

    return {where: " and ".join(map(words, by)) or "the index's range" for where, by in reasons(program).items()}
