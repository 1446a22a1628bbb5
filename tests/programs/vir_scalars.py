"""Filetests of the ops on integers and floats, against `exact_integers` and `exact_floats`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from exact_floats import FLOAT_ORACLES, FORMATS
from exact_integers import INTEGER_ORACLES
from exact_samples import Number
from vir_text import NEEDS_F64, NO_SPECIALS, Column, call, case, file_text, number, number_text

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import SCALARS, Type, bf16, bool_, f16, f32, f64, i32, u32

__all__ = ["FILES", "Result", "columns", "edges", "everyday", "literal", "nans", "oracle", "result_of"]

# ---------------------------------------------------------------- numbers


def _integer_edges(t: Type) -> list[int]:
    """Twelve integers: small ones, shift counts at and past the width, the end of a word inside of it, a pattern of bits, and the ends."""
    pattern = 0xAAAAAAAAAAAAAAAA % (1 << t.bits)
    middle = [t.bits - 1, t.bits, t.bits + 1] if t.bits < 64 else [t.bits, (1 << 32) - 1, 1 << 32]
    if t.is_signed:
        return [0, 1, -1, 2, -7, *middle, pattern - (1 << t.bits), t.minimum, t.minimum + 1, t.maximum]
    return [0, 1, 2, 7, *middle, pattern, t.maximum >> 1, (t.maximum >> 1) + 1, t.maximum - 1, t.maximum]


def _float_edges(t: Type) -> list[Number]:
    """Fifteen floats: zeros, small numbers, the ends of the subnormal and of the normal numbers, infinities and NaN."""
    f = FORMATS[t]
    unit = 1 << f.fraction
    plain = [number(t, text) for text in ("1", "-1", "0.5", "-2.5", "3", "0.1")]
    return [0, f.sign, *plain, 1, f.sign | unit // 3, unit, f.infinity - 1, f.infinity, f.sign | f.infinity, f.nan]


def edges(t: Type) -> list[Number]:
    """The numbers of a scalar type that files about it try."""
    if t is bool_:
        return [False, True]
    return _float_edges(t) if t.is_float else _integer_edges(t)


def everyday(t: Type) -> list[Number]:
    """Floats that are neither large nor small."""
    plain = [number(t, text) for text in ("1", "-1", "0.5", "-2.5", "3", "0.1", "100.25", "-7", "1234.5", "0.001", "-0.3333333333333333")]
    return [*plain, number(t, "2") + 1]


# ---------------------------------------------------------------- Programs


def oracle(t: Type, name: str) -> Callable[..., Number]:
    """The op over numbers of a type."""
    return partial(FLOAT_ORACLES[name], FORMATS[t]) if t.is_float else partial(INTEGER_ORACLES[name], t)


def result_of(t: Type, name: str) -> Type:
    """The type of the op's result over operands of a type."""
    row = OPS[name]
    found = row.result_type(tuple([o.beside(t) for o in row.operands]))
    assert found is not None
    return found


def _pairs(t: Type, title: str, ops: Sequence[str], numbers: Sequence[Number], remarks: Sequence[str] = ()) -> str:
    """Ops of two operands, each number with each."""
    body = ["let i = global_id.y", "let j = global_id.x", "let a = x[i]", "let b = x[j]", *[f"{op}_[i, j] = {call(op, 'a', 'b')}" for op in ops]]
    wanted = [Column(f"{op}_", result_of(t, op), "n, n", "write", [[oracle(t, op)(a, b) for b in numbers] for a in numbers]) for op in ops]
    return case(f"{title}(n) workgroup(8, 8)", body, [Column("x", t, "n", "read", list(numbers))], wanted, remarks)


Result = tuple[Type, str, Callable[..., Number]]  # type, expression over the columns' names, the right value


def _of_op(t: Type, name: str, *operands: str) -> Result:
    """An op over columns, which the oracle finds by their places."""
    return result_of(t, name), call(name, *operands), oracle(t, name)


def columns(title: str, inputs: Mapping[str, tuple[Type, Sequence[Number]]], outputs: Mapping[str, Result], remarks: Sequence[str] = ()) -> str:
    """Expressions over columns: each row is an invocation. An output's right value is computed from the columns that its expression names, in
    their order; an output that is named like an op is written with an underscore."""
    given = [Column(f"{name}s", t, "n", "read", list(numbers)) for name, (t, numbers) in inputs.items()]
    rows = list(zip(*[numbers for _, numbers in inputs.values()], strict=True))
    body = ["let i = global_id.x", *[f"let {name} = {name}s[i]" for name in inputs]]
    wanted = []
    for name, (t, text, right) in outputs.items():
        named = set(re.findall(r"\w+", text))
        picked = [k for k, column in enumerate(inputs) if column in named]
        buffer = f"{name}_" if name in OPS else name
        wanted.append(Column(buffer, t, "n", "write", [right(*[row[k] for k in picked]) for row in rows]))
        body.append(f"{buffer}[i] = {text}")
    return case(f"{title}(n) workgroup(64)", body, given, wanted, remarks)


def _unary(t: Type, ops: Sequence[str]) -> dict[str, Result]:
    return {op: _of_op(t, op, "x") for op in ops}


# ---------------------------------------------------------------- integers

_ARITHMETIC: Final = ("add", "sub", "mul", "div", "rem", "mul_hi", "abs_diff")
_EXTREMES: Final = ("min", "max", "saturating_add", "saturating_sub", "saturating_mul")
_BITS: Final = ("and", "or", "xor", "shl", "shr", "rotl", "rotr")
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")


def _signs(t: Type) -> str:
    """Ops of one number, and clamps with ends in order, equal, and crossed."""
    numbers = _integer_edges(t)
    ends = [(0, t.maximum), (1, 7), (t.minimum, 2), (7, 7), (7, 1), (t.maximum, t.minimum)]
    rows = [(x, *ends[k % len(ends)]) for k, x in enumerate([*numbers, *numbers[::-1], *numbers[3:], *numbers[:3]])]
    x, low, high = zip(*rows, strict=True)
    outputs = {**_unary(t, ("neg", "abs", "sign", "not")), "clamp": _of_op(t, "clamp", "x", "low", "high")}
    return columns("signs_and_ends", {"x": (t, x), "low": (t, low), "high": (t, high)}, outputs)


def _counts(t: Type) -> str:
    single = [1 << k for k in (1, t.bits // 2 - 1, t.bits // 2, t.bits - 2)]
    return columns("counts", {"x": (t, [*_integer_edges(t), *single])}, _unary(t, ("popcount", "clz", "ctz", "reverse_bits")))


def _fields(t: Type) -> str:
    """Bit fields that are empty, whole, at either end, and past it."""
    w, most = t.bits, u32.maximum
    fields = [
        (0, 0), (0, 1), (0, w), (1, w - 1), (w - 1, 1), (w, 0), (w, 5), (w + 1, 3), (3, 4), (w // 2 - 1, 2), (w // 2, w), (2, w - 5), (most, most), (0, most),
        (5, most - 3), (most - 3, 5),
    ]  # fmt: skip
    numbers = [n for n in _integer_edges(t) if n]
    rows = [(numbers[(3 * k + 7) % len(numbers)], numbers[(5 * k + 9 * (k >= len(fields))) % len(numbers)], *f) for k, f in enumerate(fields * 2)]
    x, y, offset, count = zip(*rows, strict=True)
    outputs: dict[str, Result] = {
        "extract_bits": _of_op(t, "extract_bits", "x", "offset", "count"), "insert_bits": _of_op(t, "insert_bits", "x", "y", "offset", "count"),
        "select": (t, "select(x < y, x, y)", min),
    }
    return columns("fields", {"x": (t, x), "y": (t, y), "offset": (u32, offset), "count": (u32, count)}, outputs)


def _integer_file(t: Type) -> str:
    numbers = _integer_edges(t)
    groups = {"arithmetic": _ARITHMETIC, "extremes": _EXTREMES, "bits": _BITS, "comparisons": _COMPARISONS}
    title = f"Every op on {t}: each of the edge values against each, wrapping, division by zero, shift counts at and past the width, bit fields past the end."
    return file_text(title, [*[_pairs(t, name, ops, numbers) for name, ops in groups.items()], _signs(t), _counts(t), _fields(t)])


def _integer_rest(t: Type) -> str:
    title = f"Saturating ops and bit fields on {t}; the other ops are in ops_{t}.vir."
    return file_text(title, [_pairs(t, "saturating", _EXTREMES[2:], _integer_edges(t)), _fields(t)])


# ---------------------------------------------------------------- floats

_FLOAT_PAIRS: Final = ("add", "sub", "mul", "div", "rem", "min", "max")
_FLOAT_SIGNS: Final = ("neg", "abs", "sign", "is_nan", "is_inf", "is_finite")
_ROUNDING: Final = ("floor", "ceil", "trunc", "round", "fract")
_ROOTS: Final = ("sqrt", "rsqrt")


def _triples(t: Type) -> list[tuple[Number, ...]]:
    """Operands of fma whose product must not be rounded before the sum, and special ones."""
    f = FORMATS[t]
    up, down, one, tiny = f.one + 1, f.one - 1, f.one, 1 << f.fraction
    hard = [(up, up, f.sign | one), (up, down, f.sign | one), (up, f.sign | up, one + 2), (down, down, f.sign | one), (up, up, 1), (up, up, f.sign | 1)]
    hard += [(tiny, up, f.sign | tiny), (tiny + 1, down, 1), (f.infinity - 1, up, f.sign | f.infinity - 1), (up, down, f.infinity - 1)]
    few = [0, f.sign | one, number(t, "0.1"), f.sign | 1, f.infinity - 1, f.sign | f.infinity, f.nan]
    return [*hard, *[row for k, row in enumerate(product(few, repeat=3)) if k % 11 == 0]]


def _fused(t: Type, rows: Sequence[tuple[Number, ...]], remarks: Sequence[str] = ()) -> str:
    x, y, z = zip(*rows, strict=True)
    f = FORMATS[t]
    outputs: dict[str, Result] = {
        "fma": _of_op(t, "fma", "x", "y", "z"), "clamp": _of_op(t, "clamp", "x", "y", "z"),
        "select": (t, "select(x < y, x, y)", lambda a, b: a if f.value(a) < f.value(b) else b),
    }
    return columns("three_operands", {"x": (t, x), "y": (t, y), "z": (t, z)}, outputs, remarks)


def _wholes(t: Type) -> list[Number]:
    """Numbers around halves and around the largest that is not whole."""
    f = FORMATS[t]
    top = (f.bias + f.fraction) << f.fraction
    halves = [number(t, text) for text in ("1.5", "-1.5", "-0.5", "2.5", "3.5", "-3.5", "1e-3", "-1e-3")]
    return [*halves, f.one - 1, f.sign | f.one - 1, (f.one >> 1) + 1, top - 1, f.sign | top - 1, top + 1]


def _float_file(t: Type) -> str:
    numbers = _float_edges(t)
    cases = [
        _pairs(t, "arithmetic", _FLOAT_PAIRS, numbers), _pairs(t, "comparisons", _COMPARISONS, numbers),
        columns("signs_and_classes", {"x": (t, [*numbers, *nans(t)])}, _unary(t, _FLOAT_SIGNS)),
        columns("wholes_and_roots", {"x": (t, [*numbers, *_wholes(t)])}, _unary(t, (*_ROUNDING, *_ROOTS))), _fused(t, _triples(t)),
    ]
    return file_text(f"Every op on {t} with zeros of both signs, subnormals, the largest numbers, infinities and NaN; exact.", cases, [NO_SPECIALS])


def nans(t: Type) -> list[Number]:
    """A quiet NaN that is negative, and signalling ones."""
    f = FORMATS[t]
    return [f.sign | f.nan, f.infinity + 1, f.sign | f.infinity + 1, f.infinity | (1 << f.fraction - 1) - 1]


def _finite_file(t: Type) -> str:
    """f16 and bf16 are computed in f32 and rounded; f64 is the device's own."""
    numbers = everyday(t)
    near = f"// tolerance on wgpu: ulp {4 if t is f64 else 1}"
    positive = [x for x in numbers if not x & FORMATS[t].sign]
    some = [(a, b, c) for a, b in zip(numbers, [*numbers[4:], *numbers[:4]], strict=True) for c in (numbers[0], numbers[4])]
    cases = [
        _pairs(t, "arithmetic", ("add", "sub", "mul", "div"), numbers, [near]), _pairs(t, "extremes", ("min", "max", "rem"), numbers),
        _pairs(t, "comparisons", _COMPARISONS, numbers),
        columns("signs_and_classes", {"x": (t, numbers)}, _unary(t, _FLOAT_SIGNS)),
        columns("wholes", {"x": (t, [*numbers, *_wholes(t)])}, _unary(t, _ROUNDING[:-1])),
        columns("fractions", {"x": (t, numbers)}, _unary(t, _ROUNDING[-1:]), ["// tolerance on wgpu: abs 0.000001"]),
        columns("roots", {"x": (t, positive)}, _unary(t, _ROOTS), ["// tolerance on wgpu: ulp 8" if t is f64 else near]),
        _fused(t, some, [f"{near} abs 0.00001"]),
    ]
    title = f"Ops on everyday {t} numbers, on wgpu within the bounds that WGSL gives."
    return file_text(title, cases, [NEEDS_F64] if t is f64 else [])


def _f32_rest() -> str:
    return file_text(
        "Remainders and reciprocal roots on f32, with all special values; the other ops are in ops_f32.vir.",
        [_pairs(f32, "remainder", ("rem",), _float_edges(f32)), columns("roots", {"x": (f32, [*_float_edges(f32), *nans(f32)])}, _unary(f32, ("rsqrt",)))],
        [NO_SPECIALS],
    )


def _f32_finite_rest() -> str:
    positive = [x for x in everyday(f32) if not x & FORMATS[f32].sign]
    roots = columns("roots", {"x": (f32, positive)}, _unary(f32, ("rsqrt",)), ["// tolerance on wgpu: ulp 8"])
    return file_text("Remainders and reciprocal roots on everyday f32 numbers.", [_pairs(f32, "remainder", ("rem",), everyday(f32)), roots])


# ---------------------------------------------------------------- constants


def literal(t: Type, value: Number) -> str:
    """A number where nothing but its own form says that it is a float."""
    text = number_text(t, value)
    return text + ".0" if t.is_float and text.lstrip("-").isdigit() else text


def _constants(t: Type, name: str, numbers: Sequence[Number], remarks: Sequence[str] = ()) -> str:
    body = [f"y[{k}] = {literal(t, x)}" for k, x in enumerate(numbers)]
    return case(f"{name}_{t}(n) workgroup(1) over(1)", body, [Column("n", u32, "", "dim", len(numbers))], [Column("y", t, "n", "write", numbers)], remarks)


def _constants_file() -> str:
    integers = [_constants(t, "edges", edges(t)) for t in SCALARS.values() if not t.is_float]
    floats = [_constants(t, "everyday", everyday(t), [NEEDS_F64] * (t is f64)) for t in FORMATS]
    special = [_constants(t, "special", [*_float_edges(t), *nans(t)], [NO_SPECIALS]) for t in FORMATS]
    return file_text("Constants of every type, as each target writes them down.", [*integers, *floats, *special])


FILES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"ops_{t}": partial(_integer_file, t) for t in SCALARS.values() if t.is_integer and t.bits != 32},
    **{f"ops_{t}_more": partial(_integer_rest, t) for t in (i32, u32)},
    **{f"ops_{t}": partial(_float_file, t) for t in (f16, bf16, f64)},
    **{f"ops_{t}_finite": partial(_finite_file, t) for t in (f16, bf16, f64)},
    "constants": _constants_file,
    "ops_f32_more": _f32_rest,
    "ops_f32_more_finite": _f32_finite_rest,
}
