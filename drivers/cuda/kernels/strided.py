"""Strided copies by the kernels of `strided_ptx`. Each copy chooses its kernel and computes its parameters once; a call packs two addresses and launches."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.kernels.strided_ptx import (
    BLOCK_BYTES,
    INDEX_LIMIT,
    WIDTHS,
    StridedKernel,
    divisor,
    packed,
)
from vyre_py.drivers.cuda.launch.module import CudaModule
from vyre_py.drivers.cuda.native.call_list import LAUNCH, Call
from vyre_py.drivers.cuda.native.command_list import NativeCommand
from vyre_py.drivers.many.commands import COPY
from vyre_py.drivers.many.sequence import SequenceStep
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.strided import GROUP, PIECES, Axis, Move, StridedCopy, Tiling, divided, simplified, widened
from vyre_py.drivers.observers import Watched
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Image
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["Part", "StridedKernels", "StridedStep", "copy_strided", "parts"]

# Runs of so many bytes and more are shared by the lanes of a warp, which then read whole lines of 128 bytes.
_RUN_BYTES: Final = 512
_WARP_LOG2: Final = 5
_REMEMBERED: Final = 1024
_PLACES: Final = struct.Struct("<QQ")  # how a kernel's parameter begins: addresses in the source and in the target
# Codes of the driver's interface: what follows is a parameter, its size, nothing.
_BUFFER, _SIZE, _END = 1, 2, 0


@dataclass(frozen=True, slots=True)
class Part:
    """One launch of a copy: the kernel, its workgroups, the offsets of its first byte in the source and in the target, and its parameter after the two
    addresses."""

    kernel: StridedKernel
    groups: int
    source: int
    target: int
    rest: bytes

    def block(self, source: int, target: int) -> bytes:
        """The parameter for buffers at these addresses."""
        return _PLACES.pack(source + self.source, target + self.target) + self.rest


@lru_cache(maxsize=_REMEMBERED)
def parts(copy: StridedCopy, source: int, target: int) -> tuple[Part, ...]:
    """A copy as launches. `source` and `target` are the addresses of the buffers, or what they leave when they are divided by the widest word."""
    width, words = widened(copy.move, (source, target), WIDTHS)
    return tuple([_part(width, simplified(one)) for one in divided(words, INDEX_LIMIT, lambda move: move.count, lambda axis: axis.size)])


def _part(width: int, move: Move) -> Part:
    axes = move.axes or (Axis(1, 1, 1),)
    run = axes[-1]
    if run.source == run.target == 1 and run.size * width >= _RUN_BYTES:
        axes = axes[:-1] or (Axis(1, 0, 0),)
        tiling = Tiling.of(run.size, Move(0, 0, axes).count, _WARP_LOG2)
        magic, shift = divisor(tiling.tiles)
        head = {"count": tiling.items, "length": run.size, "lanes": tiling.lanes, "tiles": tiling.tiles, "tiles_magic": magic, "tiles_shift": shift}
        kernel, groups = StridedKernel("runs", width), tiling.groups
    else:
        head = {"count": move.count}
        kernel, groups = StridedKernel("words", width), -(-move.count // (GROUP * PIECES))
    block = packed(head, [(axis.size, axis.source * width, axis.target * width) for axis in axes])
    return Part(kernel, groups, move.source * width, move.target * width, block[_PLACES.size :])


class StridedKernels:
    """The kernels of one device, each loaded when it is first wanted."""

    def __init__(self, context: Context, arch: str, modules: Watched[CudaModule], loads_ptx: bool) -> None:
        """`modules` are those that the device unloads when it is closed."""
        self._context, self._arch, self._modules, self._loads_ptx = context, arch, modules, loads_ptx
        self._lock = threading.Lock()
        self._loaded: dict[StridedKernel, CudaModule] = {}
        self._functions: dict[StridedKernel, int] = {}

    def function(self, kernel: StridedKernel) -> int:
        """A kernel's handle. Raises ToolchainError with the driver's log, LaunchError for one that is first wanted within a capture."""
        found = self._functions.get(kernel)
        return self._load(kernel) if found is None else found

    def _load(self, kernel: StridedKernel) -> int:
        with self._lock:
            if kernel not in self._loaded:
                module = CudaModule(self._context, self._image(kernel), kernel.name, 0)
                self._modules.add(module)
                self._loaded[kernel] = module
                self._functions[kernel] = int(module.function)
            return self._functions[kernel]


    def _image(self, kernel: StridedKernel) -> Image:
        text = kernel.text(self._arch).encode()
        return Image("ptx", text) if self._loads_ptx else Image("cubin", nvjitlink.link(text, self._arch, name=kernel.name).code)


class _LaunchExtra(ctypes.Structure):
    """The argument `extra` of cuLaunchKernel: pairs of a code and its value, which give the address and the size of the block of arguments; then the block."""

    _fields_ = tuple([(name, ctypes.c_uint64) for name in ("buffer", "at", "size", "size_at", "end", "size_bytes")] + [("block", ctypes.c_char * BLOCK_BYTES)])


def _launch_extra(block: bytes) -> _LaunchExtra:
    made = _LaunchExtra(_BUFFER, 0, _SIZE, 0, _END, BLOCK_BYTES)
    begin = ctypes.addressof(made)
    made.at, made.size_at = begin + _LaunchExtra.block.offset, begin + _LaunchExtra.size_bytes.offset
    ctypes.memmove(made.at, block, BLOCK_BYTES)
    return made


def copy_strided(device: CudaDevice, source: Buffer, target: Buffer, copy: StridedCopy) -> None:
    """Enqueues a copy that fits its buffers, which do not overlap there. Raises LaunchError, DeviceLost."""
    begin, end = source.handle + source.offset_bytes, target.handle + target.offset_bytes
    function = device.strided_kernels.function
    found = parts(copy, begin % WIDTHS[0], end % WIDTHS[0])
    launches = [(function(part.kernel), part.groups, part.block(begin, end)) for part in found]
    if (recording := device._recording) is not None:
        recording.take(StridedStep(device, source, target, copy, launches))
    else:
        _enqueue(device, source, target, copy, launches)


# Function, workgroups, parameter.
_Launches = Sequence[tuple[int, int, bytes]]


def _enqueue(device: CudaDevice, source: Buffer, target: Buffer, copy: StridedCopy, launches: _Launches) -> None:
    context, foreign = device.context, device.memory.foreign_use
    doing = f"{context.name} cannot copy"
    with context.entered(), context.using(doing):
        ranges = [(buffer.handle + buffer.offset_bytes, buffer.size_bytes) for buffer in (source, target)] if foreign else ()
        streams = foreign.before(doing, *ranges)
        for function, groups, block in launches:
            parameter = _launch_extra(block)
            extra = ctypes.addressof(parameter)
            context.ok(context.cuda.cuLaunchKernel(function, groups, 1, 1, GROUP, 1, 1, 0, context.stream, 0, extra), doing)
        foreign.after(streams)
    device.telemetry.copies += 1
    device.telemetry.bytes_copied += copy.size_bytes


class StridedStep(SequenceStep):
    """A strided copy as a step of its own: its launches keep the parameters that they have."""

    _kind = COPY
    __slots__ = ("_blocks", "_cuda", "_launches", "_strided")

    def __init__(self, device: CudaDevice, source: Buffer, target: Buffer, copy: StridedCopy, launches: _Launches) -> None:
        super().__init__(device, "strided copy", {"source": source, "target": target})
        self._cuda = device
        self._strided, self._launches = copy, launches
        self._blocks = [ctypes.create_string_buffer(block, len(block)) for _, _, block in launches]

    def command(self) -> NativeCommand:
        """The launches as a row."""
        launch, stream = self._cuda.context.function("cuLaunchKernel"), int(self._cuda.context.stream)
        calls = tuple([
            Call(launch, (function, groups, 1, 1, GROUP, 1, 1, 0, stream, 0, 0), LAUNCH, ctypes.addressof(held), len(held))
            for (function, groups, _), held in zip(self._launches, self._blocks, strict=True)
        ])  # fmt: skip
        return NativeCommand(self._kind, self.name, calls, self.buffers, self._kind.counts(self._strided.size_bytes), self)

    def _run(self) -> None:
        _enqueue(self._cuda, self.buffers["source"], self.buffers["target"], self._strided, self._launches)
