"""Launches in code that Numba compiles, without Python and without its lock; and Numba's arrays, bound where they are."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from axpy import AXPY
from device_kinds import open_device
from fake_cuda import FakeDriver
from fake_device import installed

import vyre_py as vp
from vyre_py.drivers.cuda.device import CudaDevice

try:
    import numba
except ImportError:  # it is among the packages of the extra `dev`
    if "numba" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        raise
    pytest.skip("numba is not installed", allow_module_level=True)

from vyre_py.interop.numba import vyre_launch
from vyre_py.lowering.statuses import CStatus


@numba.njit(nogil=True)
def steps(launch, count, y):
    """Runs a launch so many times, with work on its result in between."""
    for _ in range(count):
        status = vyre_launch(launch, 0)
        if status != 0:
            return status
        y[0] = -y[0]
    return 0


@numba.njit
def on_stream(launch, stream):
    return vyre_launch(launch, stream)


@pytest.fixture
def axpy():
    device = open_device("cpu")
    x, y = np.arange(1000, dtype=np.float32) + 1, np.ones(1000, np.float32)
    return device.compile_native(AXPY).bind({"x": device.wrap(x), "y": device.wrap(y), "a": 2.0}), x, y


def test_njit_code_runs_a_launch_over_arrays_that_it_changes(axpy):
    launch, x, y = axpy
    assert steps(launch.c_address, 3, y) == 0
    wanted = np.float32(1)
    for _ in range(3):
        wanted = -(2 * x[0] + wanted)
    assert y[0] == wanted and np.array_equal(y[1:], 6 * x[1:] + 1)
    launch.set(a=-6.0)
    assert steps(np.uint64(launch.c_address), 1, y) == 0 and np.array_equal(y[1:], np.ones(999))
    assert on_stream(launch.c_address, 7) == CStatus.STREAM


def test_other_types_are_typing_errors(axpy):
    with pytest.raises(numba.TypingError):
        on_stream(1.5, 0)


# Calls of the C library: the first two keep the interpreter's lock, so no Python runs in any thread meanwhile.
_holding = ctypes.PyDLL(None)
_read = ctypes.CDLL(None).read
_read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_write = ctypes.CDLL(None).write
_write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)


class _Poll(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


@numba.njit(nogil=True)
def when_told(launch, count, y, told, done, word):
    _read(told, word.ctypes, 1)
    status = steps(launch, count, y)
    _write(done, word.ctypes, 1)
    return status


def test_the_interpreter_s_lock_is_not_needed(axpy):
    """This thread keeps the lock from before the launches until after them: were Python touched, they would never end, and the wait would."""
    launch, x, y = axpy
    told, tell = os.pipe()
    wait, done = os.pipe()
    word, results = np.ones(1, np.uint8), []
    address = launch.c_address
    when_told.compile((numba.int64, numba.int64, numba.float32[::1], numba.int64, numba.int64, numba.uint8[::1]))
    thread = threading.Thread(target=lambda: results.append(when_told(address, 200, y, told, done, word)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that nobody asks for the lock between the next calls
    try:
        thread.start()
        poll = _Poll(wait, 1, 0)
        _holding.write(tell, b"x", 1)
        ready = _holding.poll(ctypes.byref(poll), 1, 20_000)
        seen = y[1]
    finally:
        sys.setswitchinterval(interval)
    thread.join(30)
    for fd in (told, tell, wait, done):
        os.close(fd)
    assert ready == 1 and results == [0] and seen == 400 * x[1] + 1


# ---------------------------------------------------------------- device arrays


def array_of(buffer):
    """An array of another library over memory of a device, as Numba's device arrays are."""
    interface = {"shape": buffer.host_shape, "typestr": buffer.type.dtype.str, "data": (buffer.address, False), "version": 3, "strides": None, "stream": None}
    return SimpleNamespace(__cuda_array_interface__=interface)


def test_device_arrays_are_bound_where_they_are(monkeypatch):
    driver = installed(monkeypatch, FakeDriver(total=1 << 24))
    device = CudaDevice(0)
    blocks = []
    driver.kernel = blocks.append
    x, y = device.allocate(1000, vp.f32), device.allocate(1000, vp.f32)
    pipeline = device.compile_native(AXPY)
    for given in ({"x": array_of(x), "y": array_of(y)}, {"x": device.wrap(array_of(x)), "y": device.wrap(array_of(y))}):
        launch = pipeline.bind({**given, "a": 1.0})
        assert on_stream(launch.c_address, 0) == 0
        assert blocks[-1][:16] == np.uint64([x.address, y.address]).tobytes()
    device.close()


def test_numba_s_device_arrays_on_a_gpu(monkeypatch):
    device = open_device("cuda")
    if not hasattr(np, "row_stack"):
        monkeypatch.setattr(np, "row_stack", np.vstack, raising=False)  # a name that NumPy has dropped, and some versions of Numba's CUDA part still ask for
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about older names in other packages
            from numba import cuda as numba_cuda

            x, y = numba_cuda.to_device(np.arange(1000, dtype=np.float32)), numba_cuda.to_device(np.ones(1000, np.float32))
    except Exception as error:  # noqa: BLE001 - whatever Numba raises where its CUDA part does not fit the other packages
        pytest.skip(f"Numba's CUDA part does not work here: {error!r}")
    numba_cuda.synchronize()
    launch = device.compile_native(AXPY).bind({"x": x, "y": device.wrap(y), "a": 2.0})
    launch()
    device.synchronize()
    assert np.array_equal(y.copy_to_host(), 2 * np.arange(1000) + 1)
    assert on_stream(launch.c_address, 0) == 0
    device.synchronize()
    assert np.array_equal(y.copy_to_host(), 4 * np.arange(1000) + 1), "launched from njit code"
