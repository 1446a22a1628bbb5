"""Prefix sums of any length, in one launch."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import Type, f32, f64, i32, i64, u32, u64
from vyre_py.ops import hardware
from vyre_py.ops.checks import flags, one_of

__all__ = ["prefix_sum"]

_GROUP, _LANES, _ROWS = 256, 32, 16  # a subgroup takes so many rows of elements, one behind the other
_PART: Final = _GROUP * _ROWS
_TOGETHER, _TAKEN_BYTES, _GROUP_ROWS = 4, 4, 8  # or fewer rows of groups, of elements of so many bytes


def prefix_sum(type_: Type = u32, *, exclusive: bool = False, on: vp.Device | vp.Target | str | None = None) -> vp.Program:
    """target[i] = source[0] + ... + source[i]; with `exclusive` up to source[i - 1], and target[0] = 0.

    Buffers: `source` and `target` of [n], elements of `type_`: i32, u32, i64, u64, f32 or f64. Each element is read and written once: lanes add up their
    rows, subgroups their lanes, workgroups their subgroups, and a scan over the grid adds what lies before the workgroup: D. Merrill and M. Garland,
    "Single-pass parallel prefix scan with decoupled look-back" (2016). Integers wrap. The order in which workgroups' sums of floats are added is not fixed,
    so their last bits may change from run to run: to first order in u = 2^-24, of f64 2^-53, target[i] is off by at most (i // 4096 + 25) u times the sum of
    |source| up to i, in whatever order. `on` a device or target ("sm_90") that is one of NVIDIA's from sm_80 on, a lane takes four neighbours
    of 4 bytes at a time, which is faster there where four divides `n`. Raises ValidationError B108 at the caller's line for other types.
    """
    one_of("the type of a prefix sum", type_, (i32, u32, i64, u64, f32, f64))
    takes_neighbours = type_.size_bytes == _TAKEN_BYTES and hardware.machine(on) in hardware.WITH_CORES  # of 8 bytes rows are the faster
    return (_of_neighbours if takes_neighbours else _of_rows)(type_, *flags(exclusive=exclusive))


def _of_rows(type_: Type, exclusive: bool) -> vp.Program:
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


def _of_neighbours(type_: Type, exclusive: bool) -> vp.Program:
    """Of rows of groups: lanes add up their own first. Sums of subgroups go through an array, which takes fewer shuffles than a scan of the workgroup."""
    row, part = _LANES * _TOGETHER, _GROUP * _TOGETHER * _GROUP_ROWS
    with vp.ProgramBuilder("prefix_sum", workgroup=_GROUP, subgroup=_LANES) as b:
        n = b.dim("n")
        source, target, wholes = b.read("source", type_, n), b.write("target", type_, n), b.workgroup("wholes", type_, _GROUP // _LANES)
        b.grid(vp.ceil_div(n, part))
        lane, number = b.let("lane", b.subgroup_lane()), b.let("number", b.subgroup_id())
        first = b.let("first", b.workgroup_id(0) * part + number * (row * _GROUP_ROWS) + lane * _TOGETHER)
        places = [b.let(f"place{k}", first + k * row) for k in range(_GROUP_ROWS)]
        groups = [[source[place + e] for e in range(_TOGETHER)] for place in places]
        sums, before = [], vp.const(0, type_)
        for x, *others in groups:
            own = [x]
            for other in others:
                own.append(own[-1] + other)
            through = b.subgroup_scan("add", own[-1])
            start = before + b.subgroup_shuffle_up(through, 1)  # zero comes to the first lane
            sums.append([start, *[start + x for x in own[:-1]]] if exclusive else [start + x for x in own])
            before = before + b.subgroup_broadcast(through, _LANES - 1)
        with b.if_(lane == 0):
            wholes[number] = before
        b.barrier()
        whole, start = vp.const(0, type_), vp.const(0, type_)
        for k in range(_GROUP // _LANES):
            start = vp.select(number == k, whole, start)
            whole = whole + wholes[k]
        start = start + b.grid_scan("add", whole, any_order=type_.is_float)
        for place, of_group in zip(places, sums, strict=True):
            results = [start + x for x in of_group]  # all before the first is stored: stores that follow one another are one
            for e, x in enumerate(results):
                target[place + e] = x
    return b.program
