"""Which tests come along which lines of what is measured: a plugin of pytest that writes it down, and what reads it.

By line and by single test, with Python's own monitoring where it is (3.12), which costs little since a line is reported once a test; by its tracing
elsewhere, which is slower. Lines that run when a module is imported are nobody's. What a test's child processes run is not seen.
"""

from __future__ import annotations

import gzip
import inspect
import json
import sys
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from mutants.mutation import ROOT, scope_files

__all__ = ["Covered", "Recorder", "read", "write"]

# Tests that read the project's text rather than run it, or plant bugs themselves, or build and measure: what they say is not about one mutant.
LEFT_OUT: Final = frozenset({"test_bench.py", "test_house.py", "test_mutants.py", "test_packaging.py", "test_planted.py", "test_sanitizer.py"})


@dataclass(frozen=True)
class Covered:
    """A test, what it took, and a bit for each line of each file that it came along."""

    test: str
    seconds: float
    lines: dict[str, int]


class Recorder:
    """The plugin: every so-and-so-many-th test, until the time is used up."""

    def __init__(self, shard: int, shards: int, until: float) -> None:
        self.shard, self.shards, self.until = shard, shards, until
        self.files = {str(ROOT / path): path for path in scope_files()}
        self.seen: dict[str, int] = {}
        self.to_come: dict[CodeType, set[int]] = {}  # lines that this test has not come along yet, of what is traced
        self.failed: set[str] = set()
        self.covered: list[Covered] = []
        self.left = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.path.name not in LEFT_OUT][self.shard :: self.shards]

    def note(self, code: CodeType, line: int) -> object:
        path = self.files.get(code.co_filename)
        if path is not None and code.co_flags & inspect.CO_OPTIMIZED:  # not a module's own code, nor a class's
            self.seen[path] = self.seen.get(path, 0) | 1 << line
        return sys.monitoring.DISABLE if sys.version_info >= (3, 12) else None

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self.files:
            return None
        if (left := self.to_come.get(code)) is None:
            left = self.to_come[code] = {line for _, _, line in code.co_lines() if line}
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.note(code, frame.f_lineno)
        return self.trace if left else None

    def watch(self) -> None:
        self.seen, self.to_come = {}, {}
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()
        else:
            threading.settrace(self.trace)
            sys.settrace(self.trace)

    def pytest_runtestloop(self) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "mutants")
            sys.monitoring.register_callback(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE, self.note)
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        start = time.perf_counter()
        self.watch()
        try:
            return (yield)
        finally:
            sys.settrace(None)
            # A test that is skipped after it ran something still fails where that fails.
            if self.seen and item.nodeid not in self.failed:
                self.covered.append(Covered(item.nodeid, round(time.perf_counter() - start, 4), self.seen))
            if time.time() > self.until:
                self.left = item.session.testscollected - len(self.covered)
                item.session.shouldstop = "no time is left"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def write(path: Path, rows: Iterable[Covered]) -> None:
    """Writes rows as lines of JSON, compressed."""
    with gzip.open(path, "wt", compresslevel=4) as out:
        for row in rows:
            out.write(json.dumps([row.test, row.seconds, {name: f"{bits:x}" for name, bits in row.lines.items()}]) + "\n")


def read(path: Path) -> list[Covered]:
    """The rows of a file, as `write` left them."""
    with gzip.open(path, "rt") as rows:
        return [Covered(test, seconds, {name: int(bits, 16) for name, bits in lines.items()}) for test, seconds, lines in map(json.loads, rows)]
