"""Results that are on their way: what `Pipeline.submit` gives."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Final

from vyre_py.drivers.errors import BindingError, DispatchTimeout
from vyre_py.ir.language.errors import shown
from vyre_py.ir.travel import Stationary

__all__ = ["Pending", "ThreadPending", "poll"]

# How a wait with a limit looks: at once, then soon, then every millisecond, so that short work is not kept waiting, nor long work watched.
_FIRST_WAIT: Final = 20e-6
_LONGEST_WAIT: Final = 1e-3


def poll(done: Callable[[], bool], timeout: float | None) -> bool:
    """Looks until something is done, or `timeout` seconds are over; gives whether it is."""
    deadline = None if timeout is None else time.monotonic() + timeout
    wait = _FIRST_WAIT
    while not done():
        left = _LONGEST_WAIT if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return done()
        time.sleep(min(wait, left))
        wait = min(2 * wait, _LONGEST_WAIT)
    return True


class Pending(Stationary, ABC):
    """A dispatch that runs. `result()` gives what `dispatch` would have; `await pending` does so in a coroutine, without holding up its loop.

    Dropping it gives up the result and nothing else: the work runs on, and the memory that it uses stays until it is done.
    """

    travels_as = "send its result()"

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._taken: tuple[dict[str, Any] | None, BaseException | None] | None = None

    def __repr__(self) -> str:
        return f"<Pending result of {shown(self._name)}, {'done' if self.done() else 'running'}>"

    def done(self) -> bool:
        """Whether the result is there, or the dispatch has failed."""
        return self._taken is not None or self._is_done()

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """The written buffers by name, as `Pipeline.dispatch` gives them; waits for them up to `timeout` seconds, without end for None.

        The same arrays again when it is asked again. Raises DispatchTimeout when they are not there in time (the work goes on, and may be
        asked for again), and what the dispatch raised.
        """
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise BindingError("result", [f"timeout is a time in seconds, got {shown(timeout)}"])
        if self._taken is None and not self._wait(timeout):
            raise DispatchTimeout(f"{self._name} is not done after {timeout} s", remedy="ask again later; it still runs")
        with self._lock:
            if self._taken is None:
                try:
                    self._taken = self._collect(), None
                except BaseException as error:  # noqa: BLE001 - whatever it is, whoever asks again gets it too
                    self._taken = None, error
        results, failed = self._taken
        if failed is not None:
            raise failed
        assert results is not None  # one of the two is there
        return results

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        """The result, in a coroutine."""
        return self._awaited().__await__()

    async def _awaited(self) -> dict[str, Any]:
        wait = _FIRST_WAIT
        while not self.done():
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        return self.result()

    @abstractmethod
    def _is_done(self) -> bool:
        """Whether `_collect` would not wait."""

    @abstractmethod
    def _wait(self, timeout: float | None) -> bool:
        """Waits until it is done, or so many seconds; gives whether it is."""

    @abstractmethod
    def _collect(self) -> dict[str, Any]:
        """The results; called once, when done."""


class ThreadPending(Pending):
    """A dispatch in a thread of its own, on devices whose launches run to their end in the thread that makes them."""

    def __init__(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        super().__init__(name)
        self._over = threading.Event()
        self._outcome: tuple[dict[str, Any] | None, BaseException | None] = (None, None)
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"vyre-{name}", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], dict[str, Any]]) -> None:
        try:
            self._outcome = work(), None
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever asks for the result gets it
            self._outcome = None, error
        finally:
            self._over.set()

    def _is_done(self) -> bool:
        return self._over.is_set()

    def _wait(self, timeout: float | None) -> bool:
        return self._over.wait(timeout)

    def _collect(self) -> dict[str, Any]:
        results, error = self._outcome
        if error is not None:
            raise error
        assert results is not None  # one of the two is there
        return results
