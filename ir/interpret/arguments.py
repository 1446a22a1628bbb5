"""What a Program is run on: sizes, params and buffers, checked against its declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.interpret.params import InterpretError, param_values
from vyre_py.ir.language.dims import SIZE_LIMIT, WORD_LIMIT, DimExpr, evaluate_dim
from vyre_py.ir.language.nodes import Atom, Const, Let, Memory, Param, Space, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Kind, Type, element

__all__ = ["Arguments", "axis_of_components", "storage_dtype"]


def storage_dtype(type_: Type) -> np.dtype[Any]:
    """The dtype in which elements lie in memory: a bool is a byte of which any bit may be set."""
    return np.dtype(np.uint8) if type_.kind is Kind.BOOL else type_.dtype


def axis_of_components(type_: Type) -> tuple[int, ...]:
    """What a vector adds to the shape of an array of its elements: one axis."""
    return (type_.lanes,) if type_.is_vector else ()


class Arguments:
    """The arguments of one run: `extents` by memory, `flat` elements of buffers and tables (of vectors with an axis of components), and
    grid-uniform atoms as arrays of one element. Raises InterpretError for the first thing that does not fit."""

    def __init__(self, program: Program, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.extents: dict[Memory, tuple[int, ...]] = {m: tuple(map(self.size, m.shape)) for m in program.memories}
        self.flat: dict[Memory, Array] = {}
        for memory in program.memories:
            if memory.space is Space.BUFFER:
                self.flat[memory] = self._buffer(memory, arguments)
            elif memory.space is Space.TABLE:
                self.flat[memory] = self._table(memory)
        self._atoms: dict[Atom, Array] = {}
        self._atoms.update(param_values(program, arguments).items())
        for statement in program.body:
            if isinstance(statement, Let) and statement.op.evaluate is None and not statement.op.is_query and signature_of(statement) is None:
                raise InterpretError(f"{statement.op.name} has to be expanded before the Program is interpreted")

    def size(self, expression: DimExpr, evaluate: Callable[[DimExpr, Mapping[str, int]], int] = evaluate_dim) -> int:
        """The value of a dim expression; of a grid's by `evaluate_extent`."""
        try:
            value = int(evaluate(expression, self.sizes))
        except KeyError as missing:
            raise InterpretError(f"dim {missing} has no size") from None
        except ZeroDivisionError:
            raise InterpretError("a dim expression divides by zero") from None
        if not 0 <= value < SIZE_LIMIT:
            raise InterpretError(f"a dim expression is {value}; sizes are whole numbers below 2^48")
        return value

    def atom(self, atom: Atom) -> Array:
        """The array of one element for an atom that is no Value."""
        found = self._atoms.get(atom)
        if found is None:
            assert not isinstance(atom, Value)  # the caller looks values up itself
            if isinstance(atom, Param):
                raise InterpretError(f"param {atom.name!r} is not declared")
            found = element(atom.type, atom.bits if isinstance(atom, Const) else self._word(atom)).reshape(1)
            self._atoms[atom] = found
        return found

    def _word(self, expression: DimExpr) -> int:
        size = self.size(expression)
        if size >= WORD_LIMIT:
            raise InterpretError(f"a size used as a u32 is {size}; a cast to u64 takes it whole")
        return size

    def _buffer(self, memory: Memory, arguments: Mapping[str, Any]) -> Array:
        if memory.name not in arguments:
            raise InterpretError(f"buffer {memory.name!r} is missing")
        given = arguments[memory.name]
        wanted = storage_dtype(memory.type)
        if not isinstance(given, np.ndarray) or given.dtype not in (wanted, memory.type.dtype):
            what = given.dtype if isinstance(given, np.ndarray) else type(given).__name__
            raise InterpretError(f"buffer {memory.name!r} needs an array of {memory.type}, got {what}")
        components = axis_of_components(memory.type)
        if given.shape != (*self.extents[memory], *components):
            raise InterpretError(f"buffer {memory.name!r} needs shape {(*self.extents[memory], *components)}, got {given.shape}")
        if not given.flags.c_contiguous or (memory.access.writes and not given.flags.writeable):
            raise InterpretError(f"buffer {memory.name!r} needs a C-contiguous array, writeable if the Program writes it")
        return given.reshape(-1, *components).view(wanted)

    def _table(self, memory: Memory) -> Array:
        wanted = storage_dtype(memory.type)
        size_bytes = prod(self.extents[memory]) * memory.type.size_bytes
        if len(memory.data) != size_bytes:
            raise InterpretError(f"table {memory.name!r} holds {len(memory.data)} bytes where its shape needs {size_bytes}")
        # As words, so that no NaN is touched.
        words = np.frombuffer(memory.data, f"<u{wanted.itemsize}").astype(f"u{wanted.itemsize}")
        return words.view(wanted).reshape(-1, *axis_of_components(memory.type))
