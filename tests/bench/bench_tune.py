"""Tuning: how near the best of the first ten candidates comes to the best of all, of the spaces of `vp.ops`.

    python tests/bench/bench_tune.py [--device cuda] [--only TEXT] [--all] [--top N]

Without `--all` ten are tried, and the time of tuning is shown; with it all of them, so that the best is known. "The model's ten" are without what
`vyre_py/tuning/defaults.py` has. Times of launches are medians of rounds in a worker process; the ratio is the best of all to the best of ten.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.types import Type
from vyre_py.ops.spaces import space_of
from vyre_py.tuning.estimate import estimate

_TRIES: Final = 10
Work = tuple[Callable[..., vp.Program], Mapping[str, tuple[int, ...]], Type, Mapping[str, int]]


def _product(type_: Type, m: int, n: int, k: int, **given: Any) -> Work:
    b = (n, k) if given.get("transpose_b") else (k, n)
    return partial(vp.ops.matmul, type_, **given), {"a": (m, k), "b": b}, type_, {"m": m, "n": n, "k": k}


def _attention(type_: Type, head: int, length: int, **given: Any) -> Work:
    shape = (1, 16, length, head)
    sizes = {"batch": 1, "heads": 16, "kv_heads": 16, "m": length, "n": length}
    return partial(vp.ops.attention, type_, head, **given), dict.fromkeys("qkv", shape), type_, sizes


# By kind of device: those of a CPU are smaller.
_WORKS: Final[Mapping[str, Mapping[str, Work]]] = {
    "cuda": {
        "bf16 4096^3": _product(vp.bf16, 4096, 4096, 4096),
        "bf16 1024^3, second transposed": _product(vp.bf16, 1024, 1024, 1024, transpose_b=True),
        "bf16 3000 x 5000 x 1024": _product(vp.bf16, 3000, 5000, 1024),
        "attention 128 of 4096": _attention(vp.bf16, 128, 4096),
        "attention 64 of 4096, causal": _attention(vp.bf16, 64, 4096, causal=True),
        "i8 4096^3, second transposed": _product(vp.i8, 4096, 4096, 4096, transpose_b=True),
        "bf16 16 x 8192 x 8192": _product(vp.bf16, 16, 8192, 8192),
        "f32 2048^3": _product(vp.f32, 2048, 2048, 2048),
        "f32 1000 x 1000 x 4096": _product(vp.f32, 1000, 1000, 4096),
        "f32 4096 x 1024 x 2048, second transposed": _product(vp.f32, 4096, 1024, 2048, transpose_b=True),
        "f64 2048^3": _product(vp.f64, 2048, 2048, 2048),
        "f64 1000 x 3000 x 1024": _product(vp.f64, 1000, 3000, 1024),
        "tf32 4096^3, second transposed": _product(vp.f32, 4096, 4096, 4096, transpose_b=True, tensor=True),
        "f8 2048 x 8192 x 4096, second transposed": _product(vp.f8e4m3, 2048, 8192, 4096, transpose_b=True),
    },
    "cpu": {
        "f32 512^3": _product(vp.f32, 512, 512, 512),
        "bf16 512^3": _product(vp.bf16, 512, 512, 512),
        "attention 64 of 256": _attention(vp.f32, 64, 256),
    },
}


def _array(type_: Type, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(1)
    made = random.standard_normal(shape, np.float32) if type_.is_float else random.integers(-128, 128, shape)
    return np.asarray(made).astype(type_.dtype)


def _best(times: Sequence[float]) -> float:
    return min(times[:_TRIES], default=math.inf)


def _show(name: str, work: Work, device: Any, everything: bool, top: int) -> None:
    make, shapes, type_, sizes = work
    space = space_of(make)
    assert space is not None
    arguments = {key: _array(type_, shape) for key, shape in shapes.items()}
    begin = time.perf_counter()
    found = vp.tune(
        make, space.values_on(device.kind), arguments, device=device, tries=None if everything else _TRIES, timeout=20.0, check=lambda results: None,
        again=True, progress=False,
    )  # fmt: skip
    taken = time.perf_counter() - begin
    timed = [(trial.launch_ns or math.inf, trial.parameters) for trial in sorted(found.tried, key=lambda trial: trial.rank)]
    by_model = sorted(timed, key=lambda row: estimate(make(**row[1]), device, sizes))
    best, ten, model = min(ns for ns, _ in timed), _best([ns for ns, _ in timed]), _best([ns for ns, _ in by_model])
    ran = sum(ns < math.inf for ns, _ in timed)
    text = f"{name:32s} {dict(found.parameters)!s:44s} {best / 1e3:10.1f} us, {ran} of {found.candidates} ran, {taken:.0f} s"
    print(text + (f"; of the best: ten {best / ten:.3f}, the model's ten {best / model:.3f}" if everything else ""), flush=True)
    for ns, parameters in sorted(timed, key=lambda row: row[0])[:top] if everything else []:
        print(f"    {dict(parameters)!s:48s} {ns / 1e3:10.1f} us, number {[p for _, p in by_model].index(parameters) + 1} in the model's order", flush=True)


def main() -> None:
    """Prints a row for each work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--top", type=int, default=3, help="how many of all are shown")
    given = parser.parse_args()
    device = vp.device(given.device)
    print(device.description)
    for name, work in _WORKS["cuda" if device.kind == "cuda" else "cpu"].items():
        if given.only in name:
            _show(name, work, device, given.all, given.top)


if __name__ == "__main__":
    main()
