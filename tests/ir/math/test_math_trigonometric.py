"""tan, the inverse trigonometric functions, roots and error functions of f32, as the interpreter computes their expansions."""

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
    near_quarter_turns,
    program_of,
    reference,
    same_bits,
    samples,
    ulp_error,
)

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.nodes import Load, Space
from vyre_py.ir.passes.expand import expand
from vyre_py.ir.passes.pipeline import optimise

BOUND_ULP = 1.0  # what each module promises

UNARY = ("tan", "asin", "acos", "atan", "cbrt", "erf", "erfc")
BINARY = ("atan2", "hypot")
ODD = ("tan", "asin", "atan", "cbrt", "erf")

INF, NAN = np.inf, np.nan
POWERS = 2.0 ** np.arange(-149, 128)

mpmath.mp.prec = 200


# ---------------------------------------------------------------- bounds of functions of one argument

# Where one formula or range of a reduction ends and the next begins, and where results turn subnormal or reach a limit.
BORDERS: dict[str, list[Any]] = {
    "tan": [np.arange(-200, 200) * np.pi / 4, 2.0 ** np.array([-13, -12, 15.9, 16, 16.1, 17]), near_quarter_turns()],
    "asin": [[0.5, 1.0, 0.70710677], 1 - 2.0 ** np.arange(-24, -1)],
    "acos": [[0.5, 1.0, 0.70710677], 1 - 2.0 ** np.arange(-24, -1)],
    "atan": [[0.5, 1.0, 2.0**60, 4.1e7], np.tan(np.linspace(0.01, 1.57, 300))],
    "cbrt": [[2.0**-60], np.arange(-300, 300) ** 3, np.outer(POWERS, [1.0, 1.25, 1.5, 1.75])],
    "erf": [[1.0, 3.8325, 3.92, 3.93], -np.log2(np.arange(1, 27) * np.log(2.0))],
    "erfc": [[0.5, 3.8325, 9.19455, 9.3, 10.05, 10.0545, 10.25, 11.0], np.sqrt((np.arange(1, 155) - 0.5) * np.log(2.0))],
}


@pytest.mark.parametrize("name", UNARY)
def test_within_the_bound(name: str) -> None:
    (spread,) = samples(name, 1 << 19)
    borders = around(np.concatenate([f32s(part).ravel() for part in BORDERS[name]]), 9)
    assert_bound(name, BOUND_ULP, np.concatenate([spread, borders, -borders]))


@pytest.mark.parametrize("name", ["asin", "acos", "atan", "erf", "erfc", "cbrt"])
def test_every_argument_of_one_binade(name: str) -> None:
    """A sixty-fourth of all there are between 1/2 and 1, and as many from a binade where the function has another formula."""
    other = {"asin": 0.25, "acos": -0.5, "atan": 1.0, "erf": 1.0, "erfc": 4.0, "cbrt": 2.0}[name]
    for first in (0.5, other):
        bits = int(np.float32(first).view(np.uint32)) + np.arange(5, 1 << 23, 64, dtype=np.uint32)
        assert_bound(name, BOUND_ULP, bits.astype(np.uint32).view(np.float32))


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_f64_library_is_a_fair_judge(name: str) -> None:
    """mpmath with 200 bits gives what the f64 library gives, far below the differences that matter here."""
    function: Callable[..., Any] = getattr(mpmath, name)
    arguments = [x[::40] for x in samples(name, 1 << 12)]
    exact = reference(name)(*arguments)
    normal = np.isfinite(exact) & (np.abs(exact) > 1e-300)
    for *operands, value in zip(*(x[normal].tolist() for x in arguments), exact[normal].tolist(), strict=True):
        # mpmath's cube root of a negative number is the complex one.
        true = -function(-mpmath.mpf(operands[0])) if name == "cbrt" and operands[0] < 0 else function(*map(mpmath.mpf, operands))
        assert abs(true - value) <= abs(true) * 2.0**-44


# ---------------------------------------------------------------- bounds of functions of two


def _pairs(name: str) -> dict[str, tuple[Any, Any]]:
    draw, count = drawn(name), 1 << 17

    def bits(low: int, high: int) -> Any:
        return draw.integers(low, high, count).astype(np.uint32).view(np.float32)

    near = draw.uniform(1.0, 2.0, count)
    return {
        "of one magnitude": (near, near * 2.0 ** draw.uniform(-6.0, 6.0, count)),
        "nearly equal": (near, near * (1.0 + draw.uniform(-1e-3, 1e-3, count))),
        "subnormal": (bits(0, 1 << 24), bits(0, 1 << 24)),
        "one subnormal": (bits(0, 1 << 12), draw.uniform(0.0, 1e-30, count)),
        "large": (bits(0x7D000000, 0x7F800000), bits(0x7D000000, 0x7F800000)),
        "of any magnitude": (bits(0, 0x7F800000), bits(0, 0x7F800000)),
        "with a small quotient": (bits(0x00800000, 0x20000000), draw.uniform(1.0, 2.0, count) * 2.0 ** draw.integers(0, 127, count)),
        "around the scaling": (bits(0, 0x7F800000), around(2.0 ** draw.choice([-60.0, 26.0, 60.0], count // 5), 2)[: count // 5 * 5]),
    }


@pytest.mark.parametrize("name", [*BINARY, "hypot3"])
def test_several_operands_within_the_bound(name: str) -> None:
    assert_bound(name, BOUND_ULP, *samples(name, 1 << 18))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kind", list(_pairs("any")))
def test_pairs_of_a_kind_within_the_bound(name: str, kind: str) -> None:
    a, b = (f32s(x) for x in _pairs(name)[kind])
    a = a[: b.size]
    for x, y in ((a, b), (b, -a)):
        assert_bound(name, BOUND_ULP, x, y)


@pytest.mark.parametrize("name", BINARY)
def test_every_pair_of_special_values(name: str) -> None:
    """C's Annex F, which NumPy's f64 follows: zeros, infinities, NaN, and the ends of the range."""
    sizes = [0.0, 1e-45, 1.1754942e-38, 1.1754944e-38, 1e-10, 0.99999994, 1.0, 1.0000001, 2.0**26, 2.0**60, 3.4028235e38, INF, NAN]
    values = f32s([*sizes, *(-size for size in sizes)])
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    assert_bound(name, BOUND_ULP, x, y)


# ---------------------------------------------------------------- exact facts


@pytest.mark.parametrize("name", [*UNARY, *BINARY, "hypot3"])
def test_special_values(name: str) -> None:
    assert_special(name)


@pytest.mark.parametrize("name", ODD)
def test_symmetry_is_exact(name: str) -> None:
    (x,) = samples(name, 1 << 15)
    got, mirrored = compute(name, x), compute(name, -x)
    assert (same_bits(mirrored, -got) | np.isnan(got)).all()


def test_cube_roots_of_cubes_are_exact() -> None:
    roots = np.concatenate([np.arange(-256.0, 257.0), 3.0 * 2.0 ** np.arange(-49, 42)])
    assert same_bits(compute("cbrt", f32s(roots**3)), f32s(roots)).all()


def test_hypot_of_pythagorean_triples_is_exact() -> None:
    m, n = (grid.ravel() for grid in np.meshgrid(np.arange(1.0, 200.0), np.arange(1.0, 200.0)))
    # Odd factors keep every bit of a sum below 2^24, and powers of two reach both ends of the range.
    for scale in (1.0, 2.0**-149, 2.0**-100, 2.0**100):
        a, b, c = (f32s(side * scale) for side in (np.abs(m * m - n * n), 2 * m * n, m * m + n * n))
        assert same_bits(compute("hypot", a, b), c).all()


def test_hypot_does_not_depend_on_order_and_signs() -> None:
    x, y = samples("hypot", 1 << 15)
    once = compute("hypot", x, y)
    assert same_bits(once, compute("hypot", -y, x)).all()
    # Never below either operand.
    assert (np.isnan(once) | (once >= np.fmax(np.abs(x), np.abs(y)))).all()


def test_atan2_of_mirrored_points() -> None:
    y, x = samples("atan2", 1 << 15)
    above, below = compute("atan2", y, x), compute("atan2", -y, x)
    assert same_bits(below, -above).all()


def test_tan_is_finite_next_to_its_poles() -> None:
    poles = around(near_quarter_turns(), 1)
    assert np.isfinite(compute("tan", poles[np.isfinite(poles)])).all()


RANGES = [("asin", -1.5707964, 1.5707964), ("acos", 0.0, 3.1415927), ("atan", -1.5707964, 1.5707964), ("erf", -1.0, 1.0), ("erfc", 0.0, 2.0)]


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_results_stay_within_the_range_of_the_function(name: str, low: float, high: float) -> None:
    (x,) = samples(name, 1 << 16)
    got = compute(name, x)
    assert (np.isnan(got) | ((got >= np.float32(low)) & (got <= np.float32(high)))).all()


RISING = [("erf", 3.7, 4.1), ("erf", 0.999, 1.001), ("atan", 1e6, 1e8), ("asin", 0.9999, 1.0), ("cbrt", 0.99, 1.01), ("tan", 1.5707, 1.5707963)]


@pytest.mark.parametrize(("name", "start", "stop"), RISING)
def test_monotone_where_results_crowd(name: str, start: float, stop: float) -> None:
    first, last = f32s([start, stop]).view(np.uint32)
    x = np.linspace(first, last, 1 << 15).astype(np.uint32).view(np.float32)
    steps = np.diff(compute(name, x).view(np.int32))
    # By at most one place in the other direction, which the bound allows.
    assert steps.min() >= -1


def test_erfc_falls_to_zero() -> None:
    x = np.linspace(9.0, 10.3, 1 << 16).astype(np.float32)
    got = compute("erfc", x)
    assert (np.diff(got.view(np.int32))[got[1:] < 1e-38] <= 0).all()
    assert got[-1] == 0 and not np.signbit(got).any()


# ---------------------------------------------------------------- the passes


@pytest.mark.parametrize("name", [*UNARY, *BINARY, "hypot3"])
def test_expansions_are_valid_and_keep_their_bits_through_the_passes(name: str) -> None:
    only = frozenset({name})
    check(expand(program_of(name), only))
    optimised = optimise(check(program_of(name)), expand=only)
    arguments = [np.concatenate([x[::50], f32s([0.0, -0.0, 1.0, INF, -INF, NAN])]) for x in samples(name, 1 << 15)]
    result = np.zeros_like(arguments[0])
    interpret(optimised, {**{f"x{k}": x for k, x in enumerate(arguments)}, "out": result}, {"n": result.size})
    assert same_bits(result, compute(name, *arguments)).all()
    assert (ulp_error(result, reference(name)(*arguments)) <= BOUND_ULP).all()
    loads = [i for i, s in enumerate(optimised.program.body) if isinstance(s, Load) and s.memory.space is Space.TABLE]
    assert len(loads) == (4 if name == "tan" else 0) and all(optimised.proven[i] == 1 for i in loads)
