"""Table data: what a caller hands over, as the bytes that a Program keeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from vyre_py.ir.expressions import fail, require_type
from vyre_py.ir.types import Scalar, scalar_of

__all__ = ["table_data"]


def table_data(name: str, data: Any, type_: Scalar | None) -> tuple[Scalar, tuple[int, ...], bytes]:
    """The element type, shape and little-endian bytes of a table; numbers become elements as in `vp.const`.

    Raises ValidationError: B106 for numbers that the type does not hold, B108 for data that is no array of the language.
    """
    if type_ is not None:
        require_type(type_)
    try:
        array = np.asarray(data)
    except ValueError as error:
        fail("B108", f"the data of table {name!r} is no array: {error}", "give every row the same length")
    element = type_ or scalar_of(array.dtype)
    if element is None or array.ndim == 0 or (array.dtype.kind not in "biuf" and scalar_of(array.dtype) is None):
        message = f"a table holds an array of one of the language's types, got dtype {array.dtype} and shape {list(array.shape)}"
        fail("B108", message, "say which type: b.table('t', [1, 2, 3], vp.u32)")
    with np.errstate(all="ignore"):
        stored = np.ascontiguousarray(array, dtype=element.dtype.newbyteorder("<"))
    if not element.is_float and not np.array_equal(stored, array):
        fail("B106", f"the data of table {name!r} holds numbers that {element} does not", f"give whole numbers from {element.minimum} to {element.maximum}")
    return element, array.shape, stored.tobytes()
