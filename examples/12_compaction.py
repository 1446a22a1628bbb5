"""Compaction: the elements above a threshold, in order, without gaps, in one launch: a scan over the grid tells each workgroup where its elements begin.

    python examples/12_compaction.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

GROUP, LANES, ROWS = 256, 32, 16  # a subgroup takes so many rows of elements, one behind the other


def compaction() -> vp.Program:
    """Each workgroup counts the elements that it keeps, hears how many those before it keep, and writes its own behind them. All its loads are under way at
    once, and votes of a subgroup count each of its rows."""
    with vp.ProgramBuilder("compaction", workgroup=GROUP, subgroup=LANES) as b:
        n, limit = b.dim("n"), b.param("limit", vp.f32)
        x, y, total = b.read("x", vp.f32, n), b.write("y", vp.f32, n), b.write("total", vp.u32, 1)
        b.grid(vp.ceil_div(n, GROUP * ROWS))
        lane = b.let("lane", b.subgroup_lane())
        first = b.let("first", b.workgroup_id(0) * (GROUP * ROWS) + b.subgroup_id() * (LANES * ROWS) + lane)
        rows = [x[first + k * LANES] for k in range(ROWS)]
        kept, places, here = [], [], vp.const(0, vp.u32)
        for k, value in enumerate(rows):
            keep = (first + k * LANES < n) & (value > limit)
            votes = b.subgroup_ballot(keep)
            kept.append(keep)
            places.append(here + vp.popcount(votes & ((1 << lane) - 1)))
            here = here + vp.popcount(votes)
        once = vp.select(lane == 0, here, 0)  # the subgroup's count
        count = b.workgroup_reduce("add", once)
        before = b.grid_scan("add", count)
        start = before + b.workgroup_scan("add", once) - here
        for value, keep, place in zip(rows, kept, places, strict=True):
            with b.if_(keep):
                y[start + place] = value
        with b.if_((b.workgroup_id(0) == b.num_workgroups(0) - 1) & (b.local_index() == 0)):
            total[0] = before + count
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(4).standard_normal(200_001).astype(np.float32)
x, y, total = device.upload(values), device.allocate(values.shape, vp.f32), device.allocate((1,), vp.u32)
compact = device.compile_native(compaction()).bind(x=x, y=y, total=total, limit=1.0)
for limit in (1.0, -2.0, 9.0):
    compact.set(limit=limit)()
    kept = int(total.read()[0])
    assert np.array_equal(y.read()[:kept], values[values > np.float32(limit)])
    print(f"{kept} of {values.size} values are above {limit}, in order, on {device.name}")
