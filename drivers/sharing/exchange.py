"""Device memory of other libraries as buffers, without a copy: DLPack and `__cuda_array_interface__`. `handover` is the other way.

Both protocols define the order. The producer gets the stream that will use its memory, and orders its enqueued work before that stream's. A launch of ours on
their memory comes before their later work once `device.synchronize()` has returned, or when the launch goes to their own stream (`launch.on(stream)`).
"""

from __future__ import annotations

import itertools
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.allocation import Borrowed
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Host, element_of, lost_mask, own_view
from vyre_py.drivers.sharing import dlpack
from vyre_py.drivers.sharing.dlpack import Foreign
from vyre_py.drivers.sharing.read_only import never_changes
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.errors import VyreError, shown

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

if TYPE_CHECKING:
    from vyre_py.drivers.native import takeover
else:
    (takeover,) = deferred("vyre_py.drivers.native", "takeover")

__all__ = ["is_foreign", "lives_on", "on_host", "shares_memory", "wrap"]

# Which kinds of memory in DLPack's numbering a device kind reaches.
_REACHED: Final = {dlpack.CPU: (dlpack.CPU, dlpack.CUDA_HOST), dlpack.CUDA: (dlpack.CUDA, dlpack.CUDA_MANAGED)}


# Arrays that came again and again, after which it is worth to make native code that takes them over.
_WORTH: Final = 64
_repeated: Final = itertools.count()


def is_foreign(array: Any) -> bool:
    """Whether an object of another library shares its memory by a protocol for devices. NumPy's arrays lie on the host, whatever they have."""
    shares = hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__")
    return shares and not isinstance(array, (np.ndarray, np.generic, Buffer))


def on_host(device: Device) -> bool:
    """Whether a device's memory is the host's own."""
    return device.dlpack_device is not None and device.dlpack_device[0] == dlpack.CPU


def lives_on(device: Device, array: Any, what: str = "array") -> bool:
    """Whether an object says that its memory is this device's, so that nothing has to be copied. Raises BindingError for a `__dlpack_device__` that
    gives no device."""
    if device.dlpack_device is None or not is_foreign(array):
        return False
    if hasattr(array, "__dlpack_device__"):
        kind, number = _place(array, what)
        return kind in _REACHED[device.dlpack_device[0]] and (on_host(device) or number == device.dlpack_device[1])
    return device.dlpack_device[0] == dlpack.CUDA and hasattr(array, "__cuda_array_interface__")


def _place(array: Any, what: str) -> tuple[int, int]:
    """DLPack's kind and number of an object's device."""
    try:
        given = array.__dlpack_device__()
        kind, number = map(int, given)
    except VyreError:
        raise
    except Exception as error:  # whatever a stranger's __dlpack_device__ raises, or gives
        raise BindingError(what, [f"its __dlpack_device__ does not give a device's kind and number: {error}"]) from error
    return kind, number


def shares_memory(device: Device, value: Any) -> bool:
    """Whether `wrap` is for this: an object of another library, and on a device whose memory is the host's whatever lies there: NumPy's arrays, and what
    has the buffer protocol."""
    return is_foreign(value) or (on_host(device) and own_view(value) is not None)


def wrap(device: Device, array: Any, what: str = "array", followed: set[int] | None = None) -> Buffer:
    """A buffer over memory that `array` owns, which is kept alive as long as the buffer is.

    `array` has `__dlpack__` or, on CUDA, `__cuda_array_interface__`; on the CPU it may be a NumPy array, or have the buffer protocol. Complex numbers are
    vectors of two. `followed` are handles of streams of libraries that ours waits for already; with it, where arrays come again and again, native code takes
    over what it can. Raises BindingError for memory that the device does not reach, that is not C-contiguous, or whose elements are no type of the language.
    """
    if device.dlpack_device is None:
        raise BindingError(what, [f"{device.name} takes no memory of other libraries: device.upload copies"])
    device.require_usable()
    foreign = None if type(array) is np.ndarray else _taken_by_table(device, array, followed)
    address, shape, type_, _, readonly, lender = foreign or _taken(device, array, what)
    size_bytes, multiple = prod(shape) * type_.size_bytes, type_.scalar.size_bytes
    if size_bytes and (address % multiple or not address or size_bytes > device.limits.buffer_bytes):
        raise BindingError(what, [_problem(device, address, multiple)])
    return Buffer(device, Borrowed(device, address, size_bytes, lender), 0, shape or (1,), type_, readonly)


def _taken_by_table(device: Device, array: Any, followed: set[int] | None) -> Foreign | None:
    if (place := device.dlpack_device) is None:
        return None
    library: Any = type(array)
    take = None if followed is None or next(_repeated) < _WORTH else takeover.taker(library, place)
    found = dlpack.import_by_table(array, place) if take is None else _told(take(array), place)
    if found is None:
        return None
    stream = found[1]
    if place[0] == dlpack.CPU or (followed is not None and stream in followed):
        return found[0]
    try:
        known = device._follow(stream)
    except VyreError:
        del found  # the first error of a lost device is kept, and this frame with it
        raise
    if known and followed is not None:
        followed.add(stream)
    return found[0] if known else None


def _told(taken: takeover.Taken | None, place: tuple[int, int]) -> tuple[Foreign, int] | None:
    """What `dlpack.import_by_table` gives, of what native code has taken over."""
    if taken is None or (type_ := dlpack.TYPE_OF_WORD.get(taken[2])) is None:
        return None
    address, shape, _, flags, lender, stream = taken
    return Foreign(address, shape, type_, place, bool(flags & dlpack.READ_ONLY), lender), stream


def _taken(device: Device, array: Any, what: str) -> Foreign:
    if isinstance(array, np.ndarray) or not is_foreign(array):
        view = own_view(array)
        if view is not None and on_host(device):
            return _numpy(view, what)
        if view is not None:
            raise BindingError(what, [f"its memory is the host's: device.upload copies it to {device.name}"])
        raise BindingError(what, [f"{shown(array)} has neither __dlpack__ nor __cuda_array_interface__, nor shares memory by the buffer protocol"])
    stream = device._exchange_stream()
    library: Any = type(array)
    if hasattr(array, "__dlpack__"):
        if not lives_on(device, array, what):
            raise BindingError(what, [f"its memory is not on {device.name}: copy it there, or use the device that it is on"])
        with device._current():  # PyTorch hands over what is on its current device, and no other
            taken = dlpack.import_from(array, what, stream)
        return taken._replace(readonly=True) if never_changes(library) else taken
    interface = array.__cuda_array_interface__
    if stream is None or not isinstance(interface, dict):
        raise BindingError(what, [f"{shown(array)} has no __dlpack__, and no __cuda_array_interface__ that means anything on {device.name}"])
    return _cuda_array(device, array, interface, what)


def _problem(device: Device, address: int, multiple: int) -> str:
    """Why memory is not taken."""
    if address % multiple:
        return f"its address {address:#x} is not a multiple of {multiple} bytes, its elements' size: hand over a copy"
    if not address:
        return "its address is null"
    return f"one buffer on {device.name} holds at most {device.limits.buffer_bytes} bytes"


def _numpy(array: Host, what: str) -> Foreign:
    """NumPy's own hand-over refuses types of ml_dtypes and arrays that can't be written, which are fine here."""
    type_, lost = element_of(array.dtype), lost_mask(array)
    problems = [lost] if lost else []
    if type_ is None:
        problems.append(f"dtype {array.dtype} is not a type of the language")
    if not array.flags.c_contiguous:
        problems.append("it is not C-contiguous: np.ascontiguousarray(x) copies")
    if type_ is None or problems:
        raise BindingError(what, problems)
    address, readonly = array.__array_interface__["data"]
    return Foreign(address, array.shape, type_, (dlpack.CPU, 0), readonly, array)


def _cuda_array(device: Device, array: Any, interface: dict[str, Any], what: str) -> Foreign:
    """The CUDA array interface, versions 2 and 3: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html."""
    if interface.get("mask") is not None:
        raise BindingError(what, ["masked arrays are not supported"])
    shape = tuple(interface["shape"])
    dtype = np.dtype(interface["typestr"])
    type_ = element_of(dtype)
    if type_ is None or not dtype.isnative:
        raise BindingError(what, [f"elements of {interface['typestr']!r} are not of a type of the language"])
    strides = interface.get("strides")
    if strides is not None and not dlpack.in_c_order(shape, tuple(s // dtype.itemsize for s in strides)):
        raise BindingError(what, ["it is not C-contiguous: hand over a contiguous copy"])
    address, readonly = interface["data"]
    if (stream := interface.get("stream")) is not None:
        device._order(int(stream), None)
    library: Any = type(array)
    return Foreign(int(address or 0), shape, type_, (dlpack.CUDA, 0), bool(readonly) or never_changes(library), array)
