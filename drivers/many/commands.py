"""Kinds of commands: what a device does in order, and what each does beside its work. Sequences, graphs and dispatches are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer

__all__ = [
    "CLEAR", "COPY", "DOWNLOAD", "DRIVER", "FILL", "KINDS", "LAUNCH", "PRODUCT", "REPLAY", "UPLOAD", "WAIT", "CommandKind", "freed_names", "require_memory",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandKind:
    """A kind of command, and its effects: `counter`, to which each adds one, and `counter_bytes`, to which it adds its bytes; whether it may be `captured`,
    which is part of a graph then; whether commands of this kind have `scratch` memory in common, so that only the order of the device's own stream keeps them
    apart."""

    name: str
    counter: str = ""
    counter_bytes: str = ""
    captured: bool = True
    scratch: bool = False

    def counts(self, size_bytes: int) -> dict[str, int]:
        """What a command of so many bytes adds to the counters. One of none does nothing, and is not counted."""
        return {name: amount for name, amount in ((self.counter, 1), (self.counter_bytes, size_bytes)) if name} if size_bytes else {}


# How many invocations a launch has, and what else it counts, its plan says (`LaunchPlan.amounts`); and a replay what its graph has.
LAUNCH: Final = CommandKind("launch", "launches")
REPLAY: Final = CommandKind("replay", "graph_replays")
COPY: Final = CommandKind("copy", "copies", "bytes_copied")
FILL: Final = CommandKind("fill", "fills", "bytes_filled")
PRODUCT: Final = CommandKind("product", scratch=True)
UPLOAD: Final = CommandKind("upload", "uploads", "bytes_uploaded", captured=False)
DOWNLOAD: Final = CommandKind("download", "downloads", "bytes_downloaded", captured=False)
CLEAR: Final = CommandKind("clear", captured=False)  # of memory that a dispatch stages
WAIT: Final = CommandKind("wait", "syncs", captured=False)
DRIVER: Final = CommandKind("driver", captured=False)  # calls about handles rather than memory

KINDS: Final[Mapping[str, CommandKind]] = {
    kind.name: kind for kind in (LAUNCH, REPLAY, COPY, FILL, PRODUCT, UPLOAD, DOWNLOAD, CLEAR, WAIT, DRIVER)
}


def freed_names(buffers: Mapping[str, Buffer]) -> list[str]:
    """A sentence for each buffer that was freed, by name."""
    return [f"{name!r} {buffers[name].allocation.absence}" for name in sorted(buffers) if buffers[name].allocation.freed]


def require_memory(doing: str, buffers: Mapping[str, Buffer]) -> None:
    """Raises BindingError for buffers that were freed; `doing` is what uses them."""
    if freed := freed_names(buffers):
        raise BindingError(doing, freed)
