"""Random Programs of tiles that are products of the shapes of tensor cores, in loops and out of them, and what goes on between them: factors that are loaded,
turned, kept or computed; sums that are read, clipped, folded, scaled, set under conditions, stored in the middle, and added to by other products.

Of whole numbers so small that no sum is rounded, whatever the order: so all devices, and products of any kind, must agree to the bit. A workgroup has a tile
of each result for itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.program import Program

__all__ = ["arguments_for", "generate_products"]

_FACTORS = (vp.bf16, vp.f16, vp.f32, vp.f32, vp.i8, vp.u8, vp.f8e4m3, vp.f64)
_ROWS, _COLUMNS = (16, 32, 48, 64, 64, 128), (8, 16, 24, 32, 64, 64, 128)
_STEP_BYTES = (32, 32, 64, 128)  # of a row of a factor
_MOST = 2  # of an element of a factor, one way or the other
_RESULTS = 3
_DEPTH = 2  # of blocks in a loop


class _Generator:
    def __init__(self, r: random.Random) -> None:
        self.r, self.type = r, r.choice(_FACTORS)
        self.sums = vp.i32 if not self.type.is_float else vp.f64 if self.type is vp.f64 else vp.f32
        self.rows, self.columns, self.step = r.choice(_ROWS), r.choice(_COLUMNS), r.choice(_STEP_BYTES) // self.type.size_bytes
        self.strict = r.random() < (0.6 if self.type is vp.f32 else 0.1)

    def chance(self, of: float) -> bool:
        return self.r.random() < of

    def program(self) -> Program:
        r, t, shape = self.r, self.type, (self.rows, self.columns)
        with vp.TileBuilder("products") as b:
            self.b = b
            m, n, k = b.dim("m"), b.dim("n"), b.dim("k")
            self.x, self.y, self.xt, self.yt = b.read("x", t, m, k), b.read("y", t, k, n), b.read("xt", t, k, m), b.read("yt", t, n, k)
            self.results = [b.write(f"z{number}", self.sums, m, n) for number in range(_RESULTS)]
            b.grid(vp.ceil_div(n, self.columns), vp.ceil_div(m, self.rows))
            self.i, self.j = b.let("i", b.workgroup_id(1) * self.rows), b.let("j", b.workgroup_id(0) * self.columns)
            self.variables = [b.var(f"v{number}", self.sums, r.choice((0, 1)), shape=shape) for number in range(2)]
            self.kept = [self.loaded_once(left) for left in (True, False) if self.chance(0.4)]
            before: list[Any] = []
            if self.chance(0.4):
                self.statements(r.randint(1, 2), b.let("first", b.num_workgroups(0) * 0), before, _DEPTH)
            for name in ("p", "q")[: 1 + self.chance(0.4)]:
                with b.for_(0, k, self.step, name=name, pipeline=r.choice((0, 0, 0, 2, 3))) as p:
                    self.statements(r.randint(2, 7), p, list(before), 0)
            for result, variable in zip(self.results, self.variables, strict=False):
                result[self.i, self.j] = variable
        return b.program

    # ---- factors and what is added to

    def loaded_once(self, left: bool) -> tuple[bool, Any]:
        tile = self.x.tile(self.i, 0, shape=(self.rows, self.step)) if left else self.y.tile(0, self.j, shape=(self.step, self.columns))
        return left, self.b.let("left" if left else "right", tile)

    def factor(self, left: bool, p: Any, held: Sequence[Any]) -> Any:
        shape = (self.rows, self.step) if left else (self.step, self.columns)
        turn, kept = self.r.randrange(7), [tile for is_left, tile in self.kept if is_left is left]
        if turn == 0:
            return (self.xt.tile(p, self.i, shape=shape[::-1]) if left else self.yt.tile(self.j, p, shape=shape[::-1])).T
        if turn == 1 and kept:
            return kept[0]
        if turn > 4 and held and shape == (self.rows, self.columns):
            return vp.cast(self.clipped(self.r.choice(held)), self.type)
        plain = self.x.tile(self.i, p, shape=shape) if left else self.y.tile(p, self.j, shape=shape)
        return plain.transpose(0, 1) if turn == 2 else plain

    def clipped(self, tile: Any) -> Any:
        return vp.min(vp.max(tile, -_MOST if self.type.is_signed else 0), _MOST)

    def product(self, p: Any, held: Sequence[Any], onto: Any) -> Any:
        return vp.mma(self.factor(True, p, held), self.factor(False, p, held), onto, tensor=not self.strict and self.chance(0.9))

    def addend(self, held: Sequence[Any]) -> Any:
        turn, shape = self.r.randrange(6), (self.rows, self.columns)
        if turn < 2:
            return self.b.fill(0, shape, self.sums)
        return self.b.let("onto", self.r.choice(self.variables)) if turn < 5 or not held else self.clipped(self.r.choice(held))

    # ---- statements, which leave values in `held`

    def statements(self, count: int, p: Any, held: list[Any], depth: int) -> None:
        makers = (self.multiply, self.multiply, self.accumulate, self.set, self.set, self.get, self.fold, self.scale, self.store, self.if_, self.for_)
        for _ in range(count):
            self.r.choice(makers)(p, held, depth)

    def multiply(self, p: Any, held: list[Any], depth: int) -> None:
        held.append(self.b.let("made", self.product(p, held, self.addend(held))))

    def accumulate(self, p: Any, held: list[Any], depth: int) -> None:
        variable = self.r.choice(self.variables)
        variable.set(self.product(p, held, variable))

    def set(self, p: Any, held: list[Any], depth: int) -> None:
        if held:
            value = self.r.choice(held)
            self.r.choice(self.variables).set(self.clipped(value) if self.chance(0.5) else value)

    def get(self, p: Any, held: list[Any], depth: int) -> None:
        held.append(self.b.let("read", self.r.choice(self.variables)))

    def fold(self, p: Any, held: list[Any], depth: int) -> None:
        if held:
            tile = self.clipped(self.r.choice(held))
            held.append(self.b.let("folded", self.clipped(tile - tile.reduce("max", self.r.randrange(2)))))

    def scale(self, p: Any, held: list[Any], depth: int) -> None:
        """What a variable holds by a factor for each row, of which a product goes on at times."""
        variable = self.r.choice(self.variables)
        tile = self.clipped(self.r.choice(held)) if held else self.clipped(variable)
        scaled = self.clipped(variable) * self.b.let("by", tile.reduce("max", 1))
        if self.chance(0.5):
            variable.set(self.product(p, held, scaled))
        else:
            held.append(scaled)

    def store(self, p: Any, held: list[Any], depth: int) -> None:
        self.r.choice(self.results)[self.i, self.j] = self.r.choice(held) if held and self.chance(0.6) else self.r.choice(self.variables) + 0

    def if_(self, p: Any, held: list[Any], depth: int) -> None:
        if depth < _DEPTH:
            with self.b.if_(p < self.r.choice((self.step, self.step + 3))):
                self.statements(self.r.randint(1, 3), p, list(held), depth + 1)

    def for_(self, p: Any, held: list[Any], depth: int) -> None:
        if depth < 1:
            with self.b.for_(0, self.r.choice((1, 2)) * self.step, self.step, name="inner", pipeline=self.r.choice((0, 2))) as q:
                self.statements(self.r.randint(1, 3), q, list(held), depth + 1)


def generate_products(r: random.Random) -> Program:
    """One such Program, of two types of elements."""
    return _Generator(r).program()


def arguments_for(program: Program, r: random.Random, *, whole: bool) -> tuple[dict[str, Any], dict[str, int]]:
    """Arrays and sizes for a Program of those, and the sizes alone; `whole` ones are multiples of 16, as the forms for aligned arguments ask."""
    sizes = {"m": r.choice((16, 64, 80, 144)), "n": r.choice((16, 64, 80)), "k": r.choice((0, 16, 64, 128, 144))}
    if not whole:
        sizes = {name: size + r.choice((0, 1, 3)) for name, size in sizes.items()}
    rng, given = np.random.default_rng(r.randrange(1 << 32)), dict[str, Any](sizes)
    for memory in program.buffers:
        shape = tuple([evaluate_dim(dim, sizes) for dim in memory.shape])
        least = -1 if memory.type.is_signed or memory.type.is_float else 0
        given[memory.name] = rng.integers(least, _MOST, shape).astype(np.float32).astype(memory.type.dtype)
    return given, sizes
