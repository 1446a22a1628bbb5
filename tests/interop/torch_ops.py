"""PyTorch's own operators and samples (OpInfo), compiled by the backend and beside eager code.

    python tests/interop/torch_ops.py float32 --part 1/4 --out FILE.json      every op that takes the dtype, or a part of them
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from vyre_py.interop.torch import fallbacks, runtime
from vyre_py.interop.torch.backend import compile_graph

DTYPES = ("float32", "float64", "int64", "bfloat16", "float16", "bool")
SAMPLES = 3
SECONDS = 60


class TookTooLong(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise TookTooLong


def tolerances(dtype: Any) -> dict[str, float]:
    if dtype in (torch.float16, torch.bfloat16):
        return {"rtol": 1.6e-2, "atol": 1e-2}
    return {"rtol": 2e-5, "atol": 2e-5} if dtype is not torch.float64 else {"rtol": 1e-9, "atol": 1e-9}


def copied(value: Any) -> Any:
    return tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, value)


def compare(op: Any, sample: Any, dtype: Any, backend: Any) -> None:
    def called(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    torch._dynamo.reset()
    torch.manual_seed(7)
    wanted = op(copied(sample.input), *copied(sample.args), **sample.kwargs)
    torch.manual_seed(7)
    options = {"fallback_random": True} if backend == "inductor" else {}
    found = torch.compile(called, backend=backend, options=options)(copied(sample.input), *copied(sample.args), **sample.kwargs)
    torch.testing.assert_close(found, wanted, equal_nan=True, **tolerances(dtype))


def check(op: Any, dtype: Any, backend: Any) -> dict[str, Any]:
    """What became of an op."""
    launched: list[Any] = []
    error, done = "", 0
    fallbacks._named.clear()
    signal.alarm(SECONDS)
    try:
        torch.manual_seed(0)
        for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
            if number == SAMPLES:
                break
            with runtime.watching(launched.append):
                compare(op, sample, dtype, backend)
            done += 1
    except Exception as failed:  # noqa: BLE001 - whatever it is, it stands in the table
        error = f"{type(failed).__name__}: {failed}"[:600]
    finally:
        signal.alarm(0)
    return {"samples": done, "kernels": len(launched), "fallbacks": sorted(fallbacks._named), "error": error}


def named(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtype", choices=DTYPES)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--backend", default="vyre")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _alarm)
    dtype = getattr(torch, given.dtype)
    part, parts = map(int, given.part.split("/"))
    ops = [op for op in op_db if dtype in op.supported_dtypes("cpu")][part - 1 :: parts]
    backend = compile_graph if given.backend == "vyre" else given.backend
    found, begin = {}, time.monotonic()
    for op in ops:
        if given.only and named(op) not in given.only.split(","):
            continue
        found[named(op)] = result = check(op, dtype, backend)
        if result["error"]:
            print(f"{named(op)}: {result['error']}", flush=True)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1))
    wrong = sum(bool(result["error"]) for result in found.values())
    print(f"{given.dtype} {given.part}: {len(found)} ops, {wrong} wrong, {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
