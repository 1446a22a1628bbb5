"""The rewrite of a Program of tiles, statement by statement."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    Assert,
    Atom,
    Barrier,
    Break,
    Const,
    Continue,
    Else,
    End,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    Memory,
    MemoryStatement,
    Print,
    Region,
    Return,
    Set,
    Store,
    Subgroup,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileMemoryStatement,
    TileStore,
    UniformLoad,
    Value,
    Var,
    Variable,
)
from vyre_py.ir.language.op import Result
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.language.walks import COPYING_KINDS, Handlers
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Exchanger, Registers, row_major
from vyre_py.lowering.tiles.folds import reduced, scanned
from vyre_py.lowering.tiles.layout import invocation_grid, shapes_of
from vyre_py.lowering.tiles.products import multiplied

__all__ = ["without_tiles"]

_READS: Final = any_of(Effect.READS)
_WRITES: Final = any_of(Effect.WRITES)


def without_tiles(program: Program, target: str, memory_bytes: int, workgroup: tuple[int, int, int] | None = None) -> Program:
    """A Program of invocations that does what a Program of tiles does, which is valid, with at most so many bytes of workgroup memory. `workgroup` is how
    many invocations there are, if somebody asked.

    Raises Unsupported for what does not fit that memory.
    """
    _RULES.require(program)
    exchanged = {s.args[0].type.scalar for s in program.body if isinstance(s, Tile) and s.values} | {
        s.args[1].type.scalar for s in program.body if isinstance(s, Tile) and len(s.values) > 1
    }
    invocations = invocation_grid(program, workgroup)
    rewrite = _Rewrite(program, target, invocations, memory_bytes // max(1, len(exchanged)))
    for index in rewrite.indices():
        rewrite.take(index)
    return rewrite.finish()


class _Rewrite(Exchanger):
    """Each tile value and variable becomes registers, by the old one's number."""

    def __init__(self, program: Program, *rest: Any) -> None:
        super().__init__(program, *rest)
        self._tiles: dict[int, Registers] = {}
        self._variables_of: dict[int, dict[tuple[int, ...], Variable]] = {}
        touched = [s for s in program.body if isinstance(s, MemoryStatement)]
        read, written = {s.memory for s in touched if _READS[type(s)]}, {s.memory for s in touched if _WRITES[type(s)]}
        # Statements on these follow one another for the whole workgroup, which a barrier sees to.
        self._ordered = read & written
        self.prepare(shapes_of(program))

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.program.body[index]
        self.place = self.program.place(index)
        rule = _RULES.get(type(statement))
        if rule is None or not rule(self, statement):
            self.copy(index)

    # ---- values

    def registers_of(self, atom: Atom) -> Registers:
        """What an invocation holds of a tile."""
        assert isinstance(atom, Value)  # no other atom is a tile
        return self._tiles[atom.id]

    def _keep(self, old: Value, made: Registers) -> bool:
        name = self.program.value_names.get(old.id)
        if name is not None:
            for register, atom in made.items():
                if isinstance(atom, Value):
                    self.value_names.setdefault(atom.id, f"{name}{list(register)}")
        self._tiles[old.id] = made
        return True

    def _part(self, atom: Atom, register: tuple[int, ...]) -> Atom:
        """What stands for a register of a result in an operand: an extent of 1 goes with any, a scalar with all."""
        if not atom.type.is_tile:
            return self.atom(atom)
        return self.registers_of(atom)[tuple([0 if extent == 1 else r for extent, r in zip(atom.type.shape, register, strict=True)])]

    # ---- statements: each says whether it was written here, rather than to be copied

    def _let(self, s: Let) -> bool:
        type_ = s.bound.type
        if not type_.is_tile:
            return False
        given = type_.scalar if s.op.result is Result.GIVEN else None
        registers = self.invocations.registers(type_.shape)
        return self._keep(s.bound, {r: self.let(s.op, tuple([self._part(a, r) for a in s.args]), given) for r in registers})

    def _tile(self, s: Tile) -> bool:
        rule = _TILES.get(s.op.fold and s.op.name.partition("_")[0] or s.op.name)
        assert rule is not None, s.op.name  # the table of tile ops is covered: `_TILES`
        made = rule(self, s)
        if isinstance(made, dict):
            return self._keep(s.bound, made)
        self.map[s.bound.id] = made
        return True

    def _fill(self, s: Tile) -> Registers:
        return dict.fromkeys(self.invocations.registers(s.bound.type.shape), self.atom(s.args[0]))

    def _iota(self, s: Tile) -> Registers:
        shape, axis = s.bound.type.shape, s.numbers[0]
        return {r: self.element(shape, axis, r[axis]) for r in self.invocations.registers(shape)}

    def _transpose(self, s: Tile) -> Registers:
        to, shape = s.bound.type.shape, s.args[0].type.shape
        strides = dict(zip(s.numbers, row_major(to), strict=True))
        return self.arranged(self.registers_of(s.args[0]), shape, [strides[axis] for axis in range(len(shape))], to)

    def _reshape(self, s: Tile) -> Registers:
        to, shape = s.bound.type.shape, s.args[0].type.shape
        return self.arranged(self.registers_of(s.args[0]), shape, row_major(shape), to)

    def _item(self, s: Tile) -> Value:
        (only,) = self.registers_of(s.args[0]).values()
        return self.told(only)

    def _mma(self, s: Tile) -> Registers:
        a, b, acc = map(self.registers_of, s.args)
        return multiplied(self, (s.args[0].type.shape, s.args[1].type.shape), a, b, acc)

    def _reduce(self, s: Tile) -> Registers:
        return reduced(self, OPS[s.op.fold], s.args[0].type.shape, s.numbers[0], self.registers_of(s.args[0]))

    def _scan(self, s: Tile) -> Registers:
        exclusive = s.op.name.startswith("exclusive")
        return scanned(self, OPS[s.op.fold], s.args[0].type.shape, s.numbers[0], self.registers_of(s.args[0]), exclusive=exclusive)

    # ---- memory

    def _order(self, memory: Memory) -> None:
        if memory in self._ordered:
            self.barrier()

    def _places(self, s: TileMemoryStatement, *, once: bool) -> dict[tuple[int, ...], tuple[Atom, ...]]:
        """The indices of each register's element. With `once` an element is that of one invocation alone, and what is past the tile's extents is outside."""
        shape = s.shape
        axes: list[list[Atom]] = []
        which: list[int] = []  # of the memory's axes, the tile's; -1 for one that it has not
        for offset, extent in zip(s.indices, s.extents, strict=True):
            here = self.atom(offset)
            if not extent:
                which.append(-1)
                axes.append([here])
                continue
            axis = sum(1 for earlier in which if earlier >= 0)
            which.append(axis)
            axes.append([self._index_at(here, shape, axis, r, once=once) for r in range(self.invocations.held(shape)[axis])])
        made = {}
        for register in product(*map(range, self.invocations.held(shape))):
            made[register] = tuple([places[register[axis] if axis >= 0 else 0] for places, axis in zip(axes, which, strict=True)])
        return made

    def _index_at(self, offset: Atom, shape: tuple[int, ...], axis: int, register: int, *, once: bool) -> Atom:
        """The index along an axis of a memory, in the offset's type. A sum that wraps is outside, and so, with `once`, is what is not this invocation's."""
        element, type_ = self.element(shape, axis, register), offset.type
        index = offset
        if not (isinstance(element, Const) and not element.bits):
            step = element if type_ is u32 else self.m.cast(element, type_)
            index = self.m("add", offset, step)
            if not type_.is_signed:
                index = self.m("select", self.m("lt", index, step), _outside(type_), index)
        if once:
            here, count = self.whole(shape, axis)
            condition: Atom | None = None
            if self.invocations.is_ragged(shape, axis, register):
                condition = self.m("lt", element, word(shape[axis]))
            elif shape[axis] == 1 and count > 1:
                condition = self.m("eq", here, word(0))
            index = self.where(condition, index, _outside(type_))
        return index

    def _tile_load(self, s: TileLoad) -> bool:
        self._order(s.memory)
        return self._keep(s.bound, {r: self.load(s.memory, at) for r, at in self._places(s, once=False).items()})

    def _tile_store(self, s: TileStore) -> bool:
        self._order(s.memory)
        values = self.registers_of(s.value)
        for r, at in self._places(s, once=True).items():
            self.store(s.memory, at, values[r])
        return True

    def _tile_add(self, s: TileAtomicAdd) -> bool:
        self._order(s.memory)
        values = self.registers_of(s.value)
        for r, at in self._places(s, once=True).items():
            self.atomic(ATOMICS["add"], s.memory, at, (values[r],))
        return True

    def _load(self, s: Load) -> bool:
        """One element for the whole workgroup: others may write it between the loads of two invocations."""
        if not s.memory.access.writes:
            return False
        self.map[s.bound.id] = self.uniform_load(s.memory, tuple([self.atom(a) for a in s.indices]), self.program.value_names.get(s.bound.id))
        return True

    def _store(self, s: Store) -> bool:
        self._order(s.memory)
        return self._alone(s)

    def _alone(self, s: Store | Assert | Print) -> bool:
        """One invocation does it for the workgroup."""
        self.first_alone()
        self.emit(s.rebuilt(None, tuple([self.atom(a) for a in s.args])))
        self.end()
        return True

    # ---- variables

    def _var(self, s: Var) -> bool:
        if not s.variable.type.is_tile:
            return False
        type_, name = s.variable.type.scalar, self.program.variable_names.get(s.variable.id)
        values = self.registers_of(s.args[0])
        self._variables_of[s.variable.id] = {r: self.var(type_, value, name and f"{name}{list(r)}") for r, value in values.items()}
        return True

    def _get(self, s: Get) -> bool:
        parts = self._variables_of.get(s.variable.id)
        return parts is not None and self._keep(s.bound, {r: self.get(part) for r, part in parts.items()})

    def _set(self, s: Set) -> bool:
        parts = self._variables_of.get(s.variable.id)
        if parts is None:
            return False
        for r, value in self.registers_of(s.args[0]).items():
            self.set(parts[r], value)
        return True


def _outside(type_: Type) -> Const:
    """An index of no element: -1, or the greatest."""
    return Const(type_, (1 << type_.bits) - 1)


# By a tile op's name, or the first word of one that folds.
_TILES: Final[dict[str, Callable[[_Rewrite, Tile], Registers | Value]]] = {
    "fill": _Rewrite._fill, "iota": _Rewrite._iota, "transpose": _Rewrite._transpose, "reshape": _Rewrite._reshape, "item": _Rewrite._item,
    "mma": _Rewrite._mma, "mma_tensor": _Rewrite._mma, "reduce": _Rewrite._reduce, "inclusive": _Rewrite._scan, "exclusive": _Rewrite._scan,
}  # fmt: skip

_RULES: Final[Handlers[Callable[[_Rewrite, Any], bool]]] = Handlers("the rewrite of tiles", {
    Let: _Rewrite._let, Tile: _Rewrite._tile, TileLoad: _Rewrite._tile_load, TileStore: _Rewrite._tile_store, TileAtomicAdd: _Rewrite._tile_add,
    Load: _Rewrite._load, Store: _Rewrite._store, Var: _Rewrite._var, Get: _Rewrite._get, Set: _Rewrite._set,
    Assert: _Rewrite._alone, Print: _Rewrite._alone,
}, apart=(If, Else, End, For, Loop, Region, Break, Continue, Return, GridScan), without=dict.fromkeys(
    (*ATOMIC_KINDS, *FENCES.values(), *COPYING_KINDS, Barrier, GridBarrier, UniformLoad, Subgroup), "V603 keeps it out of Programs of tiles"
))  # fmt: skip
