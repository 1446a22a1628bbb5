"""Simplify: algebraic identities that hold bit for bit, by the laws in the op table.

Floating point keeps every value, with zero's sign and subnormals; a NaN stays a NaN, of any bits. So `x * 1`, `x / 1` and `x - 0`
become x, and `x + 0` stays (-0 + 0 is +0).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.nodes import Atom, Const, Let, Load, Store, Value, const
from vyre_py.ir.language.op import Law, Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Kind, Type, bf16, bool_, f8e4m3, f8e5m2, f16, f32, f64
from vyre_py.ir.language.widths import INDEX_TYPES, WIDE_TYPES
from vyre_py.ir.passes.fold import evaluate_constant
from vyre_py.ir.passes.rewriter import Rewriter

__all__ = ["same", "simplify"]

EXACT_FLOAT_IDENTITIES: Final = frozenset({"mul", "div", "sub"})
MAX_REWRITES: Final = 8

_WORD_BITS: Final = 32
_PAIR: Final = 2  # operands
_ABOUT_EQUALS: Final = Law.IDEMPOTENT | Law.SELF_ZERO_INT | Law.SELF_FALSE | Law.SELF_TRUE

# Of a float type: its exponents (those of one are all in the other's from left to right).
_RANGE: Final = {f8e4m3: 0, f8e5m2: 1, f16: 2, bf16: 3, f32: 4, f64: 5}


def same(a: Atom, b: Atom) -> bool:
    """Whether two atoms are the same value, bit for bit."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a.type is b.type and a.bits == b.bits
    return a == b


@dataclass(slots=True)
class _Call:
    """An op and its operands, before it becomes a Let."""

    op: Op
    args: tuple[Atom, ...]
    type: Type

    @property
    def over(self) -> Type:
        """The operands' type: of the last operand, so that a select counts its arms and not its condition."""
        return self.args[-1].type

    @property
    def exact(self) -> bool:
        """Whether the operands are integers or bools."""
        return all(not a.type.is_float for a in self.args)


Definition = Callable[[Atom], _Call | None]
Rule = Callable[[_Call, Definition], "_Call | Atom | None"]


def _call(name: str, *args: Atom, given: Type | None = None) -> _Call:
    op = OPS[name]
    type_ = op.result_type(tuple([a.type for a in args]), given)
    assert type_ is not None, "rewriting keeps operand types"
    return _Call(op, args, type_)


def _masked(type_: Type, value: int) -> Const:
    """The constant of this bit pattern; -1 has all bits set."""
    return const(type_, value) if type_.is_float else Const(type_, value & ((1 << type_.bits) - 1))


def _is(atom: Atom, value: int | None) -> bool:
    return value is not None and isinstance(atom, Const) and atom.bits == _masked(atom.type, value).bits


# ---------------------------------------------------------------- laws


def _constant_to_the_right(c: _Call, defined: Definition) -> _Call | Atom | None:
    if isinstance(c.args[0], Const) and not isinstance(c.args[1], Const):
        return _Call(c.op, (c.args[1], c.args[0]), c.type)
    return None


def _identity(c: _Call, defined: Definition) -> _Call | Atom | None:
    return c.args[0] if _is(c.args[1], c.op.right_identity) and (c.exact or c.op.name in EXACT_FLOAT_IDENTITIES) else None


def _absorber(c: _Call, defined: Definition) -> _Call | Atom | None:
    return _masked(c.type, c.op.right_absorber or 0) if _is(c.args[1], c.op.right_absorber) and c.exact else None


def _twice_the_same(c: _Call, defined: Definition) -> _Call | Atom | None:
    if not same(*c.args):
        return None
    if c.op.laws & Law.IDEMPOTENT:
        return c.args[0]
    if c.exact and not c.type.is_vector:  # no constant is a vector
        for law, value in ((Law.SELF_ZERO_INT, 0), (Law.SELF_FALSE, 0), (Law.SELF_TRUE, 1)):
            if c.op.laws & law:
                return Const(c.type, value)
    return None


def _applied_twice(c: _Call, defined: Definition) -> _Call | Atom | None:
    inner = defined(c.args[0])
    if inner is None or inner.op is not c.op:
        return None
    if c.op.laws & Law.INVOLUTION:
        return inner.args[0]
    return c.args[0]


def _regroup(c: _Call, defined: Definition) -> _Call | Atom | None:
    """(x op c1) op c2 = x op (c1 op c2)."""
    if not (isinstance(c.args[1], Const) and c.exact):
        return None
    inner = defined(c.args[0])
    if inner is None or inner.op is not c.op or not isinstance(inner.args[1], Const):
        return None
    folded = evaluate_constant(c.op, c.type, (inner.args[1], c.args[1]))
    return None if folded is None else _Call(c.op, (inner.args[0], folded), c.type)


# ---------------------------------------------------------------- single ops


def _negated(c: _Call, defined: Definition) -> _Call | Atom | None:
    """!(a < b) is a >= b, but only where nothing is unordered; != is the opposite of == for NaN too."""
    inner = defined(c.args[0])
    if inner is None or inner.op.negation is None or not (inner.exact or inner.op.name in ("eq", "ne")):
        return None
    return _call(inner.op.negation, *inner.args)


def _select(c: _Call, defined: Definition) -> _Call | Atom | None:
    condition, a, b = c.args
    if isinstance(condition, Const):
        return a if condition.value else b
    if same(a, b):
        return a
    inner = defined(condition)
    if inner is not None and inner.op.name == "logical_not":
        return _call("select", inner.args[0], b, a)
    if c.type is bool_:
        if _is(a, 1):
            return _call("logical_or", condition, b)
        if _is(b, 0):
            return _call("logical_and", condition, a)
        if _is(a, 0) and _is(b, 1):
            return _call("logical_not", condition)
    return None


def _bool_equality(c: _Call, defined: Definition) -> _Call | Atom | None:
    if c.over is not bool_ or not isinstance(c.args[1], Const):
        return None
    return c.args[0] if c.args[1].value is (c.op.name == "eq") else _call("logical_not", c.args[0])


def _keeps(source: Type, target: Type) -> bool:
    """Whether a cast between these gives every value back unchanged, zeros and infinities included."""
    if source.is_float:
        return target.is_float and source.fraction_bits <= target.fraction_bits and _RANGE[source.scalar] <= _RANGE[target.scalar]
    if target.is_float:
        return source.bits - source.is_signed <= target.fraction_bits + 1
    return target.is_integer and source.minimum >= target.minimum and source.maximum <= target.maximum


def _is_common(source: Type, target: Type) -> bool:
    """Whether every target takes a cast between these: targets that hold small types in words have casts to and from words only."""
    small, other = sorted((source, target), key=lambda t: t.bits)
    if small.bits >= _WORD_BITS or (small.scalar is bool_ and other.bits >= _WORD_BITS):
        return True
    return other.bits == _WORD_BITS and small.is_float == other.is_float


def _cast(c: _Call, defined: Definition) -> _Call | Atom | None:
    """A cast of a cast: the one between is not seen when it keeps every value, or when only bits that it kept are asked for."""
    inner = defined(c.args[0])
    if inner is None or inner.op.name != "cast":
        return None
    source, middle, target = inner.args[0].type, inner.type, c.type
    if middle in WIDE_TYPES and isinstance(inner.args[0], (Dim, DimConst, DimOp)):
        # A size taken whole; as a u32 it would have to be one.
        return _call("cast", inner.args[0], given=target) if target in WIDE_TYPES else None
    if _keeps(source, middle):
        # What an integer wraps, the float of it would saturate.
        seen = middle.is_float and source.is_integer and target.is_integer and not _keeps(source, target)
    else:
        wraps = source.is_integer and middle.is_integer and target.is_integer
        seen = not wraps or target.bits > middle.bits
    if seen:
        return None
    if source is target:
        return inner.args[0]
    return _call("cast", inner.args[0], given=target) if _is_common(source, target) else None


def _bitcast(c: _Call, defined: Definition) -> _Call | Atom | None:
    """Two in a row are one, unless a float between or at both ends would make every NaN one NaN."""
    inner = defined(c.args[0])
    if inner is None or inner.op.name != "bitcast" or inner.type.is_float:
        return None
    source = inner.args[0]
    if source.type is c.type:
        return None if c.type.is_float else source
    return _call("bitcast", source, given=c.type) if _is_common(source.type, c.type) else None


def _power(atom: Atom) -> int | None:
    """k for the constant 2^k of an integer type."""
    if isinstance(atom, Const) and atom.type.is_integer and atom.bits & (atom.bits - 1) == 0 and atom.bits:
        return atom.bits.bit_length() - 1
    return None


def _multiplication(c: _Call, defined: Definition) -> _Call | Atom | None:
    power = _power(c.args[1])
    return None if power is None else _call("shl", c.args[0], const(c.type, power))


def _division(c: _Call, defined: Definition) -> _Call | Atom | None:
    power = _power(c.args[1]) if c.type.kind is Kind.UINT else None
    return None if power is None else _call("shr", c.args[0], const(c.type, power))


def _remainder(c: _Call, defined: Definition) -> _Call | Atom | None:
    power = _power(c.args[1]) if c.type.kind is Kind.UINT else None
    return None if power is None else _call("and", c.args[0], const(c.type, (1 << power) - 1))


def _below_zero(c: _Call, defined: Definition) -> _Call | Atom | None:
    """No unsigned value lies below zero."""
    return Const(bool_, int(c.op.name == "ge")) if c.over.kind is Kind.UINT and _is(c.args[1], 0) else None


# A rule that rests on the row of an op, and the rows that it is about.
_ROWS_OF: tuple[tuple[Rule, Callable[[Op], bool]], ...] = (
    (_constant_to_the_right, lambda op: Law.COMMUTES in op.laws),
    (_identity, lambda op: op.right_identity is not None and len(op.operands) == _PAIR),
    (_absorber, lambda op: op.right_absorber is not None and len(op.operands) == _PAIR),
    (_twice_the_same, lambda op: bool(op.laws & _ABOUT_EQUALS) and len(op.operands) == _PAIR),
    (_applied_twice, lambda op: bool(op.laws & (Law.INVOLUTION | Law.PROJECTION)) and len(op.operands) == 1),
    (_regroup, lambda op: Law.ASSOCIATIVE_INT in op.laws),
)
_RULES: dict[str, tuple[Rule, ...]] = {
    "logical_not": (_negated,), "select": (_select,), "eq": (_bool_equality,), "ne": (_bool_equality,), "cast": (_cast,), "bitcast": (_bitcast,),
    "mul": (_multiplication,), "div": (_division,), "rem": (_remainder,), "lt": (_below_zero,), "ge": (_below_zero,),
}  # fmt: skip


@cache
def _rules(op: Op) -> tuple[Rule, ...]:
    """The rules that may fit an op, in the order in which they are tried."""
    return (*[rule for rule, fits in _ROWS_OF if fits(op)], *_RULES.get(op.name, ()))


class _Simplifier(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.calls: list[_Call | None] = []  # by new value id
        self.changed = False

    def defined(self, atom: Atom) -> _Call | None:
        """The call that made a value."""
        return self.calls[atom.id] if isinstance(atom, Value) and atom.id < len(self.calls) else None

    def reduce(self, call: _Call) -> _Call | Atom:
        """Applies rules until none fits."""
        now: _Call | Atom = call
        for _ in range(MAX_REWRITES):
            assert isinstance(now, _Call)
            made: _Call | Atom | None = None
            for rule in _rules(now.op):
                made = rule(now, self.defined)
                if made is not None:
                    break
            if made is None:
                break
            now, self.changed = made, True
            if not isinstance(now, _Call):
                break
        return now

    def _index(self, atom: Atom, extent: DimExpr) -> Atom:
        """An index along an axis of known length, without a cast that does not change which elements it is about: what becomes negative by one is as much
        outside as it was. One into an axis of any length keeps its type, which says how long that may be."""
        call = self.defined(atom)
        if call is None or call.op.name != "cast" or call.args[0].type not in INDEX_TYPES or not isinstance(extent, DimConst):
            return atom
        source, target = call.args[0].type, call.type
        turned = source.bits == target.bits and not source.is_signed and extent.value <= target.maximum + 1
        return self._index(call.args[0], extent) if turned or (_keeps(source, target) and extent.value <= source.maximum + 1) else atom

    def _access(self, index: int, statement: Load | Store) -> None:
        shape = statement.memory.shape
        atoms = tuple([self.atom(a) for a in statement.args])
        better = (*[self._index(atom, extent) for atom, extent in zip(atoms, shape, strict=False)], *atoms[len(shape) :])
        if better == atoms:
            self.copy(index)
            return
        self.place, self.changed, result = self.program.place(index), True, None
        if statement.result is not None:
            result = self.map[statement.result.id] = self.value(statement.result.type, self.program.value_names.get(statement.result.id))
        self.emit(statement.rebuilt(result, better))

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        if isinstance(statement, (Load, Store)):
            self._access(index, statement)
            return
        if not isinstance(statement, Let) or statement.op.is_query:
            self.copy(index)
            return
        old = statement.bound
        now = self.reduce(_Call(statement.op, tuple([self.atom(a) for a in statement.args]), old.type))
        if not isinstance(now, _Call):
            self.map[old.id] = now
            return
        self.place = self.program.place(index)
        result = self.value(now.type, self.program.value_names.get(old.id))
        self.emit(Let(result, now.args, now.op))
        self.map[old.id] = result
        self.calls += [None] * (result.id - len(self.calls))
        self.calls.append(now)


def simplify(program: Program) -> Program:
    """Replaces Lets by cheaper or simpler ones, or by an operand: identities, absorbers, double negation, cast chains, selects,
    powers of two, constants gathered on the right; indices without casts that keep them. A Program in which nothing is to be done is given back itself."""
    simplifier = _Simplifier(program)
    for index in range(len(program.body)):
        simplifier.take(index)
    return simplifier.finish() if simplifier.changed else program
