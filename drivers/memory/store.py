"""The resident store: buffers that stay on a device, by handle, within a budget.

A server keeps its weights and tables here, and passes handles instead of buffers. An entry stays until it is dropped; a put over the budget is
refused. Only entries that their owner called evictable are evicted, least recently used first, when a put needs room or the device runs out of
memory. An entry in use (a `using` block) is never evicted. If it is dropped meanwhile, it is freed when its last use ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import host_array
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary, ValueRecord

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Handle", "ResidentStore", "StoreSnapshot"]

# A name that the owner gave, or a number that the store did.
Handle = int | str

_REMEMBERED: Final = 1024  # handles that were evicted, so that their owners are told why they are gone


@public
@dataclass(frozen=True, slots=True)
class StoreSnapshot(ValueRecord):
    """A store at one moment: how many `entries`, how many `bytes` they hold, how many entries are `in_use`; `evictable_bytes` that could go now;
    `budget_bytes`, None without one; `evictions` so far."""

    entries: int
    bytes: int
    in_use: int
    evictable_bytes: int
    budget_bytes: int | None
    evictions: int


class _Entry:
    """A buffer; whether the store made it, and thus frees it; whether it may be evicted; how many use it, and whether it was dropped."""

    __slots__ = ("buffer", "dropped", "evictable", "mine", "uses")

    def __init__(self, buffer: Buffer, mine: bool, evictable: bool) -> None:
        self.buffer, self.mine, self.evictable = buffer, mine, evictable
        self.uses = 0
        self.dropped = False

    @property
    def idle(self) -> bool:
        return self.evictable and not self.uses

    def release(self) -> None:
        """Frees the memory, unless the buffer is the caller's."""
        if self.mine:
            self.buffer.free()


@public
class ResidentStore(Stationary):
    """The buffers that one device keeps, by handle: `device.resident`. Any thread may use it.

        weights = device.resident.put(array, "layer1.weight")
        with device.resident.using(weights) as (buffer,):
            pipeline.dispatch(w=buffer, x=x)

    `budget_bytes` is the most that all entries hold, None for no limit; it may be set at any time, and evicts what may go.
    """

    travels_as = "send what read() of its buffers gives"

    def __init__(self, device: Device, budget_bytes: int | None = None) -> None:
        self._device = device
        self._budget = budget_bytes
        self._entries: OrderedDict[Handle, _Entry] = OrderedDict()  # the one used longest ago first
        self._bytes = 0  # of entries, and of those that are being uploaded
        self._coming: set[Handle] = set()
        self._evicted: OrderedDict[Handle, None] = OrderedDict()
        self._evictions = 0
        self._numbers = count(1)
        self._lock = threading.RLock()  # an allocation that runs out of memory within `put` evicts

    # ---- putting and getting

    def put(self, data: Any, name: str | None = None, *, type_: Type | None = None, evictable: bool = False) -> Handle:
        """Keeps a copy of a host array (as `device.upload` makes it), or a buffer of this device as it is; gives its handle, `name` or a new number.

        Raises OutOfMemory over the budget, when what may be evicted is not enough, and then evicts nothing; BindingError for a name that is taken,
        and what `upload` raises.
        """
        if name is not None and not isinstance(name, str):
            raise BindingError("put", [f"a name is text, got {shown(name)}"])
        self._device.require_usable()
        given = data if isinstance(data, Buffer) else host_array(data, "array")
        if isinstance(given, Buffer):
            self._require_fitting(given, type_)
        size_bytes = given.size_bytes if isinstance(given, Buffer) else int(given.nbytes)
        handle = self._reserve(name, size_bytes)
        try:
            buffer = given if isinstance(given, Buffer) else self._device.upload(given, type_)
        except BaseException:
            with self._lock:
                self._coming.discard(handle)
                self._bytes -= size_bytes
            raise
        with self._lock:
            self._coming.discard(handle)
            self._entries[handle] = _Entry(buffer, buffer is not given, evictable)
        return handle

    def _require_fitting(self, buffer: Buffer, type_: Type | None) -> None:
        if buffer.device is not self._device:
            raise BindingError("put", [f"the buffer is on {buffer.device.name}, the store on {self._device.name}"])
        if type_ is not None:
            raise BindingError("put", ["a buffer has its own type; buffer.view(type) gives another"])
        if buffer.allocation.freed:
            raise BindingError("put", [f"the buffer {buffer.allocation.absence}"])

    def _reserve(self, name: str | None, size_bytes: int) -> Handle:
        with self._lock:
            handle: Handle = next(self._numbers) if name is None else name
            if handle in self._entries or handle in self._coming:
                raise BindingError("put", [f"there is an entry {shown(handle)} already; drop it first"])
            self._make_room(size_bytes)
            self._coming.add(handle)
            self._evicted.pop(handle, None)
            self._bytes += size_bytes
            return handle

    def get(self, handle: Handle) -> Buffer:
        """The buffer of a handle, which counts as used now. Raises BindingError for a handle that there is not, or no longer."""
        with self._lock:
            entry = self._entry(handle)
            self._entries.move_to_end(handle)
            return entry.buffer

    @contextmanager
    def using(self, *handles: Handle) -> Iterator[tuple[Buffer, ...]]:
        """A block in which entries stay: gives their buffers, in order. Raises BindingError for a handle that there is not, or no longer."""
        with self._lock:
            entries = [self._entry(handle) for handle in handles]
            for handle, entry in zip(handles, entries, strict=True):
                entry.uses += 1
                self._entries.move_to_end(handle)
        try:
            yield tuple([entry.buffer for entry in entries])
        finally:
            with self._lock:
                for entry in entries:
                    entry.uses -= 1
                    if entry.dropped and not entry.uses:
                        self._free(entry)

    def _entry(self, handle: Handle) -> _Entry:
        entry = self._entries.get(handle) if isinstance(handle, (int, str)) else None
        if entry is None:
            why = "was evicted to make room" if isinstance(handle, (int, str)) and handle in self._evicted else "is not there, or no longer"
            raise BindingError("resident store", [f"entry {shown(handle)} {why}"])
        return entry

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    # ---- eviction

    def drop(self, handle: Handle) -> None:
        """Removes an entry, and frees its memory once it is unused, if the store made it. Raises BindingError for an unknown handle."""
        with self._lock:
            entry = self._entry(handle)
            del self._entries[handle]
            entry.dropped = True
            if not entry.uses:
                self._free(entry)

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            for handle in list(self._entries):
                self.drop(handle)

    def evict(self) -> int:
        """Evicts every evictable entry that is not in use; returns how many bytes were freed."""
        with self._lock:
            before = self._bytes
            for handle in [handle for handle, entry in self._entries.items() if entry.idle]:
                self._evict(handle)
            return before - self._bytes

    def _make_room(self, size_bytes: int) -> None:
        """Evicts until so many bytes fit under the budget, or raises OutOfMemory with nothing evicted."""
        if self._budget is None or self._bytes + size_bytes <= self._budget:
            return
        over = self._bytes + size_bytes - self._budget
        if sum(entry.buffer.size_bytes for entry in self._entries.values() if entry.idle) < over:
            raise OutOfMemory(
                f"the resident store of {self._device.name} cannot keep {size_bytes} bytes", meaning=f"its budget is {self._budget} bytes",
                cause="entries that are in use, or may not be evicted", remedy="drop entries, put them as evictable, or raise resident.budget_bytes",
                asked=size_bytes, held=self._bytes, limit=self._budget,
            )  # fmt: skip
        for handle in [handle for handle, entry in self._entries.items() if entry.idle]:
            if self._bytes + size_bytes <= self._budget:
                return
            self._evict(handle)

    def _evict(self, handle: Handle) -> None:
        entry = self._entries.pop(handle)
        self._evictions += 1
        self._evicted[handle] = None
        if len(self._evicted) > _REMEMBERED:
            self._evicted.popitem(last=False)
        self._free(entry)

    def _free(self, entry: _Entry) -> None:
        self._bytes -= entry.buffer.size_bytes
        entry.release()

    # ---- what can be read

    @property
    def budget_bytes(self) -> int | None:
        """The most that all entries hold; None for no limit."""
        return self._budget

    @budget_bytes.setter
    def budget_bytes(self, size_bytes: int | None) -> None:
        if size_bytes is not None and not is_count(size_bytes):
            raise BindingError("budget_bytes", [f"a budget is a whole number of bytes, or None, got {shown(size_bytes)}"])
        with self._lock:
            before, self._budget = self._budget, None if size_bytes is None else int(size_bytes)
            try:
                self._make_room(0)
            except OutOfMemory:
                self._budget = before
                raise

    def snapshot(self) -> StoreSnapshot:
        """The present content. Bytes of entries that were dropped while in use count until they are freed."""
        with self._lock:
            idle = sum(entry.buffer.size_bytes for entry in self._entries.values() if entry.idle)
            in_use = sum(1 for entry in self._entries.values() if entry.uses)
            return StoreSnapshot(len(self._entries), self._bytes, in_use, idle, self._budget, self._evictions)

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, (int, str)) and handle in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Handle]:
        """The handles there are now, the one used longest ago first."""
        with self._lock:
            return iter(list(self._entries))

    def __repr__(self) -> str:
        return f"<ResidentStore of {len(self)} entries, {self._bytes} bytes on {self._device.name}>"
