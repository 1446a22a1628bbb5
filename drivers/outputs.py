"""Where results go: what a caller gives as `out`, looked at before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import Host, lost_mask, result_view
from vyre_py.drivers.sharing.exchange import on_host
from vyre_py.ir.language.errors import shown

if TYPE_CHECKING:
    from vyre_py.drivers.binding import BindingPlan

__all__ = ["output_problems"]

# How long NumPy may think about strides; what takes longer counts as overlapping.
_MAX_WORK: Final = 1 << 16


def output_problems(binding: BindingPlan, out: Any, max_output_bytes: int | None) -> Iterator[str]:
    """A sentence for everything of `out` that results do not fit or that overlaps, and for results larger than `max_output_bytes`.

    Results are written one after the other, so each needs memory of its own: it overlaps no other result, no other argument, and not itself. An argument's
    own array may take its result.
    """
    if out is not None and not isinstance(out, Mapping):
        yield f"out is a mapping of names to arrays, got {type(out).__name__}"
        out = None
    written = {m.name: m for m in binding.interface.buffers if m.access.writes}
    views: dict[str, Host] = {}
    for name, array in (out or {}).items():
        if name not in written or name in binding.buffers:
            yield f"out[{shown(name)}] does not name a written host argument"
        elif name in binding.shapes:  # else that was said
            type_, shape = written[name].type, host_shape(binding.shapes[name], written[name].type)
            if (view := result_view(array, shape, type_)) is None:
                yield f"out[{name!r}] must be a writeable {type_.dtype} array of shape {list(shape)}{', without a mask' if lost_mask(array) else ''}"
            else:
                views[name] = view
    yield from _overlaps(views, binding)
    if max_output_bytes is not None:
        total = sum(prod(binding.shapes[n]) * m.type.size_bytes for n, m in written.items() if n in binding.shapes and n not in binding.buffers)
        if total > max_output_bytes:
            yield f"the outputs take {total} bytes; max_output_bytes is {max_output_bytes}"


def _overlaps(views: Mapping[str, Host], binding: BindingPlan) -> Iterator[str]:
    cure = "give separate memory"
    for (name, view), (other, beside) in combinations(views.items(), 2):
        if _share(view, beside):
            yield f"out[{name!r}] and out[{other!r}] share memory: {cure}"
    for name, view in views.items():
        if _repeats(view):
            yield f"elements of out[{name!r}] share memory, by strides {list(view.strides)}: {cure}"
        for other, array in binding.host.items():
            if other != name and _share(view, array):
                yield f"out[{name!r}] shares memory with the argument {other!r}: {cure}"
        for other, buffer in binding.buffers.items():
            if _reaches(view, buffer):
                yield f"out[{name!r}] shares memory with the argument {other!r}: {cure}"


def _share(one: Host, other: Host) -> bool:
    try:
        return np.shares_memory(one, other, max_work=_MAX_WORK)  # type: ignore[arg-type]  # NumPy's stubs know two of the numbers that it takes
    except np.exceptions.TooHardError:
        return True


def _repeats(view: Host) -> bool:
    """Whether two elements may lie in the same bytes: where a step along an axis is shorter than all that lies along the axes of shorter steps."""
    if not view.size:
        return False
    end = view.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(view.strides, view.shape, strict=True) if size > 1):
        if stride < end:
            return True
        end += stride * (size - 1)
    return False


def _reaches(view: Host, buffer: Buffer) -> bool:
    """Whether an array reaches into a resident buffer, where the device's memory is the host's."""
    if not (on_host(buffer.device) and view.size and buffer.size_bytes):
        return False
    begin, end = np.lib.array_utils.byte_bounds(view)
    return begin < buffer.address + buffer.size_bytes and buffer.address < end
