"""Compaction: the elements above a threshold, in order, without gaps, in one launch: a scan over the grid tells each workgroup where its elements begin.

    python examples/12_compaction.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

GROUP = 256


def compaction() -> vp.Program:
    """Each workgroup counts the elements that it keeps, hears how many those before it keep, and writes its own behind them."""
    with vp.ProgramBuilder("compaction", workgroup=GROUP, subgroup=32) as b:
        n, limit = b.dim("n"), b.param("limit", vp.f32)
        x, y, total = b.read("x", vp.f32, n), b.write("y", vp.f32, n), b.write("total", vp.u32, 1)
        b.over(n)
        i = b.global_id(0)
        kept = (i < n) & (x[i] > limit)
        count = b.workgroup_count(kept)
        before = b.grid_scan("add", count)
        place = before + b.workgroup_scan("add", vp.cast(kept, vp.u32), exclusive=True)
        with b.if_(kept):
            y[place] = x[i]
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
