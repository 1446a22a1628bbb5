"""Walks over a body by the kind of each statement, and what becomes of a kind that a walk does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from vyre_py.ir.language.errors import Missing, Unsupported
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    STATEMENTS,
    TILE_KINDS,
    Assert,
    Barrier,
    Break,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    For,
    GridBarrier,
    GridScan,
    If,
    Loop,
    Print,
    Region,
    Return,
    Statement,
)

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["COPYING_KINDS", "REPORTING_KINDS", "SCALAR_KINDS", "WITHOUT_TILES", "Handlers"]

_H = TypeVar("_H")

# Kinds that have scalars for operands and result, or none: what rewrites vectors has nothing to do there. Of 64 bits only an atomic's can be, and a scan's.
SCALAR_KINDS: Final[tuple[type[Statement], ...]] = (
    *ATOMIC_KINDS, If, Else, End, For, Loop, Region, Break, Continue, Return, Barrier, GridBarrier, GridScan, *FENCES.values(),
)


# Kinds that `lowering.legal.asserts` makes ordinary statements of, before a target's own rewrites.
REPORTING_KINDS: Final[tuple[type[Statement], ...]] = (Assert, Print)


# Kinds that `lowering.legal.plain_copies` makes stores of, or nothing, for targets that have no copies of their own.
COPYING_KINDS: Final[tuple[type[Statement], ...]] = (CopyAsync, CopyCommit, CopyWait)


# For walks that come after `lowering.tiles`, which makes ordinary statements of these kinds.
WITHOUT_TILES: Final[Mapping[type[Statement], str]] = MappingProxyType(
    dict.fromkeys(TILE_KINDS, "compile the Program by vyre_py.compile_native, which makes a Program of invocations of it first")
)


class Handlers(dict[type[Statement], _H]):
    """What a walk does with each kind of statement: `rows` by kind. Kinds that need no handler, or are dealt with elsewhere, are named in `apart`; those
    that the walk cannot express in `without`, each with what to do instead.

    Raises TypeError, at import, where a kind of the language is in none of the three.
    """

    def __init__(
        self, who: str, rows: Mapping[type[Statement], _H], *, apart: Iterable[type[Statement]] = (), without: Mapping[type[Statement], str] | None = None
    ) -> None:
        super().__init__(rows)
        self._who, self._without = who, without or {}
        self._known = frozenset((*rows, *apart))
        if forgotten := [kind.__name__ for kind in STATEMENTS if kind not in self._known and kind not in self._without]:
            raise TypeError(f"{who}: no handler for {', '.join(forgotten)}")

    def missing(self, program: Program) -> Iterator[Missing]:
        """Every statement of a kind that the walk does not know, with its place. What is no statement at all is for the checker to name."""
        if set(map(type, program.body)) <= self._known:
            return
        for index, statement in enumerate(program.body):
            kind = type(statement)
            if kind not in self._known and issubclass(kind, Statement):
                yield Missing(kind.spelling or f"statement {kind.__name__}", program.place(index), self._without.get(kind, ""))

    def require(self, program: Program) -> None:
        """Raises Unsupported that names every such statement."""
        if missing := list(self.missing(program)):
            raise Unsupported(self._who, missing)
