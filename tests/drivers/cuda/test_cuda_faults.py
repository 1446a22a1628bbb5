"""Faults on CUDA: what every status means, a device that a kernel has poisoned, and every driver call made to fail once."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import inject
import numpy as np
import pytest
from axpy import AXPY
from device_kinds import open_device
from fake_cuda import CONTEXT, CUresult
from inject import SCENARIOS, InjectedDriver, Outcome
from tree import PATH, ROOT

import vyre_py as vp
from vyre_py.drivers import cuda
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.events import CudaEvent, Stream
from vyre_py.drivers.cuda.graph.graph import CudaGraph
from vyre_py.drivers.cuda.graph.sequence import CudaSequence
from vyre_py.drivers.cuda.kernels.raw import RawKernel
from vyre_py.drivers.cuda.launch import prepared, small_dispatch
from vyre_py.drivers.cuda.launch.launch import CudaLaunch
from vyre_py.drivers.cuda.launch.pending import CudaPending
from vyre_py.drivers.cuda.memory import transfer
from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import perform
from vyre_py.drivers.cuda.status import STATUSES, UNREACHABLE, failure
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.memory import buffer, host_arrays, ranges
from vyre_py.drivers.memory.arena.arena import Arena
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.store import ResidentStore
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.ir.language.errors import VyreError
from vyre_py.lowering.errors import ToolchainError


def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[InjectedDriver], None]:
    here: list[InjectedDriver] = []  # one after the other, none of which is kept
    for module in (library, cuda):
        monkeypatch.setattr(module, "load", lambda: here[0])

    def put(driver: InjectedDriver) -> None:
        here[:] = [driver]

    return put


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so small that a few kilobytes go every way that gigabytes do, in one thread, so that calls have one order."""
    for module, name, value in (
        (transfer, "_SMALL_BYTES", 4096), (transfer, "_CHUNK_BYTES", 8192), (small_dispatch, "_MAPPED_BYTES", 4096), (prepared, "_OWN_BYTES", 8192),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


# ---------------------------------------------------------------- statuses


def test_every_status_is_explained_or_cannot_come() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    names = {status.name for status in driver.CUresult}
    assert not set(STATUSES) & set(UNREACHABLE), "in both tables"
    assert not names - set(STATUSES) - set(UNREACHABLE), "in neither table"
    # Bindings of other versions lack some, and call them the same.
    assert not (set(STATUSES) | set(UNREACHABLE)) - names or driver.CUDA_VERSION < 13050  # those that later ones added
    assert all(UNREACHABLE.values())


def test_every_row_tells_what_to_do() -> None:
    for name, row in STATUSES.items():
        assert issubclass(row.error, DriverError) and row.meaning and row.cause and row.remedy, name
    ends = {name for name, row in STATUSES.items() if row.error is DeviceLost}
    assert {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_CONTAINED", "CUDA_ERROR_TENSOR_MEMORY_LEAK", "CUDA_ERROR_ASSERT"} <= ends
    assert not {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_READY"} & ends


@pytest.mark.parametrize(
    ("status", "kind"),
    [(2, OutOfMemory), (100, DeviceUnavailable), (700, DeviceLost), (701, LaunchError), (901, LaunchError), (1, LaunchError), (912, LaunchError)],
)
def test_the_class_is_what_the_caller_does_next(status: int, kind: type[DriverError]) -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    error = failure(driver.CUresult(status), "x", LaunchError)
    assert type(error) is kind and error.status == f"{driver.CUresult(status).name} ({status})"


def test_a_status_that_nobody_knows_is_an_error_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = InjectedDriver()
    install(monkeypatch)(driver)
    device = CudaDevice(0)
    launch = bound(device)[0]
    driver.fail["cuLaunchKernel"] = [77]  # a driver that is newer than its bindings
    with pytest.raises(LaunchError, match="status 77"):
        launch()
    launch()
    device.close()


# ---------------------------------------------------------------- a poisoned device


def bound(device: CudaDevice) -> tuple[Any, ...]:
    pipeline = device.compile_native(AXPY)
    x, y = device.upload(inject.ramp(4)), device.upload(np.ones(4, np.float32))
    return pipeline.bind(x=x, y=y, a=1.0), x, y, pipeline


class World:
    """One of everything that a user can hold."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.launch, self.x, self.y, self.pipeline = bound(device)
        self.given = {"x": inject.ramp(4), "y": np.ones(4, np.float32), "a": 2.0}
        self.large = {"x": inject.ramp(100_000), "y": np.ones(100_000, np.float32), "a": 2.0}
        self.pipeline.dispatch(self.given)  # prepared now
        self.pipeline.dispatch(self.large)
        self.flag = device.upload(np.ones(1, np.uint32))
        self.counter = device.allocate(4, vp.u32)
        self.sequence = device.sequence(self.launch, vp.copy_step(self.x, self.y))
        self.graph = device.capture(self.launch)
        self.allocating = device.capture(lambda: device.allocate(4, vp.f32))
        self.allocating()
        self.left = self.allocating.value
        self.loop = device.capture_while(self.flag, device.compile_native(inject.TURN).bind(flag=self.flag, y=self.counter))
        self.pending, self.other_pending = self.pipeline.submit(self.given), self.pipeline.submit(self.given)
        self.event, self.stream = device.record_event(), device.stream()
        self.raw = device.load_ptx(inject.PTX, "raw", [("y", vp.f32, "write")])
        self.artifact = self.pipeline.artifact
        self.plan = vp.plan_arena([vp.ArenaValue("a", (4,), vp.f32)], [vp.ArenaStep((), ("a",))])
        self.arena = device.arena(self.plan)
        self.handle = device.resident.put(inject.ramp(4))
        self.constant = device.constant(inject.ramp(4))
        self.fill_step, self.copy_step = vp.fill_step(self.x, 1.0), vp.copy_step(self.x, self.y)


def awaited(pending: Any) -> Any:
    async def result() -> Any:
        return await pending

    return asyncio.run(result())


# What raises DeviceLost at once. The name's first part is what it is called on.
REFUSED: dict[str, Callable[[World], Any]] = {
    "device.allocate": lambda w: w.device.allocate(4, vp.f32),
    "device.arena": lambda w: w.device.arena(w.plan),
    "device.capture": lambda w: w.device.capture(w.launch),
    "device.capture_while": lambda w: w.device.capture_while(w.flag, w.launch),
    "device.chain": lambda w: w.device.chain([(w.pipeline, {"x": w.x, "y": w.y, "a": 2.0})]),
    "device.compile_native": lambda w: w.device.compile_native(AXPY),
    "device.constant": lambda w: w.device.constant(inject.ramp(4)),
    "device.copy_peer": lambda w: w.device.copy_peer(w.x, w.y),
    "device.copy_strided": lambda w: w.device.copy_strided(w.x, 0, (1,), w.y, 0, (1,), (4,)),
    "device.download": lambda w: w.device.download(w.x),
    "device.download_ranges": lambda w: w.device.download_ranges([(w.x, 0, 2)]),
    "device.load": lambda w: w.device.load(w.artifact),
    "device.preload": lambda w: w.device.preload([w.artifact]),
    "device.load_ptx": lambda w: w.device.load_ptx(inject.PTX, "raw", [("y", vp.f32, "write")]),
    "device.pinned": lambda w: w.device.pinned(4, vp.f32),
    "device.raw": lambda w: w.device.raw,
    "device.record_event": lambda w: w.device.record_event(),
    "device.require_usable": lambda w: w.device.require_usable(),
    "device.sequence": lambda w: w.device.sequence(w.launch),
    "device.stream": lambda w: w.device.stream(),
    "device.streams": lambda w: w.device.streams,
    "device.synchronize": lambda w: w.device.synchronize(),
    "device.trim": lambda w: w.device.trim(),
    "device.upload": lambda w: w.device.upload(inject.ramp(4)),
    "device.upload_ranges": lambda w: w.device.upload_ranges([(w.x, 0, inject.ramp(2))]),
    "device.wait_event": lambda w: w.device.wait_event(w.event),
    "device.warmup": lambda w: w.device.warmup(),
    "device.weights": lambda w: w.device.weights({"w": inject.ramp(4)}),
    "device.wrap": lambda w: w.device.wrap(inject.Shared(1 << 20, 4)),
    "pipeline.bind": lambda w: w.pipeline.bind(x=w.x, y=w.y, a=1.0),
    "pipeline.callable": lambda w: w.pipeline.callable()(x=w.x, y=w.y, a=1.0),
    "pipeline.dispatch": lambda w: w.pipeline.dispatch(w.given),
    "pipeline.dispatch of what is staged": lambda w: w.pipeline.dispatch(w.large),
    "pipeline.dispatch in place": lambda w: w.pipeline.dispatch(w.given, out={"y": np.zeros(4, np.float32)}),
    "pipeline.dispatch of new shapes": lambda w: w.pipeline.dispatch({"x": inject.ramp(9), "y": inject.ramp(9), "a": 2.0}),
    "pipeline.dispatch_timed": lambda w: w.pipeline.dispatch_timed(w.given),
    "pipeline.measure": lambda w: w.pipeline.measure(w.given, 1),
    "pipeline.submit": lambda w: w.pipeline.submit(w.given),
    "launch": lambda w: w.launch(),
    "launch.on": lambda w: w.launch.on(inject.Stream()),
    "buffer.copy_from": lambda w: w.y.copy_from(w.x),
    "buffer.fill": lambda w: w.x.fill(1.0),
    "buffer.read": lambda w: w.x.read(),
    "buffer.read after an event": lambda w: w.x.read(after=w.event),
    "buffer.read of a view": lambda w: w.x[1:3].read(),
    "buffer.read of an arena's": lambda w: w.arena["a"].read(),
    "buffer.read of a constant": lambda w: w.constant.read(),
    "buffer.read of a graph's": lambda w: w.left.read(),
    "buffer.use_on": lambda w: w.x.use_on(inject.Stream()),
    "buffer.write": lambda w: w.x.write(inject.ramp(4)),
    "buffer.__dlpack__": lambda w: w.x.__dlpack__(),
    "graph": lambda w: w.graph(),
    "graph that allocates": lambda w: w.allocating(),
    "graph.on": lambda w: w.graph.on(inject.Stream()),
    "graph.repeat": lambda w: w.graph.repeat(3),
    "graph.set": lambda w: w.graph.set(w.launch, a=3.0),
    "graph.turns": lambda w: w.loop.turns(),
    "graph.update": lambda w: w.graph.update(),
    "loop": lambda w: w.loop(),
    "sequence": lambda w: w.sequence(),
    "fill step": lambda w: w.fill_step(),
    "copy step": lambda w: w.copy_step(),
    "pending.done": lambda w: w.pending.done(),
    "pending.exception": lambda w: w.pending.exception(),
    "pending.result": lambda w: w.pending.result(),
    "pending.result in time": lambda w: w.pending.result(1.0),
    "pending awaited": lambda w: awaited(w.other_pending),
    "event.done": lambda w: w.event.done(),
    "event.wait": lambda w: w.event.wait(),
    "stream.synchronize": lambda w: w.stream.synchronize(),
    "raw.bind": lambda w: w.raw.bind(y=w.y, grid=1, workgroup=1),
    "store.put": lambda w: w.device.resident.put(inject.ramp(4)),
}  # fmt: skip

# What asks nothing of the device, and goes on to answer.
ANSWERS: dict[str, Callable[[World], Any]] = {
    "device.cache_layers": lambda w: w.device.cache_layers(),
    "device.closed": lambda w: w.device.closed,
    "device.lost": lambda w: w.device.lost,
    "device.name": lambda w: (w.device.name, repr(w.device), w.device.limits, w.device.properties),
    "device.resident": lambda w: w.device.resident.snapshot(),
    "device.telemetry": lambda w: w.device.telemetry.snapshot(),
    "device.trace": lambda w: w.device.trace(),
    "pipeline.report": lambda w: (w.pipeline.report, w.pipeline.numerics, w.pipeline.stages, w.pipeline.name, w.pipeline.raw),
    "launch.set": lambda w: w.launch.set(a=1.5),  # an argument changes in memory of the host's
    "launch.raw": lambda w: w.launch.raw,
    "buffer.address": lambda w: (w.x.address, w.x.handle, w.x.host_shape, w.x.__cuda_array_interface__),
    "buffer.reshape": lambda w: (w.x.reshape(2, 2), w.x.view(vp.u32), w.x.as_bytes(), w.x[1:], w.x.overlaps(w.y), w.x.is_like(w.y)),
    "graph.raw": lambda w: w.graph.raw,
    "event.raw": lambda w: w.event.raw,
    "pending.add_done_callback": lambda w: w.pending.add_done_callback(lambda pending: None),
    "pending.cancel": lambda w: w.pending.cancel(),
    "stream.raw": lambda w: w.stream.raw,
    "store.using": lambda w: w.device.resident.using(w.handle).__enter__(),
    "store.get": lambda w: w.device.resident.get(w.handle),
    "store.evict": lambda w: w.device.resident.evict(),
    "graph.close": lambda w: w.graph.close(),
    "graph.close of one that allocates": lambda w: w.allocating.close(),
    "loop.close": lambda w: w.loop.close(),
    "stream.close": lambda w: w.stream.close(),
    "arena.set_actual_len": lambda w: w.arena.set_actual_len("a", 3),
    "arena.set_shapes": lambda w: w.arena.set_shapes({"a": (2,)}),
    "arena.free": lambda w: w.arena.free(),
    "buffer.free": lambda w: (w.x.free(), w.y.free()),
    "device.close": lambda w: w.device.close(),
}  # fmt: skip

# Public names that are neither: what has no call of its own, and what is for other modules of the driver.
PLAIN = {
    CudaDevice: (
        "dlpack_device ends_kernels honoured_options is_software keep kind launch_amounts load_wgsl loop_module lose observes_launches reads_grids reopens "
        "require_no_capture sizes_are_words takes_wide use_on gemm forked arenas"
    ),
    Pipeline: "artifact device part",
    CudaLaunch: "c_address counted inner kernel plan",
    Buffer: "allocation device offset_bytes readonly shape size_bytes type",
    CudaGraph: "conditional device nodes value",
    CudaSequence: "device steps take",
    CudaPending: "cancelled running set_exception set_result set_running_or_notify_cancel title",
    CudaEvent: "device",
    Stream: "device priority",
    RawKernel: "raw",
    ResidentStore: "budget_bytes clear drop forked",
    Arena: "allocation device freed plan size_bytes",
}  # fmt: skip


def test_the_tables_name_every_public_call() -> None:
    said = " ".join([*REFUSED, *ANSWERS])
    groups = {"address": "handle host_shape", "reshape": "view as_bytes is_like overlaps", "report": "name numerics raw stages", "resident": "snapshot"}
    for alias, names in groups.items():
        said += f" .{names.replace(' ', ' .')}" if f".{alias}" in said else ""
    words = set(said.replace(".", " ").split())
    for kind, plain in PLAIN.items():
        public = {name for name in dir(kind) if not name.startswith("_")} - {"travels_as", "belongs_to"}
        assert not public - words - set(plain.split()), f"{kind.__name__} has public names that no table has"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, InjectedDriver]]:
    driver = InjectedDriver(total=1 << 26)
    driver.kernels = dict(inject.KERNELS)
    install(monkeypatch)(driver)
    device = CudaDevice(0)
    yield World(device), driver
    device.close()


def poison(made: World, driver: InjectedDriver) -> None:
    """From the next call on nothing works; this one notices."""
    driver.at, driver.status, driver.then = driver.made_calls, inject.poisoned_later, inject.poisoned_later
    with pytest.raises(DeviceLost, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        made.device.synchronize()


def test_a_poisoned_device_refuses_all_calls_at_once(world: Any) -> None:
    made, driver = world
    poison(made, driver)
    driver.log.clear()
    wrong = []
    for name, call in REFUSED.items():
        try:
            given = call(made)
        except DeviceLost as error:
            if "first cause was: cuda:0 failed while it ran: CUDA_ERROR_ILLEGAL_ADDRESS (700)" not in str(error):
                wrong.append(f"{name} does not tell the first cause: {error}")
        except BaseException as error:  # noqa: BLE001 - whatever it is, the table says so
            wrong.append(f"{name} raised {error!r}")
        else:
            wrong.append(f"{name} gave {given!r}")
        if driver.log:
            wrong.append(f"{name} asked the driver: {driver.log}")
            driver.log.clear()
    assert not wrong, "\n".join(wrong)


def test_what_asks_nothing_of_a_poisoned_device_answers(world: Any) -> None:
    made, driver = world
    poison(made, driver)
    for call in ANSWERS.values():
        call(made)
    made.__dict__.clear()
    gc.collect()
    assert not driver.left()


def test_a_device_that_does_not_answer_is_left_alone(world: Any) -> None:
    """Behind a kernel that never ends any call could wait for ever, and so could closing."""
    made, driver = world
    error = made.device.lose("it hangs")
    assert isinstance(error, DeviceLost)
    driver.log.clear()
    for call in REFUSED.values():
        with pytest.raises(DeviceLost, match="first cause was: it hangs"):
            call(made)
    for call in ANSWERS.values():
        call(made)
    made.__dict__.clear()
    gc.collect()
    assert not driver.log


# Whatever is asked first after a kernel has failed gets the status, and everything after that the first cause.
NOTICED: dict[str, Callable[[World], Any]] = {
    "launch": lambda w: w.launch(),
    "sequence": lambda w: w.sequence(),
    "graph": lambda w: w.graph(),
    "graph that allocates": lambda w: w.allocating(),
    "repeat": lambda w: w.allocating.repeat(2),
    "update": lambda w: w.graph.set(w.launch, a=9.0),
    "event": lambda w: w.event.done(),
    "stream": lambda w: w.stream.synchronize(),
    "pending": lambda w: w.pending.done(),
    "copy": lambda w: w.y.copy_from(w.x),
    "strided": lambda w: w.device.copy_strided(w.x, 3, (-1,), w.y, 0, (1,), (4,)),
    "read": lambda w: w.x.read(),
    "dispatch": lambda w: w.pipeline.dispatch(w.given),
    "staged dispatch": lambda w: w.pipeline.dispatch(w.large),
    "timed dispatch": lambda w: w.pipeline.dispatch_timed(w.given),
    "submit": lambda w: w.pipeline.submit(w.given),
    "load": lambda w: w.device.load(vp.compile_native(inject.LOOP, "compute_90")),
    "trim": lambda w: w.device.trim(),
}


@pytest.mark.parametrize("name", NOTICED)
def test_any_call_notices(world: Any, name: str) -> None:
    made, driver = world
    driver.at, driver.status, driver.then = driver.made_calls, inject.poisoned_later, inject.poisoned_later
    with pytest.raises(DeviceLost, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        NOTICED[name](made)
    assert made.device.lost
    driver.log.clear()
    with pytest.raises(DeviceLost, match=r"first cause was: .*CUDA_ERROR_ILLEGAL_ADDRESS"):
        made.launch()
    assert not driver.log


# What goes away quietly notices too.
QUIET = {
    "memory": (lambda w: setattr(w.device.memory, "keep_bytes", 0), lambda w: w.counter.free()),
    "graph": (lambda w: None, lambda w: w.__dict__.pop("graph") and None),
    "memory of a graph": (lambda w: w.__dict__.pop("allocating") and None, lambda w: w.__dict__.pop("left") and None),
    "pending": (lambda w: None, lambda w: w.__dict__.pop("pending") and None),
    "memory of another library": (lambda w: setattr(w, "wrapped", w.device.wrap(inject.Shared(w.y.address, 4))), lambda w: w.wrapped.free()),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_a_finaliser_notices(world: Any, name: str) -> None:
    made, driver = world
    before, quiet = QUIET[name]
    before(made)
    driver.at, driver.status, driver.then = driver.made_calls, inject.poisoned_later, inject.poisoned_later
    quiet(made)
    gc.collect()
    assert made.device.lost
    with pytest.raises(DeviceLost, match=r"first cause was: .*CUDA_ERROR_ILLEGAL_ADDRESS"):
        made.device.require_usable()


def test_a_library_that_fails_does_not_hide_a_poisoned_device(world: Any) -> None:
    """cuBLASLt has statuses of its own, none of which says that the context is gone."""
    made, driver = world
    context = made.device.context
    call = Call(context.function("cuStreamSynchronize"), (int(context.stream),))

    def work() -> None:
        perform(made.device, (call,), "a product", lambda index, status, doing: LaunchError(doing, status=f"its own ({status})"))

    driver.fail["cuStreamSynchronize"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(LaunchError, match="its own"):
        work()
    driver.fail["cuStreamSynchronize"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    driver.fail["cuStreamQuery"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(DeviceLost, match="a product: CUDA_ERROR_ILLEGAL_ADDRESS"):
        work()
    assert made.device.lost


# ---------------------------------------------------------------- another context, or none, is current

# What another library works with in this thread.
OTHER = 55
# What the driver refuses there, for a native list to be gone on with in the context.
TRIED = {
    "cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemsetD32Async",
    "cuMemsetD8Async", "cuGraphExecKernelNodeSetParams", "cuGraphKernelNodeSetParams",
}  # fmt: skip


@pytest.mark.parametrize("current", [OTHER, 0])
def test_every_call_leaves_the_current_context_as_it_was(world: Any, current: int) -> None:
    """Where none was current, a call may leave the device's, so that later ones need not change it again; a finaliser may not."""
    made, driver = world
    made.device.memory.keep_bytes = made.device.pinned_pool.keep_bytes = 0  # what is given back goes at once
    wrong = []
    for name, call in {**REFUSED, **ANSWERS}.items():
        driver.elsewhere.clear()
        driver.current.context = current
        try:
            given = call(made)
        except VyreError:
            given = None
        if driver.current.context not in (current, current or CONTEXT):
            wrong.append(f"{name} left {driver.current.context}")
        if set(driver.elsewhere) - TRIED:
            wrong.append(f"{name} made {set(driver.elsewhere) - TRIED} in another context")
        driver.elsewhere.clear()
        driver.current.context = current
        del given
        gc.collect()
        if driver.current.context != current or driver.elsewhere:
            wrong.append(f"what {name} gave left {driver.current.context} when it went, and made {driver.elsewhere} in another context")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("current", [OTHER, 0])
def test_every_finaliser_leaves_the_current_context_as_it_was(world: Any, current: int) -> None:
    made, driver = world
    made.device.memory.keep_bytes = made.device.pinned_pool.keep_bytes = 0
    made.pipeline.bind(x=made.x, y=made.y, a=1.0).on(inject.Stream())  # memory that streams of others use is given back in order with those
    made.words = made.device.compile_native(inject.LOOP, vp.CompileOptions(interruptible=True)).bind(y=made.counter).on(inject.Stream(46))
    made.pinned, made.wrapped = made.device.pinned(9, vp.f32), made.device.wrap(inject.Shared(made.y.address, 4))
    made.capsule = made.x.__dlpack__(stream=7)
    made.device.trim()
    wrong = []
    device = made.device
    for name in [*made.__dict__, "close"]:
        driver.current.context = current
        made.__dict__.pop(name, None)
        if name == "close":
            device.close()
        gc.collect()
        if driver.current.context != current or driver.elsewhere:
            wrong.append(f"{name} left {driver.current.context} when it went, and made {driver.elsewhere} in another context")
            driver.elsewhere.clear()
    assert not wrong and not driver.left(), "\n".join(wrong)


# ---------------------------------------------------------------- within a capture


@pytest.mark.parametrize("name", [*REFUSED, *ANSWERS])
def test_no_call_breaks_a_capture(world: Any, name: str) -> None:
    """Each is refused by name, becomes part of the graph, or is made beside it: none makes a driver call that would end the capture."""
    made, driver = world
    made.stale = made.pipeline.bind(x=made.x, y=made.device.upload(inject.ramp(4)), a=1.0)
    made.copy = made.device.allocate(4, vp.f32)
    call = {**REFUSED, **ANSWERS}[name]
    foreign: list[BaseException] = []

    def recorded() -> None:
        made.stale()
        del made.stale  # what finalisers do comes within it as well
        made.copy.free()
        try:
            call(made)
        except VyreError as error:
            if not isinstance(error, (LaunchError, BindingError)):
                foreign.append(error)
        gc.collect()

    made.device.capture(recorded)
    assert not driver.misuse and not foreign, foreign
    if not made.device.closed:
        made.device.synchronize()


# ---------------------------------------------------------------- every call fails once

# Where a failure comes to nothing, and why that is right: the function that makes the call.
SILENT = {
    "properties._loaded": "the probe is loaded, and that is all that was to be known",
    "memory._make_pool": "virtual GPUs report pools that they don't give",
    **dict.fromkeys(("memory._try", "relief.attempt"), "it is asked again after memory was given back"),
    "pinned._make": "a dispatch that cannot be prepared goes the general way",
    "transfer._is_pinned": "memory that the driver does not know is not pinned",
    "pinned._collect": "it is asked again later",
    **dict.fromkeys(
        [f"foreign_streams.{name}" for name in ("_is_captured", "after", "join", "wait", "leave")], "a stream of others may be gone: the host waits"
    ),
    **dict.fromkeys(("memory._put_back", "memory._ordered"), "the memory is kept until it can be ordered"),
    **dict.fromkeys(("memory._return", "memory._give_driver", "pinned._unpin", "module._unload", "kernel_flags.close"), "what is given back is given back"),
    **dict.fromkeys(("executables.drop", "executables.destroy", "waiting._destroy", "streams._destroy"), "what is given back is given back"),
    "pending._release": "a finaliser, which waits on the host instead",
    "context.finish": "the next call says what went wrong",
    **dict.fromkeys(("device._close", "memory.close", "context.close"), "closing is quiet"),
    "context.visited": "a finaliser does what it can",
    "context.is_current": "the context is made current in any case",
    "context.relaxed": "the thread's capture mode stays relaxed",
    "recorder.node_count": "the count of nodes is for people",
    "recorder.record": "the captured function's own error is raised",
    "graph._instantiate": "the first replay uploads the graph",
    "graph_memory.now": "a gauge says what is known",
    "call_list.resume": "where a graph can't be changed in place it is made anew",
    "loop.has_loops": "the host repeats the graph instead",
    "raw._check": "it is how the driver says that there are no more parameters",
}  # fmt: skip


def judged(found: Outcome, driver: InjectedDriver) -> None:
    """What is wrong with the outcome of a call that failed."""
    error, status = found.error, driver.failed_status
    if status is None:
        return  # in another order than before, some other call was made at this place
    if error is None:
        if driver.place not in SILENT and found.name:
            found.wrong.append(f"silent in {driver.place}, which SILENT does not explain")
        return
    if status.name not in str(error) and driver.place not in SILENT:
        found.wrong.append(f"the error does not name {status.name}; it came of {driver.place}")
    wanted: Any = {CUresult.CUDA_ERROR_OUT_OF_MEMORY: OutOfMemory, CUresult.CUDA_ERROR_ILLEGAL_ADDRESS: DeviceLost}.get(status, (DriverError, ToolchainError))
    if not isinstance(error, wanted) and driver.place not in SILENT:
        found.wrong.append(f"not a {wanted}; it came of {driver.place}")


def lost_by(found: Outcome, driver: InjectedDriver) -> None:
    """The same where the context is gone: the device says so from then on."""
    judged(found, driver)
    if not isinstance(found.error, (DeviceLost, type(None))):
        found.wrong.append(f"not DeviceLost; it came of {driver.place}")
    if found.error is None and found.opened and not found.lost and not found.closing:
        found.wrong.append(f"nobody noticed in {driver.place}")


WAYS = {
    "once": (inject.refused, lambda name: None, judged),
    "from then on": (inject.exhausted, inject.exhausted, judged),
    "poisoned": (inject.poisoned_later, inject.poisoned_later, lost_by),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_driver_call_fails(monkeypatch: pytest.MonkeyPatch, small: None, scenario: str, way: str) -> None:
    status, then, judge = WAYS[way]
    wrong = inject.sweep(SCENARIOS[scenario], install(monkeypatch), status, then, judge)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", WAYS)
def test_each_driver_call_fails_without_pools(monkeypatch: pytest.MonkeyPatch, small: None, way: str) -> None:
    installed = install(monkeypatch)

    def put(driver: InjectedDriver) -> None:
        driver.attributes["MEMORY_POOLS_SUPPORTED"] = 0
        installed(driver)

    status, then, judge = WAYS[way]
    wrong = inject.sweep(SCENARIOS["memory"], put, status, then, judge)
    assert not wrong, "\n".join(wrong)


def transfers(device: CudaDevice) -> None:
    """Large arrays, which several threads copy."""
    x = device.upload(inject.ramp(20_000))
    inject.expect(x.read(), inject.ramp(20_000))
    pipeline = device.compile_native(AXPY)
    given = {"x": inject.ramp(20_000), "y": np.ones(20_000, np.float32), "a": 1.0}
    inject.expect(pipeline.dispatch(given, out={"y": np.empty(20_000, np.float32)})["y"], inject.ramp(20_000) + 1)


@pytest.mark.parametrize("way", ["once", "poisoned"])
def test_each_driver_call_fails_in_threads(monkeypatch: pytest.MonkeyPatch, small: None, way: str) -> None:
    monkeypatch.setattr(transfer, "_THREADED_BYTES", 16384)
    monkeypatch.setattr(transfer, "_THREADED_CHUNK_BYTES", 4096)
    monkeypatch.setattr(transfer, "core_count", lambda: 4)
    status, then, judge = WAYS[way]
    wrong = inject.sweep(transfers, install(monkeypatch), status, then, judge)
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- no memory on the host


def full(shape: Any, *arguments: Any) -> Any:
    """A host without memory."""
    if np.prod(shape):
        raise MemoryError("no room")
    return np.zeros(shape, *arguments)


@pytest.mark.parametrize("module", [buffer, ranges])
def test_no_host_memory_for_a_result(world: Any, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    made, _ = world
    before = made.device.telemetry.snapshot()
    calls = {buffer: made.x.read, ranges: lambda: made.device.download_ranges([(made.x, 0, 3)])}
    with monkeypatch.context() as without:
        without.setattr(module, "np", SimpleNamespace(**{**vars(np), "empty": full}))
        with pytest.raises(OutOfMemory, match="the host has too little free memory for the result"):
            calls[module]()
    calls[module]()
    change = made.device.telemetry.snapshot() - before
    assert change["downloads"] == 1 and made.device.context.busy.value == 0
    assert host_arrays.no_memory("x", MemoryError()).meaning


def test_no_host_memory_for_the_results_of_a_dispatch(world: Any) -> None:
    made, _ = world

    class Full(np.ndarray):  # type: ignore[type-arg]  # any element will do
        def copy(self, *arguments: Any) -> Any:
            raise MemoryError("no room")

    (idle,) = [row.idle for row in made.pipeline._prepared.sets.values() if row.idle and 4 in row.idle[0]._views["y"].shape]
    views = idle[0]._views
    plain = views["y"]
    views["y"] = plain.view(Full)
    with pytest.raises(OutOfMemory, match="for the result"):
        made.pipeline.dispatch(made.given)
    views["y"] = plain
    assert np.array_equal(made.pipeline.dispatch(made.given)["y"], [1, 3, 5, 7])


# ---------------------------------------------------------------- on a GPU

# A kernel that stores to address 16. It is raw code: what this compiler writes does not do that.
FAULT = r"""
import sys, time
sys.path[:0] = {path!r}
import numpy as np
import inject
import vyre_py as vp
import test_cuda_faults as table
from vyre_py.drivers.errors import DeviceLost

PTX = '''
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault(.param .u64 at)
{{
    .reg .b64 %at;
    .reg .b32 %v;
    ld.param.u64 %at, [at];
    mov.u32 %v, 1;
    st.global.u32 [%at], %v;
    ret;
}}
'''
inject.PTX = '''
.version 7.0
.target sm_70
.address_size 64
.visible .entry raw(.param .u64 y)
{{
    ret;
}}
'''
device = vp.device("cuda")
made = table.World(device)
device.synchronize()
device.load_ptx(PTX, "fault", [("at", vp.u64)]).bind(at=16, grid=1, workgroup=1)()
try:
    device.synchronize()
    print("the fault went unnoticed")
except DeviceLost as error:
    print("first:", str(error).splitlines()[0])
for name, call in table.REFUSED.items():
    begin = time.perf_counter()
    try:
        call(made)
        print("WRONG", name, "gave something")
    except DeviceLost as error:
        took = time.perf_counter() - begin
        if "first cause was" not in str(error):
            print("WRONG", name, "does not tell the first cause:", error)
        if took > 0.1:  # ten times what is promised, for a busy machine
            print("WRONG", name, "took", took)
    except BaseException as error:
        print("WRONG", name, repr(error))
for name, call in table.ANSWERS.items():
    try:
        call(made)
    except BaseException as error:
        print("WRONG", name, "raised", repr(error))
print("slept over")
"""


def test_a_kernel_that_faults() -> None:
    """In a process of its own, which it ends the device of. What was bound, captured and pending before is refused at once."""
    open_device("cuda")
    code = textwrap.dedent(FAULT).format(path=PATH)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and not done.stderr, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert said[0].startswith("first: ") and "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in said[0], said
    assert said[1:] == ["slept over"], "\n".join(said)


def test_a_fault_under_a_pending_result_a_graph_and_an_event() -> None:
    """Each is asked first, in a process of its own: it gives DeviceLost with the driver's status."""
    open_device("cuda")
    head, _, _ = textwrap.dedent(FAULT).partition("try:\n    device.synchronize()")
    for name in ("graph", "event", "pending", "read", "dispatch"):
        rest = f"try:\n    table.NOTICED[{name!r}](made)\n    device.synchronize()\nexcept DeviceLost as error:\n    print('ILLEGAL_ADDRESS' in str(error))\n"
        code = (head + rest).format(path=PATH)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", ""), f"{name}: {done}"
