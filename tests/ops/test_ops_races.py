"""Ready Programs have no races: neither their invocations nor, in those of tiles, their workgroups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

import vyre_py as vp

_RANDOM: Final = np.random.default_rng(3)
_X: Final = _RANDOM.normal(size=(70, 70)).astype(np.float32)
_W: Final = _X[0].copy()
_HALVES: Final = _X.astype(np.float16)
_HEADS: Final = _RANDOM.normal(size=(1, 2, 40, 64)).astype(np.float32)
_KEYS: Final = _RANDOM.integers(0, 9, 3200, np.uint32)
_WATCHING: Final = vp.DispatchConfig(races=True, unwritten=True)

# A Program, and arguments with which several of its workgroups run.
_OPS: Final[Mapping[str, tuple[Callable[[], vp.Program], Mapping[str, Any]]]] = {
    "matmul": (lambda: vp.ops.matmul(tiles=(16, 32, 16), bias=True, residual=True), {"a": _X, "b": _X, "bias": _W, "residual": _X}),
    "matmul_tensor": (lambda: vp.ops.matmul(vp.f16, vp.f32, tiles=(32, 32, 16), transpose_b=True, stages=3), {"a": _HALVES, "b": _HALVES}),
    "attention": (lambda: vp.ops.attention(causal=True, tiles=(16, 16)), {"q": _HEADS, "k": _HEADS, "v": _HEADS}),
    "softmax": (lambda: vp.ops.softmax(vp.f32, 70), {"source": _X}),
    "softmax_long": (vp.ops.softmax, {"source": _X}),
    "layer_norm": (lambda: vp.ops.layer_norm(vp.f32, 70), {"source": _X, "weight": _W, "bias": _W}),
    "rms_norm": (vp.ops.rms_norm, {"source": _X, "weight": _W}),
    "transpose": (vp.ops.transpose, {"source": _X}),
    "permute": (lambda: vp.ops.permute(vp.f32, (2, 0, 3, 1)), {"source": _HEADS}),
    "sum": (lambda: vp.ops.sum(vp.f32, 2, 0), {"source": _X}),
    "argmax": (lambda: vp.ops.argmax(vp.f32, 2, 1), {"source": _X}),
    "top_k": (lambda: vp.ops.top_k(vp.f32, 3), {"source": _X}),
    "gather": (vp.ops.gather, {"source": _X, "indices": _KEYS[:100]}),
    "scatter_add": (vp.ops.scatter_add, {"source": _X, "indices": _KEYS[:70], "target": np.zeros((9, 70), np.float32)}),
    "prefix_sum": (vp.ops.prefix_sum, {"source": _KEYS}),
    "prefix_sum_of_neighbours": (lambda: vp.ops.prefix_sum(on="sm_90"), {"source": _KEYS}),
    "histogram": (lambda: vp.ops.histogram(vp.u32, 9), {"values": _KEYS, "counts": np.zeros(9, np.uint32)}),
    "radix_count": (vp.ops.radix_count, {"keys": _KEYS, "shift": 0}),
    "fft": (lambda: vp.ops.fft(64), {"source": _RANDOM.normal(size=(3, 64, 2)).astype(np.float32)}),
}


@pytest.mark.parametrize("name", _OPS)
def test_ready_programs_do_not_race(name: str) -> None:
    make, arguments = _OPS[name]
    given = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in arguments.items()}
    vp.device("reference").compile_native(make(), vp.CompileOptions(opt=0)).dispatch(given, config=_WATCHING)


def test_keys_and_values_of_a_sort_do_not_race() -> None:
    reference = vp.device("reference")
    counts = reference.compile_native(vp.ops.radix_count()).dispatch({"keys": _KEYS, "shift": 0})["counts"]
    places = reference.compile_native(vp.ops.prefix_sum(exclusive=True)).dispatch({"source": counts})["target"]
    given = {"keys": _KEYS, "places": places, "shift": 0, "values": np.arange(_KEYS.size, dtype=np.uint64)}
    for on in (None, "cpu"):
        move = reference.compile_native(vp.ops.radix_move(values=vp.u64, on=on), vp.CompileOptions(opt=0))
        found = move.dispatch(given, config=vp.DispatchConfig(races=True))["sorted_values"]
        assert np.array_equal(found, np.argsort(_KEYS, kind="stable"))


def test_a_product_whose_tiles_overlap_is_found_at_the_line_that_stores() -> None:
    """The grid counts tiles of 16 rows, and the offsets count ones of 8."""
    with vp.TileBuilder("overlapping") as b:
        m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
        x, y, z = b.read("x", vp.f32, m, k), b.read("y", vp.f32, k, n), b.write("z", vp.f32, m, n)
        b.grid(vp.ceil_div(n, 16), vp.ceil_div(m, 16))
        i, j = b.workgroup_id(1) * 8, b.workgroup_id(0) * 16
        acc = b.var("acc", vp.f32, shape=(16, 16))
        with b.for_(0, k, 16) as p:
            acc.set(vp.mma(x.tile(i, p, shape=(16, 16)), y.tile(p, j, shape=(16, 16)), acc))
        z[i, j] = acc + vp.cast(b.workgroup_id(1), vp.f32)
    with pytest.raises(vp.RaceError, match=r"R101 z\[8, 0\]: workgroup \(0, 0\) writes it, workgroup \(0, 1\) writes it, and nothing orders two") as caught:
        vp.device("reference").compile_native(b.program).dispatch({"x": _X, "y": _X}, config=_WATCHING)
    (found,) = caught.value.diagnostics
    assert found.place is not None and found.place.file == __file__
    assert "z[i, j] = acc + vp.cast" in str(caught.value)
