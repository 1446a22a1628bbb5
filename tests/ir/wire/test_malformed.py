"""50,000 malformed inputs to the decoders of bytes, JSON and text: one of their errors, or a Program that `check` and lowering survive.

`tests/fuzz/malformed.py` says how they are made, and runs more of them. VYRE_SEED draws others, VYRE_MALFORMED more.
"""

from __future__ import annotations

import os

import pytest
from malformed import FORMS, SEEDS, Judge, every, inputs, seeds, simple

from vyre_py.ir.check import check

COUNT = int(os.environ.get("VYRE_MALFORMED") or 50_000)
SEED = int(os.environ.get("VYRE_SEED") or 0)
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("form", FORMS)
def test_malformed_inputs_are_refused(form: str, part: int) -> None:
    judge = Judge(form, patience=10)
    for data in inputs(form, -(-COUNT // len(FORMS)), part, PARTS, SEED):
        judge.run(data)
    # Mutations of every depth: what fails at once, what fails in the tables, and what is a Program after all.
    assert judge.outcomes["valid"] > 0
    assert "no message" not in judge.outcomes
    assert len(judge.outcomes) >= 8, judge.outcomes


def test_the_seeds_are_valid_programs_of_many_kinds() -> None:
    assert len(seeds()) == SEEDS
    for program in seeds():
        check(program)
    kinds = {type(statement) for program in seeds() for statement in program.body}
    assert len(kinds) >= 14
    assert len({statement.op for program in seeds() for statement in program.body if hasattr(statement, "op")}) >= 60


@pytest.mark.parametrize("form", FORMS)
def test_enough_inputs_flip_every_byte_and_cut_at_each(form: str) -> None:
    total = every(form)
    written = [data for k, data in zip(range(total), inputs(form, total * 3 // 2 + 3, 0, 1), strict=False)]
    assert written[:2] == [simple(form, 0), simple(form, 1)]
    assert written[-1] == simple(form, total - 1)
