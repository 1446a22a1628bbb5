"""Products of matrices on tiles, by workgroup memory: a strip of each factor along k at a time, from which every invocation computes its own elements.

A CPU has few registers, and lanes that share a row of the result: there a `MicroKernel` says how many sums go through k together, and factors are widened where
they are stored, once, rather than where they are read, once for each block (as in K. Goto and R. van de Geijn, "Anatomy of high-performance matrix
multiplication", 2008, whose packed panels the strips are). Each sum is the same chain either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product

from vyre_py.ir.language.nodes import Atom, Memory, Variable
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, Exchanger, Shared

__all__ = ["MicroKernel", "multiplied"]


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """The inner loop of products: so many bytes of sums of each invocation stay in registers while k goes from one end of a strip to the other."""

    sum_bytes: int

    def blocks(self, held: tuple[int, ...], type_: Type) -> Iterator[list[tuple[int, ...]]]:
        """The registers of a tile of sums, by blocks of about the same size: as many rows as go together, and then as many columns."""
        most = max(1, self.sum_bytes // type_.size_bytes)
        rows = _spans(held[0], most)
        columns = _spans(held[1], max(1, most // len(rows[0])))
        for right, left in product(columns, rows):
            yield list(product(left, right))


def _spans(count: int, most: int) -> list[range]:
    """0 to `count` in the fewest spans of at most so many, the longest first."""
    parts = -(-count // most)
    ends = [-(-count * part // parts) for part in range(parts + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


class _Factor:
    """A factor whose strips along one axis, k, lie in an array of `type_` from `first` on, row by row."""

    def __init__(self, x: Exchanger, tile: Shared, k: int, type_: Type) -> None:
        self.x, self.k, self.tile = x, k, x.moved(tile, x.invocations)
        self.type = type_
        self.width = tile.shape[1 - k]

    def staggered(self, k: Atom, strip: int) -> Atom:
        """Where the k-th element of a row of a strip lies, rows along k: rows of neighbouring invocations begin in different places, so that their k-th
        elements are in different banks. All rows of an invocation begin in the same one."""
        least = strip & -strip
        if self.k == 0 or not self.x.is_staggered or least == 1 or self.width == 1:
            return k
        return self.x.m("xor", k, self.x.m("and", self.x.here(self.x.invocations, self.tile.shape, 0), word(least - 1)))

    def put(self, array: Memory, first: int, begin: int, strip: int) -> None:
        """Stores a strip, k from `begin` on."""
        x, m = self.x, self.x.m
        layout, shape = x.invocations, self.tile.shape
        count = layout.along(shape)[self.k]
        strides = (strip, 1) if self.k == 1 else (self.width, 1)
        for r, value in self.tile.registers.items():
            least, end = r[self.k] * count, (r[self.k] + 1) * count
            if end <= begin or least >= begin + strip:
                continue
            is_there = x.inside(layout, shape, r)
            if least < begin or end > begin + strip:
                is_there = x.both(is_there, m("lt", m("sub", x.element(layout, shape, self.k, r[self.k]), word(begin)), word(strip)))
            if self.k == 1 and x.is_staggered:
                along = self.staggered(m("sub", x.element(layout, shape, 1, r[1]), word(begin)), strip)
                place = m("add", m("add", x.scaled(x.element(layout, shape, 0, r[0]), strip), along), word(first))
            else:
                place = m("add", x.linear(layout, shape, r, strides), word(first - begin * strides[self.k] & 0xFFFFFFFF))
            x.store(array, (x.where(is_there, place, NOWHERE),), _as(x, value, self.type))


def multiplied(
    x: Exchanger, a: Shared, b: Shared, acc: Shared, kernel: MicroKernel | None = None, parts: Mapping[tuple[int, ...], Variable] | None = None
) -> Shared:
    """a b + acc: k ascending, a fused multiply-add for each, of integers a product that is added. Without a kernel all sums of an invocation go through k
    together. `parts` are variables that still hold the registers of `acc`, if there are: what is read where it is used isn't kept over barriers."""
    acc = x.moved(acc, x.invocations)
    inner, to, layout, type_ = a.shape[1], acc.shape, acc.layout, acc.type
    left, right = [_Factor(x, tile, k, type_ if kernel else tile.type) for tile, k in ((a, 1), (b, 0))]
    blocks = [list(acc.registers)] if kernel is None else list(kernel.blocks(layout.held(to), type_))
    totals = {} if kernel else {r: x.var(type_, value) for r, value in acc.registers.items()}
    strip = _strip(x, left, right, inner)
    for begin in range(0, inner, strip):
        deep = min(strip, inner - begin)
        together = left.type is right.type
        behind = left.width * deep if together else 0
        array_a = x.array(left.type, behind + right.width * deep if together else left.width * deep)
        array_b = x.array(right.type, behind + right.width * deep)
        x.barrier()
        left.put(array_a, 0, begin, deep)
        right.put(array_b, behind, begin, deep)
        x.barrier()
        for block in blocks:
            for r in block:
                if r not in totals:
                    totals[r] = x.var(type_, acc.registers[r] if parts is None else x.get(parts[r]))
            k = x.for_(word(0), word(deep), word(1))
            along = left.staggered(k, deep)
            held = [dict.fromkeys(r[axis] for r in block) for axis in (0, 1)]
            rows = {r: _as(x, x.load(array_a, (x.m("add", x.scaled(x.element(layout, to, 0, r), deep), along),)), type_) for r in held[0]}
            start = x.m("add", x.scaled(k, right.width), word(behind))
            columns = {r: _as(x, x.load(array_b, (x.m("add", start, x.element(layout, to, 1, r)),)), type_) for r in held[1]}
            for row, column in block:
                _add_product(x, rows[row], columns[column], totals[row, column])
            x.end()
    return Shared(to, layout, {r: x.get(totals[r]) for r in acc.registers})


def _as(x: Exchanger, value: Atom, type_: Type) -> Atom:
    return value if value.type is type_ else x.m.cast(value, type_)


def _add_product(x: Exchanger, a: Atom, b: Atom, total: Variable) -> None:
    before = x.get(total)
    x.set(total, x.m("fma", a, b, before) if total.type.is_float else x.m("add", x.m("mul", a, b), before))


def _strip(x: Exchanger, left: _Factor, right: _Factor, inner: int) -> int:
    """How deep a strip is: as workgroup memory allows, and a multiple of what the invocations hold side by side where that fits."""
    if left.type is right.type:
        most = x.capacity(left.type) // (left.width + right.width)
    else:
        most = min(x.capacity(left.type) // left.width, x.capacity(right.type) // right.width)
    if most >= inner:
        return inner
    if most < 1:
        taken = left.width * x.element_bytes(left.type) + right.width * x.element_bytes(right.type)
        x.refuse(f"a product of {left.width} by {right.width}, of which one column and one row take {taken} bytes of workgroup memory,", "use smaller tiles")
    side = max(x.invocations.rows, x.invocations.columns)
    return most // side * side if most >= side else most
