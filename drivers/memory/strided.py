"""Strided copies within a device: the request, and one Program of our own for each rank and width, with shape, strides and offsets by value.

A copy is first reduced to the fewest axes: its elements become bytes, axes run forward and in the order of the target, and adjacent axes are merged. Then
bytes become the widest words that divide all strides, offsets and addresses. A single run is a plain copy. Otherwise each invocation of the Program copies a
few words of one run, which it finds by division. A device kind with kernels of its own uses those instead (`drivers.cuda.kernels.strided`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.check.limits import MAX_RANK
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u8, u16, u32, u64

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = [
    "GROUP", "PIECES", "Axis", "Move", "StridedCopy", "Tiling", "copy_by_program", "copy_program", "copy_strided", "divided", "simplified", "widened",
]  # fmt: skip

# Widest first.
_WORDS: Final[Mapping[int, Type]] = {word.size_bytes: word for word in (u64, u32, u16, u8)}
_GROUP_LOG2: Final = 8
_PIECES_LOG2: Final = 2
GROUP: Final = 1 << _GROUP_LOG2  # invocations of a workgroup
PIECES: Final = 1 << _PIECES_LOG2  # words that an invocation copies
_GROUPS: Final = 65535  # along x: no device takes fewer
_REMEMBERED: Final = 1024  # copies whose numbers were looked at
_SPAN_WORDS: Final = 1 << 31  # so that 32 bits count words and work items, a last workgroup included


@dataclass(frozen=True, slots=True)
class Axis:
    """So many steps, each so far in the source and in the target."""

    size: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Move:
    """A strided copy: where it begins in the source and in the target, and its axes, the last moves fastest."""

    source: int
    target: int
    axes: tuple[Axis, ...]

    @property
    def count(self) -> int:
        """How many places are copied."""
        return prod(axis.size for axis in self.axes)

    @property
    def is_run(self) -> bool:
        """Whether what is copied lies end to end on both sides, once it is simplified."""
        return all(axis.source == axis.target == 1 for axis in self.axes)

    def span(self, of: str) -> tuple[int, int]:
        """The first place that the copy touches "source" or "target" at, and the last."""
        steps = [(axis.size - 1) * getattr(axis, of) for axis in self.axes]
        begin = getattr(self, of)
        return begin + sum(s for s in steps if s < 0), begin + sum(s for s in steps if s > 0)

    def scaled(self, factor: int) -> Move:
        """The same in units that are so many times smaller."""
        axes = tuple(Axis(a.size, a.source * factor, a.target * factor) for a in self.axes)
        return Move(self.source * factor, self.target * factor, axes)


def simplified(move: Move) -> Move:
    """The same copy with the fewest axes: forward in the target, in the order of its strides, without axes of one step, joined where runs lie end to end."""
    backward = [axis for axis in move.axes if axis.target < 0]
    source = move.source + sum((axis.size - 1) * axis.source for axis in backward)
    target = move.target + sum((axis.size - 1) * axis.target for axis in backward)
    forward = [Axis(a.size, -a.source, -a.target) if a.target < 0 else a for a in move.axes if a.size > 1]
    axes = sorted(forward, key=lambda a: (a.target, a.size), reverse=True)
    joined: list[Axis] = []
    for axis in axes:
        before = joined[-1] if joined else None
        if before is not None and before.source == axis.source * axis.size and before.target == axis.target * axis.size:
            joined[-1] = Axis(before.size * axis.size, axis.source, axis.target)
        else:
            joined.append(axis)
    return Move(source, target, tuple(joined))


def _repeats(move: Move) -> bool:
    """Whether a place in the target may be written twice: whether an axis of a simplified copy steps less far than those within it reach."""
    reach = 0
    for axis in reversed(move.axes):
        if axis.target <= reach:
            return True
        reach += (axis.size - 1) * axis.target
    return False


def widened(move: Move, addresses: tuple[int, int], widths: Iterable[int]) -> tuple[int, Move]:
    """The widest words for a simplified copy in bytes, of those widths in bytes (widest first, 1 last), and the copy in those words; addresses are
    those of byte 0."""
    is_run = bool(move.axes) and move.axes[-1].source == move.axes[-1].target == 1
    outer, run = (move.axes[:-1], move.axes[-1]) if is_run else (move.axes, Axis(1, 1, 1))
    parts = [run.size, addresses[0] + move.source, addresses[1] + move.target, *(stride for a in outer for stride in (a.source, a.target))]
    width = next(width for width in widths if all(part % width == 0 for part in parts))
    axes = [*(Axis(a.size, a.source // width, a.target // width) for a in outer), Axis(run.size // width, 1, 1)]
    return width, simplified(Move(move.source // width, move.target // width, tuple(axes)))


def divided(move: Move, limit: int, extent: Callable[[Move], int], reach: Callable[[Axis], int]) -> Iterator[Move]:
    """A copy as several, of which none has an `extent` above `limit`. The axis of the longest `reach` is halved, again and again."""
    waiting = [move]
    while waiting:
        one = waiting.pop()
        if extent(one) <= limit:
            yield one
            continue
        number = max(range(len(one.axes)), key=lambda k: reach(one.axes[k]))
        axis = one.axes[number]
        half = axis.size // 2
        for begin, size in ((half, axis.size - half), (0, half)):
            axes = (*one.axes[:number], replace(axis, size=size), *one.axes[number + 1 :])
            waiting.append(Move(one.source + begin * axis.source, one.target + begin * axis.target, axes))


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a workgroup's invocations share runs: 2^lanes of them copy a tile, `PIECES` words each, a lane's width apart. A run has `tiles`, the copy `items`
    tiles in all, which take so many workgroups."""

    lanes: int
    tiles: int
    items: int
    groups: int

    @classmethod
    def of(cls, length: int, runs: int, most_lanes: int) -> Tiling:
        """The tiling of so many runs of so many words, with the fewest lanes that copy a run in one tile, up to 2^most_lanes."""
        lanes = min(most_lanes, (-(-length // PIECES) - 1).bit_length())
        tiles = -(-length // (PIECES << lanes))
        return cls(lanes, tiles, tiles * runs, -(-(tiles * runs << lanes) // GROUP))


# ---- the Program


@cache
def copy_program(word: Type, rank: int) -> Program:
    """Copies runs of words; which, `rank` outer axes say, given as params like everything else.

    A work item is a tile of a run: 2^lanes invocations, each of which copies words a lane's width apart. `tiles` are in a run of `length` words;
    `items` are in all. The grid's x and y together count workgroups.
    """
    with importing:
        from vyre_py.ir.builder.program_builder import ProgramBuilder  # loaded where one is written

    with ProgramBuilder(f"copy_strided_{word}_{rank}", workgroup=GROUP, doc="A strided copy.") as b:
        source, target = b.read("source", word, b.dim("n")), b.write("target", word, b.dim("m"))
        items, tiles, lanes, length = (b.param(name, u32) for name in ("items", "tiles", "lanes", "length"))
        source_at, target_at, source_step, target_step = (b.param(name, u32) for name in ("source_at", "target_at", "source_step", "target_step"))
        axes = [tuple(b.param(f"{name}_{k}", u32) for name in ("size", "source", "target")) for k in range(rank)]
        b.grid(1)
        group = b.workgroup_id(1) * b.num_workgroups(0) + b.workgroup_id(0)
        local = b.local_id(0)
        item = b.let("item", (group << (_GROUP_LOG2 - lanes)) + (local >> lanes))
        with b.if_(item < items):
            row = item // tiles
            first = b.let("first", ((item - row * tiles) << (lanes + _PIECES_LOG2)) + (local & ((1 << lanes) - 1)))
            for number, (size, source_stride, target_stride) in reversed(list(enumerate(axes))):
                left = row // size if number else None
                place = row - left * size if left is not None else row
                source_at, target_at = source_at + place * source_stride, target_at + place * target_stride
                row = left if left is not None else row
            places = [first + (turn << lanes) for turn in range(PIECES)]
            with b.if_(places[-1] < length):
                words = [source[source_at + place * source_step] for place in places]  # all on their way before the first is stored
                for place, loaded in zip(places, words, strict=True):
                    target[target_at + place * target_step] = loaded
            with b.else_():
                for place in places:
                    with b.if_(place < length):
                        target[target_at + place * target_step] = source[source_at + place * source_step]
    return b.program


def _params(move: Move) -> tuple[dict[str, int], int]:
    """The params of a copy in words, and how many workgroups it takes."""
    outer, run = (move.axes[:-1], move.axes[-1]) if move.axes else ((), Axis(1, 1, 1))
    tiling = Tiling.of(run.size, prod(axis.size for axis in outer), _GROUP_LOG2)
    params = {
        "items": tiling.items, "tiles": tiling.tiles, "lanes": tiling.lanes, "length": run.size, "source_at": move.source, "target_at": move.target,
        "source_step": run.source, "target_step": run.target,
    }  # fmt: skip
    for number, axis in enumerate(outer):
        params |= {f"size_{number}": axis.size, f"source_{number}": axis.source, f"target_{number}": axis.target}
    mask = (1 << 32) - 1  # arithmetic wraps modulo 2^32: a negative stride is passed as its two's complement
    return {name: value & mask for name, value in params.items()}, tiling.groups


# ---- the call


def copy_strided(
    device: Device, source: Buffer, source_offset: int, source_strides: Sequence[int], target: Buffer, target_offset: int, target_strides: Sequence[int],
    shape: Sequence[int],
) -> None:  # fmt: skip
    """See `Device.copy_strided`."""
    _require_buffers(device, source, target)
    numbers = _numbers(source_offset, source_strides, target_offset, target_strides, shape)
    copy = _fitting(source.type.size_bytes, source.size_bytes, target.size_bytes, *numbers)
    if copy is None:
        return
    _require_apart(device, source, target, copy)
    if copy.is_run:
        (first, end), (begin, stop) = copy.source, copy.target
        target.as_bytes()[begin:stop].copy_from(source.as_bytes()[first:end])
    else:
        device._copy_strided(source, target, copy)


def copy_by_program(device: Device, source: Buffer, target: Buffer, copy: StridedCopy) -> None:
    """Makes a copy by the Program above: the way of devices without kernels of their own for it."""
    sides = [source.as_bytes(), target.as_bytes()]
    addresses = [(device._address(side.handle) or 0) + side.offset_bytes for side in sides]
    width, in_words = widened(copy.move, (addresses[0], addresses[1]), _WORDS)
    with device._ordered(source, target):
        for part in _in_spans(in_words, min(_SPAN_WORDS, device.limits.elements)):
            _copy(device, _WORDS[width], simplified(part), sides)
    if device._recording is None:
        device.telemetry.copies += 1
        device.telemetry.bytes_copied += copy.size_bytes


def _in_spans(move: Move, limit: int) -> Iterator[Move]:
    """A copy as several, of which none spans more than `limit` words of the source or the target."""

    def extent(one: Move) -> int:
        return max(last - first + 1 for first, last in (one.span("source"), one.span("target")))

    return divided(move, limit, extent, lambda axis: (axis.size - 1) * max(abs(axis.source), axis.target))


def _copy(device: Device, word: Type, move: Move, sides: Sequence[Buffer]) -> None:
    """Launches one part, over views of just what it touches."""
    width = word.size_bytes
    views, begins = [], []
    for side, of in zip(sides, ("source", "target"), strict=True):
        first, last = move.span(of)
        views.append(side[first * width : (last + 1) * width].view(word, last + 1 - first))
        begins.append(first)
    move = Move(move.source - begins[0], move.target - begins[1], move.axes)
    if move.is_run and device._recording is None:
        device._copy(views[0].handle, views[0].offset_bytes, views[1].handle, views[1].offset_bytes, views[0].size_bytes)
        return
    if move.is_run:
        views[1].copy_from(views[0])
        return
    params, groups = _params(move)
    across = min(groups, _GROUPS)
    config = DispatchConfig(label="copy_strided", grid=(across, -(-groups // across), 1))
    pipeline = device.compile_native(copy_program(word, len(move.axes) - 1))
    pipeline.bind({"source": views[0], "target": views[1], **params}, config=config)()


# ---- what is asked for


@dataclass(frozen=True, slots=True, eq=False)
class StridedCopy:
    """A copy that fits its buffers: the simplified `move` in bytes, and the first byte and the end of what it touches in the source and in the target.

    The same numbers give the same object again, for a while, so that a device may remember what it has made of it.
    """

    move: Move
    source: tuple[int, int]
    target: tuple[int, int]

    @property
    def is_run(self) -> bool:
        """Whether the bytes lie end to end on both sides."""
        return self.move.is_run

    @property
    def size_bytes(self) -> int:
        """How much is copied."""
        return self.move.count


_Numbers = tuple[int, tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]


def _numbers(source_offset: Any, source_strides: Any, target_offset: Any, target_strides: Any, shape: Any) -> _Numbers:
    """Offsets, strides and shape as Python's own whole numbers. Raises BindingError for anything else."""
    lists = (source_strides, target_strides, shape)
    if type(source_offset) is type(target_offset) is int and all(type(v) in (tuple, list) and {*map(type, v)} <= {int} for v in lists):
        return source_offset, tuple(source_strides), target_offset, tuple(target_strides), tuple(shape)
    move = _given(source_offset, source_strides, target_offset, target_strides, shape)
    axes = move.axes
    return move.source, tuple([a.source for a in axes]), move.target, tuple([a.target for a in axes]), tuple([a.size for a in axes])


@lru_cache(maxsize=_REMEMBERED)
def _fitting(
    element: int, source_bytes: int, target_bytes: int, source_offset: int, source_strides: tuple[int, ...], target_offset: int,
    target_strides: tuple[int, ...], shape: tuple[int, ...],
) -> StridedCopy | None:  # fmt: skip
    """The copy between two buffers of so many bytes, whose elements have so many; None where there is nothing to copy. Raises BindingError."""
    move = _given(source_offset, source_strides, target_offset, target_strides, shape)
    if 0 in (axis.size for axis in move.axes):
        return None
    _require_inside(move, {"source": source_bytes // element, "target": target_bytes // element})
    in_bytes = simplified(Move(move.source * element, move.target * element, (*move.scaled(element).axes, Axis(element, 1, 1))))
    if _repeats(in_bytes):
        raise BindingError("copy_strided", [f"target strides {list(target_strides)} for shape {list(shape)} may write an element twice"])
    (first, last), (begin, end) = in_bytes.span("source"), in_bytes.span("target")
    return StridedCopy(in_bytes, (first, last + 1), (begin, end + 1))


def _require_buffers(device: Device, source: Any, target: Any) -> None:
    wrong = [
        f"{name!r} must be a buffer on {device.name}, got {shown(buffer)}"
        for name, buffer in (("source", source), ("target", target))
        if not isinstance(buffer, Buffer) or buffer.device is not device
    ]
    if wrong:
        raise BindingError("copy_strided", wrong)
    if source.type is not target.type:
        raise BindingError("copy_strided", [f"elements are copied as they are: {source.type} is not {target.type}"])
    target._require_writeable("copy_strided")
    device.require_usable()


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _given(source_offset: Any, source_strides: Any, target_offset: Any, target_strides: Any, shape: Any) -> Move:
    """The copy in elements, as it was asked for. Raises BindingError for what are no offsets, strides or shape."""
    offsets = {"source_offset": source_offset, "target_offset": target_offset}
    problems = [f"{name} is a whole number from 0, got {shown(value)}" for name, value in offsets.items() if not is_count(value)]
    lists = {"source_strides": source_strides, "target_strides": target_strides, "shape": shape}
    for name, values in lists.items():
        fits = is_count if name == "shape" else _whole
        if not isinstance(values, (list, tuple)) or not all(map(fits, values)):
            problems.append(f"{name} is a list of whole numbers{' from 0' if name == 'shape' else ''}, got {shown(values)}")
    if not problems and not len(source_strides) == len(target_strides) == len(shape) <= MAX_RANK:
        problems.append(f"shape and strides are of one rank up to {MAX_RANK}, got {len(shape)}, {len(source_strides)} and {len(target_strides)}")
    if problems:
        raise BindingError("copy_strided", problems)
    axes = [Axis(int(n), int(s), int(t)) for n, s, t in zip(shape, source_strides, target_strides, strict=True)]
    return Move(int(source_offset), int(target_offset), tuple(axes))


def _require_inside(move: Move, counts: Mapping[str, int]) -> None:
    problems = []
    for name, count in counts.items():
        first, last = move.span(name)
        if first < 0 or last >= count:
            problems.append(f"the copy touches elements {first} to {last} of {name!r}, which has {count}")
    if problems:
        raise BindingError("copy_strided", problems)


def _require_apart(device: Device, source: Buffer, target: Buffer, copy: StridedCopy) -> None:
    """Raises BindingError when what is read and what is written overlap, and for a buffer that was freed."""
    here, there = device._address(source.handle), device._address(target.handle)
    # Two allocations may be one piece of memory where another library owns it, so addresses decide where there are any.
    if source.allocation is not target.allocation and (here is None or there is None):
        return
    read, written = (here or 0) + source.offset_bytes, (there or 0) + target.offset_bytes
    if read + copy.source[0] < written + copy.target[1] and written + copy.target[0] < read + copy.source[1]:
        raise BindingError("copy_strided", ["source and target overlap; copy to separate memory first"])
