"""The CPU device's memory: zeroed, aligned bytes that outlive every launch bound to them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.observers import Watched

if TYPE_CHECKING:
    from vyre_py.drivers.cpu.launch import CpuLaunch

__all__ = ["ALIGN", "HostMemory", "aligned_bytes"]

# A cache line, and the widest vector. Sizes are whole multiples too: kernels may read the aligned word around a byte.
ALIGN: Final = 64


def aligned_bytes(size_bytes: int) -> tuple[Bytes, int]:
    """At least `size_bytes` of zeroed bytes, and the address of the first, a multiple of ALIGN. Raises MemoryError."""
    raw = np.zeros(-(-size_bytes // ALIGN) * ALIGN + ALIGN, np.uint8)
    address = int(raw.ctypes.data)
    skip = -address % ALIGN
    return raw[skip : skip + size_bytes], address + skip


# What NumPy's ctypeslib would take for it is a type for each size.
_view_at = ctypes.pythonapi.PyMemoryView_FromMemory
_view_at.restype, _view_at.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITEABLE: Final = 0x200


def _bytes_at(address: int, size_bytes: int) -> Bytes:
    return np.frombuffer(_view_at(address, size_bytes, _WRITEABLE), np.uint8) if size_bytes else np.empty(0, np.uint8)


class HostMemory:
    """An allocation, or memory at an `address` for as long as a `lender` is held. Launches that use it hold on to what is `held`, and are told when it is
    freed."""

    __slots__ = ("_bytes", "_launches", "_lent_bytes", "address")

    def __init__(self, size_bytes: int, address: int | None = None, lender: object = None) -> None:
        self._bytes: object  # of memory that is lent the lender: an array over it is made when it is asked for
        if address is None:
            self._bytes, self.address = aligned_bytes(size_bytes)
            self._lent_bytes = None
        else:
            self._bytes, self.address, self._lent_bytes = lender, address, size_bytes
        self._launches: Watched[CpuLaunch] = Watched()

    @property
    def held(self) -> object:
        """What keeps the memory. Raises BindingError when another thread has released it meanwhile."""
        held = self._bytes
        if held is None:
            raise BindingError("buffer", ["the buffer was freed"])
        return held

    @property
    def bytes(self) -> Bytes:
        """The memory. Raises BindingError as `held`."""
        held = self.held
        return cast("Bytes", held) if self._lent_bytes is None else _bytes_at(self.address, self._lent_bytes)

    def watch(self, launch: CpuLaunch) -> None:
        """From now on `launch` depends on this memory."""
        self._launches.add(launch)

    def passed_on(self) -> HostMemory:
        """The same bytes for another owner; the launches that use these refuse from now on."""
        other = HostMemory(0)
        other._bytes, other.address = self._bytes, self.address
        self.release()
        return other

    def release(self) -> None:
        """Releases the bytes. They are freed once no launch holds them."""
        self._bytes = None
        for launch in self._launches.now():
            launch.disarm()
