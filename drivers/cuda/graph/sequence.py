"""Sequences as one native call: a call of the driver for each step, over the live argument blocks of the launches."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Any, ClassVar, Final

from vyre_py.drivers.cuda.launch.launch import BoundKernel, CudaLaunch
from vyre_py.drivers.cuda.memory.copies import Work, copy_work, fill_work
from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand, NativeStep
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.many.commands import Command
from vyre_py.drivers.many.sequence import CopyStep, FillStep, Sequence, SequenceStep
from vyre_py.drivers.memory.buffer import Buffer

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.graph.recorder import CudaRecorder

__all__ = ["CudaSequence", "SequenceCalls", "command_of"]


def _address(buffer: Buffer) -> int:
    return int(buffer.handle) + buffer.offset_bytes


def _copy(step: CopyStep) -> tuple[int, list[Work]]:
    size = step.target.size_bytes
    return size, copy_work(_address(step.source), _address(step.target), size)


def _fill(step: FillStep) -> tuple[int, list[Work]]:
    size = step.buffer.size_bytes
    return size, fill_work(_address(step.buffer), size, step.pattern)


# A step of any device -> its bytes, and its work for the driver.
_WORK: Final[Mapping[type, Callable[[Any], tuple[int, list[Work]]]]] = {CopyStep: _copy, FillStep: _fill}


def command_of(device: CudaDevice, step: Command) -> NativeCommand | BoundKernel:
    """A step of this device for a native list: a launch's own list, or a row. Raises BindingError when one of a row's buffers was freed."""
    if isinstance(step, Launch):
        launch = step.inner
        assert isinstance(launch, CudaLaunch)  # what has nothing to run is not among the steps
        return launch.kernel
    assert isinstance(step, SequenceStep)
    step.require_memory()
    if isinstance(step, NativeStep):
        return step.command()
    size, work = _WORK[type(step)](step)
    stream = int(device.context.stream)
    calls = tuple([Call(device.context.function(name), (*arguments, stream)) for name, arguments in work])
    return NativeCommand(step._kind, step.name, calls, step.buffers, step._kind.counts(size), step)


class SequenceCalls(CommandList):
    """The native list of a sequence: one item a step. Attribute: `face`, whose `__call__` is the builtin."""

    names_first_cause: ClassVar[bool] = True

    def __init__(self, device: CudaDevice, steps: Many[Command]) -> None:
        self.face: weakref.ref[CudaSequence] | None = None
        super().__init__(device, [command_of(device, step) for step in steps])

    @property
    def name(self) -> str:
        """See `CommandList.name`."""
        return f"sequence of {len(self.items)}"

    def doing(self, row: int | None) -> str:
        """See `CommandList.doing`."""
        return f"{self.name if row is None else self._step(row)} cannot be enqueued on {self.device.name}"

    def _step(self, row: int) -> str:
        return f"step {row} ({self.rows[row].name}) of a sequence"

    def require_ready(self) -> None:
        """Raises BindingError when a buffer of a step was freed."""
        for number, item in enumerate(self.items):
            try:
                item.require_ready()
            except BindingError as error:
                raise BindingError(self._step(number), error.problems) from None

    def record_into(self, recorder: CudaRecorder) -> None:
        """Makes the steps nodes. Raises LaunchError."""
        recorder.require_own(f"the sequence was not enqueued on {self.device.name}")
        super().record_into(recorder)

    def refresh(self) -> bool:
        """See `CommandList.refresh`. What is called is the new list from then on."""
        renewed = super().refresh()
        if renewed and self.face is not None and (face := self.face()) is not None:
            face.take(self)
        return renewed


class CudaSequence(Sequence):
    """A sequence whose `__call__` is a builtin. Each launch goes to the stream that it is on, copies and fills to the device's own."""

    __slots__ = ("__call__", "_calls")

    def __init__(self, device: CudaDevice, steps: Many[Command]) -> None:
        super().__init__(device, steps)
        calls = SequenceCalls(device, steps)
        calls.face = weakref.ref(self)
        self.take(calls)

    def take(self, calls: SequenceCalls) -> None:
        """Runs these calls from now on."""
        self._calls = calls
        self.__call__ = calls.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin
