"""Rows that are found by their numbers."""

from __future__ import annotations

import vyre_py as vp
from vyre_py.ir.language.types import SCALARS, Type, f32, i32, i64, u32, u64
from vyre_py.ops.checks import one_of

__all__ = ["gather", "scatter_add"]

_INDICES = (i32, u32, i64, u64)


def gather(type_: Type = f32, index: Type = u32) -> vp.Program:
    """target[i, j] = source[indices[i], j]: row `indices[i]` of `source`, and zeros where there is no such row. A negative index is outside.

    Buffers: `source` of [rows, width] and `target` of [n, width], elements of `type_`, any scalar type, which are moved bit for bit; `indices` of [n], of the
    type `index`: i32, u32, i64 or u64. Single elements are rows of width 1. Raises ValidationError B108 at the caller's line for other types.
    """
    one_of("the type of the elements", type_, SCALARS.values())
    one_of("the type of the indices", index, _INDICES)
    with vp.ProgramBuilder("gather") as b:
        rows, width, n = b.dim("rows"), b.dim("width"), b.dim("n")
        source, indices, target = b.read("source", type_, rows, width), b.read("indices", index, n), b.write("target", type_, n, width)
        b.over(n * width)  # on one axis, so that narrow rows fill workgroups as well as wide ones
        i, j = b.let("i", b.global_id(0) // width), b.let("j", b.global_id(0) % width)
        target[i, j] = source[indices[i], vp.cast(j, index)]
    return b.program


def scatter_add(type_: Type = f32, index: Type = u32) -> vp.Program:
    """target[indices[i], j] += source[i, j]: each row of `source` is added to row `indices[i]` of `target`, or to none where there is no such row.

    Buffers: `source` of [n, width], `target` of [rows, width], read and written, elements of `type_`: i32, u32, f32, or where the device has atomics of them
    i64, u64 and f64; `indices` of [n], of the type `index`: i32, u32, i64 or u64. Rows that are named several times get all sums. Each element is an atomic,
    so that the order is not fixed, and the last bits of sums of floats may change from run to run; integers wrap, and are exact. Raises ValidationError B108
    at the caller's line for other types.
    """
    one_of("the type of the elements", type_, (i32, u32, f32, i64, u64, vp.f64))
    one_of("the type of the indices", index, _INDICES)
    with vp.ProgramBuilder("scatter_add") as b:
        rows, width, n = b.dim("rows"), b.dim("width"), b.dim("n")
        source, indices, target = b.read("source", type_, n, width), b.read("indices", index, n), b.read_write("target", type_, rows, width)
        b.over(n * width)
        with b.if_(b.global_id(0) < n * width):  # the last workgroup has invocations past the end
            i, j = b.let("i", b.global_id(0) // width), b.let("j", b.global_id(0) % width)
            target.atomic_add((indices[i], vp.cast(j, index)), source[i, j])
    return b.program
