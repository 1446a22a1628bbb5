"""Forks a process for each plant, out of one that has imported what the plant cannot change: other people's packages, and the floors below the plant's.

    python tests/planted --serve FLOOR     reads names, a line each, and answers each with a line of JSON: the exit status and the end of what was printed
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from select import select
from typing import Final, NoReturn

from planted.plant import ROOT, Plant

__all__ = ["Server", "floor_of", "serve"]

# From the lowest; `test_house.py` sees to it that each imports only itself and those before it.
_FLOORS: Final = ("ir", "lowering", "drivers", "vyre_py")
# What detectors import of others. None of it starts a thread, which a fork would lose.
_OTHERS: Final = ("numpy", "ml_dtypes", "llvmlite.binding", "pytest", "hypothesis", "mpmath", "wgpu.backends.wgpu_native")
_KEPT: Final = 3000


def floor_of(plant: Plant) -> str:
    """The floor that a plant's module belongs to."""
    return next((floor for floor in _FLOORS if plant.module.startswith(f"vyre_py.{floor}.")), _FLOORS[-1])


def _import_all_below(floor: str) -> None:
    for name in _OTHERS:
        with suppress(ImportError):
            import_module(name)
    for below in _FLOORS[: _FLOORS.index(floor)]:
        package = import_module(f"vyre_py.{below}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def serve(floor: str, run: Callable[[str], NoReturn]) -> None:
    """Answers until its standard input ends; `run` plants what is named, looks, and ends its process."""
    _import_all_below(floor)
    gc.collect()
    gc.freeze()
    for name in sys.stdin:
        with tempfile.TemporaryFile() as said:
            if (child := os.fork()) == 0:
                with Path(os.devnull).open("rb") as nothing:
                    os.dup2(nothing.fileno(), 0)  # the names that follow are not for what it starts
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                run(name.strip())
            _, status = os.waitpid(child, 0)
            said.seek(max(0, said.tell() - _KEPT))
            print(json.dumps([os.waitstatus_to_exitcode(status), said.read().decode("utf-8", "replace")]), flush=True)


class Server:
    """The process that `serve` runs in, for whoever asks it."""

    def __init__(self, floor: str, environment: Mapping[str, str]) -> None:
        command = [sys.executable, str(ROOT / "tests" / "planted"), "--serve", floor]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True, env={**os.environ, **environment})

    def ask(self, name: str, seconds: float) -> tuple[int, str]:
        """The exit status of a process in which this is planted, and the end of what it printed. Raises TimeoutError; then the server is of no more use."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        if not select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"{name} takes longer than {seconds:g} s")
        answer = self._process.stdout.readline()
        assert answer, f"the server of planted bugs ended with {self._process.wait()}"
        status, said = json.loads(answer)
        return status, said

    def close(self) -> None:
        """Ends the server and whatever it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.communicate()
