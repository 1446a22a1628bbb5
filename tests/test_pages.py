"""The generated pages are fresh, and tell of every row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import COMMAND, PAGES, errors_page, example_of, ops_page

from vyre_py.ir.check import check
from vyre_py.ir.errors import ProgramError
from vyre_py.ir.ops import ATOMICS, OPS
from vyre_py.ir.parser import parse
from vyre_py.ir.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
CUT = {"P107", "P108", "V503"}  # whose Programs have lines too long for the page


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_fresh(name: str) -> None:
    path = ROOT / name
    committed = path.read_text(encoding="utf-8") if path.is_file() else ""
    assert committed == PAGES[name](), f"{name} is not what the tables say now: {COMMAND} rewrites it"


def test_every_op_has_one_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", ops_page(), flags=re.MULTILINE)
    assert rows == [*OPS, *(f"atomic_{name}" for name in ATOMICS)]


def test_the_tables_are_whole() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", ops_page(), flags=re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_every_rule_has_one_section() -> None:
    assert re.findall(r"^### (\w+): (.*)$", errors_page(), flags=re.MULTILINE) == [(code, rule.title) for code, rule in RULES.items()]


@pytest.mark.parametrize("code", [code for code in RULES if example_of(code) and code not in CUT])
def test_the_program_shown_gives_the_finding(code: str) -> None:
    text = example_of(code)
    assert text is not None
    with pytest.raises(ProgramError) as caught:
        check(parse(text))
    assert code in caught.value.codes
