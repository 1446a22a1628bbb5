"""Calls in `.vir` text of what a subgroup, the grid or the workgroup of a Program of tiles does together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.ir.builder.refusals import refusal_grid, refusal_together
from vyre_py.ir.builder.tiles.tile_refusals import refusal_tile
from vyre_py.ir.language.assembler import OperandTypeError
from vyre_py.ir.language.nodes import TileAtomicAdd, Value
from vyre_py.ir.language.op import SubgroupOp
from vyre_py.ir.language.ops import ANY_ORDER, GRID_FOLDS, GRID_OPS
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import u32
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.operand_parser import MAX_PARTS, Operand

if TYPE_CHECKING:
    from vyre_py.ir.text.expression_parser import ExpressionParser

__all__ = ["grid_scan_call", "subgroup_call", "tile_call"]


def subgroup_call(parser: ExpressionParser, row: SubgroupOp, first: int) -> Value:
    """The rest of `subgroup_name(operands)`, whose name is token `first`. Raises Failed."""
    name, given = f"subgroup_{row.name}", parser.arguments(")")
    if len(given) != row.operands:
        place = parser.tokens.place(first, parser.position - 1)
        raise Failed(finding("V202", f"{name} takes {row.operands} operand{'s' * (row.operands != 1)}, got {len(given)}", place, row.doc))
    atoms = (*parser.closed(given[:1]), *[parser.fix(index, u32) for index in given[1:]])
    parser.part(first)
    try:
        return parser.assembler.together(row, atoms)
    except OperandTypeError as error:
        message, help = refusal_together(row, error.operands)
        raise Failed(finding("V201", message, parser.tokens.place(first, parser.position - 1), help)) from None


def grid_scan_call(parser: ExpressionParser, first: int) -> Value:
    """The rest of `grid_scan(fold, x)`, whose name is token `first`. Raises Failed."""
    at = parser.position
    fold = parser.expect_kind("name", "what it folds with")
    if fold not in GRID_OPS:
        raise Failed(finding("P103", f"grid_scan does not fold with {fold}", parser.place(at), f"one of {', '.join(GRID_OPS)}"))
    if parser.take(ANY_ORDER):
        fold = f"{fold} {ANY_ORDER}"
    parser.expect(",")
    operand = parser.expression()
    parser.expect(")")
    (x,) = parser.closed((operand,))
    parser.part(first)
    if fold in GRID_FOLDS and GRID_FOLDS[fold].accepts((x.type,)):
        return parser.assembler.grid_scan(fold, x)
    message, help = refusal_grid(fold, x.type)
    raise Failed(finding("V201", message, parser.tokens.place(first, parser.position - 1), help))


def tile_call(parser: ExpressionParser, name: str, first: int) -> Value:
    """The rest of `name(values, numbers)`, whose name, one of `TILE_CALLED`, is token `first`. Raises Failed."""
    if name == TileAtomicAdd.spelling:
        raise Failed(finding("P101", f"{name} gives no value", parser.place(first), "it is a statement"))
    if not parser.of_tiles:
        help = "tile ops stand in Programs of tiles, outside of functions: program name tiles grid(...) {"
        raise Failed(finding("P103", f"the operation {name} is not known here", parser.place(first), help))
    row = TILE_OPS[name]
    values, numbers = _operands(parser, row)
    parser.part(first)
    place = parser.tokens.place(first, parser.position - 1)
    if len(values) != row.operands or not row.takes(len(numbers)):
        message = f"{name} takes {', '.join([*row.names, *row.numbers])}, got {len(values) + len(numbers)} operands"
        raise Failed(finding("V202", message, place, row.doc))
    try:
        return parser.assembler.tile(row, parser.closed(values), numbers)
    except OperandTypeError as error:
        message, help = refusal_tile(row, error.operands, tuple(numbers))
        raise Failed(finding("V201", message, place, help)) from None


def _operands(parser: ExpressionParser, row: TileOp) -> tuple[list[Operand], list[int]]:
    """The values of a tile op, and the numbers behind them, up to and over the parenthesis."""
    values: list[Operand] = []
    numbers: list[int] = []
    while not parser.take(")"):
        at = parser.position
        if len(values) < row.operands or not row.numbers:
            values.append(parser.expression())
        else:
            which = row.numbers[min(len(numbers), len(row.numbers) - 1)]
            said = f"{which.rstrip('.')}: {'whole numbers' if which.endswith('...') else 'a whole number'} without a suffix"
            numbers.append(parser.count(said))
        if len(values) + len(numbers) >= MAX_PARTS:
            raise parser.too_many(at)
        if not parser.take(",") and parser.words[parser.position] != ")":
            raise parser.unexpected("`,` or `)`")
    return values, numbers
