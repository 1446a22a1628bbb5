"""Calls over other libraries' arrays on a real GPU: on their streams, in their captures, and with no wait."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from random_calls import SIZES, RandomCalls, outcome

import vyre_py as vp
from vyre_py.drivers.callable import CallEntry
from vyre_py.ir.text.parser import parse

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # before JAX is imported: others need memory, too

AXPY = """program axpy(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}"""
MANY = 1 << 24


def package(name: str) -> Any:
    """A package, which may be missing where nobody says that it has to be there."""
    required = name in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(",")
    return import_module(name) if required else pytest.importorskip(name)


@pytest.fixture(scope="module")
def gpu() -> Any:
    return open_device("cuda")


@pytest.fixture
def torch(gpu: Any) -> Any:
    found = package("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that native code did not take."""
    calls: list[Any] = []
    general = CallEntry._slow
    monkeypatch.setattr(CallEntry, "_slow", lambda entry, *given, **named: calls.append(given) or general(entry, *given, **named))
    return calls


def known(entry: CallEntry, x: Any, y: Any, slow: list[Any]) -> None:
    """Has native code know the types."""
    entry(x, y, 0.0)
    slow.clear()


def test_tensors_in_the_order_of_pytorch(gpu: Any, torch: Any, slow: list[Any]) -> None:
    """What PyTorch enqueued before is seen, what it enqueues later sees the result, on any stream of its own."""
    entry, x, y = gpu.compile_native(parse(AXPY)).callable(), torch.zeros(MANY, device="cuda"), torch.zeros(MANY, device="cuda")
    known(entry, x, y, slow)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for turn in range(20):
                x.fill_(float(turn))
                y.fill_(1.0)
                entry(x, y, 2.0)
                y.mul_(3.0)
            total = y.double().sum()
        stream.synchronize()
        assert total.item() == 3 * (2 * 19 + 1) * MANY
        if hasattr(stream, "__cuda_stream__"):
            with torch.cuda.stream(stream):
                entry(x, y, 1.0, stream=stream)
    torch.cuda.synchronize()
    assert not slow


def test_calls_in_a_graph_of_pytorch(gpu: Any, torch: Any, slow: list[Any]) -> None:
    entry, x, y = gpu.compile_native(parse(AXPY)).callable(), torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    known(entry, x, y, slow)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        entry(x, y, 2.0)
        y.add_(1.0)
    y.zero_()
    for _ in range(100):
        graph.replay()
    assert y.tolist() == [300.0] * 1000 and not slow


def test_wrong_tensors_are_refused(gpu: Any, torch: Any, slow: list[Any]) -> None:
    entry, x, y = gpu.compile_native(parse(AXPY)).callable(), torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    known(entry, x, y, slow)
    wrong = [
        (x, y[:63]), (x, x), (x.double(), y), (x.cpu(), y), (x[::2], y[:32]), (x.requires_grad_(False), y.clone().requires_grad_()), (x[None], y),
        (x, y.view(torch.int32)),
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises((vp.BindingError, BufferError)):
            entry(*given, 1.0)
    torch.cuda.synchronize()
    assert y.tolist() == [1.0] * 64


def test_threads_with_streams_of_their_own(gpu: Any, torch: Any, slow: list[Any]) -> None:
    entry, x = gpu.compile_native(parse(AXPY)).callable(), torch.ones(10_000, device="cuda")
    results = [torch.zeros(10_000, device="cuda") for _ in range(8)]
    known(entry, x, results[0], slow)
    torch.cuda.synchronize()

    def run(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                entry(x, results[number], float(number))
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in enumerate(results):
        assert result.tolist() == [200.0 * number] * 10_000


def test_buffers_of_any_size(gpu: Any, slow: list[Any]) -> None:
    entry, random = gpu.compile_native(parse(AXPY)).callable(), np.random.default_rng(3)
    for n in (1, 63, 64, 1000, 4096, 1 << 20):
        x, y = (random.standard_normal(n).astype(np.float32) for _ in range(2))
        xd, yd = gpu.upload(x), gpu.upload(y)
        entry(xd, yd, 1.5)
        entry(xd, yd, 1.5)
        once = np.float32(1.5) * x + y
        np.testing.assert_allclose(gpu.download(yd), np.float32(1.5) * x + once, rtol=1e-6, atol=1e-6)
    assert len(slow) == 6  # each learned its Buffers once


def test_jax_on_its_gpu(gpu: Any) -> None:
    jax = package("jax")
    if "gpu" not in {device.platform for device in jax.devices()}:
        pytest.skip("this JAX sees no GPU")
    from vyre_py.interop.jax import vyre_call

    jnp, function = jax.numpy, vyre_call(parse(AXPY))
    x, y = jnp.arange(1000.0), jnp.ones(1000)
    run = jax.jit(lambda x, y, a: function(jnp.sin(x), function(x, y, 2.0), a) + 1)
    np.testing.assert_allclose(run(x, y, jnp.float32(3)), 3 * jnp.sin(x) + 2 * x + y + 1, rtol=1e-6, atol=1e-5)
    again = jax.jit(lambda y: jax.lax.fori_loop(0, 100, lambda _, y: function(x, y, 1.0), y))
    np.testing.assert_allclose(again(y), 100 * x + 1)
    np.testing.assert_allclose(jax.jit(jax.vmap(lambda x, y: function(x, y, 2.0)))(x.reshape(10, 100), y.reshape(10, 100)), (2 * x + y).reshape(10, 100))
    function.defvjp(lambda x, y, a: (function(x, y, a), (x, a)), lambda saved, g: (saved[1] * g, g, jnp.vdot(saved[0], g)))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: function(x, y, 2.0).sum()))(x), np.full(1000, 2.0))


def test_tvm_functions_on_a_gpu(gpu: Any, torch: Any) -> None:
    package("tvm_ffi")
    from vyre_py.interop.tvm_ffi import function

    axpy, x, y = function(parse(AXPY), device="cuda"), torch.arange(1000.0, device="cuda"), torch.ones(1000, device="cuda")
    axpy(x, y, 2.0)
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x + 1)
    with pytest.raises(ValueError, match="'x' must be on cuda:0"):
        axpy(x.cpu(), y, 1.0)


def test_random_calls_are_bound_launches(gpu: Any, torch: Any, slow: list[Any]) -> None:
    """VYRE_CALLS of them, over Buffers and PyTorch's tensors: what `bind` refuses is refused in the same words, and what it launches leaves the same memory."""
    pipeline, native, fine = gpu.compile_native(parse(SIZES)), 0, 0
    entry, calls = pipeline.callable(), RandomCalls(gpu, vp.device("cpu"), 12, torch.from_dlpack)
    for _ in range(int(os.environ.get("VYRE_CALLS", "1000"))):
        values = calls.next()
        before = [buffer.read() for buffer in calls.memory]
        says = outcome(lambda **given: pipeline.bind(given)(), values)
        wanted = [buffer.read().tobytes() for buffer in calls.memory]
        for buffer, content in zip(calls.memory, before, strict=True):
            buffer.write(content)
        for value in values.values():
            entry._learn(value)
        slow.clear()
        assert outcome(entry, values) == says
        torch.cuda.synchronize()
        assert [buffer.read().tobytes() for buffer in calls.memory] == wanted
        fine += says is None
        native += not slow
    assert 0 < native <= fine
