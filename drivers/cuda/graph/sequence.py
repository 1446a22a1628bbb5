"""Sequences as one native call: a call of the driver for each step, over the live argument blocks of the launches."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.cuda.launch.launch import BoundKernel, CudaLaunch
from vyre_py.drivers.cuda.memory.copies import Work, copy_work, fill_work
from vyre_py.drivers.cuda.native.call_list import STALE, Call, CallList
from vyre_py.drivers.cuda.native.calls import Failure
from vyre_py.drivers.errors import BindingError, DeviceLost, LaunchError
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.many.sequence import CopyStep, FillStep, Sequence, SequenceStep, freed_names
from vyre_py.drivers.memory.buffer import Buffer

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaSequence", "Piece", "SequenceCalls", "piece_of"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One step as native calls: `name` for people, the launch's `kernel` if it is one, `buffers` by name and `kept`, which the calls use, `counts`, what
    the step adds to counters, and `failure`, where a status of its calls is not the driver's: it makes the error. It `shares` memory with other steps that
    only the order of our own stream keeps apart."""

    name: str
    calls: tuple[Call, ...]
    kernel: BoundKernel | None = None
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    kept: Any = None
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    shares: bool = False

    def require_memory(self) -> None:
        """Raises BindingError when a buffer was freed."""
        if self.kernel is not None:
            self.kernel.require_memory()
        elif freed := freed_names(self.buffers):
            raise BindingError(self.name, freed)


def _address(buffer: Buffer) -> int:
    return int(buffer.handle) + buffer.offset_bytes


def _calls(device: CudaDevice, work: list[Work]) -> tuple[Call, ...]:
    stream = int(device.context.stream)
    return tuple([Call(device.context.function(name), (*arguments, stream)) for name, arguments in work])


def _copy_piece(device: CudaDevice, step: CopyStep) -> Piece:
    size = step.target.size_bytes
    calls = _calls(device, copy_work(_address(step.source), _address(step.target), size))
    return Piece(step.name, calls, None, step.buffers, step, {"copies": 1, "bytes_copied": size} if size else {})


def _fill_piece(device: CudaDevice, step: FillStep) -> Piece:
    size = step.buffer.size_bytes
    calls = _calls(device, fill_work(_address(step.buffer), size, step.pattern))
    return Piece(step.name, calls, None, step.buffers, step, {"fills": 1, "bytes_filled": size} if size else {})


def _own_piece(device: CudaDevice, step: SequenceStep) -> Piece:
    piece: Piece = step.piece()  # type: ignore[attr-defined]  # other steps on this device, products and strided copies, know it themselves
    return piece


# The first that a step is one of.
_PIECES: Final[Mapping[type, Callable[[Any, Any], Piece]]] = {CopyStep: _copy_piece, FillStep: _fill_piece, SequenceStep: _own_piece}


def piece_of(device: CudaDevice, step: Launch | SequenceStep) -> Piece:
    """A step of this device as native calls. Raises BindingError when one of its buffers was freed."""
    if isinstance(step, Launch):
        launch = step.inner
        assert isinstance(launch, CudaLaunch)  # what has nothing to run is not among the steps
        kernel = launch.kernel
        name = kernel.plan.label or kernel.plan.binding.interface.name
        return Piece(name, (kernel.call(),), kernel, counts=device.launch_amounts(kernel.plan, kernel.module))
    step.require_memory()
    make = next(make for kind, make in _PIECES.items() if isinstance(step, kind))
    return make(device, step)


class SequenceCalls:
    """The native list of a sequence, and its handler. Attributes: `pieces`, `calls`, and `face`, whose `__call__` is the builtin."""

    def __init__(self, device: CudaDevice, steps: Many[Launch | SequenceStep]) -> None:
        self.device = device
        self.face: weakref.ref[CudaSequence] | None = None
        self._steps = tuple(steps)
        self._build()

    @property
    def name(self) -> str:
        """Its name in traces."""
        return f"sequence of {len(self._steps)}"

    def _build(self) -> None:
        device = self.device
        self.pieces = [piece_of(device, step) for step in self._steps]
        self._numbers = [number for number, piece in enumerate(self.pieces) for _ in piece.calls]
        launches = [piece.kernel for piece in self.pieces if piece.kernel is not None]
        self._members = {kernel: kernel.calls for kernel in launches}
        counts: dict[str, int] = {}
        for piece in self.pieces:
            for name, amount in piece.counts.items():
                counts[name] = counts.get(name, 0) + amount
        self.record = device.telemetry.record(**counts)
        alive = {ctypes.addressof(buffer.allocation.alive) for piece in self.pieces for buffer in piece.buffers.values()}
        counters = ((device.telemetry.address("launches"), len(launches)), (self.record.address, 1))
        calls = [call for piece in self.pieces for call in piece.calls]
        kept = (self.record, self.pieces)
        self.calls = CallList(calls, self.handle_status, device.context.mode_address, sorted(alive), counters, members=list(self._members.values()), kept=kept)

    def handle_status(self, index: int, status: int) -> None:
        """Does, or refuses, what the native call could not: see `call_list`."""
        device, context = self.device, self.device.context
        if index < 0:
            device.require_usable()
            self._require_memory()
            if context.capture is not None and status > 0:
                context.capture.sequence(self)
                return
            if status == STALE or self._is_stale():
                self.refresh()
                with context.using(f"{self.name} cannot be enqueued on {context.name}"):
                    self.calls.resume(0)
                return
        if index == 0 and self._is_stale():  # nothing was enqueued yet
            self.refresh()
            with context.using(f"{self.name} cannot be enqueued on {context.name}"):
                self.calls.resume(0)
            return
        number = self._numbers[index] if index >= 0 else -1
        piece = self.pieces[number] if index >= 0 else None
        what = f"step {number} ({piece.name}) of a sequence" if piece is not None else self.name
        doing = f"{what} cannot be enqueued on {context.name}"
        if piece is not None and piece.failure is not None:
            error = piece.failure(index - self._numbers.index(number), status, doing)
            context.require_alive(doing)
            raise error
        try:
            context.recover(self.calls, index, status, doing, LaunchError, self.name)
        except DeviceLost:
            device.require_usable()  # which tells the first cause
            raise

    def _require_memory(self) -> None:
        for number, piece in enumerate(self.pieces):
            try:
                piece.require_memory()
            except BindingError as error:
                raise BindingError(f"step {number} ({piece.name}) of a sequence", error.problems) from None

    def _is_stale(self) -> bool:
        return any(kernel.calls is not calls for kernel, calls in self._members.items())

    def refresh(self) -> None:
        """Makes the list anew where a launch has moved to another stream since."""
        if self._is_stale():
            self._build()
            face = self.face() if self.face is not None else None
            if face is not None:
                face.take(self)


class CudaSequence(Sequence):
    """A sequence whose `__call__` is a builtin. Each launch goes to the stream that it is on, copies and fills to the device's own."""

    __slots__ = ("__call__", "_calls")

    def __init__(self, device: CudaDevice, steps: Many[Launch | SequenceStep]) -> None:
        super().__init__(device, steps)
        calls = SequenceCalls(device, steps)
        calls.face = weakref.ref(self)
        self.take(calls)

    def take(self, calls: SequenceCalls) -> None:
        """Runs these calls from now on."""
        self._calls = calls
        self.__call__ = calls.calls.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin
