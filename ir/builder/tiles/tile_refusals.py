"""Refusals of tiles: why no tile has a shape, why an op does not accept tiles or numbers, and what helps.

As in `refusals`, checker, parser and builder tell it in the same words, and a `Dialect` spells the help as text or as Python.
"""

from __future__ import annotations

from math import prod

from vyre_py.ir.language.describe import TEXT, Dialect, family
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.tiles.tile_op import MAX_TILE_ELEMENTS, MAX_TILE_RANK, TileOp, is_tile_shape
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES
from vyre_py.ir.language.types import Type

__all__ = ["refusal_shape", "refusal_tile"]

_Shape = tuple[int, ...]
_Why = tuple[str, str | None]


def refusal_shape(shape: _Shape, dialect: Dialect = TEXT) -> _Why | None:
    """The message and the help, None for that of the rule, for extents that no tile has; None for those that one may have."""
    if is_tile_shape(shape):
        return None
    python = bool(dialect.prefix)
    axes = f"a tile has 1 to {MAX_TILE_RANK} axes, not {len(shape)}"
    if not shape:
        return axes, "write an extent: " + ("shape=(64,), or shape=(64, None) for an array of two axes" if python else "x[i : 64, j], or tile(f32, 64)")
    if len(shape) > MAX_TILE_RANK:
        fewer = "write None for an axis: shape=(None, 8, 8, 8)" if python else "leave the extent of one out: x[i, j : 8, k : 8, l : 8]"
        return axes, f"merge axes; of an array, {fewer}"
    if min(shape) < 1:
        return "a tile has extents of at least 1", "write 1 for an axis that is to go with any extent"
    return f"a tile of {shown(prod(shape))} elements, at most {MAX_TILE_ELEMENTS} are allowed", None


def refusal_tile(op: TileOp, operands: tuple[Type, ...], numbers: _Shape, dialect: Dialect = TEXT) -> tuple[str, str]:
    """The message and the help for a tile op that does not accept values of these types, or these numbers; they are as many as it takes."""
    written = f"{op.name}({', '.join([*map(str, operands), *map(str, numbers)])})"
    message, help_ = _of_kinds(op, operands, dialect) or _of_elements(op, operands) or _of_numbers(op, operands, numbers, dialect)
    if help_ is None:  # a method in Python, of a shorter name
        help_ = op.doc if dialect.prefix else f"{op.name}({', '.join([*op.names, *op.numbers])}): {op.doc}"
    return f"{written}: {message}", help_


def _of_kinds(op: TileOp, operands: tuple[Type, ...], dialect: Dialect) -> _Why | None:
    """Vectors, scalars where tiles are taken, and tiles where scalars are."""
    if any(t.is_vector for t in operands):
        return "the elements of tiles are scalars", "take a component: v.x"
    for what, t in zip(op.names, operands, strict=True):
        if op.name == "fill":
            if t.is_tile:
                one = "x.item()" if dialect.prefix else "item(x)"
                return f"fill takes a scalar, got {t}", f"an extent of 1 goes with any; {one} is the element of a tile that has one"
        elif not t.is_tile:
            return f"a tile is needed as {what}, got {t}", "fill one: " + ("b.fill(x, (128, 256))" if dialect.prefix else "fill(x, 128, 256)")
    return None


def _of_elements(op: TileOp, operands: tuple[Type, ...]) -> _Why | None:
    """Types of elements that the op does not take, or not together."""
    if operands and operands[0].scalar not in op.of:
        return f"{op.name} takes {family(op.of)}", None
    if "acc" not in op.names:
        return None
    a, b, to = [t.scalar for t in operands]
    taken = MMA_TYPES.get((a, b), frozenset())
    if not taken:
        return f"{a} and {b} are not multiplied", "cast one of them to the type of the other"
    return None if to in taken else (f"products of {a} and {b} are summed in {' or '.join(sorted(map(str, taken)))}", None)


def _of_numbers(op: TileOp, operands: tuple[Type, ...], numbers: _Shape, dialect: Dialect) -> _Why:
    """Shapes and numbers, of operands whose types are sound."""
    python = bool(dialect.prefix)
    made = numbers[1:] if op.name == "iota" else numbers
    for shape in (made,) if op.name in ("fill", "iota", "reshape") else [t.shape for t in operands]:
        if (fault := refusal_shape(shape, dialect)) is not None:
            return fault
    if op.name == "iota":
        return _no_axis(f"a tile of {_extents(made)}", len(made), numbers[0])
    if op.name == "reshape":
        count = prod(operands[0].shape)
        flat = f"x.reshape({count})" if python else f"reshape(x, {count})"
        return f"x has {count} elements, a tile of {_extents(made)} {prod(made)}", f"as many are needed: {flat}"
    if op.name == "item":
        fold = 'x.reduce("add", 0)' if python else "reduce_add(x, 0)"
        return f"x has {prod(operands[0].shape)} elements, one is needed", f"fold along each axis first: {fold}"
    if op.name == "transpose":
        return _no_order(operands[0], numbers, python)
    if op.names == ("a", "b", "acc"):
        return _no_product(operands, python)
    return _no_axis("x", len(operands[0].shape), numbers[0])


def _no_order(type_: Type, axes: _Shape, python: bool) -> _Why:
    rank = len(type_.shape)
    beyond = next((axis for axis in axes if axis >= rank), None)
    if beyond is not None:
        return _no_axis("x", rank, beyond)
    turned = ", ".join(map(str, reversed(range(rank))))
    return f"each axis of x is named once, got {_extents(axes)}", f"x.transpose({turned}), or x.T" if python else f"transpose(x, {turned})"


def _no_product(operands: tuple[Type, ...], python: bool) -> _Why:
    for what, t in zip(("a", "b", "acc"), operands, strict=True):
        if len(t.shape) != 2:
            rows = f"1, {prod(t.shape)}"
            matrix = f"{what}.reshape(({rows}))" if python else f"reshape({what}, {rows})"
            return f"{what} has {_axes(len(t.shape))}, a matrix 2", f"reshape it: {matrix}"
    (m, k), (inner, n), shape = [t.shape for t in operands]
    if k != inner:
        other = "b" if n == k else "a" if m == inner else None
        help_ = "load as many elements of both along k"
        if other is not None:
            help_ = f"transpose it: {other}.T" if python else f"transpose it: transpose({other}, 1, 0)"
        return f"a is (m, k) of {m} by {k}, b (k, n) of {inner} by {n}, and k differs: {k} and {inner}", help_
    sums = f'b.var("acc", type, shape=({m}, {n}))' if python else f"tile(type, {m}, {n})"
    return f"the product has {m} by {n} elements, acc {shape[0]} by {shape[1]}", f"give acc the shape of the product: {sums}"


def _no_axis(what: str, rank: int, axis: int) -> _Why:
    return f"{what} has {_axes(rank)}, so no axis {axis}", f"its {'axis is' if rank == 1 else 'axes are'} {_extents(range(rank))}"


def _axes(rank: int) -> str:
    return f"{rank} {'axis' if rank == 1 else 'axes'}"


def _extents(numbers: _Shape | range) -> str:
    return ", ".join(map(str, numbers))
