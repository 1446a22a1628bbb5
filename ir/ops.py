"""The op table: one row is one op.

Builder, checker, interpreter, folding, printer, parser, digest, generated pages, tests and fuzzers read this table, and each
target has a table of its own with the same names. A row is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag, auto
from typing import Any, Final

import numpy as np

from vyre_py.ir import evaluate as ev
from vyre_py.ir.types import SCALARS, Array, Kind, Scalar, bool_, f32, i32, u32, unsigned_of

__all__ = ["ATOMICS", "OPS", "AtomicOp", "Law", "Level", "Op", "Operand", "Result"]


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
    """What an operand's type must be. All operands marked T have one type, drawn from the row's `of`."""

    T = "T"
    BOOL = "bool"
    ANY = "any"  # any scalar, independent of T


class Result(Enum):
    """What the result's type is."""

    T = "T"
    BOOL = "bool"
    U32 = "u32"
    UNSIGNED = "unsigned T"
    GIVEN = "given"  # written out, as in cast(x, f32)


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row: see the module. `evaluate(result_type, *arrays)` is absent for ops that `expands` through `ir/math` and for
    queries (no operands, no evaluation), whose `level` says how uniform the answer is."""

    name: str
    operands: tuple[Operand, ...]
    result: Result
    of: frozenset[Scalar]
    evaluate: Callable[..., Array] | None
    doc: str
    laws: Law = Law.NONE
    right_identity: int | None = None  # integer c with f(x, c) = x; for bools 0 or 1
    right_absorber: int | None = None  # integer c with f(x, c) = c
    infix: str | None = None  # spelling between two operands, or before one
    level: Level | None = None
    expands: bool = False
    capability: str | None = None

    @property
    def is_query(self) -> bool:
        """Whether this op asks where the invocation is, rather than computing."""
        return self.level is not None

    def result_type(self, operands: tuple[Scalar, ...], given: Scalar | None = None) -> Scalar | None:
        """The result's type for these operand types, or None when the row does not accept them."""
        if len(operands) != len(self.operands) or (given is None) is (self.result is Result.GIVEN):
            return None
        t: Scalar | None = None
        for pattern, actual in zip(self.operands, operands, strict=True):
            if pattern is Operand.BOOL:
                if actual is not bool_:
                    return None
            elif pattern is Operand.T:
                if actual not in self.of or (t is not None and actual is not t):
                    return None
                t = actual
        if self.result is Result.GIVEN:
            return given if given is not None and _GIVEN_RULES[self.name](operands[0], given) else None
        if self.result is Result.BOOL:
            return bool_
        if self.result is Result.U32:
            return u32
        assert t is not None  # a row whose result speaks of T has an operand T (tests/test_ops.py)
        return unsigned_of(t) if self.result is Result.UNSIGNED else t

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _bitcasts(source: Scalar, target: Scalar) -> bool:
    kinds = (source.kind, target.kind)
    return source.bits == target.bits and source is not target and Kind.BOOL not in kinds


_GIVEN_RULES: Final[Mapping[str, Callable[[Scalar, Scalar], bool]]] = {
    "cast": lambda source, target: source is not target,
    "bitcast": _bitcasts,
}

_T, _B, _A = Operand.T, Operand.BOOL, Operand.ANY
_INT = frozenset({i32, u32})
_FLOAT = frozenset({f32})
_NUMERIC = _INT | _FLOAT
_BOOL = frozenset({bool_})
_ALL = frozenset(SCALARS.values())


def _row(name: str, operands: tuple[Operand, ...], result: Result, of: frozenset[Scalar], evaluate: Callable[..., Array] | None, doc: str, **rest: Any) -> Op:
    return Op(name, operands, result, of, evaluate, doc, **rest)


_CALCULATIONS: tuple[Op, ...] = (
    _row("add", (_T, _T), Result.T, _NUMERIC, ev.add, "The sum; integers wrap.", infix="+", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=0),
    _row("sub", (_T, _T), Result.T, _NUMERIC, ev.sub, "The difference; integers wrap.", infix="-", laws=Law.SELF_ZERO_INT, right_identity=0),
    _row("mul", (_T, _T), Result.T, _NUMERIC, ev.mul, "The product; integers wrap.", infix="*", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=1, right_absorber=0),
    _row("div", (_T, _T), Result.T, _NUMERIC, ev.div, "The quotient; integers round toward zero, x / 0 = x, MIN / -1 = MIN.", infix="/", right_identity=1),
    _row("rem", (_T, _T), Result.T, _INT, ev.rem, "The remainder with the dividend's sign; x % 0 = 0, MIN % -1 = 0.", infix="%"),
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
    _row("cast", (_A,), Result.GIVEN, _ALL, ev.cast, "The value in another type: rounds once; float to int saturates, NaN to 0; int narrowing wraps; non-zero is true."),
    _row("bitcast", (_A,), Result.GIVEN, _ALL, ev.bitcast, "The bits as another type of the same width; a NaN gives the canonical quiet NaN."),
    _row("exp", (_T,), Result.T, _FLOAT, None, "e to the power x.", expands=True),
    _row("log", (_T,), Result.T, _FLOAT, None, "The natural logarithm.", expands=True),
    _row("sin", (_T,), Result.T, _FLOAT, None, "The sine of x radians.", expands=True),
    _row("cos", (_T,), Result.T, _FLOAT, None, "The cosine of x radians.", expands=True),
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
        *(_row(f"{name}.{axis}", (), Result.U32, frozenset(), None, doc, level=level) for name, level, doc in _QUERIES for axis in "xyz"),
        _row("local_index", (), Result.U32, frozenset(), None, "The invocation's number in its workgroup, x fastest.", level=Level.VARYING),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class AtomicOp:
    """An atomic read-modify-write, which gives the old value. `evaluate(old, *operands)` is the new value of one element."""

    name: str
    operands: int
    of: frozenset[Scalar]
    evaluate: Callable[..., Array]
    doc: str


def _compare_exchange(old: Array, expected: Array, desired: Array) -> Array:
    return np.where(old == expected, desired, old)


def _atomic(name: str, evaluate: Callable[..., Array], doc: str, operands: int = 1) -> AtomicOp:
    return AtomicOp(name, operands, _INT, evaluate, doc)


ATOMICS: Final[Mapping[str, AtomicOp]] = {
    row.name: row
    for row in (
        _atomic("add", lambda old, x: old + x, "Adds; wraps."),
        _atomic("sub", lambda old, x: old - x, "Subtracts; wraps."),
        _atomic("min", np.minimum, "Keeps the lesser."),
        _atomic("max", np.maximum, "Keeps the greater."),
        _atomic("and", lambda old, x: old & x, "Bitwise and."),
        _atomic("or", lambda old, x: old | x, "Bitwise or."),
        _atomic("xor", lambda old, x: old ^ x, "Bitwise exclusive or."),
        _atomic("exchange", lambda old, x: x, "Stores the operand."),
        _atomic("compare_exchange", _compare_exchange, "Stores `desired` where the old value equals `expected`.", 2),
    )
}
