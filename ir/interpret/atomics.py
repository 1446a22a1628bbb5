"""Atomics over many lanes at once, with the results of doing them one lane after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.op import AtomicOp
from vyre_py.ir.language.types import Array

__all__ = ["apply"]

# Atomics that are a ufunc of the old value and the operand; the others go through their row's `evaluate`.
_UFUNCS: Final[Mapping[str, Any]] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}
_EXTREMES: Final = frozenset({"min", "max"})

# An element with more lanes than this is scanned by itself; the rest go in rounds of one lane per element.
_ROUNDS: Final = 64


def apply(op: AtomicOp, flat: Array, offsets: Array, operands: tuple[Array, ...], wants_old: bool) -> Array | None:
    """flat[offsets[k]] = op(flat[offsets[k]], operands[..][k]) for k = 0, 1, ...; gives the old values if they are wanted."""
    if not op.writes:
        return flat[offsets]
    if not op.reads:
        flat[offsets] = operands[0]  # in order: the last lane's stays
        return None
    if op.name in _EXTREMES and flat.dtype.kind == "f":
        return _float_extremes(op, flat, offsets, operands[0], wants_old)
    ufunc = _UFUNCS.get(op.name)
    if ufunc is not None and not wants_old:
        ufunc.at(flat, offsets, operands[0])
        return None
    order = np.argsort(offsets, kind="stable")
    places = offsets[order]
    sorted_operands = tuple(operand[order] for operand in operands)
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    sizes = np.diff(starts, append=places.size)
    old = np.empty(places.size, flat.dtype)

    for start, size in zip(starts[sizes > _ROUNDS].tolist(), sizes[sizes > _ROUNDS].tolist(), strict=True):
        rows = slice(start, start + size)
        place = places[start : start + 1]
        states = _scan(op, flat[place], tuple(operand[rows] for operand in sorted_operands))
        old[rows] = states[:-1]
        flat[place] = states[-1:]

    cool = sizes <= _ROUNDS
    starts, sizes = starts[cool], sizes[cool]
    for turn in range(int(sizes.max(initial=0))):
        rows_now = starts[sizes > turn] + turn
        place = places[rows_now]
        old[rows_now] = flat[place]
        flat[place] = op.evaluate(old[rows_now], *(operand[rows_now] for operand in sorted_operands))

    result = np.empty_like(old)
    result[order] = old
    return result


def _scan(op: AtomicOp, first: Array, operands: tuple[Array, ...]) -> Array:
    """All the values that one element goes through, from `first` on."""
    ufunc = _UFUNCS.get(op.name)
    if ufunc is not None:
        states: Array = ufunc.accumulate(np.concatenate((first, operands[0])), dtype=first.dtype)
        return states
    states = np.empty(operands[0].size + 1, first.dtype)
    states[:1] = first
    for k in range(operands[0].size):
        states[k + 1 : k + 2] = op.evaluate(states[k : k + 1], *(operand[k : k + 1] for operand in operands))
    return states


def _float_extremes(op: AtomicOp, flat: Array, offsets: Array, operand: Array, wants_old: bool) -> Array | None:
    """min or max of floats, as that of integers in the same order: NumPy's own lets NaN win and takes the zeros for one."""
    touched, places = np.unique(offsets, return_inverse=True)
    keys = _keys(op, flat[touched])
    old = apply(op, keys, places, (_keys(op, operand),), wants_old)
    flat[touched] = _flipped(keys).view(flat.dtype)
    return None if old is None else _flipped(old).view(flat.dtype)


def _flipped(words: Array) -> Array:
    """Floats' bits as signed integers in the order of the floats, -0 below +0; and back."""
    sign = words >> words.dtype.type(words.itemsize * 8 - 1)
    flipped: Array = words ^ (sign & np.iinfo(words.dtype).max)
    return flipped


def _keys(op: AtomicOp, floats: Array) -> Array:
    """Floats as integers in their order; a NaN, which every number wins over, at the end that `op` moves away from."""
    words = floats.view(f"i{floats.itemsize}")
    ends = np.iinfo(words.dtype)
    # Both ends are the keys of NaNs.
    return np.where(np.isnan(floats), words.dtype.type(ends.max if op.name == "min" else ends.min), _flipped(words))
