"""A limit on every test: one that hangs fails, with what every thread was doing, and those after it run."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator
from types import FrameType

import pytest

__all__ = ["TimeLimit"]

# A test that does not come back to Python, or catches everything, ends its process after so many times the limit; pytest-xdist then fails that test and starts
# another process for the rest.
_GIVEN_UP = 1.5


class TimeLimit:
    """The plugin: set-up, call and tear-down of a test may take so many seconds each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.terminal = os.dup(2)  # made before what a test prints is captured

    def pytest_unconfigure(self) -> None:
        """Nothing is left of it."""
        os.close(self.terminal)

    def _late(self, _signal: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(self.terminal)
        pytest.fail(f"it takes longer than {self.seconds:g} s (VYRE_TEST_SECONDS)")

    def _limited(self) -> Generator[None, object, object]:
        before = signal.signal(signal.SIGALRM, self._late)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        faulthandler.dump_traceback_later(self.seconds * _GIVEN_UP, file=self.terminal, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Limits fixtures."""
        return (yield from self._limited())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Limits the test itself."""
        return (yield from self._limited())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Limits what ends the fixtures."""
        return (yield from self._limited())
