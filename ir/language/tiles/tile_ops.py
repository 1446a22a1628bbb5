"""The table of tile ops: what is computed over tiles beside the lanewise ops of `ops`. One row is one op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from vyre_py.ir.imports import deferred, made_once
from vyre_py.ir.language.ops import FOLDS
from vyre_py.ir.language.tiles.tensor_model import MODELS
from vyre_py.ir.language.tiles.tile_op import (
    TileOp,
    counted,
    filled,
    folded,
    multiplied,
    reshaped,
    scanned,
    single,
    transposed,
)
from vyre_py.ir.language.types import SCALARS, Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, u8, u32

if TYPE_CHECKING:
    from vyre_py.ir.evaluate import tensor_cores, tile_meanings
else:  # the interpreter alone calls them
    tensor_cores, tile_meanings = deferred("vyre_py.ir.evaluate", "tensor_cores", "tile_meanings")

__all__ = ["MMA_TYPES", "TILE_OPS", "modelled_product"]

_ALL = frozenset(SCALARS.values())
_BYTE_FLOATS, _BYTES = (f8e4m3, f8e5m2), (i8, u8)
# Types of the two factors' elements -> those that the sum may have. Every factor is exact in the type of the sum.
MMA_TYPES: Final[Mapping[tuple[Type, Type], frozenset[Type]]] = {
    (f16, f16): frozenset({f32, f16}), (bf16, bf16): frozenset({f32}), (f32, f32): frozenset({f32}), (f64, f64): frozenset({f64}),
    **{(a, b): frozenset({f32}) for a in _BYTE_FLOATS for b in _BYTE_FLOATS},
    **{(a, b): frozenset({i32}) for a in _BYTES for b in _BYTES},
}  # fmt: skip
_FACTORS = frozenset(a for a, _ in MMA_TYPES)


def _multiplies(a: Type, b: Type, to: Type) -> bool:
    return to in MMA_TYPES.get((a, b), ())


def _cores_multiply(a: Type, b: Type, to: Type) -> bool:
    return to.is_float and _multiplies(a, b, to)


def _folds() -> Iterator[TileOp]:
    for number, (name, fold, of) in enumerate(FOLDS):
        doc = f"{name} along an axis, which has extent 1 then: x[i] = {name}(x[i], x[i + h]) where there is such an element, for h = P / 2, ..., 2, 1, with P the least power of two from the extent on."
        yield TileOp(f"reduce_{name}", 32 + number, ("x",), ("axis",), of, folded, made_once(tile_meanings.reduction, fold), doc, name)
        doc = f"{name} of the elements up to each along an axis: x[i] = {name}(x[i], x[i - d]) where there is such an element, for d = 1, 2, 4, ... below the extent."
        yield TileOp(f"inclusive_{name}", 48 + number, ("x",), ("axis",), of, scanned, made_once(tile_meanings.scan, name, fold, exclusive=False), doc, name)
        doc = f"{name} of the elements before each along an axis: inclusive_{name} of the one before, for the first the identity."
        yield TileOp(f"exclusive_{name}", 64 + number, ("x",), ("axis",), of, scanned, made_once(tile_meanings.scan, name, fold, exclusive=True), doc, name)


TILE_OPS: Final[Mapping[str, TileOp]] = {
    row.name: row
    for row in (
        TileOp("fill", 1, ("x",), ("extents...",), _ALL, filled, tile_meanings.fill, "A tile of these extents whose elements are all x, a scalar."),
        TileOp("iota", 2, (), ("axis", "extents..."), _ALL, counted(u32), tile_meanings.iota, "A tile of u32 of these extents, of which each element is its index along the axis."),
        TileOp("transpose", 3, ("x",), ("axes...",), _ALL, transposed, tile_meanings.transpose, "The tile whose axis k is the k-th of these axes of x."),
        TileOp("reshape", 4, ("x",), ("extents...",), _ALL, reshaped, tile_meanings.reshape, "The elements in the same order, the last axis fastest, as a tile of these extents."),
        TileOp("item", 5, ("x",), (), _ALL, single, tile_meanings.item, "The element of a tile that has one, as a scalar."),
        TileOp("mma", 6, ("a", "b", "acc"), (), _FACTORS, multiplied(_multiplies), tile_meanings.mma, "a b + acc for a of (m, k), b of (k, n) and acc of (m, n): acc = fma(a, b, acc) with k ascending, in the type of acc."),
        TileOp("mma_tensor", 7, ("a", "b", "acc"), (), _FACTORS, multiplied(_multiplies), tile_meanings.mma, "a b + acc as `mma`, but a tensor core may sum in its own order and precision, and take the upper 19 bits of factors of f32 (tf32); without one it is `mma`."),
        TileOp("mma_sm90", 8, ("a", "b", "acc"), (), frozenset(t for t in _FACTORS if t.is_float), multiplied(_cores_multiply), tensor_cores.mma_sm90, "a b + acc as the tensor cores of compute capability 9.0 give it, to the bit; only these and the interpreter compute it."),
        TileOp("mma_sm90_warps", 9, ("a", "b", "acc"), (), frozenset(_BYTE_FLOATS), multiplied(_cores_multiply), tensor_cores.mma_sm90_warps, "a b + acc of floats of 8 bits as `mma.sync` gives it there, to the bit, where `mma_sm90` is what `wgmma` gives."),
        *_folds(),
    )
}  # fmt: skip


def modelled_product(model: str, factor: Type) -> TileOp:
    """The product of factors of a type that has the bits of a model of `MODELS`."""
    of_bytes, of_others = MODELS[model]
    return TILE_OPS[of_bytes if factor.size_bytes == 1 else of_others]
