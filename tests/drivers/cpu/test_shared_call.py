"""Native calls shared among threads that a caller lends: of Python here, which start when they like, or never, or too late."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cpu.launch import SHARED_INVOCATIONS
from vyre_py.drivers.cpu.shared_call import shared_call
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.statuses import CStatus

ADD = """program add(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}"""
# Grids of few invocations that take long: each workgroup has 64 KiB of its own.
SLOW = """program slow(n) workgroup(4) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  workgroup w: f32[16384]
  let i = global_id.x
  var sum: f32 = 0.0
  for k in 0u32..4096u32 {
    w[k * 4 + local_id.x] = x[i]
    sum = sum + w[k * 4 + local_id.x]
  }
  y[i] = a * sum / 4096.0 + y[i]
}"""
_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_LEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)


class Lender:
    """Threads for a call: `refuse` is from which task on it takes none, `late` has tasks wait for `release`, `quick` is how many invocations are."""

    def __init__(self, count: int, refuse: int = 1 << 30, *, late: bool = False, quick: int = 0) -> None:
        self.asked, self.threads, self.release = 0, list[threading.Thread](), threading.Event()
        if not late:
            self.release.set()

        def run(task: int, data: int) -> None:
            self.release.wait()
            _TASK(task)(data)

        def lend(context: int, task: int, data: int) -> int:
            assert context == 77
            self.asked += 1
            if self.asked > refuse:
                return 1
            self.threads.append(threading.Thread(target=run, args=(task, data)))
            self.threads[-1].start()
            return 0

        self._lend = _LEND(lend)
        self.words = (ctypes.c_uint64 * 4)(ctypes.cast(self._lend, ctypes.c_void_p).value or 0, 77, count, quick)

    def join(self) -> None:
        self.release.set()
        for thread in self.threads:
            thread.join()


def call(entry, lender, x, y, sizes=None):
    addresses = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    words = (ctypes.c_int64 * 3)(*(sizes or (len(x), len(y), -1)))
    return _CALL(shared_call())(entry.c_address, addresses, words, np.float32(2).tobytes(), lender.words)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("refuse", [0, 1, 1 << 30])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("text", [ADD, SLOW])
def test_every_workgroup_runs_once(text, count, refuse, late) -> None:
    """Whoever helps, and when: what begins after the call finds nothing to do."""
    entry = CpuDevice(0).compile_native(parse(text)).callable()
    for size in (0, 1, 64, 1000, *([SHARED_INVOCATIONS, SHARED_INVOCATIONS + 100_001] if text is ADD else [])):
        lender = Lender(count, refuse, late=late)
        x, y = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        assert call(entry, lender, x, y) == CStatus.OK
        np.testing.assert_allclose(y, 2 * x + 1, rtol=1e-3)
        after = y.copy()
        lender.join()
        np.testing.assert_array_equal(y, after)
        if size <= (64 if text is ADD else 4):  # one workgroup, or none
            assert lender.asked == 0
        elif size >= (SHARED_INVOCATIONS if text is ADD else 1000):
            assert lender.asked == min(count, refuse + 1)


def test_several_calls_at_once() -> None:
    entry = CpuDevice(0).compile_native(parse(ADD)).callable()
    results = [np.ones(50_000 + number, np.float32) for number in range(4)]

    def calls(y: np.ndarray) -> None:
        for _ in range(20):
            lender = Lender(2)
            assert call(entry, lender, np.ones_like(y), y) == CStatus.OK
            lender.join()

    threads = [threading.Thread(target=calls, args=(y,)) for y in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((y == 41).all() for y in results)


def test_what_is_known_to_be_quick_is_not_shared() -> None:
    entry = CpuDevice(0).compile_native(parse(SLOW)).callable()
    for quick in (1000, 999):
        lender, x, y = Lender(2, quick=quick), np.ones(1000, np.float32), np.ones(1000, np.float32)
        assert call(entry, lender, x, y) == CStatus.OK
        lender.join()
        assert lender.asked == (0 if quick == 1000 else 2) and (y == 3).all()


def test_statuses() -> None:
    device = CpuDevice(0)
    entry, lender = device.compile_native(parse(ADD)).callable(), Lender(1)
    x, y = np.ones(5, np.float32), np.ones(5, np.float32)
    assert call(entry, lender, x, y, (5, 4, -1)) == CStatus.SHAPE
    assert call(entry, lender, y, y) == CStatus.OVERLAP
    device.close()
    assert call(entry, lender, x, y) == CStatus.LOST
    assert y.tolist() == [1] * 5
