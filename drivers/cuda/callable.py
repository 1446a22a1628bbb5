"""Calls of a pipeline on CUDA: native code takes the arguments, plans the launch and makes the driver's call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.launch.attributes import launch_attributes
from vyre_py.drivers.cuda.launch.boxes import box_words, encoder
from vyre_py.drivers.cuda.launch.buffer_records import record_of
from vyre_py.drivers.cuda.launch.cooperative import resident_workgroups
from vyre_py.drivers.cuda.launch.launch import stream_handle
from vyre_py.drivers.cuda.launch.launcher import Launcher
from vyre_py.drivers.cuda.native.entry_call import C_CALL, C_CALL_SYMBOL, ENTRY_CALL, ENTRY_CALL_SYMBOL
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.arrays import layout_problem
from vyre_py.drivers.native.mode import ModeWord
from vyre_py.drivers.native.native_entry import EntryParts, NativeEntry, native_type
from vyre_py.lowering.artifact.parts import Step
from vyre_py.lowering.llvm.callable import BoxEncoder, PlanCode, plan_code

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.launch.module import CudaModule
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CudaCallEntry", "make"]

_COUNTED: Final = ("launches", "elements_launched", "threads_scheduled", "threads_occupied", "parameter_bytes")


def _lacks(device: CudaDevice, step: Step) -> str:
    """What launches of a step need besides arguments."""
    if launch_attributes(device.capability, step, DispatchConfig(), (1, 1, 1)):
        return "a Program whose launches have attributes: cooperative, dependent"
    return ""


def make(device: CudaDevice, pipeline: Pipeline) -> CallEntry:
    """The pipeline as a function. The general one where its launches need more than arguments. Raises ToolchainError where llvmlite cannot be loaded."""
    steps, limits = pipeline.part.steps, device.limits
    if len(steps) != 1:
        return CallEntry(pipeline, "a Program of several steps")
    if lacks := _lacks(device, steps[0]):
        return CallEntry(pipeline, lacks)
    fits = _fits(device, steps[0], pipeline._codes[0]) if steps[0].has_groups else ()
    if 0 in fits:
        return CallEntry(pipeline, "a Program not one of whose workgroups fits")
    code = plan_code(pipeline.artifact.interface, steps[0], limits.workgroups, limits.elements, limits.buffer_bytes, fits, _encoder(device))
    if code is None:
        return CallEntry(pipeline, "a Program with grid barriers, scans over the grid, asserts or prints, or code that can be ended")
    problem = layout_problem()
    type_ = CudaCallEntry if problem else native_type(_NativeCudaEntry, ENTRY_CALL_SYMBOL, ENTRY_CALL)
    return type_(device, pipeline, code, problem)


def _encoder(device: CudaDevice) -> BoxEncoder | None:
    """What describes boxes, where the driver does."""
    address = encoder(device.context)
    return BoxEncoder(address, box_words) if address else None


def _fits(device: CudaDevice, step: Step, modules: tuple[CudaModule, ...]) -> tuple[int, ...]:
    """How many workgroups of each entry run at once."""
    return tuple([
        resident_workgroups(device.context, module.function, step.workgroup_of(number), module.workgroup_bytes) for number, module in enumerate(modules)
    ])  # fmt: skip


class CudaCallEntry(NativeEntry):
    """A call on CUDA. Python calls its subclass `_NativeCudaEntry`; this one is for C alone, where Python's objects lie in an unknown way."""

    __slots__ = ("_launcher", "_place")

    def __init__(self, device: CudaDevice, pipeline: Pipeline, code: PlanCode, lacks: str = "") -> None:
        context = device.context
        self._launcher = Launcher(device, pipeline.part.steps[0], pipeline._codes[0])
        self._place = device.dlpack_device
        at = self._launcher.address
        parts = EntryParts(self._launcher.kernels, C_CALL, C_CALL_SYMBOL, _make_record, _COUNTED, at, at, context.number, int(context.stream))
        super().__init__(pipeline, code, ModeWord(context.mode), parts, lacks)

    def _order_misfit(self, given: Mapping[str, Any], stream: Any) -> str:
        values = [given[memory.name] for memory in self.pipeline.artifact.interface.buffers]
        types = {Buffer if isinstance(value, Buffer) else type(value) for value in values}
        if len(types) > 1:
            return f"{', '.join(sorted(type_.__name__ for type_ in types))} together have no stream in common"
        if types <= {Buffer}:
            return "" if stream is None else "launches over Buffers on other streams than the device's own are recorded in Python"
        now = None if self._place is None else self._told.exchanges.stream(values[0], self._place)
        if now is None:
            return f"{type(values[0]).__name__} does not tell the stream that its library works on"
        return "" if stream is None or stream_handle(stream) == now else f"the stream is not the one that {type(values[0]).__name__}'s library works on now"


def _make_record(buffer: Buffer) -> None:
    record_of(buffer)


class _NativeCudaEntry(CudaCallEntry):
    """The same, called in native code from Python, too."""

    __slots__ = ()
