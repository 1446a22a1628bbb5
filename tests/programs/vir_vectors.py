"""Filetests of vectors: every component type, two to four components, in every memory and in every op that takes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, Final

from exact_conversions import cast_oracle, cross, distance, dot, length, normalize, reflect, refract
from exact_floats import COMPUTED
from exact_samples import Number
from vir_scalars import Result, columns, edges, everyday, literal, oracle, result_of
from vir_text import NEEDS_F64, Column, call, case, file_text, number

from vyre_py.ir.language.types import SCALARS, Type, bool_, f16, f32, f64, i8, i64, u32, vector_of

__all__ = ["FILES"]

Vector = tuple[Number, ...]

_NEAR_NARROW: Final = "// tolerance on wgpu: ulp 2 abs 0.01"  # of f16 and bf16
_NEAR: Final = "// tolerance on wgpu: ulp 4 abs 0.00001"


def _need(t: Type) -> list[str]:
    return [NEEDS_F64] if t is f64 else []


# ---------------------------------------------------------------- numbers


def _distinct(t: Type, count: int) -> list[Number]:
    """So many numbers that differ, in every word of a wide one; bools as they come."""
    if t is bool_:
        draw = random.Random(count)
        return [draw.random() < 0.5 for _ in range(count)]
    if t.is_float:
        return [number(t, f"{'-' * (k % 3 == 1)}{k + 1}") if k % 2 else number(t, f"{k / 2 + 0.25}") for k in range(count)]
    repeated = sum(1 << k for k in range(0, t.bits - 7, 8)) if t.bits > 8 else 1
    return [(k + 1) * repeated * (-1 if t.is_signed and k % 3 == 1 else 1) for k in range(count)]


def _vectors(t: Type, lanes: int, count: int) -> list[Vector]:
    """So many vectors of distinct numbers."""
    flat = _distinct(t, lanes * count)
    return [tuple(flat[k * lanes : (k + 1) * lanes]) for k in range(count)]


def _elements(t: Type, lanes: int, count: int) -> list[Any]:
    """Vectors, or scalars if there is one component."""
    return _vectors(t, lanes, count) if lanes > 1 else _distinct(t, count)


def _zero(t: Type, lanes: int) -> Any:
    """The element that is all zero."""
    zero = False if t is bool_ else 0
    return (zero,) * lanes if lanes > 1 else zero


def _table(t: Type, rows: Sequence[Any]) -> str:
    texts = ["[" + ", ".join([literal(t, x) for x in row]) + "]" if isinstance(row, tuple) else literal(t, row) for row in rows]
    return "[" + ", ".join(texts) + "]"


# ---------------------------------------------------------------- memories


def _in_memories(t: Type, widths: Sequence[int]) -> str:
    """Elements through buffers, workgroup and private arrays, tables, variables, params and uniform loads, types of several widths beside each
    other; six invocations in workgroups of four."""
    size, group = 6, 4
    local, body, given, wanted = [], ["let i = global_id.x", "let l = local_index"], [], []
    after: list[str] = []
    for k in widths:
        v = vector_of(t, k)
        elements, nothing = _elements(t, k, size + 4), _zero(t, k)
        x, param, table = elements[:size], elements[size], elements[size + 1 :]
        local += [f"workgroup w{k}: {v}[{group}]", f"private q{k}: {v}[2]", f"table t{k}: {v}[3] = {_table(t, table)}"]
        body += [f"w{k}[l] = x{k}[i]", f"q{k}[i % 2] = x{k}[i]", f"var v{k}: {v} = p{k}"]
        after += [f"if i > 1 {{ v{k} = w{k}[3 - l] }}", f"let u{k} = uniform_load(w{k}[1])"]
        after += [f"y{k}[i, {column}] = {text}" for column, text in enumerate((f"x{k}[i]", f"v{k}", f"q{k}[1]", f"t{k}[i]", f"p{k}", f"u{k}"))]
        padded = [*x, nothing, nothing]
        shared = [padded[i // group * group + 3 - i % group] for i in range(size)]
        found = [
            [x[i], shared[i] if i > 1 else param, x[i] if i % 2 else nothing, table[i] if i < 3 else nothing, param, padded[i // group * group + 1]]
            for i in range(size)
        ]
        given += [Column(f"p{k}", v, "", "param", param), Column(f"x{k}", v, "n", "read", x)]
        wanted.append(Column(f"y{k}", v, "n, 6", "write", found))
    return case(f"of_{t}(n) workgroup({group}) over(n)", [*body, "barrier", *after], given, wanted, _need(t), local)


def _memory_file() -> str:
    return file_text("Vectors of every type in every memory, in variables, and as params.", [_in_memories(t, (2, 3, 4)) for t in SCALARS.values()])


def _scalar_memory_file() -> str:
    programs = [text for t in SCALARS.values() for text in (_in_memories(t, (1,)), _out_of_bounds(t, 1))]
    return file_text("Scalars of every type in every memory, in variables, and as params; and past the ends of every memory.", programs)


_PLACES: Final = (0, 3, -1, 2, 2147483647, -2147483648, 4, -3)


def _out_of_bounds(t: Type, lanes: int) -> str:
    """Whole elements are inside or outside: nothing of a vector is read or written past an end."""
    v, size = vector_of(t, lanes), 3
    rows = _elements(t, lanes, 2 * size + 2)
    x, table, (param, other) = rows[:size], rows[size : 2 * size], rows[2 * size :]
    nothing = _zero(t, lanes)
    local = [f"workgroup w: {v}[{size}]", f"private q: {v}[{size}]", f"table t: {v}[{size}] = {_table(t, table)}"]
    body = [
        "let i = global_id.x", "let k = at[i]", "if i < m {", "  y[k] = p", "  w[k] = p", "  q[k] = p", "}", "barrier",
        "found[i, 0] = x[k]", "found[i, 1] = t[k]", "found[i, 2] = w[k]", "found[i, 3] = q[k]",
    ]  # fmt: skip
    found = [[x[k], table[k], param, param] if 0 <= k < size else [nothing] * 4 for k in _PLACES]
    given = [
        Column("p", v, "", "param", param), Column("at", SCALARS["i32"], "m", "read", list(_PLACES)), Column("x", v, "n", "read", x),
        Column("y", v, "n", "read_write", [other] * size),
    ]  # fmt: skip
    wanted = [Column("y", v, "n", "read_write", [param if k in _PLACES else other for k in range(size)]), Column("found", v, "m, 4", "write", found)]
    return case(f"ends_of_{v}(n, m) workgroup(64) over(m)", body, given, wanted, _need(t), local)


def _two_axes(t: Type, lanes: int) -> str:
    """Each index has its own axis: past the end of a row is not the next row."""
    v, places = vector_of(t, lanes), [(0, 0), (1, 2), (0, 3), (2, 0), (-1, 1), (1, -1)]
    x = _vectors(t, lanes, 6)
    inside = [0 <= r < 2 and 0 <= c < 3 for r, c in places]
    body = ["let i = global_id.x", "let r = rows[i]", "let c = columns[i]", "found[i] = x[r, c]", "if i < m { y[r, c] = x[r, c] }"]
    given = [
        Column("rows", SCALARS["i32"], "m", "read", [r for r, _ in places]), Column("columns", SCALARS["i32"], "m", "read", [c for _, c in places]),
        Column("x", v, "n, 3", "read", [x[:3], x[3:]]), Column("y", v, "n, 3", "read_write", [[_zero(t, lanes)] * 3] * 2),
    ]  # fmt: skip
    right = [x[3 * r + c] if ok else _zero(t, lanes) for (r, c), ok in zip(places, inside, strict=True)]
    copied = [[x[3 * r + c] if (r, c) in places else _zero(t, lanes) for c in range(3)] for r in range(2)]
    wanted = [Column("found", v, "m", "write", right), Column("y", v, "n, 3", "read_write", copied)]
    return case(f"two_axes_of_{v}(n, m) workgroup(64) over(m)", body, given, wanted, _need(t))


def _bounds_file() -> str:
    programs = [_out_of_bounds(t, 2 + k % 3) for k, t in enumerate(SCALARS.values())]
    return file_text("Loads and stores of vectors past the ends of every memory.", [*programs, *[_two_axes(t, 3) for t in (i8, f16, f32, i64)]])


# ---------------------------------------------------------------- components

_MADE: Final = {
    1: ("x2.y", "x3.z", "x4.w", "x4.x"),
    2: ("x2.yx", "x3.zx", "x4.wy", "x4.zz", "x3.y.xx", "vec2(x2.x, x4.y)"),
    3: ("x2.xyx", "x3.zyx", "x4.wxz", "x2.y.xxx", "vec3(x3.x, x2.x, x4.z)", "vec3(x2.y, x3.z, x3.y)"),
    4: ("x2.yyxx", "x3.zzyx", "x4.wzyx", "x4.w.xxxx", "vec4(x4.x, x3.y, x2.x, x4.w)", "vec4(x4.z, x4.w, x2.y, x3.x)"),
}


def _component(x: Mapping[str, Vector], text: str) -> Vector:
    """What an expression of _MADE picks."""
    inner = text.partition("(")[2].rstrip(")") or text
    picked: Vector = ()
    for part in inner.split(", "):
        name, *patterns = part.split(".")
        found = x[name]
        for pattern in patterns:
            found = tuple(found["xyzw".index(c)] for c in pattern)
        picked += found
    return picked


def _components(t: Type) -> str:
    count, flat = 3, iter(_distinct(t, 27))
    x = {k: [tuple(islice(flat, k)) for _ in range(count)] for k in (2, 3, 4)}
    given = [Column(f"x{k}s", vector_of(t, k), "n", "read", rows) for k, rows in x.items()]
    body = ["let i = global_id.x", *[f"let x{k} = x{k}s[i]" for k in x]]
    wanted = []
    for lanes, texts in _MADE.items():
        body += [f"y{lanes}[i, {column}] = {text}" for column, text in enumerate(texts)]
        rows = [[_component({f"x{k}": x[k][i] for k in x}, text) for text in texts] for i in range(count)]
        right = [[part[0] for part in row] for row in rows] if lanes == 1 else rows
        wanted.append(Column(f"y{lanes}", vector_of(t, lanes), f"n, {len(texts)}", "write", right))
    return case(f"of_{t}(n) workgroup(64) over(n)", body, given, wanted, _need(t))


def _components_file() -> str:
    return file_text("Components picked, repeated and put together, of vectors of every type.", [_components(t) for t in SCALARS.values()])


# ---------------------------------------------------------------- lanewise ops


def _lanewise(scalar: Callable[..., Number], *operands: Any) -> Vector:
    """An op component by component; an operand that is a scalar serves all."""
    lanes = max(len(x) for x in operands if isinstance(x, tuple))
    return tuple(scalar(*[x[k] if isinstance(x, tuple) else x for x in operands]) for k in range(lanes))


def _over(t: Type, lanes: int, name: str, *operands: str) -> Result:
    return vector_of(result_of(t, name), lanes), call(name, *operands), partial(_lanewise, oracle(t, name))


def _chosen(t: Type, name: str) -> tuple[Callable[..., Vector], Callable[..., Vector]]:
    """A choice for each component, and one for all that the first components make."""
    compare = oracle(t, name)

    def each(a: Vector, b: Vector) -> Vector:
        return tuple(x if compare(x, y) else y for x, y in zip(a, b, strict=True))

    return each, lambda a, b: a if compare(a[0], b[0]) else b


# How many components, two ops of two operands, one of one, and a comparison.
_SETS: Final = {2: ("add", "min", "neg", "lt"), 3: ("mul", "max", "abs", "ne"), 4: ("div", "sub", "sign", "ge")}


def _numbers(t: Type, lanes: int) -> dict[str, tuple[Type, list[Vector]]]:
    """Columns a and b, of which some components are equal."""
    numbers = everyday(t) if t.is_float else edges(t)
    a, b = ([tuple(numbers[(first + 5 * k + 7 * j) % len(numbers)] for j in range(lanes)) for k in range(5)] for first in (0, 4))
    mixed = [tuple(x if (k + j) % 4 == 2 else y for j, (x, y) in enumerate(zip(p, q, strict=True))) for k, (p, q) in enumerate(zip(a, b, strict=True))]
    return {"a": (vector_of(t, lanes), a), "b": (vector_of(t, lanes), mixed)}


def _ops(t: Type, lanes: int) -> str:
    two, other, one, compare = _SETS[lanes]
    each, whole = _chosen(t, compare)
    v = vector_of(t, lanes)
    outputs: dict[str, Result] = {
        two: _over(t, lanes, two, "a", "b"), other: _over(t, lanes, other, "a", "b"),
        one: _over(t, lanes, one, "a"),
        compare: _over(t, lanes, compare, "a", "b"), "each": (v, f"select({call(compare, 'a', 'b')}, a, b)", each),
        "whole": (v, f"select({call(compare, 'a.x', 'b.x')}, a, b)", whole),
    }
    remarks = [_NEAR, *_need(t)] if t.is_float else []
    return columns(f"over_{v}", _numbers(t, lanes), outputs, remarks)


# Ops that integers alone, and floats alone, have: some of them for each type in turn, so that vectors meet all.
_INTEGER_PAIRS: Final = ("and", "or", "xor", "shl", "shr", "rotl", "rotr", "mul_hi", "abs_diff", "rem", "saturating_add", "saturating_sub", "saturating_mul")
_INTEGER_SINGLES: Final = ("not", "popcount", "clz", "ctz", "reverse_bits")
_FLOAT_SINGLES: Final = ("floor", "ceil", "trunc", "round", "fract", "sqrt", "rsqrt", "is_nan", "is_inf", "is_finite")
_COMPARISONS: Final = ("eq", "gt", "le", "eq")


def _turn(names: Sequence[str], count: int, turn: int) -> list[str]:
    return [names[(turn * count + k) % len(names)] for k in range(count)]


def _bit_ops(turn: int, t: Type) -> str:
    """A bit field's offset as one number for all components, and its length as one for each."""
    v, counts = vector_of(t, 3), vector_of(u32, 3)
    fields = [(1, 3, t.bits), (t.bits + 1, 5, 0), (2, 7, 4), (t.bits - 1, 1, 6), (0, 2, 8)]
    outputs: dict[str, Result] = {name: _over(t, 3, name, "a", "b") for name in _turn(_INTEGER_PAIRS, 2, turn)}
    outputs |= {name: _over(t, 3, name, "a") for name in _turn(_INTEGER_SINGLES, 1, turn)}
    if turn % 2:
        outputs["extract_bits"] = v, "extract_bits(a, 2, c)", lambda a, c: _lanewise(oracle(t, "extract_bits"), a, 2, c)
    else:
        outputs["insert_bits"] = v, "insert_bits(a, b, 2, c)", lambda a, b, c: _lanewise(oracle(t, "insert_bits"), a, b, 2, c)
    return columns(f"bits_of_{v}", _numbers(t, 3) | {"c": (counts, fields)}, outputs)


def _float_ops(turn: int, t: Type) -> str:
    v = vector_of(t, 4)
    compare = _COMPARISONS[turn]
    ends = [f"({text}{t}).xxxx" for text in ("-1.0", "2.0")]
    outputs: dict[str, Result] = {
        "fma": (v, "fma(a, b, b)", lambda a, b: _lanewise(oracle(t, "fma"), a, b, b)), compare: _over(t, 4, compare, "a", "b"),
        "clamp": (v, f"clamp(a, {', '.join(ends)})", lambda a: _lanewise(oracle(t, "clamp"), a, number(t, "-1"), number(t, "2"))),
        **{name: _over(t, 4, name, "a") for name in _turn(_FLOAT_SINGLES, 3, turn)},
    }  # fmt: skip
    return columns(f"floats_of_{v}", _numbers(t, 4), outputs, [_NEAR, *_need(t)])


def _bool_ops(lanes: int) -> str:
    """All bools with all."""
    v = vector_of(bool_, lanes)
    rows = list(product((False, True), repeat=lanes))
    pairs = [(a, b) for a in rows for b in (rows[5 % len(rows)], rows[-2])]
    outputs: dict[str, Result] = {
        "logical_and": (v, "a && b", partial(_lanewise, lambda x, y: x and y)), "logical_or": (v, "a || b", partial(_lanewise, lambda x, y: x or y)),
        "ne": (v, "a != b", partial(_lanewise, lambda x, y: x != y)), "logical_not": (v, "!a", partial(_lanewise, lambda x: not x)),
        "select": (v, "select(a, b, !b)", partial(_lanewise, lambda x, y: y if x else not y)), "all": (bool_, "all(a)", all), "any": (bool_, "any(a)", any),
    }  # fmt: skip
    inputs = {name: (v, list(column)) for name, column in zip("ab", zip(*pairs, strict=True), strict=True)}
    logic = ("logical_and", "logical_or", "ne", "logical_not")
    parts = [columns(f"logic_over_{v}", inputs, {name: outputs[name] for name in logic})]
    return "\n".join([*parts, columns(f"choices_over_{v}", inputs, {name: made for name, made in outputs.items() if name not in logic})])


_NUMERIC: Final = tuple(t for t in SCALARS.values() if t is not bool_ and not t.is_storage)


def _ops_file() -> str:
    programs = [_ops(t, lanes) for t in _NUMERIC for lanes in (2, 3, 4)]
    programs += [_bit_ops(turn, t) for turn, t in enumerate([t for t in _NUMERIC if t.is_integer])]
    programs += [_float_ops(turn, t) for turn, t in enumerate(COMPUTED)] + [_bool_ops(lanes) for lanes in (2, 3, 4)]
    return file_text("Lanewise ops, comparisons and choices over vectors of every type, and all and any.", programs)


# ---------------------------------------------------------------- ops across components


def _product(t: Type, x: Vector, y: Vector) -> Vector:
    return _lanewise(oracle(t, "mul"), x, y)


def _products(t: Type) -> str:
    """dot, length and cross of two, three and four components."""
    outputs: dict[str, Result] = {
        f"dot{k}": (t, f"dot(a.{'xyzw'[:k]}, b.{'xyzw'[:k]})", lambda x, y, k=k: dot(t, x[:k], y[:k])) for k in (2, 3, 4)
    }
    outputs["cross"] = vector_of(t, 3), "cross(a.xyz, b.wzx)", lambda x, y: cross(t, x[:3], (y[3], y[2], y[0]))
    if t.is_float:
        outputs["length2"] = t, "length(a.zw)", lambda x: length(t, x[2:])
        outputs["length4"] = t, "length(a)", lambda x: length(t, x)
        outputs["distance2"] = t, "distance(a.xw, b.xw)", lambda x, y: distance(t, (x[0], x[3]), (y[0], y[3]))
        outputs["distance4"] = t, "distance(a, b)", lambda x, y: distance(t, x, y)
        outputs["normalize3"] = vector_of(t, 3), "normalize(b.wxy)", lambda y: normalize(t, (y[3], y[0], y[1]))
        outputs["reflect2"] = vector_of(t, 2), "reflect(a.yx, b.zw)", lambda x, y: reflect(t, (x[1], x[0]), y[2:])
        outputs["reflect4"] = vector_of(t, 4), "reflect(a, b)", lambda x, y: reflect(t, x, y)
    remarks = [_NEAR if t.bits > 16 else _NEAR_NARROW, *_need(t)] if t.is_float else []
    return columns(f"over_{t}", _numbers(t, 4), outputs, remarks)


def _refractions(t: Type) -> str:
    """Apart from the others: under the root two numbers cancel, and a device that rounds a step otherwise is far off after it."""
    outputs: dict[str, Result] = {
        "refract2": (vector_of(t, 2), "refract(a.xy, b.yw, 0.5)", lambda x, y: refract(t, x[:2], (y[1], y[3]), number(t, "0.5"))),
        "refract4": (vector_of(t, 4), "refract(a * a.wwww, b, a.w)", lambda x, y: refract(t, _product(t, x, x[3:] * 4), y, x[3])),
    }
    return columns(f"refractions_of_{t}", _numbers(t, 4), outputs, ["// tolerance on wgpu: ulp 256" if t.bits > 16 else _NEAR_NARROW, *_need(t)])


def _products_file() -> str:
    return file_text("Products of vectors and their lengths: each step rounded, from left to right.", [*map(_products, _NUMERIC), *map(_refractions, COMPUTED)])


def _casts(source: Type, lanes: int, targets: Sequence[Type]) -> str:
    v = vector_of(source, lanes)
    outputs: dict[str, Result] = {
        f"as_{t}": (vector_of(t, lanes), f"cast(x, {vector_of(t, lanes)})", partial(_lanewise, partial(cast_oracle, source, t))) for t in targets
    }
    rows = list(product((False, True), repeat=lanes)) if source is bool_ else _numbers(source, lanes)["a"][1]
    remarks = [*(["// tolerance on wgpu: ulp 1"] if any(t.is_float for t in targets) else []), *_need(f64 if f64 in (source, *targets) else source)]
    return columns(f"from_{v}", {"x": (v, rows)}, outputs, remarks)


def _casts_file() -> str:
    """Each type to seven others, in turn; the scalar casts are all there."""
    types = list(SCALARS.values())
    programs = []
    for k, source in enumerate(types):
        others = [t for t in [*types[k:], *types[:k]] if t is not source][::2]
        programs.append(_casts(source, 2 + k % 3, others))
    return file_text("Casts of vectors, component by component.", programs)


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "scalars_memory": _scalar_memory_file,
    "vectors_memory": _memory_file,
    "vectors_bounds": _bounds_file,
    "vectors_components": _components_file,
    "vectors_ops": _ops_file,
    "vectors_products": _products_file,
    "vectors_casts": _casts_file,
}
