"""Results that are on their way: what `Pipeline.submit` and an executor's `submit` give."""

from __future__ import annotations

import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final

from vyre_py.drivers.errors import BindingError, DispatchTimeout
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

__all__ = ["Pending", "PolledPending", "ThreadPending", "poll"]

# How a wait with a limit looks: at once, then soon, then every millisecond, so that short work is not kept waiting, nor long work watched.
_FIRST_WAIT: Final = 20e-6
_LONGEST_WAIT: Final = 1e-3


def poll(done: Callable[[], bool], timeout: float) -> bool:
    """Polls until something is done or `timeout` seconds have passed; whether it is done."""
    deadline = time.monotonic() + timeout
    wait = _FIRST_WAIT
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return done()
        time.sleep(min(wait, left))
        wait = min(2 * wait, _LONGEST_WAIT)
    return True


@public
class Pending(Stationary, Future[Any]):
    """A dispatch that runs. `result()` gives what `dispatch` would have; `await pending` does so in a coroutine, without holding up its loop.

    It is a `concurrent.futures.Future`, so that `as_completed`, `wait` and `asyncio.wrap_future` take it. A dispatch that runs cannot be cancelled; a call
    of an executor can. Dropping it gives up the result and nothing else: the work runs on, and the memory that it uses stays until it is done.
    """

    travels_as = "send its result()"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def title(self) -> str:
        """The name of what runs, to be read."""
        return shown(self._name)

    def __repr__(self) -> str:
        return f"<Pending result of {self.title}, {'cancelled' if self.cancelled() else 'done' if self.done() else 'running'}>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import pending_html

        return pending_html(self)

    def result(self, timeout: float | None = None) -> Any:
        """The written buffers by name, as `Pipeline.dispatch` gives them; waits for them up to `timeout` seconds, without end for None.

        The same arrays again when it is asked again. Raises DispatchTimeout, which is a TimeoutError, when they are not there in time (the work goes
        on, and may be asked for again), and what the dispatch raised.
        """
        self._await_up_to(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the dispatch raised, or None; waits as `result` does."""
        self._await_up_to(timeout)
        return super().exception(0)

    def _await_up_to(self, timeout: float | None) -> None:
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise BindingError("result", [f"timeout is a time in seconds, got {shown(timeout)}"])
        if not self._finished(timeout):
            raise DispatchTimeout(f"{self._name} is not done after {timeout} s", remedy="ask again later; it still runs")

    def _finished(self, timeout: float | None) -> bool:
        """Waits until its outcome is set, or so many seconds; gives whether it is."""
        with self._condition:
            return self._condition.wait_for(lambda: Future.done(self), timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        """The result, in a coroutine."""
        with importing:
            import asyncio  # only who awaits has it

        return asyncio.wrap_future(self).__await__()


class ThreadPending(Pending):
    """A dispatch in a thread of its own, on devices whose launches run to their end in the thread that makes them."""

    def __init__(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        super().__init__(name)
        self.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(work,), name=f"vyre-{name}", daemon=True).start()

    def _run(self, work: Callable[[], dict[str, Any]]) -> None:
        try:
            results = work()
        except BaseException as error:  # noqa: BLE001 - the caller that asks for the result gets it
            self.set_exception(error)
        else:
            self.set_result(results)


class _Waiters(list[Any]):
    """Who waits for a future, as `concurrent.futures` notes them; the first has a thread watch for its end."""

    def __init__(self, watch: Callable[[], None]) -> None:
        super().__init__()
        self._watch = weakref.WeakMethod(watch)  # a future is gone as soon as it is dropped

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        if (watch := self._watch()) is not None:
            watch()


class PolledPending(Pending):
    """A dispatch whose end a device does not announce. A caller that asks for the result waits for it. A thread watches only for callbacks, `as_completed`
    and `await`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lock = threading.Lock()
        self._taken = self._watched = False
        self.set_running_or_notify_cancel()
        self._waiters = _Waiters(self._watch)

    def done(self) -> bool:
        """Whether the result is there, or the dispatch has failed."""
        return super().done() or self._taken or self._is_done()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Has a function called with this once it is done, in a thread of its own or, where it is done already, at once."""
        super().add_done_callback(fn)
        self._watch()

    def _finished(self, timeout: float | None) -> bool:
        if not Future.done(self) and not self._taken:
            if not self._wait(timeout):
                return False
            self._settle()
        return super()._finished(timeout)

    def _settle(self) -> None:
        """Takes the outcome, which is there. The first to come does."""
        with self._lock:
            if self._taken:
                return
            self._taken = True
        try:
            results = self._collect()
        except BaseException as error:  # noqa: BLE001 - every caller gets it, now and later
            self.set_exception(error)
        else:
            self.set_result(results)

    def _watch(self) -> None:
        with self._lock:
            begins, self._watched = not (self._watched or self._taken), True
        if begins:
            threading.Thread(target=self._watch_until_done, name=f"vyre-watch-{self._name}", daemon=True).start()

    def _watch_until_done(self) -> None:
        try:
            self._wait(None)
        except BaseException as error:  # noqa: BLE001 - the callbacks get it
            with self._lock:
                fails, self._taken = not self._taken, True
            if fails:
                self.set_exception(error)
        else:
            self._settle()

    @abstractmethod
    def _is_done(self) -> bool:
        """Whether `_collect` would not wait."""

    @abstractmethod
    def _wait(self, timeout: float | None) -> bool:
        """Waits until it is done, or so many seconds; gives whether it is."""

    @abstractmethod
    def _collect(self) -> dict[str, Any]:
        """The results; called once, when done."""
