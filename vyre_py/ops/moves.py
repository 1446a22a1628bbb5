"""Arrays with their axes in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import SCALARS, Type, f32
from vyre_py.ops.checks import axes_of, one_of, refuse

__all__ = ["permute", "transpose"]

_MOST_AXES: Final = 4
_SIDE: Final = 64  # rows and columns of a tile: both are read and written in long runs
_RUN: Final = (16, 256)  # of a tile whose last axis stays the last


def transpose(type_: Type = f32) -> vp.Program:
    """target[j, i] = source[i, j] for `source` of [d0, d1] and `target` of [d1, d0], with elements of any scalar type, bit for bit.

    A stack of matrices is `permute(type_, (0, 2, 1))`. Raises ValidationError B108 at the caller's line for other types.
    """
    return permute(type_, (1, 0))


def permute(type_: Type = f32, axes: Sequence[int] = (1, 0)) -> vp.Program:
    """target = `source` with its axes in this order, as NumPy's transpose: axis k of `target` is axis `axes[k]` of `source`.

    `source` has 2 to 4 axes, d0, d1 and so on, of any lengths, with elements of any scalar type, which are moved bit for bit. Each workgroup moves a tile
    that has the last axes of both. Raises ValidationError B108 at the caller's line for other types and axes.
    """
    one_of("the type of the elements", type_, SCALARS.values())
    if not isinstance(axes, Sequence) or not 2 <= len(axes) <= _MOST_AXES:
        refuse(f"an array has 2 to {_MOST_AXES} axes, got {axes!r}", "axes=(0, 2, 1) is the order in which the source's axes come")
    order = axes_of(axes, rank := len(axes))
    last = rank - 1
    other = order[last] if order[last] != last else order[last - 1]  # the axis of the source that the tile has beside its last
    height, width = _RUN if order[last] == last else (_SIDE, _SIDE)
    with vp.TileBuilder("permute") as b:
        dims = [b.dim(f"d{k}") for k in range(rank)]
        source, target = b.read("source", type_, *dims), b.write("target", type_, *[dims[k] for k in order])
        parts = vp.ceil_div(dims[last], width)
        # All on one axis of the grid, the longest that devices have.
        at, number = {last: b.workgroup_id(0) % parts * width}, b.workgroup_id(0) // parts
        over: vp.Expr = parts
        for k in [k for k in range(rank) if k not in (last, other)]:
            at[k], number, over = number % dims[k], number // dims[k], over * dims[k]
        at[other] = number * height
        b.grid(over * vp.ceil_div(dims[other], height))
        x = source.tile(*[at[k] for k in range(rank)], shape=[{last: width, other: height}.get(k) for k in range(rank)])
        places = order.index(other), order.index(last)
        target.tile_store(tuple([at[k] for k in order]), x if places[0] < places[1] else x.T, axes=sorted(places))
    return b.program
