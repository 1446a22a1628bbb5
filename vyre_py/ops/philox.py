"""Random numbers that are computed from their index: no state, and the same on every device."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import Type, f32, f64, u32
from vyre_py.ops.checks import one_of

__all__ = ["random_bits", "random_uniform"]

_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def random_bits() -> vp.Program:
    """target[i] = block `counter` + i of Philox4x32-10 under `key`, four words of 32 random bits.

    `target` of [n] has elements of u32x4, an array of (n, 4) words; the params are `key`, u32x2, and `counter`, u32x4, a number of 128 bits whose least word
    is first. So streams are told apart by `key`, or by the upper words of `counter`, and a sequence goes on anywhere. The words are those of Random123: J. K.
    Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
    """
    with vp.ProgramBuilder("random_bits") as b:
        target = b.write("target", vp.u32x4, b.dim("n"))
        target[b.global_id(0)] = _block(b)
    return b.program


def random_uniform(type_: Type = f32) -> vp.Program:
    """target[i] = numbers from 0 up to 1, evenly spread: of f32 four, of f64 two, made of the upper 24 or 53 bits of words of `random_bits`, and exact.

    `target` of [n] has elements of f32x4, or f64x2; params as in `random_bits`. Raises ValidationError B108 at the caller's line for other types.
    """
    one_of("the type of uniform numbers", type_, (f32, f64))
    with vp.ProgramBuilder("random_uniform") as b:
        target = b.write("target", vp.f32x4 if type_ is f32 else vp.f64x2, b.dim("n"))
        words = _block(b)
        if type_ is f32:
            target[b.global_id(0)] = vp.cast(words >> 8, vp.f32x4) * 2.0**-24
        else:
            low, high = vp.cast(words.xz, vp.u64x2), vp.cast(words.yw, vp.u64x2)
            target[b.global_id(0)] = vp.cast(((high << 32) | low) >> 11, vp.f64x2) * 2.0**-53
    return b.program


def _block(b: vp.ProgramBuilder) -> vp.Expr:
    """The block of this invocation."""
    key, counter = b.param("key", vp.u32x2), b.param("counter", vp.u32x4)
    words, carry = [counter.x + b.global_id(0), counter.y, counter.z, counter.w], None
    for k in range(3):
        over = words[k] < (b.global_id(0) if carry is None else carry)
        carry = vp.cast(over, u32)
        words[k + 1] = words[k + 1] + carry
    x, y, z, w = words
    first, second = key.x, key.y
    for _ in range(_ROUNDS):
        x, y, z, w = (
            vp.mul_hi(z, _MULTIPLIERS[1]) ^ y ^ first, z * _MULTIPLIERS[1],
            vp.mul_hi(x, _MULTIPLIERS[0]) ^ w ^ second, x * _MULTIPLIERS[0],
        )  # fmt: skip
        first, second = first + _WEYL[0], second + _WEYL[1]
    return vp.vec4(x, y, z, w)
