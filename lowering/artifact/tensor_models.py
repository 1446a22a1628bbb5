"""How tensor cores add products of floats, for the report of code that uses them: what an artifact says of the bits that it gives.

They add the products of some neighbours along k and the sum so far at once, in order of k: each is cut toward zero at so many bits below the greatest, these
are added exactly, and of the sum so many bits are kept, the others cut; a sum of f16 is rounded to the nearest. `ir/evaluate/tensor_cores.py` computes it. The
rows of sm_90 were measured, on an H100 and an H200; those before are of M. Fasi and others, "Numerical behavior of NVIDIA tensor cores" (2021), and arXiv
2511.10909. Other architectures, and floats of 8 bits by warps, have none: what they do is not known here. Code as PTX has the bits of the GPU that it is
run on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from vyre_py.ir.language.nodes import TensorCore, WarpgroupProduct
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, f64
from vyre_py.lowering.target import Target

__all__ = ["TensorModel", "tensor_counts", "tensor_model"]


class TensorModel(NamedTuple):
    """Products that are added `at_once`, the `bits` below the greatest at which they are cut, and the bits of a sum that are `kept`."""

    at_once: int
    bits: int
    kept: int


# Whether by warpgroups, the first and the last generation, bytes of a factor -> the model.
_MODELS: Final[tuple[tuple[tuple[bool, ...], int, int, int, TensorModel], ...]] = (
    ((False,), 80, 89, 2, TensorModel(8, 24, 24)),
    ((False,), 80, 89, 4, TensorModel(4, 24, 24)),
    ((False, True), 90, 90, 2, TensorModel(16, 25, 24)),
    ((False, True), 90, 90, 4, TensorModel(8, 25, 24)),
    ((True,), 90, 90, 1, TensorModel(32, 13, 14)),
)


def tensor_model(factors: Type, arch: str, by_warpgroups: bool) -> TensorModel | None:
    """That of products on an architecture; None where it is not known, and of integers and f64, whose products are exact or the chain that `mma` is."""
    if not factors.is_float or factors is f64 or not arch.startswith("sm_"):
        return None
    generation = int(arch.removeprefix("sm_").rstrip("af"))
    for how, first, last, size_bytes, model in _MODELS:
        if by_warpgroups in how and first <= generation <= last and factors.size_bytes == size_bytes:
            return model
    return None


def tensor_counts(program: Program, target: Target) -> Mapping[str, int]:
    """Of a Program that was made for a target: for each type of factors `tensor_TYPE_at_once`, `tensor_TYPE_bits` and `tensor_TYPE_kept`."""
    found: dict[str, int] = {}
    for statement in program.body:
        if isinstance(statement, (TensorCore, WarpgroupProduct)):
            by_warpgroups = isinstance(statement, WarpgroupProduct)
            factors = statement.left.type if isinstance(statement, WarpgroupProduct) else statement.factors[0][0].type
            model = tensor_model(factors.scalar, target.arch, by_warpgroups)
            if model is not None:
                kept = min(model.kept, statement.memory.type.fraction_bits + 1)
                found |= {f"tensor_{factors.scalar}_{name}": value for name, value in model._replace(kept=kept)._asdict().items()}
    return found
