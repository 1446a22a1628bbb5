"""Outputs that a call of a pipeline makes beside PyTorch's and JAX's arrays, and what is said of inputs that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from device_kinds import need_package, open_device
from random_calls import outcome

try:
    import torch
except ImportError:
    need_package("torch", "torch")

from vyre_py.ir.text.parser import parse

COPY = """program copied(n) {{
  buffer x: {0}[n] read
  buffer z: {0}[n] write
  z[global_id.x] = x[global_id.x]
}}"""
TYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "u16": torch.uint16, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
    "f32": torch.float32, "f64": torch.float64, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}  # fmt: skip


class Tensor(torch.Tensor):
    """A user's own kind of tensor."""


@pytest.mark.parametrize("name", TYPES)
def test_an_output_is_made_of_every_type(name: str) -> None:
    entry = open_device("cpu").compile_native(parse(COPY.format(name))).callable()
    x = torch.tensor([0, 1, 2, 1, 0]).to(TYPES[name])
    for given in (x, torch.nn.Parameter(x, requires_grad=False), x.as_subclass(Tensor)):
        z = entry(given)
        assert type(z) is torch.Tensor and z.dtype == x.dtype and z.shape == x.shape
        assert z.view(torch.uint8).tolist() == x.view(torch.uint8).tolist()


def test_vectors_have_an_axis_of_components() -> None:
    z = open_device("cpu").compile_native(parse(COPY.format("bf16x2"))).callable()(torch.ones(3, 2, dtype=torch.bfloat16))
    assert z.shape == (3, 2) and z.dtype == torch.bfloat16 and bool((z == 1).all())


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float8_e4m3fn"])
def test_an_output_beside_an_array_of_jax_is_one_of_jax(name: str) -> None:
    need_package("jax", "jax")
    from jax import Array
    from jax import numpy as jnp

    type_ = {"bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "f8e4m3"}[name]
    z = open_device("cpu").compile_native(parse(COPY.format(type_))).callable()(jnp.arange(4).astype(name))
    assert isinstance(z, Array) and z.dtype == name and z.astype("float32").tolist() == [0, 1, 2, 3]


def _misfits() -> dict[str, Any]:
    ones = torch.ones(8)
    return {
        "gradient": torch.ones(8, requires_grad=True), "negative": torch._neg_view(ones), "conjugate": torch.ones(8, dtype=torch.complex64).conj(),
        "meta": torch.ones(8, device="meta"), "sparse": ones.to_sparse(), "f64": ones.double(), "bf16": ones.bfloat16(), "strided": torch.ones(16)[::2],
        "list": [1.0] * 8, "none": None, "number": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize("name", _misfits())
def test_an_input_that_does_not_fit_is_told_as_bind_tells_it(name: str) -> None:
    pipeline = open_device("cpu").compile_native(parse(COPY.format("f32")))
    entry, x = pipeline.callable(), _misfits()[name]
    said = outcome(entry, {"x": x})
    assert said is not None and said == outcome(pipeline.bind, {"x": x, "z": torch.zeros(8)}) == outcome(entry, {"x": x, "z": None})
