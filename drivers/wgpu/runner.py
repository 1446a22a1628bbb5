"""Sequences and graphs on WebGPU: their commands, encoded together each time they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import DispatchTimeout, LaunchError
from vyre_py.drivers.many.commands import Command, CommandRunner
from vyre_py.drivers.many.sequence import CopyStep, FillStep, SequenceStep
from vyre_py.drivers.many.stepped import SteppedLaunch
from vyre_py.drivers.wgpu.batch import Batch, Pattern, is_whole
from vyre_py.drivers.wgpu.launch import WgpuLaunch
from vyre_py.drivers.wgpu.library import refusals

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["BatchRunner"]

_Encode = Callable[[Batch], None]


def _launch(device: WgpuDevice, launch: WgpuLaunch) -> _Encode:
    return launch.encode


def _stepped(device: WgpuDevice, stepped: SteppedLaunch) -> _Encode:
    launches: Sequence[Any] = stepped.launches

    def encode(batch: Batch) -> None:
        for launch in launches:
            launch.encode(batch)

    return encode


def _counted(device: WgpuDevice, step: SequenceStep, size_bytes: int) -> Callable[[], None]:
    amounts = step._kind.counts(size_bytes)

    def count() -> None:
        for name, amount in amounts.items():
            setattr(device.telemetry, name, getattr(device.telemetry, name) + amount)

    return count


def _copy(device: WgpuDevice, step: CopyStep) -> _Encode | None:
    source, target = step.source, step.target
    size_bytes = target.size_bytes
    if source.allocation is target.allocation or not is_whole(source.offset_bytes, target.offset_bytes, size_bytes):
        return None  # through the host
    count = _counted(device, step, size_bytes)

    def encode(batch: Batch) -> None:
        batch.copy(source.handle.buffer, source.offset_bytes, target.handle.buffer, target.offset_bytes, size_bytes)
        batch.then(count)

    return encode if size_bytes else _nothing


def _fill(device: WgpuDevice, step: FillStep) -> _Encode | None:
    buffer = step.buffer
    size_bytes = buffer.size_bytes
    if not is_whole(buffer.offset_bytes, size_bytes):
        return None  # its words have other bytes, too
    if not size_bytes:
        return _nothing
    pattern, count = Pattern(device, size_bytes, step.pattern), _counted(device, step, size_bytes)

    def encode(batch: Batch) -> None:
        batch.fill(buffer.handle.buffer, buffer.offset_bytes, size_bytes, pattern)
        batch.then(count)

    return encode


def _nothing(batch: Batch) -> None:
    """Encodes nothing, of no bytes."""


# A command's class -> what encodes one of it; None where that cannot be.
_ENCODES: Final[Mapping[type[Command], Callable[[WgpuDevice, Any], _Encode | None]]] = {
    WgpuLaunch: _launch, SteppedLaunch: _stepped, CopyStep: _copy, FillStep: _fill,
}  # fmt: skip


class BatchRunner(CommandRunner):
    """Commands in one submission; what cannot be encoded comes in between, by itself."""

    def __init__(self, device: WgpuDevice, commands: Sequence[Command], title: Callable[[int, Command], str]) -> None:
        super().__init__(commands, title)
        self._device = device
        makers = [_ENCODES.get(type(command)) for command in commands]
        self._encodes = [None if maker is None else maker(device, command) for maker, command in zip(makers, commands, strict=True)]
        # What is looked at before each run. Launches know when a buffer of theirs is freed.
        self._is_plain = None not in makers
        launches = [launch for command in commands for launch in (command.launches if isinstance(command, SteppedLaunch) else (command,))]
        self._launches = [launch for launch in launches if isinstance(launch, WgpuLaunch)]
        self._allocations = [buffer.allocation for command in commands if isinstance(command, SequenceStep) for buffer in command.buffers.values()]

    def __call__(self) -> None:
        """Runs all. Raises BindingError before anything ran when a buffer was freed, LaunchError, DeviceLost."""
        device = self._device
        if device._recording is not None:
            super().__call__()  # each command becomes part of the graph
            return
        self.require()
        batch = Batch(device)
        try:
            for command, encode in zip(self._commands, self._encodes, strict=True):
                if encode is None:
                    batch.submit()
                    command()
                else:
                    encode(batch)
            batch.submit()
        except DispatchTimeout:  # which is an OSError as well
            raise
        except refusals() as error:
            device.require_usable()
            raise device.failure(error, f"commands cannot be enqueued on {device.name}", LaunchError) from error

    def require(self) -> None:
        """See `CommandRunner.require`."""
        if not self._is_plain or any(launch.armed is None for launch in self._launches) or any(a.freed for a in self._allocations):
            super().require()
