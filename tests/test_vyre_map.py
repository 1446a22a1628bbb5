"""`ir/VYRE.md`: every op of vyre has one row, and what a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vyre_py.ir.ops import ATOMICS, OPS

PAGE = (Path(__file__).parent.parent / "ir" / "VYRE.md").read_text(encoding="utf-8")

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
            assert name in OPS or name.removeprefix("atomic_") in ATOMICS, names
