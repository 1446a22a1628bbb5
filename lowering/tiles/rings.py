"""Which loops copy the factors of their products ahead, and where these lie.

A factor lies in workgroup memory as a `Strip`: rows of elements, swizzled for warpgroups, and for warps that load whole matrices of 8 rows of 16 bytes, or
padded so that what the lanes of a warp load at once lies in different banks. What a loop loads from buffers for nothing but its products is copied there while
the products of earlier turns are computed: a `Ring` has the loads of a turn, and the statements from which their offsets are computed, which are written out
again for a turn that is some turns ahead. What was loaded before the loop, for nothing else, is copied once.

Warpgroups take a first factor that is computed from registers. Where such a product only adds to a variable, behind another product, it may be `late`: it is
begun in the next turn, when the first product of that turn is, and computed while the lanes go on with what that one gave.

One module because a plan is one class: what it decides about a loop's strips, products and turns rests on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import ceil, gcd, prod
from typing import Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import JUMPS
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    End,
    For,
    Get,
    Let,
    Memory,
    Set,
    Space,
    Statement,
    Tile,
    TileLoad,
    Value,
    Variable,
    VariableStatement,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.lowering.tiles.tensor import HELD_BYTES, WARP, LaneSums, cores_take, lane_sums, warpgroups_take
from vyre_py.lowering.tiles.tile_layout import Multiples

__all__ = ["GROUPS", "GROUP_BYTES", "Ring", "RingPlan", "RingTooLarge", "Strip", "lanes_of", "padded"]

GROUP_BYTES: Final = 8  # that are copied, and loaded by a lane, together
_SWIZZLED_BYTES: Final = 16  # that are copied together to where warpgroups, or matrices of warps, are read
GROUPS: Final = 8  # of such, in a swizzled row
_MATRIX_BYTES: Final = 4  # of each row, that a lane gets
_TURNED_BYTES: Final = 2  # of the elements of matrices that are turned while they are loaded
_TURNED: Final = (1, 0)  # the axes of a factor that is turned
_SPREAD: Final = ("fill", "iota")  # tiles that every invocation makes its registers of
_FEWEST: Final = 2  # strips of a ring
_WARPGROUP: Final = 128  # invocations
_MOST: Final = 4
# Products of a lane that take as long as a copy does from memory, and some more: of its own, and of tensor cores for it, times the bytes of a factor's element.
_PRODUCTS_AHEAD: Final = 2048
_CORES_AHEAD: Final = 16384


class RingTooLarge(Exception):
    """The strips of a loop, statement `loop`, are more than there is room for; the message says so, and `help` what fits."""

    def __init__(self, loop: int, message: str, help: str) -> None:
        super().__init__(message)
        self.loop, self.help = loop, help


def lanes_of(type_: Type) -> int:
    """How many elements of a type a group has."""
    return GROUP_BYTES // type_.size_bytes


def padded(length: int, type_: Type, *, along_k: bool) -> int:
    """The stride of rows for products of warps, in elements: of those that go along k four groups more than a multiple of eight, of others four, or a
    group, more than a multiple of 16."""
    lanes = lanes_of(type_)
    modulus, rest = (8 * lanes, 4 * lanes) if along_k else (16, max(4, lanes))
    return length + (rest - length) % modulus


@dataclass(frozen=True, slots=True)
class Strip:
    """Where a factor lies: `rows` of `length` elements, `stride` apart, in each of `count` strips of an array. Rows go `along_k`, or each is one k. An array's
    last axis is a group of `lanes` elements. A `swizzled` one, from which warpgroups load, warps by whole matrices, or lanes what goes along k, has eight
    groups of each row, then the next eight of each, and so on; of row r, group g lies in the place of group g ^ r % 8 of these. Where rows have no whole
    eights, two or four groups lie together, four or two rows take the place of one, and g lies at g ^ r / 4 % 2, or at g ^ r / 2 % 4: so eight rows always
    have their g-th groups in all banks."""

    memory: Memory
    rows: int
    length: int
    stride: int
    count: int
    along_k: bool
    lanes: int
    swizzled: bool

    @property
    def groups(self) -> int:
        """How many groups of elements a strip is long."""
        return self.rows * self.stride // self.lanes

    @property
    def across(self) -> int:
        """How many groups of a row lie together in a swizzled strip."""
        return gcd(GROUPS, self.length // self.lanes)

    @property
    def size_bytes(self) -> int:
        """What a strip takes."""
        return self.groups * self.lanes * self.memory.type.size_bytes


@dataclass(frozen=True, slots=True)
class _Source:
    """What a factor is loaded from: statement `at`, `load`; the statements that make the factor of it, with that; and those that compute its offsets. It
    `stays` if it is loaded before the loop."""

    at: int
    load: TileLoad
    chain: tuple[int, ...]
    offsets: tuple[int, ...]
    stays: bool


@dataclass(slots=True)
class Ring:
    """A loop whose factors are copied ahead: its `products`; their `loads`, each with the strip that it fills; those that are `staying`, copied once; the
    `slice`, statements that compute offsets; products that are `late`, each with the variable that it adds to, and the loads for them, which go with the
    turn behind theirs. There are `count` strips, and copies are begun so many turns `ahead`. Where boxes fill them, `arrivals` counts what has come to each.
    Where other invocations begin these than compute, `freed` counts the warpgroups that have done with each; the loads of `shared` are the same for
    neighbours of a cluster. In some loops two warpgroups
    `take_turns` at the tensor cores: one computes between its products while tensor cores have those of the other. Where such a loop `goes_on`, the copies of
    the workgroup's next place of the grid are begun in its last turns; what is copied once has a count of its own behind those of the strips."""

    products: set[int] = field(default_factory=set)
    loads: dict[int, Strip] = field(default_factory=dict)
    staying: dict[int, Strip] = field(default_factory=dict)
    slice: list[int] = field(default_factory=list)
    late: dict[int, Variable] = field(default_factory=dict)
    late_loads: set[int] = field(default_factory=set)
    count: int = _FEWEST
    ahead: int = 1
    arrivals: Memory | None = None
    freed: Memory | None = None
    shared: set[int] = field(default_factory=set)
    take_turns: bool = False
    goes_on: bool = False

    @property
    def is_spare(self) -> bool:
        """Whether a strip is spared while the product of the turn before is still computed."""
        return self.count - self.ahead > 1

    @property
    def once(self) -> int:
        """Where what is copied once is counted: with the first turn, or by itself."""
        return self.count if self.goes_on else 0

    @property
    def counters(self) -> list[Memory]:
        """The arrays that count for its strips."""
        return [memory for memory in (self.arrivals, self.freed) if memory is not None]

    @property
    def is_waited_for_ahead(self) -> bool:
        """Whether copies are waited for in the turn before theirs, behind its first products: so these need not wait for others of the workgroup."""
        return bool(self.late) and self.ahead > 1


class RingPlan:
    """The loops of a Program that copy ahead, by statement (`rings`), in so many bytes of workgroup memory: with the strip of each factor by the value's number
    (`strips`), the arrays of all strips (`memories`), the statements that only load factors (`skipped`), the products `of_warpgroups`, and of these those
    `of_registers`, whose first factor the lanes hold, and the products `of_lanes`, with the layouts of their sums. Raises RingTooLarge."""

    def __init__(self, program: Program, invocations: int, ring_bytes: int, *, warpgroups: bool) -> None:
        self._program, self._invocations, self._ring_bytes, self._warpgroups = program, invocations, ring_bytes, warpgroups
        self._made_by: dict[int, int] = {s.result.id: index for index, s in enumerate(program.body) if s.result is not None}
        self.multiple = Multiples(program.body).of
        try:
            self._plan_all(stay=True)
        except RingTooLarge:
            self._plan_all(stay=False)

    @property
    def two_warpgroups(self) -> bool:
        """Whether two warpgroups compute products."""
        return bool(self.of_warpgroups) and self._invocations == 2 * _WARPGROUP

    def maker(self, value: Value) -> int:
        """The statement that binds a value."""
        return self._made_by[value.id]

    def _plan_all(self, *, stay: bool) -> None:
        """Plans all loops; what was loaded before them may `stay` in workgroup memory."""
        self.rings: dict[int, Ring] = {}
        self.strips: dict[int, tuple[Strip, int]] = {}
        self.memories: list[Memory] = []
        self.skipped: set[int] = set()
        self.of_warpgroups: set[int] = set()
        self.of_registers: set[int] = set()
        self.of_lanes: dict[int, LaneSums] = {}
        counts, body = uses(self._program), self._program.body
        around: list[int] = []
        for index, s in enumerate(body):
            if s.opens:
                around.append(index)
            elif type(s) is End:
                around.pop()
            elif (cores_take(s) or lane_sums(s) is not None) and around and isinstance(body[around[-1]], For):
                self._plan(around[-1], index, counts, stay=stay)
        for at, ring in self.rings.items():
            self._delay(at, ring, counts)
        room = self._ring_bytes - sum([self._least(at, ring) for at, ring in self.rings.items()])
        for at, ring in self.rings.items():
            room += self._least(at, ring)
            room -= self._settle(at, ring, room)

    def _plan(self, loop: int, product: int, counts: Sequence[int], *, stay: bool) -> None:
        """Takes the factors of a product into the ring of a loop, those that can be copied ahead, or once."""
        s = self._program.body[product]
        assert isinstance(s, Tile)  # a product
        sources = [source if source is not None and (stay or not source.stays) else None for source in [self._source(loop, a, counts) for a in s.args[:2]]]
        if all(source is None or source.stays for source in sources):
            return
        along_k = [(number == 0) is not (source is not None and len(source.chain) > 1) for number, source in enumerate(sources)]
        held = sources[0] is None and s.args[0].type.scalar.size_bytes == HELD_BYTES
        taken = self._warpgroups and cores_take(s) and sources[1] is not None and (held or sources[0] is not None)
        taken = taken and warpgroups_take(s, self._invocations, along_k=(along_k[0], along_k[1]))
        if self._depth(loop) == 1 and not taken:
            return  # nothing is copied ahead; warpgroups take factors from strips alone, and sum in an order of their own
        if not cores_take(s):
            lanes = self._lanes_for(loop, s, [source for source in sources if source is not None], along_k)
            if lanes is None:
                return
            self.of_lanes[product] = lanes
        if taken:
            self.of_warpgroups.add(product)
            self.of_registers |= {product} if held else set()
        found = [source.load for source in sources if source is not None]
        ways = [goes_along for source, goes_along in zip(sources, along_k, strict=True) if source is not None]
        is_there = len(found) == len(sources) or (held and _in_matrices(s.args[0].type.shape[1] * HELD_BYTES))
        swizzled = taken or product in self.of_lanes or (is_there and all(map(_by_matrices, found, ways)))
        for atom, source, goes_along in zip(s.args[:2], sources, along_k, strict=True):
            if source is None or not isinstance(atom, Value):
                continue
            ring = self.rings.setdefault(loop, Ring())
            ring.products.add(product)
            loads = ring.staying if source.stays else ring.loads
            in_order = product in self.of_lanes and not goes_along  # lanes that load neighbours of a row reach all banks
            loads[source.at] = self._strip(source.load, goes_along, wide=swizzled, swizzled=swizzled and not in_order)
            ring.slice += [index for index in source.offsets if index not in ring.slice]
            self.strips[atom.id] = loads[source.at], loop
            self.skipped |= set(source.chain)

    def _lanes_for(self, loop: int, s: Tile, sources: Sequence[_Source], along_k: Sequence[bool]) -> LaneSums | None:
        """The layout of the sums of a product that lanes compute: of one that adds to a variable all the time, with both factors in the ring."""
        rows = [source.load.shape[-1] * source.load.memory.type.size_bytes for source in sources if not source.stays]
        if len(rows) < len(along_k) or not all(map(_in_matrices, rows)) or self.lasting_variable(loop, s) is None:
            return None
        return lane_sums(s, self._invocations // WARP, along_k=(along_k[0], along_k[1]))

    def lasting_variable(self, loop: int, s: Tile) -> Variable | None:
        """The variable to which a loop's product adds in every turn, if nothing else in the loop reads or sets it: then a turn need not wait for its sums."""
        body = self._program.body
        before = body[self.maker(s.args[2])] if isinstance(s.args[2], Value) else None
        inside = range(loop, self._program.match[loop])
        if not isinstance(before, Get) or sum(s.bound in other.args for other in body) != 1:
            return None
        touching = [at for at in inside if isinstance(other := body[at], VariableStatement) and other.variable is before.variable]
        if len(touching) != 2 or any(self.block_of(at) != loop for at in touching):
            return None
        got, given = [body[at] for at in touching]
        is_set = got is before and isinstance(given, Set) and given.args[0] is s.bound
        return before.variable if is_set and sum(before.bound in other.args for other in body) == 1 else None

    def _delay(self, loop: int, ring: Ring, counts: Sequence[int]) -> None:
        """Finds the products of a loop that are late: those of registers that only add to a variable, which the turn reads between its first product and
        them, and nothing in it behind."""
        body, first = self._program.body, min(ring.products)
        inside = range(loop, self._program.match[loop])
        own = self.of_warpgroups & ring.products
        for product in sorted(own & self.of_registers):
            s = body[product]
            assert isinstance(s, Tile) and isinstance(s.args[1], Value)  # a product
            sets = [other for index in inside if isinstance(other := body[index], Set) and other.args[0] is s.bound and self.block_of(index) == loop]
            if first not in own or first == product or counts[s.bound.id] != 1 or len(sets) != 1:
                continue
            touching = [index for index in inside if isinstance(other := body[index], VariableStatement) and other.variable is sets[0].variable]
            before = touching[:-1]
            at = next((at for at, strip in ring.loads.items() if strip is self.strips[s.args[1].id][0]), None)
            is_late = body[touching[-1]] is sets[0] and all(isinstance(body[index], Get) and first < index < product for index in before)
            if at is not None and is_late and all(self.block_of(index) == loop for index in (first, product, *before)):
                ring.late[product] = sets[0].variable
                ring.late_loads.add(at)

    def _strip(self, s: TileLoad, along_k: bool, *, wide: bool, swizzled: bool) -> Strip:
        rows, length = s.shape
        lanes = _SWIZZLED_BYTES // s.memory.type.size_bytes if wide else lanes_of(s.memory.type)
        stride = length if wide else padded(length, s.memory.type, along_k=along_k)
        memory = Memory(f"tile:{s.memory.type}.{len(self.strips)}", Space.WORKGROUP, s.memory.type, (DimConst(1), DimConst(lanes)), Access.READ_WRITE)
        return Strip(memory, rows, length, stride, 1, along_k, lanes, swizzled)

    def _source(self, loop: int, atom: Atom, counts: Sequence[int]) -> _Source | None:
        """What a factor is loaded from, if it is loaded in a loop for nothing else, with offsets that can be computed ahead."""
        assert isinstance(atom, Value)  # a tile
        body = self._program.body
        at = self._made_by[atom.id]
        s = body[at]
        chain = [at]
        if isinstance(s, Tile) and s.op.name == "transpose" and s.numbers == _TURNED and counts[atom.id] == 1:
            at = self._made_by[s.args[0].id] if isinstance(s.args[0], Value) else at
            s = body[at]
            chain.append(at)
        if not isinstance(s, TileLoad) or counts[s.bound.id] != 1 or s.memory.access is not Access.READ or not s.extents[-1]:
            return None
        if any(self.block_of(index) != loop for index in chain if index > loop) or any(JUMPS[type(inner)] for inner in body[loop : self._program.match[loop]]):
            return None
        offsets = self._slice(loop, s.indices)
        return None if offsets is None else _Source(at, s, tuple(chain), tuple(offsets), at < loop)

    def _depth(self, loop: int) -> int:
        s = self._program.body[loop]
        assert isinstance(s, For)  # what has a ring
        return s.pipeline

    def _least(self, loop: int, ring: Ring) -> int:
        """The bytes that a ring takes at least."""
        return _bytes_of(ring.staying) + _bytes_of(ring.loads) * max(_FEWEST, self._depth(loop))

    def _settle(self, loop: int, ring: Ring, room: int) -> int:
        """Decides how many strips a ring has, the loop's pipelining depth, but two at least, or else what is enough and fits into some bytes, and sizes their
        arrays. Gives the bytes that these take. Raises RingTooLarge where the depth, or two without one, is more than fits."""
        strip_bytes, once = _bytes_of(ring.loads), _bytes_of(ring.staying)
        fitting = max(0, room - once) // strip_bytes
        count = max(_FEWEST, self._depth(loop) or min(self._enough(ring), fitting))
        if count > fitting:
            smaller = f"ask for pipeline({fitting}), or use smaller tiles" if fitting >= _FEWEST else "use smaller tiles"
            raise RingTooLarge(loop, f"a loop whose factors take {count} times {strip_bytes} bytes of workgroup memory, of {max(0, room)},", smaller)
        # A warpgroup computes the product of one turn while it begins the next, so that one strip more is in use.
        ring.ahead = count - 1 - (count > _FEWEST and not ring.late and bool(ring.products & self.of_warpgroups))
        ring.count = count
        ring.take_turns = ring.is_waited_for_ahead and self.may_take_turns(loop, ring)
        ring.slice.sort()
        for loads, times in ((ring.loads, count), (ring.staying, 1)):
            for at, strip in loads.items():
                memory = replace(strip.memory, shape=(DimConst(strip.groups * times), DimConst(strip.lanes)))
                sized = replace(strip, memory=memory, count=times)
                self.memories.append(memory)
                for value, (known, own) in list(self.strips.items()):
                    if known is strip:
                        self.strips[value] = sized, own
                loads[at] = sized
        return once + strip_bytes * count

    def may_take_turns(self, loop: int, ring: Ring) -> bool:
        """Whether two warpgroups may be in different turns of a loop with late products: if none meets the other, in a barrier, before its first product, if no
        product reads strips behind the late ones, and if no loop around it or within copies as well, whose signals would be the same."""
        body, first = self._program.body, min(ring.products)
        s = body[first]
        assert isinstance(s, Tile)  # a product
        onto = body[self.maker(s.args[2])] if isinstance(s.args[2], Value) else None
        lies_there = isinstance(onto, Tile) and onto.op.name == "fill"
        meets = [at for at in range(loop + 1, first) if at not in self.skipped and not self._is_apart(body[at])]
        nested = [at for at in self.rings if loop < at < self._program.match[loop] or at < loop < self._program.match[at]]
        in_order = first not in self.of_registers and max(ring.products - ring.late.keys()) < min(ring.late)
        return self.two_warpgroups and lies_there and in_order and not (meets or nested)

    def _is_apart(self, s: Statement) -> bool:
        """Whether each invocation does a statement for itself, without a look at others' registers or at what others write."""
        if isinstance(s, Tile):
            return s.op.name in _SPREAD
        is_plain = isinstance(s, Let) and not s.bound.type.is_tile
        return is_plain or isinstance(s, Get) or (isinstance(s, TileLoad) and s.memory.access is Access.READ)

    def _enough(self, ring: Ring) -> int:
        """How many strips a ring has where there is room: as many as cover the time of a copy, but for warpgroups, whose products are quick and computed turns
        apart. More would only take room from other workgroups."""
        if ring.products & self.of_warpgroups:
            return _MOST
        covered = 0.0  # of that time, by the products of a turn
        for at in ring.products:
            s = self._program.body[at]
            assert isinstance(s, Tile)  # a product
            depth, factor = s.args[0].type.shape[1], s.args[0].type.scalar
            if (layout := self.of_lanes.get(at)) is not None:
                covered += prod(layout.held(s.bound.type.shape)) * depth / _PRODUCTS_AHEAD
            else:
                covered += prod(s.bound.type.shape) * depth / self._invocations * factor.size_bytes / _CORES_AHEAD
        return min(_MOST, 1 + ceil(1 / covered))

    def block_of(self, index: int) -> int:
        """The statement that opens the innermost block around a statement; -1 for the body."""
        depth = 0
        for at in range(index - 1, -1, -1):
            s = self._program.body[at]
            if type(s) is End:
                depth += 1
            elif s.opens:
                if not depth:
                    return at
                depth -= 1
        return -1

    def _slice(self, loop: int, atoms: Sequence[Atom]) -> list[int] | None:
        """The statements of a loop's own block from which these are computed, from its value and from what comes before it; None if others are needed."""
        body, found, waiting = self._program.body, set[int](), list(atoms)
        while waiting:
            atom = waiting.pop()
            if not isinstance(atom, Value) or (at := self._made_by[atom.id]) <= loop or at in found:
                continue
            if not isinstance(body[at], Let) or self.block_of(at) != loop:
                return None
            found.add(at)
            waiting += body[at].args
        return sorted(found)


def _bytes_of(loads: Mapping[int, Strip]) -> int:
    """What one strip for each load takes."""
    return sum([strip.size_bytes for strip in loads.values()])


def _by_matrices(s: TileLoad, along_k: bool) -> bool:
    """Whether warps load a factor in whole matrices of 8 rows of 16 bytes."""
    size = s.memory.type.size_bytes
    return size <= _MATRIX_BYTES and _in_matrices(s.shape[-1] * size) and (along_k or size == _TURNED_BYTES)


def _in_matrices(row_bytes: int) -> bool:
    """Whether rows of so many bytes may be swizzled."""
    groups, rest = divmod(row_bytes, _SWIZZLED_BYTES)
    return not rest and groups % 2 == 0
