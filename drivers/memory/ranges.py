"""Ranges: parts of many buffers to the device or from it in one call, those that lie end to end in one transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.allocation import Allocation
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import Host, components_of, host_array, no_memory
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["download_ranges", "upload_ranges"]

# Up to so many bytes ranges become one transfer; larger ones gain nothing by it.
_FUSED_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class _ElementRange:
    """Elements start:stop of a flat buffer: `number` in the call, the first `begin` of its bytes in the allocation and their `end`."""

    number: int
    buffer: Buffer
    start: int
    stop: int

    @property
    def allocation(self) -> Allocation:
        return self.buffer.allocation

    @property
    def begin(self) -> int:
        return self.buffer.offset_bytes + self.start * self.buffer.type.size_bytes

    @property
    def end(self) -> int:
        return self.buffer.offset_bytes + self.stop * self.buffer.type.size_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        return host_shape((self.stop - self.start,), self.buffer.type)


def _problem(device: Device, buffer: Any, start: Any, stop: Any) -> str:
    """The problem of a range; empty if it is valid."""
    if not isinstance(buffer, Buffer) or buffer.device is not device:
        return f"a buffer on {device.name} is needed, got {shown(buffer)}"
    if buffer.allocation.freed:
        return f"the buffer {buffer.allocation.absence}"
    if not is_count(start) or not is_count(stop) or not start <= stop <= prod(buffer.shape):
        return f"elements {shown(start)}:{shown(stop)} do not lie within the buffer's {prod(buffer.shape)}"
    return ""


def _groups(ranges: Sequence[_ElementRange]) -> Iterator[list[_ElementRange]]:
    """Ranges in the order of memory, those that lie end to end together."""
    group: list[_ElementRange] = []
    for one in sorted(ranges, key=lambda r: (id(r.allocation), r.begin, r.end)):
        if one.begin == one.end:
            continue
        last = group[-1] if group else None
        fits = last is not None and last.allocation is one.allocation and last.end == one.begin and last.buffer.type.dtype == one.buffer.type.dtype
        if fits and one.end - group[0].begin <= _FUSED_BYTES:
            group.append(one)
            continue
        if group:
            yield group
        group = [one]
    if group:
        yield group


def upload_ranges(device: Device, ranges: Sequence[tuple[Buffer, int, Any]]) -> None:
    """See `Device.upload_ranges`."""
    device.require_usable()
    device.require_no_capture(f"buffers on {device.name} cannot be written")
    arrays: list[Host] = []
    wanted: list[_ElementRange] = []
    problems: list[str] = []
    for number, (buffer, start, array) in enumerate(ranges):
        data = host_array(array, f"range {number}")
        if isinstance(buffer, Buffer):
            data = components_of(data, buffer.type)
        count = data.shape[0] if data.ndim else 1
        problem = _problem(device, buffer, start, start + count if is_count(start) else start)
        if not problem and buffer.readonly:
            problem = "this memory may only be read"
        if not problem and (data.dtype != buffer.type.dtype or (data.shape or (1,)) != host_shape((count,), buffer.type)):
            problem = f"an array of {buffer.type.dtype}{list(host_shape((count,), buffer.type))} is needed, got {data.dtype}{list(data.shape)}"
        if problem:
            problems.append(f"range {number}: {problem}")
            continue
        arrays.append(data)
        wanted.append(_ElementRange(len(arrays) - 1, buffer, int(start), int(start) + count))
    problems += _overlaps(wanted)
    if problems:
        raise BindingError("upload_ranges", problems)
    with _held(wanted):
        for group in _groups(wanted):
            _upload(device, group, arrays)


def _overlaps(ranges: Sequence[_ElementRange]) -> list[str]:
    """A sentence for ranges of one call that share elements: which write would be last is undefined."""
    filled = sorted((r for r in ranges if r.begin < r.end), key=lambda r: (id(r.allocation), r.begin))
    return [f"elements {b.start}:{b.stop} overlap another range" for a, b in pairwise(filled) if a.allocation is b.allocation and b.begin < a.end]


def _held(ranges: Sequence[_ElementRange]) -> ExitStack:
    """A block in which the memory of all ranges stays."""
    stack = ExitStack()
    for allocation in {id(r.allocation): r.allocation for r in ranges}.values():
        stack.enter_context(allocation.held())
    return stack


def _upload(device: Device, group: Sequence[_ElementRange], arrays: Sequence[Host]) -> None:
    first = group[0]
    data = arrays[first.number] if len(group) == 1 else np.concatenate([arrays[r.number].reshape(-1) for r in group])
    device._write_array(first.allocation.handle, first.begin, data)
    device.telemetry.uploads += 1
    device.telemetry.bytes_uploaded += data.nbytes


def _whole(count: int, dtype: np.dtype[Any], device: Device) -> Host:
    try:
        return np.empty(count, dtype)
    except MemoryError as error:
        raise no_memory(f"buffers on {device.name} cannot be read", error) from error


def download_ranges(device: Device, ranges: Sequence[tuple[Buffer, int, int]]) -> list[Host]:
    """See `Device.download_ranges`."""
    device.require_usable()
    device.require_no_capture(f"buffers on {device.name} cannot be read")
    problems = [f"range {n}: {problem}" for n, given in enumerate(ranges) if (problem := _problem(device, *given))]
    if problems:
        raise BindingError("download_ranges", problems)
    wanted = [_ElementRange(number, buffer, int(start), int(stop)) for number, (buffer, start, stop) in enumerate(ranges)]
    results: list[Host] = [np.empty(r.shape if r.begin == r.end else 0, r.buffer.type.dtype) for r in wanted]
    reads: list[tuple[Any, int, Host]] = []
    with _held(wanted):
        for group in _groups(wanted):
            dtype = group[0].buffer.type.dtype
            whole = _whole((group[-1].end - group[0].begin) // dtype.itemsize, dtype, device)
            reads.append((group[0].allocation.handle, group[0].begin, whole))
            for one in group:
                at = (one.begin - group[0].begin) // dtype.itemsize
                results[one.number] = whole[at : at + prod(one.shape)].reshape(one.shape)
        if reads:
            device._read_arrays(reads)
    device.telemetry.downloads += len(reads)
    device.telemetry.bytes_downloaded += sum(whole.nbytes for _, _, whole in reads)
    device.telemetry.syncs += bool(reads)
    device.reports.settle()
    return results
