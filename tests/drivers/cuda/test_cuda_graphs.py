"""What only a GPU proves of sequences, graphs, events, raw code and products. `tests/drivers/many/test_sequences.py` runs there as well."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import threading
import time

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import open_device
from ptxas import find_ptxas

import vyre_py as vp
from vyre_py.drivers.cuda.graph.executables import GRAPH_LIMIT
from vyre_py.drivers.errors import BindingError, DeviceUnavailable, LaunchError
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.errors import ToolchainError

# Each turn adds 1 to every y and takes 1 from the flag.
TURN = parse("""program turn(n) workgroup(256) over(n) {
  buffer flag: u32[1] read_write
  buffer y: u32[n] read_write
  let i = global_id.x
  y[i] = y[i] + 1
  if i == 0 { flag[0u32] = flag[0u32] - 1 }
}""")

SLOW = parse("""program slow() workgroup(1) over(1) {
  param turns: u32
  buffer out: u32[1] read_write
  var x: u32 = out[0u32]
  for k in 0..turns { x = x * 1664525 + 1013904223 }
  out[0u32] = x
}""")

PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %i, %b, %d, %t, %n;
    .reg .f32 %a, %v;
    .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.f32 %a, [a];
    ld.param.u32 %n, [n];
    mov.u32 %b, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %b, %d, %t;
    setp.ge.u32 %p, %i, %n;
    @%p ret;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.f32 %v, [%x];
    mul.f32 %v, %v, %a;
    st.global.f32 [%y], %v;
    ret;
}
"""
SIGNATURE = [("x", vp.f32, "read"), ("y", vp.f32, "write"), ("a", vp.f32), ("n", vp.u32)]
N = 100_000
X = (np.arange(N) % 128).astype(np.float32)  # small, so that all sums below are exact


@pytest.fixture(scope="module")
def device():
    return open_device("cuda")


@pytest.fixture
def axpy(device):
    pipeline = device.compile_native(AXPY)

    def bind(a=2.0, x=None, y=None):
        x = device.upload(X) if x is None else x
        y = device.upload(np.ones(N, np.float32)) if y is None else y
        return pipeline.bind(x=x, y=y, a=a), x, y

    return bind



def library(name):
    """An optional peer."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - peers fail to import in many ways
        pytest.skip(f"{name} is not here: {error}")


# ---- sequences


@pytest.mark.parametrize("first", [False, True])
def test_a_kernel_bound_within_a_capture_has_its_words(device, first):
    """An interruptible kernel with a grid barrier: its flag and its count are zero before the first replay, and no node of the graph."""
    spin = parse("""program spin(n) workgroup(64) {
      buffer y: u32[n] read_write
      for k in 0u32..4u32 { y[global_id.x] = y[global_id.x] + k }
      grid_barrier
      y[global_id.x] = y[global_id.x] + 1
    }""")
    pipeline = device.compile_native(spin, vp.CompileOptions(interruptible=True))
    y, made = device.allocate(1000, vp.u32), []
    device.trim()  # no words are there
    graph = device.capture(lambda: (made.append(pipeline.bind(y=y)), made[0]()))
    assert graph.nodes == 1
    for call in (made[0], graph) if first else (graph, made[0]):
        call()
    graph()
    assert (y.read() == 21).all()


def test_products_on_several_streams_share_no_workspace_at_once(device):
    library("nvmath")
    rng = np.random.default_rng(7)
    steps, wanted, outs = [], [], []
    for _ in range(2):  # long sums of few results are split, and their parts lie in the workspace
        a, b = [rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 65536), (65536, 64))]
        out = device.allocate((64, 64), vp.f32)
        steps.append(vp.gemm_step(device.upload(a), device.upload(b), out))
        wanted.append(a.astype(np.float32) @ b.astype(np.float32))
        outs.append(out)
    with device.stream() as stream:
        graph = device.capture(steps[0]).on(stream)
        for _ in range(200):
            graph()
            steps[1]()
        device.synchronize()
        stream.synchronize()
        for out, right in zip(outs, wanted, strict=True):
            assert np.array_equal(out.read(), right)


def test_a_long_sequence_is_right(device, axpy):
    launch, _, y = axpy(1.0)
    z = device.allocate(N, vp.f32)
    sequence = device.sequence(*[launch] * 3000, vp.copy_step(y, z), vp.fill_step(y, -1.0), launch)  # longer than the driver's queue
    sequence()
    assert np.array_equal(z.read(), 1 + 3000 * X) and np.array_equal(y.read(), X - 1)
    launch.set(a=0.0, y=z)
    sequence()
    assert np.array_equal(z.read(), X - 1) and (y.read() == -1).all()


def test_sequences_and_graphs_in_sixteen_threads(device):
    pipeline = device.compile_native(AXPY)
    wrong = []

    def work(number):
        try:
            x, y = device.upload(np.full(1000, 1.0, np.float32)), device.upload(np.zeros(1000, np.float32))
            launch = pipeline.bind(x=x, y=y, a=1.0)
            sequence = device.sequence(launch, launch, launch)
            for turn in range(50):
                sequence()
                launch.set(a=float(turn % 2))
                launch()
            got = y.read()
            wanted = sum(3.0 * (1 if turn == 0 else (turn - 1) % 2) + turn % 2 for turn in range(50))
            if not (got == wanted).all():
                wrong.append((number, got[0], wanted))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            wrong.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_set_in_one_thread_while_another_launches(device, axpy):
    """Buffers that `set` drops are not given back under a launch that is being made."""
    launch, _, _ = axpy(0.0)
    graph = device.capture(launch)
    stop, errors = threading.Event(), []

    def launching():
        try:
            while not stop.is_set():
                launch()
                graph()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            errors.append(error)

    threads = [threading.Thread(target=launching) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        launch.set(y=device.allocate(N, vp.f32))
        graph.update()
    stop.set()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert not errors


# ---- graphs


def test_capture_update_and_replay(device, axpy):
    launch, _, y = axpy(1.0)
    z = device.allocate(N, vp.f32)
    sequence = device.sequence(launch, vp.copy_step(y, z))
    graph = device.capture(lambda: (launch(), sequence(), z.fill(0.5), launch()) and 7)
    assert graph.value == 7 and graph.nodes == 5 and graph.raw
    assert np.array_equal(y.read(), np.ones(N)), "nothing runs while it is captured"
    for _ in range(3):
        graph()
    assert np.array_equal(y.read(), 1 + 9 * X) and (z.read() == 0.5).all()
    launch.set(a=0.0)
    graph()
    assert np.array_equal(y.read(), 1 + 12 * X), "arguments are those of the capture"
    before = graph.raw
    assert graph.update() == 3
    assert graph.raw == before, "the driver changes kernel nodes in place"
    graph()
    assert np.array_equal(y.read(), 1 + 12 * X)
    w = device.upload(np.zeros(N, np.float32))
    assert graph.set(launch, a=1.0, y=w) is graph
    graph.repeat(100)
    assert np.array_equal(w.read(), 300 * X) and np.array_equal(y.read(), 1 + 12 * X)


def test_a_graph_of_a_thousand_nodes(device, axpy):
    launch, _, y = axpy(1.0)
    graph = device.capture(lambda: [launch() for _ in range(1000)])
    assert graph.nodes == 1000
    graph()
    assert np.array_equal(y.read(), 1 + 1000 * X)
    assert graph.set(launch, a=2.0) is graph
    graph()
    assert np.array_equal(y.read(), 1 + 3000 * X)


def test_what_fails_leaves_the_stream_usable(device, axpy):
    launch, x, y = axpy(1.0)

    def stop():
        launch()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.capture(stop)
    with pytest.raises(LaunchError, match="launched nothing"):
        device.capture(lambda: None)

    def wait():
        """What no capture allows, by another way than ours."""
        launch()
        driver = device.context.cuda
        assert driver.cuStreamSynchronize(device.context.stream)[0], "the driver refuses to wait for a stream that is captured"

    with pytest.raises(LaunchError, match="INVALIDATED"):
        device.capture(wait)
    for forbidden in (device.synchronize, lambda: device.upload(X), x.read, lambda: x.write(X), device.trim):
        with pytest.raises(LaunchError, match="a graph is being captured"):
            device.capture(lambda forbidden=forbidden: (launch(), forbidden()))
    graph = device.capture(launch)
    graph()
    assert np.array_equal(y.read(), 1 + X)
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        graph()


def test_memory_dropped_in_a_capture(device, axpy):
    launch, _, y = axpy(1.0)
    held = [device.allocate(1 << 20, vp.f32) for _ in range(10)]

    def work():
        held.clear()
        launch()

    graph = device.capture(work)
    graph()
    device.allocate(1 << 20, vp.f32)
    assert np.array_equal(y.read(), 1 + X)


def test_a_graph_within_a_graph(device, axpy):
    launch, _, y = axpy(1.0)
    inner = device.capture(lambda: (launch(), launch()))
    outer = device.capture(lambda: (inner(), launch(), inner()))
    outer()
    assert outer.nodes == 3 and np.array_equal(y.read(), 1 + 5 * X)


def test_more_graphs_than_are_kept(device, axpy):
    launch, _, y = axpy(1.0)
    graphs = [device.capture(launch) for _ in range(GRAPH_LIMIT + 10)]
    assert sum(bool(graph.raw) for graph in graphs) <= GRAPH_LIMIT
    for graph in graphs:
        graph()
    assert np.array_equal(y.read(), 1 + len(graphs) * X)


def test_capture_beside_other_threads(device, axpy):
    """Another thread that uses the driver by itself does not break a capture, and one that uses the device is told."""
    launch, _, y = axpy(1.0)
    driver, context = device.context.cuda, device.context
    stop, told, statuses = threading.Event(), [], []

    def other():
        driver.cuCtxSetCurrent(context.handle)
        while not stop.is_set():
            status, address = driver.cuMemAlloc(1 << 16)
            statuses.append(int(status))
            if not status:
                statuses.append(int(driver.cuMemFree(address)[0]))
            try:
                launch()
            except LaunchError as error:
                told.append(error.cause)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(50):
            graph = device.capture(lambda: (launch(), time.sleep(0.001), launch()))
            assert graph.nodes == 2
    finally:
        stop.set()
        thread.join()
    device.synchronize()
    assert set(statuses) == {0} and set(told) == {f"the thread 'MainThread' captures a graph on {device.name}"}
    assert np.isfinite(y.read()).all()


def test_capture_while_on_the_device(device):
    flag, y = device.upload(np.array([1000], np.uint32)), device.upload(np.zeros(N, np.uint32))
    launch = device.compile_native(TURN).bind(flag=flag, y=y)
    graph = device.capture_while(flag, launch)
    _, version = device.context.cuda.cuDriverGetVersion()
    assert graph.conditional == ("device" if version >= 12040 else "host"), f"driver {version}"
    graph()
    assert graph.turns() == 1000 and flag.read()[0] == 0 and (y.read() == 1000).all()
    graph()
    assert graph.turns() == 0 and (y.read() == 1000).all(), "a flag of zero runs nothing"
    flag.write(np.array([50], np.uint32))
    bounded = device.capture_while(flag, lambda: (launch(), launch()), limit=10)
    bounded()
    assert bounded.turns() == 10 and flag.read()[0] == 30 and (y.read() == 1020).all()
    bounded.repeat(2)
    assert bounded.turns() == 5 and flag.read()[0] == 0 and (y.read() == 1050).all()
    z = device.upload(np.zeros(N, np.uint32))
    flag.write(np.array([7], np.uint32))
    graph.set(launch, y=z)
    graph()
    assert graph.turns() == 7 and (z.read() == 7).all() and (y.read() == 1050).all()


# ---- other libraries on our stream


def test_pytorch_joins_a_capture(device, axpy):
    torch = library("torch")
    launch, _, y = axpy(1.0)
    theirs = torch.from_dlpack(y)
    stream = torch.cuda.ExternalStream(device.raw.stream)
    with torch.cuda.stream(stream):
        theirs.mul_(1.0)  # its kernels are loaded before
    torch.cuda.synchronize()

    def work():
        launch()
        with torch.cuda.stream(stream):
            theirs.mul_(2.0)
        launch()

    graph = device.capture(work)
    assert graph.nodes == 3
    graph()
    graph()
    assert np.array_equal(y.read(), (((1 + X) * 2 + X) + X) * 2 + X)


def test_cupy_joins_a_capture(device, axpy):
    cupy = library("cupy")
    launch, _, y = axpy(1.0)
    theirs = cupy.asarray(y)
    stream = cupy.cuda.Stream.from_external(device.streams.compute)
    with stream:
        cupy.multiply(theirs, cupy.float32(1), out=theirs)
    device.synchronize()

    def work():
        launch()
        with stream:
            cupy.multiply(theirs, cupy.float32(2), out=theirs)

    graph = device.capture(work)
    graph()
    assert graph.nodes == 2 and np.array_equal(y.read(), (1 + X) * 2)


def test_a_stream_that_waits_for_an_event_joins_the_capture(device, axpy):
    launch, x, y = axpy(1.0)
    other, _, z = axpy(2.0, x)
    with device.stream() as stream:
        other.on(stream)

        def work():
            launch()
            device.wait_event(device.record_event(), stream)
            other()
            device.wait_event(device.record_event(stream))
            launch()

        graph = device.capture(work)
        assert graph.nodes == 3
        graph()
        device.synchronize()
        assert np.array_equal(y.read(), 1 + 2 * X) and np.array_equal(z.read(), 1 + 2 * X)
        with pytest.raises(LaunchError, match="not part of the capture"):
            device.capture(lambda: (launch(), other()))
        device.capture(launch)()


# ---- events and streams


def test_events_order_streams(device):
    out = device.upload(np.array([1], np.uint32))
    slow = device.compile_native(SLOW).bind(out=out, turns=200_000_000)
    begun = device.record_event()
    begun.wait()
    slow()
    event = device.record_event()
    assert begun.done() and not event.done(), "the kernel takes some tenths of a second"
    with device.stream() as stream:
        device.wait_event(event, stream)
        after = device.record_event(stream)
        assert not after.done()
        after.wait()
        assert event.done() and after.done()


def test_priorities(device):
    low, high = device.stream(), device.stream(-1)
    cuda = device.context.cuda
    assert [int(cuda.cuStreamGetPriority(cuda.CUstream(stream.raw))[1]) for stream in (low, high)] == [0, -1]
    with pytest.raises(BindingError, match="priority"):
        device.stream(1)
    low.close()
    high.close()


# ---- raw code


def cubin(ptx, device, folder):
    source, target = folder / "code.ptx", folder / "code.cubin"
    source.write_text(ptx)
    subprocess.run([find_ptxas(), f"-arch=sm_{device.capability[0]}{device.capability[1]}", source, "-o", target], check=True)
    return target.read_bytes()


@pytest.mark.parametrize("form", ["text", "bytes", "cubin"])
def test_load_ptx(device, form, tmp_path):
    code = {"text": PTX, "bytes": PTX.encode()}.get(form) or cubin(PTX, device, tmp_path)
    kernel = device.load_ptx(code, "scale", SIGNATURE)
    x, y = device.upload(X), device.allocate((N // 10, 10), vp.f32)
    launch = kernel.bind(x=x, y=y, a=3.0, n=N, grid=-(-N // 128), workgroup=128)
    launch()
    assert np.array_equal(y.read().ravel(), 3 * X)
    graph = device.capture(device.sequence(vp.fill_step(y, 0.0), launch))
    graph.set(launch, a=-1.0)()
    assert np.array_equal(y.read().ravel(), -X)
    assert launch.raw.function and launch.raw.module == kernel.raw.module


def test_load_ptx_is_compared_with_the_code(device):
    with pytest.raises(BindingError, match="'a' takes 8 bytes"):
        device.load_ptx(PTX, "scale", [*SIGNATURE[:2], ("a", vp.f64), ("n", vp.u32)])
    with pytest.raises(BindingError, match="3 parameters"):
        device.load_ptx(PTX, "scale", SIGNATURE[:3])
    with pytest.raises(BindingError, match="no entry 'other'"):
        device.load_ptx(PTX, "other", SIGNATURE)
    with pytest.raises(ToolchainError, match="ptxas"):
        device.load_ptx(PTX.replace("mul.f32", "mull.f32"), "scale", SIGNATURE)
    device.synchronize()


# ---- products


@pytest.fixture
def gemm(device):
    def run(a, b, out, **options):
        try:
            return vp.gemm_step(a, b, out, **options)
        except DeviceUnavailable as error:
            pytest.skip(str(error))

    return run


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float64, 1e-13), (np.float16, 2e-3), ("bf16", 1e-2), ("tf32", 2e-3)])
@pytest.mark.parametrize(("transpose_a", "transpose_b", "batch"), [(False, False, ()), (True, False, (3,)), (False, True, ()), (True, True, (2,))])
def test_gemm_against_numpy(device, gemm, dtype, bound, transpose_a, transpose_b, batch):
    options = {"math": "tf32"} if dtype == "tf32" else {}
    dtype = {"bf16": vp.bf16.dtype, "tf32": np.float32}.get(dtype, dtype) if isinstance(dtype, str) else dtype
    rng = np.random.default_rng(3)
    m, k, n = 130, 70, 50
    a = rng.standard_normal((*batch, *((k, m) if transpose_a else (m, k)))).astype(dtype)
    b = rng.standard_normal((*batch, *((n, k) if transpose_b else (k, n)))).astype(dtype)
    c = rng.standard_normal((*batch, m, n)).astype(dtype)
    wide = [v.astype(np.float64) for v in (a, b, c)]
    left, right = np.swapaxes(wide[0], -1, -2) if transpose_a else wide[0], np.swapaxes(wide[1], -1, -2) if transpose_b else wide[1]
    out = device.upload(c)
    step = gemm(device.upload(a), device.upload(b), out, alpha=0.5, beta=2.0, transpose_a=transpose_a, transpose_b=transpose_b, **options)
    wanted = 0.5 * left @ right + 2.0 * wide[2]
    step()
    scale = np.abs(left) @ np.abs(right) + np.abs(wanted)
    assert (np.abs(out.read().astype(np.float64) - wanted) / scale).max() < bound


def test_gemm_in_sequences_and_graphs(device, gemm):
    rng = np.random.default_rng(4)
    a, b = [rng.integers(-3, 4, (64, 64)).astype(np.float32) for _ in range(2)]
    ad, bd, out, copy = device.upload(a), device.upload(b), device.allocate((64, 64), vp.f32), device.allocate((64, 64), vp.f32)
    step = gemm(ad, bd, out)
    device.sequence(vp.fill_step(out, 9.0), step, vp.copy_step(out, copy))()
    assert np.array_equal(copy.read(), a @ b)
    second = gemm(out, bd, copy)
    graph = device.capture(lambda: (out.fill(0.0), step(), second()))
    ad.write(2 * a)
    graph()
    assert np.array_equal(copy.read(), 2 * a @ b @ b), "exact, since all sums are small whole numbers"
    half = device.upload(a.astype(np.float16))
    gemm(half, device.upload(b.astype(np.float16)), out)()
    assert np.array_equal(out.read(), a @ b)
    views = device.upload(rng.integers(-3, 4, 64 * 64 + 3).astype(np.float32))
    gemm(views[3:].reshape(64, 64), bd, out)()  # aligned to four bytes
    assert np.array_equal(out.read(), views.read()[3:].reshape(64, 64) @ b)
    thread = threading.Thread(target=device.sequence(step))
    thread.start()
    thread.join()
    assert np.array_equal(out.read(), 2 * a @ b), "in a thread that has not used the device before"


def test_addresses_are_the_drivers(device):
    buffer = device.upload(np.arange(8, dtype=np.uint8))
    device.synchronize()  # the driver's own copy knows nothing of our stream
    seen = np.empty(4, np.uint8)
    cuda = device.context.cuda
    device.context.cuda.cuCtxSetCurrent(device.context.handle)
    (status,) = cuda.cuMemcpyDtoH(seen.ctypes.data_as(ctypes.c_void_p).value, buffer[4:].address, 4)
    assert not status and seen.tolist() == [4, 5, 6, 7]
