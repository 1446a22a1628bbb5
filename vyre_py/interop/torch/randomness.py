"""Random numbers of Inductor: Philox4x32-10 of a seed and the place of an element, those that its C++ kernels draw on the CPU, and those that its Triton
kernels draw on a GPU.

In C++ seed and place are taken modulo 2^32, and a number of 31 bits is a word without its first. In Triton the seed has 64 bits, and a word whose first bit is
set is turned over.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WORDS", "integer", "normal", "uniform"]

_ROUNDS: Final = 10
_MULTIPLIERS: Final = ("0xD2511F53u32", "0xCD9E8D57u32")
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def _words() -> str:
    lines = [
        "function random_words(seed: u64, place: u32) -> u32x4 {",
        "  let low = cast(seed, u32); let high = cast(seed >> 32, u32)",
        "  let x0 = place; let y0 = 0u32; let z0 = 0u32; let w0 = 0u32",
    ]
    for k in range(_ROUNDS):
        first, second = (f"{k * step % (1 << 32)}u32" for step in _WEYL)
        lines += [
            f"  let x{k + 1} = mul_hi(z{k}, {_MULTIPLIERS[1]}) ^ y{k} ^ (low + {first}); let y{k + 1} = z{k} * {_MULTIPLIERS[1]}",
            f"  let z{k + 1} = mul_hi(x{k}, {_MULTIPLIERS[0]}) ^ w{k} ^ (high + {second}); let w{k + 1} = x{k} * {_MULTIPLIERS[0]}",
        ]
    return "\n".join([*lines, f"  return vec4(x{_ROUNDS}, y{_ROUNDS}, z{_ROUNDS}, w{_ROUNDS})", "}"])


# Four words: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
WORDS: Final = _words()


def uniform(word: str, *, gpu: bool) -> str:
    """31 bits of a word as an f32 from 0 up to 1."""
    bits = f"({word} ^ (0u32 - ({word} >> 31)))" if gpu else f"({word} & 0x7FFFFFFFu32)"
    return f"cast({bits}, f32) * 4.6566127342e-10f32"


def normal(words: str, *, gpu: bool) -> str:
    """A normal number of f32 from two words: G. E. P. Box and M. E. Muller's transform (1958)."""
    first, second = uniform(f"{words}.x", gpu=gpu), uniform(f"{words}.y", gpu=gpu)
    if gpu:
        return f"sqrt(-2.0f32 * log(max(1e-7f32, {first}))) * cos(6.283185307179586f32 * ({second}))"
    return f"cast(sqrt(-2.0 * cast(log(1.0 - {first}), f64)) * cos(6.283185307179586 * cast(1.0 - {second}, f64)), f32)"


def integer(words: str, low: str, high: str) -> str:
    """A whole number of i64, from `low` up to `high`, by the remainder of 64 bits."""
    whole = f"(cast({words}.x, u64) | (cast({words}.y, u64) << 32))"
    return f"cast({whole} % cast({high} - {low}, u64), i64) + {low}"
