"""Grid barriers, on targets that do not run all workgroups at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.nodes import GridBarrier
from vyre_py.ir.program import Program
from vyre_py.lowering.errors import Missing

__all__ = ["missing_grid_barriers"]

_HELP: Final = "its workgroups need not run at once; part the Program in two here and launch one after the other, or compile for cuda"


def missing_grid_barriers(program: Program) -> Iterator[Missing]:
    """Every grid barrier, with its place."""
    for index, statement in enumerate(program.body):
        if isinstance(statement, GridBarrier):
            yield Missing("grid_barrier", program.place(index), _HELP)
