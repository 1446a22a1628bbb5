"""Atomics over lanes: one after another, in lane order; one for all lanes where they update one element and the old value is unused.

A workgroup stays on one thread, so on its own memory an atomic is a plain read and write, and nothing has to be done for an order within it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.check.facts import uses
from vyre_py.ir.language.nodes import Atomic, Fence, Space
from vyre_py.ir.language.op import RELAXED, AtomicOp, Scope
from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.atomics import atomic_operation, new_element
from vyre_py.lowering.llvm.cpu.memory import Memories, Spot
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.types import llvm_type, number

__all__ = ["Atomics"]

# Atomics that many operands may be folded for -> (reduction of signed, of unsigned integers, what changes nothing).
_REDUCTIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "add": ("add", "add", "zero"), "sub": ("add", "add", "zero"), "or": ("or", "or", "zero"), "xor": ("xor", "xor", "zero"),
    "and": ("and", "and", "ones"), "min": ("smin", "umin", "maximum"), "max": ("smax", "umax", "minimum"),
}  # fmt: skip
# Of floats: what changes nothing, the sign of a zero included.
_NEUTRAL_FLOATS: Final[Mapping[str, float]] = {"add": -0.0, "min": math.nan, "max": math.nan}


def _neutral(name: str, t: Type) -> int | float:
    if t.is_float:
        return _NEUTRAL_FLOATS[name]
    return {"zero": 0, "ones": -1 if t.is_signed else t.maximum, "maximum": t.maximum, "minimum": t.minimum}[_REDUCTIONS[name][2]]


class Atomics:
    """Atomics on a kernel's memories."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self.state = memories.state
        self.w = memories.w
        self._uses = uses(self.state.program)
        self._slots: dict[tuple[str, str], str] = {}

    def atomic(self, index: int, s: Atomic) -> int:
        """An atomic; dropped outside, and then its result is zero."""
        spot = self.memories.spot(index, s)
        operands = [self.state.operand(a) for a in s.operands]
        wanted = s.result is not None and self._uses[s.result.id] > 0
        if self.state.width == 1:
            value = self._one(s, spot, operands)
        elif spot.is_uniform and not wanted and s.op.name in _REDUCTIONS:
            self._folded(s, spot, operands[0])
            value = self._nothing(s.memory.type)
        else:
            value = self._by_lane(s, spot, operands, wanted)
        if s.binds:
            self.state.bind(s, value)
        return index + 1

    def fence(self, index: int, s: Fence) -> int:
        """A fence; the workgroup has none to wait for but this thread."""
        if s.scope is Scope.DEVICE:
            self.w.line("fence seq_cst")
        return index + 1

    def _nothing(self, t: Type) -> LaneValue:
        return LaneValue(Variability.UNIFORM, t, number(t, 0))

    def _perform(self, s: Atomic, pointer: str, operands: Sequence[str]) -> str:
        """One atomic on one element; gives the old value."""
        w, t = self.w, s.memory.type
        if s.memory.space is Space.BUFFER:
            order = s.op.order if s.op.order.scope is Scope.DEVICE else RELAXED
            return atomic_operation(w, s.op, t, f"ptr {pointer}", operands, w.rows, order)
        old = w.let(f"load {llvm_type(t)}, ptr {pointer}, align {t.size_bytes}")
        if not s.op.writes:
            return old
        w.line(f"store {llvm_type(t)} {self._plain(s.op, t, old, operands)}, ptr {pointer}, align {t.size_bytes}")
        return old

    def _plain(self, op: AtomicOp, t: Type, old: str, operands: Sequence[str]) -> str:
        w = self.w
        if op.name in ("exchange", "store"):
            return operands[0]
        if op.name == "compare_exchange":
            equal = w.let(f"icmp eq {llvm_type(t)} {old}, {operands[0]}")
            return w.let(f"select i1 {equal}, {llvm_type(t)} {operands[1]}, {llvm_type(t)} {old}")
        return new_element(w, op.name, t, old, operands[0], w.rows)

    def _one(self, s: Atomic, spot: Spot, operands: Sequence[LaneValue]) -> LaneValue:
        """The only lane's."""
        t, spare = s.memory.type, self.memories.spare()
        old = self._perform(s, self.memories.uniform_pointer(spot, spare), [o.name for o in operands])
        if spot.inside is not None and s.binds:
            old = self.w.let(f"select i1 {spot.inside}, {llvm_type(t)} {old}, {llvm_type(t)} {number(t, 0)}")
        return LaneValue(Variability.UNIFORM, t, old)

    def _folded(self, s: Atomic, spot: Spot, operand: LaneValue) -> None:
        """All lanes at one element: the operands are folded first."""
        w, t, width = self.w, s.memory.type, self.state.width
        signed, unsigned, _ = _REDUCTIONS[s.op.name]
        vector = llvm_type(t, width)
        values = w.blend(vector, spot.mask, w.vector(operand), number(t, _neutral(s.op.name, t), width))
        if t.is_float:
            total = self._halved(s.op.name, t, values)
        else:
            total = w.call(llvm_type(t), f"llvm.vector.reduce.{signed if t.is_signed else unsigned}.{suffix(vector)}", (vector, values))
        self._perform(s, self.memories.uniform_pointer(spot, self.memories.spare()), [total])

    def _halved(self, name: str, t: Type, values: str) -> str:
        """Floats folded, upper half onto lower, until one is left."""
        w, width = self.w, self.state.width
        vector = llvm_type(t, width)
        half = width // 2
        while half:
            numbers = ", ".join(f"i32 {k + half if k < half else k}" for k in range(width))
            upper = w.let(f"shufflevector {vector} {values}, {vector} poison, <{width} x i32> <{numbers}>")
            values = w.rows[name](w, width, t, t, (values, upper))
            half //= 2
        return w.let(f"extractelement {vector} {values}, i64 0")

    def _by_lane(self, s: Atomic, spot: Spot, operands: Sequence[LaneValue], wanted: bool) -> LaneValue:
        """One lane after another: in workgroup memory written out where all are on and inside, else by a loop."""
        w, t = self.w, s.memory.type
        mask, offsets = self.memories.everywhere(spot), self.memories.offsets(spot)
        vectors = [o.name if o.is_uniform else w.vector(o) for o in operands]
        old = self._spill("old", llvm_type(t, self.state.width), "zeroinitializer") if wanted else ""

        def every() -> None:
            self._written_out(s, offsets, operands, vectors, old)

        def some() -> None:
            self._loop(s, w.spelled(mask), offsets, operands, vectors, old)

        if s.memory.space is not Space.WORKGROUP:
            some()
        elif mask is None:
            every()
        else:
            w.by_mask(mask, every, some)
        if not wanted:
            return self._nothing(t)
        return w.varying(t, w.let(f"load {llvm_type(t, self.state.width)}, ptr {old}"))

    def _written_out(self, s: Atomic, offsets: str, operands: Sequence[LaneValue], vectors: Sequence[str], old: str) -> None:
        """Every lane's, without a branch."""
        w, t, width = self.w, s.memory.type, self.state.width
        vector, found = llvm_type(t, width), "poison"
        for lane in range(width):
            one = [x if o.is_uniform else w.let(f"extractelement {vector} {x}, i64 {lane}") for x, o in zip(vectors, operands, strict=True)]
            pointer = self._element(s, w.let(f"extractelement <{width} x i32> {offsets}, i64 {lane}"))
            was = self._perform(s, pointer, one)
            found = w.let(f"insertelement {vector} {found}, {llvm_type(t)} {was}, i64 {lane}") if old else found
        if old:
            w.line(f"store {vector} {found}, ptr {old}")

    def _element(self, s: Atomic, offset: str) -> str:
        """The address of an element, by its number."""
        wide = self.w.let(f"zext i32 {offset} to i64")
        return self.w.let(f"getelementptr {llvm_type(s.memory.type)}, ptr {self.memories.pointers[s.memory]}, i64 {wide}")

    def _loop(self, s: Atomic, mask: str, offsets: str, operands: Sequence[LaneValue], vectors: Sequence[str], old: str) -> None:
        """A loop over the lanes that are on and inside, which takes them from the lowest bit of the mask."""
        w, t, width = self.w, s.memory.type, self.state.width
        bits = f"i{width}"
        offsets = self._spill("offsets", f"<{width} x i32>", offsets)
        spilled = [x if o.is_uniform else self._spill(f"operand {k}", llvm_type(t, width), x) for k, (x, o) in enumerate(zip(vectors, operands, strict=True))]
        left = self._spill("left", bits, w.mask_bits(mask))
        head, body, done = w.label("lanes"), w.label("lane"), w.label("lanesdone")
        w.block(head)
        now = w.let(f"load {bits}, ptr {left}")
        w.branch(w.let(f"icmp ne {bits} {now}, 0"), body, done)
        w.block(body)
        lane = w.let(f"zext {bits} {w.call(bits, f'llvm.cttz.{bits}', (bits, now), ('i1', 'true'))} to i64")
        rest = w.let(f"and {bits} {now}, {w.let(f'sub {bits} {now}, 1')}")
        w.line(f"store {bits} {rest}, ptr {left}")
        pointer = self._element(s, self._pick("i32", offsets, lane))
        found = self._perform(s, pointer, [x if o.is_uniform else self._pick(llvm_type(t), x, lane) for x, o in zip(spilled, operands, strict=True)])
        if old:
            w.line(f"store {llvm_type(t)} {found}, ptr {w.let(f'getelementptr {llvm_type(t)}, ptr {old}, i64 {lane}')}")
        w.jump(head)
        w.block(done)

    def _spill(self, role: str, type_: str, name: str) -> str:
        """A local that holds a vector, for lanes to be taken by number. Every atomic uses the same ones, so that many don't fill the stack."""
        slot = self._slots.get((role, type_)) or self.w.local(type_)
        self._slots[role, type_] = slot
        self.w.line(f"store {type_} {name}, ptr {slot}")
        return slot

    def _pick(self, type_: str, slot: str, lane: str) -> str:
        return self.w.let(f"load {type_}, ptr {self.w.let(f'getelementptr {type_}, ptr {slot}, i64 {lane}')}")
