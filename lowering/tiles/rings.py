"""Which loops copy the factors of their products ahead, and where these lie.

A factor lies in workgroup memory as a `Strip`: rows of elements, padded so that what the lanes of a warp load at once lies in different banks, or swizzled for
warpgroups. What a loop loads from buffers for nothing but its products is copied there while the products of earlier turns are computed: a `Ring` has the
loads of a turn, and the statements from which their offsets are computed, which are written out again for a turn that is some turns ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import JUMPS
from vyre_py.ir.language.nodes import Access, Atom, End, For, Let, Memory, Space, Tile, TileLoad, Value
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.lowering.tiles.multiples import Multiples
from vyre_py.lowering.tiles.tensor import cores_take, warpgroups_take

__all__ = ["GROUPS", "GROUP_BYTES", "Ring", "RingPlan", "RingTooLarge", "Strip", "lanes_of", "padded"]

GROUP_BYTES: Final = 8  # that are copied, and loaded by a lane, together
_SWIZZLED_BYTES: Final = 16  # that are copied together to where warpgroups read them
GROUPS: Final = 8  # of such, in a swizzled row
_FEWEST: Final = 2  # strips of a ring
_MOST: Final = 4


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
    last axis is a group of `lanes` elements. A `swizzled` one has eight groups of each row, then the next eight of each, and so on; of row r, group g lies in
    the place of group g ^ r % 8 of these."""

    memory: Memory
    rows: int
    length: int
    stride: int
    count: int
    along_k: bool
    lanes: int

    @property
    def groups(self) -> int:
        """How many groups of elements a strip is long."""
        return self.rows * self.stride // self.lanes

    @property
    def swizzled(self) -> bool:
        """Whether it is for products of warpgroups."""
        return self.lanes * self.memory.type.size_bytes == _SWIZZLED_BYTES


@dataclass(frozen=True, slots=True)
class _Source:
    """What a factor is loaded from: statement `at`, `load`; the statements that make the factor of it, with that; and those that compute its offsets."""

    at: int
    load: TileLoad
    chain: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(slots=True)
class Ring:
    """A loop whose factors are copied ahead: its `products`; their `loads`, each with the strip that it fills; the `slice`, statements that compute offsets.
    There are `count` strips, and copies are begun so many turns `ahead`."""

    products: set[int] = field(default_factory=set)
    loads: dict[int, Strip] = field(default_factory=dict)
    slice: list[int] = field(default_factory=list)
    count: int = _FEWEST
    ahead: int = 1

    @property
    def is_spare(self) -> bool:
        """Whether a strip is spared while the product of the turn before is still computed."""
        return self.count - self.ahead > 1


class RingPlan:
    """The loops of a Program that copy ahead, by statement (`rings`), in so many bytes of workgroup memory: with the strip of each factor by the value's number
    (`strips`), the arrays of all strips (`memories`), the statements that only load factors (`skipped`), and the products `of_warpgroups`. Raises RingTooLarge.
    """

    def __init__(self, program: Program, invocations: int, ring_bytes: int, *, warpgroups: bool) -> None:
        self._program, self._invocations, self._ring_bytes, self._warpgroups = program, invocations, ring_bytes, warpgroups
        self._made_by: dict[int, int] = {s.result.id: index for index, s in enumerate(program.body) if s.result is not None}
        self.rings: dict[int, Ring] = {}
        self.strips: dict[int, tuple[Strip, int]] = {}
        self.memories: list[Memory] = []
        self.skipped: set[int] = set()
        self.of_warpgroups: set[int] = set()
        self.multiple = Multiples(program).of
        self._plan_all()

    def maker(self, value: Value) -> int:
        """The statement that binds a value."""
        return self._made_by[value.id]

    def _plan_all(self) -> None:
        counts, body = uses(self._program), self._program.body
        around: list[int] = []
        for index, s in enumerate(body):
            if s.opens:
                around.append(index)
            elif type(s) is End:
                around.pop()
            elif cores_take(s) and around and isinstance(loop := body[around[-1]], For) and loop.pipeline != 1:
                self._plan(around[-1], index, counts)
        for at, ring in self.rings.items():
            self._settle(at, ring)

    def _plan(self, loop: int, product: int, counts: Sequence[int]) -> None:
        """Takes the factors of a product into the ring of a loop, those that can be copied ahead."""
        s = self._program.body[product]
        sources = [self._source(loop, atom, counts) for atom in s.args[:2]]
        along_k = [(number == 0) is not (source is not None and len(source.chain) > 1) for number, source in enumerate(sources)]
        taken = self._warpgroups and None not in sources and warpgroups_take(s, self._invocations, along_k=(along_k[0], along_k[1]))
        if taken:
            self.of_warpgroups.add(product)
        for atom, source, goes_along in zip(s.args[:2], sources, along_k, strict=True):
            if source is None or not isinstance(atom, Value):
                continue
            ring = self.rings.setdefault(loop, Ring())
            ring.products.add(product)
            ring.loads[source.at] = self._strip(source.load, goes_along, swizzled=taken)
            ring.slice += [index for index in source.offsets if index not in ring.slice]
            self.strips[atom.id] = ring.loads[source.at], loop
            self.skipped |= set(source.chain)

    def _strip(self, s: TileLoad, along_k: bool, *, swizzled: bool) -> Strip:
        rows, length = s.shape
        lanes = _SWIZZLED_BYTES // s.memory.type.size_bytes if swizzled else lanes_of(s.memory.type)
        stride = length if swizzled else padded(length, s.memory.type, along_k=along_k)
        memory = Memory(f"tile:{s.memory.type}.{len(self.strips)}", Space.WORKGROUP, s.memory.type, (DimConst(1), DimConst(lanes)), Access.READ_WRITE)
        return Strip(memory, rows, length, stride, 1, along_k, lanes)

    def _source(self, loop: int, atom: Atom, counts: Sequence[int]) -> _Source | None:
        """What a factor is loaded from, if it is loaded in a loop for nothing else, with offsets that can be computed ahead."""
        assert isinstance(atom, Value)  # a tile
        body = self._program.body
        at = self._made_by[atom.id]
        s = body[at]
        chain = [at]
        if isinstance(s, Tile) and s.op.name == "transpose" and counts[atom.id] == 1:
            at = self._made_by[s.args[0].id] if isinstance(s.args[0], Value) else at
            s = body[at]
            chain.append(at)
        if not isinstance(s, TileLoad) or counts[s.bound.id] != 1 or s.memory.access is not Access.READ or not s.extents[-1]:
            return None
        if any(self.block_of(index) != loop for index in chain) or any(JUMPS[type(inner)] for inner in body[loop : self._program.match[loop]]):
            return None
        offsets = self._slice(loop, s.indices)
        return None if offsets is None else _Source(at, s, tuple(chain), tuple(offsets))

    def _settle(self, loop: int, ring: Ring) -> None:
        """Decides how many strips a ring has: as many as the loop's pipelining depth, or else up to four as fit; and gives their arrays sizes. Raises
        RingTooLarge where the depth, or two without one, is more than fits."""
        strip_bytes = sum([strip.groups * strip.lanes * strip.memory.type.size_bytes for strip in ring.loads.values()])
        s, fitting = self._program.body[loop], self._ring_bytes // strip_bytes
        assert isinstance(s, For)  # what has a ring
        count = s.pipeline or max(_FEWEST, min(_MOST, fitting))
        if count > fitting:
            smaller = f"ask for pipeline({fitting}), or use smaller tiles" if fitting >= _FEWEST else "use smaller tiles"
            raise RingTooLarge(loop, f"a loop whose factors take {count} times {strip_bytes} bytes of workgroup memory, of {self._ring_bytes},", smaller)
        # A warpgroup computes the product of one turn while it begins the next, so that one strip more is in use.
        ring.ahead = count - 1 - (count > _FEWEST and any(strip.swizzled for strip in ring.loads.values()))
        ring.count = count
        ring.slice.sort()
        for at, strip in ring.loads.items():
            memory = replace(strip.memory, shape=(DimConst(strip.groups * count), DimConst(strip.lanes)))
            sized = replace(strip, memory=memory, count=count)
            self.memories.append(memory)
            for value, (known, own) in list(self.strips.items()):
                if known is strip:
                    self.strips[value] = sized, own
            ring.loads[at] = sized

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
