"""DLPack's exchange table: C functions that a type of arrays has, as `__dlpack_c_exchange_api__`, and that hand its arrays over without a call of Python.

The table is `DLPackExchangeAPI` of https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from vyre_py.drivers.sharing.read_only import never_changes
from vyre_py.drivers.sharing.tensor_words import TensorWords, is_negated, tensor_words

__all__ = ["ExchangeFunctions", "exchange_functions"]

_NAME: Final = "__dlpack_c_exchange_api__"
_CAPSULE: Final = b"dlpack_exchange_api"
_MAJOR: Final = 1
# managed_tensor_from_py_object_no_sync, dltensor_from_py_object_no_sync and current_work_stream in the table, whose first word is the version.
_MANAGED_AT, _VIEW_AT, _STREAM_AT = 24, 40, 48
_Stream: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
_Managed: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


class ExchangeFunctions(NamedTuple):
    """The addresses of a type's functions: `view` writes a DLTensor for one of its objects, without a new reference and without waiting, `stream` tells the
    stream that its library works on, zero where it has none. `managed`, at `managed_at`, writes the address of a DLManagedTensorVersioned, None where
    the type has only inherited the table, and so may hand over otherwise; `needs_grad` is whether objects say that gradients of them are wanted, `words`
    where native code sees that, and that their numbers are negated, None where it cannot."""

    view: int
    stream: int
    managed_at: int
    managed: Callable[[Any, Any], int] | None
    needs_grad: bool
    words: TensorWords | None

    def are_plain(self, array: Any) -> bool:
        """Whether an array of the type is its memory, and no more."""
        return not (self.needs_grad and array.requires_grad is not False) and not is_negated(array)

    def stream_on(self, place: tuple[int, int]) -> int | None:
        """The handle of the stream on which the library works now, on a device by DLPack's kind and number; None where that is not told."""
        handle = ctypes.c_void_p()
        return None if not self.stream or _asked(self.stream)(*place, ctypes.addressof(handle)) else handle.value or 0


@lru_cache(maxsize=64)
def _asked(address: int) -> Any:
    return _Stream(address)


@lru_cache(maxsize=64)  # a bound, since it holds the types
def exchange_functions(type_: type) -> ExchangeFunctions | None:
    """The functions of a type; None where it has none of the version that is known, and where arrays never change, which views cannot say."""
    capsule = getattr(type_, _NAME, None)
    if type(capsule).__name__ != "PyCapsule" or never_changes(type_):
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        table = pointer(capsule, _CAPSULE)
    except ValueError:  # a capsule of something else
        return None
    if ctypes.c_uint32.from_address(table).value != _MAJOR:
        return None
    view, stream, managed = (int(ctypes.c_uint64.from_address(table + at).value) for at in (_VIEW_AT, _STREAM_AT, _MANAGED_AT))
    managed_by = _Managed(managed) if managed and _NAME in vars(type_) else None
    return ExchangeFunctions(view, stream, managed, managed_by, hasattr(type_, "requires_grad"), tensor_words(type_))
