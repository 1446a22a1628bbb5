"""The model that orders candidates of tuning: what it counts, and that what was measured to be the fastest is among the first ten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import vyre_py as vp
from vyre_py.lowering.target import Target
from vyre_py.ops.spaces import space_of
from vyre_py.tuning.estimate import estimate

matmul = partial(vp.ops.matmul, vp.f32)
TWICE = vp.Program.from_text("""program twice(n) workgroup(64) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  y[global_id.x] = x[global_id.x] * 2.0
}""")
# What the model asks of an H200.
H200: Any = SimpleNamespace(kind="cuda", target=Target("ptx", "sm_90"), properties=SimpleNamespace(multiprocessors=132))


def test_the_model_counts_work_and_turns_of_workgroups() -> None:
    cpu, program = vp.device("cpu"), matmul(tiles=(32, 32, 32))
    small, large = (estimate(program, cpu, dict.fromkeys("mnk", size)) for size in (256, 1024))
    assert 0 < 8 * small < large, "64 times the work"
    thin = estimate(matmul(tiles=(32, 32, 1)), cpu, dict.fromkeys("mnk", 256))
    assert small < thin, "32 times the turns for the same work"
    assert estimate(TWICE, cpu, {"n": 1 << 20}) > estimate(TWICE, cpu, {"n": 1 << 10})


def clocks(type_: vp.Type, tiles: tuple[int, int, int], stages: int = 0, **given: Any) -> float:
    return estimate(vp.ops.matmul(type_, tiles=tiles, stages=stages, **given), H200, dict.fromkeys("mnk", 8192))


def test_the_model_counts_how_far_ahead_a_loop_copies() -> None:
    """Until what is copied comes in time, and while there is room for it."""
    assert clocks(vp.bf16, (128, 64, 16), 1) > clocks(vp.bf16, (128, 64, 16), 2) > clocks(vp.bf16, (128, 64, 16), 3), "a step takes less time than a copy"
    assert clocks(vp.bf16, (128, 128, 64)) == clocks(vp.bf16, (128, 128, 64), 4), "as many as a loop has by itself"
    assert clocks(vp.bf16, (64, 64, 64), 12) > clocks(vp.bf16, (64, 64, 64), 3), "fewer workgroups have room"


def test_the_model_knows_what_is_not_copied_ahead() -> None:
    """Since strips have no room in workgroup memory, or sums none in registers."""
    assert clocks(vp.f64, (128, 128, 64)) > 1.5 * clocks(vp.f64, (128, 128, 32))
    assert clocks(vp.f64, (128, 64, 64), 3) > 1.5 * clocks(vp.f64, (128, 64, 64), 2)
    assert clocks(vp.f32, (128, 256, 32)) > 1.5 * clocks(vp.f32, (128, 128, 32))


def test_products_on_tensor_cores_are_the_faster_the_smaller_their_factors_are() -> None:
    tf32, bf16, i8 = (clocks(type_, (128, 256, 32), transpose_b=True, tensor=True) for type_ in (vp.f32, vp.bf16, vp.i8))
    assert tf32 > 1.5 * bf16 and bf16 > 1.5 * i8


def shapes(*tiles: tuple[int, ...], stages: int = 0) -> list[dict[str, Any]]:
    return [{"tiles": one, "stages": stages} for one in tiles]


# What ready Programs, with sizes, took the least time with, or up to 3 % more, of all that `space_of` has for them: `bench_tune.py --device cuda --all`, H200.
Work = tuple[Callable[..., vp.Program], Mapping[str, int], Sequence[Mapping[str, Any]]]
MEASURED: Mapping[str, Work] = {
    "bf16 4096^3": (partial(vp.ops.matmul, vp.bf16), {"m": 4096, "n": 4096, "k": 4096}, shapes((128, 256, 64))),
    "bf16 1024^3": (partial(vp.ops.matmul, vp.bf16, transpose_b=True), {"m": 1024, "n": 1024, "k": 1024}, shapes((128, 64, 128))),
    "bf16 3000 x 5000 x 1024": (partial(vp.ops.matmul, vp.bf16), {"m": 3000, "n": 5000, "k": 1024}, shapes((128, 256, 64))),
    "bf16 16 x 8192 x 8192": (partial(vp.ops.matmul, vp.bf16), {"m": 16, "n": 8192, "k": 8192}, shapes((16, 64, 128))),
    "i8 4096^3": (partial(vp.ops.matmul, vp.i8, transpose_b=True), {"m": 4096, "n": 4096, "k": 4096}, shapes((128, 256, 128))),
    "f32 2048^3": (
        matmul, {"m": 2048, "n": 2048, "k": 2048}, [*shapes((128, 128, 32), stages=3), *shapes((128, 128, 32), (64, 256, 32))],
    ),
    "f32 1000 x 1000 x 4096": (
        matmul, {"m": 1000, "n": 1000, "k": 4096}, [*shapes((64, 64, 64), stages=3), *shapes((64, 64, 64), (64, 64, 32))],
    ),
    "f64 2048^3": (
        partial(vp.ops.matmul, vp.f64), {"m": 2048, "n": 2048, "k": 2048},
        [*shapes((128, 64, 16), (128, 128, 16), stages=3), *shapes((128, 64, 16), (128, 128, 16), (128, 64, 32))],
    ),
    "f64 1000 x 3000 x 1024": (
        partial(vp.ops.matmul, vp.f64), {"m": 1000, "n": 3000, "k": 1024}, [*shapes((64, 32, 16)), *shapes((64, 32, 16), stages=3)],
    ),
    "attention 128 of 4096": (
        partial(vp.ops.attention, vp.bf16, 128), {"batch": 1, "heads": 16, "kv_heads": 16, "m": 4096, "n": 4096}, [{"tiles": (128, 128)}],
    ),
    "attention 64 of 4096, causal": (
        partial(vp.ops.attention, vp.bf16, 64, causal=True), {"batch": 1, "heads": 16, "kv_heads": 16, "m": 4096, "n": 4096}, [{"tiles": None}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_the_fastest_is_among_the_first_ten(name: str) -> None:
    make, sizes, fastest = MEASURED[name]
    space = space_of(make)
    assert space is not None
    candidates = [dict(zip(space.values, values, strict=True)) for values in product(*space.values.values())]
    ten = sorted(candidates, key=lambda given: estimate(make(**given), H200, sizes))[:10]
    assert [given for given in ten if given in fastest]
