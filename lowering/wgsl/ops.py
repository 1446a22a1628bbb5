"""One row per op: the WGSL expression for it, by operand type.

`{0}`, `{1}`, `{2}` stand for the operands, which are names or literals; a function that is not WGSL's own is in `legal.HELPERS`.
A row is one expression for every type, or one per type name; for cast and bitcast per `from->to`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.nodes import Let

__all__ = ["QUERIES", "ROWS", "form_of"]

Row = str | Mapping[str, str]

_CASTS: Final[Mapping[str, str]] = {
    "bool->u8": "select(0u, 1u, {0})", "bool->i32": "select(0i, 1i, {0})", "bool->u32": "select(0u, 1u, {0})", "bool->f32": "select(0.0f, 1.0f, {0})",
    "u8->bool": "{0} != 0u", "u8->i32": "i32({0})", "u8->u32": "{0}", "u8->f32": "f32({0})",
    "i32->bool": "{0} != 0i", "i32->u8": "u32({0}) & 255u", "i32->u32": "u32({0})", "i32->f32": "f32({0})",
    "u32->bool": "{0} != 0u", "u32->u8": "{0} & 255u", "u32->i32": "i32({0})", "u32->f32": "f32({0})",
    "f32->bool": "!({0} == 0.0f)", "f32->u8": "u8_of_f32({0})", "f32->i32": "i32_of_f32({0})", "f32->u32": "u32_of_f32({0})",
}
_BITCASTS: Final[Mapping[str, str]] = {
    "i32->u32": "bitcast<u32>({0})", "u32->i32": "bitcast<i32>({0})", "i32->f32": "bitcast<f32>({0})", "u32->f32": "bitcast<f32>({0})",
    "f32->u32": "bits_f32({0})", "f32->i32": "bitcast<i32>(bits_f32({0}))",
}

ROWS: Final[Mapping[str, Row]] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": {"i32": "div_i32({0}, {1})", "u32": "div_u32({0}, {1})", "f32": "{0} / {1}"},
    "rem": {"i32": "rem_i32({0}, {1})", "u32": "rem_u32({0}, {1})"},
    "neg": {"i32": "-{0}", "u32": "0u - {0}", "f32": "-{0}"},
    "abs": {"i32": "abs({0})", "u32": "{0}", "f32": "abs({0})"},
    "sign": {"i32": "sign({0})", "u32": "min({0}, 1u)", "f32": "sign_f32({0})"},
    "min": {"i32": "min({0}, {1})", "u32": "min({0}, {1})", "f32": "min_f32({0}, {1})"},
    "max": {"i32": "max({0}, {1})", "u32": "max({0}, {1})", "f32": "max_f32({0}, {1})"},
    "clamp": {"i32": "min(max({0}, {1}), {2})", "u32": "min(max({0}, {1}), {2})", "f32": "min_f32(max_f32({0}, {1}), {2})"},
    "fma": "fma({0}, {1}, {2})",
    "sqrt": "sqrt({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "round": "round({0})",
    "fract": "{0} - floor({0})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "shl": {"i32": "{0} << (u32({1}) & 31u)", "u32": "{0} << ({1} & 31u)"},
    "shr": {"i32": "{0} >> (u32({1}) & 31u)", "u32": "{0} >> ({1} & 31u)"},
    "rotl": {"i32": "bitcast<i32>(rotl_u32(u32({0}), u32({1})))", "u32": "rotl_u32({0}, {1})"},
    "rotr": {"i32": "bitcast<i32>(rotl_u32(u32({0}), 32u - (u32({1}) & 31u)))", "u32": "rotl_u32({0}, 32u - ({1} & 31u))"},
    "popcount": "countOneBits({0})",
    "clz": "countLeadingZeros({0})",
    "ctz": "countTrailingZeros({0})",
    "reverse_bits": "reverseBits({0})",
    "mul_hi": {"i32": "mul_hi_i32({0}, {1})", "u32": "mul_hi_u32({0}, {1})"},
    "abs_diff": {"i32": "abs_diff_i32({0}, {1})", "u32": "abs_diff_u32({0}, {1})"},
    "eq": "{0} == {1}",
    "ne": "!({0} == {1})",  # `!=` is false over NaN in some compilers
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "!{0}",
    "select": "select({2}, {1}, {0})",
    "is_nan": "is_nan_f32({0})",
    "is_inf": "(bitcast<u32>({0}) & 0x7fffffffu) == 0x7f800000u",
    "is_finite": "(bitcast<u32>({0}) & 0x7f800000u) != 0x7f800000u",
    "cast": _CASTS,
    "bitcast": _BITCASTS,
    "exp": "exp({0})",
    "log": "log({0})",
    "sin": "sin({0})",
    "cos": "cos({0})",
}

# Query -> expression over the names that `emit` defines at the kernel's head; `{size}` is the workgroup's along that axis.
QUERIES: Final[Mapping[str, str]] = {
    "global_id": "group.{axis} * {size}u + local.{axis}",
    "local_id": "local.{axis}",
    "workgroup_id": "group.{axis}",
    "num_workgroups": "groups.{axis}",
    "workgroup_size": "size.{axis}",
    "local_index": "local_index",
}


def form_of(statement: Let) -> str:
    """The row's expression for a statement's types."""
    row = ROWS[statement.op.name]
    if isinstance(row, str):
        return row
    source = statement.args[0].type.name
    if statement.op.name in ("cast", "bitcast"):
        return row[f"{source}->{statement.bound.type.name}"]
    return row[source]
