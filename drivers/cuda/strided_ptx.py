"""Kernels for strided copies, as PTX text: one for each way to walk and each width of a word, with rank, sizes and strides by value.

LLVM's NVPTX target splits accesses that it can't prove aligned, and a Program has no access of 16 bytes; a copy is nothing but accesses. So these are
written out here.

* `runs` is for long runs that lie end to end in the source and in the target: 2^lanes threads share a tile of a run, and find its run once.
* `words` is for all else: each word finds its place by itself, so that short runs leave no thread idle.

A thread has `PIECES` words on their way before it stores the first. An index n below 2^31 is divided by a size d as (2n * magic) >> (32 + shift), where
2^shift is the least power of two that is not below d, and magic = ceil(2^(31 + shift) / d), which is exact (Granlund and Montgomery, "Division by
invariant integers using multiplication", 1994, theorem 4.2).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vyre_py.lowering.llvm.architectures import ARCHITECTURES

__all__ = ["BLOCK_BYTES", "DIVIDED", "GROUP", "INDEX_LIMIT", "PIECES", "WIDTHS", "Kernel", "divisor", "packed"]

WIDTHS: Final = (16, 8, 4, 2, 1)  # bytes of a word, widest first
GROUP: Final = 256  # threads of a workgroup
PIECES: Final = 4  # words that a thread copies
INDEX_LIMIT: Final = 1 << 31  # what `divisor` is exact below
DIVIDED: Final = 8  # axes but the outermost that a kernel takes

# The one parameter of a kernel, field by field; addresses and strides are in bytes. `count` counts words, or tiles of runs; `length` is that of a run
# in words, of which 2^lanes * PIECES make a tile.
_HEAD: Final = (
    ("source", "Q"), ("target", "Q"), ("outer_source", "q"), ("outer_target", "q"), ("count", "I"), ("divided", "I"), ("length", "I"), ("lanes", "I"),
    ("tiles", "I"), ("tiles_magic", "I"), ("tiles_shift", "I"), ("unused", "I"),
)  # fmt: skip
# Of each axis but the outermost, the innermost first.
_AXIS: Final = (("source", "q"), ("target", "q"), ("size", "I"), ("magic", "I"), ("shift", "I"), ("unused", "I"))


def _offsets(fields: tuple[tuple[str, str], ...]) -> dict[str, int]:
    codes = "".join(code for _, code in fields)
    return {name: struct.calcsize("<" + codes[:number]) for number, (name, _) in enumerate(fields)}


_HEAD_AT: Final = _offsets(_HEAD)
_AXIS_AT: Final = _offsets(_AXIS)
_HEAD_STRUCT: Final = struct.Struct("<" + "".join(code for _, code in _HEAD))
_AXIS_STRUCT: Final = struct.Struct("<" + "".join(code for _, code in _AXIS))
BLOCK_BYTES: Final = _HEAD_STRUCT.size + DIVIDED * _AXIS_STRUCT.size


def divisor(size: int) -> tuple[int, int]:
    """The magic number and the shift that divide by a size from 1 to 2^31."""
    shift = (size - 1).bit_length()
    return -(-(1 << (31 + shift)) // size), shift


def packed(head: Mapping[str, int], outer: tuple[int, int], divided: list[tuple[int, int, int]]) -> bytes:
    """The parameter of a kernel: fields of the head by name, the outermost axis's strides (source, target), and the other axes from the innermost
    on, each (size, source stride, target stride)."""
    fields = dict.fromkeys([name for name, _ in _HEAD], 0) | {"divided": len(divided), "outer_source": outer[0], "outer_target": outer[1], **head}
    block = _HEAD_STRUCT.pack(*[fields[name] for name, _ in _HEAD])
    block += b"".join(_AXIS_STRUCT.pack(source, target, size, *divisor(size), 0) for size, source, target in divided)
    return block.ljust(BLOCK_BYTES, b"\0")


# How a word goes through registers: how many there are, the type of each, and what an access says.
_WORDS: Final[Mapping[int, tuple[int, str, str]]] = {
    16: (4, "b32", "v4.b32"), 8: (2, "b32", "v2.b32"), 4: (1, "b32", "b32"), 2: (1, "b16", "b16"), 1: (1, "b16", "b8"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: how it walks ("runs" or "words"), and its word's width in bytes. `load` and `store` are hints of PTX (".cs")."""

    walk: str
    width: int
    pieces: int = PIECES
    load: str = ""
    store: str = ""
    looped: bool = False

    @property
    def name(self) -> str:
        """Its entry."""
        return f"vyre_strided_{self.walk}_{self.width}"

    def text(self, arch: str, version: str = "") -> str:
        """The module for an architecture (a key of `ARCHITECTURES`)."""
        return _Writer(self).text(arch, version or ARCHITECTURES[arch])


class _Writer:
    """Writes one kernel, instruction by instruction."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._lines: list[str] = []
        self._declared: dict[str, str] = {}
        self._pieces = range(kernel.pieces)

    def text(self, arch: str, version: str) -> str:
        kernel = self._kernel
        self._head()
        {"runs": self._runs, "words": self._words}[kernel.walk]()
        registers = [f"    .reg .{type_} %{name};" for name, type_ in self._declared.items()]
        return "\n".join([
            f".version {version}", f".target {arch}", ".address_size 64", f".visible .entry {kernel.name}(.param .align 8 .b8 copy[{BLOCK_BYTES}])",
            f".maxntid {GROUP}, 1, 1", "{", *registers, *self._lines, "end:", "    ret;", "}", "",
        ])  # fmt: skip

    # ---- instructions

    def _do(self, what: str, *operands: str | int, when: str = "") -> None:
        guard = f"@%{when} " if when else ""
        self._lines.append(f"    {guard}{what} {', '.join(map(str, operands))};")

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def _reg(self, name: str, type_: str = "b32") -> str:
        self._declared[name] = type_
        return f"%{name}"

    def _param(self, name: str, type_: str, at: int) -> str:
        register = self._reg(name, f"b{type_[1:]}")
        self._do(f"ld.param.{type_}", register, f"[copy+{at}]")
        return register

    def _of_head(self, *names: str) -> list[str]:
        types = {"Q": "u64", "q": "u64", "I": "u32"}
        return [self._param(name, types[dict(_HEAD)[name]], _HEAD_AT[name]) for name in names]

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

    def _step(self, place: str, index: str, stride: str | int) -> None:
        """place += index * stride."""
        wide = self._reg("wide", "b64")
        self._do("cvt.u64.u32", wide, index)
        self._do("mad.lo.u64", place, wide, stride, place)

    # ---- what both walks do

    def _head(self) -> None:
        self._of_head("source", "target", "outer_source", "outer_target", "count", "divided")
        self._do("mov.u32", self._reg("thread"), "%tid.x")
        self._do("mov.u32", self._reg("group"), "%ctaid.x")

    def _place(self, indices: list[str]) -> list[tuple[str, str]]:
        """For each index over the axes, where its word lies in the source and in the target; the index registers are used up."""
        places = []
        for number in range(len(indices)):
            source, target = self._reg(f"from{number}", "b64"), self._reg(f"to{number}", "b64")
            self._do("mov.u64", source, "%source")
            self._do("mov.u64", target, "%target")
            places.append((source, target))
        for axis in range(DIVIDED):
            self._do("setp.le.u32", self._reg("done", "pred"), "%divided", axis)
            self._do("bra", "outermost", when="done")
            at = _HEAD_STRUCT.size + axis * _AXIS_STRUCT.size
            size, magic, shift = [self._param(f"axis_{name}", "u32", at + _AXIS_AT[name]) for name in ("size", "magic", "shift")]
            strides = [self._param(f"axis_{name}", "u64", at + _AXIS_AT[name]) for name in ("source", "target")]
            for index, place in zip(indices, places, strict=True):
                quotient = self._divide("quotient", index, magic, shift)
                rest = self._remainder("rest", index, quotient, size)
                self._do("mov.u32", index, quotient)
                for end, stride in zip(place, strides, strict=True):
                    self._step(end, rest, stride)
        self._label("outermost")
        for index, (source, target) in zip(indices, places, strict=True):
            self._step(source, index, "%outer_source")
            self._step(target, index, "%outer_target")
        return places

    def _copy(self, places: list[tuple[str, str]], guards: list[str]) -> None:
        """Loads all words, and then stores them."""
        kernel = self._kernel
        count, type_, access = _WORDS[kernel.width]
        words = []
        for number, ((source, _), guard) in enumerate(zip(places, guards, strict=True)):
            registers = [self._reg(f"word{number}_{part}", type_) for part in range(count)]
            words.append("{" + ", ".join(registers) + "}" if count > 1 else registers[0])
            self._do(f"ld.global{kernel.load}.{access}", words[-1], f"[{source}]", when=guard)
        for word, (_, target), guard in zip(words, places, guards, strict=True):
            self._do(f"st.global{kernel.store}.{access}", f"[{target}]", word, when=guard)

    def _guards(self, indices: list[str], limit: str) -> list[str]:
        guards = []
        for number, index in enumerate(indices):
            self._do("setp.lt.u32", self._reg(f"within{number}", "pred"), index, limit)
            guards.append(f"within{number}")
        return guards

    # ---- the walks

    def _runs(self) -> None:
        length, lanes, tiles, magic, shift = self._of_head("length", "lanes", "tiles", "tiles_magic", "tiles_shift")
        kernel = self._kernel
        item = self._reg("item")
        self._do("mad.lo.u32", item, "%group", GROUP, "%thread")
        self._do("shr.u32", item, item, lanes)
        if kernel.looped:
            self._do("mov.u32", self._reg("many"), "%nctaid.x")
            self._do("mul.lo.u32", "%many", "%many", GROUP)
            self._do("shr.u32", "%many", "%many", lanes)
            self._label("again")
        self._do("setp.ge.u32", self._reg("over", "pred"), item, "%count")
        self._do("bra", "end", when="over")
        row = self._divide("row", item, magic, shift)
        tile = self._remainder("tile", item, row, tiles)
        first, lane, step = self._reg("first"), self._reg("lane"), self._reg("step")
        self._do("mov.u32", step, 1)
        self._do("shl.b32", step, step, lanes)
        self._do("sub.u32", lane, step, 1)
        self._do("and.b32", lane, lane, "%thread")
        self._do("shl.b32", first, tile, lanes)
        self._do("mad.lo.u32", first, first, kernel.pieces, lane)
        [(source, target)] = self._place([row])
        self._step(source, first, kernel.width)
        self._step(target, first, kernel.width)
        apart = self._reg("apart", "b64")
        self._do("mul.wide.u32", apart, step, kernel.width)
        columns, places = [first], [(source, target)]
        for number in self._pieces[1:]:
            column, place = self._reg(f"column{number}"), (self._reg(f"from{number}", "b64"), self._reg(f"to{number}", "b64"))
            self._do("add.u32", column, columns[-1], step)
            for end, before in zip(place, places[-1], strict=True):
                self._do("add.u64", end, before, apart)
            columns.append(column)
            places.append(place)
        self._copy(places, self._guards(columns, length))
        if kernel.looped:
            self._do("add.u32", item, item, "%many")
            self._do("bra", "again")

    def _words(self) -> None:
        kernel = self._kernel
        base = self._reg("base")
        self._do("mad.lo.u32", base, "%group", GROUP * kernel.pieces, "%thread")
        if kernel.looped:
            self._do("mov.u32", self._reg("many"), "%nctaid.x")
            self._do("mul.lo.u32", "%many", "%many", GROUP * kernel.pieces)
            self._label("again")
            self._do("setp.ge.u32", self._reg("over", "pred"), base, "%count")
            self._do("bra", "end", when="over")
        indices = []
        for number in self._pieces:
            indices.append(self._reg(f"index{number}"))
            self._do("add.u32", indices[-1], base, GROUP * number)
        guards = self._guards(indices, "%count")
        self._copy(self._place(indices), guards)
        if kernel.looped:
            self._do("add.u32", base, base, "%many")
            self._do("bra", "again")
