"""An axpy as Triton has it. Importing this needs Triton, which compiles what it finds in a file."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["BLOCK", "axpy"]

BLOCK = 1024


@triton.jit
def axpy(y, x, a, n, block: tl.constexpr):
    """y += a x."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < n
    tl.store(y + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)
