"""WebGPU for real: memories of every type, packed bytes, atomics, barriers, bounds, ranges, and the driver's own matters. Mesa's software
Vulkan is device enough. `test_wgpu_ops` has the ops."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from fuzz.elements import random_array
from test_words import EVERYTHING, everything

from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError, DeviceLost, DeviceUnavailable, DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.wgpu import library
from vyre_py.drivers.wgpu.launch import fold_grid
from vyre_py.drivers.wgpu.memory import words_around
from vyre_py.drivers.wgpu.status import STATUSES, failure
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, Type, bool_, f64, i64, u8, u32
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

Array = np.ndarray[Any, np.dtype[Any]]

@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


def run(device: Device, program: Program, **arguments: Any) -> dict[str, Any]:
    return device.compile_native(program).dispatch(arguments)


def from_text(text: str) -> Program:
    return Program.from_text(text)


# ---------------------------------------------------------------- numerics


def test_integers_are_strict_and_floats_native(device: Device) -> None:
    integers = from_text("program p(n) { buffer x: u32[n] read\n buffer y: f32[n] write\n y[global_id.x] = bitcast(x[global_id.x], f32) }")
    floats = from_text("program p(n) { buffer x: f32[n] read\n buffer y: f32[n] write\n y[global_id.x] = x[global_id.x] + 1.0 }")
    strict = CompileOptions(numerics="strict")
    assert device.compile_native(integers).numerics == device.compile_native(integers, strict).numerics == "strict"
    assert device.compile_native(floats).numerics == device.compile_native(floats, CompileOptions(numerics="native")).numerics == "native"
    with pytest.raises(Unsupported, match="strict floating point"):
        device.compile_native(floats, strict)
    assert device.compile_native(floats, CompileOptions(numerics="fast")).numerics == "native"


def test_moves_keep_the_bits_of_floats(device: Device) -> None:
    program = from_text(
        """program moves(n) over(3, n) {
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


PLACES = """program places(n) workgroup(8) over(n) {
  param p: KIND
  buffer x: KIND[n] read
  buffer y: KIND[n, 6] read_write
  workgroup tile: KIND[8]
  private own: KIND[3]
  table t: KIND[3] = hex "HEX"
  let i = global_id.x
  let v = x[i]
  var kept: KIND = p
  tile[local_index] = v
  own[i % 3u32] = v
  barrier
  y[i, 0u32] = tile[7u32 - local_index]
  y[i, 1u32] = t[i % 4u32]
  y[i, 2u32] = own[2u32]
  y[i, 3u32] = select(i % 2u32 == 0u32, p, v)
  y[i, 4u32] = uniform_load(tile[1u32])
  if i % 3u32 == 0u32 { kept = y[i, 5u32] }
  y[i, 5u32] = kept
}"""


@pytest.mark.parametrize("type_", list(TYPES.values()), ids=str)
def test_every_memory_keeps_the_bits_of_every_type(device: Device, type_: Type) -> None:
    """NaNs with their payloads and subnormals among them."""
    if type_.scalar is f64 and not device.target.has_f64:
        pytest.skip("the device has no f64, which is refused by name")
    rng = np.random.default_rng(type_.size_bytes)

    def array(*shape: int) -> Array:
        full = (*shape, type_.lanes) if type_.is_vector else shape
        if type_.scalar is bool_:
            return rng.integers(0, 2, full).astype(np.bool_)
        return rng.integers(0, 256, (*full, type_.scalar.size_bytes), np.uint8).view(type_.dtype)[..., 0]

    table, param, x, y = array(3), array(1)[0], array(24), array(24, 6)
    program = from_text(PLACES.replace("KIND", type_.name).replace("HEX", table.tobytes().hex()))
    got = run(device, program, p=param, x=x, y=y)["y"]
    i, word = np.arange(24), np.dtype(f"u{type_.scalar.size_bytes}")
    zero = np.zeros(x.shape[1:], type_.dtype)
    groups = x.reshape(3, 8, *x.shape[1:])
    want = np.stack([
        groups[:, ::-1].reshape(x.shape), np.concatenate([table, zero[None]])[i % 4], np.where(spread(i % 3 == 2, x), x, zero),
        np.where(spread(i % 2 == 0, x), param, x), np.repeat(groups[:, 1], 8, axis=0), np.where(spread(i % 3 == 0, x), y[:, 5], param),
    ], axis=1)  # fmt: skip
    np.testing.assert_array_equal(got.view(word), want.astype(type_.dtype).view(word))


def spread(condition: Array, like: Array) -> Array:
    return condition.reshape(-1, *(1,) * (like.ndim - 1))


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("kind", ["i8", "i16", "u16", "f16", "bf16", "u8x3", "i16x3"])
def test_neighbouring_parts_of_a_word_are_written_by_different_invocations(device: Device, kind: str) -> None:
    """In two launches, each of which writes every second element."""
    text = """program parts(n) {
  param odd: u32
  buffer x: KIND[n] read
  buffer y: KIND[n] read_write
  if global_id.x % 2u32 == odd { y[global_id.x] = x[global_id.x] }
}"""
    t = TYPES[kind]
    rng = np.random.default_rng(5)
    x, y = (random_array(rng, t, (1001,)) for _ in range(2))
    word = f"u{t.scalar.size_bytes}"
    first = run(device, from_text(text.replace("KIND", kind)), x=x, y=y, odd=1)["y"]
    np.testing.assert_array_equal(first.view(word), np.where(spread(np.arange(1001) % 2 == 1, x), x.view(word), y.view(word)))


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


def test_64_bit_integers_and_bytes_in_control_flow(device: Device) -> None:
    """Against the interpreter, at every level of optimisation."""
    program, arguments = from_text(EVERYTHING), everything(24)
    want = {name: np.array(arguments[name]) for name in "yz"}
    interpret(SimpleNamespace(program=program), {**arguments, **want}, {"n": 24})
    for opt in (0, 1, 2):
        got = device.compile_native(program, CompileOptions(opt=opt)).dispatch({**arguments, "y": np.array(arguments["y"]), "z": np.array(arguments["z"])})
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)


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
  barrier
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


@pytest.mark.parametrize("kind", ["u8", "bool", "i32", "f32", "i16", "bf16", "u64", "u8x3", "i64x3", "f16x4"])
def test_disjoint_ranges_of_one_buffer_at_odd_offsets(device: Device, kind: str) -> None:
    """WebGPU refuses one buffer for reading and writing at once: the driver binds both for writing."""
    t = TYPES[kind]
    shape = (200, t.lanes) if t.is_vector else (200,)
    data = (np.arange(np.prod(shape)) % 251 if kind != "bool" else np.arange(200) % 3 == 0).astype(t.dtype).reshape(shape)
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


def test_params_of_every_width_are_set_between_launches(device: Device) -> None:
    program = from_text(
        """program sum(n) {
  param a: u8
  param b: i64
  param c: f16
  param d: u64x3
  param e: i16x2
  buffer y: i64[n] write
  y[global_id.x] = cast(a, i64) + b + cast(c, i64) + cast(d.x + d.y * d.z, i64) + cast(e.x, i64) * cast(e.y, i64)
}"""
    )
    y = device.allocate(5, i64)
    given = {"a": 200, "b": -(1 << 50), "c": 1.5, "d": np.array([1 << 63, 3, 1 << 40], np.uint64), "e": np.array([-7, 300], np.int16)}
    launch = device.compile_native(program).bind(y=y, **given)

    def want() -> int:
        x, first, second = given["d"].tolist()
        total = 200 + given["b"] + int(given["c"]) + x + first * second - 2100
        return (total + (1 << 63)) % (1 << 64) - (1 << 63)

    launch()
    assert set(y.read().tolist()) == {want()}
    given |= {"b": (1 << 45) + 3, "c": -4.0}
    launch.set(b=given["b"], c=given["c"])()
    assert set(y.read().tolist()) == {want()}
    given["d"] = np.array([(1 << 63) + 5, 1 << 33, 7], np.uint64)
    launch.set(d=given["d"])()
    assert set(y.read().tolist()) == {want()}


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


def test_a_launch_that_was_bound_too_late_keeps_what_was_set(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread frees a buffer while it is bound: params are set before it is armed."""
    from vyre_py.drivers.wgpu.launch import WgpuLaunch

    program = from_text("program add(n) { param a: u32\n param b: u32\n buffer y: u32[n] read_write\n y[global_id.x] = y[global_id.x] + a * 100u32 + b }")
    y = device.allocate(9, u32)
    with monkeypatch.context() as late:
        late.setattr(WgpuLaunch, "_freed", lambda self: True)
        launch = device.compile_native(program).bind(y=y, a=1, b=2)
    launch.set(a=5)()
    assert set(y.read().tolist()) == {502}


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


def test_f64_is_for_devices_that_have_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from vyre_py.drivers.wgpu import device as module
    from vyre_py.drivers.wgpu import open_device as open_own

    floats = from_text("program p(n) { buffer y: f64[n] read_write\n y[global_id.x] = y[global_id.x] * 3.0 }")
    plain = compile_for(from_text(COPY.replace("KIND", "u32")), [parse_target("wgsl")])
    monkeypatch.setitem(module._FEATURES, "f64", frozenset({"no-such-feature"}))
    own = open_own(0)
    assert not own.target.has_f64
    with pytest.raises(Unsupported, match="type f64 of 'y'"):
        own.compile_native(floats)
    with pytest.raises(Unsupported, match="code for wgsl:f64"):
        own.load(compile_for(floats, [parse_target("wgsl:f64")]))
    for some in (own, device):
        got = some.load(plain).dispatch({"x": np.arange(5, dtype=np.uint32), "y": np.zeros(5, np.uint32)})
        np.testing.assert_array_equal(got["y"], np.arange(5))
    own.close()
    if device.target.has_f64:
        third = np.array([1 / 3, 1e300, -0.0])
        np.testing.assert_array_equal(device.compile_native(floats).dispatch({"y": third})["y"], third * 3)


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


@pytest.mark.parametrize("debug", [False, True])
def test_code_that_the_compiler_refuses_is_a_toolchain_error(device: Device, debug: bool) -> None:
    """With its line, and that of the Program where the code has places."""
    from dataclasses import replace

    artifact = device.compile_native(Program.from_text(COPY.replace("KIND", "u32"), "copy.vir"), CompileOptions(debug=debug)).artifact
    part = artifact.parts[0]
    code = part.steps[0].images[0].code.replace(b"] = ", b"] = 1.5f + ")
    image = replace(part.steps[0].images[0], code=code)
    broken = replace(artifact, parts=(replace(part, steps=(replace(part.steps[0], images=(image,)),)),))
    with pytest.raises(ToolchainError, match=r"naga: (?s:.)*wgsl:\d+:\d+(?s:.)*1\.5f") as caught:
        device.load(broken)
    assert "1.5f" in caught.value.text
    assert ("made from copy.vir:4:3" if debug else "CompileOptions(debug=True)") in str(caught.value)


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
    with pytest.raises(DeviceUnavailable, match=r"pip install '\.\[wgpu\]'"):
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
