"""Which devices are here, and the one object for each."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.drivers.observe.process_trace import begin_process_trace
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import imported
from vyre_py.ir.language.errors import VyreError, shown
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["KINDS", "DeviceInfo", "device", "devices", "is_available"]

# Best first. A device that runs in software is taken by name only: the CPU itself is faster, and exact.
KINDS: Final = ("cuda", "wgpu", "cpu", "reference")
_NAME = re.compile(r"([a-z_]+)(?::(\d{1,4}))?\Z", re.ASCII)

_open: dict[tuple[str, int], Device] = {}
_inherited: set[tuple[str, int]] = set()  # in a forked child: those that its parent had opened
_lock = threading.RLock()


@public
@dataclass(frozen=True, slots=True)
class DeviceInfo(ValueRecord):
    """One line of `devices()`: a device that is here, or a kind that is not and why."""

    name: str
    available: bool
    description: str


def _count(kind: str) -> int:
    found: int = imported(f"vyre_py.drivers.{kind}").count()
    return found


@public
def device(name: str | None = None) -> Device:
    """The device of this name: "cuda:0", "cuda" (its first), "wgpu", "cpu", "reference"; the same object every time.

    Without a name: what VYRE_DEVICE says, else the best device that passes a self test. Raises DeviceUnavailable, which says why.
    """
    name = name if name is not None else os.environ.get("VYRE_DEVICE") or None
    if name is None:
        return _best()
    found = _NAME.match(name) if isinstance(name, str) else None
    if found is None or found[1] not in KINDS:
        raise DeviceUnavailable(f"there is no device {shown(name)}", remedy=f"devices are {', '.join(KINDS)}, each with an ordinal if wanted: cuda:0")
    return _opened(found[1], int(found[2] or 0))


def _opened(kind: str, ordinal: int) -> Device:
    with _lock:
        known = _open.get((kind, ordinal))
        if known is not None and not known.closed and not (known.lost and (known.reopens or (kind, ordinal) in _inherited)):
            return known
        here = _count(kind)
        if ordinal >= here:
            raise DeviceUnavailable(f"there is no {kind}:{ordinal}", meaning=f"{here} device(s) of kind {kind} are here", remedy="vyre_py.devices() lists them")
        begin_process_trace()
        made: Device = imported(f"vyre_py.drivers.{kind}").open_device(ordinal)
        _open[kind, ordinal] = made
        _inherited.discard((kind, ordinal))
        return made


def _best() -> Device:
    reasons: list[str] = []
    for kind in KINDS:
        try:
            candidate = _opened(kind, 0)
            if candidate.is_software:
                reasons.append(f"{kind}: {candidate.description}, which is taken by name only")
                continue
            imported("vyre_py.drivers.selftest").require_right(candidate)  # it brings what writes a Program
            return candidate
        except VyreError as error:
            reasons.append(f"{kind}: {error}")
    raise DeviceUnavailable("no device passes its self test", cause="; ".join(reasons))


@public
def devices() -> list[DeviceInfo]:
    """Every device here, best kind first, and a line with the reason for each kind that is not."""
    found: list[DeviceInfo] = []
    for kind in KINDS:
        try:
            for ordinal in range(_count(kind)):
                opened = _opened(kind, ordinal)
                found.append(DeviceInfo(opened.name, True, opened.description))
        except VyreError as error:
            found.append(DeviceInfo(kind, False, str(error)))
    return found


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock, and its devices may not have come along."""
    global _lock  # noqa: PLW0603 - a child has one thread, and the old lock may never be given back
    _lock = threading.RLock()
    _inherited.update(_open)
    for known in _open.values():
        known.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@public
def is_available(name: str) -> bool:
    """Whether `device(name)` would give a device."""
    try:
        device(name)
    except VyreError:
        return False
    return True
