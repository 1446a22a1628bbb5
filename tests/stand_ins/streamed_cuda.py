"""The stand-in for the driver with streams that run late, in any order that their events allow: what is not ordered goes wrong here."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import deque

from fake_cuda import OK, CUresult, FakeDriver

POISON = 0xDD
LONGEST = 20.0  # seconds


class Mark:
    """What an event was recorded after: over or not."""

    def __init__(self):
        self.done = False


class StreamedDriver(FakeDriver):
    """Work waits in the queue of its stream. Some of it runs at each call, a stream at a time chosen at random, and all that a wait needs.

    As with the real one, pageable memory is read before a copy to the device returns, and a copy to it has been made when it returns; pinned memory is
    read and written when the copy runs. What is freed is poisoned, and so is what is allocated, when its stream comes to that.
    """

    def __init__(self, seed=0, eager=0.3, **options):
        super().__init__(**options)
        self.random = random.Random(seed)
        self.eager = eager
        self.queues, self.marks = {}, {}
        self.running = threading.RLock()
        self.holds = []

    def enqueue(self, stream, work):
        """Puts work at the end of a stream; waits of it are marks."""
        with self.running:
            self.queues.setdefault(int(stream), deque()).append(work)
            while self.random.random() < self.eager and self.step():
                pass
        return OK

    def step(self):
        """Runs the first work of some stream that waits for nothing; false when there is none."""
        ready = [queue for queue in self.queues.values() if queue and not (isinstance(queue[0], Mark) and not queue[0].done)]
        if not ready:
            return False
        work = self.random.choice(ready).popleft()
        if not isinstance(work, Mark):
            work()
        return True

    def run_until(self, over):
        """Runs work until something is over; where only a hold stands in the way, another thread has a while to end it."""
        deadline = time.monotonic() + LONGEST
        while True:
            with self.running:
                while not over():
                    if not self.step():
                        break
                else:
                    return OK
                late = time.monotonic() > deadline or all(hold.done for hold in self.holds)
                assert not late, "a stream waits for what is never done"
            time.sleep(0.001)

    def hold(self, stream):
        """Work on a stream that does not end before its `done` is set."""
        self.holds.append(Mark())
        self.enqueue(stream, self.holds[-1])
        return self.holds[-1]

    def is_pinned(self, address):
        return any(at <= address < at + len(block) for at, block in self.pinned.items())

    # ---- streams and events

    def cuStreamSynchronize(self, stream):
        return self.run_until(lambda: not self.queues.get(int(stream)))

    def cuCtxSynchronize(self):
        return self.run_until(lambda: not any(self.queues.values()))

    def cuStreamQuery(self, stream):
        with self.running:
            if self.random.random() < self.eager:
                self.step()
            return (CUresult.CUDA_ERROR_NOT_READY,) if self.queues.get(int(stream)) else OK

    def cuEventRecord(self, event, stream):
        mark = self.marks[int(event)] = Mark()
        return self.enqueue(stream, lambda: setattr(mark, "done", True))

    def cuStreamWaitEvent(self, stream, event, flags):
        mark = self.marks.get(int(event))
        return OK if mark is None else self.enqueue(stream, mark)

    def cuEventSynchronize(self, event):
        mark = self.marks.get(int(event))
        return OK if mark is None else self.run_until(lambda: mark.done)

    def cuEventQuery(self, event):
        mark = self.marks.get(int(event))
        with self.running:
            if self.random.random() < self.eager:
                self.step()
            return OK if mark is None or mark.done else (CUresult.CUDA_ERROR_NOT_READY,)

    # ---- work

    def cuMemAllocFromPoolAsync(self, size, pool, stream):
        """The memory is there at once, and what it holds before the stream has come so far is lost."""
        status, address = FakeDriver.cuMemAlloc(self, size)
        if not status:
            self.enqueue(stream, lambda: ctypes.memset(address, POISON, size))
        return status, address

    def cuMemFreeAsync(self, address, stream):
        def free():
            ctypes.memset(address, POISON, len(self.blocks[address]))
            FakeDriver.cuMemFree(self, address)

        return self.enqueue(stream, free)

    def cuMemsetD8Async(self, address, value, size, stream):
        return self.enqueue(stream, lambda: ctypes.memset(address, value, size))

    def cuMemsetD16Async(self, address, value, count, stream):
        return self.enqueue(stream, lambda: ctypes.memmove(address, value.to_bytes(2, "little") * count, 2 * count))

    def cuMemsetD32Async(self, address, value, count, stream):
        return self.enqueue(stream, lambda: ctypes.memmove(address, value.to_bytes(4, "little") * count, 4 * count))

    def cuMemcpyHtoDAsync(self, target, source, size, stream):
        if self.is_pinned(source):
            return self.enqueue(stream, lambda: ctypes.memmove(target, source, size))
        data = ctypes.string_at(source, size)
        return self.enqueue(stream, lambda: ctypes.memmove(target, data, size))

    def cuMemcpyDtoHAsync(self, target, source, size, stream):
        mark = Mark()

        def copy():
            ctypes.memmove(target, source, size)
            mark.done = True

        self.enqueue(stream, copy)
        return OK if self.is_pinned(target) else self.run_until(lambda: mark.done)

    def cuMemcpyDtoDAsync(self, target, source, size, stream):
        return self.enqueue(stream, lambda: ctypes.memmove(target, source, size))

    def cuMemcpyPeerAsync(self, target, target_context, source, source_context, size, stream):
        return self.cuMemcpyDtoDAsync(target, source, size, stream)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
        words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_uint64))
        block = ctypes.string_at(words[1], ctypes.c_uint64.from_address(words[3]).value)
        self.launches.append(((gx, gy, gz), (bx, by, bz), shared, stream))
        return self.enqueue(stream, lambda: self.kernel(block))
