"""What wgpu's errors mean, what usually causes them, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.drivers.errors import DeviceLost, DriverError, OutOfMemory, Status

__all__ = ["STATUSES", "failure"]


_LOST: Final = "lost"

# wgpu-py's class of error, or `lost` -> row.
STATUSES: Final[Mapping[str, Status]] = {
    _LOST: Status(DeviceLost, "the device no longer answers", "a kernel ran too long, or the driver was reset", "close the device and ask again"),
    "GPUOutOfMemoryError": Status(OutOfMemory, "the device has too little free memory", "buffers of this or other processes", "free buffers, or ask for less"),
    "GPUValidationError": Status(DriverError, "a call breaks a rule of WebGPU", "an adapter's limit, or a defect of ours", "report the Program"),
    "GPUPipelineError": Status(DriverError, "the driver's compiler refused the kernel", "its defect, or a limit of the adapter", "update the graphics driver"),
    "GPUInternalError": Status(DriverError, "something failed inside wgpu", "its defect, or a limit of the adapter", "update the graphics driver"),
}  # fmt: skip

_UNLISTED: Final = Status(DriverError, "", "", "look at what the driver says")
_LOST_SIGNS: Final = ("device is lost", "device lost")


def failure(error: Exception, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
    """The error for what wgpu-py raised; `doing` says what was tried ("wgpu:0 cannot allocate 12 bytes"), `otherwise` is the class
    where that alone does not tell what the caller should do."""
    message = " ".join(str(error).split())
    name = _LOST if any(sign in message.lower() for sign in _LOST_SIGNS) else type(error).__name__
    return STATUSES.get(name, _UNLISTED).failure(doing, message, otherwise)
