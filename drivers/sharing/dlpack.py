"""DLPack: memory handed over without a copy, by the C structures of the protocol's versions 0 and 1.

Written with ctypes, since no library that this package depends on reads capsules with every type here (bf16,
say) on every device. The protocol: https://dmlc.github.io/dlpack/latest/c_api.html and, for Python, .../python_spec.html.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.allocation import Lender
from vyre_py.drivers.sharing.exchange_table import exchange_functions
from vyre_py.drivers.sharing.tensor_words import is_negated
from vyre_py.ir.language.errors import VyreError, shown
from vyre_py.ir.language.types import SCALARS, Kind, Type, bf16, f8e4m3, f8e5m2, f32, f64, unsigned_of, vector_of

__all__ = [
    "CPU", "CUDA", "CUDA_HOST", "CUDA_MANAGED", "READ_ONLY", "TYPE_OF_WORD", "Foreign", "export", "import_by_table", "import_from", "in_c_order", "data_type",
]  # fmt: skip

# The protocol's numbers of device kinds.
CPU: Final = 1
CUDA: Final = 2
CUDA_HOST: Final = 3
CUDA_MANAGED: Final = 13

_VERSION: Final = (1, 0)
READ_ONLY: Final = 1  # the flag
_NAMES: Final = {False: b"dltensor", True: b"dltensor_versioned"}
_USED: Final = {False: b"used_dltensor", True: b"used_dltensor_versioned"}  # a capsule keeps the pointer to its name, not the name
_CODES: Final = {Kind.SINT: 0, Kind.UINT: 1, Kind.FLOAT: 2, Kind.BOOL: 6}
_OWN_CODES: Final = {bf16: 4, f8e4m3: 10, f8e5m2: 12}
_COMPLEX: Final = 5
_STRIDED: Final = "it is not C-contiguous: hand over a contiguous copy"
_STRIDED_TENSOR: Final = "it is not C-contiguous: x.contiguous() is a copy that is"


class _DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int32), ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    )  # fmt: skip


# The same in one piece, which takes less to read.
_TENSOR: Final = "QiiiBBHQQQ"
_VERSIONED: Final = struct.Struct(f"<IIQQQ{_TENSOR}")
_UNVERSIONED: Final = struct.Struct(f"<{_TENSOR}QQ")

_STRUCTURES: Final = {False: _Managed, True: _ManagedVersioned}
_Callback: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_api: Final = ctypes.pythonapi
_pointer_of = _api.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def data_type(type_: Type) -> _DLDataType:
    """DLPack's word for a scalar type: `code`, `bits` and `lanes`."""
    return _DLDataType(_OWN_CODES.get(type_, _CODES[type_.kind]), 8 if type_.kind is Kind.BOOL else type_.bits, 1)


_TYPES: Final = {(d.code, d.bits): t for t in SCALARS.values() for d in (data_type(t),)} | {
    (_COMPLEX, 64): vector_of(f32, 2), (_COMPLEX, 128): vector_of(f64, 2)
}  # fmt: skip
# Scalar types by the word of code, bits and lanes.
TYPE_OF_WORD: Final = {code | bits << 8 | 1 << 16: type_ for (code, bits), type_ in _TYPES.items() if not type_.is_vector}


class _Lent:
    """Memory as NumPy sees it, held by every array over it; `owner` stays as long."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def export(
    address: int, shape: tuple[int, ...], type_: Type, device: tuple[int, int], owner: object, max_version: tuple[int, int] | None, *, readonly: bool = False
) -> Any:
    """A capsule over `prod(shape)` scalars of C order at `address` on `device` (the protocol's kind and number).

    `owner` is kept until the consumer releases the capsule. `max_version` is the consumer's; from 1.0 on the capsule is a versioned one, where NumPy makes
    those (from 2.1 on). Raises BufferError where a capsule cannot say that the memory is read-only.

    NumPy makes the capsule, of an array over the memory, without reading it. NumPy's C functions release the array even while an exception is being raised,
    when no Python can run. Then device and element type are corrected.
    """
    filled = prod(shape) > 0
    typestr = (type_ if type_.in_numpy else unsigned_of(type_)).dtype.str
    # NumPy asks for an address where there is nothing, too.
    array = np.asarray(_Lent({"version": 3, "shape": shape, "typestr": typestr, "data": (address if filled else 1, readonly)}, owner))
    versioned = max_version is not None and max_version[0] >= 1
    try:
        capsule: Any = array.__dlpack__(max_version=_VERSION) if versioned else array.__dlpack__()
    except TypeError:  # NumPy before 2.1
        capsule = array.__dlpack__()
    place, versioned = _managed(capsule)
    tensor = _STRUCTURES[versioned].from_address(place).tensor
    tensor.device, tensor.dtype = _DLDevice(*device), data_type(type_)
    if not filled:
        tensor.data = None
    return capsule


def _managed(capsule: Any) -> tuple[int, bool]:
    """The address of what a capsule holds, and whether that has a version; 0 for what is no capsule that can still be taken."""
    for versioned, name in _NAMES.items():
        if _is_valid(capsule, name):
            return int(_pointer_of(capsule, name)), versioned
    return 0, False


class Foreign(NamedTuple):
    """Memory that another library owns: elements of `type` in C order at `address`, which stay for as long as the `lender` is held."""

    address: int
    shape: tuple[int, ...]
    type: Type
    device: tuple[int, int]
    readonly: bool
    lender: object


def import_from(array: Any, what: str, stream: int | None = None) -> Foreign:
    """Takes over what `array.__dlpack__` hands out; on a GPU it is ready for work on `stream`.

    Raises BindingError, with the capsule given back, for what is not in C order, has an element that is no type of the language, or is of a
    version that is not known, and for what is negated as it is read.
    """
    arguments: dict[str, Any] = {} if stream is None else {"stream": stream}
    if is_negated(array):
        raise BindingError(what, ["it cannot be handed over: it has its negative bit set; x.resolve_neg() is a copy that has not"])
    try:
        try:
            capsule = array.__dlpack__(max_version=_VERSION, **arguments)
        except TypeError:  # from before version 1
            capsule = array.__dlpack__(**arguments)
    except VyreError:
        raise
    except Exception as error:  # whatever a stranger's __dlpack__ raises
        raise BindingError(what, [f"it cannot be handed over: {error}"]) from error
    place, versioned = _managed(capsule)
    if not place:
        raise BindingError(what, [f"__dlpack__ gave {shown(capsule)}, which is not a DLPack capsule"])
    taken = _read(place, versioned=versioned)
    if isinstance(taken, str):
        raise BindingError(what, [_STRIDED_TENSOR if taken is _STRIDED and hasattr(array, "contiguous") else taken])
    # From here on it is ours: a capsule of another name is left alone when it goes.
    _rename(capsule, _USED[versioned])
    return taken


def import_by_table(array: Any, place: tuple[int, int]) -> tuple[Foreign, int] | None:
    """What `import_from` gives for an array on a device, by the exchange table of its type, in a fraction of the time, with the handle of the stream that its
    library works on, which is not waited for. None for whatever has to be looked at closely: `import_from` says what is wrong with it."""
    type_: Any = type(array)
    functions = exchange_functions(type_)
    if functions is None or functions.managed is None or not functions.are_plain(array):
        return None
    out = ctypes.c_void_p()
    try:
        failed = functions.managed(array, ctypes.byref(out))
    except Exception:  # noqa: BLE001 - whatever a stranger's function raises, its __dlpack__ raises, too
        return None
    if failed or (address := out.value) is None:
        return None
    taken = _read(address, versioned=True)
    if isinstance(taken, str):
        _release(_VERSIONED.unpack(ctypes.string_at(address, _VERSIONED.size))[3], address)
        return None
    if taken.device == place and taken.type.lanes == 1:  # complex numbers may be conjugated when they are read
        stream = 0 if place[0] == CPU else functions.stream_on(place)
        if stream is not None:
            return taken, stream
    return None


def _read(place: int, *, versioned: bool) -> Foreign | str:
    """What a managed tensor holds, or why it is not taken."""
    if versioned:
        major, minor, _, deleter, flags, data, kind, ordinal, rank, code, bits, lanes, sizes, strides, begin = _VERSIONED.unpack(
            ctypes.string_at(place, _VERSIONED.size)
        )
        if major != _VERSION[0]:
            return f"DLPack {major}.{minor} is not known here, {_VERSION[0]}.{_VERSION[1]} is"
    else:
        data, kind, ordinal, rank, code, bits, lanes, sizes, strides, begin, _, deleter = _UNVERSIONED.unpack(ctypes.string_at(place, _UNVERSIONED.size))
        flags = 0
    type_ = _TYPES.get((code, bits)) if lanes == 1 else None
    if type_ is None:
        return f"the language has no type for its elements (DLPack code {code}, {bits} bits)"
    shape: tuple[int, ...] = ()
    if rank > 0:
        packed = _packed_shape(rank, ctypes.string_at(sizes, 8 * rank), ctypes.string_at(strides, 8 * rank) if strides else None)
        if packed is None:
            return _STRIDED
        shape = packed
    return Foreign(data + begin, shape, type_, (kind, ordinal), bool(flags & READ_ONLY), Lender(partial(_release, deleter, place)))


@lru_cache(maxsize=256)
def _packed_shape(rank: int, sizes: bytes, strides: bytes | None) -> tuple[int, ...] | None:
    """The shape, of whose axes there are `rank`; None where strides are not those of C order."""
    words = struct.Struct(f"<{rank}q")
    shape = words.unpack(sizes)
    return shape if strides is None or in_c_order(shape, words.unpack(strides)) else None


def _release(deleter: int, place: int) -> None:
    """Gives a managed tensor back by its own function."""
    if deleter:
        _callback(deleter)(place)


@lru_cache(maxsize=64)
def _callback(address: int) -> Any:
    return _Callback(address)


def in_c_order(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Whether strides, in elements, are those of C order; axes of one element, and arrays of none, may have any."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
