"""Launches of a step's kernels over argument blocks that a caller packed, on any stream, by native code."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.cuda.native.entry_call import ENQUEUE, ENQUEUE_SYMBOL
from vyre_py.drivers.errors import LaunchError
from vyre_py.drivers.native.structs import LAUNCHER
from vyre_py.drivers.sharing.c_callable import CKernel
from vyre_py.lowering.artifact.parts import Step
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.callable import GRID_WORDS

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.launch.module import CudaModule

__all__ = ["Launcher"]

_Grid = ctypes.c_int64 * GRID_WORDS
_UNPLANNED = [0] * 3  # the workgroups of the plan, which a launch does not look at


@cache
def _enqueue() -> Any:
    address = jit.link("vyre-enqueue", ENQUEUE, (ENQUEUE_SYMBOL,))[ENQUEUE_SYMBOL]
    word = ctypes.c_uint64
    return ctypes.CFUNCTYPE(ctypes.c_int, word, word, word, ctypes.c_void_p, word, ctypes.c_void_p, word)(address)


class Launcher:
    """The words of `LAUNCHER` for a step of a pipeline. Attributes: their `address`, and the `kernels`, a row for each entry."""

    __slots__ = ("_context", "_held", "_rows", "address", "kernels")

    def __init__(self, device: CudaDevice, step: Step, modules: Sequence[CudaModule]) -> None:
        context = self._context = device.context
        self.kernels = [CKernel(int(module.function), 0, module.workgroup_bytes, 0) for module in modules]
        self._rows = (CKernel * len(modules))(*self.kernels)
        occupancies = ctypes.create_string_buffer(struct.pack(f"<{len(modules)}d", *[module.occupancy for module in modules]))
        sizes = [step.workgroup_of(number) for number in range(len(modules))]
        heights = ctypes.create_string_buffer(struct.pack(f"<{len(sizes)}q", *[down for _, down, _ in sizes]))
        words = LAUNCHER.pack(
            context.mode_address, ctypes.addressof(context.callers), context.number, context.function("cuCtxPushCurrent"),
            context.function("cuCtxPopCurrent"), context.function("cuLaunchKernel"), int(context.stream), step.workgroup[0], step.workgroup[2],
            ctypes.addressof(heights), ctypes.addressof(occupancies),
        )  # fmt: skip
        buffer = ctypes.create_string_buffer(words)
        self.address = ctypes.addressof(buffer)
        self._held = (buffer, heights, occupancies, modules)

    @staticmethod
    def grid(extents: tuple[int, int, int]) -> ctypes.Array[ctypes.c_int64]:
        """So many workgroups, as `enqueue` takes them."""
        return _Grid(*_UNPLANNED, *extents)

    def kernel_address(self, entry: int) -> int:
        """Where the row of an entry's kernel lies, for as long as this object is there."""
        return ctypes.addressof(self._rows) + entry * ctypes.sizeof(CKernel)

    def enqueue(self, entry: int, grid: ctypes.Array[ctypes.c_int64], stream: int, block: ctypes.Array[ctypes.c_char], what: str) -> None:
        """Launches the kernel of an entry over a block, which is copied, on a stream of the driver's; `what` is its name in errors. Nothing is counted or
        recorded, and no memory is looked at. Raises LaunchError."""
        status = _enqueue()(self.address, self.kernel_address(entry), entry, grid, stream, block, len(block))
        if status:
            raise self._context.failure(self._context.status(status), f"{what} cannot be launched", LaunchError)
