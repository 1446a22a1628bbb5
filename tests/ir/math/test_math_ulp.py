"""The measured accuracy of the transcendental functions: whole, within the bounds, and measured by a measure that works."""

from __future__ import annotations

import re

import numpy as np
import pytest
from math_harness import REFERENCES, SEVERAL, SPECIAL, UNARY, reference, ulp_error
from math_ulp_page import read_measured, ulp_page

from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.types import bf16, f16
from vyre_py.ir.math import EXPANSIONS

STRICT = ("reference", "cpu", "cuda")


def test_every_transcendental_function_has_an_expansion_a_reference_and_special_values() -> None:
    assert {*UNARY, *SEVERAL} == TRANSCENDENTAL
    assert set(EXPANSIONS) >= TRANSCENDENTAL
    assert set(REFERENCES) == set(SPECIAL) == TRANSCENDENTAL


@pytest.mark.parametrize("name", [*UNARY, *SEVERAL])
def test_special_values_agree_with_the_reference(name: str) -> None:
    *arguments, expected = (np.array(column, np.float32) for column in zip(*SPECIAL[name], strict=True))
    assert (ulp_error(expected, reference(name)(*arguments)) <= 0.5).all()


def test_errors_are_in_units_of_the_last_place() -> None:
    got = np.array([1.0, 1.0000001, 2.0**-149, 0.0, np.inf, 3.4028235e38, np.inf, 0.99999994], np.float32)
    exact = np.array([1.0, 1.0, 0.0, 2.0**-150, 2.0**128 * (1 - 2.0**-25), np.inf, 1e39, 1.0])
    assert ulp_error(got, exact).tolist() == [0.0, 1.0, 1.0, 0.5, 0.5, np.inf, 0.0, 0.5]


def test_wrong_special_results_are_infinitely_wrong() -> None:
    got = np.array([np.nan, 1.0, -0.0, 0.0, np.inf, np.nan], np.float32)
    exact = np.array([1.0, np.nan, 0.0, -1e-60, -np.inf, np.nan])
    assert ulp_error(got, exact).tolist() == [np.inf] * 5 + [0.0]


def test_errors_of_narrow_types_are_in_their_own_units() -> None:
    one, next_ = np.array([1.0]), np.array([1.0 + 2.0**-7])
    assert ulp_error(next_.astype(bf16.dtype), one, bf16).tolist() == [1.0]
    assert ulp_error(next_.astype(np.float16), one, f16).tolist() == [8.0]
    assert ulp_error(np.array([np.inf], np.float16), np.array([65519.0]), f16).tolist() == [17 / 32]


def test_measured_within_the_bounds() -> None:
    rows = read_measured()
    found = {(row.function, row.type) for row in rows.values() if row.device in STRICT}
    assert found == {(name, str(type_)) for name in TRANSCENDENTAL for type_ in OPS[name].of}
    for row in rows.values():
        if row.device in STRICT:
            assert row.worst_ulp <= OPS[row.function].ulp and not row.wrong, row


def test_the_page_has_a_row_for_every_function() -> None:
    assert re.findall(r"^\| `(\w+)` \|", ulp_page(), flags=re.MULTILINE)[: len(TRANSCENDENTAL)] == [name for name in OPS if name in TRANSCENDENTAL]
