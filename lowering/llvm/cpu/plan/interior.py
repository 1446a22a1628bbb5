"""Chunks that lie inside: what decides bounds and guards there is known when a chunk begins.

    if i < n {                                  most chunks: all lanes pass, every element is there
        y[i] = x[i - 1] + x[i + 1]      ->          y[i] = x[i - 1] + x[i + 1], plain accesses without masks
    }                                           the others: as ever

Such a Program's body is written twice. Before it a few scalar comparisons say which one a chunk takes: that the lanes of an index that steps by a constant lie
within the axis, from the first to the last; that all lanes answer a comparison alike; that their quotient by one number is the same, and so their
remainder steps by one, where the number is a mask, too. A body that is one guarded block has a third way: none of it, where no lane passes the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.effects import Effect, any_of
from vyre_py.ir.language.nodes import (
    Atom,
    Atomic,
    Const,
    Else,
    End,
    For,
    If,
    Let,
    Load,
    MemoryStatement,
    Space,
    Statement,
    Store,
    Value,
    Var,
    const,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import bool_, u32
from vyre_py.ir.language.widths import whole_size
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.plan.regions import BarrierFreeRegion
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability, calculate, variability_of

__all__ = ["Interior", "find_interior", "goes_along_rows", "inside_turns"]

# Ops that indices are made of; they cost next to nothing, wherever they stood.
_INDEXING: Final = frozenset({"add", "sub", "mul", "shl", "shr", "and", "or", "xor", "not", "cast", "bitcast", "min", "max"})
# Of these, those that keep a number growing by the same from chunk to chunk, not far by any: a number times one that has at most so many.
_STEADY: Final = frozenset({"add", "sub", "cast", "bitcast"})
_SCALING: Final = frozenset({"mul", "shl"})
_GREATEST_SCALE: Final = 16
_LESS: Final = frozenset({"lt", "le"})
_COMPARISONS: Final = _LESS | {"gt", "ge"}
_DIVISIONS: Final = frozenset({"div", "rem"})
_ACCESSES: Final = (Load, Store, Atomic)
# Ops whose results are taken to end in zeros, as masks of what lies above a power of two; other masks are taken to end in ones.
_ENDS_IN_ZEROS: Final = frozenset({"not", "neg", "shl"})
# Where invocations are along a row -> by how much that grows from lane to lane at most.
_ALONG: Final = {"global_id.x": 1, "local_id.x": 0, "local_index": 0, "workgroup_id.x": 1}
_INDEX_BITS: Final = 32  # wider ones are compared as they are
_REPEATS: Final = any_of(Effect.REPEATS)
# Writing a body twice takes LLVM twice as long: no longer ones are, and loops, in which little is known when a chunk begins, only if they are short.
_MOST_STATEMENTS: Final = 256
_MOST_WITH_LOOPS: Final = 48


@dataclass(slots=True)
class Interior:
    """What holds in a chunk where `condition` does: the values of statements, by their results, and of accesses the axes that they are inside of, as bits,
    by their place in the body. Where the test `outside` holds no lane does anything; empty where there is no such test. `seldom` says that there may be
    grids of which no chunk lies inside. `ends` has what is compared, by whether it has a sign: where it grows along a row, and does not wrap, all chunks
    between two that lie inside do; None where it may grow in any way."""

    condition: str = ""
    outside: str = ""
    seldom: bool = False
    values: dict[int, LaneValue] = field(default_factory=dict)
    inside: dict[int, int] = field(default_factory=dict)
    ends: dict[tuple[str, bool], None] | None = field(default_factory=dict)


def goes_along_rows(program: Program) -> bool:
    """Whether neighbours along x touch neighbours of buffers, or what lies anywhere; not what lies in other rows, of which a workgroup of several rows has
    the same ones in the cache again."""
    along = set[int]()
    for s in program.body:
        if isinstance(s, _ACCESSES) and s.memory.space is Space.BUFFER and any(isinstance(a, Value) and a.id in along for a in s.indices[:-1]):
            return False
        if isinstance(s, Let) and (s.op.name in _ALONG or (s.op.name in _INDEXING and any(isinstance(a, Value) and a.id in along for a in s.args))):
            along.add(s.bound.id)
    return True


def find_interior(memories: Memories, region: BarrierFreeRegion) -> Interior | None:
    """What is known of chunks that lie inside, for the statements of a region; None where all are alike, or where they leave something to later regions.
    Writes the comparisons."""
    state, start, stop = memories.state, region.start, region.stop
    body = state.program.body[start:stop]
    most = _MOST_WITH_LOOPS if any(_REPEATS[type(s)] for s in body) else _MOST_STATEMENTS
    if state.width == 1 or state.mask is not None or len(body) > most or not any(map(_asks, body, state.proven[start:stop])):
        return None
    if state.plan.has_barriers and (region.escapes or any(state.is_kept(s) or (isinstance(s, Var) and s.variable.id in region.writes) for s in body)):
        return None
    finder = _Finder(memories, start, body)
    for index, s in enumerate(body, start):
        finder.look(index, s)
    guard = _guard(body)
    finder.found.outside = finder.none.get(guard, "") if guard is not None else ""
    return finder.found if finder.gains else None


def _guard(body: Sequence[Statement]) -> int | None:
    """The condition of the one block that a body is, behind what only computes; None where it is more."""
    first = next((index for index, s in enumerate(body) if not isinstance(s, Let)), None)
    if first is None or not isinstance(body[first], If):
        return None
    depths = list(accumulate([s.opens - isinstance(s, End) for s in body[first:]]))
    if 0 in depths[:-1] or any(depth == 1 and isinstance(s, Else) for depth, s in zip(depths, body[first:], strict=True)):
        return None
    condition = body[first].args[0]
    return condition.id if isinstance(condition, Value) else None


def inside_turns(memories: Memories, index: int, s: For, step: int, start: LaneValue, stop: LaneValue) -> Interior:
    """What is known of accesses in a For that counts up, whose index is its value: all turns are inside where it ends within the axis."""
    state, w, found = memories.state, memories.w, Interior()
    if not stop.is_uniform or (s.bound.type.is_signed and not start.is_uniform) or step < 0 or s.bound.type.bits > _INDEX_BITS:
        return found
    tests = dict[str, None]()
    for number in range(index + 1, state.program.match[index]):
        access = state.program.body[number]
        if not isinstance(access, _ACCESSES) or access.memory.space is Space.PRIVATE or access.memory in state.program.widths.buffers:
            continue
        for axis, atom in enumerate(access.indices):
            if atom == s.bound and not (state.proven[number] | state.inside.get(number, 0)) >> axis & 1:
                tests[memories.bound(access.memory, axis, s.bound.type).name] = None
                found.inside[number] = found.inside.get(number, 0) | 1 << axis
    conditions = [w.let(f"icmp ule i32 {stop.name}, {bound}") for bound in tests]
    if tests and s.bound.type.is_signed:
        conditions.append(w.let(f"icmp sge i32 {start.name}, 0"))
    for test in conditions:
        found.condition = w.let(f"and i1 {found.condition}, {test}") if found.condition else test
    return found


def _masks_of_indices(body: Sequence[Statement]) -> dict[int, bool]:
    """The masked numbers that indices are made of, by their results, and whether the mask is taken to end in zeros."""
    ends_in_zeros = {s.bound.id for s in body if isinstance(s, Let) and s.op.name in _ENDS_IN_ZEROS}
    wanted, found = set[int](), dict[int, bool]()
    for s in reversed(body):
        if isinstance(s, _ACCESSES):
            wanted |= {a.id for a in s.indices if isinstance(a, Value)}
        elif isinstance(s, Let) and s.bound.id in wanted and s.op.name in _INDEXING | _DIVISIONS:
            args = {a.id for a in s.args if isinstance(a, Value)}
            wanted |= args
            if s.op.name == "and" and s.bound.type.bits == _INDEX_BITS:
                found[s.bound.id] = bool(args & ends_in_zeros)
    return found


def _asks(s: Statement, proven: int) -> bool:
    """Whether a statement may be another one inside."""
    if isinstance(s, _ACCESSES):
        return s.memory.space is not Space.PRIVATE and proven != (1 << s.memory.rank) - 1
    return isinstance(s, Let) and s.op.name in _COMPARISONS | _DIVISIONS


class _Finder:
    """Walks a body once, and writes in scalars what is known before it."""

    def __init__(self, memories: Memories, start: int, body: Sequence[Statement]) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w
        self.before = {s.result.id for s in self.state.program.body[:start] if s.result is not None}
        self.found = Interior()
        self.masks = _masks_of_indices(body)
        self.growing: dict[int, int] = {}  # value that differs along a row -> by how much from lane to lane at most; 0 where nothing is known of it
        self.none: dict[int, str] = {}  # comparison -> the test that no lane's answer is true
        self.gains = False

    def look(self, index: int, s: Statement) -> None:
        """Adds what one statement tells."""
        if isinstance(s, Let):
            self._grow(s)
            if (value := self._value(s)) is not None:
                self.found.values[s.bound.id] = value
        elif isinstance(s, _ACCESSES) and s.memory.space is not Space.PRIVATE:
            self._access(index, s)

    def _known(self, atom: Atom) -> LaneValue | None:
        if not isinstance(atom, Value):
            return self.state.operand(atom)
        if atom.id not in self.before:
            return self.found.values.get(atom.id)
        value = self.state.operand(atom)
        return None if value.variability is Variability.VARYING else value

    def _grow(self, s: Let) -> None:
        """Follows what differs along a row."""
        if s.op.is_query:
            if s.op.name in _ALONG:
                self.growing[s.bound.id] = _ALONG[s.op.name]
            return
        grown = [self.growing[a.id] for a in s.args if isinstance(a, Value) and a.id in self.growing]
        if not grown:
            return
        by = 0
        if s.op.name in _STEADY and all(grown):
            by = sum(grown)
        elif s.op.name in _SCALING and all(grown) and isinstance(s.args[1], Const) and s.args[1].bits <= _GREATEST_SCALE:
            by = grown[0] * (s.args[1].bits if s.op.name == "mul" else 1 << s.args[1].bits)
        self.growing[s.bound.id] = by if by <= _GREATEST_SCALE and s.bound.type.bits == _INDEX_BITS else 0

    def _compare(self, atom: Atom, value: LaneValue) -> None:
        """Notes that a value is compared, which decides whether a chunk lies inside."""
        if self.found.ends is None:
            return
        if isinstance(atom, Value) and not self.growing.get(atom.id, 1):
            self.found.ends = None
        elif isinstance(atom, Value) and atom.id in self.growing:
            self.found.ends[value.name, value.type.is_signed] = None

    def _value(self, s: Let) -> LaneValue | None:
        if s.op.is_query:
            value = self.state.query(s.op.name)
            return None if value.variability is Variability.VARYING else value
        if whole_size(s) is not None:
            return None
        args = [known for known in map(self._known, s.args) if known is not None]
        if len(args) < len(s.args):
            return None
        if s.op.name in _INDEXING:
            if variability_of(self.w.width, s.op.name, s.bound.type, args) is not Variability.VARYING:
                return calculate(self.w, s.op.name, s.bound.type, args)
            return self._masked(s, args) if s.bound.id in self.masks else None
        if s.op.name in _COMPARISONS and sum([not a.is_uniform for a in args]) == 1:
            return self._compared(s, args)
        if s.op.name in _DIVISIONS and s.bound.type is u32 and args[0].variability is Variability.LINEAR and args[1].is_uniform:
            return self._divided(s, args)
        return None

    # ---- what is asked

    def _require(self, test: str) -> None:
        condition = self.found.condition
        self.found.condition = self.w.let(f"and i1 {condition}, {test}") if condition else test

    def _last(self, value: LaneValue) -> tuple[str, str]:
        """The last lane's, and the test that nothing wraps on the way there, which is required."""
        last = self.w.let(f"add i32 {value.name}, {value.step * (self.state.width - 1)}")
        steady = self.w.let(f"icmp {'s' if value.type.is_signed else 'u'}ge i32 {last}, {value.name}")
        self._require(steady)
        return last, steady

    def _compared(self, s: Let, args: list[LaneValue]) -> LaneValue:
        """A comparison that all lanes answer as the first and the last do: that an index lies above a number, and below any other bound."""
        less = (s.op.name in _LESS) == args[1].is_uniform
        answer = less != any(a.const is not None for a in args)
        for atom, value in zip(s.args, args, strict=True):
            self._compare(atom, value)
        last, steady = next(self._last(a) for a in args if not a.is_uniform)
        first = [a.name for a in args]
        tests = [self.w.rows[s.op.name](self.w, 1, args[0].type, bool_, names) for names in (first, [a.name if a.is_uniform else last for a in args])]
        for test in tests:
            self._require(test if answer else self.w.let(f"xor i1 {test}, true"))
        neither = self.w.let(f"xor i1 {self.w.let(f'or i1 {tests[0]}, {tests[1]}')}, true")
        self.none[s.bound.id] = self.w.let(f"and i1 {steady}, {neither}")
        self.gains = True
        return LaneValue(Variability.UNIFORM, bool_, str(answer).lower(), const(bool_, answer))

    def _divided(self, s: Let, args: list[LaneValue]) -> LaneValue | None:
        """A quotient that all lanes share, or a remainder that steps by one."""
        if isinstance(s.args[1], Const) and s.args[1].bits < self.state.width:
            return None
        self.found.ends = None
        scalars = [LaneValue(Variability.UNIFORM, a.type, a.name) for a in args]
        rest = calculate(self.w, "rem", u32, scalars)
        self._last(args[0])
        last = self.w.let(f"add i32 {rest.name}, {self.state.width - 1}")
        self._require(self.w.let(f"icmp ugt i32 {last}, {rest.name}"))
        self._require(self.w.let(f"icmp ult i32 {last}, {args[1].name}"))
        self.gains = True
        return self.w.linear(u32, rest.name) if s.op.name == "rem" else calculate(self.w, "div", u32, scalars)

    def _masked(self, s: Let, args: list[LaneValue]) -> LaneValue | None:
        """A remainder by a power of two that is no constant, or what it leaves: the mask ends in ones or zeros, as many as tell lanes apart."""
        width = self.state.width
        for value, mask in (args, args[::-1]):
            if value.variability is not Variability.LINEAR or value.multiple < width or value.rest % width or not mask.is_uniform:
                continue
            above = self.masks[s.bound.id]
            end = self.w.let(f"and i32 {mask.name}, {width - 1}")
            self._require(self.w.let(f"icmp eq i32 {end}, {0 if above else width - 1}"))
            self.gains = self.found.seldom = True
            self.found.ends = None
            return self.w.stepped(s.bound.type, self.w.let(f"and i32 {value.name}, {mask.name}"), 0 if above else 1, width)
        return None

    def _access(self, index: int, s: MemoryStatement) -> None:
        for axis, atom in enumerate(s.indices):
            subscript = None if self.state.proven[index] >> axis & 1 else self._known(atom)
            if subscript is None or subscript.variability is Variability.VARYING:
                continue
            self._compare(atom, subscript)
            extent = self.memories.bound(s.memory, axis, subscript.type).name
            if not subscript.is_uniform:
                extent = self.w.rows["saturating_sub"](self.w, 1, u32, u32, [extent, str(subscript.step * (self.state.width - 1))])
                self.gains = True
            self._require(self.w.let(f"icmp ult i32 {subscript.name}, {extent}"))
            self.found.inside[index] = self.found.inside.get(index, 0) | 1 << axis
