"""The generated pages are fresh, and tell of every row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import COMMAND, PAGES, errors_page, example_of, ops_page
from tree import ROOT

from vyre_py.ir.check.facts import CAPABILITIES
from vyre_py.ir.language import describe
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_fresh(name: str) -> None:
    path = ROOT / name
    committed = path.read_text(encoding="utf-8") if path.is_file() else ""
    assert committed == PAGES[name](), f"{name} is not what the tables say now: {COMMAND} rewrites it"


def test_every_op_has_one_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", ops_page(), flags=re.MULTILINE)
    together = map(describe.spelling, (*SUBGROUPS.values(), *TILE_OPS.values()))
    assert [row for row in rows if row not in CAPABILITIES] == [*OPS, *(f"atomic_{name}" for name in ATOMICS), *together]
    assert set(rows) >= CAPABILITIES


def test_the_tables_are_whole() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", ops_page(), flags=re.MULTILINE)
    assert len(tables) == 7
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_every_rule_has_one_section() -> None:
    assert re.findall(r"^### (\w+): (.*)$", errors_page(), flags=re.MULTILINE) == [(code, rule.title) for code, rule in RULES.items()]


@pytest.mark.parametrize("code", RULES)
def test_what_is_shown_of_a_rule_breaks_it_and_is_mended(code: str) -> None:
    example = example_of(code)
    assert example.finding().startswith(f"{code} ")
    example.run(example.good)


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_words_stay_in_a_picture(picture: Path) -> None:
    """By six units a letter, as wide as most letters of 12 are."""
    text = picture.read_text("utf-8")
    width = float(re.findall(r'viewBox="0 0 (\S+) ', text)[0])
    shown = re.findall(r'<text x="(\S+)" y="\S+" text-anchor="(\w+)" fill="\S+">([^<]*)<', text)
    assert shown
    for x, anchor, words in shown:
        left = float(x) - {"start": 0, "middle": 3, "end": 6}[anchor] * len(words)
        assert left >= 0 and left + 6 * len(words) <= width, words
