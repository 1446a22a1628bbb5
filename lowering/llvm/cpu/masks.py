"""Control flow over lanes: branches where all lanes agree, masks where they diverge.

At every statement at least one lane is on. A block that no lane enters is skipped, and so is the rest of a block that the last lane leaves early. Lanes
that leave early are removed from the masks of the loops around them. Behind a block that some lanes may have left, the mask is read back from the
innermost loop. A loop is never assumed to end.

One module because a loop, a branch and an escape are about the same frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import (
    Atomic,
    Break,
    Const,
    Continue,
    Else,
    End,
    For,
    If,
    Let,
    Load,
    Loop,
    Region,
    Return,
    Statement,
    Store,
    Value,
)
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.plan.interior import Interior, inside_turns
from vyre_py.lowering.llvm.cpu.plan.regions import Escape, beyond
from vyre_py.lowering.llvm.cpu.values import LaneValue, Mask, Variability, calculate
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import bits_type, integer

# A longer loop is written once.
_MOST_STATEMENTS: Final = 64
_ACCESSES: Final = (Load, Store, Atomic)

__all__ = ["CONTROL", "Control", "Frame", "Turns"]


@dataclass(slots=True)
class Frame:
    """An open block. `close` is the statement that ends it, `entered` the lanes on around it, `skip` where to go when no lane of it is
    left; `whole` says that its lanes are all those in the innermost loop's turn, `all` that they are all those left in the region."""

    close: int
    entered: Mask
    skip: str
    whole: bool
    all: bool


@dataclass(slots=True)
class Branch(Frame):
    """An open If, and the labels of its second block and of what follows. Lanes of a first block that all share are done with it after
    it; others still have the second to look at."""

    opener: int
    condition: LaneValue
    other: str
    merge: str


@dataclass(slots=True)
class Turns(Frame):
    """An open loop, or a whole region as a loop of one turn. Variables `live` and `now` hold the lanes that have not left it, and not left
    its turn; both are one where no lane goes on to the next turn by itself, none where lanes never part. `continued` says that some
    lanes may have gone on to the next turn."""

    opener: int
    live: str
    now: str
    head: str = ""
    latch: str = ""
    exit: str = ""
    count: str = ""
    continued: bool = False
    inside: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Copies:
    """A For that is written several times, each for some of its turns: the turns so far, how many each lane has, those that all have, the most that one has,
    and what is left to be written. Each copy is whether lanes take its turns together, which need no masks, and what is known in them."""

    count: str
    trips: str
    together: str
    most: str
    left: list[tuple[bool, Interior]] = field(default_factory=list)


class Control:
    """The open blocks, and what each control statement does; every handler gives the index of the statement to go on at."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self.state = state = memories.state
        self.w = state.w
        self.frames: list[Frame] = []
        self.turns: list[Turns] = []
        self.copies: dict[int, Copies] = {}  # of loops of which a copy is being written, and others are to follow
        self.alive_offset = self.mask_space() if state.plan.keeps_alive else 0
        self.turn_offsets = {loop: self.mask_space() for loop in sorted(state.plan.keeps_turn)}

    # ---- masks in variables, and masks kept for later regions

    def mask_space(self) -> int:
        """Space for a mask of each chunk."""
        return self.state.save_space(self.mask_bytes)

    @property
    def mask_bytes(self) -> int:
        """Bytes of one kept mask."""
        return max(1, self.state.width // 8)

    def fill_masks(self, offset: int) -> None:
        """All lanes of all chunks are on again."""
        pointer = self.w.let(f"getelementptr i8, ptr %saved, i64 {offset}")
        count = self.mask_bytes * self.state.chunks
        self.w.run("llvm.memset.p0.i64", ("ptr", pointer), ("i8", "-1"), ("i64", str(count)), ("i1", "false"))

    def kept_mask(self, offset: int) -> str:
        """The current chunk's mask at `offset`."""
        w, width, size = self.w, self.state.width, self.mask_bytes
        bits = w.let(f"load i{8 * size}, ptr {self.state.saved_pointer(offset, size)}, align {size}")
        if width < 8:
            bits = w.let(f"trunc i8 {bits} to i{width}")
        return bits if width == 1 else w.let(f"bitcast i{width} {bits} to {w.mask_type}")

    def _clear_kept(self, offset: int, mask: Mask) -> None:
        w, width, size = self.w, self.state.width, self.mask_bytes
        rest = w.mask_bits(w.without(self.kept_mask(offset), mask))
        if width < 8:
            rest = w.let(f"zext i{width} {rest} to i8")
        w.line(f"store i{8 * size} {rest}, ptr {self.state.saved_pointer(offset, size)}, align {size}")

    def _read(self, slot: str) -> str:
        return self.w.let(f"load {self.w.mask_type}, ptr {slot}")

    def _write(self, slot: str, mask: Mask) -> None:
        self.w.line(f"store {self.w.mask_type} {self.w.spelled(mask)}, ptr {slot}")

    def _clear(self, turns: Turns, slots: tuple[str, ...], mask: Mask) -> None:
        for slot in dict.fromkeys(slots):
            if slot:
                self._write(slot, self.w.without(self._read(slot), mask))

    # ---- regions

    def enter_region(self, stop: int, escapes: Escape, done: str) -> None:
        """Opens a region's chunk as a loop of one turn."""
        slot = self.w.local(self.w.mask_type) if escapes else ""
        if slot:
            self._write(slot, self.state.mask)
        self._push(Turns(stop, self.state.mask, done, True, True, -1, slot, slot))

    def leave_run(self) -> None:
        """Closes it."""
        self.frames.pop()
        self.turns.pop()
        self.state.loops.pop()

    def _push(self, frame: Frame) -> None:
        self.frames.append(frame)
        if isinstance(frame, Turns):
            self.turns.append(frame)
            self.state.loops.append(frame.opener)

    # ---- after blocks

    def _escapes(self, opener: int) -> Escape:
        """How lanes leave a block by themselves; around regions there are no lanes."""
        return Escape.NONE if self.state.region is None else self.state.plan.escapes[opener]

    def _after(self, opener: int, entered: Mask) -> None:
        """The mask after a block: those that entered it, without those that left early; if none is left, the rest is jumped over."""
        if not beyond(self.state.program.body[opener], self._escapes(opener)):
            self.state.mask = entered
            return
        now = self._read(self.turns[-1].now)
        self.state.mask = now if self.frames[-1].whole else self.w.both(entered, now)
        on = self.w.label("on")
        self.w.branch(self.w.any(self.state.mask), on, self.frames[-1].skip)
        self.w.block(on)

    # ---- If

    def if_(self, index: int, s: If) -> int:
        """Opens an If: a branch where lanes agree, else each block for the lanes that it is for."""
        state, w = self.state, self.w
        condition = state.operand(s.args[0])
        if condition.variability is Variability.VARYING and self._only_escapes(index):
            return self._escape_where(index, condition)
        close = state.program.match[index]
        merge = w.label("merge")
        other = w.label("else") if isinstance(state.program.body[close], Else) else merge
        around, entered = self.frames[-1], state.mask
        same = condition.is_uniform
        skip = merge if same else other
        self._push(Branch(close, entered, skip, around.whole and same, around.all and same, index, condition, other, merge))
        then = w.label("then")
        if same:
            w.branch(condition.name, then, other)
        else:
            state.parts = True
            state.mask = w.both(entered, condition.name)
            w.branch(w.any(state.mask), then, other)
        w.block(then)
        return index + 1

    def else_(self, index: int, s: Else) -> int:
        """Goes from an If's first block to its second."""
        state, w = self.state, self.w
        frame = self.frames[-1]
        assert isinstance(frame, Branch)
        if w.open:
            w.jump(frame.skip)
        w.block(frame.other)
        frame.close = state.program.match[index]
        frame.skip = frame.merge
        state.mask = frame.entered
        if not frame.condition.is_uniform:
            state.mask = w.both(frame.entered, w.negated(frame.condition.name))
            taken = w.label("other")
            w.branch(w.any(state.mask), taken, frame.merge)
            w.block(taken)
        return index + 1

    def _only_escapes(self, index: int) -> bool:
        """Whether all that an If does is to let lanes leave, which needs no branch."""
        program = self.state.program
        close = program.match[index]
        return close == index + 2 and isinstance(program.body[close], End) and bool(self.state.plan.escapes[index + 1])

    def _escape_where(self, index: int, condition: LaneValue) -> int:
        state, w = self.state, self.w
        state.parts, entered = True, state.mask
        self._part(type(state.program.body[index + 1]), w.both(entered, condition.name))
        self._after(index, entered)
        return index + 3

    # ---- loops

    def for_(self, index: int, s: For) -> int:
        """Opens a For, or one of its copies. Its lanes take their turns together, each as many as it has; trips are counted before the first."""
        state, w = self.state, self.w
        type_, (start, stop) = s.bound.type, (state.operand(s.args[0]), state.operand(s.args[1]))
        assert isinstance(s.args[2], Const)  # V208
        step = int(s.args[2].value)
        same = start.is_uniform and stop.is_uniform
        if not same:
            state.fill(type_.bits)
            state.parts = True
        copies = self.copies.get(index) or self._plan_copies(index, s, step, start, stop)
        together, known = copies.left.pop(0)
        if copies.left:
            self.copies[index] = copies
        else:
            self.copies.pop(index, None)
        most = copies.together if together else copies.most
        if known.condition:
            most = w.let(f"select i1 {known.condition}, i32 {most}, i32 0")
        turns = self._open(index, parts=not together)
        turns.count, turns.inside = copies.count, state.inside
        state.inside = {**state.inside, **{k: state.inside.get(k, 0) | axes for k, axes in known.inside.items()}}
        turn = w.let(f"load i32, ptr {copies.count}")
        go = w.let(f"icmp ult i32 {turn}, {most}")
        if not together and turns.live:
            state.mask = w.both(self._read(turns.live), self._left(turn, copies))
            self._write(turns.live, state.mask)
            go = w.any(state.mask)
        elif turns.live:
            go = w.let(f"and i1 {go}, {w.any(self._read(turns.live))}")
        self._begin_turn(turns, go)
        if not together and not turns.live:
            state.mask = self._left(turn, copies)
        far = turn if step == 1 else w.let(f"mul i32 {turn}, {step}")
        state.bind(s, calculate(w, "add", type_, (start, LaneValue(Variability.UNIFORM, type_, far, multiple=abs(step) & -abs(step)))))
        return index + 1

    def _plan_copies(self, index: int, s: For, step: int, start: LaneValue, stop: LaneValue) -> Copies:
        """How often a For is written. A short one is where lanes have different numbers of turns, for the turns that all take, without masks, and for the rest;
        and where its own value is an index, for turns that are all inside."""
        state, w = self.state, self.w
        count = w.local("i32")
        w.line(f"store i32 0, ptr {count}")
        same = start.is_uniform and stop.is_uniform
        trips = self._trips(s.bound.type, start, stop, step, 1 if same else state.width)
        vector, plain = bits_type(32, state.width), Interior()
        copies = Copies(count, trips, trips, trips)
        if not same:
            copies.together = w.call("i32", f"llvm.vector.reduce.umin.{suffix(vector)}", (vector, trips))
            copies.trips = w.blend(vector, state.mask, trips, "zeroinitializer")
            copies.most = w.call("i32", f"llvm.vector.reduce.umax.{suffix(vector)}", (vector, copies.trips))
        # Lanes' numbers of turns differ by little where they begin and end at neighbours; masks cost nothing where a gather has one anyway.
        even = same or Variability.VARYING not in (start.variability, stop.variability)
        short = even and self._is_short(index)
        parts = [False] if not same and (not short or self._follows(index)) else [same] if same else [True, False]
        inside = inside_turns(self.memories, index, s, step, start, stop) if short and state.region is not None and (not same or state.width == 1) else plain
        copies.left = [(together, inside) for together in parts] + [(same, plain)] if inside.inside else [(together, plain) for together in parts]
        return copies

    def _follows(self, index: int) -> bool:
        """Whether a loop has an access at an index that it has loaded."""
        loaded = set[int]()
        for s in self.state.program.body[index + 1 : self.state.program.match[index]]:
            if isinstance(s, _ACCESSES) and any(a.id in loaded for a in s.indices if isinstance(a, Value)):
                return True
            if isinstance(s, Load) or (isinstance(s, Let) and any(a.id in loaded for a in s.args if isinstance(a, Value))):
                loaded.add(s.bound.id)
        return False

    def _left(self, turn: str, copies: Copies) -> str:
        """The lanes that have the turn."""
        return self.w.let(f"icmp ult {bits_type(32, self.state.width)} {self.w.splat('i32', turn)}, {copies.trips}")

    def _is_short(self, index: int) -> bool:
        """Whether a loop may be written several times: it has no other in it, and is left at its end."""
        program, stop = self.state.program, self.state.program.match[index]
        alone = not any(isinstance(s, (For, Loop, Break)) for s in program.body[index + 1 : stop])
        return alone and stop - index <= _MOST_STATEMENTS and self._escapes(index) is Escape.NONE

    def _trips(self, type_: Type, start: LaneValue, stop: LaneValue, step: int, width: int) -> str:
        """ceil((stop - start) / step), or 0; it fits 32 bits, and nothing on the way wraps."""
        w, t = self.w, bits_type(32, width)
        first, last = (start.name, stop.name) if width == 1 else (w.vector(start), w.vector(stop))
        low, high = (first, last) if step > 0 else (last, first)
        runs = w.let(f"icmp {'s' if type_.is_signed else 'u'}lt {t} {low}, {high}")
        trips = w.let(f"sub {t} {high}, {low}")
        if abs(step) != 1:
            trips = w.let(f"sub {t} {trips}, {integer(1, 32, width)}")
            trips = w.let(f"udiv {t} {trips}, {integer(abs(step), 32, width)}")
            trips = w.let(f"add {t} {trips}, {integer(1, 32, width)}")
        return w.let(f"select {bits_type(1, width)} {runs}, {t} {trips}, {t} {integer(0, 32, width)}")

    def loop(self, index: int, s: Loop) -> int:
        """Opens a Loop."""
        turns = self._open(index, parts=False)
        # Without lanes that go on by themselves, the last lane to leave jumps out by itself.
        go = self.w.any(self._read(turns.live)) if turns.live != turns.now else "true"
        self._begin_turn(turns, go)
        return index + 1

    def _open(self, index: int, parts: bool) -> Turns:
        """Opens a loop up to its head; `parts` says that lanes may take different numbers of turns."""
        state, w = self.state, self.w
        around = self.frames[-1]
        escapes = self._escapes(index)
        live = now = w.local(w.mask_type) if escapes else ""
        if Escape.CONTINUE in escapes:
            now = w.local(w.mask_type)
        if live:
            self._write(live, state.mask)
        head, latch, exit_ = w.label("head"), w.label("latch"), w.label("exit")
        skip = exit_ if live == now and live else latch
        turns = Turns(state.program.match[index], state.mask, skip, True, around.all and not live and not parts, index, live, now, head, latch, exit_)
        self._push(turns)
        w.block(head)
        return turns

    def _begin_turn(self, turns: Turns, go: str) -> None:
        """Goes into the body, or leaves the loop."""
        state, w = self.state, self.w
        body = w.label("body")
        w.branch(go, body, turns.exit)
        w.block(body)
        if turns.live:
            state.mask = self._read(turns.live)
        if turns.now != turns.live:
            self._write(turns.now, state.mask)
        if state.region is None and turns.opener in self.turn_offsets:
            self.fill_masks(self.turn_offsets[turns.opener])

    def region(self, index: int, s: Region) -> int:
        """Opens a Region, which is only a place to skip to the end of."""
        around = self.frames[-1]
        self._push(Frame(self.state.program.match[index], self.state.mask, self.w.label("region"), around.whole, around.all))
        return index + 1

    # ---- End

    def end(self, index: int, s: End) -> int:
        """Closes the innermost block."""
        state, w = self.state, self.w
        frame = self.frames.pop()
        if isinstance(frame, Turns):
            self.turns.pop()
            self.state.loops.pop()
            w.block(frame.latch)
            state.look()
            if frame.count:
                turn = w.let(f"load i32, ptr {frame.count}")
                w.line(f"store i32 {w.let(f'add i32 {turn}, 1')}, ptr {frame.count}")
                state.inside = frame.inside
            w.again(frame.head, state.unrolls.get(frame.opener, 0))
            w.block(frame.exit)
            self._after(frame.opener, frame.entered)
            return frame.opener if frame.opener in self.copies else index + 1
        w.block(frame.skip)
        opener = state.program.match[index]
        self._after(frame.opener if isinstance(frame, Branch) else opener, frame.entered)
        return index + 1

    # ---- escapes

    def escape(self, index: int, s: Statement) -> int:
        """A break, continue or return: a jump where every lane of the loop or region is here, else these lanes are taken out."""
        frame, kind = self.frames[-1], type(s)
        if target := self._target(frame, kind):
            self.w.jump(target)
        else:
            self._part(kind, self.state.mask)
            self.w.jump(frame.skip)
        return frame.close

    def _target(self, frame: Frame, kind: type[Statement]) -> str:
        """Where all lanes go together, or nothing where some do not; what later regions need to know is kept."""
        turns = self.turns[-1] if self.turns else None
        if kind is not Return and turns is not None and turns.opener >= 0:
            if not frame.whole or (kind is Break and turns.continued):
                return ""
            return turns.exit if kind is Break else turns.latch
        if self.state.region is None:
            return self.frames[0].skip
        if not frame.all:
            return ""
        if kind is Return and self.state.plan.keeps_alive:
            self._clear_kept(self.alive_offset, self.state.mask)
        elif kind is Continue:
            self._clear_kept(self.turn_offsets[self._loop_around_run()], self.state.mask)
        return next(t.skip for t in self.turns if t.opener < 0)

    def _part(self, kind: type[Statement], mask: Mask) -> None:
        """Takes lanes out of the loop, of its turn, or of the whole region."""
        state, turns = self.state, self.turns[-1]
        assert kind is not Break or turns.opener >= 0  # such a break would part a workgroup at a barrier (V401)
        if kind is Return:
            for around in self.turns:
                self._clear(around, (around.live, around.now), mask)
            if state.plan.keeps_alive:
                self._clear_kept(self.alive_offset, mask)
        elif kind is Break:
            self._clear(turns, (turns.live, turns.now), mask)
        else:
            turns.continued = True
            self._clear(turns, (turns.now,), mask)
            if turns.opener < 0:
                self._clear_kept(self.turn_offsets[self._loop_around_run()], mask)

    def _loop_around_run(self) -> int:
        """The workgroup's innermost loop around the current region."""
        return next(f.opener for f in reversed(self.frames) if isinstance(f, Turns) and f.opener >= 0)


CONTROL: Final[Mapping[type[Statement], Callable[..., int]]] = {
    If: Control.if_, Else: Control.else_, For: Control.for_, Loop: Control.loop, Region: Control.region, End: Control.end,
    Break: Control.escape, Continue: Control.escape, Return: Control.escape,
}
