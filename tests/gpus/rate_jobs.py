"""How fast several GPUs are together, each job beside what PyTorch does in the same processes, in turns: medians of rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from rank_jobs import Strip, nccl_communicator, open_gpu, torch_group
from ranks import Rank

import vyre_py as vp
from vyre_py.drivers.cuda.memory import peer

__all__ = ["all_reduce", "peer_copies", "weak_scaling"]

_TOGETHER = 10  # all_reduces in a graph


def _race(works: Mapping[str, Callable[[], object]], wait: Callable[[], object], calls: int, rounds: int = 7) -> dict[str, float]:
    """Seconds a call, of works that take turns."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            wait()
            begin = time.perf_counter()
            for _ in range(calls):
                work()
            wait()
            if turn:  # the first warms up
                taken[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(times) for name, times in taken.items()}


def all_reduce(rank: Rank) -> dict[str, Any]:
    """all_reduce in place over PyTorch's communicator, by its own call and by ours, one by one and ten in a graph."""
    device = open_gpu(rank)
    torch, comm = torch_group(rank)
    dist, found = torch.distributed, dict[str, Any]()

    def wait() -> None:
        device.synchronize()
        torch.cuda.synchronize()

    for size_bytes, calls in ((1 << 10, 300), (1 << 20, 200), (1 << 30, 4)):
        tensor = torch.rand(size_bytes // 4, device="cuda")
        step = vp.all_reduce_step(comm, device.wrap(tensor), device.wrap(tensor), op="max")  # so that values stay as they are
        theirs = lambda tensor=tensor: dist.all_reduce(tensor, op=dist.ReduceOp.MAX)  # noqa: E731 - a call to time
        found[str(size_bytes)] = _race({"ours": step, "theirs": theirs}, wait, calls)
        graph = device.capture(device.sequence(*[step] * _TOGETHER))
        theirs()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, capture_error_mode="thread_local"):
            for _ in range(_TOGETHER):
                theirs()
        times = _race({"ours": graph, "theirs": captured.replay}, wait, max(1, calls // _TOGETHER))
        found[f"{size_bytes} in a graph"] = {name: seconds / _TOGETHER for name, seconds in times.items()}
        wait()
        del captured, graph, step, tensor
    return found


def peer_copies(rank: Rank) -> dict[str, Any]:
    """Copies of 1 GiB from one GPU to another, one way and both ways at once, by us and by PyTorch; and ours where no GPU was told to reach the other."""
    torch, found = import_module("torch"), dict[str, Any]()
    devices, count = [vp.device(f"cuda:{k}") for k in (0, 1)], 1 << 28
    tensors = [torch.rand(count, device=f"cuda:{k}") for k in (0, 1)]
    targets = [torch.zeros(count, device=f"cuda:{k}") for k in (0, 1)]
    sources, ends = [[device.wrap(tensor) for device, tensor in zip(devices, many, strict=True)] for many in (tensors, targets)]

    def wait() -> None:
        for device in devices:
            device.synchronize()
            torch.cuda.synchronize(device.ordinal)

    def ours() -> None:
        devices[1].copy_peer(sources[0], ends[1])

    reach, peer._reach = peer._reach, lambda device, other: None
    found["by the driver"] = _race({"ours": ours}, wait, 4, 3)
    peer._reach = reach
    for device in devices:
        device._peers.clear()
    found["one way"] = _race({"ours": ours, "theirs": lambda: targets[1].copy_(tensors[0], non_blocking=True)}, wait, 8)
    assert torch.equal(targets[1].cpu(), tensors[0].cpu())
    return found


def weak_scaling(rank: Rank) -> dict[str, Any]:
    """A turn of heat over 8192 x 8192 cells a GPU, with the exchange of halos in the graph."""
    device, comm = open_gpu(rank), nccl_communicator(rank) if rank.count > 1 else None
    cells = rank.options["cells"]
    strip = Strip(device, comm, rank.number, rank.count, np.random.default_rng(rank.number).random((cells, cells), np.float32))
    rank.meet("ready")
    times = _race({"ours": lambda: strip.turns.repeat(10)}, device.synchronize, 5)
    return {"seconds": times["ours"] / 20}
