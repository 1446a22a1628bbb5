"""Form: whether an object is a Program at all, so that later stages may read it without checks.

Laws. Each is about one object alone; the other laws rely on them:

* V101: every declaration, statement and operand is a node of the language, its fields are of their types, ops and types
  are rows of the tables, a constant is a scalar, a statement binds a result exactly where its kind does, and `match` has one entry per statement.
* V103: results and variables are numbered 0, 1, 2 ... in program order, and `value_count` and `variable_count` count them.
* V110: a constant's bits fit its type.
* V508: a dim expression has at most `MAX_DIM_TERMS` terms, so later walks over it may recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from vyre_py.ir.check.findings import HEAD, Findings, Where, number, quoted
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.describe import full_name
from vyre_py.ir.language.dims import DIM_OPS, MAX_DIM_TERMS, Dim, DimConst, DimOp, Grid
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import (
    STATEMENTS,
    Access,
    Atomic,
    Const,
    Memory,
    Param,
    Space,
    Statement,
    Value,
    Var,
    Variable,
    atomic_kind,
)
from vyre_py.ir.language.op import AtomicOp, Op, SubgroupOp
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.spans import Spans
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import SCALARS, TYPES, Type, tile_of

__all__ = ["check_form"]

# Rows are compared by identity, which no object from outside can disturb (`in` would ask its hash). The tables keep them alive.
_TYPE_IDS = frozenset(map(id, TYPES.values()))
_OP_IDS = frozenset(map(id, OPS.values()))
_SCALAR_IDS = frozenset(map(id, SCALARS.values()))
_ATOMIC_IDS = frozenset(map(id, ATOMICS_BY_SPELLING.values()))
_SUBGROUP_IDS = frozenset(map(id, SUBGROUPS.values()))
_TILE_OP_IDS = frozenset(map(id, TILE_OPS.values()))


def _is_type(thing: object) -> bool:
    return id(thing) in _TYPE_IDS


def _is_value_type(thing: object) -> bool:
    """Whether a value or variable may be of it: a type, or that of a tile, which may be too large."""
    return id(thing) in _TYPE_IDS or (
        type(thing) is Type and type(thing.name) is str and type(thing.shape) is tuple and all(type(n) is int and n > 0 for n in thing.shape)
        and (element := SCALARS.get(thing.name.partition("(")[2].partition(",")[0])) is not None and tile_of(element, thing.shape) is thing
    )


def _is_count(thing: object) -> bool:
    return type(thing) is int and thing >= 0


def _is_text(thing: object) -> bool:
    return isinstance(thing, str)


def _is_memory(thing: object) -> bool:
    # The rest of a memory is looked at where it is declared; one that is declared nowhere is only named.
    return type(thing) is Memory and _is_text(thing.name)


def _is_param(thing: object) -> bool:
    return type(thing) is Param and _is_text(thing.name) and _is_type(thing.type) and _is_part(thing.part)


def _is_part(thing: object) -> bool:
    """What a param is a part of: nothing, or an argument and a byte of it."""
    return thing is None or (type(thing) is tuple and len(thing) == 2 and _is_text(thing[0]) and _is_count(thing[1]))


def _is_variable(thing: object) -> bool:
    return type(thing) is Variable and _is_count(thing.id) and _is_value_type(thing.type)


def _is_grid(thing: object) -> bool:
    return type(thing) is Grid and (type(thing.over), type(thing.extents)) == (bool, tuple) and len(thing.extents) == 3


_Fields = tuple[tuple[str, Callable[[object], bool]], ...]

# What a statement may hold beside its operands -> whether a thing is such.
_HELD: Final[Mapping[type, Callable[[object], bool]]] = {
    Op: lambda thing: id(thing) in _OP_IDS, AtomicOp: lambda thing: id(thing) in _ATOMIC_IDS,
    SubgroupOp: lambda thing: id(thing) in _SUBGROUP_IDS,
    TileOp: lambda thing: id(thing) in _TILE_OP_IDS, Memory: _is_memory, Variable: _is_variable, str: _is_text, int: _is_count,
}  # fmt: skip

_FORMS: Final[Mapping[type[Statement], _Fields]] = {
    kind: tuple([(name, _HELD[held]) for name, held in kind.payload.items()]) for kind in STATEMENTS
}  # fmt: skip


class _FormCheck:
    """One look over every object of a Program."""

    def __init__(self, program: Program, findings: Findings) -> None:
        self.program, self.findings = program, findings
        self.values = self.variables = 0
        self.functions: set[int] = set()  # ids of the Program's own, once they have been looked at
        self.sound: set[int] = set()  # ids of atoms already looked at; the Program keeps them alive

    def fault(self, where: Where, message: str) -> None:
        self.findings.add("V101", where, message)

    def expect(self, held: bool, message: str, where: Where = HEAD) -> bool:
        if not held:
            self.fault(where, message)
        return held

    # ---- atoms

    def dim(self, where: Where, expr: object) -> None:
        """A dim expression, which is untrusted and of any depth."""
        stack, terms = [expr], 0
        while stack:
            part = stack.pop()
            if type(part) is DimOp:
                if not (_is_text(part.op) and part.op in DIM_OPS):
                    self.fault(where, "a dim expression has an unknown operation")
                    return
                stack += (part.right, part.left)
            elif (type(part) is Dim and _is_text(part.name)) or (type(part) is DimConst and type(part.value) is int):
                terms += 1
            else:
                self.fault(where, f"a {type(part).__name__} is not a dim expression")
                return
            if terms + len(stack) > MAX_DIM_TERMS:
                self.findings.add("V508", where, f"a dim expression has more than {MAX_DIM_TERMS} terms")
                return

    def atom(self, index: int, atom: object) -> None:
        if id(atom) in self.sound:
            return
        self.sound.add(id(atom))
        if type(atom) is Value:
            if not (_is_count(atom.id) and _is_value_type(atom.type)):
                self.fault(index, "an operand is a value without a number or type")
        elif type(atom) is Const:
            if not (id(atom.type) in _SCALAR_IDS and type(atom.bits) is int):
                self.fault(index, "an operand is a constant without a scalar type or bits")
            elif not 0 <= atom.bits < 1 << atom.type.bits:
                self.findings.add("V110", index, f"the bits of a constant, {number(atom.bits)}, do not fit {atom.type}")
        elif type(atom) is Param:
            if not _is_param(atom):
                self.fault(index, "an operand is a param without a name or type")
        elif isinstance(atom, (Dim, DimConst, DimOp)):
            self.dim(index, atom)
        else:
            self.fault(index, f"an operand is a {type(atom).__name__}, not a value, constant, param or dim expression")

    # ---- statements

    def statement(self, index: int, statement: Statement) -> None:
        fields = _FORMS.get(type(statement))
        if fields is None:
            self.fault(index, f"a {type(statement).__name__} is not a statement of the language")
            return
        kind, binds = type(statement).__name__, statement.binds
        for name, holds in fields:
            held = getattr(statement, name)
            if not (holds(held) or (name == "op" and id(held) in self.functions)):
                self.fault(index, f"the {name} of this {kind} is malformed")
                return
        if isinstance(statement, Atomic) and type(statement) is not atomic_kind(statement.op):
            self.fault(index, f"{full_name(statement.op)} is no {kind}")
            return
        if type(statement.args) is not tuple:
            self.fault(index, f"the operands of this {kind} are not a tuple")
            return
        for atom in statement.args:
            self.atom(index, atom)
        if binds is (statement.result is None):
            self.fault(index, f"a {kind} binds {'a result, but has none' if binds else 'no result, but has one'}")
        elif binds:
            self.result(index, statement.result)
        if type(statement) is Var:
            if statement.variable.id != self.variables:
                self.findings.add(
                    "V103",
                    index,
                    f"variable {number(statement.variable.id)} is declared where variable {self.variables} is due",
                )
            self.variables += 1

    def result(self, index: int, result: object) -> None:
        if type(result) is not Value or type(result.id) is not int or not _is_value_type(result.type):
            self.fault(index, "the result is not a value with a number and a type")
        elif result.id != self.values:
            self.findings.add("V103", index, f"value {number(result.id)} is bound where value {self.values} is due")
        self.values += 1

    # ---- declarations

    def memory(self, memory: object) -> None:
        if not self.expect(_is_memory(memory), "a memory is not a Memory with a name"):
            return
        assert isinstance(memory, Memory)  # for the type checker; _is_memory has looked
        name = quoted(memory.name)
        self.expect(isinstance(memory.space, Space), f"memory {name} has no space", memory.name)
        self.expect(_is_type(memory.type), f"memory {name} has no type", memory.name)
        self.expect(isinstance(memory.access, Access), f"memory {name} has no access", memory.name)
        self.expect(memory.hidden is False, f"memory {name} is hidden: the Program was made for a target", memory.name)
        self.expect(isinstance(memory.data, bytes), f"the data of memory {name} is not bytes", memory.name)
        if self.expect(type(memory.shape) is tuple, f"the shape of memory {name} is not a tuple", memory.name):
            for axis in memory.shape:
                self.dim(memory.name, axis)

    def function(self, function: object) -> None:
        """Whether a function is sound; its body, a Program, is looked at as such."""
        sound = type(function) is Function and type(function.program) is Program and type(function.program.body) is tuple
        if self.expect(sound, "a function is not a Function with a body"):
            assert isinstance(function, Function)  # for the type checker
            self.guarded(HEAD, self.sound_function, function)

    def sound_function(self, function: Function) -> None:
        """Whether what a function says of itself is what its body says, and that is one."""
        made = Function(function.program)
        said = [(f.name, f.code, f.operands, f.result, f.names, f.types, f.type, f.fixed, f.level) for f in (function, made)]
        if self.expect(said[0] == said[1], "a function does not say what its body does"):
            self.functions.add(id(function))

    def header(self) -> None:
        p: Any = self.program  # whatever it says it is
        if self.expect(type(p.functions) is tuple, "the functions are not a tuple"):
            for function in p.functions:
                self.guarded(HEAD, self.function, function)
        self.expect(_is_text(p.name) and _is_text(p.doc), "the Program's name or doc is not text")
        self.expect(
            type(p.dims) is tuple and all(type(d) is Dim and _is_text(d.name) for d in p.dims),
            "the dims are not a tuple of dims with names",
        )
        self.expect(
            type(p.params) is tuple
            and all(map(_is_param, p.params)),
            "the params are not a tuple of params with names and types",
        )
        if self.expect(type(p.memories) is tuple, "the memories are not a tuple"):
            for memory in p.memories:
                self.guarded(HEAD, self.memory, memory)
        self.expect(
            type(p.workgroup) is tuple and len(p.workgroup) == 3 and all(type(n) is int for n in p.workgroup),
            "the workgroup is not three whole numbers",
        )
        self.expect(_is_count(p.subgroup), "the subgroup's size is not a whole number")
        if self.expect(_is_grid(p.grid), "the grid is not three extents"):
            for extent in p.grid.extents:
                self.dim(HEAD, extent)
        self.expect(
            type(p.match) is tuple and len(p.match) == len(p.body) and all(type(m) is int for m in p.match),
            "match is not one whole number per statement",
        )
        for what, names in (("value", p.value_names), ("variable", p.variable_names)):
            self.expect(
                isinstance(names, Mapping) and all(type(k) is int and _is_text(n) for k, n in names.items()),
                f"the names of {what}s are not a mapping of numbers to text",
            )
        self.expect(
            isinstance(p.declared, Mapping)
            and all((name is None or _is_text(name)) and type(place) is Place for name, place in p.declared.items()),
            "the places of declarations are not a mapping of names to places",
        )
        self.expect(
            type(p.places) is Spans or (type(p.places) is tuple and all(x is None or type(x) is Place for x in p.places)),
            "the places are not a tuple of places",
        )

    def guarded(self, where: Where, look: Callable[..., None], *arguments: Any) -> None:
        try:
            look(*arguments)
        except (AttributeError, TypeError):  # a slot never filled, or filled with something that cannot be compared
            self.fault(where, "a part of this lacks a field, or holds something that cannot be read")
        except ValueError as error:  # of a Function
            self.fault(where, f"a function's body is none: {error}")

    def body(self) -> None:
        for index, statement in enumerate(self.program.body):
            self.guarded(index, self.statement, index, statement)
        for what, counted, said in (
            ("values", self.values, self.program.value_count),
            ("variables", self.variables, self.program.variable_count),
        ):
            if type(said) is not int or said != counted:
                self.findings.add("V103", HEAD, f"the body has {counted} {what}, the Program says another number")


def check_form(program: Program, findings: Findings) -> None:
    """Reports every object of `program` that is not what it must be. Its body must be a tuple."""
    form = _FormCheck(program, findings)
    form.guarded(HEAD, form.header)
    form.body()
