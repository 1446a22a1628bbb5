"""Compiled functions beside eager PyTorch and Inductor's C++, in one process.

    python tests/bench/bench_torch.py [NAME ...] [--threads N] [--peers eager,inductor]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.nn import functional

from vyre_py.interop.torch.backend import compile_graph

CASES: Final[Mapping[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]] = {
    "chain of 1k elements": (lambda x: (x * 2 + 1).relu() * x, lambda: (torch.randn(1000),)),
    "chain of 4M elements": (lambda x: (x * 2 + 1).relu() * x, lambda: (torch.randn(1 << 22),)),
    "gelu of 1M": (functional.gelu, lambda: (torch.randn(1 << 20),)),
    "softmax 2048 x 2048": (lambda x: x.softmax(-1), lambda: (torch.randn(2048, 2048),)),
    "layer norm 2048 x 1024": (lambda x: functional.layer_norm(x, (1024,)), lambda: (torch.randn(2048, 1024),)),
    "sum of 4M": (torch.sum, lambda: (torch.randn(1 << 22),)),
    "sum of columns, 2048 x 1024": (lambda x: x.sum(0), lambda: (torch.randn(2048, 1024),)),
    "sum of columns, 16384 x 64": (lambda x: x.sum(0), lambda: (torch.randn(16384, 64),)),
    "mean and variance of columns": (lambda x: torch.var_mean(x, 0), lambda: (torch.randn(2048, 1024),)),
    "x.t() + y, 1024 x 1024": (lambda x, y: x.t() + y, lambda: (torch.randn(1024, 1024), torch.randn(1024, 1024))),
    "cumsum 2048 x 1024": (lambda x: (x * 2).cumsum(-1), lambda: (torch.randn(2048, 1024),)),
    "rows added by index": (
        lambda w, i: torch.zeros_like(w).index_add(0, i, torch.ones(8192, 128)), lambda: (torch.randn(1000, 128), torch.randint(0, 1000, (8192,))),
    ),
}  # fmt: skip


def microseconds(function: Callable[[], Any], seconds: float = 0.3) -> float:
    """The least of several timings, each of as many calls as take a while."""
    function()
    begin = time.perf_counter()
    function()
    count = max(1, int(seconds / 8 / max(time.perf_counter() - begin, 1e-6)))
    best = float("inf")
    for _ in range(8):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", default="eager,inductor")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    peers = [peer for peer in given.peers.split(",") if peer]
    print(f"{'us':34}" + "".join(f"{name:>12}" for name in (*peers, "vyre")))
    for name, (function, made) in CASES.items():
        if given.names and not any(word in name for word in given.names):
            continue
        arguments = made()
        row = []
        for peer in (*peers, compile_graph):
            torch._dynamo.reset()
            called = function if peer == "eager" else torch.compile(function, backend=peer)
            row.append(microseconds(lambda called=called: called(*arguments)))  # noqa: B023 - called at once
        print(f"{name:34}" + "".join(f"{value:12.1f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
