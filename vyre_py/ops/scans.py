"""Prefix sums of any length, in one launch."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import Type, f32, f64, i32, i64, u32, u64
from vyre_py.ops.checks import one_of

__all__ = ["prefix_sum"]

_GROUP, _LANES, _ROWS = 256, 32, 16  # a subgroup takes so many rows of elements, one behind the other
_PART: Final = _GROUP * _ROWS


def prefix_sum(type_: Type = u32, *, exclusive: bool = False) -> vp.Program:
    """target[i] = source[0] + ... + source[i]; with `exclusive` up to source[i - 1], and target[0] = 0.

    Buffers: `source` and `target` of [n], elements of `type_`: i32, u32, i64, u64, f32 or f64. Each element is read and written once: lanes add up their
    rows, subgroups their lanes, workgroups their subgroups, and a scan over the grid adds what lies before the workgroup: D. Merrill and M. Garland,
    "Single-pass parallel prefix scan with decoupled look-back" (2016). Integers wrap. The order in which workgroups' sums of floats are added is not fixed,
    so their last bits may change from run to run. Raises ValidationError B108 at the caller's line for other types.
    """
    one_of("the type of a prefix sum", type_, (i32, u32, i64, u64, f32, f64))
    with vp.ProgramBuilder("prefix_sum", workgroup=_GROUP, subgroup=_LANES) as b:
        n = b.dim("n")
        source, target = b.read("source", type_, n), b.write("target", type_, n)
        b.grid(vp.ceil_div(n, _PART))
        first = b.let("first", b.workgroup_id(0) * _PART + b.subgroup_id() * (_LANES * _ROWS) + b.subgroup_lane())
        rows = [source[first + k * _LANES] for k in range(_ROWS)]
        sums, before = [], vp.const(0, type_)  # before: the rows above
        for x in rows:
            through = b.subgroup_scan("add", x)
            sums.append(before + (b.subgroup_shuffle_up(through, 1) if exclusive else through))
            before = before + b.subgroup_broadcast(through, _LANES - 1)
        own = vp.select(b.subgroup_lane() == 0, before, 0)  # each subgroup's once
        earlier = b.grid_scan("add", b.workgroup_reduce("add", own), any_order=type_.is_float)  # first: other workgroups wait for this one's
        start = earlier + b.subgroup_broadcast(b.workgroup_scan("add", own, exclusive=True), 0)
        for k, x in enumerate(sums):
            target[first + k * _LANES] = start + x
    return b.program
