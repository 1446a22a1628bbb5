"""Rows of the op table in words, for readers: the generated page of ops and the command `ops` say the same. A `Dialect` spells help as text or as Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.op import AtomicOp, Law, Level, Op, Operand, Result, SubgroupOp
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.types import SCALARS, Kind, Type, vector_of

__all__ = ["PYTHON", "TEXT", "AnyOp", "Dialect", "accepted", "family", "full_name", "how_uniform", "laws", "signature", "spelling"]

AnyOp = Op | AtomicOp | SubgroupOp | TileOp

# What is stored only is a family of its own: no floats in the sense of ops that compute.
_STORED: Final = "stored"
_MEMBERS: Final[Mapping[Kind | str, list[Type]]] = {
    **{kind: [t for t in SCALARS.values() if t.kind is kind and not t.is_storage] for kind in Kind}, _STORED: [t for t in SCALARS.values() if t.is_storage],
}  # fmt: skip
_FAMILIES: Final[tuple[tuple[frozenset[Kind | str], str], ...]] = (
    (frozenset(_MEMBERS), "any type"),
    (frozenset({Kind.SINT, Kind.UINT, Kind.FLOAT}), "numbers"),
    (frozenset({Kind.SINT, Kind.UINT}), "integers"),
    (frozenset({Kind.FLOAT}), "floats"),
    (frozenset({Kind.SINT}), "signed integers"),
    (frozenset({Kind.UINT}), "unsigned integers"),
    (frozenset({Kind.BOOL}), "bools"),
)
_ATOMIC_OPERANDS: Final = ((), ("x",), ("expected", "desired"))
_UNIFORM: Final[Mapping[Level, str]] = {
    Level.GRID: "the same in the whole grid",
    Level.WORKGROUP: "the same in a workgroup",
    Level.SUBGROUP: "the same in a subgroup",
    Level.VARYING: "each invocation has its own",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a reader writes conversions."""

    prefix: str
    logical: str  # joins two conditions

    def named(self, type_: Type) -> str:
        """A type."""
        return f"{self.prefix}bool_" if self.prefix and type_.name == "bool" else f"{self.prefix}{type_}"

    def cast(self, type_: Type) -> str:
        """A value x as one of `type_`."""
        return "compare: x != 0" if type_.kind is Kind.BOOL else f"convert it: {self.prefix}cast(x, {self.named(type_)})"

    def splat(self, lanes: int) -> str:
        """A scalar x in all components of a vector."""
        return f"splat the scalar: {self.prefix}splat(x, {lanes})" if self.prefix else f"splat the scalar: x.{'x' * lanes}"


TEXT: Final = Dialect("", "&&")
PYTHON: Final = Dialect("vp.", "&")


def _applied(op: Op, *operands: str) -> str:
    """The op over these operands, as text; parentheses stand around an operand that is no name or literal."""
    if op.infix is None:
        return f"{op.name}({', '.join(operands)})"
    atoms = [f"({o})" if " " in o or o.startswith(op.infix) else o for o in operands]
    return f" {op.infix} ".join(atoms) if len(atoms) == 2 else op.infix + atoms[0]


def full_name(op: AnyOp) -> str:
    """The op's name among all: `add`, `atomic_add`, `subgroup_reduce_add`, `tile_reduce_add`."""
    if isinstance(op, AtomicOp):
        return f"atomic_{op.spelling}"
    return op.name if isinstance(op, Op) else f"{'tile' if isinstance(op, TileOp) else 'subgroup'}_{op.name}"


def spelling(op: AnyOp) -> str:
    """How text writes the op: `x + y`, `fma(a, b, c)`, `cast(x, type)`, `v.zyx`, `local_id.x`, `atomic_add(memory[i], x)`, `subgroup_shuffle(x, i)`."""
    if isinstance(op, TileOp):
        return f"{op.name}({', '.join([*op.names, *op.numbers])})"
    if isinstance(op, SubgroupOp):
        return f"{full_name(op)}({', '.join(op.names)})"
    if isinstance(op, AtomicOp):
        return f"{full_name(op)}({', '.join(['memory[i]', *_ATOMIC_OPERANDS[op.operands]])})"
    if op.is_query:
        return op.name
    if Operand.LANES in op.operands:
        return "v.zyx"
    return _applied(op, *op.names, *(["type"] if op.result is Result.GIVEN else []))


def signature(op: AnyOp) -> str:
    """The types of operands and result: `(T, T) -> bool`, `(T) -> u32`; of an atomic's, the element's first."""
    if isinstance(op, SubgroupOp):
        return f"({', '.join(['T', *['u32'] * (op.operands - 1)])}) -> {'mask' if op.masks else 'T'}"
    if isinstance(op, AtomicOp):
        return f"(T{', T' * op.operands}){' -> T' * op.reads}"
    if isinstance(op, TileOp):
        return f"({', '.join([*op.names, *op.numbers])})"
    result = {Result.GIVEN: "type", Result.FIXED: str(op.fixed), Result.VECTOR: f"Tx{len(op.operands)}"}.get(op.result, op.result.value)
    if op.is_query:
        return result
    operands = ["S" if pattern is Operand.ANY else pattern.value for pattern in op.operands if pattern is not Operand.LANES]
    return f"({', '.join(operands)}) -> {result}"


def family(types: frozenset[Type] | set[Type]) -> str:
    """A set of scalar types in words: "integers", "numbers and bools", or a list where no word fits."""
    whole = {kind for kind, members in _MEMBERS.items() if types.issuperset(members)}
    if {t for kind in whole for t in _MEMBERS[kind]} != set(types):
        return _listed(types)
    words: list[str] = []
    for named, word in _FAMILIES:
        if whole.issuperset(named):
            words.append(word)
            whole = whole - named
    return " and ".join(words)


def _listed(types: frozenset[Type] | set[Type]) -> str:
    return ", ".join(name for name, scalar in SCALARS.items() if scalar in types)


def accepted(op: AnyOp) -> str:
    """What T stands for: "T: integers", "T: vectors of numbers"; for conversions, from which type to which; nothing for a query."""
    if isinstance(op, AtomicOp):
        return f"T: {_listed(op.of)}"
    if isinstance(op, TileOp):
        return f"elements: {family(op.of)}" if op.names else ""
    if isinstance(op, SubgroupOp):
        return f"T: {'' if op.vectors else 'one of '}{family(op.of)}"
    if op.result is Result.GIVEN:
        return op.conversions
    if len(op.of) == len(op.lanes) == 1:
        return f"T: {vector_of(next(iter(op.of)), next(iter(op.lanes)))}"
    shape = {(1,): "one of ", (3,): "vectors of 3 ", (2, 3, 4): "vectors of "}.get(tuple(sorted(op.lanes)), "")
    return f"T: {shape}{family(op.of)}" if op.of else ""


def _side(op: Op, *operands: str) -> str:
    """The op over operands as one side of an equation."""
    text = _applied(op, *operands)
    return f"({text})" if "=" in text else text


# Law -> (what it says of an op, whether it holds for integers and bools only).
_LAWS: Final[Mapping[Law, tuple[Callable[[Op], str], bool]]] = {
    Law.COMMUTES: (lambda op: f"{_side(op, 'x', 'y')} = {_side(op, 'y', 'x')}", False),
    Law.ASSOCIATIVE_INT: (lambda op: f"{_applied(op, _applied(op, 'x', 'y'), 'z')} = {_applied(op, 'x', _applied(op, 'y', 'z'))}", True),
    Law.IDEMPOTENT: (lambda op: f"{_applied(op, 'x', 'x')} = x", False),
    Law.INVOLUTION: (lambda op: f"{_applied(op, _applied(op, 'x'))} = x", False),
    Law.PROJECTION: (lambda op: f"{_applied(op, _applied(op, 'x'))} = {_applied(op, 'x')}", False),
    Law.SELF_ZERO_INT: (lambda op: f"{_applied(op, 'x', 'x')} = 0", True),
    Law.SELF_TRUE: (lambda op: f"{_applied(op, 'x', 'x')} is true", True),
    Law.SELF_FALSE: (lambda op: f"{_applied(op, 'x', 'x')} is false", True),
}


def _constant(op: Op, value: int) -> str:
    if all(t.kind is Kind.BOOL for t in op.of):
        return "true" if value else "false"
    return "~0" if value == -1 else str(value)


def laws(op: Op) -> tuple[str, ...]:
    """The laws that passes may use, as equations; one that does not hold for floats is marked."""
    found = [(says(op), limited) for law, (says, limited) in _LAWS.items() if op.laws & law]
    for constant, whole in ((op.right_identity, "x"), (op.right_absorber, None)):
        if constant is not None:
            c = _constant(op, constant)
            found.append((f"{_applied(op, 'x', c)} = {whole or c}", True))
    takes_floats = any(t.is_float for t in op.of)
    return tuple(text + (" (integers only)" if limited and takes_floats else "") for text, limited in found)


def how_uniform(op: Op | SubgroupOp) -> str:
    """For a query and a subgroup op, which invocations get the same answer."""
    return "" if op.level is None else _UNIFORM[op.level]
