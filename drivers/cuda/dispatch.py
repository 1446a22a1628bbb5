"""Dispatches of small host arrays: prepared once for each set of shapes, then copies and one native call.

What a kernel reads and writes once stays in page-locked host memory that the device sees, up to `_MAPPED_BYTES`: no copies by the device at
all. Otherwise, up to `_STAGED_BYTES`, arrays go through page-locked memory to buffers that are kept. Larger ones, and whatever is not plain
(other kinds of arguments, options, results written in place), go the general way, which also says what is wrong with arguments.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.binding import bind_arguments, solve_grid
from vyre_py.drivers.cuda.prepared import Mapped, Prepared, Staged

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["Dispatcher"]

_MAPPED_BYTES: Final = 64 << 10
_STAGED_BYTES: Final = 8 << 20
# Sets of shapes that are remembered for a pipeline, and dispatches of one set that may run at once in several threads.
_SETS: Final = 16
_AT_ONCE: Final = 4


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
        self._idle: OrderedDict[tuple[Any, ...], list[Prepared] | None] = OrderedDict()
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
            prepared: Prepared | None = idle.pop()
        except IndexError:
            prepared = None
        if prepared is None and (prepared := self._prepare(key, given)) is None:
            return None
        try:
            return prepared.run(given)
        finally:
            if (back := self._idle.get(key)) is not None:
                back.append(prepared)

    def _prepare(self, key: tuple[Any, ...], given: dict[str, Any]) -> Prepared | None:
        pipeline = self._pipeline()
        assert pipeline is not None  # it is what runs this
        device = pipeline.device
        with self._lock:
            if self._made.get(key, 0) >= _AT_ONCE:
                device.telemetry.fallbacks += 1
                return None
            binding = bind_arguments(device, pipeline.artifact.interface, given, {}, staged=True)
            total = sum(prod(binding.shapes[m.name]) * m.type.size_bytes for m in binding.interface.buffers)
            (step,) = pipeline.part.steps
            grid = solve_grid(step, binding.sizes, None, device.limits.workgroups, device.name)
            fits = 0 < total <= _STAGED_BYTES and 0 not in grid and 0 not in map(prod, binding.shapes.values())
            self._idle.setdefault(key, [] if fits else None)
            if not fits:
                return None
            way = Mapped if total <= _MAPPED_BYTES and step.streaming else Staged
            made = way(pipeline, binding, device)  # type: ignore[arg-type]  # who makes a Dispatcher is a CudaDevice
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


_UNKNOWN: Final[list[Prepared]] = []
