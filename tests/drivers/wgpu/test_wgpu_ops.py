"""WebGPU for real: every op over every type, edge values and random ones, against `ir.evaluate`.

Integers and bools are exact, and so are floats where bits and comparisons decide; other floats are within WGSL's bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from device_kinds import open_device
from fuzz.elements import INTERESTING, random_array

from vyre_py.drivers.device import Device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.nodes import Access, Const, Space
from vyre_py.ir.language.op import Op, Result
from vyre_py.ir.language.ops import ATOMICS, EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import (
    SCALARS,
    Type,
    bf16,
    bool_,
    encode,
    f16,
    f32,
    f64,
    i32,
    i64,
    scalar_of,
    u8,
    u16,
    u32,
    u64,
    vector_of,
)
from vyre_py.ir.passes.pipeline import unoptimised
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

Array = np.ndarray[Any, np.dtype[Any]]
Case = tuple[Op, tuple[Type, ...], Type | None]


def edges(t: Type) -> Array:
    """Values at which ops change their minds. Devices may flush subnormal f32 and f64, and with them those of bf16."""
    values = np.array([encode(t, x) for x in INTERESTING[t]], f"u{t.size_bytes}").view(t.dtype)
    if not t.is_float or t is f16:
        return values
    return values[~is_subnormal(t, values)]


def without_subnormals(t: Type, values: Array) -> Array:
    if not t.is_float or t.scalar is f16 or t.is_storage:  # whose subnormal numbers are normal ones of f32
        return values
    one = np.array(encode(t.scalar, 1.0), f"u{t.scalar.size_bytes}").view(t.dtype)
    return np.where(is_subnormal(t.scalar, values), one, values)


def is_subnormal(t: Type, values: Array) -> Array:
    exponent = (1 << t.bits - 1) - (1 << t.fraction_bits)
    bits = values.view(f"u{t.size_bytes}")
    return ((bits & bits.dtype.type(exponent)) == 0) & ((bits << bits.dtype.type(1)) != 0)


EDGES: Mapping[Type, Array] = {t: edges(t) for t in SCALARS.values()}


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("wgpu")


def run(device: Device, program: Program, everywhere: bool = False, /, **arguments: Any) -> dict[str, Any]:
    """By the code for this device, or for every one."""
    return (device.load(compile_for(program, [Target("wgsl")])) if everywhere else device.compile_native(program)).dispatch(arguments)


def from_text(text: str) -> Program:
    return Program.from_text(text)


def cases_of(op: Op) -> list[Case]:
    """Every choice of scalar types that a row accepts, with the type that is written out where one is."""
    written = (*SCALARS.values(), None) if op.result is Result.GIVEN else (None,)
    chosen = itertools.product(SCALARS.values(), written)
    found = [(tuple(pattern.beside(t) for pattern in op.operands), given) for t, given in chosen]
    return [(op, types, given) for types, given in found if op.result_type(types, given) is not None and vector_free(op, types, given)]


def vector_free(op: Op, types: tuple[Type, ...], given: Type | None) -> bool:
    result = op.result_type(types, given)
    return op.name != "swizzle" and result is not None and not result.is_vector


COMPUTED = [case for op in OPS.values() if op.evaluate is not None for case in cases_of(op)]
# Over floats, ops that bits and comparisons decide, which software and hardware alike get right over NaN and infinities.
BIT_OPS = {
    "is_nan", "is_inf", "is_finite", "min", "max", "clamp", "sign", "select", "cast", "bitcast", "abs", "neg", "eq", "ne", "lt", "le", "gt", "ge",
    "floor", "ceil", "trunc", "round", "step", "saturate", "copysign", "nextafter", "frexp_fraction",
}  # fmt: skip


def float_of(case: Case) -> Type | None:
    """The type of the result, where it is a float that the device may round in its own way."""
    op, types, given = case
    result = op.result_type(types, given)
    return result if result is not None and result.is_float and not result.is_storage and op.name not in BIT_OPS else None


def operands_of(types: tuple[Type, ...]) -> list[Array]:
    """Edges in all pairs, further operands at random."""
    rng = np.random.default_rng(len(types))
    if any(t.is_vector or len(types) > 3 for t in types):
        return [without_subnormals(t, random_array(rng, t, (256,))) for t in types]
    grids = [g.reshape(-1) for g in np.meshgrid(*[EDGES[t] for t in types[:2]], indexing="ij")]
    return [np.ascontiguousarray(g) for g in (*grids, *(rng.permutation(np.resize(EDGES[t], grids[0].size)) for t in types[2:]))]


def evaluated(case: Case, arrays: list[Array]) -> Array:
    op, types, given = case
    result = op.result_type(types, given)
    assert op.evaluate is not None and result is not None
    with np.errstate(all="ignore"):
        return op.evaluate(result, *arrays).astype(result.dtype, copy=False)


def cases_program(cases: list[Case], most: int = 4096) -> Program:
    """A Program that does each case over buffers of its own, of at most so many elements."""
    a = Assembler("ops", (64, 1, 1))
    i = a.let(OPS["global_id.x"], ())
    for number, (op, types, given) in enumerate(cases):
        n = a.dim(f"n{number}")
        inputs = [a.memory(f"x{number}_{k}", Space.BUFFER, t, (n,), Access.READ) for k, t in enumerate(types)]
        result = op.result_type(types, given)
        assert result is not None
        out = a.memory(f"y{number}", Space.BUFFER, result, (n,), Access.WRITE)
        a.store(out, (i,), a.let(op, tuple(a.load(m, (i,)) for m in inputs), given))
    a.grid = Grid(True, (DimConst(most), DimConst(1), DimConst(1)))
    return a.finish()


def op_program(op: Op, types: tuple[Type, ...], given: Type | None, most: int = 4096) -> Program:
    return cases_program([(op, types, given)], most)


def supported(device: Device, cases: list[Case]) -> list[Case]:
    """The cases that the device computes; those over f64 it must refuse by name where it has none."""
    return [c for c in cases if device.target.has_f64 or not any(t.scalar is f64 for t in (*c[1], *([c[2]] if c[2] else [])))]


def run_cases(device: Device, cases: list[Case], target: Target | None = None) -> Iterator[tuple[Case, list[Array], Array]]:
    """Each case with its operands and what the device makes of them, many cases a Program, compiled for the device, or for a target."""
    buffers = min(64, int(device.raw.device.limits["max-storage-buffers-per-shader-stage"]))
    step = max(1, buffers // (1 + max([len(types) for _, types, _ in cases], default=0)))
    for first in range(0, len(cases), step):
        batch = cases[first : first + step]
        operands = [operands_of(types) for _, types, _ in batch]
        given = {f"x{k}_{place}": x for k, arrays in enumerate(operands) for place, x in enumerate(arrays)}
        made = cases_program(batch)
        got = (device.load(compile_for(made, [target])) if target else device.compile_native(made)).dispatch(given)
        yield from ((case, arrays, got[f"y{k}"]) for k, (case, arrays) in enumerate(zip(batch, operands, strict=True)))


def assert_same(got: Array, want: Array, what: str = "") -> None:
    assert got.dtype == want.dtype, what
    t = scalar_of(got.dtype)
    if t is not None and t.is_float:
        with np.errstate(invalid="ignore"):  # ml_dtypes looks at NaNs aloud
            nans = np.isnan(want)
            np.testing.assert_array_equal(np.isnan(got), nans, what)
        word = f"u{t.size_bytes}"
        np.testing.assert_array_equal(got[~nans].view(word), want[~nans].view(word), what)
    else:
        np.testing.assert_array_equal(got, want, what)


def assert_close(t: Type, got: Array, want: Array, scale: Array, what: str) -> None:
    """Within what WGSL allows: 2.5 ULP of the greatest number on the way; subnormal numbers may be flushed."""
    with np.errstate(invalid="ignore"):
        got, want, scale = (x.astype(np.float64) for x in (got, want, scale))
    least = float(np.ldexp(1.0, {f16: -24, bf16: -126, f32: -126, f64: -1022}[t]))
    greatest = float(np.ldexp(2.0 - 2.0**-t.fraction_bits, {f16: 15}.get(t, 1023 if t is f64 else 127)))
    with np.errstate(all="ignore"):
        slack = np.maximum(np.abs(want), scale) * 2.5 * 2.0**-t.fraction_bits + 2 * least
        # Where a step overflows, its rounding decides.
        tame = np.isfinite(want) & (np.maximum(np.abs(want), scale) < greatest / 4)
        wrong = tame & ~(np.abs(got - want) <= slack)
    assert not wrong.any(), f"{what}: {got[wrong][:5]} where {want[wrong][:5]} is right"


def name_of(case: Case) -> str:
    op, types, given = case
    return "-".join([op.name, *[t.name for t in types], *([given.name] if given else [])])


SCALAR_OPS = sorted({op.name for op, _, _ in COMPUTED})


@pytest.mark.parametrize("name", SCALAR_OPS)
def test_an_op_over_edge_values_of_every_type(device: Device, name: str) -> None:
    """Integers, and floats where bits decide, to the bit; other floats within WGSL's bounds."""
    cases = [c for c in COMPUTED if c[0].name == name]
    for case, arrays, got in run_cases(device, supported(device, cases)):
        want = evaluated(case, arrays)
        if t := float_of(case):
            with np.errstate(all="ignore"):
                wide = [np.abs(x.astype(np.float64)) for x in arrays]
                scale = wide[0] * wide[1] + wide[2] if name == "fma" else np.zeros(want.shape)
                if name == "mix":
                    scale = wide[2] * wide[1] + wide[0] * (1 + wide[2])
                if name == "smoothstep":  # which a quotient beyond WGSL's bounds may decide
                    scale = np.where(np.abs(wide[1] - wide[0]) > 2.0**100, np.inf, 8.0)
                if name == "div":  # WGSL bounds the quotient for divisors up to 2^126 only: beyond, a reciprocal may be flushed
                    scale = np.where(wide[1] > (2.0**1022 if t is f64 else 2.0**126), np.inf, scale)
            assert_close(t, got, want, scale, name_of(case))
        else:
            assert_same(got, want, name_of(case))


def test_ops_over_64_bits_where_a_device_has_words_alone(device: Device) -> None:
    """The integers of target wgsl, which devices with integers of 64 bits run as well."""
    wide = {i64, u64}
    cases = [c for c in COMPUTED if (among := {*c[1], c[0].result_type(c[1], c[2])}) & wide and f64 not in among and not float_of(c)]
    assert len(cases) > 90
    for case, arrays, got in run_cases(device, cases, Target("wgsl")):
        assert_same(got, evaluated(case, arrays), name_of(case))


def test_f64_is_refused_by_name_where_the_device_lacks_it() -> None:
    for op, types, given in [c for c in COMPUTED if f64 in (*c[1], c[2])]:
        with pytest.raises(Unsupported, match=r"op \w+ over f64"):
            emit_text(op_program(op, types, given), "wgsl", CompileOptions(opt=0))


# ---------------------------------------------------------------- vectors

MANY = [vector_of(t, n) for t, n in itertools.product(SCALARS.values(), (2, 3, 4))]


def vector_cases() -> Iterator[Case]:
    """Ops that only vectors have over all of them, and of those that go by components some over each kind of vector."""
    for op in OPS.values():
        if op.evaluate is None or op.name == "swizzle":
            continue
        for t in (*SCALARS.values(), *MANY):
            types = tuple(vector_of(pattern.fixed, t.lanes) if pattern.fixed else pattern.beside(t) for pattern in op.operands)
            by_components = op.is_lanewise or op.name == "bitcast"
            for given in (*SCALARS.values(), *MANY) if op.result is Result.GIVEN else (None,):
                result = op.result_type(types, given)
                if result is None or not (t.is_vector or result.is_vector):
                    continue
                picked = op.name in ("add", "shr", "select", "cast", "bitcast") and {t.scalar, (given or t).scalar} <= PICKED
                if picked or not by_components:
                    yield op, types, given


PICKED = {bool_, u8, u16, i64, bf16, f32, f64}
VECTOR_CASES = list(vector_cases())


def scale_of(op: Op, arrays: list[Array]) -> Array | None:
    """The greatest number that appears while a float op is computed."""
    with np.errstate(all="ignore"):
        wide = [np.abs(x.astype(np.float64)) for x in arrays]
        if op.name in ("dot", "length"):
            return (wide[0] * wide[-1]).sum(axis=1) if op.name == "dot" else None
        if op.name == "normalize":
            return np.full(1, 4.0)
        if op.name == "reflect":
            return wide[0] + 2 * (wide[0] * wide[1]).sum(axis=1)[:, None] * wide[1]
        if op.name == "refract":
            return refract_scale(*(x.astype(np.float64) for x in arrays))
        return 2 * (wide[0].max(axis=1) * wide[1].max(axis=1))[:, None] if op.name == "cross" else None


def refract_scale(i: Array, n: Array, eta: Array) -> Array:
    """What 2.5 ULP of the numbers under the root come to behind it; where they may change its sign, and so all of the result, anything."""
    eta, across, most = eta[:, None], (n * i).sum(axis=1)[:, None], (np.abs(n) * np.abs(i)).sum(axis=1)[:, None]
    ulp = 2.5 * 2.0**-f32.fraction_bits
    k, error = 1 - eta**2 * (1 - across**2), (1 + eta**2 * (1 + most**2)) * ulp * 4
    behind = np.where(k > error, error / np.sqrt(np.maximum(k, error)), np.where(k < -error, 0, np.inf))
    return np.abs(eta * i) + (np.abs(eta) * most + np.sqrt(np.maximum(k, 0)) + behind / ulp) * np.abs(n)


@pytest.mark.parametrize("name", sorted({op.name for op, _, _ in VECTOR_CASES}))
def test_an_op_over_vectors(device: Device, name: str) -> None:
    cases = supported(device, [c for c in VECTOR_CASES if c[0].name == name])
    for case, arrays, got in run_cases(device, cases):
        want = evaluated(case, arrays)
        if t := float_of(case):
            assert_close(t.scalar, got, want, np.zeros(1) if (scale := scale_of(case[0], arrays)) is None else scale, name_of(case))
        else:
            assert_same(got, want, name_of(case))


def test_swizzles(device: Device) -> None:
    program = from_text(
        """program swizzles(n) {
  buffer x: i16x4[n] read
  buffer y: i16x3[n] write
  buffer z: i16x4[n] write
  let v = x[global_id.x]
  y[global_id.x] = v.zxx + v.w.xxx
  z[global_id.x] = v.wzyx
}"""
    )
    x = random_array(np.random.default_rng(2), vector_of(SCALARS["i16"], 4), (50,))
    got = run(device, program, x=x)
    np.testing.assert_array_equal(got["y"], x[:, [2, 0, 0]] + x[:, [3, 3, 3]])
    np.testing.assert_array_equal(got["z"], x[:, ::-1])


RISKY = (
    "add", "sub", "mul", "div", "rem", "neg", "abs", "shl", "shr", "rotl", "rotr", "mul_hi", "abs_diff", "clz", "cast", "bitcast", "min", "clamp", "sqrt",
    "is_nan",
)  # fmt: skip


@pytest.mark.parametrize("name", RISKY)
def test_an_op_over_constants_compiles(device: Device, name: str) -> None:
    """Compilers of WGSL compute constants themselves, and refuse what overflows or divides by zero: level 0 leaves such ops in."""
    a = Assembler("constants", (1, 1, 1))
    a.grid = Grid(False, (DimConst(1), DimConst(1), DimConst(1)))
    wanted: list[tuple[str, Array]] = []
    limit = int(device.raw.device.limits["max-storage-buffers-per-shader-stage"])
    rng = np.random.default_rng(7)
    for case in [c for c in supported(device, COMPUTED) if c[0].name == name and not float_of(c)][: min(limit, 60)]:
        op, types, given = case
        picks = [EDGES[t][rng.integers(0, len(EDGES[t]), 12)] for t in types]
        out = a.memory(f"out{len(wanted)}", Space.BUFFER, op.result_type(types, given) or u32, (DimConst(12),), Access.WRITE)
        for place in range(12):
            args = tuple(Const(t, int(x[place : place + 1].view(f"u{t.size_bytes}")[0])) for t, x in zip(types, picks, strict=True))
            a.store(out, (Const(u32, place),), a.let(op, args, given))
        wanted.append((name_of(case), evaluated(case, picks)))
    if not wanted:
        return
    got = device.compile_native(a.finish(), CompileOptions(opt=0)).dispatch({})
    for k, (what, want) in enumerate(wanted):
        assert_same(got[f"out{k}"], want, what)


@pytest.mark.parametrize("everywhere", [False, True], ids=["here", "everywhere"])
@pytest.mark.parametrize("small", [f16, bf16], ids=str)
def test_every_small_float_and_many_roundings(device: Device, small: Type, everywhere: bool) -> None:
    """All 2^16 to f32; and f32 of every exponent, with ties and their neighbours, rounded once."""
    every = np.arange(1 << 16, dtype=np.uint16).view(small.dtype)
    every = every[~is_subnormal(bf16, every)] if small is bf16 else every
    cast = OPS["cast"]
    wide = run(device, op_program(cast, (small,), f32, every.size), everywhere, x0_0=every)["y0"]
    assert_same(wide, evaluated((cast, (small,), f32), [every]))
    rng, cut = np.random.default_rng(3), f32.fraction_bits - small.fraction_bits
    heads = rng.integers(0, 1 << 32 - cut, 20_000, dtype=np.uint32) << np.uint32(cut)
    tails = np.array([0, 1, (1 << cut - 1) - 1, 1 << cut - 1, (1 << cut - 1) + 1, (1 << cut) - 1], np.uint32)
    bits = np.concatenate([(heads[:, None] | tails).reshape(-1), rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)])
    x = bits.view(np.float32)
    x = x[~is_subnormal(f32, x)]
    got = run(device, op_program(cast, (f32,), small, x.size), everywhere, x0_0=x)["y0"]
    assert_same(got, evaluated((cast, (f32,), small), [x]))


# Up to here WGSL promises something: a tangent is a quotient of two functions, and the others have ends or poles.
DOMAINS = {"asin": (-0.95, 0.95), "acos": (-0.95, 0.95), "atanh": (-0.95, 0.95), "acosh": (1.1, 9.0), "tan": (0.1, 1.4)}


@pytest.mark.parametrize("name", sorted(name for name in EXPANDED_ONLY if OPS[name].is_lanewise))
def test_transcendentals_are_close(device: Device, name: str) -> None:
    """WGSL's own, or the expansions that strict targets use: to what the interpreter makes of the expansions."""
    cases: list[Case] = [(OPS[name], (t,) * len(OPS[name].operands), None) for t in (f32, f16, bf16)]
    x = np.linspace(*DOMAINS.get(name, (0.1, 3.0)), 200, dtype=np.float32)
    given = {f"x{k}_{place}": np.roll(x, 70 * place).astype(t.dtype) for k, (_, types, _) in enumerate(cases) for place, t in enumerate(types)}
    program = cases_program(cases)
    want = {f"y{k}": np.zeros(200, types[0].dtype) for k, (_, types, _) in enumerate(cases)}
    interpret(unoptimised(check(program), expand=EXPANDED_ONLY), {**given, **want}, {f"n{k}": 200 for k in range(len(cases))})
    got = run(device, program, **given)
    for k, (_, types, _) in enumerate(cases):
        result, right = got[f"y{k}"].astype(np.float32), want[f"y{k}"].astype(np.float32)
        np.testing.assert_allclose(result, right, atol=1e-3, rtol=1e-4 if types[0] is f32 else 2.0 ** -types[0].fraction_bits, err_msg=str(types[0]))


# ---------------------------------------------------------------- atomics


@pytest.mark.parametrize("type_", [i32, u32], ids=str)
@pytest.mark.parametrize("name", [name for name, row in ATOMICS.items() if row.operands == 1 and row.reads])
def test_atomics(device: Device, name: str, type_: Type) -> None:
    """Each invocation works on its own element, so that old values are known, in a buffer and in workgroup memory."""
    a = Assembler("atomics", (64, 1, 1))
    n = a.dim("n")
    x = a.memory("x", Space.BUFFER, type_, (n,), Access.READ)
    y = a.memory("y", Space.BUFFER, type_, (n,), Access.READ_WRITE)
    old = a.memory("old", Space.BUFFER, type_, (n,), Access.WRITE)
    new = a.memory("new", Space.BUFFER, type_, (n,), Access.WRITE)
    tile = a.memory("tile", Space.WORKGROUP, type_, (DimConst(64),), Access.READ_WRITE)
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


def test_atomics_on_floats(device: Device) -> None:
    """Old and new values of add, min and max, over NaN and zeros of both signs too, in a buffer and in workgroup memory."""
    for name in ("add", "min", "max"):
        text = """program floats(n) workgroup(32) over(n) {
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  buffer old: f32[n] write
  buffer new: f32[n] write
  workgroup tile: f32[32]
  let i = global_id.x
  let j = local_index
  tile[j] = y[i]
  atomic_NAME(tile[j], x[i])
  new[i] = tile[j]
  old[i] = atomic_NAME(y[i], x[i])
  atomic_NAME(y[n + i], x[i])
}"""
        x, y = operands_of((f32, f32))
        got = run(device, from_text(text.replace("NAME", name)), x=x, y=y)
        with np.errstate(all="ignore"):
            want = ATOMICS[name].evaluate(y, x)
        for array, wanted in ((got["y"], want), (got["new"], want), (got["old"], y)):
            keep = ~is_subnormal(f32, wanted)
            assert_same(array[keep], wanted[keep], name)


def test_contended_atomics_on_floats(device: Device) -> None:
    program = from_text(
        """program contended(n) workgroup(64) over(n) {
  buffer y: f32[3] read_write
  let x = cast(global_id.x, f32)
  atomic_add(y[0u32], 1.0)
  atomic_min(y[1u32], -x)
  atomic_max(y[2u32], x)
}"""
    )
    np.testing.assert_array_equal(run(device, program, y=np.zeros(3, np.float32), n=1000)["y"], [1024, -1023, 1023])


def test_numbers_of_two_words_in_ranges_of_buffers() -> None:
    """A number is one access of both its words, wherever a range begins; that of vectors of two numbers may begin at a component, and a range may be empty."""
    device = open_device("wgpu")
    program = Program.from_text("""program p(n, m) over(n) {
  buffer x: u64[n] read
  buffer y: i64[n, 2] read_write
  buffer z: u32[n] write
  buffer w: u64x2[m] read
  let i = global_id.x
  y[i, 1u32] = cast(x[i] + 4294967295u64, i64) + y[i, 0u32]
  z[i] = cast(x[n - 1u32 - i], u32) + cast(w[i].y, u32)
}""")
    pipeline, numbers = device.compile_native(program), np.arange(40, dtype=np.uint64) * 0x1_2345_6789
    x, y = device.upload(numbers), device.upload(np.arange(80, dtype=np.int64).reshape(40, 2) - 7)
    for first, count, pairs in ((0, 0, 0), (3, 5, 2), (33, 7, 3), (1, 39, 1)):
        before, z = y.read(), device.allocate(count, u32)
        held = x[1 : 1 + 2 * pairs].view(vector_of(scalar_of(np.dtype(np.uint64)), 2), pairs)  # type: ignore[arg-type]  # a scalar of the language
        pipeline.bind(x=x[first : first + count], y=y[first : first + count], z=z, w=held)()
        taken = numbers[first : first + count]
        before[first : first + count, 1] = (taken + np.uint64(0xFFFFFFFF)).view(np.int64) + before[first : first + count, 0]
        np.testing.assert_array_equal(y.read(), before)
        seconds = np.zeros(count, np.uint64)
        seconds[:pairs] = numbers[2 : 2 + 2 * pairs : 2][:count]
        np.testing.assert_array_equal(z.read(), (taken[::-1] + seconds).astype(np.uint32))
