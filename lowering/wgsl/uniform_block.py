"""The uniform block of a kernel, which emitter and driver agree on: an array of 32-bit words.

First come the words of the header, then for every buffer the number of elements that lie in the binding before the argument's first,
then the layout's scalars with the distances that they have there, an f64 as two words.

A grid may be wider along x than a dispatch allows. It is then dispatched in several turns, one above the other along z, and the header
says how wide and deep the real grid is.
"""

from __future__ import annotations

from typing import Final

from vyre_py.lowering.layout import POINTER_BYTES, WORD_BYTES, Layout, Slot

__all__ = ["GROUPS_X", "GROUPS_Z", "MAX_WORDS", "ZERO", "block_words", "offset_word", "scalar_word", "word_text"]

GROUPS_X: Final = 0  # workgroups of the grid along x
GROUPS_Z: Final = 1  # workgroups of the grid along z
ZERO: Final = 2  # always 0: no compiler knows, so bits combined with it are no constant
_HEADER_WORDS: Final = 3
_VECTOR_WORDS: Final = 4

# What every WebGPU implementation takes as a uniform binding, 16 KiB.
MAX_WORDS: Final = 4096


def offset_word(buffer: int) -> int:
    """The word that holds the element offset of the buffer with this number in the layout."""
    return _HEADER_WORDS + buffer


def scalar_word(layout: Layout, slot: Slot) -> int:
    """The first word of a scalar of a layout, without the addresses of buffers, which the block leaves out."""
    before = sum([other.offset_bytes < slot.offset_bytes for other in layout.buffers])
    return _HEADER_WORDS + len(layout.buffers) + (slot.offset_bytes - before * POINTER_BYTES) // WORD_BYTES


def block_words(layout: Layout) -> int:
    """How many words the block has, filled up to whole vectors of four."""
    buffers = len(layout.buffers)
    words = _HEADER_WORDS + buffers + (layout.size_bytes - buffers * POINTER_BYTES) // WORD_BYTES
    return -(-words // _VECTOR_WORDS) * _VECTOR_WORDS


def word_text(word: int) -> str:
    """WGSL that reads a word."""
    return f"block.words[{word // _VECTOR_WORDS}].{'xyzw'[word % _VECTOR_WORDS]}"
