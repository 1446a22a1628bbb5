"""One mutant against the tests that cover it, in a copy of the tree that nobody else uses meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal

from tree import FOLDERS

from mutants.coverage import Covered
from mutants.mutation import ROOT, Mutant

__all__ = ["Outcome", "Slot", "TimeIsUp", "covering", "make_tree"]

_NOT_COPIED: Final = shutil.ignore_patterns(".git", ".venv", ".mutants", ".mypy_cache", ".ruff_cache", ".hypothesis", ".pytest_cache", "build", "out")
_FIRST_TESTS, _FIRST_SECONDS = 40, 1.0
# A test may take this many times what it took when it was mapped, and so many seconds at least.
_PATIENCE, _LEAST_SECONDS = 15, 30
_IMPORT_SECONDS: Final = 120  # until the first test begins
_PASSED: Final = (0, 5)  # pytest's exit statuses: all passed; none was left to run


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `by` names the test that caught it; of `covering` tests `ran` did, for `seconds`."""

    result: Literal["caught", "hang", "crash", "survived", "uncovered"]
    by: str
    covering: int
    ran: int
    seconds: float


def covering(mutant: Mutant, tests: Sequence[Covered]) -> list[Covered]:
    """The tests that come along a mutant: one of each test function first, the fastest before the others, then a second one of each, and so on.

    A mutant that takes effect at import has those that run anything of its module, or all where nothing of it ever runs; so has one that no
    test comes along, since the results of functions are kept and a later test may find them.
    """
    mask = sum(1 << line for line in mutant.lines)
    found = [] if mutant.module_level else [t for t in tests if t.lines.get(mutant.path, 0) & mask]
    found = found or [t for t in tests if mutant.path in t.lines] or list(tests)
    turns: dict[str, count[int]] = {}
    found.sort(key=lambda t: t.seconds)
    ranked = [(next(turns.setdefault(t.test.split("[")[0], count())), t.seconds, t) for t in found]
    return [t for _, _, t in sorted(ranked, key=lambda row: row[:2])]


def make_tree(to: Path) -> None:
    """A copy of the project, its modules and tests compiled, so that each run need not."""
    shutil.copytree(ROOT, to, ignore=_NOT_COPIED, symlinks=True)
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    subprocess.run(collect, cwd=to, env=_environment(to), stdout=subprocess.DEVNULL, check=True)


def _environment(tree: Path, **more: str) -> dict[str, str]:
    """No GPU, no kept code, the same generated Programs each time."""
    found = [*(str(tree / folder) for folder in FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"CUDA_VISIBLE_DEVICES": "", "VYRE_SEED": "20261121", "VYRE_REQUIRE_DEVICES": "", "VYRE_CACHE_LIMIT": "0"}
    return {**os.environ, **fixed, "PYTHONPATH": os.pathsep.join(found), **more}


class TimeIsUp(Exception):
    """What was tried has no result."""


class Slot:
    """A copy of the tree, for one mutant after the other, until the time is up."""

    def __init__(self, tree: Path, until: float = float("inf")) -> None:
        self.tree, self.until = tree, until

    def trial(self, mutant: Mutant, tests: Sequence[Covered], budget_seconds: float) -> Outcome:
        """Runs tests until one fails or so many seconds' worth of them has passed. What caught it has to pass without it. Raises TimeIsUp."""
        start = time.monotonic()
        chosen = covering(mutant, tests)
        if not chosen:
            return Outcome("uncovered", "", 0, 0, 0.0)
        kept, left = [], budget_seconds
        for test in chosen:
            if test.seconds <= left:
                kept.append(test)
                left -= test.seconds
        first = [t for t in kept if t.seconds < _FIRST_SECONDS][:_FIRST_TESTS]
        then = [t for t in kept if t not in first]
        file = self.tree / mutant.path
        unreliable: set[str] = set()
        ran = 0
        work = [part for part in (first, then) if part]
        while work:
            part = [t for t in work.pop(0) if t.test not in unreliable]
            source = (ROOT / mutant.path).read_bytes()
            file.write_bytes(mutant.apply(source))
            try:
                result, by = self.run(part)
            finally:
                shutil.copy2(ROOT / mutant.path, file)
            if result == "survived":
                ran += len(part)
                continue
            again = [t for t in part if t.test == by]
            if again and self.run(again)[0] != "survived":  # it fails without the mutant, too
                unreliable.add(by)
                work.insert(0, part)
                continue
            return Outcome(result, by, len(chosen), ran + next((k for k, t in enumerate(part, 1) if t.test == by), 0), time.monotonic() - start)
        return Outcome("survived", "", len(chosen), ran, time.monotonic() - start)

    def run(self, tests: Sequence[Covered]) -> tuple[Literal["caught", "hang", "crash", "survived"], str]:
        """How the tests end in the tree as it is, and which one ended them."""
        limits = {t.test: max(_LEAST_SECONDS, _PATIENCE * t.seconds) for t in tests}
        with tempfile.TemporaryDirectory() as scratch:
            chosen, started = Path(scratch, "chosen.json"), Path(scratch, "started")
            chosen.write_text(json.dumps([t.test for t in tests]), encoding="utf-8")
            started.touch()
            environment = _environment(
                self.tree, VYRE_MUTANT_TESTS=str(chosen), VYRE_MUTANT_STARTED=str(started), PYTHONDONTWRITEBYTECODE="1", TMPDIR=scratch, VYRE_TEST_SECONDS="0"
            )
            files = list(dict.fromkeys(t.test.split("::")[0] for t in tests))
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-p", "mutants.chosen", *files]
            process = subprocess.Popen(
                command, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            name, since, hangs = "", time.monotonic(), False
            try:
                while process.poll() is None:
                    time.sleep(0.05)
                    if time.monotonic() > self.until:
                        raise TimeIsUp
                    now = started.read_text(encoding="utf-8")
                    if now != name:
                        name, since = now, time.monotonic()
                    if time.monotonic() - since > limits.get(name, _IMPORT_SECONDS):
                        hangs = True
                        break
            finally:
                _end(process)
            name = started.read_text(encoding="utf-8")
        if hangs:
            return "hang", name
        if process.returncode in _PASSED:
            return "survived", ""
        return ("crash" if process.returncode < 0 else "caught"), name


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
