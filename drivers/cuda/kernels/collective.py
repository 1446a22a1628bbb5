"""Collectives through NCCL: calls of its C functions on our stream, with a communicator that another library made."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand
from vyre_py.drivers.errors import BindingError, DeviceUnavailable, DriverError, LaunchError
from vyre_py.drivers.many.collectives import CollectiveStep, Transfer
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, i8, i32, i64, u8, u32, u64
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaCollective", "NcclCommunicator", "load", "opened"]

_LIBRARY: Final = "libnccl.so.2"
_INSTALL: Final = "pip install nvidia-nccl-cu13 (or -cu12), or use the library that made the communicator with shared NCCL"

# Numbers of NCCL's interface: element types, reductions, statuses.
_ELEMENTS: Final[Mapping[Type, int]] = {i8: 0, u8: 1, i32: 2, u32: 3, i64: 4, u64: 5, f16: 6, f32: 7, f64: 8, bf16: 9}
_REDUCTIONS: Final[Mapping[str, int]] = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_STATUSES: Final[Mapping[int, tuple[str, str, str]]] = {
    1: ("ncclUnhandledCudaError", "a CUDA call of NCCL failed", ""),
    2: ("ncclSystemError", "a call of the system failed", "NCCL_DEBUG=INFO shows which"),
    3: ("ncclInternalError", "a defect within NCCL, or memory that was overwritten", "NCCL_DEBUG=INFO shows where"),
    4: ("ncclInvalidArgument", "an argument is not valid for this communicator", "NCCL_DEBUG=WARN shows which"),
    5: ("ncclInvalidUsage", "the communicator is not used as NCCL wants", "NCCL_DEBUG=WARN shows how"),
    6: ("ncclRemoteError", "another rank was lost, or the network to it", "abort the communicator everywhere, by the library that made it"),
    7: ("ncclInProgress", "the communicator does not block", "make it with blocking=1, as nccl4py, PyTorch and CuPy do unless asked otherwise"),
}  # fmt: skip
# How other libraries give the address of their communicators: nccl4py, PyTorch, CuPy.
_HANDLES: Final = ("ptr", "_comm_ptr", "comm", "_comm")
# Kind of a transfer -> NCCL's function.
_FUNCTIONS: Final[Mapping[str, str]] = {
    "all_reduce": "ncclAllReduce", "all_gather": "ncclAllGather", "reduce_scatter": "ncclReduceScatter", "broadcast": "ncclBroadcast", "send": "ncclSend",
    "receive": "ncclRecv",
}  # fmt: skip

_CUDA: Final = 2  # among DLPack's kinds of devices
_IN_PROGRESS: Final = 7
_POPPED: Final = ctypes.c_uint64()  # where the driver says which context is no longer current


@cache
def load() -> Any:
    """NCCL as this process has it, which is the one that the communicator is of; else as NVIDIA's package has it. Raises DeviceUnavailable."""
    with suppress(OSError):
        return ctypes.CDLL(_LIBRARY, mode=ctypes.DEFAULT_MODE | os.RTLD_NOLOAD)
    try:
        with importing:
            from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("nccl").abs_path)
    except Exception as error:  # what the finder raises has no class in common with what loading does
        raise DeviceUnavailable("collectives need NCCL", cause=str(error), remedy=_INSTALL) from error


def _address_of(nccl: Any, name: str) -> int:
    return ctypes.cast(getattr(nccl, name), ctypes.c_void_p).value or 0


def _described(nccl: Any, doing: str, status: int) -> LaunchError:
    """The error of a status, in NCCL's words and ours."""
    name, meaning, remedy = _STATUSES.get(status, (f"NCCL's status {status}", "the collective could not be enqueued", ""))
    said = ""
    if function := getattr(nccl, "ncclGetErrorString", None):
        function.restype = ctypes.c_char_p
        said = (function(ctypes.c_int(status)) or b"").decode("utf-8", "replace")
    return LaunchError(doing, status=f"{name} ({status})", meaning=meaning, cause=said, remedy=remedy)


class NcclCommunicator:
    """A communicator that another library made. Attributes: `nccl`, `handle`, its address, `ranks`, `rank`, `owner`, which is kept, and `alive`, a live word
    of native lists: zero once a watch has ended the communicator."""

    def __init__(self, device: CudaDevice, owner: Any) -> None:
        """Raises BindingError for what is no communicator, and for one of another device; DeviceUnavailable, LaunchError."""
        self.owner, self.handle = owner, _handle_of(owner)
        self.nccl = load()
        self.alive = ctypes.c_uint64(1)
        self.ranks, self.rank, number = [self._asked(name) for name in ("ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice")]
        if (_CUDA, number) != device.dlpack_device:
            raise BindingError("communicator", [f"it is of the GPU {number}, and the buffers are on {device.name}"])

    def _asked(self, name: str) -> int:
        found = ctypes.c_int()
        status = getattr(self.nccl, name)(ctypes.c_void_p(self.handle), ctypes.byref(found))
        if status:
            raise _described(self.nccl, f"{name} of the communicator failed", status)
        return found.value

    def require_ready(self) -> None:
        """Raises LaunchError once a watch has ended it: NCCL may have given its memory back."""
        if not self.alive.value:
            raise LaunchError("a collective cannot be enqueued", cause="its communicator was ended, since a rank was lost", remedy="make another communicator")

    def told_error(self) -> Callable[[], DriverError] | None:
        """What makes the error that NCCL tells of the communicator by itself; None where all is well."""
        told = ctypes.c_int()
        status = self.nccl.ncclCommGetAsyncError(ctypes.c_void_p(self.handle), ctypes.byref(told)) or told.value
        return None if status in (0, _IN_PROGRESS) else partial(_described, self.nccl, "a communicator has lost a rank", status)

    def refuse(self) -> None:
        """From now on no step and no graph uses it."""
        self.alive.value = 0

    def ways_to_end(self) -> Iterator[Callable[[], object]]:
        """Functions that have kernels end which wait for other ranks, the mildest first; the next is asked for where that was not enough. `refuse` is
        called before."""
        if revoke := getattr(self.nccl, "ncclCommRevoke", None):  # which gives no memory back: its owner does
            yield lambda: revoke(ctypes.c_void_p(self.handle), 0)
        abort = getattr(self.owner, "abort", None)
        yield abort if callable(abort) else lambda: self.nccl.ncclCommAbort(ctypes.c_void_p(self.handle))


def opened(device: CudaDevice, owner: Any) -> NcclCommunicator:
    """A communicator of a device: the same object for all that are of one, so that a watch ends all that use it. Raises as `NcclCommunicator` does."""
    made = NcclCommunicator(device, owner)
    known = device.communicators.get(made.handle)
    if known is not None and known.alive.value and (known.ranks, known.rank) == (made.ranks, made.rank):
        return known
    device.communicators[made.handle] = made
    return made


def _handle_of(owner: Any) -> int:
    """The address of an ncclComm_t. Raises BindingError for anything that gives none."""
    found = owner
    if not isinstance(owner, int):
        found = next((given for name in _HANDLES if (given := getattr(owner, name, None)) is not None), None)
        found = found() if callable(found) else found
    if not isinstance(found, int) or isinstance(found, bool):
        raise BindingError("communicator", [f"nccl4py's, PyTorch's or CuPy's communicator is needed, or the address of an ncclComm_t, got {shown(owner)}"])
    if not found:
        raise BindingError("communicator", ["it has no address: it was aborted, or, in PyTorch, has not communicated yet"])
    return found


class CudaCollective(CollectiveStep):
    """A collective, ready to run: a C call, or a group of them."""

    __slots__ = ("_communicator", "_direct")

    def __init__(self, device: CudaDevice, communicator: NcclCommunicator, name: str, transfers: tuple[Transfer, ...]) -> None:
        super().__init__(device, name, transfers)
        self._communicator = communicator
        self._direct = CommandList(device, [self.command()], f"the {name} cannot be enqueued on {device.name}")

    def command(self) -> NativeCommand:
        """The step as a row. The calls around NCCL's make our context current and restore the other; several sends and receives are one group."""
        device, communicator = self.device, self._communicator
        communicator.require_ready()
        context: Context = device.context  # type: ignore[attr-defined]  # a CudaDevice
        nccl, stream = communicator.nccl, int(context.stream)
        calls = [Call(_address_of(nccl, _FUNCTIONS[one.kind]), (*_arguments(device.name, one), communicator.handle, stream)) for one in self.transfers]
        grouped = len(calls) > 1
        if grouped:
            calls = [Call(_address_of(nccl, "ncclGroupStart"), ()), *calls, Call(_address_of(nccl, "ncclGroupEnd"), ())]
        enter = Call(context.function("cuCtxPushCurrent"), (int(context.handle),))
        leave = Call(context.function("cuCtxPopCurrent"), (ctypes.addressof(_POPPED),))
        # A group is open from after the call that starts it until the one that ends it, which ends it even where it fails.
        opened = range(2, len(calls)) if grouped else range(0)
        failure = partial(_failure, context, nccl, len(calls), opened)
        return NativeCommand(self._kind, self.name, (enter, *calls, leave), self.buffers, kept=(communicator, device), failure=failure, guard=communicator)

    def _run(self) -> None:
        self._direct.builtin()()


def _arguments(device: str, one: Transfer) -> tuple[int, ...]:
    """What NCCL's function gets before the communicator. What only moves, moves as bytes, whatever its type."""
    source, target = [0 if buffer is None else int(buffer.handle) + buffer.offset_bytes for buffer in (one.source, one.target)]
    if one.reduction:
        least = one.target if one.kind == "reduce_scatter" else one.source
        assert least is not None
        if (scalar := least.type.scalar) not in _ELEMENTS:
            raise Unsupported(device, [Missing(f"{one.kind} of {scalar}", help=f"NCCL reduces {', '.join(map(str, _ELEMENTS))}")])
        return source, target, least.size_bytes // scalar.size_bytes, _ELEMENTS[scalar], _REDUCTIONS[one.reduction]
    moved = one.source if one.source is not None else one.target
    assert moved is not None
    sides = {"send": (source,), "receive": (target,)}.get(one.kind, (source, target))
    peer = () if one.kind == "all_gather" else (one.peer,)
    return (*sides, moved.size_bytes, _ELEMENTS[u8], *peer)


def _failure(context: Context, nccl: Any, calls: int, opened: range, index: int, status: int, doing: str) -> DriverError:
    """The error of a collective, one of whose C calls failed: a group that is open is ended, and the other context made current again."""
    if not 1 <= index <= calls:
        return context.failure(context.status(status), doing, LaunchError)
    if index in opened:
        nccl.ncclGroupEnd()
    context.note(context.cuda.cuCtxPopCurrent(), doing)
    return _described(nccl, doing, status)
