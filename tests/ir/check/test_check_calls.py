"""Functions of a Program: limits that text shows badly."""

from __future__ import annotations

import pytest

from vyre_py.ir.check import check
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.text.parser import parse


@pytest.mark.parametrize(
    ("code", "inside", "outside"),
    [
        ("V511", "", "\n".join(f"function g{k}(x: u32) -> u32 {{ return x }}" for k in range(4096))),
        ("V501", "if x > 1 {\n" * 200 + "}\n" * 200, "if f(1) > 1 {\n" * 100 + "let y = f(2)\n" + "}\n" * 100),
        ("V506", "private a: u32[10000]", "private a: u32[10000]"),
    ],
)
def test_functions_count_with_the_rest(code: str, inside: str, outside: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check(parse(f"program p() {{\nfunction f(x: u32) -> u32 {{\n{inside}\nreturn x\n}}\n{outside}\nbarrier\n}}"))
    assert set(caught.value.codes) == {code}
    check(parse(f"program p() {{\nfunction f(x: u32) -> u32 {{\n{inside}\nreturn x\n}}\nbarrier\n}}"))
