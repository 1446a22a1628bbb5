"""Statements that only Programs made for a target have: the text of such a Program shows them, and is not read."""

from __future__ import annotations

import re

import pytest

import vyre_py as vp
from vyre_py.ir.language.errors import ParseError
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import emit_text


def matmul() -> vp.Program:
    with vp.TileBuilder("matmul") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        x, y, z = b.read("x", vp.bf16, m, k), b.read("y", vp.bf16, k, n), b.write("z", vp.f32, m, n)
        b.grid(vp.ceil_div(n, 64), vp.ceil_div(m, 128))
        i, j = b.workgroup_id(1) * 128, b.workgroup_id(0) * 64
        acc = b.var("acc", vp.f32, shape=(128, 64))
        with b.for_(0, k, 64) as p:
            acc.set(vp.mma(x.tile(i, p, shape=(128, 64)), y.tile(p, j, shape=(64, 64)), acc, tensor=True))
        z[i, j] = acc
    return b.program


_NAME = r'"[^"]+"'
TENSOR_CORE = rf"tensor_core {_NAME}\[\d+\], \(\w+(, \w+){{7}}\), \(\w+(, \w+){{3}}\)"
PRODUCT = rf"warpgroup_product {_NAME}\[0\], {_NAME} at \w+, {_NAME} at \w+, rows 128, depth 64, width 64"
MATRICES = rf"matrix_load {_NAME}\[0\], {_NAME} at [^,/]+"
TURNED = f"{MATRICES}, turned"
WAIT = rf"warpgroup_wait {_NAME}\[0\], [01]"


@pytest.mark.parametrize(
    ("target", "shown"),
    [("sm_75", ()), ("sm_80", (TENSOR_CORE, MATRICES)), ("sm_90", (TENSOR_CORE, MATRICES, TURNED)), ("sm_90a", (PRODUCT, WAIT)), ("cpu", ()), ("wgsl", ())],
)
def test_text_shows_them(target: str, shown: tuple[str, ...]) -> None:
    text = emit_text(matmul(), target, form="vir")
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*(tensor_core|matrix_load|warpgroup_)", line)]
    for pattern in shown:
        assert any(re.match(pattern, line) for line in lines), lines[:3]
    assert all(any(re.match(pattern, line) for pattern in shown) for line in lines)
    assert bool(lines) is bool(shown)


def test_a_product_of_a_factor_along_k_says_so() -> None:
    with vp.TileBuilder("transposed") as b:
        k = b.dim("k")
        x, y, z = b.read("x", vp.f16, 64, k), b.read("y", vp.f16, 64, k), b.write("z", vp.f32, 64, 64)
        b.grid(1)
        acc = b.var("acc", vp.f32, shape=(64, 64))
        with b.for_(0, k, 64) as p:
            acc.set(vp.mma(x.tile(0, p, shape=(64, 64)), y.tile(0, p, shape=(64, 64)).T, acc, tensor=True))
        z[0, 0] = acc
    assert re.search(r"warpgroup_product .*, along_k", emit_text(b.program, "sm_90a", form="vir"))


@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_the_text_is_not_read(target: str) -> None:
    text = emit_text(matmul(), target, form="vir")
    with pytest.raises(ParseError) as caught:
        parse(text)
    first = caught.value.diagnostics[0].place
    assert first is not None
    assert re.search("tensor_core|matrix_load|warpgroup_", text.splitlines()[first.line - 1])
