"""Ready Programs, `vp.ops`: each function gives the Program for its types and the sizes that are fixed. `vp.Sort` and `vp.Sobol` hold what they need besides.

    pipeline = vp.device().compile_native(vp.ops.matmul(vp.bf16, bias=True, activation="gelu"))
    c = pipeline.dispatch({"a": a, "b": b, "bias": bias})["c"]
"""

from __future__ import annotations

from vyre_py.ops.attention import attention
from vyre_py.ops.counts import histogram
from vyre_py.ops.folds import argmax, argmin, max, mean, min, sum  # noqa: A004 - as NumPy calls it
from vyre_py.ops.fourier import fft, ifft
from vyre_py.ops.indexed import gather, scatter_add
from vyre_py.ops.moves import permute, transpose
from vyre_py.ops.norms import layer_norm, rms_norm
from vyre_py.ops.philox import random_bits, random_uniform
from vyre_py.ops.products import ACTIVATIONS, TILES, matmul
from vyre_py.ops.scans import prefix_sum
from vyre_py.ops.selection import top_k
from vyre_py.ops.softmax import softmax
from vyre_py.ops.sorts import radix_count, radix_move

__all__ = [
    "ACTIVATIONS", "TILES",
    "argmax", "argmin", "attention", "fft", "gather", "histogram", "ifft", "layer_norm", "matmul", "max", "mean", "min", "permute",
    "prefix_sum", "radix_count", "radix_move", "random_bits", "random_uniform", "rms_norm", "scatter_add", "softmax", "sum", "top_k", "transpose",
]  # fmt: skip
