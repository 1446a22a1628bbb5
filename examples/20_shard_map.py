"""A ring of heat in two halves, each on a device of JAX's: a Program steps its half, JAX hands the ends to the neighbour, all in one compiled loop.

    python examples/20_shard_map.py

The devices are two of the CPU, so it runs anywhere; on GPUs the mesh is of `jax.devices()`. It needs the package jax.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # before JAX is imported

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import vyre_py as vp
from vyre_py.interop.jax import vyre_call

POINTS, STEPS, RATE = 1024, 200, 0.25

with vp.ProgramBuilder("heat") as b:
    n, rate = b.dim("n"), b.param("rate", vp.f32)
    old, ends, new = b.read("old", vp.f32, n), b.read("ends", vp.f32, 2), b.write("new", vp.f32, n)
    i = b.global_id(0)
    before = vp.select(i > 0, old[i - 1], ends[0])
    behind = vp.select(i < n - 1, old[i + 1], ends[1])
    new[i] = old[i] + rate * (before + behind - 2.0 * old[i])

heat = vyre_call(b.program)  # (old, ends, rate) -> new
mesh = jax.make_mesh((2,), ("half",), axis_types=(AxisType.Auto,), devices=jax.devices("cpu")[:2])
halves = PartitionSpec("half")


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=halves, out_specs=halves)
def run(half: jax.Array) -> jax.Array:
    """All steps of one half, in which the other half's ends come from the other device."""
    swap = [(0, 1), (1, 0)]

    def step(_: int, half: jax.Array) -> jax.Array:
        before, behind = jax.lax.ppermute(half[-1:], "half", swap), jax.lax.ppermute(half[:1], "half", swap)
        return heat(half, jnp.concatenate([before, behind]), RATE)

    return jax.lax.fori_loop(0, STEPS, step, half)


start = np.random.default_rng(1).random(POINTS, np.float32)
found = run(jax.device_put(start, NamedSharding(mesh, halves)))

expected = start
for _ in range(STEPS):
    expected = expected + np.float32(RATE) * (np.roll(expected, 1) + np.roll(expected, -1) - np.float32(2) * expected)
assert len(found.sharding.device_set) == 2
assert np.array_equal(found, expected)
print(f"{STEPS} steps of {POINTS} points on {len(found.sharding.device_set)} devices: the bits of NumPy")
