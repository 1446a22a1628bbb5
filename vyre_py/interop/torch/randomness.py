"""Random numbers of Inductor: Philox4x32-10 of a seed and the place of an element, those that its C++ kernels draw.

Seed and place are taken modulo 2^32 there, and so they are here.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WORDS", "integer", "normal", "uniform"]

_ROUNDS: Final = 10
_MULTIPLIERS: Final = ("0xD2511F53u32", "0xCD9E8D57u32")
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def _words() -> str:
    lines = [
        "function random_words(seed: u32, place: u32) -> u32x4 {",
        "  let x0 = place; let y0 = 0u32; let z0 = 0u32; let w0 = 0u32",
    ]
    for k in range(_ROUNDS):
        first, second = (f"{k * step % (1 << 32)}u32" for step in _WEYL)
        lines += [
            f"  let x{k + 1} = mul_hi(z{k}, {_MULTIPLIERS[1]}) ^ y{k} ^ (seed + {first}); let y{k + 1} = z{k} * {_MULTIPLIERS[1]}",
            f"  let z{k + 1} = mul_hi(x{k}, {_MULTIPLIERS[0]}) ^ w{k} ^ {second}; let w{k + 1} = x{k} * {_MULTIPLIERS[0]}",
        ]
    return "\n".join([*lines, f"  return vec4(x{_ROUNDS}, y{_ROUNDS}, z{_ROUNDS}, w{_ROUNDS})", "}"])


# Four words: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
WORDS: Final = _words()


def uniform(word: str) -> str:
    """31 bits of a word as an f32 from 0 up to 1."""
    return f"cast({word} & 0x7FFFFFFFu32, f32) * 4.6566127342e-10f32"


def normal(words: str) -> str:
    """A normal number of f32 from two words: G. E. P. Box and M. E. Muller's transform (1958)."""
    radius, turn = f"1.0 - {uniform(f'{words}.x')}", f"1.0 - {uniform(f'{words}.y')}"
    return f"cast(sqrt(-2.0 * cast(log({radius}), f64)) * cos(6.283185307179586 * cast({turn}, f64)), f32)"


def integer(words: str, low: str, high: str) -> str:
    """A whole number of i64, from `low` up to `high`, by the remainder of 64 bits."""
    whole = f"(cast({words}.x, u64) | (cast({words}.y, u64) << 32))"
    return f"cast({whole} % cast({high} - {low}, u64), i64) + {low}"
