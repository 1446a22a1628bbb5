"""Launches on WebGPU: a bind group and a block of words made at bind, a command buffer per call."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.errors import BindingError, DriverError, LaunchError
from vyre_py.drivers.launch import Launch, LaunchPlan, choose_entry
from vyre_py.drivers.many.commands import require_memory
from vyre_py.drivers.many.stepped import SteppedLaunch
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.wgpu.batch import Batch, Rider
from vyre_py.drivers.wgpu.library import refusals
from vyre_py.drivers.wgpu.memory import WORD_BYTES, words_around
from vyre_py.drivers.wgpu.uniforms import UniformBlock
from vyre_py.lowering.layout import Slot
from vyre_py.lowering.wgsl.uniform_block import GROUPS_X, GROUPS_Z, offset_word, scalar_word

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["WgpuLaunch", "fold_grid", "last_of"]


def fold_grid(grid: tuple[int, int, int], limit: int) -> tuple[int, int, int]:
    """The dispatches for a grid: itself, or turns of at most `limit` along x, one above the other along z (see `lowering.wgsl.uniform_block`).

    Raises BindingError when there is no room for the turns along z.
    """
    x, y, z = grid
    turns = -(-x // limit)
    if turns * z > limit:
        raise BindingError("grid", [f"a grid of {x} x {y} x {z} workgroups needs {turns * z} along z where {limit} are possible"])
    return -(-x // turns), y, turns * z


class WgpuLaunch(Launch):
    """A launch: a batch of its own a call, or part of another. `dispatched` are the workgroups that WebGPU is asked for, `armed` the
    pipeline and bind group of a call, None when it refuses."""

    _device: WgpuDevice
    __slots__ = (
        "__weakref__", "_block", "_buffers", "_codes", "_device", "_errors", "_grid", "_label", "_record", "_rider", "_telemetry", "_words", "armed",
        "dispatched",
    )  # fmt: skip

    def __init__(self, device: WgpuDevice, plan: LaunchPlan, codes: tuple[Any, ...]) -> None:
        super().__init__(plan)
        layout = plan.step.layout
        self._device, self._codes = device, codes
        self._errors = refusals()
        self._telemetry = device.telemetry
        self._record = plan.record()
        # What a call needs, replaced as one, since another thread may free a buffer; None when the launch refuses.
        self.armed: tuple[Any, Any] | None = None
        self._rider: Rider | None = None
        self.dispatched = fold_grid(plan.launched, device.grid_limit)
        # wgpu hands labels to C: what is no text in UTF-8 is replaced.
        self._label = plan.label.encode("utf-8", "replace").decode().replace("\0", "?")
        buffers = plan.buffers
        self._buffers = {slot.name: buffers[slot.name] for slot in layout.buffers}
        self._words: bytearray | None = None  # of a block that nothing was written to yet
        self._grid = plan.grid_buffer
        if self._grid is not None:
            self._require_grid(self._grid)
        try:
            self._take_words()
            self._bind()
            device.launches.add(self)
        except self._errors as error:
            device.require_usable()
            raise self._failure(error) from error

    @property
    def _module(self) -> Any:
        return self._codes[self.plan.entry]

    def _take_words(self) -> None:
        """Makes the blocks of what is no buffer."""
        plan, layout = self.plan, self.plan.step.layout
        words = bytearray(self._module.block_bytes)
        for word, groups in self._groups():
            words[word * WORD_BYTES : (word + 1) * WORD_BYTES] = groups
        for slot in layout.scalars:
            begin = scalar_word(layout, slot) * WORD_BYTES
            words[begin : begin + slot.size_bytes] = plan.block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes]
        self._block: UniformBlock = self._device.uniforms.block(len(words))
        self._words = words

    def _groups(self) -> list[tuple[int, bytes]]:
        """The words of the block that say how many workgroups there are."""
        x, _, z = self.plan.launched
        return [(word, struct.pack("<I", count)) for word, count in ((GROUPS_X, x), (GROUPS_Z, z))]

    def _enter(self, entry: int) -> None:
        """Has the next call take another entry."""
        self.plan = self.plan._replace(entry=entry)
        self.dispatched = fold_grid(self.plan.launched, self._device.grid_limit)
        for word, groups in self._groups():
            self._block.write(word * WORD_BYTES, groups)

    def _require_grid(self, grid: Buffer) -> None:
        """Raises BindingError where the launch writes the allocation that its own grid is in, which WebGPU forbids."""
        names = {memory.name for memory in self.plan.binding.interface.buffers if memory.access.writes}
        written = [name for name in names if self._buffers[name].allocation is grid.allocation]
        if written:
            raise BindingError(self._title, [f"the launch writes the memory of its grid: {written[0]!r} is part of it"])

    def _run(self) -> None:
        self._run_steps((self,))

    def _run_steps(self, steps: Sequence[WgpuLaunch]) -> None:
        batch = Batch(self._device, self._label, self._rider)
        try:
            for step in steps:
                step.encode(batch)
            batch.submit()
        except self._errors as error:
            self._device.require_usable()
            raise self._failure(error) from error

    @contextmanager
    def ridden(self, rider: Rider) -> Iterator[None]:
        """A block in which something goes with its calls."""
        self._rider = rider
        try:
            yield
        finally:
            self._rider = None

    def encode(self, batch: Batch) -> None:
        """Puts it into a batch. Raises BindingError when a buffer was freed, DeviceLost, and what wgpu-py raises."""
        pipeline, group = self.armed or self._rearm()
        if self._grid is None:
            batch.dispatch(self, pipeline, group)
        else:
            self._take_grid(batch, self._grid)
            batch.dispatch(self, pipeline, group, (self._grid.handle.buffer, self._grid.offset_bytes))

    def _take_grid(self, batch: Batch, grid: Buffer) -> None:
        """Has the block say what the grid is, once the device knows."""
        for word, axis in ((GROUPS_X, 0), (GROUPS_Z, 2)):
            batch.copy(grid.handle.buffer, grid.offset_bytes + axis * WORD_BYTES, *self._block.place(word * WORD_BYTES), WORD_BYTES)

    def count(self) -> None:
        """Counts a call that was submitted."""
        self._telemetry.launches += self.counted
        self._record.count()

    def _of(self, plan: LaunchPlan) -> WgpuLaunch:
        return type(self)(self._device, plan, self._codes)

    def disarm(self) -> None:
        """Makes later calls refuse: a bound buffer was freed, or the device is closed."""
        self.armed = None

    def _rearm(self) -> tuple[Any, Any]:
        """The pipeline and bind group of a call again, after a buffer was freed that `set` has replaced since. Raises BindingError, DeviceLost."""
        while True:  # until no other thread has freed one meanwhile
            self._device.require_usable()
            require_memory(self._title, self._used())
            self._bind()
            if (armed := self.armed) is not None:
                return armed

    def _used(self) -> Mapping[str, Buffer]:
        return self._buffers if self._grid is None else {**self._buffers, "grid": self._grid}

    def _freed(self) -> bool:
        return any(buffer.allocation.freed for buffer in self._used().values())

    def _failure(self, error: Exception) -> DriverError:
        name = self.plan.binding.interface.name
        return self._device.failure(error, f"{name!r} cannot be launched on {self._device.name}", LaunchError)

    def _bind(self) -> None:
        """Makes the bind group, and writes the element offsets that go with it. With a freed buffer the launch refuses instead."""
        if self._freed():
            self.disarm()
            return
        variant = self._module.variant(self._is_shared())
        entries, offsets = self._entries()
        group = self._device.gpu.create_bind_group(layout=variant.layout, entries=entries)
        self._write_offsets(offsets)
        for buffer in self._used().values():
            buffer.handle.launches.add(self)
        self.armed = variant.pipeline, group
        if self._freed():  # by another thread, meanwhile
            self.disarm()

    def _write_offsets(self, offsets: list[int]) -> None:
        """Writes them to the block; at first with all that it is to hold."""
        packed = struct.pack(f"<{len(offsets)}I", *offsets)
        begin = offset_word(0) * WORD_BYTES
        if self._words is None:
            self._block.write(begin, packed)
        else:
            self._words[begin : begin + len(packed)] = packed
            self._block.write(0, self._words)
            self._words = None

    def _entries(self) -> tuple[list[dict[str, Any]], list[int]]:
        """The entries of the bind group, and how many elements lie in each buffer's range before the argument's first."""
        entries: list[dict[str, Any]] = [{"binding": 0, "resource": self._block.resource}]
        offsets: list[int] = []
        for number, slot in enumerate(self.plan.step.layout.buffers):
            resource, offset = self._range(self._buffers[slot.name], slot.type.size_bytes)
            entries.append({"binding": number + 1, "resource": resource})
            offsets.append(offset)
        if self._module.tables:
            entries.append(self._module.tables)
        return entries, offsets

    def _is_shared(self) -> bool:
        """Whether an argument that is written and one that is only read are ranges of one buffer."""
        sides: tuple[set[int], set[int]] = set(), set()
        for memory in self.plan.binding.interface.buffers:
            sides[memory.access.writes].add(id(self._buffers[memory.name].allocation))
        return not sides[0].isdisjoint(sides[1])

    def _range(self, buffer: Buffer, element_bytes: int) -> tuple[dict[str, Any], int]:
        """The range to bind, which begins where the device allows it, and how many of the code's elements lie in it before the argument's
        first: the code may have halves or components of what the caller calls an element."""
        storage = buffer.handle
        if not buffer.size_bytes:
            return {"buffer": storage.buffer, "offset": 0, "size": 2 * WORD_BYTES}, 0  # the code may have pairs of words for elements
        begin = buffer.offset_bytes - buffer.offset_bytes % self._device.offset_alignment
        _, end = words_around(buffer.offset_bytes, buffer.size_bytes)
        return {"buffer": storage.buffer, "offset": begin, "size": end - begin}, (buffer.offset_bytes - begin) // element_bytes

    def _write(self, slot: Slot, data: bytes) -> None:
        """Writes a param, in order with submitted work."""
        begin = scalar_word(self.plan.step.layout, slot) * WORD_BYTES
        if self._words is None:
            self._block.write(begin, data)
        else:
            self._words[begin : begin + len(data)] = data

    def _put(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        self._device.require_usable()
        before, entered = self._buffers, self.plan.entry
        self._buffers = {**before, **buffers}
        try:
            if buffers:
                if (entry := choose_entry(self.plan.step, self.plan.binding.sizes, self._buffers, self.plan.config)) != entered:
                    self._enter(entry)
                self._bind()
            for slot, data in slots:
                self._write(slot, data)
        except BaseException as error:
            self._buffers = before
            self.disarm()  # the next call binds them again, at their offsets
            if self.plan.entry != entered:
                self._enter(entered)
            if isinstance(error, self._errors):
                self._device.require_usable()
                raise self._failure(error) from error
            raise


def last_of(launch: Launch) -> WgpuLaunch | None:
    """The launch that enqueues another, or several that are launched as one; None where nothing runs."""
    inner = launch.inner
    last = inner.launches[-1] if isinstance(inner, SteppedLaunch) else inner
    return last if isinstance(last, WgpuLaunch) else None
