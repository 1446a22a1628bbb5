"""PyTorch's own operators and samples (OpInfo), compiled by the backend and beside eager code; what is wrong is tried with Inductor's C++, too.

    python tests/interop/torch_ops.py run float32 int64 --part 1/4 --out FOLDER    every fourth op that takes a dtype
    python tests/interop/torch_ops.py page FOLDER                                  vyre_py/interop/torch/COVERAGE.md, of all parts; exits with 1 where an
                                                                                   op is wrong that Inductor's C++ has right
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from vyre_py.interop.torch import fallbacks, runtime
from vyre_py.interop.torch.backend import compile_graph

__all__ = ["DTYPES", "check", "named", "ops_of"]

DTYPES: Final = ("float32", "float64", "int64", "bfloat16", "float16", "bool")
MODELS: Final = "## Families of models"  # what `torch_models.py` writes to the page
PAGE: Final = Path(__file__).resolve().parents[2] / "vyre_py" / "interop" / "torch" / "COVERAGE.md"
SECONDS: Final = 120  # that an op may take with each backend
# Of these every run, eager ones too, may give anything, or nothing can be compared.
UNDEFINED: Final = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "as_strided.partial_views")
TOLERANCES: Final = {torch.float16: 1e-2, torch.bfloat16: 1.6e-2, torch.float64: 1e-9}


class TookTooLong(Exception):
    """An op was not done in time."""


def _alarm(*_: Any) -> None:
    raise TookTooLong


def named(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def ops_of(dtype: Any) -> list[Any]:
    """The operators that take a dtype; without those that only GPUs have."""
    return [op for op in op_db if dtype in op.supported_dtypes("cpu") and not op.name.startswith("jiterator")]


def copied(value: Any) -> Any:
    return tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, value)


def compare(op: Any, sample: Any, dtype: Any, backend: Any) -> None:
    """Raises AssertionError where compiled and eager results differ, and what compiling raises."""

    def called(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    torch._dynamo.reset()
    torch.manual_seed(7)
    wanted = op(copied(sample.input), *copied(sample.args), **sample.kwargs)
    torch.manual_seed(7)
    options = {"fallback_random": True}
    found = torch.compile(called, backend=backend, options=options)(copied(sample.input), *copied(sample.args), **sample.kwargs)
    bound = TOLERANCES.get(dtype, 2e-5)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=bound, atol=bound)


def tried(op: Any, dtype: Any, backend: Any, samples: int) -> tuple[int, str]:
    """How many samples were right, and what went wrong with the next."""
    done = 0
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        torch.manual_seed(0)
        with torch.compiler.config.patch(force_disable_caches=True):  # a graph from a cache does not tell what is left to PyTorch in it
            for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
                if number == samples:
                    break
                compare(op, sample, dtype, backend)
                done += 1
    except Exception as failed:  # noqa: BLE001 - whatever it is, it stands in the table
        return done, f"{type(failed).__name__}: {failed}"[:600]
    finally:
        signal.alarm(0)
    return done, ""


def check(op: Any, dtype: Any, samples: int = 3) -> dict[str, Any]:
    """What became of an op: samples that were right, kernels launched, what was left to PyTorch, and the first error, here and of Inductor's C++."""
    launched: list[Any] = []
    fallbacks._named.clear()
    with runtime.watching(launched.append):
        done, error = tried(op, dtype, compile_graph, samples)
    left = sorted(fallbacks._named)
    other = tried(op, dtype, "inductor", samples)[1] if error else ""
    return {"samples": done, "kernels": len(launched), "fallbacks": left, "error": error, "inductor": other}


def run(dtypes: Iterable[str], part: str, folder: Path, samples: int, only: Iterable[str]) -> None:
    """Checks a part of the ops, and writes a file for each dtype as it goes."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    number, parts = map(int, part.split("/"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in dtypes:
        dtype, begin, found = getattr(torch, name), time.monotonic(), {}
        for op in ops_of(dtype)[number - 1 :: parts]:
            if only and named(op) not in only:
                continue
            found[named(op)] = result = check(op, dtype, samples)
            if result["error"]:
                print(f"{name} {named(op)}: {result['error']}", flush=True)
            (folder / f"{name}-{number}-of-{parts}.json").write_text(json.dumps({"samples": samples, "ops": found}, indent=1), "utf-8")
        wrong = sum(bool(result["error"]) for result in found.values())
        print(f"{name} {part}: {len(found)} ops, {wrong} wrong, {time.monotonic() - begin:.0f} s", flush=True)


def collected(folder: Path) -> Mapping[str, tuple[int, dict[str, Any]]]:
    """By dtype: samples asked for, and what became of each op."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        read = json.loads(path.read_text("utf-8"))
        name = path.name.partition("-")[0]
        samples, ops = found.get(name, (read["samples"], {}))
        found[name] = min(samples, read["samples"]), ops | read["ops"]
    return found


def _row(name: str, samples: int, ops: Mapping[str, Any]) -> str:
    of = {op: result for op, result in ops.items() if op not in UNDEFINED}
    kernels = sum(bool(result["kernels"] and not result["error"]) for result in of.values())
    left = sum(bool(result["fallbacks"] and not result["error"]) for result in of.values())
    wrong = [result for result in of.values() if result["error"]]
    both = sum(bool(result["inductor"]) for result in wrong)
    known = len(ops_of(getattr(torch, name)))
    return f"| {name} | {len(ops)} of {known} | {samples} | {len(of) - len(wrong)} | {kernels} | {left} | {both} | {len(wrong) - both} |"


def page(folder: Path) -> tuple[str, list[str]]:
    """The text, and the ops that are wrong here alone."""
    found = collected(folder)
    lines = [
        "# What the backend of torch.compile covers", "",
        f"Made by `python tests/interop/torch_ops.py`, with PyTorch {torch.__version__}: its own operators and samples (OpInfo), compiled by the backend",
        "on the CPU, in one thread, beside eager code. Random numbers are PyTorch's own here. Results are close to within 2e-5, of float64 1e-9, float16 1e-2,",
        "bfloat16 1.6e-2. Kernels are ours; an op is left to PyTorch for want of ours.", "",
        "| dtype | ops run | samples of each | right | with kernels | with an op left | wrong, with Inductor's C++, too | wrong here alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *[_row(name, *found[name]) for name in DTYPES if name in found], "",
        "An op without kernels is PyTorch's own in Inductor, too (products of matrices, sorts, FFT and their like), or makes views only. Results that nobody",
        f"defines are not counted: {', '.join(f'`{name}`' for name in UNDEFINED)}.", "",
        *_left(found), "", *_wrong(found), "",
    ]  # fmt: skip
    alone = [f"{name} {op}" for name in DTYPES if name in found for op, r in found[name][1].items() if r["error"] and not r["inductor"] and op not in UNDEFINED]
    return "\n".join(lines), alone


def _left(found: Mapping[str, Any]) -> Iterator[str]:
    counts = Counter(what for _, ops in found.values() for result in ops.values() for what in result["fallbacks"])
    yield "## Left to PyTorch"
    yield ""
    yield ", ".join(f"`{what}`" for what in sorted(counts)) + "."


def _wrong(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## Wrong"
    yield ""
    yield "| dtype | op | what | Inductor's C++ |"
    yield "| --- | --- | --- | --- |"
    for name in DTYPES:
        for op, result in found.get(name, (0, {}))[1].items():
            if result["error"] and op not in UNDEFINED:
                what = " ".join(result["error"].split())[:160].replace("|", "\\|")
                yield f"| {name} | `{op}` | {what} | {'wrong, too' if result['inductor'] else 'right'} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("dtypes", nargs="+", choices=DTYPES)
    running.add_argument("--part", default="1/1")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--samples", type=int, default=3)
    running.add_argument("--only", default="")
    commands.add_parser("page").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.dtypes, given.part, given.out, given.samples, [name for name in given.only.split(",") if name])
        return 0
    text, alone = page(given.folder)
    _, title, models = PAGE.read_text("utf-8").partition(MODELS)
    PAGE.write_text(text.rstrip("\n") + "\n" + (f"\n{title}{models}" if title else ""), "utf-8")
    print(f"{len(alone)} ops are wrong that Inductor's C++ has right: {', '.join(alone) or 'none'}")
    return 1 if alone else 0


if __name__ == "__main__":
    sys.exit(main())
