"""Refusals: why an op does not accept operands of some types, and what helps.

Checker, parser and builder tell it in the same words; a `Dialect` spells the help as text or as Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.describe import PYTHON, TEXT, Dialect, family
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.op import Op, Operand, Result, SubgroupOp
from vyre_py.ir.language.ops import ANY_ORDER, GRID_FOLDS, GRID_OPS
from vyre_py.ir.language.tiles.tile_op import broadcast
from vyre_py.ir.language.types import Kind, Type, bool_, f32, i32, u32, vector_of

__all__ = ["refusal", "refusal_grid", "refusal_together"]


_Why = tuple[str, str] | None
_BITWISE: Final = frozenset({"and", "or", "xor", "not"})


def refusal(op: Op, operands: tuple[Type, ...], given: Type | None = None, dialect: Dialect = TEXT) -> tuple[str, str]:
    """The message and the help for an op that does not accept operands of these types, or a conversion that does not go to `given`.

    `operands` are as many as the row has. `sqrt(i32): sqrt takes floats`, `convert it: cast(x, f32)`.
    """
    said = _written(op, operands, given)
    if any(t.is_tile for t in operands) or (given is not None and given.is_tile):
        if (why := _of_shapes(op, operands, given)) is not None:
            return f"{said}: {why[0]}", why[1]
        operands, given = tuple([t.scalar for t in operands]), given and given.scalar
    for case in _CASES:
        found = case(op, operands, given, dialect)
        if found is not None:
            return f"{said}: {found[0]}", found[1]
    return f"{said}: {op.name} does not take these types", f"{op.name} takes {family(op.of)}"


def _written(op: Op, operands: tuple[Type, ...], given: Type | None) -> str:
    names = [str(t) for t in operands]
    if op.infix is not None:
        return f" {op.infix} ".join(names) if len(names) == 2 else op.infix + names[0]
    return f"{op.name}({', '.join(names)})" + (f" to {given}" if given is not None else "")


def _generic(op: Op, operands: tuple[Type, ...]) -> list[Type]:
    return [t for pattern, t in zip(op.operands, operands, strict=False) if pattern is Operand.T]


def _conversion(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    if op.result is not Result.GIVEN or given is None:
        return None
    source = operands[0]
    if op.name == "swizzle":
        return ("a swizzle keeps the component type", dialect.cast(given.scalar)) if source.scalar is not given.scalar else None
    if source is given:
        return "it is of this type already", "leave it out"
    if op.name == "cast":
        help = dialect.cast(vector_of(given, source.lanes)) if not given.is_vector else "pick or repeat components before: v.xy, x.xxx"
        return f"a cast keeps the number of components, {source.lanes} here", help
    if Kind.BOOL in (source.kind, given.kind):
        return "a bool has no bits of its own", "compare, or cast: a bool becomes 0 or 1"
    return f"a bitcast keeps the width, and {source} has {source.total_bits} bits, {given} {given.total_bits}", "go through another type with a cast"


def _condition(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    for pattern, actual in zip(op.operands, operands, strict=False):
        if pattern is Operand.BOOL and actual.kind is not Kind.BOOL:
            return "a bool is needed first", "compare: x != 0"
    return None


def _count(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    for pattern, actual in zip(op.operands, operands, strict=False):
        wanted = pattern.fixed
        if wanted is not None and wanted is not bool_ and actual.scalar is not wanted:
            return f"{'an' if wanted is i32 else 'a'} {wanted} is needed where {actual} stands", dialect.cast(wanted)
    return None


def _component(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    t = op.operand_type(operands)
    for pattern, actual in zip(op.operands, operands, strict=False):
        if pattern is Operand.COMPONENT and t is not None and t.scalar in op.of and actual is not t.scalar:
            help = "take a component: v.x" if actual.scalar is t.scalar else dialect.cast(t.scalar)
            return f"a scalar {t.scalar} is needed where {actual} stands", help
    return None


def _bitwise_floats(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    if op.name not in _BITWISE or not any(t.is_float for t in operands):
        return None
    join = dialect.logical
    binds = ", and bind tighter than comparisons" if dialect is PYTHON else "; conditions are joined by `&&` and `||`"
    return f"{op.name} takes {family(op.of)}", f"`&`, `|`, `^` and `~` work on whole numbers and bools{binds}: write (x > 0.0) {join} (y < 1.0)"


def _mixed(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    generic = _generic(op, operands)
    if len(set(generic)) < 2:
        return None
    why = "operands of one type are needed"
    scalars = list(dict.fromkeys(t.scalar for t in generic))
    if len(scalars) > 1:
        sides = [dialect.cast(vector_of(s, generic[0].lanes)).removeprefix("convert it: ") for s in scalars if s in op.of and s.kind is not Kind.BOOL]
        return why, "convert one side: " + " or ".join(sides) if sides else f"{op.name} takes {family(op.of)}"
    lanes = [t.lanes for t in generic]
    if min(lanes) > 1:
        return f"vectors of as many components are needed, got {lanes[0]} and {next(n for n in lanes if n != lanes[0])}", "pick components: v.xy"
    return why, dialect.splat(max(lanes))


def _shape(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    """How many components T has, and the operands that must have as many."""
    t = op.operand_type(operands)
    if t is None:
        return None
    if t.scalar in op.of and t.lanes not in op.lanes:
        if op.lanes == {1}:
            return f"{op.name} takes scalars", "take the components: v.x, v.y"
        counts = " or ".join(map(str, sorted(op.lanes))) if len(op.lanes) < 3 else "2 to 4"
        return f"{op.name} takes vectors of {counts} components", "make one: vec2(x, y)" if dialect is TEXT else "make one: vp.vec2(x, y)"
    for pattern, actual in zip(op.operands, operands, strict=False):
        if pattern is not Operand.T and pattern is not Operand.ANY and actual.lanes not in (1, t.lanes):
            return f"{actual} and {t} have different numbers of components", "give one for all components, or one for each"
    return None


def _family(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    t = op.operand_type(operands)
    if t is None or t.scalar in op.of:
        return None
    wanted = f32 if f32 in op.of else _taken(op.of, t)
    return f"{f'{t.scalar} is for storage, and ' * t.is_storage}{op.name} takes {family(op.of)}", dialect.cast(vector_of(wanted, t.lanes))


def _taken(types: Collection[Type], given: Type) -> Type:
    """The type of 32 bits among those that are taken that is most like the one that was given."""
    wanted = (f32, i32, u32) if given.is_float else (i32, u32, f32) if given.is_signed else (u32, i32, f32)
    return next((t for t in wanted if t in types), min(types, key=str))


def _call(op: Op, operands: tuple[Type, ...], given: Type | None, dialect: Dialect) -> _Why:
    if not isinstance(op, Function):
        return None
    name, wanted, found = next(part for part in zip(op.names, op.types, operands, strict=True) if part[1] is not part[2])
    return f"{op.head} takes {wanted} as {name}, got {found}", dialect.cast(wanted) if wanted.lanes == found.lanes else dialect.splat(wanted.lanes)


# In this order: the first that has something to say does.
_CASES: Final[tuple[Callable[[Op, tuple[Type, ...], Type | None, Dialect], _Why], ...]] = (
    _call, _conversion, _condition, _count, _bitwise_floats, _mixed, _component, _shape, _family,
)


def refusal_together(op: SubgroupOp, operands: tuple[Type, ...], dialect: Dialect = TEXT) -> tuple[str, str]:
    """The message and the help for a subgroup op that does not accept operands of these types, which are as many as it takes."""
    name = f"subgroup_{op.name}"
    written = f"{name}({', '.join(map(str, operands))})"
    for wrong in (t for t in operands[1:] if t is not u32):
        return f"{written}: a u32 is needed where {wrong} stands", "take a component: v.x" if wrong.is_vector else dialect.cast(u32)
    t = operands[0]
    if t.scalar in op.of:
        return f"{written}: {name} takes scalars", "take the components: v.x, v.y"
    return f"{written}: {name} takes {family(op.of)}", dialect.cast(vector_of(bool_ if op.of == {bool_} else f32 if f32 in op.of else u32, t.lanes))


def _of_shapes(op: Op, operands: tuple[Type, ...], given: Type | None) -> _Why:
    """Why an op does not go over tiles of these shapes."""
    if not (op.is_lanewise or op.name == "bitcast"):
        return f"{op.name} does not go element by element", "tiles take the ops that do"
    if any(t.is_vector for t in operands):
        return "the elements of tiles are scalars", "take a component: v.x"
    if given is not None and given.is_vector:
        return "the elements of tiles are scalars", "name the type of an element"
    shapes = tuple([t.shape for t in operands if t.is_tile])
    if not shapes:
        return "a scalar becomes no tile by itself", "fill a tile with it"
    shape = broadcast(shapes)
    if shape is None:
        if len({len(one) for one in shapes}) > 1:
            return "tiles of as many axes are needed", "reshape one: an axis of extent 1 goes with any extent"
        return "the extents along each axis are to be the same, or 1", "load tiles of the same shape"
    if given is not None and given.shape not in ((), shape):
        return f"the result is a tile of {', '.join(map(str, shape))}", "name the type of an element"
    return None


def refusal_grid(fold: str, type_: Type, dialect: Dialect = TEXT) -> tuple[str, str]:
    """The message and the help for a scan over the grid that does not fold values of a type so."""
    row, written = GRID_FOLDS.get(fold), f"grid_scan({fold}, {type_})"
    if row is None:
        op = fold.removesuffix(f" {ANY_ORDER}")
        if op in GRID_OPS:
            return f"grid_scan: {op} has the same result in any order", f"leave {ANY_ORDER} out"
        return f"grid_scan does not fold with {shown(fold)}", f"one of {', '.join(GRID_OPS)}"
    if type_ in GRID_FOLDS.get(f"{fold} {ANY_ORDER}", row).of:
        message = f"{written}: workgroups are folded in an order that changes from run to run, and with it the bits of a float"
        return message, f"say that any order will do: {'any_order=True' if dialect.prefix else f'grid_scan({fold} {ANY_ORDER}, x)'}"
    if row.any_order and type_ in GRID_FOLDS[row.op.name].of:
        return f"{written}: integers are exact in any order", f"leave {ANY_ORDER} out"
    return f"{written}: it takes {family(row.of)}", "pick components: v.x" if type_.is_vector else dialect.cast(_taken(row.of, type_))
