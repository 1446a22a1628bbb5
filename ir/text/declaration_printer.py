"""The printing of a Program's head: its dims, workgroup, grid, doc, params, buffers, arrays and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from vyre_py.ir.language.dims import DIM_OPS, Dim, DimConst, DimExpr
from vyre_py.ir.language.grids import NO_GRID, default_grid
from vyre_py.ir.language.nodes import Memory, Space
from vyre_py.ir.language.types import Kind
from vyre_py.ir.text.lexer import literal_text, quote, written_name

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["print_dim", "head_lines", "inner_lines"]

MAX_LISTED: Final = 64


def head_lines(program: Program, functions: Iterable[str]) -> Iterator[str]:
    """The lines before the body, with those of functions; the grid is left out where it is the default."""
    dims = ", ".join([written_name(d.name) for d in program.dims])
    workgroup = "tiles" if program.of_tiles else f"workgroup({_extents([str(n) for n in program.workgroup])})"
    head = f"program {written_name(program.name)}({dims}) {workgroup}"
    if program.subgroup:
        head += f" subgroup({program.subgroup})"
    if program.grid != (NO_GRID if program.of_tiles else default_grid(program.memories, program.body)):
        head += f" {'over' if program.grid.over else 'grid'}({_extents([print_dim(e) for e in program.grid.extents])})"
    yield head + " {"
    if program.doc:
        yield f"  doc {quote(program.doc)}"
    yield from functions
    for param in program.params:
        # Only Programs made for a target have parts, and text cannot say them.
        part = f"  // byte {param.part[1]} of {quote(param.part[0])}" if param.part is not None else ""
        yield f"  param {written_name(param.name)}: {param.type}{part}"
    for memory in program.memories:
        yield _declaration(memory)


def inner_lines(function: Program, buffers: int) -> Iterator[str]:
    """The lines before the statements of a function's body, of which the first memories are so many buffers."""
    if function.doc:
        yield f"  doc {quote(function.doc)}"
    for memory in function.memories[buffers:]:
        yield _declaration(memory)


def _extents(texts: list[str]) -> str:
    while len(texts) > 1 and texts[-1] == "1":
        texts = texts[:-1]
    return ", ".join(texts)


def print_dim(expr: DimExpr, level: int = 0) -> str:
    """A dim expression as text, where precedence `level` is needed; recursion is bounded by the terms that it may have."""
    if isinstance(expr, DimConst):
        return str(expr.value)
    if isinstance(expr, Dim):
        return written_name(expr.name)
    infix = DIM_OPS[expr.op][1]
    if infix is None:
        return f"{expr.op}({print_dim(expr.left)}, {print_dim(expr.right)})"
    own = 2 if expr.op == "mul" else 1
    text = f"{print_dim(expr.left, own)} {infix} {print_dim(expr.right, own + 1)}"
    return text if own >= level else f"({text})"


def _declaration(memory: Memory) -> str:
    text = f"  {memory.space.value} {written_name(memory.name)}: {memory.type}[{', '.join([print_dim(e) for e in memory.shape])}]"
    if memory.space is Space.BUFFER:
        return f"{text} {memory.access.value}"
    return text if memory.space is not Space.TABLE else f"{text} = {_table(memory)}"


def _table(memory: Memory) -> str:
    """A table's data: elements as literals, or bytes where they are many or no elements of the type."""
    type_, lanes, data = memory.type.scalar, memory.type.lanes, memory.data
    bits = [] if len(data) % memory.type.size_bytes else np.frombuffer(data, dtype=f"<u{type_.size_bytes}").tolist()
    if len(data) and (not bits or len(bits) > MAX_LISTED or (type_.kind is Kind.BOOL and max(bits) > 1)):
        rows = [f'"{data[k : k + 40].hex()}"' for k in range(0, len(data), 40)]
        return f"hex {rows[0]}" if len(rows) == 1 else "hex [\n    " + "\n    ".join(rows) + "\n  ]"
    texts = [literal_text(type_, b, False) for b in bits]
    if lanes > 1:
        texts = [f"[{', '.join(texts[k : k + lanes])}]" for k in range(0, len(texts), lanes)]
    return f"[{', '.join(texts)}]"
