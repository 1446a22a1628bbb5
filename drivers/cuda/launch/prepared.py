"""What is kept from one dispatch to the next of the same shapes: page-locked memory, buffers, a bound launch, and native lists.

With `Mapped` the kernel reads and writes page-locked memory. `Staged` copies: arguments in pieces, where the transfer of one overlaps the copy of the
next, and results directly into memory that the caller gets.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.binding import BindingPlan
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.launch.launch import CudaLaunch
from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand
from vyre_py.drivers.errors import OutOfMemory
from vyre_py.drivers.many.commands import CLEAR, DOWNLOAD, UPLOAD, WAIT
from vyre_py.drivers.memory.allocation import Borrowed, Lender
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import Bytes, Host, no_memory
from vyre_py.drivers.memory.pool import class_bytes

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.pipeline import Pipeline
    from vyre_py.ir.language.nodes import Memory

__all__ = ["Mapped", "PreparedDispatch", "Staged"]

_ALIGN: Final = 256
_PIECE_BYTES: Final = 256 << 10
# Results of so many bytes and more come in page-locked memory of their own; smaller ones are quicker copied.
_OWN_BYTES: Final = 32 << 10


class PreparedDispatch(ABC):
    """One set of shapes. One dispatch at a time uses it. Attributes: `pinned_bytes` and `device_bytes`, what it holds of either memory."""

    pinned_bytes: int
    device_bytes: int

    def __init__(self, pipeline: Pipeline, binding: BindingPlan, device: CudaDevice) -> None:
        self._device = device
        self._doing = f"{pipeline.name!r} cannot be dispatched on {device.name}"
        self._memories = {m.name: m for m in binding.interface.buffers}
        self._shapes = binding.shapes
        self._inputs = list(binding.host)
        self._outputs = [name for name, m in self._memories.items() if m.access.writes]
        self._params = [sys.intern(p.name) for p in binding.interface.params]  # as native code knows them
        binding.buffers.update(self._buffers())
        launch = pipeline._launch(binding, DispatchConfig())
        assert isinstance(launch, CudaLaunch)  # an empty one is not prepared
        self._launch = launch
        self._work = self._list()
        self._run = self._work.builtin()

    def run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The results for arguments of these shapes. Raises BindingError for params that do not fit, OutOfMemory, LaunchError, DeviceLost."""
        if self._params:
            self._launch.set(**{name: given[name] for name in self._params})
        try:
            return self._moved(given)
        except BaseException as error:
            self._device.context.finish()  # a copy may still write to memory that is about to be reused
            if isinstance(error, MemoryError):
                raise no_memory(self._doing, error) from error
            raise

    @abstractmethod
    def _buffers(self) -> dict[str, Buffer]:
        """The buffers that the kernel is bound to."""

    @abstractmethod
    def _list(self) -> CommandList:
        """The commands of a dispatch, from copies to the device, if any, to the results."""

    @abstractmethod
    def _moved(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Copies arguments in, runs, and gives the results."""

    def _list_of(self, clears: Sequence[Call], downs: Mapping[str, Call]) -> CommandList:
        """A list around the launch, which ends with the wait for it, and counts as one dispatch: with all that it takes and gives, however that is moved."""
        context = self._device.context
        wait = Call(context.function("cuStreamSynchronize"), (int(context.stream),))
        rows = [NativeCommand(UPLOAD, name, counts=UPLOAD.counts(self._bytes(name))) for name in self._inputs]
        rows += [NativeCommand(CLEAR, calls=tuple(clears)), *self._launch.kernel.rows]
        for name in self._outputs:
            rows.append(NativeCommand(DOWNLOAD, name, (downs[name],) if name in downs else (), counts=DOWNLOAD.counts(self._bytes(name))))
        rows.append(NativeCommand(WAIT, calls=(wait,), counts={WAIT.counter: 1, "dispatches": 1}))
        return CommandList(self._device, rows, self._doing)

    def _bytes(self, name: str) -> int:
        return prod(self._shapes[name]) * self._memories[name].type.size_bytes

    def _laid_out(self, names: list[str]) -> tuple[dict[str, int], int]:
        """Where buffers begin in one block, and the block's bytes."""
        places, total = {}, 0
        for name in names:
            places[name] = total
            total += -(-self._bytes(name) // _ALIGN) * _ALIGN
        return places, total

    def _view(self, block: Bytes, place: int, name: str) -> Host:
        memory: Memory = self._memories[name]
        shape, dtype = host_shape(self._shapes[name], memory.type), memory.type.dtype
        return block[place : place + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Mapped(PreparedDispatch):
    """The kernel's buffers lie in page-locked host memory."""

    def _buffers(self) -> dict[str, Buffer]:
        places, total = self._laid_out(list(self._memories))
        block = self._device.pinned_pool.take(total)
        self.pinned_bytes, self.device_bytes = block.capacity, 0
        allocation = Borrowed(self._device, block.device_address, total, Lender(block.give))  # the block goes back when the last buffer over it does
        self._views = {name: self._view(block.bytes, place, name) for name, place in places.items()}
        self._cleared = [view for name, view in self._views.items() if name not in self._inputs]
        return {n: Buffer(self._device, allocation, place, self._shapes[n], self._memories[n].type) for n, place in places.items()}

    def _list(self) -> CommandList:
        return self._list_of([], {})

    def _moved(self, given: Mapping[str, Any]) -> dict[str, Any]:
        views = self._views
        for view in self._cleared:
            view.fill(0)
        for name in self._inputs:
            np.copyto(views[name], given[name])
        self._run()
        return {name: views[name].copy() for name in self._outputs}


class Staged(PreparedDispatch):
    """The kernel's buffers lie on the device; copies go through page-locked memory."""

    def _buffers(self) -> dict[str, Buffer]:
        device = self._device
        # Arguments, and those results that are small or whose own memory would be too much page-locked memory in callers' hands.
        self._places, total = self._laid_out([*self._inputs, *(n for n in self._outputs if n not in self._inputs)])
        self._block = device.pinned_pool.take(total)
        self._kept = Borrowed(device, self._block.device_address, total, Lender(self._block.give))
        self._views = {name: self._view(self._block.bytes, place, name) for name, place in self._places.items()}
        self._resident = {n: device.allocate(self._shapes[n], m.type) for n, m in self._memories.items()}
        self.pinned_bytes, self.device_bytes = self._block.capacity, sum(class_bytes(buffer.size_bytes) for buffer in self._resident.values())
        return dict(self._resident)

    def _copy(self, function: str, *arguments: int) -> Call:
        context = self._device.context
        return Call(context.function(function), (*arguments, int(context.stream)))

    def _list(self) -> CommandList:
        self._pieces = {name: self._cut(name) for name in self._inputs}
        clears = [self._copy("cuMemsetD8Async", self._resident[n].handle, 0, self._bytes(n)) for n in self._outputs if n not in self._inputs]
        downs = {n: self._copy("cuMemcpyDtoHAsync", self._block.address + self._places[n], self._resident[n].handle, self._bytes(n)) for n in self._outputs}
        self._down_at = {name: len(clears) + 1 + number for number, name in enumerate(self._outputs)}
        self._own = {name for name in self._outputs if self._bytes(name) >= _OWN_BYTES}
        return self._list_of(clears, downs)

    def _cut(self, name: str) -> list[tuple[slice, Callable[[], None]]]:
        """The pieces of an argument, in elements of its flat array, each with what sends it."""
        view = self._views[name]
        step = max(1, _PIECE_BYTES // view.itemsize)
        pieces: list[tuple[slice, Callable[[], None]]] = []
        for begin in range(0, view.size, step):
            end = min(begin + step, view.size)
            there = self._resident[name].handle + begin * view.itemsize
            here = self._block.address + self._places[name] + begin * view.itemsize
            call = self._copy("cuMemcpyHtoDAsync", there, here, (end - begin) * view.itemsize)
            pieces.append((slice(begin, end), CommandList(self._device, [NativeCommand(UPLOAD, name, (call,))], self._doing).builtin()))
        return pieces

    def _moved(self, given: Mapping[str, Any]) -> dict[str, Any]:
        for name in self._inputs:
            self._send(name, given[name])
        results = {name: self._target(name) for name in self._outputs}
        self._run()
        return {name: self._views[name].copy() if array is None else array for name, array in results.items()}

    def _send(self, name: str, array: Host) -> None:
        view, pieces = self._views[name], self._pieces[name]
        if array.flags.c_contiguous:
            flat, source = view.reshape(-1), array.reshape(-1)
            for part, send in pieces:
                np.copyto(flat[part], source[part])
                send()
            return
        np.copyto(view, array)
        for _, send in pieces:
            send()

    def _target(self, name: str) -> Host | None:
        """Where a result goes: memory that the caller gets, or None for the block, from where it is copied."""
        if name not in self._own:
            return None
        pool = self._device.pinned_pool
        found = None
        if pool.lent_bytes <= pool.keep_bytes:
            with suppress(OutOfMemory):
                found = pool.lease(self._bytes(name))
        if found is None:
            self._device.telemetry.overflows += 1  # callers hold as much page-locked memory as they may
        address = self._block.address + self._places[name] if found is None else found[0]
        self._work.calls.patch(self._down_at[name], 0, address)
        return None if found is None else self._view(found[1], 0, name)
