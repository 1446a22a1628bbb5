"""A device's primary context, its streams, and the word that stops native calls."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.memory.relief import Relief
from vyre_py.drivers.cuda.status import NOT_READY, failure
from vyre_py.drivers.cuda.streams import Events, Streams
from vyre_py.drivers.errors import DeviceLost, DriverError
from vyre_py.drivers.native.mode import UNUSABLE, Mode, ModeWord

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.graph.recorder import CudaRecorder

__all__ = ["Context"]


class _Unnamed(NamedTuple):
    """A status that the bindings have no name for."""

    name: str
    number: int

    def __int__(self) -> int:
        return self.number


class _Visit:
    """The context manager of `Context.entered`: quicker than a generator."""

    __slots__ = ("_before", "_context")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: Any = None

    def __enter__(self) -> None:
        context, doing = self._context, f"{self._context.name} can't be made current"
        context.require_usable()
        before = context.ok(context.cuda.cuCtxGetCurrent(), doing)
        if (number := int(before)) != context.number:
            context.ok(context.cuda.cuCtxSetCurrent(context.handle), doing)
            if number:
                self._before = before

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            self._context.cuda.cuCtxSetCurrent(self._before)


class _Return:
    """A block after which another context is current again, unless it is None."""

    __slots__ = ("_before", "_cuda")

    def __init__(self, cuda: Any, before: Any) -> None:
        self._cuda, self._before = cuda, before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            self._cuda.cuCtxSetCurrent(self._before)


class Context:
    """The primary context, shared with other libraries in the process, and two streams of our own: everything is ordered on `stream`; on
    `copy_stream` transfers overlap it, ordered by events.

    Attributes: `cuda` (the driver library), `name` of the device, `device`, `handle` and its `number`, `stream`, `copy_stream`, `streams` and `events` (pools);
    `mode`, the word that native calls test, and `mode_address`; `capture`, which takes the calls of native lists while it runs; `relief`, which frees memory
    when the driver has none; `first`, the error by which the device was lost, `on_loss`, which is told of it, and `refuse`, which raises it again.
    `handles_invalid`: the handles mean nothing any more. `calls_forbidden`: no call of the driver may be made, as in a forked child and after a kernel that
    never ends.
    """

    def __init__(self, cuda: Any, ordinal: int) -> None:
        self.cuda = cuda
        self.name = f"cuda:{ordinal}"
        self.handles_invalid = self.calls_forbidden = False
        self.first: DriverError | None = None
        self.on_loss: Callable[[DriverError], None] | None = None
        self.refuse: Callable[[], None] | None = None
        self.capture: CudaRecorder | None = None
        self.relief = Relief(self)
        self._later: list[Callable[[], object]] = []
        # The mode word that native code tests; the number of threads in calls of our stream, which native code counts; the number of threads of C in such
        # calls, which run without the interpreter's lock and count themselves.
        self._words = (ctypes.c_uint64 * 3)()
        self.mode = ctypes.c_uint64.from_buffer(self._words)
        self.busy = ctypes.c_uint64.from_buffer(self._words, 8)
        self.callers = ctypes.c_uint64.from_buffer(self._words, 16)
        self._mode_word = ModeWord(self.mode)
        self.mode_address = self._mode_word.address
        self.stop, self.go_on = self._mode_word.stop, self._mode_word.go_on
        self.moves = ctypes.c_uint64()
        self._functions: dict[str, int] = {}
        self._control: Any = None
        self._capture_lock = threading.Lock()
        self.device = self.ok(cuda.cuDeviceGet(ordinal), f"{self.name} can't be opened")
        self.handle = self.ok(cuda.cuDevicePrimaryCtxRetain(self.device), f"{self.name} gives no context")
        self.number = int(self.handle)
        self.streams = Streams(self)
        self.events = Events(self)
        try:
            with self.entered():
                self.stream = self.streams.take()
                self.copy_stream = self.streams.take()
        except DriverError:
            with self.visited():
                self.streams.close()
            cuda.cuDevicePrimaryCtxRelease(self.device)
            raise
        _open.add(self)

    def ok(self, result: tuple[Any, ...], doing: str) -> Any:
        """The result of a driver call, after its status. Raises the error of the status. One that ends the context marks the device as lost."""
        if result[0]:
            raise self.failure(result[0], doing)
        return result[1] if len(result) > 1 else None

    def failure(self, status: Any, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
        """The error for a status. One that ends the context marks the device as lost."""
        error = failure(status, doing, otherwise)
        if isinstance(error, DeviceLost):
            self.first = self.first or error
            if self.on_loss is not None:
                self.on_loss(error)
            self.stop(Mode.LOST)
        return error

    def abandon(self, error: DeviceLost, why: Mode) -> None:
        """Forbids every further call of the driver, since any could wait for ever. The process frees what was allocated when it ends."""
        self.handles_invalid = self.calls_forbidden = True
        self.first = self.first or error
        if self.on_loss is not None:
            self.on_loss(error)
        self.stop(why)

    def note(self, result: tuple[Any, ...], doing: str) -> bool:
        """Whether a call succeeded whose failure cannot be raised. A status that ends the context marks the device as lost."""
        if result[0]:
            self.failure(result[0], doing)
        return not result[0]

    def require_alive(self, doing: str) -> None:
        """Asks the driver whether the context still works, after a failure in a library that does not say. Raises DeviceLost."""
        with self.entered():
            (status,) = self.cuda.cuStreamQuery(self.stream)
        if status and isinstance(error := self.failure(status, doing), DeviceLost):
            raise error

    # ---- mode

    @property
    def usable(self) -> bool:
        """Whether calls of the driver make sense: neither closed, nor lost, nor in a forked child."""
        return not self.mode.value & UNUSABLE

    def require_usable(self) -> None:
        """Raises DeviceLost, with the first cause, where calls of the driver make no sense any more."""
        if self.mode.value & UNUSABLE:
            if self.refuse is not None:
                self.refuse()
            if self.first is not None:
                raise DeviceLost(f"{self.name} is lost; the first cause was: {self.first}", remedy="start a new process")
            raise DeviceLost(f"{self.name} is closed", remedy="ask vyre_py.device() for it again")

    @property
    def capturing(self) -> bool:
        """Whether our stream is being captured into a graph."""
        return bool(self.mode.value & Mode.CAPTURING)

    # ---- capture

    def require_no_capture(self, doing: str) -> None:
        """Raises LaunchError, which names the capture, while our stream is captured."""
        capture = self.capture
        if capture is not None:
            raise capture.refusal(doing)

    def require_no_own_capture(self, doing: str) -> None:
        """Raises LaunchError in a thread that captures: it may ask and wait for no event that is no part of that."""
        if self.capture is not None and self.capture.is_own:
            self.require_no_capture(doing)

    @contextmanager
    def using(self, doing: str) -> Iterator[None]:
        """Around calls in Python that use our stream: a capture waits for them to end, and none begins while one captures. Raises LaunchError."""
        self.busy.value += 1
        try:
            self.require_usable()  # again: who closes the device waits for those that are counted, and no others
            self.require_no_capture(doing)
            yield
        finally:
            self.busy.value -= 1

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Around a transfer as a whole, with the context current. Most of it goes to the copy stream: a capture may begin meanwhile, but the device is not
        closed."""
        self.moves.value += 1
        try:
            with self.entered():
                yield
        finally:
            self.moves.value -= 1

    def later(self, action: Callable[[], object]) -> bool:
        """Keeps what a finaliser has to do, and a capture would take for its own or fail by, until the capture has ended. False when none runs:
        then it is for the caller to do. Never raises."""
        if self.capture is None:
            return False
        self._later.append(action)
        return True

    def begin_capture(self, capture: CudaRecorder) -> None:
        """Has native calls on our stream go to `capture`, and waits until those of other threads are made. Raises LaunchError while another runs."""
        with self._capture_lock:
            self.require_no_capture(f"{self.name} cannot capture a graph")
            self.capture = capture
        try:
            self.stop(Mode.CAPTURING)
            while self.busy.value or self.callers.value:
                time.sleep(0)
        except BaseException:  # the wait was interrupted
            self.end_capture()
            raise

    def end_capture(self) -> None:
        """Has native calls go to our stream again, and does what had to wait."""
        self.capture = None
        self.go_on(Mode.CAPTURING)
        if self._later:
            with self.visited():
                while self._later:
                    self._later.pop(0)()

    @contextmanager
    def relaxed(self, doing: str) -> Iterator[None]:
        """A block in which a thread that captures may also make calls that are no part of the work, such as those that load code or allocate."""
        exchange = self.cuda.cuThreadExchangeStreamCaptureMode
        before = self.ok(exchange(self.cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), doing)
        try:
            yield
        finally:
            self.note(exchange(before), doing)

    # ---- calls

    def attribute(self, name: str) -> int:
        """A device attribute, by its name without the prefix."""
        key = getattr(self.cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.ok(self.cuda.cuDeviceGetAttribute(key, self.device), f"{self.name} does not say its {name}"))

    def function(self, name: str) -> int:
        """The address of a function of the driver, for native calls. Raises DeviceUnavailable when the driver lacks it."""
        if name not in self._functions:
            self._functions[name] = library.address(self.cuda, name)
        return self._functions[name]

    def status(self, number: int) -> Any:
        """The driver's own name for what a native call gave."""
        try:
            return self.cuda.CUresult(number)
        except ValueError:  # a driver that is newer than its bindings
            return _Unnamed(f"status {number}", number)

    def is_current(self) -> bool:
        """Whether the context is current in this thread."""
        status, current = self.cuda.cuCtxGetCurrent()
        return not status and int(current) == self.number

    def entered(self) -> AbstractContextManager[None]:
        """A block in which the context is current in this thread, and after which another one that was is again; where none was, it stays, so that the next
        call need not change it. Always looked at anew: other libraries change it behind our back. Raises DeviceLost at once, with the first cause, where
        that makes no sense any more."""
        return _Visit(self)

    def visited(self) -> AbstractContextManager[None]:
        """As `entered`, for finalisers, which run in any thread: raises nothing in any state of the context, and restores the current context."""
        status, before = self.cuda.cuCtxGetCurrent()
        if not status and int(before) == self.number:
            return _Return(self.cuda, None)
        self.cuda.cuCtxSetCurrent(self.handle)
        return _Return(self.cuda, None if status else before)

    def wait(self, doing: str) -> None:
        """Waits for our stream, and thus for all transfers. It does not wait for foreign streams: `memory.foreign_use` knows which use our memory."""
        self.ok(self.cuda.cuStreamSynchronize(self.stream), doing)

    @property
    def control_stream(self) -> Any:
        """A stream that never waits for running work, made on first use: for words that running kernels test."""
        if self._control is None:
            self._control = self.streams.take()
        return self._control

    def order(self, first: int | None, then: int | None) -> None:
        """Has what stream `then` is given from now on wait for what stream `first` holds; None is our own."""
        doing, cuda = f"{self.name} cannot order two streams", self.cuda
        with self.events.borrowed() as event:
            self.ok(cuda.cuEventRecord(event, self.stream if first is None else cuda.CUstream(first)), doing)
            self.ok(cuda.cuStreamWaitEvent(self.stream if then is None else cuda.CUstream(then), event, 0), doing)

    def finish(self) -> None:
        """Waits for our stream, unless it is captured, and says nothing of what went wrong: the next call will."""
        if self.usable and self.capture is None:
            with self.visited():
                doing, (status,) = f"{self.name} failed while it ran", self.cuda.cuStreamQuery(self.stream)
                if status and status.name != NOT_READY:
                    self.failure(status, doing)
                if status:  # else nothing runs any more, which a question finds in a fraction of the time
                    self.note(self.cuda.cuStreamSynchronize(self.stream), doing)

    def close(self) -> None:
        """Releases streams, events and context, in any state. A forked child leaves them to its parent."""
        self.stop(Mode.CLOSED)
        _open.discard(self)
        if not self.handles_invalid:
            with self.visited():
                self.events.close()
                self.streams.close()
            self.handles_invalid = True
            self.cuda.cuDevicePrimaryCtxRelease(self.device)


_open: weakref.WeakSet[Context] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child: CUDA does not survive a fork, and says so in riddles."""
    for context in list(_open):
        why = f"{context.name} was opened before this process was forked"
        remedy = "open devices in the child only, or use the start method 'spawn' for worker processes"
        context.abandon(DeviceLost(why, cause="CUDA does not work in a forked child", remedy=remedy), Mode.FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
