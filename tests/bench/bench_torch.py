"""Compiled functions, and training steps of transformers' models, beside eager PyTorch and Inductor's own code (C++, on a GPU Triton), in one process.

    python tests/bench/bench_torch.py [NAME ...] [--device cuda] [--threads N] [--peers eager,inductor] [--families]

The first call has nothing compiled before it, and its time is in seconds; all others are the least of several timings. With `--device cuda` arrays have 16
times as many elements.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from vyre_py.interop.torch.backend import compile_graph

Made = Callable[[int], tuple[Any, ...]]
Called = Callable[[], Any]

# Functions, and their arguments, whose first axis is so many times as long.
CASES: Final[Mapping[str, tuple[Callable[..., Any], Made]]] = {
    "chain of 1k elements": (lambda x: (x * 2 + 1).relu() * x, lambda k: (torch.randn(1000),)),
    "chain of 4M elements": (lambda x: (x * 2 + 1).relu() * x, lambda k: (torch.randn(k << 22),)),
    "gelu of 1M": (functional.gelu, lambda k: (torch.randn(k << 20),)),
    "softmax 2048 x 2048": (lambda x: x.softmax(-1), lambda k: (torch.randn(k * 2048, 2048),)),
    "layer norm 2048 x 1024": (lambda x: functional.layer_norm(x, (1024,)), lambda k: (torch.randn(k * 2048, 1024),)),
    "sum of 4M": (torch.sum, lambda k: (torch.randn(k << 22),)),
    "sum of columns, 2048 x 1024": (lambda x: x.sum(0), lambda k: (torch.randn(k * 2048, 1024),)),
    "sum of columns, 16384 x 64": (lambda x: x.sum(0), lambda k: (torch.randn(k * 16384, 64),)),
    "mean and variance of columns": (lambda x: torch.var_mean(x, 0), lambda k: (torch.randn(k * 2048, 1024),)),
    "x.t() + y, 1024 x 1024": (lambda x, y: x.t() + y, lambda k: (torch.randn(k * 1024, 1024), torch.randn(1024, k * 1024))),
    "cumsum 2048 x 1024": (lambda x: (x * 2).cumsum(-1), lambda k: (torch.randn(k * 2048, 1024),)),
    "rows added by index": (
        lambda w, i, x: torch.zeros_like(w).index_add(0, i, x),
        lambda k: (torch.randn(1000, 128), torch.randint(0, 1000, (k * 8192,)), torch.ones(k * 8192, 128)),
    ),
}  # fmt: skip
# What a model of a family has more of than in tests.
LARGER: Final = {
    "hidden_size": 512, "n_embd": 512, "num_hidden_layers": 4, "n_layer": 4, "num_attention_heads": 8, "n_head": 8, "intermediate_size": 2048, "d_model": 512,
    "d_kv": 64, "d_ff": 2048, "num_layers": 4, "num_heads": 8,
}  # fmt: skip
SEVERAL: Final = 8  # timings


def microseconds(function: Called, seconds: float = 0.3) -> float:
    """The least of several timings, each of as many calls as take a while."""
    function()
    begin = time.perf_counter()
    function()
    waited()
    count = max(1, int(seconds / SEVERAL / max(time.perf_counter() - begin, 1e-6)))
    best = float("inf")
    for _ in range(SEVERAL):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        waited()
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def waited() -> None:
    """Waits for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def first(function: Called) -> float:
    """The seconds of a call."""
    begin = time.perf_counter()
    function()
    waited()
    return time.perf_counter() - begin


def compiled(function: Callable[..., Any], peer: Any) -> Callable[..., Any]:
    """A function as a peer runs it: "eager", or a backend."""
    torch._dynamo.reset()
    return function if peer == "eager" else torch.compile(function, backend=peer)


def functions(device: str) -> Iterator[tuple[str, Callable[[Any], Called]]]:
    """Rows: names, and what makes a call of a peer."""
    for name, (function, made) in CASES.items():
        with torch.device(device):
            arguments = made(16 if device == "cuda" else 1)

        def call(peer: Any, function: Callable[..., Any] = function, arguments: tuple[Any, ...] = arguments) -> Called:
            ready = compiled(function, peer)
            return lambda: ready(*arguments)

        yield name, call


def families(device: str) -> Iterator[tuple[str, Callable[[Any], Called]]]:
    """Steps of training, the loss and its gradients, of families of models."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
    import torch_models
    import transformers

    for name, (model_name, config_name, values, kind) in torch_models.FAMILIES.items():
        torch.manual_seed(0)
        config = getattr(transformers, config_name)(**{key: LARGER.get(key, value) for key, value in values.items()})
        model = getattr(transformers, model_name)(config).train().to(device)
        model.config.use_cache = False
        arguments = {key: value.to(device) for key, value in torch_models.given(kind).items()}

        def call(peer: Any, model: Any = model, arguments: Mapping[str, Any] = arguments) -> Called:
            ready = compiled(model, peer)

            def step() -> None:
                model.zero_grad()
                ready(**arguments).loss.backward()

            return step

        yield name, call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", default="eager,inductor")
    parser.add_argument("--families", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    peers = [peer for peer in given.peers.split(",") if peer]
    columns = [*peers, "vyre"]
    print(f"{'us':34}" + "".join(f"{name:>12}" for name in columns) + "   first call, s:" + "".join(f"{name:>10}" for name in columns))
    for name, call in (families if given.families else functions)(given.device):
        if given.names and not any(word in name for word in given.names):
            continue
        row, begun = [], []
        with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
            for peer in (*peers, compile_graph):
                run = call(peer)
                begun.append(first(run))
                row.append(microseconds(run))
        print(f"{name:34}" + "".join(f"{value:12.1f}" for value in row) + " " * 17 + "".join(f"{value:10.2f}" for value in begun), flush=True)


if __name__ == "__main__":
    main()
