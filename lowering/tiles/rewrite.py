"""The rewrite of a Program of tiles, statement by statement.

One module because it is one class: its rules, one for each kind of statement, share the registers that stand for tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
    Statement,
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
from vyre_py.ir.language.types import u32
from vyre_py.ir.language.walks import COPYING_KINDS, Handlers
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Exchanger, LazyRegisters, Registers, Shared, outside, row_major
from vyre_py.lowering.tiles.folds import reduced, scanned
from vyre_py.lowering.tiles.products import multiplied
from vyre_py.lowering.tiles.tensor import is_modelled
from vyre_py.lowering.tiles.tile_layout import InvocationGrid, Multiples, TileLayout, invocation_grid, shapes_of

__all__ = ["Rewrite", "without_tiles"]

_WRITES: Final = any_of(Effect.WRITES)

# Statements that compute, load and store register by register, in the block where they stand; before all others every register is computed.
_BY_REGISTER: Final = (Let, TileLoad, TileStore, TileAtomicAdd, Var, Get, Set)

# So many loads are under way before the first is used.
_LOADS_AT_ONCE: Final = 32

# So many bytes are, behind a fold in the same block: an invocation has the tiles that were folded in registers still, and where each has few more, there are
# more workgroups at once, which hides latency as well.
_BYTES_BESIDE: Final = 32

# So many stores follow one another, so that neighbours become one, of at most so many bytes: what is stored at once is computed before.
_STORES_AT_ONCE: Final = 8
_BYTES_STORED: Final = 32


def without_tiles(
    program: Program, target: str, memory_bytes: int, workgroup: tuple[int, int, int] | None = None, least_bytes: int = 1, lanes: int = 0, *,
    blocks: bool = False,
) -> Program:  # fmt: skip
    """A Program of invocations that does what a Program of tiles does, which is valid, with at most so many bytes of workgroup memory. `workgroup` is how
    many invocations there are, if somebody asked; `least_bytes` is what an element takes there at least. Folds go between the `lanes` of a subgroup, unless 0,
    where whole subgroups make a workgroup. With `blocks` an invocation has sums of products in blocks of rows and columns.

    Raises Unsupported for what does not fit that memory.
    """
    _RULES.require(program)
    rewrite = Rewrite(program, target, invocation_grid(program, workgroup, blocks=blocks), memory_bytes, least_bytes, lanes)
    rewrite.is_staggered = blocks
    return rewrite.run()


def _ordered(program: Program) -> set[Memory]:
    """The memories that a workgroup changes and may touch more than once, but for those that it adds to alone: statements on these follow one another for
    the whole workgroup, which a barrier sees to."""
    counts, changed, touched, end = Counter[Memory](), set[Memory](), set[Memory](), -1  # of the outermost loop
    for index, s in enumerate(program.body):
        if isinstance(s, (For, Loop)):
            end = max(end, program.match[index])
        elif isinstance(s, MemoryStatement):
            counts[s.memory] += 2 if index < end else 1
            if _WRITES[type(s)]:
                changed.add(s.memory)
            if not isinstance(s, TileAtomicAdd):
                touched.add(s.memory)
    return {memory for memory in changed & touched if counts[memory] > 1}


class Rewrite(Exchanger):
    """Each tile value and variable becomes registers, by the old one's number."""

    def __init__(self, program: Program, target: str, invocations: InvocationGrid, memory_bytes: int, least_bytes: int = 1, lanes: int = 0) -> None:
        exchanged = {a.type.scalar for s in program.body if isinstance(s, Tile) for a in s.values if a.type.is_tile}
        super().__init__(program, target, invocations, memory_bytes // max(1, len(exchanged)), least_bytes, lanes)
        self._tiles: dict[int, Shared] = {}
        self._multiples = Multiples(self.body)
        self._parts_of: dict[int, tuple[TileLayout, dict[tuple[int, ...], Variable]]] = {}
        self._ordered = _ordered(program)
        self._lazy: list[LazyRegisters] = []
        self._holds_tiles = False

    def run(self) -> Program:
        """The Program of invocations."""
        self.prepare([(self.invocations, shape) for shape in shapes_of(self.program)])
        for index in self.indices():
            self.take(index)
        return self.finish()

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        statement = self.begin(index)
        rule = _RULES.get(type(statement))
        if rule is None or not rule(self, statement):
            self.copy(index)

    def begin(self, index: int) -> Statement:
        """Old statement `index`, which is to be taken in next."""
        statement = self.program.body[index]
        self.place = self.program.place(index)
        if isinstance(statement, Tile):
            if statement.op.name != "reshape" and any(a.type.is_tile for a in statement.args):
                self.settle()
                self._holds_tiles = True
        elif not isinstance(statement, _BY_REGISTER):
            self.settle()
            self._holds_tiles = False
        return statement

    # ---- values

    def lazy(
        self, old: Value, places: Iterable[tuple[int, ...]], compute: Callable[[tuple[int, ...]], Atom], at_once: int = 1, ahead: int = 0,
        of: Iterable[Registers] = (),
    ) -> Registers:  # fmt: skip
        """The registers of an old value, which are computed later in this block, as if here, `of` these."""
        here = self.place

        def computed(register: tuple[int, ...]) -> Atom:
            now, self.place = self.place, here
            atom = self._named(old, register, compute(register))
            self.place = now
            return atom

        made = LazyRegisters(places, computed, at_once, ahead, of)
        self._lazy.append(made)
        return made

    def settle(self) -> None:
        """Computes all registers that are to be computed later: another block may begin or end here. The last first, so that each takes what it needs along."""
        while self._lazy:
            self._lazy.pop().compute_all()

    def tile_of(self, atom: Atom) -> Shared:
        """A tile as invocations hold it."""
        assert isinstance(atom, Value)  # no other atom is a tile
        return self._tiles[atom.id]

    def layout_of(self, value: Value) -> TileLayout:
        """The layout that a value is to have."""
        return self.invocations

    def layout_of_variable(self, variable: Variable) -> TileLayout:
        """The layout that a variable is to have."""
        return self.invocations

    def keep(self, old: Value, made: Shared) -> bool:
        """A tile is there for an old value."""
        if not isinstance(made.registers, LazyRegisters):
            for register, atom in made.registers.items():
                self._named(old, register, atom)
        self._tiles[old.id] = made
        return True

    def _named(self, old: Value, register: tuple[int, ...], atom: Atom) -> Atom:
        """A register of an old value, by its name unless it has one."""
        name = self.program.value_names.get(old.id)
        if name is not None and isinstance(atom, Value):
            self.value_names.setdefault(atom.id, f"{name}{list(register)}")
        return atom

    # ---- statements: each says whether it was written here, rather than to be copied

    def _let(self, s: Let) -> bool:
        type_ = s.bound.type
        if not type_.is_tile:
            return False
        layout = self.layout_of(s.bound)
        given = type_.scalar if s.op.result is Result.GIVEN else None
        tiles = {a: self.moved(self.tile_of(a), layout) for a in s.args if a.type.is_tile}
        scalars = {a: self.atom(a) for a in s.args if a not in tiles}

        def part(atom: Atom, register: tuple[int, ...]) -> Atom:
            """What stands for a register of the result in an operand: an extent of 1 goes with any, a scalar with all."""
            if atom in scalars:
                return scalars[atom]
            tile = tiles[atom]
            return tile.registers[tuple([0 if extent == 1 else r for extent, r in zip(tile.shape, register, strict=True)])]

        waits_for = [tile.registers for tile in tiles.values()]
        made = self.lazy(s.bound, layout.registers(type_.shape), lambda r: self.let(s.op, tuple([part(a, r) for a in s.args]), given), of=waits_for)
        return self.keep(s.bound, Shared(type_.shape, layout, made))

    def _tile(self, s: Tile) -> bool:
        made = _TILES[s.op.name.partition("_")[0]](self, s)
        if isinstance(made, Shared):
            return self.keep(s.bound, made)
        self.map[s.bound.id] = made
        return True

    def _fill(self, s: Tile) -> Shared:
        return replace(self._spread(s, lambda r: self.atom(s.args[0])), is_filled=True)

    def _iota(self, s: Tile) -> Shared:
        shape, axis, layout = s.bound.type.shape, s.numbers[0], self.layout_of(s.bound)
        return self._spread(s, lambda r: self.element(layout, shape, axis, r[axis]))

    def _spread(self, s: Tile, element: Callable[[tuple[int, ...]], Atom]) -> Shared:
        shape, layout = s.bound.type.shape, self.layout_of(s.bound)
        return Shared(shape, layout, {r: element(r) for r in layout.registers(shape)})

    def _transpose(self, s: Tile) -> Shared:
        return self.transposed(self.tile_of(s.args[0]), s.numbers, self.invocations)

    def _reshape(self, s: Tile) -> Shared:
        tile = self.tile_of(s.args[0])
        return self.arranged(tile, row_major(tile.shape), s.bound.type.shape, self.layout_of(s.bound))

    def _item(self, s: Tile) -> Value:
        (only,) = self.tile_of(s.args[0]).registers.values()
        return self.told(only)

    def _mma(self, s: Tile) -> Shared:
        if is_modelled(s):
            self.refuse(s.op.name, "tensor cores of compute capability 9.0 compute it, of shapes that they take, and the interpreter; mma_tensor is for all")
        a, b, acc = map(self.tile_of, s.args)
        return multiplied(self, a, b, acc)

    def _reduce(self, s: Tile) -> Shared:
        return reduced(self, OPS[s.op.fold], self.tile_of(s.args[0]), s.numbers[0])

    def _scan(self, s: Tile) -> Shared:
        return scanned(self, OPS[s.op.fold], self.tile_of(s.args[0]), s.numbers[0], exclusive=s.op.name.startswith("exclusive"))

    # ---- memory

    def _order(self, memory: Memory) -> None:
        if memory in self._ordered:
            self.barrier()

    def _elements_of(self, s: TileMemoryStatement, layout: TileLayout, *, once: bool, whole: bool = True) -> dict[tuple[int, ...], tuple[Atom, ...]]:
        """The indices of each register's element. With `once` an element is that of one invocation alone; unless `whole`, what is past the tile's extents is
        outside, as with `once`."""
        shape = s.shape
        axes: list[list[tuple[Atom, ...]]] = []
        which: list[int] = []  # of the memory's axes, the tile's; -1 for one that it has not
        for offset, extent in zip(s.indices, s.extents, strict=True):
            if not extent:
                which.append(-1)
                axes.append([(self.atom(offset),)])
                continue
            here = self.offset(self.atom(offset))
            axis = sum(1 for earlier in which if earlier >= 0)
            which.append(axis)
            axes.append([self.indices_along(s, len(axes), here, layout, axis, r, once=once, whole=whole and not once) for r in range(layout.held(shape)[axis])])
        return {
            r: tuple([index for places, axis in zip(axes, which, strict=True) for index in places[r[axis] if axis >= 0 else 0]])
            for r in layout.registers(shape)
        }

    def indices_along(
        self, s: TileMemoryStatement, memory_axis: int, offset: Atom, layout: TileLayout, axis: int, register: int, *, once: bool, whole: bool
    ) -> tuple[Atom, ...]:
        """The index of a register's element along an axis of a memory, which is an axis of the tile."""
        return (self.index_at(offset, layout, s.shape, axis, register, once=once, whole=whole),)

    def index_at(self, offset: Atom, layout: TileLayout, shape: tuple[int, ...], axis: int, register: int, *, once: bool, whole: bool) -> Atom:
        """The index along an axis of a memory, in the offset's type; outside, with `once`, for what is not this invocation's, and unless `whole` for what is
        past the extent."""
        element = self.element(layout, shape, axis, register)
        index = self.beyond(offset, element, 0 if layout.is_ragged(shape, axis, register) else shape[axis])
        condition: Atom | None = None
        if not whole and layout.is_ragged(shape, axis, register):
            condition = self.m("lt", element, word(shape[axis]))
        elif once and shape[axis] == 1 and layout.line(shape, axis).is_shared:
            condition = self.m("eq", self.here(layout, shape, axis), word(0))
        return self.where(condition, index, outside(offset.type))

    def offset(self, offset: Atom) -> Atom:
        """An offset of a tile along an axis, of its type: another one may stand for it where both are past the end of every memory."""
        return offset

    def beyond(self, offset: Atom, element: Atom, extent: int = 0) -> Atom:
        """The index so many elements, a u32, beyond an offset, in the offset's type. A sum that wraps is outside. Of elements before an `extent`, unless 0,
        none wraps that lies behind a multiple of as many: the power of two at which indices wrap is one, too."""
        type_ = offset.type
        if isinstance(element, Const) and not element.bits:
            return offset
        step = element if type_ is u32 else self.m.cast(element, type_)
        index = self.m("add", offset, step)
        return index if type_.is_signed or 0 < extent <= self._multiples.of(offset) else self.m("select", self.m("lt", index, step), outside(type_), index)

    def _tile_load(self, s: TileLoad) -> bool:
        self._order(s.memory)
        layout = self.layout_of(s.bound)
        # What lies past the tile's extents is not looked at where other workgroups may write it.
        elements = self._elements_of(s, layout, once=False, whole=s.memory not in self._ordered)
        at_once, ahead = self.loads_at_once(s, layout)
        made = self.lazy(s.bound, self.in_order(layout, list(elements)), lambda r: self.load(s.memory, elements[r]), at_once, ahead)
        if s.memory.access.writes:
            self.settle()
        return self.keep(s.bound, Shared(s.shape, layout, made))

    def loads_at_once(self, s: TileLoad, layout: TileLayout) -> tuple[int, int]:
        """How many elements of a load are under way before the first is used, and how many times as many after them."""
        return _BYTES_BESIDE // s.memory.type.size_bytes if self._holds_tiles else _LOADS_AT_ONCE, 0

    def in_order(self, layout: TileLayout, registers: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        """The registers of a tile in the order in which they are loaded and stored."""
        return registers

    def _tile_store(self, s: TileStore) -> bool:
        self._order(s.memory)
        tile = self.tile_of(s.value)
        places = self._elements_of(s, tile.layout, once=True)
        elements = [(r, places[r]) for r in self.in_order(tile.layout, list(places))]
        at_once = max(min(_STORES_AT_ONCE, _BYTES_STORED // s.memory.type.size_bytes), self.invocations.width)
        for begin in range(0, len(elements), at_once):
            some = [(at, tile.registers[r]) for r, at in elements[begin : begin + at_once]]
            for at, value in some:
                self.store(s.memory, at, value)
        return True

    def _tile_add(self, s: TileAtomicAdd) -> bool:
        self._order(s.memory)
        tile = self.tile_of(s.value)
        for r, at in self._elements_of(s, tile.layout, once=True).items():
            self.atomic(ATOMICS["add"], s.memory, at, (tile.registers[r],))
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

    # ---- loops

    def _for(self, s: For) -> bool:
        """Without its pipelining depth, which a Program of invocations has not."""
        start, stop, step = [self.atom(a) for a in s.args]
        self.map[s.bound.id] = self.for_(start, stop, step, self.program.value_names.get(s.bound.id), s.unroll)
        return True

    # ---- variables

    def parts_of(self, variable: Variable) -> tuple[TileLayout, dict[tuple[int, ...], Variable]]:
        """The layout of an old variable that is a tile, and the variables that stand for its registers."""
        return self._parts_of[variable.id]

    def _var(self, s: Var) -> bool:
        if not s.variable.type.is_tile:
            return False
        type_, name = s.variable.type.scalar, self.program.variable_names.get(s.variable.id)
        tile = self.moved(self.tile_of(s.args[0]), self.layout_of_variable(s.variable))
        parts = {r: self.var(type_, value, name and f"{name}{list(r)}") for r, value in tile.registers.items()}
        self._parts_of[s.variable.id] = tile.layout, parts
        return True

    def _get(self, s: Get) -> bool:
        if s.variable.id not in self._parts_of:
            return False
        layout, parts = self._parts_of[s.variable.id]
        return self.keep(s.bound, Shared(s.bound.type.shape, layout, {r: self.get(part) for r, part in parts.items()}))

    def _set(self, s: Set) -> bool:
        if s.variable.id not in self._parts_of:
            return False
        layout, parts = self._parts_of[s.variable.id]
        for r, value in self.moved(self.tile_of(s.args[0]), layout).registers.items():
            self.set(parts[r], value)
        return True


# By the first word of a tile op's name.
_TILES: Final[dict[str, Callable[[Rewrite, Tile], Shared | Value]]] = {
    "fill": Rewrite._fill, "iota": Rewrite._iota, "transpose": Rewrite._transpose, "reshape": Rewrite._reshape, "item": Rewrite._item,
    "mma": Rewrite._mma, "reduce": Rewrite._reduce, "inclusive": Rewrite._scan, "exclusive": Rewrite._scan,
}  # fmt: skip

_RULES: Final[Handlers[Callable[[Rewrite, Any], bool]]] = Handlers("the rewrite of tiles", {
    Let: Rewrite._let, Tile: Rewrite._tile, TileLoad: Rewrite._tile_load, TileStore: Rewrite._tile_store, TileAtomicAdd: Rewrite._tile_add,
    Load: Rewrite._load, Store: Rewrite._store, Var: Rewrite._var, Get: Rewrite._get, Set: Rewrite._set,
    Assert: Rewrite._alone, Print: Rewrite._alone, For: Rewrite._for,
}, apart=(If, Else, End, Loop, Region, Break, Continue, Return, GridScan), without=dict.fromkeys(
    (*ATOMIC_KINDS, *FENCES.values(), *COPYING_KINDS, Barrier, GridBarrier, UniformLoad, Subgroup), "V603 keeps it out of Programs of tiles"
))  # fmt: skip
