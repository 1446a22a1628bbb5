"""The CPU device's own: threads, scratch memory, code in this process, and what a launch holds on to."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from children import child_environment

import vyre_py as vp
from vyre_py.drivers.cores import core_count, thread_count
from vyre_py.drivers.cpu import count, open_device, workers
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cpu.launch import CpuLaunch
from vyre_py.drivers.cpu.memory import ALIGN, HostMemory
from vyre_py.drivers.cpu.module import CpuKernel, load_kernel
from vyre_py.drivers.errors import DriverError
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.compile import compile_for

COUNT = """program count(n) workgroup(64) over(n) { param turns: u32\n buffer y: u32[n] write
  var a: u32 = global_id.x\n for k in 0u32..turns { a = a * 1664525u32 + 1013904223u32 }\n y[global_id.x] = a }"""

BLOCKS = """program blocks(n) workgroup(64) over(n) { buffer x: u32[n] read\n buffer y: u32[n] write\n workgroup tile: u32[64]
  let l = local_index\n tile[l] = x[global_id.x]\n barrier\n y[global_id.x] = tile[63u32 - l] }"""


NOTHING = Arguments(b"", {})


@pytest.fixture
def cpu() -> Iterator[CpuDevice]:
    made = CpuDevice(0)
    yield made
    made.close()


def counted(size: int, turns: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    a = np.arange(size, dtype=np.uint32)
    for _ in range(turns):
        a = a * np.uint32(1664525) + np.uint32(1013904223)
    return a


def test_there_is_one() -> None:
    assert count() == 1 and open_device(0).kind == "cpu" and "core" in open_device(0).description


def test_memory_is_aligned_zeroed_and_padded() -> None:
    for size in (0, 1, 63, 64, 65, 4097):
        memory = HostMemory(size)
        assert memory.address % ALIGN == 0 and memory.bytes.size == size and not memory.bytes.any()
        assert memory.bytes.base is not None and memory.bytes.base.size >= size + ALIGN


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [64, 128, 1000, 50_000])
def test_every_workgroup_runs_once_whatever_the_threads(cpu: CpuDevice, size: int, threads: int) -> None:
    total = cpu.upload(np.zeros(size, np.uint32))
    add = Program.from_text("program add(n) workgroup(64) over(n) { buffer y: u32[n] read_write\n y[global_id.x] = y[global_id.x] + global_id.x + 1u32 }")
    launch = cpu.compile_native(add).bind({"y": total})
    assert isinstance(launch, CpuLaunch)
    cpu.threads = threads
    for large in (True, False, True):
        launch._large = large
        launch()
    np.testing.assert_array_equal(total.read(), 3 * (np.arange(size, dtype=np.uint32) + 1))
    assert cpu.telemetry.launches == 3


@pytest.mark.parametrize(("elapsed_ns", "shared_from"), [((1_000, 1_600, 2_000, 2_000), []), ((1_600, 5_000), [9]), ((1_000_000,), [1])])
def test_what_takes_long_is_shared(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch, elapsed_ns: tuple[int, ...], shared_from: list[int]) -> None:
    calls: list[int] = []
    real = workers.run_together
    clock = iter([moment for ns in elapsed_ns for moment in (0, ns)])
    monkeypatch.setattr("vyre_py.drivers.cpu.launch.run_together", lambda *a: (calls.append(a[2]), real(*a))[1])
    monkeypatch.setattr("vyre_py.drivers.cpu.launch.perf_counter_ns", lambda: next(clock))
    y = cpu.allocate(64 * 200, vp.u32)
    launch = cpu.compile_native(Program.from_text(COUNT)).bind({"y": y, "turns": 1})
    assert isinstance(launch, CpuLaunch)
    cpu.threads = 2
    launch()
    assert calls == shared_from
    np.testing.assert_array_equal(y.read(), counted(64 * 200, 1))


def test_launches_release_the_gil_and_run_beside_each_other(cpu: CpuDevice) -> None:
    """Threads launch different kernels with scratch memory at once; each sees its own results only."""
    pipelines = [cpu.compile_native(Program.from_text(text)) for text in (COUNT, BLOCKS)]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            x = rng.integers(0, 1 << 32, 64 * 700, dtype=np.uint32)
            if not np.array_equal(pipelines[1].dispatch(x=x)["y"], x.reshape(-1, 64)[:, ::-1].reshape(-1)):
                wrong.append("blocks")
            if not np.array_equal(pipelines[0].dispatch(n=33_000, turns=3)["y"], counted(33_000, 3)):
                wrong.append("count")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

    ticks = 0
    y = cpu.allocate(64, vp.u32)
    launch = pipelines[0].bind({"y": y, "turns": 50_000_000})
    runner = threading.Thread(target=launch)
    runner.start()
    while runner.is_alive():
        ticks += 1
        time.sleep(0.001)
    assert ticks > 5


def test_scratch_memory_is_each_threads_own_and_only_grows() -> None:
    first = workers._scratch.take(100)
    assert first.address % ALIGN == 0
    workers._scratch.give(first)
    assert workers._scratch.take(50) is first
    workers._scratch.give(first)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(workers._scratch.take(100)))
    thread.start()
    thread.join()
    assert seen[0] is not first and seen[0].address != first.address


@pytest.mark.parametrize("together", [True, False])
def test_a_launch_within_a_launch_has_scratch_memory_of_its_own(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """A signal handler or a finaliser launches while a kernel of its thread uses scratch memory."""
    x = np.arange(64 * 40, dtype=np.uint32)
    y = cpu.allocate(x.size, vp.u32)
    outer, inner = (cpu.compile_native(Program.from_text(BLOCKS)).bind({"x": cpu.upload(x), "y": y}) for y in (y, cpu.allocate(x.size, vp.u32)))
    assert isinstance(outer, CpuLaunch) and isinstance(inner, CpuLaunch)
    using: list[int] = []
    here, real = threading.get_ident(), outer._kernel.run

    def run(block: int, scratch: int, *rest: int) -> None:
        if threading.get_ident() != here:
            real(block, scratch, *rest)
            return
        assert scratch not in using
        using.append(scratch)
        if len(using) == 1:
            inner()
        real(block, scratch, *rest)
        using.pop()

    outer._kernel.run = inner._kernel.run = run
    outer._large = inner._large = together
    cpu.threads = 2
    outer()
    np.testing.assert_array_equal(y.read(), x.reshape(-1, 64)[:, ::-1].reshape(-1))


def test_what_goes_wrong_in_a_thread_is_a_launch_error(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = cpu.compile_native(Program.from_text(COUNT)).bind({"y": cpu.allocate(100_000, vp.u32), "turns": 1})
    assert isinstance(launch, CpuLaunch)
    cpu.threads = 3
    here = threading.get_ident()
    real = workers._Scratch.take

    def fail(self: Any, size: int) -> Any:
        if threading.get_ident() == here:
            time.sleep(0.05)  # so that the others have begun
            return real(self, size)
        raise MemoryError("no scratch")

    monkeypatch.setattr(workers._Scratch, "take", fail)
    with pytest.raises(vp.LaunchError, match="no scratch"):
        launch()
    monkeypatch.undo()
    launch()
    np.testing.assert_array_equal(launch.plan.buffers["y"].read(), counted(100_000, 1))


def test_an_interrupt_waits_for_the_threads_that_use_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    began, end, left = threading.Event(), threading.Event(), threading.Event()

    def run(block: int, scratch: int, first: int, *rest: int) -> None:
        if threading.current_thread() is threading.main_thread():
            began.wait(5)
            raise KeyboardInterrupt
        began.set()
        end.wait(5)
        left.set()

    kernel = CpuKernel(None, 0, 0)
    kernel.run = run
    threading.Timer(0.1, end.set).start()
    with pytest.raises(KeyboardInterrupt):
        workers.run_together(kernel, NOTHING, 0, 100, (100, 1, 1), 2)
    assert left.is_set()


class TooLate(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_call_waits_for_its_threads_however_often_signal_handlers_raise(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    began, left = threading.Event(), threading.Event()
    real, raised = workers.GridJob.finish, iter(range(times))

    def run(block: int, scratch: int, first: int, *rest: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            time.sleep(0.1)
            left.set()
        else:
            began.wait(5)

    def finish(self: workers.GridJob) -> None:
        if next(raised, None) is not None:
            raise TooLate
        real(self)

    kernel = CpuKernel(None, 0, 0)
    kernel.run = run
    monkeypatch.setattr(workers.GridJob, "finish", finish)
    with pytest.raises(TooLate):
        workers.run_together(kernel, NOTHING, 0, 100, (100, 1, 1), 2)
    assert left.is_set()


def test_a_signal_handler_that_raises_leaves_no_thread_in_the_kernel(cpu: CpuDevice) -> None:
    """Real signals at many moments of launches that two threads run: none is left in a kernel, and no job is left open that others were asked to help with."""
    jobs: list[workers.GridJob] = []
    real = workers._pool.offer
    launch = cpu.compile_native(Program.from_text(COUNT)).bind({"y": cpu.allocate(1 << 16, vp.u32), "turns": 3})
    assert isinstance(launch, CpuLaunch)
    cpu.threads = 2

    def offer(job: workers.GridJob, helpers: int) -> None:
        jobs[:] = [job]
        real(job, helpers)

    def handler(*_: Any) -> None:
        raise TooLate

    def launch_until(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            launch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers._pool, "offer", offer)
        before = signal.signal(signal.SIGALRM, handler)
        gc.disable()  # what a handler raises within a finaliser goes no further
        try:
            for turn in range(300):
                with pytest.raises(TooLate):
                    launch_until(0.0002 + turn * 0.000007)
                assert all(job._closed and not job._helpers for job in jobs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gc.enable()
    launch()
    np.testing.assert_array_equal(launch.plan.buffers["y"].read(), counted(1 << 16, 3))


def test_a_helper_that_comes_too_late_does_nothing() -> None:
    kernel = CpuKernel(None, 0, 0)
    kernel.run = lambda *_: pytest.fail("run after the end")
    job = workers.GridJob(kernel, NOTHING, 10, 0, 1, (10, 1, 1))
    job.finish()
    job.help()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(cpu: CpuDevice) -> None:
    pipeline = cpu.compile_native(Program.from_text(COUNT))
    np.testing.assert_array_equal(pipeline.dispatch(n=100_000, turns=2)["y"], counted(100_000, 2))
    child = os.fork()
    if child == 0:
        right = np.array_equal(pipeline.dispatch(n=100_000, turns=2)["y"], counted(100_000, 2))
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_another_thread_compiles_compiles_itself() -> None:
    """The child inherits no lock of LLVM's that nobody would ever release, and no LLVM in the middle of a call."""
    stop = threading.Event()
    numbers = itertools.count(10)

    def text(number: int) -> Program:
        return Program.from_text(COUNT.replace("1013904223", str(number)))

    def compile_all() -> None:
        while not stop.is_set():
            vp.compile_native(text(next(numbers)), ["cpu"])

    vp.compile_native(text(2), ["cpu"])  # what is imported lazily is here
    compiler = threading.Thread(target=compile_all)
    compiler.start()
    try:
        for turn in range(6):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)  # ends a child that hangs
                os._exit(0 if vp.compile_native(text(10**6 + turn), ["cpu"]).parts else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        compiler.join()
    vp.compile_native(text(3), ["cpu"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_another_thread_digests_a_program_does_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    within, go_on = threading.Event(), threading.Event()
    found = vars(Program)["code_digest"]
    real = found.func
    monkeypatch.setattr(found, "func", lambda program: (within.set(), go_on.wait(60), real(program))[2])
    digester = threading.Thread(target=lambda: Program.from_text(BLOCKS).code_digest)
    digester.start()
    assert within.wait(60)
    monkeypatch.setattr(found, "func", real)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # ends a child that hangs
        os._exit(0 if Program.from_text(COUNT).code_digest else 1)
    status = os.waitpid(child, 0)[1]
    go_on.set()
    digester.join()
    assert status == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_keeps_its_arguments_while_another_thread_sets_others(cpu: CpuDevice, threads: int) -> None:
    """What `set` replaces stays, and is written, until the calls that began with it are over."""
    size = 1 << 16
    old, new = cpu.allocate(size, vp.u32), cpu.allocate(size, vp.u32)
    launch = cpu.compile_native(Program.from_text(COUNT)).bind({"y": old, "turns": 1})
    assert isinstance(launch, CpuLaunch)
    cpu.threads = threads
    memory, real, setting = weakref.ref(old.handle.bytes.base), launch._kernel.run, threading.Lock()
    skip = -old.handle.bytes.base.ctypes.data % ALIGN
    written: list[Any] = []

    def run(*arguments: int) -> None:
        nonlocal old
        with setting:
            if old is not None:
                launch.set(y=new, turns=2)
                old = None
                gc.collect()
            assert memory() is not None
        real(*arguments)
        written.append(memory())

    launch._kernel.run = run
    launch()
    assert written[0] is not None and np.array_equal(written[0][skip : skip + 4 * size].view(np.uint32), counted(size, 1))
    written.clear()
    assert memory() is None and not new.read().any()
    launch._kernel.run = real
    launch()
    np.testing.assert_array_equal(new.read(), counted(size, 2))


def test_set_writes_into_the_block(cpu: CpuDevice) -> None:
    x, y = (cpu.upload(np.arange(640, dtype=np.uint32) * k) for k in (1, 3))
    out, other = cpu.allocate(640, vp.u32), cpu.allocate(640, vp.u32)
    launch = cpu.compile_native(Program.from_text(BLOCKS)).bind({"x": x, "y": out})
    launch()
    launch.set(x=y, y=other)()
    turned = np.arange(640, dtype=np.uint32).reshape(-1, 64)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(out.read(), turned)
    np.testing.assert_array_equal(other.read(), turned * np.uint32(3))


def test_views_begin_where_they_should(cpu: CpuDevice) -> None:
    x, y = cpu.upload(np.arange(650, dtype=np.uint32)), cpu.allocate(650, vp.u32)
    cpu.compile_native(Program.from_text(BLOCKS)).bind({"x": x[7:71], "y": y[3:67]})()
    got = y.read()
    np.testing.assert_array_equal(got[3:67], np.arange(70, 6, -1))
    assert not got[:3].any() and not got[67:].any()


def test_a_freed_buffer_and_a_closed_device_end_launches(cpu: CpuDevice) -> None:
    x, y = cpu.upload(np.arange(64, dtype=np.uint32)), cpu.allocate(64, vp.u32)
    launch = cpu.compile_native(Program.from_text(BLOCKS)).bind({"x": x, "y": y})
    launch()
    x.free()
    for _ in range(2):
        with pytest.raises(vp.BindingError, match="'x' was freed"):
            launch()
    launch.set(x=cpu.upload(np.arange(64, dtype=np.uint32)))()
    cpu.close()
    with pytest.raises(vp.DeviceLost):
        launch()


def test_memory_goes_with_its_last_user(cpu: CpuDevice) -> None:
    x, y = cpu.upload(np.arange(64, dtype=np.uint32)), cpu.allocate(64, vp.u32)
    raw = weakref.ref(x.handle.bytes.base)
    launch = cpu.compile_native(Program.from_text(BLOCKS)).bind({"x": x, "y": y})
    x.free()
    assert raw() is not None  # a launch that runs in another thread may be reading it
    del launch, x
    gc.collect()
    assert raw() is None


def test_limits(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(vp.OutOfMemory):
        cpu.allocate(1 << 50, vp.u8)
    monkeypatch.setattr("vyre_py.drivers.cpu.device.HostMemory", lambda size: (_ for _ in ()).throw(MemoryError("full")))
    with pytest.raises(vp.OutOfMemory, match="full"):
        cpu.allocate(8, vp.u8)
    monkeypatch.undo()
    monkeypatch.setattr(cpu, "limits", replace(cpu.limits, elements=100))
    with pytest.raises(vp.BindingError, match="takes at most 100"):
        cpu.compile_native(Program.from_text(COUNT)).dispatch(n=101, turns=0)


def test_code_for_another_machine_is_refused(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    from vyre_py.lowering.llvm.cpu import host_targets

    artifact = compile_for(Program.from_text(COUNT), [vp_target("cpu:x86-64-v4")])
    monkeypatch.setattr(host_targets, "_cpuinfo", lambda: {"flags": "sse4_2"})
    with pytest.raises(vp.Unsupported, match="x86-64-v4"):
        cpu.load(artifact)
    monkeypatch.undo()
    with pytest.raises(vp.Unsupported):
        cpu.load(compile_for(Program.from_text(COUNT), [vp_target("wgsl")]))


def vp_target(name: str) -> Any:
    from vyre_py.lowering.target import parse_target

    return parse_target(name)


def test_an_object_that_does_not_link_is_a_toolchain_error() -> None:
    with pytest.raises(vp.ToolchainError):
        load_kernel(Image("object", b"no object"), Entry("vyre_kernel", details={"scratch_bytes": 0}))


def test_a_launch_is_a_few_frames(cpu: CpuDevice) -> None:
    """Python functions entered by a small launch: the call, its one way to run, the scratch memory taken and given back, and its count; without such memory
    the call and its count, of several workgroups, too, where there are no loops."""
    import sys

    plain = "program plain(n) workgroup(64) { buffer x: u32[n] read\n buffer y: u32[n] write\n y[global_id.x] = x[global_id.x] }"
    for text, n, frames in ((BLOCKS, 64, ["run_alone", "take", "give"]), (plain, 64, []), (plain, 640, [])):
        launch = cpu.compile_native(Program.from_text(text)).bind({"x": cpu.allocate(n, vp.u32), "y": cpu.allocate(n, vp.u32)})
        launch()
        entered: list[str] = []
        sys.setprofile(lambda frame, event, _, entered=entered: entered.append(frame.f_code.co_name) if event == "call" else None)
        try:
            launch()
        finally:
            sys.setprofile(None)
        assert entered == ["__call__", *frames, "count"]


@pytest.mark.parametrize(("type_", "start"), [(vp.u8, 1), (vp.u8, 2), (vp.u8, 3), (vp.u16, 1), (vp.i16, 3)], ids=str)
def test_small_elements_are_gathered_from_memory_that_begins_anywhere(type_: Any, start: int) -> None:
    """Processors gather words: the word that holds an element is found from where the memory begins, in buffers and in workgroup arrays."""
    made = Program.from_text(f"""program gather(n, m) workgroup(64) over(n) {{
  buffer at: u32[n] read
  buffer x: {type_}[m] read
  buffer y: {type_}[n] write
  buffer z: {type_}[n] write
  workgroup w: {type_}[64]
  let i = global_id.x
  w[local_index] = x[i]
  barrier
  y[i] = x[at[i]]
  z[i] = w[at[i] % 64u32]
}}""")
    device = vp.device("cpu")
    x = np.arange(64 + start).astype(type_.dtype)
    at = np.random.default_rng(1).permutation(64).astype(np.uint32)
    view = device.upload(x)[start:]
    y, z = device.allocate(64, type_), device.allocate(64, type_)
    device.compile_native(made).bind({"at": device.upload(at), "x": view, "y": y, "z": z})()
    assert np.array_equal(y.read(), x[start:][at]) and np.array_equal(z.read(), x[start:][at])


AT_A_PAGES_END = '''
import ctypes, mmap
import numpy as np, vyre_py as vp
page = mmap.PAGESIZE
room = mmap.mmap(-1, 2 * page)
begin = ctypes.addressof(ctypes.c_char.from_buffer(room))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin + page), ctypes.c_size_t(page), 0) == 0
x = np.frombuffer(room, np.uint8, 61, page - 61)
x[:] = np.arange(61)
at = np.arange(61, dtype=np.uint32)[::-1].copy()
made = vp.Program.from_text("""program gather(n, m) workgroup(64) over(n) {
  buffer at: u32[n] read
  buffer x: u8[m] read
  buffer y: u8[n] write
  y[global_id.x] = x[at[global_id.x]]
}""")
y = np.zeros(61, np.uint8)
vp.device("cpu").compile_native(made).bind({"at": at, "x": x, "y": y})()
assert (y == at).all()
'''


def test_a_gather_reads_nothing_past_the_page_that_an_array_ends_with() -> None:
    done = subprocess.run([sys.executable, "-c", AT_A_PAGES_END], env=child_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_the_machine_is() -> None:
    """Code for each of its targets runs here, the best first."""
    found = vp.device("cpu").properties  # type: ignore[attr-defined]  # a CpuDevice's
    assert found.targets[0] == "cpu" and found.cores >= 1 and found.memory_bytes > 1 << 20 and found.machine
    program = Program.from_text("program p(n) { buffer y: u32[n] write\n y[global_id.x] = 7 }")
    made = vp.compile_native(program, list(found.targets))
    for part in made.parts:
        alone = replace(made, parts=(part,))
        assert vp.device("cpu").load(alone).dispatch(n=3)["y"].tolist() == [7, 7, 7]
    assert vp.device("cpu").load(made).part.target.name == found.targets[0]


THREADS = """
import sys
import threading
import numpy as np
import vyre_py as vp
from vyre_py.ir.text.parser import parse

def names():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("vyre-cpu"))

device = vp.device("cpu")
pipeline = device.compile_native(parse(sys.argv[1]))
y = np.zeros(1 << 18, np.uint32)
launch, call = pipeline.bind(y=device.upload(y), turns=20), pipeline.callable()
for threads in (None, 3, 5):
    if threads is not None:
        device.threads = threads
    for run in (launch, lambda: call(y, turns=20)):
        run()
        print(device.threads, *names())
assert (y == launch.arguments["y"].read()).all()
"""


def test_as_many_threads_run_a_grid_as_are_set() -> None:
    """Pool threads begin when they are first asked for, and stay. What was bound and made before obeys, too."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS, COUNT], env=child_environment(VYRE_CPU_THREADS="1"), capture_output=True, text=True, check=False
    )  # fmt: skip
    three, five = (f"{threads} " + " ".join(f"vyre-cpu-{number}" for number in range(threads - 1)) for threads in (3, 5))
    assert done.stdout.splitlines() == ["1", "1", three, three, five, five], done.stderr


def test_a_number_of_threads_that_makes_no_sense(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (0, -1, True, 2.0, "4", 4097):
        with pytest.raises(DriverError, match="cannot run grids in"):
            cpu.threads = wrong  # type: ignore[assignment]  # the wrong types on purpose
    for word in ("0", "-1", "many", "4097", "1.5"):
        monkeypatch.setenv("VYRE_CPU_THREADS", word)
        with pytest.raises(DriverError, match=f"VYRE_CPU_THREADS={word!r}"):
            CpuDevice(0)
    monkeypatch.setenv("VYRE_CPU_THREADS", " 7 ")
    device = CpuDevice(0)
    assert device.threads == 7
    device.close()


def test_a_number_of_threads_for_all_native_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = core_count()
    monkeypatch.delenv("VYRE_CPU_THREADS", raising=False)
    for word, threads in {"1": 1, " 1 , 8": 1, "4096": cores, "0": cores, "many": cores, "": cores}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", word)
        assert thread_count() == threads, word
    monkeypatch.setenv("VYRE_CPU_THREADS", "3")
    assert thread_count() == 3
