"""Host arrays: whatever a caller hands over, as a NumPy array in native byte order; and where results may go."""

from __future__ import annotations

from typing import Any

import numpy as np

from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.ir.errors import VyreError
from vyre_py.ir.types import scalar_of

__all__ = ["Bytes", "Host", "host_array", "no_memory", "takes"]

Host = np.ndarray[Any, Any]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]  # one axis, contiguous


def host_array(value: Any, name: str) -> Host:
    """A NumPy view (or copy, where bytes are swapped) of anything with the buffer protocol or `__array__`; any strides.

    Raises BindingError naming `name` for anything else, object arrays included.
    """
    if isinstance(value, (str, bytes)) or value is None:
        raise BindingError(name, [f"{name!r} is a {type(value).__name__}, not an array"])
    try:
        array = np.asarray(value)
    except VyreError:
        raise
    except Exception as error:  # whatever a stranger's __array__, or NumPy reading it, raises
        raise BindingError(name, [f"{name!r}: {error}"]) from error
    if array.dtype.kind not in "biuf" and scalar_of(array.dtype) is None:  # NumPy does not know bf16 for a number
        raise BindingError(name, [f"{name!r} has dtype {array.dtype}, which holds no numbers of the language"])
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def no_memory(doing: str, error: MemoryError) -> OutOfMemory:
    """The error for a result that the host has no memory for."""
    return OutOfMemory(doing, meaning="the host has too little free memory for the result", cause=str(error), remedy="drop arrays, or ask for less")


def takes(array: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether results of this shape and dtype can be written into what a caller gave as `out`."""
    if not isinstance(array, np.ndarray):
        return False
    plain = np.asarray(array)  # a subclass may say anything of itself
    return plain.shape == shape and plain.dtype == dtype and plain.flags.writeable
