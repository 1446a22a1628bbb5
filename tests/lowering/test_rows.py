"""Rows: components that lie side by side are one access, and every device computes what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest
import simt_host
from device_kinds import open_device

import vyre_py as vp
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import Load, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.parts import Aligned
from vyre_py.lowering.coarsen import aligned, coarsen
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import AdjacentAccess, Row, element_rows, further
from vyre_py.lowering.target import Target

PTX = Target("ptx", "sm_90")
TYPES = ("bool", "u8", "i16", "f16", "bf16", "f32", "u64", "f64")

# How lanes and their elements meet: neighbours, anywhere, one for all, some past the end, in workgroup memory, in a loop.
BODIES = {
    "neighbours": "buffer x: T[n] read; buffer y: T[n] read_write; let i = global_id.x; let v = x[i]; let w = y[i]; y[i] = select(i % 3u32 == 1u32, v, w)",
    "gather": "buffer at: u32[n] read; buffer x: T[m] read; buffer y: T[n] write; let i = global_id.x; if at[i] % 5u32 != 2u32 { y[i] = x[at[i]] }",
    "scatter": "buffer at: u32[n] read; buffer x: T[n] read; buffer y: T[m] read_write; let i = global_id.x; if i % 7u32 != 3u32 { y[at[i]] = x[i] }",
    "one for all": "buffer x: T[m] read; buffer y: T[n] write; buffer z: T[1] write; let i = global_id.x; y[i] = x[m - 2u32];"
                   " if i == 0u32 { z[0u32] = x[m + 1u32]; z[n] = x[0u32] }",
    "past the end": "buffer x: T[m] read; buffer y: T[n] write; let i = global_id.x; y[i - 2u32] = x[i + 3u32]",
    "workgroup": "buffer x: T[n] read; buffer y: T[n] write; workgroup s: T[32]; let i = global_id.x; let l = local_id.x; s[l] = x[i]; barrier;"
                 " y[i] = s[31u32 - l]",
    "copied": "buffer x: T[n] read; buffer y: T[n] write; workgroup s: T[32]; let i = global_id.x; let l = local_id.x; copy_async s[l] = x[i]; copy_wait 0;"
              " barrier; y[i] = s[31u32 - l]",
    "two axes": "buffer x: T[n, m] read; buffer y: T[n, m] write; let i = global_id.x; for k in 0u32..m { y[i, k] = x[i, m - 1u32 - k] }",
    "side by side in rows": "buffer x: T[m, n] read; buffer y: T[m, n] write; let i = global_id.x; for k in 0u32..m { y[k, i] = x[k, i + 1u32] }",
    "loop": "buffer x: T[m] read; buffer y: T[n] write; let i = global_id.x; for k in 0u32..m { if x[k] == x[i] { y[i] = x[k] } }",
}  # fmt: skip


def program(body: str, type_: str, workgroup: int = 32) -> Program:
    body = body.replace("if x[k] == x[i]", "if all(x[k] == x[i])").replace(": T[", f": {type_}[")
    dims = "n, m" if "[m" in body or ", m]" in body else "n"
    return parse(f"program p({dims}) workgroup({workgroup}) over(n) {{\n" + "\n".join(body.split(";")) + "\n}")


def arguments(made: Program, sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    """Arrays that begin on multiples of 16 bytes; `at` has every place once, some of them past the end."""
    numbers = np.random.default_rng(seed)
    given: dict[str, np.ndarray] = {}
    for memory in made.buffers:
        shape = [evaluate_dim(expr, sizes) for expr in memory.shape] + [memory.type.lanes] * memory.type.is_vector
        values = numbers.permutation(sizes["n"] + 5)[: sizes["n"]] if memory.name == "at" else numbers.integers(0, 2, shape)
        size = int(np.prod(shape)) * memory.type.scalar.size_bytes
        raw = np.zeros(size + 16, np.uint8)
        begin = -raw.ctypes.data % 16
        given[memory.name] = raw[begin : begin + size].view(memory.type.dtype).reshape(shape)
        given[memory.name][...] = values.astype(memory.type.dtype)
    return given


def copies(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in given.items()}


CASES = [(kind, f"{scalar}x{lanes}") for kind in BODIES for scalar in TYPES for lanes in (2, 3, 4)]


@pytest.mark.parametrize(("kind", "type_"), CASES, ids=lambda value: value)
def test_the_cpu_computes_what_the_interpreter_does(kind: str, type_: str) -> None:
    """In each width of lanes that a workgroup leads to, and over memory that begins anywhere."""
    for workgroup in (32,) if kind in ("workgroup", "copied") else (1, 5, 16, 64):
        made = program(BODIES[kind], type_, workgroup)
        for n, m in ((1, 2), (45, 50)):
            given = arguments(made, {"n": n, "m": m})
            want = open_device("reference").compile_native(made).dispatch(given)
            got = open_device("cpu").compile_native(made).dispatch(given)
            assert {name: array.tobytes() for name, array in got.items()} == {name: array.tobytes() for name, array in want.items()}


@pytest.mark.parametrize(("kind", "type_"), CASES, ids=lambda value: value)
def test_the_walk_for_gpus_does_too(kind: str, type_: str) -> None:
    made = program(BODIES[kind], type_)
    plain = prepare(made, PTX, CompileOptions())
    form = coarsen(plain) or aligned(plain)
    if form is None:
        assert type_.endswith("x3")
        return
    for sizes in ({"n": 1, "m": 2}, {"n": 45, "m": 50}):
        if any(evaluate_dim(need.expr, sizes) % need.by for need in form.needs if not isinstance(need, Aligned)):
            continue
        given = arguments(made, sizes)
        want, got = copies(given), arguments(made, sizes)
        interpret(plain, want, sizes)
        simt_host.run(plain, got, sizes, coarsened=form)
        simt_host.assert_same(made, got, want)


ROWS = {
    # the last axis, the indices that are read, and the row that they make
    "all of four": ("f32[n, 4]", (0, 1, 2, 3), Row((0, 1, 2, 3), 4)),
    "in any order": ("f32[n, 4]", (2, 0, 3, 1), Row((2, 0, 3, 1), 4)),
    "some of four": ("f32[n, 4]", (0, 3), Row((0, 3), 4)),
    "the lower half": ("f32[n, 4]", (0, 1), Row((0, 1), 2)),
    "the upper half": ("f32[n, 4]", (3, 2), Row((1, 0), 2)),
    "one of four": ("f32[n, 4]", (2,), None),
    "the second four of eight": ("f32[n, 8]", (4, 5, 6, 7), Row((0, 1, 2, 3), 4)),
    "across a border": ("f32[n, 8]", (3, 4), None),
    "three": ("f32[n, 3]", (0, 1, 2), None),
    "six": ("f32[n, 6]", (2, 3), Row((0, 1), 2)),
    "doubles": ("f64[n, 4]", (0, 1), Row((0, 1), 2)),
    "bytes": ("u8[n, 16]", (0, 5, 15), Row((0, 5, 15), 16)),
    "past the axis": ("f32[n, 4]", (3, 4), None),
    "one axis": ("f32[4]", (0, 1), Row((0, 1), 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_what_is_a_row_of_loads(name: str) -> None:
    type_, places, row = ROWS[name]
    first = "i, " if "n" in type_ else ""
    lets = "\n".join(f"  let v{k} = x[{first}{k}u32]" for k in places)
    stores = "\n".join(f"  y[i, {k}u32] = v{k}" for k in places)
    written = type_.partition("[")[0]
    head = f"  buffer x: {type_} read\n  buffer y: {written}[n, 99] write\n  let i = global_id.x"
    made = parse(f"program p(n) workgroup(64) over(n) {{\n{head}\n{lets}\n{stores}\n}}")
    found = element_rows(prepare(made, PTX, CompileOptions(opt=0)))
    assert [*found.values()] == ([row] if row is not None else [])


def test_a_row_of_stores_is_whole() -> None:
    text = "program p(n) workgroup(64) over(n) {{\n  buffer y: f32[n, 4] write\n  let i = global_id.x\n{}\n}}"
    for places, rows in (((0, 1, 2, 3), [Row((0, 1, 2, 3), 4)]), ((0, 1, 2), [Row((0, 1), 2)]), ((0, 2), []), ((1, 2), [])):
        made = parse(text.format("\n".join(f"  y[i, {k}u32] = 1.0" for k in places)))
        assert [*element_rows(prepare(made, PTX, CompileOptions())).values()] == rows


def test_a_load_between_others_of_another_place_ends_a_row() -> None:
    made = parse("""program p(n) workgroup(64) over(n) {
  buffer x: f32[n, 4] read
  buffer y: f32[n, 2] write
  let i = global_id.x
  let a = x[i, 0u32]
  let b = x[i + 1u32, 1u32]
  y[i, 0u32] = a
  y[i, 1u32] = b
}""")
    assert [*element_rows(prepare(made, PTX, CompileOptions())).values()] == [Row((0, 1), 2)]  # the stores alone


@pytest.mark.parametrize("type_", ["f32x2", "f32x4"])
def test_the_entry_for_whole_vectors_is_taken_where_memory_is_aligned(type_: str) -> None:
    made = program(BODIES["loop"], type_)
    (step,) = vp.compile_native(made, "compute_90").parts[0].steps
    size = {"f32x2": 8, "f32x4": 16}[type_]
    needs = {need.buffer: need.size_bytes for need in step.entries[0].needs if isinstance(need, Aligned)}
    assert needs == {"x": size, "y": size} and step.entries[0].elements == 1 and step.entries[1].needs == ()
    assert f".v{size // 4}.b32" in vp.compile_native(made, "compute_90").parts[0].steps[0].images[0].code.decode()


def test_options_keep_whole_vectors() -> None:
    made = program(BODIES["loop"], "f32x4")
    for options, entries in ((CompileOptions(interruptible=True), 2), (CompileOptions(persistent=True), 2), (CompileOptions(opt=1), 1)):
        assert len(vp.compile_native(made, "compute_90", options).parts[0].steps[0].entries) == entries


@pytest.mark.parametrize("first", [0, 4])
def test_half_a_line_is_no_neighbour_of_the_next_half(first: int) -> None:
    """Lanes step along the axis of lines, each of which is longer than what is read of it."""
    parts = ", ".join(f"x[1u32, i, {first + k}u32]" for k in range(4))
    made = parse(f"""program p(m) workgroup(4) over(4) {{
  buffer x: f32[m, 4, 8] read
  buffer y: f32x4[4] write
  let i = global_id.x
  y[i] = vec4({parts})
}}""")
    x = np.arange(64, dtype=np.float32).reshape(2, 4, 8)
    for kind in ("cpu", "reference"):
        got = open_device(kind).compile_native(made).dispatch({"x": x})["y"]
        assert np.array_equal(got, x[1, :, first : first + 4])


FURTHER = """
program p(n) workgroup(64) over(n) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  workgroup s: f32[68, 4]
  let i = global_id.x
  let l = local_id.x
  let v = x[i]
  s[l, 0u32] = v
  s[l, 1u32] = v * 2.0
  let last = 4u32 + l
  barrier
  s[last, 1u32] = v * 3.0
  barrier
  let a = s[l, 1u32]
  let b = s[last, 1u32]
  let c = s[l, 0u32]
  let before = l + 4294967295u32
  let d = s[before, 1u32]
  var e: f32 = 0.0
  if v < 0.5 {
    let f = s[last, 1u32]
    e = f
  }
  y[i] = (a - b) * c + d + e
}
"""


def test_loads_some_rows_further_have_one_address() -> None:
    """In one block, of one place in each row, and all inside: the row before may wrap, and what another block loaded may not have run."""
    plain = prepare(parse(FURTHER), PTX, CompileOptions())
    loads = [index for index, s in enumerate(plain.program.body) if isinstance(s, Load) and s.memory.space is Space.WORKGROUP]
    first, second = loads[:2]
    assert further(plain) == {first: AdjacentAccess(first, 0, 4), second: AdjacentAccess(first, 16, 4)}
    sizes = {"n": 150}
    given = {"x": np.random.default_rng(2).random(150).astype(np.float32), "y": np.zeros(150, np.float32)}
    want, got = copies(given), copies(given)
    interpret(plain, want, sizes)
    simt_host.run(plain, got, sizes)
    simt_host.assert_same(plain.program, got, want)
