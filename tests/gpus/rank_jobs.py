"""What ranks do, one process and one GPU each: collectives over communicators of several libraries, a rank that is lost, a stencil with its halo."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from rank_programs import ADD, HEAT, MEET, SCALE, SPREAD
from ranks import Rank

import vyre_py as vp
from vyre_py.drivers.cuda.kernels import collective

__all__ = ["collectives", "lost_rank", "nccl_communicator", "plate", "replays", "stencil", "strips", "torch_group"]


class _UniqueId(ctypes.Structure):
    """By which the ranks of a communicator find each other."""

    _fields_ = (("data", ctypes.c_char * 128),)


def open_gpu(rank: Rank) -> Any:
    """The rank's GPU: its context is current from now on, for NCCL."""
    device = vp.device(f"cuda:{rank.number}")
    with device.context.entered():
        pass
    return device


def nccl_communicator(rank: Rank, name: str = "nccl", ranks: tuple[int, ...] = ()) -> int:
    """The address of a communicator that NCCL itself makes, for all ranks or for these."""
    nccl, members = collective.load(), ranks or tuple(range(rank.count))
    unique, made = _UniqueId(), ctypes.c_void_p()
    if rank.number == members[0]:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        rank.tell(name, bytes(unique).hex())
    unique = _UniqueId.from_buffer_copy(bytes.fromhex(rank.hear(name)))
    status = nccl.ncclCommInitRank(ctypes.byref(made), len(members), unique, members.index(rank.number))
    assert status == 0, f"ncclCommInitRank gave {status}"
    assert made.value
    return made.value


def torch_group(rank: Rank) -> tuple[Any, Any]:
    """PyTorch, and its process group over NCCL, which has communicated."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    torch.cuda.set_device(rank.number)
    meeting = f"file://{rank.folder / 'torch'}"
    dist.init_process_group("nccl", init_method=meeting, rank=rank.number, world_size=rank.count, timeout=timedelta(seconds=60))
    first = torch.ones(1, device="cuda")
    dist.all_reduce(first)
    torch.cuda.synchronize()
    assert first.item() == rank.count
    return torch, dist.group.WORLD._get_backend(torch.device("cuda"))


def _cupy_communicator(rank: Rank) -> Any:
    cupy, nccl = import_module("cupy"), import_module("cupy.cuda.nccl")
    assert nccl.available, "CuPy finds no NCCL"
    cupy.cuda.Device(rank.number).use()
    if rank.number == 0:
        rank.tell("cupy", repr(nccl.get_unique_id()))  # bytes, and before CuPy 14 a tuple of numbers
    return nccl.NcclCommunicator(rank.count, literal_eval(rank.hear("cupy")), rank.number)


def _communicator(rank: Rank) -> Any:
    """The communicator of the library that the options name."""
    library = rank.options["library"]
    return {"nccl": nccl_communicator, "torch": lambda rank: torch_group(rank)[1], "cupy": _cupy_communicator}[library](rank)


def _ways(device: Any, *steps: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """A sequence of steps one by one, as one call, and as a graph."""

    def each() -> None:
        for step in steps:
            step()

    yield "directly", each
    sequence = device.sequence(*steps)
    yield "as a sequence", sequence
    yield "in a graph", device.capture(sequence)


# ---- all of them


def collectives(rank: Rank) -> dict[str, Any]:
    """Every collective, of every type and reduction, in every way, against NumPy."""
    device, (me, count) = open_gpu(rank), (rank.number, rank.count)
    comm = _communicator(rank)
    types = (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, vp.bf16.dtype)
    for dtype in types if rank.options["library"] == "nccl" else (np.float32,):  # the calls are NCCL's, whoever made the communicator
        _reductions(device, comm, me, count, np.dtype(dtype))
    for type_ in (vp.f32, vp.bf16, vp.i16, vp.bool_, vp.f8e4m3, vp.f32x3):
        _moves(device, comm, me, count, type_)
    _exchanges(device, comm, me, count)
    device.synchronize()
    return {"ranks": count, "nccl": _nccl_version()}


def _nccl_version() -> int:
    found = ctypes.c_int()
    collective.load().ncclGetVersion(ctypes.byref(found))
    return found.value


def _folded(values: list[Any], op: str) -> Any:
    """What the ranks' values become, which are small whole numbers: exact in every type and order."""
    fold = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "avg": np.add}[op]
    total = values[0].astype(np.float64)
    for value in values[1:]:
        total = fold(total, value.astype(np.float64))
    return (total / (len(values) if op == "avg" else 1)).astype(values[0].dtype)


def _reductions(device: Any, comm: Any, me: int, count: int, dtype: Any) -> None:
    values = [((np.arange(24 * count) + rank) % 3 + 1).astype(dtype) for rank in range(count)]
    floats = dtype.kind not in "iu"
    for op in ("sum", "prod", "max", "min", *(["avg"] if floats else [])):
        source, target, part = device.upload(values[me]), device.upload(np.zeros_like(values[me])), device.upload(np.zeros(24, dtype))
        steps = vp.all_reduce_step(comm, source, target, op=op), vp.reduce_scatter_step(comm, source, part, op=op)
        wanted = _folded(values, op)
        for way, run in _ways(device, *steps):
            target.copy_from(source)
            run()
            what = f"{op} of {dtype} {way}"
            np.testing.assert_array_equal(target.read(), wanted, what)
            np.testing.assert_array_equal(part.read(), wanted[24 * me : 24 * me + 24], what)
    whole = device.upload(values[me])
    vp.all_reduce_step(comm, whole, whole)()  # in place
    np.testing.assert_array_equal(whole.read(), _folded(values, "sum"), f"in place, {dtype}")


def _moves(device: Any, comm: Any, me: int, count: int, type_: Any) -> None:
    shape = (10, type_.lanes) if type_.is_vector else (10,)
    values = [np.random.default_rng(rank).integers(0, 2, shape).astype(type_.dtype) for rank in range(count)]
    source, whole = device.upload(values[me], type_), device.allocate(10 * count, type_)
    for way, run in _ways(device, vp.all_gather_step(comm, source, whole)):
        whole.as_bytes().fill(0)
        run()
        np.testing.assert_array_equal(whole.read(), np.concatenate(values), f"all_gather of {type_} {way}")
    for root in range(count):
        for way, run in _ways(device, vp.broadcast_step(comm, source, root=root)):
            source.write(values[me])
            run()
            np.testing.assert_array_equal(source.read(), values[root], f"broadcast of {type_} from {root} {way}")
    mine = whole[10 * me : 10 * me + 10]
    mine.write(values[me])
    vp.all_gather_step(comm, mine, whole)()  # in place
    np.testing.assert_array_equal(whole.read(), np.concatenate(values), f"in place, {type_}")


def _exchanges(device: Any, comm: Any, me: int, count: int) -> None:
    """Rows go round a ring both ways; and from each rank to each."""
    field = np.arange(40, dtype=np.float32).reshape(10, 4)
    rows, (above, below) = device.upload(field + 100 * me), ((me - 1) % count, (me + 1) % count)
    ring = vp.exchange_step(comm, [(rows[1:2], above), (rows[8:9], below)], [(rows[9:10], below), (rows[0:1], above)])
    for way, run in _ways(device, ring):
        rows.write(field + 100 * me)
        run()
        found = rows.read()
        np.testing.assert_array_equal([found[9], found[0]], [field[1] + 100 * below, field[8] + 100 * above], way)
    out, into = device.upload(np.arange(count, dtype=np.float32) + 10 * me), device.upload(np.zeros(count, np.float32))
    others = range(count)
    vp.exchange_step(comm, [(out[k : k + 1], k) for k in others], [(into[k : k + 1], k) for k in others])()
    np.testing.assert_array_equal(into.read(), [10 * k + me for k in others], "each to each")


# ---- many replays


def replays(rank: Rank) -> dict[str, Any]:
    """A launch, all_reduce and a launch, 1,000 times in a graph, beside PyTorch's own ops over the same communicator."""
    device, turns, count = open_gpu(rank), 1000, 100_003
    torch, comm = torch_group(rank)
    dist = torch.distributed
    random = np.random.default_rng(rank.number)
    found: dict[str, Any] = {}

    whole, start = [random.integers(-(2**31), 2**31, count).astype(np.int32) for _ in range(2)]
    x, y = device.upload(whole), device.upload(start)
    spread, meet = device.compile_native(SPREAD).bind(x=x, y=y, a=3), device.compile_native(MEET).bind(y=y)
    graph = device.capture(device.sequence(spread, vp.all_reduce_step(comm, y, y), meet))
    graph.repeat(turns)
    tx, ty = (torch.from_numpy(array.copy()).cuda() for array in (whole, start))
    for _ in range(turns):
        ty.add_(tx * 3)
        dist.all_reduce(ty)
        ty.mul_(5).add_(7)
    np.testing.assert_array_equal(y.read(), ty.cpu().numpy(), "whole numbers")
    found["whole"] = True

    reals, begin = [random.random(count, np.float32) for _ in range(2)]
    x, y = device.upload(reals), device.upload(begin)
    add, scale = device.compile_native(ADD).bind(x=x, y=y), device.compile_native(SCALE).bind(y=y)
    graph = device.capture(device.sequence(add, vp.all_reduce_step(comm, y, y, op="avg"), scale))
    for _ in range(turns):
        graph()
    tx, ty = (torch.from_numpy(array.copy()).cuda() for array in (reals, begin))
    for _ in range(turns):
        ty.add_(tx * 0.5)
        dist.all_reduce(ty, op=dist.ReduceOp.AVG)
        ty.mul_(0.75)
    ours, theirs = y.read(), ty.cpu().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg="reals")
    found["same bits"] = bool(np.array_equal(ours, theirs))
    found["farthest"] = float(np.max(np.abs(ours - theirs)))
    return found


# ---- a rank that is lost


@contextmanager
def _must_raise(kinds: tuple[type[Exception], ...]) -> Iterator[list[Exception]]:
    raised: list[Exception] = []
    try:
        yield raised
    except kinds as error:
        raised.append(error)
    assert raised, f"none of {kinds} was raised"


def lost_rank(rank: Rank) -> dict[str, Any]:
    """The last rank is killed in the middle. The others get an error soon, their devices work on, and those that are left go on without it."""
    device, last = open_gpu(rank), rank.count - 1
    comm = _communicator(rank)
    x, y = device.upload(np.ones(1 << 20, np.float32)), device.upload(np.zeros(1 << 20, np.float32))
    add, total = device.compile_native(ADD).bind(x=x, y=y), vp.all_reduce_step(comm, y, y, op="avg")
    graph = device.capture(device.sequence(add, total))
    lost = (vp.DispatchTimeout, vp.LaunchError)
    with vp.watch_ranks(device, comm, timeout=rank.options["timeout"]) as watch:
        for _ in range(20):
            graph()
        device.synchronize()
        rank.meet("begun")
        if rank.number == last:
            rank.tell("killed at", str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        killed_at = float(rank.hear("killed at"))
        time.sleep(0.2)
        with _must_raise(lost) as first:
            if rank.options["waits"]:
                graph()
                y.read()
            else:
                for _ in range(20_000):
                    graph()
                device.synchronize()
        seconds = time.time() - killed_at
        with _must_raise(lost):
            device.synchronize()
        with _must_raise((vp.LaunchError,)):
            total()
        with _must_raise((vp.LaunchError,)):
            graph()
        assert watch.failure is not None
    y.fill(0.0)
    add()
    assert np.array_equal(y.read(), np.full(1 << 20, 0.5, np.float32)), "the device does not work on"
    if rank.options["library"] == "nccl" and rank.count > 2:
        left = nccl_communicator(rank, "again", tuple(range(last)))
        vp.all_reduce_step(left, y, y)()
        assert np.array_equal(y.read(), np.full(1 << 20, 0.5 * last, np.float32)), "those that are left do not go on"
    return {"seconds": seconds, "said": str(first[0]).splitlines()[0]}


# ---- a stencil


def plate(height: int, width: int) -> Any:
    """What the stencil begins with."""
    return np.random.default_rng(7).random((height, width), np.float32)


class Strip:
    """A rank's rows of a plate, with one more on either side, and the steps that make two turns of heat: `turns` runs them."""

    def __init__(self, device: Any, comm: Any, rank: int, count: int, rows: Any, rate: float = 0.2) -> None:
        height, width = rows.shape
        mine = np.zeros((height + 2, width), np.float32)
        mine[1:-1] = rows
        self.device, self.this, self.other = device, device.upload(mine), device.upload(np.zeros_like(mine))
        pipeline, steps = device.compile_native(HEAT), list[Any]()
        neighbours = [(at, row, halo) for at, row, halo in ((rank - 1, 1, 0), (rank + 1, height, height + 1)) if 0 <= at < count]
        edges = [halo for at, halo in ((rank - 1, 0), (rank + 1, height + 1)) if not 0 <= at < count]
        for old, new in ((self.this, self.other), (self.other, self.this)):
            if neighbours:
                sends, receives = [(old[row : row + 1], at) for at, row, _ in neighbours], [(old[halo : halo + 1], at) for at, _, halo in neighbours]
                steps.append(vp.exchange_step(comm, sends, receives))
            steps += [vp.fill_step(old[halo : halo + 1], 0.0) for halo in edges]  # beyond the edge it is cold
            steps.append(pipeline.bind(old=old, new=new, rate=rate))
        self.turns = device.capture(device.sequence(*steps))

    def read(self) -> Any:
        """The rows, without the halo."""
        return self.this.read()[1:-1]


def strips(height: int, count: int) -> list[slice]:
    """The rows of each rank."""
    bounds = [height * k // count for k in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def stencil(rank: Rank) -> dict[str, Any]:
    """200 turns of heat over strips, a graph with the exchange in it, to the bits of one GPU."""
    device, comm, (height, width) = open_gpu(rank), nccl_communicator(rank), rank.options["shape"]
    whole, mine = plate(height, width), strips(height, rank.count)
    strip = Strip(device, comm, rank.number, rank.count, whole[mine[rank.number]])
    strip.turns.repeat(100)
    np.save(rank.folder / f"rows-{rank.number}.npy", strip.read())
    rank.meet("written")
    if rank.number == 0:
        found = np.concatenate([np.load(rank.folder / f"rows-{k}.npy") for k in range(rank.count)])
        alone = Strip(device, None, 0, 1, whole)
        alone.turns.repeat(100)
        np.testing.assert_array_equal(found.view(np.uint32), alone.read().view(np.uint32))
        assert not np.array_equal(found, whole)
    return {"ranks": rank.count}
