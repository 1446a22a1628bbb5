"""A blur over a tile with a halo: each workgroup loads its tile and the border around it once, and every element is then read from its own memory.

    python examples/10_stencil.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

TILE, HALO = 16, 2
WIDE = TILE + 2 * HALO

with vp.ProgramBuilder("blur", workgroup=(TILE, TILE)) as b:
    height, width = b.dim("height"), b.dim("width")
    source, out = b.read("source", vp.f32, height, width), b.write("out", vp.f32, height, width)
    tile = b.workgroup("tile", vp.f32, WIDE, WIDE)
    left, top = vp.cast(b.workgroup_id(0) * TILE, vp.i32) - HALO, vp.cast(b.workgroup_id(1) * TILE, vp.i32) - HALO
    # There are more elements than invocations: each loads several, a workgroup apart.
    with b.for_(b.local_index(), WIDE * WIDE, TILE * TILE) as place:
        row, column = place // WIDE, place % WIDE
        tile[row, column] = source[top + vp.cast(row, vp.i32), left + vp.cast(column, vp.i32)]  # zero beyond the edges
    b.barrier()
    x, y = b.local_id(0), b.local_id(1)
    near = [tile[y + dy, x + dx] for dy in range(2 * HALO + 1) for dx in range(2 * HALO + 1)]
    total = near[0]
    for value in near[1:]:
        total = total + value
    out[b.global_id(1), b.global_id(0)] = total / float(len(near))

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
image = np.random.default_rng(2).random((100, 130), np.float32)
got = device.compile_native(b.program).dispatch({"source": image})["out"]
wide = np.pad(image, HALO)
sums = sum(wide[dy : dy + 100, dx : dx + 130] for dy in range(2 * HALO + 1) for dx in range(2 * HALO + 1))
np.testing.assert_allclose(got, sums / np.float32(25), rtol=1e-5)
print(f"an image of {image.shape[1]} x {image.shape[0]} blurred as NumPy does it, on {device.name}")
