"""Copies into workgroup memory, on targets that have none of their own: plain stores, which are done where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from vyre_py.ir.language.nodes import CopyAsync, Statement
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.walks import COPYING_KINDS
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["WITHOUT_COPIES", "copies", "plain_copies"]

# For `walks.Handlers`: what to do instead.
WITHOUT_COPIES: Final[Mapping[type[Statement], str]] = MappingProxyType(
    dict.fromkeys(COPYING_KINDS, "a target's own code has none: compile it by vp.compile_native, which makes plain stores of them first")
)


def copies(program: Program) -> bool:
    """Whether a Program copies into workgroup memory, or waits for such copies."""
    return any(isinstance(statement, COPYING_KINDS) for statement in program.body)


def plain_copies(program: Program) -> Program:
    """The Program whose copies are stores, and that waits for none. One that has none is given back itself."""
    if not copies(program):
        return program
    rewriter = Rewriter(program)
    for index, statement in enumerate(program.body):
        if isinstance(statement, CopyAsync):
            rewriter.place = program.place(index)
            *indices, value = [rewriter.atom(a) for a in statement.args]
            rewriter.store(statement.memory, tuple(indices), value)
        elif not isinstance(statement, COPYING_KINDS):
            rewriter.copy(index)
    return rewriter.finish()
