"""exp, log, pow and the hyperbolic functions of f32, as the interpreter computes their expansions: bounds, special values, exact facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from math_harness import (
    around,
    assert_bound,
    assert_special,
    compute,
    drawn,
    f32s,
    program_of,
    reference,
    same_bits,
    samples,
    ulp_error,
)

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.passes.expand import expand
from vyre_py.ir.passes.pipeline import optimise

BOUND_ULP = 1.0  # what each module promises

EXPONENTIALS = ("exp", "exp2", "exp10", "expm1")
LOGARITHMS = ("log", "log2", "log10", "log1p")
HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
UNARY = (*EXPONENTIALS, *LOGARITHMS, *HYPERBOLIC)
ODD = ("sinh", "tanh", "asinh", "atanh")

mpmath.mp.prec = 200


# ---------------------------------------------------------------- bounds


def _steps(count: int, width: float) -> Any:
    """The borders of the ranges n - 1/2 to n + 1/2 of a reduction, times the width of one."""
    return (np.arange(-count, count + 1) + 0.5) * width


_POWERS = 2.0 ** np.arange(-149, 128)
_LN2 = float(np.log(2.0))

# Where one formula or range of a reduction ends and the next begins, and where results overflow, turn subnormal or reach a limit.
BORDERS: dict[str, list[Any]] = {
    "exp": [_steps(150, _LN2), [88.72283, -87.33655, -103.27893, -103.97208, -104.0, 89.0]],
    "exp2": [_steps(151, 1.0), np.arange(-151, 130), [-149.5, -150.0]],
    "exp10": [_steps(152, _LN2 / np.log(10.0)), np.arange(-46, 40), [38.53184, -37.92978, -44.85347, -45.154499, -45.5]],
    "expm1": [_steps(130, _LN2), [88.72283, -17.328679, -18.0, 2.0**-25, -(2.0**-25)]],
    "log": [np.outer(_POWERS, [0.668, 1.0]).ravel()],
    "log2": [np.outer(_POWERS, [0.668, 1.0]).ravel()],
    "log10": [np.outer(_POWERS, [0.668, 1.0]).ravel(), 10.0 ** np.arange(-45, 39)],
    "log1p": [np.outer(_POWERS, [0.668, 1.0]).ravel() - 1.0, [2.0**-25, -(2.0**-25)]],
    "sinh": [_steps(130, _LN2), [89.41599, 90.0]],
    "cosh": [_steps(130, _LN2), [89.41599, 90.0]],
    "tanh": [_steps(30, _LN2 / 2), [0.36, -0.36, 9.010914, 10.0]],
    "asinh": [np.sinh(_LN2 * np.arange(-127, 129)), np.sinh(np.log(np.outer(_POWERS[149:], [0.668, 1.336]).ravel())), [0.5, -0.5, 2.0**30]],
    "acosh": [np.cosh(_LN2 * np.arange(129)), np.cosh(np.log(np.outer(_POWERS[149:], [0.668, 1.336]).ravel())), [np.sqrt(1.25), 2.0**30]],
    "atanh": [np.tanh(_steps(26, _LN2 / 2)), [0.5, -0.5]],
}


@pytest.mark.parametrize("name", UNARY)
def test_within_the_bound(name: str) -> None:
    (drawn_,) = samples(name, 1 << 20)
    borders = around(np.concatenate([f32s(part) for part in BORDERS[name]]), 20)
    assert_bound(name, BOUND_ULP, np.concatenate([drawn_, borders]))


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_next_to_one(name: str) -> None:
    """A logarithm near its root has no bits to lose: log(1 + 2^-23) is 2^-23, all of it relevant."""
    x = around([1.0], 1 << 15)
    assert_bound(name, BOUND_ULP, f32s(x - 1.0) if name == "log1p" else x)


@pytest.mark.parametrize("name", [*UNARY, "pow"])
def test_f64_library_is_a_fair_judge(name: str) -> None:
    """mpmath with 200 bits gives what the f64 library gives, far below the differences that matter here."""
    functions: dict[str, Callable[..., Any]] = {
        "exp2": lambda x: mpmath.mpf(2) ** x,
        "exp10": lambda x: mpmath.mpf(10) ** x,
        "log2": lambda x: mpmath.log(x, 2),
        "pow": lambda x, y: x**y,
    }
    function = functions.get(name) or getattr(mpmath, name)
    arguments = [x[::40] for x in samples(name, 1 << 12)]
    exact = reference(name)(*arguments)
    normal = np.isfinite(exact) & (np.abs(exact) > 1e-300)
    for *operands, value in zip(*(x[normal].tolist() for x in arguments), exact[normal].tolist(), strict=True):
        true = function(*map(mpmath.mpf, operands))
        assert abs(true - value) <= abs(true) * 2.0**-48


# ---------------------------------------------------------------- pow


def _assert_powers(x: Any, y: Any) -> None:
    assert_bound("pow", BOUND_ULP, x, y)


def test_pow_of_all_bit_patterns_and_in_everyday_ranges() -> None:
    _assert_powers(*samples("pow", 1 << 20))


def _exponents_for(x: Any, results: Any) -> Any:
    """y with x^y = 2^results, nearly."""
    with np.errstate(all="ignore"):
        return f32s(results / np.log2(x.astype(np.float64)))


def _positive(draw: np.random.Generator, count: int) -> Any:
    """All positive finite f32, each exponent alike, but for 1."""
    x = draw.integers(1, 0x7F800000, count).astype(np.uint32).view(np.float32)
    return np.where(x == 1, np.float32(3), x)


def test_pow_to_every_magnitude_of_result() -> None:
    draw = drawn("pow")
    x = _positive(draw, 1 << 19)
    _assert_powers(x, _exponents_for(x, draw.uniform(-152.0, 130.0, x.size)))


def test_pow_near_one_with_large_exponents() -> None:
    """x next to 1 and |y| up to 2^31: an error of x's logarithm is multiplied by all of y."""
    draw = drawn("large")
    x = np.concatenate([1.0 + draw.uniform(-0.5, 0.5, 1 << 17) * 2.0 ** draw.uniform(-22.0, 0.0, 1 << 17), around([1.0], 500)])
    x = f32s(x[f32s(x) != 1])
    _assert_powers(x, _exponents_for(x, draw.uniform(-150.0, 128.0, x.size)))


def test_pow_at_both_ends_of_the_range() -> None:
    draw = drawn("ends")
    x = _positive(draw, 1 << 17)
    ends = [128.0 - 2.0 ** draw.uniform(-22.0, -5.0, x.size), draw.uniform(-150.0, -125.0, x.size)]
    for results in ends:
        _assert_powers(x, _exponents_for(x, results))


def test_pow_next_to_one() -> None:
    draw = drawn("small")
    x = _positive(draw, 1 << 16)
    _assert_powers(x, _exponents_for(x, draw.uniform(-1.0, 1.0, x.size) * 2.0 ** draw.uniform(-30.0, 0.0, x.size)))


def test_pow_of_negative_bases() -> None:
    draw = drawn("negative")
    x = -_positive(draw, 1 << 16)
    _assert_powers(x, f32s(draw.integers(-300, 300, x.size)))
    _assert_powers(f32s(-draw.uniform(0.9999, 1.0001, x.size)), f32s(draw.integers(-(1 << 20), 1 << 20, x.size)))


def test_pow_of_every_pair_of_special_values() -> None:
    """C's table of special cases, which NumPy's f64 follows: zeros, ones, infinities, NaN, whole and odd exponents, ends."""
    sizes = [0.0, 1e-45, 1.1754942e-38, 1.1754944e-38, 1e-10, 0.3, 0.5, 0.99999994, 1.0, 1.0000001, 1.5, 2.0, 2.5, 3.0, 4.0, 127.0, 128.0, 149.0, 150.0, 151.0]
    sizes += [8388607.0, 8388607.5, 8388609.0, 16777215.0, 16777216.0, 1e30, 2.0**127, 3.4028235e38, np.inf, np.nan]
    values = f32s([*sizes, *(-size for size in sizes)])
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    _assert_powers(x, y)


def test_pow_is_exact_where_the_result_is() -> None:
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(-300.0, 301.0), np.arange(0.0, 16.0)))
    exact = x**y
    fits = np.abs(exact) < 1 << 24
    assert same_bits(compute("pow", f32s(x[fits]), f32s(y[fits])), f32s(exact[fits])).all()
    whole = np.arange(-149.0, 128.0)
    assert same_bits(compute("pow", f32s(np.full(whole.size, 2.0)), f32s(whole)), f32s(2.0**whole)).all()
    roots = np.arange(0.0, 4096.0)
    assert same_bits(compute("pow", f32s(roots**2), f32s(np.full(roots.size, 0.5))), f32s(roots)).all()
    (any_,) = samples("log", 1 << 14)
    assert same_bits(compute("pow", any_, f32s(np.ones(any_.size))), any_).all()


# ---------------------------------------------------------------- exact facts


@pytest.mark.parametrize("name", [*UNARY, "pow"])
def test_special_values(name: str) -> None:
    assert_special(name)


def test_whole_powers_are_exact() -> None:
    whole = np.arange(-160.0, 140.0)
    with np.errstate(over="ignore"):
        assert same_bits(compute("exp2", f32s(whole)), f32s(2.0**whole)).all()
        # 10^k is an f32 up to 10^10; beyond, the nearest one.
        tens = np.arange(0.0, 39.0)
        assert same_bits(compute("exp10", f32s(tens)), f32s([float(10 ** int(k)) for k in tens])).all()


def test_logarithms_of_whole_powers_are_exact() -> None:
    assert same_bits(compute("log2", f32s(_POWERS)), f32s(np.arange(-149.0, 128.0))).all()
    assert same_bits(compute("log10", f32s(10.0 ** np.arange(11.0))), f32s(np.arange(11.0))).all()


@pytest.mark.parametrize("name", [*ODD, "cosh"])
def test_symmetry_is_exact(name: str) -> None:
    (x,) = samples(name, 1 << 15)
    flip = np.uint32(0x80000000 if name in ODD else 0)
    got, mirrored = compute(name, x), compute(name, -x)
    assert ((mirrored.view(np.uint32) == got.view(np.uint32) ^ flip) | np.isnan(got)).all()


RANGES = [("tanh", -1.0, 1.0), ("cosh", 1.0, np.inf), ("expm1", -1.0, np.inf), ("exp2", 0.0, np.inf), ("exp10", 0.0, np.inf), ("acosh", 0.0, np.inf)]
RISING = [("tanh", 7.0, 10.0), ("expm1", 15.0, 18.0), ("atanh", 0.9999, 1.0), ("exp10", 38.5, 38.6), ("sinh", 89.3, 90.0)]


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_results_stay_within_the_range_of_the_function(name: str, low: float, high: float) -> None:
    (x,) = samples(name, 1 << 16)
    got = compute(name, x)
    assert (np.isnan(got) | ((got >= low) & (got <= high))).all()


@pytest.mark.parametrize(("name", "start", "stop"), RISING)
def test_monotone_at_the_ends(name: str, start: float, stop: float) -> None:
    first, last = f32s([start, stop]).view(np.uint32)
    x = np.linspace(first, last, 1 << 16).astype(np.uint32).view(np.float32)
    # expm1 ends below zero: there it falls as the argument's magnitude rises.
    sign = np.float32(-1 if name == "expm1" else 1)
    with np.errstate(invalid="ignore"):
        steps = np.diff(sign * compute(name, sign * x))
    # Infinity less infinity is no step.
    assert (np.nan_to_num(steps) >= 0).all()


@pytest.mark.parametrize("name", [*UNARY, "pow"])
def test_expansions_are_valid_and_keep_their_bits_through_the_passes(name: str) -> None:
    only = frozenset({name})
    check(expand(program_of(name), only))
    arguments = [x[::50] for x in samples(name, 1 << 15)]
    arguments = [np.concatenate([x, f32s([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])]) for x in arguments]
    result = np.zeros_like(arguments[0])
    interpret(optimise(check(program_of(name)), expand=only), {**{f"x{k}": x for k, x in enumerate(arguments)}, "out": result}, {"n": result.size})
    assert same_bits(result, compute(name, *arguments)).all()
    assert (ulp_error(result, reference(name)(*arguments)) <= BOUND_ULP).all()
