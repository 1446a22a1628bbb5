"""The CUDA driver's own logic, over a stand-in for the driver library: no GPU is needed."""

from __future__ import annotations

import gc
import re
import struct
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from axpy import AXPY, axpy_kernel
from device_kinds import need_nvjitlink
from fake_cuda import CUresult, FakeDriver
from fake_device import installed
from tree import ROOT

from vyre_py.drivers import cuda
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.status import STATUSES, failure
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory
from vyre_py.ir.language.types import f32, u8
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.llvm.gpu.architectures import runs_on
from vyre_py.lowering.target import parse_target


@pytest.fixture
def fake(monkeypatch):
    return installed(monkeypatch, FakeDriver(), axpy_kernel)


@pytest.fixture
def device(fake):
    made = CudaDevice(0)
    yield made
    made.close()


def test_open_describes_and_limits(fake, device):
    assert cuda.count() == 1
    assert device.target.arch == "sm_90" and device.limits.workgroups == (2**31 - 1, 65535, 65535) and device.limits.workgroup_bytes == 232448
    assert device.description == "Fake GPU, sm_90, 1 MiB, driver for CUDA 13.0"
    assert device.raw.stream == 5


def test_unavailable_names_the_reason(fake, monkeypatch):
    fake.fail["cuDeviceGetCount"] = [CUresult.CUDA_ERROR_NO_DEVICE]
    with pytest.raises(DeviceUnavailable, match="CUDA_VISIBLE_DEVICES"):
        cuda.count()
    fake.attributes["COMPUTE_CAPABILITY_MAJOR"] = 6
    with pytest.raises(DeviceUnavailable, match=r"7\.0 is needed"):
        CudaDevice(0)
    assert fake.log[-1] == "cuDevicePrimaryCtxRelease"


def test_missing_package_names_the_command(monkeypatch):
    library.load.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceUnavailable, match=r"pip install '\.\[cuda\]'"):
        library.load()


def test_newest_architecture_below_an_unknown_one(fake):
    fake.attributes.update(COMPUTE_CAPABILITY_MAJOR=99, COMPUTE_CAPABILITY_MINOR=1)
    made = CudaDevice(0)
    assert made.target.arch == "sm_121"
    made.close()


def test_an_old_driver_gets_the_newest_code_that_it_loads(fake):
    fake.attributes.update(COMPUTE_CAPABILITY_MAJOR=12, COMPUTE_CAPABILITY_MINOR=0)
    fake.oldest_driver = True
    made = CudaDevice(0)
    assert made.target.arch == "sm_110" and "module" not in fake.alive_handles.values()
    made.close()
    fake.fail["cuModuleLoadData"] = [CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION] * 100
    with pytest.raises(DeviceUnavailable, match="loads no code that this compiler writes"):
        CudaDevice(0)
    assert not fake.alive_handles


def test_properties(device):
    found = device.properties
    assert (found.name, found.compute_capability, found.driver_version, found.pci_bus_id) == ("Fake GPU", (9, 0), (13, 0), "0000:01:00.0")
    assert found.multiprocessors == 4 and found.cooperative_launch and found.peers == ()


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [("sm_70", (9, 0), True), ("sm_100", (9, 0), False), ("sm_90a", (9, 0), True), ("sm_90a", (10, 0), False), ("sm_100f", (10, 3), True),
     ("sm_100f", (12, 0), False), ("sm_120", (12, 1), True), ("", (9, 0), False)],
)  # fmt: skip
def test_runs_on(arch, capability, runs):
    assert runs_on(arch, capability) is runs


def test_code_for_another_gpu_is_unsupported(device):
    with pytest.raises(Unsupported, match="compute_120"):
        device.load(compile_for(AXPY, [parse_target("compute_120")]))
    device.load(compile_for(AXPY, [parse_target("compute_75"), parse_target("compute_120")]))


def test_dispatch(device, fake):
    x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
    out = device.compile_native(AXPY).dispatch(x=x, y=y, a=2.0)["y"]
    assert np.array_equal(out, 2 * x + 1) and y[5] == 1
    assert fake.launches == [((2, 1, 1), (256, 1, 1), 0, 5)]
    assert device.telemetry.launches == 1 and device.telemetry.bytes_allocated == 0 and not fake.blocks


def test_allocation_is_zeroed_and_freed(device, fake):
    buffer = device.allocate((3, 5), f32)
    assert not buffer.read().any()
    empty = device.allocate(0, u8)
    assert empty.handle == 0 and empty.read().size == 0
    buffer[1:].write(np.full((2, 5), 7, np.float32))
    assert buffer.read()[0].sum() == 0 and buffer.read()[2].sum() == 35
    other = device.allocate((3, 5), f32)
    other.copy_from(buffer)
    assert np.array_equal(other.read(), buffer.read())
    del buffer, other
    gc.collect()
    assert device.telemetry.bytes_allocated == 0 and device.memory.allocated_bytes == 0
    device.trim()
    assert not fake.blocks


def test_out_of_memory_trims_and_tries_again(device, fake):
    fake.fail["cuMemAllocFromPoolAsync"] = [CUresult.CUDA_ERROR_OUT_OF_MEMORY]
    fake.log.clear()
    device.allocate(4, u8)
    asked = ["cuCtxGetCurrent", "cuMemAllocFromPoolAsync"]
    assert fake.log[:6] == [*asked, "cuCtxGetCurrent", "cuStreamSynchronize", "cuMemPoolTrimTo", asked[1]]
    held = device.allocate(900_000, u8)
    with pytest.raises(OutOfMemory, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        device.allocate(200_000, u8)
    assert len(fake.blocks) == 1 and held.read().size == 900_000
    error = caught.value
    assert (error.asked, error.free, error.held, error.limit) == (200_000, fake.total - fake.used, fake.used, fake.total)


def test_a_failing_fill_gives_the_memory_back(device, fake):
    fake.fail["cuMemsetD8Async"] = [CUresult.CUDA_ERROR_INVALID_VALUE]
    with pytest.raises(DriverError, match="out of range"):
        device.allocate(4, u8)
    assert device.memory.allocated_bytes == 0 and device.telemetry.bytes_allocated == 0


@pytest.mark.parametrize(("pools", "status"), [(0, None), (1, CUresult.CUDA_ERROR_NOT_SUPPORTED)])
def test_without_pools(fake, pools, status):
    fake.attributes["MEMORY_POOLS_SUPPORTED"] = pools
    fake.fail["cuMemPoolCreate"] = [status]
    made = CudaDevice(0)
    made.allocate(4, u8).free()
    made.trim()
    assert "cuMemAlloc" in fake.log and "cuMemFree" in fake.log and "cuMemFreeAsync" not in fake.log
    made.close()


def bound(device, n=4):
    x, y = device.upload(np.arange(n, dtype=np.float32)), device.upload(np.ones(n, np.float32))
    return device.compile_native(AXPY).bind(x=x, y=y, a=2.0), x, y


def test_bound_launch_is_one_driver_call(device, fake):
    launch, _, y = bound(device)
    fake.log.clear()
    launch()
    launch()
    assert fake.log == ["cuLaunchKernel"] * 2
    assert y.read().tolist() == [1, 5, 9, 13]


def frames_of(call):
    """The Python frames that a call enters, those of the stand-in left out."""
    frames = []
    here = {"call", "refusal", "cuLaunchKernel", "__getattribute__", "__getattr__", "<lambda>", "gc_callback"}  # the last is Hypothesis's
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" and frame.f_code.co_name not in here else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames


def test_a_launch_costs_no_python_frame(device):
    launch, _, _ = bound(device)
    device.context.cuda.kernel = None
    assert frames_of(launch) == []
    z = device.upload(np.zeros(4, np.float32))
    launch.set(y=z)  # the buffer's record is made when it is first looked at

    def rebound():
        launch.set(a=3.0, y=z)()

    assert frames_of(rebound) == ["rebound"]


def test_set_rebinds_in_place(device):
    launch, _, y = bound(device)
    z = device.upload(np.zeros(4, np.float32))
    launch.set(a=-1.0, y=z)()
    assert y.read().tolist() == [1, 1, 1, 1] and z.read().tolist() == [0, -1, -2, -3]
    big = device.upload(np.arange(8, dtype=np.float32))
    launch.set(x=big[4:], y=y)()
    assert y.read().tolist() == [-3, -4, -5, -6]
    with pytest.raises(BindingError, match="overlaps"):
        launch.set(x=y)


@pytest.mark.parametrize("assembler", ["driver", "nvjitlink"])
def test_params_of_every_size(device, fake, monkeypatch, assembler):
    """Each kernel parameter that PTX declares gets as many bytes of its argument as it has, at `bind` and at `set`."""
    if assembler == "nvjitlink":
        need_nvjitlink()
    monkeypatch.setenv("VYRE_ASSEMBLER", assembler)
    program = parse("""program params workgroup(1) over(1) {
      param a: u8; param d: f64; param v: i64x3; param h: bf16x2; param flag: bool; param f: f16; param k: i32
      buffer out: f64[1] read_write
      out[0u32] = d + cast(v.z, f64) + cast(h.y, f64) + cast(a, f64) + cast(flag, f64) + cast(f, f64) + cast(k, f64)
    }""")
    pipeline = device.compile_native(program)
    step = pipeline.part.steps[0]
    ptx = next(image.code for image in step.images if image.format == "ptx")
    declared = re.findall(r"\.param \.[ubf](\d+)", ptx.decode())
    assert [int(bits) for bits in declared] == [8 * slot.size_bytes for slot in step.layout.slots]
    given = {"a": 200, "d": -0.0, "v": [1, -2, 1 << 62], "h": (1.0, -3.0), "flag": True, "f": np.float16(0.5), "k": -1}
    seen = []
    fake.kernel = lambda block: seen.append([block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] for slot in step.layout.slots][1:])
    launch = pipeline.bind(out=device.upload(np.zeros(1)), **given)
    launch()
    small = [200, 0x3F80, 0xC040, 1, 0x3800, 0xFFFFFFFF]
    wanted = [small[0].to_bytes(4, "little"), struct.pack("<d", -0.0), *(struct.pack("<q", v) for v in given["v"])]
    assert seen[0] == [*wanted, *(x.to_bytes(4, "little") for x in small[1:])]
    launch.set(v=np.array([5, 6, 7]), flag=False)()
    assert b"".join(seen[1][2:5]) == struct.pack("<3q", 5, 6, 7) and seen[1][7] == bytes(4)
    with pytest.raises(BindingError, match="param 'v' \\(i64x3\\): a sequence or array of its 3 components"):
        launch.set(v=[1, 2])


def test_a_freed_buffer_disarms_its_launches(device):
    launch, x, y = bound(device)
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        launch()
    launch.set(x=device.upload(np.zeros(4, np.float32)))()
    assert y.read().tolist() == [1, 1, 1, 1]


def test_another_thread_gets_the_context_once(device, fake):
    launch, _, _ = bound(device)
    fake.log.clear()

    def twice():
        launch()
        launch()

    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()
    assert fake.log == ["cuLaunchKernel", "cuCtxGetCurrent", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuLaunchKernel", "cuLaunchKernel"]
    assert device.telemetry.launches == 2


class Stream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


def test_other_streams(device, fake):
    launch, _, y = bound(device)
    launch.on(Stream((0, 42)))()
    assert fake.launches[-1][3] == 42
    y.read()  # which takes pinned memory
    fake.log.clear()
    y.read()
    joins = ["cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent"]
    assert fake.log == ["cuCtxGetCurrent", *joins, "cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize"]
    for wrong in (5, None, Stream(3), Stream((0, "x"))):
        with pytest.raises(BindingError, match="__cuda_stream__"):
            launch.on(wrong)


def test_launch_errors(device, fake):
    launch, _, _ = bound(device)
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(LaunchError, match="smaller workgroup"):
        launch()
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED]
    with pytest.raises(LaunchError, match="capture"):
        launch()
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_INVALID_HANDLE]
    with pytest.raises(LaunchError, match="live stream"):
        launch()
    launch()
    assert device.telemetry.launches == 1


def test_a_sticky_status_loses_the_device(device, fake):
    launch, x, _ = bound(device)
    fake.fail["cuStreamSynchronize"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(DeviceLost, match="new process"):
        device.synchronize()
    fake.fail["cuLaunchKernel"] = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    for call in (launch, x.read, lambda: device.allocate(4, u8), lambda: device.compile_native(AXPY)):
        with pytest.raises(DeviceLost, match=r"first cause was: cuda:0 failed while it ran: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
            call()


def test_refused_code_carries_the_log(device, fake, monkeypatch):
    artifact = compile_for(AXPY, [parse_target("sm_90")])
    for image in artifact.parts[0].steps[0].images:
        object.__setattr__(image, "code", b"broken")
    with pytest.raises(ToolchainError, match="line 3: no") as caught:
        device.load(artifact)
    assert caught.value.text == "broken"


def test_workgroup_memory_beyond_the_static_limit(device, fake):
    program = parse("""program big(n) workgroup(64) {
  buffer y: f32[n] write
  workgroup w: f32[16384]
  w[local_index] = 1.0
  barrier
  y[global_id.x] = w[0u32]
}""")
    fake.kernel = None
    device.compile_native(program).dispatch(n=64)
    assert "cuFuncSetAttribute" in fake.log and fake.launches[-1][2] == 65536


def test_close_is_quiet_in_any_order(fake):
    made = CudaDevice(0)
    launch, x, y = bound(made)
    pipeline = made.compile_native(AXPY)
    made.close()
    made.close()
    assert not fake.blocks and fake.log.count("cuModuleUnload") == 2 and fake.log[-1] == "cuDevicePrimaryCtxRelease"
    fake.log.clear()
    x.free()
    del y, pipeline
    gc.collect()
    assert fake.log == []
    with pytest.raises(DeviceLost, match="closed"):
        launch()


def test_modules_are_unloaded_with_their_pipelines(device, fake):
    pipeline = device.compile_native(AXPY)
    device._pipelines.clear()
    device._codes.clear()
    gone = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert gone() is None and fake.log[-2:] == ["cuCtxSynchronize", "cuModuleUnload"]


def test_the_table_covers_real_statuses():
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    names = {status.name for status in driver.CUresult}
    assert set(STATUSES) <= names or driver.CUDA_VERSION < 13050  # those that later ones added
    error = failure(driver.CUresult(709), "x")
    assert isinstance(error, DeviceLost) and error.status == "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)"
    assert failure(driver.CUresult(304 + 96), "x", LaunchError).__class__ is LaunchError


def test_importing_the_folder_loads_no_library():
    code = "import sys, vyre_py.drivers.cuda; print([m for m in sys.modules if m.startswith(('cuda', 'llvmlite'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_a_dropped_launch_is_gone_at_once(device):
    launch, x, _ = bound(device)
    gc.disable()
    try:
        run = launch.__call__
        held = weakref.ref(x.allocation)
        del launch, x
        run()  # the builtin holds what it uses
        assert held() is not None
        del run
        assert held() is None
    finally:
        gc.enable()


def test_results_beyond_the_page_locked_memory_that_callers_may_hold_are_copied(device, fake):
    """Results of 32 KiB and more come in page-locked memory of their own, up to what the pool keeps."""
    fake.kernel = None
    program = parse("""program large(n) workgroup(256) {
  buffer y: f32[n] read_write
  for k in 0u32..2 { y[global_id.x] = y[global_id.x] + 1.0 }
}""")
    pipeline, y = device.compile_native(program), np.arange(20_000, dtype=np.float32)
    device.pinned_pool.keep_bytes = 400_000
    held = [pipeline.dispatch({"y": y})["y"] for _ in range(10)]
    assert all(np.array_equal(one, y) for one in held) and len({one.ctypes.data for one in held}) == 10
    assert 0 < device.telemetry.overflows < 10
