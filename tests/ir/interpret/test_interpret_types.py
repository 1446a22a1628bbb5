"""The reference interpreter over every type: moves keep bits wherever elements lie, params and constants, vectors under masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from elements import random_array
from exact_floats import FORMATS
from exact_samples import EDGES, array
from kernels import Kernel, run, u

from vyre_py.ir.interpret import InterpretError
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.nodes import Access, Const, Param, Space, const
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.ops import OPS, swizzle_bits
from vyre_py.ir.language.types import (
    SCALARS,
    TYPES,
    Array,
    Kind,
    Type,
    bf16,
    bool_,
    f32,
    i32,
    u8,
    u16,
    u32,
    u64,
    vector_of,
)

ALL = list(TYPES.values())
COUNT = 40


def any_bits(t: Type, count: int, seed: int = 0) -> Array:
    """Elements whose bytes are anything at all, NaNs of every kind among them."""
    raw = np.random.default_rng(seed).integers(0, 256, count * t.size_bytes, dtype=np.uint8)
    if t.is_float:
        words = raw.view(f"u{t.scalar.size_bytes}")
        words[::3] |= words.dtype.type(FORMATS[t.scalar].infinity)
    dtype = np.dtype(np.uint8) if t.kind is Kind.BOOL else t.dtype
    return raw.view(dtype).reshape(count, *((t.lanes,) if t.is_vector else ()))


def raw(t: Type, a: Array) -> Array:
    """The bytes of each element; of bools, what each says."""
    flat = np.ascontiguousarray(a).reshape(len(a), -1)
    return (flat != 0).astype(np.uint8) if t.kind is Kind.BOOL else flat.view(np.uint8)


# ---------------------------------------------------------------- moves


@pytest.mark.parametrize("t", ALL, ids=str)
def test_moves_keep_bits_wherever_elements_lie(t: Type) -> None:
    k = Kernel(over=COUNT)
    source, out = k.buffer("source", t, COUNT), k.buffer("out", t, 7, COUNT)
    stored = any_bits(t, 5, seed=1)
    table = k.array("table", Space.TABLE, t, 5, data=raw(t, stored).tobytes())
    mine, ours = k.array("mine", Space.PRIVATE, t, 3), k.array("ours", Space.WORKGROUP, t, 8)
    x, local = k("global_id.x"), k("local_id.x")
    value = k.load(source, (x,))
    k.store(mine, (u(1),), value)
    k.store(ours, (local,), value)
    first = k.uniform_load(ours, (u(2),))
    odd = k("eq", k("and", x, u(1)), u(1))
    variable = k.var(t, k.load(source, (u(3),)))  # one element for all
    k.if_(odd)
    k.set(variable, value)
    k.end()
    results = [
        value, k.load(mine, (u(1),)), k.load(ours, (k("xor", local, u(1)),)), first, k.get(variable), k.load(table, (k("rem", x, u(5)),)),
        k("select", odd, value, k.load(source, (u(0),))),
    ]  # fmt: skip
    for row, result in enumerate(results):
        k.store(out, (u(row), x), result)
    given = any_bits(t, COUNT)
    kept = given.copy()
    got = np.zeros((7, *given.shape), given.dtype)
    k.run(source=given, out=got)
    n = np.arange(COUNT)
    is_odd = (n % 2 == 1).reshape(-1, *[1] * (given.ndim - 1))
    wanted = [given, given, given[n ^ 1], given[n // 8 * 8 + 2], np.where(is_odd, given, given[3]), stored[n % 5], np.where(is_odd, given, given[0])]
    for row, expected in enumerate(wanted):
        assert (raw(t, got[row]) == raw(t, expected)).all(), row
    assert given.tobytes() == kept.tobytes()


@pytest.mark.parametrize("t", ALL, ids=str)
def test_outside_is_zero_in_every_component_and_stores_are_dropped(t: Type) -> None:
    k = Kernel(over=4)
    source, empty, out = k.buffer("source", t, 2), k.buffer("empty", t, 0), k.buffer("out", t, 5, 4)
    mine, ours = k.array("mine", Space.PRIVATE, t, 2), k.array("ours", Space.WORKGROUP, t, 2)
    x = k("global_id.x")
    value = k.load(source, (u(1),))
    for memory in (mine, ours, empty, source):
        k.store(memory, (k("add", x, u(2)),), value)
    k.barrier()
    for row, memory in enumerate((source, empty, mine, ours)):
        k.store(out, (u(row), x), k.load(memory, (k("add", x, u(1)),)))
    k.store(out, (u(4), k("add", x, u(2))), value)
    given = any_bits(t, 2, seed=2)
    kept = given.tobytes()
    got = np.full((5, 4, *given.shape[1:]), 1).astype(given.dtype)
    k.run(source=given, empty=given[:0], out=got)
    assert given.tobytes() == kept
    assert (raw(t, got[0][:1]) == raw(t, given[1:])).all() and not raw(t, got[0][1:]).any()
    assert not raw(t, got[1:4].reshape(12, -1)).any()
    assert (raw(t, got[4][2:]) == raw(t, given[1:])).all() and (got[4][:2] == got[4][0]).all()


@pytest.mark.parametrize("t", list(SCALARS.values()), ids=str)
def test_constants_keep_their_bits(t: Type) -> None:
    patterns = [int(b) for b in array(t, EDGES[t]).view(f"u{t.size_bytes}").tolist()]
    k = Kernel(over=1, workgroup=1)
    out = k.buffer("out", t, len(patterns))
    pairs = k.buffer("pairs", vector_of(t, 2), len(patterns))
    for row, bits in enumerate(patterns):
        k.store(out, (u(row),), Const(t, bits))
        k.store(pairs, (u(row),), k("vec2", Const(t, bits), Const(t, patterns[0])))
    got, couples = np.zeros(len(patterns), t.dtype), np.zeros((len(patterns), 2), t.dtype)
    k.run(out=got, pairs=couples)
    assert got.view(f"u{t.size_bytes}").tolist() == patterns
    assert couples.view(f"u{t.size_bytes}").tolist() == [[bits, patterns[0]] for bits in patterns]


# ---------------------------------------------------------------- params


def passed(t: Type, value: Any, part: tuple[str, int] | None = None, also: tuple[Param, ...] = ()) -> Array:
    """What a Program reads from its param `p`."""
    k = Kernel(over=3)
    k.params += [Param("p" if part is None else "p.part", t, part), *also]
    out = k.buffer("out", t, 3)
    k.store(out, (k("global_id.x"),), k.params[0])
    got = np.zeros((3, *((t.lanes,) if t.is_vector else ())), t.dtype)
    k.run(out=got, p=value)
    assert (raw(t, got) == raw(t, got[:1])).all()
    return got[0:1]


@pytest.mark.parametrize("t", ALL, ids=str)
def test_params_of_every_type(t: Type) -> None:
    for seed in range(5):
        given = any_bits(t, 1, seed).view(t.dtype) if t.kind is not Kind.BOOL else random_array(np.random.default_rng(seed), t, (1,))
        assert (raw(t, passed(t, given[0])) == raw(t, given)).all()
    numbers = [True, False, False, True] if t.kind is Kind.BOOL else [3, 1, 2, 0]
    got = passed(t, numbers[: t.lanes] if t.is_vector else numbers[0])
    assert got.reshape(-1).tolist() == numbers[: t.lanes]
    if t.is_vector:
        own = [t.dtype.type(n) for n in numbers[: t.lanes]]
        assert passed(t, tuple(own)).reshape(-1).tolist() == numbers[: t.lanes]


def test_integers_past_f64_and_numbers_that_round_arrive_whole() -> None:
    assert passed(vector_of(u64, 2), [2**64 - 1, 2**53 + 1]).tolist() == [[2**64 - 1, 2**53 + 1]]
    assert passed(vector_of(bf16, 2), [1 + 2**-8 + 2**-30, 1e300]).astype(np.float64).tolist() == [[1 + 2**-7, np.inf]]


@pytest.mark.parametrize(
    ("t", "value", "message"),
    [
        (vector_of(f32, 3), [1.0, 2.0], "needs the 3 components of one f32x3, got list with 2"),
        (vector_of(f32, 3), 1.0, "needs the 3 components"),
        (vector_of(f32, 3), "abc", "needs the 3 components"),
        (vector_of(f32, 3), [1.0, None, 2.0], "None is not a number"),
        (vector_of(f32, 2), np.zeros(2), "needs one f32x2, got float64"),
        (vector_of(f32, 2), np.zeros((1, 2), np.float32), "of shape"),
        (vector_of(i32, 2), [1, 2**31], "does not fit i32"),
        (vector_of(i32, 2), [1, np.int64(2)], "needs one i32, got int64"),
        (vector_of(bool_, 2), [1, 0], "1 is not a bool"),
        (f32, [1.0], "is not a number"),
        (bf16, np.float32(1), "needs one bf16, got float32"),
        (u8, 256, "does not fit u8"),
    ],
)
def test_params_that_do_not_fit_are_named(t: Type, value: Any, message: str) -> None:
    with pytest.raises(InterpretError, match="param 'p': .*" + message):
        passed(t, value)


def test_parts_of_params() -> None:
    vector = np.array([1.5, 2.5, -3.5], np.float32)
    for k, x in enumerate(vector.tolist()):
        rest = tuple(Param(f"p{j}", f32, ("p", 4 * j)) for j in range(3) if j != k)
        assert passed(f32, vector, ("p", 4 * k), rest).tolist() == [x]
        assert passed(f32, vector.tolist(), ("p", 4 * k), rest).tolist() == [x]
    high = (Param("high", u32, ("p", 4)),)
    assert passed(u32, np.uint64(0x89ABCDEF01234567), ("p", 0), high).tolist() == [0x01234567]
    assert passed(u32, np.int64(-2), ("p", 4)).tolist() == [2**32 - 1]
    assert passed(u16, np.array([[7], [8]], u16.dtype).reshape(2), ("p", 2)).tolist() == [8]
    flags = np.array([False, True])
    assert [passed(bool_, flags, ("p", k)).tolist() for k in range(2)] == [[False], [True]]
    assert [passed(bf16, np.array([1.5, 2.5], bf16.dtype), ("p", 2 * k)).tolist() for k in range(2)] == [[1.5], [2.5]]
    with pytest.raises(InterpretError, match="passed in 2 parts: give a NumPy scalar"):
        passed(u32, 5, ("p", 0), high)
    with pytest.raises(InterpretError, match="needs 8 bytes or more, got uint32"):
        passed(u32, np.uint32(5), ("p", 4))
    with pytest.raises(InterpretError, match="param 'q' is missing"):
        passed(u32, np.uint32(5), ("q", 0))


# ---------------------------------------------------------------- buffers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(4, np.float32), r"needs shape \(4, 3\)"),
        (np.zeros((4, 4), np.float32), r"needs shape \(4, 3\)"),
        (np.zeros((4, 3)), "needs an array of f32x3"),
        (np.zeros((3, 4), np.float32).T, "C-contiguous"),
    ],
)
def test_buffers_of_vectors_have_an_axis_of_components(given: Array, message: str) -> None:
    k = Kernel(over=4)
    k.buffer("out", TYPES["f32x3"], 4)
    with pytest.raises(InterpretError, match=message):
        k.run(out=given)


def test_a_table_of_the_wrong_size_is_refused() -> None:
    k = Kernel(over=4)
    k.array("table", Space.TABLE, TYPES["u16x3"], 4, data=bytes(4 * 6 - 1))
    with pytest.raises(InterpretError, match="holds 23 bytes where its shape needs 24"):
        k.run()


# ---------------------------------------------------------------- computing


def computed(name: str, t: Type, given: Type | None, varying: list[bool]) -> None:
    """An op in a Program gives what its row says, its operands the same for all invocations or not."""
    row = OPS[name]
    k = Kernel(over=COUNT)
    types = [o.beside(t) for o in row.operands]
    columns = [random_array(np.random.default_rng(j), o, (COUNT,)) for j, o in enumerate(types)]
    if name == "swizzle":
        args: list[Any] = [k.load(k.buffer("a0", t, COUNT), (k("global_id.x"),)), const(u32, swizzle_bits("yx"))]
        columns = [columns[0], np.full(COUNT, swizzle_bits("yx"), np.uint32)]
    else:
        buffers = [k.buffer(f"a{j}", o, COUNT) for j, o in enumerate(types)]
        args = [k.load(b, (k("global_id.x") if vary else u(7),)) for b, vary in zip(buffers, varying, strict=True)]
        columns = [c if vary else np.repeat(c[7:8], COUNT, axis=0) for c, vary in zip(columns, varying, strict=True)]
    value = k(name, *args, to=given)
    out = k.buffer("out", value.type, COUNT)
    k.store(out, (k("global_id.x"),), value)
    assert row.evaluate is not None
    with np.errstate(all="ignore"):
        wanted = row.evaluate(value.type, *columns)
    got = np.zeros(wanted.shape, wanted.dtype)
    originals = [random_array(np.random.default_rng(j), o, (COUNT,)) for j, o in enumerate(types)]
    run(k.finish(), {"out": got, **{m.name: originals[int(m.name[1:])] for m in k.memories if m.name != "out"}}, {})
    if value.type.is_float:
        alike = (got == wanted) | ((got != got) & (wanted != wanted))  # noqa: PLR0124 - every NaN is as good as another
    else:
        alike = got == wanted
    assert alike.all()


@pytest.mark.parametrize("name", [n for n, row in OPS.items() if row.evaluate is not None])
def test_ops_over_vectors_in_a_program(name: str) -> None:
    row = OPS[name]
    conversions = {"cast": (TYPES["f32x3"], TYPES["i64x3"]), "bitcast": (TYPES["u32x2"], u64), "swizzle": (TYPES["bf16x3"], TYPES["bf16x2"])}
    scalar = bf16 if bf16 in row.of else min(row.of, key=str)
    t, given = conversions[name] if row.result is Result.GIVEN else (vector_of(scalar, max(row.lanes)), None)
    for pattern in range(1 << len(row.operands)):
        computed(name, t, given, [bool(pattern >> j & 1) for j in range(len(row.operands))])


def test_vectors_under_masks_in_loops() -> None:
    k = Kernel(over=50)
    t = TYPES["i32x3"]
    out = k.buffer("out", t, 50)
    x = k("cast", k("global_id.x"), to=i32)
    total = k.var(t, k("swizzle", const(i32, 1), u(0), to=t))
    turn = k.for_(const(i32, 0), k("rem", x, const(i32, 7)), const(i32, 1))
    k.if_(k("eq", k("rem", k("add", turn, x), const(i32, 3)), const(i32, 0)))
    k.continue_()
    k.end()
    k.set(total, k("add", k.get(total), k("vec3", turn, x, const(i32, 2))))
    k.end()
    k.store(out, (k("global_id.x"),), k("swizzle", k.get(total), u(swizzle_bits("zyx")), to=t))
    got = np.zeros((50, 3), np.int32)
    k.run(out=got)
    for n, row in enumerate(got.tolist()):
        turns = [s for s in range(n % 7) if (s + n) % 3]
        assert row == [1 + 2 * len(turns), 1 + n * len(turns), 1 + sum(turns)]


@pytest.mark.parametrize("count", [1, 2, 9, 70_000])
def test_normalising_vectors(count: int) -> None:
    k = Kernel(over=count)
    t = TYPES["f32x4"]
    data = k.buffer("data", t, count)
    x = k("global_id.x")
    v = k.load(data, (x,))
    size = k("length", v)
    # A vector that is zero stays so: one bool chooses among whole vectors.
    scaled = k("select", k("gt", size, const(f32, 0.0)), k("div", v, k("swizzle", size, u(0), to=t)), v)
    k.store(data, (x,), scaled)
    given = np.random.default_rng(1).standard_normal((count, 4)).astype(np.float32)
    given[:1] = 0
    got = given.copy()
    k.run(data=got)
    squares = given * given
    length = np.sqrt(((squares[:, 0] + squares[:, 1]) + squares[:, 2]) + squares[:, 3])[:, None]
    assert (got == np.where(length > 0, given / np.where(length > 0, length, 1), given)).all()


def test_bytes_through_words_and_back() -> None:
    k = Kernel(over=16)
    pixels, words = k.buffer("pixels", TYPES["u8x4"], 16), k.buffer("words", u32, 16)
    x = k("global_id.x")
    pixel = k.load(pixels, (x,))
    k.store(words, (x,), k("bitcast", pixel, to=u32))
    half = k("div", k("unpack4x8_unorm", k("bitcast", pixel, to=u32)), k("swizzle", const(f32, 2.0), u(0), to=TYPES["f32x4"]))
    k.store(pixels, (x,), k("bitcast", k("pack4x8_unorm", half), to=TYPES["u8x4"]))
    given = np.random.default_rng(2).integers(0, 256, (16, 4), dtype=np.uint8)
    got, packed = given.copy(), np.zeros(16, np.uint32)
    k.run(pixels=got, words=packed)
    assert (packed == given.view("<u4")[:, 0]).all()
    assert (np.abs(got.astype(int) * 2 - given) <= 1).all()


def test_a_bool_vector_is_a_byte_for_each_component() -> None:
    k = Kernel(over=4)
    t = TYPES["boolx3"]
    flags, out = k.buffer("flags", t, 4), k.buffer("out", u32, 4)
    x = k("global_id.x")
    value = k.load(flags, (x,))
    k.store(flags, (x,), k("logical_not", value))
    k.store(out, (x,), k("add", k("cast", k("all", value), to=u32), k("mul", k("cast", k("any", value), to=u32), u(2))))
    given = np.array([[0, 0, 0], [0, 7, 0], [1, 2, 255], [0, 0, 1]], np.uint8)
    got = np.zeros(4, np.uint32)
    k.run(flags=given, out=got)
    assert got.tolist() == [0, 2, 3, 2]
    assert given.tolist() == [[1, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 0]]


def test_two_axes_and_dims_with_vectors() -> None:
    k = Assembler("test", (4, 2, 1))
    n, m = k.dim("n"), k.dim("m")
    k.grid = Grid(True, (m, n, DimConst(1)))
    source = k.memory("source", Space.BUFFER, TYPES["f64x2"], (n, m), Access.READ)
    target = k.memory("target", Space.BUFFER, TYPES["f64x2"], (m, n), Access.WRITE)
    x, y = k.let(OPS["global_id.x"], ()), k.let(OPS["global_id.y"], ())
    k.store(target, (x, y), k.load(source, (y, x)))
    given = np.random.default_rng(3).standard_normal((5, 3, 2))
    got = np.zeros((3, 5, 2))
    run(k.finish(), {"source": given, "target": got}, {"n": 5, "m": 3})
    assert (got == given.transpose(1, 0, 2)).all()
