"""Programs of tiles of all kinds, each launched twice on a GPU, for compute-sanitizer to look at; what a launch gives has to be the same both times.

    compute-sanitizer --tool racecheck --error-exitcode 99 python tests/programs/gpu_tiles.py 3/12     a part of them
    compute-sanitizer --tool racecheck --error-exitcode 99 python tests/programs/gpu_tiles.py planted  a few, compiled without barriers, for it to find
    compute-sanitizer --tool racecheck --error-exitcode 99 python tests/programs/gpu_tiles.py whole    the same as they are

Where a Program adds floats by atomics the order is not fixed, so that their last bits would differ: its arguments are whole numbers, whose sums are exact.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tree import on_path

on_path()

import products  # noqa: E402 - as above
from product_programs import LOOP_SIZES, LOOPS, SUM_SIZES, SUMS, arrays_of  # noqa: E402 - as above
from tiles import arguments_for, generate_tiles  # noqa: E402 - as above

import vyre_py as vp  # noqa: E402 - as above
from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, u8, u32, u64  # noqa: E402 - as above
from vyre_py.lowering.llvm.gpu.simt.workgroup import Workgroup  # noqa: E402 - as above

__all__ = ["CASES", "PLANTED", "Case", "part"]

# A Program, its arguments, options, and a target other than the device's own.
Case = tuple[Callable[[], vp.Program], Callable[[], Mapping[str, Any]], vp.CompileOptions, str]

_GENERATED: Final = 12
_FACTORS: Final = (f16, bf16, f32, f64, f8e4m3, f8e5m2, i8, u8)
_LARGE: Final = {1: (128, 256, 128), 2: (128, 256, 64), 4: (128, 256, 32), 8: (64, 64, 16)}
_OPTIONS: Final = vp.CompileOptions()
_PLAIN: Final = ("argmax", "transpose f32", "layer norm")  # whose elements go from warp to warp through workgroup memory


def _elements(type_: Type, *shape: int) -> np.ndarray[Any, Any]:
    made = np.random.default_rng(len(shape)).integers(-8, 9, shape)
    return made.astype(type_.dtype) if type_.is_float or type_.is_signed else np.abs(made).astype(type_.dtype)


def _product(type_: Type, m: int, n: int, k: int, *, batch: int = 0, arch: str = "", options: vp.CompileOptions = _OPTIONS, **given: Any) -> Case:
    def arguments() -> dict[str, Any]:
        many = (batch,) if batch else ()
        a = (*many, *((k, m) if given.get("transpose_a") else (m, k)))
        b = (*many, *((n, k) if given.get("transpose_b") else (k, n)))
        rest = {"bias": (n,), "residual": (*many, m, n)}
        scale = {"scale": 0.5} if given.get("scaled") else {}
        return {"a": _elements(type_, *a), "b": _elements(type_, *b), **{name: _elements(type_, *rest[name]) for name in rest if given.get(name)}, **scale}

    return partial(vp.ops.matmul, type_, batched=bool(batch), **given), arguments, options, arch


def _attention(type_: Type, head: int, m: int, n: int, *, heads: int = 2, shared: int = 2, arch: str = "", **given: Any) -> Case:
    def arguments() -> dict[str, Any]:
        return {"q": _elements(type_, 1, heads, m, head), **{name: _elements(type_, 1, shared, n, head) for name in "kv"}}

    return partial(vp.ops.attention, type_, head, **given), arguments, _OPTIONS, arch


def _case(make: Callable[[], vp.Program], **arguments: Any) -> Case:
    return make, lambda: arguments, _OPTIONS, ""


def _generated(number: int) -> Case:
    program = generate_tiles(random.Random(number), most=40)
    given = arguments_for(program, np.random.default_rng(number))[0]
    return lambda: program, lambda: given, _OPTIONS, ""


def _generated_products(number: int) -> Case:
    program = products.generate_products(random.Random(number))
    given = products.arguments_for(program, random.Random(number), whole=number % 2 == 0)[0]
    return lambda: program, lambda: given, _OPTIONS, ""


def _written(program: vp.Program, sizes: Mapping[str, int]) -> Case:
    return lambda: program, lambda: arrays_of(program, sizes), _OPTIONS, ""


def _places(keys: np.ndarray[Any, Any], part: int = 3072) -> np.ndarray[Any, Any]:
    """Where the keys of each digit of each tile go, as `radix_move` wants it: all of digit 0 first."""
    counts = np.array([[np.count_nonzero(keys[at : at + part] % 256 == digit) for at in range(0, len(keys), part)] for digit in range(256)], np.uint32)
    return np.cumsum(counts.ravel(), dtype=np.uint32) - counts.ravel()


def _cases() -> dict[str, Case]:
    ops, x, wide = vp.ops, _elements(f32, 70, 300), _elements(f32, 9, 3000)
    w, keys = _elements(f32, 300), np.random.default_rng(3).integers(0, 9, 7000, np.uint32)
    turned: dict[str, Any] = {"transpose_b": True}
    rows: dict[str, Case] = {}
    for t in _FACTORS:
        rows[f"product {t}"] = _product(t, 256, 256, 256, tensor=True, tiles=(64, 64, 16) if t is f64 else (128, 128, 32) if t is f32 else "medium")
        rows[f"product {t} by columns"] = _product(t, 256, 512, 256, tensor=True, tiles=_LARGE[t.size_bytes], **turned)
        rows[f"product {t} ragged"] = _product(t, 129, 95, 77, tensor=True, tiles=(64, 64, 16) if t is f64 else "small")
    rows |= {
        "strict f32": _product(f32, 128, 192, 96, tiles=(128, 64, 16), tensor=False),
        "strict f32 large by columns": _product(f32, 128, 256, 96, tiles="large", tensor=False, **turned),
        "strict f64": _product(f64, 128, 192, 48, tiles=(128, 128, 16), tensor=False),
        "strict bf16 ragged": _product(bf16, 65, 67, 33, tiles="small", tensor=False),
        "bias": _product(bf16, 256, 512, 192, tiles="large", bias=True, activation="gelu_tanh"),
        "residual": _product(bf16, 256, 512, 192, tiles="large", residual=True, scaled=True, activation="relu"),
        "all of it": _product(f16, 100, 200, 72, tiles="medium", bias=True, residual=True, scaled=True, activation="silu"),
        "batched": _product(bf16, 128, 128, 128, batch=3, tiles="medium", residual=True),
        "first by columns": _product(bf16, 128, 256, 128, tiles="large", transpose_a=True),
        "walked": _product(bf16, 1664, 3072, 128, tiles="large"),  # more tiles than an H200 has multiprocessors, in clusters
        "walked by columns": _product(bf16, 1664, 3072, 128, tiles="large", **turned),
        "one strip": _product(bf16, 128, 256, 256, tiles="medium", stages=1),
        "two strips": _product(bf16, 128, 256, 256, tiles="medium", stages=2),
        "eight strips": _product(f16, 128, 128, 512, tiles="small", stages=8, **turned),
        "skinny": _product(bf16, 16, 256, 512, tiles=(16, 64, 128)),
        **{f"sm_80 {t}": _product(t, 128, 256, 256, tensor=True, arch="sm_80", tiles="small", transpose_b=t is not f64) for t in (bf16, f32, f64, i8)},
        "sm_80 bf16 large": _product(bf16, 128, 256, 256, arch="sm_80", tiles="large"),
        "sm_89 f8e4m3": _product(f8e4m3, 128, 128, 256, arch="sm_89", tiles="small", **turned),
        **{f"no boxes {t}": _product(t, 256, 512, 256, options=vp.CompileOptions(boxes=False), tiles=_LARGE[t.size_bytes], **turned) for t in (bf16, i8)},
        "persistent": _product(bf16, 256, 512, 256, options=vp.CompileOptions(persistent=True), tiles="medium"),
        "attention": _attention(bf16, 64, 256, 256),
        "attention causal": _attention(bf16, 64, 256, 256, causal=True),
        "attention of 128": _attention(bf16, 128, 256, 512),
        "attention of 128 causal": _attention(f16, 128, 256, 256, causal=True),
        "attention of groups, ragged": _attention(bf16, 64, 100, 163, heads=4),
        "attention of sm_90's bits": _attention(f16, 64, 128, 256, tensor="sm_90", tiles=(128, 64)),
        "attention f32": _attention(f32, 64, 70, 70, tensor=False),
        "attention by warps": _attention(bf16, 64, 128, 192, tiles=(64, 64), causal=True),
        "attention of sm_80": _attention(bf16, 64, 128, 192, arch="sm_80"),
        "softmax": _case(lambda: ops.softmax(f32, 300), source=x),
        "softmax of long rows": _case(ops.softmax, source=wide),
        "layer norm": _case(lambda: ops.layer_norm(f32, 300), source=x, weight=w, bias=w),
        "layer norm of long rows": _case(ops.layer_norm, source=x, weight=w, bias=w),
        "rms norm": _case(lambda: ops.rms_norm(f32, 300), source=x, weight=w),
        "sum of columns": _case(lambda: ops.sum(f32, 2, 0), source=x),
        "sum": _case(ops.sum, source=wide.ravel()),
        "mean": _case(lambda: ops.mean(f32, 2, 1), source=wide),
        "max": _case(lambda: ops.max(f32, 3, 1), source=wide.reshape(9, 30, 100)),
        "argmax": _case(lambda: ops.argmax(f32, 2, 1), source=wide),
        "transpose f32": _case(ops.transpose, source=x),
        "transpose bf16": _case(lambda: ops.transpose(bf16), source=_elements(bf16, 128, 256)),
        "permute": _case(lambda: ops.permute(f32, (2, 0, 3, 1)), source=wide.reshape(3, 9, 10, 100)),
        "top k": _case(lambda: ops.top_k(f32, 5), source=wide),
        "prefix sum": _case(ops.prefix_sum, source=keys),
        "prefix sum f32": _case(lambda: ops.prefix_sum(f32), source=wide.ravel()),
        "histogram": _case(lambda: ops.histogram(u32, 9), values=keys, counts=np.zeros(9, np.uint32)),
        "gather": _case(ops.gather, source=x, indices=keys[:100]),
        "scatter add": _case(ops.scatter_add, source=x, indices=keys[:70], target=np.zeros((9, 300), np.float32)),
        "radix count": _case(ops.radix_count, keys=keys, shift=0),
        "radix move": _case(ops.radix_move, keys=keys, places=_places(keys), shift=0),
        "radix move of pairs": _case(partial(ops.radix_move, values=u64), keys=keys, places=_places(keys), values=np.arange(7000, dtype=np.uint64), shift=0),
        "fft": _case(lambda: ops.fft(256), source=np.random.default_rng(4).normal(size=(3, 256, 2)).astype(np.float32)),
    }
    rows |= {f"{kind}: {name}": _written(program, sizes) for kind, made, sizes in (("loops", LOOPS, LOOP_SIZES), ("sums", SUMS, SUM_SIZES))
             for name, program in made.items()}  # fmt: skip
    rows |= {f"generated {number}": _generated(number) for number in range(_GENERATED)}
    return rows | {f"generated products {number}": _generated_products(number) for number in range(_GENERATED)}


CASES: Final[Mapping[str, Case]] = _cases()
PLANTED: Final[dict[str, Case]] = {name: CASES[name] for name in _PLAIN}


def part(which: str) -> dict[str, Case]:
    """Part k of n, from `k/n`: every n-th; or those of which `planted` has more, from `whole`."""
    if which == "whole":
        return PLANTED
    number, parts = map(int, which.split("/"))
    return dict(list(CASES.items())[number - 1 :: parts])


def run(name: str, case: Case, device: Any) -> str:
    """Launches a Program twice, and says what became of it. Raises AssertionError where the launches differ."""
    make, arguments, options, arch = case
    begin = time.monotonic()
    try:
        pipeline = device.load(vp.compile_native(make(), [arch], options)) if arch else device.compile_native(make(), options)
    except vp.Unsupported as error:
        return f"refused: {error}"
    compiled = time.monotonic()
    one, two = (pipeline.dispatch(dict(arguments())) for _ in range(2))
    for buffer, array in one.items():
        assert array.tobytes() == two[buffer].tobytes(), f"{name}: two launches differ in {buffer!r}"
    return f"compiled in {compiled - begin:.1f} s, launched in {time.monotonic() - compiled:.1f} s"


def main(which: str) -> None:
    """Runs a part; or, `planted`, those whose barriers are left out, where launches may well differ."""
    device = vp.device("cuda")
    if which == "planted":
        with mock.patch.object(Workgroup, "barrier", return_value=None):
            for make, arguments, *_ in PLANTED.values():
                device.compile_native(make()).dispatch(dict(arguments()))
        print(f"{len(PLANTED)} Programs without barriers")
        return
    names = part(which)
    refused = 0
    for name, case in names.items():
        said = run(name, case, device)
        refused += said.startswith("refused")
        print(f"{name}: {said}", flush=True)
    print(f"{len(names)} Programs, {refused} refused")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "1/1")
