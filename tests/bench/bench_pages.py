"""The steps of the pages in `docs/kernels/`, as their own code builds them, in turns, beside NumPy on the CPU and PyTorch on CUDA.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 taskset -c 1 python -m tests.bench.bench_pages cpu
    python -m tests.bench.bench_pages cuda

It prints the figures and puts them into `docs/kernels/figures.json`, or into the file of `--json FILE`; `python tests/pages.py` brings them into the pages.
On the CPU times are processor time, so that others on the machine don't count; `--only TEXT` takes pages whose name holds it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import vyre_py as vp
from vyre_py.drivers.device import Device

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from site_pages import blocks  # noqa: E402 - the path above must stand first

ROUNDS: Final = 9
ROUND_NS: Final = 4_000_000  # as many calls as take so long
MOST_CALLS: Final = 100


@dataclass(frozen=True)
class Case:
    """Sizes on the CPU and on CUDA, what the size is of, and how the peers do the same from the arguments."""

    cpu: int
    cuda: int
    size: str
    numpy: Callable[..., object] | None
    torch: Callable[..., object] | None
    more: Mapping[str, Callable[..., Callable[[], object]]] = field(default_factory=dict)  # what makes other calls of PyTorch's, by their names
    restored: bool = False  # what a launch writes is read by the next, so that it is put back in between


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(0, 2, 1) * np.float32(0.125)
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    return powers / powers.sum(axis=2, keepdims=True) @ v


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    off = x - x.mean(axis=1, keepdims=True)
    return off / np.sqrt((off * off).mean(axis=1, keepdims=True) + np.float32(1e-5)) * weight + bias


def _sorted(keys: Any) -> Any:
    return np.sort(keys)


def _blur(x: Any) -> Any:
    from scipy.ndimage import uniform_filter

    return uniform_filter(x, 5, mode="constant")


def _half_attention(q: Any, k: Any, v: Any) -> Callable[[], object]:
    return partial(_functional().scaled_dot_product_attention, q.half()[None], k.half()[None], v.half()[None])


def _tf32(x: Any, y: Any) -> Callable[[], object]:
    import torch

    def call() -> object:
        torch.backends.cuda.matmul.allow_tf32 = True
        product = x @ y
        torch.backends.cuda.matmul.allow_tf32 = False
        return product

    return call


def _functional() -> Any:
    import torch.nn.functional

    return torch.nn.functional


# PyTorch has no unsigned words, so that those go as signed ones.
CASES: Final[Mapping[str, Case]] = {
    "sum": Case(1 << 24, 1 << 28, "{:,} elements of f32", lambda x: x.sum(), lambda x: x.sum()),
    "transpose": Case(4096, 16384, "{0:,} x {0:,} elements of f32", lambda x: np.ascontiguousarray(x.T), lambda x: x.T.contiguous()),
    "histogram": Case(1 << 22, 1 << 28, "{:,} bytes", lambda values, counts: np.bincount(values, minlength=256),
                      lambda values, counts: values.bincount(minlength=256)),
    "prefix-sum": Case(1 << 22, 1 << 27, "{:,} elements of u32", lambda x: np.cumsum(x, dtype=np.uint32), lambda x: x.cumsum(0, dtype=x.dtype)),
    "compaction": Case(1 << 22, 1 << 27, "{:,} elements of f32", lambda x, limit, total: x[x > limit], lambda x, limit, total: x[x > limit], restored=True),
    "blur": Case(2048, 8192, "{0:,} x {0:,} elements of f32", _blur, lambda x: _functional().avg_pool2d(x[None, None], 5, 1, 2)),
    "sort": Case(1 << 18, 1 << 26, "{:,} keys of 32 bits", _sorted, lambda keys: keys.sort(), restored=True),
    "matmul": Case(512, 4096, "{0:,}^3, f32", lambda x, y: x @ y, lambda x, y: x @ y, {"PyTorch, tf32": _tf32}),
    "softmax": Case(2048, 65536, "{:,} rows of 1,024 elements of f32", _softmax, lambda x: x.softmax(1)),
    "layer-norm": Case(2048, 131072, "{:,} rows of 512 elements of f32", _layer_norm,
                       lambda x, weight, bias: _functional().layer_norm(x, x.shape[1:], weight, bias)),
    "n-body": Case(4096, 65536, "{:,} bodies", None, None),
    "attention": Case(512, 4096, "8 heads of 64, {:,} queries and keys", _attention,
                      lambda q, k, v: _functional().scaled_dot_product_attention(q[None], k[None], v[None]),
                      {"PyTorch, 16 bits": _half_attention}),
}  # fmt: skip


def _steps(page: Path) -> dict[str, Any]:
    """What a page defines up to its steps. Raises KeyError where it has none."""
    names: dict[str, Any] = {"vp": vp}
    for block in blocks(page):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), names)
            if "steps" in names:
                break
    return names


def _bound(step: Any, device: Device, given: dict[str, Any]) -> tuple[Callable[[], object], Callable[[], object]]:
    """A step as a call, and what puts back the arrays that it changes. A Program gets buffers for all of its own."""
    if not isinstance(step, vp.Program):
        launch, results = step(device, given)
        kept = [(buffer, given[name]) for name, buffer in results.items() if name in given]
    else:
        pipeline = device.compile_native(step)
        shaped = pipeline.dispatch(given)
        types = {memory.name: memory.type for memory in step.buffers}
        arrays = {name: device.upload(np.asarray(given.get(name, shaped.get(name))), type_) for name, type_ in types.items()}
        launch = pipeline.bind({**given, **arrays})
        kept = [(arrays[name], given[name]) for name in shaped if name in given]
    return launch, lambda: [buffer.write(array.reshape(buffer.host_shape)) for buffer, array in kept]


def _peer(case: Case, kind: str, given: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """The peer's call, if the peer is here."""
    if kind == "cpu" and case.numpy is not None:
        numpy = case.numpy
        return {"NumPy": lambda: numpy(**given)}
    if kind != "cuda" or case.torch is None or importlib.util.find_spec("torch") is None:
        return {}
    import torch

    peer = case.torch
    moved = {
        name: torch.from_numpy(value.view(np.int32) if value.dtype == np.uint32 else value).cuda() if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
    return {"PyTorch": partial(peer, **moved), **{name: make(**moved) for name, make in case.more.items()}}


def _race(
    calls: Mapping[str, tuple[Callable[[], object], Callable[[], object]]], wait: Callable[[], object], clock: Callable[[], int], restored: bool
) -> dict[str, float]:
    """The median milliseconds of each, taken in turns."""
    times = {name: list[float]() for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for turn in range(ROUNDS + 1):
        for name, (call, restore) in calls.items():
            if restored:
                restore()
            wait()
            begin = clock()
            for _ in range(repeats[name]):
                call()
            wait()
            taken = (clock() - begin) / repeats[name]
            if turn:
                times[name].append(taken / 1e6)
            elif not restored:  # the first is for warming up, the second tells how many calls make a round
                begin = clock()
                call()
                wait()
                repeats[name] = max(1, min(MOST_CALLS, ROUND_NS // max(1, clock() - begin)))
    return {name: statistics.median(taken) for name, taken in times.items()}


def _waiting(device: Device, peers: bool) -> Callable[[], object]:
    """What waits for all work, the peer's too."""
    if device.kind != "cuda" or not peers:
        return device.synchronize
    import torch

    return lambda: (device.synchronize(), torch.cuda.synchronize())


def machine(device: Device) -> str:
    if device.kind != "cpu":
        return device.description
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if sys.platform == "linux" else []:
        if line.startswith("model name"):
            return "one core of an " + line.partition(":")[2].strip()
    return "one core of an " + platform.machine()


def main() -> None:
    """Prints a table, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_pages")
    parser.add_argument("device", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "kernels" / "figures.json")
    parser.add_argument("--small", action="store_true", help="sizes that show that it runs, whose figures mean nothing")
    asked = parser.parse_args()
    device, clock = vp.device(asked.device), time.process_time_ns if asked.device == "cpu" else time.perf_counter_ns
    figures: dict[str, Any] = {}
    for name, case in CASES.items():
        if asked.only not in name:
            continue
        names, size = _steps(ROOT / "docs" / "kernels" / f"{name}.md"), case.cpu if asked.device == "cpu" else case.cuda
        size = min(size, 4096 if size > 100_000 else 128) if asked.small else size
        given = names["arguments"](size)
        calls = {step: _bound(built, device, given) for step, built in names["steps"].items()}
        peers = _peer(case, asked.device, given)
        found = _race({**calls, **{peer: (call, list) for peer, call in peers.items()}}, _waiting(device, bool(peers)), clock, case.restored)
        print(name, case.size.format(size), *(f"\n  {step:28s} {ms:12.4f} ms" for step, ms in found.items()), flush=True)
        figures[name] = {"size": case.size.format(size), "ms": {step: float(f"{ms:.4g}") for step, ms in found.items()}, "peers": list(peers)}
    known = json.loads(asked.json.read_text("utf-8")) if asked.json.is_file() else {}
    kept = known.get(asked.device, {}).get("kernels", {}) if asked.only else {}
    known[asked.device] = {"machine": machine(device), "kernels": {**kept, **figures}}
    asked.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
