"""How tensor cores add: what a product of tiles gives on one, in numbers.

The table is of GPUs of compute capability 9.0. (Measured on an H100 and an H200; for other GPUs see M. Fasi and others, "Numerical behavior of NVIDIA tensor
cores", 2021, and arXiv 2511.10909. Floats of 8 bits by warps are what NVIDIA's assembler makes of `mma.sync`, for which there is no instruction.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.types import Type, f64

__all__ = ["MODELS", "TensorModel", "tensor_model"]

# What products may ask for whose bits the interpreter knows -> the op of factors of 8 bits, and that of all others.
MODELS: Final[Mapping[str, tuple[str, str]]] = {"sm_90": ("mma_sm90", "mma_sm90"), "sm_90:warps": ("mma_sm90_warps", "mma_sm90")}

_AT_ONCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class TensorModel:
    """The products of `at_once` neighbours along k, and the sum so far, are added at once: each is cut toward zero at so many `bits` below the greatest
    exponent of all, they are added exactly, and of the sum as many bits are `kept`, cut toward zero; where these are those of f16, rounded to the nearest.

    Where it is not 0, each `own` factors along k have a sum of their own, from zero: first those whose number has 0 or 1 for a rest by four, then the others;
    the accumulator is added to that, rounded to the nearest f32."""

    at_once: int
    bits: int
    kept: int
    own: int = 0


_BY_WARPGROUPS: Final = TensorModel(at_once=32, bits=13, kept=14)
_BY_WARPS: Final = TensorModel(at_once=16, bits=25, kept=24, own=32)


def tensor_model(factor: Type, sums: Type, *, by_warps: bool) -> TensorModel | None:
    """The model of products of a type, of warps or of warpgroups, which differ for floats of 8 bits; None of integers, which are exact, and of f64, which are
    chains of fused multiply-adds as all strict products are."""
    if not factor.is_float or factor is f64:
        return None
    if factor.size_bytes == 1:
        return _BY_WARPS if by_warps else _BY_WARPGROUPS
    return TensorModel(_AT_ONCE_BYTES // factor.size_bytes, 25, sums.fraction_bits + 1)
