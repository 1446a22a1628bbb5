"""Reductions along an axis: sums, means, extremes and where they are."""

from __future__ import annotations

from typing import Final

import vyre_py as vp
from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.types import Type, f32, u32
from vyre_py.ops.checks import FLOATS, NUMBERS, axis_of, one_of, whole, wide

__all__ = ["argmax", "argmin", "max", "mean", "min", "sum"]

_MOST_AXES: Final = 4
# Elements of the tile of a workgroup along the axis, and beside it.
_ALONE: Final = (4_096, 1)  # of an array of one axis
_LAST: Final = (128, 16)  # along the last axis, and beside it along the one before
_OTHER: Final = (32, 64)  # along another axis, and beside it along the last
_NOWHERE: Final = 0xFFFFFFFF  # above every index


def sum(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:  # noqa: A001 - as NumPy calls it
    """target = the sums of `source` along an axis.

    `source` has `rank` axes, up to 4, of any lengths, with elements of `type_`: any number. `target` has the other axes, of elements of the same type; [1]
    for rank 1. f16 and bf16 are summed in f32 and rounded once; the order of sums is fixed, so floats have the same bits on every strict device. Integers
    wrap. The sum of nothing is 0. A workgroup goes over whole rows: one long array is quicker as a view of [1024, n / 1024], summed twice.

    To first order in u = 2^-24, of f64 2^-53, a sum of floats is off by at most (c + k - 1) u times the sum of |source| along the axis, of n elements: it is a
    chain of c = ceil(n / 2^k) for each place of a chunk, and then the chunk in halves, with k = 12 for rank 1, 7 along the last of more axes, 5 along others.
    Elements of 16 bits are exact, and results of 16 bits off by 2^-11 (f16) or 2^-8 (bf16) of themselves more.

    Raises ValidationError B108 at the caller's line for other types, ranks and axes.
    """
    return _fold("sum", "add", one_of("the type of a sum", type_, NUMBERS), rank, axis)


def mean(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:
    """target = the means of `source` along an axis: of f16, bf16, f32 or f64, the sum as in `sum`, divided and then rounded. The mean of nothing is NaN.

    A mean that is a normal number is off by at most (c + k + 1) u times the mean of |source|, and by what `sum` says of 16 bits, which has c, k and u."""
    return _fold("mean", "add", one_of("the type of a mean", type_, FLOATS), rank, axis)


def max(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:
    """target = the greatest elements of `source` along an axis; types and shapes as in `sum`. As the language has it, a number wins over NaN, as in NumPy's
    fmax, and -0 is below +0. The greatest of nothing, or of nothing but NaN, is the least number of the type, of floats negative infinity."""
    return _fold("max", "max", one_of("the type of a maximum", type_, NUMBERS), rank, axis)


def min(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:
    """target = the least elements of `source` along an axis: `max`, the other way round."""
    return _fold("min", "min", one_of("the type of a minimum", type_, NUMBERS), rank, axis)


def argmax(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:
    """target = where along an axis the greatest elements of `source` are, as u32: the first of those that are equal. Types and shapes as in `sum`. NaN is
    never the greatest; of nothing, or of nothing but NaN, it is 0."""
    return _place("argmax", "max", one_of("the type of an argmax", type_, NUMBERS), rank, axis)


def argmin(type_: Type = f32, rank: int = 1, axis: int = -1) -> vp.Program:
    """target = where along an axis the least elements of `source` are: `argmax`, the other way round."""
    return _place("argmin", "min", one_of("the type of an argmin", type_, NUMBERS), rank, axis)


class _Line:
    """How workgroups go along an axis: the tile of each has that axis, and one beside it, the last or the one before; the grid has all others."""

    def __init__(self, b: vp.TileBuilder, type_: Type, to: Type, rank: int, axis: int) -> None:
        dims = [b.dim(f"d{k}") for k in range(whole("the rank", rank, 1, _MOST_AXES))]
        rank = len(dims)
        self.axis = axis_of(axis, rank)
        *outer, beside = [k for k in range(rank) if k != self.axis] or [self.axis]
        self.step, width = _ALONE if rank == 1 else _LAST if self.axis == rank - 1 else _OTHER
        self.source = b.read("source", type_, *dims)
        self.target = b.write("target", to, *([dims[k] for k in (*outer, beside)] if rank > 1 else [1]))
        self.length, self.kept, self.width = dims[self.axis], (*outer, beside), width
        extents = {beside: width, self.axis: self.step}
        self._extents = [extents.get(k) for k in range(rank)]
        self.shape = tuple([extent for extent in self._extents if extent is not None])
        self.along = 1 if beside < self.axis else 0  # the axis of the tile
        parts = vp.ceil_div(dims[beside] if rank > 1 else 1, width)
        over: vp.Expr = parts
        number = b.workgroup_id(0) // parts
        self._at = {beside: b.workgroup_id(0) % parts * width}
        for k in reversed(outer):
            self._at[k], number, over = number % dims[k], number // dims[k], over * dims[k]
        b.grid(over)

    def load(self, p: vp.Expr) -> vp.Expr:
        """The tile from p on along the axis."""
        return self.source.tile(*[p if k == self.axis else self._at[k] for k in range(len(self._extents))], shape=self._extents)

    def store(self, x: vp.Expr) -> None:
        """Stores a tile that has one element along the axis."""
        if len(self.shape) == 1:
            self.target[0] = x
        else:
            self.target[*[self._at[k] for k in self.kept]] = x.reshape(self.width)


def _fold(name: str, op: str, type_: Type, rank: int, axis: int) -> vp.Program:
    to = wide(type_) if op == "add" and type_.is_float else type_
    nothing = identity(op, to)
    with vp.TileBuilder(name) as b:
        line = _Line(b, type_, type_, rank, axis)
        total, places = b.var("total", to, nothing, shape=line.shape), b.iota(line.along, line.shape)
        with b.for_(0, line.length, line.step, name="p") as p:
            x = vp.cast(line.load(p), to)
            if op == "add":
                total += x  # past the end zero
            else:
                total.set((vp.max if op == "max" else vp.min)(total, vp.select(places < line.length - p, x, nothing)))
        out = total.get().reduce(op, line.along)
        line.store(vp.cast(out / vp.cast(line.length, to) if name == "mean" else out, type_))
    return b.program


def _place(name: str, op: str, type_: Type, rank: int, axis: int) -> vp.Program:
    nothing = identity(op, type_)
    with vp.TileBuilder(name) as b:
        line = _Line(b, type_, u32, rank, axis)
        places = b.iota(line.along, line.shape)
        best, where = b.var("best", type_, nothing, shape=line.shape), b.var("where", u32, _NOWHERE, shape=line.shape)
        turns = vp.ceil_div(line.length, line.step)
        with b.for_(0, turns, name="turn") as turn:
            # From the end: so the first of those that are equal wins last, and an extreme of the type, which is beyond none, wins as any other does.
            p = (turns - (turn + 1)) * line.step
            x = line.load(p)
            wins = (places < line.length - p) & (x >= best if op == "max" else x <= best)  # no NaN does
            where.set(vp.select(wins, places + p, where))
            best.set(vp.select(wins, x, best))
        first = vp.select(best == best.get().reduce(op, line.along), where, _NOWHERE).reduce("min", line.along)
        line.store(vp.select(first < line.length, first, 0))
    return b.program
