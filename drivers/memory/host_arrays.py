"""Host arrays: a caller's array-like argument as a NumPy array in native byte order; and where results may go."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.types import Type, f32, f64, scalar_of, vector_of

__all__ = ["Bytes", "Host", "components_of", "element_of", "host_array", "lost_mask", "no_memory", "own_view", "result_view"]

Host = np.ndarray[Any, Any]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]  # one axis, contiguous

# Complex numbers are vectors of two: real, then imaginary part.
_PAIRS: Final = {np.dtype(np.complex64): vector_of(f32, 2), np.dtype(np.complex128): vector_of(f64, 2)}


def element_of(dtype: np.dtype[Any]) -> Type | None:
    """The type whose elements have a dtype: a scalar, or the vector of two that complex numbers are; None for none of the language's."""
    return _PAIRS.get(dtype) or scalar_of(dtype)


def components_of(array: Host, type_: Type) -> Host:
    """An array whose last axis has the components of a vector type: a view of complex numbers, where they are that type; any other array as it is."""
    return array[..., np.newaxis].view(type_.dtype) if _PAIRS.get(array.dtype) is type_ else array


def lost_mask(value: Any) -> str:
    """What is said of an array whose mask nobody here would look at; empty for any other object."""
    module: Any = sys.modules.get("numpy.ma")  # else there is no such array
    masked = module is not None and isinstance(value, module.MaskedArray)
    return "its mask would be lost: x.filled(number) is an array without" if masked else ""


def own_view(value: Any) -> Host | None:
    """A NumPy view of host memory that an object shares by the buffer protocol; None for one that shares none, or is a number."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value if isinstance(value, np.ndarray) else None
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError, BufferError):
        return None


def host_array(value: Any, name: str) -> Host:
    """A NumPy view (or copy, where bytes are swapped) of anything with the buffer protocol or `__array__`; any strides. Bytes are u8.

    Raises BindingError naming `name` for anything else, object and masked arrays included.
    """
    if lost := lost_mask(value):
        raise BindingError(name, [f"{name!r}: {lost}"])
    if isinstance(value, str) or value is None:
        raise BindingError(name, [f"{name!r} is a {type(value).__name__}, not an array"])
    if isinstance(value, bytes):
        value = memoryview(value)  # or NumPy takes it for text
    try:
        array = np.asarray(value)
    except VyreError:
        raise
    except Exception as error:  # whatever a stranger's __array__, or NumPy reading it, raises
        raise BindingError(name, [f"{name!r}: {error}"]) from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "biuf" and element_of(array.dtype) is None:  # to NumPy most types that it lacks are no numbers
        raise BindingError(name, [f"{name!r} has dtype {array.dtype}, which holds no numbers of the language"])
    return array


def no_memory(doing: str, error: MemoryError) -> OutOfMemory:
    """The error for a result that the host has no memory for."""
    return OutOfMemory(doing, meaning="the host has too little free memory for the result", cause=str(error), remedy="drop arrays, or ask for less")


def result_view(array: object, shape: tuple[int, ...], type_: Type) -> Host | None:
    """The plain view through which results of a type and a shape of components are written into what a caller gave as `out`; None for what does not
    take them."""
    if not isinstance(array, np.ndarray) or lost_mask(array):
        return None
    plain = components_of(np.asarray(array), type_)  # a subclass may say anything of itself
    return plain if plain.shape == shape and plain.dtype == type_.dtype and plain.flags.writeable else None
