"""Layer norm and RMS norm along the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import vyre_py as vp
from vyre_py.ir.language.types import Type, f32
from vyre_py.ops.checks import FLOATS, flags, number, one_of, whole, wide
from vyre_py.ops.softmax import CHUNK, LONGEST, rows_of

__all__ = ["layer_norm", "rms_norm"]

_EPSILON: Final = 1e-5


def layer_norm(type_: Type = f32, columns: int | None = None, *, epsilon: float = _EPSILON, weight: bool = True, bias: bool = True) -> vp.Program:
    """target[i, j] = (source[i, j] - mean of row i) / sqrt(variance of row i + epsilon) * weight[j] + bias[j].

    Buffers: `source` and `target` of [rows, columns], `weight` and `bias` of [columns] where asked for, elements of `type_`: f16, bf16, f32 or f64. The
    variance is the mean square of the deviations from the mean. `columns` up to 16384 is part of the Program: each element is read once. Without it rows may
    have any length: a workgroup goes over its row in chunks, twice. All is computed in f32, of f64 in f64, and rounded once; the order of sums is fixed.

    To first order in u = 2^-24, of f64 2^-53, a result is off by at most (4 c + 15) u (1 + |t|) (1 + r / s) |weight[j]| + u |target[i, j]|, where t is the
    result without weight and bias, r the root mean square of row i, s the root that it is divided by, and c = ceil(columns / 2048): by little, unless the mean
    is many deviations from zero. Elements of 16 bits are exact, and results of 16 bits off by 2^-11 (f16) or 2^-8 (bf16) of themselves more.

    J. L. Ba, J. R. Kiros and G. E. Hinton, "Layer normalization" (2016), arXiv 1607.06450. Over chunks the moments of each column are B. P. Welford's (1962),
    joined as in T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance" (1983). Raises ValidationError B108 at the caller's
    line for other types, lengths and epsilons.
    """
    return _norm("layer_norm", type_, columns, epsilon, weight, bias)


def rms_norm(type_: Type = f32, columns: int | None = None, *, epsilon: float = _EPSILON, weight: bool = True) -> vp.Program:
    """target[i, j] = source[i, j] / sqrt(mean square of row i + epsilon) * weight[j]: B. Zhang and R. Sennrich, "Root mean square layer normalization"
    (2019), arXiv 1910.07467. Buffers, lengths, numerics and errors are those of `layer_norm`, without a `bias`.

    A result is off by at most (c / 2 + 10) u of itself, where the mean square is a normal number, with u, c and more for 16 bits as `layer_norm` has them."""
    return _norm("rms_norm", type_, columns, epsilon, weight, False)


def _norm(name: str, type_: Type, columns: int | None, epsilon: float, has_weight: bool, has_bias: bool) -> vp.Program:
    one_of("the type of a norm", type_, FLOATS)
    epsilon = number("epsilon is a number from 0 up to 1", epsilon, lambda x: 0 <= x < 1, "epsilon=1e-5")
    has_weight, has_bias = flags(weight=has_weight, bias=has_bias)
    count, width = (1, CHUNK) if columns is None else (rows_of(whole("the length of a row", columns, 1, LONGEST)), columns)
    centred, to, shape = name == "layer_norm", wide(type_), (count, width)
    with vp.TileBuilder(name) as b:
        rows, n = b.dim("rows"), b.dim("columns") if columns is None else columns
        source, target = b.read("source", type_, rows, n), b.write("target", type_, rows, n)
        weight = b.read("weight", type_, n) if has_weight else None
        bias = b.read("bias", type_, n) if has_bias else None
        b.grid(vp.ceil_div(rows, count))
        i = b.let("i", b.workgroup_id(0) * count)

        def load(j: vp.Expr | int) -> vp.Expr:
            return vp.cast(source.tile(i, j, shape=shape), to)

        def store(j: vp.Expr | int, x: vp.Expr) -> None:
            if weight is not None:
                x = x * vp.cast(weight.tile(j, shape=width).reshape((1, width)), to)
            if bias is not None:
                x = x + vp.cast(bias.tile(j, shape=width).reshape((1, width)), to)
            target[i, j] = vp.cast(x, type_)

        if isinstance(n, vp.Size):
            size = vp.cast(n, to)
            mean, squares = _moments(b, n, to, load) if centred else (None, _squares(b, n, to, load))
            root = vp.sqrt(squares / size + epsilon)
            with b.for_(0, n, CHUNK, name="j") as j:
                store(j, (load(j) if mean is None else load(j) - mean) / root)
        else:
            x = load(0)
            x = x - x.reduce("add", 1) / n if centred else x
            store(0, x / vp.sqrt((x * x).reduce("add", 1) / n + epsilon))
    return b.program


def _squares(b: vp.TileBuilder, n: vp.Size, to: Type, load: Callable[[vp.Expr], vp.Expr]) -> vp.Expr:
    """The sum of the squares of a row."""
    total = b.var("total", to, shape=(1, CHUNK))
    with b.for_(0, n, CHUNK, name="j") as j:
        x = load(j)  # past the end zero
        total += x * x
    return total.get().reduce("add", 1)


def _moments(b: vp.TileBuilder, n: vp.Size, to: Type, load: Callable[[vp.Expr], vp.Expr]) -> tuple[vp.Expr, vp.Expr]:
    """The mean of a row, and the sum of the squares of the deviations from it: of each column of the chunks first, then of all."""
    shape = (1, CHUNK)
    own, squares = b.var("mean", to, shape=shape), b.var("squares", to, shape=shape)
    column = b.iota(1, shape)
    with b.for_(0, n, CHUNK, name="j") as j:
        x, inside = load(j), column < n - j
        off = x - own
        own.set(vp.select(inside, own + off / vp.cast(j // CHUNK + 1, to), own))
        squares.set(vp.select(inside, squares + off * (x - own), squares))
    counts = vp.cast((n + (CHUNK - 1) - column) // CHUNK, to)
    mean = (counts * own).reduce("add", 1) / vp.cast(n, to)
    off = own - mean
    return mean, (squares + counts * off * off).reduce("add", 1)
