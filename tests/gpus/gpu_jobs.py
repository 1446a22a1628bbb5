"""What one process does with several GPUs: copies that no GPU can make by itself, JAX over a mesh of them, Dask with one for each worker."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np
from axpy import AXPY
from ranks import Rank

import vyre_py as vp
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.memory import peer
from vyre_py.ir.text.parser import parse

__all__ = ["copies_by_the_driver", "dask_workers", "gpu_count", "jax_shards"]


def gpu_count() -> int:
    """How many GPUs the driver has; none without it."""
    try:
        status, count = library.load().cuDeviceGetCount()
    except vp.DeviceUnavailable:
        return 0
    return 0 if status else int(count)


def copies_by_the_driver(rank: Rank) -> dict[str, Any]:
    """Copies where no GPU was told to reach the other's memory: as on machines that cannot. The driver takes its own way."""
    peer._reach = lambda device, other: None
    copied(vp.device("cuda:0"), vp.device("cuda:1"))
    return {}


def copied(first: Any, second: Any) -> None:
    """Copies of many sizes both ways, each in the order of what both streams hold."""
    for count in (1, 1000, 1 << 20, 10_000_001):
        data = np.random.default_rng(count).random(count, np.float32)
        x, y = first.upload(data), second.allocate(count, vp.f32)
        for turn in range(3):
            x.write(data + turn)
            second.copy_peer(x, y)
            x.fill(0)  # after the copy
            assert np.array_equal(y.read(), data + turn), f"{count} elements, turn {turn}"
        y.fill(3.0)
        first.copy_peer(y, x)  # what y holds by then
        y.fill(4.0)
        assert np.array_equal(x.read(), np.full(count, 3, np.float32)), f"{count} elements back"
        half = count // 2
        first.copy_peer(y[half:], x[:count - half])  # parts, at other places
        assert (x.read()[: count - half] == 4).all(), f"a part of {count} elements"
        x.free()
        y.free()


def jax_shards(rank: Rank) -> dict[str, Any]:
    """A Program under shard_map on all GPUs that JAX has: in slices, with a sum over the mesh between two calls, and in a loop."""
    jax = import_module("jax")
    from vyre_py.interop.jax import vyre_call

    devices = jax.devices("gpu")
    assert len(devices) >= rank.options["gpus"], devices
    many, n = len(devices), 1024 * len(devices)
    mesh, spec = jax.sharding.Mesh(np.array(devices), ("i",)), jax.sharding.PartitionSpec
    over, same = spec("i"), spec()
    function = vyre_call(AXPY)
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    split = jax.jit(jax.shard_map(lambda x, y: function(x, y, 2.0), mesh=mesh, in_specs=(over, over), out_specs=over))
    found = split(x, y)
    assert len(found.sharding.device_set) == many, found.sharding
    np.testing.assert_array_equal(np.asarray(found), 2 * x + y)

    def summed(x: Any, y: Any) -> Any:
        part = function(x, y, 1.0)
        total = jax.lax.psum(part.sum(), "i")
        return function(part, jax.numpy.full_like(part, total), 3.0)

    found = jax.jit(jax.shard_map(summed, mesh=mesh, in_specs=(over, over), out_specs=over))(x % 8, y)
    np.testing.assert_array_equal(np.asarray(found), 3 * (x % 8 + 1) + (x % 8 + 1).sum())
    loop = lambda x, y: jax.lax.fori_loop(0, 50, lambda _, y: function(x, y, 1.0), y)  # noqa: E731 - it is traced
    np.testing.assert_array_equal(np.asarray(jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=(over, over), out_specs=over))(x % 8, y)), 50 * (x % 8) + 1)
    mixed = jax.jit(jax.shard_map(lambda x, y: function(x, y, 2.0), mesh=mesh, in_specs=(over, same), out_specs=over))
    np.testing.assert_array_equal(np.asarray(mixed(x, y[:1024])), 2 * x + 1)
    return {"gpus": many}


_MINE = parse("""program mine(n) workgroup(256) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = x[global_id.x] * 3.0 + 1.0
}""")


def _gpu_of_worker() -> tuple[str, str]:
    """Which GPU a worker sees as its first: the environment's word, and the driver's."""
    import vyre_py as vp

    handles = vp.device("cuda").context
    return os.environ["CUDA_VISIBLE_DEVICES"], str(handles.ok(handles.cuda.cuDeviceGetPCIBusId(64, handles.device), "it has no address"))


def dask_workers(rank: Rank) -> dict[str, Any]:
    """A worker for each GPU, started with that one visible: blocks in NumPy's arrays, and resident ones."""
    da, distributed = import_module("dask.array"), import_module("distributed")
    from vyre_py.interop.dask import map_blocks, map_overlap, reduction

    gpus = rank.options["gpus"]
    workers = {
        number: {"cls": distributed.Nanny, "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": str(number)}, "dashboard_address": None}}
        for number in range(gpus)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    with distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(gpus, timeout=60)
        seen = client.run(_gpu_of_worker)
        assert len(set(seen.values())) == gpus, seen
        x = da.from_array(np.random.default_rng(3).random(1 << 20, np.float32), chunks=1 << 17)
        host, wanted = x.compute(), None
        wanted = host * np.float32(3) + np.float32(1)
        np.testing.assert_array_equal(map_blocks(_MINE, x, device="cuda").compute(), wanted)
        kept = client.persist(map_blocks(_MINE, x, device="cuda", resident=True).array)
        del kept
        again = map_blocks(_MINE, map_blocks(_MINE, x, device="cuda", resident=True), device="cuda").compute()
        np.testing.assert_array_equal(again, wanted * np.float32(3) + np.float32(1))
        small = da.ones(1 << 12, chunks=1 << 9, dtype=np.float32)
        total = reduction(vp.ops.sum(), small, combine=vp.ops.sum(rank=2, axis=0), device="cuda").compute()
        assert np.all(total == 1 << 12), total
        halo = map_overlap(_MINE, x, depth=2, boundary=0.0, device="cuda").compute()
        np.testing.assert_array_equal(halo, wanted)
    return {"workers": len(seen)}
