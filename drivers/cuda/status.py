"""What the driver's status codes mean, what usually causes them, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory, Status

__all__ = ["STATUSES", "failure"]


_NEW_PROCESS: Final = "start a new process; what was resident on the device is lost"
_REPORT: Final = "this is a defect: report the Program and the arguments"
_DRIVER: Final = "update NVIDIA's display driver"

# DeviceLost stands where the context answers every later call with the same status, so that only a new process recovers.
STATUSES: Final[Mapping[str, Status]] = {
    "CUDA_ERROR_INVALID_VALUE": Status(DriverError, "an argument of the call is out of range",
        "a size, a grid or an address that the driver refuses", _REPORT),
    "CUDA_ERROR_OUT_OF_MEMORY": Status(OutOfMemory, "the device has too little free memory",
        "buffers of this process, or of another on the same device", "free buffers, call device.trim(), or ask for less"),
    "CUDA_ERROR_NOT_INITIALIZED": Status(DeviceUnavailable, "the driver was not initialised",
        "the process was forked after CUDA was used", "use the start method 'spawn' for worker processes"),
    "CUDA_ERROR_DEINITIALIZED": Status(DeviceLost, "the driver has shut down",
        "the process is ending", "finish work on the device before the interpreter exits"),
    "CUDA_ERROR_STUB_LIBRARY": Status(DeviceUnavailable, "a stub stands in for the driver library",
        "the toolkit's stubs folder is on the library path", "take it off LD_LIBRARY_PATH"),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": Status(DeviceUnavailable, "the device is taken",
        "another process holds it in exclusive mode", "wait, or choose another device"),
    "CUDA_ERROR_NO_DEVICE": Status(DeviceUnavailable, "no CUDA device is here",
        "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it", "look at nvidia-smi and CUDA_VISIBLE_DEVICES"),
    "CUDA_ERROR_INVALID_DEVICE": Status(DeviceUnavailable, "there is no device of this number",
        "CUDA_VISIBLE_DEVICES hides it", "vyre_py.devices() lists what is here"),
    "CUDA_ERROR_INVALID_IMAGE": Status(DriverError, "the code is no module",
        "a damaged artifact", "compile it again"),
    "CUDA_ERROR_INVALID_CONTEXT": Status(DriverError, "no usable context is current in this thread",
        "the context was destroyed, or the process was forked", "use the start method 'spawn' for worker processes"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": Status(DriverError, "the code is for another GPU",
        "an artifact compiled for a newer architecture", "compile it for this device's target"),
    "CUDA_ERROR_ECC_UNCORRECTABLE": Status(DeviceLost, "the device's memory failed",
        "a hardware fault", "reset or replace the GPU; nvidia-smi -q shows its errors"),
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": Status(DeviceLost, "an NVLink connection failed",
        "a hardware fault", "reset the GPU; nvidia-smi nvlink -e shows its errors"),
    "CUDA_ERROR_INVALID_PTX": Status(DriverError, "the driver's compiler refused the PTX",
        "the driver is older than the code, or the code is wrong", _DRIVER),
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": Status(DriverError, "the driver's PTX compiler is missing",
        "libnvidia-ptxjitcompiler is not installed (often in containers)", "install the whole driver, or give the container the capability 'compute'"),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": Status(DriverError, "the PTX is newer than the driver",
        "an old driver", _DRIVER),
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": Status(DriverError, "the driver may not compile PTX",
        "CUDA_DISABLE_PTX_JIT is set", "unset it"),
    "CUDA_ERROR_OPERATING_SYSTEM": Status(DeviceUnavailable, "a call to the operating system failed",
        "missing rights on /dev/nvidia*, or a limit of the process", "look at dmesg and at the rights of /dev/nvidia*"),
    "CUDA_ERROR_INVALID_HANDLE": Status(DriverError, "a handle is not known to the context",
        "a stream that was destroyed, or one of another device", "launch on a live stream of the pipeline's own device"),
    "CUDA_ERROR_NOT_FOUND": Status(DriverError, "the symbol is not in the module",
        "a damaged artifact", "compile it again"),
    "CUDA_ERROR_ILLEGAL_ADDRESS": Status(DeviceLost, "a kernel touched memory that is not its own",
        "a buffer freed under a launch, or a defect of the compiler", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": Status(LaunchError, "a workgroup needs more registers or memory than there are",
        "a large workgroup over a Program with many live values", "compile with a smaller workgroup (CompileOptions.workgroup)"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": Status(DeviceLost, "the kernel ran longer than the display's watchdog allows",
        "a long or endless loop on a GPU that drives a display", f"split the work; {_NEW_PROCESS}"),
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": Status(DeviceLost, "the context was destroyed",
        "other code in this process reset the device", _NEW_PROCESS),
    "CUDA_ERROR_ASSERT": Status(DeviceLost, "an assertion in a kernel failed",
        "other code in this process", _NEW_PROCESS),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": Status(DeviceLost, "a kernel's stack overflowed or broke",
        "a defect of the compiler, or a hardware fault", _NEW_PROCESS),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": Status(DeviceLost, "a kernel met an instruction that the GPU lacks",
        "a defect of the compiler", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": Status(DeviceLost, "a kernel's access was not aligned",
        "memory of other code that is not aligned to its elements", _NEW_PROCESS),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": Status(DeviceLost, "a kernel used an address in the wrong space",
        "a defect of the compiler", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_INVALID_PC": Status(DeviceLost, "a kernel jumped outside its code",
        "a defect of the compiler, or a hardware fault", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_LAUNCH_FAILED": Status(DeviceLost, "a kernel failed while it ran",
        "a fault that the device can't name", _NEW_PROCESS),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": Status(LaunchError, "the workgroups of a cooperative launch do not run at once",
        "other work of this process's share of the GPU (MPS, green contexts)", "give a smaller grid (DispatchConfig.grid), and a loop over the elements"),
    "CUDA_ERROR_NOT_PERMITTED": Status(DriverError, "the call is not allowed now",
        "other code captures a graph in this process", "end the capture first"),
    "CUDA_ERROR_NOT_SUPPORTED": Status(DriverError, "the device or driver lacks this",
        "an old driver, or a virtual GPU", _DRIVER),
    "CUDA_ERROR_SYSTEM_NOT_READY": Status(DeviceUnavailable, "the system's GPU services are not running",
        "the fabric manager or the persistence daemon is down", "start nvidia-fabricmanager"),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": Status(DeviceUnavailable, "driver library and kernel module are of different versions",
        "the driver was updated without a restart", "restart the machine"),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": Status(DeviceUnavailable, "the compatibility library does not serve this GPU",
        "a compat folder is on the library path", "take it off LD_LIBRARY_PATH"),
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": Status(DriverError, "the call can't become part of a graph",
        "other code captures the stream that a launch goes to", "end the capture first"),
    "CUDA_ERROR_UNKNOWN": Status(DeviceLost, "something failed inside the driver",
        "often a driver that has to be loaded again", f"{_NEW_PROCESS}; then restart the machine"),
}  # fmt: skip

_UNLISTED: Final = Status(DriverError, "", "", "look the status up in NVIDIA's documentation of CUresult")


def failure(status: Any, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
    """The error for a status other than success; `doing` says what was tried ("cuda:0 cannot allocate 12 bytes"), `otherwise` is the
    class where the status alone does not tell what the caller should do."""
    return STATUSES.get(status.name, _UNLISTED).failure(doing, f"{status.name} ({int(status)})", otherwise)
