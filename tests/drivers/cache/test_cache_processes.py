"""One cache used by many threads and processes at once, some of which are killed, stopped or forked in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cache_cases import PATIENCE_S, Maker, children_end, in_child, key, payload, prove, within
from cache_processes import KEYS
from children import child_environment
from tree import ROOT

from vyre_py.drivers.cache import single_flight
from vyre_py.drivers.cache.directory import Directory
from vyre_py.drivers.cache.disk import DiskCache
from vyre_py.drivers.cache.single_flight import take_lock
from vyre_py.drivers.errors import DriverError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no locks that the cache uses"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    with within():
        yield


def processes(what: str, path: Path, log: Path, count: int) -> Counter[str]:
    """Runs them; how often each line is in the log."""
    command = [sys.executable, "-W", "ignore", "-m", "cache_processes", what, str(path), str(log), str(count)]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return Counter(log.read_text().split("\n")[:-1]) if log.exists() else Counter()


def beside(cache: DiskCache) -> set[str]:
    """What lies beside entries: the first words of the names."""
    assert cache.path is not None
    return {path.name.partition("-")[0] for path in cache.path.iterdir() if "-" in path.name}


# ---------------------------------------------------------------- processes


def test_sixteen_processes_compile_each_of_fifty_keys_once(tmp_path: Path) -> None:
    assert processes("together", tmp_path / "c", tmp_path / "log", 0) == Counter(f"made {wanted.name}" for wanted in KEYS)
    cache = DiskCache(tmp_path / "c")
    assert cache.verify().good == len(KEYS) and cache.verify().bad == ()
    assert beside(cache) == set()


def test_sixteen_processes_while_another_clears(tmp_path: Path) -> None:
    """A clearing may cost each key one compile more, and nothing else does."""
    made = processes("together", tmp_path / "c", tmp_path / "log", 50)
    clears = made.pop("clear")
    assert set(made) == {f"made {wanted.name}" for wanted in KEYS} and max(made.values()) <= 1 + clears
    assert sum(made.values()) > len(KEYS), "nothing was cleared while it was used"
    cache = DiskCache(tmp_path / "c")
    assert cache.verify().bad == () and beside(cache) == set()
    for wanted in KEYS:
        assert cache.get(wanted) in (None, payload(wanted))


def test_a_thousand_kills_while_it_is_written(tmp_path: Path) -> None:
    with within(3 * PATIENCE_S):
        processes("kills", tmp_path / "c", tmp_path / "log", 1000)
    cache = DiskCache(tmp_path / "c", limit_bytes=1_500_000)
    assert beside(cache) == {"tmp", "lock"}, "no kill came while a lock was held, or an entry was not believed"
    assert cache.verify().bad == () and not cache.snapshot().rejected
    for wanted in KEYS:
        assert cache.get(wanted) in (None, payload(wanted, 60_000))
        assert cache.get_or_make(wanted, partial(payload, wanted, 60_000), bytes) == payload(wanted, 60_000)
    for file in (tmp_path / "c").iterdir():
        os.utime(file, (1, 1))
    cache.trim()
    assert cache.stats().left_behind == 0 and cache.stats().size_bytes <= 1_500_000
    assert beside(cache) == set()


def maker_in_child(cache: DiskCache, wait: Path) -> int:
    """A child that says that it makes the entry, and goes on when that file is there."""
    started = wait.with_name("started")

    def make() -> bytes:
        started.write_text("")
        while not wait.exists():
            time.sleep(0.001)
        return payload(key(1))

    child = in_child(lambda: cache.get_or_make(key(1), make, bytes) and None)
    while not started.exists():
        time.sleep(0.001)
    return child


def test_a_maker_that_is_killed_is_not_waited_for(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    child = maker_in_child(cache, tmp_path / "never")
    waiting = in_child(lambda: prove(cache, key(1), made=1))
    time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    children_end(waiting)
    os.waitpid(child, 0)
    prove(cache, key(1), made=0)


def test_a_maker_that_is_stopped_is_waited_for_with_patience(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    child = maker_in_child(cache, tmp_path / "go")
    os.kill(child, signal.SIGSTOP)
    hasty = DiskCache(tmp_path / "c", patience_s=0.1)
    prove(hasty, key(1), made=1)
    assert hasty.snapshot().waits == 1
    prove(hasty, key(2), made=1)
    os.kill(child, signal.SIGCONT)
    (tmp_path / "go").write_text("")
    children_end(child)
    prove(cache, key(1), made=0)


def test_who_waits_reads_what_the_other_made(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    child = maker_in_child(cache, tmp_path / "go")
    waiting = [in_child(lambda: prove(cache, key(1), made=0)) for _ in range(3)]
    time.sleep(0.05)
    (tmp_path / "go").write_text("")
    children_end(child, *waiting)


def test_waiters_of_a_maker_that_fails_make_it(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    started, go = tmp_path / "started", tmp_path / "go"

    def fails() -> bytes:
        started.write_text("")
        while not go.exists():
            time.sleep(0.001)
        raise DriverError("no")

    def failing() -> None:
        with pytest.raises(DriverError, match="no"):
            cache.get_or_make(key(1), fails, bytes)

    child = in_child(failing)
    while not started.exists():
        time.sleep(0.001)
    waiting = in_child(lambda: prove(cache, key(1), made=1))
    time.sleep(0.02)
    go.write_text("")
    children_end(child, waiting)


def test_a_lock_whose_file_went_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening a lock's file and locking it, its holder leaves and another one comes."""
    directory = Directory(tmp_path / "c", writable=True)
    held, locked = take_lock(directory, "lock-x"), single_flight._locked
    assert held is not None and take_lock(directory, "lock-x") is None
    others = []

    def late(file: int) -> bool:
        monkeypatch.undo()
        held.release()
        others.append(take_lock(directory, "lock-x"))
        return locked(file)

    monkeypatch.setattr(single_flight, "_locked", late)
    assert take_lock(directory, "lock-x") is None and others[0] is not None
    others[0].release()
    assert list((tmp_path / "c").iterdir()) == []


def test_a_directory_that_is_deleted_under_those_who_wait(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    child = maker_in_child(cache, tmp_path / "go")
    (tmp_path / "c").rename(tmp_path / "gone")
    prove(cache, key(1), made=1)  # nobody holds the lock in the new directory
    (tmp_path / "go").write_text("")
    children_end(child)
    prove(cache, key(1), made=0)


# ---------------------------------------------------------------- threads


def run(*work: Any) -> None:
    threads = [threading.Thread(target=task) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "off"])
def test_of_many_threads_one_makes_it(tmp_path: Path, kept: bool) -> None:
    cache = DiskCache(tmp_path / "c" if kept else None)
    makers = [Maker(wanted) for wanted in KEYS[:10]]
    lines = threading.Barrier(8)
    right: list[bool] = []

    def slow(maker: Maker) -> bytes:
        time.sleep(0.01)
        return maker()

    def work() -> None:
        for maker in makers:
            lines.wait()
            right.append(cache.get_or_make(maker.key, partial(slow, maker), bytes) == payload(maker.key))

    run(*[work] * 8)
    assert right == [True] * 80 and [maker.made for maker in makers] == [1] * 10
    figures = cache.snapshot()
    assert figures.misses == 10 and figures.hits == 70 and figures.errors == 0


def test_two_caches_on_one_directory_in_one_process(tmp_path: Path) -> None:
    maker = Maker(key(1))

    def slow() -> bytes:
        time.sleep(0.05)
        return maker()

    caches = [DiskCache(tmp_path / "c") for _ in range(4)]
    run(*[lambda of=cache: of.get_or_make(key(1), slow, bytes) for cache in caches])
    assert maker.made == 1 and sum(cache.snapshot().hits for cache in caches) == 3


def test_threads_whose_maker_fails_try_themselves(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    lines, raised = threading.Barrier(4), []

    def fails() -> bytes:
        time.sleep(0.01)
        raise DriverError(threading.current_thread().name)

    def work() -> None:
        lines.wait()
        try:
            cache.get_or_make(key(1), fails, bytes)
        except DriverError as error:
            raised.append(str(error) == threading.current_thread().name)

    run(*[work] * 4)
    assert raised == [True] * 4
    prove(cache, key(1), made=1)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "off"])
def test_a_thread_that_hangs_is_waited_for_once(tmp_path: Path, kept: bool) -> None:
    cache = DiskCache(tmp_path / "c" if kept else None, patience_s=0.1)
    inside, go = threading.Event(), threading.Event()

    def hangs() -> bytes:
        inside.set()
        assert go.wait(PATIENCE_S)
        return payload(key(1))

    hanging = threading.Thread(target=lambda: cache.get_or_make(key(1), hangs, bytes))
    hanging.start()
    assert inside.wait(PATIENCE_S)
    for _ in range(2):
        prove(cache, key(1), made=1 if cache.snapshot().waits == 0 or not kept else 0)
    assert cache.snapshot().waits == 1
    go.set()
    hanging.join()
    if kept:
        assert cache.get(key(1)) == payload(key(1)) and beside(cache) == set()


def test_making_an_entry_may_ask_for_entries(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")

    def outer() -> bytes:
        prove(cache, key(2), made=1)
        return cache.get_or_make(key(1), lambda: payload(key(1)), bytes)

    assert cache.get_or_make(key(1), outer, bytes) == payload(key(1))
    prove(cache, key(1), made=0)


# ---------------------------------------------------------------- forks


def test_a_forked_child_goes_on(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", patience_s=0.2)
    prove(cache, key(2), made=1)
    inside, go = threading.Event(), threading.Event()

    def slow() -> bytes:
        inside.set()
        assert go.wait(PATIENCE_S)
        return payload(key(1))

    making = threading.Thread(target=lambda: cache.get_or_make(key(1), slow, bytes))
    making.start()
    assert inside.wait(PATIENCE_S)
    cache._counters._guard.acquire()  # as if a thread of the parent were counting at this moment,
    cache._single_flight._guard.acquire()  # and another one were looking who makes what

    def work() -> None:
        prove(cache, key(2), made=0)
        prove(cache, key(3), made=1)
        prove(cache, key(1), made=1)  # the parent's thread is not here to land

    child = in_child(work)
    cache._counters._guard.release()
    cache._single_flight._guard.release()
    children_end(child)
    assert (tmp_path / "c" / f"lock-{key(1).name}").exists(), "the child gave its parent's lock back"
    go.set()
    making.join()
    prove(cache, key(1), made=0)
    prove(cache, key(3), made=0)


def test_a_child_forked_while_an_entry_is_made_holds_no_lock(tmp_path: Path) -> None:
    """The maker dies, and a child that it forked meanwhile lives on."""
    cache = DiskCache(tmp_path / "c")
    gate, opener = os.pipe()
    forked, tells = os.pipe()

    def make() -> bytes:
        if os.fork() == 0:
            os.close(opener)
            os.write(tells, b".")
            os.read(gate, 1)
            os._exit(0)
        os.read(forked, 1)
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    child = in_child(lambda: cache.get_or_make(key(1), make, bytes) and None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    prove(cache, key(1), made=1)
    assert cache.snapshot().waits == 0
    for end in (opener, gate, forked, tells):
        os.close(end)
