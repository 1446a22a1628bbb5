"""WebGPU for real: every op over edge values against `ir.evaluate`, packed bytes, atomics, barriers, bounds, ranges, and the driver's own
matters. Mesa's software Vulkan is device enough."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device

from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.wgpu import library
from vyre_py.drivers.wgpu.launch import fold_grid
from vyre_py.drivers.wgpu.memory import words_around
from vyre_py.drivers.wgpu.status import STATUSES, failure
from vyre_py.ir.assembler import Assembler
from vyre_py.ir.nodes import Access, Atom, Const, Space
from vyre_py.ir.ops import ATOMICS, OPS, Op, Result
from vyre_py.ir.program import Program
from vyre_py.ir.types import SCALARS, Scalar, bool_, f32, i32, u8, u32
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.options import CompileOptions

Array = np.ndarray[Any, np.dtype[Any]]

INTEGERS = [
    0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 255, 256, 65535, 65536, 0x12345678, 0x55555555, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE,
    0xFFFFFFFF,
]
FLOATS = [
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 255.0, 255.5, 256.0, -1e-3, 16777216.0, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0,
    4294967040.0, 4294967296.0, 3e38, -3e38, 1e-30, float("inf"), float("-inf"), float("nan"),
]
EDGES: Mapping[Scalar, Array] = {
    i32: np.array(INTEGERS, np.uint32).view(np.int32),
    u32: np.array(INTEGERS, np.uint32),
    u8: np.array([0, 1, 2, 127, 128, 254, 255], np.uint8),
    bool_: np.array([False, True]),
    f32: np.array(FLOATS, np.float32),
}


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


def run(device: Device, program: Program, **arguments: Any) -> dict[str, Any]:
    return device.compile_native(program).dispatch(arguments)


def from_text(text: str) -> Program:
    return Program.from_text(text)


# ---------------------------------------------------------------- ops


def cases_of(op: Op) -> list[tuple[tuple[Scalar, ...], Scalar | None]]:
    """Every choice of operand types that a row accepts, with the type that is written out where one is."""
    written = (*SCALARS.values(), None) if op.result is Result.GIVEN else (None,)
    chosen = itertools.product(itertools.product(SCALARS.values(), repeat=len(op.operands)), written)
    return [(types, given) for types, given in chosen if op.result_type(types, given) is not None]


COMPUTED = [(op, types, given) for op in OPS.values() if op.evaluate is not None for types, given in cases_of(op)]
EXACT = [c for c in COMPUTED if f32 not in c[1] and c[2] is not f32]
# Floats whose result is decided by bits and comparisons, which software and hardware alike get right over NaN and infinities.
BIT_OPS = {"is_nan", "is_inf", "is_finite", "min", "max", "sign", "select", "cast", "bitcast", "abs", "neg", "eq", "ne", "lt", "le", "gt", "ge"}
BITWISE = [c for c in COMPUTED if c not in EXACT and c[0].name in BIT_OPS]


def operands_of(types: tuple[Scalar, ...]) -> list[Array]:
    grid = np.meshgrid(*[EDGES[t] for t in types], indexing="ij")
    return [np.ascontiguousarray(g.reshape(-1)) for g in grid]


def op_program(op: Op, types: tuple[Scalar, ...], given: Scalar | None, constants: tuple[Const, ...] | None = None) -> Program:
    a = Assembler("op", (64, 1, 1))
    n = a.dim("n")
    inputs = [a.memory(f"x{k}", Space.BUFFER, t, (n,), Access.READ) for k, t in enumerate(types)]
    result = op.result_type(types, given)
    assert result is not None
    out = a.memory("out", Space.BUFFER, result, (n,), Access.WRITE)
    i = a.let(OPS["global_id.x"], ())
    args: tuple[Atom, ...] = constants if constants is not None else tuple(a.load(m, (i,)) for m in inputs)
    a.store(out, (i,), a.let(op, args, given))
    return a.finish()


def assert_same(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    if got.dtype == np.float32:
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        keep = ~np.isnan(want)
        np.testing.assert_array_equal(got[keep].view(np.uint32), want[keep].view(np.uint32))
    else:
        np.testing.assert_array_equal(got, want)


def name_of(case: tuple[Op, tuple[Scalar, ...], Scalar | None]) -> str:
    op, types, given = case
    return "-".join([op.name, *[t.name for t in types], *([given.name] if given else [])])


@pytest.mark.parametrize("case", EXACT + BITWISE, ids=name_of)
def test_an_op_over_edge_values(device: Device, case: tuple[Op, tuple[Scalar, ...], Scalar | None]) -> None:
    op, types, given = case
    arrays = operands_of(types)
    assert op.evaluate is not None
    with np.errstate(all="ignore"):
        want = op.evaluate(op.result_type(types, given), *arrays)
    got = run(device, op_program(op, types, given), **{f"x{k}": x for k, x in enumerate(arrays)})["out"]
    assert_same(got, want)


RISKY = (
    "add", "sub", "mul", "div", "rem", "neg", "abs", "shl", "shr", "rotl", "rotr", "mul_hi", "abs_diff", "clz", "cast", "bitcast", "min", "clamp", "sqrt",
    "is_nan",
)


@pytest.mark.parametrize("name", RISKY)
def test_an_op_over_constants_compiles(device: Device, name: str) -> None:
    """Compilers of WGSL compute constants themselves, and refuse what overflows or divides by zero: level 0 leaves such ops in."""
    op = OPS[name]
    a = Assembler("constants", (1, 1, 1))
    wanted: list[Array] = []
    kept = []
    for _, types, given in [c for c in COMPUTED if c[0] is op and u8 not in c[1] and c[2] is not u8]:
        result = op.result_type(types, given)
        if result is f32 and name != "bitcast":
            continue
        picks = list(itertools.product(*[EDGES[t][[0, 1, 6, -4, -1]] if t is not bool_ else EDGES[t] for t in types]))[:40]
        assert result is not None and op.evaluate is not None
        out = a.memory(f"out{len(kept)}", Space.BUFFER, result, (a.dim(f"n{len(kept)}"),), Access.WRITE)
        values = []
        for place, pick in enumerate(picks):
            args = tuple(Const(t, int(np.asarray(v).view(f"u{t.size_bytes}"))) for t, v in zip(types, pick, strict=True))
            a.store(out, (Const(u32, place),), a.let(op, args, given))
            with np.errstate(all="ignore"):
                values.append(op.evaluate(result, *[np.array([v], t.dtype) for v, t in zip(pick, types, strict=True)])[0])
        kept.append(out)
        wanted.append(np.array(values, result.dtype))
    if not kept:
        return
    pipeline = device.compile_native(a.finish(), CompileOptions(opt=0))
    got = pipeline.dispatch({f"n{k}": len(w) for k, w in enumerate(wanted)})
    for k, want in enumerate(wanted):
        assert_same(got[f"out{k}"], want)


def test_transcendentals_are_close(device: Device) -> None:
    x = np.linspace(0.1, 3.0, 200, dtype=np.float32)
    for name, function in (("exp", np.exp), ("log", np.log), ("sin", np.sin), ("cos", np.cos)):
        got = run(device, op_program(OPS[name], (f32,), None), x0=x)["out"]
        np.testing.assert_allclose(got, function(x), atol=1e-3, rtol=1e-4)


# ---------------------------------------------------------------- numerics


def test_integers_are_strict_and_floats_native(device: Device) -> None:
    integers = from_text("program p(n) { buffer x: u32[n] read\n buffer y: f32[n] write\n y[global_id.x] = bitcast(x[global_id.x], f32) }")
    floats = from_text("program p(n) { buffer x: f32[n] read\n buffer y: f32[n] write\n y[global_id.x] = x[global_id.x] + 1.0 }")
    strict = CompileOptions(numerics="strict")
    assert device.compile_native(integers).numerics == device.compile_native(integers, strict).numerics == "strict"
    assert device.compile_native(floats).numerics == device.compile_native(floats, CompileOptions(numerics="native")).numerics == "native"
    with pytest.raises(Unsupported, match="strict floating point"):
        device.compile_native(floats, strict)
    with pytest.raises(Unsupported, match="numerics='fast'"):
        device.compile_native(floats, CompileOptions(numerics="fast"))


def test_moves_keep_the_bits_of_floats(device: Device) -> None:
    program = from_text(
        """program moves(n) {
  param p: f32
  buffer x: f32[n] read
  buffer y: f32[n, 3] write
  table t: f32[4] = [f32:0x7f800001, f32:0xffc12345, f32:0x00000001, f32:0x80000000]
  let i = global_id.y
  y[i, 0u32] = x[i]
  y[i, 1u32] = t[i & 3u32]
  y[i, 2u32] = select(i < 2u32, p, f32:0x7fa00001)
}"""
    )
    bits = np.array([0x7F800001, 0xFFC12345, 1, 0x807FFFFF, 0x7FC00000, 0xFF800000], np.uint32)
    param = np.array(0xFFA00002, np.uint32).view(np.float32)[()]
    got = run(device, program, x=bits.view(np.float32), p=param)["y"].view(np.uint32)
    np.testing.assert_array_equal(got[:, 0], bits)
    np.testing.assert_array_equal(got[:, 1], np.array([0x7F800001, 0xFFC12345, 1, 0x80000000], np.uint32)[np.arange(6) & 3])
    np.testing.assert_array_equal(got[:, 2], [0xFFA00002] * 2 + [0x7FA00001] * 4)


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 64, 1001])
def test_neighbouring_bytes_are_written_by_different_invocations(device: Device, count: int) -> None:
    program = from_text(
        """program bytes(n) workgroup(64) {
  buffer x: u8[n] read
  buffer y: u8[n] read_write
  buffer odd: bool[n] write
  let i = global_id.x
  y[i] = cast(cast(y[i], u32) + 3u32 * cast(x[i], u32), u8)
  odd[i] = (i & 1u32) == 1u32
}"""
    )
    x, y = np.random.default_rng(count).integers(0, 256, (2, count), dtype=np.uint8)
    got = run(device, program, x=x, y=y)
    np.testing.assert_array_equal(got["y"], y + 3 * x)
    np.testing.assert_array_equal(got["odd"], np.arange(count) % 2 == 1)


def test_bytes_in_workgroup_private_and_tables(device: Device) -> None:
    program = from_text(
        """program spaces workgroup(8) over(8) {
  buffer y: u8[8] write
  buffer z: bool[8] write
  workgroup tile: u8[8]
  workgroup flags: bool[8]
  private own: u8[3]
  private on: bool[2]
  table t: u8[5] = [9, 8, 7, 6, 255]
  table u: bool[3] = [true, false, true]
  table v: i32[2] = [-5, 5]
  let i = local_index
  tile[i] = t[i]
  flags[i] = u[i]
  own[1u32] = cast(i, u8)
  on[1u32] = v[i & 1u32] < 0
  barrier
  y[i] = cast(cast(tile[7u32 - i], u32) + cast(own[1u32], u32) + cast(own[0u32], u32), u8)
  z[i] = flags[i] != on[1u32]
}"""
    )
    got = run(device, program)
    table = np.array([9, 8, 7, 6, 255, 0, 0, 0])
    np.testing.assert_array_equal(got["y"], (table[::-1] + np.arange(8)) & 255)
    flags = np.array([True, False, True, *[False] * 5])
    np.testing.assert_array_equal(got["z"], flags != (np.arange(8) % 2 == 0))


# ---------------------------------------------------------------- atomics, workgroups


@pytest.mark.parametrize("type_", [i32, u32], ids=str)
@pytest.mark.parametrize("name", [n for n in ATOMICS if n != "compare_exchange"])
def test_atomics(device: Device, name: str, type_: Scalar) -> None:
    """Each invocation works on its own element, so that old values are known, in a buffer and in workgroup memory."""
    a = Assembler("atomics", (64, 1, 1))
    n = a.dim("n")
    x = a.memory("x", Space.BUFFER, type_, (n,), Access.READ)
    y = a.memory("y", Space.BUFFER, type_, (n,), Access.READ_WRITE)
    old = a.memory("old", Space.BUFFER, type_, (n,), Access.WRITE)
    new = a.memory("new", Space.BUFFER, type_, (n,), Access.WRITE)
    tile = a.memory("tile", Space.WORKGROUP, type_, (vp_const(64),), Access.READ_WRITE)
    i, j = a.let(OPS["global_id.x"], ()), a.let(OPS["local_index"], ())
    a.store(tile, (j,), a.load(y, (i,)))
    value = a.load(x, (i,))
    a.atomic(ATOMICS[name], tile, (j,), (value,))
    a.store(new, (i,), a.load(tile, (j,)))
    a.store(old, (i,), a.atomic(ATOMICS[name], y, (i,), (value,)))
    arrays = operands_of((type_, type_))
    got = run(device, a.finish(), x=arrays[0], y=arrays[1])
    want = ATOMICS[name].evaluate(arrays[1], arrays[0])
    np.testing.assert_array_equal(got["y"], want)
    np.testing.assert_array_equal(got["new"], want)
    np.testing.assert_array_equal(got["old"], arrays[1])


def vp_const(value: int) -> Any:
    from vyre_py.ir.dims import DimConst

    return DimConst(value)


def test_compare_exchange(device: Device) -> None:
    program = from_text(
        """program claim(n) workgroup(64) over(n) {
  buffer owner: u32[8] read_write
  buffer won: u32[n] write
  buffer seen: i32[n] read_write
  let i = global_id.x
  let old = atomic_compare_exchange(owner[i & 7u32], 0u32, i + 1u32)
  won[i] = select(old == 0u32, 1u32, 0u32)
  atomic_compare_exchange(seen[i], -4, 9)
}"""
    )
    seen = np.arange(-8, 504, dtype=np.int32)
    got = run(device, program, owner=np.zeros(8, np.uint32), seen=seen)
    assert sorted((got["owner"] - 1) % 8) == list(range(8))
    assert got["won"].sum() == 8 and got["won"][got["owner"] - 1].all()
    np.testing.assert_array_equal(got["seen"], np.where(seen == -4, 9, seen))


def test_contended_atomics_count_every_invocation(device: Device) -> None:
    program = from_text(
        """program histogram(n) workgroup(64) over(n) {
  buffer x: u8[n] read
  buffer bins: u32[16] read_write
  workgroup tile: u32[16]
  if global_id.x < n {
    atomic_add(tile[cast(x[global_id.x], u32) >> 4u32], 1u32)
  }
  barrier
  if local_index < 16u32 {
    atomic_add(bins[local_index], tile[local_index])
  }
}"""
    )
    x = np.random.default_rng(1).integers(0, 256, 10_007, dtype=np.uint8)
    np.testing.assert_array_equal(run(device, program, x=x, bins=np.zeros(16, np.uint32))["bins"], np.bincount(x >> 4, minlength=16))


def test_workgroup_memory_is_zero_at_first_whatever_ran_before(device: Device) -> None:
    dirty = from_text(
        """program dirty workgroup(64) over(64) {
  buffer y: u32[64] write
  workgroup t: u32[4096]
  for k in 0u32..64u32 { t[k * 64u32 + local_index] = 0xdeadbeefu32 }
  barrier
  y[local_index] = t[local_index * 60u32]
}"""
    )
    clean = from_text(
        """program clean workgroup(48) over(48) {
  buffer y: u32[48] read_write
  workgroup t: u32[4000]
  workgroup u: i32[5]
  workgroup f: f32[7]
  workgroup b: bool[3]
  private p: u32[9]
  for k in 0u32..84u32 {
    y[local_index] = y[local_index] + t[k * 48u32 + local_index] + p[k % 9u32]
  }
  y[local_index] = y[local_index] + cast(u[local_index], u32) + bitcast(f[local_index], u32) + cast(b[local_index], u32)
  atomic_add(u[0u32], 1)
}"""
    )
    for _ in range(3):
        assert (run(device, dirty)["y"] == 0xDEADBEEF).all()
        assert not run(device, clean, y=np.zeros(48, np.uint32))["y"].any()


def test_barriers_in_uniform_loops(device: Device) -> None:
    """A prefix sum over a workgroup, with a loop that ends by a uniform break and a uniform_load that decides it."""
    program = from_text(
        """program scan workgroup(64) over(64) {
  buffer x: u32[64] read
  buffer y: u32[64] write
  buffer limit: u32[1] read_write
  workgroup t: u32[64]
  let i = local_index
  t[i] = x[i]
  var step: u32 = 1
  loop {
    if step >= uniform_load(limit[0u32]) { break }
    barrier
    let before = t[i - step]
    let mine = t[i]
    barrier
    t[i] = mine + select(i >= step, before, 0u32)
    step = step * 2u32
  }
  barrier
  y[i] = uniform_load(t[63u32]) * 0u32 + t[i]
}"""
    )
    x = np.random.default_rng(2).integers(0, 1 << 32, 64, dtype=np.uint32)
    np.testing.assert_array_equal(run(device, program, x=x, limit=np.array([64], np.uint32))["y"], np.cumsum(x, dtype=np.uint32))


# ---------------------------------------------------------------- bounds


SPACES = {
    "buffer": "buffer m: i32[3, 4] read_write",
    "workgroup": "workgroup m: i32[3, 4]",
    "private": "private m: i32[3, 4]",
}


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("space", SPACES)
def test_each_index_is_checked_against_its_own_axis(device: Device, space: str, opt: int) -> None:
    program = from_text(
        f"""program bounds(n) workgroup(1) over(1) {{
  {SPACES[space]}
  buffer r: i32[n] read
  buffer c: i32[n] read
  buffer got: i32[n] write
  buffer all: i32[12] write
  for k in 0u32..12u32 {{ m[k / 4u32, k % 4u32] = cast(k, i32) + 100 }}
  for k in 0u32..n {{
    got[k] = m[r[k], c[k]]
    m[r[k], cast(c[k], u32)] = -7
  }}
  for k in 0i32..12i32 {{ all[k] = m[k / 4, k % 4] }}
}}"""
    )
    edges = np.array([-(1 << 31), -5, -4, -1, 0, 1, 2, 3, 4, 5, (1 << 31) - 1], np.int32)
    r, c = (g.reshape(-1).astype(np.int32) for g in np.meshgrid(edges, edges, indexing="ij"))
    state = np.arange(100, 112, dtype=np.int32).reshape(3, 4)
    want = np.zeros(r.size, np.int32)
    for k, (row, column) in enumerate(zip(r, c, strict=True)):
        if 0 <= row < 3 and 0 <= column < 4:
            want[k] = state[row, column]
            state[row, column] = -7
    arguments = {"r": r, "c": c, **({"m": np.zeros((3, 4), np.int32)} if space == "buffer" else {})}
    result = device.compile_native(program, CompileOptions(opt=opt)).dispatch(arguments)
    np.testing.assert_array_equal(result["got"], want)
    np.testing.assert_array_equal(result["all"], state.reshape(-1))


def test_atomics_and_tables_outside(device: Device) -> None:
    program = from_text(
        """program outside(n) over(n) {
  buffer i: i32[n] read
  buffer acc: u32[4] read_write
  buffer old: u32[n] write
  buffer looked: u8[n] write
  table t: u8[6] = [1, 2, 3, 4, 5, 6]
  if global_id.x < n {
    let k = i[global_id.x]
    old[global_id.x] = atomic_exchange(acc[k], 7u32)
    atomic_compare_exchange(acc[k], 7u32, 9u32)
    looked[global_id.x] = t[k]
  }
}"""
    )
    i = np.array([-(1 << 31), -1, 0, 3, 4, 5, 6, (1 << 31) - 1], np.int32)
    got = run(device, program, i=i, acc=np.array([5, 5, 5, 6], np.uint32))
    np.testing.assert_array_equal(got["acc"], [9, 5, 5, 9])
    np.testing.assert_array_equal(got["old"], [0, 0, 5, 6, 0, 0, 0, 0])
    np.testing.assert_array_equal(got["looked"], [0, 0, 1, 4, 5, 6, 0, 0])


@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_indices_that_a_compiler_may_know_to_be_outside(device: Device, opt: int) -> None:
    """naga refuses an index that it can see to be outside of an array of fixed size, though it is checked."""
    program = from_text(
        """program known workgroup(16) over(16) {
  buffer y: u32[16] read_write
  workgroup t: u32[8]
  private p: u32[8]
  table c: u32[2] = [4, 5]
  let far = workgroup_size.x
  let byte = cast(200u8, u32)
  let sum = 7u32 + 9u32
  t[far] = 1u32
  p[byte] = 1u32
  t[sum] = 2u32
  y[local_index] = t[far] + p[byte] + p[abs(99u32)] + t[sum] + c[far] + select(true, 40u32, 50u32)
  y[byte] = p[select(true, 40u32, 50u32)]
}"""
    )
    assert (device.compile_native(program, CompileOptions(opt=opt)).dispatch({"y": np.zeros(16, np.uint32)})["y"] == 40).all()


def test_constant_indices_outside_and_statements_never_reached(device: Device) -> None:
    program = from_text(
        """program odd(n) workgroup(4) over(4) {
  buffer y: i32[4] read_write
  y[9u32] = 1
  y[-1] = 1
  y[0u32] = y[4u32] + y[-1] + atomic_add(y[77u32], 5)
  loop {
    y[local_index] = 3
    break
    y[local_index] = 4
    loop { y[1u32] = 5 }
  }
  if n > 2u32 { return }
  y[3u32] = 8
}"""
    )
    for opt in (0, 3):
        out = device.compile_native(program, CompileOptions(opt=opt)).dispatch({"y": np.zeros(4, np.int32), "n": 3})
        np.testing.assert_array_equal(out["y"], [3, 3, 3, 3])


# ---------------------------------------------------------------- sizes, ranges, grids


COPY = """program copy(n) workgroup(32) {
  buffer x: KIND[n] read
  buffer y: KIND[n] read_write
  y[global_id.x] = x[global_id.x]
}"""


@pytest.mark.parametrize("kind", ["u8", "bool", "i32", "f32"])
def test_disjoint_ranges_of_one_buffer_at_odd_offsets(device: Device, kind: str) -> None:
    """WebGPU refuses one buffer for reading and writing at once: the driver binds both for writing."""
    dtype = SCALARS[kind].dtype
    data = (np.arange(200) % 251 if kind != "bool" else np.arange(200) % 3 == 0).astype(dtype)
    pipeline = device.compile_native(from_text(COPY.replace("KIND", kind)))
    for source, target, size in ((0, 100, 37), (3, 40, 37), (101, 1, 5), (63, 64, 1), (7, 7, 0), (200, 5, 0), (50, 55, 5)):
        whole = device.upload(data)
        pipeline.bind(x=whole[source : source + size], y=whole[target : target + size])()
        want = data.copy()
        want[target : target + size] = data[source : source + size]
        np.testing.assert_array_equal(whole.read(), want)


def test_sizes_of_zero(device: Device) -> None:
    program = from_text(
        """program empty(n, m) over(4) {
  buffer x: u32[n, m] read
  buffer y: u32[4] write
  buffer z: u8[n] read_write
  z[global_id.x] = 5u8
  y[global_id.x] = x[0u32, global_id.x] + 1u32
}"""
    )
    for shape in ((0, 5), (5, 0), (0, 0)):
        got = run(device, program, x=np.zeros(shape, np.uint32), z=np.zeros(shape[0], np.uint8))
        np.testing.assert_array_equal(got["y"], [1, 1, 1, 1])
        assert got["z"].tolist() == [5] * shape[0]
    assert run(device, from_text(COPY.replace("KIND", "u32")), x=np.zeros(0, np.uint32), y=np.zeros(0, np.uint32))["y"].size == 0


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (1, 1), (3, 2), (1, 3), (2, 6), (4, 4), (5, 7), (0, 13), (12, 1)])
def test_writes_and_reads_at_any_byte(device: Device, offset: int, size: int) -> None:
    data = np.arange(1, 14, dtype=np.uint8)
    buffer, fresh = device.upload(data), 200 + np.arange(size, dtype=np.uint8)
    buffer[offset : offset + size].write(fresh)
    data[offset : offset + size] = fresh
    np.testing.assert_array_equal(buffer.read(), data)
    np.testing.assert_array_equal(buffer[offset : offset + size].read(), fresh)
    target = device.allocate(size, u8)
    target.copy_from(buffer[offset : offset + size])
    np.testing.assert_array_equal(target.read(), fresh)
    assert words_around(offset, size)[0] <= offset < offset + size <= words_around(offset, size)[1]


def test_a_grid_wider_than_a_dispatch_is_folded(device: Device) -> None:
    program = from_text(
        """program wide(n) workgroup(1) grid(n, 2, 3) {
  buffer y: u32[3, 2, n] read_write
  buffer facts: u32[3] write
  atomic_add(y[global_id.z, global_id.y, global_id.x], 1u32 + workgroup_id.x)
  if global_id.x == n - 1u32 && workgroup_id.y == 1u32 && workgroup_id.z == 2u32 {
    facts[0u32] = num_workgroups.x
    facts[1u32] = num_workgroups.y
    facts[2u32] = num_workgroups.z
  }
}"""
    )
    n = 65535 * 2 + 17
    got = run(device, program, y=np.zeros((3, 2, n), np.uint32))
    np.testing.assert_array_equal(got["facts"], [n, 2, 3])
    np.testing.assert_array_equal(got["y"], np.broadcast_to(np.arange(1, n + 1, dtype=np.uint32), (3, 2, n)))


def test_folding() -> None:
    assert fold_grid((65535, 7, 3), 65535) == (65535, 7, 3)
    for x in (65536, 131070, 131071, 1_000_003, 65535 * 20000):
        folded = fold_grid((x, 7, 3), 65535)
        assert folded[0] * (folded[2] // 3) >= x and max(folded) <= 65535
    with pytest.raises(BindingError, match="along z"):
        fold_grid((65535 * 30000, 1, 3), 65535)


# ---------------------------------------------------------------- the driver


def test_scalars_and_buffers_are_set_between_launches(device: Device) -> None:
    """Launches that were enqueued keep the words that they were given."""
    program = from_text(
        """program add(n) {
  param a: u32
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  y[global_id.x] = y[global_id.x] * 3u32 + x[global_id.x] + a
}"""
    )
    x, other, y = device.upload(np.arange(70, dtype=np.uint32)), device.upload(np.full(140, 1000, np.uint32)), device.allocate(70, u32)
    launch = device.compile_native(program).bind(x=x, y=y, a=1)
    want = np.zeros(70, np.uint32)
    for a in range(20):
        launch.set(a=a)()
        want = want * 3 + np.arange(70, dtype=np.uint32) + np.uint32(a)
    launch.set(x=other[70:140], a=5)()
    want = want * 3 + np.uint32(1005)
    launch.set(x=other[3:73])()
    want = want * 3 + np.uint32(1005)
    np.testing.assert_array_equal(y.read(), want)


def test_a_freed_buffer_disarms_the_launch_until_it_is_replaced(device: Device) -> None:
    pipeline = device.compile_native(from_text(COPY.replace("KIND", "u32")))
    x, y = device.upload(np.arange(9, dtype=np.uint32)), device.allocate(9, u32)
    launch = pipeline.bind(x=x, y=y)
    launch()
    x.free()
    with pytest.raises(BindingError, match="'x' was freed"):
        launch()
    np.testing.assert_array_equal(y.read(), np.arange(9))
    launch.set(x=device.upload(np.arange(9, dtype=np.uint32) + 5))()
    np.testing.assert_array_equal(y.read(), np.arange(9) + 5)


def test_many_threads_launch_and_free(device: Device) -> None:
    """wgpu-native ends the process when a destroyed buffer is submitted: none ever is."""
    pipeline = device.compile_native(from_text(COPY.replace("KIND", "u32")))
    y = device.allocate(100, u32)
    unexpected: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(30):
                x = device.upload(np.full(100, number, np.uint32))
                launch = pipeline.bind(x=x, y=y)
                launch()
                killer = threading.Thread(target=x.free)
                killer.start()
                try:
                    for _ in range(3):
                        launch()
                except BindingError:
                    pass
                killer.join()
        except BaseException as error:  # noqa: BLE001 - whatever a thread raises is the test's finding
            unexpected.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected
    assert (y.read() == y.read()[0]).all()


def test_an_own_device_closes_quietly_in_any_order(device: Device) -> None:
    from vyre_py.drivers.wgpu import open_device as open_own

    own = open_own(0)
    pipeline = own.compile_native(from_text(COPY.replace("KIND", "u32")))
    x, y = own.upload(np.arange(5, dtype=np.uint32)), own.allocate(5, u32)
    launch = pipeline.bind(x=x, y=y)
    launch()
    own.synchronize()
    np.testing.assert_array_equal(y.read(), np.arange(5))
    own.close()
    own.close()
    for call in (launch, y.read, own.synchronize, lambda x=x, launch=launch: launch.set(x=x), lambda own=own: own.raw):
        with pytest.raises(DeviceLost, match="closed"):
            call()
    del call
    x.free()
    del x, y, launch, pipeline, own
    gc.collect()
    assert run(device, from_text(COPY.replace("KIND", "u32")), x=np.ones(3, np.uint32), y=np.zeros(3, np.uint32))["y"].tolist() == [1, 1, 1]


def test_a_lost_device_says_so_on_every_later_call() -> None:
    from vyre_py.drivers.wgpu import open_device as open_own

    program = from_text(COPY.replace("KIND", "u32"))
    for first in ("launch", "read", "write", "bind", "allocate", "compile", "wait"):
        own = open_own(0)
        pipeline = own.compile_native(program)
        x, y = own.upload(np.arange(5, dtype=np.uint32)), own.allocate(5, u32)
        launch = pipeline.bind(x=x, y=y)
        calls = {
            "launch": launch, "read": y.read, "write": lambda y=y: y.write(np.zeros(5, np.uint32)), "bind": lambda p=pipeline, x=x, y=y: p.bind(x=x, y=y),
            "allocate": lambda own=own: own.allocate(4, u32), "compile": lambda own=own: own.compile_native(program, CompileOptions(opt=1)),
            "wait": own.synchronize,
        }  # fmt: skip
        own.raw.device.destroy()
        for name in (first, *calls):
            with pytest.raises(DeviceLost, match="lost"):
                calls[name]()
        own.close()


def test_limits_are_refused_by_name(device: Device) -> None:
    too_many = int(device.raw.device.limits["max-storage-buffers-per-shader-stage"])
    if too_many <= 256:  # some drivers take a million
        many = "\n".join(f"buffer b{k}: u32[n] read" for k in range(too_many))
        total = "\n".join(f"t = t + b{k}[global_id.x]" for k in range(too_many))
        with pytest.raises(Unsupported, match=f"{too_many + 1} buffers"):
            device.compile_native(from_text(f"program many(n) {{ {many}\n buffer y: u32[n] write\n var t: u32 = 0\n {total}\n y[global_id.x] = t }}"))
    words = device.limits.workgroup_bytes // 4 + 1
    with pytest.raises(Unsupported, match="bytes of workgroup memory"):
        device.compile_native(
            from_text(f"program tile(n) {{ buffer y: u32[n] write\n workgroup t: u32[{words}]\n t[local_index] = 1u32\n barrier\n y[global_id.x] = t[5u32] }}")
        )
    with pytest.raises(OutOfMemory):
        device.allocate(1 << 40, u8)
    assert device.allocate(3, u8).read().tolist() == [0, 0, 0]


def test_code_that_the_compiler_refuses_is_a_toolchain_error(device: Device) -> None:
    from dataclasses import replace

    artifact = device.compile_native(from_text(COPY.replace("KIND", "u32"))).artifact
    part = artifact.parts[0]
    entry = replace(part.steps[0].entries[0], code=b"fn main() { nonsense }")
    broken = replace(artifact, parts=(replace(part, steps=(replace(part.steps[0], entries=(entry,)),)),))
    with pytest.raises(ToolchainError, match="naga") as caught:
        device.load(broken)
    assert "nonsense" in caught.value.text


def test_what_errors_mean() -> None:
    class GPUValidationError(Exception):
        pass

    class GPUOutOfMemoryError(Exception):
        pass

    assert isinstance(failure(GPUOutOfMemoryError("full"), "x"), OutOfMemory)
    assert isinstance(failure(GPUValidationError("Parent device is lost"), "x"), DeviceLost)
    made = failure(GPUValidationError("a\n  b"), "it cannot", LaunchError)
    assert isinstance(made, LaunchError) and made.status == "a b" and "it cannot" in str(made)
    assert type(failure(RuntimeError("odd"), "x")) is DriverError
    assert all(row.meaning and row.remedy for row in STATUSES.values())


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceUnavailable, match=r"pip install 'vyre-py\[wgpu\]'"):
        library.load.__wrapped__()


def test_adapters_are_ranked_and_each_device_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Adapter:
        def __init__(self, kind: str, backend: str, number: int) -> None:
            self.info = {"adapter_type": kind, "backend_type": backend, "vendor_id": 1, "device_id": number}

    class Gpu:
        @staticmethod
        def enumerate_adapters_sync() -> list[Adapter]:
            first = [("CPU", "Vulkan", 0), ("IntegratedGPU", "Vulkan", 1), ("DiscreteGPU", "Vulkan", 2)]
            kinds = [*first, ("DiscreteGPU", "Vulkan", 2), ("DiscreteGPU", "D3D12", 2), ("CPU", "OpenGL", 0)]
            return [Adapter(*k) for k in kinds]

    class Package:
        gpu = Gpu
        GPUError = RuntimeError

    monkeypatch.setattr(library, "load", lambda: Package)
    found = [(a.info["adapter_type"], a.info["backend_type"]) for a in library.adapters.__wrapped__()]
    assert found == [("DiscreteGPU", "Vulkan")] * 2 + [("IntegratedGPU", "Vulkan"), ("CPU", "Vulkan")]


def test_the_device_says_what_it_is(device: Device) -> None:
    assert device.description and device.raw.device is device.gpu  # type: ignore[attr-defined] - the contract leaves handles to the kind
    assert device.limits.buffer_bytes % 4 == 0 and device.limits.workgroups[0] > 65535
