"""Elements of every type: the values at which ops change their minds, and random arrays that hold many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from vyre_py.ir.language.types import SCALARS, Type, bf16, bool_, encode, f8e4m3, f8e5m2, f16, f32, f64

__all__ = ["INTERESTING", "random_array"]


def _whole(t: Type) -> list[int]:
    near = (0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 100, 127, 128, 255, 12345, 65535, t.maximum, t.maximum - 1, (t.maximum >> 1) + 1, 0x9E3779B9)
    both = [*near, *(-x for x in near), t.minimum, t.minimum + 1]
    return sorted({x for x in both if t.minimum <= x <= t.maximum})


def _real(t: Type) -> list[float]:
    largest, least, subnormal, step = {
        f8e4m3: (448.0, 2.0**-6, 2.0**-9, 2.0**-3), f8e5m2: (57344.0, 2.0**-14, 2.0**-16, 2.0**-2),
        f16: (65504.0, 2.0**-14, 2.0**-24, 2.0**-10), bf16: (float.fromhex("0x1.fep127"), 2.0**-126, 2.0**-133, 2.0**-7),
        f32: (float.fromhex("0x1.fffffep127"), 2.0**-126, 2.0**-149, 2.0**-23), f64: (float.fromhex("0x1.fffffffffffffp1023"), 2.0**-1022, 5e-324, 2.0**-52),
    }[t]  # fmt: skip
    positive = [0.0, 0.5, 1.0, 1.0 + step, 1.5, 2.5, 3.25, 7.75, 127.0, 255.5, 1024.0, largest, least, subnormal, least - subnormal]
    ends = [x for x in (2.0**31, 2.0**32, 2.0**53, 2.0**63, 2.0**64, 1e20) if x < largest]
    return [s * x for x in (*positive, *ends) for s in (1.0, -1.0)] + [float("inf"), float("-inf"), float("nan")]


INTERESTING: Mapping[Type, Sequence[Any]] = {
    t: [False, True] if t is bool_ else _real(t) if t.is_float else _whole(t) for t in SCALARS.values()
}


@cache
def _special(t: Type) -> np.ndarray[Any, Any]:
    """The bits of a type's interesting values."""
    return np.array([encode(t, x) for x in INTERESTING[t]], f"u{t.size_bytes}")


def random_array(rng: np.random.Generator, t: Type, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random elements of a type, one in three of them an interesting one; of vectors with one axis more."""
    if t.is_vector:
        return random_array(rng, t.scalar, (*shape, t.lanes))
    word = f"u{t.size_bytes}"
    special = _special(t)
    if t is bool_:
        plain = rng.integers(0, 2, shape).astype(word)
    elif t.is_float:
        # Numbers of all sizes around 1, and at times any bits at all.
        spread = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
        with np.errstate(over="ignore", invalid="ignore"):
            near = spread.astype(t.dtype if t.in_numpy else np.float32).astype(t.dtype).view(word)
        plain = np.where(rng.integers(0, 8, shape) == 0, rng.integers(0, 1 << t.bits, shape, dtype=np.uint64).astype(word) if t.bits < 64 else near, near)
    else:
        plain = rng.integers(0, 256, (*shape, t.size_bytes), dtype=np.uint8).view(word)[..., 0]
        small = rng.integers(0, 1 << min(t.bits, 8), shape).astype(word)
        plain = np.where(rng.integers(0, 2, shape) == 0, plain, small)
    chosen = np.where(rng.integers(0, 3, shape) == 0, special[rng.integers(0, len(special), shape)], plain)
    return chosen.astype(word).view(t.dtype)
