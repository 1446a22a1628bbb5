"""The page `lowering/FAST.md`, from the table of bounds: what numerics "fast" does, and how far off its results may be."""

from __future__ import annotations

from typing import Final

from vyre_py.lowering.llvm.gpu.accuracy import BOUNDS

__all__ = ["fast_page"]

_HEAD: Final = """\
# Numerics "fast"

Made from `lowering/llvm/gpu/accuracy.py` by `python tests/pages.py`; changes belong there.

`CompileOptions(numerics="fast")` gives accuracy up for speed, within the bounds below. What the code of a pipeline follows is in
`pipeline.numerics`.

| target | what fast does | `numerics` |
|---|---|---|
| PTX | contraction of f32 and f64; f32 by approximate instructions; subnormal numbers of f32 flushed | fast |
| host | contraction of f32 and f64, where the CPU has a fused multiply-add | fast; strict where it has none |
| reference | nothing: strict results are within every bound of fast | strict |
| wgsl | nothing: what the device does of itself | native |

`vp.fast.exp(x)` (`fast_exp(x)` in text) asks for the approximation of one op, whatever the numerics: on PTX within its bound below, on WGSL what the
device does of itself, elsewhere the strict op. Nothing around it is contracted or flushed. There are `div`, `sqrt`, `rsqrt`, `exp`, `exp2`, `exp10`,
`log`, `log2`, `log10`, `sin`, `cos`, `tanh` and `pow`. A part of PTX that has one is `fast`.

A Program that computes nothing in floating point is strict everywhere, and its code is the same under all numerics.

* **Contraction**: `a * b + c`, `a * b - c` and `c - a * b` are computed as one fused multiply-add, which rounds once, where the product is used by
  sums and differences alone; of two products in a sum the first is fused. So are those of ops across components (`dot`). It happens before ops are
  expanded, so that no expansion loses the rounding errors that it is built on.
* **Flushing**: ops that compute, compare or convert f32 may take a subnormal argument for a zero of its sign, and give such a zero for a
  subnormal result. So a subnormal divisor counts as 0, and `log` of a subnormal number is -inf. Loads, stores, `select` and `bitcast` keep
  bits; `rem` stays exact.
* **What stays**: integers, bounds checks and casts to integers mean the same, nothing is assumed absent, and NaN, infinities and the sign of zero are
  those of strict for the arguments that are left after flushing.
* **f16 and bf16** go through f32: to the bound of f32 comes the rounding to the type, half a ULP of it. The subnormal numbers of bf16
  are those of f32 and are flushed with them; those of f16 are not, and are kept. Neither type is contracted. On hosts, as in
  strict, `rsqrt` of them rounds to the type twice.
* **f64** is strict but for contraction, its transcendental functions included: they are expanded as in strict, and nothing in them is contracted.
* `unpack4x8snorm` and its kind divide as `div` does.

`r` is the exact result for the arguments `x` and `y` after flushing, all of f32. A ULP is the spacing of f32 at `r`, or at the
result where that is wider. The error is at most the bound, and 2^-126 more where a result is flushed. Outside of the domain nothing is promised.
"""

_TITLES: Final = {"ptx": "PTX, f32", "host": "Host, f32: as in strict"}


def fast_page() -> str:
    """The page."""
    parts = [_HEAD]
    for target, title in _TITLES.items():
        lines = [["op", "computed by", "error at most", "domain"], ["---"] * 4]
        rows = [bound for bound in BOUNDS.values() if bound.target == target]
        # Rows that differ in the op alone are one.
        merged: dict[tuple[str, str, str], list[str]] = {}
        for bound in rows:
            merged.setdefault((bound.form, str(bound), bound.domain), []).append(f"`{bound.op}`")
        lines += [[", ".join(ops), *(cell.replace("|", "\\|") for cell in cells)] for cells, ops in merged.items()]
        parts += [f"## {title}\n", "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"]
    return "\n".join(parts)
