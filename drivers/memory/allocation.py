"""Pieces of device memory, and what frees them or gives them back."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.errors import BindingError

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Allocation", "Borrowed", "Lender", "Loan"]


def _give_back(device: Device, handle: Any, size_bytes: int, recycle: Callable[[Any, int], bool] | None) -> None:
    if recycle is not None and recycle(handle, size_bytes):
        return
    device.telemetry.bytes_allocated -= size_bytes
    device._free(handle, size_bytes)


class Lender:
    """Calls `release` when it goes, in whatever thread that is; not at the end of the process, which gives everything back: a device may be gone by then."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], object]) -> None:
        self._release = release

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self._release()


class Allocation:
    """A piece of device memory, freed with the last buffer over it. `handle` is the device kind's own name for it.

    `recycle` gets the handle and its size before the device does, maybe from a finaliser, and keeps the memory if it returns true. `owner` names what frees the
    memory as a whole, where single buffers over it must not.
    """

    __slots__ = ("__weakref__", "_alive", "_finalizer", "_lent", "_unwanted", "handle", "owner", "size_bytes")

    def __init__(self, device: Device, handle: Any, size_bytes: int, recycle: Callable[[Any, int], bool] | None = None, owner: str = "") -> None:
        self._begin(handle, size_bytes, owner)
        self._finalizer = weakref.finalize(self, _give_back, device, handle, size_bytes, recycle)
        self._finalizer.atexit = False  # the process gives everything back; the device may be gone by then

    def _begin(self, handle: Any, size_bytes: int, owner: str) -> None:
        self.handle = handle
        self.owner = owner
        self.size_bytes = size_bytes
        self._alive: ctypes.c_uint64 | None = None
        self._lent = 0
        self._unwanted = False

    def _give_back(self) -> None:
        """Gives the memory back; again is quiet."""
        self._finalizer()

    @property
    def alive(self) -> ctypes.c_uint64:
        """A word in memory that is 1 until the allocation is freed, for native code to test; made when it is first asked for."""
        if self._alive is None:
            word = ctypes.c_uint64(1)
            if self._alive is None:  # no call, and so no other thread, between the look and the store
                self._alive = word
            if self._unwanted:  # `free` may have looked before
                self._alive.value = 0
        return self._alive

    @property
    def freed(self) -> bool:
        """Whether the memory was freed, or will be once it is no longer held."""
        return self._unwanted or not self._finalizer.alive

    @property
    def absence(self) -> str:
        """The words about a buffer over memory that is `freed`, after its name."""
        return "was freed"

    @property
    def transient(self) -> bool:
        """Whether a launch may free it, so that it is used in the order of the device's own stream alone."""
        return False

    def free(self) -> None:
        """Gives the memory back now, or when what it was lent to is done; again is quiet."""
        self._unwanted = True
        if self._alive is not None:
            self._alive.value = 0
        if not self._lent:
            self._give_back()

    def lend(self) -> Loan:
        """Something to hold for as long as another library uses the memory."""
        return Loan(self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which the memory stays. A free meanwhile takes effect at the end. Raises BindingError when it was freed before."""
        self.borrowed(1)
        try:
            if self.freed:
                raise BindingError("buffer", [f"the buffer {self.absence}"])
            yield
        finally:
            self.borrowed(-1)

    def borrowed(self, change: int) -> None:
        """Counts loans; the last one to end gives back what was freed meanwhile."""
        self._lent += change
        if self._unwanted and not self._lent:
            self._give_back()


class Borrowed(Allocation):
    """Memory of another library, which stays for as long as its `lender` is held: with the last buffer over it, or when it is freed, that is dropped, and
    nothing else is left to do."""

    __slots__ = ("_device", "_lender")

    def __init__(self, device: Device, address: int, size_bytes: int, lender: object) -> None:
        handle, self._lender = device._adopt(address, size_bytes, lender)
        self._device = device
        self._begin(handle, size_bytes, "")

    def _give_back(self) -> None:
        if self._lender is not None:
            self._device._disown(self.handle)
            self._lender = None

    @property
    def freed(self) -> bool:
        """See `Allocation.freed`."""
        return self._unwanted


class Loan:
    """Holds an allocation until it goes itself."""

    __slots__ = ("__weakref__", "_finalizer")

    def __init__(self, allocation: Allocation) -> None:
        allocation.borrowed(1)
        self._finalizer = weakref.finalize(self, allocation.borrowed, -1)
        self._finalizer.atexit = False  # as the allocation's own
