"""What a row of the op table is: `Op`, `AtomicOp` for atomics, with the `Order` of each, `SubgroupOp` for what the lanes of a subgroup do together,
`GridFold` for what a scan over the grid folds with. The rows are in `ops`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, IntEnum, IntFlag, auto
from functools import lru_cache
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.tiles.tile_op import broadcast
from vyre_py.ir.language.types import Array, Type, bool_, i32, tile_of, u32, unsigned_of, vector_of

__all__ = [
    "ORDERS", "RELAXED", "AtomicOp", "GridFold", "Law", "Level", "Op", "Operand", "Order", "Result", "Scope", "SubgroupOp", "mask_type",
]


class Level(IntEnum):
    """How widely a value is known to be the same, or code to be reached together: the least is the most uniform."""

    GRID = 0
    WORKGROUP = 1
    SUBGROUP = 2
    VARYING = 3


class Law(IntFlag):
    """Algebraic laws that hold exactly for every type the row accepts, unless the name says `INT`."""

    NONE = 0
    COMMUTES = auto()
    IDEMPOTENT = auto()  # f(x, x) = x
    INVOLUTION = auto()  # f(f(x)) = x
    PROJECTION = auto()  # f(f(x)) = f(x)
    ASSOCIATIVE_INT = auto()
    SELF_ZERO_INT = auto()  # f(x, x) = 0
    SELF_TRUE = auto()  # f(x, x) = true, integers and bools only
    SELF_FALSE = auto()  # f(x, x) = false, integers and bools only


class Operand(Enum):
    """What an operand's type must be. All operands marked T have one type: a scalar of the row's `of`, or a vector of one."""

    T = "T"
    BOOL = "bool"  # a bool, or a vector of bools with as many components as T
    U32 = "u32"  # a u32, or a vector of u32 with as many components as T
    I32 = "i32"  # an i32, or a vector of i32 with as many components as T
    COMPONENT = "component of T"
    ANY = "any"  # any type, independent of T
    LANES = "lanes"  # a u32 constant that names components: `swizzle_bits`

    @property
    def fixed(self) -> Type | None:
        """The type of one component, where it does not depend on T."""
        return _FIXED.get(self)

    def beside(self, t: Type) -> Type:
        """A type that an operand so marked may have where T is `t`: one component for all, where it need not have as many."""
        return t.scalar if self is Operand.COMPONENT else self.fixed or t


_FIXED: Final[Mapping[Operand, Type]] = {Operand.BOOL: bool_, Operand.U32: u32, Operand.I32: i32, Operand.LANES: u32}


class Result(Enum):
    """What the result's type is. T is the type of the operands marked so, with all its components."""

    T = "T"
    BOOL = "bool"  # per component
    UNSIGNED = "unsigned T"
    I32 = "i32"  # per component
    COMPONENT = "component of T"
    VECTOR = "vector of T"  # with as many components as there are operands
    FIXED = "fixed"  # the row's `fixed`
    GIVEN = "given"  # written out, as in cast(x, f32)


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row: see the module.

    `evaluate(result_type, *arrays)` is the meaning over arrays, vectors with their components on the last axis; it is absent for
    queries (no operands; `level` says how uniform the answer is) and for ops that only their expansion defines. `expansion` names the function
    in `ir/math` that writes the op in simpler ones, and `expands` the scalar types over which it does; one that is written for each of the
    types `through`, the narrowest first, is used for the others by way of the first, and is at most `ulp` units in the last place off. `range_rule` names
    the rule in `passes/bounds/transfer.py` which says what integers the op can give; without one it may give any of its type. `lanes` are the
    numbers of components that T may have.
    """

    name: str
    code: int  # what the wire form writes for it, for ever
    operands: tuple[Operand, ...]
    result: Result
    of: frozenset[Type]
    evaluate: Callable[..., Array] | None
    doc: str
    laws: Law = Law.NONE
    right_identity: int | None = None  # integer c with f(x, c) = x; for bools 0 or 1
    right_absorber: int | None = None  # integer c with f(x, c) = c
    infix: str | None = None  # spelling between two operands, or before one
    level: Level | None = None
    expands: frozenset[Type] = frozenset()
    lanes: frozenset[int] = frozenset({1, 2, 3, 4})
    fixed: Type | None = None
    names: tuple[str, ...] = ()  # of the operands, for readers and for calls in Python; x, y, z, w where none are given
    negation: str | None = None  # for a comparison, the op that is true where this is false, of integers
    builtin: bool = False  # a function of Python's own calls it, as abs does
    moves_bits: bool = False  # over floats: the bits of the result are the same everywhere, whatever the numerics
    expansion: str = ""  # module and function, below `ir/math`
    through: tuple[Type, ...] = ()
    ulp: int = 1
    range_rule: str = ""
    accepts: Callable[[Type, Type], bool] | None = None  # for a result that is GIVEN: whether the first operand's type goes to that one
    conversions: str = ""  # the same in words
    approximates: str = ""  # the op within whose bounds of `lowering/FAST.md` targets may compute this one faster; elsewhere it is that op

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", ("x", "y", "z", "w")[: len(self.operands)])

    @property
    def is_query(self) -> bool:
        """Whether this op asks where the invocation is, rather than computing."""
        return self.level is not None

    @property
    def is_lanewise(self) -> bool:
        """Whether each component of the result depends on the same component of the operands alone."""
        return (self.result in (Result.T, Result.BOOL, Result.UNSIGNED, Result.I32) and len(self.lanes) == _MAX_LANES) or self.name == "cast"

    def operand_type(self, operands: tuple[Type, ...]) -> Type | None:
        """T, or None where the row has no operand marked so."""
        return next((actual for pattern, actual in zip(self.operands, operands, strict=False) if pattern is Operand.T), None)

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - rows live as long as the process; a Program has few signatures, and many statements
    def result_type(self, operands: tuple[Type, ...], given: Type | None = None) -> Type | None:
        """The result's type for these operand types, or None when the row does not accept them."""
        if shapes := tuple([t.shape for t in operands if t.shape]):
            return self._tile_type(operands, given, broadcast(shapes))
        if len(operands) != len(self.operands) or (given is None) is (self.result is Result.GIVEN) or (given is not None and given.is_tile):
            return None
        t = self.operand_type(operands)
        if t is not None and (t.scalar not in self.of or t.lanes not in self.lanes):
            return None
        for pattern, actual in zip(self.operands, operands, strict=True):
            if pattern is Operand.T:
                fits = actual is t
            elif pattern is Operand.ANY:
                fits = True
            elif pattern is Operand.COMPONENT:
                fits = t is not None and actual is t.scalar
            else:
                wanted = pattern.beside(actual)
                # A vector chooses by one bool, or component by component.
                fits = actual is wanted or (t is not None and t.is_vector and actual is vector_of(wanted, t.lanes) and pattern is not Operand.LANES)
            if not fits:
                return None
        if self.result is Result.GIVEN:
            return given if given is not None and self.accepts is not None and self.accepts(operands[0], given) else None
        if self.result is Result.FIXED:
            return self.fixed
        assert t is not None  # a row whose result speaks of T has an operand T (tests/ir/language/test_ops.py)
        return _RESULTS[self.result](t, len(operands))

    def _tile_type(self, operands: tuple[Type, ...], given: Type | None, shape: tuple[int, ...] | None) -> Type | None:
        """The result's type for tiles, and scalars beside them: element by element."""
        if shape is None or not (self.is_lanewise or self.name == "bitcast") or any(t.is_vector for t in operands):
            return None
        if given is not None and (given.is_vector or given.shape not in ((), shape)):
            return None
        element = self.result_type(tuple([t.scalar for t in operands]), given and given.scalar)
        return element and tile_of(element, shape)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


_MAX_LANES: Final = 4
_ORDER_SHIFT: Final = 6  # of an order's code in that of an atomic
_RESULTS: Final[Mapping[Result, Callable[[Type, int], Type]]] = {
    Result.T: lambda t, count: t,
    Result.BOOL: lambda t, count: vector_of(bool_, t.lanes),
    Result.UNSIGNED: lambda t, count: unsigned_of(t),
    Result.I32: lambda t, count: vector_of(i32, t.lanes),
    Result.COMPONENT: lambda t, count: t.scalar,
    Result.VECTOR: vector_of,
}


class Scope(Enum):
    """For whose invocations memory is ordered. Whatever it is, an atomic is one for all of them."""

    WORKGROUP = "workgroup"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """What an atomic orders beside its own element: where one that acquires reads what one that releases wrote, or what atomics made of that, whatever
    came before the release is seen by whatever comes after the acquire. Both invocations are in the `scope`; a relaxed atomic orders nothing and has none.
    """

    name: str
    code: int
    acquires: bool = False
    releases: bool = False
    scope: Scope | None = None

    @property
    def suffix(self) -> str:
        """What follows an atomic's name: the order, and the scope where that is the workgroup."""
        return "" if self.scope is None else f".{self.name}" + ("" if self.scope is Scope.DEVICE else f".{self.scope.value}")

    def __repr__(self) -> str:
        return f"<order {self.name}{'' if self.scope is None else f' {self.scope.value}'}>"


RELAXED: Final = Order("relaxed", 0)
# By name and scope.
ORDERS: Final[Mapping[tuple[str, Scope], Order]] = {
    **{("relaxed", scope): RELAXED for scope in Scope},
    **{
        (name, scope): Order(name, code, name != "release", name != "acquire", scope)
        for first, scope in ((1, Scope.DEVICE), (5, Scope.WORKGROUP)) for code, name in enumerate(("acquire", "release", "acq_rel"), first)
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AtomicOp:
    """An atomic access of one order. `evaluate(old, *operands)` is the new value of one element. It gives
    the old value where it `reads`."""

    name: str
    code: int
    operands: int
    of: frozenset[Type]
    evaluate: Callable[..., Array]
    doc: str
    order: Order = RELAXED
    reads: bool = True
    writes: bool = True

    @property
    def spelling(self) -> str:
        """Its name and order, as text, bytes and JSON write them."""
        return self.name + self.order.suffix

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders that it may have: what only reads has nothing to release, what only writes nothing to acquire."""
        return ("relaxed", *["acquire"] * self.reads, *["release"] * self.writes, *["acq_rel"] * (self.reads and self.writes))

    def ordered(self, order: Order) -> AtomicOp:
        """The same access with one of its orders."""
        return replace(self, order=order, code=self.code | order.code << _ORDER_SHIFT)


@dataclass(frozen=True, slots=True, eq=False)
class GridFold:
    """What a scan over the grid folds with: an op, from its `identity` on, over scalar types `of`. Where `any_order`, the bits of the result depend on how
    the values are put together, which no device promises; elsewhere they are the same for every order."""

    op: Op
    of: frozenset[Type]
    any_order: bool
    identity: Callable[[Type], bool | int | float]

    def accepts(self, operands: tuple[Type, ...]) -> bool:
        """Whether one operand of this type can be folded."""
        return len(operands) == 1 and operands[0] in self.of


_MASK_BITS: Final = 32


def mask_type(size: int) -> Type:
    """The type of a mask of a subgroup's lanes: lane k is bit k % 32 of component k // 32. A u32 for up to 32 lanes, u32x2 for 64, u32x4 for 128."""
    return vector_of(u32, max(1, size // _MASK_BITS))


@dataclass(frozen=True, slots=True, eq=False)
class SubgroupOp:
    """An op that all lanes of a subgroup execute together. Its first operand is one of the scalar types `of`, or a vector of one if it takes `vectors`.

    A second one, a u32, there is where `index` says how widely it must be the same. `evaluate(result_type, x, *index)` is the meaning, over arrays with the
    axes (subgroup, lane), and one of components for vectors. `level` says how uniform the result is; `masks` that it is a `mask_type`, where others give
    the first operand's type. One that `moves_bits` computes nothing. `fold` is the op that a reduction or scan folds with, "" for others.
    """

    name: str
    code: int
    of: frozenset[Type]
    evaluate: Callable[..., Array]
    doc: str
    names: tuple[str, ...]
    level: Level = Level.VARYING
    index: Level | None = None
    vectors: bool = True
    masks: bool = False
    moves_bits: bool = False
    fold: str = ""

    @property
    def operands(self) -> int:
        """How many operands it takes."""
        return len(self.names)

    def result_type(self, operands: tuple[Type, ...], size: int) -> Type | None:
        """The result's type for operands of these types in subgroups of `size` lanes, or None where the row does not accept them."""
        if len(operands) != len(self.names) or any(t is not u32 for t in operands[1:]):
            return None
        t = operands[0]
        if t.scalar not in self.of or (t.is_vector and not self.vectors):
            return None
        return mask_type(size) if self.masks else t

    def __repr__(self) -> str:
        return f"<subgroup op {self.name}>"
