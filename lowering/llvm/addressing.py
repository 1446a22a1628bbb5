"""Checks and offsets of array accesses, in scalar LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.ir.types import Type
from vyre_py.lowering.llvm.text import Writer

__all__ = ["inside", "offset"]


def inside(w: Writer, indices: Sequence[str], types: Sequence[Type], extents: Sequence[str], proven: int) -> str:
    """Whether each index lies within its axis by its mathematical value: the name of an i1, "" when all are proven.

    Indices are i32 or u32, extents u32; bit k of `proven` says that axis k needs no check. An i32 is checked for its sign as well,
    since a negative one, read as unsigned, may lie below an extent of more than 2^31.
    """
    condition = ""
    for axis, (index, type_, extent) in enumerate(zip(indices, types, extents, strict=True)):
        if proven >> axis & 1:
            continue
        checks = [w.let(f"icmp ult i32 {index}, {extent}")]
        if type_.is_signed:
            checks.append(w.let(f"icmp sgt i32 {index}, -1"))
        for check in checks:
            condition = w.let(f"and i1 {condition}, {check}") if condition else check
    return condition


def offset(w: Writer, indices: Sequence[str], extents: Sequence[str]) -> str:
    """The element's number within its array as an i64. It fits 32 bits when every index is inside, since counts do."""
    flat = ""
    for index, extent in zip(indices, extents, strict=True):
        flat = w.let(f"add i32 {w.let(f'mul i32 {flat}, {extent}')}, {index}") if flat else index
    return w.let(f"zext i32 {flat} to i64") if flat else "0"
