"""Products of tiles on a CPU: factors are copied to where an inner loop finds them, in whole vectors, and that loop keeps a block of sums in registers.

After K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, and F. Van Zee and R. van de Geijn, "BLIS", 2015, whose
micro-kernel this is. Vectors go along the columns of the result, so that each sum is one chain, k ascending. Each copy and each product is a function, which
those of the same sizes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from vyre_py.ir.language.nodes import Atom, Memory, Pack, PackedProduct, Unpack
from vyre_py.ir.language.types import Type, u32
from vyre_py.lowering.llvm.cpu.memory import Memories
from vyre_py.lowering.llvm.cpu.values import LaneValue, LaneWriter, Variability, calculate
from vyre_py.lowering.llvm.idioms import intrinsic, suffix
from vyre_py.lowering.llvm.types import bits_type, llvm_type

__all__ = ["MicroKernels"]

# Turns of the inner loop that are written out, and vectors that are copied in one turn.
_TURNS: Final = 4
_VECTORS: Final = 4
_LINE_BYTES: Final = 64

# Copies one group of columns of some rows, from (row, group) on, with masks or without.
_Group = Callable[[str, str, bool], None]


class MicroKernels:
    """Writes `Pack`, `PackedProduct` and `Unpack`, statements of the workgroup."""

    def __init__(self, memories: Memories) -> None:
        self.memories, self.state, self.w = memories, memories.state, memories.w
        self._names: dict[tuple[object, ...], str] = {}

    def _function(self, lanes: int, key: tuple[object, ...], parameters: str, write: Callable[[_BlockWriter], None]) -> str:
        """The name of the function that `write` writes, once for each key, over vectors of so many elements."""
        if key not in self._names:
            name = self._names[key] = f"{self.state.prefix}{key[0]}.{len(self._names)}"
            kernel = _BlockWriter(self.state.module, lanes, self.w.rows)
            write(kernel)
            kernel.end("ret void")
            self.state.module.define(kernel.function(f"define internal void @{name}({parameters}) noinline nounwind"))
        return self._names[key]

    # ---- products

    def product(self, index: int, s: PackedProduct) -> int:
        """Adds a product to sums."""
        sizes = (s.rows, s.depth, s.columns, s.left_row, s.left_column, s.right_row, s.right_strip, s.down, s.across, s.lanes)
        parameters = "ptr noalias %sums, ptr noalias readonly %left, ptr noalias readonly %right"
        name = self._function(s.lanes, ("product", s.memory.type, *sizes), parameters, lambda kernel: kernel.multiply(s))
        given = ", ".join([f"ptr {self.memories.pointers[memory]}" for memory in (s.memory, s.left, s.right)])
        self.w.line(f"call void @{name}({given})")
        return index + 1

    # ---- copies

    def pack(self, index: int, s: Pack) -> int:
        """Copies a factor."""
        pointer, ranges = self._part(s.source, s.args, (s.down, s.rows), (s.across, s.columns))
        turned = s.down > s.across
        key = ("pack", s.source.type, s.memory.type, turned, s.ahead == s.down, s.rows, s.columns, s.row, s.strip, s.lanes)
        self._copy(s.lanes, key, (self.memories.pointers[s.memory], pointer), ranges, lambda kernel: kernel.copy(s, turned=turned))
        return index + 1

    def unpack(self, index: int, s: Unpack) -> int:
        """Copies a result."""
        pointer, ranges = self._part(s.memory, s.args, (s.down, s.rows), (s.memory.rank - 1, s.columns))
        key = ("unpack", s.memory.type, s.rows, s.columns, s.pitch, s.lanes)
        self._copy(s.lanes, key, (pointer, self.memories.pointers[s.source]), ranges, lambda kernel: kernel.copy_back(s))
        return index + 1

    def _copy(self, lanes: int, key: tuple[object, ...], pointers: tuple[str, str], ranges: Sequence[str], write: Callable[[_BlockWriter], None]) -> None:
        names = ", ".join([f"i64 %{name}" for name in ("top", "bottom", "left", "right", "pitch")])
        name = self._function(lanes, key, f"ptr noalias %to, ptr noalias readonly %from, {names}", write)
        self.w.line(f"call void @{name}({', '.join([*[f'ptr {pointer}' for pointer in pointers], *[f'i64 {number}' for number in ranges]])})")

    def _part(self, memory: Memory, args: Sequence[Atom], down: tuple[int, int], across: tuple[int, int]) -> tuple[str, list[str]]:
        """The pointer to the first element of a part of a memory, which may be outside; where what is inside begins and ends, along two axes of which the
        extents are given; and how far apart neighbours are along that which is not the last. What is outside on another axis is so on all."""
        w, ends = self.w, []
        indices, sizes = [self.state.operand(a) for a in args], [self._size(memory, axis, a.type) for axis, a in enumerate(args)]
        places = [w.let(f"{'sext' if place.type.is_signed else 'zext'} i32 {place.name} to i64") for place in indices]
        everywhere = "true"
        for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
            if axis not in (down[0], across[0]):
                everywhere = w.let(f"and i1 {everywhere}, {w.let(f'icmp ult i64 {place}, {size}')}")
        for axis, extent in (down, across):
            begin = self._within(w.let(f"sub i64 0, {places[axis]}"), extent) if indices[axis].type.is_signed else "0"
            end = self._within(w.let(f"sub i64 {sizes[axis]}, {places[axis]}"), extent)
            ends += [begin, w.let(f"select i1 {everywhere}, i64 {end}, i64 0")]
        offset = places[0]
        for axis in range(1, memory.rank):
            offset = w.let(f"add i64 {w.let(f'mul i64 {offset}, {self._size(memory, axis, u32)}')}, {places[axis]}")
        pitch = "1"
        for inner in range(min(down[0], across[0]) + 1, memory.rank):
            pitch = w.let(f"mul i64 {pitch}, {self._size(memory, inner, u32)}")
        return w.let(f"getelementptr {llvm_type(memory.type)}, ptr {self.memories.pointers[memory]}, i64 {offset}"), [*ends, pitch]

    def _size(self, memory: Memory, axis: int, type_: Type) -> str:
        """An extent as an i64; beside a signed index at most 2^31, past which there are only negative ones."""
        bound = self.memories.bound(memory, axis, type_)
        return str(bound.const.bits) if bound.const is not None else self.w.let(f"zext i32 {bound.name} to i64")

    def _within(self, count: str, extent: int) -> str:
        """A count cut to 0 and the extent."""
        return intrinsic(self.w, "smax", "i64", intrinsic(self.w, "smin", "i64", count, str(extent)), "0")


class _BlockWriter(LaneWriter):
    """Writes one of these functions, over vectors of `width` elements."""

    @contextmanager
    def _turns(self, count: int, unroll: int = 1) -> Iterator[str]:
        """A loop, whose counter it gives; the turns that are to be written out at once."""
        if count == 1:
            yield "0"
            return
        counter, head, after = self.local("i64"), self.label("turn"), self.label("after")
        self.line(f"store i64 0, ptr {counter}")
        self.block(head)
        now = self.let(f"load i64, ptr {counter}")
        yield now
        more = self.let(f"add nuw nsw i64 {now}, 1")
        self.line(f"store i64 {more}, ptr {counter}")
        again = self.label("again")
        self.branch(self.let(f"icmp ult i64 {more}, {count}"), again, after)
        self.block(again)
        self.again(head, unroll)
        self.block(after)

    def _place(self, *terms: tuple[str, int]) -> str:
        """The sum of numbers times constants, as an i64."""
        total = ""
        for name, factor in terms:
            term = self.let(f"mul nuw nsw i64 {name}, {factor}") if factor != 1 else name
            total = self.let(f"add nuw nsw i64 {total}, {term}") if total else term
        return total

    def _at(self, type_: Type, pointer: str, place: str | int) -> str:
        return self.let(f"getelementptr {llvm_type(type_)}, ptr {pointer}, i64 {place}")

    # ---- products

    def multiply(self, s: PackedProduct) -> None:
        """Goes over the sums block by block: down the rows for a few groups of columns, whose part of the second factor stays in the nearest cache."""
        for first, count, size in _blocks(-(-s.columns // self.width), s.across):
            with self._turns(count) as right:
                for top, blocks, height in _blocks(s.rows, s.down):
                    with self._turns(blocks) as down:
                        self._block(s, self._place((down, height), (str(top), 1)), height, self._place((right, size), (str(first), 1)), size)

    def _block(self, s: PackedProduct, row: str, height: int, group: str, across: int) -> None:
        t, width = s.memory.type, self.width
        vector, align, pitch = llvm_type(t, width), t.size_bytes, -(-s.columns // width) * width
        sums = self._at(t, "%sums", self._place((row, pitch), (group, width)))
        places = {(r, c): self._at(t, sums, r * pitch + c * width) for r in range(height) for c in range(across)}
        totals = {at: self.local(vector) for at in places}
        for at, place in places.items():
            self.line(f"store {vector} {self.let(f'load {vector}, ptr {place}, align {align}')}, ptr {totals[at]}")
        left, right = self._at(t, "%left", self._place((row, s.left_row))), self._at(t, "%right", self._place((group, s.right_strip)))
        with self._turns(s.depth, _TURNS) as k:
            x, y = self._at(t, left, self._place((k, s.left_column))), self._at(t, right, self._place((k, s.right_row)))
            columns = [self.let(f"load {vector}, ptr {self._at(t, y, c * s.right_strip)}, align {align}") for c in range(across)]
            for r in range(height):
                element = self.splat(llvm_type(t), self.let(f"load {llvm_type(t)}, ptr {self._at(t, x, r * s.left_row)}, align {align}"))
                for c, column in enumerate(columns):
                    before = self.let(f"load {vector}, ptr {totals[r, c]}")
                    self.line(f"store {vector} {self._add_product(t, element, column, before)}, ptr {totals[r, c]}")
        for at, place in places.items():
            self.line(f"store {vector} {self.let(f'load {vector}, ptr {totals[at]}')}, ptr {place}, align {align}")

    def _add_product(self, t: Type, a: str, b: str, total: str) -> str:
        left, right, before = [LaneValue(Variability.VARYING, t, name) for name in (a, b, total)]
        if t.is_float:
            return calculate(self, "fma", t, [left, right, before]).name
        return calculate(self, "add", t, [calculate(self, "mul", t, [left, right]), before]).name

    # ---- copies

    def copy(self, s: Pack, *, turned: bool) -> None:
        """Copies row by row, or where the source's last axis goes down, a square of elements at a time."""

        def group(row: str, number: str, masked: bool) -> None:
            self._group(s, row, number, masked=masked, turned=turned)

        self._by_rows(s.rows, s.columns, group, None if turned else lambda row: self._fetch(s, row), self.width if turned else 1)

    def copy_back(self, s: Unpack) -> None:
        """Copies row by row."""
        t, vector = s.memory.type, llvm_type(s.memory.type, self.width)

        def group(row: str, number: str, masked: bool) -> None:
            column = self._place((number, self.width))
            found = self.let(f"load {vector}, ptr {self._at(t, '%from', self._place((row, s.pitch), (column, 1)))}, align {t.size_bytes}")
            place = self._at(t, "%to", self.let(f"add i64 {self.let(f'mul i64 {row}, %pitch')}, {column}"))
            if masked:
                mask = self._inside(row, column, ("%top", "%bottom"), ("%left", "%right"))
                self.run(f"llvm.masked.store.{suffix(vector)}.p0", (vector, found), ("ptr", place), ("i32", str(t.size_bytes)), (self.mask_type, mask))
            else:
                self.line(f"store {vector} {found}, ptr {place}, align {t.size_bytes}")

        self._by_rows(s.rows, s.columns, group)

    def _by_rows(self, rows: int, columns: int, group: _Group, before: Callable[[str], None] | None = None, height: int = 1) -> None:
        """Copies so many rows at a time, group by group of their columns. What is inside as a whole goes without masks."""
        whole = self.let(f"and i1 {self.let('icmp eq i64 %left, 0')}, {self.let(f'icmp eq i64 %right, {columns}')}")
        groups, ragged = -(-columns // self.width), columns % self.width > 0
        with self._turns(-(-rows // height)) as block:
            row = self._place((block, height))
            inside = self.let(f"and i1 {whole}, {self.let(f'icmp uge i64 {row}, %top')}")
            inside = self.let(f"and i1 {inside}, {self.let(f'icmp ule i64 {self._place((row, 1), (str(height), 1))}, %bottom')}")
            fast, edge, done = self.label("whole"), self.label("edge"), self.label("copied")
            self.branch(inside, fast, edge)
            self.block(fast)
            if before is not None:
                before(row)
            if groups > ragged:
                with self._turns(groups - ragged, _VECTORS if height == 1 else 1) as number:
                    group(row, number, False)
            if ragged:
                group(row, str(groups - 1), True)
            self.jump(done)
            self.block(edge)
            with self._turns(groups) as number:
                group(row, number, True)
            self.block(done)

    def _fetch(self, s: Pack, row: str) -> None:
        """Has the row that lies ahead of one brought near."""
        size = s.source.type.size_bytes
        ahead = (0, s.columns) if s.ahead == s.across else (s.rows, 0)
        line = self.let(f"mul i64 {self._place((row, 1), (str(ahead[0]), 1))}, %pitch")
        with self._turns(-(-s.columns * size // _LINE_BYTES), _VECTORS) as number:
            place = self._at(s.source.type, "%from", self.let(f"add i64 {line}, {self._place((number, _LINE_BYTES // size), (str(ahead[1]), 1))}"))
            # For reading, into the second cache, since the first is what the product needs for itself; data, not code.
            self.run("llvm.prefetch.p0", ("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1"))

    def _group(self, s: Pack, row: str, group: str, *, masked: bool, turned: bool) -> None:
        """Copies some elements of one group of columns: those of a row, or of as many rows as there are columns."""
        to, t = s.memory.type, s.source.type
        column = self._place((group, self.width))
        if turned:
            lines = [self._place((column, 1), (str(k), 1)) for k in range(self.width)]
            found = [self._line(t, line, row, ("%left", "%right"), ("%top", "%bottom"), masked=masked) for line in lines]
        else:
            found = [self._line(t, row, column, ("%top", "%bottom"), ("%left", "%right"), masked=masked)]
        vectors = [calculate(self, "cast", to, [LaneValue(Variability.VARYING, t, name)]).name if t is not to else name for name in found]
        place = self._at(to, "%to", self._place((row, s.row), (group, s.strip)))
        for k, vector in enumerate(self._transposed(llvm_type(to, self.width), vectors) if turned else vectors):
            self.line(f"store {llvm_type(to, self.width)} {vector}, ptr {self._at(to, place, k * s.row)}, align {to.size_bytes}")

    def _line(self, t: Type, line: str, first: str, lines: tuple[str, str], elements: tuple[str, str], *, masked: bool) -> str:
        """Neighbours of the source, on a line of it; with `masked` zeros for what is outside."""
        vector = llvm_type(t, self.width)
        place = self._at(t, "%from", self.let(f"add i64 {self.let(f'mul i64 {line}, %pitch')}, {first}"))
        if not masked:
            return self.let(f"load {vector}, ptr {place}, align {t.size_bytes}")
        mask = self._inside(line, first, lines, elements)
        arguments = (("ptr", place), ("i32", str(t.size_bytes)), (self.mask_type, mask), (vector, "zeroinitializer"))
        return self.call(vector, f"llvm.masked.load.{suffix(vector)}.p0", *arguments)

    def _inside(self, line: str, first: str, lines: tuple[str, str], elements: tuple[str, str]) -> str:
        """Which of the neighbours on a line, from one on, are within what `lines` and `elements` say begins and ends there."""
        wide = bits_type(64, self.width)
        on = self.let(f"and i1 {self.let(f'icmp uge i64 {line}, {lines[0]}')}, {self.let(f'icmp ult i64 {line}, {lines[1]}')}")
        numbers = self.let(f"add {wide} {self.splat('i64', first)}, {self.lanes(64)}")
        after = self.let(f"icmp uge {wide} {numbers}, {self.splat('i64', elements[0])}")
        before = self.let(f"icmp ult {wide} {numbers}, {self.splat('i64', elements[1])}")
        within = self.let(f"and {self.mask_type} {after}, {before}")
        return self.spelled(self.where(within, on))

    def _transposed(self, vector: str, rows: Sequence[str]) -> list[str]:
        """As many vectors as they have elements, with rows and columns exchanged: by halves, quarters and so on."""
        made, apart = list(rows), self.width // 2
        while apart:
            before = list(made)
            for k in range(self.width):
                if not k & apart:
                    for place, beyond in ((k, 0), (k + apart, apart)):
                        chosen = [(lane & ~apart) + beyond + (self.width if lane & apart else 0) for lane in range(self.width)]
                        chosen_text = ", ".join([f"i32 {number}" for number in chosen])
                        made[place] = self.let(f"shufflevector {vector} {before[k]}, {vector} {before[k + apart]}, <{self.width} x i32> <{chosen_text}>")
            apart //= 2
        return made


def _blocks(count: int, most: int) -> Iterator[tuple[int, int, int]]:
    """0 to `count` in the fewest blocks of at most so many, all of about the same size: where they begin, how many there are, and their size."""
    blocks = -(-count // most)
    size, more = divmod(count, blocks)
    if more:
        yield 0, more, size + 1
    yield more * (size + 1), blocks - more, size
