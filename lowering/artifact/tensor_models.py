"""How tensor cores add products of floats, for the report of code that uses them: what an artifact says of the bits that it gives.

The rows of sm_90 are those that the interpreter computes; those before are of M. Fasi and others, "Numerical behavior of NVIDIA tensor cores" (2021), and
arXiv 2511.10909. Other architectures, and floats of 8 bits on them, have none: what they do is not known here. Code as PTX has the bits of the GPU that it is
run on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from vyre_py.ir.language.nodes import TensorCore, WarpgroupProduct
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tensor_model import TensorModel, tensor_model
from vyre_py.ir.language.types import Type, f32, f64
from vyre_py.lowering.target import Target

__all__ = ["tensor_counts"]

_MODELLED: Final = 90  # the generation of `tensor_model`
# The generations before, by bytes of a factor.
_EARLIER: Final = range(80, _MODELLED)
_MODELS: Final = {2: TensorModel(8, 24, 24), 4: TensorModel(4, 24, 24)}


def _model(factors: Type, sums: Type, arch: str, *, by_warps: bool) -> TensorModel | None:
    """That of products on an architecture; None where it is not known, and of integers and f64, whose products are exact or the chain that `mma` is."""
    generation = int(arch.removeprefix("sm_").rstrip("af")) if arch.startswith("sm_") else 0
    if generation == _MODELLED:
        return tensor_model(factors, sums, by_warps=by_warps)
    return _MODELS.get(factors.size_bytes) if generation in _EARLIER and factors.is_float and factors is not f64 else None


def tensor_counts(program: Program, target: Target) -> Mapping[str, int]:
    """Of a Program that was made for a target: for each type of factors `tensor_TYPE_at_once`, `tensor_TYPE_bits`, `tensor_TYPE_kept` and, where it is not 0,
    `tensor_TYPE_own`, the fields of a `TensorModel`. What a Program may have beside them has names of its own: f16 whose sums are f16 is `f16_to_f16`, floats
    of 8 bits that warps multiply where warpgroups have other bits are `f8e4m3_warps`."""
    found: dict[str, int] = {}
    for statement in program.body:
        if isinstance(statement, (TensorCore, WarpgroupProduct)):
            by_warps, sums = isinstance(statement, TensorCore), statement.memory.type
            factors = (statement.left.type if isinstance(statement, WarpgroupProduct) else statement.factors[0][0].type).scalar
            model = _model(factors, sums, target.arch, by_warps=by_warps)
            if model is not None:
                told = {field.name: getattr(model, field.name) for field in fields(model)}
                told["kept"] = min(model.kept, sums.fraction_bits + 1)
                differs = by_warps and model != _model(factors, sums, target.arch, by_warps=False)
                name = f"tensor_{factors}{'' if sums is f32 else f'_to_{sums}'}{'_warps' if differs else ''}"
                found |= {f"{name}_{field}": value for field, value in told.items() if value}
    return found
