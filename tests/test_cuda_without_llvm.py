"""CUDA devices where llvmlite is not installed: what was compiled elsewhere loads, launches, and is captured; over a stand-in for the driver."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

from children import child_environment
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.cuda.native import call_list, plain
from vyre_py.ir.text.parser import parse

ROOT = Path(__file__).resolve().parent.parent

AXPY = parse("""program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}""")

# What runs without llvmlite: all that there is before a launch, and every way to launch. `{opened}` opens the device.
_SCRIPT = """
import sys
sys.modules["llvmlite"] = None
import ctypes, threading
import numpy as np
import vyre_py as vp
{opened}
artifact = vp.Artifact.load({path!r})
pipeline = device.load(artifact)
x, y = device.upload(np.arange(1000, dtype=np.float32)), device.upload(np.ones(1000, np.float32))
want = np.ones(1000, np.float32)
def ran(times, a):
    global want
    want = want + np.float32(times * a) * np.arange(1000, dtype=np.float32)
    assert np.array_equal(y.read(), want), (times, a)
launch = pipeline.bind(x=x, y=y, a=2.0)
launch(); ran(1, 2)
launch.set(a=3.0)(); ran(1, 3)
launch.set({{"x": x[0:1000]}})(); ran(1, 3)
views = [device.upload(np.ones(1001, np.float32))[1:] for _ in range(2)]
launch.set(x=views[0], y=views[1])()
assert (views[1].read() == 4).all()
launch.set(x=x, y=y)
sequence = device.sequence(launch, launch, vp.fill_step(views[0], 7.0))
sequence(); ran(2, 3)
assert (views[0].read() == 7).all()
graph = device.capture(lambda: (launch(), launch()))
graph(); graph(); ran(4, 3)
launch.set(a=1.0); graph.update(); graph(); ran(2, 1)
threads = [threading.Thread(target=lambda: [launch() for _ in range(20)]) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
ran(80, 1)
assert device.telemetry.launches == 3 + 1 + 2 + 80, device.telemetry.launches
out = pipeline.dispatch(x=np.ones(5, np.float32), y=np.zeros(5, np.float32), a=4.0)["y"]
assert out.tolist() == [4.0] * 5
big = np.arange(3 << 20, dtype=np.float32)
assert np.array_equal(device.upload(big).read(), big)
assert pipeline.submit(x=big, y=big, a=1.0).result()["y"][-1] == 2 * big[-1]
x.free()
try:
    launch()
except vp.BindingError as error:
    assert "'x' was freed" in str(error)
else:
    raise AssertionError("freed")
for call, what in ((lambda: launch.c_address, "launch.c_address without llvmlite"), (lambda: vp.compile_native({program}, "sm_90"), "where llvmlite is not")):
    try:
        call()
    except vp.Unsupported as error:
        assert what in str(error), error
    else:
        raise AssertionError(what)
device.close()
assert not [name for name, module in sys.modules.items() if name.partition(".")[0] == "llvmlite" and module is not None]
print("all of it")
"""

_FAKE = """
sys.path.insert(0, {tests!r})
import struct
from fake_graphs import FakeGraphDriver
from vyre_py.drivers import cuda
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
driver = FakeGraphDriver(total=1 << 28)
def kernel(block):
    x_at, y_at, a, n = struct.unpack_from("<QQfI", block)
    x, y = [np.ctypeslib.as_array((ctypes.c_float * n).from_address(at)) for at in (x_at, y_at)]
    y += np.float32(a) * x
driver.kernel = kernel
library.load = cuda.load = lambda: driver
device = CudaDevice(0)
"""


def _run(opened: str, path: Path) -> None:
    vp.compile_native(AXPY, "sm_90" if opened == _FAKE else "compute_75").save(path)
    program = f"vp.Program.from_bytes({AXPY.to_bytes()!r})"
    script = _SCRIPT.format(opened=opened.replace("{tests!r}", repr(str(ROOT / "tests"))), path=str(path), program=program)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == "all of it\n", done.stderr


def test_lists_lie_in_memory_as_native_code_has_them():
    assert ctypes.sizeof(plain.HeadWords) == call_list._HEAD.size and ctypes.sizeof(plain.CallWords) == call_list._CALL.size
    owner = []
    calls = call_list.CallList(
        [call_list.Call(1, (2, 3), call_list.LAUNCH, 4, 5)], _Handler().handle, 6, [7, 8, 9], ((10, 11), (12, 13)), kept=owner, exclusive=True
    )
    head = plain.HeadWords.from_buffer(calls.state)
    found = {name: getattr(head, name) for name, _ in plain.HeadWords._fields_}
    base = calls.address
    wanted = {
        "count": 1, "copies_bytes": 16, "mode": 6, "alive_count": 3, "alive": base + call_list._HEAD.size + call_list._CALL.size,
        "calls": base + call_list._HEAD.size, "first": 10, "first_by": 11, "second": 12, "second_by": 13, "slot_count": 0, "held": 0, "fixed": 0,
        "in_flight": 0, "exclusive": 1, "member_count": 0, "retired": 0,
    }  # fmt: skip
    assert wanted.items() <= found.items()
    call = plain.CallWords.from_address(head.calls)
    assert (call.function, call.form, call.block, call.block_bytes, *call.arguments[:3]) == (1, call_list.LAUNCH, 4, 5, 2, 3, 0)


class _Handler:
    def handle(self, index, status):
        raise AssertionError(index, status)


def test_what_was_compiled_elsewhere_loads_and_launches(tmp_path):
    _run(_FAKE, tmp_path / "axpy.vyre")


def test_what_was_compiled_elsewhere_runs_on_a_gpu(tmp_path):
    open_device("cuda")
    _run("device = vp.device('cuda')", tmp_path / "axpy.vyre")


def test_the_driver_s_own_tests_pass():
    """Those of lists, launches, sequences, captures and transfers, with lists in Python: all but those about native code itself, and those that count
    Python's frames."""
    chosen = {
        "test_native.py": "calls_in_order or empty_list or copy_of_its_block or status_stops or go_unheard or handler_may_finish or dead_words "
        "or given_up or no_memory or exclusive or made_anew or dropping_a_list or kept_builtin or stays_until_it_is_enqueued or set_move_and_call",
        "test_cuda_driver.py": "(launch or dispatch or set) and not no_python_frame",
        "test_cuda_sequences.py": "not no_python_frame and not may_fail_once and not gemm",
        "test_cuda_graph_memory.py": "test",
        "test_cuda_transfers.py": "every_size or failing_call or in_many_threads",
    }
    left_out = "made_anew_while"  # it looks into the builtin
    names = " or ".join([f"({file.removesuffix('.py')} and ({words}))" for file, words in chosen.items()])
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark", "-p", "plain_lists"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-k", f"({names}) and not {left_out}"]
    done = subprocess.run(
        [*command, *[f"tests/{file}" for file in chosen]], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env=child_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
