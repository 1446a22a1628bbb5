"""Products of matrices, with what follows them in the same pass over the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import vyre_py as vp
from vyre_py.ir.check.limits import MAX_PIPELINE
from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, u8
from vyre_py.ops import hardware
from vyre_py.ops.checks import FLOATS, extents_of, flags, one_of, refuse, tensor_of, whole

__all__ = ["ACTIVATIONS", "TILES", "matmul"]

# Rows and columns of the result that a workgroup computes, and how deep it goes into the factors at a time. On sm_90a "large" keeps two warpgroups at 64 x 256
# each, and pays from some 2048 rows and columns on; "medium" gives more workgroups to fill a GPU with, and is the fastest on a CPU; "small" is for what has no
# tensor cores, and for wgpu. Elements of 4 bytes are loaded half as deep by "large": more of them on their way than registers hold.
TILES: Final[Mapping[str, tuple[int, int, int]]] = {"large": (128, 256, 64), "medium": (128, 128, 64), "small": (64, 64, 32)}

# With tensor cores, and without, by the kind of machine.
_BY_ITSELF: Final = {hardware.ANY: ("medium", "small"), hardware.CPU: ("medium", "medium"), hardware.PLAIN: ("small", "small")}

# GELU: D. Hendrycks and K. Gimpel, "Gaussian error linear units" (2016), arXiv 1606.08415, the second by its approximation in section 2.
ACTIVATIONS: Final[Mapping[str, Callable[[vp.Expr], vp.Expr]]] = {
    "relu": lambda x: vp.select(x < 0, 0, x),  # a NaN stays
    "sigmoid": lambda x: 1 / (1 + vp.exp(-x)),
    "silu": lambda x: x / (1 + vp.exp(-x)),
    "tanh": lambda x: vp.tanh(x),  # noqa: PLW0108 - the function itself would be imported here, and take the lock of late imports
    "gelu": lambda x: x * 0.5 * (1 + vp.erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: x * 0.5 * (1 + vp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
}
_SUMS: Final = {f16: f32, bf16: f32, f8e4m3: f32, f8e5m2: f32, f32: f32, f64: f64, i8: i32, u8: i32}


def matmul(
    type_: Type = f32, to: Type | None = None, *, batched: bool = False, transpose_a: bool = False, transpose_b: bool = False, scaled: bool = False,
    bias: bool = False, activation: str | None = None, residual: bool = False, tensor: bool | str | None = None,
    tiles: str | tuple[int, int, int] | None = None, stages: int = 0, on: vp.Device | vp.Target | str | None = None,
) -> vp.Program:  # fmt: skip
    """c = activation(scale * a b + bias) + residual, of which all but a b is left out unless asked for.

    Buffers: `a` of [m, k], or [k, m] with `transpose_a`; `b` of [k, n], or [n, k] with `transpose_b`; `bias` of [n], `residual` and `c` of [m, n]; `batched`
    puts an axis `batch` in front of `a`, `b`, `residual` and `c`. `scale` is a param. `a` and `b` have elements of `type_`: f8e4m3, f8e5m2, f16, bf16, f32,
    f64, i8 or u8. `bias`, `residual` and `c` have elements of `to`: any float for floats, unless given `type_` (f32 for floats of 8 bits); i32 for integers,
    which are neither scaled nor activated but by "relu". `activation` is a name in `ACTIVATIONS`.

    All is computed in f32, of f64 in f64, and rounded to `to` once; sums of integers are exact modulo 2^32. Each element of a b is a chain of fused
    multiply-adds in order of k, with the same bits on every strict device, unless `tensor` says that tensor cores may sum in their own order, of f32 take the
    upper 19 bits (tf32), and of products of f8 on sm_90a keep sums of 14 bits: it is true unless given for types of 8 and 16 bits. `tiles` is a name in
    `TILES`, of which "large" goes half as deep for elements of 4 bytes, and whose sums of f64 have no room in a GPU's registers, or a shape (rows, columns,
    depth); unless given it is "medium" with `tensor`, of f32 half as deep and of f64 "small", and "small" without, which fit every machine, or what is fast
    `on` a device or target ("sm_90"), where factors of 8 bits that lie along k go 128 deep.
    `stages`, from 1 to 32, is for how many steps along k tensor cores have room for the factors, which are copied ahead; 0 leaves it to the compiler. CUDA and
    WebGPU have room for 65,535 tiles along `m`, and as many matrices of a batch: for more, binding raises BindingError.

    To first order in u = 2^-24, of f64 2^-53, an element of a b is off by at most k u times the sum of |a b| over k. Of what tensor cores sum it is
    ceil(k / L) ((L + 1) 2^-F + 2^(1 - B)) times that sum, with L, F and B of the code's report, of bf16 `tensor_bf16_at_once`, `_bits` and `_kept` (16, 25, 24
    on sm_90: docs/guide/tiles.md), and of f32 2^-9 times it more. `scale`, `bias` and `residual` each add u of what they give. Elements of 8 and 16 bits are
    exact, and results of 16 bits off by 2^-11 (f16) or 2^-8 (bf16) of themselves more.

    Raises ValidationError B108 at the caller's line for other types, names, shapes and stages.
    """
    total = _SUMS[one_of("the type of the factors", type_, _SUMS)]
    default = i32 if total is i32 else f32 if type_.size_bytes == 1 else type_
    to = one_of("the type of the product", default if to is None else to, (i32,) if total is i32 else FLOATS)
    batched, scaled, bias, residual = flags(batched=batched, scaled=scaled, bias=bias, residual=residual)
    transpose_a, transpose_b = flags(transpose_a=transpose_a, transpose_b=transpose_b)
    finish = ACTIVATIONS[one_of("the activation", activation, ACTIVATIONS)] if activation is not None else None
    if total is i32 and (scaled or finish not in (None, ACTIVATIONS["relu"])):
        refuse("products of integers are neither scaled nor activated but by relu", "read the i32 in a Program that goes on in f32")
    tensor = tensor_of(tensor, type_)
    stages = whole("stages", stages, 0, MAX_PIPELINE)
    kind = hardware.machine(on)
    rows, columns, depth = _by_itself(kind, type_, bool(tensor)) if tiles is None else _shape_of(tiles, type_)
    if tiles is None and kind == hardware.WARPGROUPS and type_.size_bytes == 1 and transpose_b and not transpose_a:
        depth *= 2  # whole rows of 128 bytes, as warpgroups take them
    with vp.TileBuilder("matmul") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        batch = [b.dim("batch")] if batched else []
        x = b.read("a", type_, *batch, *((k, m) if transpose_a else (m, k)))
        y = b.read("b", type_, *batch, *((n, k) if transpose_b else (k, n)))
        scale = b.param("scale", total) if scaled else None
        added = b.read("bias", to, n) if bias else None
        kept = b.read("residual", to, *batch, m, n) if residual else None
        z = b.write("c", to, *batch, m, n)
        b.grid(vp.ceil_div(n, columns), vp.ceil_div(m, rows), *batch)
        i, j = b.let("i", b.workgroup_id(1) * rows), b.let("j", b.workgroup_id(0) * columns)
        g = [b.workgroup_id(2)] if batched else []
        acc = b.var("acc", total, shape=(rows, columns))
        with b.for_(0, k, depth, name="p", pipeline=stages) as p:
            left = x.tile(*g, p, i, shape=(depth, rows)).T if transpose_a else x.tile(*g, i, p, shape=(rows, depth))
            right = y.tile(*g, j, p, shape=(columns, depth)).T if transpose_b else y.tile(*g, p, j, shape=(depth, columns))
            acc.set(vp.mma(left, right, acc, tensor=tensor))
        out = acc.get()
        if scale is not None:
            out = out * scale
        if added is not None:
            out = out + vp.cast(added.tile(j, shape=columns).reshape((1, columns)), total)
        if finish is not None:
            out = finish(out)
        if kept is not None:
            out = out + vp.cast(kept.tile(*g, i, j, shape=(rows, columns)), total)
        z[*g, i, j] = vp.cast(out, to)
    return b.program


def _by_itself(kind: str, type_: Type, tensor: bool) -> tuple[int, int, int]:
    """The shape that fits a kind of machine: of elements of 4 and 8 bytes less, where tensor cores take them from workgroup memory."""
    of_cores = tensor and kind in (hardware.ANY, *hardware.WITH_CORES)
    if of_cores and type_ is f64:
        return TILES["small"]
    rows, columns, depth = TILES[_BY_ITSELF.get(kind, _BY_ITSELF[hardware.ANY])[not tensor]]
    return rows, columns, depth // 2 if of_cores and type_.size_bytes == 4 and kind in (hardware.ANY, hardware.NARROW) else depth


def _shape_of(tiles: Any, type_: Type) -> tuple[int, int, int]:
    if isinstance(tiles, str):
        rows, columns, depth = TILES[one_of("the shape of tiles", tiles, TILES)]
        return rows, columns, depth // 2 if tiles == "large" and type_.size_bytes == 4 else depth
    rows, columns, depth = extents_of(tiles, ("rows", "columns", "depth"), f"tiles=(64, 64, 32), or one of {', '.join(TILES)}")
    return rows, columns, depth
