"""Dispatches of small host arrays: prepared once for each set of shapes, then one copy an array and one native call.

What a kernel reads and writes once stays in page-locked host memory that the device sees, up to `_MAPPED_BYTES`: no copies by the device at
all. Otherwise, up to `_STAGED_BYTES`, arrays go through page-locked memory to buffers that are kept. Larger ones, and whatever is not plain
(other kinds of arguments, options, results written in place), go the general way, which also says what is wrong with arguments.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.binding import BindingPlan, bind_arguments, solve_grid
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.calls import native_call
from vyre_py.drivers.cuda.launch import CudaLaunch
from vyre_py.drivers.cuda.native import Call
from vyre_py.drivers.resident import Allocation, Buffer, host_shape

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.pipeline import Pipeline
    from vyre_py.ir.nodes import Memory

__all__ = ["Dispatcher"]

_MAPPED_BYTES: Final = 64 << 10
_STAGED_BYTES: Final = 8 << 20
_ALIGN: Final = 256
# Sets of shapes that are remembered for a pipeline, and dispatches of one set that may run at once in several threads.
_SETS: Final = 16
_AT_ONCE: Final = 4


class _Prepared:
    """One set of shapes: page-locked memory, a bound launch, and the native lists. One dispatch at a time uses it."""

    def __init__(self, pipeline: Pipeline, binding: BindingPlan, mapped: bool) -> None:
        device: CudaDevice = pipeline.device  # type: ignore[assignment]  # who makes a Dispatcher is a CudaDevice
        memories = {m.name: m for m in binding.interface.buffers}
        self._places, total = _laid_out(binding, memories)
        block = device.pinned_pool.take(total)
        # The block goes back when the last buffer over it does, whichever way the data goes.
        self._block = Allocation(device, block.device_address, total, block.give)
        self._views = {name: _view(block.bytes, self._places[name], binding.shapes[name], m) for name, m in memories.items()}
        self._inputs = list(binding.host)
        self._outputs = [name for name, m in memories.items() if m.access.writes]
        self._params = [p.name for p in binding.interface.params]
        if mapped:
            buffers = {n: Buffer(device, self._block, self._places[n], binding.shapes[n], m.type) for n, m in memories.items()}
        else:
            buffers = {n: device.allocate(binding.shapes[n], m.type) for n, m in memories.items()}
        binding.buffers.update(buffers)
        launch = pipeline._launch(binding, DispatchConfig())
        assert isinstance(launch, CudaLaunch)  # an empty one is not prepared
        self._launch = launch
        self._cleared = [self._views[name] for name in memories if name not in binding.host] if mapped else []
        copies = _Copies(device, block.address, buffers, self._places)
        self._ups = [] if mapped else [copies.up(name) for name in self._inputs]
        clears = [] if mapped else [copies.clear(name) for name in memories if name not in binding.host]
        downs = [] if mapped else [copies.down(name) for name in self._outputs]
        wait = Call(device.context.function("cuStreamSynchronize"), (int(device.context.stream),))
        counts = {
            **device.launch_amounts(launch.kernel.plan, launch.kernel.module), "dispatches": 1, "syncs": 1, "uploads": len(self._inputs),
            "bytes_uploaded": sum(self._views[n].nbytes for n in self._inputs), "downloads": len(self._outputs),
            "bytes_downloaded": sum(self._views[n].nbytes for n in self._outputs),
        }  # fmt: skip
        doing = f"{pipeline.name!r} cannot be dispatched on {device.name}"
        self._run = native_call(device, [*clears, launch.kernel.call(), *downs, wait], doing, launches=1, counts=counts)

    def run(self, given: dict[str, Any]) -> dict[str, Any]:
        """The results for arguments of these shapes. Raises BindingError for params that do not fit, LaunchError, DeviceLost."""
        if self._params:
            self._launch.set(**{name: given[name] for name in self._params})
        for view in self._cleared:
            view.fill(0)
        views = self._views
        for name in self._inputs:
            np.copyto(views[name], given[name])
            if self._ups:
                self._ups[self._inputs.index(name)]()  # on its way while the next is copied
        self._run()
        return {name: views[name].copy() for name in self._outputs}


def _laid_out(binding: BindingPlan, memories: Mapping[str, Memory]) -> tuple[dict[str, int], int]:
    """Where each buffer begins in one block, and the block's bytes."""
    places, total = {}, 0
    for name, memory in memories.items():
        places[name] = total
        total += -(-prod(binding.shapes[name]) * memory.type.size_bytes // _ALIGN) * _ALIGN
    return places, total


def _view(block: np.ndarray[Any, Any], place: int, shape: tuple[int, ...], memory: Memory) -> np.ndarray[Any, Any]:
    sizes, dtype = host_shape(shape, memory.type), memory.type.dtype
    return block[place : place + prod(sizes) * dtype.itemsize].view(dtype).reshape(sizes)


class _Copies:
    """The copies between a page-locked block and the buffers that it stages, as native calls on the device's stream."""

    def __init__(self, device: CudaDevice, block: int, buffers: Mapping[str, Buffer], places: Mapping[str, int]) -> None:
        self._device, self._block, self._buffers, self._places = device, block, buffers, places

    def _call(self, function: str, *arguments: int) -> Call:
        context = self._device.context
        return Call(context.function(function), (*arguments, int(context.stream)))

    def up(self, name: str) -> Callable[[], None]:
        """A builtin that copies an argument to the device."""
        buffer = self._buffers[name]
        call = self._call("cuMemcpyHtoDAsync", buffer.handle, self._block + self._places[name], buffer.size_bytes)
        return native_call(self._device, [call], f"{self._device.name} cannot be written")

    def down(self, name: str) -> Call:
        """Copies a result to the host."""
        buffer = self._buffers[name]
        return self._call("cuMemcpyDtoHAsync", self._block + self._places[name], buffer.handle, buffer.size_bytes)

    def clear(self, name: str) -> Call:
        """Fills a result with zeros."""
        buffer = self._buffers[name]
        return self._call("cuMemsetD8Async", buffer.handle, 0, buffer.size_bytes)


class Dispatcher:
    """Dispatches of one pipeline."""

    __slots__ = ("__weakref__", "_dims", "_idle", "_lock", "_made", "_memories", "_names", "_params", "_pipeline")

    def __init__(self, pipeline: Pipeline) -> None:
        interface = pipeline.artifact.interface
        self._pipeline = weakref.ref(pipeline)
        self._memories = [(m.name, m.type.dtype, m.access.reads) for m in interface.buffers]
        self._params = [p.name for p in interface.params]
        self._dims = [d.name for d in interface.dims]
        # Set of shapes -> those prepared that are idle; None for a set that goes the general way.
        self._idle: OrderedDict[tuple[Any, ...], list[_Prepared] | None] = OrderedDict()
        self._made: dict[tuple[Any, ...], int] = {}
        self._lock = threading.RLock()  # preparing allocates, which clears this when memory is short

    def _key(self, given: dict[str, Any]) -> tuple[Any, ...] | None:
        """The set of shapes, where all arguments are plain arrays of the right types; None for anything else."""
        shapes: list[Any] = []
        known = 0
        for name, dtype, reads in self._memories:
            value = given.get(name)
            if type(value) is np.ndarray and value.dtype is dtype:
                shapes.append(value.shape)
                known += 1
            elif value is None and not reads and name not in given:
                shapes.append(None)
            else:
                return None
        for name in self._params:
            if name not in given:
                return None
            known += 1
        for name in self._dims:
            if name in given:
                if type(given[name]) is not int:
                    return None
                shapes.append((name, given[name]))
                known += 1
        return tuple(shapes) if known == len(given) else None

    def run(self, arguments: Any, named: dict[str, Any]) -> dict[str, Any] | None:
        """The results; None for what goes the general way. Raises what `Pipeline.dispatch` does."""
        given = named if arguments is None else arguments
        if type(given) is not dict or (arguments is not None and named):
            return None
        key = self._key(given)
        if key is None:
            return None
        idle = self._idle.get(key, _UNKNOWN)
        if idle is None:
            return None
        try:
            prepared: _Prepared | None = idle.pop()
        except IndexError:
            prepared = None
        if prepared is None and (prepared := self._prepare(key, given)) is None:
            return None
        try:
            return prepared.run(given)
        finally:
            if (back := self._idle.get(key)) is not None:
                back.append(prepared)

    def _prepare(self, key: tuple[Any, ...], given: dict[str, Any]) -> _Prepared | None:
        pipeline = self._pipeline()
        assert pipeline is not None  # it is what runs this
        device = pipeline.device
        with self._lock:
            if self._made.get(key, 0) >= _AT_ONCE:
                return None
            binding = bind_arguments(device, pipeline.artifact.interface, given, {}, staged=True)
            total = sum(prod(binding.shapes[m.name]) * m.type.size_bytes for m in binding.interface.buffers)
            (step,) = pipeline.part.steps
            grid = solve_grid(step, binding.sizes, None, device.limits.workgroups, device.name)
            fits = 0 < total <= _STAGED_BYTES and 0 not in grid and 0 not in map(prod, binding.shapes.values())
            self._idle.setdefault(key, [] if fits else None)
            if not fits:
                return None
            made = _Prepared(pipeline, binding, total <= _MAPPED_BYTES and step.streaming)
            self._made[key] = self._made.get(key, 0) + 1
            while len(self._idle) > _SETS:
                old, _ = self._idle.popitem(last=False)
                self._made.pop(old, None)
            return made

    def clear(self) -> None:
        """Forgets what was prepared, and gives its memory back once the dispatches that use it are over."""
        with self._lock:
            self._idle.clear()
            self._made.clear()


_UNKNOWN: Final[list[_Prepared]] = []
