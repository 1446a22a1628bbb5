"""Vectors of small elements as words of 32 bits, for the older of libNVVM's two compilers.

    %v = load <8 x half>, ...     ->    %v.words = load <4 x i32>, ...       and of each word, frozen, its two halves

LLVM 7 accesses at most four elements of a vector at once, however small they are: 16 bytes of the smallest take four accesses. As words they take one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.llvm.gpu.nvvm.replacements import OLD_REPLACEMENTS

__all__ = ["PackedWords", "words_of"]

_SMALL: Final = re.compile(r"<(\d+) x (i8|i16|half)>")
_WORD_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class PackedWords:
    """A vector of LLVM type `vector`, of `lanes` elements of type `element` and so many bits, as `count` words."""

    vector: str
    element: str
    lanes: int
    bits: int

    @property
    def count(self) -> int:
        """How many words: 1, 2 or 4."""
        return self.lanes * self.bits // _WORD_BITS

    @property
    def type(self) -> str:
        """LLVM's type of the words."""
        return f"<{self.count} x i32>" if self.count > 1 else "i32"

    def take_apart(self, words: str, result: str) -> Iterator[str]:
        """The instructions that make the vector `result` of words that were loaded. Each word is frozen, and so is every element."""
        whole, freeze = "undef", OLD_REPLACEMENTS["freeze"]
        for lane in range(self.lanes):
            number, shift = divmod(lane * self.bits, _WORD_BITS)
            word = f"{result}.word{number}"
            if not shift:
                if self.count > 1:
                    yield f"{word}.r = extractelement {self.type} {words}, i32 {number}"
                fields = freeze.fields(word, "i32", [f"{word}.r" if self.count > 1 else words])
                yield from (line.format_map(fields) for line in freeze.lines)
            made = result if lane == self.lanes - 1 else f"{result}.{lane}"
            yield f"{made}.s = lshr i32 {word}, {shift}"
            yield f"{made}.i = trunc i32 {made}.s to i{self.bits}"
            yield f"{made}.e = bitcast i{self.bits} {made}.i to {self.element}"
            yield f"{made} = insertelement {self.vector} {whole}, {self.element} {made}.e, i32 {lane}"
            whole = made

    def put_together(self, vector: str, result: str) -> Iterator[str]:
        """The instructions that make the words `result` of a vector."""
        whole, word = "undef", "0"
        for lane in range(self.lanes):
            number, shift = divmod(lane * self.bits, _WORD_BITS)
            last = shift + self.bits == _WORD_BITS
            name = f"{result}.{lane}"
            yield f"{name}.e = extractelement {self.vector} {vector}, i32 {lane}"
            yield f"{name}.i = bitcast {self.element} {name}.e to i{self.bits}"
            yield f"{name}.w = zext i{self.bits} {name}.i to i32"
            yield f"{name}.s = shl i32 {name}.w, {shift}"
            made = result if last and self.count == 1 else name
            yield f"{made} = or i32 {name}.s, {word if shift else 0}"
            word = made
            if last and self.count > 1:
                following = result if number == self.count - 1 else f"{result}.word{number}"
                yield f"{following} = insertelement {self.type} {whole}, i32 {made}, i32 {number}"
                whole = following


def words_of(type_: str, align: str) -> PackedWords | None:
    """A vector of LLVM type `type_` as words; None for any other type, for less than a word, and where its address, which is a multiple of what `align`
    says in LLVM's words (", align 16"), may be no multiple of its size."""
    found = _SMALL.fullmatch(type_)
    if found is None:
        return None
    lanes, bits = int(found[1]), 8 if found[2] == "i8" else 16
    fits = lanes * bits in (_WORD_BITS, 2 * _WORD_BITS, 4 * _WORD_BITS) and align == f", align {lanes * bits // 8}"
    return PackedWords(type_, found[2], lanes, bits) if fits else None
