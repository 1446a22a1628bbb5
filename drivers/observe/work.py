"""What a Program does, counted from its statements: for the model that orders candidates, and for `bench`
and traces, which set it beside what a device can do.

Operations of floating point count as in the roofline model of S. Williams, A. Waterman and D. Patterson (CACM 52(4), 2009): a multiply-add is two, any other
op that computes a float is one, however many instructions it takes, and so is an element of a fold. Products of matrices count in any type. Casts,
comparisons, moves and other integers count nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

import numpy as np

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.dims import Dim, DimConst, DimOp, evaluate_dim
from vyre_py.ir.language.nodes import (
    Atomic,
    Break,
    Const,
    Continue,
    End,
    For,
    If,
    Let,
    Loop,
    MemoryStatement,
    Param,
    Return,
    Space,
    Statement,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileMemoryStatement,
)
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type

__all__ = ["Arithmetic", "Counts", "Work", "work_of"]

_TURNS: Final = 8  # of a loop whose bounds are known when it runs
_WARPGROUP_ROWS: Final = 64  # that read a right factor once, from workgroup memory
_FACTORS: Final = ("mma", "mma_tensor", "mma_sm90", "mma_sm90_warps")
_MULTIPLY_ADDS: Final = ("fma", "dot")  # a component of which is a multiplication and an addition


class Arithmetic(NamedTuple):
    """What a device has one rate for: the type that is computed in; and for products that tensor cores may take, that of the factors."""

    type: Type
    factors: Type | None = None

    def __str__(self) -> str:
        return str(self.type) if self.factors is None else f"products of {self.factors} by tensor cores"


class _Nested(NamedTuple):
    """How often a block of statements is executed, whether that is a guess, and whether it may be less."""

    times: float
    guessed: bool
    at_most: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch does: operations by what computes them. They are the most that it may do where `at_most`, since an `if`, or what leaves a loop early,
    decides; `uncounted` says why there is no number, "" where there is."""

    operations: Mapping[Arithmetic, float]
    at_most: bool = False
    uncounted: str = ""

    @property
    def total(self) -> float:
        """All operations."""
        return sum(self.operations.values())


class Counts:
    """What one workgroup does. `sizes` are those of all dims, `values` those of params as far as they are known.

    Attributes: `arithmetic` is what the module says, whole where `guessed` is false; of a loop whose bounds are known only when it runs, `guessed` turns count.
    `operations` are all ops element by element, without products of tensor cores, `moved` and `shared` bytes of buffers and of workgroup memory, `turns` those
    of loops, `staged` and `largest_tile` bytes. Of `staged` bytes the factors of a turn are copied `stages` deep in workgroup memory, 0 where
    nothing says so. `at_most` is as in `Work`.
    """

    def __init__(self, program: Program, sizes: Mapping[str, int], values: Mapping[str, object] | None = None) -> None:
        self.operations = self.moved = self.shared = self.turns = 0.0
        self.largest_tile = self.staged = 0
        self.stages = max([s.pipeline for s in program.body if isinstance(s, For)], default=0)
        self.arithmetic: defaultdict[Arithmetic, float] = defaultdict(float)
        self.guessed = self.at_most = False
        self._sizes, self._values = sizes, values or {}
        self._invocations = max(1, prod(program.workgroup))
        self._functions: dict[Function, Mapping[Arithmetic, float]] = {}
        for statement, block in self._executed(program.body):
            self._count(statement, block.times)
            if self._add(statement, block.times):
                self.guessed |= block.guessed
                self.at_most |= block.at_most

    def _executed(self, body: Sequence[Statement]) -> Iterator[tuple[Statement, _Nested]]:
        """The statements that open or close no block, each with the block that it stands in."""
        blocks = [_Nested(1.0, False, any(isinstance(statement, (Break, Continue, Return)) for statement in body))]
        for statement in body:
            if isinstance(statement, End):
                blocks.pop()
            elif statement.opens:
                outer, (again, guessed) = blocks[-1], self._turns(statement)
                blocks.append(_Nested(outer.times * again, outer.guessed or guessed, outer.at_most or isinstance(statement, If)))
                self.turns += blocks[-1].times if again > 1 else 0
            elif not statement.nests:
                yield statement, blocks[-1]

    def _turns(self, statement: Statement) -> tuple[float, bool]:
        """How often a block is executed each time, and whether that is a guess."""
        if isinstance(statement, For):
            begin, end, step = [self._number(bound) for bound in statement.args]
            return (max(0.0, -((begin - end) // step)), False) if begin is not None and end is not None and step else (float(_TURNS), True)
        return (float(_TURNS), True) if isinstance(statement, Loop) else (1.0, False)

    def _number(self, bound: object) -> int | None:
        if isinstance(bound, Const) and bound.type.is_integer:
            return int(bound.value)
        if isinstance(bound, Param):
            given = np.asarray(self._values.get(bound.name, 0.0))
            return int(given) if given.dtype.kind in "iu" and given.size == 1 else None
        return evaluate_dim(bound, self._sizes) if isinstance(bound, (Dim, DimConst, DimOp)) else None

    def _elements(self, type_: Type) -> int:
        return prod(type_.shape) if type_.is_tile else self._invocations

    def _count(self, statement: Statement, times: float) -> None:
        types = _types(statement)
        tiles = [t for t in types if t.is_tile]
        elements = max([self._elements(t) for t in types], default=self._invocations)
        self.largest_tile = max([self.largest_tile, *[prod(t.shape) * t.scalar.size_bytes for t in tiles]])
        if isinstance(statement, Tile) and statement.op.name in _FACTORS:
            left, right, total = tiles[1:4]
            flops = 2.0 * prod(total.shape) * left.shape[1]
            self.operations += times * flops * (statement.op.name == "mma")
            factors = [prod(t.shape) * t.scalar.size_bytes for t in (left, right)]
            self.staged += sum(factors)
            self.shared += times * (factors[0] + factors[1] * max(1.0, left.shape[0] / _WARPGROUP_ROWS))
        elif isinstance(statement, MemoryStatement) and statement.memory.space is Space.BUFFER:
            count = max([prod(t.shape) for t in tiles], default=1) if isinstance(statement, TileMemoryStatement) else self._invocations
            self.moved += times * count * statement.memory.type.size_bytes
        elif isinstance(statement, (Let, Tile)):
            self.operations += times * elements

    def _add(self, statement: Statement, times: float) -> bool:
        """Adds the operations of a statement that is executed so often; whether it has any."""
        if isinstance(statement, Let) and isinstance(statement.op, Function):
            called = self._function(statement.op)
            for kind, count in called.items():
                self.arithmetic[kind] += times * self._invocations * count
            return bool(called)
        found = _operations(statement)
        if found is None:
            return False
        kind, count, each = found
        self.arithmetic[kind] += times * count * (self._invocations if each else 1)
        return True

    def _function(self, function: Function) -> Mapping[Arithmetic, float]:
        """The operations of one call."""
        if function not in self._functions:
            own = Counts(function.program, {})
            self.at_most |= own.at_most
            self.guessed |= own.guessed
            self._functions[function] = own.arithmetic
        return self._functions[function]


def _types(statement: Statement) -> list[Type]:
    """Those of what a statement binds and takes."""
    return [t for atom in (statement.result, *statement.args) if (t := getattr(atom, "type", None)) is not None]


def _operations(statement: Statement) -> tuple[Arithmetic, float, bool] | None:
    """What computes a statement, and how many operations it is, for each invocation where the last says so; None for one that counts nothing."""
    types = _types(statement)
    if not types:
        return None
    result, widest = types[0], max(types, key=lambda t: prod(t.shape) * t.lanes)
    elements = float(prod(widest.shape) if widest.is_tile else widest.lanes)
    if isinstance(statement, Tile) and statement.op.name in _FACTORS:
        _, left, *_ = types
        factors = None if statement.op.name == "mma" else left.scalar
        return Arithmetic(result.scalar, factors), 2.0 * prod(result.shape) * left.shape[1], False
    if isinstance(statement, (Tile, Subgroup)):
        return (Arithmetic(result.scalar), elements, not result.is_tile) if statement.op.fold and result.scalar.is_float else None
    if isinstance(statement, (Atomic, TileAtomicAdd)):
        value = types[-1]
        return (Arithmetic(value.scalar), elements, not value.is_tile) if value.scalar.is_float and statement.args and _folds(statement) else None
    if not isinstance(statement, Let) or not result.scalar.is_float or statement.op.moves_bits or statement.op.result in (Result.GIVEN, Result.VECTOR):
        return None
    return Arithmetic(result.scalar), elements * (2 if statement.op.name in _MULTIPLY_ADDS else 1), not widest.is_tile


def _folds(statement: Atomic | TileAtomicAdd) -> bool:
    """Whether an atomic computes."""
    return isinstance(statement, TileAtomicAdd) or statement.op.name not in ("load", "store", "exchange", "compare_exchange")


def work_of(program: Program, sizes: Mapping[str, int], values: Mapping[str, object] | None = None) -> Work:
    """What a launch of a Program does, over its own grid. Workgroups at an edge count whole, and so do tiles there."""
    counts = Counts(program, sizes, values)
    if counts.guessed:
        return Work({}, uncounted="how often a loop turns is known only as it runs")
    extents = [max(0, evaluate_dim(extent, sizes)) for extent in program.grid.extents]
    # Of a grid that counts invocations none beyond its extents does anything.
    times = prod(extents) / (max(1, prod(program.workgroup)) if program.grid.over else 1)
    return Work({kind: count * times for kind, count in counts.arithmetic.items() if count}, counts.at_most)
