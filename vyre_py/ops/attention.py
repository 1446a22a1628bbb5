"""Attention, forward: products, a softmax and products in one pass over the keys."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.types import Type, bf16, f16, f32
from vyre_py.ops import hardware
from vyre_py.ops.checks import extents_of, flags, number, one_of, tensor_of, whole

__all__ = ["attention"]

_WIDEST: Final = 256  # elements of a head
_NARROW_BYTES: Final = 2
_STEP, _ROW = 16, 64  # elements of 2 bytes along k, of a product by warps, and of a strip's row for warpgroups
_MOST: Final = float(np.finfo(np.float32).max)
# Queries and keys that a workgroup has at a time, and for how many steps along the keys there is room: with tensor cores, by the bytes of an element and
# the elements that a head has at most, what fits every machine; what is the fastest on an H200, where three workgroups of the shortest heads run on a
# multiprocessor at once; and without them, where all that a product needs fits the memory of every device. A depth of 0 leaves it to the compiler.
_CORES: Final = {2: {64: (64, 128, 2), 128: (128, 64, 0), _WIDEST: (64, 32, 0)}, 4: {64: (64, 32, 0), 128: (32, 32, 0), _WIDEST: (16, 16, 0)}}
_FAST: Final = {hardware.WARPGROUPS: {128: (128, 128, 0), _WIDEST: (128, 32, 0)}, hardware.WIDE: {128: (128, 128, 0)}}  # of elements of 2 bytes
_PLAIN: Final = (32, 32, 0)


def attention(
    type_: Type = f32, head: int = 64, *, causal: bool = False, scale: float | None = None, tensor: bool | str | None = None,
    tiles: tuple[int, int] | None = None, on: vp.Device | vp.Target | str | None = None,
) -> vp.Program:  # fmt: skip
    """out[z, h, i] = sum over j of p[j] v[z, g, j], where p is the softmax over j of scale * q[z, h, i] . k[z, g, j], and g = h // (heads // kv_heads).

    Buffers: `q` and `out` of [batch, heads, m, head], `k` and `v` of [batch, kv_heads, n, head], elements of `type_`: f16, bf16 or f32. All but `head`, up to
    256, is any size, but that CUDA and WebGPU have room for 65,535 of `batch` and of `heads` each; `kv_heads` divides `heads`: where it is less, so many query
    heads share a head of keys. With `causal` the last query sees all keys, the one before all but the last, and so on: query i sees key j where
    j - n <= i - m. A query that sees no key gives zeros. `scale` is 1 / sqrt(head) unless given.

    Scores, their exponentials (as powers of two) and all sums are computed in f32; the exponentials are rounded to `type_` for the second product, and the
    result once. Products are chains of fused multiply-adds, with the same bits on every strict device, unless `tensor` says that tensor cores may sum in their
    own order, where exponentials and the last quotient may be approximated, too (`vp.fast`): it is true unless given for 16 bits. `tensor="sm_90"` asks for
    the bits of that architecture's tensor cores, without approximations. `tiles`, how many queries and keys a workgroup has at a time, is part of the order
    of sums, too; unless given it is what is fast for the length of a head `on` a device or target ("sm_90"), or fits every one. A row with a score
    that is NaN or positive infinity is NaN throughout.

    To first order in u = 2^-24, a result of strict products is off by at most (2 (head + 7) a + 2 n + 15) u w, where a is the greatest scale * sum of |q k| of
    its query, w the sum over j of p[j] |v[z, g, j]|, and `tiles` has 8 keys or more. Elements of 16 bits are exact; their exponentials add 2^-8 w (bf16), or
    2^-11 w and 2^-25 times the sum over j of |v[z, g, j]| (f16), and results of 16 bits are off by 2^-8 or 2^-11 of themselves more. Tensor cores have what
    `matmul` says of sums of `head` and of n products in place of head u and n u; `vp.fast` comes to that.

    T. Dao, D. Y. Fu, S. Ermon, A. Rudra and C. Re, "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022), arXiv 2205.14135;
    the sums over blocks of keys are those of M. Milakov and N. Gimelshein (2018), arXiv 1805.02867. Raises ValidationError B108 at the caller's line for
    other types, sizes and scales.
    """
    one_of("the type of attention", type_, (f16, bf16, f32))
    head = whole("the length of a head", head, 1, _WIDEST)
    right = "the scale of scores is a positive number"
    scale = 1 / math.sqrt(head) if scale is None else number(right, scale, lambda x: 0 < x < _MOST / math.log2(math.e), "scale=0.125")
    (causal,), tensor = flags(causal=causal), tensor_of(tensor, type_)
    by, power = scale * math.log2(math.e), vp.fast.exp2 if tensor is True else vp.exp2
    kind, size = hardware.machine(on), type_.size_bytes
    # Heads that are whole steps of a product by warps, and not whole rows of one by warpgroups, have no room for longer tiles.
    by_warps = head < 2 * _ROW and head % _STEP == 0 and head % _ROW != 0
    shapes = _CORES[size] | (_FAST.get(kind, {}) if size == _NARROW_BYTES and not by_warps else {})
    by_itself = next(shape for most, shape in shapes.items() if head <= most) if tensor and kind != hardware.PLAIN else _PLAIN
    rows, keys, depth = by_itself if tiles is None else (*extents_of(tiles, ("queries", "keys"), "tiles=(64, 64)", head), 0)
    with vp.TileBuilder("attention") as b:
        batch, heads, shared, m, n = b.dim("batch"), b.dim("heads"), b.dim("kv_heads"), b.dim("m"), b.dim("n")
        q, k, v = b.read("q", type_, batch, heads, m, head), b.read("k", type_, batch, shared, n, head), b.read("v", type_, batch, shared, n, head)
        out = b.write("out", type_, batch, heads, m, head)
        b.grid(vp.ceil_div(m, rows), heads, batch)
        # Of a causal one the last queries see the most keys: these begin first.
        place = b.num_workgroups(0) - 1 - b.workgroup_id(0) if causal else b.workgroup_id(0)
        i, h, z = b.let("i", place * rows), b.workgroup_id(1), b.workgroup_id(2)
        g = b.let("g", h // (heads // shared))
        x = b.let("x", q.tile(z, h, i, 0, shape=(None, None, rows, head)))
        least = -_MOST / max(1.0, by)
        most, total, acc = b.var("most", f32, least, shape=(rows, 1)), b.var("total", f32, shape=(rows, 1)), b.var("acc", f32, shape=(rows, head))
        row, column = b.iota(0, (rows, 1)), b.iota(1, (1, keys))
        after = n + i + rows  # less m, one past the last key that the last query of the tile sees
        end = b.let("end", vp.select(after > m, vp.min(after - m, n), 0)) if causal else n
        with b.for_(0, end, keys, name="j", pipeline=depth) as j:
            s = b.var("s", f32, vp.mma(x, k.tile(z, g, j, 0, shape=(None, None, keys, head)).T, b.fill(0.0, (rows, keys), f32), tensor=tensor))
            with b.if_(j + keys + m > i + n + 1 if causal else j + keys > n):
                s.set(vp.select((column + j < n) & (column + j + m <= row + i + n) if causal else column + j < n, s, -math.inf))
            above = vp.max(most, s.reduce("max", 1))
            kept = power((most - above) * by)
            most.set(above)
            scaled = acc * kept  # before exponentials, which take other instructions
            p = power(vp.fma(s, by, above * -by))
            total.set(total * kept + p.reduce("add", 1))
            acc.set(vp.mma(vp.cast(p, type_), v.tile(z, g, j, 0, shape=(None, None, keys, head)), scaled, tensor=tensor))
        means = acc * vp.fast.div(1.0, total) if tensor is True else acc / total
        out.tile_store((z, h, i, 0), vp.cast(vp.select(total == 0, 0, means), type_), axes=(2, 3))
    return b.program
