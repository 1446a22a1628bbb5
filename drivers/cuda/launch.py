"""Bound launches: everything packed at bind, so that a call is one call of the driver."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from vyre_py.drivers.cuda.module import Module
from vyre_py.drivers.errors import BindingError, LaunchError
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.resident import Buffer
from vyre_py.lowering.layout import Slot

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaLaunch"]


class CudaLaunch(Launch):
    """A launch of one kernel.

    The driver reads arguments through an array of pointers into one block, at the time of the call: rebinding writes into the block.
    """

    __slots__ = ("__weakref__", "_block", "_buffers", "_module", "_offsets", "_owner", "_pointers", "_run", "_stream", "_stream_owner", "_telemetry")

    def __init__(self, device: CudaDevice, plan: LaunchPlan, module: Module) -> None:
        super().__init__(plan)
        slots = plan.step.layout.slots
        self._owner = device
        self._module = module
        self._telemetry = device.telemetry
        self._offsets = {slot.name: slot.offset_bytes for slot in slots if slot.name}
        self._block = ctypes.create_string_buffer(bytes(plan.block), max(1, len(plan.block)))
        base = ctypes.addressof(self._block)
        self._pointers = (ctypes.c_void_p * max(1, len(slots)))(*[base + slot.offset_bytes for slot in slots])
        self._stream = device.context.stream
        self._stream_owner: Any = None
        self._buffers: dict[str, Buffer] = {}
        for slot in plan.step.layout.buffers:
            self._place(slot.name, plan.buffers[slot.name])
        device.watch(self, [b.allocation.handle for b in self._buffers.values()])
        self._run: Callable[[], tuple[Any, ...]]
        self.arm()

    def __call__(self) -> None:
        """Enqueues the kernel."""
        if status := self._run()[0]:
            self._again(status)
        self._telemetry.launches += 1

    def _again(self, status: Any) -> None:
        """A thread that has not used this device yet has another context current, or none; everything else is an error."""
        context = self._owner.context
        if status.name in ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE"):
            context.enter()
            (status,) = self._run()
        if status:
            self._owner.require_usable()
            symbol = self.plan.step.entries[self.plan.entry].symbol
            raise context.failure(status, f"{symbol} cannot be launched on {context.name}", LaunchError)

    def arm(self) -> None:
        """Prepares the call, or puts a refusal in its place when the device is closed or a bound buffer was freed."""
        freed = sorted(name for name, buffer in self._buffers.items() if buffer.allocation.freed)
        if self._owner.closed or freed:
            self._run = partial(self._refuse, freed)
            return
        context, plan = self._owner.context, self.plan
        self._run = partial(
            context.cuda.cuLaunchKernel, self._module.function, *plan.grid, *plan.step.workgroup, self._module.workgroup_bytes, self._stream,
            ctypes.addressof(self._pointers), 0,
        )

    def _refuse(self, freed: list[str]) -> NoReturn:
        self._owner.require_usable()
        raise BindingError(self.plan.binding.interface.name, [f"{name!r} was freed" for name in freed])

    def on(self, stream: Any) -> Self:
        """The launch, enqueued on another stream from now on: any object whose `__cuda_stream__()` gives (version, handle).

        It comes after everything enqueued on the device's own stream so far. Raises BindingError for any other object.
        """
        method = getattr(stream, "__cuda_stream__", None)
        answer = method() if callable(method) else None
        if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, int) for part in answer):
            raise BindingError("stream", [f"a stream is an object with __cuda_stream__(), got {type(stream).__name__}"])
        context = self._owner.context
        self._owner.require_usable()
        context.enter()
        context.wait(f"{context.name} cannot change streams")
        context.foreign = True
        self._stream, self._stream_owner = context.cuda.CUstream(answer[1]), stream
        self.arm()
        return self

    def _place(self, name: str, buffer: Buffer) -> None:
        address = buffer.handle
        struct.pack_into("<Q", self._block, self._offsets[name], address + buffer.offset_bytes if address else 0)
        self._buffers[name] = buffer

    def _set_buffer(self, name: str, buffer: Buffer) -> None:
        self._place(name, buffer)
        self._owner.watch(self, [buffer.allocation.handle])
        self.arm()

    def _set_slot(self, slot: Slot, data: bytes) -> None:
        ctypes.memmove(ctypes.addressof(self._block) + slot.offset_bytes, data, slot.size_bytes)
