"""Launches, sequences and graphs, in host time, and what counting costs in them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any
from unittest import mock

import numpy as np

import vyre_py as vp
from tests.bench.cuda.peers import (
    block_loop,
    core_launch,
    cupy_launch,
    packed_launch,
    torch,
    triton_launch,
    values_loop,
)
from tests.bench.cuda.programs import AXPY, nothing
from tests.bench.cuda.table import Bench, Row, at_most, within
from tests.bench.cuda.timing import Work, race, repeated
from vyre_py.drivers.cuda.native import call_list
from vyre_py.drivers.cuda.native.call_list import Call, CallList

__all__ = ["LAUNCH_ROWS"]

_COUNT = 1024
_ARGUMENTS = (0, 1, 2, 4, 8, 16)
_NODES = 100


def _bound(bench: Bench) -> Any:
    ones = np.ones(_COUNT, np.float32)
    device = bench.device
    return device.compile_native(AXPY).bind({"x": device.upload(ones), "y": device.upload(ones), "a": 2.0})


def launches(bench: Bench) -> dict[str, float]:
    """A bound launch of an axpy with four arguments, and what others launch."""
    launch = _bound(bench)
    x, y = (bench.device.upload(np.ones(_COUNT, np.float32)) for _ in range(2))

    def torch_add() -> Work:
        tensor = torch().ones(_COUNT, device="cuda")
        return repeated(lambda: tensor.add_(1.0))

    peers: dict[str, Callable[[], Work]] = {
        "C loop, kernelParams": lambda: values_loop(launch.kernel), "C loop, one block": lambda: block_loop(launch.kernel),
        "cuda.bindings, packed before": lambda: packed_launch(launch.kernel), "cuda.core.launch": lambda: core_launch(x.address, y.address, _COUNT)[0],
        "CuPy RawKernel": lambda: cupy_launch(_COUNT), "PyTorch add_": torch_add,
    }  # fmt: skip
    # Fewer calls than the queue is deep: a full one would be waited for.
    return bench.race({"ours": repeated(launch)}, peers, calls=500, rounds=31)


def launch_and_wait(bench: Bench) -> dict[str, float]:
    """A launch, and waiting until it is done."""
    launch, wait = _bound(bench), bench.device.synchronize
    x, y = (bench.device.upload(np.ones(_COUNT, np.float32)) for _ in range(2))

    def ours(times: int) -> None:
        for _ in repeat(None, times):
            launch()
            wait()

    return bench.race({"ours": ours}, {"cuda.core.launch and sync": lambda: core_launch(x.address, y.address, _COUNT)[1]}, calls=200, rounds=15)


def calls(bench: Bench) -> dict[str, float]:
    """A call of the pipeline as a function, over two Buffers and a number, and what it is made of otherwise."""
    device = bench.device
    pipeline, launch = device.compile_native(AXPY), _bound(bench)
    entry, (x, y) = pipeline.callable(), [device.upload(np.ones(_COUNT, np.float32)) for _ in range(2)]
    works = {
        "ours": repeated(partial(entry, x, y, 2.0)), "bound launch": repeated(launch), "bind": repeated(partial(pipeline.bind, {"x": x, "y": y, "a": 2.0})),
    }  # fmt: skip
    return bench.race(works, calls=500, rounds=31)


def tensor_calls(bench: Bench) -> dict[str, float]:
    """The same over two of PyTorch's tensors. Raises Absent."""
    device = bench.device
    entry, launch = device.compile_native(AXPY).callable(), _bound(bench)
    x, y = [device.upload(np.ones(_COUNT, np.float32)) if bench.dry else torch().ones(_COUNT, device="cuda") for _ in range(2)]
    entry(x, y, 2.0)
    if why := entry.explain(x, y, 2.0):
        raise RuntimeError("; ".join(why))
    works = {"ours": repeated(partial(entry, x, y, 2.0)), "bound launch": repeated(launch)}
    return bench.race(works, {"Triton": lambda: triton_launch(x, y)}, calls=500, rounds=31)


def flatness(bench: Bench) -> dict[str, float]:
    """A kernel that does nothing, with 0 to 16 arguments."""
    device = bench.device
    works: dict[str, Work] = {}
    for count in _ARGUMENTS:
        raw = device.load_ptx(nothing(count), "nothing", [(f"p{n}", vp.u32) for n in range(count)])
        launch: Any = raw.bind({f"p{n}": n for n in range(count)}, grid=4, workgroup=256)
        works[f"ours {count}"], works[f"C {count}"] = repeated(launch), values_loop(launch.kernel)
    found = bench.race(works, calls=300, rounds=21)
    ours, floor = [found[f"ours {count}"] for count in _ARGUMENTS], [found[f"C {count}"] for count in _ARGUMENTS]
    return {"slowest": max(ours), "fastest": min(ours), "C, slowest": max(floor), "C, fastest": min(floor)}


def rebinding(bench: Bench) -> dict[str, float]:
    """`launch.set` of a scalar, and of a buffer, each time before the launch; the launch alone is taken away."""
    launch = _bound(bench)
    first, second = (bench.device.upload(np.ones(_COUNT, np.float32)) for _ in range(2))

    def scalar(times: int) -> None:
        for _ in repeat(None, times):
            launch.set(a=3.0)
            launch()

    def buffer(times: int) -> None:
        for _ in repeat(None, (times + 1) // 2):
            launch.set(x=first)
            launch()
            launch.set(x=second)
            launch()

    found = bench.race({"alone": repeated(launch), "scalar": scalar, "buffer": buffer}, calls=500, rounds=31)
    return {"scalar": found["scalar"] - found["alone"], "buffer": found["buffer"] - found["alone"]}


def sequences(bench: Bench) -> dict[str, float]:
    """100 launches as one call, each of them."""
    launch = _bound(bench)
    sequence = bench.device.sequence(*[_bound(bench) for _ in range(_NODES)])
    loop = values_loop(launch.kernel)
    found = bench.race({"ours": repeated(sequence), "C loop": lambda times: loop(times * _NODES)}, calls=5, rounds=31)
    return {name: value / _NODES for name, value in found.items()}


def _torch_graph(nodes: int, waits: bool) -> Work:
    library = torch()
    tensor = library.ones(_COUNT, device="cuda")
    with library.cuda.stream(library.cuda.Stream()):
        tensor.add_(1.0)  # what a first use allocates stays out of the capture
    library.cuda.synchronize()
    graph = library.cuda.CUDAGraph()
    with library.cuda.graph(graph):
        for _ in range(nodes):
            tensor.add_(1.0)
    replay, wait = graph.replay, library.cuda.synchronize

    def waiting(times: int) -> None:
        for _ in repeat(None, times):
            replay()
            wait()

    return waiting if waits else repeated(replay)


def _replays(bench: Bench, nodes: int, calls: int, waits: bool = False) -> dict[str, float]:
    launch = _bound(bench)
    launch()

    def body() -> None:
        for _ in range(nodes):
            launch()

    graph = bench.device.capture(body)
    ours = _waited(graph, bench.device.synchronize) if waits else repeated(graph)
    found = bench.race({"ours": ours}, {"PyTorch CUDAGraph": lambda: _torch_graph(nodes, waits)}, calls=calls, rounds=21)
    return {name: value / nodes for name, value in found.items()}


def replay_one(bench: Bench) -> dict[str, float]:
    """A graph of one launch, host time."""
    return _replays(bench, 1, 300)


def replay_many(bench: Bench) -> dict[str, float]:
    """A graph of 100 launches, host time of each."""
    return _replays(bench, _NODES, 20)


def replay_to_the_end(bench: Bench) -> dict[str, float]:
    """A graph of 100 launches, replayed and waited for, time of each."""
    return _replays(bench, _NODES, 20, waits=True)


def read_grids(bench: Bench) -> dict[str, float]:
    """Graphs of 100 launches, replayed and waited for, time of each: of a grid that a buffer has, and of the same in numbers; few workgroups, and many."""
    device, wait, works = bench.device, bench.device.synchronize, dict[str, Work]()
    pipeline = device.compile_native(AXPY)
    for name, count in (("few", _COUNT), ("many", _COUNT << bench.size(10, 0))):
        x, y = (device.upload(np.ones(count, np.float32)) for _ in range(2))
        groups = -(-count // pipeline.part.steps[0].workgroup[0]), 1, 1
        for how, grid in (("read", device.upload(np.array(groups, np.uint32))), ("given", groups)):
            launch = pipeline.bind({"x": x, "y": y, "a": 2.0}, config=vp.DispatchConfig(grid=grid))
            works[f"{how} {name}"] = _waited(device.capture(device.sequence(*[launch] * _NODES)), wait)
    return {name: value / _NODES for name, value in bench.race(works, calls=20, rounds=21).items()}


def _waited(graph: Callable[[], object], wait: Callable[[], object]) -> Work:
    def work(times: int) -> None:
        for _ in repeat(None, times):
            graph()
            wait()

    return work


def counting(bench: Bench) -> dict[str, float]:
    """A native list of one call that does nothing, and the same list by builtins that were compiled without the counters; in nanoseconds."""
    device, line = bench.device, "  call void @count(ptr %state, i64 %turns)\n"
    text = call_list._text()
    if text.count(line) != 1:
        raise RuntimeError("the native code counts in another way now: this measure has to follow it")
    with mock.patch.object(call_list, "_text", return_value=text.replace(line, "")):
        bare = call_list._Builtins()
    call = Call(ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value or 0, (), call_list.UNCHECKED)
    record = device.telemetry.record(syncs=1)
    owner = _Owner()
    counters = ((device.telemetry.address("launches"), 1), (record.address, 1))
    owner.calls = CallList([call], owner.handle_status, device.context.mode_address, [], counters)
    plain = bare.bound("call", owner.calls.state, owner.handle_status, ())
    times, rounds = bench.size(20_000, 10), bench.size(101, 2)
    found = race({"counting": repeated(owner.calls.builtin()), "plain": repeated(plain)}, lambda: None, times, rounds)
    return {"ours": (found["counting"] - found["plain"]) * 1e3, "whole": found["counting"] * 1e3}


class _Owner:
    """Of a list that nothing goes wrong with."""

    calls: CallList

    def handle_status(self, index: int, status: int) -> None:
        raise RuntimeError(f"call {index} of a list that does nothing gave {status}")


LAUNCH_ROWS = (
    Row("launch, 4 arguments", "us", launches, "C loop, kernelParams", at_most(1.1)),
    Row("launch, 4 arguments", "us", launches, "C loop, one block", at_most(1.1)),
    Row("launch, 4 arguments", "us", launches, "cuda.core.launch", at_most(0.85)),
    Row("launch, 4 arguments", "us", launches, "cuda.bindings, packed before"),
    Row("launch, 4 arguments", "us", launches, "CuPy RawKernel"),
    Row("launch, 4 arguments", "us", launches, "PyTorch add_"),
    Row("callable(), two Buffers and a number", "us", calls, "bound launch", at_most(1.25)),
    Row("callable(), two PyTorch tensors and a number", "us", tensor_calls, "bound launch", at_most(1.25)),
    Row("callable(), two PyTorch tensors and a number", "us", tensor_calls, "Triton", at_most(0.4)),
    Row("bind, two Buffers and a number", "us", calls, "", within(25.0), "bind"),
    Row("launch, slowest of 0 to 16 arguments", "us", flatness, "fastest", at_most(1.1), "slowest"),
    Row("C loop, slowest of 0 to 16 arguments", "us", flatness, "C, fastest", None, "C, slowest"),
    Row("launch and wait", "us", launch_and_wait, "cuda.core.launch and sync"),
    Row("launch.set of a scalar, beside the launch", "us", rebinding, "", within(0.3), "scalar"),
    Row("launch.set of a buffer, beside the launch", "us", rebinding, "", within(0.3), "buffer"),
    Row("sequence of 100, a launch", "us", sequences, "C loop", at_most(1.05)),
    Row("graph replay, 1 node", "us", replay_one, "PyTorch CUDAGraph"),
    Row("graph replay of 100, a node, host time", "us", replay_many, "PyTorch CUDAGraph", at_most(1.0)),
    Row("graph replay of 100 and wait, a node", "us", replay_to_the_end, "PyTorch CUDAGraph"),
    Row("replay and wait, grid of 4 read, a node", "us", read_grids, "given few", None, "read few"),
    Row("replay and wait, grid of 4,096 read, a node", "us", read_grids, "given many", None, "read many"),
    Row("telemetry in a native call", "ns", counting, "", within(30.0)),
    Row("a native call around nothing", "ns", counting, "", None, "whole"),
)
