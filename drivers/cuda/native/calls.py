"""Native calls that raise their errors: for fixed work such as staging copies, waits, products, and pieces of graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.cuda.native.call_list import Call, CallList
from vyre_py.drivers.errors import DriverError, LaunchError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["Calls", "Failure", "perform"]

# From which call failed, its status, and what was tried, the error.
Failure = Callable[[int, int, str], DriverError]

_NOWHERE: Final = ctypes.c_uint64()
_UNCOUNTED: Final = ((ctypes.addressof(_NOWHERE), 0), (ctypes.addressof(_NOWHERE), 0))


class Calls:
    """A list of native calls, and its handler. Attribute: `calls`, the list itself."""

    __slots__ = ("__weakref__", "_device", "_doing", "_failure", "_record", "calls")

    def __init__(
        self, device: CudaDevice, calls: Sequence[Call], doing: str, failure: Failure | None = None, *, counts: Mapping[str, int] | None = None
    ) -> None:
        """`doing` is what errors say was tried; `failure` makes the error of a status where that is not the driver's. Where there are `counts`, each
        run counts as a launch, and adds them to the counters of these names."""
        self._device, self._doing, self._failure = device, doing, failure
        counters = _UNCOUNTED
        self._record = None if counts is None else device.telemetry.record(**counts)
        if self._record is not None:
            counters = ((device.telemetry.address("launches"), 1), (self._record.address, 1))
        self.calls = CallList(calls, self.handle_status, device.context.mode_address, [], counters)

    def handle_status(self, index: int, status: int) -> None:
        """Raises the error of a call. Resumes the calls if the only fault was that another context was current."""
        if index >= 0 and self._failure is not None:
            error = self._failure(index, status, self._doing)
            self._device.context.require_alive(self._doing)
            raise error
        self._device.context.recover(self.calls, index, status, self._doing, LaunchError)

    def builtin(self) -> Callable[[], None]:
        """What makes the calls, with the interpreter's lock released; it holds this object. Raises DeviceLost once the device is unusable, and the
        error of a call that fails."""
        return self.calls.builtin()


def perform(device: CudaDevice, calls: Sequence[Call], doing: str, failure: Failure | None = None) -> None:
    """Makes native calls now, in any mode, and counts nothing. Raises the error of the first that fails: the driver's, or what `failure` makes of it."""
    if calls:
        made = Calls(device, calls, doing, failure)
        made.calls.resume(0)
