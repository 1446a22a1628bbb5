"""What wgpu's errors mean, what usually causes them, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vyre_py.drivers.errors import DeviceLost, DriverError, OutOfMemory

__all__ = ["STATUSES", "Status", "failure"]


@dataclass(frozen=True, slots=True)
class Status:
    """A row: the class of error that the caller can branch on, and three sentences for people."""

    error: type[DriverError]
    meaning: str
    cause: str
    remedy: str


_LOST: Final = "lost"

# wgpu-py's class of error, or `lost` -> row.
STATUSES: Final[Mapping[str, Status]] = {
    _LOST: Status(DeviceLost, "the device no longer answers", "a driver that was reset, a kernel that ran too long, or an unplugged device", "close the device and ask for it again; what was resident on it is gone"),
    "GPUOutOfMemoryError": Status(OutOfMemory, "the device has too little free memory", "buffers of this process or of others", "free buffers, or ask for less"),
    "GPUValidationError": Status(DriverError, "a call breaks a rule of WebGPU", "a limit of this adapter, or a defect of ours", "report the Program and the arguments"),
    "GPUPipelineError": Status(DriverError, "the driver's compiler refused the kernel", "a defect of the graphics driver, or a limit of this adapter", "update the graphics driver"),
    "GPUInternalError": Status(DriverError, "something failed inside the implementation", "a defect of the graphics driver, or a limit of this adapter", "update the graphics driver"),
}  # fmt: skip

_UNLISTED: Final = Status(DriverError, "", "", "look at what the driver says")
_LOST_SIGNS: Final = ("device is lost", "device lost")


def failure(error: Exception, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
    """The error for what wgpu-py raised; `doing` says what was tried ("wgpu:0 cannot allocate 12 bytes"), `otherwise` is the class
    where that alone does not tell what the caller should do."""
    message = " ".join(str(error).split())
    name = _LOST if any(sign in message.lower() for sign in _LOST_SIGNS) else type(error).__name__
    row = STATUSES.get(name, _UNLISTED)
    kind = otherwise if row.error is DriverError else row.error
    return kind(doing, status=message, meaning=row.meaning, cause=row.cause, remedy=row.remedy)
