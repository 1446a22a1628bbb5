"""Host arrays of any strides in pieces that are copied one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vyre_py.drivers.memory.host_arrays import Host

__all__ = ["Piece", "pieces"]

# A first byte on the device (its address, or the offset from the first of all), and the host array that is copied to it or from it.
Piece = tuple[int, Host]


def pieces(array: Host, most_bytes: int) -> Iterator[Piece]:
    """Parts of an array in C order, of any strides, with their offsets in bytes: none larger than `most_bytes`, most of them at least half as large.

    Where elements are larger than that, each is a piece.
    """
    if array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8)
        yield from ((start, flat[start : start + most_bytes]) for start in range(0, flat.size, most_bytes))
        return
    axis, row_bytes = array.ndim, array.itemsize
    while axis and row_bytes * array.shape[axis - 1] <= most_bytes:
        axis -= 1
        row_bytes *= array.shape[axis]
    if not axis:
        yield 0, array
        return
    rows, offset = max(1, most_bytes // row_bytes), 0
    for index in np.ndindex(array.shape[: axis - 1]):
        line = array[index]
        for start in range(0, line.shape[0], rows):
            piece = line[start : start + rows]
            yield offset, piece
            offset += piece.nbytes
