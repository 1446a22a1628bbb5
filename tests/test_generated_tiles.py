"""Generated Programs of tiles: every device agrees with the interpreter over the Program as it was written, to the bit, however a workgroup's invocations
share the tiles.

VYRE_SEED replays a run, and VYRE_GENERATED sets how many Programs a device gets, as in `test_generated`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from generator import Case
from ptxas import compile_and_assemble
from test_generated import SEED, assert_same, number_of_programs, share
from tiles import ALL_SCALARS, arguments_for, generate_tiles

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Device
from vyre_py.ir.check import Checked, check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.errors import Unsupported
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.passes import as_written, unoptimised
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.tiles import without_tiles

COUNTS = {"reference": 40, "cpu": 80, "wgpu": 30, "cuda": 300}
BATCHES = 10
ARCHS = ("sm_90a", "sm_75", "sm_80", "sm_100", "sm_120")
STEPPED = {"reference": 30, "cpu": 30}
# Invocations along x, y and z, by turns with as many as the compiler chooses.
WORKGROUPS = (None, (16, 2, 1), None, (1, 32, 1), (64, 1, 1), None, (1, 1, 1), (8, 4, 2), (2, 64, 1), (256, 1, 1))
# Of workgroup memory, from what goes in many steps on.
BUDGETS = (1 << 9, 1 << 10, 3 << 9, 1 << 12)
# Of a subgroup of a target that has such; not of all numbers of invocations.
LANES = (0, 32, 0, 8)
LARGE = 1 << 18  # holds all that there is
WHOLE = tuple(t for t in ALL_SCALARS if not t.is_float)


def nth(number: int, kind: str) -> Case:
    """The Program of this number in this run: over all types where floating point is strict, else over the exact ones."""
    whole = kind == "wgpu"
    return generated(SEED * 500_009 + number, WHOLE if whole else ALL_SCALARS, wide_atomics=not whole, most=14 if whole else 22 if number % 4 else 40)


def generated(seed: int, types: tuple[Type, ...], *, wide_atomics: bool, most: int) -> Case:
    program = generate_tiles(random.Random(seed), types=types, wide_atomics=wide_atomics, most=most)
    given, sizes = arguments_for(program, np.random.default_rng(seed))
    return Case(program, given, sizes, False)


def expected(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """What the interpreter makes of the Program as it was written."""
    given = copied(case)
    interpret(as_written(check(case.program), lambda program: program), given, case.sizes)
    return {memory.name: given[memory.name] for memory in case.program.buffers if memory.access.writes}


def copied(case: Case) -> dict[str, Any]:
    """Arguments for the interpreter, which writes into them."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items() if name not in case.sizes}


def options_of(number: int, kind: str) -> CompileOptions:
    """Each number of invocations, and each level, where it is compiled."""
    if kind == "reference":
        return CompileOptions(opt=number % 4)
    return CompileOptions(workgroup=WORKGROUPS[number % len(WORKGROUPS)], opt=0 if number // 3 % 2 and kind == "cpu" else 3)


def loaded(device: Device, case: Case, options: CompileOptions, folder: Path) -> Any:
    """The pipeline of an artifact that was saved and read again."""
    path = folder / "tiles.vyre"
    compile_for(case.program, [device.target], options).save(path)
    return device.load(Artifact.load(path))


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", list(COUNTS))
def test_devices_agree_on_tiles(kind: str, batch: int, tmp_path: Path) -> None:
    """The interpreter watches for races, which these Programs are free of."""
    device, config = open_device(kind), DispatchConfig(races=kind == "reference")
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind, COUNTS), batch, BATCHES):
        case, options = nth(number, kind), options_of(number, kind)
        print(f"Program {number}, {options}")
        pipeline = loaded(device, case, options, tmp_path) if number % 5 == 0 else device.compile_native(case.program, options)
        assert_same(case, expected(case), pipeline.dispatch(case.arguments, config=config))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_code_for_gpus_assembles(batch: int) -> None:
    """Where there is a GPU or not."""
    print(f"VYRE_SEED={SEED}")

    def programs() -> Iterator[tuple[Checked, str]]:
        for number in share(number_of_programs("reference", COUNTS), batch, BATCHES):
            print(f"Program {number}")
            yield check(replace(nth(number, "cuda").program, name=f"generated_{number}")), ARCHS[number % len(ARCHS)]

    compile_and_assemble(programs())


def stepped(case: Case, number: int) -> Program:
    """The Program of invocations with as little workgroup memory as will do, so that what they exchange goes in several steps."""
    budget, workgroup = BUDGETS[number % len(BUDGETS)], WORKGROUPS[number // len(BUDGETS) % len(WORKGROUPS)]
    lanes, blocks = LANES[number // 2 % len(LANES)], number % 2 == 0
    print(f"Program {number}, {workgroup}, {budget} bytes, subgroups of {lanes}, {'sums in blocks' if blocks else 'sums in rows'}")
    try:
        return without_tiles(case.program, "wgsl", budget, workgroup, lanes=lanes, blocks=blocks)
    except Unsupported as error:
        if "bytes of workgroup memory" not in str(error):
            raise
        if number % len(BUDGETS) < len(BUDGETS) - 1:
            return stepped(case, number + 1)
        return without_tiles(case.program, "wgsl", LARGE, workgroup, lanes=lanes, blocks=blocks)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", list(STEPPED))
def test_small_steps_agree(kind: str, batch: int) -> None:
    """The interpreter watches for invocations that race, so that a barrier which is missing shows whatever their order."""
    device = open_device(kind)
    print(f"VYRE_SEED={SEED}")
    for number in share(number_of_programs(kind, STEPPED), batch, BATCHES):
        case = nth(number + (1 << 20), kind)
        program = stepped(case, number)
        if kind == "reference":
            got = copied(case)
            interpret(unoptimised(check(program), expand=EXPANDED_ONLY), got, case.sizes, races=True)
        else:
            try:
                pipeline = device.compile_native(program, CompileOptions(opt=number % 4))
            except Unsupported as error:
                if "are compiled" not in str(error) and "MiB of stack" not in str(error):  # many steps are many statements
                    raise
                continue
            got = pipeline.dispatch(case.arguments)
        assert_same(case, expected(case), got)
