"""Faults by injection: a stand-in for the CUDA driver that counts its calls and makes one of them fail, and scenarios that use all of a device.

A scenario is run once to count its calls, and then once for each of them, which fails once, or from then on. Each time it says what became of it:
an error of the right class or none, what is left over, and whether the device works as before.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
from axpy import AXPY, axpy_kernel
from fake_cuda import OK, CUresult
from fake_graphs import FakeGraphDriver

import vyre_py as vp
from vyre_py.drivers.cache.lookup import compiled
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.errors import DeviceLost
from vyre_py.ir.check import check
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.target import Target

# Calls that give something back. Failing, they have done so: what they give is the status of work before them.
RELEASES = {
    "cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuModuleUnload", "cuStreamDestroy", "cuEventDestroy", "cuGraphDestroy", "cuGraphExecDestroy",
    "cuMemPoolDestroy", "cuDevicePrimaryCtxRelease", "cuStreamEndCapture",
}  # fmt: skip
# Calls that run out of memory rather than refuse their arguments.
ALLOCATES = {
    "cuMemAlloc", "cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuStreamCreate", "cuStreamCreateWithPriority", "cuEventCreate", "cuModuleLoadDataEx",
    "cuGraphInstantiate", "cuDevicePrimaryCtxRetain", "cuGraphCreate",
}  # fmt: skip
# Calls that go on to work in a context that a kernel has poisoned.
UNSPOILED = {
    "cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceTotalMem",
    "cuDeviceCanAccessPeer", "cuDevicePrimaryCtxRetain", "cuGetProcAddress", "cuCtxSetCurrent", "cuCtxGetCurrent",
}  # fmt: skip


def caller() -> str:
    """Which function of the driver's modules makes a call: its module and name."""
    frame: Any = sys._getframe(1)
    while frame is not None and ("drivers/cuda" not in frame.f_code.co_filename or frame.f_code.co_name.startswith("<")):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


class _Judged:
    """A call of the driver as an attribute of its class, since a look at every attribute would take longer than all that is looked for. A test may put
    another in the place of an instance's."""

    def __init__(self, name: str, plain: Callable[..., tuple[Any, ...]]) -> None:
        self.name, self.plain = name, plain

    def __get__(self, driver: InjectedDriver | None, owner: type) -> Callable[..., tuple[Any, ...]]:
        if driver is None:
            return self.plain
        found = driver.replaced.get(self.name) or MethodType(self.plain, driver)

        def call(*arguments: Any) -> tuple[Any, ...]:
            with driver.turn:  # the real driver's calls may be made by several threads at once
                return driver.judge(self.name, found, arguments)

        return call

    def __set__(self, driver: InjectedDriver, other: Callable[..., tuple[Any, ...]]) -> None:
        driver.replaced[self.name] = other


class InjectedDriver(FakeGraphDriver):
    """The stand-in, with every handle counted and a call that fails: number `at` gives `status(name)`, and `then` says what later calls give, by name.

    `made` counts calls. Once a call has given a status that ends the context, all do that the real driver would have do so.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made_calls = 0
        self.at = -1
        self.status: Callable[[str], Any] = lambda name: None
        self.then: Callable[[str], Any] = lambda name: None
        self.failed = self.place = ""
        self.failed_status: Any = None
        self.widths: dict[str, int] = {}
        self.contexts: Counter[int] = Counter()
        self.turn = threading.RLock()
        self.replaced: dict[str, Callable[..., tuple[Any, ...]]] = {}

    __getattribute__ = object.__getattribute__

    def judge(self, name: str, found: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Makes a call, or has it fail."""
        number, self.made_calls = self.made_calls, self.made_calls + 1
        self.log.append(name)
        if number == self.at:
            self.failed, self.failed_status, self.place = name, self.status(name), caller()
            given = self.failed_status
        else:
            given = self.then(name) if 0 <= self.at < number else None
        if given is None:
            waiting = self.fail.get(name)
            given = (waiting.pop(0) if waiting else None) or self.refusal(name)
        if not given:
            result: tuple[Any, ...] = found(*arguments)
            self.widths[name] = len(result)
            return result
        if name in ("cuStreamEndCapture", "cuStreamUpdateCaptureDependencies"):
            self.broken, self.unordered = True, type(self.unordered)()
        if name in RELEASES:
            found(*arguments)
        return (given, *[None] * (self.widths.get(name, 1) - 1))

    # ---- what the plain stand-in leaves uncounted

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        self.contexts[device] += 1
        return *OK, 77

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple[Any, ...]:
        self.contexts[device] -= 1
        assert self.contexts[device] >= 0, "the context is released more often than it was retained"
        return OK

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: Any, values: Any) -> tuple[Any, ...]:
        result = super().cuModuleLoadDataEx(image, count, options, values)
        return result if result[0] else self.made("module")

    def cuMemPoolCreate(self, properties: Any) -> tuple[Any, ...]:
        return self.made("pool")

    def cuMemPoolDestroy(self, pool: int) -> tuple[Any, ...]:
        return self.destroyed(pool)

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return OK

    def left(self) -> dict[str, Any]:
        """What was not given back."""
        left = {
            "device memory": len(self.blocks), "pinned memory": len(self.pinned), "handles": sorted(self.alive_handles.values()),
            "contexts": sum(self.contexts.values()), "captures": len(self.capturing), "memory of graphs": len(self.graph_memory) + len(self.limbo),
        }  # fmt: skip
        return {what: amount for what, amount in left.items() if amount}


for _name in [name for name in dir(InjectedDriver) if name.startswith("cu")]:
    setattr(InjectedDriver, _name, _Judged(_name, getattr(InjectedDriver, _name)))


def refused(name: str) -> Any:
    """What a call gives that fails once."""
    return CUresult.CUDA_ERROR_OUT_OF_MEMORY if name in ALLOCATES else CUresult.CUDA_ERROR_INVALID_VALUE


def poisoned(name: str) -> Any:
    """What a call gives in a context that a kernel has ended."""
    return CUresult.CUDA_ERROR_ILLEGAL_ADDRESS


def poisoned_later(name: str) -> Any:
    """What later calls give there."""
    return None if name in UNSPOILED else CUresult.CUDA_ERROR_ILLEGAL_ADDRESS


def exhausted(name: str) -> Any:
    """What a call gives on a machine without memory."""
    return CUresult.CUDA_ERROR_OUT_OF_MEMORY if name in ALLOCATES else None


# ---------------------------------------------------------------- scenarios

# The flag counts down to zero: a loop's body, and a fixpoint's.
TURN = parse("""program turn(n) workgroup(64) over(n) {
  buffer flag: u32[1] read_write
  buffer y: u32[n] read_write
  let i = global_id.x
  y[i] = y[i] + 1
  if i == 0 { flag[0u32] = flag[0u32] - 1 }
}""")
LOOP = parse("""program sums(n) workgroup(32) {
  buffer y: u32[n] read_write
  for k in 0u32..4u32 { y[global_id.x] = y[global_id.x] + k }
}""")
PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry raw(.param .u64 y)\n{\n ret;\n}\n"
SMALL, LARGE = 100, 3000


def turn_kernel(block: bytes) -> None:
    flag_at, y_at, n = struct.unpack_from("<QQI", block)
    flag, y = ctypes.c_uint32.from_address(flag_at), np.ctypeslib.as_array((ctypes.c_uint32 * n).from_address(y_at))
    y += 1
    flag.value -= 1


KERNELS = {"vyre_axpy": axpy_kernel, "vyre_turn": turn_kernel, "raw": lambda block: None, "vyre_sums": lambda block: None}


class Stream:
    """A stream of another library."""

    def __init__(self, handle: int = 42) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def ramp(count: int) -> Any:
    return np.arange(count, dtype=np.float32)


def expect(given: Any, wanted: Any) -> None:
    """Results are right whatever failed, unless there is an error."""
    assert np.array_equal(given, wanted), f"wrong results: {given} instead of {wanted}"


def memory(device: CudaDevice) -> None:
    """Buffers, transfers of all sizes, copies, fills, ranges, pinned memory, constants, arenas, the resident store."""
    for count in (SMALL, LARGE):
        x, y = device.upload(ramp(count)), device.allocate(count, vp.f32)
        y.copy_from(x)
        x.fill(2.0)
        expect(y.read(), ramp(count))
        expect(x[1:].read(), np.full(count - 1, 2.0, np.float32))
        y.write(ramp(count)[::-1])
        device.copy_strided(y, count - 1, (-1,), x, 0, (1,), (count,))
        device.upload_ranges([(y, 0, ramp(10)), (y, 10, ramp(10)), (x, 5, ramp(3))])
        first, second = device.download_ranges([(y, 0, 10), (y, 10, 20)])
        expect(np.concatenate([first, second]), np.concatenate([ramp(10), ramp(10)]))
        y.free()
    out = device.pinned(LARGE, vp.f32)
    x.write(out)
    x.read(out)
    with_constant = device.constant(ramp(SMALL))
    expect(device.constant(ramp(SMALL)).read(), ramp(SMALL))
    handle = device.resident.put(ramp(SMALL), evictable=True)
    with device.resident.using(handle) as (kept,):
        kept.copy_from(with_constant)
    device.resident.drop(handle)
    plan = vp.plan_arena([vp.ArenaValue("a", (SMALL,), vp.f32), vp.ArenaValue("b", (SMALL,), vp.f32)], [vp.ArenaStep(("a",), ("b",))], inputs=("a",))
    arena = device.arena(plan)
    arena["b"].write(ramp(SMALL))
    arena.free()
    device.synchronize()


def dispatches(device: CudaDevice) -> None:
    """Dispatches of host arrays: small, staged and large, in place, timed, submitted, dropped, to a fixpoint."""
    axpy, turn = device.compile_native(AXPY), device.compile_native(TURN)
    for count in (SMALL, LARGE):
        given = {"x": ramp(count), "y": np.ones(count, np.float32), "a": 2.0}
        for _ in range(2):
            expect(axpy.dispatch(given)["y"], 2 * ramp(count) + 1)
        out = np.zeros(count, np.float32)
        expect(axpy.dispatch(given, out={"y": out})["y"], 2 * ramp(count) + 1)
        expect(axpy.dispatch_timed(given).results["y"], 2 * ramp(count) + 1)
        pending = axpy.submit(given)
        axpy.submit(given)
        pending.done()
        expect(pending.result(10.0)["y"], 2 * ramp(count) + 1)
    x = device.upload(ramp(SMALL))
    expect(axpy.dispatch({"x": x, "y": np.ones(SMALL, np.float32), "a": 1.0})["y"], ramp(SMALL) + 1)
    expect(turn.dispatch({"flag": np.full(1, 1, np.uint32), "y": np.zeros(SMALL, np.uint32)})["y"], np.ones(SMALL))


def launches(device: CudaDevice) -> None:
    """Bound launches, what is set, streams, events, sequences, raw code."""
    pipeline = device.compile_native(AXPY)
    x, y, z = device.upload(ramp(SMALL)), device.upload(np.ones(SMALL, np.float32)), device.allocate(SMALL, vp.f32)
    launch, other = pipeline.bind(x=x, y=y, a=2.0), pipeline.bind(x=x, y=z, a=1.0)
    launch()
    launch.set(a=1.0)()
    sequence = device.sequence(launch, vp.copy_step(y, z), other, vp.fill_step(y, 3.0))
    sequence()
    sequence()
    after = device.record_event()
    other()
    expect(y.read(after=after), np.full(SMALL, 3.0, np.float32))
    with device.stream(-1) as stream:
        event = device.record_event(stream)
        device.wait_event(event)
        event.done()
        event.wait()
        stream.synchronize()
    moved = pipeline.bind(x=x, y=y, a=0.0)
    moved.on(Stream())()
    moved.set(y=z)
    expect(y.read(), np.full(SMALL, 3.0, np.float32))
    raw = device.load_ptx(PTX, "raw", [("y", vp.f32, "write")])
    raw.bind(y=y, grid=1, workgroup=32)()
    device.synchronize()


def graphs(device: CudaDevice) -> None:
    """Captures, replays, updates, loops, a capture that fails."""
    pipeline, turn = device.compile_native(AXPY), device.compile_native(TURN)
    x, y, z = device.upload(ramp(SMALL)), device.upload(np.ones(SMALL, np.float32)), device.allocate(SMALL, vp.f32)
    launch = pipeline.bind(x=x, y=y, a=1.0)
    graph = device.capture(lambda: (launch(), z.copy_from(y), vp.fill_step(x, 1.0)()))
    graph()
    launch.set(a=2.0)
    graph.update()
    graph.repeat(2)
    expect(y.read(), ramp(SMALL) + 5)
    with suppress(KeyError):
        device.capture(lambda: (launch(), {}["nothing"]))
    around = device.capture(lambda: (graph(), launch()))
    around.on(Stream())()
    expect(z.read(), ramp(SMALL) + 7)
    flag, count = device.upload(np.full(1, 3, np.uint32)), device.allocate(SMALL, vp.u32)
    body = turn.bind(flag=flag, y=count)
    loop = device.capture_while(flag, body)
    loop()
    assert loop.turns() == 3, "the loop took the wrong number of turns"
    expect(count.read(), np.full(SMALL, 3, np.uint32))
    graph.close()
    x.free()


def graph_memory(device: CudaDevice) -> None:
    """What captured graphs allocate: what they free, what they leave there, for launches and other graphs, and when they are gone."""
    pipeline = device.compile_native(AXPY)
    y, z = device.upload(ramp(SMALL)), device.allocate(SMALL, vp.f32)
    if device.memory.release_threshold == 0:  # a device without pools
        return
    device.memory.limit_bytes = 1 << 30  # so that what graphs have is asked for as well
    graph = device.capture(lambda: of_a_graph(device, pipeline, y))
    for _ in range(2):
        graph()
    expect(graph.value.read(), 2 * ramp(SMALL))
    graph.value.fill(1.0)
    device.capture(pipeline.bind(x=graph.value, y=z, a=1.0))()
    expect(z.read(), np.ones(SMALL))
    device.telemetry.snapshot()
    graph.close()
    other = device.capture(lambda: of_a_graph(device, pipeline, y))
    other.repeat(2)
    outlives = other.value
    del other
    gc.collect()
    expect(outlives.read(), 2 * ramp(SMALL))
    device.memory.limit_bytes = None
    device.trim()


def of_a_graph(device: CudaDevice, pipeline: vp.Pipeline, y: vp.Buffer) -> vp.Buffer:
    """2 * y, in memory that the captured graph leaves; through some that it frees."""
    first, second = device.allocate(SMALL, vp.f32), device.allocate(SMALL, vp.f32)
    first.copy_from(y)
    pipeline.bind(x=first, y=second, a=2.0)()
    first.free()
    return second


def options(device: CudaDevice) -> None:
    """Kernels with words of their own, launches with attributes, a time limit, a fixpoint."""
    interruptible = device.compile_native(LOOP, vp.CompileOptions(interruptible=True))
    y = np.zeros(SMALL, np.uint32)
    interruptible.dispatch({"y": y}, config=vp.DispatchConfig(timeout=60.0))
    interruptible.submit({"y": y}, config=vp.DispatchConfig(timeout=60.0)).result(60.0)
    buffer = device.upload(y)
    bound = interruptible.bind(y=buffer, config=vp.DispatchConfig(cooperative=True))
    bound()
    device.compile_native(LOOP).bind(y=buffer, config=vp.DispatchConfig(cluster=(2, 1, 1)))()
    device.compile_native(LOOP, vp.CompileOptions(persistent=True)).bind(y=buffer)()
    with device.stream() as stream:
        device.compile_native(LOOP).dispatch({"y": y}, config=vp.DispatchConfig(stream=stream))
    repeated = device.compile_native(LOOP).dispatch({"y": y}, config=vp.DispatchConfig(fixpoint="y", fixpoint_limit=3))
    expect(repeated["y"], y)
    device.warmup()
    device.trim()


class Shared:
    """Memory of another library."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3, "stream": 43}


def sharing(device: CudaDevice) -> None:
    """Memory of other libraries, memory for them, and another device."""
    x, y = device.upload(ramp(SMALL)), device.upload(np.ones(SMALL, np.float32))
    shared = device.wrap(Shared(y.address, SMALL))
    launch = device.compile_native(AXPY).bind(x=x, y=shared, a=1.0)
    launch.on(Stream(44))()
    shared.use_on(Stream(45))
    expect(shared.read(), ramp(SMALL) + 1)
    del launch
    shared.free()
    capsule = x.__dlpack__(stream=7)
    x.free()
    del capsule
    other = CudaDevice(1)
    try:
        z = other.allocate(SMALL, vp.f32)
        other.copy_peer(y, z)
        expect(z.read(), ramp(SMALL) + 1)
        del z
        other.synchronize()
    finally:
        other.close()


SCENARIOS = {
    "memory": memory, "dispatches": dispatches, "launches": launches, "graphs": graphs, "graph memory": graph_memory, "options": options, "sharing": sharing,
}  # fmt: skip


# ---------------------------------------------------------------- running them


@dataclass
class Outcome:
    """What became of one run: the `number` of the call that failed, its `name`, the `error` that came of it, and all that is `wrong` with that;
    whether the device was `opened`, and `lost`, before it was closed, and whether the call was made in `closing` it."""

    number: int
    name: str
    error: BaseException | None = None
    opened: bool = False
    lost: bool = False
    closing: bool = False
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = "no error" if self.error is None else f"{type(self.error).__name__}: {str(self.error).splitlines()[0]}"
        return f"call {self.number}, {self.name}: {said}; {'; '.join(self.wrong)}"


def compile_ahead() -> None:
    """Has the Programs of the scenarios compiled in this process and its forked children, which keeps them: for sm_90, with no driver."""
    for program in (AXPY, TURN, LOOP):
        compiled(check(program), [Target("ptx", "sm_90")], vp.CompileOptions())


def attempt(work: Callable[[], Any]) -> BaseException | None:
    """What a call raises, without what it holds."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - that it is one of ours is what is tested
        known: BaseException | None = error
        while known is not None:
            known.__traceback__ = None
            known = known.__cause__ or known.__context__
        return error
    return None


def idle_problems(device: CudaDevice) -> list[str]:
    """What a device holds that has been trimmed, and whose buffers are gone."""
    held = {
        "bytes allocated": device.telemetry.bytes_allocated, "memory in use": device.memory.allocated_bytes, "memory held": device.memory.held_bytes,
        "pinned memory held": device.pinned_pool.held_bytes, "memory of graphs": device.memory.nodes.there_bytes,
        "events in use": device.context.events.made - device.context.events.idle,
        "threads in calls": device.context.busy.value, "captures": int(device.context.capture is not None or device._recording is not None),
    }  # fmt: skip
    return [f"{what}: {amount}" for what, amount in held.items() if amount]


def run(
    scenario: Callable[[CudaDevice], None], install: Callable[[InjectedDriver], Any], number: int = -1, status: Callable[[str], Any] = refused,
    then: Callable[[str], Any] = lambda name: None,
) -> tuple[Outcome, InjectedDriver]:  # fmt: skip
    """Opens a device, runs a scenario, trims and closes, while call `number` fails; after an error, unless the device is lost, the scenario again."""
    driver = InjectedDriver(total=1 << 24)
    driver.kernels = dict(KERNELS)
    driver.at, driver.status, driver.then = number, status, then
    install(driver)
    found = Outcome(number, "")
    opened: list[CudaDevice] = []

    def whole() -> None:
        opened.append(CudaDevice(0))
        scenario(opened[0])
        gc.collect()
        opened[0].trim()

    found.error = attempt(whole)
    gc.collect()
    driver.then = (lambda name: None) if then is exhausted else then
    if opened:
        device = opened.pop()
        found.opened, found.lost, found.closing = True, device.lost, not driver.failed
        if found.closing:
            pass
        elif not found.lost:
            driver.at = -1
            if found.error is not None:
                again = attempt(lambda: (device.resident.clear(), scenario(device), gc.collect(), device.trim()))
                if again is not None:
                    found.wrong.append(f"afterwards: {type(again).__name__}: {again}")
            found.wrong += idle_problems(device)
        elif not isinstance(attempt(device.synchronize), DeviceLost):
            found.wrong.append("the device is lost, and says nothing of it")
        closing = attempt(device.close)
        if closing is not None:
            found.wrong.append(f"close raised {type(closing).__name__}: {closing}")
        del device
    found.name = driver.failed
    gc.collect()
    found.wrong += [f"left over: {what}: {amount}" for what, amount in driver.left().items()]
    if driver.misuse and not driver.failed:
        found.wrong.append(f"misuse of captures: {driver.misuse}")
    return found, driver


def sweep(
    scenario: Callable[[CudaDevice], None], install: Callable[[InjectedDriver], Any], status: Callable[[str], Any], then: Callable[[str], Any],
    judge: Callable[[Outcome, InjectedDriver], None],
) -> list[str]:  # fmt: skip
    """Runs a scenario once for each of its driver calls, which fails; `judge` adds to what is wrong. Gives what is, as text."""
    run(scenario, install)  # which compiles; what is compiled stays in memory
    gc.collect()
    gc.freeze()  # what is there stays, and need not be looked at so often
    first, driver = run(scenario, install)
    assert first.error is None and not first.wrong, f"without any fault: {first} {first.error!r}"
    counted = driver.made_calls
    widths = driver.widths
    problems = []

    def prepared(made: InjectedDriver) -> Any:
        made.widths.update(widths)
        return install(made)

    for number in range(counted):
        if status(driver.log[number]) is None:
            continue
        found, injected = run(scenario, prepared, number, status, then)
        if not isinstance(found.error, (VyreError, type(None))):
            found.wrong.append(f"an error of another kind: {found.error!r}")
        judge(found, injected)
        if found.wrong:
            problems.append(str(found))
    return problems


__all__ = ["SCENARIOS", "InjectedDriver", "Outcome", "exhausted", "poisoned", "poisoned_later", "refused", "run", "sweep"]
