"""Checks and offsets of array accesses, in scalar LLVM IR.

An index is i32, u32, i64 or u64. The extents of a wide buffer (`ir.language.widths`) are 64-bit, those of other arrays 32-bit, or numbers; 64 bits on
either side make the comparison one of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.ir.language.types import Type
from vyre_py.ir.language.widths import WIDE_TYPES
from vyre_py.lowering.llvm.text import Writer

__all__ = ["inside", "number", "offset"]


def _widened(w: Writer, index: str, type_: Type) -> str:
    """The value of an index in 64 bits."""
    return index if type_ in WIDE_TYPES else w.shared(f"{'sext' if type_.is_signed else 'zext'} i32 {index} to i64")


def inside(w: Writer, indices: Sequence[str], types: Sequence[Type], extents: Sequence[str], wide: bool, proven: int) -> str:
    """Whether each index lies within its axis by its mathematical value: the name of an i1, "" when all are proven.

    `wide` says that the extents are 64-bit; bit k of `proven` that axis k needs no check. In 64 bits a negative index, read as unsigned, lies
    past every extent; in 32 bits it is checked for its sign as well, since it may lie below an extent of more than 2^31.
    """
    condition = ""
    for axis, (index, type_, extent) in enumerate(zip(indices, types, extents, strict=True)):
        if proven >> axis & 1:
            continue
        if wide or type_ in WIDE_TYPES:
            checks = [w.shared(f"icmp ult i64 {_widened(w, index, type_)}, {extent}")]
        else:
            checks = [w.shared(f"icmp ult i32 {index}, {extent}")]
            if type_.is_signed:
                checks.append(w.shared(f"icmp sgt i32 {index}, -1"))
        for check in checks:
            condition = w.shared(f"and i1 {condition}, {check}") if condition else check
    return condition


def number(w: Writer, indices: Sequence[str], types: Sequence[Type], extents: Sequence[str], wide: bool) -> tuple[str, int]:
    """The element's number within its array, and the bits that it has. Where neither the extents nor an index has 64 bits, it fits 32 when every index is
    inside, since counts do."""
    bits = 64 if wide or not WIDE_TYPES.isdisjoint(types) else 32
    flat = ""
    for index, type_, extent in zip(indices, types, extents, strict=True):
        term = _widened(w, index, type_) if bits == 64 else index
        flat = w.shared(f"add i{bits} {w.shared(f'mul i{bits} {flat}, {extent}')}, {term}") if flat else term
    return flat or "0", bits


def offset(w: Writer, indices: Sequence[str], types: Sequence[Type], extents: Sequence[str], wide: bool) -> str:
    """The element's number within its array as an i64."""
    flat, bits = number(w, indices, types, extents, wide)
    return flat if bits == 64 or not indices else w.shared(f"zext i32 {flat} to i64")
