"""Formats in messages: what is let through Python's own formatting takes, and says what it says of the exact number."""

from __future__ import annotations

from itertools import product

import pytest

from vyre_py.ir.language.types import Type, bool_, encode, f16, f32, f64, i8, u64
from vyre_py.ir.text.messages import MAX_WIDTH, filled, format_fault, formats, spread

PARTS = (("", "<", "x=", "0^"), ("", "+"), ("", "#"), ("", "0"), ("", "9"), ("", ",", "_"), ("", ".2"), ("", *"bdoxXeEfFgG%scn"))
SPECS = ["".join(parts) for parts in product(*PARTS)]


@pytest.mark.parametrize(("type_", "value"), [(i8, -37), (u64, 1 << 40), (f32, 1234.5), (f64, -0.1), (f64, float("inf")), (bool_, True)], ids=str)
def test_formats_are_pythons(type_: Type, value: bool | int | float) -> None:
    written: object = "true" if type_ is bool_ else value
    let_through = 0
    for spec in SPECS:
        try:
            expected = format(written, spec)
        except (ValueError, OverflowError):
            expected = None
        if not format_fault(spec, type_):
            let_through += 1
            assert filled(f"<{{:{spec}}}>", [(type_, [encode(type_, value)])]) == f"<{expected}>"
        elif type_ is not bool_:
            refused = spec[-1] in "scn" or (type_.is_integer and spec[-1] in "eEfFgG%")
            assert expected is None or refused, spec  # of integers those that make floats of them
    assert let_through > (3 if type_ is bool_ else 300)


def test_a_float_without_precision_has_its_own_digits() -> None:
    for type_, text in ((f16, "   0.1"), (f32, "   0.1"), (f64, "   0.1")):
        assert filled("{:6}", [(type_, [encode(type_, 0.1)])]) == text
    assert filled("{:+} {:+}", [(f32, [encode(f32, 1e-7)]), (f32, [0x7FC00001])]) == "+1e-07 +nan"


def test_holes_and_braces() -> None:
    assert formats("{{}} {} {:x} {:}{{") == ("", "x", "")
    assert formats("{:{}}") is formats("{:x") is formats("x}") is formats("{x}") is formats("{!r}") is None
    assert spread("{:.2f} {{{}}}", [f32, f32]) == "{:.2f} {{{}}}"
    assert not format_fault(str(MAX_WIDTH), u64) and format_fault(str(MAX_WIDTH + 1), u64) and format_fault("9" * 5000, u64)
