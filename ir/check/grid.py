"""The grid: the stores give the number of invocations, or the Program does.

Laws, for a Program of sound form that gives no grid:

* V310: its first written buffer has at most 3 axes.
* V470: each of its stores and atomics on buffers goes to the invocation's own element of a buffer shaped as the first written one (`ir.language.grids`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.ir.check.findings import Findings, quoted
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.grids import MAX_DEFAULT_RANK, NO_GRID, first_stray, first_written, likely_extents
from vyre_py.ir.language.nodes import Atomic, MemoryStatement
from vyre_py.ir.language.program import Program

if TYPE_CHECKING:
    from vyre_py.ir.text import declaration_printer
else:
    (declaration_printer,) = deferred("vyre_py.ir.text", "declaration_printer")

__all__ = ["check_grid"]


def check_grid(program: Program, findings: Findings) -> None:
    """Reports a Program that has to give its grid and does not."""
    written = first_written(program.memories)
    if program.of_tiles or program.grid != NO_GRID or written is None:
        return
    if written.rank > MAX_DEFAULT_RANK:
        findings.add("V310", written.name, f"buffer {quoted(written.name)} has {written.rank} axes, which give no grid")
        return
    index = first_stray(written, program.body)
    if index is None:
        return
    statement = program.body[index]
    assert isinstance(statement, MemoryStatement)  # nothing else strays
    name = quoted(statement.memory.name)
    does = "read by an atomic" if isinstance(statement, Atomic) and not statement.op.writes else "written"
    why = f"{name} is {does} at another element than the invocation's own"
    if statement.memory.shape != written.shape:
        why = f"{name}, which is {does} here, is not shaped as {quoted(written.name)}, the first written buffer"
    likely = ", ".join(map(declaration_printer.print_dim, likely_extents(program.body)))
    said = f"most likely over({likely})" if likely else "over(...) counts invocations along x, y and z"
    findings.add("V470", index, f"no grid is given, and {why}", f"say how many run: {said}; grid(1) is one workgroup")
