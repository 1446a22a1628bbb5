"""Pairs: both words of a number of 64 bits, which one access of a vector of two reads or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vyre_py.ir.language.nodes import Load, Memory, Statement, Store
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.rows import Row, element_rows
from vyre_py.lowering.wgsl.memory import Array

__all__ = ["pair_lines", "pairs_of"]


def pairs_of(optimised: Optimised, arrays: Mapping[Memory, Array]) -> dict[int, Row]:
    """The accesses to both words of a number, by their first statement."""
    body = optimised.program.body
    return {index: row for index, row in element_rows(optimised).items() if isinstance(s := body[index], (Load, Store)) and arrays[s.memory].pairs}


def pair_lines(together: Sequence[Statement], row: Row, array: Array, inside: str | None, address: str, words: Sequence[str]) -> list[str]:
    """Lines for the statements of a row, loads or stores of `words`, which happen under a condition: empty for always, None for never."""
    results = [statement.bound.id for statement in together if isinstance(statement, Load)]
    if not results:
        ordered = [words[row.lanes.index(lane)] for lane in range(row.width)]
        (line,) = array.store(address, f"vec2<u32>({', '.join(ordered)})")
        return [] if inside is None else [f"if ({inside}) {{ {line} }}" if inside else line]
    name = f"w{results[0]}"
    if inside == "":
        lines = [f"let {name} = {array.load(address)};"]
    else:
        lines = [f"var {name} = vec2<u32>();", *([] if inside is None else [f"if ({inside}) {{ {name} = {array.load(address)}; }}"])]
    return [*lines, *[f"let v{result} = {name}.{'xy'[lane]};" for result, lane in zip(results, row.lanes, strict=True)]]
