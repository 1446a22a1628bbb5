"""The device words of one launch alone: its cancel flag, the count of its grid barrier, and what its scans over the grid publish."""

from __future__ import annotations

import struct
import weakref
from math import prod
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import BindingError
from vyre_py.lowering.layout import SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.launch import LaunchPlan

__all__ = ["take_words"]

# A ticket of `lowering.llvm.gpu.grid_scan` has 32 bits.
_MOST_TICKETS: Final = 1 << 32


def _word_count(kind: SlotKind, plan: LaunchPlan) -> int:
    """How many words a launch has for a use. Raises BindingError for a grid that is too large for scans."""
    if kind is not SlotKind.SCANS:
        return 1
    groups = prod(plan.launched)
    if groups >= _MOST_TICKETS:
        raise BindingError("grid", [f"a grid of {groups} workgroups has a grid_scan, which takes fewer than 2^32"])
    return 1 + groups * plan.step.entries[plan.entry].details["scan_words"]


def take_words(device: CudaDevice, plan: LaunchPlan, block: Any, owner: object, streams: dict[int, Any]) -> dict[SlotKind, tuple[int, int]]:
    """Acquires the words of a launch, writes their addresses into its argument block, and gives address and number for each use. They are released when
    `owner` dies; `streams` are the foreign ones that it may still run on. Raises what `_word_count` and `Words.take` raise."""
    found: dict[SlotKind, tuple[int, int]] = {}
    for kind in (SlotKind.SCANS, SlotKind.CANCEL, SlotKind.ARRIVALS):
        if (slot := plan.step.layout.find(kind)) is not None:
            words = _word_count(kind, plan)
            address = device.words.take(kind, words)
            weakref.finalize(owner, _give_words, device, ((kind, address, words),), streams).atexit = False
            struct.pack_into("<Q", block, slot.offset_bytes, address)
            found[kind] = address, words
    return found


def _give_words(device: CudaDevice, taken: tuple[tuple[SlotKind, int, int], ...], streams: dict[int, Any]) -> None:
    """Releases device words, for reuse in the order of our stream, after making our stream wait for the foreign streams where the kernel may still run.
    Raises nothing, since a finaliser calls it. Where the wait fails, the words are never reused."""
    context = device.context
    if context.capture is not None and context.later(lambda: _give_words(device, taken, streams)):
        return
    if context.usable and device.memory.foreign_use.join_all(streams):
        for use, address, words in taken:
            device.words.give(use, address, words)
