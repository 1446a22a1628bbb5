"""Coarsening: the Program that comes out means what the one that goes in does, and each launch takes the entry that its arguments allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import simt_host
from filetest import files, read_cases, run_program
from generator import Seeded, generate

import vyre_py as vp
import vyre_py.drivers.reference.device as reference_device
from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.launch import choose_entry
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DimConst, Grid, evaluate_dim
from vyre_py.ir.language.grids import first_written
from vyre_py.ir.language.nodes import Const, Let
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.parts import Aligned, Divisible
from vyre_py.lowering.coarsen import Coarsened, coarsen
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

TARGET = Target("ptx", "sm_90")
PLAIN = CompileOptions()

# What is coarsened: the body's elements, and what memory has to begin on a multiple of.
KINDS = {
    "axpy": ("param a: f32; buffer x: f32[n] read; buffer y: f32[n] read_write; let i = global_id.x; y[i] = a * x[i] + y[i]", 4, {"x": 16, "y": 16}),
    "bytes": ("buffer x: u8[n] read; buffer y: u8[n] write; let i = global_id.x; y[i] = x[i] + 3u8", 16, {"x": 16, "y": 16}),
    "halves": ("buffer x: f16[n] read; buffer y: f16[n] write; let i = global_id.x; y[i] = x[i] * x[i]", 8, {"x": 16, "y": 16}),
    "doubles": ("buffer x: f64[n] read; buffer y: f64[n] write; let i = global_id.x; y[i] = sqrt(x[i])", 2, {"x": 16, "y": 16}),
    "mixed": ("buffer x: u8[n] read; buffer y: f32[n] write; let i = global_id.x; y[i] = cast(x[i], f32)", 4, {"x": 4, "y": 16}),
    "bools": ("buffer x: f32[n] read; buffer y: bool[n] write; let i = global_id.x; y[i] = x[i] > 1.0", 4, {"x": 16, "y": 4}),
    "triples": ("buffer x: f32x3[n] read; buffer y: f32[n] write; let i = global_id.x; y[i] = dot(x[i], x[i])", 4, {"x": 16, "y": 16}),
    "whole": ("buffer x: f32x4[n] read; buffer y: f32x4[n] write; let i = global_id.x; y[i] = x[i] + x[i]", 1, {"x": 16, "y": 16}),
    "neighbours": ("buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; y[i] = x[i] + x[i + 1u32] - x[n - i]", 4, {"x": 16, "y": 16}),
    "two sizes": ("buffer x: u32[m] read; buffer z: u32[n] read; buffer y: u32[n] write; let i = global_id.x; y[i] = x[i] + z[i]", 4, {"y": 16, "z": 16}),
    "another row each": ("buffer x: f32[2, n] read; buffer y: f32[n] write; let i = global_id.x; y[i] = x[i & 1u32, i]", 4, {"x": 16, "y": 16}),
    "rows by a table": (
        "buffer k: u32[n] read; buffer x: f32[3, n] read; buffer y: f32[n] write; let i = global_id.x; y[i] = x[min(k[i], 2u32), i]",
        4, {"k": 16, "x": 16, "y": 16},
    ),
    "another component each": ("buffer x: f32[n, 2] read; buffer y: f32[n] write; let i = global_id.x; y[i] = x[i, i & 1u32]", 2, {"x": 16, "y": 8}),
    "stores to other rows": (
        "over(n); buffer x: u32[n] read; buffer y: u32[2, n] write; let i = global_id.x; y[i & 1u32, i] = x[i] + 1u32", 4, {"x": 16, "y": 16},
    ),
    "fill": ("param a: f32; buffer y: f32[n] write; let i = global_id.x; y[i] = a", 4, {"y": 16}),
    "table": ("table t: u32[4] = [9, 8, 7, 6]; buffer y: u32[n] write; let i = global_id.x; y[i] = t[i % 4u32] + i", 4, {"y": 16}),
    "gather": ("buffer at: u32[n] read; buffer x: f32[m] read; buffer y: f32[n] write; let i = global_id.x; y[i] = x[at[i]]", 4, {"at": 16, "y": 16}),
    "one of them": (
        "buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; if x[i] > 1.0 { y[i] = x[i] } else { y[i] = 7.0 }", 4, {"x": 16, "y": 16},
    ),
    "some": ("buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; if i < n { if x[i] > 1.0 { y[i] = x[i] } }", 4, {"x": 16, "y": 16}),
    "the same for all": (
        "param k: u32; buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; if k > 2u32 { y[i] = x[i] } else { y[i] = 0.5 }",
        4, {"x": 16, "y": 16},
    ),
    "a store elsewhere, under its check": (
        "over(n); buffer x: u32[n] read; buffer y: u32[n] write; buffer z: u32[n] write; let i = global_id.x; if i < n { y[i] = x[i]; z[n - 1u32 - i] = x[i] }",
        4, {"x": 16, "y": 16},
    ),
    "variables": (
        "buffer x: u32[n] read; buffer y: u32[n] write; let i = global_id.x; var v: u32 = x[i]; if v > 5u32 { v = v * 2u32 }; y[i] = v + i",
        4, {"x": 16, "y": 16},
    ),
    "two stores": (
        "buffer x: u32[n] read; buffer y: u32[n] write; buffer z: u16[n] write; let i = global_id.x; y[i] = x[i]; z[i] = cast(x[i] + 1u32, u16)",
        4, {"x": 16, "y": 16, "z": 8},
    ),
    "rows": ("buffer x: f32[m, n] read; buffer b: f32[n] read; buffer y: f32[m, n] write; let i = global_id.x; let j = global_id.y; y[j, i] = x[j, i] + b[i]",
             4, {"x": 16, "b": 16, "y": 16}),
}  # fmt: skip

# What is not, since something else could be seen, or nothing would be won.
NOT = {
    "local place": "buffer y: u32[n] write; let i = global_id.x; y[i] = local_id.x",
    "number of workgroups": "buffer y: u32[n] write; let i = global_id.x; y[i] = num_workgroups.x",
    "loop": "buffer x: u32[n] read; buffer y: u32[n] write; let i = global_id.x; var v: u32 = 0u32; for k in 0u32..x[i] { v = v + k }; y[i] = v",
    "atomic": "over(n); buffer y: u32[n] read_write; let i = global_id.x; y[i] = atomic_add(y[0u32], 1u32)",
    "jump": "buffer x: u32[n] read; buffer y: u32[n] write; let i = global_id.x; if x[i] == 3u32 { return }; y[i] = 1u32",
    "store without a check": "over(4); buffer y: u32[4] write; buffer z: u32[n] write; let i = global_id.x; z[i] = 1u32; y[i % 4u32] = 2u32",
    "another end": "over(n); buffer x: u32[m] read; buffer y: u32[n] write; let i = global_id.x; y[i] = 1u32; if i < m { y[n - 1u32] = 2u32 }",
    "a store under another's check": "over(n); buffer x: u32[n] read; buffer y: u32[n] write; buffer z: u32[n] write; let i = global_id.x; let j = x[i];"
    " y[i] = j; if j < n { z[n - 1u32 - j] = 2u32 }",
    "elsewhere": "over(n); buffer x: u32[n] read; buffer y: u32[n] write; let i = global_id.x + 1u32; y[i] = x[i]",
    "workgroup memory": "workgroup w: u32[64]; buffer y: u32[n] write; let i = global_id.x; w[local_id.x] = i; y[i] = w[local_id.x]",
    "wide": "buffer y: u8[n] write; let i = cast(global_id.x, u64); y[i] = 1u8",
    "across": "over(n,m); buffer x: f32[n, m] read; buffer y: f32[m, n] write; let i = global_id.y; let j = global_id.x;y[i, j] = x[j, i]; y[0u32, 0u32] = 1.0",
}


def program(body: str, over: str = "") -> Program:
    """The Program of a body, which may begin with the grid."""
    if body.startswith("over("):
        over, _, body = body.partition(";")
    dims = ", ".join(name for name in ("n", "m") if f"[{name}" in body or f", {name}]" in body)
    made = parse(f"program p({dims}) workgroup(64) {over} {{\n" + "\n".join(body.split(";")) + "\n}")
    written = first_written(made.memories)
    if over or written is None:
        return made
    x, y, z = [*reversed(written.shape), DimConst(1), DimConst(1)][:3]
    return replace(made, grid=Grid(True, (x, y, z)))  # also where the stores don't say so


def coarsened(made: Program) -> Coarsened | None:
    return coarsen(prepare(made, TARGET, PLAIN))


def arguments(made: Program, sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray | np.generic]:
    numbers = np.random.default_rng(seed)
    given: dict[str, np.ndarray | np.generic] = {param.name: param.type.dtype.type(3) for param in made.params}
    for memory in made.buffers:
        shape = [evaluate_dim(expr, sizes) for expr in memory.shape] + [memory.type.lanes] * memory.type.is_vector
        given[memory.name] = numbers.integers(0, 9, shape).astype(memory.type.dtype)
    return given


def aligned(values: dict[str, np.ndarray | np.generic]) -> dict[str, np.ndarray | np.generic]:
    """Copies whose memory begins on multiples of 16 bytes."""
    copies = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            raw = np.zeros(value.nbytes + 16, np.uint8)
            begin = -raw.ctypes.data % 16
            copies[name] = raw[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape)
            copies[name][...] = value
        else:
            copies[name] = value
    return copies


def agrees(made: Program, sizes: dict[str, int], given=None) -> None:
    """The interpreter and the walk for GPUs give the same for the coarsened Program as the interpreter for the one it was made from."""
    plain = prepare(made, TARGET, PLAIN)
    wide = coarsen(plain)
    assert wide is not None
    given = arguments(made, sizes) if given is None else given
    want, got, walked = aligned(given), aligned(given), aligned(given)
    with np.errstate(all="ignore"):
        interpret(plain, want, sizes)
        interpret(wide.optimised, got, sizes)
    simt_host.run(plain, walked, sizes, coarsened=wide)
    simt_host.assert_same(made, got, want)
    simt_host.assert_same(made, walked, want)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_computed(kind: str) -> None:
    body, elements, alignments = KINDS[kind]
    made = program(body)
    wide = coarsened(made)
    assert wide is not None and wide.elements == elements
    assert {need.buffer: need.size_bytes for need in wide.needs if isinstance(need, Aligned)} == alignments
    check(wide.optimised.program)
    by_rows = [need for need in wide.needs if isinstance(need, Divisible)]
    for n in (0, 1, 64 * elements, 64 * elements + 67, 131) if not by_rows else (0, 4, 256, 324):
        assert all(evaluate_dim(need.expr, {"n": n}) % need.by == 0 for need in by_rows)
        agrees(made, {"n": n, "m": 5})


@pytest.mark.parametrize("kind", NOT)
def test_what_is_left_as_it_is(kind: str) -> None:
    assert coarsened(program(NOT[kind])) is None


def test_a_body_that_would_grow_too_large_is_left_as_it_is() -> None:
    lines = ";".join(f"let v{k} = v{k - 1} * x[i] + {k}.0" for k in range(1, 400))
    assert coarsened(program(f"buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; let v0 = x[i]; {lines}; y[i] = v399")) is None


def test_constant_sizes() -> None:
    for n in (1, 7, 64):
        made = program(f"buffer x: f32[{n}] read; buffer y: f32[{n}] write; let i = global_id.x; y[i] = x[i] + 1.0")
        if coarsened(made) is not None:
            agrees(made, {})


@pytest.mark.parametrize(("size", "end"), [("n", "n"), ("7777", "7777u32")])
def test_neighbours_are_one_access(size: str, end: str) -> None:
    """The check against the end holds for all elements of a full workgroup, whether the size is known or not: none of them is by itself."""
    made = coarsened(program(f"buffer x: f32[{size}] read; buffer y: f32[{size}] write; let i = global_id.x; if i < {end} {{ y[i] = x[i] + 1.0 }}"))
    assert made is not None
    assert [row.width for row in made.rows().values()] == [4, 4]


@pytest.mark.parametrize("path", files("run"), ids=lambda path: path.stem)
def test_run_filetests(path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference device with the coarsened Program in the place of each that can be coarsened."""

    def run(code, given, sizes, reports, **watches):
        wide = coarsen(code)
        met = wide is not None and all(evaluate_dim(n.expr, sizes) % n.by == 0 for n in wide.needs if isinstance(n, Divisible))
        interpret(wide.optimised if met else code, given, sizes, reports=reports)

    monkeypatch.setattr(reference_device, "interpret", run)
    for case in read_cases(path):
        run_program(case, "reference")


@pytest.mark.parametrize("seed", range(30))
def test_generated_programs(seed: int) -> None:
    case = generate(Seeded(31_000 + seed))
    if coarsened(case.program) is None:
        return
    given = {name: value for name, value in case.arguments.items() if name not in case.sizes}
    for memory in case.program.buffers:
        shape = [evaluate_dim(expr, case.sizes) for expr in memory.shape] + [memory.type.lanes] * memory.type.is_vector
        given.setdefault(memory.name, np.zeros(shape, memory.type.dtype))
    agrees(case.program, case.sizes, given)


# ---- which entry is launched


def entry_of(step, values: dict[str, vp.Buffer], sizes: dict[str, int], **config) -> str:
    return step.entries[choose_entry(step, sizes, values, DispatchConfig(**config))].symbol


def test_the_entry_is_chosen_by_alignment_and_size() -> None:
    device = vp.device("cpu")
    artifact = vp.compile_native(program(KINDS["rows"][0]), "compute_90")
    (step,) = artifact.parts[0].steps
    assert [entry.symbol for entry in step.entries] == ["vyre_p_x4", "vyre_p"]

    def chosen(rows: int, columns: int, shift: int = 0, **config) -> str:
        shape = (rows, columns)
        flat = device.allocate(rows * columns + 4, vp.f32)
        x = vp.Buffer(device, flat.allocation, 4 * shift, shape, vp.f32)
        values = {"x": x, "y": device.allocate(shape, vp.f32), "b": device.allocate(columns, vp.f32)}
        binding = bind_arguments(device, artifact.interface, values, {}, staged=False)
        return entry_of(step, dict(binding.buffers), dict(binding.sizes), **config)

    assert chosen(3, 8) == "vyre_p_x4"
    assert chosen(3, 7) == chosen(3, 8, shift=1) == chosen(3, 8, grid=(1, 3, 1)) == "vyre_p"


def test_options_that_need_every_invocation_to_be_its_own() -> None:
    made = program(KINDS["axpy"][0])
    for options in (CompileOptions(interruptible=True), CompileOptions(persistent=True), CompileOptions(opt=1), CompileOptions(opt=0)):
        assert [e.elements for e in vp.compile_native(made, "compute_90", options).parts[0].steps[0].entries] == [1]
    fast = vp.compile_native(made, "compute_90", replace(PLAIN, numerics="fast")).parts[0].steps[0]
    assert [entry.elements for entry in fast.entries] == [4, 1]


def test_a_joined_check_leaves_what_it_was_joined_to() -> None:
    made = coarsened(program("param k: u32; buffer x: f32[n] read; buffer y: f32[n] write; let i = global_id.x; if i < n && k > 2u32 { y[i] = x[i] }"))
    assert made is not None
    joined = [s.args for s in made.optimised.program.body if isinstance(s, Let) and s.op.name == "logical_and"]
    assert not any(isinstance(arg, Const) for args in joined for arg in args)
