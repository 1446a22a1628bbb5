"""Compaction: the elements above a threshold, in order, without gaps. Workgroups count theirs, one workgroup turns the counts into places, and each workgroup
writes what it has kept; three launches as one sequence.

    python examples/12_compaction.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

GROUP = 256


def counting() -> vp.Program:
    """How many elements each workgroup keeps."""
    with vp.ProgramBuilder("counting", workgroup=GROUP, subgroup=32) as b:
        n, groups = b.dim("n"), b.dim("groups")
        x, counts, limit = b.read("x", vp.f32, n), b.write("counts", vp.u32, groups), b.param("limit", vp.f32)
        b.grid(groups)
        i = b.global_id(0)
        kept = b.workgroup_count((i < n) & (x[i] > limit))
        with b.if_(b.local_index() == 0):
            counts[b.workgroup_id(0)] = kept
    return b.program


def placing() -> vp.Program:
    """Where each workgroup's elements begin, and how many there are in all: one workgroup, a piece of the counts after another."""
    with vp.ProgramBuilder("placing", workgroup=GROUP, subgroup=32) as b:
        groups = b.dim("groups")
        counts, places, total = b.read("counts", vp.u32, groups), b.write("places", vp.u32, groups), b.write("total", vp.u32, 1)
        b.grid(1)
        before = b.var("before", vp.u32)
        with b.for_(0, groups, GROUP) as first:
            count = counts[first + b.local_index()]  # past the end a load is zero
            places[first + b.local_index()] = before + b.workgroup_scan("add", count, exclusive=True)
            before += b.workgroup_reduce("add", count)
        total[0] = before
    return b.program


def writing() -> vp.Program:
    """Each workgroup writes the elements that it keeps, from its place on."""
    with vp.ProgramBuilder("writing", workgroup=GROUP, subgroup=32) as b:
        n, groups = b.dim("n"), b.dim("groups")
        x, places, y, limit = b.read("x", vp.f32, n), b.read("places", vp.u32, groups), b.write("y", vp.f32, n), b.param("limit", vp.f32)
        b.grid(groups)
        i = b.global_id(0)
        kept = (i < n) & (x[i] > limit)
        own = b.workgroup_scan("add", vp.cast(kept, vp.u32), exclusive=True)
        with b.if_(kept):
            y[places[b.workgroup_id(0)] + own] = x[i]
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(4).standard_normal(200_001).astype(np.float32)
groups = -(-values.size // GROUP)
x, y = device.upload(values), device.allocate(values.shape, vp.f32)
counts, places, total = (device.allocate((size,), vp.u32) for size in (groups, groups, 1))
count, place, write = (device.compile_native(make()) for make in (counting, placing, writing))
compact = device.sequence(
    count.bind(x=x, counts=counts, limit=1.0), place.bind(counts=counts, places=places, total=total), write.bind(x=x, places=places, y=y, limit=1.0)
)
compact()
kept = int(total.read()[0])
assert np.array_equal(y.read()[:kept], values[values > 1.0])
print(f"{kept} of {values.size} values kept, in order, on {device.name}")
