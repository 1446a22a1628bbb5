"""Random valid Programs over all types and ops, by construction free of races, of atomic order and of endless loops.

How: an invocation writes only its own element of a written buffer and reads back only that; shared memory is written at the own
place, then a barrier, then read anywhere, then a barrier; an atomic memory sees one commuting operation, and of what it holds meanwhile only that a
workgroup agrees on it is looked at; loops count. So every device must agree to the bit with the interpreter.

A `Source` answers "which of n?"; Hypothesis and a seeded generator both make one, so what one finds the other can replay.

Kinds of several statements that a random draw would seldom put together are in `shapes`.

One module because the kinds of statement share the scopes, and each is a few lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from elements import INTERESTING, random_array
from shapes import OF_THE_GRID, SHAPES

from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst, Grid, dim_op, evaluate_dim
from vyre_py.ir.language.nodes import Access, Atom, Const, Memory, Param, Space, Value, Variable, const
from vyre_py.ir.language.op import AtomicOp, Level, Op, Operand, Result, Scope
from vyre_py.ir.language.ops import ATOMICS, ATOMICS_BY_SPELLING, OPS, SUBGROUPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, Type, bool_, f32, i32, i64, u32, u64, unsigned_of

__all__ = ["ALL_TYPES", "WHOLE_TYPES", "Case", "Seeded", "Source", "generate"]

_X = TypeVar("_X")


class Source(Protocol):
    """Where choices come from."""

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""


class Seeded:
    """Choices from a seed."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)

    def below(self, n: int) -> int:
        return self.random.randrange(n)


@dataclass
class Case:
    """A Program and arguments for it."""

    program: Program
    arguments: dict[str, Any]
    sizes: dict[str, int]
    uses_floats: bool


ALL_TYPES = tuple(TYPES.values())
WHOLE_TYPES = tuple(t for t in ALL_TYPES if not t.is_float)  # what is exact on every device

# Results are compared to the bit, so nothing is approximated.
_OPS = [row for row in OPS.values() if not row.is_query and not row.approximates]
_TOGETHER = list(SUBGROUPS.values())
_QUERIES = [row for row in OPS.values() if row.is_query and not row.name.startswith("subgroup_")]
_ATOMIC_GROUPS = (("add", "sub"), ("min",), ("max",), ("and",), ("or",), ("xor",))
_FLOAT_GROUPS = (("min",), ("max",))  # the order of float additions is unspecified
_AXES = ("x", "y", "z")
# Grids of one axis count `n`; the others' axes are odd, so that the last workgroup of each is seldom full.
_EXTENTS = ((1, 3, 5, 7, 13), (1, 3, 5, 7), (1, 3))
_WORKGROUPS = ((32, 1, 1), (64, 1, 1), (8, 4, 1), (5, 3, 2), (48, 1, 1), (1, 1, 1), (16, 2, 2))
# Beside u32, i32 and bool, which every Program uses, one more type for so many statements of its budget.
_STATEMENTS_A_TYPE = 32
# How many turns loops take at most, one in the other, each of so many.
_TURNS_TOGETHER, _TURNS = 1000, 9


@dataclass
class _Scope:
    values: dict[Type, list[Atom]] = field(default_factory=dict)
    uniform: dict[Type, list[Atom]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


class _Generator:
    def __init__(
        self, source: Source, types: Sequence[Type], wide_atomics: bool, budget: int, tells: bool, subgroups: str, scans: bool,
    ) -> None:
        self.source = source
        self.allowed = frozenset(types)
        self.wide_atomics = wide_atomics
        self.tells = tells
        self.scans = scans
        self.budget = budget
        workgroup = self.pick(_WORKGROUPS)
        self.invocations = workgroup[0] * workgroup[1] * workgroup[2]
        self.subgroups = subgroups
        # A power of two that divides the workgroup.
        size = 1 << self.source.below((self.invocations & -self.invocations).bit_length()) if subgroups else 0
        self.a = Assembler("generated", workgroup, size)
        self.scopes: list[_Scope] = [_Scope()]
        self.wide_scopes = 1  # of the scopes, from the outermost: those that the whole grid comes to together, once
        self.types = self.choose_types(types)
        self.wide = [t for t in (i64, u64) if t in self.types]
        self.rows = [row for row in _OPS if self.over(row)]
        self.loops: list[str] = []
        self.turns_together = 1  # of the loops that are open, at most
        self.may_return = self.source.below(12 if subgroups or scans else 3) == 0
        self.barriers = not self.may_return and self.source.below(4) != 0

    # ---- choices

    def pick(self, items: Sequence[_X]) -> _X:
        return items[self.source.below(len(items))]

    def chance(self, one_in: int) -> bool:
        return self.source.below(one_in) == one_in - 1

    def choose_types(self, types: Sequence[Type]) -> list[Type]:
        """u32, i32 and bool; f32 in most Programs that may have floats; and some more, with the components of vectors."""
        chosen = [u32, i32, bool_]
        if f32 in self.allowed and not self.chance(4):
            chosen.append(f32)
        for _ in range(1 + self.budget // _STATEMENTS_A_TYPE):
            t = self.pick(types)
            chosen += [t, t.scalar]
        return list(dict.fromkeys(chosen))

    def over(self, row: Op) -> list[Type]:
        """The types of this Program that a row's operands marked T may have; for conversions, all."""
        if Operand.T not in row.operands:
            return self.types
        return [t for t in self.types if t.scalar in row.of and t.lanes in row.lanes]

    def constant(self, t: Type) -> Const:
        if t.is_integer and self.chance(3):
            return Const(t, self.source.below(1 << min(t.bits, 16)))
        return const(t, self.pick(INTERESTING[t]))

    def fresh(self, t: Type) -> Atom:
        """A constant; of a vector, its components put together."""
        if not t.is_vector:
            return self.constant(t)
        parts = [self.constant(t.scalar) for _ in range(t.lanes)]
        return self.a.let(OPS[f"vec{t.lanes}"], tuple(parts))

    def operand(self, t: Type) -> Atom:
        if self.chance(5):
            return self.fresh(t)
        known = [v for scope in self.scopes for v in scope.values.get(t, ())]
        if not known:
            return self.fresh(t)
        # Recent values first, so that long chains appear.
        return known[-1 - self.source.below(min(len(known), 12))]

    def uniform_operand(self, t: Type) -> Atom:
        known = [v for scope in self.scopes for v in scope.uniform.get(t, ())]
        return self.fresh(t) if not known or self.chance(4) else self.pick(known)

    def keep(self, atom: Atom, uniform: bool = False) -> Atom:
        self.scopes[-1].values.setdefault(atom.type, []).append(atom)
        if uniform:
            self.scopes[-1].uniform.setdefault(atom.type, []).append(atom)
        return atom

    def index(self) -> Atom:
        t = self.pick((i32, u32))
        if self.wide and self.chance(3):
            t = self.pick(self.wide)
        value = self.operand(t)
        if self.chance(2):  # mostly inside, sometimes past either end
            masked = self.a.let(OPS["and"], (value, const(t, self.pick((7, 15, 63)))))
            if t in self.wide and self.chance(3):  # inside by its low word alone
                masked = self.a.let(OPS["add"], (masked, const(t, self.pick((1 << 32, 1 << 48, t.minimum or 1 << 63)))))
            return self.a.let(OPS["sub"], (masked, const(t, self.pick((0, 1, 3)))))
        return value

    def own_place(self, memory: Memory) -> tuple[Atom, ...]:
        """The own element of an output: by its place in the grid, or by an index of any type that has 32 bits or more."""
        if memory.rank > 1:
            return tuple([self.a.let(OPS[f"global_id.{axis}"], ()) for axis in reversed(_AXES[: memory.rank])])
        if self.wide and self.chance(4):
            return (self.a.let(OPS["cast"], (self.own,), self.pick(self.wide)),)
        return (self.own,)

    # ---- declarations

    def declare(self) -> None:
        a = self.a
        self.n: Dim = a.dim("n")
        self.m: Dim = a.dim("m")
        self.keep(self.n, True)
        self.params: list[Param] = [a.param(f"p_{t.name}", t) for t in self.types]
        for param in self.params:
            self.keep(param, True)
        self.inputs = [a.memory(f"in_{t.name}", Space.BUFFER, t, (self.n,), Access.READ) for t in self.types]
        self.inputs.append(a.memory("in_2d", Space.BUFFER, u32, (self.m, dim_op("add", self.n, DimConst(1))), Access.READ))
        self.outputs = [a.memory(f"out_{t.name}", Space.BUFFER, t, (self.n,), Access.READ_WRITE) for t in self.types]
        self.atomics: dict[Memory, Sequence[str]] = {}
        for t in (i32, u32, *([t for t in self.types if t in (i64, u64, f32)] if self.wide_atomics else ())):
            memory = a.memory(f"acc_{t.name}_{len(self.atomics)}", Space.BUFFER, t, (DimConst(8),), Access.READ_WRITE)
            self.atomics[memory] = self.pick(_FLOAT_GROUPS if t is f32 else _ATOMIC_GROUPS)
        size = (DimConst(self.invocations),)
        self.tiles = [a.memory(f"tile_{t.name}", Space.WORKGROUP, t, size, Access.READ_WRITE) for t in self.types] if self.barriers else []
        if self.barriers:
            self.counts = a.memory("counts", Space.WORKGROUP, self.pick([m.type for m in self.atomics]), (DimConst(8),), Access.READ_WRITE)
            self.counted = self.pick(_FLOAT_GROUPS if self.counts.type is f32 else _ATOMIC_GROUPS)
        self.privates = [a.memory(f"private_{t.name}", Space.PRIVATE, t, (DimConst(6),), Access.READ_WRITE) for t in self.types if self.chance(2)]
        self.tables = [self.table(t) for t in (u32, self.pick(self.types))]
        self.axes = [a.dim(axis) for axis in ("width", "height", "depth")[: self.pick((0, 0, 2, 3))]]
        extents = [*(self.axes or [self.n]), DimConst(1), DimConst(1)]
        a.grid = Grid(True, (extents[0], extents[1], extents[2]))
        if len(self.axes) == 3 or (self.axes and a.workgroup[2] == 1):  # every invocation has a place of its own there
            self.outputs.append(a.memory("out_grid", Space.BUFFER, u32, tuple(reversed(self.axes)), Access.READ_WRITE))

    def table(self, t: Type) -> Memory:
        rng = np.random.default_rng(self.source.below(1 << 16))
        return self.a.memory(f"table_{len(self.a.memories)}", Space.TABLE, t, (DimConst(5),), Access.READ, random_array(rng, t, (5,)).tobytes())

    def finish_prologue(self) -> None:
        a = self.a
        for row in (self.pick(_QUERIES) for _ in range(3)):
            level = row.level
            self.keep(a.let(row, ()), level is not None and level <= Level.WORKGROUP)
        # The own element: the place in the whole grid, workgroup by workgroup, x fastest. Places past n write nothing.
        group: Atom = const(u32, 0)
        for axis in reversed(_AXES[: max(1, len(self.axes))]):
            turned = a.let(OPS["mul"], (group, self.keep(a.let(OPS[f"num_workgroups.{axis}"], ()), True)))
            group = a.let(OPS["add"], (turned, self.keep(a.let(OPS[f"workgroup_id.{axis}"], ()), True)))
        self.group = self.keep(group, True)
        local = self.local = a.let(OPS["local_index"], ())
        if not self.axes and a.workgroup[0] == self.invocations and self.chance(2):
            self.own: Atom = self.keep(a.let(OPS["global_id.x"], ()))
        else:
            first = a.let(OPS["mul"], (group, Const(u32, self.invocations)))
            self.own = self.keep(a.let(OPS["add"], (first, local)))
        for t in self.types:
            self.keep(a.load(next(m for m in self.inputs if m.type is t), (self.own,)))
        self.mixed = a.var(u32, self.own)

    # ---- statements

    def op(self) -> None:
        row = self.pick(self.rows)
        t = self.pick(self.over(row))
        uniform = self.chance(6)
        draw = self.uniform_operand if uniform else self.operand
        given = None
        if row.result is Result.GIVEN:
            targets = [g for g in self.allowed_targets(row, t) if g in self.allowed]
            if not targets:
                return
            given = self.pick(targets)
        args = tuple([self.argument(draw, pattern, t, given) for pattern in row.operands])
        self.keep(self.a.let(row, args, given), uniform)

    @staticmethod
    def allowed_targets(row: Op, t: Type) -> list[Type]:
        operands = (t,) if len(row.operands) == 1 else (t, u32)
        return [g for g in ALL_TYPES if row.result_type(operands, g) is not None]

    def argument(self, draw: Any, pattern: Operand, t: Type, given: Type | None) -> Atom:
        if pattern is Operand.LANES:
            assert given is not None  # a swizzle's result is written out
            return const(u32, sum(self.source.below(t.lanes) << 2 * k for k in range(given.lanes)))
        if pattern is Operand.COMPONENT:
            return draw(t.scalar)  # type: ignore[no-any-return]  # one of two methods of this class
        if (one := pattern.fixed) is not None:
            each = TYPES[f"{one.name}x{t.lanes}"] if t.is_vector and self.chance(2) else one
            return draw(each)  # type: ignore[no-any-return]  # one of two methods of this class
        return draw(t)  # type: ignore[no-any-return]  # as above

    def load(self) -> None:
        memory = self.pick([*self.inputs, *self.privates, *self.tables])
        self.keep(self.a.load(memory, tuple(self.index() for _ in memory.shape)))

    def own_load(self) -> None:
        memory = self.pick(self.outputs)
        self.seen(self.a.load(memory, self.own_place(memory)))

    def store(self) -> None:
        memory = self.pick(self.outputs)
        self.store_own(memory, self.operand(memory.type))

    def store_own(self, memory: Memory, value: Atom) -> None:
        self.a.store(memory, self.own_place(memory), value)

    def private_store(self) -> None:
        if self.privates:
            memory = self.pick(self.privates)
            self.a.store(memory, (self.index(),), self.operand(memory.type))

    def atomic(self) -> None:
        memory = self.pick(list(self.atomics))
        op = self.pick(self.atomics[memory])
        self.a.atomic(self.atomic_row(op), memory, (self.index(),), (self.operand(memory.type),))

    def atomic_row(self, op: str) -> AtomicOp:
        """An atomic: relaxed or, where targets have them, in one of its other orders. How long the body is says which, so that it costs no choice."""
        rows = [row for row in ATOMICS_BY_SPELLING.values() if row.name == op]
        return rows[len(self.a.body) // 2 % len(rows)] if self.wide_atomics and len(self.a.body) % 2 else ATOMICS[op]

    def tell(self) -> None:
        """An assert or a print of some values."""
        values = tuple([self.operand(self.pick(self.types)) for _ in range(self.source.below(4))])
        message = f"{len(self.a.body)}:{' {}' * len(values)}"  # no other statement has it
        if self.chance(2):
            self.a.print_(message, values)
        else:
            self.a.assert_(self.operand(bool_), message, values)

    def fence(self) -> None:
        self.a.fence(self.pick(tuple(Scope)))

    def var(self) -> None:
        # Constants and other uniform values make variables that vary only by who comes to set them.
        t = self.pick(self.types)
        self.scopes[-1].variables.append(self.a.var(t, (self.operand, self.uniform_operand)[self.source.below(2)](t)))

    def variables(self) -> list[Variable]:
        return [v for scope in self.scopes for v in scope.variables]

    def set(self) -> None:
        if known := self.variables():
            variable = self.pick(known)
            self.a.set(variable, (self.operand, self.uniform_operand)[self.source.below(2)](variable.type))

    def get(self) -> None:
        if known := self.variables():
            self.keep(self.a.get(self.pick(known)))

    def block(self, uniform: bool, wide: bool = False) -> None:
        """Some statements; the whole grid comes to them together where it does here, and `wide` says that nothing has parted it since."""
        wide = wide and self.is_wide()
        self.scopes.append(_Scope())
        self.wide_scopes += wide
        self.statements(1 + self.source.below(8), uniform)
        self.stir()
        self.wide_scopes -= wide
        self.scopes.pop()

    def is_wide(self) -> bool:
        """Whether the whole grid comes here together, and once."""
        return not self.may_return and len(self.scopes) == self.wide_scopes

    def stir(self) -> None:
        """At the end of a block, works its variables and a value into the mixture, so that who came here, and how often, shows."""
        for variable in self.scopes[-1].variables[-3:]:
            self.mix(self.a.get(variable))
        self.mix(self.operand(self.pick(self.types)))

    def mix(self, value: Atom) -> None:
        """Works a value into the one variable that is stored at the end."""
        turned = self.a.let(OPS["rotl"], (self.a.get(self.mixed), const(u32, 5)))
        self.a.set(self.mixed, self.a.let(OPS["add"], (turned, self.word(value))))

    def word(self, value: Atom) -> Atom:
        """Some u32 that depends on every bit of a value, but for a NaN's."""
        a, t = self.a, value.type
        if t.is_vector:
            total: Atom = const(u32, 0)
            for k in range(t.lanes):
                part = self.word(a.let(OPS["swizzle"], (value, const(u32, k)), t.scalar))
                total = a.let(OPS["xor"], (a.let(OPS["rotl"], (total, const(u32, 11))), part))
            return total
        if t.is_float:
            value = a.let(OPS["bitcast"], (value,), unsigned_of(t))
        if value.type.bits == 64:
            high = a.let(OPS["shr"], (value, const(value.type, 32)))
            value = a.let(OPS["xor"], (value, high))
        return value if value.type is u32 else a.let(OPS["cast"], (value,), u32)

    def seen(self, value: Atom) -> None:
        """Keeps what came from memory that is written, and mixes one in two."""
        self.keep(value)
        if self.chance(2):
            self.mix(value)

    def if_(self, uniform: bool) -> None:
        stays = uniform and self.chance(2)
        self.a.if_(self.uniform_operand(bool_) if stays else self.operand(bool_))
        self.block(stays)
        if self.chance(2):
            self.a.else_()
            self.block(stays)
        self.a.end()

    def has_turns(self, turns: int) -> bool:
        """Whether a loop of so many turns may be opened here."""
        return self.turns_together * turns <= _TURNS_TOGETHER

    def for_(self, uniform: bool) -> None:
        if not self.has_turns(_TURNS):
            return
        t = self.pick((i32, u32))
        step = self.pick((1, 1, 2, 3) if t is u32 else (1, 2, -1, -3))
        stays = uniform and self.chance(2)
        turns = self.a.let(OPS["and"], ((self.uniform_operand if stays else self.operand)(t), const(t, 7)))
        span = self.a.let(OPS["mul"], (turns, const(t, step)))
        if self.chance(3):  # near the type's ends, where a naive counter wraps
            start: Atom = const(t, t.maximum - _TURNS if step > 0 else t.minimum + _TURNS)
            stop: Atom = const(t, t.maximum if step > 0 else t.minimum)
        else:
            start = Const(t, self.source.below(100))
            stop = self.a.let(OPS["add"], (start, span))
            if t is i32 and self.chance(4):
                start, stop = stop, start
        by: Atom = const(t, step)
        if step > 0 and self.chance(4):  # computed, and at least as long, so that there are no more turns
            by = self.a.let(OPS["max"], (by, self.a.let(OPS["and"], ((self.uniform_operand if stays else self.operand)(t), const(t, 7)))))
        counter = self.a.for_(start, stop, by)
        self.turn(counter, stays)

    def loop(self, uniform: bool) -> None:
        if not self.has_turns(_TURNS):
            return
        count = self.a.var(u32, const(u32, 0))
        stays = uniform and self.chance(2)
        self.a.loop()
        now = self.a.let(OPS["add"], (self.a.get(count), const(u32, 1)))
        self.a.set(count, now)
        self.a.if_(self.a.let(OPS["gt"], (now, const(u32, 1 + self.source.below(_TURNS)))))
        self.a.break_()
        self.a.end()
        self.turn(now, stays)

    def turn(self, counter: Value, uniform: bool) -> None:
        """The body of a loop, and its end."""
        with self.turns(counter, uniform, _TURNS):
            self.statements(1 + self.source.below(8), uniform)

    @contextmanager
    def turns(self, counter: Value, uniform: bool, most: int) -> Iterator[None]:
        """Around what is done in each of at `most` so many turns of a loop, whose end is written here."""
        self.turns_together *= most
        self.loops.append("uniform" if uniform else "varying")
        self.scopes.append(_Scope())
        self.keep(counter, uniform)
        yield
        self.stir()
        self.scopes.pop()
        self.loops.pop()
        self.turns_together //= most
        self.a.end()

    def escape(self, uniform: bool) -> None:
        """A break, continue or return under a varying condition; never inside a loop that must stay uniform."""
        if self.loops and "uniform" not in self.loops:
            self.a.if_(self.operand(bool_))
            (self.a.break_, self.a.continue_)[self.source.below(2)]()
            self.a.end()
        elif self.may_return and self.chance(4):
            self.a.if_(self.operand(bool_))
            self.a.return_()
            self.a.end()

    def exchange(self, uniform: bool) -> None:
        """Through shared memory: write the own place, barrier, read anywhere, barrier."""
        if not (uniform and self.barriers):
            return
        tile = self.pick(self.tiles)
        self.a.store(tile, (self.local,), self.operand(tile.type))
        self.a.barrier()
        for _ in range(1 + self.source.below(2)):
            self.seen(self.a.load(tile, (self.index(),)))
        if self.chance(2):
            self.keep(self.a.uniform_load(tile, (Const(u32, self.source.below(self.invocations + 2)),)), True)
        else:
            self.a.barrier()

    def tally(self, uniform: bool) -> None:
        """Workgroup atomics of one commuting op between barriers, then looked at."""
        if not (uniform and self.barriers):
            return
        op = self.pick(self.counted)
        where = self.a.let(OPS["and"], (self.operand(u32), const(u32, 7)))
        self.a.atomic(self.atomic_row(op), self.counts, (where,), (self.operand(self.counts.type),))
        self.a.barrier()
        self.seen(self.a.load(self.counts, (self.index(),)))
        self.a.barrier()

    def together(self) -> None:
        """What a subgroup does together; its lanes are all here. Shuffles mostly take a lane that there is."""
        row = self.pick(_TOGETHER)
        types = [t for t in self.types if t.scalar in row.of and (row.vectors or not t.is_vector)]
        if not types:
            return
        args: list[Atom] = [self.operand(self.pick(types))]
        if row.index is Level.SUBGROUP:
            args.append(self.uniform_operand(u32))
        elif row.index is not None:
            size = 2 * self.a.subgroup if self.chance(4) else self.a.subgroup
            args.append(self.a.let(OPS["and"], (self.operand(u32), const(u32, size - 1))) if not self.chance(8) else self.operand(u32))
        self.seen(self.a.together(row, tuple(args)))

    def agreed(self) -> Atom:
        """A bool that is the same for a subgroup, and mostly not for its workgroup."""
        a = self.a
        if self.chance(3):
            return a.let(OPS["eq"], (a.let(OPS["and"], (a.let(OPS["subgroup_id"], ()), const(u32, 1))), const(u32, self.source.below(2))))
        return a.together(SUBGROUPS[self.pick(("any", "all"))], (self.operand(bool_),))

    def apart(self) -> None:
        """A branch that subgroups take each for itself, or a loop of which each takes turns of its own; what they do there they do together."""
        a = self.a
        if self.chance(2):
            turns = a.let(OPS["and"], (a.together(SUBGROUPS["reduce_or"], (self.operand(u32),)), const(u32, 3)))
            a.for_(const(u32, 0), turns, const(u32, 1))
        else:
            a.if_(self.agreed())
        self.scopes.append(_Scope())
        for _ in range(1 + self.source.below(3)):
            (self.together, self.together, self.op, self.set)[self.source.below(4)]()
        self.stir()
        self.scopes.pop()
        a.end()

    def region(self, uniform: bool) -> None:
        self.a.region("named")
        self.block(uniform, wide=True)
        self.a.end()

    def shape(self, uniform: bool) -> None:
        self.pick(SHAPES)(self, uniform)

    def statements(self, count: int, uniform: bool) -> None:
        often = (self.op, self.op, self.op, self.op, self.store, self.store, self.set, self.set)
        plain = (*often, self.load, self.own_load, self.private_store, self.atomic, self.var, self.get, *[self.tell] * (3 * self.tells))
        plain += (self.fence,) * self.scans
        nested = (self.if_, self.if_, self.for_, self.loop, self.escape, self.exchange, self.exchange, self.tally, self.region, *[self.shape] * 4)
        for _ in range(count):
            if self.budget <= 0:
                return
            before = len(self.a.body)
            if self.subgroups and uniform and not self.may_return and self.chance(2):
                (self.together, self.together, self.apart if self.subgroups == "apart" else self.together)[self.source.below(3)]()
            elif self.scans and self.is_wide() and self.chance(4):
                self.pick(OF_THE_GRID)(self)
            elif self.chance(4) and len(self.scopes) < 6:
                self.pick(nested)(uniform)
            else:
                self.pick(plain)()
            self.budget -= len(self.a.body) - before

    def arguments(self) -> tuple[dict[str, Any], dict[str, int]]:
        sizes = {"n": self.pick((0, 1, 5, 31, 64, 77, 100, 200)), "m": self.pick((1, 2, 3))}
        sizes |= {dim.name: self.pick(extents) for dim, extents in zip(self.axes, _EXTENTS, strict=False)}
        rng = np.random.default_rng(self.source.below(1 << 16))
        given: dict[str, Any] = dict(sizes)
        for memory in (*self.inputs, *self.outputs, *self.atomics):
            given[memory.name] = random_array(rng, memory.type, tuple([evaluate_dim(dim, sizes) for dim in memory.shape]))
        for param in self.params:
            given[param.name] = random_array(rng, param.type, (1,))[0]
        return given, sizes


def generate(
    source: Source, *, types: Sequence[Type] = ALL_TYPES, wide_atomics: bool = True, budget: int = 126, tells: bool = False, subgroups: str = "",
    scans: bool = False,
) -> Case:
    """One Program of about `budget` statements over some of `types`, with arguments; `wide_atomics` allows i64, u64 and f32 ones, and orders,
    `tells` asserts and prints, `scans` scans over the grid and fences. It has subgroups where it is said whether they come to what they do with their whole
    workgroup, "together", or also "apart"."""
    g = _Generator(source, types, wide_atomics, budget, tells, subgroups, scans)
    g.declare()
    g.finish_prologue()
    while g.budget > 0:
        g.statements(4, True)
    for variable in g.scopes[0].variables:
        g.mix(g.a.get(variable))
    for memory in g.outputs:
        place = (g.own,) if memory.rank == 1 else g.own_place(memory)
        g.a.store(memory, place, g.a.get(g.mixed) if memory.type is u32 else g.operand(memory.type))
    given, sizes = g.arguments()
    return Case(g.a.finish(), given, sizes, any(t.is_float for t in g.types))
