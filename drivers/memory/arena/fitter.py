"""Places in one arena for blocks that are needed at different times: offline dynamic storage allocation.

The problem is NP-hard. The method is greedy by size with best fit: blocks are placed in the order of falling size, each into the smallest gap
that blocks needed at the same time leave, and above them where none is large enough (Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020, arXiv:2001.03288, algorithm 3). No order is best for all chains, so a few more are tried; where there are few blocks,
those that reach to the top are moved forward as long as that helps, and of five or fewer every order is tried. It ends early at the lower bound,
the most that is needed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Final

import numpy as np

from vyre_py.ir.data_classes import dataclass

__all__ = ["Block", "fit"]

_NO_END: Final = 1 << 62
# Up to so many blocks all rows of `_ORDERS` are tried, up to so many every order that there is, and up to so many single blocks are moved, so
# many times.
_ALL_ORDERS: Final = 2048
_FEW_BLOCKS: Final = 5
_MOVED_BLOCKS: Final = 96
_MOVES: Final = 64

Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Block:
    """A size, in any unit, and the first and the last step that it is needed for."""

    size: int
    first: int
    last: int


# In which order blocks are placed: by size; by size times steps; by steps; by when they begin, the larger first. The first is the paper's.
_ORDERS: Final[tuple[Callable[[Block], tuple[int, ...]], ...]] = (
    lambda b: (-b.size, b.first - b.last, b.first),
    lambda b: (-b.size * (b.last - b.first + 1), -b.size, b.first),
    lambda b: (b.first - b.last, -b.size, b.first),
    lambda b: (b.first, -b.size, -b.last),
)


def fit(blocks: Sequence[Block]) -> tuple[list[int], int, int]:
    """An offset for each block, the peak (where the highest ends), and the lower bound of all peaks. Sizes add up to less than 2^62.

    Each block is compared once with those placed before it, by NumPy: thousands take tenths of a second.
    """
    floor = _floor(blocks)
    tried = _ORDERS if len(blocks) <= _ALL_ORDERS else _ORDERS[:1]
    best: tuple[int, list[int], list[int]] | None = None
    for key in tried:
        order = sorted(range(len(blocks)), key=lambda number: key(blocks[number]))
        offsets, peak = _place(blocks, order)
        if best is None or peak < best[0]:
            best = peak, offsets, order
        if peak == floor:
            break
    assert best is not None  # there is at least one order
    peak, offsets, order = best
    if peak > floor and len(blocks) <= _FEW_BLOCKS:
        offsets, peak = min((_place(blocks, order) for order in permutations(range(len(blocks)))), key=lambda placed: placed[1])
    elif peak > floor and len(blocks) <= _MOVED_BLOCKS:
        offsets, peak = _improve(blocks, order, offsets, peak, floor)
    return offsets, peak, floor


def _floor(blocks: Sequence[Block]) -> int:
    """The most that is needed at one step."""
    change: dict[int, int] = {}
    for block in blocks:
        change[block.first] = change.get(block.first, 0) + block.size
        change[block.last + 1] = change.get(block.last + 1, 0) - block.size
    needed = most = 0
    for step in sorted(change):
        needed += change[step]
        most = max(most, needed)
    return most


def _place(blocks: Sequence[Block], order: Sequence[int]) -> tuple[list[int], int]:
    """Offsets by best fit in an order, and the peak."""
    offsets, peak, count = [0] * len(blocks), 0, 0
    # What is placed, by rising offset: rows of begin, end, first and last step.
    placed: Words = np.empty((4, len(blocks)), np.int64)
    for number in order:
        block = blocks[number]
        if not block.size:
            continue
        begin = _gap(placed[:, :count], block)
        offsets[number], peak = begin, max(peak, begin + block.size)
        at = int(np.searchsorted(placed[0, :count], begin))
        placed[:, at + 1 : count + 1] = placed[:, at:count].copy()
        placed[:, at] = begin, begin + block.size, block.first, block.last
        count += 1
    return offsets, peak


def _gap(placed: Words, block: Block) -> int:
    """Where the smallest gap begins that holds a block, between those which are needed at the same time."""
    met = placed[:2, (placed[2] <= block.last) & (placed[3] >= block.first)]
    begins = np.append(met[0], _NO_END)
    ends = np.maximum.accumulate(np.append(0, met[1]))
    room = begins - ends
    return int(ends[np.argmin(np.where(room >= block.size, room, _NO_END + 1))])


def _improve(blocks: Sequence[Block], order: list[int], offsets: list[int], peak: int, floor: int) -> tuple[list[int], int]:
    """Moves blocks that reach to the top forward in the order, as long as the peak falls."""
    moves = 0
    improved = True
    while improved and peak > floor:
        improved = False
        for number in [n for n in order if offsets[n] + blocks[n].size == peak]:
            for to in (0, order.index(number) // 2):
                if moves == _MOVES:
                    return offsets, peak
                moves += 1
                other = [n for n in order if n != number]
                other.insert(to, number)
                new_offsets, new_peak = _place(blocks, other)
                if new_peak < peak:
                    offsets, peak, order, improved = new_offsets, new_peak, other, True
                    break
            if improved:
                break
    return offsets, peak
