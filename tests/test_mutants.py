"""The measure by mutants: what is drawn, and how the tests for one are chosen; `python tests/mutants` is the measure itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants.coverage import Covered, read, write
from mutants.mutation import candidates, draw, scope_files
from mutants.trial import covering

SOURCE = '''"""Text."""

SIZE = 3


def f(a, b):
    assert a < b
    if a < b and not b:
        g(a, b)
        a += 1
    c = [x * 2 for x in b if x]
    c[0] = f"{a + 1}"
    return c
'''


def made() -> dict[str, str]:
    """The lines that differ, by mutant."""
    found = {}
    for mutant in candidates("m.py", SOURCE.encode()):
        after = mutant.apply(SOURCE.encode()).decode()
        ast.parse(after)
        before_lines, after_lines = SOURCE.splitlines(), after.splitlines()
        assert len(before_lines) == len(after_lines)
        (line,) = [k for k, (a, b) in enumerate(zip(before_lines, after_lines, strict=True), 1) if a != b]
        assert line in mutant.lines and line == mutant.line
        found[mutant.key] = after_lines[line - 1].strip()
    return found


@pytest.mark.parametrize("line", [
    "if a <= b and not b:", "if a > b and not b:", "if a < b or not b:", "if a < b and b:", "if (not (a < b and not b)):",
    "g(b, a)", "pass", "a -= 1", "a += 2", "a += 0", "c = [x + 2 for x in b if x]", "c = [x * 3 for x in b if x]", "c = [x * 2 for x in b if (not (x))]",
    "SIZE = 4", "SIZE = 2",
])  # fmt: skip
def test_each_kind_of_change_is_made(line: str) -> None:
    assert line in made().values()


def test_what_cannot_matter_is_left_alone() -> None:
    keys = [key.split(" => ")[0] for key in made()]
    assert not any("assert" in key or "Text" in key or "return c" in key for key in keys)
    assert sum('f"' in key for key in keys) == 2  # the statement and its index, and nothing inside the string


def test_a_draw_hangs_on_the_seed_and_on_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    first = draw(1, 8, ["m.py"], tmp_path)
    assert len({m.key for m in first}) == 8 and [m.key for m in draw(2, 8, ["m.py"], tmp_path)] != [m.key for m in first]
    (tmp_path / "m.py").write_text("# a line more\n" + SOURCE)
    assert [m.key for m in draw(1, 8, ["m.py"], tmp_path)] == [m.key for m in first]


def test_all_of_what_is_measured_is_drawn_from() -> None:
    files = scope_files()
    assert {"ir/passes/cse.py", "ir/check/uniformity.py", "lowering/llvm/gpu/simt/elements.py", "drivers/binding.py"} <= set(files)
    drawn = draw(20261122, 600, files)
    assert {m.kind for m in drawn} == {"comparison", "operator", "constant", "swapped", "negated", "dropped"}
    assert len({m.path for m in drawn}) > len(files) // 2


def test_tests_of_a_mutant_are_those_that_come_along_it_one_of_each_function_first(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    inside = next(m for m in candidates("m.py", SOURCE.encode()) if m.line == 10)
    at_import = next(m for m in candidates("m.py", SOURCE.encode()) if m.module_level)
    here, there = {"m.py": 1 << 10}, {"m.py": 1 << 12}
    tests = [Covered("t::a[1]", 1.0, here), Covered("t::a[2]", 2.0, here), Covered("t::b", 3.0, here), Covered("t::c", 0.1, there), Covered("t::d", 0.1, {})]
    write(tmp_path / "map.gz", tests)
    assert read(tmp_path / "map.gz") == tests
    assert [t.test for t in covering(inside, tests)] == ["t::a[1]", "t::b", "t::a[2]"]
    assert [t.test for t in covering(at_import, tests)] == ["t::c", "t::a[1]", "t::b", "t::a[2]"]
