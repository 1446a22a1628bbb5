"""Bound launches: everything packed at bind, so that a call is one native call of the driver."""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from vyre_py.drivers.cuda import native
from vyre_py.drivers.cuda.module import Module
from vyre_py.drivers.cuda.native import Call, CallList, SlotRow
from vyre_py.drivers.errors import BindingError, DeviceLost, LaunchError
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.resident import Buffer
from vyre_py.lowering.layout import Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaLaunch", "Kernel", "record_of", "stream_handle"]

# Device, type of a component and shape of a buffer -> a number; buffers of one number may replace each other in a launch.
_signatures: dict[tuple[Any, ...], int] = {}
_numbers = itertools.count(1)
_signature_lock = threading.Lock()
_SIGNATURES: Final = 1 << 16


def _signature(buffer: Buffer) -> int:
    key = (buffer.device.name, id(buffer.device), buffer.type.scalar.name, buffer.host_shape)
    with _signature_lock:
        if len(_signatures) >= _SIGNATURES:
            _signatures.clear()  # numbers are never used twice, so what has an old one goes the slow way once
        return _signatures.setdefault(key, next(_numbers))


def record_of(buffer: Buffer) -> tuple[int, int, int]:
    """A buffer's signature, first byte and end; its record for native code is made if it has none."""
    if buffer._record is None:
        handle = buffer.handle
        begin = handle + buffer.offset_bytes if handle else 0
        signature = _signature(buffer)
        buffer._record = native.pack_record(signature, begin, begin + buffer.size_bytes, ctypes.addressof(buffer.allocation.alive), buffer.readonly)
    return struct.unpack_from("<qQQ", buffer._record)


def stream_handle(stream: Any) -> int:
    """The driver's handle of any object whose `__cuda_stream__()` gives (version, handle). Raises BindingError for any other object."""
    method = getattr(stream, "__cuda_stream__", None)
    answer = method() if callable(method) else None
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, int) for part in answer):
        raise BindingError("stream", [f"a stream is an object with __cuda_stream__(), got {type(stream).__name__}"])
    return int(answer[1])


class Kernel:
    """What a launch is made of, apart from the object that users hold: the argument block, the buffers, the native call.

    Handlers belong to it rather than to the launch, so that a dropped launch is gone at once.

    Attributes: `device`, `plan`, `module`, `block` (the argument block, which native code copies at each launch), `held` (buffers, in the order
    of their slots), `stream` (a handle), `calls`.
    """

    __slots__ = ("__weakref__", "_offsets", "_owner", "_pin", "block", "calls", "device", "held", "module", "plan", "record", "stream")

    def __init__(self, device: CudaDevice, plan: LaunchPlan, module: Module) -> None:
        slots = plan.step.layout.slots
        self.device, self.plan, self.module = device, plan, module
        self.block = bytearray(plan.block) or bytearray(8)
        self._pin = (ctypes.c_char * len(self.block)).from_buffer(self.block)
        self._offsets = {slot.name: slot.offset_bytes for slot in slots if slot.name}
        self.held: list[Buffer] = []
        for slot in plan.step.layout.buffers:
            buffer = plan.buffers[slot.name]
            self.held.append(buffer)
            struct.pack_into("<Q", self.block, slot.offset_bytes, record_of(buffer)[1])
        self.record = device.launch_record(plan, module)
        self._owner: Any = None
        self.stream = int(device.context.stream)
        self.calls = self._list()

    @property
    def block_address(self) -> int:
        """Where the argument block begins."""
        return ctypes.addressof(self._pin)

    def call(self) -> Call:
        """The one native call that launches the kernel."""
        plan, module = self.plan, self.module
        function = self.device.context.function("cuLaunchKernel")
        arguments = (int(module.function), *plan.grid, *plan.step.workgroup, module.workgroup_bytes, self.stream, 0, 0)
        return Call(function, arguments, native.LAUNCH, self.block_address, plan.step.layout.size_bytes)

    def rows(self) -> list[SlotRow]:
        """What `set` may change without Python."""
        rows = []
        written = {m.name for m in self.plan.binding.interface.buffers if m.access.writes}
        for place, slot in enumerate(self.plan.step.layout.buffers):
            signature, begin, end = record_of(self.held[place])
            address = self.block_address + slot.offset_bytes
            rows.append(SlotRow(sys.intern(slot.name), native.SLOT_KINDS["buffer"], address, place, signature, slot.name in written, begin, end))
        for slot in self.plan.step.layout.scalars:
            if slot.kind is SlotKind.PARAM and slot.source == (slot.name, 0):
                kind = native.SLOT_KINDS.get(slot.type.name, 0)
                rows.append(SlotRow(sys.intern(slot.name), kind, self.block_address + slot.offset_bytes))
        return rows

    def _list(self) -> CallList:
        device = self.device
        alive = [ctypes.addressof(buffer.allocation.alive) for buffer in self.held]
        counters = ((device.telemetry.address("launches"), 1), (self.record.address, 1))
        foreign = self.stream != int(device.context.stream)
        return CallList([self.call()], self.trouble, device.context.mode_address, alive, counters, self.rows(), self.held, fixed=foreign)

    def move(self, stream: int, owner: Any) -> None:
        """Goes to another stream from now on; its `owner` is kept alive."""
        self.stream, self._owner = stream, owner
        self.calls = self._list()

    # ---- what is not plain

    def trouble(self, index: int, status: int) -> None:
        """Does, or refuses, what the native call could not: see `native`."""
        device, context = self.device, self.device.context
        doing = f"{self.plan.step.entries[self.plan.entry].symbol} cannot be launched on {context.name}"
        if index < 0:
            device.require_usable()
            self.require_memory()
            if context.intercept is not None and status > 0:
                context.intercept(self)
                return
        try:
            context.recover(self.calls, index, status, doing, LaunchError)
        except DeviceLost:
            device.require_usable()  # which tells the first cause
            raise

    def require_memory(self) -> None:
        """Raises BindingError when a bound buffer was freed."""
        names = [slot.name for slot in self.plan.step.layout.buffers]
        freed = sorted(name for name, buffer in zip(names, self.held, strict=True) if buffer.allocation.freed)
        if freed:
            raise BindingError(self.plan.binding.interface.name, [f"{name!r} was freed" for name in freed])

    def place(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        """Puts buffers and params, whose fit was checked, in their places, all at once for other threads."""
        pieces = [(self.block_address + slot.offset_bytes, data) for slot, data in slots]
        names = [slot.name for slot in self.plan.step.layout.buffers]
        for name, buffer in buffers.items():
            _, begin, end = record_of(buffer)
            pieces.append((self.block_address + self._offsets[name], struct.pack("<Q", begin)))
            pieces += self.calls.rebound(names.index(name), ctypes.addressof(buffer.allocation.alive), begin, end)
        native.scatter(pieces)
        for name, buffer in buffers.items():
            self.held[names.index(name)] = buffer


class CudaLaunch(Launch):
    """A launch of one kernel. The object's `__call__` is the native builtin itself, and so is `set` for what is plain: buffers of the same
    shape and type, and params of 32 and 64 bits, given by keyword."""

    __slots__ = ("__call__", "__weakref__", "_state", "kernel")

    set: ClassVar[Any]  # made with the first launch: LLVM is not loaded before

    def __init__(self, device: CudaDevice, plan: LaunchPlan, module: Module) -> None:
        super().__init__(plan)
        if "set" not in CudaLaunch.__dict__:
            CudaLaunch.set = native.set_method(CudaLaunch)
        self._take(Kernel(device, plan, module))

    def _take(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._state = kernel.calls.state
        self.__call__ = kernel.calls.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin

    def _set(self, arguments: Any = None, /, **named: Any) -> Self:
        return super().set(arguments, **named)

    def _bound(self) -> dict[str, Buffer]:
        return dict(zip([slot.name for slot in self.plan.step.layout.buffers], self.kernel.held, strict=True))

    def _place(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        self.kernel.place(buffers, slots)

    def on(self, stream: Any) -> Self:
        """The launch, enqueued on another stream from now on: any object whose `__cuda_stream__()` gives (version, handle).

        It comes after everything enqueued on the device's own stream so far. Raises BindingError for any other object.
        """
        handle = stream_handle(stream)
        context = self.kernel.device.context
        self.kernel.device.require_usable()
        context.enter()
        if handle != int(context.stream):
            context.wait(f"{context.name} cannot change streams")
            context.foreign = True
        self.kernel.move(handle, stream)
        self._take(self.kernel)
        return self
