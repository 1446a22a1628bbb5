"""Programs of tiles, put together by the assembler: they have every tile op and every statement of tiles between them, and `check` accepts them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, Dim, DimConst, DimOp, Grid
from vyre_py.ir.language.nodes import Access, Atom, Memory, Space, Value, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES, TILE_OPS
from vyre_py.ir.language.types import SCALARS, Type, bf16, bool_, f16, f32, f64, i32, u32

__all__ = ["tile_programs"]

_ZERO: Final = const(u32, 0)
# Of the ops whose numbers are not one axis: the numbers for a tile of 4 by 6.
_NUMBERS: Final = {"fill": (3, 5), "iota": (1, 2, 3), "transpose": (1, 0), "reshape": (2, 3, 4), "item": ()}


def _begun(name: str, wide: int = 4, high: int = 4) -> tuple[Assembler, Dim]:
    """A Program over a dim, of which a workgroup takes so much along x and along y."""
    a = Assembler(name, OF_TILES)
    n = a.dim("n")
    x, y = (DimOp("ceil_div", n, DimConst(extent)) for extent in (wide, high))
    a.grid = Grid(False, (x, y, DimConst(1)))
    return a, n


def _buffer(a: Assembler, name: str, type_: Type, rank: int = 2, access: Access = Access.READ) -> Memory:
    return a.memory(name, Space.BUFFER, type_, tuple([a.dims[0]] * rank), access)


def _let(a: Assembler, op: str, *args: Atom, given: Type | None = None, name: str | None = None) -> Value:
    return a.let(OPS[op], args, given, name)


def _corner(a: Assembler, memory: Memory, *extents: int) -> Value:
    return a.tile_load(memory, (_ZERO,) * memory.rank, extents)


def _ops() -> Program:
    """Every tile op but those that multiply, over one type that it takes."""
    a, _ = _begun("ops")
    loaded: dict[Type, Value] = {}
    for op in TILE_OPS.values():
        if "acc" in op.names:
            continue
        t = next(t for t in (f32, i32, bool_, *SCALARS.values()) if t in op.of)
        if t not in loaded:
            loaded[t] = _corner(a, _buffer(a, f"of_{t}", t), 4, 6)
        a.tile(op, _values_of(a, op, t, loaded[t]), _NUMBERS.get(op.name, (1,)), op.name)
    return a.finish()


def _values_of(a: Assembler, op: TileOp, type_: Type, tile: Value) -> tuple[Atom, ...]:
    if op.name == "item":
        return (a.tile(TILE_OPS["fill"], (const(type_, 1),), (1, 1)),)
    return ((const(type_, 1),) if op.name == "fill" else (tile,)) if op.operands else ()


def _products() -> Program:
    """Products of all types that there are, strict and by tensor cores."""
    a, _ = _begun("products")
    for (left, right), sums in MMA_TYPES.items():
        x, y = _corner(a, _buffer(a, f"x_{left}_{right}", left), 4, 8), _corner(a, _buffer(a, f"y_{left}_{right}", right), 8, 3)
        for to in sorted(sums, key=str):
            acc = a.tile(TILE_OPS["fill"], (const(to, 0),), (4, 3))
            exact = ["mma_sm90"] if left is right and left in (f16, bf16, f32) and to is f32 else ["mma_sm90_warps"] if left.is_storage else []
            for op in ("mma", "mma_tensor", *exact):
                acc = a.tile(TILE_OPS[op], (x, y, acc))
    return a.finish()


def _lets() -> Program:
    """Ops of the language over tiles: extents of 1 and scalars beside them, casts, selects, comparisons."""
    a, n = _begun("lets")
    p = a.param("p", f32)
    x = _buffer(a, "x", f32)
    whole, row, column = _corner(a, x, 4, 6), _corner(a, x, 1, 6), _corner(a, x, 4, 1)
    outer = _let(a, "mul", row, column, name="outer")
    total = _let(a, "fma", outer, p, _let(a, "exp", whole), name="total")
    near = _let(a, "lt", total, const(f32, 2.0))
    chosen = _let(a, "select", near, total, column)
    narrow = _let(a, "cast", chosen, given=f16)
    bits = _let(a, "bitcast", _let(a, "cast", narrow, given=f32), given=u32)
    counted = _let(a, "add", bits, a.tile(TILE_OPS["iota"], (), (0, 4, 1)))
    _let(a, "select", _let(a, "ne", counted, n), counted, const(u32, 3))
    a.tile_store(_buffer(a, "y", f16, access=Access.WRITE), (_ZERO, _ZERO), (4, 6), narrow)
    return a.finish()


def _matmul() -> Program:
    """A variable that holds a tile, in a loop."""
    a, n = _begun("matmul", 32, 16)
    a.doc = "c = a b"
    x, y, z = _buffer(a, "a", f16), _buffer(a, "b", f16), _buffer(a, "c", f32, access=Access.READ_WRITE)
    i = _let(a, "mul", a.let(OPS["workgroup_id.y"], ()), const(u32, 16), name="i")
    j = _let(a, "mul", a.let(OPS["workgroup_id.x"], ()), const(u32, 32), name="j")
    first = a.tile(TILE_OPS["fill"], (const(f32, 0.0),), (16, 32))
    acc = a.var(first.type, first, "acc")
    p = a.for_(_ZERO, n, const(u32, 8), "p", unroll=2, pipeline=3)
    left, right = a.tile_load(x, (i, p), (16, 8), "left"), a.tile_load(y, (p, j), (8, 32))
    a.set(acc, a.tile(TILE_OPS["mma"], (left, right, a.get(acc))))
    a.end()
    a.tile_store(z, (i, j), (16, 32), a.get(acc, "whole"))
    return a.finish()


def _statements() -> Program:
    """The statements of tiles in blocks, with axes that a tile has not, and scalars beside."""
    a, n = _begun("statements")
    x, y, s = _buffer(a, "x", f64, 3), _buffer(a, "y", f64, 3, Access.READ_WRITE), _buffer(a, "s", f32, 1, Access.READ_WRITE)
    w = a.let(OPS["workgroup_id.x"], ())
    a.region("rows")
    a.if_(_let(a, "lt", w, n))
    plane = a.tile_load(x, (w, _ZERO, const(u32, 7)), (0, 4, 5))
    a.tile_store(y, (w, _ZERO, _ZERO), (0, 4, 5), plane)
    a.else_()
    cube = a.tile_load(x, (w, n, const(u32, 1)), (2, 3, 4), "cube")
    a.tile_atomic_add(s, (w,), (6,), a.tile(TILE_OPS["fill"], (const(f32, 0.5),), (6,)))
    a.tile_store(y, (w, n, _ZERO), (2, 3, 4), cube)
    a.end()
    a.end()
    count = a.var(u32, _ZERO, "count")
    a.loop()
    a.set(count, _let(a, "add", a.get(count), const(u32, 1)))
    a.if_(_let(a, "gt", a.get(count), const(u32, 3)))
    a.break_()
    a.end()
    a.end()
    a.store(s, (w,), a.load(s, (_ZERO,)))
    return a.finish()


_MADE: Final[tuple[Callable[[], Program], ...]] = (_ops, _products, _lets, _matmul, _statements)


@cache
def tile_programs() -> tuple[Program, ...]:
    """The Programs."""
    return tuple([make() for make in _MADE])
