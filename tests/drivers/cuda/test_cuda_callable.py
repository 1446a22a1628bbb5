"""Pipelines as functions on CUDA, over a stand-in for the driver: what native code launches is what `bind` launches."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from axpy import TEXT_64
from exchanged import Exchanged, exchange_table
from fake_cuda import CUresult, FakeDriver
from fake_device import installed
from random_calls import SIZES, RandomCalls, outcome

import vyre_py as vp
from vyre_py.drivers.cuda.callable import CudaCallEntry
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.launch.launcher import Launcher
from vyre_py.drivers.sharing import exchange
from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.statuses import CStatus

AXPY = parse(TEXT_64)
PLANES = parse("""program planes(n, m, k) workgroup(8, 4) over(m, n) {
  param u: i64
  buffer p: f32[n, m] read
  buffer q: f32x2[n, m] read_write
  let i = global_id.y
  let j = global_id.x
  q[i, j] = q[i, j] + vec2(p[i, j], cast(k, f32)) + vec2(cast(u, f32), 0.0f32)
}""")
CUDA_PLACE = 2  # DLPack's kind; the ordinal is 0


class Launched(FakeDriver):
    """Writes down the blocks of launches beside their numbers."""

    def __init__(self) -> None:
        super().__init__(total=1 << 24)
        self.blocks_seen: list[bytes] = []
        self.kernel = self.blocks_seen.append

    def taken(self) -> list[Any]:
        """The launches since this was last asked: grid, workgroup, workgroup memory, stream, and the block."""
        found = list(zip(self.launches, self.blocks_seen, strict=True))
        self.launches.clear()
        self.blocks_seen.clear()
        return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Launched:
    return installed(monkeypatch, Launched())


@pytest.fixture
def device(fake: Launched) -> Iterator[CudaDevice]:
    made = CudaDevice(0)
    yield made
    made.close()


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Tensor(Exchanged):
    """An array of another library over a buffer's memory."""

    def __init__(self, buffer: vp.Buffer) -> None:
        super().__init__(np.ctypeslib.as_array((ctypes.c_float * buffer.shape[0]).from_address(buffer.handle)), place=CUDA_PLACE)
        self.buffer = buffer

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_PLACE, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.buffer.__dlpack__(**options)


def tensor_type(stream: Any = None, *, managed: bool = False) -> type[Tensor]:
    """A type of tensors whose library tells its stream where one is given, and hands over by its table where that is `managed`."""
    return type("Tensor", (Tensor,), {"__dlpack_c_exchange_api__": exchange_table(1, stream, managed=managed)})


def learned(entry: Any, *values: Any) -> None:
    """Has native code know what calls with these values need."""
    for value in values:
        entry._learn(value)


@pytest.mark.parametrize("n", [1, 63, 64, 1000, 4096])
def test_a_call_over_buffers_is_a_bound_launch(fake: Launched, device: CudaDevice, slow: list[Any], n: int) -> None:
    pipeline = device.compile_native(AXPY)
    entry = pipeline.callable()
    x, y = device.allocate(n, vp.f32), device.allocate(n + 1, vp.f32)[1:]  # the second begins where no wide entry may
    assert isinstance(entry, CudaCallEntry)
    for one, two in ((x, y), (y, x), (x, device.allocate(n, vp.f32))):
        pipeline.bind(x=one, y=two, a=2.5)()
        wanted = fake.taken()
        learned(entry, one, two)
        assert entry(one, two, 2.5) is None and entry(x=one, y=two, a=2.5) is None
        assert fake.taken() == wanted * 2 and len(wanted) == 1
        assert wanted[0][0][3] == int(device.context.stream)
        assert entry.explain(one, two, 2.5) == []
    assert not slow


def test_dims_params_and_vectors_are_planned_as_bound(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    pipeline, random = device.compile_native(PLANES), np.random.default_rng(3)
    entry = pipeline.callable()
    for _ in range(40):
        n, m, k = map(int, random.integers(1, 70, 3))
        p, q, u = device.allocate((n, m), vp.f32), device.allocate((n, m), vp.f32x2), int(random.integers(-(1 << 62), 1 << 62))
        pipeline.bind(p=p, q=q, u=u, k=k)()
        wanted = fake.taken()
        learned(entry, p, q)
        entry(p, q, u, k=k)
        assert fake.taken() == wanted and len(wanted) == 1
    assert not slow


def test_random_calls_are_bound_launches(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    """VYRE_CALLS of them: what `bind` refuses is refused in the same words, and what it launches is launched."""
    pipeline, calls, native, fine = device.compile_native(parse(SIZES)), RandomCalls(device, vp.device("cpu"), 11), 0, 0
    entry, before = pipeline.callable(), device.telemetry.bytes_allocated
    for _ in range(int(os.environ.get("VYRE_CALLS", "400"))):
        values = calls.next()
        fake.taken()
        says = outcome(lambda **given: pipeline.bind(given)(), values)
        wanted = fake.taken()
        learned(entry, *values.values())
        slow.clear()
        assert outcome(entry, values) == says and fake.taken() == wanted
        fine += says is None
        native += not slow
        assert not slow or says is not None or not wanted  # all that fits is taken, but for grids of nothing
    assert 0 < native <= fine
    slow.clear()
    del values, wanted, calls.memory[:]
    gc.collect()
    device.trim()  # constants
    assert device.telemetry.bytes_allocated == before


def test_launches_are_counted(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    pipeline, x = device.compile_native(AXPY), device.allocate(1000, vp.f32)
    entry, y = pipeline.callable(), device.allocate(1000, vp.f32)
    launch = pipeline.bind(x=x, y=y, a=1.0)
    learned(entry, x, y)
    names = ("launches", "elements_launched", "threads_scheduled", "threads_occupied", "parameter_bytes")

    def counted(run: Any) -> list[int]:
        before = device.telemetry.snapshot()
        run()
        after = device.telemetry.snapshot()
        return [after[name] - before[name] for name in names]

    assert counted(launch) == counted(lambda: entry(x, y, 1.0)) and not slow
    assert counted(launch)[0] == 1


def test_arrays_of_a_library_go_to_its_stream(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    now = [7]
    asked: list[Any] = []

    def told(kind: int, ordinal: int) -> int | None:
        asked.append((kind, ordinal))
        return now[0]

    kind = tensor_type(told)
    pipeline = device.compile_native(AXPY)
    entry = pipeline.callable()
    x, y = (kind(device.allocate(256, vp.f32)) for _ in range(2))
    learned(entry, x)
    entry(x, y, 1.0)
    assert fake.taken()[0][0][3] == 7 and set(asked) == {(CUDA_PLACE, 0)}
    now[0] = 0  # the legacy default stream
    entry(x, y, 1.0)
    assert fake.taken()[0][0][3] == 0
    now[0] = 9
    entry(x, y, 1.0, stream=Stream(9))
    assert fake.taken()[0][0][3] == 9 and not slow
    assert entry.explain(x, y, 1.0, stream=Stream(9)) == []
    assert entry.explain(x, y, 1.0, stream=Stream(8)) == ["the stream is not the one that Tensor's library works on now"]


@pytest.mark.parametrize("odd", [3, "none", (0, 9), "wrong", "long", "huge", "raises"])
def test_a_stream_that_is_none_goes_through_python(fake: Launched, device: CudaDevice, slow: list[Any], odd: Any) -> None:
    kind = tensor_type(lambda *_: 9)
    entry = device.compile_native(AXPY).callable()
    x, y = (kind(device.allocate(64, vp.f32)) for _ in range(2))
    learned(entry, x)

    class Odd:
        def __cuda_stream__(self) -> Any:
            if odd == "raises":
                raise ValueError("no")
            return {"wrong": [0, 9], "long": (0, 9, 9), "huge": (0, 1 << 70)}.get(odd, (0, True))

    with suppress(vp.VyreError, ValueError):  # whatever becomes of it in Python
        entry(x, y, 1.0, stream=odd if isinstance(odd, (int, tuple)) else Odd())
    assert len(slow) == 1


def test_what_has_no_stream_in_common_goes_through_python(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    one, two, silent, failing = tensor_type(lambda *_: 7), tensor_type(lambda *_: 7), tensor_type(), tensor_type(lambda *_: None)
    entry, buffer = device.compile_native(AXPY).callable(), device.allocate(64, vp.f32)
    for left, right in ((one, two), (one, None), (None, one), (silent, silent), (failing, failing)):
        x, y = (device.allocate(64, vp.f32) if kind is None else kind(device.allocate(64, vp.f32)) for kind in (left, right))
        learned(entry, x, y)
        before = len(slow)
        why = entry.explain(x, y, 1.0)
        assert len(why) == 1 and ("no stream in common" in why[0] or "does not tell the stream" in why[0])
        entry(x, y, 1.0)
        assert len(slow) == before + 1 and fake.taken()[0][0][3] == int(device.context.stream)
    learned(entry, buffer)
    other = device.allocate(64, vp.f32)
    learned(entry, other)
    entry(buffer, other, 1.0, stream=Stream(5))
    assert fake.taken()[0][0][3] == 5 and len(slow) == 6
    assert "recorded in Python" in entry.explain(buffer, other, 1.0, stream=Stream(5))[0]


def test_wrong_calls_say_what_bind_says(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    entry = device.compile_native(AXPY).callable()
    x, y, freed = (device.allocate(64, vp.f32) for _ in range(3))
    learned(entry, x, y, freed)
    freed.free()
    cases = (
        ("dim 'n' is 64", (x, device.allocate(65, vp.f32), 1.0)), ("overlaps 'x'", (x, x, 1.0)), ("f64", (x, device.allocate(64, vp.f64), 1.0)),
        ("was freed", (x, freed, 1.0)), ("'a'", (x, y)), ("'a'", (x, y, "1")),
    )  # fmt: skip
    for words, given in cases:
        learned(entry, *[value for value in given if isinstance(value, vp.Buffer)])
        before = len(slow)
        with pytest.raises(vp.BindingError, match=words):
            entry(*given)
        assert len(slow) == before + 1
    assert not fake.taken()


def test_failed_calls_go_on_in_python(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    entry, x, y = device.compile_native(AXPY).callable(), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    learned(entry, x, y)
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    entry(x, y, 1.0)
    assert len(fake.taken()) == len(slow) == 1
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES] * 2
    with pytest.raises(vp.LaunchError):
        entry(x, y, 1.0)
    seen: list[Any] = []

    def elsewhere() -> None:  # no context is current there
        entry(x, y, 1.0)
        seen.extend(fake.taken())
        entry(x, y, 1.0)

    before = len(slow)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(seen) == 1 and len(fake.taken()) == 1 and len(slow) == before + 1  # the second found the context current
    assert device.context.busy.value == 0


def test_a_call_in_a_capture_is_recorded(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    entry, x, y = device.compile_native(AXPY).callable(), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    learned(entry, x, y)
    device.context.stop(vp.drivers.native.mode.Mode.OBSERVED)
    entry(x, y, 1.0)
    assert len(slow) == 1 and entry.explain(x, y, 1.0) == ["the device: observed"]
    device.context.go_on(vp.drivers.native.mode.Mode.OBSERVED)
    entry(x, y, 1.0)
    assert len(slow) == 1


def test_a_closed_device_refuses(fake: Launched) -> None:
    device = CudaDevice(0)
    entry, x, y = device.compile_native(AXPY).callable(), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    learned(entry, x, y)
    address = entry.c_address
    device.close()
    with pytest.raises(vp.DeviceLost):
        entry(x, y, 1.0)
    assert called(address, [4096, 8192], [64, 64, -1], np.float32(1).tobytes()) == CStatus.LOST


def test_other_programs_go_the_general_way(device: CudaDevice) -> None:
    source = "program one(n) workgroup(64) {\n  buffer y: f32[n] read_write\n  assert y[global_id.x] > 0.0 else 1\n  y[global_id.x] = 1.0\n}"
    entry = device.compile_native(parse(source.replace(" else 1", ', "less"'))).callable()
    assert not isinstance(entry, CudaCallEntry) and "asserts" in entry.explain(device.allocate(4, vp.f32))[0]
    dependent = device.compile_native(AXPY, vp.CompileOptions(dependent=True)).callable()
    assert "attributes" in dependent.explain(device.allocate(4, vp.f32), device.allocate(4, vp.f32), 1.0)[0]


def test_calls_leak_nothing(fake: Launched, device: CudaDevice, slow: list[Any]) -> None:
    kind = tensor_type(lambda *_: 7)
    entry, x, y = device.compile_native(AXPY).callable(), *(kind(device.allocate(64, vp.f32)) for _ in range(2))
    a, b, stream = device.allocate(64, vp.f32), device.allocate(64, vp.f32), Stream(7)
    learned(entry, x, a, b)

    def round_of_calls() -> None:
        for _ in range(50):
            entry(x, y, 1.0)
            entry(x, y, a=1.0, stream=stream)
            entry(a, b, 1.0)
        fake.taken()

    round_of_calls()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in (x, y, a, b, stream, entry, kind)]
    blocks = sys.getallocatedblocks()
    round_of_calls()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in (x, y, a, b, stream, entry, kind)]
    assert [two - one for one, two in zip(before, after, strict=True) if abs(two - one) > 20] == [] and not slow
    assert sys.getallocatedblocks() - blocks < 100


# ---------------------------------------------------------------- C


def called(address: int, addresses: list[int], sizes: list[int], params: bytes, stream: int | None = None) -> int:
    words = CCallableWords.from_address(address)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(words.call)
    held = (ctypes.c_void_p * len(addresses))(*addresses), (ctypes.c_int64 * len(sizes))(*sizes)
    return int(function(address, held[0], held[1], params, stream))


def test_c_makes_the_same_launch(fake: Launched, device: CudaDevice) -> None:
    pipeline = device.compile_native(AXPY)
    entry, x, y = pipeline.callable(), device.allocate(1000, vp.f32), device.allocate(1000, vp.f32)
    words = CCallableWords.from_address(entry.c_address)
    assert (words.device, words.context, words.stream, tuple(words.workgroup)) == (2, device.context.number, int(device.context.stream), (64, 1, 1))
    pipeline.bind(x=x, y=y, a=2.5)()
    wanted, params = fake.taken(), np.float32(2.5).tobytes()
    assert called(entry.c_address, [x.handle, y.handle], [1000, 1000, -1], params) == CStatus.OK
    assert fake.taken() == wanted
    assert called(entry.c_address, [x.handle, y.handle], [1000, 1000, -1], params, 77) == CStatus.OK
    ((*numbers, stream), block), = fake.taken()
    assert ((*numbers, wanted[0][0][3]), block) == wanted[0] and stream == 77
    assert called(entry.c_address, [x.handle, y.handle], [1000, 999, -1], params) == CStatus.SHAPE
    assert called(entry.c_address, [x.handle, x.handle], [1000, 1000, -1], params) == CStatus.OVERLAP
    assert called(entry.c_address, [0, 0], [0, 0, -1], params) == CStatus.OK
    device.context.stop(vp.drivers.native.mode.Mode.CAPTURING)
    assert called(entry.c_address, [x.handle, y.handle], [1000, 1000, -1], params) == CStatus.BUSY
    device.context.go_on(vp.drivers.native.mode.Mode.CAPTURING)
    assert not fake.taken() and device.context.callers.value == 0


def test_a_block_that_a_caller_packed_is_launched(fake: Launched, device: CudaDevice) -> None:
    pipeline, x, y = device.compile_native(AXPY), device.allocate(1000, vp.f32), device.allocate(1000, vp.f32)
    pipeline.bind(x=x, y=y, a=2.5)()
    ((workgroups, *others, stream), block), = wanted = fake.taken()
    launcher, packed = Launcher(device, pipeline.part.steps[0], pipeline._codes[0]), (ctypes.c_char * len(block)).from_buffer_copy(block)
    for entry in range(len(launcher.kernels)):
        launcher.enqueue(entry, launcher.grid(workgroups), stream, packed, "axpy")
        assert fake.taken() == wanted
    launcher.enqueue(0, launcher.grid(workgroups), 77, packed, "axpy")
    assert fake.taken() == [((workgroups, *others, 77), block)]
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(vp.LaunchError, match="axpy cannot be launched"):
        launcher.enqueue(0, launcher.grid(workgroups), stream, packed, "axpy")


def test_c_makes_the_context_current(fake: Launched, device: CudaDevice) -> None:
    entry, x, y = device.compile_native(AXPY).callable(), device.allocate(64, vp.f32), device.allocate(64, vp.f32)
    seen: list[int] = []

    def run() -> None:
        seen.append(called(entry.c_address, [x.handle, y.handle], [64, 64, -1], np.float32(1).tobytes()))

    address = entry.c_address
    assert address
    thread = threading.Thread(target=run)
    fake.log.clear()
    thread.start()
    thread.join()
    assert seen == [CStatus.OK] and fake.log == ["cuLaunchKernel", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"]
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    run()
    assert seen[1] == CUresult.CUDA_ERROR_ILLEGAL_ADDRESS and device.context.callers.value == 0


def test_arrays_are_handed_over_with_their_device_current(fake: Launched, device: CudaDevice) -> None:
    """PyTorch hands over what lies on its current device, and nothing else; whatever was current is so again."""
    seen = []

    class Watching(Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            seen.append(fake.current.context)
            return super().__dlpack__(**options)

    array = Watching(device.allocate(8, vp.f32))
    fake.current.context = 55  # of another device
    assert device.wrap(array).shape == (8,)
    assert seen == [device.context.number] and fake.current.context == 55


@pytest.mark.parametrize("worth", [0, 1 << 62])
def test_what_a_table_hands_over_is_ordered_after_the_work_of_its_library(
    fake: Launched, device: CudaDevice, worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all arrays of a bind, and not at all where the library's work is done; captures are left to the library."""
    monkeypatch.setattr(exchange, "_WORTH", worth)
    current, refused, order = [77], list[Any](), ["cuEventRecord", "cuStreamWaitEvent"]
    busy, capturing = [True], [False]
    kind = tensor_type(lambda place, ordinal: current[0], managed=True)
    kind.__dlpack__ = lambda tensor, **options: refused.append(options) or tensor.buffer.__dlpack__(**options)  # type: ignore[method-assign]  # of this test alone
    monkeypatch.setattr(fake, "cuStreamQuery", lambda stream: (CUresult.CUDA_ERROR_NOT_READY,) if busy[0] else (CUresult.CUDA_SUCCESS,), raising=False)
    monkeypatch.setattr(fake, "cuStreamIsCapturing", lambda stream: (CUresult.CUDA_SUCCESS, int(capturing[0])), raising=False)
    pipeline, (x, y) = device.compile_native(AXPY), (device.allocate(64, vp.f32) for _ in range(2))
    pipeline.bind(x=x, y=y, a=1.0)

    def ordered(by: Any) -> list[str]:
        fake.log.clear()
        by()
        return [call for call in fake.log if call in order]

    def both() -> None:
        pipeline.bind(x=kind(x), y=kind(y), a=1.0)

    assert ordered(both) == order and ordered(lambda: device.wrap(kind(x))) == order
    busy[0] = False
    assert ordered(both) == [] == ordered(lambda: device.wrap(kind(x)))
    current[0], busy[0] = int(device.context.stream), True
    assert ordered(both) == []
    assert not refused and not Exchanged.held
    current[0], capturing[0] = 77, True
    both()
    assert len(refused) == 2 and not Exchanged.held
    capturing[0] = False
    current[0] = None  # type: ignore[call-overload]  # what tells that nothing is told
    both()
    assert len(refused) == 4 and not Exchanged.held
    current[0] = 77
    fake.fail["cuEventRecord"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(vp.DeviceLost):
        device.wrap(kind(x))
    assert not Exchanged.held
