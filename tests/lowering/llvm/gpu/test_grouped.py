"""Neighbours of buffers in groups, as PTX has them for aligned memory: the same bits as the interpreter gives of the Program as it is, and wide accesses."""

from __future__ import annotations

import re

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.parts import Aligned, Divisible
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.llvm.gpu.grouped import over_groups
from vyre_py.lowering.target import parse_target

# The last workgroup goes past the end of every n; some indices wrap, and are inside again.
BODIES = {
    "copy": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 4; let a = x[i]; let b = x[i + 1]; let c = x[i + 2]; let d = x[i + 3];"
            " y[i] = d; y[i + 1] = c; y[i + 2] = b; y[i + 3] = a",
    "next group": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 8; let a = x[i + 5]; let b = x[i + 6]; let c = x[i + 7]; let d = x[i + 4];"
                  " y[i + 4] = a; y[i + 5] = b; y[i + 6] = c; y[i + 7] = d",
    "wrapping": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 4 + 4294967288; let a = x[i + 9]; let b = x[i + 10]; let c = x[i + 11];"
                " let d = x[i + 8]; y[i + 8] = a; y[i + 9] = b; y[i + 10] = c; y[i + 11] = d",
    "two axes": "buffer x: T[m, n] read; buffer y: T[m, n] write; let i = global_id.x * 4; let j = global_id.y; let a = x[j, i]; let b = x[j, i + 1];"
                " let c = x[j, i + 2]; let d = x[j, i + 3]; y[j, i] = b; y[j, i + 1] = c; y[j, i + 2] = d; y[j, i + 3] = a",
    "in place": "buffer y: T[n] read_write; let i = global_id.x * 4; let a = y[i]; let b = y[i + 1]; let c = y[i + 2]; let d = y[i + 3];"
                " y[i] = b; y[i + 1] = a; y[i + 2] = d; y[i + 3] = c",
    "one group of many": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 4; let a = x[i]; let b = x[i + 1]; let c = x[i + 2];"
                         " let d = x[i + 3]; y[global_id.x] = a + b + c + d",
}  # fmt: skip
# What keeps them apart.
APART = {
    "an element alone": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 4; y[global_id.x] = x[i] + x[i + 1] + x[i + 2]",
    "no multiple": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 2; y[global_id.x] = x[i] + x[i + 1] + x[i + 2] + x[i + 3]",
    "another access": "buffer x: T[n] read; buffer y: T[n] write; let i = global_id.x * 4;"
                      " y[global_id.x] = x[i] + x[i + 1] + x[i + 2] + x[i + 3] + x[global_id.x]",
    "an atomic": "buffer x: T[n] read_write; let i = global_id.x * 4; let a = x[i]; let b = x[i + 1]; let c = x[i + 2]; let d = x[i + 3];"
                 " atomic_add(x[i], a + b + c + d)",
}  # fmt: skip


def program(body: str, type_: str = "f32") -> Program:
    body = body.replace(": T[", f": {type_}[")
    return parse("program p(n, m) workgroup(32) grid(ceil_div(n, 64), m) {\n" + "\n".join(body.split(";")) + "\n}")


def shaped(made: Program, given: dict[str, Array], sizes: dict[str, int]) -> dict[str, Array]:
    """The arrays in the shapes that a Program's buffers have."""
    return {memory.name: given[memory.name].reshape([evaluate_dim(extent, sizes) for extent in memory.shape]) for memory in made.buffers}


def run(made: Program, given: dict[str, Array], sizes: dict[str, int]) -> dict[str, Array]:
    """What becomes of copies of the arrays."""
    copies = {name: array.copy() for name, array in given.items()}
    interpret(unoptimised(check(made), expand=EXPANDED_ONLY), shaped(made, copies, sizes), sizes)
    return copies


@pytest.mark.parametrize("name", BODIES)
def test_groups_are_their_elements(name: str) -> None:
    made = program(BODIES[name])
    form = over_groups(made)
    assert form is not None
    for n in (4, 64, 68, 260):
        sizes, rng = {"n": n, "m": 2}, np.random.default_rng(n)
        given = {memory.name: rng.random(2 * n if memory.rank == 2 else n, np.float32) for memory in made.buffers}
        wanted, found = run(made, given, sizes), run(form, given, sizes)
        assert all(np.array_equal(found[key], wanted[key]) for key in given)


@pytest.mark.parametrize("name", APART)
def test_what_is_no_whole_group_is_left(name: str) -> None:
    assert over_groups(program(APART[name], "u32")) is None


def test_groups_are_one_access() -> None:
    """The better entry needs memory on multiples of 16 bytes, and rows of whole groups; buffers that are touched otherwise it has as they are."""
    made = program(BODIES["copy"])
    (part,) = compile_for(made, [parse_target("compute_90")]).parts
    (step,) = part.steps
    assert {str(need) for need in step.entries[0].needs} == {str(Aligned("x", 16)), str(Aligned("y", 16)), str(Divisible(made.buffers[0].shape[0], 4))}
    assert not step.entries[1].needs
    better = emit_text(made, "sm_90").partition(".entry vyre_p_x1")[2].partition(".entry")[0]
    assert len(re.findall(r"ld\.global\S*\.v4", better)) == len(re.findall(r"st\.global\S*\.v4", better)) == 1
    assert over_groups(program(BODIES["one group of many"])).buffers[1].rank == 1


def test_prefix_sums_on_gpus_take_neighbours() -> None:
    text = emit_text(vp.ops.prefix_sum(vp.f32, on="sm_90"), "sm_90")
    better = text.partition(".entry vyre_prefix_sum_x1")[2].partition(".entry")[0]
    assert [len(re.findall(rf"{way}\.global\S*\.v4", better)) for way in ("ld", "st")] == [8, 8]
