"""Reductions and scans along an axis of a tile, in the order that `ir.evaluate.tile_meanings` fixes.

Steps of a distance that is a multiple of the number of invocations along the axis stay within each invocation; the others go through workgroup memory, or
between the lanes of a subgroup where the target has such of a known size. Where any order gives the same bits an invocation folds all of its own first. Tiles
of another layout than most are folded in it where a subgroup has all of the axis: each step by a bit of the elements' indices, which is one of a register's
number or of a lane's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS, SUBGROUPS
from vyre_py.ir.language.types import Type, bool_, i32, u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.tiles.exchange import Exchanger, Registers, Shared
from vyre_py.lowering.tiles.tile_layout import Line, power_of_two

__all__ = ["reduced", "scanned"]

# So many partial results an invocation loads at a time.
_AT_ONCE: Final = 8
# Ops whose result is the same in any order, of floats, too.
_IN_ANY_ORDER: Final = frozenset({"min", "max"})
# Types that GPUs from sm_80 on fold over a subgroup by one instruction.
_WORDS: Final = frozenset({i32, u32})
# What folds elements of bool, by the op that folds those of other types.
_OF_BOOL: Final = {OPS["and"]: OPS["logical_and"], OPS["or"]: OPS["logical_or"], OPS["xor"]: OPS["ne"]}


def _goes_in_any_order(op: Op, type_: Type) -> bool:
    return op.name in _IN_ANY_ORDER or not type_.is_float


def _folding(op: Op, type_: Type) -> Op:
    return _OF_BOOL[op] if type_ is bool_ else op


def _with(key: tuple[int, ...], axis: int, register: int) -> tuple[int, ...]:
    return (*key[:axis], register, *key[axis:])


class _Axis:
    """An axis of a tile, as the invocations share it."""

    def __init__(self, x: Exchanger, shape: tuple[int, ...], axis: int) -> None:
        self.x, self.shape, self.axis = x, shape, axis
        self.extent = shape[axis]
        self.width = x.invocations.neighbours(shape, axis)
        self.groups = self.extent // self.width
        self.count = x.invocations.along(shape)[axis]
        self.stride = x.invocations.stride(shape, axis)
        self.lanes = max(1, min(self.count, x.lanes // self.stride))  # how many neighbours along the axis are in one subgroup
        held = x.invocations.held(shape)
        self.held = held[axis]
        # The registers along the other axes.
        self.keys = list(product(*map(range, (*held[:axis], *held[axis + 1 :]))))

    @property
    def here(self) -> Atom:
        """The invocation's place along the axis."""
        return self.x.here(self.x.invocations, self.shape, self.axis)

    def element(self, register: int) -> Atom:
        return self.x.element(self.x.invocations, self.shape, self.axis, register)

    def at(self, slot: int, place: Atom, together: int = 1) -> Atom:
        """Where the invocation at another place along the axis has put its value of a slot; each slot has one of each invocation. So many slots in a row lie
        `together`, side by side for each invocation."""
        first = self.x.m("sub", self.x.index, self.x.scaled(self.here, self.stride))
        return self._slot(slot, self.x.m("add", first, self.x.scaled(place, self.stride)), together)

    def own(self, slot: int, together: int = 1) -> Atom:
        """Where this invocation puts its value of a slot."""
        return self._slot(slot, self.x.index, together)

    def _slot(self, slot: int, index: Atom, together: int) -> Atom:
        first = slot // together * together * self.x.invocations.count + slot % together
        return self.x.m("add", self.x.scaled(index, together), word(first))

    def slots(self, type_: Type, least: int, what: str) -> int:
        """How many slots there are at once. Raises Unsupported where they are less than the least that will do."""
        self.x.require(type_, least * self.x.invocations.count, what)
        return self.x.capacity(type_) // self.x.invocations.count


def reduced(x: Exchanger, op: Op, tile: Shared, along: int) -> Shared:
    """A tile reduced along an axis."""
    op = _folding(op, tile.type)
    if tile.layout != x.invocations and (lanes := _lanes_along(x, tile, along)) is not None:
        return _by_bits(x, op, tile, along, lanes)
    tile = x.moved(tile, x.invocations)
    axis, values = _Axis(x, tile.shape, along), tile.registers
    columns = {key: _in_registers(axis, op, [values[_with(key, along, r)] for r in range(axis.held)]) for key in axis.keys}
    if _goes_in_any_order(op, tile.type):  # neighbours first: invocations hand each other one value, then, not each of them
        columns = {key: [_beside(axis, op, column)] for key, column in columns.items()}
        axis.width = 1
    if axis.count > 1:
        folded = _across(axis, op, {(*key, k): value for key, column in columns.items() for k, value in enumerate(column)})
        columns = {key: [folded[*key, k] for k in range(axis.width)] for key in columns}
    parts = {key: _beside(axis, op, column) for key, column in columns.items()}
    shape = (*tile.shape[:along], 1, *tile.shape[along + 1 :])
    return Shared(shape, x.invocations, {_with(key, along, 0): value for key, value in parts.items()})


def _lanes_along(x: Exchanger, tile: Shared, along: int) -> dict[int, int] | None:
    """By the distance between elements along an axis, which bit of the lane's number differs; None where a subgroup has not all of the axis, or has of the
    last block only some."""
    line: Line | None = tile.layout.line(tile.shape, along)
    lanes: dict[int, int] = {}
    while line is not None:
        if line.count > 1 and line.over * line.count > x.lanes:
            return None
        lanes |= {line.step << k: line.over << k for k in range(line.count.bit_length() - 1)}
        line = line.then
    offsets = tile.layout.offsets(tile.shape, along)
    # All elements, each once, and whole blocks of those that the lanes have.
    return lanes if len(offsets) << len(lanes) == tile.shape[along] and not any(offset & distance for offset in offsets for distance in lanes) else None


def _by_bits(x: Exchanger, op: Op, tile: Shared, along: int, lanes: Mapping[int, int]) -> Shared:
    """A tile reduced along an axis, whose elements lanes and registers have by the bits of their indices."""
    offsets, held = tile.layout.offsets(tile.shape, along), tile.layout.held(tile.shape)
    distances = [1 << k for k in reversed(range(power_of_two(tile.shape[along]).bit_length() - 1))]
    if _goes_in_any_order(op, tile.type):
        distances.sort(key=lanes.__contains__)  # what lanes hand each other is less, then
    made: dict[tuple[int, ...], Atom] = {}
    for key in product(*map(range, (*held[:along], *held[along + 1 :]))):
        column = {offset: tile.registers[_with(key, along, r)] for r, offset in enumerate(offsets)}
        for h in distances:
            if h in lanes:
                column = {at: x.let(op, (value, x.shuffled("shuffle_xor", value, word(lanes[h])))) for at, value in column.items()}
                continue
            for at in [at for at in column if at & h]:
                upper = column.pop(at)
                column[at - h] = x.let(op, (column[at - h], upper))
        (made[_with(key, along, 0)],) = column.values()
    return Shared((*tile.shape[:along], 1, *tile.shape[along + 1 :]), tile.layout, made)


def _in_registers(axis: _Axis, op: Op, column: list[Atom]) -> list[Atom]:
    """Folds what one invocation holds along the axis, down to the neighbours that it has together."""
    x, extent, width = axis.x, axis.extent, axis.width
    block = axis.count * width
    h = power_of_two(extent) // 2
    while h >= block:
        half = h // axis.count
        for r in range(min(half, len(column) - half)):
            both = x.let(op, (column[r], column[r + half]))
            first = (r + half) // width * width
            is_whole = (first // width + 1) * block <= extent
            column[r] = both if is_whole else x.m("select", x.m("lt", axis.element(first), word(extent)), both, column[r])
        column, extent = column[:half], h
        h //= 2
    return column


def _beside(axis: _Axis, op: Op, column: list[Atom]) -> Atom:
    """Folds neighbours that an invocation has together."""
    h = axis.width // 2
    while h:
        column = [axis.x.let(op, (column[k], column[k + h])) for k in range(h)]
        h //= 2
    return column[0]


def _across(axis: _Axis, op: Op, parts: dict[tuple[int, ...], Atom]) -> dict[tuple[int, ...], Atom]:
    """Folds what the invocations along the axis hold, one value of each key for each of the neighbours; all of them get the result. The upper steps are
    between subgroups, and go through workgroup memory, before those within one."""
    left, lanes = min(axis.groups, axis.count), axis.lanes
    while left > lanes:
        whole = power_of_two(left)
        after = max(lanes, whole // min(whole, _AT_ONCE))
        parts = _round(axis, op, parts, left, after)
        left = after
    if lanes == 1:
        return parts
    if axis.groups <= lanes < axis.count:  # one subgroup has all of it
        parts = _round(axis, op, parts, left, power_of_two(left))
    elif axis.groups < lanes:
        parts = {key: _repeated(axis, value, power_of_two(left)) for key, value in parts.items()}
    return {key: _by_shuffles(axis, op, value, left) for key, value in parts.items()}


def _repeated(axis: _Axis, value: Atom, period: int) -> Atom:
    """What the invocations at the first places hold, in a subgroup that has all others: place j gets that of place j modulo `period`."""
    x = axis.x
    if period == min(axis.count, axis.lanes):
        return value
    back = x.scaled(x.m("and", axis.here, word(axis.count - period)), axis.stride)
    lane = x.m("and", x.index, word(x.lanes - 1))
    return x.shuffled("shuffle", value, x.m("sub", lane, back))


def _by_shuffles(axis: _Axis, op: Op, value: Atom, left: int) -> Atom:
    """Folds `left` values, which places of a subgroup have again and again: each step is a butterfly, so that all get the result."""
    x, m = axis.x, axis.x.m
    if left == axis.lanes == x.lanes and value.type in _WORDS and (whole := f"reduce_{op.name}") in SUBGROUPS:
        return x.folded(whole, value)
    h = power_of_two(left) // 2
    while h:
        other = x.shuffled("shuffle_xor", value, word(h * axis.stride))
        both: Atom = x.let(op, (value, other))
        if left < 2 * h:  # where only one of the two places has a value, that is for both
            is_upper = m("ne", m("and", axis.here, word(h)), word(0))
            both = m("select", m("lt", m("and", axis.here, word(h - 1)), word(left - h)), both, m("select", is_upper, other, value))
        value, left = both, h
        h //= 2
    return value


def _round(axis: _Axis, op: Op, parts: dict[tuple[int, ...], Atom], left: int, after: int) -> dict[tuple[int, ...], Atom]:
    """`left` values become `after`: the invocation at place j folds those at j, j + after, j + 2 after and so on, modulo `after`."""
    x, made = axis.x, dict[tuple[int, ...], Atom]()
    type_ = next(iter(parts.values())).type
    room = axis.slots(type_, 1, "a reduction")
    together = axis.width if room >= axis.width else 1
    room -= room % together
    first = word(0) if after == 1 else axis.here if after == axis.count else x.m("and", axis.here, word(after - 1))
    keys = list(parts)
    for begin in range(0, len(keys), room):
        batch = keys[begin : begin + room]
        array = x.array(type_, len(batch) * x.invocations.count)
        x.barrier()
        for slot, key in enumerate(batch):
            x.store(array, (axis.own(slot, together),), parts[key])
        x.barrier()
        for slot, key in enumerate(batch):
            places = [word(k * after) if after == 1 else x.m("add", first, word(k * after)) for k in range(-(-left // after))]
            found: list[Atom] = [x.load(array, (axis.at(slot, place, together),)) for place in places]
            made[key] = _tree(axis, op, found, first, left, after)
    return made


def _tree(axis: _Axis, op: Op, found: list[Atom], first: Atom, left: int, after: int) -> Atom:
    x = axis.x
    h = power_of_two(len(found)) // 2
    while h:
        for k in range(min(h, len(found) - h)):
            both = x.let(op, (found[k], found[k + h]))
            is_there = (k + h + 1) * after <= left
            found[k] = both if is_there else x.m("select", x.m("lt", first, word(left - (k + h) * after)), both, found[k])
        found = found[:h]
        h //= 2
    return found[0]


# ---------------------------------------------------------------- scans


def scanned(x: Exchanger, op: Op, tile: Shared, along: int, *, exclusive: bool) -> Shared:
    """A tile scanned along an axis."""
    tile = x.moved(tile, x.invocations)
    axis, values, folding = _Axis(x, tile.shape, along), tile.registers, _folding(op, tile.type)
    d = 1
    while d < axis.extent:
        before = _moved(axis, values, d)
        made = dict(values)
        for r, value in before.items():
            both = x.let(folding, (values[r], value))
            made[r] = x.where(_has(axis, r, d), both, values[r])
        values = made
        d *= 2
    if exclusive:
        first = const(tile.type, identity(op.name, tile.type))
        before = _moved(axis, values, 1) if axis.extent > 1 else {}
        values = {r: x.where(_has(axis, r, 1), before[r], first) if r in before else first for r in values}
    return Shared(tile.shape, tile.layout, values)


def _has(axis: _Axis, register: tuple[int, ...], d: int) -> Atom | None:
    """Whether there is an element `d` before that of a register; None where there always is."""
    return axis.x.m("ge", axis.here, word(d)) if d < axis.count and register[axis.axis] == 0 else None


def _moved(axis: _Axis, values: Registers, d: int) -> Registers:
    """The elements that lie `d` before along the axis, of the registers where some invocation has such a one."""
    if d >= axis.count:
        back = d // axis.count
        return {r: values[_stepped(r, axis.axis, back)] for r in values if r[axis.axis] >= back}
    x = axis.x
    made: dict[tuple[int, ...], Atom] = {}
    type_ = next(iter(values.values())).type
    m, place = x.m, x.m("and", x.m("sub", axis.here, word(d)), word(axis.count - 1))
    for batch in _batches(axis, axis.slots(type_, min(axis.held, 2), "a scan")):
        slots = {r: slot for slot, r in enumerate(dict.fromkeys([r for run in batch for r in run]))}
        array = x.array(type_, len(slots) * x.invocations.count)
        x.barrier()
        for r, slot in slots.items():
            x.store(array, (axis.own(slot),), values[r])
        x.barrier()
        for run in batch:
            for r in run:
                earlier = _stepped(r, axis.axis, 1)
                if r[axis.axis] and earlier not in slots:
                    continue  # it is there for the next
                at: Atom = axis.at(slots[r], place)
                if r[axis.axis]:
                    at = m("select", m("ge", axis.here, word(d)), at, axis.at(slots[earlier], place))
                made[r] = x.load(array, (at,))
    return made


def _stepped(register: tuple[int, ...], axis: int, back: int) -> tuple[int, ...]:
    return (*register[:axis], register[axis] - back, *register[axis + 1 :])


def _batches(axis: _Axis, room: int) -> Iterator[list[list[tuple[int, ...]]]]:
    """The registers in runs along the axis, of which each but the first of its key begins with the last register of the one before, as many at once as
    there is room for."""
    batch: list[list[tuple[int, ...]]] = []
    used, step = 0, max(1, room - 1)  # where there is room for one, a key has no more
    for key in axis.keys:
        for low in range(0, axis.held, step):
            run = [_with(key, axis.axis, r) for r in range(max(0, low - 1), min(axis.held, low + step))]
            if used + len(run) > room:
                yield batch
                batch, used = [], 0
            batch.append(run)
            used += len(run)
    yield batch
