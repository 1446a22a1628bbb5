"""What native code reads of a buffer: where it lies, and a number that says which others may take its place in a launch."""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from math import gcd
from typing import Any, Final

from vyre_py.drivers.memory.allocation import Borrowed
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.arrays import pack_record

__all__ = ["record_of", "words_of"]

# The largest multiple that entries need memory to begin on.
_ALIGNED: Final = 16
_WORDS: Final = struct.Struct("<qQQQ")  # the first of a record
# Device, type of a component, shape and alignment of a buffer -> a number; buffers of one number may replace each other in a launch.
_signatures: dict[tuple[Any, ...], int] = {}
_numbers = itertools.count(1)
_signature_lock = threading.Lock()
_SIGNATURES: Final = 1 << 16


def _signature(buffer: Buffer, begin: int) -> int:
    aligned = gcd(begin, _ALIGNED)  # where that is another, another entry may have to be launched
    key = (buffer.device.ordinal, id(buffer.device), buffer.type.scalar, buffer.host_shape, aligned)
    if (known := _signatures.get(key)) is not None:
        return known
    with _signature_lock:
        if len(_signatures) >= _SIGNATURES:
            _signatures.clear()  # numbers are never used twice, so what has an old one goes the slow way once
        return _signatures.setdefault(key, next(_numbers))


def record_of(buffer: Buffer) -> tuple[int, int, int, int]:
    """A buffer's signature, first byte and end, and the address of its live word; its record for native code is made if it has none."""
    if buffer._record is None:
        signature, begin, _, _ = _words(buffer)
        device: Any = buffer.device  # a CudaDevice, whose module imports this one
        buffer._record = pack_record(buffer, begin, device.context.mode_address, signature)
    return _WORDS.unpack_from(buffer._record)


def words_of(buffer: Buffer) -> tuple[int, int, int, int]:
    """What `record_of` gives; no record is made of borrowed memory, which most often goes with its launch."""
    return _words(buffer) if buffer._record is None and isinstance(buffer.allocation, Borrowed) else record_of(buffer)


def _words(buffer: Buffer) -> tuple[int, int, int, int]:
    handle = buffer.handle
    begin = handle + buffer.offset_bytes if handle else 0
    return _signature(buffer, handle + buffer.offset_bytes), begin, begin + buffer.size_bytes, ctypes.addressof(buffer.allocation.alive)
