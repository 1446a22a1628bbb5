"""The Mandelbrot set: a loop that each invocation leaves when it will, written as a picture.

    python examples/03_mandelbrot.py [device]        writes mandelbrot.png
"""

import sys
import time
from pathlib import Path

import numpy as np

import vyre_py as vp
from vyre_py.demo.picture import write_picture

WIDTH, HEIGHT, TURNS = 1024, 768, 256

with vp.ProgramBuilder("mandelbrot", workgroup=(16, 16)) as b:
    height, width = b.dim("height"), b.dim("width")
    turns = b.param("turns", vp.u32)
    out = b.write("out", vp.u32, height, width)
    px, py = b.global_id(0), b.global_id(1)
    cx = vp.cast(px, vp.f32) * 3.0 / vp.cast(width, vp.f32) - 2.0
    cy = vp.cast(py, vp.f32) * 2.25 / vp.cast(height, vp.f32) - 1.125
    zx, zy, k = b.var("zx", vp.f32), b.var("zy", vp.f32), b.var("k", vp.u32)
    with b.loop():
        b.break_if((k >= turns) | (zx * zx + zy * zy >= 4.0))
        next_x = (zx * zx - zy * zy + cx).cast(vp.f32)
        zy.set(2.0 * zx * zy + cy)
        zx.set(next_x)
        k += 1
    out[py, px] = k

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
pipeline = device.compile_native(b.program)
counts = device.allocate((HEIGHT, WIDTH), vp.u32)
launch = pipeline.bind({"out": counts, "turns": TURNS})
launch()
device.synchronize()
start = time.perf_counter()
launch()
device.synchronize()
seconds = time.perf_counter() - start

steps = counts.read()
shade = np.sqrt(steps / TURNS)
picture = np.stack([255 * shade**p for p in (0.6, 1.5, 0.9)], axis=-1)
picture[steps == TURNS] = 0
write_picture(Path("mandelbrot.png"), picture.astype(np.uint8))
print(f"mandelbrot.png written; {WIDTH * HEIGHT / seconds / 1e6:.1f} Mpixel/s on {device.name}")
