"""Facts about a sound Program that several readers share: arrays over its dense ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import Atomic, Const, Fence, Space, Statement, TileAtomicAdd, UniformLoad, Value, Var
from vyre_py.ir.language.op import RELAXED
from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i64, u64

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = [
    "CAPABILITIES", "GRID_BARRIER", "GRID_SCAN", "MEMORY_ORDER", "OF_ATOMICS", "OF_TYPES", "capabilities", "declarations", "definitions",
    "has_grid_barrier", "has_grid_scan", "is_told", "uses",
]

# Scalar type -> what a Program that has values, constants or elements of it asks of a device.
OF_TYPES: Final[Mapping[Type, str]] = {i64: "int64", u64: "int64", f64: "float64", f16: "float16", bf16: "bfloat16", f8e4m3: "float8", f8e5m2: "float8"}
# The same, for atomics on elements of it.
OF_ATOMICS: Final[Mapping[Type, str]] = {i64: "int64_atomics", u64: "int64_atomics", f32: "float32_atomics", f64: "float64_atomics"}

# What a Program with a grid barrier asks for: that all of its workgroups run at once.
GRID_BARRIER: Final = "grid_barrier"
# What one with a scan over the grid asks for: that a workgroup can wait for those with smaller numbers.
GRID_SCAN: Final = "grid_scan"

# What fences, and atomics of another order than relaxed, ask for.
MEMORY_ORDER: Final = "memory_order"
# All names that `capabilities` may give. Everything else, vectors and 8- and 16-bit integers among it, is for every device.
CAPABILITIES: Final = frozenset({*OF_TYPES.values(), *OF_ATOMICS.values(), GRID_BARRIER, GRID_SCAN, MEMORY_ORDER})


def uses(program: Program) -> tuple[int, ...]:
    """How many operands each value stands as, by value id."""
    counts = [0] * program.value_count
    for statement in program.body:
        for atom in statement.args:
            if isinstance(atom, Value):
                counts[atom.id] += 1
    return tuple(counts)


def definitions(program: Program) -> tuple[int, ...]:
    """The index of the statement that binds each value, by value id."""
    return tuple([index for index, statement in enumerate(program.body) if statement.result is not None])


def declarations(program: Program) -> tuple[int, ...]:
    """The index of the Var that declares each variable, by variable id."""
    return tuple([index for index, statement in enumerate(program.body) if isinstance(statement, Var)])


_MEETS_GRID: Final = any_of(Effect.SYNCHRONISES_GRID)
_SCANS_GRID: Final = any_of(Effect.SCANS_GRID)


def has_grid_barrier(program: Program) -> bool:
    """Whether the workgroups wait for one another anywhere, so that all of them have to run at once."""
    return any(_MEETS_GRID[type(statement)] for statement in program.body)


def has_grid_scan(program: Program) -> bool:
    """Whether workgroups wait anywhere for those with smaller numbers, so that these have to have begun."""
    return any(_SCANS_GRID[type(statement)] for statement in program.body)


def is_told(statement: Statement) -> bool:
    """Whether one invocation must do a UniformLoad for its workgroup: if other workgroups may write the memory between the loads of two invocations, the
    results could differ. Workgroup memory is not written between the two barriers, and read-only memory never."""
    return isinstance(statement, UniformLoad) and statement.memory.space is Space.BUFFER and statement.memory.access.writes


def capabilities(program: Program) -> frozenset[str]:
    """What the Program asks of a device beyond the language's core of 8- to 32-bit integers and f32: names of `CAPABILITIES`.

    A device may have it in hardware, or be compiled for as if it had.
    """
    found = {OF_TYPES.get(type_.scalar) for type_ in set(_types(program))}
    found |= {OF_ATOMICS.get(s.memory.type) for s in program.body if isinstance(s, (Atomic, TileAtomicAdd))}
    found |= {GRID_BARRIER} if has_grid_barrier(program) else set()
    found |= {GRID_SCAN} if has_grid_scan(program) else set()
    found |= {MEMORY_ORDER} if any(isinstance(s, Fence) or (isinstance(s, Atomic) and s.op.order is not RELAXED) for s in program.body) else set()
    return frozenset(name for name in found if name is not None)


def _types(program: Program) -> Iterator[Type]:
    for function in program.functions:
        yield from _types(function.program)
    yield from (param.type for param in program.params)
    yield from (memory.type for memory in program.memories)
    for statement in program.body:
        if statement.result is not None:
            yield statement.result.type
        if isinstance(statement, Var):
            yield statement.variable.type
        for atom in statement.args:
            if isinstance(atom, Const):
                yield atom.type
