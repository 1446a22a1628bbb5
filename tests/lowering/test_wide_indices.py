"""64-bit indices and buffers of 2^32 elements and more: which buffers and dims may be so large, what binding says of the others, and runs
over arrays of 4 GiB of which a few pages are ever touched.

The interpreter is the oracle elsewhere (tests/filetests/run/wide_indices.vir runs on every device); here its own results, and those of the GPU walk
run on the host, are compared with what plain Python expects. The last tests need a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simt_host
from device_kinds import open_device
from filetest import ROOT, read_cases, run_program
from ptxas import assemble

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import InterpretError, interpret
from vyre_py.ir.language.nodes import Const, Let, MemoryStatement
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32, u64
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.layout import SlotKind, lay_out
from vyre_py.lowering.legal.indices import narrow_indices
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

WORD = 1 << 32
LARGE = WORD + 4097
PTX = Target("ptx", "sm_90")
ARCHS = ("sm_75", "sm_90", "sm_120")

Array = np.ndarray[Any, Any]


def large(*shape: int) -> Array:
    """Zeros of u8, of which the system provides the pages that are touched."""
    try:
        return np.zeros(shape, np.uint8)
    except MemoryError:
        pytest.skip(f"this system reserves no {np.prod(shape)} bytes")


def fill(grid: int = 4096) -> Program:
    """Writes to each element of an array the sum of its index' bytes 0 and 4, in a loop with the stride of the grid."""
    with vp.ProgramBuilder("fill") as b:
        n = b.dim("n")
        y = b.write("y", vp.u8, n)
        b.grid(grid)
        count = vp.cast(n, vp.u64)
        stride = vp.cast(b.num_workgroups(0), vp.u64) * vp.cast(b.workgroup_size(0), vp.u64)
        i = b.var("i", vp.u64, vp.cast(b.global_id(0), vp.u64))
        with b.loop():
            with b.if_(i >= count):
                b.break_()
            y[i] = vp.cast(i + (i >> 32), vp.u8)
            i += stride
    return b.program


def filled(first: int, stop: int) -> Array:
    """What `fill` writes to a range of elements."""
    index = np.arange(first, stop, dtype=np.uint64)
    return (index + (index >> np.uint64(32))).astype(np.uint8)


def exchange(type_: str) -> Program:
    """Puts i + 1 into element at[i] of y, and what was there into old[i]; y is wide whatever type the indices have."""
    return parse(f"""program exchange_{type_}(n, m) workgroup(32) over(m) {{
  buffer at: {type_}[m] read
  buffer y: u8[n] read_write
  buffer old: u8[m] write
  let i = global_id.x
  if i < m {{
    old[i] = y[at[i]] + y[281474976710655u64]
    y[at[i]] = cast(i, u8) + 1
  }}
}}""")


# Distinct, so that no two invocations meet; in every type, those that it holds.
PLACES = (
    0, 7, (1 << 31) - 1, 1 << 31, WORD - 2, WORD - 1, WORD, WORD + 1, WORD + 9, LARGE - 1, LARGE, LARGE + 1, 2 * WORD - 1, 2 * WORD, 2 * WORD + 11,
    3 * WORD + 13, 1 << 48, (1 << 63) - 1, 1 << 63, (1 << 63) + WORD + 17, (1 << 64) - 1, (1 << 64) - WORD + 19,
    -1, -7, -(1 << 31), -WORD, 21 - WORD, 23 - 2 * WORD, -(1 << 63),
)  # fmt: skip


def of_type(type_: str) -> list[int]:
    ends = np.iinfo(getattr(vp, type_).dtype)
    return [place for place in PLACES if ends.min <= place <= ends.max]


def machine(name: str) -> Callable[[Program, dict[str, Any], dict[str, int]], None]:
    """Runs a Program in place: by the interpreter, by the GPU walk with its passes or without, or on the CPU, whose code for small arrays is not taken."""
    if name == "cpu":
        return lambda program, arguments, sizes: open_device("cpu").compile_native(program).bind(arguments)()
    if name == "interpreter":
        return lambda program, arguments, sizes: interpret(unoptimised(check(program), expand=EXPANDED_ONLY), arguments, sizes)
    options = CompileOptions(opt=0) if name == "plain walk" else CompileOptions()
    return lambda program, arguments, sizes: simt_host.run(prepare(check(program), PTX, options), arguments, sizes)


MACHINES = ("interpreter", "plain walk", "walk", "cpu")

# ---------------------------------------------------------------- past 2^32 elements


@pytest.mark.parametrize("type_", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("name", MACHINES)
def test_elements_past_words(name: str, type_: str) -> None:
    places = of_type(type_)
    at, y, old = np.array(places, getattr(vp, type_).dtype), large(LARGE), np.full(len(places), 99, np.uint8)
    inside = {place: number + 1 for number, place in enumerate(places) if 0 <= place < LARGE}
    for place in inside:
        y[place] = 100 + place % 97
    run = machine(name)
    run(exchange(type_), {"at": at, "y": y, "old": old}, {"n": LARGE, "m": len(places)})
    assert old.tolist() == [100 + place % 97 if place in inside else 0 for place in places]
    assert {place: int(y[place]) for place in inside} == inside
    # Where a place that lies outside would lie by its low word, or one bit less, nothing has been written.
    for place in places:
        for alias in (place % WORD, place % (2 * WORD), place % (1 << 48)):
            assert alias >= LARGE or alias in inside or y[alias] == 0, f"{place} was written to {alias}"


@pytest.mark.parametrize("indices", ["u32, u64", "u64, u32", "i32, i64", "i64, i64", "u32, i32"])
@pytest.mark.parametrize("name", MACHINES)
def test_axes_that_are_words_and_counts_that_are_not(name: str, indices: str) -> None:
    side = 70_000
    first, second = indices.split(", ")
    program = parse(f"""program corners(r, c, m) workgroup(8) over(m) {{
  buffer row: {first}[m] read
  buffer column: {second}[m] read
  buffer y: u8[r, c] read_write
  buffer seen: u8[m] write
  let i = global_id.x
  if i < m {{
    y[row[i], column[i]] = cast(i, u8) + 1
    seen[i] = y[row[i], column[i]] + y[0u64, 0u64]
  }}
}}""")
    places = [(1, 2), (65_000, 65_000), (side - 1, side - 1), (side - 1, 0), (61_356, 47_295), (61_356, 47_296), (side, 0), (0, side), (-1, 3), (3, -1)]
    places = [place for place in places if min(place) >= 0 or "u" not in indices]
    y, seen = large(side, side), np.zeros(len(places), np.uint8)
    row, column = (np.array(column, getattr(vp, t).dtype) for column, t in zip(zip(*places, strict=True), (first, second), strict=True))
    machine(name)(program, {"row": row, "column": column, "y": y, "seen": seen}, {"r": side, "c": side, "m": len(places)})
    inside = [max(place) < side and min(place) >= 0 for place in places]
    assert seen.tolist() == [number + 1 if here else 0 for number, here in enumerate(inside)]
    assert [int(y[place]) for place, here in zip(places, inside, strict=True) if here] == [n + 1 for n, here in enumerate(inside) if here]


def test_the_reference_device_walks_past_words() -> None:
    device = open_device("reference")
    y = device.allocate(LARGE, vp.u8)
    pokes, at = exchange("u64"), np.array([5, WORD + 5, LARGE - 1, LARGE, 2 * WORD + 6, (1 << 64) - 1], np.uint64)
    launch = device.compile_native(pokes).bind({"at": device.upload(at), "y": y, "old": device.allocate(6, vp.u8)})
    launch()
    assert y[WORD : WORD + 8].read().tolist() == [0, 0, 0, 0, 0, 2, 0, 0]
    assert y[:8].read().tolist() == [0, 0, 0, 0, 0, 1, 0, 0] and y[LARGE - 2 :].read().tolist() == [0, 3]
    y[WORD - 2 : WORD + 2].write(np.array([7, 8, 9, 10], np.uint8))
    assert y[WORD - 3 : WORD + 3].read().tolist() == [0, 7, 8, 9, 10, 0]


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu", "cuda"])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 100_003])
def test_a_loop_over_64_bits_walks_an_array(kind: str, n: int) -> None:
    device = open_device(kind)
    assert (device.compile_native(fill(16)).dispatch(n=n)["y"] == filled(0, n)).all()


# ---------------------------------------------------------------- which are wide

WIDTHS = {
    "y[global_id.x] = 1": "",
    "y[cast(global_id.x, u64)] = 1": "y n",
    "y[-1i64] = 1": "y n",
    "y[0u32] = y[1i64]": "y n",
    "y[0u32] = 1\n y[1i64] = 2": "y n",
    "tile[cast(global_id.x, u64)] = 1\n y[0u32] = tile[1u32]": "",
    "y[global_id.x] = cast(cast(n, u64), u8)": "",  # n is an axis of y, which is narrow
    "y[global_id.x] = cast(cast(m, u64), u8)": "m",
    "y[global_id.x] = cast(cast(m, i64), u8)": "m",
    "y[global_id.x] = cast(cast(dim(m * n), i64), u8)": "m",
    "y[global_id.x] = cast(cast(m, u64), u8)\n y[m] = 1": "",  # m is a u32 as well
    "y[global_id.x] = cast(m, u8)": "",
    "z[0u64, 0u32] = 1\n y[0u32] = 1": "m z",
    "z[0u64, 0u32] = 1\n y[0u64] = 1": "m n y z",
    "z[0u32, 0u32] = 1\n y[0u32] = 1": "",
    "z[0u32, 0u32] = 1": "y",  # what is not accessed is as large as it likes; n is an axis of z
    "big[0u32, 0u32] = 1\n y[0u32] = 1": "big",
    "return": "y n",
}


@pytest.mark.parametrize("body", WIDTHS)
def test_which_buffers_and_dims_are_wide(body: str) -> None:
    declared = {"z": "buffer z: u8[n, m * n] read_write", "big": "buffer big: u8[65536, 65536] read_write", "tile": "workgroup tile: u8[64]"}
    used = "\n  ".join(text for name, text in declared.items() if name in body)
    program = parse(f"program p(n, m) over(1) {{\n  buffer y: u8[n] read_write\n  {used}\n  {body}\n}}")
    assert check(program).program.widths.names == set(WIDTHS[body].split())


def test_slots_of_sizes() -> None:
    """u32 and u64 side by side: each begins on a multiple of its size, and the same size may be there in both."""
    program = parse("""program p(n, m, k) over(1) {
  buffer x: u8[n, m] read
  buffer y: u8[m] read_write
  y[0u32] = 1
  let w = cast(k, u64)
  y[global_id.x] = x[cast(global_id.x, u64), 0u32] + cast(w, u8) + cast(dim(m + k), u8)
}""")
    layout = lay_out(check(program).program)
    slots = [(str(s.expr.name if hasattr(s.expr, "name") else "m + k"), s.type, s.offset_bytes) for s in layout.slots if s.kind is SlotKind.EXTENT]
    assert slots == [("m", u32, 16), ("k", u64, 24), ("n", u64, 32), ("m", u64, 40), ("m + k", u32, 48)]
    assert layout.size_bytes == 52 and layout.wide == {"x", "n", "k"}


def test_narrow_programs_are_as_they_were() -> None:
    """One access in 64 bits changes the slots of its own buffer alone."""
    text = """program p(n, m) workgroup(64) over(n) {{
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  buffer z: u8[m] read_write
  y[global_id.x] = x[global_id.x]
  {}
}}"""
    plain, mixed = (parse(text.format(body)) for body in ("z[local_id.x] = 1", "z[cast(local_id.x, u64)] = 1"))
    for name, program in (("plain", plain), ("mixed", mixed)):
        types = {str(s.expr.name): s.type for s in lay_out(program).slots if s.kind is SlotKind.EXTENT}  # type: ignore[union-attr]  # a dim
        assert types == {"n": u32, "m": u32 if name == "plain" else u64}
    lines = [re.sub(r"%\w+|BB\d+_\d+", "%", emit_text(p, "sm_90")).partition("st.global.b32")[0].splitlines() for p in (plain, mixed)]
    assert [line for line in lines[0] if "setp" in line] == [line for line in lines[1] if "setp" in line]


# ---------------------------------------------------------------- binding

NARROW = "program p(n, m) over(1) { buffer y: u8[n, m] read_write\n y[0u32, 0i32] = 1 }"
WIDE = "program p(n, m) over(1) { buffer y: u8[n, m] read_write\n y[0u64, 0i32] = 1 }"


def refusal(device: Device, text: str | Program, arguments: dict[str, Any], **options: Any) -> str:
    """What binding says; the arrays have an axis without elements, so that they take no memory."""
    program = text if isinstance(text, Program) else parse(text)
    with pytest.raises(vp.BindingError) as caught:
        device.compile_native(program).dispatch(arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["reference", "cpu", "wgpu", "cuda"])
def test_narrow_buffers_stay_below_words(kind: str) -> None:
    device = open_device(kind)
    said = refusal(device, NARROW, {"y": np.zeros((0, WORD), np.uint8)})
    assert "'y' has 0 elements; fewer than 2^32 are needed where all indices are i32 and u32: index with u64" in said
    assert device.compile_native(parse(NARROW)).dispatch(y=np.zeros((0, WORD - (1 << 18)), np.uint8))["y"].size == 0


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda"])
def test_wide_buffers_stay_below_2_to_the_48(kind: str) -> None:
    device = open_device(kind)
    for size in (WORD, (1 << 48) - 1):
        assert device.compile_native(parse(WIDE)).dispatch(y=np.zeros((0, size), np.uint8))["y"].shape == (0, size)
    assert "fewer than 2^48 are needed" in refusal(device, WIDE, {"y": np.zeros((0, 1 << 48), np.uint8)})


CONSTANT = "program p over(1) { buffer y: u8[65536, 65536] read_write\n y[0u32, 0u32] = 1\n y[65535u32, 65534u32] = y[0u32, 0u32] + 1 }"


def test_devices_of_words_say_so() -> None:
    device = open_device("wgpu")
    said = refusal(device, WIDE, {"y": np.zeros((0, WORD), np.uint8)})
    assert f"{device.name} takes at most {device.limits.elements}" in said and "index with u64" not in said
    for target in ("wgsl", "cpu:x86-64-v3", "cpu:native:8"):
        with pytest.raises(vp.Unsupported, match=r"4294967296 elements of 'y'.*fewer than 2\^32"):
            vp.compile_native(parse(CONSTANT), target)


def test_the_cpu_has_other_code_for_large_arrays() -> None:
    """One lane, made when such an array comes first; what an artifact has of it, else it says what it lacks."""
    device, y = open_device("cpu"), large(65536, 65536)
    device.compile_native(parse(CONSTANT)).bind(y=y)()
    assert y[0, :2].tolist() == [1, 0] and y[-1, -3:].tolist() == [0, 2, 0]
    program, flat = exchange("i64"), y.reshape(-1)
    pipeline = device.compile_native(program)
    entry = pipeline.callable()
    for given, seen in ((np.zeros(9, np.uint8), [0, 0]), (flat, [1, 2]), (np.zeros(9, np.uint8), [0, 0]), (flat, [1, 2])):
        given[0], given[-2] = 1, 2
        at, old = np.array([0, WORD - 2]), np.zeros(2, np.uint8)
        entry(at, given, old) if seen[1] else pipeline.bind(at=at, y=given, old=old)()
        assert old.tolist() == [1, seen[1]] and given[0] == 1 and given[-2] == 2
    with pytest.raises(vp.BindingError, match=r"'y' has 4294967296 elements; in the code for cpu:0 it has at most 4294705152"):
        device.load(vp.compile_native(program, "cpu")).bind(at=at, y=flat, old=old)
    both = device.load(vp.compile_native(program, ["cpu", "cpu:native:1"]))
    assert both.part.target.name == "cpu"
    flat[0] = 7
    both.bind(at=at, y=flat, old=old)()
    assert old.tolist() == [7, 2] and flat[0] == 1
    narrow = parse("program p(n) over(1) { buffer y: u8[n] read_write\n y[0u32] = 1 }")
    with pytest.raises(vp.BindingError, match="fewer than 2\\^32 are needed"):
        device.compile_native(narrow).bind(y=flat)


def test_one_lane_computes_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases of all kinds of memories, by the code that large arrays have."""
    device = open_device("cpu")
    device.trim()
    monkeypatch.setattr(device, "target", parse_target("cpu:native:1"))
    for case in read_cases(ROOT / "run" / "wide_indices.vir"):
        run_program(case, "cpu")
    device.trim()


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda"])
def test_a_size_taken_whole(kind: str) -> None:
    """A dim of no array, taken whole: up to 2^48 - 1, and not from there on."""
    device = open_device(kind)
    program = parse("""program p(n, m) over(1) {
  buffer y: u64[3] write
  y[0u32] = cast(n, u64)
  y[1u32] = cast(dim(n * 2 - m), u64)
  y[2u32] = cast(cast(n, i64), u64)
}""")
    for n in (0, 1, WORD - 1, WORD, (1 << 46) + 5):
        assert device.compile_native(program).dispatch(n=n, m=0)["y"].tolist() == [n, 2 * n, n]
    assert "dim 'n' is a whole number from 0 to 2^48 - 1" in refusal(device, program, {"n": 1 << 48, "m": 0})
    assert "outside 0 to 2^48 - 1" in refusal(device, program, {"n": (1 << 48) - 1, "m": 0})
    assert "-1, which is outside" in refusal(device, program, {"n": 0, "m": 1})


def test_webgpu_takes_sizes_as_words() -> None:
    device = open_device("wgpu")
    said = refusal(device, "program p(n) over(1) { buffer y: u64[1] write\n y[0u32] = cast(n, u64) }", {"n": WORD})
    assert f"'n' is {WORD}; in the code for {device.name} it is below 2^32" in said


@pytest.mark.parametrize("kind", ["reference", "cpu", "cuda"])
def test_a_size_used_as_a_word(kind: str) -> None:
    device = open_device(kind)
    text = "program p(n, m) over(1) { buffer y: u8[m, n] read_write\n buffer z: u32[1] write\n y[0u64, 0u64] = 1\n z[0u32] = n }"
    if device.limits.elements >= WORD or device.takes_wide:
        said = refusal(device, text, {"y": np.zeros((0, WORD + 1), np.uint8)})
        assert f"dim 'n' is {WORD + 1} from axis 1 of 'y', and the Program uses it as a u32, below 2^32: vp.cast(n, vp.u64) takes it whole" in said
        twice = text.replace("= n }", "= dim(n * 2) }")
        said = refusal(device, twice, {"y": np.zeros((0, WORD // 2), np.uint8)})
        assert f"a size used as a value is {WORD}, which is outside 0 to 2^32 - 1; vp.cast(size, vp.u64) takes it whole" in said
    assert "2^32 - 1, got" in refusal(device, "program p(n) over(1) { buffer z: u32[1] write\n z[0u32] = n }", {"n": WORD})


def test_a_grid_over_a_large_array_is_refused_with_a_cure() -> None:
    device = open_device("reference")
    with vp.ProgramBuilder("each") as b:
        y = b.write("y", vp.u8, b.dim("n"))
        y[vp.cast(b.global_id(0), vp.u64)] = 1
    pipeline, buffer = device.compile_native(b.program), device.allocate(LARGE, vp.u8)
    with pytest.raises(vp.BindingError, match="walk the array in a loop"):
        pipeline.bind(y=buffer)
    pipeline.bind(y=buffer, config=vp.DispatchConfig(grid=(1, 1, 1)))()
    assert buffer[:258].read().tolist() == [1] * 256 + [0, 0]


def test_code_that_lost_its_wide_accesses_is_not_given_large_arrays() -> None:
    """The load that made y wide has no effect and is left out: what remains counts in 32 bits, whatever the Program said."""
    device = open_device("reference")
    text = """program p(n, m, k) over(1) {
  buffer y: u8[n, m] read_write
  let unused = y[0u64, 0u64] + cast(cast(k, u64), u8)
  y[0u32, 0u32] = 1
}"""
    assert parse(text).widths.names == {"y", "n", "m", "k"}
    said = refusal(device, text, {"y": np.zeros((0, WORD), np.uint8), "k": WORD})
    assert "'y' has 0 elements; in the code for reference:0 it has fewer than 2^32" in said and "dim 'k' is 4294967296; in the code" in said
    assert device.compile_native(parse(text)).dispatch(y=np.zeros((2, 2), np.uint8), k=WORD - 1)["y"].tolist() == [[1, 0], [0, 0]]


def test_the_interpreter_refuses_sizes_that_are_none() -> None:
    program = unoptimised(check(parse("program p(n) over(1) { buffer z: u32[1] write\n z[0u32] = n }")), expand=frozenset())
    with pytest.raises(InterpretError, match="a size used as a u32 is 4294967296"):
        interpret(program, {"z": np.zeros(1, np.uint32)}, {"n": WORD})


# ---------------------------------------------------------------- the builder and the text


def test_numbers_and_sizes_in_the_builder() -> None:
    with vp.ProgramBuilder("p") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.u8, n + 6 * 2**30), b.write("y", vp.u8, 6 * 2**30)
        y[WORD] = x[-1] + x[-WORD] + x[5] + x[(1 << 64) - 1]
        b.grid(1)
        total = vp.cast(n + 6 * 2**30, vp.u64)
        y[total - 1] = vp.cast(total >> 32, vp.u8)
    indices = [[f"{a.type}:{a.value}" for a in s.indices if isinstance(a, Const)] for s in b.program.body if isinstance(s, MemoryStatement)]
    assert indices == [["i32:-1"], [f"i64:{-WORD}"], ["u32:5"], [f"u64:{(1 << 64) - 1}"], [f"u64:{WORD}"], []]
    check(b.program)
    for again in (parse(print_program(b.program)), Program.from_bytes(b.program.to_bytes()), Program.from_json(b.program.to_json())):
        assert again == b.program
    with pytest.raises(vp.ValidationError, match="is i32, u32, i64 or u64, got f32"), vp.ProgramBuilder("q") as b:
        b.write("y", vp.u8, 4)[b.param("a", vp.f32)] = 1
    with vp.ProgramBuilder("q") as b:
        y = b.write("y", vp.u32, 4)
        b.over(4)
        y[0] = vp.max(b.dim("n"), 6 * 2**30)  # a size, which is a u32 here
    check(b.program)


def test_a_size_taken_whole_stays_whole() -> None:
    """Casts of the cast are not made casts of the size, which as a u32 would have to be one."""
    text = """program p(n) over(1) {
  buffer y: f64[2] write
  buffer z: u32[2] write
  let w = cast(n, u64)
  y[0u32] = cast(w, f64)
  z[0u32] = cast(w, u32)
  z[1u32] = cast(cast(w, i64), u32)
}"""
    made = prepare(parse(text), parse_target("reference"), CompileOptions()).program
    assert all(s.type is u64 for s in lay_out(made).slots if s.kind is SlotKind.EXTENT)
    out = open_device("reference").compile_native(parse(text)).dispatch(n=WORD + 7)
    assert out["y"][0] == WORD + 7 and out["z"].tolist() == [7, 7]


# ---------------------------------------------------------------- rewrites and code


def test_what_indices_become_on_devices_of_words() -> None:
    program = parse("""program p(n, m) over(m) {
  param k: u64
  buffer at: i64[m] read
  buffer y: u8[n] read_write
  let i = global_id.x
  let s = cast(i, i32) - 5
  y[cast(i, u64)] = 1
  y[cast(s, i64)] = 2
  y[cast(s, u64)] = 3
  y[at[i]] = 4
  y[k] = 5
  y[7i64] = 6
  y[-1i64] = 7
  y[4294967298u64] = 8
  y[cast(n, u64)] = 9
}""")
    made = narrow_indices(check(program).program)
    check(made)
    assert not made.widths.buffers - {m for m in made.buffers if m.name not in ("y", "at")}
    stores = [s for s in made.body if isinstance(s, MemoryStatement) and s.memory.name == "y"]
    named = {s.bound.id: s.op.name for s in made.body if isinstance(s, Let)}
    kinds = [str(a.value) if isinstance(a, Const) else named[a.id] for a in (s.indices[0] for s in stores)]  # type: ignore[union-attr]  # a value
    assert kinds == ["global_id.x", "sub", "sub", "cast", "cast", "7", str(WORD - 1), str(WORD - 1), "cast"]
    assert narrow_indices(made) is made


def battery() -> list[Program]:
    """Accesses of each kind, at indices of each type."""
    made = [fill()]
    for type_ in ("i32", "u32", "i64", "u64"):
        made.append(exchange(type_))
        made.append(parse(f"""program all_{type_}(n, m, k) workgroup(64) over(m) {{
  buffer at: {type_}[m] read
  buffer x: f32x3[n, k] read
  buffer y: u32[k, n * 2 + 1] read_write
  buffer w: u64[n] read_write
  workgroup tile: i32[64]
  private own: f64[4]
  table t: u8[3] = [1, 2, 3]
  let i = at[global_id.x]
  let v = x[i, 2u64]
  tile[i] = cast(v.x, i32) + cast(t[i], i32)
  own[i] = cast(v.y, f64)
  barrier
  let u = uniform_load(w[cast(workgroup_id.x, u64)])
  atomic_add(y[cast(k, u64) - 1, i], cast(u, u32))
  atomic_max(tile[i], 5)
  let old = atomic_compare_exchange(w[i], 1, u)
  barrier
  y[i, -3i64] = cast(tile[i], u32) + cast(own[i], u32) + cast(old, u32)
}}"""))
    return made


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("opt", [0, 3])
def test_ptx_assembles(arch: str, opt: int) -> None:
    for program in battery():
        for part in compile_for(program, [Target("ptx", arch)], CompileOptions(opt=opt)).parts:  # type: ignore[arg-type]  # two of its levels
            assemble(part.steps[0].images[0].code.decode(), arch)


def test_the_battery_lowers_everywhere_or_is_refused_by_name() -> None:
    for program in battery():
        assert compile_for(program, [parse_target("cpu"), parse_target("reference")]).interface.wide >= {"y"}
        if "atomic" in print_program(program):
            with pytest.raises(vp.Unsupported, match="atomic compare_exchange on u64"):
                compile_for(program, [parse_target("wgsl")])
        else:
            assert compile_for(program, [parse_target("wgsl")])


# ---------------------------------------------------------------- on a GPU

SIX_GIB = 6 * 2**30 + 12_345


def resident(device: Device, count: int) -> vp.Buffer:
    try:
        return device.allocate(count, vp.u8)
    except vp.OutOfMemory as error:
        pytest.skip(f"{device.name} has not so much memory: {error}")


def assert_filled(y: vp.Buffer, ranges: Sequence[tuple[int, int]]) -> None:
    for first, stop in ranges:
        got, want = y[first:stop].read(), filled(first, stop)
        wrong = np.flatnonzero(got != want)
        assert not wrong.size, f"{wrong.size} of elements {first} to {stop} differ, the first at {first + wrong[0]}: {got[wrong[0]]}, expected {want[wrong[0]]}"


def test_six_gibibytes_on_a_gpu() -> None:
    """Filled by a grid-stride loop over u64 indices; then single elements by indices of every type, those outside dropped and read as zero."""
    device = open_device("cuda")
    y = resident(device, SIX_GIB)
    edges = [(0, 4096), (WORD // 2 - 64, WORD // 2 + 64), (WORD - 4096, WORD + 4096), (WORD + 2**30, WORD + 2**30 + 64), (SIX_GIB - 4096, SIX_GIB)]
    device.compile_native(fill()).bind(y=y)()
    assert_filled(y, edges)
    sampled = np.random.default_rng(0).integers(0, SIX_GIB - 256, 64).tolist()
    assert_filled(y, [(first, first + 256) for first in sampled])

    for type_ in ("i32", "u32", "i64", "u64"):
        dtype = getattr(vp, type_).dtype
        ends = np.iinfo(dtype)
        places = [
            3, WORD - 1, WORD, WORD + 5, SIX_GIB - 1, SIX_GIB, SIX_GIB + 1, 2 * WORD - 3, 2 * WORD, 2 * WORD + 5, 3 * WORD + 5, (1 << 63) + 7, (1 << 64) - 1,
            -1, 7 - WORD, -WORD,
        ]  # fmt: skip
        places = [place for place in places if ends.min <= place <= ends.max]
        inside = [0 <= place < SIX_GIB for place in places]
        before = [int(filled(place, place + 1)[0]) if here else 0 for place, here in zip(places, inside, strict=True)]
        old = device.allocate(len(places), vp.u8)
        device.compile_native(exchange(type_)).bind({"at": device.upload(np.array(places, dtype)), "y": y, "old": old})()
        assert old.read().tolist() == before, f"{type_}: loads at {places}"
        now = [int(y[place : place + 1].read()[0]) for place, here in zip(places, inside, strict=True) if here]
        assert now == [number + 1 for number, here in enumerate(inside) if here], f"{type_}: stores at {places}"
        for place, here in zip(places, inside, strict=True):
            if here:
                y[place : place + 1].write(filled(place, place + 1))
        assert_filled(y, edges)  # nothing went anywhere else by its low word
    y.free()


def test_more_than_four_gibibytes_go_in_and_out_of_a_gpu() -> None:
    device = open_device("cuda")
    count = WORD + 2**28 + 1
    try:
        host, back = np.empty(count, np.uint8), np.empty(count, np.uint8)
    except MemoryError:
        pytest.skip(f"this system has no 2 x {count} bytes for host arrays")
    for first in range(0, count, 2**28):
        host[first : first + 2**28] = filled(first, min(first + 2**28, count))
    y = resident(device, count)
    y.write(host)
    assert_filled(y, [(0, 4096), (WORD - 4096, WORD + 4096), (count - 4096, count)])
    y.read(back)
    assert np.array_equal(back, host)
    copy = resident(device, count)
    copy.copy_from(y)
    assert_filled(copy, [(WORD - 4096, WORD + 4096), (count - 4096, count)])
    out = device.compile_native(fill()).dispatch(n=count, out={"y": back})["y"]
    assert out is back and np.array_equal(back, host)


def test_words_and_wide_sizes_share_a_launch_on_a_gpu() -> None:
    """Slots of 4 and 8 bytes side by side arrive where the kernel reads them."""
    device = open_device("cuda")
    program = parse("""program slots(n, m, k) over(1) {
  param a: u8
  buffer x: u8[n, m] read
  buffer y: u64[m] read_write
  let w = cast(k, u64)
  y[0u32] = w
  y[1u32] = cast(dim(m + 3), u64)
  y[2u32] = cast(m, u64) + cast(a, u64)
  y[3u32] = cast(x[cast(n, u64) - 1, cast(m, u64) - 1], u64)
  y[4u32] = cast(m, u64) + cast(dim(m * 2), u64)
}""")
    x = np.arange(15, dtype=np.uint8).reshape(3, 5)
    arguments = {"x": x, "y": np.zeros(5, np.uint64), "a": 9, "k": (1 << 40) + 1}
    want = open_device("reference").compile_native(program).dispatch(arguments)["y"].tolist()
    assert want == [(1 << 40) + 1, 8, 14, 14, 15]
    assert device.compile_native(program).dispatch(arguments)["y"].tolist() == want
    assert device.compile_native(replace(program, workgroup=(32, 1, 1)), CompileOptions(opt=0)).dispatch(arguments)["y"].tolist() == want
