"""The golden texts are not only what is emitted: the compilers they are for accept them."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_kinds import open_device
from llvmlite import binding as llvm
from tree import TESTS

from vyre_py.ir.check import check
from vyre_py.ir.text.parser import parse

GOLDEN = TESTS / "golden"
WGSL = sorted(GOLDEN.glob("*.wgsl.txt"))
LLVM = sorted([*GOLDEN.glob("*.cpu*.txt"), *GOLDEN.glob("*.ll")])
VIR = sorted(GOLDEN.glob("*.reference.txt"))


def test_there_are_some_of_each() -> None:
    assert WGSL and LLVM and VIR


@pytest.mark.parametrize("path", WGSL, ids=lambda p: p.name)
def test_wgsl_compiles(path: Path) -> None:
    raw = open_device("wgpu").raw.device
    raw.create_shader_module(code=path.read_text(encoding="utf-8"))  # raises what naga finds


@pytest.mark.parametrize("path", LLVM, ids=lambda p: p.name)
def test_llvm_verifies(path: Path) -> None:
    module = llvm.parse_assembly(path.read_text(encoding="utf-8"))
    module.verify()
    assert [f for f in module.functions if not f.is_declaration]


@pytest.mark.parametrize("path", VIR, ids=lambda p: p.name)
def test_optimised_programs_are_programs(path: Path) -> None:
    check(parse(path.read_text(encoding="utf-8")))
