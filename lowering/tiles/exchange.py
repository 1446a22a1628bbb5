"""Elements that invocations hand each other: through one workgroup array for each type, which all exchanges of a Program share.

An exchange is stores, a barrier, and loads; a barrier before it waits for the loads of the one before. Arrays are as large as the largest exchange needs, and
an exchange that would need more than its share of the target's workgroup memory goes in several steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any, Final, NoReturn

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.errors import Missing, Place, Unsupported
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, MemoryStatement, Space, Statement, Value
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.math import MathBuilder
from vyre_py.ir.math.builder import word
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.tiles.tile_layout import NOT_SHARED, InvocationGrid, Line, TileLayout

__all__ = ["NOWHERE", "Exchanger", "LazyRegisters", "Registers", "Shared", "outside", "row_major"]

# The elements of a tile that an invocation holds, by the number of the register along each axis.
Registers = Mapping[tuple[int, ...], Atom]

# The index of no element: a store there is dropped, a load gives zero.
NOWHERE: Final = word(0xFFFFFFFF)

_WORD_BYTES: Final = 4

# Registers that wait for registers, and so on: Python calls some functions for each of them, and has a limit to that.
_DEEPEST: Final = 64

_FEWER: Final = "use smaller tiles, of fewer types, or fewer invocations"


class LazyRegisters(Registers):
    """Registers that are computed when one of them is first asked for, `at_once` in a row, and so many such rows `ahead`. What is computed register by
    register, from loads to stores, needs few values at a time, where a whole tile after another would need a GPU's registers several times over.

    `of` are the registers that they are computed `of`: where these wait for others, and so on, for too long a chain, they are computed first."""

    __slots__ = ("_ahead", "_at_once", "_begun", "_compute", "_made", "_places", "depth")

    def __init__(
        self, places: Iterable[tuple[int, ...]], compute: Callable[[tuple[int, ...]], Atom], at_once: int = 1, ahead: int = 0, of: Iterable[Registers] = ()
    ) -> None:  # fmt: skip
        waits_for = [registers for registers in of if isinstance(registers, LazyRegisters)]
        for registers in waits_for:
            if registers.depth >= _DEEPEST:
                registers.compute_all()
        self.depth: int = 1 + max([registers.depth for registers in waits_for], default=0)  # of the chain, these included
        self._places = {place: number for number, place in enumerate(places)}
        self._compute, self._at_once, self._ahead = compute, at_once, ahead
        self._made: dict[tuple[int, ...], Atom] = {}
        self._begun: set[int] = set()  # rows that were asked for

    def __getitem__(self, place: tuple[int, ...]) -> Atom:
        row = self._places[place] // self._at_once
        if row not in self._begun:
            self._begun.add(row)
            for one in islice(self._places, row * self._at_once, (row + 1 + self._ahead) * self._at_once):
                if one not in self._made:
                    self._made[one] = self._compute(one)
        return self._made[place]

    def compute_all(self) -> None:
        """Computes all that was not asked for yet."""
        for place in self._places:
            self[place]
        self.depth = 0

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True)
class Shared:
    """A tile as invocations hold it."""

    shape: tuple[int, ...]
    layout: TileLayout
    registers: Registers
    is_filled: bool = False  # all elements are known to be the same, in all invocations: they fit any layout

    @property
    def type(self) -> Type:
        """The type of the elements."""
        return next(iter(self.registers.values())).type


class Exchanger(Rewriter):
    """Copies a Program of tiles, with what its invocations need to know of their places and of each other. `share_bytes` is what the array of each type may
    take, where an element takes `least_bytes` at least. On a target whose subgroups have so many `lanes`, unless 0, these hand each other values.
    `is_staggered` says that strips of products lie so that rows which several invocations read at once are in different banks."""

    is_staggered = False

    def __init__(self, program: Program, target: str, invocations: InvocationGrid, share_bytes: int, least_bytes: int = 1, lanes: int = 0) -> None:
        super().__init__(program)
        self._target = target
        self.workgroup = (invocations.columns, invocations.rows, 1)
        self.m = MathBuilder(self)
        self.invocations = invocations
        self.lanes = lanes if lanes and invocations.count % lanes == 0 else 0
        self._share_bytes, self._least_bytes = share_bytes, least_bytes
        self._arrays: dict[tuple[Type, str], Memory] = {}
        self._needed: dict[tuple[Type, str], int] = {}
        self._places: dict[Line, Atom] = {NOT_SHARED: word(0)}
        self._elements: dict[tuple[Line, int], Atom] = {}
        self.index = self.m("local_index")

    # ---- where an invocation is

    def prepare(self, tiles: Iterable[tuple[TileLayout, tuple[int, ...]]]) -> None:
        """Binds the places of invocations and the indices of their elements for tiles of these layouts and shapes, before all other statements."""
        for layout, shape in dict.fromkeys(tiles):
            for axis, extent in enumerate(shape):
                self.bind(layout.line(shape, axis))
                self.bind(replace(layout.line(shape, axis), step=1))  # an invocation's number along the axis
                line = layout.line(shape, axis) if extent > 1 else NOT_SHARED
                for offset in layout.offsets(shape, axis):
                    if (line, offset) not in self._elements:
                        here = self.bind(line)
                        self._elements[line, offset] = word(offset) if not line.is_shared else self.m("add", here, offset) if offset else here

    def bind(self, line: Line) -> Atom:
        """The invocation's place on a line; bound, where it is not yet, before all other statements."""
        if line not in self._places:
            self._places[line] = self._bound(line)
        return self._places[line]

    def _bound(self, line: Line) -> Atom:
        grid = self.invocations
        if not line.is_shared:
            return word(0)
        if line.count == 1 and line.then is not None:
            return self.bind(line.then)
        if (line.over, line.count) == (1, grid.columns):
            place: Atom = self.m("local_id.x")
        elif (line.over, line.count) == (grid.columns, grid.rows):
            place = self.m("local_id.y")
        else:
            place = self.m("shr", self.index, line.over.bit_length() - 1) if line.over > 1 else self.index
            if line.over * line.count < grid.count:
                place = self.m("and", place, line.count - 1)
        place = self.scaled(place, line.step)
        return place if line.then is None else self.m("add", place, self.bind(line.then))

    def here(self, layout: TileLayout, shape: tuple[int, ...], axis: int) -> Atom:
        """The invocation's number along an axis of a tile, whether its extent is shared or not."""
        return self._places[replace(layout.line(shape, axis), step=1)]

    def element(self, layout: TileLayout, shape: tuple[int, ...], axis: int, register: int) -> Atom:
        """The index along an axis of the element that a register stands for; bound by `prepare`."""
        line = layout.line(shape, axis) if shape[axis] > 1 else NOT_SHARED
        return self._elements[line, layout.offsets(shape, axis)[register]]

    def scaled(self, x: Atom, number: int) -> Atom:
        """x times a number."""
        return x if number == 1 else self.m("mul", x, number)

    def linear(self, layout: TileLayout, shape: tuple[int, ...], register: Sequence[int], strides: Sequence[int]) -> Atom:
        """Where the element of a register lies in an array with these strides."""
        total: Atom | None = None
        for axis, (r, stride) in enumerate(zip(register, strides, strict=True)):
            if shape[axis] > 1:
                term = self.scaled(self.element(layout, shape, axis, r), stride)
                total = term if total is None else self.m("add", total, term)
        return word(0) if total is None else total

    def inside(self, layout: TileLayout, shape: tuple[int, ...], register: Sequence[int]) -> Atom | None:
        """Whether a register stands for an element of the tile; None where it does in all invocations."""
        known: Atom | None = None
        for axis, r in enumerate(register):
            if layout.is_ragged(shape, axis, r):
                known = self.both(known, self.m("lt", self.element(layout, shape, axis, r), word(shape[axis])))
        return known

    def both(self, a: Atom | None, b: Atom | None) -> Atom | None:
        """Whether two conditions hold, of which each may be None for one that does."""
        return self.m("logical_and", a, b) if a is not None and b is not None else b if a is None else a

    def where(self, condition: Atom | None, x: Atom, otherwise: Atom) -> Atom:
        """x where a condition holds, which may be None for one that does."""
        return x if condition is None else self.m("select", condition, x, otherwise)

    # ---- arrays

    def element_bytes(self, type_: Type) -> int:
        """What an element of a type takes of workgroup memory."""
        return max(type_.size_bytes, self._least_bytes)

    def capacity(self, type_: Type) -> int:
        """How many elements of a type an exchange may have under way at once."""
        return self._share_bytes // self.element_bytes(type_)

    def require(self, type_: Type, elements: int, what: str) -> None:
        """Raises Unsupported where so many elements have no room at once."""
        if self.capacity(type_) < elements:
            needed = f"{elements * self.element_bytes(type_)} bytes of workgroup memory"
            self.refuse(f"{what} of {type_} by {self.invocations.count} invocations, which takes {needed} of {self._share_bytes} for each type,", _FEWER)

    def refuse(self, what: str, help: str) -> NoReturn:
        """Raises Unsupported for a statement that the target has no room for."""
        raise Unsupported(self._target, [Missing(what, self.place, help)])

    def array(self, type_: Type, elements: int, name: str = "") -> Memory:
        """The array of a type, and a name of its own, with room for so many elements; the one that exchanges share, which has no name, for at most its
        capacity. Until the Program is finished it says nothing of its size."""
        key = (type_, name)
        self._needed[key] = max(self._needed.get(key, 1), elements)
        if key not in self._arrays:
            called = f"tile:{name} {type_}" if name else f"tile:{type_}"
            self._arrays[key] = Memory(called, Space.WORKGROUP, type_, (DimConst(1),), Access.READ_WRITE)
        return self._arrays[key]

    def finish(self, places: Sequence[Place | None] | None = None) -> Program:
        """The Program, whose arrays have their sizes."""
        sized = {old: replace(old, shape=(DimConst(self._needed[key]),)) for key, old in self._arrays.items()}
        self.memories += sized.values()
        self.body = [_over(s, sized) if isinstance(s, MemoryStatement) else s for s in self.body]
        return super().finish(places)

    # ---- exchanges

    def moved(self, tile: Shared, layout: TileLayout) -> Shared:
        """A tile in another layout."""
        if tile.layout == layout:
            return tile
        return self.arranged(tile, row_major(tile.shape), tile.shape, layout)

    def arranged(self, tile: Shared, strides: Sequence[int], to: tuple[int, ...], layout: TileLayout, rows: Sequence[int] | None = None) -> Shared:
        """A tile of shape `to` in some layout, whose elements lie meanwhile where the strides `rows` say, row-major unless given, and those of `tile` where
        `strides` say."""
        rows = row_major(to) if rows is None else rows
        if (kept := _unmoved(tile, strides, to, layout, rows)) is not None:
            return kept
        total = span(to, rows)
        self.require(tile.type, 1, "an exchange")
        step = min(total, self.capacity(tile.type))
        array = self.array(tile.type, step)
        sources = [
            (self.where(self.inside(tile.layout, tile.shape, r), self.linear(tile.layout, tile.shape, r, strides), NOWHERE), value)
            for r, value in tile.registers.items()
        ]
        targets = {r: self.linear(layout, to, r, rows) for r in layout.registers(to)}
        made: dict[tuple[int, ...], Atom] = {}
        for first in range(0, total, step):
            self.barrier()
            for place, value in sources:
                self.store(array, (self._less(place, first),), value)
            self.barrier()
            for r, place in targets.items():
                here = self._less(place, first)
                found = self.load(array, (here,))
                made[r] = found if r not in made else self.m("select", self.m("lt", here, word(step)), found, made[r])
        return Shared(to, layout, made)

    def _less(self, place: Atom, first: int) -> Atom:
        """A place from the first element of a step on. One before it wraps, and one behind it is past the end: both are outside."""
        return self.m("sub", place, first) if first else place

    def transposed(self, tile: Shared, axes: Sequence[int], layout: TileLayout) -> Shared:
        """A tile whose axis k is axis `axes[k]` of another, in some layout. Invocations store across the rows that they load: these are padded, so that both
        go to all banks, unless that takes a step more."""
        to, size = tuple([tile.shape[axis] for axis in axes]), self.element_bytes(tile.type)
        rows = row_major(to)
        if axes[-1] != len(axes) - 1:
            padded = apart(to, size)
            if -(-span(to, padded) // self.capacity(tile.type)) == -(-prod(to) // self.capacity(tile.type)):
                rows = padded
        strides = dict(zip(axes, rows, strict=True))
        return self.arranged(tile, [strides[axis] for axis in range(len(to))], to, layout, rows)

    def told(self, value: Atom) -> Value:
        """A value that all invocations hold, as one that they are known to."""
        self.require(value.type, 1, "an element")
        array = self.array(value.type, 1)
        self.barrier()
        self.first_alone()
        self.store(array, (word(0),), value)
        self.end()
        return self.uniform_load(array, (word(0),))

    def shuffled(self, op: str, value: Atom, by: Atom) -> Value:
        """The value of another lane of the subgroup."""
        self.subgroup = self.lanes
        return self.together(SUBGROUPS[op], (value, by))

    def folded(self, op: str, value: Atom) -> Value:
        """The fold of a value over all lanes of the subgroup."""
        self.subgroup = self.lanes
        return self.together(SUBGROUPS[op], (value,))

    def first_alone(self) -> None:
        """Opens a block for the first invocation of the workgroup."""
        self.if_(self.m("eq", self.index, word(0)))


def _over(s: MemoryStatement, memories: Mapping[Memory, Memory]) -> Statement:
    """A statement over other memories in place of some."""
    changed: dict[str, Any] = {name: memories[memory] for name in s.payload if (memory := getattr(s, name)) in memories}
    return replace(s, **changed) if changed else s


def _places(layout: TileLayout, shape: tuple[int, ...], strides: Sequence[int]) -> tuple[Counter[int], dict[tuple[int, ...], int]]:
    """Where the elements that an invocation holds lie in an array with these strides: what each bit of its number adds, and what each register does."""
    bits, registers = Counter[int](), dict.fromkeys(layout.registers(shape), 0)
    for axis, stride in enumerate(strides):
        if shape[axis] == 1:
            continue
        line: Line | None = layout.line(shape, axis)
        while line is not None:
            for bit in range(line.count.bit_length() - 1):
                bits[line.over.bit_length() - 1 + bit] += stride * line.step << bit
            line = line.then
        offsets = layout.offsets(shape, axis)
        for register in registers:
            registers[register] += stride * offsets[register[axis]]
    return bits, registers


def _unmoved(tile: Shared, strides: Sequence[int], to: tuple[int, ...], layout: TileLayout, rows: Sequence[int]) -> Shared | None:
    """What `Exchanger.arranged` gives, where each invocation holds its elements already; None where some do not. What a register holds past the extent of
    the outermost axis lies past all elements; past that of another axis it would lie where an element does, so that there no register stands for that."""
    if tile.is_filled:
        return Shared(to, layout, dict.fromkeys(layout.registers(to), next(iter(tile.registers.values()))), True)
    outermost = max([stride for stride, extent in zip(strides, tile.shape, strict=True) if extent > 1], default=0)
    if any(tile.layout.is_ragged(tile.shape, axis, r[axis]) for r in tile.registers for axis, stride in enumerate(strides) if stride != outermost):
        return None
    (bits, held), (needed, registers) = _places(tile.layout, tile.shape, strides), _places(layout, to, rows)
    by_place = {place: register for register, place in held.items()}
    if bits != needed or not by_place.keys() >= set(registers.values()):
        return None
    return Shared(to, layout, LazyRegisters(registers, lambda register: tile.registers[by_place[registers[register]]], of=[tile.registers]))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The stride of each axis, the last axis fastest."""
    return tuple([prod(shape[axis + 1 :]) for axis in range(len(shape))])


def apart(shape: Sequence[int], size_bytes: int) -> tuple[int, ...]:
    """The stride of each axis, the last axis fastest, where neighbours along any other axis lie an odd number of words, or of larger elements, apart: a GPU's
    banks are a power of two of words."""
    strides, unit = [1], max(1, _WORD_BYTES // size_bytes)
    for extent in reversed(shape[1:]):
        units = -(-extent * strides[-1] // unit) | 1
        strides.append(units * unit)
    return tuple(reversed(strides))


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements an array has that holds a tile with these strides."""
    return 1 + sum([(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)])


def outside(type_: Type) -> Const:
    """An index of no element: -1, or the greatest."""
    return Const(type_, (1 << type_.bits) - 1)
