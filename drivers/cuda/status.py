"""What the driver's status codes mean, what usually causes them, and what helps.

Every member of CUresult is in `STATUSES`, or in `UNREACHABLE` with the reason why no user of this package meets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory, Status

__all__ = ["NOT_READY", "STATUSES", "UNREACHABLE", "failure"]

NOT_READY: Final = "CUDA_ERROR_NOT_READY"  # what a question gets while work runs, which is no failure

_NEW_PROCESS: Final = "start a new process; what was resident on the device is lost"
_REPORT: Final = "this is a defect: report the Program and the arguments"
_DRIVER: Final = "update NVIDIA's display driver"
_AGAIN: Final = "compile it again"
_SPAWN: Final = "use the start method 'spawn' for worker processes"
_MPS: Final = "look at the logs of the MPS control daemon, or run without it"
_CAPTURE: Final = "end the capture first"
_CAPTURED: Final = "other code captures the stream that a launch goes to"
_HARDWARE: Final = "a hardware fault"
_COMPILER: Final = "a defect of the compiler"
_PATH: Final = "take it off LD_LIBRARY_PATH"

# DeviceLost stands where the context answers every later call with the same status, so that only a new process recovers.
STATUSES: Final[Mapping[str, Status]] = {
    # ---- arguments, memory, and what is asked of the library itself
    "CUDA_ERROR_INVALID_VALUE": Status(DriverError, "an argument of the call is out of range",
        "a size, a grid or an address that the driver refuses", _REPORT),
    "CUDA_ERROR_OUT_OF_MEMORY": Status(OutOfMemory, "the device has too little free memory",
        "buffers of this process, or of another on the same device", "free buffers, call device.trim(), or ask for less"),
    "CUDA_ERROR_NOT_INITIALIZED": Status(DeviceUnavailable, "the driver was not initialised",
        "the process was forked after CUDA was used", _SPAWN),
    "CUDA_ERROR_DEINITIALIZED": Status(DeviceLost, "the driver has shut down",
        "the process is ending", "finish work on the device before the interpreter exits"),
    "CUDA_ERROR_STUB_LIBRARY": Status(DeviceUnavailable, "a stub stands in for the driver library",
        "the toolkit's stubs folder is on the library path", _PATH),
    "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": Status(DriverError, "the call is newer than the driver",
        "an old driver", _DRIVER),
    "CUDA_ERROR_INVALID_HANDLE": Status(DriverError, "a handle is not known to the context",
        "a stream that was destroyed, or one of another device", "launch on a live stream of the pipeline's own device"),
    "CUDA_ERROR_ILLEGAL_STATE": Status(DriverError, "a resource is not in a state for this call",
        "an event or stream of another library that was not used as CUDA asks", "order the libraries by device.record_event and wait_event"),
    "CUDA_ERROR_NOT_READY": Status(DriverError, "what was asked about is not done",
        "an answer that came before its event", _REPORT),
    "CUDA_ERROR_NOT_PERMITTED": Status(DriverError, "the call is not allowed now",
        "other code captures a graph in this process", _CAPTURE),
    "CUDA_ERROR_NOT_SUPPORTED": Status(DriverError, "the device or driver lacks this",
        "an old driver, or a virtual GPU", _DRIVER),
    "CUDA_ERROR_MAP_FAILED": Status(DriverError, "memory could not be mapped",
        "too little address space, or a limit on locked memory (ulimit -l)", "raise the limit, or ask for less pinned memory"),
    "CUDA_ERROR_UNMAP_FAILED": Status(DriverError, "memory could not be unmapped",
        "another library still uses memory that it was lent", "finish its work before the memory goes"),
    "CUDA_ERROR_OPERATING_SYSTEM": Status(DeviceUnavailable, "a call to the operating system failed",
        "missing rights on /dev/nvidia*, or a limit of the process", "look at dmesg and at the rights of /dev/nvidia*"),
    # ---- devices, and the system's services for them
    "CUDA_ERROR_DEVICE_UNAVAILABLE": Status(DeviceUnavailable, "the device is taken",
        "another process holds it in exclusive mode", "wait, or choose another device"),
    "CUDA_ERROR_NO_DEVICE": Status(DeviceUnavailable, "no CUDA device is here",
        "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it", "look at nvidia-smi and CUDA_VISIBLE_DEVICES"),
    "CUDA_ERROR_INVALID_DEVICE": Status(DeviceUnavailable, "there is no device of this number",
        "CUDA_VISIBLE_DEVICES hides it", "vyre_py.devices() lists what is here"),
    "CUDA_ERROR_DEVICE_NOT_LICENSED": Status(DeviceUnavailable, "the virtual GPU has no licence",
        "the licence server is out of reach", "look at nvidia-smi -q, under vGPU Software Licensed Product"),
    "CUDA_ERROR_SYSTEM_NOT_READY": Status(DeviceUnavailable, "the system's GPU services are not running",
        "the fabric manager or the persistence daemon is down", "start nvidia-fabricmanager"),
    "CUDA_ERROR_FABRIC_NOT_READY": Status(DeviceUnavailable, "the GPUs' fabric is not ready yet",
        "the fabric manager is still starting", "try again later, or raise CUDA_FABRIC_INIT_TIMEOUT_MS"),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": Status(DeviceUnavailable, "driver library and kernel module are of different versions",
        "the driver was updated without a restart", "restart the machine"),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": Status(DeviceUnavailable, "the compatibility library does not serve this GPU",
        "a compat folder is on the library path", _PATH),
    "CUDA_ERROR_MPS_CONNECTION_FAILED": Status(DeviceUnavailable, "the MPS server is out of reach",
        "the MPS control daemon is not running, or CUDA_MPS_PIPE_DIRECTORY names another place", _MPS),
    "CUDA_ERROR_MPS_RPC_FAILURE": Status(DeviceLost, "the MPS server does not answer",
        "the server ended", f"{_NEW_PROCESS}; {_MPS}"),
    "CUDA_ERROR_MPS_SERVER_NOT_READY": Status(DeviceUnavailable, "the MPS server takes no clients now",
        "it recovers from the fault of another client", "try again later"),
    "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED": Status(DeviceUnavailable, "the MPS server has as many clients as it can",
        "other processes on the same GPU", "end some of them"),
    "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED": Status(DeviceUnavailable, "the GPU has as many connections as it can",
        "other processes on the same GPU, or a high CUDA_DEVICE_MAX_CONNECTIONS", "end some of them, or lower CUDA_DEVICE_MAX_CONNECTIONS"),
    "CUDA_ERROR_MPS_CLIENT_TERMINATED": Status(DeviceLost, "the MPS server ended this process's work",
        "an administrator, or the fault of another client", _NEW_PROCESS),
    "CUDA_ERROR_KEY_ROTATION": Status(DriverError, "the keys of the confidential GPU could not be exchanged for new ones",
        "the confidential computing service", "try again; then look at dmesg"),
    # ---- contexts, and other devices' memory
    "CUDA_ERROR_INVALID_CONTEXT": Status(DriverError, "no usable context is current in this thread",
        "the context was destroyed, or the process was forked", _SPAWN),
    "CUDA_ERROR_CONTEXT_ALREADY_IN_USE": Status(DeviceUnavailable, "the context belongs to another thread",
        "the GPU's compute mode lets one thread use it", "nvidia-smi -c DEFAULT sets the usual mode"),
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": Status(DeviceLost, "the context was destroyed",
        "other code in this process reset the device", _NEW_PROCESS),
    "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": Status(DriverError, "the devices do not reach each other's memory",
        "no NVLink, and a bus that does not let them", "copy through the host: read() and write()"),
    "CUDA_ERROR_TOO_MANY_PEERS": Status(DriverError, "a device reaches as many others as it can",
        "copies between many devices in one process", "use fewer devices in a process"),
    # ---- code
    "CUDA_ERROR_INVALID_IMAGE": Status(DriverError, "the code is not a module",
        "a damaged artifact", _AGAIN),
    "CUDA_ERROR_INVALID_SOURCE": Status(DriverError, "the code is not a source that the driver knows",
        "a damaged artifact", _AGAIN),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": Status(DriverError, "the code is for another GPU",
        "an artifact compiled for a newer architecture", "compile it for this device's target"),
    "CUDA_ERROR_INVALID_PTX": Status(DriverError, "the driver's compiler refused the PTX",
        "the driver is older than the code, or the code is wrong", _DRIVER),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": Status(DriverError, "the PTX is newer than the driver",
        "an old driver", _DRIVER),
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": Status(DriverError, "the driver's PTX compiler is missing",
        "libnvidia-ptxjitcompiler is not installed (often in containers)", "install the whole driver, or give the container the capability 'compute'"),
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": Status(DriverError, "the driver may not compile PTX",
        "CUDA_DISABLE_PTX_JIT is set", "unset it"),
    "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC": Status(DriverError, "raw code waits for kernels that it launches, which GPUs no longer do",
        "code that calls cudaDeviceSynchronize in a kernel", "launch the parts one after the other from the host"),
    "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION": Status(DriverError, "the code is packed in a newer way than the driver knows",
        "an old driver", _DRIVER),
    "CUDA_ERROR_CDP_NOT_SUPPORTED": Status(DriverError, "raw code launches kernels, which is not possible here",
        "MPS, which does not do that", "run without MPS, or launch from the host"),
    "CUDA_ERROR_CDP_VERSION_MISMATCH": Status(DriverError, "raw code mixes two ways to launch kernels from kernels",
        "parts compiled by different toolkits", "compile all of it with one"),
    "CUDA_ERROR_NOT_FOUND": Status(DriverError, "the symbol is not in the module",
        "a damaged artifact", _AGAIN),
    "CUDA_ERROR_FILE_NOT_FOUND": Status(DriverError, "the driver misses a file of its own",
        "a driver that is installed in part (often in containers)", "install the whole driver"),
    "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND": Status(DriverError, "two libraries of the driver do not fit together",
        "parts of several driver versions on the library path", "install the driver anew"),
    "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED": Status(DriverError, "a library of the driver could not be started",
        "a driver that is installed in part", "install the driver anew"),
    "CUDA_ERROR_FUNCTION_NOT_LOADED": Status(DriverError, "the kernel is not loaded yet",
        "CUDA_MODULE_LOADING=LAZY", "set CUDA_MODULE_LOADING=EAGER"),
    # ---- launches
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": Status(LaunchError, "a workgroup needs more registers or memory than there are",
        "a large workgroup over a Program with many live values", "compile with a smaller workgroup (CompileOptions.workgroup)"),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": Status(LaunchError, "the workgroups of a cooperative launch do not run at once",
        "other work of this process's share of the GPU (MPS, green contexts)", "give a smaller grid (DispatchConfig.grid), and a loop over the elements"),
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": Status(LaunchError, "the clusters can't be made",
        "a cluster that is larger than the device runs, given the kernel's registers and memory", "give a smaller one (DispatchConfig.cluster)"),
    "CUDA_ERROR_STREAM_DETACHED": Status(LaunchError, "the stream has lost its part of the device",
        "its green context was destroyed", "launch on a live stream"),
    # ---- kernels that failed, and hardware: nothing works after these
    "CUDA_ERROR_ILLEGAL_ADDRESS": Status(DeviceLost, "a kernel touched memory that is not its own",
        "a buffer freed under a launch, or a defect of the compiler", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": Status(DeviceLost, "the kernel ran longer than the display's watchdog allows",
        "a long or endless loop on a GPU that drives a display", f"split the work; {_NEW_PROCESS}"),
    "CUDA_ERROR_ASSERT": Status(DeviceLost, "an assertion in a kernel failed",
        "other code in this process", _NEW_PROCESS),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": Status(DeviceLost, "a kernel's stack overflowed or broke",
        f"{_COMPILER}, or {_HARDWARE}", _NEW_PROCESS),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": Status(DeviceLost, "a kernel met an instruction that the GPU lacks",
        _COMPILER, f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": Status(DeviceLost, "a kernel's access was not aligned",
        "memory of other code that is not aligned to its elements", _NEW_PROCESS),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": Status(DeviceLost, "a kernel used an address in the wrong space",
        _COMPILER, f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_INVALID_PC": Status(DeviceLost, "a kernel jumped outside its code",
        f"{_COMPILER}, or {_HARDWARE}", f"{_NEW_PROCESS}; {_REPORT}"),
    "CUDA_ERROR_LAUNCH_FAILED": Status(DeviceLost, "a kernel failed while it ran",
        "a fault that the device can't name", _NEW_PROCESS),
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": Status(DeviceLost, "a kernel ended without giving its tensor memory back",
        "raw code that allocates it", _NEW_PROCESS),
    "CUDA_ERROR_ECC_UNCORRECTABLE": Status(DeviceLost, "the device's memory failed",
        _HARDWARE, "reset or replace the GPU; nvidia-smi -q shows its errors"),
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": Status(DeviceLost, "an NVLink connection failed",
        _HARDWARE, "reset the GPU; nvidia-smi nvlink -e shows its errors"),
    "CUDA_ERROR_CONTAINED": Status(DeviceLost, "the device stopped this process's work after a fault",
        "an access to another GPU's memory that failed, or a hardware fault", f"{_NEW_PROCESS}; nvidia-smi -q shows the device's errors"),
    "CUDA_ERROR_EXTERNAL_DEVICE": Status(DeviceLost, "a device beside the GPU failed",
        "hardware that hands data to the GPU", _NEW_PROCESS),
    "CUDA_ERROR_UNKNOWN": Status(DeviceLost, "something failed inside the driver",
        "often a driver that has to be loaded again", f"{_NEW_PROCESS}; then restart the machine"),
    # ---- captures and graphs
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": Status(DriverError, "the call can't become part of a graph",
        _CAPTURED, _CAPTURE),
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": Status(LaunchError, "the capture was broken off",
        "a call in the captured function that can't become part of a graph, such as a wait", "make such calls before the capture, or after it"),
    "CUDA_ERROR_STREAM_CAPTURE_MERGE": Status(LaunchError, "two captures would become one",
        "two streams that are both captured, and an event between them", "capture one after the other"),
    "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED": Status(LaunchError, "the capture did not begin on this stream",
        "other code ended or began a capture on the device's stream", "let device.capture begin and end it"),
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": Status(LaunchError, "a stream that the capture forked to was not joined",
        "an event that leads to another stream, and none that leads back",
        "in the captured function, wait_event on the device's stream for an event of the other"),
    "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": Status(LaunchError, "the graph would depend on work outside it",
        "an event that was recorded before the capture", "record the event in the captured function"),
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": Status(LaunchError, "the legacy default stream waits for a captured one",
        "other code uses the default stream during a capture", "use a stream that does not block (device.stream())"),
    "CUDA_ERROR_CAPTURED_EVENT": Status(LaunchError, "the event is part of a graph",
        "an event recorded in a capture, waited for outside", "record another after the replay"),
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": Status(LaunchError, "another thread began the capture",
        "a captured function that goes on in another thread", "launch in the thread that captures"),
    "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE": Status(LaunchError, "the graph can't be changed in this way",
        "a driver that allows less", "capture it again"),
}  # fmt: skip

_GRAPHICS: Final = "graphics interoperation is not used"
_PROFILER: Final = "the profiler's calls are not made"
_GREEN: Final = "no green contexts are made"
_REGISTER: Final = "no host memory is registered: page-locked memory is allocated"

# Why the others cannot occur here.
UNREACHABLE: Final[Mapping[str, str]] = {
    "CUDA_SUCCESS": "it is not a failure",
    "CUDA_ERROR_PROFILER_DISABLED": _PROFILER,
    "CUDA_ERROR_PROFILER_NOT_INITIALIZED": _PROFILER,
    "CUDA_ERROR_PROFILER_ALREADY_STARTED": _PROFILER,
    "CUDA_ERROR_PROFILER_ALREADY_STOPPED": _PROFILER,
    "CUDA_ERROR_MULTICAST_RESOURCE_FULL": "no multicast objects are made",
    "CUDA_ERROR_CONTEXT_ALREADY_CURRENT": "no driver since CUDA 3.2 gives it",
    "CUDA_ERROR_ARRAY_IS_MAPPED": _GRAPHICS,
    "CUDA_ERROR_ALREADY_MAPPED": _GRAPHICS,
    "CUDA_ERROR_ALREADY_ACQUIRED": _GRAPHICS,
    "CUDA_ERROR_NOT_MAPPED": _GRAPHICS,
    "CUDA_ERROR_NOT_MAPPED_AS_ARRAY": _GRAPHICS,
    "CUDA_ERROR_NOT_MAPPED_AS_POINTER": _GRAPHICS,
    "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT": _GRAPHICS,
    "CUDA_ERROR_UNSUPPORTED_LIMIT": "no limits of a context are set",
    "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY": "no context with an affinity is made",
    "CUDA_ERROR_LOSSY_QUERY": "the parameters of graph nodes are set, not asked for",
    "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING": "textures are not used",
    "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": "it is taken for success (`peer`)",
    "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED": "peer access is never taken back",
    "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE": "the flags of the primary context are left alone",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": _REGISTER,
    "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED": _REGISTER,
    "CUDA_ERROR_TIMEOUT": "no wait of the driver's own is given a time",
    "CUDA_ERROR_INVALID_RESOURCE_TYPE": _GREEN,
    "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION": _GREEN,
    "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE": "graphs are captured anew, never recaptured",
}

_UNLISTED: Final = Status(DriverError, "", "", "look the status up in NVIDIA's documentation of CUresult")


def failure(status: Any, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
    """The error for a status other than success; `doing` says what was tried ("cuda:0 cannot allocate 12 bytes"), `otherwise` is the
    class where the status alone does not tell what the caller should do."""
    return STATUSES.get(status.name, _UNLISTED).failure(doing, f"{status.name} ({int(status)})", otherwise)
