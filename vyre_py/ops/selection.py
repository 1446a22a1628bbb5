"""The greatest elements of rows."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.types import Type, f32, u32
from vyre_py.ops.checks import NUMBERS, one_of, whole

__all__ = ["top_k"]

_CHUNK: Final = 2_048  # columns that a workgroup compares at a time
_MOST: Final = 256
_NOWHERE: Final = 0xFFFFFFFF


def top_k(type_: Type = f32, k: int = 1) -> vp.Program:
    """values[i, t] = the t-th greatest element of row i, the greatest first, and places[i, t] = its column; the first column first of those that are equal.

    Buffers: `source` of [rows, columns], `values` of [rows, k], elements of `type_`, any number; `places` of [rows, k] is u32. `k` goes from 1 to 256, and is
    meant to be small: a workgroup goes over its row once for each. NaN is never chosen. Where a row has fewer than k numbers, the rest of `values` is the
    least number of the type, of floats negative infinity, and of `places` 2^32 - 1.

    Raises ValidationError B108 at the caller's line for other types and k.
    """
    one_of("the type of the elements", type_, NUMBERS)
    k, nothing, shape = whole("k", k, 1, _MOST), identity("max", type_), (1, _CHUNK)
    with vp.TileBuilder("top_k") as b:
        rows, columns = b.dim("rows"), b.dim("columns")
        source = b.read("source", type_, rows, columns)
        values, places = b.write("values", type_, rows, k), b.write("places", u32, rows, k)
        b.grid(rows)
        i, column = b.let("i", b.workgroup_id(0)), b.iota(1, shape)
        last, place = b.var("last", type_, identity("min", type_)), b.var("place", u32)  # what the turn before has chosen
        with b.for_(0, k, name="t") as t:
            best, where = b.var("best", type_, nothing, shape=shape), b.var("where", u32, _NOWHERE, shape=shape)
            with b.for_(0, columns, _CHUNK, name="j") as j:
                x = source.tile(i, j, shape=shape)
                is_left = (x < last) | ((x == last) & ((column + j > place) | (t == 0)))
                wins = (column < columns - j) & is_left & ((x > best) | (where == _NOWHERE))
                where.set(vp.select(wins, column + j, where))
                best.set(vp.select(wins, x, best))
            most = best.get().reduce("max", 1)
            place.set(vp.select(best == most, where, _NOWHERE).reduce("min", 1).item())
            # What is stored is the element itself: of zeros, which are equal, the greatest has the sign of another one.
            last.set(vp.select(place == _NOWHERE, nothing, source.tile(i, place, shape=(1, 1)).item()) if type_.is_float else most.item())
            values[i, t] = last
            places[i, t] = place
    return b.program
