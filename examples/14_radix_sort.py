"""Radix sort: 32-bit keys, by eight bits at a time, least significant first. Three launches for each digit, twelve as one sequence.

Its Programs are ready ones of `vp.ops`: how many keys have each digit, where the first of each goes, and the move there. `vyre_py/ops/sorts.py` has their code.

    python examples/14_radix_sort.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
values = np.random.default_rng(6).integers(0, 1 << 32, 100_003, np.uint32)
counts, places = (device.allocate(256 * -(-values.size // 3072), vp.u32) for _ in range(2))  # a number for each digit and tile of 3072 keys
keys, free, steps = device.upload(values), device.allocate(values.shape, vp.u32), []
count, place, move = map(device.compile_native, (vp.ops.radix_count(), vp.ops.prefix_sum(exclusive=True), vp.ops.radix_move()))
for at in range(0, 32, 8):
    steps += [count.bind(keys=keys, counts=counts, shift=at), place.bind(source=counts, target=places)]
    steps.append(move.bind(keys=keys, places=places, sorted=free, shift=at))
    keys, free = free, keys
device.sequence(*steps)()
assert np.array_equal(keys.read(), np.sort(values))
print(f"{values.size} keys in order on {device.name}: {keys.read()[:3]} ... {keys.read()[-1]}")
