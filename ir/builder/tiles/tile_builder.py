"""TileBuilder: Programs of tiles written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from vyre_py.ir.builder.common_builder import CommonBuilder
from vyre_py.ir.builder.expressions import Expr, Operand, require_type
from vyre_py.ir.builder.handles import VariableHandle
from vyre_py.ir.builder.program_builder import ProgramBuilder
from vyre_py.ir.builder.tiles.shapes import Shape, axis_of, extents_of
from vyre_py.ir.builder.tiles.tile_array import TileArrayHandle
from vyre_py.ir.builder.tiles.tile_emitter import TileEmitter
from vyre_py.ir.builder.where import fail, missing
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.describe import PYTHON
from vyre_py.ir.language.dims import OF_TILES
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import Type, tile_of, u32
from vyre_py.ir.public import public

__all__ = ["TileBuilder"]

# How the names begin that only builders of invocations have -> what to write in a Program of tiles.
_INSTEAD: Final[Mapping[str, str]] = {
    "over": "b.grid(vp.ceil_div(n, 128)) says how many workgroups run",
    "global_id": "b.workgroup_id(0) * 128 is where the workgroup's part begins; b.iota(axis, shape) counts along an axis of a tile",
    "local_i": "b.iota(axis, shape) counts along an axis of a tile",
    "workgroup_size": "the compiler chooses the invocations of a workgroup; x.shape has the extents of a tile",
    "workgroup": "x.reduce(op, axis) and x.scan(op, axis) of a tile; b.var(name, type, shape=(128, 64)) holds one",
    "private": "b.var(name, type, shape=(128, 64)) holds a tile",
    "shared": "b.var(name, type, shape=(128, 64)) holds a tile",
    "subgroup": "x.reduce(op, axis) and x.scan(op, axis) of a tile",
    "collective": "leave it out among one rank, or copy tiles: y[i, j] = x.tile(i, j, shape=(64, 64))",
    "copy_": "load a tile: compilers copy ahead by themselves",
    "barrier": "leave it out: statements of a workgroup follow one another",
    "grid_barrier": "leave it out, or make two Programs of it",
    "fence": "leave it out: statements of a workgroup follow one another",
    "statements": "look at b.program.body",
}


@public
class TileBuilder(CommonBuilder[TileArrayHandle], TileEmitter):
    """Builds one Program of tiles inside a `with` block; `program` is there afterwards. Its values are scalars, the same for a whole workgroup, and tiles:
    arrays of constant shape that the workgroup has. Which invocations do what is the compiler's affair.

        with TileBuilder("matmul") as b:
            m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
            x, y, z = b.read("x", bf16, m, k), b.read("y", bf16, k, n), b.write("z", f32, m, n)
            b.grid(ceil_div(n, 256), ceil_div(m, 128))
            i, j = b.workgroup_id(1) * 128, b.workgroup_id(0) * 256
            acc = b.var("acc", f32, shape=(128, 256))
            with b.for_(0, k, 64) as p:
                acc.set(mma(x.tile(i, p, shape=(128, 64)), y.tile(p, j, shape=(64, 256)), acc))
            z[i, j] = acc

    Operators and functions take tiles element by element: an extent of 1 goes with any, and scalars and numbers with all elements. `x.shape`, `x.T`,
    `x.transpose`, `x.reshape`, `x.reduce`, `x.scan` and `x.item` are of tiles alone. A tile has 1 to 3 axes and at most 131072 elements. The Program says how
    many workgroups run (V605). Every wrong call raises ValidationError at the caller's line.
    """

    def __init__(self, name: str, doc: str = "") -> None:
        if not isinstance(name, str) or not name:
            fail("B108", f"a Program has a name, got {shown(name)}", "TileBuilder('matmul')")
        super().__init__(Assembler(name, OF_TILES), doc)

    def _array(self, memory: Memory) -> TileArrayHandle:
        return TileArrayHandle(self, memory)

    def var(self, name: str, type_: Type, first: Operand = 0, *, shape: Shape | None = None) -> VariableHandle:
        """A mutable value of the workgroup, `first` at the start: a scalar or vector of this type, or a tile of such elements where there is a shape or
        `first` is a tile. `v.set(x)` and `v += x` write it; using `v` reads it now.

        So `b.var("acc", vp.f32, shape=(128, 256))` begins with zeros, and `b.var("most", vp.f32, -math.inf, shape=(128, 1))` with a number. Raises
        ValidationError: V601 and V604 for a shape that no tile has, V201 for a `first` of another type or shape.
        """
        require_type(type_)
        if shape is not None:
            type_ = self._tile_type(type_, extents_of(shape))
        elif isinstance(first, Expr) and first.type.is_tile and not type_.is_tile:
            type_ = self._tile_type(type_, first.shape)
        return super().var(name, type_, first)

    def fill(self, value: Operand, shape: Shape, type_: Type | None = None) -> Expr:
        """A tile of this shape whose elements are all `value`: a number, whose type has to be given, or a scalar of the Program.

        Raises ValidationError: V601 and V604 for a shape that no tile has, B106 for a number without a type or one that the type does not hold, V201 for a
        value of another type.
        """
        extents = extents_of(shape)
        if isinstance(value, Expr) and (value.type.is_tile or value.type.is_vector):
            instead = "an extent of 1 goes with any: x + b.fill(0, shape, type)" if value.type.is_tile else "take a component: v.x"
            fail("V201", f"fill takes a scalar, got {value.type}", instead)
        wanted = value.type if type_ is None and isinstance(value, Expr) else type_
        if wanted is None:
            fail("B106", f"nothing says what type {shown(value)} has in fill", "b.fill(0.0, (128, 256), vp.f32)")
        require_type(wanted)
        self._tile_type(wanted, extents)
        atom = self._typed(value, wanted, "what fills a tile")
        return Expr(self, self._here().tile(TILE_OPS["fill"], (atom,), extents))

    def iota(self, axis: int, shape: Shape) -> Expr:
        """A tile of u32 of this shape, of which each element is its index along the axis.

        Raises ValidationError: V601 and V604 for a shape that no tile has, V201 for an axis that is not there.
        """
        extents = extents_of(shape)
        along = axis_of(str(tile_of(u32, extents)), len(extents), axis)
        return Expr(self, self._here().tile(TILE_OPS["iota"], (), (along, *extents)))

    @staticmethod
    def _tile_type(type_: Type, extents: tuple[int, ...]) -> Type:
        """The type of tiles of these elements."""
        if type_.is_vector or type_.is_tile:
            fail("V604", f"the elements of a tile are scalars, got {type_}", f"name the type of one: {PYTHON.named(type_.scalar)}")
        return tile_of(type_, extents)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_") or not hasattr(ProgramBuilder, name):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self)
            instead = next(help for start, help in _INSTEAD.items() if name.startswith(start))
            missing(f"a Program of tiles has no invocations, and its builder no {name}", instead)
