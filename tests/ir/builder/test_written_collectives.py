"""Collectives of vyre's within a Program: copies or nothing among one rank, and refused by name among more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_kinds import KINDS, open_device

import vyre_py as vp
from vyre_py.ir.language.errors import Unsupported, ValidationError


def made(name: str, *shape: int, **given: Any) -> vp.Program:
    with vp.ProgramBuilder("collective", workgroup=32) as b:
        sizes = [b.dim(letter) for letter in "nm"[: len(shape)]]
        if name in ("all_gather", "reduce_scatter"):
            b.collective(name, b.read("x", vp.f32, *sizes), b.write("y", vp.f32, *sizes), **given)
        else:
            y = b.read_write("y", vp.f32, *sizes)
            b.collective(name, y, **given)
            with b.if_(b.global_id(0) == 0):
                y[(0,) * len(sizes)] = y[(0,) * len(sizes)]
        b.grid(3)
    return b.program


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1000,), (7, 150), (0,)], ids=str)
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_among_one_rank_a_part_is_the_whole(name: str, shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng(1).random(shape, np.float32)
    pipeline = open_device(kind).compile_native(made(name, *shape))
    np.testing.assert_array_equal(pipeline.dispatch({"x": x})["y"], x)


@pytest.mark.parametrize("name", ["all_reduce", "broadcast"])
@pytest.mark.parametrize("op", ["sum", "avg", "max"])
def test_among_one_rank_a_fold_changes_nothing(name: str, op: str) -> None:
    y = np.arange(100, dtype=np.float32)
    program = made(name, 100, op=op)
    np.testing.assert_array_equal(vp.device("cpu").compile_native(program).dispatch({"y": y})["y"], y)
    assert program == made("broadcast", 100)  # no statement is left


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("all_reduce", "all_reduce_step"), ("all_gather", "all_gather_step"), ("reduce_scatter", "reduce_scatter_step"), ("broadcast", "broadcast_step"),
    ],
)  # fmt: skip
def test_among_more_ranks_it_is_refused_by_name(name: str, step: str) -> None:
    assert hasattr(vp, step)
    with pytest.raises(Unsupported, match=rf"a Program does not support {name} among 4 ranks at .*{Path(__file__).name}.*put vp\.{step}\(communicator"):
        made(name, 8, ranks=4)


def test_what_makes_no_sense_is_refused() -> None:
    with vp.ProgramBuilder("wrong") as b:
        n = b.dim("n")
        x, y, z, w = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n), b.write("z", vp.f16, n), b.write("w", vp.f32, n, n)
        inner = b.workgroup("inner", vp.f32, 8)
        for arguments, given, message in [
            (("all_to_all", x), {}, "a collective is all_reduce, all_gather, reduce_scatter, broadcast, got 'all_to_all'"),
            (("all_gather", x), {}, "all_gather takes a source and a target"),
            (("all_reduce", y, x), {}, "all_reduce takes one buffer, which it changes"),
            (("all_reduce", y), {"op": "xor"}, "all_reduce folds by sum, prod, max, min, avg, got 'xor'"),
            (("broadcast", y), {"root": 1}, "got rank 1 of 1"),
            (("broadcast", y), {"ranks": 0}, "got rank 0 of 0"),
            (("all_reduce", inner), {}, "B105 a collective is between buffers of its own builder"),
            (("all_gather", x, z), {}, "V204 among one rank a part is the whole"),
            (("all_gather", x, w), {}, "V202 among one rank a part is the whole"),
        ]:
            with pytest.raises(ValidationError, match=message):
                b.collective(*arguments, **given)
        y[b.global_id(0)] = 0.0
        b.grid(1)
