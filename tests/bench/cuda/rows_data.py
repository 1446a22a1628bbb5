"""Data: dispatches of small arrays, large transfers, the pools, strided copies, arenas."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

import vyre_py as vp
from tests.bench.cuda.peers import cupy, torch
from tests.bench.cuda.programs import AXPY, DENSE, TWICE
from tests.bench.cuda.table import Bench, Row, at_least, at_most, within
from tests.bench.cuda.timing import Work, repeated
from vyre_py.drivers.event import Event

__all__ = ["DATA_ROWS"]

Peers = dict[str, Callable[[], Work]]


# ---- dispatch


def _in_and_out(bench: Bench, count: int, calls: int) -> dict[str, float]:
    pipeline = bench.device.compile_native(TWICE)
    x = np.linspace(0, 1, count, dtype=np.float32)
    if not bench.dry and not np.array_equal(pipeline.dispatch({"x": x})["y"], x * np.float32(2) + np.float32(1)):
        raise RuntimeError("the dispatch gives wrong values")

    def by_torch() -> Work:
        library = torch()
        return repeated(lambda: (library.from_numpy(x).cuda() * 2 + 1).cpu().numpy())

    def by_cupy() -> Work:
        library = cupy()
        return repeated(lambda: library.asnumpy(library.asarray(x) * 2 + 1))

    return bench.race({"ours": repeated(lambda: pipeline.dispatch({"x": x}))}, {"PyTorch": by_torch, "CuPy": by_cupy}, calls=calls, rounds=21)


def _two_in_one_out(bench: Bench, count: int, calls: int) -> dict[str, float]:
    pipeline = bench.device.compile_native(AXPY)
    x, y = np.linspace(0, 1, count, dtype=np.float32), np.ones(count, np.float32)
    if not bench.dry and not np.array_equal(pipeline.dispatch({"x": x, "y": y, "a": 2.0})["y"], x * np.float32(2) + y):
        raise RuntimeError("the dispatch gives wrong values")

    def by_torch() -> Work:
        library = torch()
        return repeated(lambda: (library.from_numpy(x).cuda() * 2 + library.from_numpy(y).cuda()).cpu().numpy())

    return bench.race({"ours": repeated(lambda: pipeline.dispatch({"x": x, "y": y, "a": 2.0}))}, {"PyTorch": by_torch}, calls=calls, rounds=21)


def dispatch_1kib(bench: Bench) -> dict[str, float]:
    """x * 2 + 1 over 1 KiB, from the host and back."""
    return _in_and_out(bench, 256, 100)


def dispatch_1mib(bench: Bench) -> dict[str, float]:
    """The same over 1 MiB."""
    return _in_and_out(bench, bench.size(1 << 18, 1 << 10), 10)


def axpy_1kib(bench: Bench) -> dict[str, float]:
    """a * x + y over 1 KiB each."""
    return _two_in_one_out(bench, 256, 100)


def axpy_1mib(bench: Bench) -> dict[str, float]:
    """The same over 1 MiB each."""
    return _two_in_one_out(bench, bench.size(1 << 18, 1 << 10), 10)


def submit_1kib(bench: Bench) -> dict[str, float]:
    """x * 2 + 1 over 1 KiB, submitted, and its result."""
    pipeline, x = bench.device.compile_native(TWICE), np.ones(256, np.float32)
    return bench.race({"ours": repeated(lambda: pipeline.submit({"x": x}).result())}, calls=50, rounds=11)


# ---- large transfers


def _rates(found: dict[str, float], size_bytes: int) -> dict[str, float]:
    """GB/s from microseconds."""
    return {name: size_bytes / us / 1e3 for name, us in found.items()}


def _transfers(bench: Bench, size_bytes: int, up: bool) -> dict[str, float]:
    """One way, each waited for. PyTorch's pageable memory is the very array that we use."""
    device = bench.device
    host = np.ones(size_bytes // 4, np.float32)
    buffer, pinned = device.upload(host), device.pinned(host.shape, vp.f32)

    def ours(array: Any) -> Work:
        def write() -> None:
            buffer.write(array)
            device.synchronize()

        return repeated(write if up else lambda: buffer.read(array))

    def by_torch(is_pinned: bool) -> Work:
        library = torch()
        there, here = library.empty(host.size, device="cuda"), library.from_numpy(host)
        here = here.pin_memory() if is_pinned else here
        target, source = (there, here) if up else (here, there)

        def once() -> None:
            target.copy_(source)
            library.cuda.synchronize()

        return repeated(once)

    peers: Peers = {"PyTorch pageable": lambda: by_torch(False), "PyTorch pinned": lambda: by_torch(True)}
    found = bench.race({"ours": ours(host), "pinned": ours(pinned)}, peers, rounds=7)
    buffer.free()
    return _rates(found, size_bytes)


def up_64mib(bench: Bench) -> dict[str, float]:
    """64 MiB to the device."""
    return _transfers(bench, bench.size(64 << 20, 1 << 16), True)


def down_64mib(bench: Bench) -> dict[str, float]:
    """64 MiB from the device."""
    return _transfers(bench, bench.size(64 << 20, 1 << 16), False)


def up_512mib(bench: Bench) -> dict[str, float]:
    """512 MiB to the device."""
    return _transfers(bench, bench.size(512 << 20, 1 << 16), True)


def down_512mib(bench: Bench) -> dict[str, float]:
    """512 MiB from the device."""
    return _transfers(bench, bench.size(512 << 20, 1 << 16), False)


def down_into_new(bench: Bench) -> dict[str, float]:
    """64 MiB from the device into memory that is made for them, and whose pages are new."""
    count = bench.size(16 << 20, 1 << 14)
    buffer = bench.device.allocate(count, vp.f32)

    def by_torch() -> Work:
        return repeated(torch().zeros(count, device="cuda").cpu)

    found = bench.race({"ours": repeated(buffer.read)}, {"PyTorch .cpu()": by_torch}, rounds=9)
    buffer.free()
    return _rates(found, 4 * count)


def _both_ways(bench: Bench, pinned: bool) -> dict[str, float]:
    """64 MiB to a new buffer and 64 MiB from another, in two threads at once, and each alone: bytes a second in all."""
    device, count = bench.device, bench.size(16 << 20, 1 << 15)
    source, target = (device.pinned(count, vp.f32) if pinned else np.ones(count, np.float32) for _ in range(2))
    buffer = device.upload(source)
    event = device.record_event()

    def up() -> None:
        device.upload(source).free()

    def down() -> None:
        buffer.read(target, after=event)

    with ThreadPoolExecutor(1) as crew:

        def together() -> None:
            other = crew.submit(down)
            up()
            other.result()

        found = bench.race({"ours": repeated(together), "up": repeated(up), "down": repeated(down)}, rounds=15)
    buffer.free()
    rates = _rates(found, 4 * count)
    return {"ours": 2 * rates["ours"], "one way": max(rates["up"], rates["down"])}


def both_ways_pinned(bench: Bench) -> dict[str, float]:
    """Of page-locked memory."""
    return _both_ways(bench, True)


def both_ways_pageable(bench: Bench) -> dict[str, float]:
    """Of pageable memory."""
    return _both_ways(bench, False)


def read_after(bench: Bench) -> dict[str, float]:
    """16 MiB read after an event with some 20 ms of fills enqueued behind it; and with the reads of those who wait for the fills, too."""
    device, count = bench.device, bench.size(4 << 20, 1 << 12)
    buffer, large = device.upload(np.ones(count, np.float32)), device.allocate(bench.size(1 << 28, 1 << 12), vp.f32)
    out = np.zeros(count, np.float32)

    def busy() -> Event:
        event = device.record_event()
        for _ in range(bench.size(64, 2)):
            large.fill(1.0)
        return event

    works = {"ours": repeated(lambda: buffer.read(out, after=busy())), "plain": repeated(lambda: (busy(), buffer.read(out)))}
    found = bench.race(works, rounds=7)
    for one in (buffer, large):
        one.free()
    return found


# ---- the pool


def pool(bench: Bench) -> dict[str, float]:
    """1 MiB from the pool and back; with the object around it; and filled with zeros."""
    device, count = bench.device, bench.size(1 << 18, 1 << 10)
    memory = device.memory

    def by_torch() -> Work:
        library = torch()
        return repeated(lambda: library.empty(count, device="cuda"))

    works = {
        "ours": repeated(lambda: memory.free(memory.take(4 * count))),
        "buffer": repeated(lambda: device._new_buffer((count,), vp.f32, device._allocate_unset).free()),
        "zeroed": repeated(lambda: device.allocate(count, vp.f32).free()),
    }
    return bench.race(works, {"PyTorch empty": by_torch}, calls=300, rounds=21)


# ---- copies within the device


def _strided(bench: Bench, shape: tuple[int, ...], source_strides: tuple[int, ...], target_strides: tuple[int, ...]) -> dict[str, float]:
    """Read and written bytes a second of a strided copy of f32, of a contiguous one of as many bytes, and of PyTorch's of each."""
    device, times, size_bytes = bench.device, bench.size(10, 1), 4 * prod(shape)
    reach = [1 + sum(stride * (size - 1) for stride, size in zip(strides, shape, strict=True)) for strides in (source_strides, target_strides)]
    source, target = (device.allocate(count, vp.f32) for count in reach)
    here, there = (device.allocate(prod(shape), vp.f32) for _ in range(2))

    def many(once: Callable[[], object]) -> Work:
        def work(calls: int) -> None:
            for _ in range(calls):
                for _ in range(times):
                    once()
                bench.wait()

        return work

    def by_torch(is_strided: bool) -> Work:
        x, y = (torch().zeros(count if is_strided else prod(shape), device="cuda") for count in reach)
        if is_strided:
            x, y = x.as_strided(shape, source_strides), y.as_strided(shape, target_strides)
        return many(lambda: y.copy_(x))

    works = {
        "ours": many(lambda: device.copy_strided(source, 0, source_strides, target, 0, target_strides, shape)),
        "contiguous": many(lambda: there.copy_from(here)),
    }
    found = bench.race(works, {"PyTorch": lambda: by_torch(True), "PyTorch contiguous": lambda: by_torch(False)}, rounds=5)
    for buffer in (source, target, here, there):
        buffer.free()
    return _rates(found, 2 * size_bytes * times)


def strided_rows(bench: Bench) -> dict[str, float]:
    """Rows of 1,024 out of rows of 1,280."""
    return _strided(bench, (bench.size(65536, 4), 1024), (1280, 1), (1024, 1))


def strided_swap(bench: Bench) -> dict[str, float]:
    """Two outer axes exchanged, the inner one of 1,024 as it is."""
    n = bench.size(256, 2)
    return _strided(bench, (n, n, 1024), (n * 1024, 1024, 1), (1024, n * 1024, 1))


def strided_deep(bench: Bench) -> dict[str, float]:
    """Rank 5: four outer axes in another order, the inner one of 256 as it is."""
    a, b, c, d = (bench.size(real, 2) for real in (8, 16, 16, 128))
    return _strided(bench, (a, b, c, d, 256), (b * c * d * 256, c * d * 256, d * 256, 256, 1), (c * 256, a * c * 256 * d, 256, a * c * 256, 1))


def strided_narrow(bench: Bench) -> dict[str, float]:
    """Rows of 32, 128 bytes, out of rows of 48."""
    return _strided(bench, (bench.size(1 << 21, 8), 32), (48, 1), (32, 1))


# ---- arena


def arena(bench: Bench) -> dict[str, float]:
    """The intermediate values of a chain of six dense layers, in MiB: the arena, and an allocation for each."""
    device, n = bench.device, bench.size(1024, 16)
    weights = device.allocate((n, n), vp.f32)
    layer = device.compile_native(DENSE)
    steps = [(layer, {"x": f"h{k}", "w": weights, "y": f"h{k + 1}"}) for k in range(6)]
    chain = device.chain(steps, inputs={"h0": (vp.f32, (n, n))}, outputs=("h6",))
    chain()
    bench.wait()
    found = {"ours": chain.plan.peak_bytes / 2**20, "the sum": chain.plan.sum_bytes / 2**20, "at once": chain.plan.floor_bytes / 2**20}
    chain.free()
    return found


_STRIDED = (
    ("strided copy, rows of 4 KiB with gaps", strided_rows), ("strided copy, two axes exchanged, 4 KiB runs", strided_swap),
    ("strided copy, rank 5, 1 KiB runs", strided_deep), ("strided copy, rows of 128 bytes with gaps", strided_narrow),
)  # fmt: skip
_WAYS = (("64 MiB up", up_64mib), ("64 MiB down", down_64mib), ("512 MiB up", up_512mib), ("512 MiB down", down_512mib))

DATA_ROWS = (
    Row("dispatch, 1 KiB in and out", "us", dispatch_1kib, "PyTorch", at_most(0.5)),
    Row("dispatch, 1 KiB in and out", "us", dispatch_1kib, "CuPy"),
    Row("dispatch, 1 MiB in and out", "us", dispatch_1mib, "PyTorch", at_most(1.0)),
    Row("dispatch, 1 MiB in and out", "us", dispatch_1mib, "CuPy"),
    Row("dispatch, axpy, 2 x 1 KiB in, 1 KiB out", "us", axpy_1kib, "PyTorch", at_most(0.5)),
    Row("dispatch, axpy, 2 x 1 MiB in, 1 MiB out", "us", axpy_1mib, "PyTorch", at_most(1.0)),
    Row("submit and result, 1 KiB in and out", "us", submit_1kib),
    *[Row(f"{what}, pageable", "GB/s", measure, "PyTorch pageable", at_least(2.0)) for what, measure in _WAYS],
    *[Row(f"{what}, pageable", "GB/s", measure, "PyTorch pinned") for what, measure in _WAYS],
    *[Row(f"{what}, pinned", "GB/s", measure, "PyTorch pinned", None, "pinned") for what, measure in _WAYS],
    Row("64 MiB up and 64 MiB down at once, pinned", "GB/s", both_ways_pinned, "one way", at_least(1.7)),
    Row("64 MiB up and 64 MiB down at once, pageable", "GB/s", both_ways_pageable, "one way"),
    Row("16 MiB read after an event, 20 ms of work behind it", "us", read_after, "plain", at_most(0.5)),
    Row("64 MiB down into new memory", "GB/s", down_into_new, "PyTorch .cpu()"),
    Row("pool, 1 MiB taken and given back", "us", pool, "PyTorch empty", within(1.5)),
    Row("buffer of 1 MiB, made and freed", "us", pool, "PyTorch empty", None, "buffer"),
    Row("buffer of 1 MiB of zeros, made and freed", "us", pool, "", None, "zeroed"),
    *[Row(what, "GB/s", measure, "contiguous", at_least(0.85)) for what, measure in _STRIDED],
    *[Row(what, "GB/s", measure, "PyTorch") for what, measure in _STRIDED],
    Row("contiguous copy, 256 MiB", "GB/s", strided_rows, "PyTorch contiguous", None, "contiguous"),
    Row("arena of six dense layers", "MiB", arena, "the sum"),
)
