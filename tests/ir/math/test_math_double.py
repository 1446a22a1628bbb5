"""The transcendental functions of f64, as the interpreter computes their expansions, against mpmath; the same bits where the GPU's walk and the CPU's
compute them; facts that are exact; and where their coefficients come from."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
import pytest
import simt_host
from math_coefficients import POLYNOMIALS, coefficients
from math_double import error, errors, exact, hard, near_quarter_turns, samples
from math_harness import SEVERAL, UNARY, compute, program_of
from ptxas import assemble

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Load, Space
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.passes.pipeline import optimise
from vyre_py.lowering.compile import emit_text

EVERY = tuple(name for name in (*UNARY, *SEVERAL) if f64 in OPS[name].of)
SAMPLES, HARD = 700, 500


def of_bits(name: str, *arguments: Any) -> Any:
    return compute(name, *[np.asarray(x, np.float64) for x in arguments], type_=f64)


@cache
def arguments_of(name: str) -> tuple[Any, ...]:
    """Drawn ones, and a share of the hard ones that differs from function to function."""
    edge = hard(name)
    picked = np.random.default_rng([3, *name.encode()]).permutation(edge[0].size)[:HARD]
    return tuple(np.concatenate([drawn, x[picked]]) for drawn, x in zip(samples(name, SAMPLES), edge, strict=True))


@cache
def results_of(name: str) -> Any:
    return of_bits(name, *arguments_of(name))


@pytest.mark.parametrize("name", EVERY)
def test_within_the_bound(name: str) -> None:
    """Special arguments and results are those of `tests/filetests`; here all are finite, and so is what is asked for."""
    worst, at, count = 0.0, "", 0
    for *arguments, got in zip(*(x.tolist() for x in arguments_of(name)), results_of(name).tolist(), strict=True):
        if not np.isfinite(arguments).all() or np.isnan(got) or (got in (0.0, np.inf, -np.inf) and 0.0 in arguments):
            continue
        count += 1
        if (off := error(got, exact(name, *arguments))) > worst:
            worst, at = off, f"{name}({', '.join(x.hex() for x in arguments)}) = {got}"
    print(f"{name}: {count} arguments, worst {worst:.4f} ULP, {at}")
    assert worst <= OPS[name].ulp and count > (SAMPLES + HARD) // 4, at


@pytest.mark.parametrize("name", EVERY)
def test_the_same_bits_everywhere(name: str) -> None:
    """On the interpreter as it is expanded and after all passes, on the CPU, and as the code that PTX is made of computes it on the host."""
    arguments = {f"x{k}": x for k, x in enumerate(arguments_of(name))}
    program, want = program_of(name, f64), {"out": results_of(name)}
    got = vp.device("cpu").compile_native(program).dispatch({**arguments, "out": np.zeros_like(want["out"])})
    simt_host.assert_same(program, {**arguments, **got}, {**arguments, **want})
    few = {key: np.ascontiguousarray(x[SAMPLES - 40 : SAMPLES + 216]) for key, x in {**arguments, **want}.items()}
    ready = optimise(check(program), expand=frozenset({name}))
    for run in (interpret, simt_host.run):
        made = {**few, "out": np.zeros(256)}
        run(ready, made, {"n": 256})
        simt_host.assert_same(program, made, few)


def test_ptx_of_all_functions_assembles() -> None:
    """All in one kernel, of which one is there so often that it is called."""
    lines = ["program all(n) over(n, 1, 1) {", "buffer x: f64[n, 64] read_write", "let i = global_id.x"]
    lines += [f"x[i, {k}u32] = {name}({', '.join(['x[i, 0u32]'] * len(OPS[name].operands))})" for k, name in enumerate(EVERY)]
    lines += [f"x[i, {40 + k}u32] = erfc(x[i, {k}u32])" for k in range(20)]
    text = emit_text(Program.from_text("\n".join([*lines, "}"])), "sm_90", form="ptx")
    assert "fma.rn.f64" in text and "fn_erfc_f64" in text
    assemble(text, "sm_90")


# ---------------------------------------------------------------- exact facts

WHOLE = np.arange(-1074.0, 1024.0)
TENS = np.arange(0.0, 23.0)
EXACT = [
    ("exp2", (WHOLE,), np.ldexp(1.0, WHOLE.astype(int))),
    ("log2", (np.ldexp(1.0, WHOLE.astype(int)),), WHOLE),
    ("exp10", (TENS,), 10.0**TENS),
    ("log10", (10.0**TENS,), TENS),
    ("cbrt", (np.arange(-200.0, 200.0) ** 3,), np.arange(-200.0, 200.0)),
    ("pow", (np.arange(-50.0, 50.0), np.full(100, 9.0)), np.arange(-50.0, 50.0) ** 9),
    ("pow", (np.full(2098, 2.0), WHOLE), np.ldexp(1.0, WHOLE.astype(int))),
    ("hypot", (np.array([3.0, -5e200, 8e-310, 7.0]), np.array([4.0, 12e200, 15e-310, -24.0])), np.array([5.0, 13e200, 17e-310, 25.0])),
]


@pytest.mark.parametrize(("name", "arguments", "want"), EXACT, ids=[row[0] for row in EXACT])
def test_exact_results(name: str, arguments: tuple[Any, ...], want: Any) -> None:
    assert np.array_equal(of_bits(name, *arguments), want)


@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "cbrt", "erf"])
def test_odd_functions_are_odd_to_the_bit(name: str) -> None:
    (x,), y = arguments_of(name), results_of(name)
    number = ~np.isnan(y)
    assert np.array_equal((of_bits(name, -x).view(np.uint64) ^ np.uint64(1 << 63))[number], y.view(np.uint64)[number]) and number.sum() > SAMPLES // 3


def test_every_table_load_of_the_large_reduction_is_proven_inside() -> None:
    optimised = optimise(check(program_of("sin", f64)), expand=frozenset({"sin"}))
    loads = [i for i, s in enumerate(optimised.program.body) if isinstance(s, Load) and s.memory.space is Space.TABLE]
    assert len(loads) == 4 and all(optimised.proven[i] == 1 for i in loads)


def test_angles_next_to_quarter_turns_have_all_their_bits() -> None:
    """The f64 that lies nearest to a multiple of pi/2, by the literature and by the search that tests use."""
    nearest = 6381956970095103.0 * 2.0**797
    assert nearest in near_quarter_turns()
    assert error(float(of_bits("cos", [nearest])[0]), exact("cos", nearest)) < 1 and abs(of_bits("cos", [nearest])[0]) < 2.0**-60


# ---------------------------------------------------------------- what the tests stand on


def test_errors_are_in_units_of_the_last_place() -> None:
    got = np.array([1.0, 1.0 + 2.0**-52, 2.0**-1074, np.inf, 1.0, np.nan, -0.0, 0.0])
    right = np.array([1.0, 1.0, 0.0, 2.0**1023, np.nan, np.nan, 0.0, 0.0], np.longdouble)
    assert errors(got, right).tolist() == [0.0, 1.0, 1.0, 2.0**52, np.inf, 0.0, np.inf, 0.0]
    found = [error(x, mpmath.mpf(float(y))) for x, y in zip(got[:4].tolist(), right[:4], strict=True)]
    assert found == [0.0, 1.0, 1.0, 2.0**52] and error(np.nan, mpmath.mpf(1)) == np.inf


# Where the coefficients of a polynomial are.
HELD = {
    "exp": "exp.EXP_TAIL", "expm1": "exp.EXPM1_TAIL", "exp2": "exp._EXP2_TAIL", "log": "log._TAIL", "log2_tail": "pow._TAIL", "inverse_f32": "pow._INVERSE",
    "sinh": "hyperbolic._SINH_TAIL", "cosh": "hyperbolic._COSH_TAIL", "tanh": "hyperbolic._TANH_TAIL", "sin": "sincos._SIN_TAIL", "cos": "sincos._COS_TAIL",
    "tan": "tan._REST", "asin": "asin._TAIL", "atan": "atan._REST", "asinh": "inverse_hyperbolic._ASINH_TAIL", "atanh": "inverse_hyperbolic._ATANH_TAIL",
    "erf": "special.erf._ERF_TAIL", "erfc": "special.erf._G", "erfcx": "special.erf._G_SCALED", "erfcx_f32": "special.erf._G_SCALED",
    "stirling_f32": "special.gamma._STIRLING", "stirling": "special.gamma._STIRLING", "sine_f32": "special.gamma._SINE", "sine": "special.gamma._SINE",
    **{f"erfinv{piece}": "special.inverse_erf._PIECES" for piece in ("", "_far", "_end", "_f32", "_far_f32")}, "cbrt": "roots._STEPS",
}  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_coefficients_are_those_of_the_script(name: str) -> None:
    module, _, attribute = HELD[name].rpartition(".")
    polynomial = POLYNOMIALS[name]
    held = getattr(import_module(f"vyre_py.ir.math.{module}"), attribute)
    held = held[f32 if polynomial.single else f64] if isinstance(held, dict) else held
    wanted = coefficients(polynomial)
    assert wanted in [[*map(polynomial.rounded, part)] for part in _tuples(held)]


def _tuples(held: Any) -> list[tuple[float, ...]]:
    """The tuples of numbers in a nested one."""
    if all(isinstance(number, float) for number in held):
        return [held]
    return [part for inner in held if isinstance(inner, tuple) for part in _tuples(inner)]
