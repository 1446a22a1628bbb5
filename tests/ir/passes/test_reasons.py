"""What is said to prove that an index lies inside is what the proof cannot do without."""

from __future__ import annotations

import pytest
from generator import Seeded, generate

from vyre_py.ir.check import check
from vyre_py.ir.language.nodes import MemoryStatement
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import annotate, optimise, proofs
from vyre_py.ir.passes.bounds.prove import bounds
from vyre_py.ir.passes.bounds.reasons import reasons

HEAD = "program p(n, m) workgroup(64) over(n) {\n  buffer x: u32[n] read\n  buffer b: u32[n] read\n  buffer y: u32[n, m] write\n  let i = global_id.x\n"


def proven_at(body: str, line: int) -> list[set[int]]:
    """For each axis of the last access at a line of the body, the lines of what proves it; an axis that is checked has no set."""
    program = Program.from_text(HEAD + body + "\n}", "p.vir")
    found = reasons(program)
    lines = [place.line - 5 if (place := program.place(index)) is not None else 0 for index in range(len(program.body))]
    at = [index for index, s in enumerate(program.body) if isinstance(s, MemoryStatement) and lines[index] == line][-1]
    return [{lines[guard] for guard in found[at, axis]} for axis in range(program.body[at].memory.rank) if (at, axis) in found]


@pytest.mark.parametrize(("body", "line", "wanted"), [
    ("if i < n {\n y[i, 0u32] = 1u32\n}", 2, [{1}]),
    ("if i >= n {\n return\n}\nfor k in 0u32..m {\n y[i, k] = 1u32\n}", 5, [{1}, {4}]),
    ("if i >= n {\n y[i, 0u32] = 1u32\n} else {\n y[i, 0u32] = 1u32\n}", 4, [{1}]),
    ("if m > 4u32 {\n y[i % n, i & 3u32] = 1u32\n}", 2, [{1}]),  # x % 0 is not inside
    ("if n > 0u32 {\n y[i % n, i & 3u32] = 1u32\n}", 2, [{1}]),
    ("let k = x[0u32]\nif k < m {\n if i < n {\n  y[i, k] = 1u32\n }\n}", 4, [{3}, {2}]),
    ("if i < n {\n if i < n {\n  y[i, 0u32] = 1u32\n }\n}", 3, [{2}]),  # of two that say the same the last
    ("if b[i] == 1u32 {\n y[i, 0u32] = 1u32\n}", 2, []),
])  # fmt: skip
def test_what_proves_an_index_is_named(body: str, line: int, wanted: list[set[int]]) -> None:
    assert proven_at(body, line) == wanted


def test_all_that_is_proven_has_a_reason_and_nothing_else() -> None:
    with_reasons = 0
    for seed in range(30):
        made = optimise(check(generate(Seeded(seed)).program), expand=frozenset())
        proven = bounds(made.program)
        found = reasons(made.program)
        wanted = {(index, axis) for index, bits in enumerate(proven) for axis in range(4) if bits >> axis & 1}
        assert found.keys() == wanted
        with_reasons += any(found.values())
        assert set(proofs(made, str)) == wanted
    assert with_reasons > 5


def test_a_remark_names_the_place_and_a_made_guard_as_made() -> None:
    text = "program p(n) over(n) {\n  buffer x: f32[n] read\n  buffer \"a\\nb\": f32[n] write\n  let i = global_id.x\n  \"a\\nb\"[i] = x[i]\n}"
    made = optimise(check(Program.from_text(text, "p.vir")), expand=frozenset())
    remark = annotate(made, lambda place: f"line {place.line}")
    assert [told for index in range(len(made.program.body)) if (told := remark(index))] == [
        "x: proven by the guard made for line 5", '"a\\nb": proven by the guard made for line 5',
    ]  # fmt: skip
    with_two = check(Program.from_text("program p(n) over(n) {\n  buffer y: f32[n, 4] write\n  y[global_id.x, 3u32] = 1.0f32\n}", "p.vir"))
    remark = annotate(optimise(with_two, expand=frozenset()), str)
    assert remark(1) == "y: checked axis 0, the rest proven by the index's range"


def test_a_long_program_has_no_reasons() -> None:
    lines = "".join(f"if i < n {{\n y[i, {k}u32] = {k}u32\n}}\n" for k in range(300))
    program = Program.from_text(HEAD + lines + "}", "p.vir")
    assert reasons(program) == {} and any(bounds(program))
