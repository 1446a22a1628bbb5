"""The reference interpreter against plain NumPy and Python, statement kind by statement kind, hostile cases included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from exact_floats import FORMATS, greatest, least
from exact_floats import add as float_add
from exact_integers import wrap
from exact_samples import EDGES, array, drawn, numbers, same
from kernels import ONE, Kernel, i, run, u

from vyre_py.ir.interpret import InterpretError
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid, dim_op
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Value, const
from vyre_py.ir.language.ops import ATOMICS, EXPANDED_ONLY, OPS
from vyre_py.ir.language.types import Type, bool_, f32, f64, i32, i64, u8, u32, u64
from vyre_py.ir.passes.expand import expand

# ---------------------------------------------------------------- geometry


def test_queries_on_three_axes() -> None:
    k = Assembler("test", (2, 3, 4))
    k.grid = Grid(False, (DimConst(3), DimConst(2), DimConst(2)))
    total = 2 * 3 * 4 * 3 * 2 * 2
    names = [n for n, row in OPS.items() if row.is_query]
    out = k.memory("out", Space.BUFFER, u32, (DimConst(len(names)), *(DimConst(s * g) for s, g in zip((4, 3, 2), (2, 2, 3), strict=True))), Access.WRITE)
    place = [k.let(OPS[f"global_id.{axis}"], ()) for axis in "zyx"]
    for row, name in enumerate(names):
        k.store(out, (u(row), *place), k.let(OPS[name], ()))
    got = np.zeros((len(names), 8, 6, 6), np.uint32)
    run(k.finish(), {"out": got}, {})
    z, y, x = np.indices((8, 6, 6))
    for axis, at, size, count in (("x", x, 2, 3), ("y", y, 3, 2), ("z", z, 4, 2)):
        expected = {"global_id": at, "local_id": at % size, "workgroup_id": at // size, "num_workgroups": count + 0 * at, "workgroup_size": size + 0 * at}
        for name, wanted in expected.items():
            assert (got[names.index(f"{name}.{axis}")] == wanted).all(), (name, axis)
    assert (got[names.index("local_index")] == x % 2 + 2 * (y % 3) + 6 * (z % 4)).all()
    assert got[0].size == total


@pytest.mark.parametrize("extent", [0, 1, 7, 8, 9, 1000, 70000, 200_000])
def test_over_rounds_up_to_whole_workgroups(extent: int) -> None:
    k = Kernel(over=extent)
    counts = k.buffer("counts", u32, 2)
    k.atomic(ATOMICS["add"], counts, (u(0),), (u(1),))
    k.atomic(ATOMICS["max"], counts, (u(1),), (k("global_id.x"),))
    counts_array = np.zeros(2, np.uint32)
    k.run(counts=counts_array)
    ran = -(-extent // 8) * 8
    assert counts_array.tolist() == [ran, max(0, ran - 1)]


def test_dims_and_dim_expressions_are_values() -> None:
    k = Kernel()
    n, m = k.dim("n"), k.dim("m")
    k.grid = Grid(True, (dim_op("mul", n, m), ONE, ONE))
    out = k.buffer("out", u32, n, dim_op("add", m, ONE))
    x = k("global_id.x")
    k.store(out, (k("div", x, m), k("rem", x, m)), dim_op("ceil_div", n, m))
    array = np.zeros((7, 4), np.uint32)
    k.run({"n": 7, "m": 3}, out=array)
    assert (array[:, :3] == 3).all() and (array[:, 3] == 0).all()


# ---------------------------------------------------------------- values and params


def test_constants_params_and_uniform_values_broadcast() -> None:
    k = Kernel(over=16)
    a, flag, offset = k.param("a", f32), k.param("flag", bool_), k.param("offset", i32)
    out = k.buffer("out", f32, 20)
    picked = k("select", flag, k("mul", a, const(f32, 3.0)), const(f32, -1.0))
    k.store(out, (k("add", k("cast", k("global_id.x"), to=i32), offset),), picked)
    array = np.zeros(20, np.float32)
    k.run(out=array, a=2, flag=True, offset=np.int32(-3))
    assert (array[:13] == 6).all() and (array[13:] == 0).all()


def test_moves_keep_nan_payloads() -> None:
    k = Kernel(over=4)
    source, out = k.buffer("source", f32, 4), k.buffer("out", f32, 4)
    x = k("global_id.x")
    variable = k.var(f32, const(f32, 0.0))
    k.if_(k("lt", x, u(3)))
    k.set(variable, k.load(source, (x,)))
    k.end()
    k.store(out, (x,), k("select", const(bool_, True), k.get(variable), const(f32, 1.0)))
    bits = np.array([0x7F800001, 0xFFC12345, 0x00000001, 5], np.uint32)
    array = np.zeros(4, np.float32)
    k.run(source=bits.view(np.float32), out=array)
    assert array.view(np.uint32).tolist() == [0x7F800001, 0xFFC12345, 1, 0]


def test_bytes_and_bools_in_memory() -> None:
    k = Kernel(over=256)
    source, flags, out = k.buffer("source", u8, 256), k.buffer("flags", bool_, 256), k.buffer("out", u32, 256)
    x = k("global_id.x")
    byte, flag = k.load(source, (x,)), k.load(flags, (x,))
    k.store(out, (x,), k("add", k("cast", byte, to=u32), k("select", flag, u(1000), u(0))))
    k.store(flags, (x,), k("logical_not", flag))
    k.store(source, (x,), k("cast", k("add", x, u(1)), to=u8))
    raw, flag_bytes, array = np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8), np.zeros(256, np.uint32)
    k.run(source=raw, flags=flag_bytes, out=array)
    assert array.tolist() == [0] + [1000 + b for b in range(1, 256)]
    assert flag_bytes.tolist() == [1] + [0] * 255
    assert raw.tolist() == [*range(1, 256), 0]


def test_a_numpy_bool_array_is_taken_too() -> None:
    k = Kernel(over=4)
    flags = k.buffer("flags", bool_, 4)
    k.store(flags, (k("global_id.x"),), k("logical_not", k.load(flags, (k("global_id.x"),))))
    array = np.array([True, False, True, True])
    k.run(flags=array)
    assert array.tolist() == [False, True, False, False]


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("type_", [i32, u32])
def test_each_axis_is_checked_by_itself(type_: Type) -> None:
    pairs = [(r, c) for r in (-(2**31), -1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1) for c in (-(2**31), -4, -1, 0, 3, 4, 5, 2**31 - 1, 2**32 - 4)]
    pairs = [p for p in pairs if all(type_.minimum <= v <= type_.maximum for v in p)]
    k = Kernel(over=len(pairs))
    rows, columns = k.buffer("rows", type_, len(pairs)), k.buffer("columns", type_, len(pairs))
    source, target, got = k.buffer("source", f32, 3, 4), k.buffer("target", u32, 3, 4), k.buffer("got", f32, len(pairs))
    x = k("global_id.x")
    place = (k.load(rows, (x,)), k.load(columns, (x,)))
    k.store(got, (x,), k.load(source, place))
    k.store(target, place, u(7))
    data = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    out, marks = np.full(len(pairs), 99, np.float32), np.zeros((3, 4), np.uint32)
    r, c = (np.array(v, type_.dtype) for v in zip(*pairs, strict=True))
    k.run(rows=r, columns=c, source=data, target=marks, got=out)
    expected_marks = np.zeros((3, 4))
    for (row, column), value in zip(pairs, out.tolist(), strict=True):
        inside = 0 <= row < 3 and 0 <= column < 4
        assert value == (data[row, column] if inside else 0)
        if inside:
            expected_marks[row, column] = 7
    assert (marks == expected_marks).all()


@pytest.mark.parametrize("space", [Space.WORKGROUP, Space.PRIVATE, Space.TABLE])
def test_other_spaces_are_checked_and_do_not_leak_into_a_neighbour(space: Space) -> None:
    k = Kernel(groups=3, workgroup=4)
    data = np.array([5, 6], "<u4").tobytes() if space is Space.TABLE else b""
    memory = k.memory("m", space, u32, (DimConst(2),), Access.READ if space is Space.TABLE else Access.READ_WRITE, data)
    out = k.buffer("out", u32, 12, 5)
    x = k("global_id.x")
    if space is not Space.TABLE:
        for place in (i(-1), i(2), i(5), i(1)):
            k.store(memory, (place,), k("add", k("workgroup_id.x"), u(10)))
        k.barrier()
    for column, place in enumerate((i(-1), i(0), i(1), i(2), i(2**31 - 1))):
        k.store(out, (x, u(column)), k.load(memory, (place,)))
    array = np.full((12, 5), 99, np.uint32)
    k.run(out=array)
    for lane, row in enumerate(array.tolist()):
        assert row == ([0, 5, 6, 0, 0] if space is Space.TABLE else [0, 0, 10 + lane // 4, 0, 0])


def test_everything_outside_changes_nothing() -> None:
    k = Kernel(over=100)
    empty, small, out = k.buffer("empty", u32, 0), k.buffer("small", u32, 2), k.buffer("out", u32, 100)
    x = k("global_id.x")
    far = k("add", x, u(2))
    total = u(5)
    for memory in (empty, small):
        k.store(memory, (far,), u(1))
        total = k("add", total, k.load(memory, (far,)))
        k.atomic_store(ATOMICS["store"], memory, (far,), u(1))
        for row in [row for row in ATOMICS.values() if row.reads]:
            total = k("add", total, k.atomic(row, memory, (far,), (u(1),) * row.operands))
            k.atomic(row, memory, (far,), (u(1),) * row.operands)
    k.store(out, (x,), total)
    little, array = np.array([3, 4], np.uint32), np.zeros(100, np.uint32)
    k.run(empty=np.zeros(0, np.uint32), small=little, out=array)
    assert little.tolist() == [3, 4] and (array == 5).all()


def test_zero_sizes_run_nothing() -> None:
    k = Kernel()
    n = k.dim("n")
    k.grid = Grid(True, (n, ONE, ONE))
    out, counter = k.buffer("out", f32, n), k.buffer("counter", u32, 1)
    k.store(out, (k("global_id.x"),), const(f32, 1.0))
    k.store(counter, (u(0),), u(1))
    count = np.zeros(1, np.uint32)
    k.run({"n": 0}, out=np.zeros(0, np.float32), counter=count)
    assert count[0] == 0


# ---------------------------------------------------------------- control flow


def test_if_else_under_divergence() -> None:
    k = Kernel(over=32)
    out = k.buffer("out", u32, 32)
    x = k("global_id.x")
    v = k.var(u32, u(0))
    k.if_(k("lt", x, u(20)))
    k.set(v, u(1))
    k.if_(k("eq", k("and", x, u(1)), u(1)))
    k.set(v, u(2))
    k.else_()
    k.set(v, k("add", k.get(v), u(10)))
    k.end()
    k.else_()
    k.set(v, u(3))
    k.end()
    k.store(out, (x,), k.get(v))
    array = np.zeros(32, np.uint32)
    k.run(out=array)
    assert array.tolist() == [3 if n >= 20 else 2 if n % 2 else 11 for n in range(32)]


def test_a_value_read_before_a_set_keeps_the_old_one() -> None:
    k = Kernel(over=8)
    out = k.buffer("out", u32, 8)
    v = k.var(u32, u(1))
    before = k.get(v)
    k.if_(k("lt", k("global_id.x"), u(4)))
    k.set(v, u(5))
    k.end()
    k.store(out, (k("global_id.x"),), k("add", k("mul", before, u(10)), k.get(v)))
    array = np.zeros(8, np.uint32)
    k.run(out=array)
    assert array.tolist() == [15] * 4 + [11] * 4


TOP = 2**32 - 1
FOR_CASES = [
    (u32, 0, 5, 1), (u32, 5, 5, 1), (u32, 6, 5, 1), (u32, 0, 10, 3), (u32, TOP - 5, TOP, 4), (u32, 0, TOP, 2**31), (u32, TOP, 0, 1), (u32, 0, TOP, TOP),
    (i32, 0, 5, 1), (i32, -3, 4, 2), (i32, 5, -1, -1), (i32, 5, 0, -2), (i32, 0, 5, -1), (i32, -(2**31), 2**31 - 1, 2**30),
    (i32, 2**31 - 1, -(2**31), -(2**30)), (i32, 2**31 - 3, 2**31 - 1, 5), (i32, -(2**31) + 2, -(2**31), -7), (i32, 0, 1, -(2**31)), (i32, 1, 0, -(2**31)),
]


@pytest.mark.parametrize(("type_", "start", "stop", "step"), FOR_CASES)
@pytest.mark.parametrize("uniform", [True, False])
def test_for_counts_first_and_never_wraps(type_: Type, start: int, stop: int, step: int, uniform: bool) -> None:
    wanted = list(range(start, stop, step))[:20]
    k = Kernel(over=2, workgroup=2)
    bounds, out, length = k.buffer("bounds", type_, 2, 2), k.buffer("out", type_, 2, 20), k.buffer("length", u32, 2)
    x = k("global_id.x")
    count = k.var(u32, u(0))
    first, last = (const(type_, start), const(type_, stop)) if uniform else (k.load(bounds, (x, u(0))), k.load(bounds, (x, u(1))))
    turn = k.for_(first, last, const(type_, step))
    k.store(out, (x, k.get(count)), turn)
    k.set(count, k("add", k.get(count), u(1)))
    k.end()
    k.store(length, (x,), k.get(count))
    array, lengths = np.zeros((2, 20), type_.dtype), np.zeros(2, np.uint32)
    # Varying bounds: the second invocation's range is empty.
    k.run(bounds=np.array([[start, stop], [start, start]], type_.dtype), out=array, length=lengths)
    rows = [wanted, wanted if uniform else []]
    assert lengths.tolist() == [len(r) for r in rows]
    assert array.tolist() == [r + [0] * (20 - len(r)) for r in rows]


def _collatz(k: Kernel, x: Value, out: Memory, *, use_return: bool) -> None:
    n, steps = k.var(u32, k("add", x, u(1))), k.var(u32, u(0))
    k.loop()
    k.if_(k("eq", k.get(n), u(1)))
    if use_return:
        k.store(out, (x,), k.get(steps))
        k.return_()
    else:
        k.break_()
    k.end()
    k.set(steps, k("add", k.get(steps), u(1)))
    k.if_(k("eq", k("and", k.get(n), u(1)), u(0)))
    k.set(n, k("shr", k.get(n), u(1)))
    k.continue_()
    k.end()
    k.set(n, k("add", k("mul", k.get(n), u(3)), u(1)))
    k.end()
    k.store(out, (x,), u(0) if use_return else k.get(steps))


@pytest.mark.parametrize("use_return", [True, False])
def test_loop_with_break_continue_and_return_per_lane(use_return: bool) -> None:
    k = Kernel(over=500)
    out = k.buffer("out", u32, 500)
    _collatz(k, k("global_id.x"), out, use_return=use_return)
    array = np.zeros(500, np.uint32)
    k.run(out=array)
    for lane, got in enumerate(array.tolist()):
        n, steps = lane + 1, 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        assert got == steps


def _nested_oracle(x: int) -> int:
    total = 0
    for a in range(6):
        if a == x % 5:
            continue
        for b in range(a, a + x % 4):
            if (b + x) % 3 == 0:
                continue
            if b > 5:
                break
            if total > 40:
                return 1000 + total
            total += a * b + 1
            if (a ^ x) & 4:
                if b & 1:
                    continue
                total += 100 if x & 8 else 1
        else_total = 7
        if total > 30 + x % 7:
            break
        total += else_total
    return total


def test_nested_loops_with_every_exit_under_divergence() -> None:
    k = Kernel(over=300)
    out = k.buffer("out", u32, 300)
    x = k("global_id.x")
    total = k.var(u32, u(0))

    def when(condition: Value) -> None:
        k.if_(condition)

    def add(amount: Atom) -> None:
        k.set(total, k("add", k.get(total), amount))

    a = k.for_(u(0), u(6), const(u32, 1))
    when(k("eq", a, k("rem", x, u(5))))
    k.continue_()
    k.end()
    b = k.for_(a, k("add", a, k("rem", x, u(4))), const(u32, 1))
    when(k("eq", k("rem", k("add", b, x), u(3)), u(0)))
    k.continue_()
    k.else_()
    k.region("inner")
    when(k("gt", b, u(5)))
    k.break_()
    k.end()
    k.end()
    k.end()
    when(k("gt", k.get(total), u(40)))
    k.store(out, (x,), k("add", k.get(total), u(1000)))
    k.return_()
    k.end()
    add(k("add", k("mul", a, b), u(1)))
    when(k("ne", k("and", k("xor", a, x), u(4)), u(0)))
    when(k("eq", k("and", b, u(1)), u(1)))
    k.continue_()
    k.end()
    when(k("ne", k("and", x, u(8)), u(0)))
    add(u(100))
    k.else_()
    add(u(1))
    k.end()
    k.end()
    k.end()
    when(k("gt", k.get(total), k("add", u(30), k("rem", x, u(7)))))
    k.break_()
    k.end()
    add(u(7))
    k.end()
    k.store(out, (x,), k.get(total))
    array = np.zeros(300, np.uint32)
    k.run(out=array)
    assert array.tolist() == [_nested_oracle(n) for n in range(300)]


def test_a_variable_starts_anew_each_turn() -> None:
    k = Kernel(over=4)
    out = k.buffer("out", u32, 4)
    x = k("global_id.x")
    total = k.var(u32, u(0))
    turn = k.for_(u(0), u(5), const(u32, 1))
    fresh = k.var(u32, turn)
    k.if_(k("eq", turn, x))
    k.continue_()
    k.end()
    k.set(fresh, k("add", k.get(fresh), u(10)))
    k.set(total, k("add", k.get(total), k.get(fresh)))
    k.end()
    k.store(out, (x,), k.get(total))
    array = np.zeros(4, np.uint32)
    k.run(out=array)
    assert array.tolist() == [sum(10 + t for t in range(5) if t != n) for n in range(4)]


def test_statements_after_return_are_not_run() -> None:
    k = Kernel(over=16)
    out = k.buffer("out", u32, 16)
    x = k("global_id.x")
    k.if_(k("lt", x, u(4)))
    k.return_()
    k.end()
    k.store(out, (x,), u(1))
    k.return_()
    k.store(out, (x,), u(2))
    array = np.zeros(16, np.uint32)
    k.run(out=array)
    assert array.tolist() == [0] * 4 + [1] * 12


# ---------------------------------------------------------------- workgroups


def test_prefix_sum_with_workgroup_memory_and_barriers() -> None:
    k = Kernel(groups=40, workgroup=64)
    tile = k.memory("tile", Space.WORKGROUP, u32, (DimConst(64),), Access.READ_WRITE)
    data = k.buffer("data", u32, 40 * 64)
    x, local = k("global_id.x"), k("local_id.x")
    k.store(tile, (local,), k.load(data, (x,)))
    k.barrier()
    for distance in (1, 2, 4, 8, 16, 32):
        left = k.load(tile, (k("sub", k("cast", local, to=i32), i(distance)),))
        own = k.load(tile, (local,))
        k.barrier()
        k.store(tile, (local,), k("add", left, own))
        k.barrier()
    k.store(data, (x,), k.load(tile, (local,)))
    array = np.random.default_rng(1).integers(0, 1 << 32, 40 * 64, dtype=np.uint32)
    expected = np.cumsum(array.reshape(40, 64), axis=1, dtype=np.uint32).ravel()
    k.run(data=array)
    assert (array == expected).all()


def test_uniform_load_gives_each_workgroup_its_own_value() -> None:
    k = Kernel(groups=5, workgroup=8)
    tile = k.memory("tile", Space.WORKGROUP, u32, (DimConst(8),), Access.READ_WRITE)
    table = k.buffer("table", u32, 5)
    out = k.buffer("out", u32, 40)
    x, local, group = k("global_id.x"), k("local_id.x"), k("workgroup_id.x")
    k.store(tile, (local,), k("add", k("mul", group, u(100)), local))
    first = k.uniform_load(tile, (group,))
    k.if_(k("eq", group, u(3)))
    second = k.uniform_load(table, (group,))
    k.store(out, (x,), k("add", first, second))
    k.else_()
    k.store(out, (x,), k("add", first, k.uniform_load(table, (u(9),))))
    k.end()
    array = np.zeros(40, np.uint32)
    k.run(table=np.arange(5, dtype=np.uint32) * 1000, out=array)
    assert array.tolist() == [group * 101 + (3000 if group == 3 else 0) for group in range(5) for _ in range(8)]


def test_private_and_workgroup_memory_read_as_zero_and_are_not_shared() -> None:
    k = Kernel(groups=9000, workgroup=8)  # more than one batch
    mine = k.memory("mine", Space.PRIVATE, u32, (DimConst(2), DimConst(2)), Access.READ_WRITE)
    ours = k.memory("ours", Space.WORKGROUP, u32, (DimConst(1),), Access.READ_WRITE)
    out = k.buffer("out", u32, 72000)
    x = k("global_id.x")
    k.store(mine, (u(1), u(0)), k("add", k.load(mine, (u(1), u(0))), x))
    k.atomic(ATOMICS["add"], ours, (u(0),), (u(1),))
    k.barrier()
    k.store(out, (x,), k("add", k.load(mine, (u(1), u(0))), k.load(ours, (u(0),))))
    array = np.zeros(72000, np.uint32)
    k.run(out=array)
    assert (array == np.arange(72000) + 8).all()


# ---------------------------------------------------------------- atomics


_ATOMIC_ORACLES: Mapping[str, Callable[..., int]] = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "min": min,
    "max": max,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "nand": lambda old, x: ~(old & x),
    "load": lambda old: old,
    "exchange": lambda old, x: x,
    "compare_exchange": lambda old, expected, desired: desired if old == expected else old,
}


def _sequential(name: str, memory: list[int], places: list[int], operands: list[tuple[int, ...]], type_: Type) -> list[int]:
    olds = []
    for place, values in zip(places, operands, strict=True):
        if not 0 <= place < len(memory):
            olds.append(0)
            continue
        olds.append(memory[place])
        new = _ATOMIC_ORACLES[name](memory[place], *values)
        memory[place] = wrap(type_, new)
    return olds


@pytest.mark.parametrize("name", [name for name, row in ATOMICS.items() if row.reads])
@pytest.mark.parametrize("type_", [i32, u32, i64, u64], ids=str)
@pytest.mark.parametrize("elements", [1, 3, 40, 5000])
@pytest.mark.parametrize("wants_old", [True, False])
def test_atomics_are_those_of_a_sequential_machine(name: str, type_: Type, elements: int, wants_old: bool) -> None:
    rng = np.random.default_rng(7)
    count = 1000
    places = rng.integers(-1, elements + 1, count).astype(np.int32)
    low, high = (type_.minimum, type_.maximum) if name != "compare_exchange" else (0, 3)
    operands = rng.integers(low, high, (2, count), endpoint=True, dtype=type_.dtype)
    start = rng.integers(low, high, elements, endpoint=True, dtype=type_.dtype)
    k = Kernel(over=count)
    place, values = k.buffer("place", i32, count), k.buffer("values", type_, 2, count)
    memory, out = k.buffer("memory", type_, elements), k.buffer("out", type_, count)
    x = k("global_id.x")
    k.if_(k("ne", k("rem", x, u(3)), u(0)))
    arity = ATOMICS[name].operands
    old = k.atomic(ATOMICS[name], memory, (k.load(place, (x,)),), tuple(k.load(values, (u(row), x)) for row in range(arity)))
    if wants_old:
        k.store(out, (x,), old)
    k.end()
    final, olds = start.copy(), np.zeros(count, type_.dtype)
    k.run(place=places, values=operands, memory=final, out=olds)
    state = start.tolist()
    lanes = [n for n in range(count) if n % 3]
    expected = _sequential(name, state, places[lanes].tolist(), [tuple(operands[:arity, n].tolist()) for n in lanes], type_)
    assert final.tolist() == state
    if wants_old:
        assert olds[lanes].tolist() == expected
        assert (np.delete(olds, lanes) == 0).all()


@pytest.mark.parametrize(("name", "type_"), [("add", f32), ("min", f32), ("max", f32), ("add", f64)], ids=str)
@pytest.mark.parametrize("elements", [1, 3, 700])
@pytest.mark.parametrize("wants_old", [True, False])
def test_atomics_on_floats_are_those_of_a_sequential_machine(name: str, type_: Type, elements: int, wants_old: bool) -> None:
    count = 600
    rng = np.random.default_rng(8)
    places = rng.integers(0, elements, count).astype(np.int32)
    given = (EDGES[type_] + drawn(type_, count, seed=8))[:count]
    start = (EDGES[type_][::-1] + drawn(type_, elements, seed=9))[:elements]
    k = Kernel(over=count)
    place, values = k.buffer("place", i32, count), k.buffer("values", type_, count)
    memory, out = k.buffer("memory", type_, elements), k.buffer("out", type_, count)
    x = k("global_id.x")
    old = k.atomic(ATOMICS[name], memory, (k.load(place, (x,)),), (k.load(values, (x,)),))
    if wants_old:
        k.store(out, (x,), old)
    final, olds = array(type_, start), np.zeros(count, type_.dtype)
    k.run(place=places, values=array(type_, given), memory=final, out=olds)
    oracle = {"add": float_add, "min": least, "max": greatest}[name]
    state, expected = list(start), []
    for at, value in zip(places.tolist(), given, strict=True):
        expected.append(state[at])
        state[at] = oracle(FORMATS[type_], state[at], value)
    assert all(same(type_, a, b) for a, b in zip(numbers(type_, final), state, strict=True))
    if wants_old:
        assert all(same(type_, a, b) for a, b in zip(numbers(type_, olds), expected, strict=True))


def test_the_lesser_zero_and_the_number_win_in_memory() -> None:
    k = Kernel(over=8)
    memory, values = k.buffer("memory", f32, 4), k.buffer("values", f32, 8)
    x = k("global_id.x")
    k.atomic(ATOMICS["min"], memory, (k("rem", x, u(2)),), (k.load(values, (x,)),))
    k.atomic(ATOMICS["max"], memory, (k("add", k("rem", x, u(2)), u(2)),), (k.load(values, (x,)),))
    array = np.array([0.0, np.nan, -0.0, np.nan], np.float32)
    k.run(memory=array, values=np.array([-0.0, np.nan, 0.0, 5, np.nan, 7, 0.0, np.nan], np.float32))
    assert array.tolist() == [0.0, 5.0, 0.0, 7.0] and np.signbit(array).tolist() == [True, False, False, False]


def test_old_values_of_a_counter_are_a_permutation() -> None:
    k = Kernel(over=100_000)
    counter, out = k.buffer("counter", u32, 1), k.buffer("out", u32, 100_000)
    x = k("global_id.x")
    k.store(out, (x,), k.atomic(ATOMICS["add"], counter, (u(0),), (u(1),)))
    array = np.zeros(100_000, np.uint32)
    k.run(counter=np.zeros(1, np.uint32), out=array)
    assert (np.sort(array) == np.arange(100_000)).all()


def test_compare_exchange_loop() -> None:
    k = Kernel(over=64)
    total = k.buffer("total", u32, 1)
    x = k("global_id.x")
    seen = k.var(u32, u(0))
    k.loop()
    before = k.get(seen)
    old = k.atomic(ATOMICS["compare_exchange"], total, (u(0),), (before, k("add", before, x)))
    k.if_(k("eq", old, before))
    k.break_()
    k.end()
    k.set(seen, old)
    k.end()
    array = np.zeros(1, np.uint32)
    k.run(total=array)
    assert array[0] == sum(range(64))


def test_workgroup_atomics_stay_in_their_workgroup() -> None:
    k = Kernel(groups=7, workgroup=32)
    bins = k.memory("bins", Space.WORKGROUP, u32, (DimConst(4),), Access.READ_WRITE)
    data, out = k.buffer("data", u32, 224), k.buffer("out", u32, 7, 4)
    x, local = k("global_id.x"), k("local_index")
    k.atomic(ATOMICS["add"], bins, (k.load(data, (x,)),), (u(1),))
    k.barrier()
    k.store(out, (k("workgroup_id.x"), local), k.load(bins, (local,)))
    values = np.random.default_rng(3).integers(0, 6, 224).astype(np.uint32)
    array = np.zeros((7, 4), np.uint32)
    k.run(data=values, out=array)
    assert array.tolist() == [np.bincount(row, minlength=6)[:4].tolist() for row in values.reshape(7, 32)]


# ---------------------------------------------------------------- misuse


def _copy_kernel() -> Kernel:
    k = Kernel()
    n = k.dim("n")
    k.grid = Grid(True, (n, ONE, ONE))
    k.param("a", i32)
    out = k.buffer("out", f32, n)
    k.store(out, (k("global_id.x"),), const(f32, 1.0))
    return k


GOOD: dict[str, Any] = {"out": np.zeros(4, np.float32), "a": 1}


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({"out": None}, {"n": 4}, "needs an array"),
        ({"out": np.zeros(4)}, {"n": 4}, "needs an array of f32"),
        ({"out": np.zeros(5, np.float32)}, {"n": 4}, "needs shape"),
        ({"out": np.zeros(8, np.float32)[::2]}, {"n": 4}, "C-contiguous"),
        ({"a": 1.5}, {"n": 4}, "not an integer"),
        ({"a": 2**31}, {"n": 4}, "does not fit"),
        ({"a": np.int64(1)}, {"n": 4}, "needs one i32"),
        ({}, {}, "has no size"),
        ({}, {"n": -1}, "whole numbers"),
        ({}, {"n": 2**48}, "whole numbers"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InterpretError, match=message):
        _copy_kernel().run(sizes, **{**GOOD, **changes})


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_argument_is_named(name: str) -> None:
    with pytest.raises(VyreError, match=f"'{name}' is missing"):
        _copy_kernel().run({"n": 4}, **{key: value for key, value in GOOD.items() if key != name})


def test_a_read_only_array_is_refused_before_anything_runs() -> None:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(InterpretError, match="writeable"):
        _copy_kernel().run({"n": 4}, out=array, a=0)


def test_an_op_that_only_its_expansion_defines_is_that_expansion() -> None:
    for name, row in OPS.items():
        if row.is_query or not row.is_lanewise or row.name == "cast" or f32 not in row.of:
            continue
        k = Kernel(over=4)
        out = k.buffer("out", f32, 4)
        value = k(name, *(const(o.beside(f32), True if o.fixed is bool_ else 1) for o in row.operands))
        k.store(out, (k("global_id.x"),), value if value.type is f32 else const(f32, 1.0))
        found, written = np.zeros(4, np.float32), np.zeros(4, np.float32)
        k.run(out=found)
        if name in EXPANDED_ONLY:
            run(expand(k.finish(), frozenset({name}), calls=False), {"out": written}, {})
            np.testing.assert_array_equal(found, written)


def test_a_grid_past_the_limit_is_refused() -> None:
    k = Kernel(over=2**32 - 1)
    k.buffer("out", f32, 4)
    with pytest.raises(InterpretError, match="2\\^32"):
        k.run(out=np.zeros(4, np.float32))
