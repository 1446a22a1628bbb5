"""One row per op: the WGSL expression for it, by operand type.

`{0}`, `{1}`, `{2}` stand for the operands, which are names or literals; a function that is not WGSL's own is in `helpers.HELPERS`.
A row is one expression for every type, or one per type name; for cast and bitcast per `from->to`. Rows are for what the rewrites of
`legal` leave: 64-bit integers are gone where the device has none, and else computed where there is a row (`lowering.legal.by_words` has the rest); narrow
integers and floats are moved and cast only, and 64 bits are traded with two u32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.language.nodes import Let
from vyre_py.ir.language.types import SCALARS, bool_, f32, f64, i32, i64, u32, u64
from vyre_py.lowering.legal.split64_ops import FUNCTIONS

__all__ = ["QUERIES", "ROWS", "form_of"]

Row = str | Mapping[str, str]

_CONVERSIONS: Final = frozenset({"cast", "bitcast"})
_INTEGERS: Final = ("i32", "u32", "i64", "u64")

_NARROW_CASTS: Final[Mapping[str, str]] = {
    f"{source}->{target}": text
    for bits, mask in ((8, "255u"), (16, "65535u"))
    for source, target, text in (
        # The sign comes down from the top.
        (f"i{bits}", "i32", f"bitcast<i32>({{0}} << {32 - bits}u) >> {32 - bits}u"),
        (f"i{bits}", "u32", f"bitcast<u32>(bitcast<i32>({{0}} << {32 - bits}u) >> {32 - bits}u)"),
        (f"u{bits}", "i32", "i32({0})"),
        (f"u{bits}", "u32", "{0}"),
        *(("i32", f"{kind}{bits}", f"u32({{0}}) & {mask}") for kind in "iu"),
        *(("u32", f"{kind}{bits}", f"{{0}} & {mask}") for kind in "iu"),
    )
}
# The low word first, by unsigned integers, so that no compiler extends a sign that is none.
_WIDE_CASTS: Final[Mapping[str, str]] = {
    "bool->i64": "select(0li, 1li, {0})", "bool->u64": "select(0lu, 1lu, {0})", "i64->bool": "{0} != 0li", "u64->bool": "{0} != 0lu",
    "i32->i64": "i64({0})", "i32->u64": "bitcast<u64>(i64({0}))", "u32->i64": "bitcast<i64>(u64({0}))", "u32->u64": "u64({0})",
    "i64->i32": "bitcast<i32>(words_of_u64(bitcast<u64>({0})).x)", "i64->u32": "words_of_u64(bitcast<u64>({0})).x",
    "u64->i32": "bitcast<i32>(words_of_u64({0}).x)", "u64->u32": "words_of_u64({0}).x", "i64->u64": "bitcast<u64>({0})", "u64->i64": "bitcast<i64>({0})",
}  # fmt: skip
_CASTS: Final[Mapping[str, str]] = {
    **_NARROW_CASTS, **_WIDE_CASTS,
    "bool->i32": "select(0i, 1i, {0})", "bool->u32": "select(0u, 1u, {0})", "bool->f32": "select(0.0f, 1.0f, {0})", "bool->f64": "select(0.0lf, 1.0lf, {0})",
    "i32->bool": "{0} != 0i", "i32->u32": "u32({0})", "i32->f32": "f32({0})", "i32->f64": "f64({0})",
    "u32->bool": "{0} != 0u", "u32->i32": "i32({0})", "u32->f32": "f32({0})", "u32->f64": "f64({0})",
    "f32->bool": "!({0} == 0.0f)", "f32->i32": "i32_of_f32({0})", "f32->u32": "u32_of_f32({0})", "f32->f64": "f64({0})",
    "f64->bool": "!({0} == 0.0lf)", "f64->i32": "i32_of_f64({0})", "f64->u32": "u32_of_f64({0})", "f64->f32": "f32({0})",
    "f16->f32": "f32_of_f16({0})", "f32->f16": "f16_of_f32({0})", "bf16->f32": "f32_of_bf16({0})", "f32->bf16": "bf16_of_f32({0})",
}
_BYTES: Final = ("i8", "u8", "f8e4m3", "f8e5m2")
_HALVES: Final = ("i16", "u16", "f16", "bf16")
_BITCASTS: Final[Mapping[str, str]] = {
    **{
        f"{a}->{b}": "{0}" if a[0] in "iu" else f"bits_{a}({{0}})"
        for alike in (_BYTES, _HALVES) for a in alike for b in alike if a != b
    },
    "i32->u32": "bitcast<u32>({0})", "u32->i32": "bitcast<i32>({0})", "i32->f32": "bitcast<f32>({0})", "u32->f32": "bitcast<f32>({0})",
    "f32->u32": "bits_f32({0})", "f32->i32": "bitcast<i32>(bits_f32({0}))",
    "f64->u32x2": "words_of_f64({0})", "u32x2->f64": "f64_of_words({0}.x, {0}.y)",
    "i64->u64": "bitcast<u64>({0})", "u64->i64": "bitcast<i64>({0})",
    "u64->u32x2": "words_of_u64({0})", "u32x2->u64": "u64_of_words({0}.x, {0}.y)",
    "i64->u32x2": "words_of_u64(bitcast<u64>({0}))", "u32x2->i64": "bitcast<i64>(u64_of_words({0}.x, {0}.y))",
}  # fmt: skip


def _called(name: str) -> Mapping[str, str]:
    """A function for each type of integers."""
    return {t: f"{name}_{t}({{0}}, {{1}})" for t in _INTEGERS}


def _of_words(text: str) -> Mapping[str, str]:
    """What Vulkan has for integers of 32 bits alone."""
    return dict.fromkeys(("i32", "u32"), text)


def _by_low_word(of_u64: str, of_i64: str = "") -> Mapping[str, str]:
    """What moves 64 bits by a count, `by` in the texts, of which one may serve both types."""
    return {t: text.replace("{by}", _CASTS[f"{t}->u32"].replace("{0}", "{1}")) for t, text in (("u64", of_u64), ("i64", of_i64 or of_u64))}


# A row without types in it serves those that WGSL computes in, and bool where the op takes one.
ROWS: Final[Mapping[str, Row]] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": {**_called("div"), "f32": "{0} / {1}", "f64": "{0} / {1}"},
    "rem": _called("rem"),
    "neg": {**dict.fromkeys(("i32", "i64", "f32", "f64"), "-{0}"), "u32": "0u - {0}", "u64": "0lu - {0}"},
    "abs": {**dict.fromkeys(("i32", "f32", "f64"), "abs({0})"), "u32": "{0}", "i64": "bitcast<i64>(size_i64({0}))", "u64": "{0}"},
    "sign": {
        "i32": "sign({0})", "u32": "min({0}, 1u)", "i64": "select(select(0li, 1li, {0} > 0li), -1li, {0} < 0li)", "u64": "select(1lu, 0lu, {0} == 0lu)",
        "f32": "sign_f32({0})", "f64": "sign_f64({0})",
    },
    "min": {**dict.fromkeys(_INTEGERS, "min({0}, {1})"), "f32": "min_f32({0}, {1})", "f64": "min_f64({0}, {1})"},
    "max": {**dict.fromkeys(_INTEGERS, "max({0}, {1})"), "f32": "max_f32({0}, {1})", "f64": "max_f64({0}, {1})"},
    "clamp": {**dict.fromkeys(_INTEGERS, "min(max({0}, {1}), {2})"), "f32": "min_f32(max_f32({0}, {1}), {2})", "f64": "min_f64(max_f64({0}, {1}), {2})"},
    "fma": "fma({0}, {1}, {2})",
    "sqrt": "sqrt({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": {"f32": "trunc({0})", "f64": "trunc_f64({0})"},
    "round": {"f32": "round({0})", "f64": "round_f64({0})"},
    "fract": "{0} - floor({0})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "shl": {"i32": "{0} << (u32({1}) & 31u)", "u32": "{0} << ({1} & 31u)", **_by_low_word("{0} << ({by} & 63u)")},
    "shr": {"i32": "{0} >> (u32({1}) & 31u)", "u32": "{0} >> ({1} & 31u)", **_by_low_word("{0} >> ({by} & 63u)")},
    "rotl": {
        "i32": "bitcast<i32>(rotl_u32(u32({0}), u32({1})))", "u32": "rotl_u32({0}, {1})",
        **_by_low_word("rotl_u64({0}, {by})", "bitcast<i64>(rotl_u64(bitcast<u64>({0}), {by}))"),
    },
    "rotr": {
        "i32": "bitcast<i32>(rotl_u32(u32({0}), 32u - (u32({1}) & 31u)))", "u32": "rotl_u32({0}, 32u - ({1} & 31u))",
        **_by_low_word("rotl_u64({0}, 64u - ({by} & 63u))", "bitcast<i64>(rotl_u64(bitcast<u64>({0}), 64u - ({by} & 63u)))"),
    },
    "popcount": _of_words("countOneBits({0})"),
    "clz": _of_words("countLeadingZeros({0})"),
    "ctz": _of_words("countTrailingZeros({0})"),
    "reverse_bits": _of_words("reverseBits({0})"),
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
    "select": dict.fromkeys([t.name for t in SCALARS.values()], "select({2}, {1}, {0})"),
    "is_nan": {"f32": "is_nan_f32({0})", "f64": "is_nan_f64({0})"},
    "is_inf": {"f32": "(bitcast<u32>({0}) & 0x7fffffffu) == 0x7f800000u", "f64": "is_inf_f64({0})"},
    "is_finite": {"f32": "(bitcast<u32>({0}) & 0x7f800000u) != 0x7f800000u", "f64": "!(is_inf_f64({0}) | is_nan_f64({0}))"},
    "cast": _CASTS,
    "bitcast": _BITCASTS,
    "vec2": {"u32": "vec2<u32>({0}, {1})"},
    "swizzle": dict.fromkeys(["u32x2", "u32x4"], "{0}[{1}]"),
    **{op.name: f"{op.name}({{0}}, {{1}}, {{2}}, {{3}})" for op in FUNCTIONS.values()},
    **{name: {"f32": f"{name}({{0}})"} for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")},
    **{f"fast_{name}": {"f32": f"{name}({{0}})"} for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh")},
    "fast_sqrt": "sqrt({0})",
    "fast_div": {"f32": "{0} / {1}", "f64": "{0} / {1}"},
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


_COMPUTED: Final = frozenset({bool_, i32, u32, f32, f64, i64, u64})


def form_of(statement: Let) -> str | None:
    """The row's expression for a statement's types, or None."""
    name, result = statement.op.name, statement.bound.type
    row = ROWS.get(name)
    # The last operand, since the first of a select is a bool; what a swizzle picks is said by its last.
    source = statement.args[0 if name == "swizzle" else -1].type
    if row is None or isinstance(row, str):
        return row if source in _COMPUTED else None
    return row.get(f"{source}->{result}" if name in _CONVERSIONS else source.name)
