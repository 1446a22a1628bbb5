"""A Program: one immutable kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from vyre_py.ir.dims import Dim, DimConst, DimExpr
from vyre_py.ir.errors import Place
from vyre_py.ir.nodes import Memory, Param, Space, Statement

__all__ = ["DEFAULT_WORKGROUP", "Grid", "Program", "default_over", "first_written"]

DEFAULT_WORKGROUP: Final = (256, 1, 1)


@dataclass(frozen=True, slots=True)
class Grid:
    """How many invocations run: `extents` along x, y, z count invocations where `over` is true, workgroups where it is not."""

    over: bool
    extents: tuple[DimExpr, DimExpr, DimExpr]


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel: declarations, and a body of flat statements (`ir.nodes`).

    `match[i]` is, for a statement that opens a block, the index of its Else or End; for an Else its End; for an End the
    statement that opened; else -1. Value and variable ids are dense. `names` are for reading and carry no meaning; `places`
    say where each statement was written, if known, and `declared` where each dim, param and memory was, by name, and the
    Program itself by None. Programs are equal when both digests are; they hash accordingly.
    Made by `ir.assembler.Assembler`, the builder, the parser or a decoder; `ir.check.check` says whether one is valid.
    """

    name: str
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    memories: tuple[Memory, ...]
    workgroup: tuple[int, int, int]
    grid: Grid
    body: tuple[Statement, ...]
    match: tuple[int, ...]
    value_count: int
    variable_count: int
    value_names: Mapping[int, str] = field(default_factory=dict)
    variable_names: Mapping[int, str] = field(default_factory=dict)
    places: tuple[Place | None, ...] = ()
    doc: str = ""
    declared: Mapping[str | None, Place] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> tuple[Memory, ...]:
        """The argument buffers, in order of declaration."""
        return tuple(m for m in self.memories if m.space is Space.BUFFER)

    # What describes Programs imports this module, so it is imported where it is called.

    @cached_property
    def code_digest(self) -> bytes:
        """SHA-256 of what the Program computes: names and places out, region names in."""
        from vyre_py.ir.digest import code_digest

        return code_digest(self)

    @cached_property
    def interface_digest(self) -> bytes:
        """SHA-256 of what a caller sees: names, types, shapes, access and docs."""
        from vyre_py.ir.digest import interface_digest

        return interface_digest(self)

    def place(self, index: int) -> Place | None:
        """Where statement `index` was written, if known."""
        return self.places[index] if index < len(self.places) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return self.code_digest == other.code_digest and self.interface_digest == other.interface_digest

    def __hash__(self) -> int:
        return hash((self.code_digest, self.interface_digest))

    def __str__(self) -> str:
        from vyre_py.ir.printer import print_program

        return print_program(self)

    def __repr__(self) -> str:
        return f"<Program {self.name!r}: {len(self.body)} statements, {self.code_digest.hex()[:12]}>"

    @classmethod
    def from_text(cls, text: str, file: str = "<text>") -> Program:
        """The Program that `.vir` text describes. Raises ParseError with the place and what was expected."""
        from vyre_py.ir.parser import parse

        return parse(text, file)


def first_written(memories: tuple[Memory, ...]) -> Memory | None:
    """The first buffer that is written, if any."""
    return next((m for m in memories if m.space is Space.BUFFER and m.access.writes), None)


def default_over(memories: tuple[Memory, ...]) -> Grid | None:
    """The grid when none is given: one invocation per element of the first written buffer, its last axis on x.

    None when there is no written buffer, or its rank is above 3.
    """
    written = first_written(memories)
    if written is None or written.rank > 3:
        return None
    axes: list[DimExpr] = [*reversed(written.shape), DimConst(1), DimConst(1), DimConst(1)]
    x, y, z = axes[:3]
    return Grid(True, (x, y, z))
