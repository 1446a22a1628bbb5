"""Copies of whole boxes of a buffer into workgroup memory (PTX ISA, `cp.async.bulk.tensor`), on sm_90a: one invocation of the workgroup begins them, and
words of workgroup memory (`mbarrier`) count the bytes that have come.

What a box is of, the kernel is told by a description that it takes as an argument (`layout.SlotKind.BOXES`), and that the driver makes. One instruction has
all that this invocation does at once, under a predicate: a branch between products that are under way would have the assembler wait for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.ir.language.nodes import ArrivalsExpect, ArrivalsSet, ArrivalsTell, ArrivalsWait, Atom, BoxCopy, Memory
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.text import Writer

__all__ = ["BoxCopies"]

_WORD_BYTES: Final = 8  # that count
_UNIT_BYTES: Final = 16
_WARPGROUP: Final = 128  # invocations
_PARITIES: Final = 2  # of turns, that a word tells apart


class BoxCopies:
    """What a walk over a Program does for them: `bases` are the addresses of memories, `boxes` those of descriptions, by buffer and box."""

    def __init__(
        self, w: Writer, name_of: Callable[[Atom], str], index: Callable[[], str], bases: Mapping[Memory, str], boxes: Mapping[tuple[str, tuple[int, ...]], str]
    ) -> None:
        self._w, self._name_of, self._index, self._bases, self._boxes = w, name_of, index, bases, boxes

    def _alone(self, text: str, registers: str, given: str, behind: str = "", by: int = 0) -> None:
        """Instructions of one invocation, each of which begins with `@%first`; the operands from $1 on are given. What stands `behind` all do."""
        head = f"{{ .reg .pred %first; setp.eq.u32 %first, $0, {by}; "
        self._w.line(f'call void asm sideeffect "{head}{text} {behind}}}", "r,{registers},~{{memory}}"(i32 {self._index()}, {given}) convergent')

    def _word(self, memory: Memory, number: Atom) -> str:
        """The address of a word that counts, as an i32."""
        w = self._w
        place = w.let(f"getelementptr [{_WORD_BYTES} x i8], ptr addrspace(3) {self._bases[memory]}, i32 {self._name_of(number)}")
        return w.let(f"ptrtoint ptr addrspace(3) {place} to i32")

    def _of_cluster(self) -> tuple[str, str]:
        """The workgroup's number in its cluster, and how many it has: one where the launch asked for none."""
        return self._w.call("i32", "llvm.nvvm.read.ptx.sreg.cluster.ctarank"), self._w.call("i32", "llvm.nvvm.read.ptx.sreg.cluster.nctarank")

    def set(self, s: ArrivalsSet) -> None:
        """Makes the words of an array ready, and has descriptions fetched, or makes them plain memory again."""
        w = self._w
        address = w.let(f"ptrtoint ptr addrspace(3) {self._bases[s.memory]} to i32")
        count = w.let(f"mul i32 {s.arrivals}, {self._of_cluster()[1]}") if s.shared else str(s.arrivals)
        what, taken = ("init", ", $2") if s.arrivals else ("inval", "")
        lines = [f"@%first mbarrier.{what}.shared::cta.b64 [$1+{_WORD_BYTES * k}]{taken};" for k in range(element_count(s.memory))]
        behind = "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" if s.arrivals else ""
        boxes = list(self._boxes.values()) if s.arrivals and not s.shared else []
        lines += [f"@%first prefetch.tensormap [${3 + number}];" for number in range(len(boxes))]
        given = [f"i32 {address}", f"i32 {count}", *[f"ptr {name}" for name in boxes]]
        self._alone(" ".join(lines), ",".join(["r", "r", *["l"] * len(boxes)]), ", ".join(given), behind)

    def expect(self, s: ArrivalsExpect) -> None:
        """Tells a word how many bytes come."""
        what = "mbarrier.arrive.expect_tx.shared::cta.b64 _," if s.closes else "mbarrier.expect_tx.relaxed.cta.shared::cta.b64"
        self._alone(f"@%first {what} [$1], {s.expected};", "r", f"i32 {self._word(s.memory, s.args[0])}", by=s.by)

    def tell(self, s: ArrivalsTell) -> None:
        """Arrives at a word, if a condition holds: the first invocation of each warpgroup does, of a cluster's one at each of its workgroups."""
        w = self._w
        lane = w.let(f"and i32 {self._index()}, {_WARPGROUP - 1}")
        count, word, space = "1", self._word(s.memory, s.args[0]), "shared::cta"
        if s.shared:
            count, space = self._of_cluster()[1], "shared::cluster"
            to = w.call("i32", "llvm.umin.i32", ("i32", lane), ("i32", w.let(f"sub i32 {count}, 1")))
            word = w.let(f'call i32 asm "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r"(i32 {word}, i32 {to})')
        test = "setp.lt.u32 %first, $0, $3; setp.ne.and.u32 %first, $1, 0, %first;"
        text = f"{{ .reg .pred %first; {test} @%first mbarrier.arrive.{space}.b64 _, [$2]; }}"
        given = f"i32 {lane}, i32 {w.let(f'zext i1 {self._name_of(s.args[1])} to i32')}, i32 {word}, i32 {count}"
        w.line(f'call void asm sideeffect "{text}", "r,r,r,r,~{{memory}}"({given}) convergent')

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
        given = ", ".join([f"i32 {self._name_of(a)}" for a in reversed(s.args[2:])])  # the innermost first
        registers, where = ["l", "r", *["r"] * rank], f"ptr {self._boxes[s.source.name, s.box]}, i32 {word}, {given}"
        text = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        if s.shared < 0:
            self._alone(f"@%first {text} [$1], [$2, {{{at}}}], [$3];", ",".join(["r", *registers]), f"i32 {to}, {where}", by=s.by)
            return
        rank_of, count = self._of_cluster()
        last = w.let(f"sub i32 {count}, 1")
        other = w.let(f"and i32 {w.let(f'xor i32 {rank_of}, {s.shared}')}, {last}")
        above = w.let(f"shl i32 1, {count}")
        all_of = w.let(f"trunc i32 {w.let(f'sub i32 {above}, 1')} to i16")
        places = f"${4 + rank}", f"${5 + rank}"
        text = f"setp.eq.and.u32 %first, {places[0]}, 0, %first; @%first {text}.multicast::cluster [$1], [$2, {{{at}}}], [$3], {places[1]};"
        self._alone(text, ",".join(["r", *registers, "r", "h"]), f"i32 {to}, {where}, i32 {other}, i16 {all_of}", by=s.by)

    def meet(self) -> None:
        """Waits for all workgroups of the cluster."""
        self._w.line('call void asm sideeffect "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", "~{memory}"() convergent')
