"""Properties that are computed once, and what others do meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from vyre_py.ir.cached import cached_property

WAIT_S = 60


class Slow:
    """Its `answer` waits to be allowed where there is something to wait for."""

    def __init__(self, answer: int, allowed: threading.Event | None = None) -> None:
        self.number, self.allowed, self.within = answer, allowed, threading.Event()
        self.computed = 0

    @cached_property
    def answer(self) -> int:
        """Its number."""
        self.computed += 1
        self.within.set()
        if self.allowed is not None:
            assert self.allowed.wait(WAIT_S)
        return self.number


def test_a_property_is_computed_once() -> None:
    slow = Slow(7)
    assert "answer" not in vars(slow)
    assert (slow.answer, slow.answer, slow.computed) == (7, 7, 1)
    assert Slow.answer.__doc__ == "Its number." and Slow(8).answer == 8


@pytest.fixture
def computing() -> Iterator[threading.Event]:
    """A thread computes the property of one instance, until this event is set."""
    allowed = threading.Event()
    slow = Slow(1, allowed)
    thread = threading.Thread(target=lambda: slow.answer)
    thread.start()
    assert slow.within.wait(WAIT_S)
    yield allowed
    allowed.set()
    thread.join()


def test_others_do_not_wait_for_the_slowest(computing: threading.Event) -> None:
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(Slow(2).answer))
    thread.start()
    thread.join(WAIT_S / 6)
    assert others == [2] and not computing.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_meanwhile_computes_its_own(computing: threading.Event) -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends a child that hangs
        os._exit(0 if Slow(3).answer == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_ask_at_once_get_the_same_object() -> None:
    both = threading.Barrier(2)

    class Pair:
        @cached_property
        def made(self) -> object:
            both.wait(WAIT_S)
            return object()

    pair, seen = Pair(), list[object]()
    threads = [threading.Thread(target=lambda: seen.append(pair.made)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] is seen[1] is pair.made
