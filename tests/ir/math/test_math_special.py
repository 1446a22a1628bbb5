"""The special functions of f32, as the interpreter computes their expansions: bounds, special values, and the same bits after all passes. Those of f64 are
in `test_math_double.py`, those of f16 and bf16 in `test_math_narrow.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from math_coefficients import ROOTS, gamma_root, gamma_root_places
from math_double import exact
from math_harness import around, assert_bound, assert_special, compute, program_of, reference, samples

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import SCALARS, f32
from vyre_py.ir.math.special.gamma import _ROOTS
from vyre_py.ir.passes.pipeline import optimise

# Where one formula ends and the next begins, and where results overflow or turn subnormal.
BORDERS: dict[str, list[float]] = {
    "erfcx": [0.0, -9.382415, -9.5, 2.0**14, 4.8e37, 3.4028235e38],
    "lgamma": [*(row[0] for row in _ROOTS[f32]), -10.0, -0.5, 0.5, 8.0, -8.0, 2.0**-20, 4.085003e36, 0.92857, 2.08928],
    "erfinv": [0.0, 1.0, -1.0, 0.98478824, 0.99999994, 0.5],
}


def arguments_of(name: str) -> Any:
    borders = np.concatenate([around(np.float32(BORDERS[name]), 20), np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])])
    return np.concatenate([*samples(name, 1 << 15), borders])


@pytest.mark.parametrize("name", BORDERS)
def test_within_the_bound(name: str) -> None:
    assert_bound(name, OPS[name].ulp, arguments_of(name))


@pytest.mark.parametrize("name", BORDERS)
def test_special_values(name: str) -> None:
    assert_special(name)


@pytest.mark.parametrize("name", BORDERS)
def test_the_passes_keep_all_bits(name: str) -> None:
    x = arguments_of(name)[::9].copy()
    result = np.zeros_like(x)
    interpret(optimise(check(program_of(name)), expand=frozenset({name})), {"x0": x, "out": result}, {"n": x.size})
    plain = compute(name, x)
    assert ((result.view(np.uint32) == plain.view(np.uint32)) | (np.isnan(result) & np.isnan(plain))).all()


@pytest.mark.parametrize("name", BORDERS)
def test_the_library_is_a_fair_judge(name: str) -> None:
    """mpmath gives what the f64 library gives, far below the differences that matter here."""
    x = np.concatenate([samples(name, 1 << 9)[0][::7], np.float32(BORDERS[name])])
    value = reference(name)(x)
    normal = np.isfinite(value) & (np.abs(value) > 1e-300) & np.isfinite(x)
    assert normal.sum() > 40 and f32 in OPS[name].of
    for argument, held in zip(x[normal].tolist(), value[normal].tolist(), strict=True):
        true = exact(name, argument)
        assert abs(true - held) <= abs(true) * 2.0**-30, (argument, held)


@pytest.mark.parametrize(("type_", "step"), [("f32", 1), ("f64", 6)])
def test_roots_of_the_gamma_function_are_those_of_the_script(type_: str, step: int) -> None:
    """Of f64, whose polynomials are long, every sixth."""
    held, places = _ROOTS[SCALARS[type_]], gamma_root_places(ROOTS[type_])
    assert len(held) == len(places)
    for row, place in zip(held[::-step], places[::-step], strict=True):
        assert tuple(map(float, np.float32(row) if type_ == "f32" else row)) == gamma_root(ROOTS[type_], place)
