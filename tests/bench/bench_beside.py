"""The kernels of the pages in `docs/beside/`, in each tool as its page writes them, in turns.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 taskset -c 1 python -m tests.bench.bench_beside cpu
    taskset -c 1 python -m tests.bench.bench_beside wgpu
    python -m tests.bench.bench_beside cuda

It prints the figures and puts them into `docs/beside/figures.json`, or into the file of `--json FILE`; `python tests/pages.py` brings them into the page.
On the CPU, and on a Vulkan device in software, times are processor time, so that others on the machine don't count. "First" is what all cost until both
kernels have run once over small arrays, with no cache anywhere and with imports left out. Tools that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

import vyre_py as vp

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from site_pages import blocks  # noqa: E402 - as above

from tests.bench.bench_pages import machine  # noqa: E402 - the path above must stand first

ROUNDS: Final = 9
ROUND_NS: Final = 4_000_000
MOST_CALLS: Final = 100
# Kind of device -> its tools: the name, its page, and the package without which it is left out. And how many elements, and rows.
TOOLS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "cpu": (("vyre-py", "index", "vyre_py"), ("Numba", "numba", "numba"), ("Warp", "warp", "warp")),
    "cuda": (("vyre-py", "index", "vyre_py"), ("Triton", "triton", "triton"), ("CuPy", "cupy", "cupy"), ("Warp", "warp", "warp")),
    "wgpu": (("vyre-py", "index", "vyre_py"), ("wgpu-py", "wgpu-py", "wgpu")),
}  # fmt: skip
SIZES: Final = {"cpu": (1 << 22, 2048), "cuda": (1 << 28, 65536), "wgpu": (1 << 20, 512)}
SMALL: Final = (4096, 8)
CACHES: Final = ("TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "WARP_CACHE_PATH")


def _arrays(elements: int, rows: int) -> tuple[np.ndarray[Any, Any], ...]:
    generator = np.random.default_rng(1)
    return generator.random(elements, np.float32), generator.random(elements, np.float32), generator.random((rows, 1024), np.float32)


def _prepare(page: str, folder: Path) -> Callable[..., dict[str, Any]]:
    """What a page calls `prepare`, imported from a file, since some tools read their own source."""
    text = next(block.body for block in blocks(ROOT / "docs" / "beside" / f"{page}.md") if block.language == "python" and "def prepare" in block.body)
    file = folder / f"beside_{page.replace('-', '_')}.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.prepare  # type: ignore[no-any-return]  # what the page defines


def _checked(name: str, calls: dict[str, Any], given: tuple[np.ndarray[Any, Any], ...]) -> None:
    """Runs both kernels once. Raises AssertionError where a result is wrong."""
    x, y, rows = given
    for kernel in ("axpy", "softmax"):
        calls[kernel]()
    calls["wait"]()
    found = calls["results"]()
    np.testing.assert_allclose(found[0], 2 * x + y, rtol=1e-5, err_msg=name)
    powers = np.exp(rows)
    np.testing.assert_allclose(np.asarray(found[1]).reshape(rows.shape), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, err_msg=name)


def _race(tools: Mapping[str, dict[str, Any]], kernel: str, clock: Callable[[], int]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in tools}
    repeats = dict.fromkeys(tools, 1)
    for turn in range(-1, ROUNDS):
        for name, calls in tools.items():
            begin = clock()
            for _ in range(repeats[name]):
                calls[kernel]()
            calls["wait"]()
            taken = clock() - begin
            if turn < 0:
                repeats[name] = max(1, min(MOST_CALLS, ROUND_NS // max(1, taken)))
            else:
                times[name].append(taken / repeats[name] / 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Prints a table, and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_beside")
    parser.add_argument("device", choices=tuple(TOOLS))
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "beside" / "figures.json")
    asked = parser.parse_args()
    clock = time.perf_counter_ns if asked.device == "cuda" else time.process_time_ns
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(dict.fromkeys(CACHES, name), VYRE_DEVICE=asked.device, VYRE_CACHE_LIMIT="0")
        device = vp.device()
        device.upload(np.zeros(1, np.float32)).read()
        here = {tool: _prepare(page, folder) for tool, page, package in TOOLS[asked.device] if importlib.util.find_spec(package) is not None}
        if "Triton" in here:
            import torch

            torch.zeros(1).cuda()
        first, tools, small = {}, {}, _arrays(*SMALL)
        for tool, prepare in here.items():
            begin = time.perf_counter_ns()
            _checked(tool, prepare(*small), small)
            first[tool] = (time.perf_counter_ns() - begin) / 1e6
        elements, rows = SIZES[asked.device]
        given = _arrays(elements, rows)
        for tool, prepare in here.items():
            tools[tool] = prepare(*given)
            _checked(tool, tools[tool], given)
        found = {"axpy": _race(tools, "axpy", clock), "softmax": _race(tools, "softmax", clock)}
    rates = {"axpy": 12 * elements, "softmax": 8 * 1024 * rows}
    table = {tool: {**{kernel: [float(f"{ms[tool]:.4g}"), float(f"{rates[kernel] / ms[tool] / 1e6:.4g}")] for kernel, ms in found.items()},
                    "first": float(f"{first[tool]:.3g}")} for tool in tools}  # fmt: skip
    for tool, row in table.items():
        print(f"{tool:10s} {row}", flush=True)
    known = json.loads(asked.json.read_text("utf-8")) if asked.json.is_file() else {}
    known[asked.device] = {"machine": machine(device), "elements": elements, "rows": rows, "tools": table}
    asked.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
