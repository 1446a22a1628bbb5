"""Products of matrices on tiles, by workgroup memory: a strip of each factor along k at a time, from which every invocation computes its own elements."""

from __future__ import annotations

from vyre_py.ir.language.nodes import Atom, Memory, Variable
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, Exchanger, Shared

__all__ = ["add_product", "multiplied"]


class _Factor:
    """A factor whose strips along one axis, k, lie in an array from `first` on, row by row."""

    def __init__(self, x: Exchanger, tile: Shared, k: int) -> None:
        self.x, self.k, self.tile = x, k, x.moved(tile, x.invocations)
        self.type: Type = tile.type
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
            x.store(array, (x.where(is_there, place, NOWHERE),), value)


def multiplied(x: Exchanger, a: Shared, b: Shared, acc: Shared) -> Shared:
    """a b + acc: k ascending, a fused multiply-add for each, of integers a product that is added."""
    left, right, acc = _Factor(x, a, 1), _Factor(x, b, 0), x.moved(acc, x.invocations)
    inner, to, layout, type_ = a.shape[1], acc.shape, acc.layout, acc.type
    totals = {r: x.var(type_, value) for r, value in acc.registers.items()}
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
        k = x.for_(word(0), word(deep), word(1))
        along = left.staggered(k, deep)
        rows = {r: _element(x, array_a, x.m("add", x.scaled(x.element(layout, to, 0, r), deep), along), type_) for r in range(layout.held(to)[0])}
        start = x.m("add", x.scaled(k, right.width), word(behind))
        columns = {r: _element(x, array_b, x.m("add", start, x.element(layout, to, 1, r)), type_) for r in range(layout.held(to)[1])}
        for (row, column), total in totals.items():
            add_product(x, rows[row], columns[column], total)
        x.end()
    return Shared(to, layout, {r: x.get(total) for r, total in totals.items()})


def _element(x: Exchanger, array: Memory, place: Atom, type_: Type) -> Atom:
    found = x.load(array, (place,))
    return found if found.type is type_ else x.m.cast(found, type_)


def add_product(x: Exchanger, a: Atom, b: Atom, total: Variable) -> None:
    """Adds a product of elements to a variable."""
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
