"""A stand-in for `cuda.bindings.driver`: memory on the host, launches recorded, statuses on demand.

Device memory is host memory, so a test may give a kernel's meaning as a Python function over its parameters' addresses.
"""

from __future__ import annotations

import ctypes
import enum
import struct
import threading
from types import SimpleNamespace

CUresult = enum.IntEnum(
    "CUresult",
    {
        "CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_NO_DEVICE": 100, "CUDA_ERROR_INVALID_CONTEXT": 201,
        "CUDA_ERROR_INVALID_PTX": 218, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": 221, "CUDA_ERROR_JIT_COMPILATION_DISABLED": 223, "CUDA_ERROR_NOT_READY": 600,
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": 704, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": 906,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222, "CUDA_ERROR_INVALID_HANDLE": 400, "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
        "CUDA_ERROR_NOT_SUPPORTED": 801, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": 900, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": 901,
    },
)
OK = (CUresult.CUDA_SUCCESS,)
CONTEXT = 77
# Calls that need no context.
ANYWHERE = {
    "cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceTotalMem",
    "cuDeviceCanAccessPeer", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuGetProcAddress", "cuCtxGetCurrent", "cuCtxSetCurrent",
    "cuCtxPushCurrent", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode", "cuGraphGetNodes", "cuGraphDestroy",
    "cuTensorMapEncodeTiled",
}  # fmt: skip
DESCRIPTION = struct.Struct("<Q3I4x5Q4Q5H22x")
MODULE = 1 << 20  # the handle of all modules that are loaded with options; no stream or event gets so far


class Names:
    """Any name of an enum, as itself."""

    def __getattr__(self, name):
        return name


class FakeDriver:
    """The calls that the driver's modules make; `log` lists them, `fail[name]` is the statuses that the next calls of that name give."""

    def __init__(self, capability=(9, 0), pools=1, total=1 << 20):
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": capability[0], "COMPUTE_CAPABILITY_MINOR": capability[1], "MAX_GRID_DIM_X": 2**31 - 1, "MAX_GRID_DIM_Y": 65535,
            "MAX_GRID_DIM_Z": 65535, "MAX_THREADS_PER_BLOCK": 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MEMORY_POOLS_SUPPORTED": pools,
            "MULTIPROCESSOR_COUNT": 4, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "COOPERATIVE_LAUNCH": 1, "CLUSTER_LAUNCH": 1, "INTEGRATED": 0,
            "ECC_ENABLED": 1, "L2_CACHE_SIZE": 1 << 20, "CLOCK_RATE": 1980000, "MEMORY_CLOCK_RATE": 3201000, "GLOBAL_MEMORY_BUS_WIDTH": 6144,
            "WARP_SIZE": 32, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
        }
        self.total, self.used = total, 0
        self.blocks = {}
        self.log, self.fail, self.launches = [], {}, []
        self.elsewhere = []  # calls that were made where another context was current
        self.extended = []  # of launches with attributes: number of the attribute -> its three values
        self.kernel = None
        self.current = threading.local()
        self.CUdevice_attribute = self.CUfunction_attribute = self.CUmemPool_attribute = self.CUjit_option = Names()
        self.CUmemAllocationType = self.CUmemAllocationHandleType = self.CUmemLocationType = Names()
        self.CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
        self.CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2, CU_EVENT_DEFAULT=0, CU_EVENT_BLOCKING_SYNC=1)
        self.CUstream = self.cuuint64_t = int
        self.CUpointer_attribute = self.CUmemAccess_flags = Names()
        self.CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_HOST=1, CU_MEMORYTYPE_DEVICE=2)
        self.CU_MEMHOSTALLOC_PORTABLE, self.CU_MEMHOSTALLOC_DEVICEMAP = 1, 2
        self.CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0, CU_STREAM_CAPTURE_STATUS_ACTIVE=1)
        self.pinned = {}
        self.captured = set()  # streams of others that are being captured
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_GLOBAL=0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1, CU_STREAM_CAPTURE_MODE_RELAXED=2)
        self.modes = threading.local()
        self.CUresult = CUresult
        self.CUlaunchAttributeID = SimpleNamespace(
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6,
        )
        self.natives = {}
        self.oldest_driver = False  # whether the driver refuses code for sm_120
        self.handles = 4
        self.alive_handles = {}

    def CUmemPoolProps(self):
        return SimpleNamespace(location=SimpleNamespace())

    def CUmemAccessDesc(self):
        return SimpleNamespace(location=SimpleNamespace())

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or name in ("cuuint64_t", "current", "cuGetProcAddress"):
            return found

        def call(*arguments):
            self.log.append(name)
            waiting = self.fail.get(name)
            if status := (waiting.pop(0) if waiting else None) or self.refusal(name):
                return (status, *[None] * (name in GIVES))
            return found(*arguments)

        return call

    def refusal(self, name):
        """The status of a call that may not be made now: where another context is current in this thread, or none."""
        if name in ANYWHERE or getattr(self.current, "context", 0) == CONTEXT:
            return None
        self.elsewhere.append(name)
        return CUresult.CUDA_ERROR_INVALID_CONTEXT

    def cuInit(self, flags):
        return OK

    def cuDeviceGetCount(self):
        return *OK, 1

    def cuDriverGetVersion(self):
        return *OK, 13000

    def cuDeviceGet(self, ordinal):
        return *OK, ordinal

    def cuDeviceGetName(self, length, device):
        return *OK, b"Fake GPU\0\0"

    def cuDeviceGetPCIBusId(self, length, device):
        return *OK, b"0000:01:00.0\0\0"

    def cuDeviceCanAccessPeer(self, device, other):
        return *OK, 1

    def cuModuleLoadData(self, image):
        if b"sm_120" in image and self.oldest_driver:
            return CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, None
        return self.made("module")

    def cuDeviceTotalMem(self, device):
        return *OK, self.total

    def cuDeviceGetAttribute(self, attribute, device):
        return *OK, self.attributes[attribute.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device):
        return *OK, CONTEXT

    def cuDevicePrimaryCtxRelease(self, device):
        return OK

    def cuCtxSetCurrent(self, context):
        self.current.context = context
        return OK

    def cuCtxPushCurrent(self, context):
        below = getattr(self.current, "context", None)
        self.current.below = [*getattr(self.current, "below", []), below]
        self.current.context = context
        return OK

    def cuCtxPopCurrent(self, popped=0):
        *self.current.below, self.current.context = self.current.below
        return *OK, CONTEXT

    def cuCtxSynchronize(self):
        return OK

    def made(self, what):
        """A new handle, which has to be destroyed."""
        self.handles += 1
        self.alive_handles[self.handles] = what
        return *OK, self.handles

    def destroyed(self, handle):
        del self.alive_handles[int(handle)]
        return OK

    def cuStreamCreate(self, flags):
        return self.made("stream")

    def cuStreamDestroy(self, stream):
        return self.destroyed(stream)

    def cuEventCreate(self, flags):
        return self.made("event")

    def cuEventDestroy(self, event):
        return self.destroyed(event)

    def cuEventRecord(self, event, stream):
        return OK

    def cuEventSynchronize(self, event):
        return OK

    def cuEventQuery(self, event):
        return OK

    def cuEventElapsedTime(self, begin, end):
        return *OK, 0.0125  # milliseconds

    def cuStreamWaitEvent(self, stream, event, flags):
        return OK

    def cuCtxGetCurrent(self):
        return *OK, getattr(self.current, "context", 0)

    def cuGetProcAddress(self, symbol, version, flags):
        """The address of a C function that makes the call here."""
        name = symbol.decode()
        if name not in self.natives:
            count, call = NATIVE[name], getattr(self, name)
            self.natives[name] = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * count)(lambda *given: int(call(*given)[0]))
        return *OK, ctypes.cast(self.natives[name], ctypes.c_void_p).value, 0

    def cuTensorMapEncodeTiled(self, place, of_type, rank, address, extents, pitches, box, strides, interleave, swizzle, promotion, fill):
        """What it is given, in 128 bytes (`described`), where that keeps the driver's rules."""
        of_type, rank, interleave, swizzle, promotion, fill = [word & 0xFFFFFFFF for word in (of_type, rank, interleave, swizzle, promotion, fill)]
        extents, pitches = list((ctypes.c_uint64 * rank).from_address(extents)), list((ctypes.c_uint64 * (rank - 1)).from_address(pitches))
        box, strides = [list((ctypes.c_uint32 * rank).from_address(words)) for words in (box, strides)]
        row = box[0] << of_type
        keeps = place % 64 == 0 and address % 16 == 0 and all(pitch % 16 == 0 and pitch < 1 << 40 for pitch in pitches) and 3 <= rank + 1 <= 6
        keeps = keeps and all(0 < extent <= 1 << 32 for extent in extents) and all(0 < extent <= 256 for extent in box) and row % 16 == 0
        if not keeps or strides != [1] * rank or row > 16 << swizzle or interleave or fill or of_type > 2 or promotion > 3:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        words = (address, of_type, rank, swizzle, *extents, *[0] * (5 - rank), *pitches, *[0] * (5 - rank), *box, *[0] * (5 - rank))
        ctypes.memmove(place, DESCRIPTION.pack(*words), DESCRIPTION.size)
        return OK

    def cuStreamSynchronize(self, stream):
        return OK

    def cuStreamQuery(self, stream):
        return OK

    def cuMemPoolCreate(self, properties):
        return *OK, 9

    def cuMemPoolSetAttribute(self, pool, attribute, value):
        return OK

    def cuMemPoolTrimTo(self, pool, size):
        return OK

    def cuMemPoolDestroy(self, pool):
        return OK

    def cuMemAlloc(self, size):
        if self.used + size > self.total:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        block = ctypes.create_string_buffer(b"\xaa" * size, size)
        address = ctypes.addressof(block)
        self.blocks[address] = block
        self.used += size
        return *OK, address

    def cuMemAllocFromPoolAsync(self, size, pool, stream):
        return self.__class__.cuMemAlloc(self, size)

    def cuMemFree(self, address):
        self.used -= len(self.blocks.pop(address))
        return OK

    def cuMemFreeAsync(self, address, stream):
        return self.__class__.cuMemFree(self, address)

    def cuMemHostAlloc(self, size, flags):
        block = ctypes.create_string_buffer(b"\xbb" * size, size)
        self.pinned[ctypes.addressof(block)] = block
        return *OK, ctypes.addressof(block)

    def cuMemHostGetDevicePointer(self, address, flags):
        return *OK, address

    def cuMemFreeHost(self, address):
        del self.pinned[address]
        return OK

    def cuMemGetInfo(self):
        return *OK, self.total - self.used, self.total

    def cuPointerGetAttribute(self, attribute, address):
        assert attribute == "CU_POINTER_ATTRIBUTE_MEMORY_TYPE"
        for kind, blocks in ((1, self.pinned), (2, self.blocks)):
            if any(at <= address < at + len(block) for at, block in list(blocks.items())):
                return *OK, kind
        return CUresult.CUDA_ERROR_INVALID_VALUE, None

    def cuMemPoolSetAccess(self, pool, accesses, count):
        assert len(accesses) == count
        return OK

    def cuCtxEnablePeerAccess(self, context, flags):
        return OK

    def cuMemcpyPeerAsync(self, target, target_context, source, source_context, size, stream):
        return self.__class__.cuMemcpyHtoDAsync(self, target, source, size, stream)

    def cuStreamIsCapturing(self, stream):
        return *OK, int(stream in self.captured)

    def cuThreadExchangeStreamCaptureMode(self, mode):
        before = getattr(self.modes, "mode", 1)
        self.modes.mode = mode
        return *OK, before

    def cuMemsetD32Async(self, address, value, count, stream):
        ctypes.memmove(address, value.to_bytes(4, "little") * count, 4 * count)
        return OK

    def cuMemsetD16Async(self, address, value, count, stream):
        ctypes.memmove(address, value.to_bytes(2, "little") * count, 2 * count)
        return OK

    def cuMemsetD8Async(self, address, value, size, stream):
        ctypes.memset(address, value, size)
        return OK

    def cuMemcpyHtoDAsync(self, target, source, size, stream):
        ctypes.memmove(target, source, size)
        return OK

    def cuMemcpyDtoHAsync(self, target, source, size, stream):
        return self.__class__.cuMemcpyHtoDAsync(self, target, source, size, stream)

    def cuMemcpyDtoDAsync(self, target, source, size, stream):
        return self.__class__.cuMemcpyHtoDAsync(self, target, source, size, stream)

    def cuModuleLoadDataEx(self, image, count, options, values):
        assert image.endswith(b"\0") and count == len(options) == len(values)
        if b"broken" in image:
            values[0][:11] = b"line 3: no\0"
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        return *OK, MODULE

    def cuModuleGetFunction(self, module, name):
        return *OK, 12

    def cuModuleUnload(self, module):
        return self.destroyed(module) if module in self.alive_handles else OK

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, invocations, dynamic_bytes):
        return *OK, min(2048 // invocations, (228 << 10) // (dynamic_bytes + 1024))

    def cuFuncSetAttribute(self, function, attribute, value):
        return OK

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
        self.launches.append(((gx, gy, gz), (bx, by, bz), shared, stream))
        if self.kernel is not None:
            words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_uint64))
            assert (words[0], words[2], words[4]) == (1, 2, 0)
            self.kernel(ctypes.string_at(words[1], ctypes.c_uint64.from_address(words[3]).value))
        return OK

    def cuLaunchKernelEx(self, config, function, pointers, extra):
        *numbers, stream, attributes, count = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        found = [struct.unpack("<I4x3I52x", ctypes.string_at(attributes + 72 * k, 72)) for k in range(count)]
        self.extended.append({number: value for number, *value in found})
        return self.__class__.cuLaunchKernel(self, function, *numbers, stream, pointers, extra)


# Calls that native code makes, and how many arguments they have.
NATIVE = {
    "cuLaunchKernel": 11, "cuLaunchKernelEx": 4, "cuStreamSynchronize": 1, "cuMemcpyHtoDAsync": 4, "cuMemcpyDtoHAsync": 4, "cuMemcpyDtoDAsync": 4,
    "cuMemsetD8Async": 4, "cuMemsetD16Async": 4, "cuMemsetD32Async": 4, "cuEventSynchronize": 1, "cuEventRecord": 2, "cuCtxPushCurrent": 1,
    "cuCtxPopCurrent": 1, "cuTensorMapEncodeTiled": 12,
}

# Calls that give something after the status.
GIVES = {
    "cuDeviceGetCount", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
    "cuStreamCreate", "cuEventCreate", "cuCtxGetCurrent", "cuMemPoolCreate", "cuMemAlloc", "cuMemAllocFromPoolAsync", "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuDeviceGetPCIBusId", "cuMemHostAlloc", "cuMemHostGetDevicePointer", "cuPointerGetAttribute",
    "cuEventElapsedTime", "cuDeviceCanAccessPeer", "cuThreadExchangeStreamCaptureMode", "cuModuleLoadData", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
}


def described(description):
    """What a description of boxes is of: the address; the bytes of an element and of a swizzled row; extents, pitches and box, the innermost first."""
    address, of_type, rank, swizzle, *words = DESCRIPTION.unpack(description)
    extents, pitches, box = tuple(words[:5]), tuple(words[5:9]), tuple(words[9:])
    return address, 1 << of_type, 16 << swizzle, extents[:rank], pitches[: rank - 1], box[:rank]
