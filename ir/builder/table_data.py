"""Table data: what a caller hands over, as the bytes that a Program keeps."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from vyre_py.ir.builder.expressions import require_type
from vyre_py.ir.builder.where import fail
from vyre_py.ir.language.narrowing import from_f64, from_integers, is_narrow
from vyre_py.ir.language.types import Array, Type, scalar_of

__all__ = ["table_data"]


def table_data(name: str, data: Any, type_: Type | None) -> tuple[Type, tuple[int, ...], bytes]:
    """The element type, shape and little-endian bytes of a table; numbers become elements as in `vp.const`. The last axis of the data of
    vectors holds the components, and is not part of the shape.

    Raises ValidationError: B106 for numbers that the type does not hold, B108 for data that is no array of the language.
    """
    if type_ is not None:
        require_type(type_)
    try:
        array = np.asarray(data)
    except ValueError as error:
        fail("B108", f"the data of table {name!r} is not an array: {error}", "give every row the same length")
    # Numbers in a list have a type in Python only.
    element = type_ or (scalar_of(array.dtype) if isinstance(data, (np.ndarray, np.generic)) else None)
    if element is None or array.ndim <= element.is_vector or (array.dtype.kind not in "biuf" and scalar_of(array.dtype) is None):
        message = f"a table holds an array of one of the language's types, got dtype {array.dtype} and shape {list(array.shape)}"
        fail("B108", message, "say which type: b.table('t', [1, 2, 3], vp.u32)")
    if element.is_vector and array.shape[-1] != element.lanes:
        message = f"the last axis of table {name!r} holds the components of {element}, which are {element.lanes}; the data has shape {list(array.shape)}"
        fail("B108", message, f"write each element as {element.lanes} numbers: {[list(range(element.lanes))] * 2}")
    stored = _converted(array, element.dtype)
    if not element.is_float and not np.array_equal(stored, array):
        fail("B106", f"the data of table {name!r} holds numbers that {element} does not", f"give whole numbers from {element.minimum} to {element.maximum}")
    if sys.byteorder == "big":
        stored = stored.byteswap()
    return element, array.shape[: array.ndim - element.is_vector], stored.tobytes()


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers as elements, floats rounded once."""
    if array.dtype == dtype or not is_narrow(dtype):
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(array, dtype)
    if array.dtype.kind in "iu":
        return from_integers(array, dtype)
    with np.errstate(all="ignore"):
        return from_f64(array.astype(np.float64), dtype)
