"""Radix sort: 32-bit keys, by four bits at a time, least significant first. In each pass workgroups count their keys by digit, prefix sums turn the counts into
places, and workgroups put their keys there, in order. Eight passes are one sequence.

    python examples/14_radix_sort.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

GROUP, LANES, DIGITS = 256, 32, 16


def counting() -> vp.Program:
    """How many keys with each digit each workgroup has: all workgroups' counts of one digit, then those of the next."""
    with vp.ProgramBuilder("counting", workgroup=GROUP) as b:
        n, groups, shift = b.dim("n"), b.dim("groups"), b.param("shift", vp.u32)
        keys, counts = b.read("keys", vp.u32, n), b.write("counts", vp.u32, DIGITS, groups)
        here = b.workgroup("here", vp.u32, DIGITS)
        b.grid(groups)
        i, k = b.global_id(0), b.local_index()
        with b.if_(i < n):
            here.atomic_add((keys[i] >> shift) & (DIGITS - 1), 1)
        b.barrier()
        with b.if_(k < DIGITS):
            counts[k, b.workgroup_id(0)] = here[k]
    return b.program


def placing() -> vp.Program:
    """places[k] = counts[0] + ... + counts[k - 1]."""
    with vp.ProgramBuilder("placing", workgroup=GROUP, subgroup=LANES) as b:
        m = b.dim("m")
        counts, places = b.read("counts", vp.u32, m), b.write("places", vp.u32, m)
        i = b.global_id(0)
        before = b.grid_scan("add", b.workgroup_reduce("add", counts[i]))
        places[i] = before + b.workgroup_scan("add", counts[i], exclusive=True)
    return b.program


def moving() -> vp.Program:
    """Puts each key behind those of its digit that come before it: in other workgroups, in other subgroups of its own, and in its subgroup."""
    with vp.ProgramBuilder("moving", workgroup=GROUP, subgroup=LANES) as b:
        n, groups, shift = b.dim("n"), b.dim("groups"), b.param("shift", vp.u32)
        keys, places, out = b.read("keys", vp.u32, n), b.read("places", vp.u32, DIGITS, groups), b.write("out", vp.u32, n)
        here = b.workgroup("here", vp.u32, GROUP // LANES, DIGITS)
        b.grid(groups)
        i, s = b.global_id(0), b.subgroup_id()
        digit = vp.select(i < n, (keys[i] >> shift) & (DIGITS - 1), DIGITS)  # past the end none that there is
        like = b.subgroup_match(digit)
        rank = vp.popcount(like & ((1 << b.subgroup_lane()) - 1))
        with b.if_(rank == 0):
            here[s, digit] = vp.popcount(like)
        b.barrier()
        place = b.var("place", vp.u32, places[digit, b.workgroup_id(0)] + rank)
        with b.for_(0, s) as earlier:
            place += here[earlier, digit]
        with b.if_(i < n):
            out[place] = keys[i]
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(6).integers(0, 1 << 32, 100_003, np.uint32)
groups = -(-values.size // GROUP)
keys, other = device.upload(values), device.allocate(values.shape, vp.u32)
counts, places = (device.allocate((DIGITS, groups), vp.u32) for _ in range(2))
count, place, move = (device.compile_native(make()) for make in (counting, placing, moving))
steps, flat = [], DIGITS * groups
for shift in range(0, 32, 4):
    steps += [
        count.bind(keys=keys, counts=counts, shift=shift), place.bind(counts=counts.reshape(flat), places=places.reshape(flat)),
        move.bind(keys=keys, places=places, out=other, shift=shift),
    ]
    keys, other = other, keys
device.sequence(*steps)()
assert np.array_equal(keys.read(), np.sort(values))
print(f"{values.size} keys in order on {device.name}: {keys.read()[:3]} ... {keys.read()[-1]}")
