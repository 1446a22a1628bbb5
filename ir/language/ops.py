"""The op table: one row is one op.

Builder, checker, interpreter, folding, printer, parser, digest, generated pages, tests and fuzzers read this table, and each
target has a table of its own with the same names. A row is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag, auto
from functools import lru_cache
from typing import Any, Final

import numpy as np

from vyre_py.ir import evaluate as ev
from vyre_py.ir.language.types import (
    SCALARS,
    Array,
    Kind,
    Type,
    bool_,
    f32,
    f64,
    i32,
    i64,
    scalar_of,
    u32,
    u64,
    unsigned_of,
    vector_of,
)

__all__ = ["ATOMICS", "EXPANDED_ONLY", "OPS", "AtomicOp", "Law", "Level", "Op", "Operand", "Result", "swizzle_bits", "swizzle_lanes"]


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
    ANY = "any"  # any type, independent of T
    LANES = "lanes"  # a u32 constant that names components: `swizzle_bits`


class Result(Enum):
    """What the result's type is. T is the type of the operands marked so, with all its components."""

    T = "T"
    BOOL = "bool"  # per component
    UNSIGNED = "unsigned T"
    COMPONENT = "component of T"
    VECTOR = "vector of T"  # with as many components as there are operands
    FIXED = "fixed"  # the row's `fixed`
    GIVEN = "given"  # written out, as in cast(x, f32)


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row: see the module.

    `evaluate(result_type, *arrays)` is the meaning over arrays, vectors with their components on the last axis; it is absent for
    queries (no operands; `level` says how uniform the answer is) and for ops that only `ir/math` defines. `expands` holds the scalar types
    over which the op has an expansion into simpler ops; `lanes` how many components T may have.
    """

    name: str
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

    @property
    def is_query(self) -> bool:
        """Whether this op asks where the invocation is, rather than computing."""
        return self.level is not None

    @property
    def is_lanewise(self) -> bool:
        """Whether each component of the result depends on the same component of the operands alone."""
        return (self.result in (Result.T, Result.BOOL, Result.UNSIGNED) and len(self.lanes) == _MAX_LANES) or self.name == "cast"

    def operand_type(self, operands: tuple[Type, ...]) -> Type | None:
        """T, or None where the row has no operand marked so."""
        return next((actual for pattern, actual in zip(self.operands, operands, strict=False) if pattern is Operand.T), None)

    def result_type(self, operands: tuple[Type, ...], given: Type | None = None) -> Type | None:
        """The result's type for these operand types, or None when the row does not accept them."""
        return _result_type(self, operands, given)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


@lru_cache(maxsize=1 << 14)  # a Program has few signatures, and many statements
def _result_type(op: Op, operands: tuple[Type, ...], given: Type | None) -> Type | None:
    if len(operands) != len(op.operands) or (given is None) is (op.result is Result.GIVEN):
        return None
    t = op.operand_type(operands)
    if t is not None and (t.scalar not in op.of or t.lanes not in op.lanes):
        return None
    for pattern, actual in zip(op.operands, operands, strict=True):
        if pattern is Operand.T:
            fits = actual is t
        elif pattern is Operand.ANY:
            fits = True
        else:
            wanted = bool_ if pattern is Operand.BOOL else u32
            # A vector chooses by one bool, or component by component.
            fits = actual is wanted or (t is not None and t.is_vector and actual is vector_of(wanted, t.lanes) and pattern is not Operand.LANES)
        if not fits:
            return None
    if op.result is Result.GIVEN:
        return given if given is not None and _GIVEN_RULES[op.name](operands[0], given) else None
    if op.result is Result.FIXED:
        return op.fixed
    assert t is not None  # a row whose result speaks of T has an operand T (tests/test_ops.py)
    return _RESULTS[op.result](t, len(operands))


_MAX_LANES: Final = 4
_RESULTS: Final[Mapping[Result, Callable[[Type, int], Type]]] = {
    Result.T: lambda t, count: t,
    Result.BOOL: lambda t, count: vector_of(bool_, t.lanes),
    Result.UNSIGNED: lambda t, count: unsigned_of(t),
    Result.COMPONENT: lambda t, count: t.scalar,
    Result.VECTOR: vector_of,
}


def _bitcasts(source: Type, target: Type) -> bool:
    kinds = (source.kind, target.kind)
    return source.total_bits == target.total_bits and source is not target and Kind.BOOL not in kinds


_GIVEN_RULES: Final[Mapping[str, Callable[[Type, Type], bool]]] = {
    "cast": lambda source, target: source is not target and source.lanes == target.lanes,
    "bitcast": _bitcasts,
    "swizzle": lambda source, target: source.scalar is target.scalar,
}


def swizzle_bits(names: str) -> int:
    """The pattern of a swizzle: two bits per component, the first lowest; "zyx" is 0b000110. Raises ValueError for other letters."""
    return sum("xyzw".index(name) << 2 * k for k, name in enumerate(names))


def swizzle_lanes(bits: int, count: int) -> tuple[int, ...]:
    """Which component of the source each of `count` components of a swizzle's result is."""
    return tuple(bits >> 2 * k & 3 for k in range(count))


_T, _B, _A, _U, _L = Operand.T, Operand.BOOL, Operand.ANY, Operand.U32, Operand.LANES
_INT = frozenset(t for t in SCALARS.values() if t.is_integer)
_FLOAT = frozenset(t for t in SCALARS.values() if t.is_float)
_MATH = _FLOAT - {f64}
_NUMERIC = _INT | _FLOAT
_BOOL = frozenset({bool_})
_ALL = frozenset(SCALARS.values())
_SCALAR, _VECTOR = frozenset({1}), frozenset({2, 3, 4})


def _row(name: str, operands: tuple[Operand, ...], result: Result, of: frozenset[Type], evaluate: Callable[..., Array] | None, doc: str, **rest: Any) -> Op:
    return Op(name, operands, result, of, evaluate, doc, **rest)


def _math(name: str, doc: str, operands: int = 1) -> Op:
    return _row(name, (_T,) * operands, Result.T, _MATH, None, doc, expands=_MATH)


# Form, type of the components, what packing does
_PACKED: tuple[tuple[str, Type, str], ...] = (
    ("4x8_snorm", f32, "Four bytes round(clamp(x, -1, 1) * 127), the first lowest."),
    ("4x8_unorm", f32, "Four bytes round(clamp(x, 0, 1) * 255), the first lowest."),
    ("4x8_sint", i32, "The low bytes of four integers, the first lowest."),
    ("4x8_uint", u32, "The low bytes of four integers, the first lowest."),
    ("2x16_snorm", f32, "Two halves round(clamp(x, -1, 1) * 32767), the first lowest."),
    ("2x16_unorm", f32, "Two halves round(clamp(x, 0, 1) * 65535), the first lowest."),
    ("2x16_sint", i32, "The low halves of two integers, the first lowest."),
    ("2x16_uint", u32, "The low halves of two integers, the first lowest."),
    ("2x16_float", f32, "Two f16, each rounded once, the first lowest."),
)

_CALCULATIONS: tuple[Op, ...] = (
    _row("add", (_T, _T), Result.T, _NUMERIC, ev.add, "The sum; integers wrap.", infix="+", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=0),
    _row("sub", (_T, _T), Result.T, _NUMERIC, ev.sub, "The difference; integers wrap.", infix="-", laws=Law.SELF_ZERO_INT, right_identity=0),
    _row("mul", (_T, _T), Result.T, _NUMERIC, ev.mul, "The product; integers wrap.", infix="*", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=1, right_absorber=0),
    _row("div", (_T, _T), Result.T, _NUMERIC, ev.div, "The quotient; integers round toward zero, x / 0 = x, MIN / -1 = MIN.", infix="/", right_identity=1),
    _row("rem", (_T, _T), Result.T, _NUMERIC, ev.rem, "The remainder with the dividend's sign, exact; integers x % 0 = 0, MIN % -1 = 0, floats as C's fmod.", infix="%", expands=_FLOAT),
    _row("neg", (_T,), Result.T, _NUMERIC, ev.neg, "The negation; integers wrap, a float's sign flips.", infix="-", laws=Law.INVOLUTION),
    _row("abs", (_T,), Result.T, _NUMERIC, ev.abs_, "The magnitude; abs(MIN) = MIN.", laws=Law.PROJECTION),
    _row("sign", (_T,), Result.T, _NUMERIC, ev.sign, "1 above zero, -1 below; zeros and NaN stay what they are.", laws=Law.PROJECTION),
    _row("min", (_T, _T), Result.T, _NUMERIC, ev.min_, "The lesser; the number wins over NaN, -0 < +0.", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT),
    _row("max", (_T, _T), Result.T, _NUMERIC, ev.max_, "The greater; the number wins over NaN, -0 < +0.", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT),
    _row("clamp", (_T, _T, _T), Result.T, _NUMERIC, ev.clamp, "min(max(x, low), high)."),
    _row("fma", (_T, _T, _T), Result.T, _FLOAT, ev.fma, "a * b + c, rounded once."),
    _row("sqrt", (_T,), Result.T, _FLOAT, ev.sqrt, "The square root, correctly rounded."),
    _row("floor", (_T,), Result.T, _FLOAT, ev.floor, "The greatest whole number not above.", laws=Law.PROJECTION),
    _row("ceil", (_T,), Result.T, _FLOAT, ev.ceil, "The least whole number not below.", laws=Law.PROJECTION),
    _row("trunc", (_T,), Result.T, _FLOAT, ev.trunc, "The whole part, toward zero.", laws=Law.PROJECTION),
    _row("round", (_T,), Result.T, _FLOAT, ev.round_, "The nearest whole number, ties to even.", laws=Law.PROJECTION),
    _row("fract", (_T,), Result.T, _FLOAT, ev.fract, "x - floor(x)."),
    _row("and", (_T, _T), Result.T, _INT, ev.and_, "Bitwise and.", infix="&", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, right_identity=-1, right_absorber=0),
    _row("or", (_T, _T), Result.T, _INT, ev.or_, "Bitwise or.", infix="|", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, right_identity=0, right_absorber=-1),
    _row("xor", (_T, _T), Result.T, _INT, ev.xor, "Bitwise exclusive or.", infix="^", laws=Law.COMMUTES | Law.SELF_ZERO_INT | Law.ASSOCIATIVE_INT, right_identity=0),
    _row("not", (_T,), Result.T, _INT, ev.not_, "Bitwise not.", infix="~", laws=Law.INVOLUTION),
    _row("shl", (_T, _T), Result.T, _INT, ev.shl, "Shift left; the count is masked by the width.", infix="<<", right_identity=0),
    _row("shr", (_T, _T), Result.T, _INT, ev.shr, "Shift right, arithmetic for signed types; the count is masked by the width.", infix=">>", right_identity=0),
    _row("rotl", (_T, _T), Result.T, _INT, ev.rotl, "Rotate left; the count is masked by the width.", right_identity=0),
    _row("rotr", (_T, _T), Result.T, _INT, ev.rotr, "Rotate right; the count is masked by the width.", right_identity=0),
    _row("popcount", (_T,), Result.T, _INT, ev.popcount, "How many bits are one."),
    _row("clz", (_T,), Result.T, _INT, ev.clz, "How many leading bits are zero; the width for 0."),
    _row("ctz", (_T,), Result.T, _INT, ev.ctz, "How many trailing bits are zero; the width for 0."),
    _row("reverse_bits", (_T,), Result.T, _INT, ev.reverse_bits, "The bits in the opposite order.", laws=Law.INVOLUTION),
    _row("mul_hi", (_T, _T), Result.T, _INT, ev.mul_hi, "The upper half of the exact product.", laws=Law.COMMUTES, right_absorber=0),
    _row("abs_diff", (_T, _T), Result.UNSIGNED, _INT, ev.abs_diff, "The distance, unsigned.", laws=Law.COMMUTES | Law.SELF_ZERO_INT),
    _row("eq", (_T, _T), Result.BOOL, _NUMERIC | _BOOL, ev.eq, "Equal; NaN equals nothing.", infix="==", laws=Law.COMMUTES | Law.SELF_TRUE),
    _row("ne", (_T, _T), Result.BOOL, _NUMERIC | _BOOL, ev.ne, "Not equal; true for NaN.", infix="!=", laws=Law.COMMUTES | Law.SELF_FALSE),
    _row("lt", (_T, _T), Result.BOOL, _NUMERIC, ev.lt, "Less.", infix="<", laws=Law.SELF_FALSE),
    _row("le", (_T, _T), Result.BOOL, _NUMERIC, ev.le, "Less or equal.", infix="<=", laws=Law.SELF_TRUE),
    _row("gt", (_T, _T), Result.BOOL, _NUMERIC, ev.gt, "Greater.", infix=">", laws=Law.SELF_FALSE),
    _row("ge", (_T, _T), Result.BOOL, _NUMERIC, ev.ge, "Greater or equal.", infix=">=", laws=Law.SELF_TRUE),
    _row("logical_and", (_T, _T), Result.T, _BOOL, ev.and_, "Both; both sides are computed.", infix="&&", laws=Law.COMMUTES | Law.IDEMPOTENT, right_identity=1, right_absorber=0),
    _row("logical_or", (_T, _T), Result.T, _BOOL, ev.or_, "Either; both sides are computed.", infix="||", laws=Law.COMMUTES | Law.IDEMPOTENT, right_identity=0, right_absorber=1),
    _row("logical_not", (_T,), Result.T, _BOOL, ev.not_, "The opposite.", infix="!", laws=Law.INVOLUTION),
    _row("select", (_B, _T, _T), Result.T, _ALL, ev.select, "The second operand where the first is true, else the third; bits are kept."),
    _row("is_nan", (_T,), Result.BOOL, _FLOAT, ev.is_nan, "Whether this is a NaN."),
    _row("is_inf", (_T,), Result.BOOL, _FLOAT, ev.is_inf, "Whether this is an infinity."),
    _row("is_finite", (_T,), Result.BOOL, _FLOAT, ev.is_finite, "Whether this is neither NaN nor an infinity."),
    _row("cast", (_A,), Result.GIVEN, _ALL, ev.cast, "The value in another type: rounds once; float to int saturates, NaN to 0; int narrowing wraps; non-zero is true. Sizes of 2^32 and more are taken whole by i64 and u64."),
    _row("bitcast", (_A,), Result.GIVEN, _ALL, ev.bitcast, "The bits as another type of the same width; a NaN gives the canonical quiet NaN."),
    _row("swizzle", (_A, _L), Result.GIVEN, _ALL, ev.swizzle, "Components picked by name, in any order and repeated: v.x, v.zyx, s.xxx; bits are kept."),
    _row("vec2", (_T, _T), Result.VECTOR, _ALL, ev.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("vec3", (_T, _T, _T), Result.VECTOR, _ALL, ev.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("vec4", (_T, _T, _T, _T), Result.VECTOR, _ALL, ev.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("dot", (_T, _T), Result.COMPONENT, _NUMERIC, ev.dot, "The sum of the products of components, left to right, each step rounded; integers wrap.", laws=Law.COMMUTES, lanes=_VECTOR),
    _row("length", (_T,), Result.COMPONENT, _FLOAT, ev.length, "sqrt(dot(v, v)).", lanes=_VECTOR),
    _row("cross", (_T, _T), Result.T, _NUMERIC, ev.cross, "The cross product a.yzx * b.zxy - a.zxy * b.yzx, each step rounded.", lanes=frozenset({3})),
    _row("all", (_T,), Result.FIXED, _BOOL, ev.all_, "Whether all components are true.", lanes=_VECTOR, fixed=bool_),
    _row("any", (_T,), Result.FIXED, _BOOL, ev.any_, "Whether any component is true.", lanes=_VECTOR, fixed=bool_),
    _row("saturating_add", (_T, _T), Result.T, _INT, ev.saturating_add, "The sum, or the nearest value that the type holds.", laws=Law.COMMUTES, right_identity=0, expands=_INT),
    _row("saturating_sub", (_T, _T), Result.T, _INT, ev.saturating_sub, "The difference, or the nearest value that the type holds.", laws=Law.SELF_ZERO_INT, right_identity=0, expands=_INT),
    _row("saturating_mul", (_T, _T), Result.T, _INT, ev.saturating_mul, "The product, or the nearest value that the type holds.", laws=Law.COMMUTES, right_identity=1, right_absorber=0, expands=_INT),
    _row("extract_bits", (_T, _U, _U), Result.T, _INT, ev.extract_bits, "The `count` bits from bit `offset` up, sign-extended for signed types; both are cut to the width.", expands=_INT),
    _row("insert_bits", (_T, _T, _U, _U), Result.T, _INT, ev.insert_bits, "x with its `count` bits from bit `offset` up taken from the low bits of y; both are cut to the width.", expands=_INT),
    _row("rsqrt", (_T,), Result.T, _FLOAT, ev.rsqrt, "1 / sqrt(x), in two roundings.", expands=_FLOAT),
    *(
        _row(f"pack{form}", (_T,), Result.FIXED, frozenset({component}), ev.packer(form), doc, lanes=frozenset({int(form[0])}), fixed=u32)
        for form, component, doc in _PACKED
    ),
    *(
        _row(f"unpack{form}", (_T,), Result.FIXED, frozenset({u32}), ev.unpacker(form), f"The components of a pack{form}.", lanes=_SCALAR, fixed=vector_of(component, int(form[0])))
        for form, component, _ in _PACKED
    ),
    _math("exp", "e to the power x."),
    _math("exp2", "2 to the power x."),
    _math("exp10", "10 to the power x."),
    _math("expm1", "e to the power x, less 1."),
    _math("log", "The natural logarithm."),
    _math("log2", "The logarithm to base 2."),
    _math("log10", "The logarithm to base 10."),
    _math("log1p", "The natural logarithm of 1 + x."),
    _math("sin", "The sine of x radians."),
    _math("cos", "The cosine of x radians."),
    _math("tan", "The tangent of x radians."),
    _math("asin", "The angle in [-pi/2, pi/2] whose sine is x."),
    _math("acos", "The angle in [0, pi] whose cosine is x."),
    _math("atan", "The angle in [-pi/2, pi/2] whose tangent is x."),
    _math("atan2", "The angle in [-pi, pi] of the point with abscissa x and ordinate y; the operands are y, x.", 2),
    _math("sinh", "The hyperbolic sine."),
    _math("cosh", "The hyperbolic cosine."),
    _math("tanh", "The hyperbolic tangent."),
    _math("asinh", "The inverse hyperbolic sine."),
    _math("acosh", "The inverse hyperbolic cosine, not negative."),
    _math("atanh", "The inverse hyperbolic tangent."),
    _math("pow", "x to the power y, as C's pow.", 2),
    _math("cbrt", "The cube root."),
    _math("hypot", "sqrt(x^2 + y^2) without overflow on the way.", 2),
    _math("erf", "The error function."),
    _math("erfc", "1 - erf(x), without loss for large x."),
)

# name, level, doc; each has three axes
_QUERIES: tuple[tuple[str, Level, str], ...] = (
    ("global_id", Level.VARYING, "The invocation's place in the whole grid: workgroup_id * workgroup_size + local_id."),
    ("local_id", Level.VARYING, "The invocation's place in its workgroup."),
    ("workgroup_id", Level.WORKGROUP, "The workgroup's place in the grid."),
    ("num_workgroups", Level.GRID, "How many workgroups the grid has."),
    ("workgroup_size", Level.GRID, "How many invocations a workgroup has."),
)

OPS: Final[Mapping[str, Op]] = {
    row.name: row
    for row in (
        *_CALCULATIONS,
        *(_row(f"{name}.{axis}", (), Result.FIXED, frozenset(), None, doc, level=level, fixed=u32) for name, level, doc in _QUERIES for axis in "xyz"),
        _row("local_index", (), Result.FIXED, frozenset(), None, "The invocation's number in its workgroup, x fastest.", level=Level.VARYING, fixed=u32),
    )
}


# Ops that only their expansion defines.
EXPANDED_ONLY: Final = frozenset(name for name, row in OPS.items() if row.evaluate is None and not row.is_query)


@dataclass(frozen=True, slots=True, eq=False)
class AtomicOp:
    """An atomic read-modify-write, which gives the old value. `evaluate(old, *operands)` is the new value of one element."""

    name: str
    operands: int
    of: frozenset[Type]
    evaluate: Callable[..., Array]
    doc: str


def _compare_exchange(old: Array, expected: Array, desired: Array) -> Array:
    return np.where(old == expected, desired, old)


_WORDS = frozenset({i32, u32, i64, u64})


def _atomic(name: str, evaluate: Callable[..., Array], doc: str, operands: int = 1, of: frozenset[Type] = _WORDS) -> AtomicOp:
    return AtomicOp(name, operands, of, evaluate, doc)


def _least(old: Array, x: Array) -> Array:
    return ev.min_(scalar_of(old.dtype) or u32, old, x)


def _greatest(old: Array, x: Array) -> Array:
    return ev.max_(scalar_of(old.dtype) or u32, old, x)


ATOMICS: Final[Mapping[str, AtomicOp]] = {
    row.name: row
    for row in (
        _atomic("add", lambda old, x: old + x, "Adds; integers wrap; the order of float additions is unspecified, and subnormals may be flushed.", of=_WORDS | {f32, f64}),
        _atomic("sub", lambda old, x: old - x, "Subtracts; wraps."),
        _atomic("min", _least, "Keeps the lesser, as min does.", of=_WORDS | {f32}),
        _atomic("max", _greatest, "Keeps the greater, as max does.", of=_WORDS | {f32}),
        _atomic("and", lambda old, x: old & x, "Bitwise and."),
        _atomic("or", lambda old, x: old | x, "Bitwise or."),
        _atomic("xor", lambda old, x: old ^ x, "Bitwise exclusive or."),
        _atomic("exchange", lambda old, x: x, "Stores the operand."),
        _atomic("compare_exchange", _compare_exchange, "Stores `desired` where the old value equals `expected`.", 2),
    )
}
