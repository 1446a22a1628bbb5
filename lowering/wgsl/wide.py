"""Wide accesses: one for several elements.

Both words of a number of 64 bits are one vector of two wherever they lie. Elements of 8 and 16 bits that fill words are whole words where their buffer begins
on one; a store of a word needs none of the atomics that a store to a part of it does. Such accesses are in an entry of its own, which needs that (`by_words`):
of components of vectors, and of neighbours that one invocation does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vyre_py.ir.language.nodes import Load, Memory, MemoryStatement, Space, Statement, Store
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.coarsen import Coarsened, aligned, coarsen
from vyre_py.lowering.layout import WORD_BYTES
from vyre_py.lowering.rows import Row, element_rows
from vyre_py.lowering.wgsl.memory import Array
from vyre_py.lowering.wgsl.types import packed_bits

__all__ = ["by_words", "pairs_of", "wide_lines", "words_of"]

_WORD_BITS = 8 * WORD_BYTES


def pairs_of(optimised: Optimised, arrays: Mapping[Memory, Array]) -> dict[int, Row]:
    """The accesses to both words of a number, by their first statement."""
    body = optimised.program.body
    return {index: row for index, row in element_rows(optimised).items() if isinstance(s := body[index], (Load, Store)) and arrays[s.memory].pairs}


def by_words(optimised: Optimised, halves: frozenset[Memory]) -> Coarsened | None:
    """The Program whose stores of small elements are of whole words, for memory that begins on words; None where none becomes one. Buffers of `halves` need
    that for no store."""
    stored = [s.memory for s in optimised.program.body if isinstance(s, Store) and _is_small(s) and s.memory not in halves]
    if not stored:
        return None
    for made in (aligned(optimised), coarsen(optimised, _WORD_BITS // min(packed_bits(memory.type) for memory in stored))):
        if made is not None and any(isinstance(made.optimised.program.body[index], Store) for index in words_of(made, halves)):
            return made
    return None


def words_of(coarsened: Coarsened, halves: frozenset[Memory]) -> dict[int, Row]:
    """The accesses to whole words of small elements, by their first statement."""
    body = coarsened.optimised.program.body
    return {
        index: row for index, row in coarsened.rows().items()
        if isinstance(s := body[index], (Load, Store)) and _is_small(s) and s.memory not in halves and row.width * packed_bits(s.memory.type) % _WORD_BITS == 0
    }  # fmt: skip


def _is_small(statement: MemoryStatement) -> bool:
    return statement.memory.space is Space.BUFFER and packed_bits(statement.memory.type) > 0


def wide_lines(together: Sequence[Statement], row: Row, array: Array, inside: str | None, address: str, values: Sequence[str]) -> list[str]:
    """Lines for the statements of a row, loads or stores of `values`, which happen under a condition: empty for always, None for never."""
    results = [(statement.bound.id, lane) for statement, lane in zip(together, row.lanes, strict=True) if isinstance(statement, Load)]
    if results:
        return _loads(results, array, inside, address)
    if inside is None:
        return []
    ordered = [values[row.lanes.index(lane)] for lane in range(row.width)]
    lines = array.store(address, f"vec2<u32>({', '.join(ordered)})") if array.pairs else array.store_words(address, ordered, row.lanes[0])
    return [f"if ({inside}) {{", *[f"  {line}" for line in lines], "}"] if inside else lines


def _loads(results: Sequence[tuple[int, int]], array: Array, inside: str | None, address: str) -> list[str]:
    """The vectors or words that are needed, and then their parts."""
    per, first = (2, 0) if array.pairs else (_WORD_BITS // array.packed, results[0][1] * array.packed // _WORD_BITS)
    names = {lane // per: f"w{results[0][0]}_{lane // per}" for _, lane in results}
    lines: list[str] = []
    for number, name in names.items():
        read = array.load(address) if array.pairs else array.read_word(address, number - first)
        if inside == "":
            lines.append(f"let {name} = {read};")
        else:
            lines += [f"var {name} = {'vec2<u32>()' if array.pairs else '0u'};", *([] if inside is None else [f"if ({inside}) {{ {name} = {read}; }}"])]
    for result, lane in results:
        name = names[lane // per]
        part = f"{name}.{'xy'[lane]}" if array.pairs else array.part_of(name, lane % per)
        lines.append(f"let v{result} = {part};")
    return lines
