"""Traces: compile stages, the file that Perfetto opens, NVTX ranges."""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import re
import struct
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
from children import child_environment
from device_kinds import KINDS, open_device
from fake_cuda import CUresult, FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cache.lookup import clear_memory
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.device import Device
from vyre_py.drivers.observe.trace import Trace, observe, tracing
from vyre_py.ir.check import check
from vyre_py.lowering.stages import Stage, Stages, Stopwatch


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture
def cpu() -> Iterator[Device]:
    """One of its own, which no other test has compiled for."""
    made = CpuDevice(0)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    assert tracing() is None


def axpy(name: str = "axpy") -> vp.Program:
    with vp.ProgramBuilder(name) as b:
        n = b.dim("n")
        a = b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]
    return b.program


def arguments(count: int = 100) -> dict[str, Any]:
    return {"x": np.ones(count, np.float32), "y": np.ones(count, np.float32), "a": 2.0}


def spans(text: str, own: bool = True) -> list[dict[str, Any]]:
    """The complete events of a trace, after a look at all of it; `own` says that it is one of this process."""
    whole = json.loads(text)
    assert whole["displayTimeUnit"] == "ns"
    processes = {event["pid"] for event in whole["traceEvents"]}
    assert processes == {os.getpid()} if own else len(processes) == 1
    tracks = {event["tid"]: event["args"]["name"] for event in whole["traceEvents"] if event["ph"] == "M" and event["name"] == "thread_name"}
    found = [event for event in whole["traceEvents"] if event["ph"] == "X"]
    assert len(found) + len([e for e in whole["traceEvents"] if e["ph"] == "M"]) == len(whole["traceEvents"])
    for event in found:
        assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"] and event["cat"], event
        event["track"] = tracks[event["tid"]]
        event["begin"], event["end"] = round(event["ts"] * 1000), round(event["ts"] * 1000) + round(event["dur"] * 1000)
    return found


def require_nesting(events: list[dict[str, Any]]) -> None:
    """Fails unless the spans of each track lie within each other or apart."""
    for track in {event["track"] for event in events}:
        open_: list[dict[str, Any]] = []
        for event in sorted((e for e in events if e["track"] == track), key=lambda e: (e["begin"], -e["end"])):
            while open_ and open_[-1]["end"] <= event["begin"]:
                open_.pop()
            assert not open_ or event["end"] <= open_[-1]["end"], (open_[-1], event)
            open_.append(event)


def within(events: list[dict[str, Any]], outer: str, inner: str) -> bool:
    (parent,) = [e for e in events if e["name"] == outer]
    found = [e for e in events if e["name"] == inner]
    return bool(found) and all(parent["begin"] <= e["begin"] and e["end"] <= parent["end"] and e["track"] == parent["track"] for e in found)


# ---- stages of a compilation


def test_a_pipeline_tells_where_its_time_went(device: Device) -> None:
    device.trim()
    began = perf_counter_ns()
    pipeline = device.compile_native(axpy("staged"))
    elapsed = perf_counter_ns() - began
    stages = pipeline.stages
    names = [stage.name for stage in stages]
    assert [stage.name for stage in stages if not stage.depth] == ["check", "optimise", "lower", "load"]
    assert {"fold", "simplify", "cse", "dce"} <= set(names)
    assert all(stage.begin_ns <= stage.end_ns for stage in stages)
    assert 0 < stages.total_ns <= elapsed
    assert sum(stages.elapsed_ns(name) for name in ("check", "optimise", "lower", "load")) == stages.total_ns
    assert (device.kind in ("cpu", "cuda")) == ("llvm" in names)
    assert device.compile_native(axpy("staged")).stages is stages  # from memory: what it took when it was compiled


def test_stages_of_a_checked_program_and_of_code_that_was_compiled_before(cpu: Device) -> None:
    assert "check" not in [stage.name for stage in cpu.compile_native(check(axpy())).stages]
    clear_memory()
    artifact = vp.compile_native(axpy(), ["cpu", "compute_90", "reference"])
    for part in artifact.parts:
        assert [stage.name for stage in part.stages if not stage.depth] == ["check", "optimise", "lower"], part.target
    assert len({part.stages.elapsed_ns("check") for part in artifact.parts}) == 1  # checked once for all
    loaded = cpu.load(artifact)
    assert [stage.name for stage in loaded.stages if not stage.depth] == ["check", "optimise", "lower", "load"]
    # Times are no part of what was compiled.
    assert [stage.name for stage in vp.compile_native(axpy(), "cpu").parts[0].stages] == ["check"]  # the code itself was there
    clear_memory()
    first = vp.compile_native(axpy(), "reference").parts[0]
    clear_memory()
    second = vp.compile_native(axpy(), "reference").parts[0]
    assert first.stages != second.stages
    assert [(s.name, s.depth) for s in first.stages] == [(s.name, s.depth) for s in second.stages]


def test_a_stopwatch_nests_and_measures_what_fails() -> None:
    watch = Stopwatch([Stage("before", 0, 1, 3)])
    with watch("outer"):
        with watch("inner"):
            pass
        watch.add([Stage("other", 0, perf_counter_ns(), perf_counter_ns())])
    with pytest.raises(ZeroDivisionError), watch("fails"):
        _ = 1 // 0
    stages = watch.stages
    assert [(stage.name, stage.depth) for stage in stages] == [("before", 0), ("outer", 0), ("inner", 1), ("other", 1), ("fails", 0)]
    assert len(stages) == 5 and stages.elapsed_ns("before") == 2 and stages.elapsed_ns("absent") == 0
    assert stages.total_ns == sum(stages.elapsed_ns(name) for name in ("before", "outer", "fails"))
    lines = str(Stages((Stage("lower", 0, 0, 2_500_000), Stage("llvm", 1, 0, 1_000_000)))).splitlines()
    assert [line.split() for line in lines] == [["lower", "2.500", "ms"], ["llvm", "1.000", "ms"], ["total", "2.500", "ms"]]
    assert lines[1].startswith("  llvm") and Stages().total_ns == 0


# ---- the file


def test_a_trace_shows_everything_in_its_place(device: Device, tmp_path: Path) -> None:
    device.trim()
    path = tmp_path / "trace.json"
    with vp.trace(path) as t:
        pipeline = device.compile_native(axpy("shown"))
        x, y = device.upload(np.ones(10, np.float32)), device.upload(np.ones(10, np.float32))
        launch = pipeline.bind({"x": x, "y": y, "a": 1.0})
        launch()
        assert launch.set(a=2.0) is launch
        launch()
        pipeline.dispatch(arguments())
        np.testing.assert_array_equal(y.read(), np.full(10, 4, np.float32))
    events = spans(path.read_text("utf-8"))
    require_nesting(events)
    names = [event["name"] for event in events]
    for stage in ("check", "optimise", "fold", "lower", "load"):
        assert within(events, "compile", stage), stage
    launches = [event for event in events if event["cat"] == "launch"]
    assert len(launches) >= 2 and {event["name"] for event in launches} == {"shown"}, names
    assert launches[0]["args"]["program"] == "shown"
    assert names.count("bind") == 1 and names.count("dispatch") == 1 and names.count("compile") == 1
    assert [e["args"]["bytes"] for e in events if e["name"] == "upload"][:2] == [40, 40]
    assert [e["args"]["bytes"] for e in events if e["name"] == "download"][-1] == 40
    assert {event["track"] for event in events if event["cat"] != "device"} == {threading.current_thread().name}
    assert len(t) == len(events) and t.dropped == 0 and t.path == path
    launch()  # one that was bound while a trace ran goes on without it
    assert len(t) == len(events)
    device.synchronize()


def test_what_is_launched_and_bound_apart_from_traces_is_as_ever(device: Device) -> None:
    pipeline = device.compile_native(axpy())
    x, y = device.upload(np.ones(10, np.float32)), device.upload(np.ones(10, np.float32))
    before = pipeline.bind({"x": x, "y": y, "a": 1.0})
    with vp.trace() as t:
        before()
        within_ = pipeline.bind({"x": x, "y": y, "a": 1.0})
        within_()
        y.free()
        with pytest.raises(vp.BindingError, match="freed"):
            within_()
    after = pipeline.bind({"x": x, "y": device.upload(np.ones(10, np.float32)), "a": 1.0})
    assert type(after) is type(before)
    refused = [event for event in spans(t.to_json()) if event["args"].get("raised") == "BindingError"]
    assert [event["cat"] for event in refused] in (["launch"], [])
    after()
    device.synchronize()


def test_launches_that_were_bound_before_are_seen_on_a_gpu() -> None:
    device = open_device("cuda")
    pipeline = device.compile_native(axpy("early"))
    x, y = device.upload(np.ones(10, np.float32)), device.upload(np.ones(10, np.float32))
    launch = pipeline.bind({"x": x, "y": y, "a": 1.0})
    with device.trace() as t:
        launch()
        launch()
    launch()
    seen = [event for event in spans(t.to_json()) if event["cat"] == "launch"]
    assert [event["name"] for event in seen] == ["early", "early"], seen
    np.testing.assert_array_equal(y.read(), np.full(10, 4, np.float32))


def test_the_file_is_there_when_the_block_raises(cpu: Device, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def fail() -> None:
        with vp.trace(path):
            assert spans(path.read_text("utf-8")) == []  # valid even if the process ended here
            with pytest.raises(vp.Unsupported):
                cpu.compile_native(axpy(), vp.CompileOptions(codegen="nvvm"))
            cpu.compile_native(axpy())
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        fail()
    events = spans(path.read_text("utf-8"))
    assert [event["args"].get("raised") for event in events if event["name"] == "compile"] == ["Unsupported", None]
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    require_nesting(events)


def test_a_file_that_can_not_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    for wrong in (tmp_path / "absent" / "t.json", tmp_path, str(tmp_path / "a\0b"), "", "\ud800"):
        with pytest.raises(vp.DriverError, match="cannot be written"), vp.trace(wrong):
            pytest.fail("the work began")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for path in (1, b"x", object()):
        with pytest.raises(vp.BindingError, match="path"):
            vp.trace(path)  # type: ignore[arg-type]  # the mistake under test
    for limit in (-1, 1.5, "many", None):
        with pytest.raises(vp.BindingError, match="limit"):
            vp.trace(limit=limit)  # type: ignore[arg-type]  # the mistake under test
    with vp.trace() as t, pytest.raises(vp.BindingError, match="before it begins"):
        t.span("late", "x", 10, 5)
    with pytest.raises(vp.DriverError, match="runs once"), t:
        pytest.fail("it ran again")


def test_a_bounded_trace_drops_and_counts(cpu: Device, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    before = cpu.telemetry.overflows
    with vp.trace(path, limit=3) as t:
        for number in range(10):
            t.span(f"s{number}", "x", perf_counter_ns(), perf_counter_ns())
        cpu.upload(np.ones(3))
    assert len(t) == 3 and t.dropped == 8 and cpu.telemetry.overflows == before + 1
    assert [event["name"] for event in spans(path.read_text("utf-8"))] == ["s0", "s1", "s2"]
    assert json.loads(path.read_text("utf-8"))["otherData"] == {"dropped": "8", "limit": "3"}
    with vp.trace(limit=0) as none:
        cpu.upload(np.ones(3))
    assert len(none) == none.dropped == 0 and cpu.telemetry.overflows == before + 1


def test_the_bound_holds_under_threads() -> None:
    def fill() -> None:
        for _ in range(500):
            t.span("s", "x", perf_counter_ns(), perf_counter_ns())

    with vp.trace(limit=1000) as t:
        threads = [threading.Thread(target=fill, name=f"filler {number}") for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(t) == 1000 and t.dropped == 1000


def test_spans_of_devices_have_tracks_of_their_own() -> None:
    with vp.trace() as t:
        now = perf_counter_ns()
        args = {"elements": 10**30, "share": 0.5, "none": None, "nan": math.nan, "odd": object(), "text": 'a "b" \ud800', "yes": True}
        t.span("kernel", "device", now + 100, now + 300, "cuda:0 compute", args)
        t.span("copy", "device", now + 200, now + 400, "cuda:0 copy")
        t.span("host", "x", now + 150, now + 500)
        t.span("kernel", "device", now - 10**12, now + 50, "cuda:0 compute")  # from before the trace: cut off
        t.span("old", "device", now - 10**12, now - 10**11, "cuda:0 compute")
    events = spans(t.to_json())
    assert [(e["name"], e["track"]) for e in events] == [
        ("kernel", "cuda:0 compute"), ("copy", "cuda:0 copy"), ("host", threading.current_thread().name), ("kernel", "cuda:0 compute"),
    ]  # fmt: skip
    assert len({e["tid"] for e in events}) == 3 and [e["end"] - e["begin"] for e in events[:3]] == [200, 200, 350]
    assert events[3]["begin"] == 0
    assert events[0]["args"]["elements"] == 10**30 and events[0]["args"]["share"] == 0.5 and events[0]["args"]["yes"] is True
    assert events[0]["args"]["nan"] == "nan" and events[0]["args"]["text"] == 'a "b" \ud800' and events[0]["args"]["none"] is None
    with pytest.raises(vp.BindingError):
        t.span("late", "x", 2, 1)
    t.span("after", "x", perf_counter_ns(), perf_counter_ns())
    assert len(t) == len(events)


def test_threads_have_names_and_nest_on_their_own(cpu: Device) -> None:
    def work() -> None:
        barrier.wait()
        for _ in range(5):
            pipeline.dispatch(arguments())

    pipeline = cpu.compile_native(axpy())
    barrier = threading.Barrier(3)
    with vp.trace() as t:
        threads = [threading.Thread(target=work, name=f"worker {number}") for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = spans(t.to_json())
    require_nesting(events)
    for number in range(3):
        mine = [event["name"] for event in events if event["track"] == f"worker {number}"]
        assert mine.count("dispatch") == 5 and mine.count("upload") == 10 and mine.count("download") == 5 and mine.count("axpy") == 5


def test_traces_overlap_and_keep_to_their_device(cpu: Device) -> None:
    other = open_device("reference")
    outer, inner = vp.trace(), cpu.trace()
    with outer:
        cpu.upload(np.ones(1))
        inner.__enter__()
        cpu.upload(np.ones(2))
        other.upload(np.ones(3))
        vp.compile_native(axpy(), "reference")
    other.upload(np.ones(4))  # the first has ended, the second runs on
    cpu.upload(np.ones(5))
    inner.__exit__(None, None, None)
    sizes = [[event["args"]["bytes"] for event in spans(t.to_json()) if event["name"] == "upload"] for t in (outer, inner)]
    assert sizes == [[8, 16, 24], [16, 40]]
    assert {event["name"] for event in spans(inner.to_json())} == {"upload"}
    assert within(spans(outer.to_json()), "compile", "optimise")


def test_code_for_several_targets_is_shown_once(tmp_path: Path) -> None:
    with vp.trace() as t:
        vp.compile_native(axpy(), ["sm_90", "cpu", "reference"])
    events = spans(t.to_json())
    require_nesting(events)
    names = [event["name"] for event in events]
    assert names.count("check") == 1 and names.count("lower") == 3 and names.count("llvm") == 2 and names.count("compile") == 1
    (whole,) = [event for event in events if event["name"] == "compile"]
    assert whole["args"]["targets"] == "sm_90, cpu, reference"


def test_devices_are_told_when_traces_begin_and_end() -> None:
    class Watching(CpuDevice):
        def __init__(self) -> None:
            self.told: list[bool] = []
            super().__init__(0)

        def _observe(self, on: bool) -> None:
            self.told.append(on)

    early = Watching()
    first, second = vp.trace(), vp.trace()
    with first, second:
        late = Watching()
    assert early.told == [True, False] and late.told == [True, False]
    gone = weakref.ref(late)
    late.close()
    del late
    gc.collect()
    assert gone() is None  # held by no trace
    observe(early)
    assert early.told == [True, False]


# ---- CUDA, over a stand-in for the driver library


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """A device whose kernels double what their first buffer holds."""

    def double(block: bytes) -> None:
        (at,) = struct.unpack_from("<Q", block)
        element = ctypes.c_float.from_address(at)
        element.value *= 2

    installed(monkeypatch, FakeDriver(), double)
    made = CudaDevice(0)
    yield made
    made.close()


TWICE = """program twice(n) workgroup(32) {
  buffer x: f32[n] read_write
  let i = global_id.x
  x[i] = x[i] + x[i]
}"""


def test_native_launches_are_seen_only_while_a_trace_runs(fake: CudaDevice) -> None:
    x = fake.upload(np.ones(1, np.float32))
    launch = fake.compile_native(vp.Program.from_text(TWICE)).bind({"x": x})
    launch()
    with fake.trace() as t:
        launch()
        labelled = fake.compile_native(vp.Program.from_text(TWICE)).bind({"x": x}, config=vp.DispatchConfig(label="second"))
        labelled()
        assert type(labelled) is type(launch)  # as without a trace: what is native stays so
    launch()
    labelled()
    assert x.read().tolist() == [32.0] and fake.telemetry.launches == 5
    events = spans(t.to_json())
    require_nesting(events)
    assert [event["name"] for event in events if event["cat"] == "launch"] == ["twice", "second"]
    assert fake.context.mode.value == 0


def require_device_span(device: Device, pipeline: vp.Pipeline, given: dict[str, Any]) -> None:
    """Fails unless a timed dispatch shows how long the device took, on a track of the device's own."""
    with device.trace() as t:
        timed = pipeline.dispatch_timed(given)
    events = spans(t.to_json())
    (seen,) = [event for event in events if event["cat"] == "device"]
    assert timed.device_ns is not None and seen["end"] - seen["begin"] == timed.device_ns, (seen, timed)
    assert seen["name"] == pipeline.name and device.name in seen["track"], seen
    assert within(events, "dispatch", "upload") or within(events, "dispatch", "driver calls"), events


def test_the_time_of_the_device_is_a_span(fake: CudaDevice) -> None:
    require_device_span(fake, fake.compile_native(vp.Program.from_text(TWICE)), {"x": np.ones(1, np.float32)})


def test_the_time_of_a_gpu_is_a_span() -> None:
    device = open_device("cuda")
    require_device_span(device, device.compile_native(axpy()), arguments(1 << 20))


def test_a_device_opened_during_a_trace_is_seen_at_once(fake: CudaDevice) -> None:
    with vp.trace() as t:
        late = CudaDevice(0)
        x = late.upload(np.ones(1, np.float32))
        launch = late.compile_native(vp.Program.from_text(TWICE)).bind({"x": x})
        launch()
        x.free()
        with pytest.raises(vp.BindingError, match="freed"):
            launch()
        late.close()
        with pytest.raises(vp.DeviceLost):
            launch()
    assert [event["name"] for event in spans(t.to_json()) if event["cat"] == "launch"] == ["twice"]


def test_a_launch_that_fails_during_a_trace_says_so(fake: CudaDevice) -> None:
    x = fake.upload(np.ones(1, np.float32))
    launch = fake.compile_native(vp.Program.from_text(TWICE)).bind({"x": x})
    fake.context.cuda.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with vp.trace() as t, pytest.raises(vp.LaunchError, match="LAUNCH_OUT_OF_RESOURCES"):
        launch()
    (seen,) = [event for event in spans(t.to_json()) if event["cat"] == "launch"]
    assert seen["args"]["raised"] == "LaunchError" and fake.telemetry.launches == 0
    launch()
    assert x.read().tolist() == [2.0] and fake.telemetry.launches == 1


# ---- NVTX


class Recorder(types.ModuleType):
    """A stand-in for the package: what was pushed, and by which thread; a pop takes the last one of its thread."""

    def __init__(self) -> None:
        super().__init__("nvtx")
        self.pushed: list[tuple[str, str, str]] = []
        self.open: dict[int, list[str]] = {}

    def push_range(self, message: str | None = None, color: str = "blue", domain: str | None = None, category: str | None = None) -> None:
        assert message is not None and domain is not None and category is not None
        self.pushed.append((message, domain, category))
        self.open.setdefault(threading.get_ident(), []).append(message)

    def pop_range(self, domain: str | None = None) -> None:
        assert domain == "vyre-py"
        self.open[threading.get_ident()].pop()


def test_nvtx_ranges_are_pushed_and_popped(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "nvtx", recorder)
    with vp.trace(nvtx=True) as t:
        pipeline = cpu.compile_native(axpy("ranged"))
        pipeline.dispatch(arguments())
        with pytest.raises(vp.BindingError):
            pipeline.bind({})
    pipeline.dispatch(arguments())
    assert [name for name, _, _ in recorder.pushed] == ["compile", "load", "dispatch", "upload", "upload", "ranged", "download", "bind"]
    assert {domain for _, domain, _ in recorder.pushed} == {"vyre-py"} and not any(recorder.open.values())
    assert ("ranged", "vyre-py", "launch") in recorder.pushed
    assert {"compile", "dispatch", "bind"} <= {event["name"] for event in spans(t.to_json())}


def test_a_range_that_outlives_its_trace_is_popped(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "nvtx", recorder)
    t = vp.trace(nvtx=True)
    with t:
        running = tracing()
        assert running is not None
        piece = running.range("long", "x")
        piece.__enter__()
    assert recorder.open[threading.get_ident()] == ["long"]
    piece.__exit__(None, None, None)
    assert not any(recorder.open.values()) and len(t) == 0


def test_without_the_package_nvtx_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(vp.DeviceUnavailable, match="pip install nvtx"):
        vp.trace(nvtx=True)
    assert isinstance(vp.trace(), Trace)


def _said_by(code: str, folder: Path, **settings: str) -> str:
    """What a process prints that finds modules in a folder first."""
    environment = child_environment(**settings)
    environment["PYTHONPATH"] = f"{folder}{os.pathsep}{environment['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.strip()


@pytest.mark.parametrize(("value", "expected"), [("1", "vyre-py compile,vyre-py load"), ("0", ""), ("", "")])
def test_the_environment_asks_for_nvtx(value: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(
        "said = []\ndef push_range(message, domain, category): said.append(f'{domain} {message}')\ndef pop_range(domain): pass\n", "utf-8"
    )
    code = (
        "import sys, vyre_py as vp\n"
        "d = vp.device('reference')\n"
        "d.compile_native(vp.Program.from_text('program p() workgroup(1) {\\n}'))\n"
        "print(','.join(getattr(sys.modules.get('nvtx'), 'said', [])), d.telemetry.overflows)"
    )
    assert _said_by(code, tmp_path, VYRE_NVTX=value) == f"{expected} 0".strip()


def test_the_environment_asks_for_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text("raise ImportError('not here')\n", "utf-8")
    code = "import vyre_py as vp\ntry:\n    vp.device('cpu')\nexcept vp.DeviceUnavailable as e:\n    print('pip install nvtx' in str(e))"
    assert _said_by(code, tmp_path, VYRE_NVTX="1") == "True"


# ---- VYRE_TRACE


WORK = f"""
import os, sys, numpy as np, vyre_py as vp
TWICE = {TWICE!r}
def work(name="twice"):
    program = vp.Program.from_text(TWICE.replace("twice", name))
    return vp.device("cpu").compile_native(program).dispatch({{"x": np.ones(4, np.float32)}})["x"]
"""


def traced_process(folder: Path, code: str, name: str = "trace.json", status: int = 0) -> dict[str, list[str]]:
    """Runs code with VYRE_TRACE; gives the names of launches and of stages in each file that is left, by the file's name, numbers as N."""
    environment = child_environment(VYRE_TRACE=name, VYRE_CACHE_LIMIT="0")
    done = subprocess.run([sys.executable, "-c", WORK + code], env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == status, done.stderr
    wanted = {"lower", "dispatch", "twice", "child"}
    files = {re.sub("[0-9]+", "N", path.name): spans(path.read_text("utf-8"), own=False) for path in folder.iterdir()}
    return {name: [event["name"] for event in events if event["name"] in wanted] for name, events in files.items()}


ONE, CHILD = ["lower", "twice", "dispatch"], ["lower", "child", "dispatch"]


@pytest.mark.parametrize(("code", "status"), [("work()", 0), ("work(); 1 // 0", 1), ("work(); sys.exit(3)", 3), ("work(); os.chdir('/')", 0)])
def test_the_environment_asks_for_a_file(code: str, status: int, tmp_path: Path) -> None:
    assert traced_process(tmp_path, code, status=status) == {"trace.json": ONE}


def test_what_is_compiled_ahead_is_in_the_file_of_the_process(tmp_path: Path) -> None:
    code = "vp.compile_native(vp.Program.from_text(TWICE), 'wgsl')"
    assert traced_process(tmp_path, code) == {"trace.json": ["lower"]}
    assert traced_process(tmp_path, "print(vp.__version__)", "none.json").keys() == {"trace.json"}  # nothing was done, so nothing is left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    """Not even within a `with` block that it leaves; what the child does has a file of its own."""
    block = """
work()
with vp.trace("block.json"):
    if not os.fork():
        work()
        sys.exit(0)
    os.wait()
    work("child")
"""
    assert traced_process(tmp_path, block) == {"trace.json": [*ONE, *CHILD], "block.json": CHILD, "trace.N.json": ["twice", "dispatch"]}


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, '-c', os.environ['CODE']], check=True, cwd='/')",
        "with vp.Executor('cpu') as e: e.dispatch(CHILD, {'x': np.ones(1, np.float32)})",
    ],
)
def test_processes_that_are_started_have_files_of_their_own(start: str, tmp_path: Path) -> None:
    code = f"""
import subprocess
CHILD = vp.Program.from_text(TWICE.replace("twice", "child"))
os.environ["CODE"] = {WORK!r} + "work('child')"
work()
{start}
"""
    assert traced_process(tmp_path, code) == {"trace.json": ONE, "trace.N.json": CHILD}
    assert traced_process(tmp_path, code, "t{pid}.json").keys() == {"trace.json", "trace.N.json", "tN.json"}


def test_a_file_of_the_environment_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    code = "\nfor _ in range(2):\n    try: work()\n    except vp.DriverError as error: assert 'cannot be written' in str(error)"
    assert traced_process(tmp_path, code, "absent/trace.json") == {}
