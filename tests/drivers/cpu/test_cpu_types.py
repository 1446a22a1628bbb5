"""Every type on the CPU device: ops, memory, params and atomics, at several numbers of lanes, optimised and not, against the interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from elements import random_array
from exact_samples import EDGES, array

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.ir.check import Checked, check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst, Grid
from vyre_py.ir.language.nodes import Access, Space, const
from vyre_py.ir.language.op import Operand, Result
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import (
    SCALARS,
    TYPES,
    Type,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i32,
    i64,
    u8,
    u32,
    u64,
    vector_of,
)
from vyre_py.ir.passes import unoptimised
from vyre_py.lowering.llvm.cpu.host_targets import runs_here
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

LANES = (1, 8, 0)  # 0 is what the device chooses itself
OPTIONS = (CompileOptions(opt=0), CompileOptions())
COUNT = 777
Arguments = dict[str, Any]


@cache
def device(lanes: int, arch: str = "native") -> CpuDevice:
    made = CpuDevice(0)
    made.target = Target("host", arch, lanes)
    return made


def interpreted(checked: Checked, given: Arguments, sizes: dict[str, int]) -> Arguments:
    """The buffers as they are after the interpreter has run the Program as it was written."""
    results = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    with np.errstate(all="ignore"):
        interpret(unoptimised(checked, expand=EXPANDED_ONLY), results, sizes)
    return results


def unequal(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], exact: bool) -> np.ndarray[Any, Any]:
    """Where two arrays differ in their bits, or in what is no NaN."""
    differ = got.view(f"u{got.itemsize}") != wanted.view(f"u{wanted.itemsize}")
    if not exact and got.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):
            differ &= ~(np.isnan(got) & np.isnan(wanted))
    return np.argwhere(differ)


def assert_agrees(program: Program, given: Arguments, *, exact: bool = False, lanes: tuple[int, ...] = LANES, arch: str = "native") -> None:
    """Runs a Program over `n` of its dims everywhere, and compares all that it writes."""
    checked = check(program)
    sizes = {"n": COUNT}
    for memory in program.buffers:
        if memory.name not in given:
            shape = [COUNT if isinstance(size, Dim) else size.value for size in memory.shape]
            given[memory.name] = np.zeros([*shape, *[memory.type.lanes] * memory.type.is_vector], memory.type.dtype)
    wanted = interpreted(checked, given, sizes)
    for count in lanes:
        for options in OPTIONS:
            results = device(count, arch).compile_native(checked, options).dispatch({**given, **sizes})
            for name, got in results.items():
                bad = unequal(got, wanted[name], exact)
                if bad.size:
                    at = tuple(bad[0])
                    inputs = {k: v[at[0]] for k, v in given.items() if isinstance(v, np.ndarray) and k not in results}
                    pytest.fail(f"{name}{at} of {len(bad)}, {count} lanes, opt {options.opt}: {got[at]!r}, wanted {wanted[name][at]!r}, from {inputs}")


def sample(t: Type, seed: int, count: int = COUNT) -> np.ndarray[Any, Any]:
    """Edges, then random elements, in an order of its own for each seed."""
    rng = np.random.default_rng((seed, t.bits, t.lanes))
    if t.is_vector:
        return np.stack([sample(t.scalar, seed * 10 + k, count) for k in range(t.lanes)], axis=-1)
    edges = array(t, EDGES[t])
    drawn = np.concatenate([edges, random_array(rng, t, (max(0, count - edges.size),))])[:count]
    return drawn[rng.permutation(count)]


# ---------------------------------------------------------------- ops


def results_of(t: Type, name: str) -> list[tuple[tuple[Type, ...], Type | None, Type]]:
    """Operand types, the given type and the result of an op over T; nothing where it does not take T."""
    row = OPS[name]
    if row.is_query or row.result is Result.VECTOR or Operand.LANES in row.operands:
        return []
    operands = tuple(vector_of(bool_, t.lanes) if o is Operand.BOOL else o.beside(t) for o in row.operands)
    found = [(operands, given, row.result_type(operands, given)) for given in (TYPES.values() if row.result is Result.GIVEN else (None,))]
    return [(operands, given, result) for operands, given, result in found if result is not None]


def program_of(t: Type, names: list[str]) -> tuple[Program, Arguments]:
    """One buffer of results for each op."""
    a = Assembler("ops", (64, 1, 1))
    n = a.dim("n")
    i = a.let(OPS["global_id.x"], ())
    given: Arguments = {}

    def memory(name: str, type_: Type, access: Access) -> Any:
        return a.memory(name, Space.BUFFER, type_, (n,), access)

    inputs: dict[tuple[Type, int], Any] = {}
    made = [(name, *case) for name in names for case in results_of(t, name)]
    for k, (name, operands, target, result) in enumerate(made):
        args = []
        for position, type_ in enumerate(operands):
            if (type_, position) not in inputs:
                label = f"in_{type_}_{position}"
                inputs[type_, position] = a.load(memory(label, type_, Access.READ), (i,))
                drawn = sample(type_, position)
                given[label] = drawn % 80 if type_ is u32 and t is not u32 else drawn
            args.append(inputs[type_, position])
        a.store(memory(f"{name}_{result}_{k}", result, Access.WRITE), (i,), a.let(OPS[name], tuple(args), target))
    return a.finish(), given


NAMES = [name for name in OPS if name not in EXPANDED_ONLY]


@pytest.mark.parametrize("t", SCALARS.values(), ids=str)
def test_ops_of_scalars(t: Type) -> None:
    assert_agrees(*program_of(t, NAMES))


@pytest.mark.parametrize("t", [t for t in TYPES.values() if t.lanes == 3 or t.name in ("f32x4", "i16x2", "f64x2", "u8x4", "boolx4")], ids=str)
def test_ops_of_vectors(t: Type) -> None:
    assert_agrees(*program_of(t, NAMES), lanes=(8,))


@pytest.mark.skipif(not runs_here("x86-64-v2"), reason="of x86-64")
@pytest.mark.parametrize("t", [f16, bf16, f32, f64, i64, u8], ids=str)
def test_ops_without_the_newer_instructions(t: Type) -> None:
    """No conversion of f16, no fused multiply-add, vectors of 16 bytes."""
    assert_agrees(*program_of(t, NAMES), lanes=(4,), arch="x86-64-v2")


# ---------------------------------------------------------------- memory

MOVES = """program moves(n) workgroup(40) over(n) {
  param p: T
  buffer x: T[n] read
  buffer at: u32[n] read
  buffer y: T[n, 7] read_write
  workgroup w: T[40]
  workgroup one: T[1]
  private own: T[3]
  private many: T[500]
  let i = global_id.x
  let l = local_index
  let g = x[at[i]]
  w[l] = x[i]
  own[i % 4u32] = g
  many[at[i] % 501u32] = x[i + 1u32]
  var acc: T = p
  var same: T = p
  if l == 7u32 { one[0u32] = x[i] }
  barrier
  let o = w[(l + at[i]) % 41u32]
  if l % 3u32 == 0u32 { acc = o }
  same = one[0u32]
  y[i, 0u32] = o
  y[i, 1u32] = own[1u32]
  barrier
  y[i, 2u32] = select(at[i] > 500u32, g, acc)
  if i < n { y[at[i], 3u32] = x[n - 1u32 - i] }
  y[i, 4u32] = same
  y[i, 5u32] = many[at[i] % 500u32]
  y[i, 6u32] = uniform_load(w[2u32])
}"""


MOVED = [*SCALARS.values(), *(TYPES[name] for name in ("f32x3", "u8x2", "f16x4", "f64x2", "boolx3"))]


@pytest.mark.parametrize("t", MOVED, ids=str)
def test_memory(t: Type) -> None:
    """Neighbours, gathers, scatters, rows of private memory, values and variables across barriers: all of them keep every bit."""
    x = sample(t, 1)
    rng = np.random.default_rng(t.bits)
    p = x[5] if t.is_vector else x[5].item() if t is bool_ else x[5]
    given = {"p": p, "x": x, "at": rng.permutation(COUNT).astype(np.uint32), "y": np.zeros((COUNT, 7, *x.shape[1:]), t.dtype)}
    assert_agrees(Program.from_text(MOVES.replace("T", str(t))), given, exact=True)


@pytest.mark.parametrize("t", [t for t in SCALARS.values() if t.size_bytes < 4], ids=str)
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_small_elements_are_gathered_where_a_view_begins_between_words(t: Type, lanes: int) -> None:
    text = f"""program gather(n, m) workgroup(32) over(n) {{
      buffer x: {t}[m] read
      buffer y: {t}[n] write
      let i = global_id.x
      y[i] = x[(i * 7u32) % (m + 2u32)]
    }}"""
    x = sample(t, 3, 101)
    pipeline, xd = device(lanes).compile_native(Program.from_text(text)), device(lanes).upload(x)
    for start in range(5):
        y = device(lanes).allocate(97, t)
        pipeline.bind({"x": xd[start:], "y": y})()
        padded = np.append(x[start:], np.zeros(2, t.dtype)).view(f"u{t.size_bytes}")
        np.testing.assert_array_equal(y.read().view(f"u{t.size_bytes}"), padded[np.arange(97) * 7 % (103 - start)])


# ---------------------------------------------------------------- params


def test_params_of_every_type() -> None:
    """Each of its own size and place; what is narrower than a word leaves its neighbours alone."""
    a = Assembler("params", (1, 1, 1))
    given: Arguments = {}
    zero = const(u32, 0)
    for k, t in enumerate(TYPES.values()):
        value = sample(t, k + 3, 40)[7]
        given[f"p_{t}"] = value.tolist() if t.is_vector and t.kind is not f32.kind else value
        a.store(a.memory(f"y_{t}", Space.BUFFER, t, (Dim("one"),), Access.WRITE), (zero,), a.param(f"p_{t}", t))
    a.dims.append(Dim("one"))
    a.grid = Grid(True, (Dim("one"), DimConst(1), DimConst(1)))
    for lanes in (1, 8):
        out = device(lanes).compile_native(a.finish()).dispatch({**given, "one": 1})
        for t in TYPES.values():
            wanted = np.asarray(given[f"p_{t}"], t.dtype).reshape(-1)
            assert out[f"y_{t}"].reshape(-1).tobytes() == wanted.tobytes(), t


# ---------------------------------------------------------------- atomics

INTEGER_ATOMICS = ("add", "sub", "min", "max", "and", "or", "xor")


def atomics_program(t: Type, names: tuple[str, ...]) -> Program:
    """Every invocation, at places that several share, in a buffer and in workgroup memory; some are off, some outside."""
    lines = [f"program atomics(n) workgroup(48) over(n) {{ buffer x: {t}[n] read; buffer first: {t}[6] read"]
    lines += [f"buffer b_{name}: {t}[6] read_write; buffer s_{name}: {t}[1] read_write" for name in names]
    lines += [f"buffer o_{name}: {t}[n] write; workgroup w_{name}: {t}[6]" for name in names]
    lines += ["let i = global_id.x; let l = local_index; let k = (i * 5u32) % 7u32"]
    lines += [f"if l < 6u32 {{ w_{name}[l] = first[l] }}" for name in names]
    lines += ["barrier; if i < n { if i % 11u32 != 3u32 {"]
    lines += [f"atomic_{name}(b_{name}[k], x[i]); atomic_{name}(s_{name}[0u32], x[i]); atomic_{name}(w_{name}[k], x[i])" for name in names]
    lines += ["} }; barrier"]
    lines += [f"o_{name}[i] = w_{name}[l]" for name in names]
    return Program.from_text("\n".join([*lines, "}"]))


@pytest.mark.parametrize("t", [i32, u32, i64, u64, f32, f64], ids=str)
def test_atomics(t: Type) -> None:
    """Whole numbers, so that the order of additions does not matter; min and max see NaN, infinities and both zeros as well."""
    for names in [INTEGER_ATOMICS] if t.is_integer else [("add",), ("min", "max")][: 2 if t is f32 else 1]:
        x = sample(t, 4)
        if names == ("add",):
            x = np.random.default_rng(1).integers(-1000, 1000, COUNT).astype(t.dtype)
        first = x[:6]
        given = {"x": x, "first": first}
        for name in names:
            given |= {f"b_{name}": first.copy(), f"s_{name}": first[:1].copy()}
        assert_agrees(atomics_program(t, names), given, lanes=(1, 8, 0))


@pytest.mark.parametrize("t", [i32, u64, i64], ids=str)
def test_old_values_of_atomics(t: Type) -> None:
    program = Program.from_text(f"""program old(n) workgroup(1) grid(7, 1, 1) {{
      buffer x: {t}[n] read
      buffer y: {t}[n] read_write
      buffer out: {t}[n, 4] write
      let i = global_id.x
      out[i, 0u32] = atomic_exchange(y[i], x[i])
      out[i, 1u32] = atomic_compare_exchange(y[i], x[i], x[i + 1u32])
      out[i, 2u32] = atomic_compare_exchange(y[i], x[i], x[i + 2u32])
      out[i, 3u32] = atomic_add(y[i + n], x[i]) + atomic_max(y[i], x[i])
    }}""")
    assert_agrees(program, {"x": sample(t, 1), "y": sample(t, 2), "out": np.zeros((COUNT, 4), t.dtype)})


@pytest.mark.parametrize(("t", "ops"), [(f32, ("add", "min", "max")), (f64, ("add",)), (u64, INTEGER_ATOMICS)], ids=str)
def test_each_lanes_own_old_values(t: Type, ops: tuple[str, ...]) -> None:
    """In a buffer and in workgroup memory, with lanes off and indices outside: there the old value is zero."""
    lines = [f"program old(n) workgroup(24) over(n) {{ buffer x: {t}[n] read"]
    lines += [f"buffer b_{op}: {t}[n] read_write; buffer out_{op}: {t}[n, 3] write; workgroup w_{op}: {t}[50]" for op in ops]
    lines += ["let i = global_id.x; let l = local_index; if l % 3u32 != 1u32 {"]
    for op in ops:
        lines += [f"w_{op}[l * 2u32] = x[i + 1u32]; out_{op}[i, 0u32] = atomic_{op}(b_{op}[i], x[i])"]
        lines += [f"out_{op}[i, 1u32] = atomic_{op}(w_{op}[l * 2u32 + 1u32 + l % 5u32 / 4u32 * 50u32], x[i])"]
        lines += [f"out_{op}[i, 2u32] = atomic_{op}(w_{op}[l * 2u32], x[i])"]
    program = Program.from_text("\n".join([*lines, "} }"]))
    assert_agrees(program, {"x": sample(t, 1), **{f"b_{op}": sample(t, 2) for op in ops}})


@pytest.mark.parametrize(("t", "op"), [(f32, "add"), (f64, "add"), (f32, "max"), (u64, "add"), (i64, "min")], ids=str)
def test_threads_do_not_lose_atomics(t: Type, op: str) -> None:
    """Many workgroups on all threads at one element."""
    program = Program.from_text(f"""program count(n) workgroup(64) over(n) {{ buffer x: {t}[n] read; buffer y: {t}[3] read_write
      let i = global_id.x
      atomic_{op}(y[i % 3u32], x[i]); atomic_{op}(y[0u32], x[i]) }}""")
    count = 1 << 18
    x = np.random.default_rng(7).integers(0, 50, count).astype(t.dtype)
    got = device(0).compile_native(program).dispatch(x=x, y=np.zeros(3, t.dtype))["y"]
    fold = {"add": np.sum, "max": np.max, "min": np.min}[op]
    groups = [x[k::3] for k in range(3)]
    wanted = [fold(np.concatenate([np.zeros(1, t.dtype), g, *([x] if k == 0 else [])])) for k, g in enumerate(groups)]
    np.testing.assert_array_equal(got, np.array(wanted, t.dtype))


