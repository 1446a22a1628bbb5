"""The types of values and variables, from columns.

A row says the type of one element; whether it is that of a tile, and of which shape, follows from what stands before:

* a tile load has the shape that its extents say,
* a tile op that of its result, for values of these types and these numbers,
* an op of the language that of its operands together, where an extent of 1 goes with any,
* a variable that of its first value, and what is got from it that of the variable.

All else is no tile. Nor is what would be one of a shape that no tile may have, or of vectors: it has the type that the row says, which `ir.check` then refuses
with a reason. So what hostile columns ask for is never made, and takes no longer than other columns do.

Writers hold the types of a Program against these, and refuse one that a reader would make otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import Get, TileLoad, Var
from vyre_py.ir.language.tiles.tile_op import TileOp, broadcast, is_tile_shape
from vyre_py.ir.language.types import Type, tile_of, u32
from vyre_py.ir.wire.codes import OPERAND_KINDS, TYPES_BY_CODE
from vyre_py.ir.wire.flat import Flat
from vyre_py.ir.wire.tables import BINDS, MAKES_TILES, OPS_BY_CODE, TILE_OPS_BY_CODE

__all__ = ["types_of"]

_Shape = tuple[int, ...]
_VALUE, _CONSTANT, _PARAM, _SIZE = (OPERAND_KINDS[kind] for kind in ("value", "constant", "param", "size"))
_VAR: Final = Var.code


def types_of(flat: Flat) -> tuple[list[Type], list[Type]]:
    """The types of the values, and of the variables, in order. The columns must be verified, or those that `flatten` makes."""
    if MAKES_TILES[flat.codes].any():
        return _Walk(flat).types()
    return [TYPES_BY_CODE[code] for code in flat.types[BINDS[flat.codes]].tolist()], [TYPES_BY_CODE[code] for code in flat.types[flat.codes == _VAR].tolist()]


class _Walk:
    """One walk over the statements of a Program that has tiles."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.values: list[Type] = []
        self.variables: list[Type] = []
        constants = [TYPES_BY_CODE[code] for code in flat.constant_types.tolist()]
        self.bits: list[int] = flat.constant_bits.tolist()
        params = [TYPES_BY_CODE[code] for code in flat.param_types.tolist()]
        self.pools = {_VALUE: self.values, _CONSTANT: constants, _PARAM: params}
        self.ranks: list[int] = flat.memory_ranks.tolist()
        self.made: dict[tuple[int, _Shape], Type] = {}  # those that were asked for already: most Programs have few

    def types(self) -> tuple[list[Type], list[Type]]:
        flat, at = self.flat, 0
        for code, type_, ref, count in zip(flat.codes.tolist(), flat.types.tolist(), flat.refs.tolist(), flat.counts.tolist(), strict=True):
            if type_:
                rule = _SHAPES.get(code)
                shape = rule(self, ref, flat.operands[at : at + count].tolist()) if rule is not None else ()
                (self.variables if code == _VAR else self.values).append(self.typed(type_, shape) if shape else TYPES_BY_CODE[type_])
            at += count
        return self.values, self.variables

    def typed(self, code: int, shape: _Shape) -> Type:
        type_ = self.made.get((code, shape))
        if type_ is None:
            element = TYPES_BY_CODE[code]
            type_ = self.made[code, shape] = tile_of(element, shape) if is_tile_shape(shape) and not element.is_vector else element
        return type_

    # ---- operands

    def type(self, operand: int) -> Type:
        kind, row = operand & 3, operand >> 2
        return u32 if kind == _SIZE else self.pools[kind][row]

    def numbers(self, operands: list[int]) -> _Shape:
        """What operands say as numbers, 0 for one that is no constant, which `check` refuses."""
        return tuple([self.bits[operand >> 2] if operand & 3 == _CONSTANT else 0 for operand in operands])

    # ---- shapes

    def together(self, ref: int, operands: list[int]) -> _Shape:
        # Only values can be tiles; most go with others of their shape.
        shapes = {shape for operand in operands if operand & 3 == _VALUE and (shape := self.values[operand >> 2].shape)}
        if len(shapes) < 2:
            return shapes.pop() if shapes else ()
        return broadcast(tuple(shapes)) or ()

    def got(self, ref: int, operands: list[int]) -> _Shape:
        return self.variables[ref].shape

    def loaded(self, ref: int, operands: list[int]) -> _Shape:
        rank = self.ranks[ref]
        return tuple([extent for extent in self.numbers(operands[rank : 2 * rank]) if extent])


_Rule = Callable[[_Walk, int, list[int]], _Shape]


def _of_tile_op(op: TileOp) -> _Rule:
    taken = op.operands

    def rule(walk: _Walk, ref: int, operands: list[int]) -> _Shape:
        type_ = op.result_type(tuple([walk.type(operand) for operand in operands[:taken]]), walk.numbers(operands[taken:]))
        return () if type_ is None else type_.shape

    return rule


# By code; a statement that is not here makes no tile.
_SHAPES: Final[Mapping[int, _Rule]] = {
    **dict.fromkeys((_VAR, *OPS_BY_CODE), _Walk.together), Get.code: _Walk.got, TileLoad.code: _Walk.loaded,
    **{code: _of_tile_op(op) for code, op in TILE_OPS_BY_CODE.items()},
}  # fmt: skip
