"""A histogram: each workgroup counts in its own memory, and adds what it found to the result with one atomic a bin.

    python examples/11_histogram.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

BINS, GROUP, EACH = 256, 256, 16

with vp.ProgramBuilder("histogram", workgroup=GROUP) as b:
    n = b.dim("n")
    values, counts = b.read("values", vp.u8, n), b.read_write("counts", vp.u32, BINS)
    b.grid(vp.ceil_div(n, GROUP * EACH))  # the result's shape does not say how many run
    own = b.workgroup("own", vp.u32, BINS)
    first = b.workgroup_id(0) * (GROUP * EACH) + b.local_index()
    for k in range(EACH):
        place = first + k * GROUP
        with b.if_(place < n):  # a load past the end is zero, and zero would be counted
            own.atomic_add(vp.cast(values[place], vp.u32), 1)
    b.barrier()  # every invocation has counted
    counts.atomic_add(b.local_index(), own[b.local_index()])

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
data = np.random.default_rng(3).binomial(255, 0.4, 100_003).astype(np.uint8)
got = device.compile_native(b.program).dispatch({"values": data, "counts": np.zeros(BINS, np.uint32)})["counts"]
assert np.array_equal(got, np.bincount(data, minlength=BINS))
print(f"{data.size} values counted as NumPy counts them, on {device.name}")
