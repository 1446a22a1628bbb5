"""A fork waits for the calls of compilers that other threads are in, up to a limit; the libraries are stand-ins whose calls end when a test says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from llvmlite import binding as llvm
from llvmlite.binding import ffi

from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm import forking
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.lowering.llvm.gpu.nvvm import libnvvm

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

PATIENCE_S = 60
PAUSE_S = 0.2
Call = Callable[[], object]


class Work:
    """What a library does in a call: the first waits until it is let go, and then does what it is told to do last."""

    def __init__(self) -> None:
        self.begun = 0
        self.within, self.let_go = threading.Event(), threading.Event()
        self.last: Call = lambda: None
        self.over = False

    def do(self, *_: object) -> None:
        self.begun += 1
        if self.begun > 1:
            return
        self.within.set()
        assert self.let_go.wait(PATIENCE_S)
        self.last()
        self.over = True


def _one(*_: object) -> int:
    return 1


def _nothing(*_: object) -> None:
    pass


def stand_in(work: Call, *, held: str) -> Any:
    """Both libraries in one, of which the function `held` does the work."""
    ones = ("create_program", "get_compiled_result_size", "create", "get_linked_cubin_size", "get_info_log_size")
    none = ("add_module_to_program", "verify_program", "get_compiled_result", "destroy_program", "add_data", "get_linked_cubin", "get_info_log", "destroy")
    functions = {**dict.fromkeys(ones, _one), **dict.fromkeys(none, _nothing), held: work}
    return SimpleNamespace(**functions, nvvmError=RuntimeError, nvJitLinkError=RuntimeError, InputType=SimpleNamespace(PTX=1))


def _libnvvm(work: Call, patch: pytest.MonkeyPatch) -> Call:
    patch.setattr(libnvvm, "_library", lambda: stand_in(work, held="compile_program"))
    return lambda: libnvvm._compile("", ())


def _nvjitlink(work: Call, patch: pytest.MonkeyPatch) -> Call:
    patch.setattr(nvjitlink, "_library", lambda: stand_in(work, held="complete"))
    return lambda: nvjitlink.link(b"", "sm_90", name="held")


def _llvm(work: Call, patch: pytest.MonkeyPatch) -> Call:
    def call() -> None:
        llvm.get_default_triple()  # a call of the library itself
        with ffi.lib._lock:  # as every call of it does
            work()

    return call


SEVERAL = {"libNVVM": _libnvvm, "nvJitLink": _nvjitlink}
COMPILERS = {**SEVERAL, "LLVM": _llvm}


def status_of_child(check: Callable[[], bool]) -> int:
    """What becomes of a forked child that makes this check: 0 where it holds, 1 where not or where it raises; -14 where it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE_S)
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def calling(call: Call, work: Work) -> Iterator[None]:
    """Another thread is within that call."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert work.within.wait(PATIENCE_S)
        yield
    finally:
        work.let_go.set()
        thread.join()


@contextmanager
def later(call: Call, *, turns: int = 1) -> Iterator[None]:
    """A thread makes that call after so many pauses."""
    timer = threading.Timer(PAUSE_S * turns, call)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_fork_waits_for_a_call_and_the_child_calls(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    call = COMPILERS[compiler](work.do, monkeypatch)

    def check() -> bool:
        over = work.over
        call()
        return over

    with calling(call, work), later(work.let_go.set):
        assert status_of_child(check) == 0
    call()
    assert work.begun == 2  # in this process


@pytest.mark.parametrize("compiler", SEVERAL)
def test_no_call_begins_while_a_fork_waits(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else threads that call again and again would keep it waiting."""
    work = Work()
    call = COMPILERS[compiler](work.do, monkeypatch)
    with calling(call, work), later(call), later(work.let_go.set, turns=2):
        assert status_of_child(lambda: work.over and work.begun == 1) == 0
    assert work.begun == 2


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_call_within_a_call_goes_on_while_a_fork_waits(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler makes one: the fork waits for it, so that it must not wait for the fork."""
    monkeypatch.setattr(forking, "_PATIENCE_S", 5 * PAUSE_S)
    work = Work()
    work.last = call = COMPILERS[compiler](work.do, monkeypatch)
    with calling(call, work), later(work.let_go.set):
        assert status_of_child(lambda: work.over and work.begun == 2) == 0


@pytest.mark.parametrize("compiler", SEVERAL)
def test_two_threads_call_at_once(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2)
    call = COMPILERS[compiler](lambda *_: meeting.wait(PATIENCE_S), monkeypatch)
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meeting.broken


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_fork_that_waits_in_vain_goes_on_and_the_child_is_refused(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_PATIENCE_S", 0.05)
    work = Work()
    call = COMPILERS[compiler](work.do, monkeypatch)

    def refused() -> bool:
        with pytest.raises(ToolchainError, match=f"^{compiler}: .* when this process was forked, .* 'spawn'"):
            call()
        return not work.over

    def refused_in_turn() -> bool:
        """A fork of such a child waits for nothing that cannot come."""
        monkeypatch.setattr(forking, "_PATIENCE_S", 2.0 * PATIENCE_S)
        return status_of_child(refused) == 0

    with calling(call, work):
        assert status_of_child(refused) == 0
        assert status_of_child(refused_in_turn) == 0
        for other in COMPILERS.keys() - {compiler}:
            assert status_of_child(lambda other=other: COMPILERS[other](_nothing, monkeypatch)() is not work) == 0
    call()  # this process is not
    assert status_of_child(lambda: call() is not work) == 0
    assert work.begun == 2
