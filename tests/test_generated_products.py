"""Generated Programs of products, on devices and as the forms for tensor cores that an oracle runs; beside the interpreter, to the bit.

VYRE_SEED and VYRE_GENERATED say which, and how many, as of `test_generated.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from cores_machine import run, viewed
from device_kinds import open_device
from generator import Case
from products import arguments_for, generate_products
from ptxas import compile_and_assemble
from test_generated import SEED, assert_same, number_of_programs, share
from test_generated_tiles import copied, expected

from vyre_py.ir.check import Checked, check
from vyre_py.ir.language.errors import Unsupported
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid

COUNTS = {"reference": 12, "cpu": 48, "cuda": 200}
ARCHS = ("sm_90a", "sm_80", "sm_90a", "sm_120")
BATCHES = 4
MEMORY_BYTES = 227 << 10
# What a loop brings, or keeps, may be more than there is room for.
TOO_LARGE = "bytes of workgroup memory|in the registers of a multiprocessor"
# Whether by warpgroups, and what arguments a form is for; the last takes any.
FORMS: tuple[dict[str, bool], ...] = tuple(
    {"warpgroups": warpgroups, "wide": wide, "boxes": boxes}
    for warpgroups in (True, False) for wide, boxes in ((True, True), (True, False), (False, False)) if warpgroups or not boxes
)  # fmt: skip


def nth(number: int, *, whole: bool) -> Case:
    r = random.Random(SEED * 300_007 + number)
    program = generate_products(r)
    given, sizes = arguments_for(program, r, whole=whole)
    return Case(program, given, sizes, False)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_devices_agree_on_products(kind: str, batch: int) -> None:
    device, ran = open_device(kind), 0
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind, COUNTS), batch, BATCHES):
        print(f"Program {number}")
        case = nth(number, whole=number % 2 == 0)
        try:
            pipeline = device.compile_native(case.program)
        except Unsupported as error:
            if kind != "cuda" or not re.search(TOO_LARGE, str(error)):
                raise
            continue
        ran += 1
        assert_same(case, expected(case), pipeline.dispatch(case.arguments))
    assert ran


@pytest.mark.parametrize("batch", range(BATCHES))
def test_code_for_tensor_cores_assembles(batch: int) -> None:
    print(f"VYRE_SEED={SEED}")

    def programs() -> Iterator[tuple[Checked, str]]:
        for number in share(number_of_programs("reference", COUNTS), batch, BATCHES):
            print(f"Program {number}")
            case = nth(number + (2 << 20), whole=number % 2 == 0)
            yield check(replace(case.program, name=f"generated_{number}")), ARCHS[number % len(ARCHS)]

    compile_and_assemble(programs(), TOO_LARGE)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_forms_for_tensor_cores_agree(batch: int) -> None:
    """Only the last form takes sizes that are no multiples of 16 bytes."""
    ran = 0
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs("reference", COUNTS), batch, BATCHES):
        whole = number % 2 == 0
        case = nth(number + (1 << 20), whole=whole)
        wanted = expected(case)
        for form in FORMS:
            if not whole and form["wide"]:
                continue
            print(f"Program {number}, {form}")
            try:
                made = for_rings(case.program, "the oracle", MEMORY_BYTES, **form)
            except Unsupported as error:
                if not re.search(TOO_LARGE, str(error)):
                    raise
                continue
            ran += 1
            got = copied(case)
            run(made, viewed(made, got), case.sizes, *([3] if walks_grid(made) else []))
            assert_same(case, wanted, got)
    assert ran
