"""Random Programs of index arithmetic, guarded and unguarded accesses, loops and jumps: what the bounds pass thinks about.

Those that are asked to be wide compute with 64-bit integers too, index with them, and take sizes whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst, DimExpr, DimOp, Grid, evaluate_dim
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Param, Space, Value, Variable, const
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, i32, i64, u8, u32, u64
from vyre_py.ir.language.widths import whole_size

__all__ = ["EDGES", "SIZES", "U32_MAX", "WIDE_SIZES", "bindable", "random_arguments", "random_program", "random_updates"]

U32_MAX = (1 << 32) - 1
SIZE_MAX = (1 << 48) - 1
_PAST_WORDS = (1 << 32, (1 << 32) + 1, (1 << 32) + 8, (1 << 33) - 1, 1 << 33, SIZE_MAX, SIZE_MAX - 1)
EDGES = {
    u32: (0, 1, 2, 3, 4, 7, 8, 31, 63, 64, 255, 256, 65535, 1 << 31, (1 << 31) - 1, U32_MAX, U32_MAX - 1),
    i32: (0, 1, -1, 2, -2, 3, 7, 8, 31, 63, 255, 256, -(1 << 31), (1 << 31) - 1),
    u64: (0, 1, 2, 3, 7, 8, 63, 64, 255, 256, U32_MAX, *_PAST_WORDS, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 2, (1 << 64) - (1 << 32) + 2),
    i64: (0, 1, -1, 2, -2, 3, 7, 8, 63, 255, 256, U32_MAX, *_PAST_WORDS, -(1 << 31), -(1 << 32), 3 - (1 << 32), -(1 << 63), (1 << 63) - 1),
}
SIZES = (0, 1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 65535, 65536, (1 << 31) - 1, 1 << 31, U32_MAX - 1, U32_MAX)
WIDE_SIZES = (*SIZES, *_PAST_WORDS)
ARITHMETIC = ("add", "add", "sub", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "mul_hi")
UNARY = ("neg", "abs", "sign", "not", "popcount", "clz", "ctz", "reverse_bits")
COMPARISONS = ("lt", "lt", "lt", "le", "gt", "ge", "ge", "eq", "ne")


@dataclass
class Author:
    """Writes a random Program whose values are mostly indices."""

    random: random.Random
    loops_end: bool
    wide: bool = False
    a: Assembler = field(init=False)
    values: list[Atom] = field(init=False)
    bools: list[Atom] = field(init=False)
    memories: list[Memory] = field(init=False)
    variables: list[Variable] = field(init=False)
    loops: list[bool] = field(default_factory=list)  # the open loops: whether each counts its turns

    def __post_init__(self) -> None:
        r = self.random
        a = self.a = Assembler("random", r.choice(((64, 1, 1), (256, 1, 1), (8, 8, 1), (4, 2, 2), (1, 1, 1))))
        n, m = a.dim("n"), a.dim("m")
        one, two = DimConst(1), DimConst(2)
        extents: list[DimExpr] = [
            n,
            n,
            n,
            m,
            DimOp("add", n, one),
            DimOp("sub", n, one),
            DimOp("mul", n, m),
            DimOp("ceil_div", n, DimConst(4)),
        ]
        extents += [
            DimOp("min", n, m),
            DimOp("max", n, m),
            DimOp("mul", n, two),
            DimOp("add", DimOp("mul", n, DimConst(4)), DimConst(3)),
        ]
        params: list[Atom] = [a.param("p", u32), a.param("q", i32)]
        params += [a.param("r", u64), a.param("s", i64)] if self.wide else []
        shapes: list[tuple[DimExpr, ...]] = [(r.choice(extents),), (n, m), (n,), (DimConst(256),)]
        self.memories = [
            a.memory(f"b{k}", Space.BUFFER, u32, shape, Access.READ_WRITE) for k, shape in enumerate(shapes)
        ]
        self.memories.append(a.memory("tile", Space.WORKGROUP, i32, (DimConst(64),), Access.READ_WRITE))
        self.memories.append(a.memory("tile2", Space.PRIVATE, u32, (DimConst(8), DimConst(10)), Access.READ_WRITE))
        self.memories.append(a.memory("bytes", Space.BUFFER, u8, (n,), Access.READ))
        self.memories.append(
            a.memory("table", Space.TABLE, u32, (DimConst(4),), Access.READ, np.array([3, 1, 7, 2], "<u4").tobytes())
        )
        a.grid = Grid(False, (DimConst(1), one, one))
        self.variables = []
        self.bools = []
        used = {self.memories[0].shape[0], n, m}
        self.values = [*params, *used]
        for query in ("global_id.x", "global_id.y", "local_id.x", "workgroup_id.x", "local_index"):
            self.values.append(a.let(OPS[query], ()))

    def type_(self, *narrow: Type) -> Type:
        """One of these types, or in half the cases of a wide Program one of 64 bits."""
        if self.wide and self.random.random() < 0.5:
            return self.random.choice((u64, u64, i64))
        return narrow[0] if len(narrow) == 1 else self.random.choice(narrow)

    def other(self, type_: Type) -> Type:
        """Another type that values are cast from."""
        if not self.wide:
            return u32 if type_ is i32 else i32
        return self.random.choice([t for t in (u32, u32, i32, u64, i64) if t is not type_])

    def pick(self, type_: Type) -> Atom:
        fitting = [v for v in self.values if v.type is type_]
        kind = self.random.random()
        if kind < 0.2 and type_ is u32:
            return self.random.choice(self.random.choice(self.memories).shape)
        if kind < 0.15 and type_ in (u64, i64):
            return self.a.let(OPS["cast"], (self.random.choice(self.random.choice(self.memories).shape),), type_)
        if kind < 0.25:
            return self.a.let(OPS["cast"], (self.pick(self.other(type_)),), type_)
        if not fitting or kind < 0.45:
            return const(type_, self.random.choice(EDGES[type_]))
        return self.random.choice(fitting[-8:] if self.random.random() < 0.6 else fitting)

    def small(self, type_: Type) -> Atom:
        return const(type_, self.random.choice((0, 1, 1, 2, 3, 4, 7, 8, 16, 63, 255)))

    def integer(self) -> None:
        r = self.random
        t = self.type_(u32, u32, u32, i32)
        kind = r.random()
        if kind < 0.55:
            second = self.small(t) if r.random() < 0.5 else self.pick(t)
            args = (self.pick(t), second)
            self.values.append(self.a.let(OPS[r.choice(ARITHMETIC)], args if r.random() < 0.9 else args[::-1]))
        elif kind < 0.62:
            self.values.append(self.a.let(OPS[r.choice(UNARY if t.is_signed else UNARY[2:])], (self.pick(t),)))
        elif kind < 0.67:
            self.values.append(self.a.let(OPS["abs_diff"], (self.pick(t), self.pick(t))))
        elif kind < 0.75:
            self.values.append(self.a.let(OPS["clamp"], (self.pick(t), self.pick(t), self.pick(t))))
        elif kind < 0.83 and self.bools:
            self.values.append(self.a.let(OPS["select"], (r.choice(self.bools), self.pick(t), self.pick(t))))
        elif kind < 0.93:
            source, target = r.choice(((u32, i32), (i32, u32), *(((u64, i64), (i64, u64)) * self.wide)))
            self.values.append(self.a.let(OPS[r.choice(("cast", "bitcast"))], (self.pick(source),), target))
        elif kind < 0.96:
            byte = self.a.let(OPS["cast"], (self.pick(t),), u8)
            self.values.append(self.a.let(OPS["cast"], (byte,), t))
        else:
            self.values.append(self.a.let(OPS["cast"], (self.condition(),), t))

    def condition(self) -> Atom:
        r = self.random
        kind = r.random()
        if kind < 0.6 or not self.bools:
            t = self.type_(u32, u32, i32)
            made = self.a.let(OPS[r.choice(COMPARISONS)], (self.pick(t), self.pick(t)))
        elif kind < 0.85:
            made = self.a.let(OPS[r.choice(("logical_and", "logical_or"))], (self.condition(), r.choice(self.bools)))
        else:
            made = self.a.let(OPS["logical_not"], (r.choice(self.bools),))
        self.bools.append(made)
        return made

    def access(self) -> None:
        memory = self.random.choice(self.memories)
        indices = tuple(self.pick(self.type_(u32, u32, u32, i32)) for _ in memory.shape)
        if memory.access is Access.READ or self.random.random() < 0.6:
            loaded = self.a.load(memory, indices)
            if memory.type is u8:
                loaded = self.a.let(OPS["cast"], (loaded,), u32)
            self.values.append(loaded)
            self.sink(self.pick(u32), loaded)
        else:
            self.a.store(memory, indices, self.pick(memory.type))

    def guarded(self) -> None:
        """An access near an index that a condition has just bounded."""
        r = self.random
        memory = r.choice([m for m in self.memories if m.rank == 1])
        t = self.type_(u32)
        extent = memory.shape[0] if t is u32 else self.a.let(OPS["cast"], (memory.shape[0],), t)
        at = self.pick(t)
        if r.random() < 0.3:
            at = self.a.let(OPS[r.choice(("rem", "rem", "min", "max", "div"))], (at, extent))
        near = at if r.random() < 0.4 else self.a.let(OPS[r.choice(("add", "sub"))], (at, self.small(t)))
        test = (at, extent) if r.random() < 0.7 else (near, self.pick(t))
        self.a.if_(self.a.let(OPS[r.choice(("lt", "lt", "le", "ne"))], test))
        place = (
            self.a.let(OPS[r.choice(("add", "sub", "min", "div"))], (near, self.small(t)))
            if r.random() < 0.4
            else near
        )
        if r.random() < 0.3:
            place = self.a.let(OPS["sub"], (extent, place))
        loaded = self.a.load(memory, (place,))
        self.sink(at, loaded)
        self.a.end()

    def sink(self, at: Atom, value: Atom) -> None:
        """A use that keeps a value alive."""
        self.a.store(self.memories[2], (at,), value if value.type is u32 else self.a.let(OPS["cast"], (value,), u32))

    def block(self, budget: int) -> None:
        kept = len(self.values), len(self.bools), len(self.variables)
        self.statements(budget)
        del self.values[kept[0] :], self.bools[kept[1] :], self.variables[kept[2] :]

    def control(self, budget: int) -> None:
        r = self.random
        kind = r.random()
        if kind < 0.55:
            self.a.if_(self.condition())
            self.block(budget)
            self.jump()
            if r.random() < 0.3:
                self.a.else_()
                self.block(budget)
                self.jump()
            self.a.end()
        elif kind < 0.85:
            t = r.choice((u32, u32, i32))
            step = r.choice((1, 1, 1, 2, 3, 8) if t is u32 else (1, 1, 2, -1, -3))
            kept = len(self.values)
            start, stop = self.pick(t), self.pick(t)
            if self.loops_end:
                start, stop = (const(t, r.randrange(6)) for _ in range(2))
            self.values.append(self.a.for_(start, stop, const(t, step)))
            self.loops.append(True)
            self.block(budget)
            self.loops.pop()
            del self.values[kept:]
            self.a.end()
        else:
            self.a.loop()
            self.loops.append(False)
            self.block(budget)
            self.loops.pop()
            self.a.break_()
            self.a.end()

    def jump(self) -> None:
        kind = self.random.random()
        if kind < 0.2:
            self.a.return_()
        elif kind < 0.35 and self.loops:
            (self.a.continue_ if kind > 0.28 and (self.loops[-1] or not self.loops_end) else self.a.break_)()

    def statements(self, budget: int) -> None:
        for _ in range(budget):
            kind = self.random.random()
            if kind < 0.45:
                self.integer()
            elif kind < 0.65:
                self.access()
            elif kind < 0.75:
                self.guarded()
            elif kind < 0.8:
                t = self.type_(u32, i32)
                self.variables.append(self.a.var(t, self.pick(t)))
            elif kind < 0.9 and self.variables:
                variable = self.random.choice(self.variables)
                if kind < 0.85:
                    self.a.set(variable, self.pick(variable.type))
                else:
                    self.values.append(self.a.get(variable))
            elif budget > 2:
                self.control(budget // 2)
            else:
                self.condition()


def random_program(seed: int, budget: int = 14, *, loops_end: bool = False, wide: bool = False) -> Program:
    """A Program of about `budget` statements; with `loops_end`, no loop takes more than a few turns; `wide` with 64-bit integers."""
    author = Author(random.Random(seed), loops_end, wide)
    author.statements(budget)
    return author.a.finish()


@dataclass
class Updates:
    """Writes a Program of loads and stores at few indices, most of them unguarded, between variables, loops and branches: what the
    guards pass may move, and must not."""

    random: random.Random
    a: Assembler = field(init=False)
    values: list[Atom] = field(init=False)
    variables: list[Variable] = field(init=False)
    loops: int = 0

    def __post_init__(self) -> None:
        a = self.a = Assembler("updates", (64, 1, 1))
        n = a.dim("n")
        self.memories = [a.memory(name, Space.BUFFER, u32, (n,), Access.READ_WRITE) for name in "yz"]
        self.memories.append(a.memory("w", Space.BUFFER, u32, (DimConst(64),), Access.READ_WRITE))
        a.grid = Grid(False, (DimConst(2), DimConst(1), DimConst(1)))
        i = a.let(OPS["global_id.x"], ())
        self.places = [i, i, i, i, a.let(OPS["local_id.x"], ()), a.let(OPS["add"], (i, const(u32, 3)))]
        self.values = [i]
        self.variables = []

    def pick(self) -> Atom:
        return self.random.choice(self.values[-3:])

    def statement(self, depth: int) -> None:
        r, a = self.random, self.a
        kind = r.random()
        if kind < 0.25:
            self.values.append(a.load(r.choice(self.memories), (r.choice(self.places),)))
        elif kind < 0.5:
            a.store(r.choice(self.memories), (r.choice(self.places),), self.pick())
        elif kind < 0.6:
            self.values.append(a.let(OPS["add"], (self.pick(), self.pick())))
        elif kind < 0.66:
            self.variables.append(a.var(u32, self.pick()))
        elif kind < 0.84 and self.variables:
            variable = r.choice(self.variables)
            if r.random() < 0.5:
                a.set(variable, self.pick())
            else:
                self.values.append(a.get(variable))
        elif kind < 0.97 and depth < 3:
            self.block(depth)
        elif depth == 0:
            a.barrier()

    def block(self, depth: int) -> None:
        r, a = self.random, self.a
        loop = r.random() < 0.6
        if loop:
            turn = a.for_(const(u32, 0), const(u32, r.randrange(1, 4)), const(u32, 1))
            self.places.append(turn)
        else:
            a.if_(a.let(OPS["lt"], (a.let(OPS["and"], (self.pick(), const(u32, 3))), const(u32, 2))))
        self.loops += loop
        kept = len(self.values), len(self.variables)
        for _ in range(r.randrange(1, 7)):
            self.statement(depth + 1)
        del self.values[kept[0] :], self.variables[kept[1] :]
        self.loops -= loop
        if loop:
            self.places.pop()
        elif self.loops and r.random() < 0.4:
            (a.continue_ if r.random() < 0.5 else a.break_)()
        elif r.random() < 0.1:
            a.return_()
        a.end()


def random_updates(seed: int, budget: int = 16) -> Program:
    """A Program of about `budget` statements that updates memory."""
    updates = Updates(random.Random(seed))
    for _ in range(budget):
        updates.statement(0)
    return updates.a.finish()


def bindable(program: Program, sizes: dict[str, int]) -> bool:
    """Whether binding would accept these sizes."""
    asked = [(sizes[d.name], d in program.widths.dims) for d in program.dims]
    for memory in program.buffers:
        shape = [evaluate_dim(e, sizes) for e in memory.shape]
        asked += [(size, memory in program.widths.buffers) for size in (*shape, int(np.prod(shape, dtype=object)))]
    for s in program.body:
        asked += [(evaluate_dim(a, sizes), whole_size(s) is not None) for a in s.args if not isinstance(a, (Value, Const, Param))]
    return all(0 <= size <= (SIZE_MAX if wide else U32_MAX) for size, wide in asked)


def random_arguments(program: Program, rng: random.Random) -> tuple[dict[str, Any], dict[str, int]]:
    """Small arrays and edge params for a run; elements are small numbers and edges, so that they make indices."""
    sizes = {d.name: rng.choice((0, 1, 2, 3, 5, 17, 64, 70)) for d in program.dims}
    while not bindable(program, sizes):
        sizes = {d.name: rng.choice((1, 2, 3, 5)) for d in program.dims}
    made: dict[str, Any] = {p.name: rng.choice(EDGES[p.type]) for p in program.params}
    for memory in program.buffers:
        shape = tuple(evaluate_dim(e, sizes) for e in memory.shape)
        values = [
            rng.choice(EDGES[u32]) if rng.random() < 0.3 else rng.randrange(80) for _ in range(int(np.prod(shape)))
        ]
        made[memory.name] = np.array(values, dtype=np.uint32).astype(memory.type.dtype).reshape(shape)
    return made, sizes
