"""Memory on the CUDA device beside PyTorch in one run: transfers each way, the pool, strided copies, fills.

    python tests/bench/bench_memory.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from measure import per_call_us, row, seconds

import vyre_py as vp
from vyre_py.drivers.cuda.memory import transfer

MIB = 1 << 20
SIZES = (64 * MIB, 512 * MIB)


def _torch() -> Any:
    """PyTorch with a GPU, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _rate(size_bytes: int, work: Callable[[], object]) -> float:
    """GB/s of a piece of work that ends when it returns."""
    return size_bytes / seconds(work, 9) / 1e9


def transfers(device: Any) -> None:
    """Host to device and back, pageable and pinned; fresh results (whose pages are new) and results in place."""
    torch = _torch()
    for size in SIZES:
        name = f"{size // MIB} MiB"
        for kind in ("pageable", "pinned"):
            host = device.pinned(size, vp.u8) if kind == "pinned" else np.ones(size, np.uint8)
            buffer = device.allocate(size, vp.u8)
            peer_up = peer_down = None
            if torch is not None:
                theirs = torch.ones(size, dtype=torch.uint8, pin_memory=kind == "pinned")
                there = torch.empty(size, dtype=torch.uint8, device="cuda")
                peer_up = _rate(size, lambda: (there.copy_(theirs), torch.cuda.synchronize()))  # noqa: B023 - called within this turn
                peer_down = _rate(size, lambda: (theirs.copy_(there), torch.cuda.synchronize()))  # noqa: B023 - called within this turn
            up = _rate(size, lambda: (buffer.write(host), device.synchronize()))  # noqa: B023 - called within this turn
            down = _rate(size, lambda: buffer.read(host))  # noqa: B023 - called within this turn
            row(f"upload, {kind}, {name}", up, "GB/s", peer_up, "PyTorch", True)
            row(f"download in place, {kind}, {name}", down, "GB/s", peer_down, "PyTorch", True)
            if kind == "pageable":
                fresh = _rate(size, buffer.read)
                peer = _rate(size, there.cpu) if torch is not None else None
                row(f"download into new memory, {name}", fresh, "GB/s", peer, "PyTorch .cpu()", True)
            buffer.free()


def sizes(device: Any) -> None:
    """Pageable uploads and downloads of every size from 1 KiB, to choose the limits of `drivers.cuda.memory.transfer` by."""
    torch = _torch()
    size = 1024
    while size <= 256 * MIB:
        host, buffer = np.ones(size, np.uint8), device.allocate(size, vp.u8)
        peers: tuple[float | None, float | None] = (None, None)
        if torch is not None:
            theirs, there = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8, device="cuda")
            peers = (
                seconds(lambda: (there.copy_(theirs), torch.cuda.synchronize()), 25) * 1e6,  # noqa: B023 - called within this turn
                seconds(lambda: (theirs.copy_(there), torch.cuda.synchronize()), 25) * 1e6,  # noqa: B023 - called within this turn
            )
        up = seconds(lambda: (buffer.write(host), device.synchronize()), 25) * 1e6  # noqa: B023 - called within this turn
        down = seconds(lambda: buffer.read(host), 25) * 1e6  # noqa: B023 - called within this turn
        row(f"upload and wait, {size // 1024} KiB", up, "us", peers[0], "PyTorch")
        row(f"download, {size // 1024} KiB", down, "us", peers[1], "PyTorch")
        buffer.free()
        size *= 4


def chunks(device: Any) -> None:
    """Large pageable transfers by the number of threads and the size of their chunks."""
    size = SIZES[1]
    host, buffer = np.ones(size, np.uint8), device.allocate(size, vp.u8)
    before = transfer._THREADS, transfer._THREADED_CHUNK_BYTES
    for threads in (1, 2, 4, 8, 12, 14, 16):
        for chunk in (1, 2, 4, 8):
            transfer._THREADS, transfer._THREADED_CHUNK_BYTES = threads, chunk * MIB  # type: ignore[misc]  # settings, while they are looked for
            up = _rate(size, lambda: (buffer.write(host), device.synchronize()))
            down = _rate(size, lambda: buffer.read(host))
            row(f"{threads} threads, chunks of {chunk} MiB: up", up, "GB/s")
            row(f"{threads} threads, chunks of {chunk} MiB: down", down, "GB/s")
    transfer._THREADS, transfer._THREADED_CHUNK_BYTES = before  # type: ignore[misc]  # as above
    buffer.free()


def pool(device: Any) -> None:
    """What a pool hit costs, and a whole allocation."""
    memory = device.memory
    memory.free(memory.take(10_000))
    row("pool hit: take and give", per_call_us(lambda: memory.free(memory.take(10_000)), device.synchronize), "us")
    row("allocate (cleared) and free", per_call_us(lambda: device.allocate(10_000, vp.u8).free(), device.synchronize), "us")
    data = np.ones(64, np.float32)
    row("upload of 256 bytes and free", per_call_us(lambda: device.upload(data).free(), device.synchronize), "us")
    torch = _torch()
    if torch is not None:
        row("  PyTorch: empty and free", per_call_us(lambda: torch.empty(10_000, dtype=torch.uint8, device="cuda"), torch.cuda.synchronize), "us")


def _enqueued(device: Any, size_bytes: int, work: Callable[[], object]) -> float:
    """GB/s, read and written bytes counted, of work that is enqueued ten times."""

    def ten() -> None:
        for _ in range(10):
            work()
        device.synchronize()

    return 10 * 2 * size_bytes / seconds(ten) / 1e9


def strided(device: Any) -> None:
    """Strided copies with a contiguous inner axis against a plain copy of as many bytes, and a transposition, which has none."""
    source, target = device.allocate(512 * MIB, vp.f32), device.allocate(512 * MIB, vp.f32)
    plain = _enqueued(device, 1 << 30, lambda: target[: 256 * MIB].copy_from(source[: 256 * MIB]))
    row("copy, 1 GiB", plain, "GB/s")
    for inner in (16, 64, 250, 1000, 1024, 8192, 1 << 20):
        rows = 256 * MIB // inner
        rate = _enqueued(device, rows * inner * 4, lambda: device.copy_strided(source, 0, [2 * inner, 1], target, 0, [inner, 1], [rows, inner]))  # noqa: B023 - called within this turn
        row(f"strided copy of {rows} x {inner} f32", rate, "GB/s", plain, "of the plain copy", True)
    rate = _enqueued(device, 1 << 29, lambda: device.copy_strided(source, 0, [1 << 21, 1 << 12, 1], target, 0, [1 << 11, 1 << 18, 1], [128, 512, 1 << 11]))
    row("strided copy, two axes exchanged, runs of 8 KiB", rate, "GB/s", plain, "of the plain copy", True)
    rate = _enqueued(device, 1 << 28, lambda: device.copy_strided(source, 0, [1, 8192], target, 0, [8192, 1], [8192, 8192]))
    row("transposition, 8192 x 8192 f32", rate, "GB/s", plain, "of the plain copy", True)
    launch_us = per_call_us(lambda: device.copy_strided(source, 0, [64, 1], target, 0, [32, 1], [32, 32]), device.synchronize, 500)
    row("strided copy of 32 x 32, call", launch_us, "us")
    source.free()
    target.free()


def fills(device: Any) -> None:
    """Fills of 1 GiB with words of 8 to 64 bits."""
    for name in ("u8", "u16", "u32", "u64"):
        buffer = device.allocate((1 << 30) // getattr(vp, name).size_bytes, getattr(vp, name))
        row(f"fill 1 GiB of {name}", _enqueued(device, 1 << 29, lambda: buffer.fill(7)), "GB/s")  # noqa: B023 - called within this turn
        buffer.free()


def main() -> None:
    """Prints the table."""
    device = vp.device("cuda")
    print(device)
    for part in (transfers, pool, strided, fills, sizes, chunks):
        part(device)
        print(flush=True)


if __name__ == "__main__":
    main()
