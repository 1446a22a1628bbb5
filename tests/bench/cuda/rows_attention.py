"""Attention, forward, of bf16, beside PyTorch's over cuDNN: as many heads as make 2,048 elements, and as many sequences as make 16,384 tokens, at least one."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import vyre_py as vp
from tests.bench.cuda.peers import torch
from tests.bench.cuda.table import Bench, Row, at_least
from tests.bench.cuda.timing import Work, repeated

__all__ = ["ATTENTION_ROWS"]

_WIDTH: Final = 2048
_TOKENS: Final = 16384
_OPERATIONS: Final = 10**13  # that are timed together


def _attention(bench: Bench, length: int, head: int, *, causal: bool) -> dict[str, float]:
    """TFLOP/s: a multiply-add is two operations, and of a causal one half of the scores are computed."""
    length = bench.size(length, 64)
    shape = (max(1, bench.size(_TOKENS, 64) // length), bench.size(_WIDTH // head, 1), length, head)
    device = bench.device
    pipeline = device.compile_native(vp.ops.attention(vp.bf16, head, causal=causal, on=device))
    tensors: dict[str, Any] = {}
    if not bench.dry:
        tensors = {name: torch().randn(shape, device="cuda", dtype=torch().bfloat16) for name in ("q", "k", "v", "out")}
        torch().cuda.synchronize()
    launch = pipeline.bind(tensors or {name: device.allocate(shape, vp.bf16) for name in ("q", "k", "v", "out")})
    batch, heads, _, _ = shape
    operations = 4 * batch * heads * length * length * head // (2 if causal else 1)
    times = bench.size(max(1, _OPERATIONS // operations), 1)

    def ours() -> None:
        for _ in range(times):
            launch()
        device.synchronize()

    def by_torch() -> Work:
        given = torch()
        kernels = given.nn.attention

        def once() -> None:
            with kernels.sdpa_kernel(kernels.SDPBackend.CUDNN_ATTENTION):
                for _ in range(times):
                    given.nn.functional.scaled_dot_product_attention(tensors["q"], tensors["k"], tensors["v"], is_causal=causal)
            given.cuda.synchronize()

        return repeated(once)

    found = bench.race({"ours": repeated(ours)}, {"cuDNN": by_torch}, rounds=7)
    return {name: times * operations / us / 1e6 for name, us in found.items()}


def _row(length: int, head: int, causal: bool) -> Row:
    def work(bench: Bench) -> dict[str, float]:
        return _attention(bench, length, head, causal=causal)

    work.__name__ = f"attention_{length}_{head}{'_causal' * causal}"
    return Row(f"attention over {length}, heads of {head}{', causal' * causal}", "TFLOP/s", work, "cuDNN", at_least(1.0))


ATTENTION_ROWS = tuple([_row(length, head, causal) for length, head, causal in product((2048, 8192, 32768), (64, 128), (False, True))])
