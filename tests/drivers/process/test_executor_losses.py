"""Executors: calls that only waited survive whatever ends a worker, cancelled ones end, and no descriptor is taken for granted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment
from executor_programs import AXPY, ENDLESS, GOOD, IDLE, PATIENCE, RIGHT, is_alive, settled, works
from tree import ROOT

import vyre_py as vp
from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable
from vyre_py.drivers.process import losses, worker_process
from vyre_py.drivers.process.losses import Losses


def mortal(folder: Path, deaths: int, end: str = "os.kill(os.getpid(), signal.SIGKILL)") -> Any:
    """What starts workers of which the first so many end as they start."""
    for k in range(deaths):
        (folder / f"death.{k}").touch()
    script = folder / "mortal.py"
    script.write_text(textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from vyre_py.drivers.process import worker

        for left in Path({str(folder)!r}).glob("death.*"):
            left.unlink()
            {end}
        worker.main()
    """))
    return lambda fd: [sys.executable, "-P", str(script), str(fd)]


# ---------------------------------------------------------------- workers that die before they begin


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(1)"])
def test_calls_that_wait_survive_workers_that_die_as_they_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    with vp.Executor("cpu") as executor:
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 2, end))
        executor.restart()
        pending = [executor.submit(AXPY, GOOD) for _ in range(3)]
        for call in pending:
            np.testing.assert_array_equal(call.result(PATIENCE)["y"], RIGHT)
        assert (executor.counters.starts, executor.counters.restarts) == (4, 3) and not list(tmp_path.glob("death.*"))


def test_workers_that_end_of_themselves_as_they_start_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vp.Executor("cpu") as executor:
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 4, "sys.exit(1)"))
        executor.restart()
        first, second, third = [executor.submit(AXPY, GOOD) for _ in range(3)]
        with pytest.raises(DeviceUnavailable, match=r"lived long enough to begin 'axpy'\n.*3 workers in a row.*\n.*status 1"):
            first.result(PATIENCE)
        with pytest.raises(DeviceUnavailable, match="4 workers in a row"):  # one try
            second.result(PATIENCE)
        np.testing.assert_array_equal(third.result(PATIENCE)["y"], RIGHT)
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 2, "sys.exit(1)"))  # the row is over
        executor.restart()
        works(executor)
    with vp.Executor("cpu", max_restarts=2) as executor:
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 2))
        executor.restart()
        with pytest.raises(DeviceLost, match="may not start another"):
            works(executor)


# A worker that is killed as it has said that its device is open, and has read nothing more.
OPENED = (
    "from vyre_py.drivers.process.channel import Channel; send = Channel.send; "
    "Channel.send = lambda *message: (send(*message), os.kill(os.getpid(), signal.SIGKILL)); break"
)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", OPENED], ids=["as it starts", "before its first call"])
def test_calls_outlive_a_killer_that_is_faster_than_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    with vp.Executor("cpu") as executor:
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 5, end))
        executor.restart()
        for call in [executor.submit(AXPY, GOOD) for _ in range(3)]:
            np.testing.assert_array_equal(call.result(PATIENCE)["y"], RIGHT)
        assert (executor.counters.starts, executor.counters.dispatches) == (7, 3)


def test_a_killer_that_goes_on_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vp.Executor("cpu", start_timeout=PATIENCE) as executor:
        supervisor = executor._supervisor
        supervisor._losses = Losses(0.3)
        monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 1000))
        executor.restart()
        with pytest.raises(DeviceUnavailable, match=r"lived long enough to begin 'axpy'\n.*in a row, within .* s\n.*SIGKILL"):
            works(executor)
        for left in tmp_path.glob("death.*"):
            left.unlink()
        works(executor)


def test_what_waits_for_a_start_is_cancelled_and_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(losses, "_LONGEST_PAUSE", 1000.0)
    executor = vp.Executor("cpu")
    monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 2))
    executor.restart()
    stuck, behind = executor.submit(AXPY, GOOD), executor.submit(AXPY, GOOD)
    assert settled(lambda: executor.counters.starts == 3 and executor.pid is None)
    assert stuck.cancel()
    np.testing.assert_array_equal(behind.result(PATIENCE)["y"], RIGHT)
    monkeypatch.setattr(worker_process, "command", mortal(tmp_path, 2))
    executor.restart()
    started = executor.counters.starts
    stuck = executor.submit(AXPY, GOOD)
    assert settled(lambda: executor.counters.starts == started + 2 and executor.pid is None)
    executor.close(wait=False)
    with pytest.raises(DeviceLost, match="is closed"):
        stuck.result(PATIENCE)


def test_losses_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(losses, "monotonic", lambda: now)
    row = Losses(10.0)
    pauses = []
    for _ in range(9):
        assert row.add(killed=True)
        pauses.append(row.pause)
        now += 1.0
    assert pauses[:3] == [0.0, 0.05, 0.1] and pauses[-2:] == [1.0, 1.0] and pauses == sorted(pauses)
    assert str(row) == "9 workers in a row, within 8.0 s"
    now = 110.0
    assert not row.add(killed=True) and not row.add(killed=True)
    now = 120.0
    row.forget()
    assert not row.add(killed=True)
    now = 130.5
    row.forget()
    assert [row.add(killed) for killed in (False, True, False, False)] == [True, True, True, False]
    row.clear()
    assert row.add(killed=False) and str(row) == "1 worker in a row, within 0.0 s"


def test_a_restart_as_the_worker_starts_loses_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vp.Executor("cpu") as executor:
        executor.restart()
        started = executor.counters.starts
        pending = executor.submit(AXPY, GOOD)
        assert settled(lambda: executor.counters.starts > started and executor.pid is not None)
        executor.restart()
        np.testing.assert_array_equal(pending.result(PATIENCE)["y"], RIGHT)


def test_a_call_that_its_worker_never_read_runs_on_the_next() -> None:
    with vp.Executor("cpu") as executor:
        works(executor)
        session = executor._supervisor._session
        assert session is not None
        os.kill(session.process.pid, signal.SIGSTOP)
        pending = executor.submit(AXPY, GOOD)
        assert settled(lambda: session.process._channel.unread)
        os.kill(session.process.pid, signal.SIGKILL)
        np.testing.assert_array_equal(pending.result(PATIENCE)["y"], RIGHT)
        resident = executor.upload(np.zeros(100, np.uint32))
        session = executor._supervisor._session
        assert session is not None
        os.kill(session.process.pid, signal.SIGSTOP)
        lost = executor.submit(AXPY, {**GOOD, "y": resident})
        assert settled(lambda: session.process._channel.unread)
        os.kill(session.process.pid, signal.SIGKILL)
        with pytest.raises(DeviceLost, match="the memory lay in worker 2"):
            lost.result(PATIENCE)


# ---------------------------------------------------------------- calls that are cancelled


def test_cancelling_what_runs_ends_its_worker_and_the_queue_goes_on() -> None:
    async def cancelled(pending: Any) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(awaited(pending)), 0.2)

    async def awaited(pending: Any) -> Any:
        return await pending

    with vp.Executor("cpu") as executor:
        executor.compile(ENDLESS)
        resident, first = executor.upload(RIGHT), executor.pid
        stuck, behind = executor.submit(ENDLESS, IDLE), executor.submit(AXPY, GOOD)
        assert settled(stuck.running)
        asyncio.run(cancelled(stuck))
        assert stuck.cancelled() and stuck.done() and not stuck.running()
        np.testing.assert_array_equal(behind.result(PATIENCE)["y"], RIGHT)
        assert first is not None and not is_alive(first) and executor.pid != first
        with pytest.raises(DeviceLost) as caught:
            resident.read()
        assert caught.value.cause == "the call that it ran was cancelled"
        stuck, second = executor.submit(ENDLESS, IDLE), executor.pid
        assert settled(stuck.running)
        assert stuck.cancel() and stuck.cancel() and wait([stuck], PATIENCE).done == {stuck}
        with pytest.raises(CancelledError):
            stuck.result()
        works(executor)
        done = executor.submit(AXPY, GOOD)
        done.result(PATIENCE)
        third = executor.pid
        assert not done.cancel() and executor.submit(AXPY, GOOD).result(PATIENCE) and executor.pid == third != second


def test_cancelling_what_a_worker_is_started_for() -> None:
    with vp.Executor("cpu") as executor:
        for turn in range(4):
            executor.restart()
            started = executor.counters.starts
            stuck, behind = executor.submit(ENDLESS, IDLE), executor.submit(AXPY, GOOD)
            assert settled(lambda: executor.counters.starts > started or turn == 0)  # noqa: B023 - called within this turn
            assert stuck.cancel()
            np.testing.assert_array_equal(behind.result(PATIENCE)["y"], RIGHT)


# ---------------------------------------------------------------- standard streams


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"])
def test_a_process_without_standard_streams_has_workers(tmp_path: Path, closed: str) -> None:
    """The numbers of streams that were closed before it began go to the first files that it opens."""
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        import vyre_py as vp
        from executor_programs import AXPY, GOOD, works

        told = Path(sys.argv[1])
        try:
            with vp.Executor("cpu") as executor:
                works(executor)
            vp.compile_many([AXPY] * 3, "cpu", workers=2)
            told.write_text("right")
        except BaseException as error:
            told.write_text(repr(error))
    """)
    told = tmp_path / "told"
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", script, str(told)]
    subprocess.run(command, env=child_environment(), cwd=ROOT, check=True, timeout=PATIENCE)
    assert told.read_text() == "right"
