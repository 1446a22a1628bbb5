"""Kernels for strided copies, as PTX text: one for each way to walk and each width of a word, with rank, sizes and strides by value.

Other devices copy by the Program of `drivers.memory.strided`. On an H200 that Program takes up to 2.1 times as long (14 copies; the worst are rows of
three words and rows of odd bytes), with words of 16 bytes too, and a call takes 350 us of the host's time where these kernels take 20.

* `runs` is for long runs that lie end to end in the source and in the target: 2^lanes threads share a tile of a run, and find its run once.
* `words` is for all others: each thread computes the place of its words, so that short runs leave no thread idle.

A thread loads `PIECES` words before it stores the first. An index n below 2^31 is divided by a size d as (2n * magic) >> (32 + shift), where
2^shift is the least power of two that is not below d, and magic = ceil(2^(31 + shift) / d), which is exact (Granlund and Montgomery, "Division by
invariant integers using multiplication", 1994, theorem 4.2).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.drivers.memory.strided import GROUP, PIECES
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES

__all__ = ["BLOCK_BYTES", "INDEX_LIMIT", "WIDTHS", "StridedKernel", "divisor", "packed"]

WIDTHS: Final = (16, 8, 4, 2, 1)  # bytes of a word, widest first
INDEX_LIMIT: Final = 1 << 31  # what `divisor` is exact below
_LOAD: Final = "ld.global"
_STORE: Final = "st.global"
_DIVIDED: Final = 8  # axes but the outermost: eight of elements, and what is within one

# The one parameter of a kernel, field by field; addresses and strides are in bytes. `count` counts words, or tiles of runs; `length` is that of a run
# in words, of which 2^lanes * PIECES make a tile.
_HEAD: Final = {
    "source": "u64", "target": "u64", "outer_source": "u64", "outer_target": "u64", "count": "u32", "divided": "u32", "length": "u32", "lanes": "u32",
    "tiles": "u32", "tiles_magic": "u32", "tiles_shift": "u32", "unused": "u32",
}  # fmt: skip
# Then of each axis but the outermost, the innermost first.
_AXIS: Final = {"source": "u64", "target": "u64", "size": "u32", "magic": "u32", "shift": "u32", "unused": "u32"}

_CODES: Final = {"u64": "Q", "u32": "I"}
_MASK: Final = (1 << 64) - 1


def _struct(fields: Mapping[str, str]) -> struct.Struct:
    return struct.Struct("<" + "".join(_CODES[type_] for type_ in fields.values()))


def _offsets(fields: Mapping[str, str]) -> dict[str, int]:
    sizes = [struct.calcsize(_CODES[type_]) for type_ in fields.values()]
    return {name: sum(sizes[:number]) for number, name in enumerate(fields)}


_HEAD_STRUCT: Final = _struct(_HEAD)
_AXIS_STRUCT: Final = _struct(_AXIS)
_HEAD_AT: Final = _offsets(_HEAD)
_AXIS_AT: Final = _offsets(_AXIS)
BLOCK_BYTES: Final = _HEAD_STRUCT.size + _DIVIDED * _AXIS_STRUCT.size


def divisor(size: int) -> tuple[int, int]:
    """The magic number and the shift that divide by a size from 1 to 2^31."""
    shift = (size - 1).bit_length()
    return -(-(1 << (31 + shift)) // size), shift


def packed(head: Mapping[str, int], axes: Sequence[tuple[int, int, int]]) -> bytes:
    """The parameter of a kernel: fields of the head by name, and the axes that indices go over, the outermost first, each with its size and its strides
    in the source and in the target, in bytes."""
    (_, outer_source, outer_target), *divided = axes
    fields = dict.fromkeys(_HEAD, 0) | {"divided": len(divided), "outer_source": outer_source, "outer_target": outer_target, **head}
    block = _HEAD_STRUCT.pack(*[fields[name] & _MASK for name in _HEAD])
    for size, source, target in reversed(divided):
        block += _AXIS_STRUCT.pack(source & _MASK, target & _MASK, size, *divisor(size), 0)
    return block.ljust(BLOCK_BYTES, b"\0")


# Width of a word -> how many registers it goes through, the type of each, and what an access says.
_WORDS: Final[Mapping[int, tuple[int, str, str]]] = {
    16: (4, "b32", "v4.b32"), 8: (2, "b32", "v2.b32"), 4: (1, "b32", "b32"), 2: (1, "b16", "b16"), 1: (1, "b16", "b8"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StridedKernel:
    """One kernel: its `walk` ("runs" or "words"), and its word's `width` in bytes."""

    walk: str
    width: int

    @property
    def name(self) -> str:
        """Its entry."""
        return f"vyre_strided_{self.walk}_{self.width}"

    def text(self, arch: str) -> str:
        """The module for an architecture (a key of `ARCHITECTURES`)."""
        body = _Writer(self.width).body(self.walk)
        entry = f".visible .entry {self.name}(.param .align 8 .b8 copy[{BLOCK_BYTES}])"
        head = [f".version {ARCHITECTURES[arch]}", f".target {arch}", ".address_size 64", entry]
        return "\n".join([*head, f".maxntid {GROUP}, 1, 1", "{", *body, "end:", "    ret;", "}", ""])


class _Writer:
    """Writes the body of one kernel, instruction by instruction. Registers are declared when they are first named."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[str] = []
        self._declared: dict[str, str] = {}

    def body(self, walk: str) -> list[str]:
        """All lines."""
        self._fields("source", "target", "outer_source", "outer_target", "count", "divided")
        self._do("mov.u32", self._reg("thread"), "%tid.x")
        self._do("mov.u32", self._reg("group"), "%ctaid.x")
        {"runs": self._runs, "words": self._each_word}[walk]()
        return [*(f"    .reg .{type_} %{name};" for name, type_ in self._declared.items()), *self._lines]

    # ---- instructions

    def _do(self, what: str, *operands: str | int, when: str = "") -> None:
        guard = f"@%{when} " if when else ""
        self._lines.append(f"    {guard}{what} {', '.join(map(str, operands))};")

    def _reg(self, name: str, type_: str = "b32") -> str:
        self._declared[name] = type_
        return f"%{name}"

    def _param(self, name: str, type_: str, at: int) -> str:
        register = self._reg(name, f"b{type_[1:]}")
        self._do(f"ld.param.{type_}", register, f"[copy+{at}]")
        return register

    def _fields(self, *names: str) -> list[str]:
        return [self._param(name, _HEAD[name], _HEAD_AT[name]) for name in names]

    def _divide(self, name: str, index: str, magic: str, shift: str) -> str:
        quotient = self._reg(name)
        self._do("add.u32", quotient, index, index)
        self._do("mul.hi.u32", quotient, quotient, magic)
        self._do("shr.u32", quotient, quotient, shift)
        return quotient

    def _remainder(self, name: str, index: str, quotient: str, size: str) -> str:
        rest = self._reg(name)
        self._do("mul.lo.u32", rest, quotient, size)
        self._do("sub.u32", rest, index, rest)
        return rest

    def _move(self, place: str, index: str, stride: str | int) -> None:
        """place += index * stride."""
        wide = self._reg("wide", "b64")
        self._do("cvt.u64.u32", wide, index)
        self._do("mad.lo.u64", place, wide, stride, place)

    # ---- what both walks do

    def _places(self, indices: list[str]) -> list[tuple[str, str]]:
        """For each index over the axes, where its word lies in the source and in the target; the index registers are used up."""
        places = []
        for number in range(len(indices)):
            places.append((self._reg(f"from{number}", "b64"), self._reg(f"to{number}", "b64")))
            for end, base in zip(places[-1], ("%source", "%target"), strict=True):
                self._do("mov.u64", end, base)
        for axis in range(_DIVIDED):
            self._do("setp.le.u32", self._reg("done", "pred"), "%divided", axis)
            self._do("bra", "outermost", when="done")
            at = _HEAD_STRUCT.size + axis * _AXIS_STRUCT.size
            source, target, size, magic, shift = [self._param(f"axis_{n}", _AXIS[n], at + _AXIS_AT[n]) for n in ("source", "target", "size", "magic", "shift")]
            for index, place in zip(indices, places, strict=True):
                quotient = self._divide("quotient", index, magic, shift)
                rest = self._remainder("rest", index, quotient, size)
                self._do("mov.u32", index, quotient)
                for end, stride in zip(place, (source, target), strict=True):
                    self._move(end, rest, stride)
        self._lines.append("outermost:")
        for index, place in zip(indices, places, strict=True):
            for end, stride in zip(place, ("%outer_source", "%outer_target"), strict=True):
                self._move(end, index, stride)
        return places

    def _guards(self, indices: list[str], limit: str) -> list[str]:
        """Predicates that tell which words there are."""
        guards = []
        for number, index in enumerate(indices):
            guards.append(f"within{number}")
            self._do("setp.lt.u32", self._reg(guards[-1], "pred"), index, limit)
        return guards

    def _copy(self, places: list[tuple[str, str]], guards: list[str]) -> None:
        """Loads all words, and then stores them."""
        count, type_, access = _WORDS[self._width]
        words = []
        for number, ((source, _), guard) in enumerate(zip(places, guards, strict=True)):
            registers = [self._reg(f"word{number}_{part}", type_) for part in range(count)]
            words.append("{" + ", ".join(registers) + "}" if count > 1 else registers[0])
            self._do(f"{_LOAD}.{access}", words[-1], f"[{source}]", when=guard)
        for word, (_, target), guard in zip(words, places, guards, strict=True):
            self._do(f"{_STORE}.{access}", f"[{target}]", word, when=guard)

    # ---- the walks

    def _each_word(self) -> None:
        indices = []
        for number in range(PIECES):
            indices.append(self._reg(f"index{number}"))
            if number:
                self._do("add.u32", indices[-1], indices[0], GROUP * number)
            else:
                self._do("mad.lo.u32", indices[0], "%group", GROUP * PIECES, "%thread")
        guards = self._guards(indices, "%count")
        self._copy(self._places(indices), guards)

    def _runs(self) -> None:
        length, lanes, tiles, magic, shift = self._fields("length", "lanes", "tiles", "tiles_magic", "tiles_shift")
        item, step, first = self._reg("item"), self._reg("step"), self._reg("first")
        self._do("mad.lo.u32", item, "%group", GROUP, "%thread")
        self._do("shr.u32", item, item, lanes)
        self._do("setp.ge.u32", self._reg("over", "pred"), item, "%count")
        self._do("bra", "end", when="over")
        run = self._divide("run", item, magic, shift)
        tile = self._remainder("tile", item, run, tiles)
        self._do("mov.u32", step, 1)
        self._do("shl.b32", step, step, lanes)
        self._do("sub.u32", first, step, 1)
        self._do("and.b32", "%thread", "%thread", first)
        self._do("shl.b32", first, tile, lanes)
        self._do("mad.lo.u32", first, first, PIECES, "%thread")
        places = self._places([run])
        for end in places[0]:
            self._move(end, first, self._width)
        apart = self._reg("apart", "b64")
        self._do("mul.wide.u32", apart, step, self._width)
        columns = [first]
        for number in range(1, PIECES):
            columns.append(self._reg(f"column{number}"))
            self._do("add.u32", columns[-1], columns[-2], step)
            places.append((self._reg(f"from{number}", "b64"), self._reg(f"to{number}", "b64")))
            for end, before in zip(places[-1], places[-2], strict=True):
                self._do("add.u64", end, before, apart)
        self._copy(places, self._guards(columns, length))
