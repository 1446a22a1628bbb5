"""How often each value comes."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import Type, i32, u8, u16, u32
from vyre_py.ops.checks import one_of, whole

__all__ = ["histogram"]

_GROUP, _EACH = 256, 16  # an invocation takes so many values in a turn
_GROUPS: Final = 2_048  # at most: each adds all its bins to those of all
_NOWHERE: Final = (1 << 32) - 1
_OWN: Final = 4_096  # bins that workgroup memory has room for on every device
_MOST: Final = 1 << 24


def histogram(type_: Type = u8, bins: int = 256) -> vp.Program:
    """counts[k] += how many elements of `values` are k, for k below `bins`; others are not counted.

    Buffers: `values` of [n], elements of `type_`: u8, u16, u32 or i32; `counts` of [bins] is u32, read and written, and wraps. Up to 4096 bins each workgroup
    counts in its own memory, and adds what it found with one atomic a bin; beyond that every element is an atomic in `counts`. `bins` goes up to 2^24. Counts
    are exact, in any order. Raises ValidationError B108 at the caller's line for other types and numbers of bins.
    """
    one_of("the type of a histogram's values", type_, (u8, u16, u32, i32))
    bins = whole("the number of bins", bins, 1, _MOST)
    with vp.ProgramBuilder("histogram", workgroup=_GROUP) as b:
        n = b.dim("n")
        values, counts = b.read("values", type_, n), b.read_write("counts", u32, bins)
        b.grid(vp.min(vp.ceil_div(n, _GROUP * _EACH), _GROUPS))
        own = b.workgroup("own", u32, bins) if bins <= _OWN else counts
        with b.for_(b.workgroup_id(0) * (_GROUP * _EACH), n, b.num_workgroups(0) * (_GROUP * _EACH), name="first") as first:
            places = [first + b.local_index() + k * _GROUP for k in range(_EACH)]
            for place, value in [(place, values[place]) for place in places]:  # all loads first
                # A load past the end is zero, which is not to be counted; what is past the bins is dropped.
                own.atomic_add(vp.select(place < n, vp.cast(value, u32), _NOWHERE), 1)
        if bins <= _OWN:
            b.barrier()  # every invocation has counted
            with b.for_(b.local_index(), bins, _GROUP, name="k") as k, b.if_(own[k] != 0):
                counts.atomic_add(k, own[k])
    return b.program
