"""Rows of the table: what is measured, beside which peer, and what was promised; and the bench that measures them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bench.cuda.peers import Absent
from tests.bench.cuda.timing import Work, race
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.launch.waiting import timed

__all__ = ["Bench", "Measure", "Promise", "Result", "Results", "Row", "at_least", "at_most", "within"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A bound on our figure: `limit` times the peer's where it is `relative`, else `limit` itself; a lower bound where `more` is better."""

    limit: float
    relative: bool
    more: bool = False

    def __str__(self) -> str:
        return f"at {'least' if self.more else 'most'} {self.limit:g}{' x' if self.relative else ''}"

    def kept(self, ours: float, theirs: float | None) -> bool | None:
        """Whether it holds; None without the peer that it is about."""
        if self.relative and theirs is None:
            return None
        bound = self.limit * theirs if self.relative and theirs is not None else self.limit
        return ours >= bound if self.more else ours <= bound


def at_most(factor: float) -> Promise:
    """At most so many times the peer's figure."""
    return Promise(factor, relative=True)


def at_least(factor: float) -> Promise:
    """At least so many times the peer's figure."""
    return Promise(factor, relative=True, more=True)


def within(limit: float) -> Promise:
    """At most so much, in the row's unit."""
    return Promise(limit, relative=False)


@dataclass(slots=True)
class Bench:
    """Measures on one device. `dry` runs everything over a stand-in for the driver, with small sizes: the figures mean nothing then.

    `absent` says why peers could not be measured, and which.
    """

    device: CudaDevice
    dry: bool = False
    absent: dict[str, list[str]] = field(default_factory=dict)

    def size(self, real: int, dry: int) -> int:
        """A size, or a small one."""
        return dry if self.dry else real

    def wait(self) -> None:
        """Waits for everything in the context, whichever library enqueued it."""
        context = self.device.context
        with context.entered():
            context.ok(context.cuda.cuCtxSynchronize(), "the device failed while it was measured")

    def enqueuing(self, once: Callable[[], object], times: int) -> Work:
        """The work of so many calls, one after another, and of waiting for them."""

        def work(calls: int) -> None:
            for _ in range(calls * times):
                once()
            self.wait()

        return work

    def race(self, works: Mapping[str, Work], peers: Mapping[str, Callable[[], Work]] | None = None, *, calls: int = 1, rounds: int = 7) -> dict[str, float]:
        """Microseconds a call (`timing.race`) of our works, and of those peers that are here and work."""
        runners = dict(works)
        for work in runners.values():
            work(1)
        self.wait()
        for name, make in (peers or {}).items():
            try:
                work = make()
                work(1)
                self.wait()
            except Absent as error:
                self.absent.setdefault(str(error), []).append(name)
            except Exception as error:  # noqa: BLE001 - another library's trouble, of whatever class, must not cost us our own figures
                self.absent.setdefault(f"{type(error).__name__}: {error}", []).append(name)
            else:
                runners[name] = work
        return race(runners, self.wait, min(calls, 3) if self.dry else calls, 2 if self.dry else rounds)

    def device_us(self, start: Callable[[], None]) -> float:
        """The time between the beginning and the end of what `start` enqueues on our stream, by the device's clock."""
        elapsed = timed(self.device.context, int(self.device.context.stream), start)
        return (elapsed() or 0) / 1e3


Measure = Callable[[Bench], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: of what `measure` gives by name, our figure and a peer's, in `unit`; rows may share a measure, which is made once."""

    what: str
    unit: str
    measure: Measure
    peer: str = ""
    promise: Promise | None = None
    ours: str = "ours"


@dataclass(slots=True)
class Result:
    """What became of a row: the figures, or the error. `dry` figures mean nothing."""

    row: Row
    ours: float | None = None
    theirs: float | None = None
    error: str = ""
    dry: bool = False

    @property
    def kept(self) -> bool | None:
        """Whether the promise was kept; None where there is none, or nothing to compare with."""
        return None if self.row.promise is None or self.ours is None or self.dry else self.row.promise.kept(self.ours, self.theirs)

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.error:
            return "error"
        if self.row.promise is None or self.dry:
            return ""
        return {True: "kept", False: "missed", None: "no peer"}[self.kept]

    def __str__(self) -> str:
        row = self.row
        if self.error:
            return f"{row.what:46s} error: {self.error}"
        ratio = f"{self.ours / self.theirs:.3f} x" if self.ours is not None and self.theirs else ""
        columns = f"{row.what:46s} {_number(self.ours):>10s} {row.unit:9s} {row.peer:30s} {_number(self.theirs):>10s} {ratio:>9s}"
        return f"{columns}  {row.promise or ''!s:14}  {self.verdict}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        row = self.row
        return {
            "what": row.what, "ours": self.ours, "unit": row.unit, "peer": row.peer, "theirs": self.theirs,
            "ratio": self.ours / self.theirs if self.ours is not None and self.theirs else None,
            "promise": str(row.promise or ""), "verdict": self.verdict, "error": self.error,
        }  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Results:
    """Results row by row; each measure is made once, when its first row comes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._made: dict[Measure, Mapping[str, float] | Exception] = {}
        self.seconds: dict[str, float] = {}

    def of(self, row: Row) -> Result:
        """The row's result; an error of its measure is part of it, and its trace is printed."""
        figures = self._figures(row.measure)
        if isinstance(figures, Exception):
            return Result(row, error=f"{type(figures).__name__}: {str(figures).splitlines()[0] if str(figures) else ''}")
        return Result(row, figures[row.ours], figures.get(row.peer), dry=self._bench.dry)

    def _figures(self, measure: Measure) -> Mapping[str, float] | Exception:
        if measure not in self._made:
            begin = time.perf_counter()
            try:
                self._made[measure] = measure(self._bench)
            except Exception as error:  # noqa: BLE001 - whatever one measure fails with, the others go on
                traceback.print_exc()
                self._made[measure] = error
            self.seconds[measure.__name__] = round(time.perf_counter() - begin, 3)
        return self._made[measure]
