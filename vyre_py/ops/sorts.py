"""Sorting, by radix: two Programs, which with a prefix sum between them put keys in order by one digit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import SCALARS, Type, f32, i32, u32
from vyre_py.ops.checks import one_of

__all__ = ["radix_count", "radix_move"]

_DIGITS, _LANES, _ROWS = 256, 32, 12  # an invocation for each digit; each has so many keys of the workgroup's tile
_PART: Final = _DIGITS * _ROWS
_SIGN: Final = 0x80000000
_LAST: Final = 0xFFFFFFFF
# Type -> the words whose order is that of the keys.
_ORDERED: Final[dict[Type, Callable[[vp.Expr], vp.Expr]]] = {
    u32: lambda key: key,
    i32: lambda key: vp.bitcast(key, u32) ^ _SIGN,
    f32: lambda key: vp.select(vp.bitcast(key, u32) >= _SIGN, ~vp.bitcast(key, u32), vp.bitcast(key, u32) ^ _SIGN),
}


def radix_count(type_: Type = u32) -> vp.Program:
    """counts = how many keys have each digit, the eight bits from `shift` on: first those with digit 0 of each tile of 3072 keys, then those with digit 1.

    Buffers: `keys` of [n], elements of `type_`: u32, i32 or f32; `counts` of [256 ceil(n / 3072)] is u32. The param `shift` is u32. The order of keys is that
    of numbers; -0 comes before +0, and every NaN behind infinity, as NumPy has it: a NaN has one word, whatever its bits.

    A sort is this, `prefix_sum(u32, exclusive=True)` from `counts` to `places`, and `radix_move`, for `shift` 0, 8, 16 and 24 in turn, each from what the one
    before has put in order: D. Merrill and A. Grimshaw, "High performance and scalable radix sorting" (2011). Raises ValidationError B108 at the caller's line
    for other types.
    """
    ordered = _ORDERED[one_of("the type of keys", type_, _ORDERED)]
    with vp.ProgramBuilder("radix_count", workgroup=_DIGITS) as b:
        n, shift = b.dim("n"), b.param("shift", u32)
        parts = vp.ceil_div(n, _PART)
        keys, counts, here = b.read("keys", type_, n), b.write("counts", u32, parts * _DIGITS), b.workgroup("here", u32, _DIGITS)
        b.grid(parts)
        places = [b.workgroup_id(0) * _PART + b.local_index() + row * _DIGITS for row in range(_ROWS)]
        for i, key in [(i, ordered(keys[i])) for i in places]:  # all loads first
            here.atomic_add((key >> shift) % _DIGITS, vp.cast(i < n, u32))
        b.barrier()
        counts[b.local_index() * b.num_workgroups(0) + b.workgroup_id(0)] = here[b.local_index()]
    return b.program


def radix_move(type_: Type = u32, values: Type | None = None) -> vp.Program:
    """sorted = `keys` in order by the digit at `shift`: those with equal digits stay in the order in which they came, so that the whole sort is stable.

    Buffers and param as `radix_count` has them, and `places`, what a prefix sum makes of `counts`; `sorted` of [n], as `keys`. With `values`, any scalar type,
    `values` of [n] goes to `sorted_values` the same way, bit for bit. Keys are put in order in workgroup memory first, so that whole runs of them are
    written; values are written one by one. The result is exact on every device. Raises ValidationError B108 at the caller's line.
    """
    ordered = _ORDERED[one_of("the type of keys", type_, _ORDERED)]
    if values is not None:
        one_of("the type of values", values, SCALARS.values())
    with vp.ProgramBuilder("radix_move", workgroup=_DIGITS, subgroup=_LANES) as b:
        n, shift = b.dim("n"), b.param("shift", u32)
        parts = vp.ceil_div(n, _PART)
        keys, places, target = b.read("keys", type_, n), b.read("places", u32, parts * _DIGITS), b.write("sorted", type_, n)
        moved = None if values is None else (b.read("values", values, n), b.write("sorted_values", values, n))
        here, tile, offsets = b.workgroup("here", u32, _DIGITS // _LANES, _DIGITS), b.workgroup("tile", type_, _PART), b.workgroup("offsets", u32, _DIGITS)
        b.grid(parts)
        k, s, ranks = b.local_index(), b.subgroup_id(), []
        first = b.workgroup_id(0) * _PART
        rows = [first + (s * _ROWS + row) * _LANES + b.subgroup_lane() for row in range(_ROWS)]
        loaded = [keys[i] for i in rows]
        # Past the end the greatest, which stay there.
        digits = [(vp.select(i < n, ordered(key), _LAST) >> shift) % _DIGITS for i, key in zip(rows, loaded, strict=True)]
        for digit in digits:
            like = vp.const(_LAST, u32)  # the lanes with the same digit: eight votes are quicker than a match
            for bit in [(digit >> place) % 2 == 1 for place in range(8)]:
                like = like & (b.subgroup_ballot(bit) ^ vp.select(bit, vp.const(0, u32), _LAST))
            rank, before = vp.popcount(like & ((1 << b.subgroup_lane()) - 1)), here[s, digit]
            b.barrier()
            with b.if_(rank == 0):
                here[s, digit] = before + vp.popcount(like)
            b.barrier()
            ranks.append(before + rank)
        counts = [here[row, k] for row in range(_DIGITS // _LANES)]  # of the digit k, in each subgroup
        place = b.workgroup_scan("add", sum(counts[1:], counts[0]), exclusive=True)
        offsets[k] = places[k * b.num_workgroups(0) + b.workgroup_id(0)] - place  # from the place in the tile to the place in all
        for row, count in enumerate(counts):
            here[row, k], place = place, place + count
        b.barrier()
        for i, key, digit, rank in zip(rows, loaded, digits, ranks, strict=True):
            at = here[s, digit] + rank
            tile[at] = key
            if moved is not None:
                moved[1][offsets[digit] + at] = moved[0][i]
        b.barrier()
        for i in [k + row * _DIGITS for row in range(_ROWS)]:  # in order by digit, so that neighbours go to neighbours
            digit = (vp.select(first + i < n, ordered(tile[i]), _LAST) >> shift) % _DIGITS
            target[offsets[digit] + i] = tile[i]
    return b.program
