"""Arenas: one allocation that serves a whole chain of launches, and the pool that keeps freed ones.

What an arena holds is unspecified until it is written: its bytes serve one value after another, and may come from an arena that was freed. A plan
refuses values that a step reads before one writes them, and a value that has to begin with zeros says so (`ArenaValue.zeroed`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import BindingError, OutOfMemory
from vyre_py.drivers.memory.allocation import Allocation
from vyre_py.drivers.memory.arena.planner import ArenaPlan, ArenaValue
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Arena", "ArenaPool"]

_KEPT_ARENAS: Final = 16
_KEPT_BYTES: Final = 1 << 30
# A kept arena serves a plan that needs at least this part of it, so that a small plan does not take a large one away.
_USED_PART: Final = 4
_OWNER: Final = "an arena: Arena.free gives it back whole"


@public
class Arena(Closing, Stationary):
    """The values of a plan in one allocation: `arena["name"]` is a Buffer, for `bind` like any other.

    Attributes: `device`, `plan`, `allocation`. The memory goes back to the device's pool with `free`, or with the last buffer over it.
    """

    travels_as = "send its plan, and call device.arena there"

    __slots__ = ("_shapes", "allocation", "device", "plan")

    def __init__(self, device: Device, plan: ArenaPlan, allocation: Allocation) -> None:
        self.device = device
        self.plan = plan
        self.allocation = allocation
        self._shapes: Mapping[str, tuple[int, ...]] = {}

    def __getitem__(self, name: str) -> Buffer:
        """The value's bytes, as its type and shape, or the shape that it was given since. Raises BindingError for a name that the plan has not."""
        value = self._value(name)
        return Buffer(self.device, self.allocation, self.plan.offsets[name], self._shapes.get(name, value.shape), value.type)

    def _value(self, name: Any) -> ArenaValue:
        value = self.plan.values.get(name) if isinstance(name, str) else None
        if value is None:
            raise BindingError("arena", [f"there is no value {shown(name)}; there are {shown(list(self.plan.values))}"])
        return value

    def set_actual_len(self, name: str, rows: int) -> None:
        """Makes a value shorter than planned, or as long again: `arena[name]` is so many rows of its first axis from now on. What is bound already stays
        as it is. Raises BindingError for a name that the plan has not, and for more rows than were planned."""
        planned = self._value(name).shape
        if not is_count(rows) or rows > planned[0]:
            raise BindingError("arena", [f"{name!r} was planned with {planned[0]} rows, got {shown(rows)}"])
        self._shapes = {**self._shapes, name: (int(rows), *planned[1:])}

    def set_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """Has values of these names be of these shapes, and all others as planned; gives what held before. Raises BindingError for a value of more bytes
        than were planned."""
        problems = [
            f"{name!r} of shape {list(shape)} takes more than the {value.size_bytes} bytes that were planned"
            for name, shape in shapes.items()
            if prod(shape) * (value := self._value(name)).type.size_bytes > value.size_bytes
        ]
        if problems:
            raise BindingError("arena", problems)
        before, self._shapes = self._shapes, dict(shapes)
        return before

    def __iter__(self) -> Iterator[str]:
        """The names of the values."""
        return iter(self.plan.values)

    def __len__(self) -> int:
        return len(self.plan.values)

    @property
    def size_bytes(self) -> int:
        """Bytes of the allocation; one from the pool may be larger than the plan's peak."""
        return self.allocation.size_bytes

    @property
    def freed(self) -> bool:
        """Whether `free` was called."""
        return self.allocation.freed

    def free(self) -> None:
        """Gives the memory back to the pool; launches over it then refuse. Again is quiet. On the CPU no other thread may be running one."""
        self.allocation.free()

    close = free  # which the end of a `with` block calls

    def __repr__(self) -> str:
        return f"<Arena of {len(self)} values in {self.size_bytes} bytes on {self.device.name}>"


class ArenaPool:
    """Memory of a device's freed arenas, kept for plans to come: at most `limit_arenas` (16) pieces and `limit_bytes` (1 GiB); both may be set.

    A piece serves any plan that fits in and needs at least a quarter of it; the smallest is taken. Any thread may use it.
    """

    def __init__(self, device: Device) -> None:
        self.limit_arenas = _KEPT_ARENAS
        self.limit_bytes = _KEPT_BYTES
        self._device = device
        self._kept: list[tuple[int, Any]] = []  # size in bytes, handle
        # A finaliser may run in the middle of any method, in the same thread.
        self._lock = threading.RLock()

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(size for size, _ in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def arena(self, plan: ArenaPlan) -> Arena:
        """An arena for a plan, over kept memory where some fits. Raises OutOfMemory, after giving all that is kept back; BindingError."""
        if not isinstance(plan, ArenaPlan):
            raise BindingError("arena", [f"a plan is needed, which vyre_py.plan_arena makes, got {shown(plan)}"])
        device = self._device
        device.require_no_capture(f"{device.name} cannot allocate an arena")
        telemetry = device.telemetry
        found = self._take(plan.peak_bytes)
        if found is not None:
            telemetry.arena_reuses += 1
            size_bytes, handle = found
        else:
            size_bytes = plan.peak_bytes
            try:
                handle = device._new_memory(size_bytes, device._allocate_unset)
            except OutOfMemory:
                self.clear()
                handle = device._new_memory(size_bytes, device._allocate_unset)
        telemetry.arenas += 1
        return Arena(device, plan, Allocation(device, handle, size_bytes, recycle=self._keep, owner=_OWNER))

    def _take(self, size_bytes: int) -> tuple[int, Any] | None:
        with self._lock:
            fitting = [piece for piece in self._kept if size_bytes <= piece[0] <= size_bytes * _USED_PART]
            if not fitting:
                return None
            best = min(fitting, key=lambda piece: piece[0])
            self._kept.remove(best)
            return best

    def _keep(self, handle: Any, size_bytes: int) -> bool:
        """Whether a freed arena's memory stays here. The oldest makes room for it."""
        device = self._device
        if device.closed or not 0 < size_bytes <= self.limit_bytes or not self.limit_arenas:
            return False
        passed_on = device._pass_on(handle)
        if passed_on is None:
            return False
        with self._lock:
            self._kept.append((size_bytes, passed_on))
            while len(self._kept) > self.limit_arenas or self.kept_bytes > self.limit_bytes:
                self._drop(self._kept.pop(0))
        return True

    def _drop(self, piece: tuple[int, Any]) -> None:
        size_bytes, handle = piece
        self._device.telemetry.bytes_allocated -= size_bytes
        self._device._free(handle, size_bytes)

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def clear(self) -> None:
        """Gives everything that is kept back to the device."""
        with self._lock:
            while self._kept:
                self._drop(self._kept.pop())
