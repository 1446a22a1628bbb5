"""`ir/VYRE.md`: every op of vyre has one row, what a row names exists, and means what the op does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tree import ROOT

from vyre_py import device
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS
from vyre_py.ir.language.types import TYPES
from vyre_py.ir.text.parser import parse

PAGE = (ROOT / "ir" / "VYRE.md").read_text(encoding="utf-8")

BINARY = (
    "Add", "Sub", "Mul", "Div", "Mod", "WrappingAdd", "WrappingSub", "BitAnd", "BitOr", "BitXor", "Shl", "Shr", "Eq",
    "Ne", "Lt", "Gt", "Le", "Ge", "And", "Or", "AbsDiff", "Min", "Max", "SaturatingAdd", "SaturatingSub",
    "SaturatingMul", "Shuffle", "Ballot", "WaveReduce", "WaveBroadcast", "RotateLeft", "RotateRight", "MulHigh",
)  # fmt: skip
UNARY = (
    "Negate", "BitNot", "LogicalNot", "Popcount", "Clz", "Ctz", "ReverseBits", "Cos", "Sin", "Abs", "Sqrt", "Floor",
    "Ceil", "Round", "Trunc", "Sign", "IsNan", "IsInf", "IsFinite", "Exp", "Log", "Log2", "Exp2", "Tan", "Acos",
    "Asin", "Atan", "Tanh", "Sinh", "Cosh", "InverseSqrt", "Unpack4Low", "Unpack4High", "Unpack8Low", "Unpack8High",
    "Reciprocal",
)  # fmt: skip


def rows(section: str) -> list[tuple[list[str], str, str]]:
    """The rows of a section's table: vyre's names, what it becomes, the remark."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [(names.replace(" and ", ", ").split(", "), ours, remark) for names, ours, remark in cells[2:]]


@pytest.mark.parametrize(("section", "names"), [("Binary operations", BINARY), ("Unary operations", UNARY)])
def test_every_op_has_one_row(section: str, names: tuple[str, ...]) -> None:
    assert len(names) == {"Binary operations": 33, "Unary operations": 36}[section]
    found = [name for row, _, _ in rows(section) for name in row]
    assert all(found.count(name) == 1 for name in names)


def test_what_a_row_names_exists() -> None:
    for section in ("Binary operations", "Unary operations", "Atomics"):
        for names, ours, remark in rows(section):
            if ours == "refused":
                assert remark, names
                continue
            (name,) = re.findall(r"`(\w+)`", ours)
            assert name in OPS or name.removeprefix("atomic_") in ATOMICS or name.removeprefix("subgroup_") in SUBGROUPS, names


def test_refused_are_extensions_alone() -> None:
    sections = ("Binary operations", "Unary operations", "Atomics", "Expressions", "Statements", "Types")
    refused = {name for section in sections for names, ours, _ in rows(section) for name in names if ours == "refused"}
    assert refused == {"Opaque"}


# ---------------------------------------------------------------- what rows mean

_WORD = 1 << 32


def _rotated(a: int, count: int) -> int:
    a, count = a % _WORD, count % 32
    return a << count | a >> (32 - count)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _nearest(low: int, high: int) -> Callable[[int], int]:
    return lambda exact: min(max(exact, low), high)


_ENDS = {"i32": _nearest(-(1 << 31), (1 << 31) - 1), "u32": _nearest(0, _WORD - 1)}

# Op -> what vyre gives for two integers, before it is wrapped to the result's type; "T" is the operands' type.
OF_INTEGERS: dict[str, tuple[str, Callable[[int, int, str], int]]] = {
    "Add": ("T", lambda a, b, t: a + b), "WrappingAdd": ("T", lambda a, b, t: a + b),
    "Sub": ("T", lambda a, b, t: a - b), "WrappingSub": ("T", lambda a, b, t: a - b),
    "Mul": ("T", lambda a, b, t: a * b), "Div": ("T", lambda a, b, t: _quotient(a, b)),
    "Mod": ("T", lambda a, b, t: a - _quotient(a, b) * b if b else 0),
    "BitAnd": ("T", lambda a, b, t: a & b), "BitOr": ("T", lambda a, b, t: a | b), "BitXor": ("T", lambda a, b, t: a ^ b),
    "Shl": ("T", lambda a, b, t: a << b % 32), "Shr": ("T", lambda a, b, t: a >> b % 32),
    "Eq": ("bool", lambda a, b, t: a == b), "Ne": ("bool", lambda a, b, t: a != b), "Lt": ("bool", lambda a, b, t: a < b),
    "Gt": ("bool", lambda a, b, t: a > b), "Le": ("bool", lambda a, b, t: a <= b), "Ge": ("bool", lambda a, b, t: a >= b),
    "AbsDiff": ("u32", lambda a, b, t: abs(a - b)), "Min": ("T", lambda a, b, t: min(a, b)), "Max": ("T", lambda a, b, t: max(a, b)),
    "SaturatingAdd": ("T", lambda a, b, t: _ENDS[t](a + b)), "SaturatingSub": ("T", lambda a, b, t: _ENDS[t](a - b)),
    "SaturatingMul": ("T", lambda a, b, t: _ENDS[t](a * b)),
    "RotateLeft": ("T", lambda a, b, t: _rotated(a, b)), "RotateRight": ("T", lambda a, b, t: _rotated(a, -b)),
    "MulHigh": ("T", lambda a, b, t: a * b >> 32),
    "Negate": ("T", lambda a, b, t: -a), "BitNot": ("T", lambda a, b, t: ~a), "Abs": ("T", lambda a, b, t: abs(a)),
    "Popcount": ("T", lambda a, b, t: (a % _WORD).bit_count()), "Clz": ("T", lambda a, b, t: 32 - (a % _WORD).bit_length()),
    "Ctz": ("T", lambda a, b, t: ((a | _WORD) & -(a | _WORD)).bit_length() - 1),
    "ReverseBits": ("T", lambda a, b, t: int(f"{a % _WORD:032b}"[::-1], 2)),
    "Unpack4Low": ("T", lambda a, b, t: a % _WORD & 15), "Unpack4High": ("T", lambda a, b, t: a % _WORD >> 4 & 15),
    "Unpack8Low": ("T", lambda a, b, t: a % _WORD & 255), "Unpack8High": ("T", lambda a, b, t: a % _WORD >> 24 & 255),
}  # fmt: skip

# Op -> what vyre gives for f32 numbers, in f64 where f32 rounds it once more.
OF_FLOATS: dict[str, tuple[str, Callable[..., Any]]] = {
    "Add": ("f32", np.add), "Sub": ("f32", np.subtract), "Mul": ("f32", np.multiply), "Div": ("f32", np.divide), "Mod": ("f32", np.fmod),
    "Min": ("f32", np.fmin), "Max": ("f32", np.fmax), "Eq": ("bool", np.equal), "Ne": ("bool", np.not_equal), "Lt": ("bool", np.less),
    "Gt": ("bool", np.greater), "Le": ("bool", np.less_equal), "Ge": ("bool", np.greater_equal),
    "Negate": ("f32", np.negative), "Abs": ("f32", np.abs), "Sqrt": ("f32", np.sqrt), "Floor": ("f32", np.floor), "Ceil": ("f32", np.ceil),
    "Trunc": ("f32", np.trunc), "Round": ("f32", np.rint), "Sign": ("f32", np.sign), "IsNan": ("bool", np.isnan), "IsInf": ("bool", np.isinf),
    "IsFinite": ("bool", np.isfinite), "Reciprocal": ("f32", lambda x: 1 / x), "InverseSqrt": ("f32", lambda x: 1 / np.sqrt(x)),
    "Exp": ("f32", np.exp), "Exp2": ("f32", np.exp2), "Log": ("f32", np.log), "Log2": ("f32", np.log2), "Sin": ("f32", np.sin),
    "Cos": ("f32", np.cos), "Tan": ("f32", np.tan), "Asin": ("f32", np.arcsin), "Acos": ("f32", np.arccos), "Atan": ("f32", np.arctan),
    "Sinh": ("f32", np.sinh), "Cosh": ("f32", np.cosh), "Tanh": ("f32", np.tanh),
}  # fmt: skip
_EXACT = frozenset({"Negate", "Abs", "Floor", "Ceil", "Trunc", "Round", "Sign", "Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Sqrt", "Reciprocal"})

OF_BOOLS: dict[str, Callable[..., Any]] = {"And": np.logical_and, "Or": np.logical_or, "LogicalNot": np.logical_not}

OF_ATOMICS: dict[str, Callable[[int, int], int]] = {
    "Add": lambda old, v: old + v, "Or": lambda old, v: old | v, "And": lambda old, v: old & v, "Xor": lambda old, v: old ^ v,
    "Min": min, "Max": max, "Exchange": lambda old, v: v, "FetchNand": lambda old, v: ~(old & v),
    "LruUpdate": max,
}  # fmt: skip

# The rows whose meaning has another test; those of subgroups in `test_vyre_programs.py`.
ELSEWHERE = frozenset({"BitcastF32ToU32", "BitcastU32ToF32", "Shuffle", "Ballot", "WaveReduce", "WaveBroadcast"})


def expression(section: str, name: str) -> str:
    """How a row is written: the remark's expression where it begins with one, else the op over the operands x and y."""
    ours, remark = next((ours, remark) for names, ours, remark in rows(section) if name in names)
    if remark.startswith("`"):
        return re.match(r"`([^`]*)`", remark)[1]
    return f"{ours.strip('`')}({'x, y' if section.startswith('Binary') else 'x'})"


def evaluated(text: str, type_: str, result: str, x: Any, y: Any) -> Any:
    """What the interpreter gives for an expression over two arrays."""
    program = parse(f"""program p(n) workgroup(64) {{
  buffer xs: {type_}[n] read
  buffer ys: {type_}[n] read
  buffer out: {result}[n] write
  let i = global_id.x
  let x = xs[i]
  let y = ys[i]
  out[i] = {text}
}}""")
    return device("reference").compile_native(program).dispatch({"xs": x, "ys": y})["out"]


def section_of(name: str) -> str:
    return "Binary operations" if name in BINARY else "Unary operations"


@pytest.mark.parametrize("type_", ["i32", "u32"])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_a_row_of_integers_means_the_same(name: str, type_: str) -> None:
    low = -(1 << 31) if type_ == "i32" else 0
    some = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 127, 128, 255, 256, 0x12345678, (1 << 31) - 1]
    some += [-1, -2, -8, -128, -0x12345678, low] if type_ == "i32" else [1 << 31, 0xFEDCBA98, _WORD - 1]
    count = name in ("Shl", "Shr", "RotateLeft", "RotateRight")
    pairs = [(a, b) for a in some for b in some if not (name == "Div" and b == 0) and not (count and b < 0)]
    x, y = (np.array(side, np.int64).astype(TYPES[type_].dtype) for side in zip(*pairs, strict=True))
    result, meaning = OF_INTEGERS[name]
    kind = type_ if result == "T" else result
    want = [int(meaning(a, b, type_)) % _WORD for a, b in pairs]
    found = evaluated(expression(section_of(name), name), type_, kind, x, y)
    assert [int(v) % _WORD for v in found] == want


@pytest.mark.parametrize("name", OF_FLOATS)
def test_a_row_of_floats_means_the_same(name: str) -> None:
    numbers = np.array([0.25, 0.5, -0.5, 0.75, 1, -1, 1.5, 2.5, -2.5, 3.75, 10, -20, 1e-3, 7e5, 1e9, -0.999], np.float32)
    if name in ("IsNan", "IsInf", "IsFinite", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"):
        numbers = np.append(numbers, np.array([np.nan, np.inf, -np.inf, 0], np.float32))
    if name in ("Log", "Log2", "Sqrt", "InverseSqrt"):
        numbers = np.abs(numbers)
    if name in ("Asin", "Acos"):
        numbers = numbers[np.abs(numbers) <= 1]
    if name in ("Exp", "Exp2", "Sinh", "Cosh"):
        numbers = numbers[np.abs(numbers) <= 20]
    x, y = (side.ravel() for side in np.meshgrid(numbers, numbers))
    result, meaning = OF_FLOATS[name]
    binary = name in BINARY
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = meaning(*([x.astype(np.float64), y.astype(np.float64)] if binary else [x.astype(np.float64)]))
    found = evaluated(expression(section_of(name), name), "f32", result, x, y)
    if result == "bool" or name in _EXACT:
        np.testing.assert_array_equal(found, wide.astype(found.dtype))
    else:
        within = 2 if name == "InverseSqrt" else 1  # in two roundings
        assert (np.abs(found - wide) <= within * np.spacing(np.abs(wide).astype(np.float32))).all()


@pytest.mark.parametrize("name", OF_BOOLS)
def test_a_row_of_bools_means_the_same(name: str) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    found = evaluated(expression(section_of(name), name), "bool", "bool", x, y)
    np.testing.assert_array_equal(found, OF_BOOLS[name](*([x, y] if name in BINARY else [x])))


@pytest.mark.parametrize("type_", ["i32", "u32"])
@pytest.mark.parametrize("name", OF_ATOMICS)
def test_a_row_of_atomics_means_the_same(name: str, type_: str) -> None:
    ours = next(ours for names, ours, _ in rows("Atomics") if name in names).strip("`")
    program = parse(f"""program p(n) workgroup(64) over(n) {{
  buffer xs: {type_}[n] read_write
  buffer ys: {type_}[n] read
  buffer old: {type_}[n] write
  let i = global_id.x
  old[i] = {ours}(xs[i], ys[i])
}}""")
    some = [0, 1, 5, (1 << 31) - 1, -3 if type_ == "i32" else _WORD - 3]
    pairs = [(a, b) for a in some for b in some]
    x, y = (np.array(side, np.int64).astype(TYPES[type_].dtype) for side in zip(*pairs, strict=True))
    out = device("reference").compile_native(program).dispatch({"xs": x, "ys": y})
    np.testing.assert_array_equal(out["old"], x)
    assert [int(v) % _WORD for v in out["xs"]] == [OF_ATOMICS[name](a, b) % _WORD for a, b in pairs]


def test_a_compare_exchange_gives_the_old_value_and_changes_what_was_expected() -> None:
    for name in ("CompareExchange", "CompareExchangeWeak"):
        ours = next(ours for names, ours, _ in rows("Atomics") if name in names).strip("`")
        program = parse(
            f"program p(n) workgroup(64) over(n) {{\n buffer x: u32[n] read_write\n buffer old: u32[n] write\n let i = global_id.x\n"
            f" old[i] = {ours}(x[i], 5u32, 9u32)\n}}"
        )
        out = device("reference").compile_native(program).dispatch({"x": np.array([5, 4, 9, 5], np.uint32)})
        assert out["old"].tolist() == [5, 4, 9, 5] and out["x"].tolist() == [9, 4, 9, 9]


def test_every_row_that_is_taken_is_computed() -> None:
    taken = [name for section in ("Binary operations", "Unary operations") for names, ours, _ in rows(section) for name in names if ours != "refused"]
    assert set(taken) == {*OF_INTEGERS, *OF_FLOATS, *OF_BOOLS, *ELSEWHERE}
