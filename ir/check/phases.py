"""Phases: what a workgroup does from one barrier to the next, and which loads of its memory find that at rest.

All invocations of a workgroup pass the same barriers in the same order, since that is checked (V401, V402, V404, V408). So its run falls into phases, and
what one invocation stores in a phase another one may see in this phase, or not; but all see it in the next. A load from a workgroup array is *steady* where
nothing stores to that array in any phase in which the load may stand: then all invocations that load the same element get the same value, whatever they do
in between, and even if others race.

A phase begins at the start of the Program or behind a barrier, and goes on along all ways without another. Whether a way is ever taken, and which element a
store writes, is not looked at. An array that copies write is at rest nowhere, since they are done at any time before they are waited for.

That a load is steady makes values uniform, and with them the control on which barriers stand, which is what makes phases. This is no circle: whether
invocations part at a barrier is decided by what they have loaded before it, in phases that have begun together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from vyre_py.ir.language.effects import SYNCHRONISES, Effect, any_of
from vyre_py.ir.language.nodes import (
    Break,
    Continue,
    CopyAsync,
    Else,
    End,
    For,
    If,
    Load,
    Loop,
    Memory,
    MemoryStatement,
    Region,
    Return,
    Space,
    Statement,
)
from vyre_py.ir.language.program import Program

__all__ = ["steady_loads"]

# How many arrays are looked at, the first ones that are loaded from; loads from others count as not steady. It bounds the work for each statement.
_MOST: Final = 64

_WRITES: Final = any_of(Effect.WRITES)


class _OpenBlock:
    """A block: the stretch in front of it, that behind it if there is one yet, and that in which each turn begins if it is a loop."""

    __slots__ = ("after", "before", "head")

    def __init__(self, before: int, head: int = -1, after: int = -1) -> None:
        self.before, self.head, self.after = before, head, after


class _Stretches:
    """The stretches of a body in which control neither parts nor joins nor waits, the ways from one to the next, and the arrays that each writes, as bits."""

    def __init__(self, program: Program, bits: dict[Memory, int]) -> None:
        self.following: list[list[int]] = []
        self.preceding: list[list[int]] = []
        self.writes: list[int] = []
        self.loads: list[tuple[int, int, int]] = []  # statement, stretch, bit
        self.blocks: list[_OpenBlock] = []
        self.loops: list[_OpenBlock] = []
        self.current = self.stretch()
        self.starts = [self.current]
        for index, s in enumerate(program.body):
            kind = type(s)
            if SYNCHRONISES[kind]:
                self.current = self.stretch()
                self.starts.append(self.current)
            elif isinstance(s, MemoryStatement) and s.memory in bits:
                if _WRITES[kind]:
                    self.writes[self.current] |= bits[s.memory]
                elif isinstance(s, Load):
                    self.loads.append((index, self.current, bits[s.memory]))
            elif kind in _CONTROL:
                _CONTROL[kind](self, s)

    def stretch(self, *sources: int) -> int:
        """A new stretch, which follows these."""
        node = len(self.writes)
        self.writes.append(0)
        self.following.append([])
        self.preceding.append([])
        for source in sources:
            self.way(source, node)
        return node

    def way(self, source: int, target: int) -> None:
        """Control may go from one stretch to the other."""
        self.following[source].append(target)
        self.preceding[target].append(source)

    # ---- control

    def _branch(self, s: If) -> None:
        self.blocks.append(_OpenBlock(self.current))
        self.current = self.stretch(self.current)

    def _other(self, s: Else) -> None:
        block = self.blocks[-1]
        block.after = self.stretch(self.current)
        self.current = self.stretch(block.before)
        block.before = -1  # no way leads past both blocks

    def _turns(self, s: For | Loop) -> None:
        head = self.stretch(self.current)
        self.loops.append(_OpenBlock(self.current, head, self.stretch(head) if isinstance(s, For) else self.stretch()))
        self.blocks.append(self.loops[-1])
        self.current = self.stretch(head)

    def _region(self, s: Region) -> None:
        self.blocks.append(_OpenBlock(-1))

    def _end(self, s: End) -> None:
        block = self.blocks.pop()
        if block.head >= 0:
            self.loops.pop()
            self.way(self.current, block.head)
            self.current = block.after
        elif block.after >= 0:
            self.way(self.current, block.after)
            self.current = block.after
        elif block.before >= 0:
            self.current = self.stretch(self.current, block.before)

    def _jump(self, s: Break | Continue | Return) -> None:
        if not isinstance(s, Return) and self.loops:  # V104 reports one that is in no loop
            self.way(self.current, self.loops[-1].after if isinstance(s, Break) else self.loops[-1].head)
        self.current = self.stretch()  # to what stands behind it no way leads


_CONTROL: Final[dict[type[Statement], Callable[[_Stretches, Any], None]]] = {
    If: _Stretches._branch, Else: _Stretches._other, For: _Stretches._turns, Loop: _Stretches._turns, Region: _Stretches._region, End: _Stretches._end,
    **dict.fromkeys((Break, Continue, Return), _Stretches._jump),
}  # fmt: skip


def _spread(seeds: Iterable[int], ways: list[list[int]]) -> list[int]:
    """The bits of each stretch, and of all from which ways lead to it."""
    found = list(seeds)
    pending = [node for node, bits in enumerate(found) if bits]
    while pending:
        source = pending.pop()
        for target in ways[source]:
            if found[source] & ~found[target]:
                found[target] |= found[source]
                pending.append(target)
    return found


def steady_loads(program: Program) -> frozenset[int]:
    """The statements, by index, that load from a workgroup array which nothing writes in any phase in which they may stand.

    For Programs whose form, blocks and scope are sound. Linear in the statements.
    """
    loaded = dict.fromkeys(s.memory for s in program.body if isinstance(s, Load) and s.memory.space is Space.WORKGROUP)
    copied = {s.memory for s in program.body if isinstance(s, CopyAsync)}
    arrays = [memory for memory in loaded if memory not in copied][:_MOST]
    if not arrays:
        return frozenset()
    body = _Stretches(program, {memory: 1 << number for number, memory in enumerate(arrays)})
    # What is written from here to the next barrier; and of that, what is known where phases begin, in all that lies in them.
    coming = _spread(body.writes, body.preceding)
    starts = set(body.starts)
    written = _spread((bits if node in starts else 0 for node, bits in enumerate(coming)), body.following)
    return frozenset(index for index, node, bit in body.loads if not written[node] & bit)
