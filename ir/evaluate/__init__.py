"""What each op computes, over NumPy arrays: the one evaluation that the interpreter and the folding pass share.

Every function takes the result type and arrays that broadcast (of at least one dimension: NumPy warns about wrapping scalars), and
returns an array of that type. A vector has its components on an axis of its own, the second; a scalar has one axis. Floating point is
IEEE-754 with subnormals; the bits of a NaN result are unspecified except where an op says so. A function is the meaning of one row of
`ir.language.ops`, and the row's `doc` says in words what it gives.

Where one type's bytes are read as another's (bitcast, pack), the host is little-endian, as every platform of ours is.
"""

from __future__ import annotations

from vyre_py.ir.evaluate.bits import (
    and_,
    clz,
    ctz,
    extract_bits,
    insert_bits,
    not_,
    or_,
    popcount,
    reverse_bits,
    rotl,
    rotr,
    shl,
    shr,
    xor,
)
from vyre_py.ir.evaluate.comparisons import eq, ge, gt, is_finite, is_inf, is_nan, le, lt, ne, select
from vyre_py.ir.evaluate.conversions import bitcast, cast
from vyre_py.ir.evaluate.fused import fma
from vyre_py.ir.evaluate.integers import abs_diff, mul_hi, saturating_add, saturating_mul, saturating_sub
from vyre_py.ir.evaluate.numbers import (
    abs_,
    add,
    ceil,
    clamp,
    div,
    floor,
    fract,
    max_,
    min_,
    mul,
    neg,
    rem,
    round_,
    rsqrt,
    sign,
    sqrt,
    sub,
    trunc,
)
from vyre_py.ir.evaluate.packing import packer, unpacker
from vyre_py.ir.evaluate.vectors import all_, any_, cross, dot, length, swizzle, vector

__all__ = [
    "abs_", "abs_diff", "add", "all_", "and_", "any_", "bitcast", "cast", "ceil", "clamp", "clz", "cross", "ctz", "div", "dot", "eq", "extract_bits",
    "floor", "fma", "fract", "ge", "gt", "insert_bits", "is_finite", "is_inf", "is_nan", "le", "length", "lt", "max_", "min_", "mul", "mul_hi", "ne",
    "neg", "not_", "or_", "packer", "popcount", "rem", "reverse_bits", "rotl", "rotr", "round_", "rsqrt", "saturating_add", "saturating_mul",
    "saturating_sub", "select", "shl", "shr", "sign", "sqrt", "sub", "swizzle", "trunc", "unpacker", "vector", "xor",
]
