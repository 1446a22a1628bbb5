"""Host arrays: whatever a caller hands over, as a NumPy array in native byte order."""

from __future__ import annotations

from typing import Any

import numpy as np

from vyre_py.drivers.errors import BindingError

__all__ = ["host_array"]


def host_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """A NumPy view (or copy, where bytes are swapped) of anything with the buffer protocol or `__array__`; any strides.

    Raises BindingError naming `name` for anything else, object arrays included.
    """
    if isinstance(value, (str, bytes)) or value is None:
        raise BindingError(name, [f"{name!r} is a {type(value).__name__}, not an array"])
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BindingError(name, [f"{name!r}: {error}"]) from error
    if array.dtype.kind not in "biuf":
        raise BindingError(name, [f"{name!r} has dtype {array.dtype}, which holds no numbers of the language"])
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array
