"""y = a * x + y: a Program, one dispatch from host arrays, and a resident launch that is set and run again.

    python examples/01_axpy.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

with vp.ProgramBuilder("axpy") as b:
    n = b.dim("n")  # solved from the arrays
    a = b.param("a", vp.f32)
    x = b.read("x", vp.f32, n)
    y = b.read_write("y", vp.f32, n)
    i = b.let("i", b.global_id(0))
    y[i] = a * x[i] + y[i]  # no guard: past the end a load is zero and a store is dropped

print(b.program)

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
pipeline = device.compile_native(b.program)
print(f"on {device.name}, numerics {pipeline.numerics}, {dict(pipeline.report)}")

rng = np.random.default_rng(7)
xs, ys = rng.random(1_000_003, np.float32), rng.random(1_000_003, np.float32)

out = pipeline.dispatch({"x": xs, "y": ys, "a": 2.0})  # host arrays in, never changed; new host arrays out
expected = np.float32(2) * xs + ys
if pipeline.numerics == "strict":
    assert np.array_equal(out["y"], expected)
else:
    np.testing.assert_allclose(out["y"], expected, rtol=1e-6)

xd, yd = device.upload(xs), device.upload(ys)  # resident buffers
launch = pipeline.bind({"x": xd, "y": yd, "a": 2.0})  # checked and packed once
launch()
launch.set(a=-2.0)()  # one slot changed, and run again
np.testing.assert_allclose(yd.read(), np.float32(-2) * xs + expected, atol=1e-6)
print("right;", {name: count for name, count in device.telemetry.snapshot().items() if count})
