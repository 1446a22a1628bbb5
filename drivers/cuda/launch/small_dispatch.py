"""Dispatches of small host arrays: prepared once for each set of shapes, then copies and one native call.

Up to `_MAPPED_BYTES`, arrays that a kernel reads and writes once stay in page-locked host memory, which the device accesses without copies. Up to
`_STAGED_BYTES`, others go through page-locked memory to buffers that are kept. Larger arrays, other kinds of arguments, options, and results written in
place take the general path, which also reports errors in arguments.
"""

from __future__ import annotations

import threading
import weakref
from itertools import count
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.binding import bind_arguments, solve_grid
from vyre_py.drivers.cuda.launch.prepared import Mapped, PreparedDispatch, Staged
from vyre_py.drivers.errors import OutOfMemory
from vyre_py.drivers.observers import Watched

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.memory.memory import CudaMemory
    from vyre_py.drivers.cuda.memory.pinned import PinnedPool
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["Dispatcher", "Preparations"]

_MAPPED_BYTES: Final = 64 << 10
_STAGED_BYTES: Final = 8 << 20
# Sets of shapes that are remembered for a pipeline, and dispatches of one set that may run at once in several threads.
_SETS: Final = 16
_AT_ONCE: Final = 4


class _Set:
    """One set of shapes of a pipeline: those prepared that are `idle`, None where it goes the general way; how many are `made`; `used`, the number of its
    last dispatch among all of the device."""

    __slots__ = ("idle", "made", "used")

    def __init__(self) -> None:
        self.idle: list[PreparedDispatch] | None = []
        self.made = self.used = 0


class Preparations:
    """What all dispatches of a device have prepared. It counts as what the pools of device memory and of page-locked memory keep, under their caps: what was
    used longest ago goes first."""

    def __init__(self, memory: CudaMemory, pinned: PinnedPool) -> None:
        self.turns = count(1)
        self._pools: tuple[CudaMemory | PinnedPool, ...] = (memory, pinned)
        self._dispatchers: Watched[Dispatcher] = Watched()

    def dispatcher(self, pipeline: Pipeline) -> Dispatcher:
        """The dispatches of a pipeline."""
        made = Dispatcher(pipeline, self)
        self._dispatchers.add(made)
        return made

    def make_room(self, device_bytes: int, pinned_bytes: int) -> bool:
        """Drops what was used longest ago until the caps leave room for so much of either memory; false where they never do."""
        wanted = [(pool, size) for pool, size in zip(self._pools, (device_bytes, pinned_bytes), strict=True) if size]
        if any(size > pool.keep_bytes for pool, size in wanted):
            return False
        while any(pool.prepared_bytes + size > pool.keep_bytes for pool, size in wanted):
            rows = [(row.used, one, key) for one in self._dispatchers.now() for key, row in list(one.sets.items()) if row.idle]
            if not rows:
                return False
            _, oldest, key = min(rows, key=itemgetter(0))
            oldest.sets.pop(key, None)
        return True

    def admit(self, prepared: PreparedDispatch) -> None:
        """Counts what was prepared for as long as it lives."""
        for pool, size_bytes in zip(self._pools, (prepared.device_bytes, prepared.pinned_bytes), strict=True):
            pool.prepare(size_bytes)
            weakref.finalize(prepared, pool.prepare, -size_bytes).atexit = False

    def clear(self) -> None:
        """Drops what was prepared. Its memory is freed once the dispatches that use it have ended."""
        for dispatcher in self._dispatchers.now():
            dispatcher.sets.clear()


class Dispatcher:
    """Dispatches of one pipeline. Attribute: `sets`, those of shapes that are remembered."""

    __slots__ = ("__weakref__", "_dims", "_lock", "_memories", "_names", "_params", "_pipeline", "_preparations", "sets")

    def __init__(self, pipeline: Pipeline, preparations: Preparations) -> None:
        interface = pipeline.artifact.interface
        self._pipeline = weakref.ref(pipeline)
        self._preparations = preparations
        self._memories = [(m.name, m.type.dtype, m.access.reads) for m in interface.buffers]
        self._params = [p.name for p in interface.params]
        self._dims = [d.name for d in interface.dims]
        self.sets: dict[tuple[Any, ...], _Set] = {}  # changed by atomic operations: eviction, in any thread, takes no lock
        self._lock = threading.RLock()

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
        row = self.sets.get(key) or _Set()
        row.used = next(self._preparations.turns)
        idle = row.idle
        if idle is None:
            return None
        try:
            prepared: PreparedDispatch | None = idle.pop()
        except IndexError:
            prepared = None
        if prepared is None and (prepared := self._prepare(key, row, given)) is None:
            return None
        try:
            return prepared.run(given)
        finally:
            idle.append(prepared)  # which goes with the set, where that was forgotten meanwhile

    def _prepare(self, key: tuple[Any, ...], row: _Set, given: dict[str, Any]) -> PreparedDispatch | None:
        pipeline = self._pipeline()
        assert pipeline is not None  # it is what runs this
        device = pipeline.device
        with self._lock:
            if row.made >= _AT_ONCE:
                device.telemetry.fallbacks += 1
                return None
            binding = bind_arguments(device, pipeline.artifact.interface, given, {}, staged=True)
            total = sum(prod(binding.shapes[m.name]) * m.type.size_bytes for m in binding.interface.buffers)
            (step,) = pipeline.part.steps
            grid = solve_grid(step, binding.sizes, None, device.limits.workgroups, device.name)
            if not 0 < total <= _STAGED_BYTES or 0 in grid or 0 in map(prod, binding.shapes.values()):
                row.idle = None
                self._keep(key, row)
                return None
            way = Mapped if total <= _MAPPED_BYTES and step.streaming else Staged
            try:
                if not self._preparations.make_room(0 if way is Mapped else total, total):
                    return None
                made = way(pipeline, binding, device)  # type: ignore[arg-type]  # only a CudaDevice makes a Dispatcher
            except OutOfMemory:  # the general way may do with less
                device.telemetry.fallbacks += 1
                return None
            row.made += 1
            self._keep(key, row)  # to make room may have dropped it
            self._preparations.admit(made)
            return made

    def _keep(self, key: tuple[Any, ...], row: _Set) -> None:
        """Remembers a set, in place of the one that was used longest ago where there are too many."""
        self.sets[key] = row
        rows = list(self.sets.items())
        if len(rows) > _SETS:
            self.sets.pop(min(rows, key=lambda one: one[1].used)[0], None)
