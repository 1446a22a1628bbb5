"""Jobs over several processes, one for each rank: started together, ended together, each with a time after which it is killed.

A job is a function of a module of the tests. Its process calls it with a `Rank`; what it returns, as JSON, is what the test gets. Where one rank fails, the
others get a few seconds and are killed, and the error has what each of them said.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

from children import child_environment

__all__ = ["Rank", "RankFailure", "run_ranks"]

# How long the others may go on once a rank has failed, and how long before its end a rank that hangs says where.
_GRACE: Final = 5.0
_TAIL: Final = 3000
_POLL: Final = 0.02


class RankFailure(AssertionError):
    """A rank failed, or took too long. The text has what each of them said."""


class Rank:
    """What a job's process knows: its `number` of `count`, the `folder` that all share, its `options`."""

    def __init__(self, number: int, count: int, folder: Path, options: dict[str, Any]) -> None:
        self.number, self.count, self.folder, self.options = number, count, folder, options

    def tell(self, name: str, text: str) -> None:
        """Leaves a text for the other ranks."""
        written = self.folder / f"{name}.part{self.number}"
        written.write_text(text, encoding="utf-8")
        written.replace(self.folder / name)

    def hear(self, name: str, seconds: float = 60.0) -> str:
        """The text that some rank leaves. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not (self.folder / name).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {self.number} waited {seconds} s for {name}")
            time.sleep(_POLL)
        return (self.folder / name).read_text("utf-8")

    def meet(self, name: str, seconds: float = 60.0) -> None:
        """Waits until all ranks are here. Raises TimeoutError."""
        self.tell(f"{name}-{self.number}", "")
        for other in range(self.count):
            self.hear(f"{name}-{other}", seconds)


def run_ranks(
    job: str, count: int, folder: Path, *, seconds: float, environment: dict[str, str] | None = None, killed: tuple[int, ...] = (), **options: Any
) -> list[Any]:
    """What the ranks of a job, "module:function", gave; of those that are to be `killed` None. `environment` is added to that of this process, which keeps NCCL
    from what a machine forbids. Raises RankFailure."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            command = [sys.executable, __file__, job, str(number), str(count), str(folder), str(seconds)]
            settings = child_environment(**(environment or {}))
            with (folder / f"{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, env=settings, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
        late = _wait(processes, time.monotonic() + seconds, killed)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    wrong = [number for number, process in enumerate(processes) if process.returncode != (-signal.SIGKILL if number in killed else 0) or number in late]
    if wrong:
        raise RankFailure("\n".join(_said(folder, number, process.returncode, number in late) for number, process in enumerate(processes)))
    return [None if number in killed else json.loads((folder / f"{number}.json").read_text("utf-8")) for number in range(count)]


def _wait(processes: list[subprocess.Popen[bytes]], deadline: float, killed: tuple[int, ...]) -> list[int]:
    """Waits for all, or until a time; the numbers of those that run then."""
    failed = False
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if not failed and any(process.poll() not in (None, 0) for number, process in enumerate(processes) if number not in killed):
            failed, deadline = True, min(deadline, time.monotonic() + _GRACE)
        time.sleep(_POLL)
    return [number for number, process in enumerate(processes) if process.poll() is None]


def _said(folder: Path, number: int, status: int, late: bool) -> str:
    text = (folder / f"{number}.log").read_text("utf-8", "replace")
    return f"-- rank {number}: {'killed, since it was late' if late else f'exit status {status}'}\n{text[-_TAIL:]}"


def _main(job: str, number: str, count: str, folder: str, seconds: str) -> int:
    faulthandler.dump_traceback_later(max(1.0, float(seconds) - 3), exit=False)
    module, _, function = job.partition(":")
    shared = Path(folder)
    rank = Rank(int(number), int(count), shared, json.loads((shared / "options.json").read_text("utf-8")))
    try:
        result = getattr(importlib.import_module(module), function)(rank)
        (shared / f"{number}.json").write_text(json.dumps(result), encoding="utf-8")
    except BaseException:  # noqa: BLE001 - said, and then the process ends at once: other threads may hang
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what a lost rank has left behind in libraries is not asked to end


if __name__ == "__main__":
    _main(*sys.argv[1:])
