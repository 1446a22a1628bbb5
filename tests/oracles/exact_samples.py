"""Numbers to try ops on: the values of each scalar type at which an op may change its mind, random ones, and every one where they are few.

A number is a bool, an int, or a float's bit pattern.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from exact_floats import FORMATS, Format

from vyre_py.ir.language.types import SCALARS, Array, Type, bool_

Number = Any

_RANDOM = 1000


def _float_edges(f: Format) -> list[int]:
    unit, last = 1 << f.fraction, (1 << f.fraction) - 1
    wholes = [2, 2.5, 3, 127, 128, 255.5, 2**31, 2**32, 2**63, 2**64]
    near_whole = [(f.bias + f.fraction + k) << f.fraction | m for k in (-1, 0) for m in (0, 1, last)]
    positive = [
        *(0, 1, 2, last, unit, unit + 1, 2 * unit, f.infinity - 2, f.infinity - 1, f.infinity, f.nan, f.infinity + 1, f.infinity | last),
        *(f.one - unit - 1, f.one - unit, f.one - unit + 1, f.one - 1, f.one, f.one + 1, f.one + unit // 2, f.one - f.fraction * unit, *near_whole),
        *(f.rounded(Fraction(w)) for w in wholes),
    ]
    return [s | b for b in dict.fromkeys(positive) for s in (0, f.sign)]


def _integer_edges(t: Type) -> list[int]:
    near = {0, 1, 2, 3, 7, t.bits - 1, t.bits, t.bits + 1, 63, 64, 127, 128, 255, 256, 0x5555555555555555 & t.maximum}
    near |= {(1 << p) + d for p in (t.bits // 2, t.bits - 1, t.bits) for d in (-2, -1, 0, 1)}
    return sorted({s * n for n in near | {-t.minimum, -t.minimum - 1} for s in (1, -1) if t.minimum <= s * n <= t.maximum})


EDGES: Mapping[Type, list[Number]] = {
    t: [False, True] if t is bool_ else _float_edges(FORMATS[t]) if t.is_float else _integer_edges(t) for t in SCALARS.values()
}


def every(t: Type) -> list[Number]:
    """Every number of a type of 16 bits at most."""
    if t is bool_:
        return [False, True]
    return list(range(1 << t.bits) if t.is_float else range(t.minimum, t.maximum + 1))


def drawn(t: Type, count: int, seed: int) -> list[Number]:
    """Random numbers: of floats half near 1, so that sums cancel and round; of integers of all lengths."""
    draw = random.Random(seed)
    if t is bool_:
        return [draw.random() < 0.5 for _ in range(count)]
    if not t.is_float:
        return [draw.randint(t.minimum, t.maximum) >> draw.randrange(t.bits) for _ in range(count)]
    f = FORMATS[t]
    reach = min(9, f.bias)
    near = [(f.bias + draw.randint(-reach, reach)) << f.fraction | draw.getrandbits(f.fraction) | draw.choice((0, f.sign)) for _ in range(count // 2)]
    return [x for pair in zip(near, (draw.getrandbits(t.bits) for _ in near), strict=True) for x in pair]


def samples(types: tuple[Type, ...], seed: int) -> list[tuple[Number, ...]]:
    """Rows of operands: all of them for one operand of 16 bits and two of 8, else the edges with one another and random ones."""
    if sum(t.bits for t in types) <= 16:
        return list(product(*map(every, types)))
    edges = [EDGES[t] if len(types) < 3 else EDGES[t][:: max(1, len(EDGES[t]) // 14)] for t in types]
    columns = [drawn(t, _RANDOM, seed + k) for k, t in enumerate(types)]
    return [*product(*edges), *zip(*columns, strict=True)]


def array(t: Type, numbers: list[Number]) -> Array:
    """Numbers as elements of a scalar type."""
    return np.array(numbers, f"u{t.size_bytes}").view(t.dtype) if t.is_float else np.array(numbers, t.dtype)


def numbers(t: Type, values: Array) -> list[Number]:
    """Elements as numbers again; their dtype must be the type's."""
    assert values.dtype == t.dtype, (values.dtype, t)
    found: list[Number] = (values.view(f"u{t.size_bytes}") if t.is_float else values).tolist()
    return found


def same(t: Type, a: Number, b: Number) -> bool:
    """Equal, all NaNs alike and the zeros apart."""
    return bool(a == b) or (t.is_float and FORMATS[t].is_nan(a) and FORMATS[t].is_nan(b))
