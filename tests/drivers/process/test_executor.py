"""Executors: Programs in a worker process that is killed and replaced; what comes back is what comes back in this process."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from children import TAKES_CTRL_C, child_environment
from device_kinds import KINDS, open_device
from executor_programs import (
    AXPY,
    ENDLESS,
    GOOD,
    IDLE,
    PATIENCE,
    RIGHT,
    XS,
    idle,
    is_alive,
    settled,
    used_seconds,
    works,
)
from tree import ROOT

import vyre_py as vp
from vyre_py.drivers.errors import (
    BindingError,
    DeviceLost,
    DeviceUnavailable,
    DispatchTimeout,
    DriverError,
    LaunchError,
    OutOfMemory,
)
from vyre_py.drivers.process import worker_process
from vyre_py.drivers.process.shared_memory import SharedMemory
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.program import Program
from vyre_py.lowering.errors import Unsupported


def identity(kind: Any, shape: int = 1) -> Program:
    with vp.ProgramBuilder("identity", workgroup=64) as b:
        sizes = [b.dim(f"d{k}") for k in range(shape)]
        x, y = b.read("x", kind, *sizes), b.write("y", kind, *sizes)
        index = [b.global_id(shape - 1 - k) for k in range(shape)]
        y[tuple(index) if shape > 1 else index[0]] = x[tuple(index) if shape > 1 else index[0]]
    return b.program


@pytest.fixture(scope="module")
def cpu() -> Iterator[vp.Executor]:
    """One executor for all tests that leave its worker as it is, or replace it."""
    with vp.Executor("cpu") as opened:
        yield opened


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of device that is here."""
    open_device(request.param)
    name: str = request.param
    return name


# ---------------------------------------------------------------- on every device


def test_each_device_computes_what_it_computes_here(kind: str) -> None:
    with vp.Executor(kind) as executor:
        assert executor.name == f"{kind}:0" and executor.description == vp.device(kind).description
        for count in (0, 1, 64, 65, 5000):
            x = np.arange(count, dtype=np.uint32)
            here = vp.device(kind).compile_native(AXPY).dispatch({"x": x, "y": x, "a": 5})
            there = executor.dispatch(AXPY, {"x": x, "y": x, "a": 5})
            assert there.keys() == here.keys()
            np.testing.assert_array_equal(there["y"], here["y"])
        assert executor.counters.snapshot()["dispatches"] == 5 and executor.counters.snapshot()["compiles"] == 1
        uploaded = executor.upload(XS)
        assert executor.dispatch(AXPY, {"x": XS, "y": uploaded, "a": 1})["y"] is uploaded
        np.testing.assert_array_equal(uploaded.read(), XS * np.uint32(2))


def test_each_device_survives_an_endless_kernel_and_a_kill(kind: str) -> None:
    with vp.Executor(kind) as executor:
        executor.compile(ENDLESS)
        works(executor)
        began = time.monotonic()
        with pytest.raises(DispatchTimeout, match=r"'endless' took longer than 0.5 s"):
            executor.dispatch(ENDLESS, idle(kind), timeout=0.5)
        assert time.monotonic() - began < 10 * 0.5 + PATIENCE / 10, "the worker was not killed in time"
        works(executor)
        executor.compile(ENDLESS)
        pid = executor.pid
        assert pid is not None
        before = used_seconds(pid)
        pending = executor.submit(ENDLESS, idle(kind))
        assert settled(lambda: used_seconds(pid) > before + 0.3)  # in the middle of the kernel, however busy the machine is
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DeviceLost, match=r"SIGKILL|closed its pipe"):  # as far as the system has got with ending it
            pending.result(PATIENCE)
        works(executor)
        counted = executor.counters.snapshot()
        assert (counted["timeouts"], counted["faults"], counted["restarts"]) == (1, 1, 2)


FAULT = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault(.param .u64 address)
{
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u64 %a, [address];
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
"""


def test_cuda_survives_an_illegal_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Program can fault, so that a worker made for this test runs raw code that does."""
    open_device("cuda")
    script = tmp_path / "faulty.py"
    script.write_text(textwrap.dedent(f"""
        from vyre_py.drivers.process import worker
        from vyre_py.ir.language.types import u64

        dispatch = worker.Worker.dispatch

        def faulty(self, request):
            if request["config"].get("label") == "fault":
                self.device.load_ptx({FAULT!r}, "fault", [("address", u64)]).bind({{"address": 8}}, grid=1, workgroup=1)()
                self.device.synchronize()
            return dispatch(self, request)

        worker.REQUESTS["dispatch"] = faulty
        worker.main()
    """))
    monkeypatch.setattr(worker_process, "command", lambda fd: [sys.executable, "-P", str(script), str(fd)])
    with vp.Executor("cuda") as executor:
        works(executor)
        resident, first = executor.upload(XS), executor.pid
        with pytest.raises(DriverError, match="ILLEGAL_ADDRESS"):
            executor.dispatch(AXPY, GOOD, config=vp.DispatchConfig(label="fault"))
        began = time.monotonic()
        works(executor)
        assert executor.pid != first and executor.counters.faults == 1, "the poisoned worker was kept"
        print(f"the next worker was ready {time.monotonic() - began:.2f} s after the fault")
        with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS"):
            resident.read()


def test_cuda_ends_an_interruptible_kernel_and_keeps_its_worker() -> None:
    open_device("cuda")
    options = vp.CompileOptions(interruptible=True)
    with vp.Executor("cuda") as executor:
        executor.compile(ENDLESS, options)
        resident, first = executor.upload(XS), executor.pid
        for _ in range(2):
            with pytest.raises(DispatchTimeout):
                executor.dispatch(ENDLESS, idle("cuda"), options=options, timeout=0.3)
            assert executor.pid == first, "the worker was killed, though the kernel can be interrupted"
        np.testing.assert_array_equal(resident.read(), XS)
        works(executor)
        assert executor.counters.timeouts == 2 and executor.counters.restarts == 0


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("name", ["bool", "i8", "u16", "f16", "bf16", "f32", "f64", "u64", "f32x3", "boolx2", "bf16x4"])
def test_bits_of_every_kind_of_element_arrive(cpu: vp.Executor, name: str) -> None:
    kind = vp.ir.language.types.TYPES[name]
    rng = np.random.default_rng(len(name))
    shape = (7, 5, *([kind.lanes] if kind.is_vector else []))
    bits = rng.integers(0, 256, (*shape, kind.scalar.size_bytes), dtype=np.uint8)
    x = (bits & 1 if kind.scalar is vp.bool_ else bits).view(kind.dtype).reshape(shape)
    program = identity(kind, 2)
    out = cpu.dispatch(program, {"x": x})["y"]
    here = vp.device("cpu").compile_native(program).dispatch({"x": x})["y"]
    assert out.dtype == x.dtype and out.shape == x.shape and out.flags.writeable and out.flags.owndata
    assert out.tobytes() == here.tobytes()


def test_any_array_like_goes(cpu: vp.Executor) -> None:
    wide = np.zeros((100, 3), np.uint32)
    wide[:, 1] = XS
    locked = XS.copy()
    locked.flags.writeable = False
    for x in (wide[:, 1], XS[::-1][::-1], XS.astype(XS.dtype.newbyteorder()), memoryview(XS), locked):
        np.testing.assert_array_equal(cpu.dispatch(AXPY, {"x": x, "y": locked, "a": np.uint32(3)})["y"], RIGHT)
    np.testing.assert_array_equal(cpu.dispatch(AXPY, [XS, XS, 3])["y"], RIGHT)
    np.testing.assert_array_equal(cpu.dispatch(AXPY.to_bytes(), GOOD)["y"], RIGHT)
    np.testing.assert_array_equal(cpu.dispatch(vp.check(AXPY), GOOD)["y"], RIGHT)
    np.testing.assert_array_equal(XS, np.arange(100))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), (1, 1)], ids=str)
def test_arrays_with_few_elements_or_none(cpu: vp.Executor, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    assert cpu.dispatch(identity(vp.f32, len(shape)), {"x": x})["y"].shape == shape
    buffer = cpu.upload(x)
    assert buffer.read().shape == shape
    cpu.free(buffer)


def test_params_of_every_form(cpu: vp.Executor) -> None:
    with vp.ProgramBuilder("params", workgroup=1) as b:
        b.grid(1)
        flag, small, wide = b.param("flag", vp.bool_), b.param("small", vp.bf16), b.param("wide", vp.i64)
        vector, real = b.param("vector", vp.f32x3), b.param("real", vp.f64)
        out = b.write("out", vp.f64, 4)
        out[0] = vp.select(flag, vp.cast(small, vp.f64), 0.0)
        out[1] = vp.cast(wide, vp.f64)
        out[2] = vp.cast(vector.x + vector.z, vp.f64)
        out[3] = real
    arguments = {"flag": True, "small": ml_dtypes.bfloat16(1.5), "wide": -(2**40), "vector": (1, 2, 4), "real": float("nan")}
    out = cpu.dispatch(b.program, arguments)["out"]
    np.testing.assert_array_equal(out, [1.5, -(2.0**40), 5.0, np.nan])


def test_results_in_place_and_left_out(cpu: vp.Executor) -> None:
    target = np.zeros((100, 2), np.uint32)
    out = cpu.dispatch(AXPY, GOOD, out={"y": target[:, 1]})
    np.testing.assert_array_equal(target[:, 1], RIGHT)
    assert not target[:, 0].any() and np.shares_memory(out["y"], target)
    same = XS.copy()
    with pytest.raises(vp.BindingError, match="shares memory with the argument 'x'"):
        cpu.dispatch(AXPY, {"x": same, "y": same, "a": 3}, out={"y": same})
    assert cpu.dispatch(AXPY, {"x": XS, "y": same, "a": 3}, out={"y": same})["y"] is same
    np.testing.assert_array_equal(same, RIGHT)
    with vp.ProgramBuilder("iota") as b:
        written = b.write("written", vp.u32, b.dim("n"))
        written[b.global_id(0)] = b.global_id(0)
    np.testing.assert_array_equal(cpu.dispatch(b.program, {"n": 70})["written"], np.arange(70))
    assert cpu.dispatch(b.program, {"n": 0})["written"].shape == (0,)


def test_large_arrays_go_through_shared_memory(cpu: vp.Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).integers(0, 1 << 32, (64 << 20) // 4, dtype=np.uint32)
    through_pipes = 0
    write, read = os.write, os.read

    def counted_write(descriptor: int, data: Any) -> int:
        nonlocal through_pipes
        through_pipes += (count := write(descriptor, data))
        return count

    def counted_read(descriptor: int, size: int) -> bytes:
        nonlocal through_pipes
        through_pipes += len(data := read(descriptor, size))
        return data

    monkeypatch.setattr(os, "write", counted_write)
    monkeypatch.setattr(os, "read", counted_read)
    out = cpu.dispatch(AXPY, {"x": x, "y": x, "a": 2})["y"]
    buffer = cpu.upload(x)
    back = buffer.read()
    buffer.free()
    monkeypatch.undo()
    assert through_pipes < 10_000, "arrays went through the pipes"
    np.testing.assert_array_equal(out, x * np.uint32(3))
    np.testing.assert_array_equal(back, x)


def test_options_of_a_launch_go_along(cpu: vp.Executor) -> None:
    with vp.ProgramBuilder("half", workgroup=1) as b:
        b.grid(1)
        left, again = b.read_write("left", vp.u32, 1), b.read_write("again", vp.u32, 1)
        left[0] = left[0] >> 1
        again[0] = vp.select(left[0] != 0, vp.const(1, vp.u32), vp.const(0, vp.u32))
    arguments = {"left": np.array([40], np.uint32), "again": np.ones(1, np.uint32)}
    for config in (vp.DispatchConfig(fixpoint="again"), vp.DispatchConfig(fixpoint="again", fixpoint_limit=2), vp.DispatchConfig(grid=(0, 1, 1), label="l"),
                   vp.DispatchConfig(grid=(np.uint8(1), 1, np.int64(1)), max_output_bytes=np.uint16(8))):  # fmt: skip
        here = vp.device("cpu").compile_native(b.program).dispatch(arguments, config=config)
        there = cpu.dispatch(b.program, arguments, config=config)
        assert (there["left"], there["again"]) == (here["left"], here["again"])
    options = vp.CompileOptions(workgroup=(32, 1, 1), opt=1, numerics="fast")
    assert cpu.compile(AXPY, options) == vp.device("cpu").compile_native(AXPY, options).numerics
    np.testing.assert_array_equal(cpu.dispatch(AXPY, GOOD, options=options)["y"], RIGHT)


# ---------------------------------------------------------------- resident memory


def test_resident_memory(cpu: vp.Executor) -> None:
    x, y = cpu.upload(XS), cpu.allocate(100, vp.u32)
    assert cpu.dispatch(AXPY, {"x": x, "y": y, "a": 7})["y"] is y
    np.testing.assert_array_equal(cpu.download(y), XS * np.uint32(7))
    out = np.zeros((100, 2), np.uint32)
    assert cpu.download(y, out[:, 0]) is not None and out[7, 0] == 49
    half = cpu.dispatch(AXPY, {"x": x[50:], "y": np.zeros(50, np.uint32), "a": 1})["y"]
    np.testing.assert_array_equal(half, XS[50:])
    y.copy_from(x)
    y[:10].write(np.zeros(10, np.uint32))
    np.testing.assert_array_equal(y.read(), np.where(XS < 10, 0, XS))
    with pytest.raises(BindingError, match="overlaps"):
        cpu.dispatch(AXPY, {"x": y[:50], "y": y[25:75], "a": 1})
    cpu.free(x)
    x.free()
    with pytest.raises(BindingError, match="freed"):
        cpu.dispatch(AXPY, {"x": x, "y": y, "a": 1})
    with pytest.raises(BindingError, match="freed"):
        x.read()
    vectors = cpu.upload(np.ones((4, 3), np.float32), vp.f32x3)
    assert vectors.shape == (4,) and vectors.read().shape == (4, 3)


def test_memory_of_one_device_is_not_taken_by_another(cpu: vp.Executor) -> None:
    here, there = vp.device("cpu").upload(XS), cpu.upload(XS)
    with pytest.raises(BindingError, match=r"is on cpu:0, the pipeline on the executor of cpu:0"):
        cpu.dispatch(AXPY, {"x": here, "y": XS, "a": 1})
    with pytest.raises(BindingError, match=r"is on the executor of cpu:0, the pipeline on cpu:0"):
        vp.device("cpu").compile_native(AXPY).dispatch({"x": there, "y": XS, "a": 1})
    for thing in (here, XS, None):
        with pytest.raises(BindingError):
            cpu.download(thing)
        with pytest.raises(BindingError):
            cpu.free(thing)
    with pytest.raises(Unsupported, match=r"Executor\.dispatch"):
        there.device.compile_native(AXPY)
    with pytest.raises(BufferError):
        np.from_dlpack(there)


def test_buffers_that_go_are_freed_in_the_worker(cpu: vp.Executor) -> None:
    with vp.Executor("cpu") as executor:
        for _ in range(40):
            executor.upload(np.zeros(1 << 20, np.float64))
        gc.collect()
        works(executor)
        status = Path(f"/proc/{executor.pid}/status").read_text("ascii")
        peak = int(status.partition("VmRSS:")[2].split()[0]) << 10
    assert peak < 300 << 20, f"{peak} bytes are held, of which 8 MiB should be"


def test_buffers_die_with_their_worker(cpu: vp.Executor) -> None:
    old = cpu.upload(XS)
    first = cpu.pid
    cpu.restart()
    works(cpu)
    assert cpu.pid != first
    new = cpu.upload(XS)
    for use in (old.read, lambda: old.write(XS), lambda: cpu.dispatch(AXPY, {"x": old, "y": XS, "a": 1}), lambda: new.copy_from(old),
                lambda: old.copy_from(new), lambda: cpu.dispatch(AXPY, [XS, old, 1])):  # fmt: skip
        with pytest.raises(DeviceLost, match=r"lay in worker \d+ of cpu:0, which is gone; worker \d+ has taken its place") as caught:
            use()
        assert caught.value.cause == "Executor.restart() ended it" and "upload" in caught.value.remedy
    old.free()
    np.testing.assert_array_equal(new.read(), XS)


def test_buffers_keep_their_worker() -> None:
    buffer = vp.Executor("cpu").upload(XS)
    gc.collect()
    np.testing.assert_array_equal(buffer.read(), XS)
    pid = buffer.device._supervisor.pid
    del buffer
    assert settled(lambda: gc.collect() >= 0 and not is_alive(pid))


# ---------------------------------------------------------------- errors


def same_error(here: Callable[[], Any], there: Callable[[], Any]) -> None:
    with pytest.raises(VyreError) as expected:
        here()
    with pytest.raises(VyreError) as caught:
        there()
    assert caught.type is expected.type and str(caught.value) == str(expected.value)
    assert vars(caught.value) == vars(expected.value)


def broken_program() -> Program:
    from vyre_py.ir.text.parser import parse

    return parse("program p(n) {\n  buffer x: f32[n] read\n  x[global_id.x] = 1.0\n}\n", file="p.vir")


class Stream:
    """A stream of CUDA, which means nothing in another process."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("a name", {"arguments": {**GOOD, "z": 1}}),
    ("none", {"arguments": None}),
    ("no mapping", {"arguments": 5}),
    ("a type", {"arguments": {**GOOD, "x": XS.astype(np.float64)}}),
    ("a rank", {"arguments": {**GOOD, "x": XS.reshape(10, 10)}}),
    ("0-d", {"arguments": {**GOOD, "x": np.uint32(3)}}),
    ("a size", {"arguments": {**GOOD, "x": XS[1:]}}),
    ("an object", {"arguments": {**GOOD, "x": object()}}),
    ("a param", {"arguments": {**GOOD, "a": -1}}),
    ("a dim", {"arguments": {**GOOD, "n": 99}}),
    ("out", {"arguments": GOOD, "out": {"y": np.zeros(3, np.uint32), "x": XS}}),
    ("out of no kind", {"arguments": GOOD, "out": 3}),
    ("too large a result", {"arguments": GOOD, "config": vp.DispatchConfig(max_output_bytes=10)}),
    ("a config", {"arguments": GOOD, "config": vp.DispatchConfig(cluster=(1, 1, 1))}),
    ("a grid", {"arguments": GOOD, "config": vp.DispatchConfig(grid=(2**32, 1, 1))}),
    ("no config", {"arguments": GOOD, "config": 3}),
]


@pytest.mark.parametrize("named", [named for _, named in WRONG], ids=[name for name, _ in WRONG])
def test_wrong_calls_fail_as_they_do_here(cpu: vp.Executor, named: dict[str, Any]) -> None:
    pipeline = vp.device("cpu").compile_native(AXPY)
    arguments = named["arguments"]
    rest = {name: value for name, value in named.items() if name != "arguments"}
    same_error(lambda: pipeline.dispatch(arguments, **rest), lambda: cpu.dispatch(AXPY, arguments, **rest))
    works(cpu)


def test_a_stream_is_refused_since_the_worker_has_others(cpu: vp.Executor) -> None:
    with pytest.raises(Unsupported, match=r"the executor of cpu:0 does not support dispatch option stream"):
        cpu.dispatch(AXPY, GOOD, config=vp.DispatchConfig(stream=Stream()))


def test_places_that_cannot_be_written_are_left_out(cpu: vp.Executor) -> None:
    program = Program.from_text(str(AXPY), "a\udc80b.vir")
    np.testing.assert_array_equal(cpu.dispatch(program, GOOD)["y"], RIGHT)


def test_programs_that_are_none_fail_as_they_do_here(cpu: vp.Executor) -> None:
    device = vp.device("cpu")
    broken = broken_program()
    same_error(lambda: device.compile_native(broken), lambda: cpu.compile(broken))
    data = AXPY.to_bytes()
    same_error(lambda: Program.from_bytes(data[:-1]), lambda: cpu.compile(data[:-1]))
    for thing in (None, 3, "text", object()):
        same_error(lambda: device.compile_native(thing), lambda: cpu.compile(thing))  # noqa: B023 - called within this turn
    same_error(lambda: device.compile_native(AXPY, 3), lambda: cpu.compile(AXPY, 3))
    options = vp.CompileOptions(numerics="native")
    same_error(lambda: device.compile_native(AXPY, options), lambda: cpu.compile(AXPY, options))
    works(cpu)


def test_what_a_target_lacks_is_named_with_its_place() -> None:
    open_device("wgpu")
    program = vp.ops.attention(vp.bf16, 64, tensor="sm_90", tiles=(64, 64))  # the bits of another device
    with vp.Executor("wgpu") as executor:
        same_error(lambda: vp.device("wgpu").compile_native(program), lambda: executor.compile(program))
        works(executor)


def test_memory_that_the_device_has_not(cpu: vp.Executor) -> None:
    with vp.ProgramBuilder("huge") as b:
        b.grid(1)
        out = b.write("out", vp.f64, b.dim("n"), b.dim("m"), 1 << 16)
        out[0, 0, 0] = 1.0
    program = b.program
    assert cpu.limits.buffer_bytes < 1 << 47
    with pytest.raises(VyreError):
        cpu.dispatch(program, {"n": 65535, "m": 65535})
    with pytest.raises(OutOfMemory) as caught:
        cpu.allocate(cpu.limits.buffer_bytes, vp.u16)
    assert "cannot allocate" in str(caught.value)
    works(cpu)
    most = cpu.limits.buffer_bytes
    memory = SharedMemory()
    for size in (most * 4, 1 << 50, 1 << 70):
        with pytest.raises(OutOfMemory):
            memory.reserve(size)
    memory.close()


@pytest.mark.parametrize("value", [-1, float("nan"), "1", True, [1]], ids=str)
def test_times_that_are_none(cpu: vp.Executor, value: Any) -> None:
    with pytest.raises(Unsupported, match="timeout"):
        cpu.dispatch(AXPY, GOOD, timeout=value)
    with pytest.raises(Unsupported, match="timeout"):
        vp.Executor("cpu", timeout=value)
    with pytest.raises(Unsupported, match="start_timeout"):
        vp.Executor("cpu", start_timeout=value)


def test_devices_that_are_none() -> None:
    for name in ("nonsense", "cpu:7", 3):
        same_error(lambda: vp.device(name), lambda: vp.Executor(name))  # noqa: B023 - called within this turn
    with pytest.raises(DeviceUnavailable, match="started within"):
        vp.Executor("cpu", start_timeout=0)
    with pytest.raises(Unsupported, match="max_restarts"):
        vp.Executor("cpu", max_restarts=-1)


# ---------------------------------------------------------------- timeouts, faults, restarts


def test_the_timeout_of_a_config_and_of_the_executor() -> None:
    with vp.Executor("cpu", timeout=0.3) as executor:
        executor.compile(ENDLESS)
        for named in ({}, {"config": vp.DispatchConfig(timeout=0.2)}, {"timeout": 0.2, "config": vp.DispatchConfig(timeout=1e6)}):
            with pytest.raises(DispatchTimeout) as caught:
                executor.dispatch(ENDLESS, IDLE, **named)
            assert "resident memory went with it" in caught.value.meaning
        assert executor.counters.timeouts == 3
        np.testing.assert_array_equal(executor.dispatch(AXPY, GOOD, timeout=float("inf"))["y"], RIGHT)


def test_waiting_calls_run_on_the_next_worker() -> None:
    with vp.Executor("cpu") as executor:
        executor.compile(AXPY)
        executor.compile(ENDLESS)
        resident = executor.upload(XS)
        first = executor.pid
        stuck = executor.submit(ENDLESS, IDLE, timeout=0.4)
        waiting = [executor.submit(AXPY, {**GOOD, "a": k}) for k in range(20)]
        lost = executor.submit(AXPY, {"x": resident, "y": XS, "a": 1})
        with pytest.raises(DispatchTimeout):
            stuck.result(PATIENCE)
        for k, pending in enumerate(waiting):
            np.testing.assert_array_equal(pending.result(PATIENCE)["y"], XS * np.uint32(k + 1))
        with pytest.raises(DeviceLost, match="lay in worker 1"):
            lost.result(PATIENCE)
        assert executor.pid != first and executor.counters.restarts == 1


def test_a_worker_that_dies_idle_costs_no_call() -> None:
    with vp.Executor("cpu") as executor:
        resident = executor.upload(XS)
        session = executor._supervisor._session
        assert session is not None
        os.kill(session.process.pid, signal.SIGTERM)
        assert settled(lambda: session.process.ended() is not None)
        works(executor)
        with pytest.raises(DeviceLost, match="SIGTERM"):
            resident.read()
        assert executor.counters.faults == 1


def test_executors_that_may_not_restart() -> None:
    with vp.Executor("cpu", restart=False, timeout=0.2) as executor:
        executor.compile(ENDLESS)
        with pytest.raises(DispatchTimeout):
            executor.dispatch(ENDLESS, IDLE)
        for _ in range(2):
            with pytest.raises(DeviceLost, match=r"may not start another\n.*'endless' took longer"):
                works(executor)
    with vp.Executor("cpu", max_restarts=1) as executor:
        executor.restart()
        works(executor)
        executor.restart()
        with pytest.raises(DeviceLost, match="may not start another"):
            works(executor)


def test_restart_ends_what_runs() -> None:
    with vp.Executor("cpu") as executor:
        executor.compile(ENDLESS)
        stuck = executor.submit(ENDLESS, IDLE)
        assert settled(stuck.running)
        time.sleep(0.1)
        executor.restart()
        with pytest.raises(DeviceLost, match=r"while it ran 'endless'\n.*Executor.restart\(\) ended it"):
            stuck.result(PATIENCE)
        works(executor)


def test_a_compilation_may_not_take_forever(cpu: vp.Executor) -> None:
    with vp.Executor("cpu", compile_timeout=0) as executor, pytest.raises(DispatchTimeout, match="compile"):
        executor.compile(AXPY)


def test_a_device_that_is_lost_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker whose device answers as a poisoned one does."""
    script = tmp_path / "poisoned.py"
    script.write_text(textwrap.dedent("""
        from vyre_py.drivers.process import worker
        from vyre_py.drivers.errors import LaunchError

        dispatch = worker.Worker.dispatch

        def poisoned(self, request):
            if request["config"].get("label") == "poison":
                error = LaunchError("an illegal address", status="CUDA_ERROR_ILLEGAL_ADDRESS")
                self.device._mark_lost(error)
                raise error
            if request["config"].get("label") == "defect":
                raise IndexError("of ours")
            if request["config"].get("label") == "chatty":
                print("x" * 100_000)
            return dispatch(self, request)

        worker.REQUESTS["dispatch"] = poisoned
        worker.main()
    """))
    monkeypatch.setattr(worker_process, "command", lambda fd: [sys.executable, "-P", str(script), str(fd)])
    with vp.Executor("cpu") as executor:
        works(executor)
        first = executor.pid
        with pytest.raises(LaunchError, match="an illegal address: CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
            executor.dispatch(AXPY, GOOD, config=vp.DispatchConfig(label="poison"))
        assert caught.value.status == "CUDA_ERROR_ILLEGAL_ADDRESS"
        works(executor)
        assert executor.pid != first and executor.counters.restarts == 1
        with pytest.raises(DriverError, match="IndexError: of ours"):
            executor.dispatch(AXPY, GOOD, config=vp.DispatchConfig(label="defect"))
        np.testing.assert_array_equal(executor.dispatch(AXPY, GOOD, config=vp.DispatchConfig(label="chatty"))["y"], RIGHT)
        assert executor.counters.restarts == 1


# ---------------------------------------------------------------- many at once


def test_threads_that_mix_good_and_bad_calls() -> None:
    failed: list[BaseException] = []
    with vp.Executor("cpu") as executor:
        executor.compile(ENDLESS)

        def calls(seed: int) -> None:
            rng = random.Random(seed)
            try:
                for turn in range(12):
                    match rng.randrange(5):
                        case 0:
                            with pytest.raises(BindingError):
                                executor.dispatch(AXPY, {**GOOD, "z": turn})
                        case 1 if turn % 4 == 0:
                            with pytest.raises(DispatchTimeout):
                                executor.dispatch(ENDLESS, IDLE, timeout=0.1)
                        case 2:
                            try:
                                back = executor.upload(XS).read()
                            except DeviceLost as error:  # another thread's timeout came between
                                failed.extend([] if "is gone" in str(error) else [error])
                                continue
                            assert np.array_equal(back, XS)
                        case _:
                            count = rng.randrange(1, 5000)
                            x = np.arange(count, dtype=np.uint32)
                            out = executor.dispatch(AXPY, {"x": x, "y": x, "a": seed})["y"]
                            assert np.array_equal(out, x * np.uint32(seed + 1))
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE * 3)
        assert not any(thread.is_alive() for thread in threads)
        if failed:
            raise failed[0]
        works(executor)
        counted = executor.counters.snapshot()
        assert counted["faults"] == 0 and counted["restarts"] == counted["timeouts"] > 0


def test_calls_are_served_in_their_order(cpu: vp.Executor) -> None:
    done: list[int] = []
    pendings = []
    for k in range(30):
        pendings.append(cpu.submit(AXPY, GOOD))
        pendings[-1].add_done_callback(lambda _, k=k: done.append(k))
    assert len(list(as_completed(pendings, PATIENCE))) == 30
    assert settled(lambda: len(done) == 30) and done == sorted(done)


def test_pending_results(cpu: vp.Executor) -> None:
    async def both() -> list[Any]:
        one, two = cpu.submit(AXPY, GOOD), cpu.submit(AXPY, {**GOOD, "a": 1})
        return [(await one)["y"], (await two)["y"]]

    one, two = asyncio.run(both())
    np.testing.assert_array_equal(one, RIGHT)
    np.testing.assert_array_equal(two, XS * np.uint32(2))
    with pytest.raises(BindingError):
        cpu.submit(AXPY, {})
    with vp.Executor("cpu") as executor:
        executor.compile(ENDLESS)
        stuck, waiting = executor.submit(ENDLESS, IDLE, timeout=1.0), executor.submit(AXPY, GOOD)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        assert waiting.cancel() and waiting.cancelled() and not waiting.running()
        with pytest.raises(DispatchTimeout):
            stuck.result(PATIENCE)
        works(executor)


def test_waiting_in_a_callback_is_refused() -> None:
    seen: list[str] = []
    with vp.Executor("cpu") as executor:
        executor.compile(ENDLESS)
        stuck = executor.submit(ENDLESS, IDLE, timeout=0.3)

        def same(_: Any) -> None:
            with pytest.raises(Unsupported, match="calls back"):
                executor.dispatch(AXPY, GOOD)
            seen.append("refused")

        stuck.add_done_callback(same)
        with pytest.raises(DispatchTimeout):
            stuck.result(PATIENCE)
        assert settled(lambda: seen == ["refused"])
        works(executor)


def test_a_thousand_dispatches_leave_nothing() -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return files("self"), resident

    def files(pid: int | str | None) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    with vp.Executor("cpu") as executor:
        for _ in range(200):
            works(executor)
        executor.dispatch(AXPY, {"x": XS.repeat(10_000), "y": XS.repeat(10_000), "a": 1})
        before, worker_before = held(), files(executor.pid)
        for _ in range(2000):
            works(executor)
        after, worker_after = held(), files(executor.pid)
        assert after[0] == before[0] and worker_after == worker_before, "descriptors are left open"
        assert after[1] - before[1] < 8 << 20, f"{after[1] - before[1]} bytes more are held"
        for _ in range(5):
            executor.restart()
            works(executor)
        assert held()[0] == before[0], "a worker that was replaced leaves descriptors open"
    gc.collect()
    assert files("self") < before[0]


def test_the_worker_keeps_a_bounded_number_of_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vyre_py.drivers.process.executor._CACHED", 3)
    monkeypatch.setattr("vyre_py.drivers.process.jobs._CACHED", 3)
    with vp.Executor("reference") as executor:
        for turn in range(2):
            for k in range(6):
                program = Program.from_text(str(AXPY).replace("a * x[i]", f"a * x[i] + {k}"))
                np.testing.assert_array_equal(executor.dispatch(program, GOOD)["y"], RIGHT + np.uint32(k))
                np.testing.assert_array_equal(executor.dispatch(program, GOOD)["y"], RIGHT + np.uint32(k))
            assert executor.counters.compiles == 6 * (turn + 1)


# ---------------------------------------------------------------- life and death


def run_script(body: str, **named: Any) -> subprocess.Popen[bytes]:
    """A process that has `vp`, `np`, `AXPY`, `ENDLESS`, `GOOD` and an executor `e`."""
    head = """
        import os, signal, sys, threading, time, warnings
        import numpy as np
        import vyre_py as vp
        from executor_programs import AXPY, ENDLESS, GOOD, IDLE, works
        e = vp.Executor("cpu")
        works(e)
        e.compile(ENDLESS)
    """
    script = TAKES_CTRL_C + textwrap.dedent(head) + textwrap.dedent(body)
    settings = {"env": child_environment(), **named}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, **settings)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_the_worker_goes_when_its_parent_is_killed(busy: bool) -> None:
    parent = run_script(f"{'e.submit(ENDLESS, IDLE)' if busy else ''}\ntime.sleep(0.3)\nprint(e.pid, flush=True)\ntime.sleep(1000)")
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.communicate(timeout=PATIENCE)
    assert settled(lambda: not is_alive(pid)), "the worker outlives its parent"


@pytest.mark.parametrize(
    "end",
    ["", "e.submit(ENDLESS, IDLE); time.sleep(0.1)", "b = e.upload(GOOD['x']); del e", "e.close()", "e.submit(ENDLESS, IDLE, timeout=0.1)", "os.kill(e.pid, 9)",
     "threading.Thread(target=lambda: e.dispatch(AXPY, GOOD)).start()", "p = e.submit(AXPY, GOOD); e.close(); assert p.done()"],
)  # fmt: skip
def test_exit_is_quiet(end: str) -> None:
    process = run_script(f"print(e.pid, flush=True)\n{end}")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and err == b"", err.decode()
    assert settled(lambda: not is_alive(int(out)))


def test_nothing_is_left_under_dev_shm(tmp_path: Path) -> None:
    def shared() -> set[str]:
        return {path.name for path in Path("/dev/shm").iterdir() if "vyre-" in path.name or "psm_" in path.name}

    before = shared()
    body = "e.upload(np.zeros(1 << 20))\ne.submit(ENDLESS, IDLE)\ntime.sleep(0.1)\nprint('on', flush=True)\ntime.sleep(1000)"
    process = run_script(body, env=child_environment(TMPDIR=str(tmp_path)))
    assert process.stdout is not None and process.stdout.readline() == b"on\n"
    made = shared() - before
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert not list(tmp_path.iterdir())
    # Tests beside this one may have files there for a time.
    assert settled(lambda: not made & shared())


def test_ctrl_c_ends_the_worker_that_runs_the_call_and_no_other() -> None:
    process = run_script(
        """
        print("on", flush=True)
        try:
            e.dispatch(ENDLESS, IDLE)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        works(e)
        print(e.counters.restarts, flush=True)
        """
    )
    assert process.stdout is not None and process.stdout.readline() == b"on\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert out == b"interrupted\n1\n" and err == b"" and process.returncode == 0


def test_a_forked_child_is_refused_and_harms_nothing() -> None:
    process = run_script(
        """
        warnings.simplefilter("ignore")  # of the fork itself, which newer Pythons warn of
        b = e.upload(GOOD["x"])
        if (child := os.fork()) == 0:
            try:
                works(e)
            except vp.DeviceLost as error:
                print(error, flush=True)
            try:
                b.read()
            except vp.DeviceLost:
                print("nor its buffers", flush=True)
            b.free()
            e.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        works(e)
        assert np.array_equal(b.read(), GOOD["x"])
        print("the parent goes on", e.counters.restarts, flush=True)
        """
    )
    out, err = process.communicate(timeout=PATIENCE)
    lines = out.decode().splitlines()
    assert "belongs to process" in lines[0] and "nor its buffers" in lines and lines[-1] == "the parent goes on 0" and err == b"", err.decode()


def test_close() -> None:
    executor = vp.Executor("cpu")
    executor.compile(ENDLESS)
    pid = executor.pid
    buffer = executor.upload(XS)
    stuck, waiting = executor.submit(ENDLESS, IDLE), executor.submit(AXPY, GOOD)
    assert settled(stuck.running)
    executor.close(wait=False)
    for pending in (stuck, waiting):
        with pytest.raises(DeviceLost, match="closed"):
            pending.result(PATIENCE)
    for use in (lambda: works(executor), buffer.read, executor.restart, lambda: executor.upload(XS), lambda: executor.compile(AXPY)):
        with pytest.raises(DeviceLost, match="closed"):
            use()
    buffer.free()
    executor.close()
    executor.close(wait=False)
    assert pid is not None and not is_alive(pid) and executor.pid is None
    with vp.Executor("cpu") as other:
        pending = other.submit(AXPY, GOOD)
    np.testing.assert_array_equal(pending.result(0)["y"], RIGHT)


def test_the_worker_imports_what_its_parent_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the same name where the process was started is not taken."""
    (tmp_path / "vyre_py").mkdir()
    (tmp_path / "vyre_py" / "__init__.py").write_text("raise ImportError('a stranger')")
    monkeypatch.chdir(tmp_path)
    with vp.Executor("reference") as executor:
        works(executor)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(DeviceUnavailable, match="cannot be started"):
        vp.Executor("reference")
