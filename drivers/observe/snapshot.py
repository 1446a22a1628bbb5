"""Snapshots: all figures of a device at one moment, compared, printed and handed to monitoring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.observe.metrics import METRICS, RATIOS
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord

__all__ = ["Snapshot", "prometheus_name", "prometheus_text"]

_PREFIX: Final = r"(?a:[a-zA-Z_:][a-zA-Z0-9_:]*\Z)"
_LABEL: Final = r"(?a:(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z)"
_IN_LABEL: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NS: Final = 10**9
_SHOWN: Final = 8  # figures in a line

# Unit -> the word in our names, which goes, and the one that the name ends in.
_UNITS: Final[Mapping[str, tuple[str, str]]] = {"count": ("", ""), "bytes": ("bytes", "_bytes"), "ns": ("ns", "_seconds"), "ratio": ("ratio", "_ratio")}


@public
@dataclass(frozen=True, slots=True)
class Snapshot(Mapping[str, float], ValueRecord):
    """The figures of `METRICS` at one moment, as attributes and as a mapping: whole numbers, and ratios from 0 to 1.

    `later - earlier` gives what was counted between the two; gauges are then the later ones, and ratios those of the time between.
    `device` is the name of the device, `figures` the mapping below.
    """

    device: str
    figures: Mapping[str, int]

    @classmethod
    def of(cls, device: str, figures: Mapping[str, int]) -> Snapshot:
        """A read-only snapshot; a figure that is not given is zero."""
        return cls(device, MappingProxyType({name: figures.get(name, 0) for name in METRICS if name not in RATIOS}))

    def __getitem__(self, name: str) -> float:
        if name not in RATIOS:
            return self.figures[name]
        part, whole = (self.figures[of] for of in RATIOS[name])
        return part / whole if whole else 0.0

    def __getattr__(self, name: str) -> Any:
        if name in METRICS:
            return self[name]
        raise AttributeError(f"there is no figure {name!r}", name=name, obj=self)

    def __iter__(self) -> Iterator[str]:
        return iter(METRICS)

    def __len__(self) -> int:
        return len(METRICS)

    def __dir__(self) -> Iterable[str]:
        return [*object.__dir__(self), *METRICS]

    def __sub__(self, earlier: Snapshot) -> Snapshot:
        if not isinstance(earlier, Snapshot):
            return NotImplemented
        counted = {name: value - (earlier.figures[name] if METRICS[name].kind == "counter" else 0) for name, value in self.figures.items()}
        return Snapshot.of(self.device, counted)

    def __repr__(self) -> str:
        said = [f"{name} {value:,}" if METRICS[name].unit != "ratio" else f"{name} {value:.3f}" for name, value in self.items() if value]
        more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        return f"<Snapshot of {self.device}: {', '.join(said[:_SHOWN]) or 'nothing was counted'}{more}>"

    def __str__(self) -> str:
        """A table of what is not zero."""
        rows = [(name, f"{value:,}" if METRICS[name].unit != "ratio" else f"{value:.3f}", METRICS[name].unit) for name, value in self.items() if value]
        if not rows:
            return "nothing was counted"
        names, widest = max(len(name) for name, _, _ in rows), max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:<{names}}  {value:>{widest}} {'' if unit == 'count' else unit}".rstrip() for name, value, unit in rows)

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import snapshot_html

        return snapshot_html(self)

    def to_json(self) -> str:
        """One object in JSON: `device`, and a number for every figure of the table."""
        with importing:
            import json  # few ask for it

        return json.dumps({"device": self.device, **self})

    def to_prometheus(self, prefix: str = "vyre", labels: Mapping[str, str] | None = None) -> str:
        """The text exposition format 0.0.4 of Prometheus, times in seconds. Without `labels` there is one, the name of the device.

        For several devices in one answer use `prometheus_text`: a metric's head may stand there once only. Raises BindingError for a
        prefix or a label that Prometheus does not take.
        """
        return prometheus_text([(self, {"device": self.device} if labels is None else labels)], prefix)


def prometheus_name(name: str, prefix: str = "vyre") -> str:
    """The figure's name in Prometheus: its unit last, but for the `_total` of a counter; `device_ns` is `vyre_device_seconds_total`."""
    row = METRICS[name]
    word, ending = _UNITS[row.unit]
    plain = "_".join(part for part in name.split("_") if part != word)
    return f"{prefix}_{plain}{ending}{'_total' if row.kind == 'counter' else ''}"


@public
def prometheus_text(snapshots: Iterable[tuple[Snapshot, Mapping[str, str]]], prefix: str = "vyre") -> str:
    """Snapshots with their labels as one text in the exposition format 0.0.4 of Prometheus.

    Raises BindingError for a prefix that no name can begin with, and for labels with invalid names or values that are not text.
    """
    taken = [(snapshot, _labels(labels)) for snapshot, labels in snapshots]
    if not isinstance(prefix, str) or not re.match(_PREFIX, prefix):
        raise BindingError("to_prometheus", [f"no name can begin with prefix {shown(prefix)}; letters, digits, _ and : can, a digit not first"])
    lines: list[str] = []
    for name, row in METRICS.items():
        full = prometheus_name(name, prefix)
        help_ = row.doc.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {full} {help_}", f"# TYPE {full} {row.kind}"]
        lines += [f"{full}{labels} {_number(snapshot[name], row.unit)}" for snapshot, labels in taken]
    return "\n".join(lines) + "\n"


def _number(value: float, unit: str) -> str:
    return repr(value / _NS if unit == "ns" else value)


def _labels(labels: Mapping[str, str]) -> str:
    if not isinstance(labels, Mapping):
        raise BindingError("to_prometheus", [f"labels are a mapping of names to text, got {shown(labels)}"])
    problems = [
        f"label {shown(name)}={shown(value)}: a name is letters, digits and _, does not begin with a digit or __, and its value is text"
        for name, value in labels.items()
        if not (isinstance(name, str) and re.match(_LABEL, name) and isinstance(value, str))
    ]
    if problems:
        raise BindingError("to_prometheus", problems)
    return "{" + ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels.items()) + "}" if labels else ""
