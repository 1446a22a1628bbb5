"""PyTorch's own operators and samples (OpInfo), compiled by the backend and beside eager code; what is wrong is tried with Inductor's own code, too.

    python tests/interop/torch_ops.py run float32 int64 --workers 4 --out FOLDER    all ops that take a dtype; `--device cuda`: on a GPU
    python tests/interop/torch_ops.py page FOLDER                                   vyre_py/interop/torch/COVERAGE.md, of all that ran; exits with 1 where an
                                                                                    op is wrong that Inductor's own code has right
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from vyre_py.interop.torch import fallbacks, runtime
from vyre_py.interop.torch.backend import compile_graph

__all__ = ["DTYPES", "Group", "check", "collected", "named", "ops_of", "page", "run"]

DTYPES: Final = ("float32", "float64", "int64", "bfloat16", "float16", "bool")
MODELS: Final = "## Families of models"  # what `torch_models.py` writes to the page
PAGE: Final = Path(__file__).resolve().parents[2] / "vyre_py" / "interop" / "torch" / "COVERAGE.md"
SECONDS: Final = 120  # that an op may take with each backend
# Of these every run, eager ones too, may give anything, or nothing can be compared.
UNDEFINED: Final = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "as_strided.partial_views")
# These results are dropout's seed and offset, which nobody sets where there is no dropout.
UNSET: Final = {f"torch.ops.aten._{kind}_attention_forward": (2, 3) for kind in ("efficient", "flash")}
LOST: Final = {"samples": 0, "kernels": 0, "fallbacks": [], "error": "the process was lost", "inductor": ""}
TOLERANCES: Final = {torch.float16: 1e-2, torch.bfloat16: 1.6e-2, torch.float64: 1e-9}


class TookTooLong(Exception):
    """An op was not done in time."""


def _alarm(*_: Any) -> None:
    raise TookTooLong


def named(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


class Group(NamedTuple):
    """What a row of the table is about."""

    torch: str
    device: str
    dtype: str


def ops_of(dtype: Any, device: str = "cpu") -> list[Any]:
    """The operators that take a dtype; without those that only GPUs have."""
    return [op for op in op_db if dtype in op.supported_dtypes(device) and not op.name.startswith("jiterator")]


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
    bound, unset = TOLERANCES.get(dtype, 2e-5), UNSET.get(named(op), ())
    found, wanted = (tuple(r for place, r in enumerate(results) if place not in unset) if unset else results for results in (found, wanted))
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=bound, atol=bound)


def tried(op: Any, dtype: Any, backend: Any, samples: int, device: str) -> tuple[int, str]:
    """How many samples were right, and what went wrong with the next."""
    done = 0
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        torch.manual_seed(0)
        with torch.compiler.config.patch(force_disable_caches=True):  # a graph from a cache does not tell what is left to PyTorch in it
            for number, sample in enumerate(op.sample_inputs(device, dtype)):
                if number == samples:
                    break
                compare(op, sample, dtype, backend)
                done += 1
    except Exception as failed:  # noqa: BLE001 - whatever it is, it stands in the table
        return done, f"{type(failed).__name__}: {failed}"[:600]
    finally:
        signal.alarm(0)
    return done, ""


def check(op: Any, dtype: Any, samples: int = 3, device: str = "cpu") -> dict[str, Any]:
    """What became of an op: samples that were right, kernels launched, what was left to PyTorch, and the first error, here and of Inductor's own code."""
    launched: list[Any] = []
    fallbacks._named.clear()
    with runtime.watching(launched.append):
        done, error = tried(op, dtype, compile_graph, samples, device)
    left = sorted(fallbacks._named)
    other = tried(op, dtype, "inductor", samples, device)[1] if error and is_sound(device) else ""
    return {"samples": done, "kernels": len(launched), "fallbacks": left, "error": error, "inductor": other}


def is_sound(device: str) -> bool:
    """Whether a process can still compute: a kernel that went wrong on a GPU takes all others of its process with it."""
    try:
        torch.zeros(1, device=device).item()
    except Exception:  # noqa: BLE001 - whatever PyTorch calls it
        return False
    return True


class Wanted(NamedTuple):
    """What is to run: an op is taken by whichever worker is free, and each writes a file for a dtype as it goes."""

    dtypes: tuple[str, ...]
    device: str
    samples: int
    only: frozenset[str]
    folder: Path

    def ops(self) -> list[tuple[str, Any]]:
        """All ops, with the names of their dtypes."""
        every = ((name, op) for name in self.dtypes for op in ops_of(getattr(torch, name), self.device))
        return [(name, op) for name, op in every if not self.only or named(op) in self.only]


def work(wanted: Wanted, taken: Any, number: int) -> None:
    """A worker: checks ops for as long as there are any that nobody has taken."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    ops, found = wanted.ops(), {name: {} for name in wanted.dtypes}
    while True:
        with taken:
            place, taken.value = taken.value, taken.value + 1
        if place >= len(ops):
            return
        name, op = ops[place]
        for result in (LOST, None):  # what stands there if the process ends within
            found[name][named(op)] = result or check(op, getattr(torch, name), wanted.samples, wanted.device)
            known = len(ops_of(getattr(torch, name), wanted.device))
            told = {"torch": torch.__version__, "device": wanted.device, "dtype": name, "known": known, "samples": wanted.samples, "ops": found[name]}
            (wanted.folder / f"{wanted.device}-{name}-{number}.json").write_text(json.dumps(told, indent=1), "utf-8")
        if error := found[name][named(op)]["error"]:
            print(f"{name} {named(op)}: {error}", flush=True)
        if not is_sound(wanted.device):
            sys.exit(1)


def run(wanted: Wanted, workers: int) -> int:
    """Checks ops in so many processes, in place of each that is lost another; how many were lost."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    begin, context = time.monotonic(), multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    taken, numbers = context.Value("l", 0), itertools.count()

    def started() -> Any:
        process = context.Process(target=work, args=(wanted, taken, next(numbers)))
        process.start()
        return process

    running, lost = [started() for _ in range(workers)], 0
    while running:
        multiprocessing.connection.wait([process.sentinel for process in running])
        ended = [process for process in running if not process.is_alive()]
        failed = sum(process.exitcode != 0 for process in ended)
        lost += failed
        more = failed if lost <= taken.value < len(wanted.ops()) else 0  # each took an op, or none ever will
        running = [process for process in running if process not in ended] + [started() for _ in range(more)]
    print(f"{len(wanted.ops())} ops, {time.monotonic() - begin:.0f} s, {lost} processes were lost")
    return lost


def collected(folder: Path) -> Mapping[Group, dict[str, Any]]:
    """What became of the ops of each group, how many are `known`, and how many samples were asked for at least."""
    found: dict[Group, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        read = json.loads(path.read_text("utf-8"))
        group = Group(read["torch"], read["device"], read["dtype"])
        before = found.get(group, {"samples": read["samples"], "ops": {}})
        found[group] = {"known": read["known"], "samples": min(before["samples"], read["samples"]), "ops": before["ops"] | read["ops"]}
    order = sorted(found, key=lambda group: (group.device, group.torch, DTYPES.index(group.dtype)))
    return {group: found[group] for group in order}


def _row(group: Group, told: Mapping[str, Any]) -> str:
    of = {op: result for op, result in told["ops"].items() if op not in UNDEFINED}
    kernels = sum(bool(result["kernels"] and not result["error"]) for result in of.values())
    left = sum(bool(result["fallbacks"] and not result["error"]) for result in of.values())
    wrong = [result for result in of.values() if result["error"]]
    both = sum(bool(result["inductor"]) for result in wrong)
    ran = f"{len(told['ops'])} of {told['known']} | {told['samples']}"
    return f"| {group.torch} | {group.device} | {group.dtype} | {ran} | {len(of) - len(wrong)} | {kernels} | {left} | {both} | {len(wrong) - both} |"


def page(folder: Path) -> tuple[str, list[str]]:
    """The text, and the ops that are wrong here alone."""
    found = collected(folder)
    lines = [
        "# What the backend of torch.compile covers", "",
        "Made by `python tests/interop/torch_ops.py`: PyTorch's own operators and samples (OpInfo), compiled by the backend, in one thread, beside eager code.",
        "Random numbers are PyTorch's own here. Results are close to within 2e-5, of float64 1e-9, float16 1e-2, bfloat16 1.6e-2. Kernels are ours; an op is",
        "left to PyTorch for want of ours. Inductor's own code is C++ on the CPU, and Triton's on CUDA.", "",
        "| PyTorch | device | dtype | ops run | samples of each | right | with kernels | with an op left | wrong, of Inductor, too | wrong here alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *[_row(group, told) for group, told in found.items()], "",
        "An op without kernels is PyTorch's own in Inductor, too (products of matrices, sorts, FFT and their like), or makes views only. Results that nobody",
        f"defines are not counted: {', '.join(f'`{name}`' for name in UNDEFINED)}. Seed and",
        f"offset of dropout are not compared, which nobody sets without dropout: {', '.join(f'`{name}`' for name in UNSET)}.", "",
        *_left(found), "", *_wrong(found), "",
    ]  # fmt: skip
    wrong = ((group, op) for group, told in found.items() for op, r in told["ops"].items() if r["error"] and not r["inductor"] and op not in UNDEFINED)
    return "\n".join(lines), [f"{group.device} {group.dtype} {op}" for group, op in wrong]


def _left(found: Mapping[Group, Any]) -> Iterator[str]:
    counts = Counter(what for told in found.values() for result in told["ops"].values() for what in result["fallbacks"])
    yield "## Left to PyTorch"
    yield ""
    yield ", ".join(f"`{what}`" for what in sorted(counts)) + "."


def _wrong(found: Mapping[Group, Any]) -> Iterator[str]:
    yield "## Wrong"
    yield ""
    yield "| PyTorch | device | dtype | op | what | Inductor's own code |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for group, told in found.items():
        for op, result in sorted(told["ops"].items()):
            if result["error"] and op not in UNDEFINED:
                what = " ".join(result["error"].split())[:160].replace("|", "\\|")
                yield f"| {' | '.join(group)} | `{op}` | {what} | {'wrong, too' if result['inductor'] else 'right'} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("dtypes", nargs="+", choices=DTYPES)
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--samples", type=int, default=3)
    running.add_argument("--only", default="")
    commands.add_parser("page").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        only = frozenset(name for name in given.only.split(",") if name)
        return int(run(Wanted(tuple(given.dtypes), given.device, given.samples, only, given.out), given.workers) > 0)
    text, alone = page(given.folder)
    _, title, models = PAGE.read_text("utf-8").partition(MODELS)
    PAGE.write_text(text.rstrip("\n") + "\n" + (f"\n{title}{models}" if title else ""), "utf-8")
    print(f"{len(alone)} ops are wrong that Inductor's own code has right: {', '.join(alone) or 'none'}")
    return 1 if alone else 0


if __name__ == "__main__":
    sys.exit(main())
