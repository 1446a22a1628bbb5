"""Lanes that step by a constant: what is known of them, and loads that step over one another."""

from __future__ import annotations

import numpy as np
import pytest
from device_kinds import cpu_of_lanes

import vyre_py as vp
from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import i32, u32
from vyre_py.lowering.compile import emit_text
from vyre_py.lowering.llvm.cpu.values import LaneValue, LaneWriter, Variability, calculate
from vyre_py.lowering.llvm.large import measure
from vyre_py.lowering.llvm.ops import HOST_EMITTERS
from vyre_py.lowering.llvm.text import ModuleText

GROUPS = """program groups(n) workgroup(32) over(n) { buffer x: T[n, G] read\n buffer y: T[n] write
  let i = global_id.x
  if i < n {
  SUMS
  } }"""


def grouped(name: str, size: int) -> str:
    """The sum of a group of elements, first and last swapped."""
    order = [size - 1, *range(1, size - 1), 0] if size > 2 else [1, 0]
    sums = "\n".join(f"let a{k} = x[i, {k}u32]" for k in order) + f"\n y[i] = {' + '.join(f'a{k} * {k + 1}T' for k in order)}"
    return GROUPS.replace("SUMS", sums).replace("T", name).replace("G", str(size))


@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize(("name", "size"), [("u32", 2), ("u32", 8), ("i32", 16), ("u8", 4), ("u64", 4), ("i16", 8)])
def test_groups_are_exact(name: str, size: int, width: int) -> None:
    program, device = Program.from_text(grouped(name, size)), cpu_of_lanes(width)
    dtype = np.dtype(f"{name[0]}{int(name[1:]) // 8}")
    for n in (1, 31, 32, 100):
        x = np.random.default_rng(n).integers(0, 100, (n, size), dtype)
        given = {"x": x, "y": np.zeros(n, dtype)}
        wanted = vp.device("reference").compile_native(program).dispatch(given)["y"]
        np.testing.assert_array_equal(device.compile_native(program).dispatch(given)["y"], wanted)


@pytest.mark.parametrize("width", [4, 16])
def test_counters_that_are_read_in_rows_are_exact(width: int) -> None:
    text = """program counters(n) workgroup(64) over(n) { buffer x: u32[n] read\n buffer y: u32[n] write\n workgroup c: u32[16, 64]
      let l = local_id.x\n let b = l << 4u32
      for k in 0u32..16u32 { c[k, l] = x[global_id.x] * (k + 1u32) + l }
      barrier
      LOADS
      y[global_id.x] = SUM }"""
    loads = "\n".join(f"let a{k} = b + {k}u32\n let v{k} = c[a{k} >> 6u32, a{k} & 63u32]" for k in range(16))
    text = text.replace("LOADS", loads).replace("SUM", " ^ ".join(f"(v{k} * {k + 1}u32)" for k in range(16)))
    program, device = Program.from_text(text), cpu_of_lanes(width)
    x = np.arange(64, dtype=np.uint32)
    wanted = vp.device("reference").compile_native(program).dispatch(x=x)["y"]
    np.testing.assert_array_equal(device.compile_native(program).dispatch(x=x)["y"], wanted)
    inside = emit_text(program, f"cpu:x86-64-v3:{width}")
    assert "masked.gather" not in inside and (f"shufflevector <{width} x i32>" in inside)


@pytest.mark.parametrize("signed", [False, True])
def test_what_is_known_of_lanes_holds(signed: bool) -> None:
    """Expressions of a place that is a multiple of the lanes, beside numbers: where a value is said to step, the lanes do."""
    type_, rng, width = (i32 if signed else u32), np.random.default_rng(4), 8
    module = ModuleText()
    for _ in range(3000):
        w = LaneWriter(module, width, HOST_EMITTERS)
        multiple = 1 << int(rng.integers(0, 6))
        base = int(rng.integers(0, 1 << 32)) // multiple * multiple
        value, lanes = w.linear(type_, "%b", multiple), [(base + k) & 0xFFFFFFFF for k in range(width)]
        for _ in range(int(rng.integers(1, 5))):
            op = str(rng.choice(["add", "sub", "mul", "shl", "shr", "and"]))
            number = int(rng.choice([0, 1, 3, 4, 7, 8, 15, 31, 255, 0xFFFFFFFF])) if op in ("and", "add", "sub") else int(rng.integers(0, 9))
            value = calculate(w, op, type_, (value, LaneValue(Variability.UNIFORM, type_, "%c", Const(type_, number))))
            lanes = [evaluated(op, lane, number, signed) for lane in lanes]
        if value.variability is not Variability.VARYING:
            assert lanes == [(lanes[0] + k * value.step) & 0xFFFFFFFF for k in range(width)]
            assert lanes[0] % value.multiple == value.rest


def evaluated(op: str, lane: int, number: int, signed: bool) -> int:
    """One lane's."""
    whole = lane - (1 << 32) if signed and lane >> 31 else lane
    made = {"add": lane + number, "sub": lane - number, "mul": lane * number, "shl": lane << number % 32, "shr": whole >> number % 32, "and": lane & number}
    return made[op] & 0xFFFFFFFF


def test_many_accesses_one_by_one_are_calls() -> None:
    body = "\n".join(f"if x[i] > {k}u32 {{ s = s ^ x[(i * {2 * k + 3}u32 + s) % n] }}\n t[(i * 5u32 + {k}u32) % 61u32] = s" for k in range(150))
    program = Program.from_text(f"""program many(n) workgroup(4) over(n) {{ buffer x: u32[n] read\n buffer y: u32[n] write\n private t: u32[64]
      let i = global_id.x\n var s: u32 = 0u32\n {body}\n y[i] = s + t[i % 61u32] }}""")
    device, x = cpu_of_lanes(4), np.random.default_rng(5).integers(0, 200, 37, np.uint32)
    text = emit_text(program, "cpu:x86-64-v3:4")
    assert "call <4 x i32> @gather_each_v4i32(" in text and "call void @scatter_some_v4i32(" in text
    wanted = vp.device("reference").compile_native(program).dispatch(x=x)["y"]
    np.testing.assert_array_equal(device.compile_native(program).dispatch(x=x)["y"], wanted)


def test_accesses_one_by_one_make_no_long_straight_piece() -> None:
    """LLVM does little for one, so behind its beginning they are calls."""
    body = "\n".join(f"s = s ^ x[(i * {2 * k + 3}u32 + s) % n]" for k in range(90))
    program = Program.from_text(f"""program long(n) workgroup(16) over(n) {{ buffer x: u32[n] read\n buffer y: u32[n] write
      let i = global_id.x\n var s: u32 = 0u32\n {body}\n y[i] = s }}""")
    assert not measure(emit_text(program, "cpu:x86-64-v3:16")).large
    device, x = cpu_of_lanes(16), np.random.default_rng(6).integers(0, 200, 37, np.uint32)
    wanted = vp.device("reference").compile_native(program).dispatch(x=x)["y"]
    np.testing.assert_array_equal(device.compile_native(program).dispatch(x=x)["y"], wanted)


COPIES = """program copies(n) workgroup(W) over(n) { buffer x: T[n] read\n buffer y: T[n] write\n workgroup c: T[16, PAD]
  let l = local_id.x\n let base = workgroup_id.x * QUAD
  IN
  barrier
  OUT }"""


def copied(name: str, workgroup: int, padding: int) -> Program:
    """Four copies into columns of workgroup memory, of which lanes see rows, and four out of them, the columns in another order."""
    into, out = [], []
    for k in range(4):
        into.append(f"let e{k} = l + {k * workgroup}\n c[e{k} & 15, e{k} >> 4] = x[base + e{k}]")
        out.append(f"let o{k} = l + {(3 - k) * workgroup}\n y[base + o{k}] = c[o{k} & 15, o{k} >> 4]")
    text = COPIES.replace("OUT", "\n".join(out)).replace("IN", "\n".join(into)).replace("T[", f"{name}[")
    return Program.from_text(text.replace("PAD", str(workgroup // 4 + padding)).replace("QUAD", str(4 * workgroup)).replace("W", str(workgroup)))


@pytest.mark.parametrize(
    ("name", "workgroup", "padding", "width"),
    [("u32", 128, 1, 16), ("f32", 256, 0, 16), ("i32", 192, 3, 16), ("u32", 128, 1, 8), ("u64", 128, 1, 8), ("u8", 128, 1, 16), ("u32", 100, 1, 4)],
)
def test_copies_that_turn_rows_into_columns_are_exact(name: str, workgroup: int, padding: int, width: int) -> None:
    program, device = copied(name, workgroup, padding), cpu_of_lanes(width)
    dtype = np.dtype(f"{name[0]}{int(name[1:]) // 8}")
    for n in (4 * workgroup, 9 * workgroup + 17, 2 * workgroup - 3):
        given = {"x": np.random.default_rng(n).integers(0, 200, n).astype(dtype), "y": np.zeros(n, dtype)}
        got, wanted = (one.compile_native(program).dispatch(given)["y"] for one in (device, vp.device("reference")))
        np.testing.assert_array_equal(got, wanted, f"{n}")


def test_copies_of_whole_blocks_load_and_store_no_single_elements() -> None:
    text = emit_text(copied("u32", 128, 1), "cpu:x86-64-v3", form="llvm")
    turned = text[text.index("\nturned.") : text.index("\nblocksdone.")]
    assert turned.count("load <8 x i32>") == turned.count("store <8 x i32>") == 16  # eight chunks of 16 lanes
    assert "store i32" not in turned


@pytest.mark.parametrize("width", [1, 16])
def test_sums_along_memory_are_exact(width: int) -> None:
    text = """program sums(n, t) workgroup(64) grid(ceil_div(n, 640)) { buffer x: f32[n] read\n buffer y: f32[n] write\n workgroup c: f32[64]
      let l = local_id.x\n var a: f32 = 0.5f32\n var b: f32 = 1.0f32
      if workgroup_id.x != 1u32 { for k in 0u32..t step 2u32 {
        let i = workgroup_id.x * 640 + k * 64 + l\n a = a * 0.5f32 + x[i]\n b = b - x[i + 5u32] } }
      c[l] = a
      barrier
      y[global_id.x] = c[63u32 - l] + b }"""
    program, device = Program.from_text(text), cpu_of_lanes(width)
    for n, t in ((640, 10), (2000, 13), (1, 3), (700, 0)):
        x = np.random.default_rng(n).random(n, np.float32)
        given = {"x": x, "y": np.zeros(n, np.float32), "t": t}
        got, wanted = (one.compile_native(program).dispatch({**given, "y": given["y"].copy()})["y"] for one in (device, vp.device("reference")))
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("name", ["u32", "u8", "u64"])
def test_rows_of_workgroup_memory_begin_where_vectors_do(name: str, width: int) -> None:
    counts = "c[l >> 4u32, l & 31u32] + c[4u32, 32u32] + c[l & 7u32, 33u32] + c[3u32, l]"
    text = f"""program rows(n) workgroup(64) over(n) {{ buffer x: T[n] read\n buffer y: T[n] write\n workgroup a: T[2, 3, 37]\n workgroup c: u32[5, 33]
      let i = global_id.x\n let l = local_id.x
      a[l & 1u32, l >> 5u32, l & 31u32] = x[i]
      if l == 0u32 {{ a[1u32, 2u32, 36u32] = x[n - 1u32] }}
      atomic_add(c[l & 3u32, l % 34u32], l)
      atomic_max(c[4u32, 32u32], 70u32 + l)
      barrier
      let s = a[1u32, l >> 5u32, l + 3u32] + a[l & 1u32, l % 3u32, 31u32 - (l >> 1u32)] + a[1u32, 2u32, 36u32] + a[0u32, 1u32, l]
      y[i] = s + {f"({counts})" if name == "u32" else f"cast({counts}, T)"} }}"""
    program, device = Program.from_text(text.replace("T", name)), cpu_of_lanes(width)
    x = np.random.default_rng(width).integers(0, 200, 150).astype(np.dtype(f"u{int(name[1:]) // 8}"))
    given = {"x": x, "y": np.zeros_like(x)}
    got, wanted = (one.compile_native(program).dispatch(given)["y"] for one in (device, vp.device("reference")))
    np.testing.assert_array_equal(got, wanted)
