"""Every transcendental function of f16 and bf16 over every argument there is, and those of several operands over a sample.

They are computed in f32 and rounded once more, so results are the nearest ones but where the exact value lies almost halfway between two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from math_harness import SEVERAL, UNARY, assert_bound, compute

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, bf16, f16

# 1 ULP of f32 is 2^-13 of f16's.
NEAREST_ULP = 0.5 + 2.0**-12
NARROW = [pytest.param(f16, id="f16"), pytest.param(bf16, id="bf16")]


def from_bits(bits: Any, type_: Type) -> Any:
    return np.asarray(bits).astype(np.uint16).view(type_.dtype)


@pytest.mark.parametrize("type_", NARROW)
@pytest.mark.parametrize("name", UNARY)
def test_every_argument(name: str, type_: Type) -> None:
    assert_bound(name, NEAREST_ULP, from_bits(np.arange(1 << 16), type_), type_=type_)


@pytest.mark.parametrize("type_", NARROW)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_operands(name: str, type_: Type) -> None:
    draw = np.random.default_rng(3)
    any_ = [from_bits(draw.integers(0, 1 << 16, 1 << 17), type_) for _ in OPS[name].operands]
    assert_bound(name, NEAREST_ULP, *any_, type_=type_)
    # All from 1/16 to 16, where neither is negligible.
    close = [(draw.choice([-1.0, 1.0], 1 << 16) * 2.0 ** draw.uniform(-4.0, 4.0, 1 << 16)).astype(np.float32).astype(type_.dtype) for _ in OPS[name].operands]
    assert_bound(name, NEAREST_ULP, *close, type_=type_)


@pytest.mark.parametrize("type_", NARROW)
@pytest.mark.parametrize("name", SEVERAL)
def test_all_special_values(name: str, type_: Type) -> None:
    sizes = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0, 200.0, np.inf, np.nan], np.float32)
    ends = from_bits([0x0001, 0x0400, 0x0080, 0x7BFF, 0x7F7F], type_)  # least and greatest numbers of both types, or NaN
    values = np.concatenate([sizes.astype(type_.dtype), ends])
    signed = np.concatenate([values, from_bits(values.view(np.uint16) ^ np.uint16(0x8000), type_)])
    grids = np.meshgrid(*[signed] * len(OPS[name].operands))
    assert_bound(name, NEAREST_ULP, *[grid.ravel() for grid in grids], type_=type_)


@pytest.mark.parametrize("type_", NARROW)
def test_results_have_the_type_of_the_operands(type_: Type) -> None:
    got = compute("exp", from_bits([0x0000, 0x7FFF], type_), type_=type_)
    assert got.dtype == type_.dtype
    assert got.astype(np.float32)[0] == 1 and np.isnan(got.astype(np.float32)[1])
