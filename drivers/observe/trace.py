"""Traces, by choice: what the host and the devices did, in the trace event format that Perfetto and chrome://tracing open, or as NVTX ranges.

    with vp.trace("trace.json"):
        pipeline.dispatch(arguments)

While no trace runs, `tracing()` is None and launches do nothing for traces. A launch that is bound while a trace runs is wrapped. Devices whose launches are
native code are told by `Device._observe`: a mode word sends each call through Python as long as the trace runs.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from vyre_py.drivers.errors import BindingError, DriverError
from vyre_py.drivers.observers import Watched
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary
from vyre_py.lowering.stages import Stage

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.observe.nvtx import Ranges

if TYPE_CHECKING:
    from vyre_py.lowering import files
else:
    (files,) = deferred("vyre_py.lowering", "files")

__all__ = ["EVENT_LIMIT", "Range", "Trace", "Traces", "observe", "spanned", "trace", "tracing"]

EVENT_LIMIT: Final = 200_000  # some 50 MB of memory

# Tracks of devices are threads to those who read traces; their numbers are above those of any real thread (Linux's go to 2^22).
_FIRST_TRACK: Final = 1 << 23
_NS_PER_US: Final = 1000

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Owner = TypeVar("_Owner")
Arguments = Mapping[str, Any]


@public
class Trace(Stationary):
    """One trace, which runs while its `with` block does. Made by `trace`.

    Attributes: `path`, where the file goes, if it goes anywhere; `limit`, how many events it keeps; `dropped`, how many more there were.
    """

    belongs_to = "this process"
    travels_as = "send the file that it writes"

    def __init__(self, path: str | os.PathLike[str] | None, nvtx: bool, limit: int, device: Device | None) -> None:
        self.path = None if path is None else Path(path)
        self.limit = limit
        self.dropped = 0
        self._device = device
        self.ranges: Ranges | None = None
        if nvtx:
            with importing:
                from vyre_py.drivers.observe.nvtx import Ranges

            self.ranges = Ranges()
        self._events: list[tuple[str, str, int, int, int, Arguments]] = []
        self._tracks: dict[str | int, tuple[int, str]] = {}  # name or thread -> number and name
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it
        self._begin_ns = 0
        self._running = False

    def __enter__(self) -> Self:
        """Begins the trace. Raises DriverError when it was begun before, or its file can't be written."""
        if self._begin_ns:
            raise DriverError("a trace runs once", remedy="make another with vyre_py.trace()")
        self._begin_ns = perf_counter_ns()
        if self.path is None or self.path.is_file() or not self.path.exists():  # a pipe or a device is written to once, at the end
            self._write()  # what can't be written is better known before the work than after it
        self._running = True
        _change(lambda running: (*running, self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Ends the trace and writes its file, also when the block raised."""
        _change(lambda running: tuple(one for one in running if one is not self))
        with self._lock:
            self._running = False
        self._write()

    def forked(self) -> None:
        """In a forked child: the file is the parent's, a thread of which may have held the lock."""
        self._lock = threading.RLock()
        self._running = False
        self.path = None

    def __len__(self) -> int:
        """How many events it has kept."""
        return len(self._events)

    def span(
        self, name: str, category: str, begin_ns: int, end_ns: int, track: str | None = None, args: Arguments | None = None, device: Device | None = None
    ) -> None:
        """Enters what took from one time to another, by `time.perf_counter_ns`; on the track of that name, such as a stream of a device, or
        on that of the calling thread. Spans of one track lie within each other or apart.

        What was before the trace began is cut off; past the limit a span is dropped and counted, also in the overflows of its device. Quiet once
        the trace has ended. Raises BindingError for a span that ends before it begins.
        """
        if end_ns < begin_ns:
            raise BindingError("span", [f"{name!r} ends {begin_ns - end_ns} ns before it begins"])
        if not self.limit or end_ns < self._begin_ns or (self._device is not None and device is not self._device):
            return
        with self._lock:
            if not self._running:
                return
            if len(self._events) < self.limit:
                number = self._number(track)
                self._events.append((name, category, max(begin_ns, self._begin_ns), end_ns, number, args or {}))
                return
            self.dropped += 1
        if device is not None:
            device.telemetry.overflows += 1

    def _number(self, track: str | None) -> int:
        """The number of a track, or of the calling thread."""
        key: str | int = threading.get_ident() if track is None else track
        if (known := self._tracks.get(key)) is None:
            if track is None:
                here = [thread.name for thread in threading.enumerate() if thread.ident == key]
                known = threading.get_native_id(), here[0] if here else f"thread {key}"
            else:
                known = _FIRST_TRACK + len(self._tracks), track
            self._tracks[key] = known
        return known[0]

    def to_json(self) -> str:
        """The trace so far in Chrome's trace event format: complete events, times in microseconds since its beginning."""
        with self._lock:
            events, tracks, dropped = list(self._events), list(self._tracks.values()), self.dropped
        process = os.getpid()
        named = [_described("process_name", process, 0, "vyre-py"), *(_described("thread_name", process, number, name) for number, name in tracks)]
        spans = [
            {
                "name": name, "cat": category, "ph": "X", "pid": process, "tid": number, "ts": (begin - self._begin_ns) / _NS_PER_US,
                "dur": (end - begin) / _NS_PER_US, "args": {key: _plain(value) for key, value in args.items()},
            }
            for name, category, begin, end, number, args in events
        ]  # fmt: skip
        whole = {"traceEvents": [*named, *spans], "displayTimeUnit": "ns", "otherData": {"dropped": str(dropped), "limit": str(self.limit)}}
        with importing:
            import json  # few ask for it

        return json.dumps(whole, allow_nan=False)

    def _write(self) -> None:
        """Writes the file as a whole, so that it is JSON at any time. Raises DriverError."""
        if self.path is None:
            return
        try:
            with files.replacing(self.path) as file:
                file.write(self.to_json().encode())
        except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
            doing = f"the trace cannot be written to {shown(str(self.path))}"
            raise DriverError(doing, cause=str(error), remedy="name a file in a folder that exists") from error


def _described(what: str, process: int, number: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": number, "args": {"name": name}}


def _plain(value: Any) -> Any:
    """A value for JSON: finite numbers, booleans and None as they are; all others as text."""
    return value if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)) else str(value)


class Range:
    """A piece of work on the calling thread, entered into traces when it ends: `with traces.range("bind", "bind"): ...`."""

    __slots__ = ("_args", "_begin_ns", "_category", "_device", "_name", "_pushed", "_traces")

    def __init__(self, traces: Iterable[Trace], name: str, category: str, device: Device | None, args: Arguments) -> None:
        self._traces, self._name, self._category, self._device, self._args = traces, name, category, device, args

    def __enter__(self) -> None:
        self._pushed = [one.ranges for one in self._traces if one.ranges is not None]
        for ranges in self._pushed:
            ranges.push(self._name, self._category)
        self._begin_ns = perf_counter_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        end_ns = perf_counter_ns()
        for ranges in reversed(self._pushed):
            ranges.pop()
        args = self._args if kind is None else {**self._args, "raised": kind.__name__}
        for one in self._traces:
            one.span(self._name, self._category, self._begin_ns, end_ns, None, args, self._device)


class Traces:
    """The traces that run, one of them at least."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Trace, ...]) -> None:
        self.members = members

    def range(self, name: str, category: str, device: Device | None = None, args: Arguments | None = None) -> Range:
        """The work of a `with` block on this thread, as a span and as an NVTX range."""
        return Range(self.members, name, category, device, args or {})

    def span(
        self, name: str, category: str, begin_ns: int, end_ns: int, track: str | None = None, args: Arguments | None = None, device: Device | None = None
    ) -> None:
        """`Trace.span`, for all of them."""
        for one in self.members:
            one.span(name, category, begin_ns, end_ns, track, args, device)

    def stages(self, stages: Iterable[Stage], device: Device | None = None) -> None:
        """The stages of a compilation that this thread did."""
        for stage in stages:
            self.span(stage.name, "compile", stage.begin_ns, stage.end_ns, None, None, device)


_running: tuple[Trace, ...] = ()
_current: Traces | None = None
_lock = threading.RLock()
_observers: Watched[Device] = Watched()


def tracing() -> Traces | None:
    """The running traces; None without any, which is the usual case and costs one call."""
    return _current


def observe(device: Device) -> None:
    """Has a device told, by `_observe`, whenever the first trace begins and the last one ends; now as well if one runs. It is held weakly."""
    with _lock:
        _observers.add(device)
        if _current is not None:
            device._observe(True)


def _change(how: Callable[[tuple[Trace, ...]], tuple[Trace, ...]]) -> None:
    """Begins or ends traces. Devices are told of the first before it runs, and of the end after it."""
    global _running, _current  # noqa: PLW0603 - one word that every span looks at: a module's own name is read fastest
    with _lock:
        before = bool(_running)
        _running = how(_running)
        _current = Traces(_running) if _running else None
        if bool(_running) != before:
            for device in _observers.now():
                device._observe(bool(_running))


def _forked() -> None:
    """In a forked child no trace of the parent's runs."""
    global _lock, _running, _current  # noqa: PLW0603 - a child has one thread, and the old lock may never be given back
    _lock = threading.RLock()
    for one in _running:
        one.forked()
    _running, _current = (), None
    for device in _observers.now():
        device._observe(False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@public
def trace(path: str | os.PathLike[str] | None = None, *, nvtx: bool = False, limit: int = EVENT_LIMIT, device: Device | None = None) -> Trace:
    """A trace of what vyre-py does inside a `with` block: compile stages, binds, dispatches, copies between host and device, launches.

    `path` names the file that the block leaves behind, in JSON for Perfetto (ui.perfetto.dev) or chrome://tracing; without one the trace is kept in
    memory, for `to_json`. `nvtx` also pushes NVTX ranges, for NVIDIA's profilers, by the package `nvtx`. In the environment VYRE_TRACE=FILE and
    VYRE_NVTX=1 trace the whole process. `limit` bounds the number of events: more are dropped, and counted; 0 keeps none. `device` keeps only what is
    that device's.

    Of launches those are seen that were bound within the block, and on CUDA all. Raises DeviceUnavailable without the package that `nvtx` needs,
    BindingError for an invalid path or limit, and on entry DriverError for a file that can't be written.
    """
    problems = []
    if path is not None and not (isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str)):
        problems.append(f"the path of a file is needed, got {shown(path)}")
    if not is_count(limit):
        problems.append(f"limit is a whole number of events, got {shown(limit)}")
    if problems:
        raise BindingError("trace", problems)
    return Trace(path, nvtx, limit, device)


def spanned(
    name: str, describe: Callable[[Any], Arguments]
) -> Callable[[Callable[Concatenate[_Owner, _P], _T]], Callable[Concatenate[_Owner, _P], _T]]:
    """Has a method of a device, or of something with a `device`, shown in traces; `describe` says of the object what the trace says of the call."""

    def decorate(method: Callable[Concatenate[_Owner, _P], _T]) -> Callable[Concatenate[_Owner, _P], _T]:
        @wraps(method)
        def call(owner: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            if (traces := _current) is None:
                return method(owner, *args, **kwargs)
            device: Any = getattr(owner, "device", owner)
            with traces.range(name, name, device, describe(owner)):
                return method(owner, *args, **kwargs)

        return call

    return decorate
