"""The page `drivers/TELEMETRY.md`, from the table of what is counted."""

from __future__ import annotations

from typing import Final

from vyre_py.drivers.observe.metrics import METRICS
from vyre_py.drivers.observe.snapshot import prometheus_name

__all__ = ["telemetry_page"]

_HEAD: Final = """\
# Telemetry

Made from `drivers/observe/metrics.py` by `python tests/pages.py`; changes belong there.

`device.telemetry.snapshot()` gives all figures at one moment, as attributes and as a mapping. `later - earlier` is what was counted between
two of them, and has the gauges of the later one. `device.telemetry.reset()` sets the counters back and gives what they were; nothing that other threads
add meanwhile is lost. `snapshot.to_prometheus()` is the text that Prometheus reads, `vyre_py.prometheus_text` that of several devices,
`snapshot.to_json()` one object.

A counter only grows until it is reset; a gauge is what something is now. What a kind of device has not got stays zero. Figures of single
launches are added up when a snapshot is taken: a launch itself adds to two words.

When something took place, and how long it took, traces tell: `vyre_py.trace`, `device.trace`, or `VYRE_TRACE=FILE` for a whole process.
"""


def telemetry_page() -> str:
    """The page."""
    lines = [["figure", "kind", "unit", "what it counts", "for Prometheus"], ["---"] * 5]
    for name, row in METRICS.items():
        lines.append([f"`{name}`", row.kind, "" if row.unit == "count" else row.unit, row.doc, f"`{prometheus_name(name)}`"])
    return _HEAD + "\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
