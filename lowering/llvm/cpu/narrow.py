"""Accesses under a mask that processors lack: of 8 and 16 bits, where they mask words only, and scatters. LLVM would write a branch for each lane.

Of neighbours a whole vector is loaded where all of it lies in the buffer, and the lanes that are on are taken of it. Elsewhere words all of whose elements are
on are one access with a mask; what is left, a word's at either end, goes element by element. Each kind is a function of its own, since it is long, and is
called where a mask is seldom all on: at borders, and where lanes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from vyre_py.ir.language.types import Type
from vyre_py.lowering.llvm.cpu.values import LaneWriter, Mask
from vyre_py.lowering.llvm.idioms import suffix
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bits_type, memory_type

__all__ = ["WORD_BYTES", "gather_each", "load_narrow", "scatter_some", "store_narrow"]

WORD_BYTES: Final = 4


def load_narrow(w: LaneWriter, type_: Type, pointer: str, mask: Mask, inside: str | None, within: Callable[[], str] | None) -> str:
    """Loads neighbours of a type of less than a word in the lanes that are on, where `inside` holds; the others have zero. `within` writes the test that all
    lanes' elements are there to be loaded; None says that nobody knows."""
    vector = memory_type(type_, w.width)
    found, done = w.local(vector), w.label("loaded")
    whole = f"load {vector}, ptr {pointer}, align {type_.size_bytes}"
    w.line(f"store {vector} zeroinitializer, ptr {found}")
    if inside is not None:
        row = w.label("row")
        w.branch(inside, row, done)
        w.block(row)
    if mask is None:
        w.line(f"store {vector} {w.let(whole)}, ptr {found}")
    else:
        if within is not None:
            every, ends = w.label("every"), w.label("ends")
            w.branch(within(), every, ends)
            w.block(every)
            w.line(f"store {vector} {w.blend(vector, mask, w.let(whole), 'zeroinitializer')}, ptr {found}")
            w.jump(done)
            w.block(ends)
        some = f"@{_load_some(w.module, type_, w.width)}(ptr {pointer}, {_wide(w, vector, mask)})"
        w.line(f"store {vector} {w.let(f'call {vector} {some}')}, ptr {found}")
    w.block(done)
    return w.let(f"load {vector}, ptr {found}")


def store_narrow(w: LaneWriter, type_: Type, pointer: str, mask: Mask, inside: str | None, value: str) -> None:
    """Stores neighbours of a type of less than a word in the lanes that are on, where `inside` holds."""
    vector, done = memory_type(type_, w.width), ""
    whole = f"store {vector} {value}, ptr {pointer}, align {type_.size_bytes}"
    if inside is not None:
        row, done = w.label("row"), w.label("stored")
        w.branch(inside, row, done)
        w.block(row)
    if mask is None:
        w.line(whole)
    else:
        some = f"call void @{_store_some(w.module, type_, w.width)}(ptr {pointer}, {vector} {value}, {_wide(w, vector, mask)})"
        w.by_mask(mask, lambda: w.line(whole), lambda: w.line(some))
    if done:
        w.block(done)


def _wide(w: LaneWriter, vector: str, mask: str) -> str:
    """A mask as a vector of ones and zeros, with its type."""
    return f"{vector} {w.let(f'sext {w.mask_type} {mask} to {vector}')}"


def _load_some(module: ModuleText, type_: Type, width: int) -> str:
    """The function `<W x iN> f(ptr, <W x iN>)`, which loads neighbours of a type of less than a word where the mask has ones, zero where it has zeros."""
    vector, words = memory_type(type_, width), _words(type_, width)
    name = f"load_some_{suffix(vector)}"
    w = Writer(module)
    slot = w.local(vector, align=64)
    mask, rest = _parted(w, type_, width)
    arguments = (("ptr", "%place"), ("i32", str(type_.size_bytes)), mask, (words, "zeroinitializer"))
    w.line(f"store {words} {w.call(words, f'llvm.masked.load.{suffix(words)}.p0', *arguments)}, ptr {slot}")
    _each(w, type_, width, rest, "%place", slot)
    w.end(f"ret {vector} {w.let(f'load {vector}, ptr {slot}')}")
    module.define(w.function(f"define internal {vector} @{name}(ptr %place, {vector} %on) noinline nounwind willreturn memory(argmem: read)"))
    return name


def _store_some(module: ModuleText, type_: Type, width: int) -> str:
    """The function `void f(ptr, <W x iN>, <W x iN>)`, which stores neighbours of a type of less than a word where the mask, which comes last, has ones."""
    vector, words = memory_type(type_, width), _words(type_, width)
    name = f"store_some_{suffix(vector)}"
    w = Writer(module)
    slot = w.local(vector, align=64)
    mask, rest = _parted(w, type_, width)
    value = w.let(f"bitcast {vector} %values to {words}")
    w.run(f"llvm.masked.store.{suffix(words)}.p0", (words, value), ("ptr", "%place"), ("i32", str(type_.size_bytes)), mask)
    w.line(f"store {vector} %values, ptr {slot}")
    _each(w, type_, width, rest, slot, "%place")
    w.end("ret void")
    module.define(w.function(f"define internal void @{name}(ptr %place, {vector} %values, {vector} %on) noinline nounwind willreturn memory(argmem: write)"))
    return name


def scatter_some(module: ModuleText, type_: Type, width: int) -> str:
    """The function `void f(ptr, <W x i32>, <W x T>, iW)`, which stores elements at numbers where bits are set."""
    vector, element, numbers = memory_type(type_, width), memory_type(type_), bits_type(32, width)
    name = f"scatter_some_{suffix(vector)}"
    w = Writer(module)
    offsets, values = w.local(numbers, align=64), w.local(vector, align=64)
    w.line(f"store {numbers} %at, ptr {offsets}")
    w.line(f"store {vector} %values, ptr {values}")
    for lane in _lanes(w, width, "%on"):
        number = w.let(f"load i32, ptr {w.let(f'getelementptr i32, ptr {offsets}, i64 {lane}')}")
        place = w.let(f"getelementptr {element}, ptr %base, i64 {w.let(f'zext i32 {number} to i64')}")
        value = w.let(f"load {element}, ptr {w.let(f'getelementptr {element}, ptr {values}, i64 {lane}')}")
        w.line(f"store {element} {value}, ptr {place}, align {type_.size_bytes}")
    w.end("ret void")
    taken = f"ptr %base, {numbers} %at, {vector} %values, i{width} %on"
    module.define(w.function(f"define internal void @{name}({taken}) noinline nounwind willreturn memory(argmem: write)"))
    return name


def gather_each(module: ModuleText, type_: Type, width: int) -> str:
    """The function `<W x T> f(ptr, <W x i32>)`, which loads the elements at all numbers."""
    vector, element, numbers = memory_type(type_, width), memory_type(type_), bits_type(32, width)
    name = f"gather_each_{suffix(vector)}"
    w, found = Writer(module), "poison"
    for lane in range(width):
        number = w.let(f"zext i32 {w.let(f'extractelement {numbers} %at, i64 {lane}')} to i64")
        one = w.let(f"load {element}, ptr {w.let(f'getelementptr {element}, ptr %base, i64 {number}')}, align {type_.size_bytes}")
        found = w.let(f"insertelement {vector} {found}, {element} {one}, i64 {lane}")
    w.end(f"ret {vector} {found}")
    module.define(w.function(f"define internal {vector} @{name}(ptr %base, {numbers} %at) noinline nounwind willreturn memory(argmem: read)"))
    return name


def _words(type_: Type, width: int) -> str:
    return bits_type(32, width * type_.size_bytes // WORD_BYTES)


def _parted(w: Writer, type_: Type, width: int) -> tuple[tuple[str, str], str]:
    """The mask of the words that are on as a whole, with its type, and the bits of the other elements that are on."""
    vector, words, each = memory_type(type_, width), _words(type_, width), WORD_BYTES // type_.size_bytes
    count = width // each
    whole = w.let(f"icmp eq {words} {w.let(f'bitcast {vector} %on to {words}')}, splat (i32 -1)")
    of_words = w.let(f"bitcast {words} {w.let(f'sext {bits_type(1, count)} {whole} to {words}')} to {vector}")
    others = w.let(f"icmp slt {vector} {w.let(f'xor {vector} %on, {of_words}')}, zeroinitializer")
    return (bits_type(1, count), whole), w.let(f"bitcast {bits_type(1, width)} {others} to i{width}")


def _each(w: Writer, type_: Type, width: int, rest: str, source: str, target: str) -> None:
    """Copies the elements whose bits are set in `rest`."""
    element = memory_type(type_)
    for lane in _lanes(w, width, rest):
        at = [w.let(f"getelementptr {element}, ptr {pointer}, i64 {lane}") for pointer in (source, target)]
        w.line(f"store {element} {w.let(f'load {element}, ptr {at[0]}, align {type_.size_bytes}')}, ptr {at[1]}, align {type_.size_bytes}")


def _lanes(w: Writer, width: int, rest: str) -> Iterator[str]:
    """A loop over the bits that are set, from the lowest; gives the number of one for the caller to write what is to be done."""
    bits, left = f"i{width}", w.local(f"i{width}")
    w.line(f"store {bits} {rest}, ptr {left}")
    head, body, done = w.label("elements"), w.label("element"), w.label("done")
    w.block(head)
    now = w.let(f"load {bits}, ptr {left}")
    w.branch(w.let(f"icmp ne {bits} {now}, 0"), body, done)
    w.block(body)
    lane = w.call(bits, f"llvm.cttz.{bits}", (bits, now), ("i1", "true"))
    yield lane if width == 64 else w.let(f"zext {bits} {lane} to i64")
    less = w.let(f"sub {bits} {now}, 1")
    w.line(f"store {bits} {w.let(f'and {bits} {now}, {less}')}, ptr {left}")
    w.end(f"br label %{head}, !llvm.loop !0")  # that of `emit_lanes`, which unrolls none
    w.block(done)
