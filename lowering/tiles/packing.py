"""The rewrite of a Program of tiles for a CPU: lanes touch neighbours, and products of matrices go by a micro-kernel, over factors that are packed in
workgroup arrays.

A factor that is loaded for a product alone is copied from its memory to where that wants it (`nodes.Pack`), turned and widened on the way; any other is stored
there by the invocations that hold it. A variable that becomes products lies in a workgroup array for good, whose elements invocations load and store as they
need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre_py.ir.check.facts import definitions, uses
from vyre_py.ir.check.limits import SPACE_LIMITS_BYTES
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Get,
    Let,
    Memory,
    Pack,
    PackedProduct,
    Set,
    Space,
    Statement,
    Tile,
    TileLoad,
    TileMemoryStatement,
    TileStore,
    Unpack,
    Value,
    Var,
    Variable,
    VariableStatement,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, bool_, f16, f32, f64, i8, i32, u8, u32
from vyre_py.ir.math.builder import word
from vyre_py.lowering.llvm.cpu.host_targets import MAX_ELEMENTS
from vyre_py.lowering.tiles.exchange import NOWHERE, Shared
from vyre_py.lowering.tiles.rewrite import Rewrite
from vyre_py.lowering.tiles.tile_layout import InvocationGrid, invocation_grid

__all__ = ["MicroKernel", "for_cpu", "micro_kernel"]

_PRODUCTS: Final = ("mma", "mma_tensor")
# The type of elements that are copied, and that of the sums.
_WIDENED: Final = frozenset({(f32, f32), (f64, f64), (f16, f32), (bf16, f32), (i8, i32), (u8, i32)})
_SUMS: Final = frozenset(to for _, to in _WIDENED)


_LONG_BYTES: Final = 32
_FEW_REGISTERS: Final = 16


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """What of a CPU's registers sums have: those of `down` rows, and of `across` vectors of `vector_bytes` in each."""

    vector_bytes: int
    down: int
    across: int

    def lanes(self, type_: Type) -> int:
        """How many elements a vector has."""
        return self.vector_bytes // type_.size_bytes


@dataclass(frozen=True, slots=True)
class _Panel:
    """Where the elements of a matrix lie: (r, c) at r `row` + c // `lanes` `strip` + c % `lanes`, all of them in so many `elements`."""

    row: int
    strip: int
    lanes: int
    elements: int


def _padded(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


def _rows(shape: tuple[int, ...], lanes: int) -> _Panel:
    """Row by row, as invocations store and load them."""
    rows, columns = shape
    pitch = _padded(columns, lanes)
    return _Panel(pitch, lanes, lanes, rows * pitch)


def _strips(shape: tuple[int, ...], lanes: int) -> _Panel:
    """Strip by strip, each as wide as a vector: what goes through k together lies close together."""
    rows, columns = shape
    deep = _padded(rows, lanes)
    return _Panel(lanes, deep * lanes, lanes, deep * _padded(columns, lanes))


@dataclass(frozen=True, slots=True)
class _CopiedFactor:
    """A factor, the first or second (0 or 1) of a product with sums of a type, that statement `index` loads; `turned`, rows and columns exchanged."""

    index: int
    load: TileLoad
    number: int
    type: Type
    turned: bool
    lanes: int

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of the memory along which rows and columns of what is copied go. A first factor is copied as it is loaded."""
        first, last = [axis for axis, extent in enumerate(self.load.extents) if extent]
        return (last, first) if self.turned and self.number else (first, last)

    @property
    def panel(self) -> _Panel:
        """How it lies then."""
        return (_strips if self.number else _rows)(tuple([self.load.extents[axis] for axis in self.axes]), self.lanes)


class _Packing:
    """What of a Program is packed. `factors` has those that are copied, by the value that a product takes, `loads` the same by statement; `skipped` are
    statements that make or take only such. `sums` has, by product, the variable that it becomes; those `in_place` are added to what that holds. `results` are
    stored by copies of their rows, those that are `stored` from where such a variable lies."""

    def __init__(self, program: Program, kernel: MicroKernel | None) -> None:
        self._program, self.kernel = program, kernel or MicroKernel(1, 1, 1)
        self._uses, self._made = uses(program), definitions(program)
        self.factors: dict[int, _CopiedFactor] = {}
        self.loads: dict[int, _CopiedFactor] = {}
        self.skipped: set[int] = set()
        self.sums: dict[int, Variable] = {}
        self.in_place: set[int] = set()
        self.products = {
            index: s for index, s in enumerate(program.body) if kernel and isinstance(s, Tile) and s.op.name in _PRODUCTS and s.bound.type.scalar in _SUMS
        }  # fmt: skip
        self.stored: dict[int, Variable] = {}
        self.results = {index: s for index, s in enumerate(program.body) if self.products and isinstance(s, TileStore) and self._unpacks(s)}
        for index, s in self.products.items():
            for number, atom in enumerate(s.args[:2]):
                self._look_back(atom, number, s.bound.type.scalar)
            self._look_ahead(index, s)
        for index, result in self.results.items():
            variable = self._held(result.value, index)
            if variable is not None and variable in self.sums.values():
                self.stored[index] = variable

    def bytes(self) -> Iterator[int]:
        """What the arrays take, each."""
        for copied in self.factors.values():
            yield copied.panel.elements * copied.type.size_bytes
        for variable in set(self.sums.values()):
            yield self.rows(variable.type).elements * variable.type.scalar.size_bytes
        for index, s in self.products.items():
            type_ = s.bound.type.scalar
            others = [a.type for a in s.args[:2] if isinstance(a, Value) and a.id not in self.factors] + [s.bound.type] * (index not in self.sums)
            yield from [self.rows(other, type_).elements * type_.size_bytes for other in others]
        for index, result in self.results.items():
            yield self.rows(result.value.type).elements * result.memory.type.size_bytes * (index not in self.stored)

    def rows(self, tile: Type, type_: Type | None = None) -> _Panel:
        """How a tile lies row by row, as elements of a type, its own unless given."""
        return _rows(tile.shape, self.kernel.lanes(type_ or tile.scalar))

    def _look_back(self, atom: Atom, number: int, type_: Type) -> None:
        """Notes whether a factor is loaded for this product alone, perhaps transposed and widened."""
        value, turned, passed = atom, False, list[int]()
        while isinstance(value, Value) and self._uses[value.id] == 1:
            index = self._made[value.id]
            s = self._program.body[index]
            passed.append(index)
            if isinstance(s, TileLoad):
                if self._copies(s, type_):
                    assert isinstance(atom, Value)  # a tile
                    copied = _CopiedFactor(index, s, number, type_, turned, self.kernel.lanes(type_))
                    self.factors[atom.id] = self.loads[index] = copied
                    self.skipped.update(passed)
                return
            widens = isinstance(s, Let) and s.op.name == "cast" and (s.args[0].type.scalar, s.bound.type.scalar) in _WIDENED
            turns = isinstance(s, Tile) and s.op.name == "transpose"
            if not widens and not turns:
                return
            turned ^= isinstance(s, Tile) and s.numbers == (1, 0)
            value = s.args[0]

    @classmethod
    def _copies(cls, s: TileLoad, type_: Type) -> bool:
        return (s.memory.type, type_) in _WIDENED and cls._has_rows(s)

    @classmethod
    def _unpacks(cls, s: TileStore) -> bool:
        return s.memory.type is not bool_ and 1 not in s.shape and cls._has_rows(s)

    @staticmethod
    def _has_rows(s: TileMemoryStatement) -> bool:
        """Whether a tile is rows of neighbours in a buffer, at indices of 32 bits."""
        return s.memory.space is Space.BUFFER and len(s.shape) == 2 and s.extents[-1] > 0 and all(a.type in (u32, i32) for a in s.indices)

    def _look_ahead(self, index: int, s: Tile) -> None:
        """Notes the variable that is set to a product, where nothing else takes this, and it is not read in between. Each of its elements is one invocation's,
        which those of an axis of extent 1 are not."""
        if self._uses[s.bound.id] != 1 or 1 in s.bound.type.shape:
            return
        at = next(at for at in range(index + 1, len(self._program.body)) if s.bound in self._program.body[at].args)
        found = self._program.body[at]
        if not isinstance(found, Set) or self._touches(index + 1, at, found.variable):
            return
        self.sums[index] = found.variable
        self.skipped.add(at)
        before = s.args[2]
        if isinstance(before, Value) and self._held(before, index) is found.variable and self._uses[before.id] == 1:
            self.in_place.add(index)
            self.skipped.add(self._made[before.id])

    def _held(self, value: Atom, index: int) -> Variable | None:
        """The variable that a value was read from, in the block of statement `index`, if it holds that still."""
        get = self._made[value.id] if isinstance(value, Value) else 0
        made = self._program.body[get]
        return made.variable if isinstance(made, Get) and not self._touches(get + 1, index, made.variable) else None

    def _touches(self, begin: int, end: int, variable: Variable) -> bool:
        """Whether statements touch a variable, as products do that become it, or leave the block that they are in."""
        return any(
            s.nests or self.sums.get(at) is variable or (isinstance(s, VariableStatement) and s.variable is variable)
            for at, s in enumerate(self._program.body[begin:end], begin)
        )


def micro_kernel(vector_bytes: int, registers: int) -> MicroKernel:
    """The block of sums for a CPU's vector registers, of which it leaves some for what is multiplied: 6 by 16 of f32 with AVX2, 14 by 32 with AVX-512, 9 by 12
    with NEON. Short vectors go three by three where there are many, since a load is as long as they."""
    across = 3 if vector_bytes < _LONG_BYTES and registers > _FEW_REGISTERS else 2
    return MicroKernel(vector_bytes, (registers - across - 2) // across, across)


def for_cpu(program: Program, target: str, memory_bytes: int, workgroup: tuple[int, int, int] | None, kernel: MicroKernel) -> Program:
    """A Program of invocations for a CPU, whose products are those of a micro-kernel, where workgroup memory has room for what they take. `workgroup` is how
    many invocations there are, if somebody asked; exchanges may take so many bytes of workgroup memory beside.

    Raises Unsupported for what does not fit that memory.
    """
    packing = _Packing(program, kernel)
    if sum(packing.bytes()) + memory_bytes > SPACE_LIMITS_BYTES[Space.WORKGROUP][1]:
        packing = _Packing(program, None)
    return _CpuRewrite(program, target, invocation_grid(program, workgroup), memory_bytes, packing).run()


class _CpuRewrite(Rewrite):
    def __init__(self, program: Program, target: str, invocations: InvocationGrid, memory_bytes: int, packing: _Packing) -> None:
        super().__init__(program, target, invocations, memory_bytes)
        self._packing = packing
        self._kept = set(packing.sums.values())
        self._shifting = self._found_shifting()

    def _found_shifting(self) -> frozenset[Type]:
        """The types whose sums that no variable holds have an element of their array for several invocations: those of an axis of extent 1, and in turn those
        of rows that are not equally far apart."""
        packing, shapes = self._packing, dict[Type, set[tuple[int, ...]]]()
        for index, s in packing.products.items():
            if index not in packing.sums:
                shapes.setdefault(s.bound.type.scalar, set()).add(s.bound.type.shape)
        return frozenset(
            type_ for type_, found in shapes.items()
            if any(1 in shape for shape in found) or len({_rows(shape, packing.kernel.lanes(type_)).row for shape in found}) > 1
        )  # fmt: skip

    def offset(self, offset: Atom) -> Atom:
        """So low that no index of a tile wraps: then indices are neighbours where elements are, for lanes as well."""
        if offset.type is not u32:
            return offset
        return word(min(offset.bits, MAX_ELEMENTS)) if isinstance(offset, Const) else self.m("min", offset, word(MAX_ELEMENTS))

    def beyond(self, offset: Atom, element: Atom, extent: int = 0) -> Atom:
        """The sum, of a u32 as it is."""
        return self.m("add", offset, element) if offset.type is u32 else super().beyond(offset, element, extent)

    def take(self, index: int) -> None:
        """Takes in old statement `index`."""
        packing, s = self._packing, self.program.body[index]
        if index in packing.loads:
            self.begin(index)
            self._pack(packing.loads[index])
        elif index in packing.skipped:
            return
        elif index in packing.products:
            self.begin(index)
            self._multiply(index, packing.products[index])
        elif index in packing.results:
            self.begin(index)
            self._unpack(packing.results[index], packing.stored.get(index))
        elif isinstance(s, VariableStatement) and s.variable in self._kept:
            self.begin(index)
            self._touch(s)
        else:
            super().take(index)

    # ---- variables that lie in memory

    def _touch(self, s: Statement) -> None:
        assert isinstance(s, VariableStatement)  # of a variable that lies in memory
        if isinstance(s, Get):
            self.keep(s.bound, self._loaded(s.bound, self._sums_of(s.variable)))
        else:
            assert isinstance(s, (Var, Set))  # there is no other
            self.settle()  # what is read from it
            self._put(self.tile_of(s.args[0]), s.variable.type.scalar, self._sums_of(s.variable))

    def _sums_of(self, variable: Variable) -> Memory:
        return self.array(variable.type.scalar, self._packing.rows(variable.type).elements, f"sums {variable.id}")

    def _loaded(self, value: Value, array: Memory) -> Shared:
        """A tile in an array, row by row, whose registers are loaded as they are needed."""
        shape, layout = value.type.shape, self.invocations
        strides = (self._packing.rows(value.type).row, 1)
        places = {r: self.linear(layout, shape, r, strides) for r in layout.registers(shape)}
        return Shared(shape, layout, self.lazy(value, places, lambda r: self.load(array, (places[r],))))

    def _put(self, tile: Shared, type_: Type, array: Memory) -> None:
        """Stores a tile row by row, as elements of a type."""
        tile = self.moved(tile, self.invocations)
        strides = (_rows(tile.shape, self._packing.kernel.lanes(type_)).row, 1)
        for r, value in tile.registers.items():
            place = self.where(self.inside(tile.layout, tile.shape, r), self.linear(tile.layout, tile.shape, r, strides), NOWHERE)
            self.store(array, (place,), value if value.type is type_ else self.m.cast(value, type_))

    # ---- results

    def _unpack(self, s: TileStore, variable: Variable | None) -> None:
        type_ = s.memory.type
        if variable is None:
            array = self.array(type_, self._packing.rows(s.value.type).elements, "result")
            self._put(self.tile_of(s.value), type_, array)
        else:
            array = self._sums_of(variable)
        lanes = self._packing.kernel.lanes(type_)
        down = next(axis for axis, extent in enumerate(s.extents) if extent)
        pitch, (rows, columns) = self._packing.rows(s.value.type).row, s.shape
        self.emit(Unpack(None, tuple([self.atom(a) for a in s.indices]), s.memory, array, down, rows, columns, pitch, lanes))

    # ---- products

    def _pack(self, copied: _CopiedFactor) -> None:
        s, panel, (down, across) = copied.load, copied.panel, copied.axes
        array = self._array_of(copied)
        offsets = tuple([self.atom(a) for a in s.indices])
        rows, columns = s.extents[down], s.extents[across]
        # The next factors of a loop lie ahead along k, which goes along the rows of a second factor and of a first one that is turned.
        ahead = down if copied.number or copied.turned else across
        self.emit(Pack(None, offsets, array, s.memory, down, across, ahead, rows, columns, panel.row, panel.strip, panel.lanes))

    def _array_of(self, copied: _CopiedFactor) -> Memory:
        return self.array(copied.type, copied.panel.elements, f"factor {copied.index}")

    def _factor(self, atom: Atom, number: int, type_: Type) -> tuple[Memory, int, int]:
        """The array of a factor, and how far apart its rows, and its columns or strips are."""
        assert isinstance(atom, Value)  # a tile
        copied = self._packing.factors.get(atom.id)
        if copied is None:
            panel = self._packing.rows(atom.type, type_)
            array = self.array(type_, panel.elements, "left" if number == 0 else "right")
            self._put(self.tile_of(atom), type_, array)
        else:
            panel = copied.panel
            array = self._array_of(copied)
        if number:
            return array, panel.row, panel.strip
        return (array, 1, panel.row) if copied is not None and copied.turned else (array, panel.row, 1)

    def _multiply(self, index: int, s: Tile) -> None:
        packing, type_ = self._packing, s.bound.type.scalar
        (rows, depth), (_, columns) = s.args[0].type.shape, s.args[1].type.shape
        variable = packing.sums.get(index)
        left, right = [self._factor(atom, number, type_) for number, atom in enumerate(s.args[:2])]
        sums = self._sums_of(variable) if variable is not None else self.array(type_, packing.rows(s.bound.type).elements, "sums")
        if index not in packing.in_place:
            if variable is None and type_ in self._shifting:
                self.barrier()  # others may still load what they hold of the sums before
            self._put(self.tile_of(s.args[2]), type_, sums)
        kernel = packing.kernel
        self.emit(PackedProduct(
            None, (), sums, left[0], right[0], rows, depth, columns, *left[1:], *right[1:], kernel.lanes(type_), kernel.down, kernel.across,
        ))  # fmt: skip
        if variable is None:
            self.keep(s.bound, self._loaded(s.bound, sums))
