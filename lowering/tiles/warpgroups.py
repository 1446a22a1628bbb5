"""Products of warpgroups, in the rewrite of a Program for tensor cores: begun where they stand, and waited for where their sums are first needed.

A product that only adds to a variable may last into the next turn of its loop: its sums stay in their private array until the loop ends. One that is late
(`rings`) is begun in the next turn: what it is of is kept in private arrays until then, and the variable gets its sums when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Const,
    Get,
    Let,
    Memory,
    Set,
    Space,
    Tile,
    Value,
    Variable,
    WarpgroupProduct,
    WarpgroupWait,
    const,
)
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.types import Type
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import NOWHERE, Shared
from vyre_py.lowering.tiles.rings import GROUPS, Ring, RingPlan, Strip, lanes_of, padded
from vyre_py.lowering.tiles.tensor import WARP, Accumulator, Layouts
from vyre_py.lowering.tiles.viewed import ViewedRewrite

__all__ = ["WarpgroupRewrite"]

_COLUMNS: Final = 8  # of sums that lie together
_PAIR: Final = 2  # of these, that a lane has
_WORD_BITS: Final = 32


@dataclass(slots=True, eq=False)
class _Flight:
    """A product of warpgroups that is under way: the private array of its sums, and where that has each register. It has `landed` once somebody waited."""

    sums: Memory
    places: Mapping[tuple[int, ...], Const]
    landed: bool = False


def _places(columns: int) -> dict[tuple[int, ...], Const]:
    """Where the private array of a product of warpgroups has the registers of so many columns."""
    return {(h, 2 * c + e): word(4 * c + 2 * h + e) for c in range(columns // _COLUMNS) for h in range(2) for e in range(_PAIR)}


class WarpgroupRewrite(ViewedRewrite):
    """A Program with a plan of its rings, whose products of warpgroups read strips of these, or what the lanes hold."""

    _plan: RingPlan

    def _follow(self, layouts: Layouts) -> None:
        """Makes ready for the products of the plan, whose sums lie in these layouts."""
        self._layouts = layouts
        self._warpgroup: Atom = word(0)  # the invocation's
        self._now: dict[int, Atom] = {}  # by loop: the strip of the turn at hand
        self._due: dict[int, Callable[[], None]] = {}  # by loop: the copies of the turn at hand, until they are begun
        self._lasting: dict[int, dict[int, Variable]] = {}  # by loop: the variables that its products add to all the time, by these
        self._idle: set[int] = set()  # the statements that would read and set such a variable in the loop
        self._turns: dict[int, Atom] = {}  # by loop: how many turns there were
        self._counters: dict[int, Variable] = {}  # by loop: of these
        self._rounds: dict[int, tuple[Variable, Variable]] = {}  # by loop: the strip of the next turn, and how often that came round
        self._first_turns: set[int] = set()  # the loops of which the first turn is written
        self._flights: list[_Flight] = []  # products of warpgroups that were begun and not all waited for, in order
        self._late_variables = {product: variable for ring in self._plan.rings.values() for product, variable in ring.late.items()}
        self._late_sets = set(map(self._setting, self._late_variables))
        self._late_flights: dict[int, tuple[_Flight, int]] = {}  # by variable, with the loop
        # By the statement that multiplies what a late product adds to by a factor for each row: that product, and the factors.
        self._late_factors = {found[0]: (product, found[1]) for product in self._late_variables if (found := self._late_factor(product)) is not None}
        self._told: dict[int, Callable[[], None]] = {}  # by loop: what tells others that a turn has done with its strips, until they are told
        self._last_set: dict[int, list[Atom]] = {}  # by loop: what the registers of a tile were set to that was set last in its own block

    def _product_of_warpgroups(self, index: int, s: Tile) -> None:
        """Begins a product, and the late ones of the turn before with the first of a turn; or keeps a late one until then."""
        if index in self._late_variables:
            self._put_late(index, s)
            return
        layout, loop = self._layouts.values[s.bound.id], self._plan.block_of(index)
        if index in self._plan.of_registers:
            self._put_held(index, s)
        if index in self._lasting.get(loop, ()):
            flight = self._fly(index, s, None, adds=True)
            self._begun(index, loop)
            self._land(flight, lasts=True)
            if index == max(self._plan.rings[loop].products):
                self._free_before(loop)
            return
        acc = self.tile_of(s.args[2])
        is_new = s.op.name == "mma_tensor" and acc.is_filled and all(isinstance(a, Const) and not a.bits for a in acc.registers.values())
        flight = self._fly(index, s, None if is_new else self.moved(acc, layout))
        self._begun(index, loop)

        def landed(register: tuple[int, ...]) -> Atom:
            self._land(flight)
            return self.load(flight.sums, (flight.places[register],))

        self.keep(s.bound, Shared(s.bound.type.shape, layout, self.lazy(s.bound, flight.places, landed, len(flight.places))))

    def _begun(self, index: int, loop: int) -> None:
        """A product of a turn was begun."""
        if index == min(self._plan.rings[loop].products):
            self._fly_late(loop)
        if loop in self._due:
            self._due.pop(loop)()

    def _free_before(self, loop: int) -> None:
        """Behind a wait for all products but those of the turn at hand: the strips of the turn before are free, which nobody waits for here."""

    def _fly(self, index: int, s: Tile, acc: Shared | None, *, adds: bool = False) -> _Flight:
        """Begins a product, which is added to a tile, if there is one, or if it `adds` to what its sums are already."""
        (m, depth), (_, n) = s.args[0].type.shape, s.args[1].type.shape
        flight = self._flight(index, s)
        rows: Atom = word(0)
        if acc is not None:
            self._put(acc, flight.sums, flight.places)
        if index in self._plan.of_registers:
            left = self._held(index, s)
        else:
            strip, first = self._factor(s.args[0], 0)
            left, rows = strip.memory, self.m("add", first, self.m("mul", self._warpgroup, 64 * GROUPS))
        right, right_first = self._factor(s.args[1], 1)
        is_more = int(adds or acc is not None)
        self.emit(WarpgroupProduct(None, (rows, right_first), flight.sums, left, right.memory, m, depth, n, int(right.along_k), is_more))
        self._flights.append(flight)
        return flight

    def _flight(self, index: int, s: Tile) -> _Flight:
        """Where the sums of a product are while it is under way: each has an array of its own."""
        places = _places(s.bound.type.shape[1])
        return _Flight(self._array(f"tile:sums.{index}", Space.PRIVATE, s.bound.type.scalar, len(places)), places)

    def _put(self, tile: Shared, memory: Memory, places: Mapping[tuple[int, ...], Const]) -> None:
        for r, at in places.items():
            self.store(memory, (at,), tile.registers[r])

    def _held(self, index: int, s: Tile) -> Memory:
        """The private array of what a lane has of a product's first factor."""
        (_, depth), type_ = s.args[0].type.shape, s.args[0].type.scalar
        return self._array(f"tile:held.{index}", Space.PRIVATE, type_, len(_places(depth)))

    def _put_held(self, index: int, s: Tile) -> None:
        tile = self.moved(self.tile_of(s.args[0]), Accumulator(self.invocations.count // WARP, 1))
        self._put(tile, self._held(index, s), _places(tile.shape[1]))

    def _land(self, flight: _Flight, *, lasts: bool = False, behind: Sequence[Atom] = ()) -> None:
        """Waits until the sums of a product are there, `behind` what computes some values; for those before it alone if it `lasts` into the next turn."""
        if not flight.landed:
            flight.landed = True
            after = len(self._flights) - self._flights.index(flight) - (not lasts)
            self.emit(WarpgroupWait(None, (word(after), *behind), flight.sums, int(not lasts)))
            if all(one.landed for one in self._flights):
                self._flights.clear()

    # ---- products of the turn before

    def _late_factor(self, product: int) -> tuple[int, Value] | None:
        """The statement that multiplies what a late product adds to by a factor for each row, and this, if nothing else is made of either, and nobody reads
        the variable from there on, which is multiplied in its place."""
        body, counts = self.program.body, uses(self.program)
        scaled = self._tile_at(product).args[2]
        assert isinstance(scaled, Value)  # a tile
        at = self._plan.maker(scaled)
        s = body[at]
        if not isinstance(s, Let) or s.op.name != "mul" or counts[scaled.id] != 1 or self._plan.block_of(at) != self._plan.block_of(product):
            return None
        for one, other in (s.args, s.args[::-1]):
            of = body[self._plan.maker(one)] if isinstance(one, Value) and counts[one.id] == 1 else None
            is_late = isinstance(of, Get) and of.variable is self._late_variables[product] and of.variable.type == scaled.type
            is_read = any(isinstance(s, Get) and s.variable is self._late_variables[product] for s in body[at + 1 : product])
            if is_late and not is_read and isinstance(other, Value) and other.type.is_tile and other.type.shape[1] == 1 < scaled.type.shape[1]:
                return at, other
        return None

    def _scale_late(self, product: int, by: Value) -> None:
        """Multiplies what a late product adds to, where a lane of the subgroup has a factor that is not 1: what is multiplied by 1 has the same bits. Rows of
        attention seldom find a greater score after some blocks of keys."""
        self.settle()
        m, variable, scaled = self.m, self._late_variables[product], self._tile_at(product).args[2]
        assert isinstance(scaled, Value)  # a tile
        layout, parts = self.parts_of(variable)
        factors = self.moved(self.tile_of(by), layout).registers
        changes: list[Atom] = [m("ne", factor, const(by.type.scalar, 1.0)) for factor in factors.values()]
        self.subgroup = self.lanes
        self.if_(self.together(SUBGROUPS["any"], (reduce(partial(m, "logical_or"), changes),)))
        for register, part in parts.items():
            self.set(part, m("mul", self.get(part), factors[register[0], 0]))
        self.end()
        self.keep(scaled, Shared(variable.type.shape, layout, {register: self.get(part) for register, part in parts.items()}))

    def _note_set(self, index: int, s: Set) -> None:
        """A variable was set."""
        loop = self._plan.block_of(index)
        if isinstance(s.args[0], Value) and s.args[0].id in self._tiles and loop in self._plan.rings:
            self._last_set[loop] = list(self._tiles[s.args[0].id].registers.values())

    def _setting(self, product: int) -> int:
        """The statement that sets the variable of a late product to it."""
        made = self.program.body[product].result
        return next(index for index, s in enumerate(self.program.body) if isinstance(s, Set) and s.args[0] is made)

    def _put_late(self, index: int, s: Tile) -> None:
        """Keeps what a late product is of, until the next turn."""
        self._land_late(self._late_variables[index])
        self._put_held(index, s)  # which tensor cores read until now
        flight = self._flight(index, s)
        self._put(self.moved(self.tile_of(s.args[2]), self._layouts.values[s.bound.id]), flight.sums, flight.places)

    def _fly_late(self, loop: int) -> None:
        """Begins the late products of the turn before; before the first turn there were zeros, or none where that is written by itself."""
        if loop in self._first_turns:
            return
        for product, variable in self._plan.rings[loop].late.items():
            self._late_flights[variable.id] = self._fly(product, self._tile_at(product), None, adds=True), loop

    def _land_late(self, variable: Variable) -> None:
        """Waits for the late product of a variable, if it is under way: as late as may be, behind all that was set in this turn."""
        if (found := self._late_flights.pop(variable.id, None)) is not None:
            self.settle()
            flight, loop = found
            self._land(flight, behind=[atom for atom in self._last_set.get(loop, ()) if atom.type.bits == _WORD_BITS])
            if not self._flights:
                self._told.pop(loop, lambda: None)()
            self._take(variable, flight)

    def _take(self, variable: Variable, flight: _Flight) -> None:
        """Sets a variable to the sums of a product."""
        _, parts = self.parts_of(variable)
        for r, at in flight.places.items():
            self.set(parts[r], self.load(flight.sums, (at,)))

    def _put_variable(self, variable: Variable, flight: _Flight) -> None:
        """What a product adds to is what a variable holds."""
        layout, parts = self.parts_of(variable)
        self._put(Shared(variable.type.shape, layout, {r: self.get(part) for r, part in parts.items()}), flight.sums, flight.places)

    def _tile_at(self, product: int) -> Tile:
        s = self.program.body[product]
        assert isinstance(s, Tile)  # a product
        return s

    def _begin_products(self, loop: int, ring: Ring) -> None:
        """Before a loop: what its lasting and its late products add to, and for these a first factor of zeros for the turn before the first. An empty group of
        products in place of that would be one to wait for."""
        for product in sorted(ring.products & self._plan.of_warpgroups) if ring.is_spare else ():
            s = self._tile_at(product)
            if product not in ring.late and (lasting := self._plan.lasting_variable(loop, s)) is not None and isinstance(s.args[2], Value):
                self._lasting.setdefault(loop, {})[product] = lasting
                self._idle |= {self._plan.maker(s.args[2]), self._setting(product)}
                self._put_variable(lasting, self._flight(product, s))
        for product, variable in ring.late.items():
            s = self._tile_at(product)
            self._put_variable(variable, self._flight(product, s))
            held, zero = self._held(product, s), Const(s.args[0].type.scalar, 0)
            for at in _places(s.args[0].type.shape[1]).values():
                self.store(held, (at,), zero)

    def _end_products(self, loop: int) -> None:
        """Behind a loop: waits for the products of the last turn, and computes the late ones."""
        for product, variable in self._lasting.get(loop, {}).items():
            flight = self._flight(product, self._tile_at(product))
            self.emit(WarpgroupWait(None, (word(0),), flight.sums, 1))
            self._take(variable, flight)
        ring = self._plan.rings[loop]
        if not ring.late:
            return
        self._turns[loop] = self.get(self._counters[loop])
        self._now[loop] = self.m("rem", self._turns[loop], ring.count)
        self.if_(self.m("ne", self._turns[loop], word(0)))
        self.barrier()
        self._compute_late(ring)
        self.end()
        self._take_late(ring)

    def _compute_late(self, ring: Ring, begun: Callable[[], None] = lambda: None) -> None:
        """Behind a loop that had turns: computes the late products of the last one, with what is done once they are `begun`."""
        flights = [self._fly(product, self._tile_at(product), None, adds=True) for product in ring.late]
        begun()
        for flight in flights:
            self._land(flight)

    def _take_late(self, ring: Ring) -> None:
        """Sets the variables of late products to what has become of them."""
        for product, variable in ring.late.items():
            self._take(variable, self._flight(product, self._tile_at(product)))

    # ---- factors

    def _array(self, name: str, space: Space, type_: Type, *shape: int) -> Memory:
        """The array of a name."""
        memory = next((m for m in self.memories if m.name == name), None)
        sizes = tuple(map(DimConst, shape))
        if memory is None:
            memory = Memory(name, space, type_, sizes, Access.READ_WRITE)
            self.memories.append(memory)
        assert (memory.type, memory.shape) == (type_, sizes), "arrays of one name are the same"
        return memory

    def _factor(self, atom: Atom, number: int, *, swizzled: bool = False) -> tuple[Strip, Atom]:
        """The strip in which a factor lies, and where that begins, in groups; it is put into one, perhaps a `swizzled` one, if it is in none."""
        assert isinstance(atom, Value)  # a tile
        if atom.id in self._plan.strips:
            strip, loop = self._plan.strips[atom.id]
            return strip, word(0) if strip.count == 1 else self.m("mul", self._now[loop], strip.groups)
        tile = self.moved(self.tile_of(atom), self.invocations)
        rows, length = tile.shape
        along_k, lanes = number == 0, lanes_of(tile.type) * (2 if swizzled else 1)
        stride = length if swizzled else padded(length, tile.type, along_k=along_k)
        kind = f"{number}.swizzled" if swizzled else number  # an array has one way to lie
        memory = self._array(f"tile:{tile.type}.{rows}x{length}.{kind}", Space.WORKGROUP, tile.type, rows * stride // lanes, lanes)
        strip, m = Strip(memory, rows, length, stride, 1, along_k, lanes, swizzled), self.m
        self.barrier()
        for r, value in tile.registers.items():
            row, column = [self.element(tile.layout, tile.shape, axis, r[axis]) for axis in range(2)]
            group = self._group(strip, row, m("shr", column, lanes.bit_length() - 1))
            self.store(memory, (self.where(self.inside(tile.layout, tile.shape, r), group, NOWHERE), m("and", column, lanes - 1)), value)
        self.barrier()
        return strip, word(0)

    def _group(self, strip: Strip, row: Atom, column: Atom) -> Atom:
        """Where a group of a row lies in a strip."""
        m = self.m
        if not strip.swizzled:
            return m("add", m("mul", row, strip.stride // strip.lanes), column)
        groups = strip.across
        turn = m("and", row if groups == GROUPS else m("shr", row, (GROUPS // groups).bit_length() - 1), groups - 1)
        place = m("add", m("mul", row, groups), m("xor", m("and", column, groups - 1), turn))
        return place if strip.length == groups * strip.lanes else m("add", m("mul", m("div", column, groups), strip.rows * groups), place)
