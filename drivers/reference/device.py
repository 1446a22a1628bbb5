"""The reference device: NumPy bytes for memory, the interpreter for launches."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from vyre_py.drivers.device import Device, Limits
from vyre_py.drivers.errors import OutOfMemory
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.many.indirect import read_grid
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import Bytes, Host
from vyre_py.ir.interpret import Reports, interpret
from vyre_py.ir.interpret.reports import Said
from vyre_py.ir.language.dims import DimConst, Grid, evaluate_extent
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Entry, Image, Step
from vyre_py.lowering.layout import Slot, SlotKind
from vyre_py.lowering.legal.asserts import numbered
from vyre_py.lowering.reports import Record
from vyre_py.lowering.target import Target

__all__ = ["ReferenceDevice"]

_LIMITS = Limits(workgroups=(2**32, 2**32, 2**32), invocations=1024, workgroup_bytes=227 << 10, buffer_bytes=2**40)


class ReferenceLaunch(Launch):
    """A launch through the interpreter; it runs to its end before the call returns."""

    __slots__ = ("_code", "_params", "_record")

    def __init__(self, plan: LaunchPlan, code: Optimised) -> None:
        super().__init__(plan)
        self._code = _with_grid(code, plan.grid)
        self._params: dict[str, Host] = {}
        self._record = plan.record()
        for slot in plan.step.layout.scalars:
            if slot.kind is SlotKind.PARAM:
                self._set_slot(slot, bytes(plan.block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes]))

    def _run(self) -> None:
        plan = self.plan
        plan.device.require_usable()
        code = self._code
        if plan.grid_buffer is not None:
            if (grid := read_grid(plan)) is None:
                return
            code = _with_grid(code, grid)
        arrays = {name: _elements(buffer) for name, buffer in plan.binding.buffers.items()}
        if plan.report is None:
            self._interpret(code, arrays, None)
        else:
            report = plan.report.report
            extents = plan.step.grid.extents if plan.step.grid.over else ()
            heard = Reports(report.room, tuple([evaluate_extent(extent, plan.binding.sizes) for extent in extents]) or None)
            try:
                self._interpret(code, arrays, heard)
            finally:
                report.take([_record(heard.failed)] if heard.failed else [], [*map(_record, heard.printed)], heard.dropped)
        plan.device.telemetry.launches += self.counted
        self._record.count()

    def _interpret(self, code: Optimised, arrays: Mapping[str, Host], reports: Reports | None) -> None:
        plan = self.plan
        races, unwritten = plan.config.races, plan.config.unwritten
        interpret(code, {**arrays, **self._params}, plan.binding.sizes, races=races, unwritten=unwritten, reports=reports)

    def _of(self, plan: LaunchPlan) -> ReferenceLaunch:
        return ReferenceLaunch(plan, self._code)

    def _set_buffer(self, name: str, buffer: Buffer) -> None:
        pass  # the call reads the binding, where `set` has put the buffer

    def _set_slot(self, slot: Slot, data: bytes) -> None:
        type_ = slot.type
        self._params[slot.name] = np.frombuffer(data, type_.dtype, type_.lanes).reshape(host_shape((), type_))


def _with_grid(code: Optimised, grid: tuple[int, int, int]) -> Optimised:
    x, y, z = map(DimConst, grid)
    return replace(code, program=replace(code.program, grid=Grid(False, (x, y, z))))


def _record(said: Said) -> Record:
    return Record(numbered(said.message), said.global_id, said.words)


def _elements(buffer: Buffer) -> Host:
    raw: Bytes = buffer.handle
    return raw[buffer.offset_bytes : buffer.offset_bytes + buffer.size_bytes].view(buffer.type.dtype).reshape(buffer.host_shape)


class ReferenceDevice(Device):
    """The interpreter as a device."""

    kind: ClassVar[str] = "reference"
    reads_grids: ClassVar[bool] = True
    honoured_options: ClassVar[frozenset[str]] = Device.honoured_options | {"races", "unwritten"}

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal, Target("reference"), _LIMITS, f"NumPy {np.__version__} interpreter on {platform.machine()}")

    def _allocate(self, size_bytes: int) -> Bytes:
        try:
            return np.zeros(size_bytes, np.uint8)
        except MemoryError as error:
            raise OutOfMemory(f"{self.name} cannot allocate {size_bytes} bytes", cause=str(error), remedy="free buffers, or ask for less") from error

    def _free(self, handle: Bytes, size_bytes: int) -> None:
        pass  # NumPy gives the memory back with its last view

    def _write(self, handle: Bytes, offset: int, source: Bytes) -> None:
        handle[offset : offset + source.size] = source

    def _read(self, handle: Bytes, offset: int, target: Bytes) -> None:
        target[:] = handle[offset : offset + target.size]

    def _copy(self, source: Bytes, source_offset: int, target: Bytes, target_offset: int, size_bytes: int) -> None:
        target[target_offset : target_offset + size_bytes] = source[source_offset : source_offset + size_bytes]

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> Optimised:
        code: Optimised = image.program
        return code

    def _make_launch(self, plan: LaunchPlan, codes: tuple[Optimised, ...]) -> Launch:
        return ReferenceLaunch(plan, codes[plan.entry])

    def _synchronize(self) -> None:
        pass  # launches run to their end

    def _close(self) -> None:
        pass  # nothing is held
