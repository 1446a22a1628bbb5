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
from vyre_py.ir.language.types import Type, u32
from vyre_py.lowering.llvm.atomics import atomic_operation, new_element
from vyre_py.lowering.llvm.cpu.memory import Memories, Spot
from vyre_py.lowering.llvm.cpu.narrow import WORD_BYTES
from vyre_py.lowering.llvm.cpu.state import AREA_ALIGN
from vyre_py.lowering.llvm.cpu.values import LaneValue, Variability
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import llvm_type, number

__all__ = ["Atomics"]

# Atomics that many operands may be folded for -> (reduction of signed, of unsigned integers, what changes nothing).
_REDUCTIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "add": ("add", "add", "zero"), "sub": ("add", "add", "zero"), "or": ("or", "or", "zero"), "xor": ("xor", "xor", "zero"),
    "and": ("and", "and", "ones"), "min": ("smin", "umin", "maximum"), "max": ("smax", "umax", "minimum"),
}  # fmt: skip
# Of floats: what changes nothing, the sign of a zero included.
_NEUTRAL_FLOATS: Final[Mapping[str, float]] = {"add": -0.0, "min": math.nan, "max": math.nan}
# So many atomics of workgroup memory are written out where they stand.
_INLINE: Final = 4


def _at(w: Writer, element: str, pointer: str, number: str) -> str:
    return w.let(f"getelementptr {element}, ptr {pointer}, i64 {number}")


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
        self._slots: dict[tuple[str, str, bool], str] = {}
        self._left = ""  # the lanes that a loop has still to do
        self._defined: set[str] = set()
        self._count = sum([isinstance(s, Atomic) and s.memory.space is Space.WORKGROUP for s in self.state.program.body])

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

    def _perform(self, w: Writer, s: Atomic, pointer: str, operands: Sequence[str]) -> str:
        """One atomic on one element; gives the old value."""
        t = s.memory.type
        if s.memory.space is Space.BUFFER:
            order = s.op.order if s.op.order.scope is Scope.DEVICE else RELAXED
            return atomic_operation(w, s.op, t, f"ptr {pointer}", operands, self.w.rows, order)
        old = w.let(f"load {llvm_type(t)}, ptr {pointer}, align {t.size_bytes}")
        if not s.op.writes:
            return old
        w.line(f"store {llvm_type(t)} {self._plain(w, s.op, t, old, operands)}, ptr {pointer}, align {t.size_bytes}")
        return old

    def _plain(self, w: Writer, op: AtomicOp, t: Type, old: str, operands: Sequence[str]) -> str:
        if op.name in ("exchange", "store"):
            return operands[0]
        if op.name == "compare_exchange":
            equal = w.let(f"icmp eq {llvm_type(t)} {old}, {operands[0]}")
            return w.let(f"select i1 {equal}, {llvm_type(t)} {operands[1]}, {llvm_type(t)} {old}")
        return new_element(w, op.name, t, old, operands[0], self.w.rows)

    def _one(self, s: Atomic, spot: Spot, operands: Sequence[LaneValue]) -> LaneValue:
        """The only lane's."""
        t, spare = s.memory.type, self.memories.spare()
        old = self._perform(self.w, s, self.memories.uniform_pointer(spot, spare), [o.name for o in operands])
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
        self._perform(w, s, self.memories.uniform_pointer(spot, self.memories.spare()), [total])

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
        """One lane after another: of workgroup memory by a call where all are on and inside, else by a loop."""
        w, t = self.w, s.memory.type
        mask, offsets = self.memories.everywhere(spot), self.memories.offsets(spot)
        vectors = [o.name if o.is_uniform else w.vector(o) for o in operands]
        old = self._spill(s, "old", t, "zeroinitializer") if wanted else ""

        def every() -> None:
            self._every(s, offsets, operands, vectors, old)

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
        return w.varying(t, w.let(f"load {llvm_type(t, self.state.width)}, ptr {old}, align {AREA_ALIGN}"))

    def _every(self, s: Atomic, offsets: str, operands: Sequence[LaneValue], vectors: Sequence[str], old: str) -> None:
        """All lanes', two at a time: by a loop where the kernel has few of them, else by a call."""
        w, base, at = self.w, self.memories.pointers[s.memory], self._spill(s, "offsets", u32, offsets)
        spilled, varies = self._spilled(s, operands, vectors), [not o.is_uniform for o in operands]
        if self._count <= _INLINE:
            self._by_twos(w, s, base, at, spilled, varies, old)
            return
        given = ["ptr" if vector else llvm_type(s.memory.type) for vector in varies]
        name = "_".join(["lanes", s.op.name, s.memory.type.name, str(self.state.width), *["each" if v else "all" for v in varies], *(["old"] if old else [])])
        arguments = [("ptr", base), ("ptr", at), *zip(given, spilled, strict=True), *([("ptr", old)] if old else [])]
        w.line(f"call void @{name}({', '.join(' '.join(argument) for argument in arguments)})")
        if name not in self._defined:
            self._defined.add(name)
            self._define(s, name, given, bool(old))

    def _define(self, s: Atomic, name: str, given: Sequence[str], old: bool) -> None:
        """The function `void f(ptr, ptr, operands, ptr)`, which makes an atomic for all lanes, given an array, where numbers of elements are, operands or where
        they are, and memory for what was there before if `old` says so; `given` has the types of the operands."""
        w, operands = Writer(self.w.module), [f"%x{k}" for k in range(len(given))]
        self._by_twos(w, s, "%base", "%at", operands, [type_ == "ptr" for type_ in given], "%old" if old else "")
        w.end("ret void")
        taken = ", ".join(["ptr %base", "ptr %at", *map(" ".join, zip(given, operands, strict=True)), *(["ptr %old"] if old else [])])
        w.module.define(w.function(f"define internal void @{name}({taken}) noinline nounwind willreturn memory(argmem: readwrite)"))

    def _by_twos(self, w: Writer, s: Atomic, base: str, at: str, operands: Sequence[str], varies: Sequence[bool], old: str) -> None:
        """A loop over the lanes, of two at a time. Processors learn which loads wait for a store, by the places of instructions, of few of these only: written
        out for all lanes it takes half as long again."""
        element, counter = llvm_type(s.memory.type), w.local("i64")
        w.line(f"store i64 0, ptr {counter}")
        head, done = w.label("twos"), w.label("twosdone")
        w.block(head)
        lane = w.let(f"load i64, ptr {counter}")
        both = w.let(f"load i64, ptr {_at(w, 'i32', at, lane)}, align {WORD_BYTES}")
        for place in (w.let(f"and i64 {both}, {(1 << 8 * WORD_BYTES) - 1}"), w.let(f"lshr i64 {both}, {8 * WORD_BYTES}")):
            one = [w.let(f"load {element}, ptr {_at(w, element, x, lane)}") if vector else x for x, vector in zip(operands, varies, strict=True)]
            found = self._perform(w, s, _at(w, element, base, place), one)
            if old:
                w.line(f"store {element} {found}, ptr {_at(w, element, old, lane)}")
            lane = w.let(f"add i64 {lane}, 1")
        w.line(f"store i64 {lane}, ptr {counter}")
        w.end(f"br i1 {w.let(f'icmp ult i64 {lane}, {self.state.width}')}, label %{head}, label %{done}, !llvm.loop !0")
        w.block(done)

    def _element(self, s: Atomic, offset: str) -> str:
        """The address of an element, by its number."""
        wide = self.w.let(f"zext i32 {offset} to i64")
        return self.w.let(f"getelementptr {llvm_type(s.memory.type)}, ptr {self.memories.pointers[s.memory]}, i64 {wide}")

    def _loop(self, s: Atomic, mask: str, offsets: str, operands: Sequence[LaneValue], vectors: Sequence[str], old: str) -> None:
        """A loop over the lanes that are on and inside, which takes them from the lowest bit of the mask."""
        w, t, width = self.w, s.memory.type, self.state.width
        bits = f"i{width}"
        offsets = self._spill(s, "offsets", u32, offsets)
        spilled = self._spilled(s, operands, vectors)
        left = self._left = self._left or w.local(bits)
        w.line(f"store {bits} {w.mask_bits(mask)}, ptr {left}")
        head, body, done = w.label("lanes"), w.label("lane"), w.label("lanesdone")
        w.block(head)
        now = w.let(f"load {bits}, ptr {left}")
        w.branch(w.let(f"icmp ne {bits} {now}, 0"), body, done)
        w.block(body)
        lane = w.let(f"zext {bits} {w.call(bits, f'llvm.cttz.{bits}', (bits, now), ('i1', 'true'))} to i64")
        rest = w.let(f"and {bits} {now}, {w.let(f'sub {bits} {now}, 1')}")
        w.line(f"store {bits} {rest}, ptr {left}")
        pointer = self._element(s, self._pick("i32", offsets, lane))
        found = self._perform(w, s, pointer, [x if o.is_uniform else self._pick(llvm_type(t), x, lane) for x, o in zip(spilled, operands, strict=True)])
        if old:
            w.line(f"store {llvm_type(t)} {found}, ptr {w.let(f'getelementptr {llvm_type(t)}, ptr {old}, i64 {lane}')}")
        w.jump(head)
        w.block(done)

    def _spilled(self, s: Atomic, operands: Sequence[LaneValue], vectors: Sequence[str]) -> list[str]:
        """Operands that differ between lanes, in memory, and those that do not."""
        pairs = enumerate(zip(vectors, operands, strict=True))
        return [x if o.is_uniform else self._spill(s, f"operand {k}", s.memory.type, x) for k, (x, o) in pairs]

    def _spill(self, s: Atomic, role: str, type_: Type, name: str) -> str:
        """Memory that holds a vector, for lanes to be taken by number. Every atomic uses the same, so that many don't fill the stack. For workgroup
        arrays it is of the thread's scratch memory, too: processors take what lies a multiple of 4 KiB away for the array."""
        vector, size, within = llvm_type(type_, self.state.width), type_.size_bytes, s.memory.space is Space.WORKGROUP
        slot = self._slots.get((role, vector, within), "")
        if not slot:
            slot = self.state.area(f"%spilled{len(self._slots)}", self.state.width * size) if within else self.w.local(vector, align=AREA_ALIGN)
        self._slots[role, vector, within] = slot
        self.w.line(f"store {vector} {name}, ptr {slot}, align {AREA_ALIGN}")
        return slot

    def _pick(self, type_: str, slot: str, lane: str) -> str:
        return self.w.let(f"load {type_}, ptr {self.w.let(f'getelementptr {type_}, ptr {slot}, i64 {lane}')}")
