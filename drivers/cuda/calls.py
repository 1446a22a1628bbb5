"""Native call lists that raise what goes wrong: for fixed work such as staging copies, waits and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.cuda.native import Call, CallList
from vyre_py.drivers.errors import LaunchError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["Work", "native_call"]


class Work:
    """A list, what it is for, and what it counts: see `native_call`. Attribute: `calls`, the list itself."""

    __slots__ = ("__weakref__", "_device", "_doing", "_kept", "_record", "calls")

    def __init__(self, device: CudaDevice, calls: Sequence[Call], doing: str, launches: int, counts: Mapping[str, int], kept: Sequence[Any]) -> None:
        self._device, self._doing, self._kept = device, doing, tuple(kept)
        self._record = device.telemetry.record(**counts)
        counters = ((device.telemetry.address("launches"), launches), (self._record.address, 1))
        self.calls = CallList(calls, self.trouble, device.context.mode_address, [], counters)

    def trouble(self, index: int, status: int) -> None:
        """Goes on where it can, and raises what went wrong: see `native`."""
        self._device.require_usable()
        self._device.context.recover(self.calls, index, status, self._doing, LaunchError)

    def builtin(self) -> Callable[[], None]:
        """What makes the calls; it holds this object."""
        return self.calls.builtin()


def native_call(
    device: CudaDevice, calls: Sequence[Call], doing: str, *, launches: int = 0, counts: Mapping[str, int] | None = None, kept: Sequence[Any] = ()
) -> Callable[[], None]:
    """A builtin that makes C calls with the interpreter's lock released; it raises DeviceLost once the device is unusable, and an error that
    begins with `doing` for a call that fails.

    Each run adds `launches` to the launches and `counts` to the counters of these names. The builtin holds what is `kept`.
    """
    return Work(device, calls, doing, launches, counts or {}, kept).builtin()
