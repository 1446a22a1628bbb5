"""Random valid Programs of tiles over all types and tile ops, by construction free of races, of atomic order and of endless loops.

How: of each buffer that is written, a workgroup has a slab along one axis for itself, at its own number times the slab's width, and reads and writes that
alone; buffers that are read only are read anywhere, inside and outside; memories of whole numbers that are added to by atomics are so anywhere, and not
read; loops count. So every device must agree to the bit with the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from elements import INTERESTING, random_array

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import OF_TILES, Dim, DimConst, DimExpr, Grid, dim_op, evaluate_dim
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Space, Variable, const
from vyre_py.ir.language.op import Op, Operand, Result
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import MMA_TYPES, TILE_OPS
from vyre_py.ir.language.types import SCALARS, Type, bool_, f32, i32, i64, tile_of, u32, u64

__all__ = ["arguments_for", "generate_tiles"]

ALL_SCALARS = tuple(SCALARS.values())
_MOST_ELEMENTS = 1200  # of a tile
_EXTENT = 20
_SLABS = (1, 3, 7, 12, _EXTENT)  # how wide that of a workgroup is
_DEPTH = 3  # of blocks
_NESTED = 2  # how many tiles are made only to be an operand, one for the other
_ROWS = [row for row in OPS.values() if row.is_lanewise and not row.approximates and not row.is_query and Operand.LANES not in row.operands]
_SHORT = [row for row in _ROWS if not row.expands]
_CONVERSIONS = [OPS["cast"], OPS["bitcast"]]
_FOLDS = [row for row in TILE_OPS.values() if row.fold]
_ATOMIC = (i32, u32, i64, u64)
_AXES = "xyz"


@dataclass
class _Slab:
    """A buffer of which each workgroup has a part of its own: `width` indices of an axis, from `base` on."""

    memory: Memory
    axis: int
    width: int
    base: Atom


@dataclass
class _Scope:
    values: dict[Type, list[Atom]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


class _Generator:
    def __init__(self, r: random.Random, types: Sequence[Type], tensor_floats: bool, wide_atomics: bool, most: int) -> None:
        self.r, self.tensor_floats = r, tensor_floats
        self.added = [t for t in _ATOMIC if wide_atomics or t.size_bytes == 4]
        self.types = list(dict.fromkeys((u32, i32, bool_, *[t for t in (f32,) if t in types], *r.sample(types, min(3, len(types))))))
        self.a = Assembler("tiles", OF_TILES)
        self.scopes = [_Scope()]
        self.loops = 0
        self.budget = r.randint(8, most)
        # A few extents, so that shapes meet again.
        self.extents = [1, *[r.randint(1, _EXTENT) for _ in range(4)]]
        self.declare()

    # ---- choices

    def chance(self, one_in: int) -> bool:
        return self.r.randrange(one_in) == 0

    def shape(self, rank: int = 0) -> tuple[int, ...]:
        shape = [self.r.choice(self.extents) for _ in range(rank or self.r.choice((1, 2, 2, 3)))]
        while prod(shape) > _MOST_ELEMENTS:
            k = self.r.randrange(len(shape))
            shape[k] = (shape[k] + 1) // 2
        return tuple(shape)

    def constant(self, t: Type) -> Const:
        if t.is_integer and self.chance(2):
            return const(t, self.r.randrange(20))
        return const(t, self.r.choice(INTERESTING[t]))

    def known(self, t: Type) -> list[Atom]:
        return [v for scope in self.scopes for v in scope.values.get(t, ())]

    def tiles(self) -> list[Atom]:
        return [v for scope in self.scopes for t, held in scope.values.items() if t.is_tile for v in held]

    def keep(self, atom: Atom) -> Atom:
        self.scopes[-1].values.setdefault(atom.type, []).append(atom)
        return atom

    def scalar(self, t: Type) -> Atom:
        known = self.known(t)
        return self.r.choice(known) if known and not self.chance(4) else self.constant(t)

    # ---- declarations

    def declare(self) -> None:
        a, r = self.a, self.r
        self.dims = [a.dim(name) for name in ("n", "m")[: r.randint(1, 2)]]
        groups: list[DimExpr] = [self.groups() for _ in range(r.choice((1, 1, 2, 3)))]
        one = DimConst(1)
        x, y, z = [*groups, one, one][:3]
        a.grid = Grid(False, (x, y, z))
        for t in self.types:
            self.keep(a.param(f"p_{t.name}", t))
        for dim in self.dims:
            self.keep(dim)
        self.inputs = [a.memory(f"in_{k}_{t.name}", Space.BUFFER, t, self.sizes(), Access.READ) for k, t in enumerate((*self.types, *self.types[:2]))]
        self.inputs.append(self.table())
        outputs = [a.memory(f"out_{k}_{t.name}", Space.BUFFER, t, self.sizes(), r.choice((Access.WRITE, Access.READ_WRITE))) for k, t in enumerate(self.types)]
        self.sums = [a.memory(f"sum_{t.name}", Space.BUFFER, t, self.sizes(), Access.READ_WRITE) for t in self.added if t in self.types]
        number: Atom = const(u32, 0)
        for axis in reversed(_AXES):
            turned = a.let(OPS["mul"], (number, self.keep(a.let(OPS[f"num_workgroups.{axis}"], ()))))
            number = a.let(OPS["add"], (turned, self.keep(a.let(OPS[f"workgroup_id.{axis}"], ()))))
        self.number = self.keep(number)
        self.slabs = [self.slab(memory) for memory in outputs]

    def groups(self) -> DimExpr:
        """A number of workgroups: a few."""
        return DimConst(self.r.randint(1, 3)) if self.chance(2) else dim_op("ceil_div", self.r.choice(self.dims), DimConst(self.r.randint(7, 12)))

    def sizes(self) -> tuple[DimExpr, ...]:
        """The shape of a buffer."""
        def size() -> DimExpr:
            dim: Dim = self.r.choice(self.dims)
            return (DimConst(self.r.randint(1, 30)), dim, dim_op("add", dim, DimConst(self.r.randint(1, 5))))[self.r.randrange(3)]

        return tuple([size() for _ in range(self.r.randint(1, 3))])

    def table(self) -> Memory:
        t, shape = self.r.choice(self.types), (self.r.randint(1, 5), self.r.randint(1, 7))
        data = random_array(np.random.default_rng(self.r.randrange(1 << 16)), t, shape).tobytes()
        return self.a.memory("table", Space.TABLE, t, tuple(map(DimConst, shape)), Access.READ, data)

    def slab(self, memory: Memory) -> _Slab:
        """Counted from 0, or from before the buffer."""
        a, width = self.a, self.r.choice(_SLABS)
        if self.chance(2):
            base = a.let(OPS["mul"], (self.number, const(u32, width)))
        else:
            turned = a.let(OPS["mul"], (a.let(OPS["cast"], (self.number,), i32), const(i32, width)))
            base = a.let(OPS["sub"], (turned, const(i32, self.r.randint(0, 5))))
        return _Slab(memory, self.r.randrange(memory.rank), width, base)

    # ---- accesses

    def offset(self) -> Atom:
        """Where a tile begins along an axis: often inside, at times before or behind the memory."""
        turn = self.r.randrange(6)
        if turn < 2:
            return const(u32, self.r.randrange(12))
        if turn == 2:
            return const(i32, self.r.randint(-25, 30))
        if turn == 3:
            return const(*self.r.choice(((i32, -1 << 30), (u32, 1 << 30), (i32, -_EXTENT), (u32, 40))))
        t = self.r.choice([t for t in (u32, i32, i64, u64) if t in self.types])
        near = self.a.let(OPS["rem"], (self.scalar(t), const(t, self.r.randint(1, 16))))
        return self.a.let(OPS["sub"], (near, const(t, self.r.randint(0, 9)))) if t.is_signed else near

    def extents_over(self, memory: Memory, shape: tuple[int, ...] | None = None) -> list[int] | None:
        """An extent for each axis, 0 for some; those of `shape` where it is given, or None where the memory has too few axes for it."""
        shape = self.shape(self.r.randint(1, memory.rank)) if shape is None else shape
        if len(shape) > memory.rank:
            return None
        axes = sorted(self.r.sample(range(memory.rank), len(shape)))
        extents = [0] * memory.rank
        for axis, extent in zip(axes, shape, strict=True):
            extents[axis] = extent
        return extents

    def place(self, memory: Memory, extents: Sequence[int], slab: _Slab | None) -> tuple[Atom, ...] | None:
        """Offsets along all axes, in a slab where one is given; None where the extents are wider than it."""
        offsets = [self.offset() for _ in memory.shape]
        if slab is not None:
            free = slab.width - max(1, extents[slab.axis])
            if free < 0:
                return None
            offsets[slab.axis] = self.a.let(OPS["add"], (slab.base, const(slab.base.type, self.r.randint(0, free))))
        return tuple(offsets)

    def load_from(self, memory: Memory, slab: _Slab | None, shape: tuple[int, ...] | None = None) -> Atom | None:
        extents = self.extents_over(memory, shape)
        offsets = self.place(memory, extents, slab) if extents is not None else None
        return None if extents is None or offsets is None else self.keep(self.a.tile_load(memory, offsets, extents))

    # ---- operands

    def tile(self, t: Type, shape: tuple[int, ...], depth: int = 0) -> Atom:
        """A tile of these elements and this shape."""
        a, r = self.a, self.r
        known = self.known(tile_of(t, shape))
        turn = r.randrange(10 if known else 5)
        if turn >= 5:
            return r.choice(known)
        sources = [memory for memory in self.inputs if memory.type is t and memory.rank >= len(shape)]
        if turn < 2 and sources and (made := self.load_from(r.choice(sources), None, shape)) is not None:
            return made
        if turn == 2 and t is not bool_:
            counted = a.tile(TILE_OPS["iota"], (), (r.randrange(len(shape)), *shape))
            return self.keep(counted if t is u32 else a.let(OPS["cast"], (counted,), t))
        if turn == 3 and depth < _NESTED:
            axes = r.sample(range(len(shape)), len(shape))
            source = [0] * len(shape)
            for k, axis in enumerate(axes):
                source[axis] = shape[k]
            return self.keep(a.tile(TILE_OPS["transpose"], (self.tile(t, tuple(source), depth + 1),), axes))
        if turn == 4 and depth < _NESTED:
            return self.keep(a.tile(TILE_OPS["reshape"], (self.tile(t, self.other_shape(shape), depth + 1),), shape))
        return self.keep(a.tile(TILE_OPS["fill"], (self.scalar(t),), shape))

    def other_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As many elements."""
        whole = prod(shape)
        first = self.r.choice([k for k in range(1, whole + 1) if whole % k == 0])
        return self.r.choice(((whole,), (first, whole // first), (whole // first, 1, first)))

    def beside(self, t: Type, shape: tuple[int, ...]) -> Atom:
        """What goes with tiles of a shape: one of it, one with extents of 1, or a scalar."""
        turn = self.r.randrange(6)
        if turn == 0:
            return self.scalar(t)
        return self.tile(t, shape if turn > 2 else tuple([n if self.chance(2) else 1 for n in shape]))

    # ---- statements

    def op(self, over_tiles: bool = True) -> None:
        """A lanewise op."""
        row = self.r.choice(_CONVERSIONS if self.chance(6) else _SHORT if not self.chance(4) else _ROWS)
        types = [t for t in self.types if t in row.of] if Operand.T in row.operands else self.types
        if not types:
            return
        t, shape = self.r.choice(types), self.shape()
        given = self.target(row, t)
        if (given is None) is (row.result is Result.GIVEN):
            return
        args = tuple([self.beside(wanted, shape) if over_tiles else self.scalar(wanted) for wanted in [pattern.fixed or t for pattern in row.operands]])
        if row.result_type(tuple([arg.type for arg in args]), given) is not None:
            self.keep(self.a.let(row, args, given))

    def target(self, row: Op, t: Type) -> Type | None:
        """What a conversion of this type may give."""
        targets = [g for g in self.types if row.result_type((t,), g) is not None] if row.result is Result.GIVEN else []
        return self.r.choice(targets) if targets else None

    def scalar_op(self) -> None:
        self.op(over_tiles=False)

    def fold(self) -> None:
        """A reduction or a scan."""
        row = self.r.choice(_FOLDS)
        types = [t for t in self.types if t in row.of]
        if types:
            shape = self.shape()
            self.keep(self.a.tile(row, (self.tile(self.r.choice(types), shape),), (self.r.randrange(len(shape)),)))

    def item(self) -> None:
        """A scalar out of a tile."""
        held = self.tiles()
        x = self.r.choice(held) if held else self.tile(u32, self.shape())
        folds = [row for row in _FOLDS if row.name.startswith("reduce_") and x.type.scalar in row.of]
        for axis in range(len(x.type.shape) if folds else 0):
            x = self.a.tile(self.r.choice(folds), (x,), (axis,))
        if prod(x.type.shape) == 1:
            self.keep(self.a.tile(TILE_OPS["item"], (x,)))

    def factors(self) -> tuple[Type, Type, Type] | None:
        """The types of two factors, and of their sums."""
        found = [(a, b, to) for (a, b), sums in MMA_TYPES.items() for to in sums if {a, b, to} <= set(self.types)]
        return self.r.choice(sorted(found, key=str)) if found else None

    def product(self, types: tuple[Type, Type, Type], m: int, n: int) -> Atom:
        """A product. Where a tensor core may sum floats in its own way, results are not the same everywhere: those are left out if not asked for."""
        left, right, to = types
        k = self.shape(1)[0]
        row: TileOp = TILE_OPS[self.r.choice(("mma", "mma_tensor")) if self.tensor_floats or to.is_integer else "mma"]
        return self.a.tile(row, (self.tile(left, (m, k)), self.tile(right, (k, n)), self.tile(to, (m, n))))

    def mma(self) -> None:
        """A product by itself."""
        if (types := self.factors()) is not None:
            self.keep(self.product(types, self.shape(1)[0], self.shape(1)[0]))

    def become(self) -> None:
        """A variable is set to a product, perhaps some statements behind that; what it held before is known, and may be stored in between."""
        if (types := self.factors()) is None:
            return
        t = tile_of(types[-1], (self.shape(1)[0], self.shape(1)[0]))
        known = [v for scope in self.scopes for v in scope.variables if v.type.is_tile and v.type.scalar is t.scalar and len(v.type.shape) == len(t.shape)]
        variable = self.r.choice(known) if known else self.a.var(t, self.tile(t.scalar, t.shape))
        if not known:
            self.scopes[-1].variables.append(variable)
        before, (m, n) = self.keep(self.a.get(variable)), variable.type.shape
        made = self.product(types, m, n)
        for _ in range(self.r.randrange(3)):
            self.r.choice((lambda: self.store(value=before), self.store, self.op, self.fold, self.get))()
        self.a.set(variable, made)

    def other_tile(self) -> None:
        """A tile that is filled, counted, turned or read."""
        self.tile(self.r.choice(self.types), self.shape())

    def load(self) -> None:
        readable = [slab for slab in self.slabs if slab.memory.access.reads]
        if readable and self.chance(2):
            slab = self.r.choice(readable)
            self.load_from(slab.memory, slab)
        else:
            self.load_from(self.r.choice(self.inputs), None)

    def load_one(self) -> None:
        memory = self.r.choice(self.inputs)
        self.keep(self.a.load(memory, tuple([self.offset() for _ in memory.shape])))

    def store(self, slab: _Slab | None = None, value: Atom | None = None) -> None:
        fitting = [one for one in self.slabs if value is None or one.memory.type is value.type.scalar]
        slab = slab or self.r.choice(fitting)
        memory, held = slab.memory, [x for x in self.tiles() if x.type.scalar is slab.memory.type]
        value = value or (self.r.choice(held) if held and not self.chance(4) else None)
        extents = self.extents_over(memory, value.type.shape if value is not None else None)
        if extents is None:
            return
        if value is None:
            extents[slab.axis] = min(extents[slab.axis], slab.width)
        offsets = self.place(memory, extents, slab)
        if offsets is not None:
            shape = tuple([n for n in extents if n])
            self.a.tile_store(memory, offsets, extents, value if value is not None else self.tile(memory.type, shape))

    def store_one(self) -> None:
        slab = self.r.choice(self.slabs)
        offsets = self.place(slab.memory, [0] * slab.memory.rank, slab)
        if offsets is not None:
            self.a.store(slab.memory, offsets, self.scalar(slab.memory.type))

    def atomic(self) -> None:
        memory = self.r.choice(self.sums)
        extents = self.extents_over(memory)
        assert extents is not None  # a shape is drawn that fits
        offsets = self.place(memory, extents, None)
        assert offsets is not None  # there is no slab to leave
        self.a.tile_atomic_add(memory, offsets, extents, self.tile(memory.type, tuple([n for n in extents if n])))

    def var(self) -> None:
        t = self.r.choice(self.types)
        first = self.scalar(t) if self.chance(3) else self.tile(t, self.shape())
        self.scopes[-1].variables.append(self.a.var(first.type, first))

    def variable(self) -> Variable | None:
        known = [v for scope in self.scopes for v in scope.variables]
        return self.r.choice(known) if known else None

    def get(self) -> None:
        if (variable := self.variable()) is not None:
            self.keep(self.a.get(variable))

    def set(self) -> None:
        if (variable := self.variable()) is not None:
            t = variable.type
            self.a.set(variable, self.tile(t.scalar, t.shape) if t.is_tile else self.scalar(t))

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append(_Scope())
        yield
        self.scopes.pop()
        self.a.end()

    def if_(self) -> None:
        t = self.r.choice([t for t in self.types if t in OPS["lt"].of])
        self.a.if_(self.a.let(OPS[self.r.choice(("lt", "ne", "ge"))], (self.scalar(t), self.scalar(t))))
        with self.scope():
            self.statements(self.r.randint(1, 4))
            if self.chance(3):
                self.scopes[-1] = _Scope()
                self.a.else_()
                self.statements(self.r.randint(1, 3))
            elif self.loops and self.chance(4):
                self.r.choice((self.a.break_, self.a.continue_))()

    def for_(self) -> None:
        """A few turns, over constants or along a dim, at times with a pipelining depth."""
        t = self.r.choice((u32, i32))
        first = const(t, self.r.randint(0, 2) if t is u32 else self.r.randint(-9, 2))
        stop: Atom = self.r.choice(self.dims) if t is u32 and self.chance(2) else const(t, self.r.randint(0, 9))
        value = self.a.for_(first, stop, const(t, self.r.randint(4, 9)), pipeline=self.r.choice((0, 0, 1, 2, 3)))
        self.loops += 1
        with self.scope():
            self.keep(value)
            self.statements(self.r.randint(1, 5))
        self.loops -= 1

    def statements(self, count: int) -> None:
        often = (self.op,) * 4 + (self.fold,) * 2 + (self.store,) * 4 + (self.load,) * 2 + (self.become,)
        seldom = (self.mma, self.item, self.scalar_op, self.other_tile, self.load_one, self.store_one, self.atomic, self.var, self.get, self.set, self.set)
        for _ in range(count):
            if self.budget <= 0:
                return
            self.budget -= 1
            nested = len(self.scopes) <= _DEPTH and self.chance(6)
            (self.r.choice((self.if_, self.for_)) if nested else self.r.choice(often + seldom))()

    def finish(self) -> Program:
        while self.budget > 0:
            self.statements(4)
        for variable in self.scopes[0].variables:
            self.keep(self.a.get(variable))
        for slab in self.slabs:
            self.store(slab)
        return self.a.finish()


def generate_tiles(r: random.Random, *, types: Sequence[Type] = ALL_SCALARS, tensor_floats: bool = False, wide_atomics: bool = True, most: int = 40) -> Program:
    """One Program of tiles over u32, i32, bool and some of `types`. `tensor_floats` allows `mma_tensor` of floats, whose sums are not the same everywhere;
    `wide_atomics` allows i64 and u64 ones. `most` bounds how long it is."""
    return _Generator(r, types, tensor_floats, wide_atomics, most).finish()


def arguments_for(program: Program, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, int]]:
    """Sizes, params and arrays for a Program of those, and the sizes alone."""
    sizes = {dim.name: int(rng.choice((0, 1, 5, 13, 16, 23, 31))) for dim in program.dims}
    given: dict[str, Any] = dict(sizes)
    for memory in program.buffers:
        given[memory.name] = random_array(rng, memory.type, tuple([evaluate_dim(dim, sizes) for dim in memory.shape]))
    for param in program.params:
        given[param.name] = random_array(rng, param.type, (1,))[0]
    return given, sizes
