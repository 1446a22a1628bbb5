"""Programs some of whose invocations do nothing but begin the copies of a ring, and all others everything else: a warpgroup more, most of whose registers these
get, whose first invocation is a turn or more ahead wherever strips are free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import (
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
from vyre_py.lowering.tiles.boxes import BoxRewrite, counter
from vyre_py.lowering.tiles.grid_walk import GridWalk, in_bands
from vyre_py.lowering.tiles.rings import Ring

__all__ = ["CLUSTER", "FEW_LOADS", "RoleRewrite"]

_APART: Final = (Return, GridScan, GridBarrier, UniformLoad, Assert, Print)  # which all invocations of a workgroup have to reach
_WARPGROUP: Final = 128  # invocations
_WARPGROUPS: Final = 2  # that compute: with one more they may have as many registers together as there are
CLUSTER: Final = 2  # workgroups that may share what they load: neighbours of a band, in one column of the grid
# Registers of an invocation that copies, and of one that computes.
_FEW, _MANY = 24, 240
_TAKES_MORE: Final = frozenset({*TRANSCENDENTAL, "div"})
FEW_LOADS: Final = 8  # of elements at once, beside many sums
# Elements of sums, and of what is loaded at once beside them, that an invocation may have: nvJitLink gives all as many registers, 168, whatever it is asked for
# here and there.
_HELD: Final = 136

_Copies = Callable[[For, Ring, Atom, Atom, Atom], None]  # of a loop and its ring: for a value of its variable, with its step, into the strips of a number


def _tells_all(s: Statement) -> bool:
    """Whether a statement of tiles tells all invocations something that one of them has, for which all have to come."""
    return (isinstance(s, Tile) and s.op.name == "item") or (isinstance(s, Load) and s.memory.access.writes)


@dataclass(frozen=True, slots=True)
class _Producer:
    """The loop whose copies others begin, statement `loop`, with its `ring`, and the statements before it from which their `offsets` are computed."""

    loop: int
    ring: Ring
    offsets: tuple[int, ...]


class RoleRewrite(BoxRewrite):
    """A Program with a plan, one of whose rings other invocations may fill than those that compute."""

    _producer: _Producer | None = None
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
        # Beside sums few elements are loaded at once, and what follows is computed element by element.
        beside = FEW_LOADS * sum(isinstance(other, TileLoad) and at not in ring.loads for at, other in enumerate(program.body))
        held = sum([prod(product.bound.type.shape) for product in products]) // self.invocations.count + beside
        if takes_more or any(map(_tells_all, program.body)) or held > _HELD:
            return
        if not plain or plan.block_of(loop) >= 0 or not isinstance(s, For) or any(self._plan.lasting_variable(loop, product) is None for product in products):
            return
        inside = [program.body[at] for at in (*ring.loads, *ring.slice)]
        used = [*s.args, *[a for one in inside if isinstance(one, (TileLoad, Let)) for a in one.args]]
        offsets = self._lets([a for a in used if isinstance(a, Value) and plan.maker(a) < loop])
        if offsets is not None:
            ring.freed = counter(f"tile:freed.{loop}", ring)
            self._producer = _Producer(loop, ring, offsets)
            ring.shared = {at for at in ring.loads if not self._depends(program.body[at].args, "workgroup_id.y")}

    def _depends(self, atoms: Sequence[Atom], query: str) -> bool:
        """Whether any of these is computed from a query, among others."""
        made = [self.program.body[self._plan.maker(atom)] for atom in atoms if isinstance(atom, Value)]
        return any(isinstance(s, (Let, For)) and ((isinstance(s, Let) and s.op.name == query) or self._depends(s.args, query)) for s in made)

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
        if self._producer is None:
            self._grid_places = in_bands(self, self.m("workgroup_id.x"), self.m("workgroup_id.y"))
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

    def _produce(self, producer: _Producer, walk: GridWalk, copies: _Copies) -> None:
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
        if self._walk is not None and self._producer is not None:
            self.settle()
            self._walk.end()
            self.end()
            if self._producer.ring.shared:
                self._meet(self._producer.ring)
        return super().finish(places)
