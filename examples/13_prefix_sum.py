"""Prefix sums: y[i] = x[0] + ... + x[i], in one launch that reads and writes each element once. Lanes add up their four elements, subgroups their lanes,
workgroups their subgroups, and a scan over the grid adds what lies before the workgroup.

    python examples/13_prefix_sum.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

GROUP, LANES, ROWS = 512, 32, 6  # a subgroup takes so many rows of vectors, one behind the other


def prefix_sum() -> vp.Program:
    """Over vectors of four elements. Past the end loads are zero, and stores are dropped."""
    with vp.ProgramBuilder("prefix_sum", workgroup=GROUP, subgroup=LANES) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u32x4, n), b.write("y", vp.u32x4, n)
        b.grid(vp.ceil_div(n, GROUP * ROWS))
        lane = b.let("lane", b.subgroup_lane())
        first = b.let("first", b.workgroup_id(0) * (GROUP * ROWS) + b.subgroup_id() * (LANES * ROWS) + lane)
        rows = [x[first + k * LANES] for k in range(ROWS)]
        sums, before = [], vp.const(0, vp.u32)
        for v in rows:
            xy, zw = v.x + v.y, v.z + v.w
            through = b.subgroup_scan("add", xy + zw)
            start = before + through - (xy + zw)
            sums.append(vp.vec4(v.x, xy, xy + v.z, xy + zw) + start)
            before = before + b.subgroup_broadcast(through, LANES - 1)
        total = vp.select(lane == 0, before, 0)  # each subgroup's once
        earlier = b.grid_scan("add", b.workgroup_reduce("add", total))  # first, since other workgroups wait for this one's
        start = earlier + b.workgroup_scan("add", total) - before
        for k, row in enumerate(sums):
            y[first + k * LANES] = row + start
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(5).integers(0, 1 << 32, 1_000_004, np.uint32)
x, y = device.upload(values.reshape(-1, 4), vp.u32x4), device.allocate((values.size // 4,), vp.u32x4)
add_up = device.compile_native(prefix_sum()).bind(x=x, y=y)
for _ in range(3):
    add_up()
assert np.array_equal(y.read().ravel(), np.cumsum(values, dtype=np.uint32))
print(f"{values.size} prefix sums on {device.name}, the last of them {y.read()[-1, -1]}")
