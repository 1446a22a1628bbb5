"""Programs some of whose invocations do nothing but begin the copies of a ring, and all others everything else: a warpgroup more, most of whose registers these
get, whose first invocation is a turn or more ahead wherever strips are free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import (
    Access,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Assert,
    Atom,
    ClusterBarrier,
    For,
    GridBarrier,
    GridScan,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Print,
    Return,
    Statement,
    Tile,
    TileLoad,
    UniformLoad,
    Value,
    Variable,
    WarpgroupBarrier,
    WarpgroupRegisters,
)
from vyre_py.ir.language.ops import TRANSCENDENTAL
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.boxes import BOTH, TURN, BoxRewrite, counter, is_parted
from vyre_py.lowering.tiles.grid_walk import GridWalk, in_bands
from vyre_py.lowering.tiles.rings import Ring
from vyre_py.lowering.tiles.viewed import splits

__all__ = ["CLUSTER", "FEW_LOADS", "HELD", "RoleRewrite"]

_APART: Final = (Return, GridScan, GridBarrier, UniformLoad, Assert, Print)  # which all invocations of a workgroup have to reach
_WARPGROUP: Final = 128  # invocations
_WARPGROUPS: Final = 2  # that compute: with one more they may have as many registers together as there are
CLUSTER: Final = 2  # workgroups that may share what they load: neighbours of a band, in one column of the grid
# Registers of an invocation that copies, and of one that computes.
_FEW, _MANY = 24, 240
_TAKES_MORE: Final = frozenset({*TRANSCENDENTAL, "div"})
# Multiply-adds of a turn from which on its copies may go on into the next place. To say of which place they are takes longer than it gains in short turns: on
# an H100 attention of heads of 128 over 2,048 keys goes from 0.95 to 0.98 of cuDNN by 128 keys a turn, over 8,192 by 64 from 0.81 to 0.76.
_LONG_TURN: Final = 2 * 128**3
FEW_LOADS: Final = 8  # of elements at once, beside many sums
_WORD_BYTES: Final = 4  # of a register
# Registers of sums, and of what is loaded at once and ahead beside them, that an invocation may have: nvJitLink gives all as many registers, 168, whatever it
# is asked for here and there.
HELD: Final = 144

_Copies = Callable[[For, Ring, Atom, Atom, Atom], None]  # of a loop and its ring: for a value of its variable, with its step, into the strips of a number


def _operations(product: Tile) -> int:
    """How many multiply-adds a product is."""
    (rows, depth), (_, columns) = product.args[0].type.shape, product.args[1].type.shape
    return rows * depth * columns


def _tells_all(s: Statement) -> bool:
    """Whether a statement of tiles tells all invocations something that one of them has, for which all have to come."""
    return (isinstance(s, Tile) and s.op.name == "item") or (isinstance(s, Load) and s.memory.access.writes)


@dataclass(frozen=True, slots=True)
class _Fed:
    """A loop whose copies go from place to place of the grid, statement `loop`, with its `ring`, and the statements before it from which their `offsets` are
    computed."""

    loop: int
    ring: Ring
    offsets: tuple[int, ...]


class RoleRewrite(BoxRewrite):
    """A Program with a plan, one of whose rings other invocations may fill than those that compute."""

    _producer: _Fed | None = None
    _onward: _Fed | None = None  # a loop whose warpgroups take turns, and whose copies go on into the next place
    _computes = False  # whether what is written is for those that compute alone
    _walk: GridWalk | None = None
    _grid_places: Mapping[str, Atom]
    _first: Atom  # how many turns there were before the loop that is being written

    def _find_producer(self) -> None:
        """Has others fill the ring of a Program that has one, if all that they need to know is computed from the workgroup's place alone, and if the loop
        does nothing but add products to variables."""
        program, plan = self.program, self._plan
        if len(plan.rings) != 1 or self.invocations.count != _WARPGROUPS * _WARPGROUP or any(isinstance(s, _APART) for s in program.body):
            return
        ((loop, ring),) = plan.rings.items()
        s = program.body[loop]
        plain = ring.arrivals is not None and ring.is_spare and not (ring.staying or ring.late) and ring.products <= plan.of_warpgroups - plan.of_registers
        products = [product for at in ring.products if isinstance(product := program.body[at], Tile)]
        # Functions of tiles take registers beside these; so do quotients of f32, of f64 where a kernel may not call anything.
        takes_more = any(isinstance(other, Let) and other.op.name in _TAKES_MORE and other.bound.type.is_tile for other in program.body)
        # Beside sums few elements are loaded at once, and as many ahead; what follows is computed element by element.
        held = sum([prod(product.bound.type.shape) for product in products]) // self.invocations.count + 2 * self._registers_beside()
        if takes_more or any(map(_tells_all, program.body)) or held > HELD:
            return
        if not plain or plan.block_of(loop) >= 0 or not isinstance(s, For) or any(self._plan.lasting_variable(loop, product) is None for product in products):
            return
        inside = [program.body[at] for at in (*ring.loads, *ring.slice)]
        used = [*s.args, *[a for one in inside if isinstance(one, (TileLoad, Let)) for a in one.args]]
        offsets = self._lets([a for a in used if isinstance(a, Value) and plan.maker(a) < loop])
        if offsets is not None:
            ring.freed = counter(f"tile:freed.{loop}", ring)
            self._producer = _Fed(loop, ring, offsets)
            parted = {at for at, strip in ring.loads.items() if is_parted(strip, CLUSTER)}
            as_often = not self._depends(s.args, "workgroup_id.y")  # whose loops have other turns wait for each other for ever
            ring.shared = {at for at in parted if as_often and not self._depends(program.body[at].args, "workgroup_id.y")}

    def _find_onward(self) -> None:
        """Has the copies of a loop whose warpgroups take turns go on into the workgroup's next place of the grid, if its turns are the same at all, and if all
        that copies need to know is computed from the place alone."""
        program, plan = self.program, self._plan
        if len(plan.rings) != 1 or any(isinstance(s, _APART) for s in program.body) or any(map(_tells_all, program.body)):
            return
        ((loop, ring),) = plan.rings.items()
        s = program.body[loop]
        long = sum([_operations(product) for at in ring.products if isinstance(product := program.body[at], Tile)]) >= _LONG_TURN
        if not long or not ring.take_turns or ring.arrivals is None or plan.block_of(loop) >= 0 or not isinstance(s, For) or s.bound.type is not u32:
            return
        bounds = self._lets([a for a in s.args if isinstance(a, Value)])
        if bounds is None or any(self._depends(s.args, f"workgroup_id.{axis}") for axis in "xyz"):
            return
        inside = [program.body[at] for at in (*ring.loads, *ring.slice, *ring.staying)]
        used = [a for one in inside if isinstance(one, (TileLoad, Let)) for a in one.args]
        offsets = self._lets([a for a in used if isinstance(a, Value) and plan.maker(a) < loop])
        if offsets is not None:
            ring.goes_on = True
            ring.arrivals = counter(ring.arrivals.name, ring)
            self._onward = _Fed(loop, ring, offsets)

    def _beside(self) -> list[TileLoad]:
        """The loads that no ring is filled by."""
        copied = {at for ring in self._plan.rings.values() for at in (*ring.loads, *ring.staying)}
        return [s for at, s in enumerate(self.program.body) if isinstance(s, TileLoad) and at not in copied]

    def _registers_beside(self) -> int:
        """The registers of what is loaded at once beside sums."""
        words = [(s.memory.type.size_bytes, self._loaded_together(s.memory)) for s in self._beside()]
        return sum([FEW_LOADS * size // _WORD_BYTES if size * together >= _WORD_BYTES else FEW_LOADS for size, together in words])

    def _loaded_together(self, memory: Memory) -> int:
        """How many neighbours a lane loads together of a buffer that is only read, by tiles that lie as sums do; 1 for any other."""
        touching = [s for s in self.program.body if isinstance(s, MemoryStatement) and s.memory is memory]
        loads = [s for s in touching if isinstance(s, TileLoad) and s.extents[-1] > 1 and s.bound.id in self._layouts.values]
        held = min([self._layouts.values[s.bound.id].neighbours(s.shape, len(s.shape) - 1) for s in loads], default=1)
        if memory.access is not Access.READ or len(loads) < len(touching) or not splits(memory, held):
            return 1
        return held if all(self._plan.multiple(s.indices[-1]) % held == 0 for s in loads) else 1

    def _depends(self, atoms: Sequence[Atom], query: str) -> bool:
        """Whether any of these is computed from a query, among others."""
        found, waiting = set[int](), list(atoms)
        while waiting:
            atom = waiting.pop()
            if not isinstance(atom, Value) or (at := self._plan.maker(atom)) in found:
                continue
            s = self.program.body[at]
            if isinstance(s, Let) and s.op.name == query:
                return True
            found.add(at)
            waiting += s.args if isinstance(s, (Let, For)) else ()
        return False

    def _lets(self, values: Collection[Value]) -> tuple[int, ...] | None:
        """The statements from which these are computed, in order; None if any is no Let of the body's own."""
        found, waiting = set[int](), list[Atom](values)
        while waiting:
            atom = waiting.pop()
            if not isinstance(atom, Value) or (at := self._plan.maker(atom)) in found:
                continue
            s = self.program.body[at]
            if not isinstance(s, Let) or s.bound.type.is_tile or self._plan.block_of(at) != -1:
                return None
            found.add(at)
            waiting += s.args
        return tuple(sorted(found))

    def _part_roles(self, copies: _Copies) -> None:
        """Writes what those do that copy, `copies` of a turn's strips; what follows is for the others. Both go from place to place of the grid."""
        if self._onward is not None:
            self._begin_onward(self._onward)
            return
        if self._producer is None:
            counts = any(isinstance(s, GridScan) for s in self.program.body)  # workgroups by their own numbers
            self._grid_places = {} if counts else in_bands(self, self.m("workgroup_id.x"), self.m("workgroup_id.y"))
            return
        ring, count = self._producer.ring, self.invocations.count
        assert ring.arrivals is not None and ring.freed is not None  # of what has a producer
        across, down, layers = self.workgroup
        self.workgroup = (across, down + _WARPGROUP // across, layers)
        self.emit(ArrivalsSet(None, (), ring.arrivals, 1, 0))
        self.emit(ArrivalsSet(None, (), ring.freed, _WARPGROUPS, int(bool(ring.shared))))
        self._meet(ring)
        self._walk = GridWalk(self)
        self.if_(self.m("ge", self._warpgroup, word(_WARPGROUPS)))
        self.emit(WarpgroupRegisters(None, (), _FEW, 0))
        self.if_(self.m("eq", self.index, word(count)))
        self._copier = count
        self._produce(self._producer, self._walk, copies)
        self.end()
        self.else_()
        self.emit(WarpgroupRegisters(None, (), _MANY, 1))
        self._computes = True
        self._counters[self._producer.loop] = self.var(u32, word(0))
        self._grid_places = self._walk.begin()

    def _meet(self, ring: Ring) -> None:
        """Waits for the workgroup, or for those that copy into each other's strips: none may do so before the other is ready, nor leave before it."""
        if ring.shared:
            self.emit(ClusterBarrier(None, ()))
        else:
            self.barrier()

    def _produce(self, producer: _Fed, walk: GridWalk, copies: _Copies) -> None:
        """Begins the copies of all turns of all places, each when its strips are free."""
        m, ring, before = self.m, producer.ring, list(self.map)
        s = self.program.body[producer.loop]
        assert isinstance(s, For) and ring.freed is not None  # as it was found
        counter = self.var(u32, word(0))
        self._grid_places = walk.begin()
        for at in producer.offsets:
            self.take(at)
        start, stop, step = [self.atom(a) for a in s.args]
        value = self.for_(start, stop, step)
        turn = self.get(counter)
        number = m("rem", turn, ring.count)
        self.emit(ArrivalsWait(None, (number, m("sub", m("div", turn, ring.count), word(1))), ring.freed))
        copies(s, ring, value, step, number)
        self.set(counter, m("add", turn, 1))
        self.end()
        walk.end()
        self.map = before

    # ---- copies that go on

    def _begin_onward(self, fed: _Fed) -> None:
        """Begins the walk from place to place, with what is the next one's."""
        assert fed.ring.arrivals is not None  # which boxes fill
        self.emit(ArrivalsSet(None, (), fed.ring.arrivals, 1, 0))
        self.barrier()
        self._rounds[fed.loop] = self.var(u32, word(0)), self.var(u32, word(0))
        self._are_begun, self._places_done, self._strip_begun = [self.var(u32, word(0)) for _ in range(3)]
        self._signal(TURN, 1, waits=0)
        self._walk = GridWalk(self)
        here, before = self._walk.begin(), list(self.map)
        self._grid_places, self._is_more = self._walk.following()
        for at in fed.offsets:
            self.take(at)
        self._next = {bound.id: self.atom(bound) for at in fed.offsets if (bound := self.program.body[at].result) is not None}
        self._grid_places, self.map = here, before

    def _first_strip(self, loop: int, ring: Ring, begin_copies: Callable[[Atom], None]) -> Atom:
        """Begins the copies of a loop's first turns, if the place before did not, and waits for the first one; gives the number of its strip."""
        if not ring.goes_on:
            return super()._first_strip(loop, ring, begin_copies)
        m, s = self.m, self.program.body[loop]
        start, stop, step = [self.atom(a) for a in s.args]
        turns = m("add", m("div", m("sub", m("sub", stop, start), 1), step), 1)
        self._span = m("mul", turns, step)
        # The last turns of a place can begin the copies of the next one's first turns alone.
        self._goes_on = m("logical_and", self._is_more, m("ge", turns, ring.ahead))
        self.if_(m("eq", self.get(self._are_begun), word(0)))
        self.barrier()  # others may still load from the strips
        begin_copies(self.get(self._rounds[loop][0]))
        self.set(self._strip_begun, self._next_strip(loop, ring))
        self.end()
        done = self.get(self._places_done)
        if ring.staying:
            assert ring.arrivals is not None  # which boxes fill
            self.emit(ArrivalsWait(None, (word(ring.once), done), ring.arrivals))
            self.set(self._places_done, m("add", done, 1))
        return self.get(self._strip_begun)

    def _look_further(self, s: For, ring: Ring, here: Atom | None, step: Atom, *, is_late: bool) -> None:
        """Has copies that the turn of a value begins be those of the next place's first turns, behind its own last one."""
        ahead = ring.ahead - is_late
        if not ring.goes_on or here is None or not ahead:
            return
        m, bound = self.m, s.bound.id
        left = m("sub", self.atom(s.args[1]), here)
        beyond = m("logical_and", self._goes_on, m("le", left, m("mul", step, word(ahead))))
        value = self.map[bound]
        assert value is not None and self._onward is not None  # that of the turn ahead
        self.map[bound] = m("select", beyond, m("sub", value, self._span), value)
        for old, following in self._next.items():
            own = self.map[old]
            if own is not None and own != following:
                self.map[old] = m("select", beyond, following, own)

    def _end_turns(self, loop: int) -> None:
        """Behind a loop whose copies go on: begins what is copied once for the next place, since both have done with that of this one; and computes the late
        products of the last turn, whose strip is that of the next place's first."""
        ring = self._plan.rings[loop]
        if not ring.goes_on:
            super()._end_turns(loop)
            return
        m, before = self.m, list(self.map)
        self._now[loop] = self._next_strip(loop, ring)
        self.set(self._strip_begun, self._now[loop])
        self._signal(TURN, BOTH, waits=1)
        self.if_(self._goes_on)
        self.map = [self._next.get(old, atom) for old, atom in enumerate(self.map)]
        self._begin_arrivals(ring)
        for index, strip in ring.staying.items():
            s = self.program.body[index]
            assert isinstance(s, TileLoad)  # of a ring
            self._copy_boxes(s, strip, ring, word(0), None, word(ring.once), parts=1)
        self.map = before
        self.end()
        self._compute_late(ring, partial(self._signal, TURN, BOTH, waits=0))
        self._take_late(ring)
        self.for_(m("select", self._goes_on, word(ring.ahead), word(1)), word(ring.ahead), word(1))
        self._next_strip(loop, ring)
        self.end()
        self.set(self._are_begun, m("select", self._goes_on, word(1), word(0)))
        self.end()

    # ---- what those do that compute

    def _counter(self, loop: int, ring: Ring) -> Variable:
        """The variable that counts a loop's turns; where others copy, of all places."""
        if ring.freed is None:
            return self.var(u32, word(0))
        self._first = self.get(self._counters[loop])
        return self._counters[loop]

    def _free_before(self, loop: int) -> None:
        ring = self._plan.rings[loop]
        if ring.freed is not None:
            m, turns = self.m, self._turns[loop]
            number = m("rem", m("add", turns, ring.count - 1), ring.count)
            self.emit(ArrivalsTell(None, (number, m("ne", turns, self._first)), ring.freed, int(bool(ring.shared))))

    def _free_last(self, loop: int) -> None:
        """Behind a loop, and all of its products: the strips of its last turn are free."""
        if self._plan.rings[loop].freed is not None:
            self._turns[loop] = self.get(self._counters[loop])
            self._free_before(loop)

    def barrier(self) -> None:
        """Waits for all that compute."""
        if self._computes:
            self.emit(WarpgroupBarrier(None, (), self.invocations.count))
        else:
            super().barrier()

    def finish(self, places: Sequence[Place | None] | None = None) -> Program:
        """The Program, with the end of what those do that compute."""
        if self._walk is not None:
            self.settle()
            self._walk.end()
        if self._onward is not None:
            self._signal(TURN, 0, waits=1)
        if self._producer is not None:
            self.end()
            if self._producer.ring.shared:
                self._meet(self._producer.ring)
        return super().finish(places)
