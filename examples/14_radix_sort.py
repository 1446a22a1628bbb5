"""Radix sort: 32-bit keys, by eight bits at a time, least significant first. Three launches for each digit, twelve as one sequence.

    python examples/14_radix_sort.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

DIGITS, LANES, ROWS, TILE = 256, 32, 12, 3072  # an invocation for each digit; each has 12 keys of the workgroup's tile of 3072


def counting() -> vp.Program:
    """How many keys with each digit each tile has: all tiles' counts of one digit, then those of the next."""
    with vp.ProgramBuilder("counting", workgroup=DIGITS) as b:
        n, m, shift = b.dim("n"), b.dim("m"), b.param("shift", vp.u32)
        keys, counts, here = b.read("keys", vp.u32, n), b.write("counts", vp.u32, m), b.workgroup("here", vp.u32, DIGITS)
        b.grid(vp.ceil_div(n, TILE))
        for i, key in [(i, keys[i]) for i in [b.workgroup_id(0) * TILE + b.local_index() + row * DIGITS for row in range(ROWS)]]:  # all loads first
            here.atomic_add((key >> shift) % DIGITS, vp.cast(i < n, vp.u32))
        b.barrier()
        counts[b.local_index() * b.num_workgroups(0) + b.workgroup_id(0)] = here[b.local_index()]
    return b.program


def placing() -> vp.Program:
    """places[k] = counts[0] + ... + counts[k - 1]."""
    with vp.ProgramBuilder("placing", workgroup=256, subgroup=LANES) as b:
        counts, places = b.read("counts", vp.u32, m := b.dim("m")), b.write("places", vp.u32, m)
        before = b.grid_scan("add", b.workgroup_reduce("add", counts[b.global_id(0)]))
        places[b.global_id(0)] = before + b.workgroup_scan("add", counts[b.global_id(0)], exclusive=True)
    return b.program


def moving() -> vp.Program:
    """Sorts each tile by digit, then copies it: a key goes behind those of its digit in the tiles before, in the subgroups before, in its subgroup."""
    with vp.ProgramBuilder("moving", workgroup=DIGITS, subgroup=LANES) as b:
        n, m, shift = b.dim("n"), b.dim("m"), b.param("shift", vp.u32)
        keys, places, out = b.read("keys", vp.u32, n), b.read("places", vp.u32, m), b.write("out", vp.u32, n)
        here, tile, offsets = b.workgroup("here", vp.u32, DIGITS // LANES, DIGITS), b.workgroup("tile", vp.u32, TILE), b.workgroup("offsets", vp.u32, DIGITS)
        b.grid(vp.ceil_div(n, TILE))
        k, s, first, ranks = b.local_index(), b.subgroup_id(), b.workgroup_id(0) * TILE, []
        rows = [vp.select(i < n, keys[i], 0xFFFFFFFF) for i in [first + (s * ROWS + row) * LANES + b.subgroup_lane() for row in range(ROWS)]]
        for digit in (digits := [(key >> shift) % DIGITS for key in rows]):
            like = vp.const(0xFFFFFFFF, vp.u32)  # the lanes with the same digit: eight votes are quicker than a match
            for bit in [(digit >> place) % 2 == 1 for place in range(8)]:
                like = like & (b.subgroup_ballot(bit) ^ vp.select(bit, vp.const(0, vp.u32), 0xFFFFFFFF))
            rank, before = vp.popcount(like & ((1 << b.subgroup_lane()) - 1)), here[s, digit]
            b.barrier()
            with b.if_(rank == 0):
                here[s, digit] = before + vp.popcount(like)
            b.barrier()
            ranks.append(before + rank)
        counts = [here[row, k] for row in range(DIGITS // LANES)]  # of the digit k, in each subgroup
        place = b.workgroup_scan("add", sum(counts[1:], counts[0]), exclusive=True)
        offsets[k] = places[k * b.num_workgroups(0) + b.workgroup_id(0)] - place  # from the place in the tile to the place in all
        for row, count in enumerate(counts):
            here[row, k], place = place, place + count
        b.barrier()
        for key, digit, rank in zip(rows, digits, ranks, strict=True):
            tile[here[s, digit] + rank] = key
        b.barrier()
        for i in [k + row * DIGITS for row in range(ROWS)]:
            out[offsets[(tile[i] >> shift) % DIGITS] + i] = tile[i]  # those past the end are the greatest, and stay past the end
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(6).integers(0, 1 << 32, 100_003, np.uint32)
counts, places = (device.allocate(DIGITS * -(-values.size // TILE), vp.u32) for _ in range(2))
keys, free, steps = device.upload(values), device.allocate(values.shape, vp.u32), []
count, place, move = (device.compile_native(make()) for make in (counting, placing, moving))
for at in range(0, 32, 8):
    steps += [count.bind(keys=keys, counts=counts, shift=at), place.bind(counts=counts, places=places), move.bind(keys=keys, places=places, out=free, shift=at)]
    keys, free = free, keys
device.sequence(*steps)()
assert np.array_equal(keys.read(), np.sort(values))
print(f"{values.size} keys in order on {device.name}: {keys.read()[:3]} ... {keys.read()[-1]}")
