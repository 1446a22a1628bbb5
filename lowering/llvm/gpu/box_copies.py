"""Copies of whole boxes of a buffer into workgroup memory (PTX ISA, `cp.async.bulk.tensor`), on sm_90a: the first invocation of the workgroup begins them, and
words of workgroup memory (`mbarrier`) count the bytes that have come.

What a box is of, the kernel is told by a description that it takes as an argument (`layout.SlotKind.BOXES`), and that the driver makes. One instruction has
all that the first invocation does at once, under a predicate: a branch between products that are under way would have the assembler wait for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import ArrivalsExpect, ArrivalsSet, ArrivalsWait, Atom, BoxCopy, Memory
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.text import Writer

__all__ = ["BoxCopies"]

_WORD_BYTES: Final = 8  # that count
_UNIT_BYTES: Final = 16
_PARITIES: Final = 2  # of turns, that a word tells apart


class BoxCopies:
    """What a walk over a Program does for them: `bases` are the addresses of memories, `boxes` those of descriptions, by buffer and box."""

    def __init__(self, w: Writer, name_of: Callable[[Atom], str], index: Callable[[], str], bases: Mapping[Memory, str]) -> None:
        self._w, self._name_of, self._index, self._bases = w, name_of, index, bases
        self.boxes: dict[tuple[str, tuple[int, ...]], str] = {}

    def _alone(self, text: str, registers: str, given: str, behind: str = "") -> None:
        """Instructions of the first invocation, each of which begins with `@%first`; the operands from $1 on are given. What stands `behind` all do."""
        head = "{ .reg .pred %first; setp.eq.u32 %first, $0, 0; "
        self._w.line(f'call void asm sideeffect "{head}{text} {behind}}}", "r,{registers},~{{memory}}"(i32 {self._index()}, {given}) convergent')

    def _word(self, memory: Memory, number: Atom) -> str:
        """The address of a word that counts, as an i32."""
        w = self._w
        place = w.let(f"getelementptr [{_WORD_BYTES} x i8], ptr addrspace(3) {self._bases[memory]}, i32 {self._name_of(number)}")
        return w.let(f"ptrtoint ptr addrspace(3) {place} to i32")

    def set(self, s: ArrivalsSet) -> None:
        """Makes the words of an array ready, and has descriptions fetched, or makes them plain memory again."""
        address = self._w.let(f"ptrtoint ptr addrspace(3) {self._bases[s.memory]} to i32")
        what, count = ("init", ", 1") if s.begins else ("inval", "")
        lines = [f"@%first mbarrier.{what}.shared::cta.b64 [$1+{_WORD_BYTES * k}]{count};" for k in range(element_count(s.memory))]
        behind = "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" if s.begins else ""
        boxes = list(self.boxes.values()) if s.begins else []
        lines += [f"@%first prefetch.tensormap [${2 + number}];" for number in range(len(boxes))]
        self._alone(" ".join(lines), ",".join(["r", *["l"] * len(boxes)]), ", ".join([f"i32 {address}", *[f"ptr {name}" for name in boxes]]), behind)

    def expect(self, s: ArrivalsExpect) -> None:
        """Tells a word how many bytes come."""
        what = "mbarrier.arrive.expect_tx.shared::cta.b64 _," if s.closes else "mbarrier.expect_tx.relaxed.cta.shared::cta.b64"
        self._alone(f"@%first {what} [$1], {s.expected};", "r", f"i32 {self._word(s.memory, s.args[0])}")

    def wait(self, s: ArrivalsWait) -> None:
        """Waits for the turn of a word."""
        w = self._w
        parity = w.let(f"and i32 {self._name_of(s.args[1])}, {_PARITIES - 1}")
        again = "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %come, [$0], $1; @%come bra COME; bra AGAIN; COME:"
        text = f"{{ .reg .pred %come; {again} }}"
        w.line(f'call void asm sideeffect "{text}", "r,r,~{{memory}}"(i32 {self._word(s.memory, s.args[0])}, i32 {parity}) convergent')

    def copy(self, s: BoxCopy) -> None:
        """Begins to copy a box."""
        w = self._w
        place = w.let(f"getelementptr [{_UNIT_BYTES} x i8], ptr addrspace(3) {self._bases[s.memory]}, i32 {self._name_of(s.args[0])}")
        to, word = w.let(f"ptrtoint ptr addrspace(3) {place} to i32"), self._word(s.arrivals, s.args[1])
        rank = len(s.box)
        at = ", ".join([f"${4 + axis}" for axis in range(rank)])
        text = f"@%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$1], [$2, {{{at}}}], [$3];"
        given = ", ".join([f"i32 {self._name_of(a)}" for a in reversed(s.args[2:])])  # the innermost first
        self._alone(text, ",".join(["r", "l", "r", *["r"] * rank]), f"i32 {to}, ptr {self.boxes[s.source.name, s.box]}, i32 {word}, {given}")
