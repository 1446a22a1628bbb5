"""Constant buffers: arrays that never change, uploaded once for each device and shared by all callers with the same bytes.

A constant is on the device before `device.constant` returns. It may only be read, and cannot be freed. So launches, sequences and graphs that are bound
to it stay valid, however often they are replayed and whatever happens to the array that it came from.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Host, host_array
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Constants"]

_HELD_COUNT: Final = 256
_HELD_BYTES: Final = 256 << 20
_OWNER: Final = "the device's constants, which others may use too: device.trim lets go of those that nobody does"

_Key = tuple[bytes, str, tuple[int, ...]]


class Constants:
    """One device's constants, by content. The cache holds those used last, at most 256 and 256 MiB; others live as long as their buffers."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: weakref.WeakValueDictionary[_Key, Buffer] = weakref.WeakValueDictionary()
        self._held: OrderedDict[_Key, Buffer] = OrderedDict()
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it
        device.telemetry.gauge("constants", self.__len__)

    def __len__(self) -> int:
        return len(self._known)

    def buffer(self, array: Any, type_: Type | None = None) -> Buffer:
        """A read-only buffer of the array's content: the same one for the same bytes, dtype, type and shape. Raises what `Device.upload` raises."""
        data = np.ascontiguousarray(host_array(array, "array"))
        digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).digest()
        key = (digest, f"{data.dtype} {shown(type_)}", data.shape)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._device.telemetry.constant_hits += 1
            else:
                found = self._known[key] = self._made(data, type_)
            self._held[key] = found
            self._held.move_to_end(key)
            while len(self._held) > _HELD_COUNT or sum(held.size_bytes for held in self._held.values()) > _HELD_BYTES:
                self._held.popitem(last=False)
            return found

    def _made(self, data: Host, type_: Type | None) -> Buffer:
        made = self._device.upload(data, type_)
        self._device.synchronize()
        made.allocation.owner = _OWNER
        return Buffer(self._device, made.allocation, 0, made.shape, made.type, readonly=True)

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def clear(self) -> None:
        """Evicts the constants that have no buffer."""
        with self._lock:
            self._held.clear()
