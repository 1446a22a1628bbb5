"""The greatest elements of rows."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.types import Type, f32, u32
from vyre_py.ops.checks import NUMBERS, one_of, whole

__all__ = ["top_k"]

_CHUNK: Final = 256  # columns, whose greatest element is found together: few enough for one warp, which needs no barrier for it
_AT_ONCE: Final = 1_024  # columns that are on their way from memory together
_SLOTS: Final = 31  # an odd number, so that each of 32 lanes has one: of 32 it would have four neighbours, and most lanes none
_MOST: Final = 256
_NOWHERE: Final = 0xFFFFFFFF


def top_k(type_: Type = f32, k: int = 1) -> vp.Program:
    """values[i, t] = the t-th greatest element of row i, the greatest first, and places[i, t] = its column; the first column first of those that are equal.

    Buffers: `source` of [rows, columns], `values` of [rows, k], elements of `type_`, any number; `places` of [rows, k] is u32. `k` goes from 1 to 256. NaN is
    never chosen. Where a row has fewer than k numbers, the rest of `values` is the least number of the type, of floats negative infinity, and of `places`
    2^32 - 1.

    A workgroup goes over its row once, in chunks of 256 columns. Each chunk belongs to one of 31 slots, and a slot keeps the greatest element of its chunks and
    its column. The greatest of all slots is chosen, and the chunks of its slot are gone over again for the next greatest among them. So each of k reads one
    chunk again, or a 31st of a row of more than 7,936 columns.

    Raises ValidationError B108 at the caller's line for other types and k.
    """
    one_of("the type of the elements", type_, NUMBERS)
    k, nothing = whole("k", k, 1, _MOST), identity("max", type_)
    chunk = _CHUNK if k > 1 else _AT_ONCE  # of one alone nothing is gone over again
    with vp.TileBuilder("top_k") as b:
        rows, columns = b.dim("rows"), b.dim("columns")
        source = b.read("source", type_, rows, columns)
        values, places = b.write("values", type_, rows, k), b.write("places", u32, rows, k)
        b.grid(rows)
        i, column, slot = b.let("i", b.workgroup_id(0)), b.iota(1, (1, chunk)), b.iota(1, (1, _SLOTS))
        best, where = b.var("best", type_, nothing, shape=slot.shape), b.var("where", u32, _NOWHERE, shape=slot.shape)

        def load(j: vp.Expr) -> vp.Expr:
            return source.tile(i, j, shape=column.shape)

        def keep(j: vp.Expr, x: vp.Expr, is_left: vp.Expr | None = None) -> None:
            """The greatest of what is left of the chunk at j goes to the slot, unless there is one as great from a chunk before."""
            most = (x if is_left is None else vp.select(is_left, x, nothing)).reduce("max", 1)
            is_most = x == most if is_left is None else is_left & (x == most)
            place = j | vp.select(is_most, column, _NOWHERE).reduce("min", 1)  # nowhere stays so
            wins = (slot == j // chunk % _SLOTS) & ((most > best) | (where == _NOWHERE))
            where.set(vp.select(wins, place, where))
            best.set(vp.select(wins, most, best))

        whole_columns = columns // _AT_ONCE * _AT_ONCE
        with b.for_(0, whole_columns, _AT_ONCE, name="j") as first:
            chunks = [(first + n, load(first + n)) for n in range(0, _AT_ONCE, chunk)]  # all loads first
            for j, x in chunks:
                keep(j, x)
        with b.for_(whole_columns, columns, chunk, name="j") as j:
            keep(j, load(j), column < columns - j)
        with b.for_(0, k, name="t") as t:
            most = best.get().reduce("max", 1)
            place = vp.select(best == most, where, _NOWHERE).reduce("min", 1).item()
            # What is stored is the element itself: of zeros, which are equal, the greatest has the sign of another one.
            values[i, t] = vp.select(place == _NOWHERE, nothing, source[i, place])
            places[i, t] = place
            with b.if_(t != k - 1):
                number = place // chunk % _SLOTS
                where.set(vp.select(slot == number, _NOWHERE, where))
                best.set(vp.select(slot == number, nothing, best))
                with b.for_(number * chunk, columns, chunk * _SLOTS, name="j") as j:
                    x = load(j)
                    keep(j, x, (column < columns - j) & ((x < most) | ((x == most) & (column + j > place))))
    return b.program
