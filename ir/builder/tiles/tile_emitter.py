"""Emission of what only Programs of tiles have: ops of tiles, and accesses by them."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.ir.builder.emission import Emitter
from vyre_py.ir.builder.expressions import Expr, Index, Operand
from vyre_py.ir.builder.hints import convert_hint
from vyre_py.ir.builder.tiles.shapes import extents_along, instead_of_slices, stored_along
from vyre_py.ir.builder.tiles.tile_refusals import refusal_tile
from vyre_py.ir.builder.where import fail
from vyre_py.ir.language.assembler import OperandTypeError
from vyre_py.ir.language.describe import PYTHON
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Atom, Memory
from vyre_py.ir.language.op import RELAXED, Scope
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS

__all__ = ["TileEmitter"]


class TileEmitter(Emitter):
    """The part of a builder that emits what is about tiles. Every wrong call raises ValidationError at the caller's line."""

    def emit_tile(self, name: str, operands: Sequence[Operand], numbers: Sequence[int]) -> Expr:
        """Emits an op over tiles."""
        row = TILE_OPS[name]
        for what, operand in zip(row.names, operands, strict=True):
            if not isinstance(operand, Expr):
                fail("B106", f"nothing says what tile {shown(operand)} is in {name}", "b.fill(0.0, (128, 256), vp.f32) makes one")
            if not operand.type.is_tile:
                fail("V201", f"{what} of {name} is a tile, got {operand.type}", "b.fill(x, (128, 256)) makes one of a scalar")
        atoms = tuple([self._own(operand) for operand in operands if isinstance(operand, Expr)])
        try:
            return Expr(self, self._here().tile(row, atoms, numbers))
        except OperandTypeError as error:
            fail("V201", *refusal_tile(row, error.operands, tuple(numbers), PYTHON))

    def emit_tile_load(self, memory: Memory, offsets: Index, shape: object) -> Expr:
        """Emits a load of a tile."""
        self._require_reads(memory)
        atoms = self._offsets(memory, offsets, "{}.tile({}, shape=(...))")
        extents = extents_along(memory, shape)
        return Expr(self, self._here().tile_load(memory, atoms, extents))

    def emit_tile_store(self, memory: Memory, offsets: Index, value: Expr, axes: object) -> None:
        """Emits a store of a tile."""
        self._require_writes(memory)
        atoms, extents, atom = self._written(memory, offsets, value, axes, "{}[{}]")
        self._here().tile_store(memory, atoms, extents, atom)

    def emit_tile_add(self, memory: Memory, offsets: Index, value: Operand, axes: object) -> None:
        """Emits an atomic add of a tile."""
        self._atomic_row("add", memory, RELAXED.name, Scope.DEVICE.value)
        if not isinstance(value, Expr) or not value.type.is_tile:
            got = value.type if isinstance(value, Expr) else shown(value)
            fail("V603", f"atomic_add adds a tile to {memory.name!r}, got {got}", f"a tile of one element: b.fill(x, 1, {PYTHON.named(memory.type)})")
        atoms, extents, atom = self._written(memory, offsets, value, axes, "{}.atomic_add(({}), x)")
        self._here().tile_atomic_add(memory, atoms, extents, atom)

    # ---- how

    def _indices(self, memory: Memory, index: Index, written: str = "{}[{}]") -> tuple[Atom, ...]:
        given = index if isinstance(index, tuple) else (index,)
        for i in given:
            if isinstance(i, slice) and not memory.type.is_vector:
                fail("V201", f"an index of {memory.name!r} is a whole number, got {shown(i)}", f"slices are not indices; {instead_of_slices(memory, given)}")
        return super()._indices(memory, index, written)

    def _offsets(self, memory: Memory, offsets: Index, written: str) -> tuple[Atom, ...]:
        if memory.type.is_vector:
            message = f"{memory.name!r} has elements of {memory.type}, a tile scalars"
            fail("V604", message, f"give it an axis of components: a shape of (n, {memory.type.lanes}) and the type {PYTHON.named(memory.type.scalar)}")
        return self._indices(memory, offsets, written)

    def _written(self, memory: Memory, offsets: Index, value: Expr, axes: object, written: str) -> tuple[tuple[Atom, ...], tuple[int, ...], Atom]:
        """The offsets of a tile that is written, its extents, and itself."""
        atoms = self._offsets(memory, offsets, written)
        if value.type.scalar is not memory.type:
            fail("V201", f"an element of {memory.name!r} is {memory.type}, got {value.type}", convert_hint(value.type.scalar, memory.type))
        return atoms, stored_along(memory, value.shape, axes), self._own(value)
