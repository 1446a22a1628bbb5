"""Softmax along the last axis."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.types import Type, f32
from vyre_py.ops.checks import FLOATS, one_of, whole, wide

__all__ = ["CHUNK", "LONGEST", "rows_of", "softmax"]

LONGEST: Final = 16_384  # columns of a row that a workgroup keeps as one tile
CHUNK: Final = 2_048  # columns of a longer row that it computes at a time
_TILE: Final = 4_096  # elements of a tile of several short rows


def rows_of(columns: int) -> int:
    """How many rows of so many columns a workgroup has: a power of two."""
    return 1 << max(0, (_TILE // columns).bit_length() - 1)


def softmax(type_: Type = f32, columns: int | None = None) -> vp.Program:
    """target[i, j] = exp(source[i, j] - m) / sum of exp(source[i, k] - m) over k, where m is the greatest of row i.

    Buffers: `source` and `target` of [rows, columns], elements of `type_`: f16, bf16, f32 or f64. Arrays of other ranks go in as views of two axes. `columns`
    up to 16384 is part of the Program: a workgroup keeps its rows as a tile, and reads each element once. Without it rows may have any length: a workgroup
    goes over its row in chunks, twice. All is computed in f32, of f64 in f64, and rounded once; the order of sums is fixed. A row with a NaN, with positive
    infinity, or of nothing but negative infinity is NaN throughout.

    To first order in u = 2^-24, of f64 2^-53, a result that is a normal number is off by at most (m - source[i, j] + ln n + 4 c + 13) u of itself, where n is
    the length of the row and c = ceil(n / 2048). Elements of 16 bits are exact, and results of 16 bits off by 2^-11 (f16) or 2^-8 (bf16) of themselves more.

    The sums over chunks are those of M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018), arXiv 1805.02867, one for each column
    of a chunk. Raises ValidationError B108 at the caller's line for other types and lengths.
    """
    one_of("the type of a softmax", type_, FLOATS)
    return _of_long_rows(type_) if columns is None else _of_tiles(type_, whole("the length of a row", columns, 1, LONGEST))


def _of_tiles(type_: Type, columns: int) -> vp.Program:
    count = rows_of(columns)
    with vp.TileBuilder("softmax") as b:
        rows = b.dim("rows")
        source, target = b.read("source", type_, rows, columns), b.write("target", type_, rows, columns)
        b.grid(vp.ceil_div(rows, count))
        i = b.let("i", b.workgroup_id(0) * count)
        x = vp.cast(source.tile(i, 0, shape=(count, columns)), wide(type_))
        e = vp.exp(x - x.reduce("max", 1))
        target[i, 0] = vp.cast(e / e.reduce("add", 1), type_)
    return b.program


def _of_long_rows(type_: Type) -> vp.Program:
    to = wide(type_)
    with vp.TileBuilder("softmax") as b:
        rows, columns = b.dim("rows"), b.dim("columns")
        source, target = b.read("source", type_, rows, columns), b.write("target", type_, rows, columns)
        b.grid(rows)
        i, shape = b.let("i", b.workgroup_id(0)), (1, CHUNK)
        # Of each column of the chunks: the greatest so far, and the sum of exp(x - greatest). Finite from the start, so that the difference is no NaN.
        most, total = b.var("most", to, float(np.finfo(to.dtype).min), shape=shape), b.var("total", to, shape=shape)
        with b.for_(0, columns, CHUNK, name="j") as j:
            x = vp.cast(source.tile(i, j, shape=shape), to)
            x = vp.select(b.iota(1, shape) < columns - j, x, -math.inf)
            e = vp.exp(-abs(x - most))
            total.set(vp.select(x > most, total * e + 1, total + e))
            most.set(vp.max(x, most))
        greatest = most.get().reduce("max", 1)
        all_ = (total * vp.exp(most - greatest)).reduce("add", 1)
        with b.for_(0, columns, CHUNK, name="j") as j:
            target[i, j] = vp.cast(vp.exp(vp.cast(source.tile(i, j, shape=shape), to) - greatest) / all_, type_)
    return b.program
