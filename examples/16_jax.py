"""A Program in what JAX compiles: its derivative fits a curve.

    python examples/16_jax.py

Points lie on a sum of two bells, with some noise. The Program gives every point's value from the bells' heights, places and widths; JAX puts it into a loss,
differentiates that by a second Program, and steps downhill, in one compiled loop. It needs the package jax.
"""

import jax
import jax.numpy as jnp
import numpy as np

import vyre_py as vp
from vyre_py.interop.jax import vyre_call

STEPS, RATE = 2000, 0.02


def bells(*, slopes: bool) -> vp.Program:
    """The sum of bells at each point; or what each point adds to the slopes along the parameters, given that along its value."""
    with vp.ProgramBuilder("slopes" if slopes else "bells") as b:
        n, k = b.dim("n"), b.dim("k")
        x, parameters = b.read("x", vp.f32, n), b.read("parameters", vp.f32x3, k)  # of each bell: height, place, width
        i = b.global_id(0)
        if slopes:
            along, out = b.read("along", vp.f32, n), b.write("out", vp.f32x3, n, k)
        else:
            value, total = b.write("value", vp.f32, n), b.var("total", vp.f32)
        b.over(n)
        with b.for_(0, k) as j:
            bell = parameters[j]
            t = (x[i] - bell.y) / bell.z
            e = vp.exp(-t * t)
            if slopes:
                rise = along[i] * e
                out[i, j] = vp.vec3(rise, rise * bell.x * 2.0 * t / bell.z, rise * bell.x * 2.0 * t * t / bell.z)
            else:
                total += bell.x * e
        if not slopes:
            value[i] = total
    return b.program


curve, slopes = vyre_call(bells(slopes=False)), vyre_call(bells(slopes=True))
curve.defvjp(
    lambda x, parameters: (curve(x, parameters), (x, parameters)),
    lambda saved, along: (None, slopes(*saved, along).sum(axis=0)),
)


@jax.jit
def fit(x: jax.Array, y: jax.Array, start: jax.Array) -> jax.Array:
    """Steps downhill from a guess."""
    slope = jax.grad(lambda parameters: jnp.mean((curve(x, parameters) - y) ** 2))
    found, _ = jax.lax.scan(lambda p, _: (p - RATE * slope(p), None), start, None, length=STEPS)
    return found


wanted = np.float32([[1.0, -1.0, 0.5], [2.0, 1.0, 0.8]])
random = np.random.default_rng(1)
x = np.linspace(-3, 3, 1000, dtype=np.float32)
y = np.asarray(curve(x, wanted)) + random.normal(0, 0.02, 1000).astype(np.float32)
found = fit(x, y, jnp.float32([[1.5, -1.3, 0.7], [1.5, 1.4, 0.7]]))
for row, meant in zip(np.asarray(found), wanted, strict=True):
    print("height {:.2f}, place {:.2f}, width {:.2f}".format(*row), "  meant: {:.2f}, {:.2f}, {:.2f}".format(*meant))
assert np.abs(found - wanted).max() < 0.1
