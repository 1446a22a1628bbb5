"""What the instructions of NVIDIA's warps give, as the PTX ISA says it: of the operands of all lanes that take part, by lane, what one lane gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

__all__ = ["WARP", "Exchanged", "exchanged"]

WARP = 32
_UNDEFINED = 0x5EEDF00D  # what is got of a lane that does not take part

Exchanged = Callable[[int, Mapping[int, Sequence[int]]], int]


def _shuffle(source: Callable[[int, int, int], int], inside: Callable[[int, int], bool]) -> Exchanged:
    """The lane that a lane asks for, by its own number, the operand and the segment mask, and whether it is one, by the last lane."""

    def found(lane: int, of: Mapping[int, Sequence[int]]) -> int:
        value, b, c = of[lane]
        segment = c >> 8 & 31
        asked = source(lane, b & 31, segment)
        return of.get(asked, [_UNDEFINED])[0] if inside(asked, lane & segment | c & 31 & ~segment) else value

    return found


def _signed(x: int) -> int:
    return (x & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)


def _reduction(fold: Callable[[int, int], int], take: Callable[[int], int] = lambda x: x & 0xFFFFFFFF) -> Exchanged:
    return lambda lane, of: reduce(fold, [take(x) for (x,) in of.values()])


_FOLDS: dict[str, Any] = {"add": lambda a, b: a + b, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
_EXCHANGES: dict[str, Exchanged] = {
    "shfl.sync.idx": _shuffle(lambda lane, b, segment: lane & segment | b & ~segment, lambda asked, last: asked <= last),
    "shfl.sync.bfly": _shuffle(lambda lane, b, segment: lane ^ b, lambda asked, last: asked <= last),
    "shfl.sync.up": _shuffle(lambda lane, b, segment: lane - b, lambda asked, last: asked >= last),
    "shfl.sync.down": _shuffle(lambda lane, b, segment: lane + b, lambda asked, last: asked <= last),
    "vote.sync.ballot": lambda lane, of: sum(1 << k for k, (c,) in of.items() if c & 1),
    "vote.sync.all": lambda lane, of: int(all(c & 1 for (c,) in of.values())),
    "vote.sync.any": lambda lane, of: int(any(c & 1 for (c,) in of.values())),
    "match.any.sync": lambda lane, of: sum(1 << k for k, (x,) in of.items() if x == of[lane][0]),
    **{f"redux.sync.{name}": _reduction(fold) for name, fold in _FOLDS.items()},
    "redux.sync.min": _reduction(min, _signed), "redux.sync.max": _reduction(max, _signed),
    "redux.sync.umin": _reduction(min), "redux.sync.umax": _reduction(max),
}  # fmt: skip


def exchanged(name: str) -> Exchanged:
    """What an instruction computes, by its name without the type that is at its end. LLVM's intrinsics say `umin` for unsigned words."""
    return _EXCHANGES[name]
