"""inline: calls of a Program's own functions become their bodies, or stay for functions in code.

A call is written out where its function is short, or cannot be a function in code: one over vectors or types other than f32, f64, i32 and u32, one that has
arrays of its own, and one whose loops may take long, since those of a kernel can be told to stop. Of other functions the first calls are written out, as
those of a long op are (`expand`), as long as all of them together stay small; a function that is called once always is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from vyre_py.ir.functions.function import Function
from vyre_py.ir.functions.writer import BodyWriter
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import Const, End, For, Let, Loop, Space, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, f32, f64, i32, u32
from vyre_py.ir.passes.expand import LONG, WRITTEN_OUT
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.passes.scalarise import scalarise

__all__ = ["inline", "rewrite_functions"]

_TYPES: Final = frozenset({f32, f64, i32, u32})
_MOST: Final = 4096  # statements that the calls of one function become
_TURNS: Final = 1 << 16  # of a function's loops, each inside the other


def inline(program: Program) -> Program:
    """The Program with calls of its functions written out, but for those that stay, whose functions have bodies without vectors; the same object without
    functions. Raises Overgrown."""
    if not program.functions:
        return program
    inliner = _Inliner(program)
    for index in inliner.indices():
        inliner.take(index)
    return inliner.finish()


def rewrite_functions(program: Program, rewrite: Callable[[Program], Program]) -> Program:
    """The Program with the body of each function rewritten, and its calls those of the new ones; the same object where nothing has changed."""
    made: dict[object, Function] = {}
    for function in program.functions:
        inner = rewrite(function.program)
        made[function] = function if inner is function.program else Function(inner)
    if all(old is new for old, new in made.items()):
        return program
    body = tuple([replace(s, op=made[s.op]) if isinstance(s, Let) and s.op in made else s for s in program.body])
    return replace(program, body=body, functions=tuple(made.values()))


class _Inliner(Rewriter):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.functions = []
        self._kept: dict[object, Function] = {}
        self._uses: Counter[object] = Counter()
        self._all = Counter([s.op for s in program.body if isinstance(s, Let) and isinstance(s.op, Function)])
        self._writer = BodyWriter(self)

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        if not isinstance(statement, Let) or not isinstance(statement.op, Function):
            self.copy(index)
            return
        self.place = self.program.place(index)
        args = tuple([self.atom(a) for a in statement.args])
        name = self.program.value_names.get(statement.bound.id)
        if self._is_written_out(statement.op):
            made = self._writer.write(statement.op, args)
            if isinstance(made, Value) and name is not None:
                self.value_names.setdefault(made.id, name)
        else:
            made = self.let(self._kept[statement.op], args, name=name)
        self.map[statement.bound.id] = made

    def _is_written_out(self, function: Function) -> bool:
        self._uses[function] += 1
        length = len(function.program.body)
        if length < LONG or self._all[function] == 1 or self._uses[function] <= min(WRITTEN_OUT, _MOST // length):
            return True
        if function not in self._kept and _is_callable(function):
            self._kept[function] = Function(scalarise(function.program))
            self.functions.append(self._kept[function])
        return function not in self._kept


def _is_callable(function: Function) -> bool:
    """Whether a function in code may compute what a function does."""
    types: set[Type] = {function.type, *function.types}
    private = any(memory.space is Space.PRIVATE for memory in function.program.memories)
    return types <= _TYPES and not private and _turns(function.program) <= _TURNS


def _turns(program: Program) -> int:
    """How often the statement is executed that is executed most; more than any limit where that is not known."""
    now, most, outer = 1, 1, list[int]()
    for statement in program.body:
        if statement.opens:
            outer.append(now)
            if isinstance(statement, Loop):
                return _TURNS + 1
            if isinstance(statement, For):
                now *= _trips(statement)
                most = max(most, now)
        elif isinstance(statement, End):
            now = outer.pop()
    return most


def _trips(loop: For) -> int:
    start, stop, step = [int(a.value) if isinstance(a, (Const, DimConst)) else None for a in loop.args]
    if start is None or stop is None or not step:
        return _TURNS + 1
    return max(0, -((start - stop) // step))
