"""Native call lists that raise what goes wrong: for fixed work such as staging copies, waits and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.cuda.native import Call, CallList
from vyre_py.drivers.errors import LaunchError

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["native_call"]


class _Work:
    """A list, what it is for, and what it counts."""

    __slots__ = ("__weakref__", "_calls", "_device", "_doing", "_kept", "_record")

    def __init__(self, device: CudaDevice, calls: Sequence[Call], doing: str, launches: int, counts: Mapping[str, int], kept: Sequence[Any]) -> None:
        self._device, self._doing, self._kept = device, doing, tuple(kept)
        self._record = device.telemetry.record(**counts)
        counters = ((device.telemetry.address("launches"), launches), (self._record.address, 1))
        self._calls = CallList(calls, self.trouble, device.context.mode_address, [], counters)

    def trouble(self, index: int, status: int) -> None:
        self._device.require_usable()
        self._device.context.recover(self._calls, index, status, self._doing, LaunchError)

    def builtin(self) -> Callable[[], None]:
        return self._calls.builtin()


def native_call(
    device: CudaDevice, calls: Sequence[Call], doing: str, *, launches: int = 0, counts: Mapping[str, int] | None = None, kept: Sequence[Any] = ()
) -> Callable[[], None]:
    """A builtin that makes C calls with the interpreter's lock released; it raises DeviceLost once the device is unusable, and an error that
    begins with `doing` for a call that fails.

    Each run adds `launches` to the launches and `counts` to the counters of these names. The builtin holds what is `kept`.
    """
    return _Work(device, calls, doing, launches, counts or {}, kept).builtin()
