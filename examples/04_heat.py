"""Heat in a plate whose edges are kept cold: a stencil, captured once as a graph and replayed as a loop.

    python examples/04_heat.py [device]        writes heat.gif
"""

import sys
import time
from pathlib import Path

import numpy as np

import vyre_py as vp
from vyre_py.demo.picture import write_animation

WIDTH, HEIGHT, FRAMES, TURNS, RATE = 240, 160, 48, 20, 0.2

with vp.ProgramBuilder("heat", workgroup=(32, 8)) as b:
    height, width = b.dim("height"), b.dim("width")
    rate = b.param("rate", vp.f32)
    source = b.read("source", vp.f32, height, width)
    old, new = b.read("old", vp.f32, height, width), b.write("new", vp.f32, height, width)
    x, y = b.global_id(0), b.global_id(1)
    here = old[y, x]
    around = old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x]  # beyond the edges a load is zero: there it is cold
    new[y, x] = vp.max(source[y, x], here + rate * (around - 4.0 * here))

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
pipeline = device.compile_native(b.program)
hot = np.zeros((HEIGHT, WIDTH), np.float32)
hot[30:130, 60:64] = hot[30:34, 60:180] = hot[78:82, 60:150] = 1
source_d, this, other = device.constant(hot), device.upload(hot), device.allocate(hot.shape, vp.f32)
there = pipeline.bind(source=source_d, old=this, new=other, rate=RATE)
back = pipeline.bind(source=source_d, old=other, new=this, rate=RATE)


def there_and_back() -> None:
    """Two steps, so that the result lies where it began."""
    there()
    back()


graph = device.capture(there_and_back)  # recorded, not run

seconds = 0.0
frames = []
for _ in range(FRAMES):
    heat = this.read()
    frames.append(np.stack([255 * np.clip(3 * heat - k, 0, 1) for k in range(3)], axis=-1).astype(np.uint8))  # black, red, yellow, white
    start = time.perf_counter()
    graph.repeat(TURNS)
    device.synchronize()
    seconds += time.perf_counter() - start

expected = hot
for _ in range(2 * TURNS * FRAMES):
    wide = np.pad(expected, 1)
    four = wide[1:-1, :-2] + wide[1:-1, 2:] + wide[:-2, 1:-1] + wide[2:, 1:-1]
    expected = np.maximum(hot, expected + np.float32(RATE) * (four - np.float32(4) * expected))
if pipeline.numerics == "strict":
    assert np.array_equal(this.read(), expected)
else:
    np.testing.assert_allclose(this.read(), expected, atol=1e-4)

write_animation(Path("heat.gif"), frames)
steps = 2 * TURNS * FRAMES
print(f"heat.gif written; {steps} steps as NumPy's, {steps / seconds:,.0f} a second on {device.name}")
