"""The page of a trace: spans on their tracks, what they add up to, and a roofline of the launches whose work is known.

What is read is untrusted: any JSON. Events that are no complete spans are counted and left out, and of very many spans the longest are shown.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from vyre_py.drivers.errors import DriverError
from vyre_py.explore.page import Page
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import printable

__all__ = ["MOST_SPANS", "Bench", "trace_page"]

MOST_SPANS: Final = 60_000
_DEEPEST: Final = 40
_LONGEST: Final = 300  # characters of a name or of what a span says
_MOST_SAID: Final = 20  # facts of a span

# Category -> the number of its kind in the page: compile, bind, launch, device, transfer, other.
_KINDS: Final = {
    "compile": 0, "load": 0, "bind": 1, "launch": 2, "dispatch": 2, "submit": 2, "driver": 2, "device": 3, "upload": 4, "download": 4, "copy_strided": 4,
}  # fmt: skip
_OTHER: Final = 5
# Devices on which a launch's span is its kernel's time; on others it ends when the kernel is enqueued.
_WAITS: Final = ("cpu", "reference")


@dataclass(frozen=True, slots=True)
class Bench:
    """What `bench --json` found: the most that a device moves and computes in a second, and the Program that was measured."""

    name: str
    bytes_per_second: float
    operations_per_second: float
    intensity: float
    rate: float
    launch_ns: float


@dataclass(frozen=True, slots=True)
class _Span:
    name: str
    category: str
    begin: float  # microseconds, as all times of traces
    length: float
    track: tuple[str, str]
    said: Mapping[str, Any]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value) else None


def _text(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _events(text: bytes) -> Sequence[Any]:
    """The events of a trace file. Raises DriverError for what is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DriverError("the file is no trace", cause=f"it is no JSON: {error}") from error
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise DriverError("the file is no trace", cause="it has no list of events", remedy="give a file that vyre_py.trace or VYRE_TRACE wrote")
    return events


def _read(events: Iterable[Any]) -> tuple[list[_Span], dict[tuple[str, str], str], int]:
    """The spans, the names of tracks, and how many events are neither."""
    spans: list[_Span] = []
    names: dict[tuple[str, str], str] = {}
    others = 0
    for event in events:
        row = event if isinstance(event, dict) else {}
        track = _text(row.get("pid")), _text(row.get("tid"))
        args = row.get("args")
        said: Mapping[str, Any] = args if isinstance(args, dict) else {}
        begin, length = _number(row.get("ts")), _number(row.get("dur"))
        if row.get("ph") == "M":
            if row.get("name") == "thread_name":
                names[track] = _text(said.get("name"))
        elif row.get("ph") == "X" and begin is not None and length is not None and length >= 0:
            spans.append(_Span(_text(row.get("name")), _text(row.get("cat", "")), begin, length, track, said))
        else:
            others += 1
    return spans, names, others


def _depths(spans: Sequence[_Span]) -> list[int]:
    """How many spans of its track each lies in; they are in the order of their beginnings, a longer one first."""
    found: list[int] = []
    open_: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for span in spans:
        ends = open_[span.track]
        while ends and ends[-1] <= span.begin:
            ends.pop()
        found.append(min(len(ends), _DEEPEST))
        ends.append(span.begin + span.length)
    return found


class _Numbers:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._known: dict[str, int] = {}

    def of(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self._known:
            self._known[key] = len(self.rows)
            self.rows.append(value)
        return self._known[key]


def _points(spans: Sequence[_Span]) -> list[dict[str, Any]]:
    """A point for each Program and amount of work: the median of its times, those of the device itself where there are any."""
    taken: defaultdict[tuple[str, float, float], defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for span in spans:
        moved, operations = _number(span.said.get("bytes")), _number(span.said.get("operations"))
        waits = str(span.said.get("device", "")).startswith(_WAITS)
        if span.length and moved and operations and moved > 0 and operations > 0 and (span.category == "device" or (span.category == "launch" and waits)):
            taken[_text(span.said.get("program", span.name)), moved, operations][span.category].append(span.length)
    points = []
    for (name, moved, operations), ways in taken.items():
        way = "device" if "device" in ways else "launch"
        took = median(ways[way])
        how = "the device's clock" if way == "device" else "the time of the call"
        points.append(_point(name, moved / took * 1e6, operations / took * 1e6, operations / moved, took) | {"how": how, "times": len(ways[way])})
    return points


def _point(name: str, bytes_rate: float, rate: float, intensity: float, took: float) -> dict[str, Any]:
    return {"name": name, "bytes_rate": bytes_rate, "rate": rate, "intensity": intensity, "us": took, "beside": False, "how": "", "times": 1}


def trace_page(text: bytes, name: str, roofs: Sequence[Bench] = ()) -> Page:
    """The page of a trace file's bytes, with what reports of `bench` say of the device. Raises DriverError for bytes that are no trace."""
    spans, known, others = _read(_events(text))
    notes = [f"{others} events are no complete spans, and are not shown."] if others else []
    points = _points(spans)
    if len(spans) > MOST_SPANS:
        notes.append(f"The {len(spans) - MOST_SPANS} shortest spans are left out.")
        spans = sorted(spans, key=lambda span: -span.length)[:MOST_SPANS]
    spans = sorted(spans, key=lambda span: (span.begin, -span.length))
    numbers: dict[tuple[str, str], int] = {}
    tracks: list[dict[str, Any]] = []
    names, said = _Numbers(), _Numbers()
    rows = []
    for span, depth in zip(spans, _depths(spans), strict=True):
        if span.track not in numbers:
            numbers[span.track] = len(tracks)
            tracks.append({"name": known.get(span.track, f"thread {span.track[1]}"), "depth": 0})
        track = tracks[numbers[span.track]]
        track["depth"] = max(track["depth"], depth)
        facts = {_text(key): _text(value) for key, value in list(span.said.items())[:_MOST_SAID]}
        kind = _KINDS.get(span.category, _OTHER)
        rows.append([numbers[span.track], names.of(span.name), kind, span.begin, span.length, depth, said.of(facts)])
    for roof in roofs:
        points.append(_point(_text(roof.name), roof.rate / roof.intensity, roof.rate, roof.intensity, roof.launch_ns / 1e3) | {"beside": True, "how": "bench"})
    lines = sorted({(roof.bytes_per_second, roof.operations_per_second) for roof in roofs})
    return Page(f"trace {printable(name)}", "trace", {
        "tracks": tracks, "names": names.rows, "said": said.rows, "rows": rows, "points": points, "notes": notes,
        "roofs": [{"bytes": moved, "operations": operations} for moved, operations in lines],
        "unmeasured": "No launch in this trace has a time and a known amount of work. Those have that are bound while a trace runs on cpu or reference, and "
                      "dispatch_timed on any device, of Programs that this process compiled and whose loops turn a known number of times.",
    })  # fmt: skip
