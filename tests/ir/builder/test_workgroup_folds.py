"""What a whole workgroup computes together: the same numbers with and without subgroups, without races, on every device, and uniform."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.config import DispatchConfig
from vyre_py.ir.language import nodes
from vyre_py.ir.passes.dce import dce

GROUPS = 3
# Workgroups and subgroups: without, of several sizes, of one workgroup, and more than a subgroup has lanes.
SHAPES = [((7,), 0), ((1,), 0), ((6, 5), 2), ((64,), 32), ((8, 2), 16), ((64,), 4), ((48,), 16)]
FOLDS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b & 0xFFFFFFFF, "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}  # fmt: skip


def built(workgroup: tuple[int, ...], subgroup: int, type_: vp.Type, op: str) -> vp.Program:
    invocations = int(np.prod(workgroup))
    with vp.ProgramBuilder("folds", workgroup=workgroup, subgroup=subgroup) as b:
        n = b.dim("n")
        x, y, z = b.read("x", type_, n), b.write("y", type_, 5, n), b.write("z", vp.u32, 3, n)
        b.grid(GROUPS)
        i = b.let("i", b.workgroup_id(0) * invocations + b.local_index())
        v = b.let("v", x[i])
        y[0, i] = b.workgroup_reduce(op, v)
        y[1, i] = b.workgroup_scan(op, v)
        y[2, i] = b.workgroup_scan(op, v, exclusive=True)
        with b.for_(0, 2) as k:
            y[k + 3, i] = b.workgroup_reduce(op, v)
        c = v > 100
        z[0, i] = b.workgroup_count(c)
        z[1, i] = vp.cast(b.workgroup_all(c), vp.u32)
        with b.if_(b.workgroup_any(c)):
            b.barrier()  # the answer is the same for the workgroup
            z[2, i] = 1
    return b.program


@pytest.mark.parametrize("count", [7, 32, 100, 256, 1024])
def test_a_reduction_writes_nothing_that_nobody_reads(count: int) -> None:
    with vp.ProgramBuilder("sums", workgroup=count) as b:
        x, y = b.read("x", vp.f32, b.dim("n")), b.write("y", vp.f32, 4)
        b.grid(4)
        y[b.workgroup_id(0)] = b.workgroup_reduce("add", x[b.global_id(0)])
    assert dce(b.program) is b.program


@pytest.mark.parametrize(("workgroup", "subgroup"), SHAPES)
@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_integers(kind: str, workgroup: tuple[int, ...], subgroup: int) -> None:
    device, count = open_device(kind), int(np.prod(workgroup))
    values = np.random.default_rng(count).integers(0, 120, GROUPS * count).astype(np.uint32)
    values[count : 2 * count] = 7  # of no workgroup's any
    rows = values.reshape(GROUPS, count).tolist()
    for op, fold in list(FOLDS.items())[count % 3 :: 3]:
        found = device.compile_native(built(workgroup, subgroup, vp.u32, op)).dispatch({"x": values}, config=DispatchConfig(races=kind == "reference"))
        y, z = found["y"].reshape(5, GROUPS, count).tolist(), found["z"].reshape(3, GROUPS, count).tolist()
        first = {"mul": 1, "min": 0xFFFFFFFF, "and": 0xFFFFFFFF}.get(op, 0)
        for group, row in enumerate(rows):
            assert y[0][group] == y[3][group] == y[4][group] == [reduce(fold, row)] * count
            assert y[1][group] == list(accumulate(row, fold)) and y[2][group] == [first, *accumulate(row[:-1], fold)][:count]
            on = [v > 100 for v in row]
            assert [z[k][group][0] for k in range(3)] == [sum(on), all(on), any(on)]


@pytest.mark.parametrize(("workgroup", "subgroup"), [((48,), 16), ((30,), 0)])
def test_floats_have_the_same_bits(workgroup: tuple[int, ...], subgroup: int) -> None:
    count = int(np.prod(workgroup))
    values = np.random.default_rng(3).normal(size=GROUPS * count).astype(np.float32) * np.float32(1e3)
    values[: count] = -0.0
    program = built(workgroup, subgroup, vp.f32, "add")
    found, wanted = (open_device(kind).compile_native(program).dispatch({"x": values})["y"] for kind in ("cpu", "reference"))
    assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))
    np.testing.assert_allclose(wanted[1].reshape(GROUPS, count), np.cumsum(values.reshape(GROUPS, count).astype(np.float64), axis=1), rtol=1e-4, atol=1e-2)
    assert np.signbit(wanted[1].reshape(GROUPS, count)[0]).all()  # sums of nothing but -0


def repeated(workgroup: tuple[int, ...], subgroup: int) -> vp.Program:
    """Primitives of one type, one after another and in a loop, under a condition and behind it, so that they share arrays in every way."""
    invocations = int(np.prod(workgroup))
    with vp.ProgramBuilder("repeated", workgroup=workgroup, subgroup=subgroup) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u32, n), b.write("y", vp.u32, 10, n)
        b.grid(GROUPS)
        i = b.let("i", b.workgroup_id(0) * invocations + b.local_index())
        v = b.let("v", x[i])
        total = b.let("total", b.workgroup_reduce("add", v))
        y[0, i] = total
        y[1, i] = b.workgroup_scan("add", v + total)
        with b.for_(0, 3) as k:
            y[k + 2, i] = b.workgroup_reduce("max", v ^ k) + b.workgroup_scan("add", v * k, exclusive=True)
            with b.if_(b.workgroup_any(v == k)):
                y[k + 5, i] = b.workgroup_reduce("xor", v + k)
        y[8, i] = b.workgroup_reduce("min", v + 5)
        y[9, i] = b.workgroup_reduce("min", v * 3)
    return b.program


@pytest.mark.parametrize(("workgroup", "subgroup"), [*SHAPES, ((300,), 0), ((96,), 2), ((4,), 1)])
@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu"])
def test_repeated_calls(kind: str, workgroup: tuple[int, ...], subgroup: int) -> None:
    device, count = open_device(kind), int(np.prod(workgroup))
    values = np.random.default_rng(count).integers(0, 3 * count, GROUPS * count).astype(np.uint32)
    values[0], values[-1] = 0, 2
    config = DispatchConfig(races=kind == "reference")
    y = device.compile_native(repeated(workgroup, subgroup)).dispatch({"x": values}, config=config)["y"].reshape(10, GROUPS, count)
    for group, v in enumerate(values.reshape(GROUPS, count)):
        total = v.sum(dtype=np.uint32)
        wanted = np.zeros((10, count), np.uint32)
        wanted[0], wanted[1] = total, np.cumsum(v + total, dtype=np.uint32)
        for k in range(3):
            wanted[k + 2] = np.max(v ^ np.uint32(k)) + np.cumsum(v * np.uint32(k), dtype=np.uint32) - v * np.uint32(k)
            wanted[k + 5] = np.bitwise_xor.reduce(v + np.uint32(k)) if (v == k).any() else 0
        wanted[8], wanted[9] = np.min(v) + 5, np.min(v) * 3
        assert np.array_equal(y[:, group], wanted)


def barriers(workgroup: tuple[int, ...], subgroup: int, calls: Callable[[vp.ProgramBuilder, vp.Expr], object]) -> int:
    with vp.ProgramBuilder("counted", workgroup=workgroup, subgroup=subgroup) as b:
        v = b.let("v", b.read("x", vp.f32, b.dim("n"))[b.global_id(0)])
        calls(b, v)
    return sum(type(s) in (nodes.Barrier, nodes.UniformLoad) for s in b.program.body)


def test_one_barrier_where_one_is_enough() -> None:
    def many(b: vp.ProgramBuilder, v: vp.Expr) -> None:
        for _ in range(5):
            b.workgroup_reduce("add", v)

    assert barriers((32,), 32, many) == 0
    assert barriers((256,), 32, lambda b, v: b.workgroup_reduce("add", v)) == 1
    assert barriers((256,), 32, lambda b, v: b.workgroup_scan("add", v)) == 1
    assert barriers((256,), 32, lambda b, v: b.workgroup_any(v > 0)) == 1
    assert barriers((256,), 32, many) == 5
    assert barriers((20,), 0, lambda b, v: b.workgroup_reduce("add", v)) == 1
    assert barriers((256,), 0, lambda b, v: b.workgroup_reduce("add", v)) == 2
    assert barriers((256,), 0, lambda b, v: b.workgroup_scan("add", v)) == 4


def test_wgpu() -> None:
    values = np.arange(GROUPS * 16, dtype=np.uint32)
    program = built((8, 2), 0, vp.u32, "add")
    found, wanted = (open_device(kind).compile_native(program).dispatch({"x": values}) for kind in ("wgpu", "reference"))
    assert all(np.array_equal(found[name], wanted[name]) for name in ("y", "z"))


@pytest.mark.parametrize(
    ("write", "code", "words"),
    [
        (lambda b, v: b.workgroup_reduce("sub", v), "B108", "add, mul, min, max, and, or, xor, got 'sub'"),
        (lambda b, v: b.workgroup_scan("add", 3), "B108", "got 'add' and 3"),
        (lambda b, v: b.workgroup_any(v), "V201", "a workgroup does not fold f32 with or"),
        (lambda b, v: b.workgroup_reduce("add", vp.splat(v, 2)), "V201", "does not fold f32x2"),
    ],
)
def test_a_wrong_call_is_refused(write: Callable[..., None], code: str, words: str) -> None:
    with pytest.raises(vp.ValidationError, match=words) as caught, vp.ProgramBuilder("folds") as b:
        write(b, b.read_write("x", vp.f32, b.dim("n"))[b.global_id(0)])
    assert caught.value.codes == (code,)


def test_a_branch_that_parts_the_workgroup_is_refused() -> None:
    with vp.ProgramBuilder("folds", subgroup=32) as b:
        x = b.read_write("x", vp.u32, b.dim("n"))
        b.over(256)
        with b.if_(b.local_index() < 64):
            x[b.global_id(0)] = b.workgroup_reduce("add", x[b.global_id(0)])
    with pytest.raises(vp.ValidationError, match="V401 this barrier"):
        vp.check(b.program)
