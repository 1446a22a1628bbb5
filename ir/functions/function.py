"""A function of a Program's own: a body that stands once in the Program, and an op that calls it.

The body is a Program of one invocation, as passes, emitters and the interpreter take them: it loads each parameter from a buffer of one element, named
as the parameter, and its last statement stores the result to the buffer `return`. What else it may do is for `ir.check.functions`.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.nodes import Access, Atom, Const, Load, Memory, Space, Store, Value
from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u32

__all__ = ["MAX_PARAMETERS", "RESULT", "Function", "Definition"]

MAX_PARAMETERS: Final = 64
RESULT: Final = "return"  # no parameter is named so
_ONE: Final = DimConst(1)
_FIRST: Final = (Const(u32, 0),)
_GRID: Final = Grid(True, (_ONE, _ONE, _ONE))


class Function(Op):
    """An op whose meaning is the body of a function; each Program has its own. Raises ValueError for a Program that is no function's body.

    Attributes beside those of an op: `program`, the body; `types`, those of the parameters; `type`, that of the result.
    """

    __slots__ = ("program", "type", "types")
    program: Program
    types: tuple[Type, ...]
    type: Type

    def __init__(self, program: Program) -> None:
        if fault := _fault(program):
            raise ValueError(fault)
        *parameters, result = program.buffers
        names = tuple([memory.name for memory in parameters])
        super().__init__(
            program.name, 0, (Operand.ANY,) * len(parameters), Result.FIXED, frozenset(), None, program.doc or "a function of the Program",
            fixed=result.type, names=names,
        )  # fmt: skip
        for name, value in (("program", program), ("types", tuple([memory.type for memory in parameters])), ("type", result.type)):
            object.__setattr__(self, name, value)

    @property
    def head(self) -> str:
        """Its name, parameters and types, as text has them."""
        return f"{self.name}({', '.join(f'{name}: {type_}' for name, type_ in zip(self.names, self.types, strict=True))}) -> {self.type}"

    # One comparison, where a row has rules whose results are kept.
    def result_type(self, operands: tuple[Type, ...], given: Type | None = None) -> Type | None:  # type: ignore[override]  # called alike
        """The result's type, or None where the operands are not of the parameters' types."""
        return self.type if operands == self.types and given is None else None

    def __repr__(self) -> str:
        return f"<function {self.head}>"


class Definition(Assembler):
    """Collects the statements of a function; `define` gives it. `parameters` are their values."""

    def __init__(self, name: str, parameters: tuple[tuple[str, Type], ...], result: Type) -> None:
        super().__init__(name, (1, 1, 1))
        self.grid = _GRID
        # Both read and written, so that nothing takes an operand to be the same for all invocations.
        taken = [self.memory(parameter, Space.BUFFER, type_, (_ONE,), Access.READ_WRITE) for parameter, type_ in parameters]
        self._result = self.memory(RESULT, Space.BUFFER, result, (_ONE,), Access.WRITE)
        self.parameters: tuple[Value, ...] = tuple([self.load(memory, _FIRST, memory.name) for memory in taken])

    @property
    def result(self) -> Type:
        """The type of what it returns."""
        return self._result.type

    def give(self, value: Atom) -> None:
        """Returns a value: the last statement."""
        self.store(self._result, _FIRST, value)


def _fault(program: Program) -> str:
    """Why a Program is no body of a function; "" for one that is."""
    buffers, body = program.buffers, program.body
    count = len(buffers) - 1
    if program.dims or program.params or program.functions or program.subgroup or program.workgroup != (1, 1, 1) or program.grid != _GRID:
        return "it has dims, params, functions, subgroups, a workgroup or a grid of its own"
    if not 1 <= count <= MAX_PARAMETERS:
        return f"it has {max(count, 0)} parameters, from 1 to {MAX_PARAMETERS} are possible"
    if program.memories[: count + 1] != buffers or buffers[count].name != RESULT:
        return "its first memories are not a buffer for each parameter, and one named return"
    for memory in buffers:
        access = Access.WRITE if memory is buffers[count] else Access.READ_WRITE
        if memory.shape != (_ONE,) or memory.access is not access:
            return f"the buffer {memory.name} is not one element that is {access.value}"
    touched = [k for k, s in enumerate(body) if isinstance(m := getattr(s, "memory", None), Memory) and m.space is Space.BUFFER]
    if touched != [*range(count), len(body) - 1] or len(body) <= count:
        return "it touches its buffers elsewhere than by a load of each parameter first and a store of the result last"
    for statement, memory in zip((*body[:count], body[-1]), buffers, strict=True):
        kind = Store if memory is buffers[count] else Load
        if type(statement) is not kind or statement.memory is not memory or len(statement.args) != 1 + (kind is Store) or not _is_first(statement.args[0]):
            return f"its first statements do not load each parameter, or its last one does not store to {RESULT}"
    return ""


def _is_first(atom: Atom) -> bool:
    return isinstance(atom, Const) and atom.type is u32 and atom.bits == 0
