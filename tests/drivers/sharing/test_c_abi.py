"""The C ABI: `vyre.h` and `launch.c_address`. Launches are run by code that a C compiler made, and by ctypes without Python's lock."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from axpy import TEXT_64
from compilers import compile_c
from device_kinds import open_device
from fake_cuda import FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.errors import DeviceLost
from vyre_py.drivers.sharing.c_callable import CCallableWords, CKernel
from vyre_py.drivers.sharing.c_launch import ABI_VERSION, DEVICES, CLaunchWords, CParameter
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.statuses import CStatus

AXPY = parse(TEXT_64)

# Each workgroup needs as much memory as the workgroup array and what lives across the barrier takes.
TURNED = """program turned(n) workgroup(64) {{
  workgroup tile: u32[{size}]
  buffer y: u32[n] read_write
  tile[local_index] = y[global_id.x]
  barrier
  y[global_id.x] = tile[63u32 - local_index]
}}"""


def run(address, stream=None):
    """Runs a launch as C does."""
    words = CLaunchWords.from_address(address)
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(words.run)(address, stream)


def parameters_of(address):
    words = CLaunchWords.from_address(address)
    return {(p.name.decode(), p.part_bytes): p for p in words.parameters[: words.parameter_count]}


@pytest.fixture
def cpu():
    return open_device("cpu")


def bound(device, n=1000, a=2.0):
    x, y = device.upload(np.arange(n, dtype=np.float32)), device.upload(np.ones(n, np.float32))
    return device.compile_native(AXPY).bind({"x": x, "y": y, "a": a}), x, y


# ---------------------------------------------------------------- the header


def test_the_header_and_the_structures_agree(tmp_path):
    """Offsets and sizes as a C compiler has them."""
    structures = {
        "vyre_launch_t": CLaunchWords, "vyre_parameter_t": CParameter, "vyre_callable_t": CCallableWords, "vyre_callable_kernel_t": CKernel,
    }  # fmt: skip
    rows = [(kind, name, structure) for kind, structure in structures.items() for name, *_ in structure._fields_]
    prints = "\n".join([
        *[f'printf("%d ", (int)offsetof({kind}, {name}));' for kind, name, _ in rows], *[f'printf("%d ", (int)sizeof({kind}));' for kind in structures],
    ])  # fmt: skip
    source = tmp_path / "offsets.c"
    source.write_text(f"""#include <vyre.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {{
{prints}
printf("%d", VYRE_ABI_VERSION);
return 0; }}
""")
    program = compile_c(tmp_path / "offsets", [source], f"-I{vp.include_dir()}", "-pedantic")
    found = list(map(int, subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()))
    wanted = [getattr(structure, name).offset for _, name, structure in rows]
    assert found == [*wanted, *map(ctypes.sizeof, structures.values()), ABI_VERSION]


@pytest.mark.parametrize("standard", ["c99", "c11", "c++98", "c++17"])
def test_the_header_is_clean(tmp_path, standard):
    source = tmp_path / ("main.cpp" if "++" in standard else "main.c")
    source.write_text("#include <vyre.h>\nint go(const vyre_launch_t *launch);\nint go(const vyre_launch_t *launch) { return vyre_launch(launch, 0); }\n")
    compile_c(tmp_path / "main.o", [source], "-c", "-pedantic", "-Wshadow", f"-I{vp.include_dir()}", standard=standard)


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """Code of somebody else's: runs a launch, and changes a parameter by name."""
    folder = tmp_path_factory.mktemp("caller")
    (folder / "caller.c").write_text("""#include <vyre.h>
#include <string.h>
int go(const vyre_launch_t *launch, void *stream);
int change(const vyre_launch_t *launch, const char *name, const void *value);

int go(const vyre_launch_t *launch, void *stream)
{
    if (launch->abi_version != VYRE_ABI_VERSION || launch->size_bytes < sizeof *launch)
        return 1000;
    return vyre_launch(launch, stream);
}

int change(const vyre_launch_t *launch, const char *name, const void *value)
{
    uint64_t k;
    for (k = 0; k < launch->parameter_count; k++) {
        const vyre_parameter_t *p = &launch->parameters[k];
        if (strcmp(p->name, name) == 0) {
            memcpy((char *)launch->arguments + p->offset_bytes, value, p->size_bytes);
            return vyre_launch(launch, 0);
        }
    }
    return 1000;
}
""")
    library = ctypes.CDLL(str(compile_c(folder / "caller.so", [folder / "caller.c"], "-shared", "-fPIC", "-pedantic", f"-I{vp.include_dir()}")))
    library.go.argtypes, library.change.argtypes = (ctypes.c_void_p,) * 2, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return library


# ---------------------------------------------------------------- the CPU


def test_c_runs_a_launch_and_follows_what_is_set(cpu, caller):
    launch, _, y = bound(cpu)
    address = launch.c_address
    assert launch.c_address == address
    x = np.arange(1000, dtype=np.float32)
    assert caller.go(address, None) == 0 and np.array_equal(y.read(), 2 * x + 1)
    launch.set(a=3.0)
    assert caller.go(address, None) == 0 and np.array_equal(y.read(), 5 * x + 1)
    other = cpu.upload(np.zeros(1000, np.float32))
    launch.set(y=other)
    assert caller.go(address, None) == 0 and np.array_equal(other.read(), 3 * x) and np.array_equal(y.read(), 5 * x + 1)
    assert caller.change(address, b"a", ctypes.byref(ctypes.c_float(10))) == 0 and np.array_equal(other.read(), 13 * x)
    array = np.ones(1008, np.float32)[8:]
    assert caller.change(address, b"y", ctypes.byref(ctypes.c_uint64(array.ctypes.data))) == 0 and np.array_equal(array, 10 * x + 1)


def test_the_descriptor_says_what_there_is(cpu):
    program = parse("""program "sums é"(n) workgroup(8, 2) over(n, 6) {
      param v: f32x3
      param small: u8
      buffer x: f16[n] read
      buffer out: u64[n] write
      out[global_id.x] = cast(x[global_id.x], u64) + cast(small, u64) + cast(v.x + v.y + v.z, u64)
    }""")
    pipeline = cpu.compile_native(program)
    x, out = cpu.upload(np.float16([1, 2, 3])), cpu.allocate(3, vp.u64)
    launch = pipeline.bind({"x": x, "out": out, "v": [1, 2, 4], "small": 200})
    words = CLaunchWords.from_address(launch.c_address)
    assert (words.device, words.ordinal, words.name.decode()) == (1, 0, "sums é")
    assert list(words.grid) == [1, 3, 1] and list(words.workgroup) == [8, 2, 1] and words.arguments_bytes == pipeline.part.steps[0].layout.size_bytes
    block = ctypes.string_at(words.arguments, words.arguments_bytes)
    found = {name: (p.type, p.kind, p.access, block[p.offset_bytes : p.offset_bytes + p.size_bytes]) for name, p in parameters_of(launch.c_address).items()}
    assert found == {
        ("x", 0): (b"f16", 1, 1, x.address.to_bytes(8, "little")), ("out", 0): (b"u64", 1, 2, out.address.to_bytes(8, "little")),
        ("v", 0): (b"f32", 2, 0, np.float32(1).tobytes()), ("v", 4): (b"f32", 2, 0, np.float32(2).tobytes()),
        ("v", 8): (b"f32", 2, 0, np.float32(4).tobytes()), ("small", 0): (b"u8", 2, 0, bytes([200, 0, 0, 0])),
    }  # fmt: skip
    assert run(launch.c_address) == 0 and out.read().tolist() == [208, 209, 210]


@pytest.mark.parametrize("size", [64, 40000])
def test_scratch_memory_is_there(cpu, size):
    y = np.arange(128, dtype=np.uint32)
    launch = cpu.compile_native(parse(TURNED.format(size=size))).bind({"y": cpu.wrap(y)})
    assert (CLaunchWords.from_address(launch.c_address).scratch_bytes > 16 << 10) == (size == 40000)
    assert run(launch.c_address) == 0 and y.tolist() == [*range(63, -1, -1), *range(127, 63, -1)]


def test_the_kernel_itself_may_be_called_for_a_range_of_workgroups(cpu):
    launch, _, y = bound(cpu, n=640)
    words = CLaunchWords.from_address(launch.c_address)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_uint32] * 3)(words.function)
    kernel(words.arguments, None, 3, 5, *words.grid)
    assert np.flatnonzero(y.read() != 1).tolist() == list(range(192, 320))


def test_threads_run_one_launch_at_once(cpu):
    """Scratch memory is each call's own."""
    program = parse(TURNED.format(size=20000))
    launches = [cpu.compile_native(program).bind({"y": cpu.wrap(np.arange(4096, dtype=np.uint32))}) for _ in range(2)]
    addresses = [launch.c_address for launch in launches]
    wanted = [launch.plan.binding.buffers["y"].read() for launch in launches]
    statuses = []

    def work(address):
        statuses.extend([run(address) for _ in range(40)])

    threads = [threading.Thread(target=work, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [0] * 80
    assert all(np.array_equal(launch.plan.binding.buffers["y"].read(), first) for launch, first in zip(launches, wanted, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_a_launch_of_the_cpu(cpu):
    launch, _, y = bound(cpu, n=64)
    address = launch.c_address
    child = os.fork()
    if child == 0:
        os._exit(0 if run(address) == CStatus.OK and y.read().all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(address) == CStatus.OK


def test_freed_buffers_closed_devices_and_streams_are_statuses():
    device = CpuDevice(0)
    launch, x, y = bound(device, n=64)
    address = launch.c_address
    assert run(address, 5) == CStatus.STREAM
    x.free()
    assert run(address) == CStatus.FREED
    launch.set(x=device.upload(np.full(64, 4, np.float32)))
    assert run(address) == CStatus.OK and y.read().tolist() == [9.0] * 64
    empty = device.compile_native(AXPY).bind({"x": device.allocate(0, vp.f32), "y": device.allocate(0, vp.f32), "a": 1.0})
    assert run(empty.c_address) == CStatus.OK and list(CLaunchWords.from_address(empty.c_address).grid) == [0, 1, 1]
    late = device.compile_native(AXPY).bind({"x": device.allocate(4, vp.f32), "y": device.allocate(4, vp.f32), "a": 1.0})
    device.close()
    assert run(address) == CStatus.LOST and run(empty.c_address) == CStatus.OK
    with pytest.raises(DeviceLost):
        _ = late.c_address


def test_nothing_of_python_is_called(cpu):
    launch, _, _ = bound(cpu)
    address = launch.c_address
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(CLaunchWords.from_address(address).run)
    frames = []
    sys.setprofile(lambda frame, event, arg: frames.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function(address, None)
    finally:
        sys.setprofile(None)
    assert frames == []


def test_a_traced_launch_is_the_launch_inside(cpu, tmp_path):
    with vp.trace(tmp_path / "trace.json"):
        launch, _, y = bound(cpu, n=8)
        address = launch.c_address
        launch.set(a=5.0)
    assert run(address) == 0 and y.read()[7] == 36


def test_a_descriptor_goes_with_its_launch(cpu):
    launch, _, _ = bound(cpu)
    held = launch._c_launch
    assert held is None
    _ = launch.c_address
    held = launch._c_launch
    del launch
    gc.collect()
    assert sys.getrefcount(held) == 2  # nobody else's


def test_other_devices_say_so():
    launch, _, _ = bound(open_device("reference"), n=8)
    with pytest.raises(Unsupported, match=r"reference:0 does not support launch\.c_address"):
        _ = launch.c_address
    assert set(DEVICES) == {"cpu", "cuda"}


def test_without_llvmlite_it_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(ToolchainError, match=r"llvmlite: cannot be loaded: .*pip install --force-reinstall llvmlite"):
        jit.link("nothing", "", ())


# ---------------------------------------------------------------- CUDA, over a stand-in for the driver


@pytest.fixture
def fake(monkeypatch):
    return installed(monkeypatch, FakeDriver(total=1 << 24))


@pytest.fixture
def device(fake):
    made = CudaDevice(0)
    yield made
    assert made.context.callers.value == 0 and made.context.busy.value == 0
    made.close()


class Stream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_a_cuda_launch_is_one_call_of_the_driver(device, fake):
    launch, x, y = bound(device)
    blocks = []
    fake.kernel = blocks.append
    words = CLaunchWords.from_address(launch.c_address)
    assert (words.device, words.context, words.stream, words.function) == (2, 77, 5, int(launch.raw.function))
    assert list(words.grid) == list(launch.kernel.grid) and words.arguments_bytes == 24
    fake.log.clear()
    assert run(launch.c_address) == 0 and run(launch.c_address, 1234) == 0
    assert fake.log == ["cuLaunchKernel"] * 2
    assert [(grid, workgroup, stream) for grid, workgroup, _, stream in fake.launches] == [(tuple(words.grid), (64, 1, 1), s) for s in (5, 1234)]
    block = np.uint64([x.address, y.address]).tobytes() + np.float32(2).tobytes() + np.uint32(1000).tobytes()
    assert blocks == [block] * 2
    assert device.telemetry.launches == 0


def test_what_is_set_on_cuda_is_followed(device, fake):
    launch, _, y = bound(device)
    address = launch.c_address
    blocks = []
    fake.kernel = blocks.append
    launch.set(a=7.0)  # in native code
    other = device.upload(np.ones(1000, np.float32))
    launch.set(y=other)
    y.free()
    assert run(address) == 0 and blocks[-1][8:20] == other.address.to_bytes(8, "little") + np.float32(7).tobytes()
    launch.on(Stream(99))
    assert run(address) == 0 and fake.launches[-1][3] == 99 and CLaunchWords.from_address(address).stream == 99
    entry, grid = launch.kernel.plan.entry, launch.kernel.grid
    views = {name: device.upload(np.ones(1001, np.float32))[1:] for name in ("x", "y")}
    launch.set(**views)
    assert run(address) == 0 and fake.launches[-1][0] == launch.kernel.grid == tuple(CLaunchWords.from_address(address).grid)
    assert entry == 0 and launch.kernel.plan.entry == 1 and grid != launch.kernel.grid


def test_another_context_or_none_is_left_as_it_was(device, fake):
    launch, _, _ = bound(device)
    address, seen = launch.c_address, []

    def work(context):
        fake.current.context = context
        seen.append((run(address), fake.current.context))

    for context in (None, 123):
        thread = threading.Thread(target=work, args=(context,))
        thread.start()
        thread.join()
    assert seen == [(0, None), (0, 123)] and len(fake.launches) == 2
    assert fake.log[-4:] == ["cuLaunchKernel", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"]
    fake.fail["cuCtxPushCurrent"] = [2]
    thread = threading.Thread(target=work, args=(None,))
    thread.start()
    thread.join()
    assert seen[-1] == (2, None)


def test_a_status_of_the_driver_is_given_as_it_is(device, fake):
    launch, _, _ = bound(device)
    fake.fail["cuLaunchKernel"] = [701]
    assert run(launch.c_address) == 701 and run(launch.c_address) == 0


def test_a_launch_with_attributes_goes_to_the_stream_that_is_given(device, fake):
    x, y = device.upload(np.ones(1024, np.float32))[1:], device.upload(np.ones(1024, np.float32))[1:]
    launch = device.compile_native(AXPY).bind({"x": x[:512], "y": y[:512], "a": 1.0}, config=vp.DispatchConfig(cluster=(2, 1, 1)))
    assert [run(launch.c_address, stream) for stream in (None, 42, None)] == [0, 0, 0]
    assert [stream for *_, stream in fake.launches] == [5, 42, 5] and len(fake.extended) == 3


def test_what_forbids_a_cuda_launch(device, fake):
    launch, x, _ = bound(device)
    address = launch.c_address
    count = len(fake.launches)
    seen = []
    fake.cuStreamBeginCapture = lambda *given: (0,)
    device.context.begin_capture(type("Capture", (), {"refusal": lambda self, doing: None, "is_own": False})())
    try:
        seen.append(run(address))
    finally:
        device.context.end_capture()
    launch.kernel.calls.invalidate()
    seen.append(run(address))
    launch.kernel.calls.restore()
    x.free()
    seen.append(run(address))
    empty = device.compile_native(AXPY).bind({"x": device.allocate(0, vp.f32), "y": device.allocate(0, vp.f32), "a": 1.0})
    seen.append(run(empty.c_address))
    assert seen == [CStatus.BUSY, CStatus.BUSY, CStatus.FREED, CStatus.OK] and len(fake.launches) == count
    device.close()
    assert run(address) == CStatus.LOST


def test_whoever_closes_the_device_waits_for_c(fake):
    device = CudaDevice(0)
    launch, _, _ = bound(device)
    address, inside, go = launch.c_address, threading.Event(), threading.Event()
    fake.kernel = lambda block: (inside.set(), go.wait(10))
    runner = threading.Thread(target=lambda: (device.context.cuda.cuCtxSetCurrent(device.context.handle), run(address)))
    runner.start()
    assert inside.wait(10) and device.context.callers.value == 1
    closer = threading.Thread(target=device.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive() and "cuDevicePrimaryCtxRelease" not in fake.log
    go.set()
    closer.join(10)
    runner.join(10)
    assert not closer.is_alive() and "cuDevicePrimaryCtxRelease" in fake.log and run(address) == CStatus.LOST


def test_raw_code_has_an_address_too(device, fake):
    ptx = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x) { ret; }\n"
    launch = device.load_ptx(ptx, "k", [("x", vp.f32, "read")]).bind({"x": device.allocate(4, vp.f32)}, grid=3, workgroup=32)
    assert run(launch.c_address) == 0 and fake.launches[-1][:2] == ((3, 1, 1), (32, 1, 1))
    assert list(parameters_of(launch.c_address)) == [("x", 0)]


# ---------------------------------------------------------------- a GPU


def test_c_runs_a_launch_on_a_gpu(caller):
    device = open_device("cuda")
    launch, _, y = bound(device)
    address, x = launch.c_address, np.arange(1000, dtype=np.float32)
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(caller.go(address, None))) for _ in range(3)]  # no context is current in them
    for thread in threads:
        thread.start()
        thread.join()
    assert statuses == [0, 0, 0] and np.array_equal(y.read(), 6 * x + 1)
    launch.set(a=1.0)
    stream = device.stream()
    y.use_on(stream)
    assert caller.go(address, stream.__cuda_stream__()[1]) == 0 and np.array_equal(y.read(), 7 * x + 1), "on a stream of its own"
    assert caller.change(address, b"a", ctypes.byref(ctypes.c_float(-7))) == 0 and np.array_equal(y.read(), 0 * x + 1)
    views = {name: device.upload(np.ones(1001, np.float32))[1:] for name in ("x", "y")}
    launch.set(**views)
    assert caller.go(address, None) == 0 and (views["y"].read() == -6).all(), "memory that is not aligned"
    y.free()
    views["x"].free()
    assert caller.go(address, None) == CStatus.FREED
