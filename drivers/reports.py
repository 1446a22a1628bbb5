"""What is told to who waits: what asserts and prints of launches told, prints shown, a failed assert raised; and why what is there is of no value.

A launch whose code tells something has a `Report`, over memory that its kernel writes (`lowering.reports`), or that an interpreter has told by itself. A device
holds those of its bound launches, so that what a launch told is heard after the launch was dropped, too; a dispatch keeps its own.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from vyre_py.drivers.errors import DriverError, KernelAssertion
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.errors import printable
from vyre_py.ir.language.types import u32
from vyre_py.lowering.artifact.parts import Step
from vyre_py.lowering.layout import SlotKind, element_count
from vyre_py.lowering.reports import DROPPED, HEADER, Form, Record, failures, prints

if TYPE_CHECKING:
    from vyre_py.drivers.config import DispatchConfig
    from vyre_py.drivers.device import Device

__all__ = ["Report", "ReportHolder", "Reports", "report_of", "show_line"]

# Dropped launches whose reports nobody has read: so many are kept before they are read.
_UNREAD: Final = 64
_CLEAR: Final = bytes(4)


def show_line(line: str) -> None:
    """Writes a line that a Program prints to the standard output."""
    sys.stdout.write(printable(line, "\t\n") + "\n")  # the message is the Program's, and untrusted


class Report:
    """What the launches of one plan told and nobody has heard yet. `buffer` is the kernel's memory; None where `take` is called instead, and then there was
    room for `room` words of prints, None for any number."""

    def __init__(
        self, device: Device, name: str, forms: Sequence[Form], workgroup: tuple[int, int, int], say: Callable[[str], object] | None, buffer: Buffer | None,
        room: int | None = None,
    ) -> None:  # fmt: skip
        self._device, self._name, self._forms, self._workgroup, self._say = device, name, forms, workgroup, say
        self.buffer, self.room = buffer, room
        self._lines: list[str] = []
        self._failed: list[Record] = []
        self._lock = threading.RLock()

    def collect(self) -> None:
        """Takes up what is in the kernel's memory, and clears it for the next launch. Waits for the launches before it."""
        buffer = self.buffer
        if buffer is None:
            return
        with self._lock:
            header = self._words(buffer, HEADER)
            if not any(header):
                return
            words = self._words(buffer, buffer.shape[0])
            buffer.device._fill(buffer.handle, buffer.offset_bytes, HEADER * 4, _CLEAR)
            self.take(list(failures(words, self._forms)), sorted(prints(words, self._forms), key=self._place), words[DROPPED])

    @staticmethod
    def _words(buffer: Buffer, count: int) -> list[int]:
        found = np.empty(count, np.uint32)
        with buffer.allocation.held():
            buffer.device._read_array(buffer.handle, buffer.offset_bytes, found)
        words: list[int] = found.tolist()
        return words

    def take(self, failed: Sequence[Record], printed: Sequence[Record], dropped: int) -> None:
        """Takes up what one launch, or several between two waits, told: failed asserts in any order, prints in the order in which they are shown, and how many
        of those were dropped."""
        with self._lock:
            if failed:
                self._failed.append(min(failed, key=self._place))
            self._lines += [self._forms[record.form].text(record.words) for record in printed]
            if dropped:
                more = "" if dropped == 1 else "s"
                self._lines.append(f"... {dropped} more print{more} of {self._name!r} found no room: CompileOptions(print_bytes=...) gives more")

    def _place(self, record: Record) -> tuple[int, ...]:
        """The order of invocations: workgroups along x first, and so within one."""
        within = [i % size for i, size in zip(record.global_id, self._workgroup, strict=True)]
        groups = [i // size for i, size in zip(record.global_id, self._workgroup, strict=True)]
        return (*groups[::-1], *within[::-1])

    def heard(self) -> tuple[list[str], list[Record]]:
        """What was taken up, and is so no longer."""
        with self._lock:
            lines, self._lines, failed, self._failed = self._lines, [], self._failed, []
        return lines, failed

    def settle(self) -> None:
        """Shows what was printed, and raises KernelAssertion where an assert failed."""
        _settle([self])

    def say(self, lines: Sequence[str]) -> None:
        """Hands lines to who is to get them."""
        say = self._say or self._device.on_print or show_line
        for line in lines:
            say(line)

    def error(self, record: Record, others: int) -> KernelAssertion:
        """The error of a failed assert; so many other launches had one, too."""
        form = self._forms[record.form]
        x, y, z = (i // size for i, size in zip(record.global_id, self._workgroup, strict=True))
        i, j, k = (i % size for i, size in zip(record.global_id, self._workgroup, strict=True))
        ids = record.global_id[0], record.global_id[1], record.global_id[2]
        message = printable(form.text(record.words), "\t\n")
        return KernelAssertion(self._name, self._device.name, message, form.values(record.words), ids, (x, y, z), (i, j, k), form.place, others)


def _settle(reports: Sequence[Report]) -> None:
    """Reads all, then shows what was printed, then raises the first failed assert."""
    for report in reports:
        report.collect()
    heard = [(report, *report.heard()) for report in reports]
    failed = [(report, record) for report, _, records in heard for record in records]
    try:
        for report, lines, _ in heard:
            report.say(lines)
    finally:  # what a handler raises comes second
        if failed:
            report, record = failed[0]
            raise report.error(record, len(failed) - 1)


class ReportHolder:
    """What all who may launch a plan hold: while it lives, its report may get more."""

    __slots__ = ("__weakref__", "report")

    def __init__(self, report: Report) -> None:
        self.report = report


class Reports:
    """The reports of a device's bound launches. Nothing is done for launches that have none."""

    def __init__(self) -> None:
        self._watched: list[tuple[weakref.ref[ReportHolder], Report]] = []
        self._doubts: dict[object, Callable[[], DriverError]] = {}
        self._lock = threading.RLock()

    def watch(self, holder: ReportHolder) -> None:
        """Has a launch's report heard by whoever waits for the device from now on."""
        with self._lock:
            left = [report for held, report in self._watched if held() is None]
            if len(left) >= _UNREAD:
                for report in left:
                    report.collect()  # so that its memory is free; what it told is kept
                    report.buffer = None
            self._watched.append((weakref.ref(holder), holder.report))

    def doubt(self, why: object, error: Callable[[], DriverError]) -> None:
        """Has whoever waits for the device get an error, what is there being of no value, until `why` is named to `trust`."""
        self._doubts[why] = error

    def trust(self, why: object) -> None:
        """Ends a doubt, if there was one."""
        self._doubts.pop(why, None)

    def require_trust(self) -> None:
        """Raises the error of a doubt."""
        for error in list(self._doubts.values()):
            raise error()

    def settle(self) -> None:
        """Shows what was printed, and raises KernelAssertion where an assert failed, for all launches so far; while there is a doubt, its error."""
        if self._doubts:
            self.require_trust()
        if not self._watched:
            return
        with self._lock:
            over = [row for row in self._watched if row[0]() is None]
            reports = [report for _, report in self._watched]
            self._watched = [row for row in self._watched if row not in over]
        _settle(reports)

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()


def report_of(device: Device, step: Step, entry: int, name: str, forms: Sequence[Form], config: DispatchConfig) -> ReportHolder | None:
    """The report of a launch; None where its code tells nothing. Raises OutOfMemory."""
    slot = step.layout.find(SlotKind.REPORT)
    if slot is not None and slot.memory is not None:
        buffer = device._new_buffer((element_count(slot.memory),), u32, device._allocate)
        return ReportHolder(Report(device, name, forms, step.workgroup, config.on_print, buffer))
    if forms and step.images[0].program is not None:
        room = step.entries[entry].details.get("print_bytes", 0) // 4
        return ReportHolder(Report(device, name, forms, step.workgroup, config.on_print, None, room))
    return None
