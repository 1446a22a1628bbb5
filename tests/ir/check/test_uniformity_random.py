"""Uniformity: random Programs, against what single invocations and workgroups really do; and the work that long ones take."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from vyre_py.ir.check.phases import steady_loads
from vyre_py.ir.check.uniformity import Analysis, analyse
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import (
    Access,
    Atom,
    Barrier,
    Break,
    Const,
    Continue,
    Else,
    End,
    For,
    Get,
    If,
    Let,
    Load,
    Loop,
    Return,
    Set,
    Space,
    Statement,
    Store,
    UniformLoad,
    Value,
    Var,
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32

GRID, WORKGROUP = Level.GRID, Level.WORKGROUP

_TURNS = 4  # a loop that would go on is left after so many turns, by every invocation alike
_SIZE = 3


class _Random:
    """A random Program over u32 values, with every kind of control flow; with an array of the workgroup, and barriers, where that is asked for."""

    def __init__(self, seed: int, phases: bool = False) -> None:
        self.random = random.Random(seed)
        self.kinds = ["let", "load", "get", "set", "set", "if", "loop", "for", "escape", "uniform", "shared"]
        if phases:
            self.kinds += ["rest", "rest", "rest", "store", "store", "barrier", "barrier"]
        a = self.a = Assembler(f"random{seed}", (_SIZE, 1, 1))
        self.param = a.param("p", u32)
        self.given = a.memory("x", Space.BUFFER, u32, (DimConst(8),), Access.READ)
        self.shared = a.memory("s", Space.BUFFER, u32, (DimConst(8),), Access.READ_WRITE)
        self.array = a.memory("w", Space.WORKGROUP, u32, (DimConst(_SIZE),), Access.READ_WRITE) if phases else self.shared
        self.variables = [a.var(u32, const(u32, k)) for k in range(3)]
        self.scopes: list[list[Atom]] = [[self.param, const(u32, 1)]]
        for name in ("local_id.x", "workgroup_id.x"):
            self.scopes[0].append(a.let(OPS[name], ()))
        self.block(0, False)

    def atom(self) -> Atom:
        return self.random.choice([v for scope in self.scopes for v in scope])

    def condition(self) -> Atom:
        return self.a.let(OPS[self.random.choice(["lt", "eq"])], (self.atom(), self.atom()))

    def block(self, depth: int, in_loop: bool) -> None:
        self.scopes.append([])
        for _ in range(self.random.randrange(1, 6)):
            self.statement(depth, in_loop)
        self.scopes.pop()

    def statement(self, depth: int, in_loop: bool) -> None:
        a, r = self.a, self.random
        kind = r.choice(self.kinds)
        here = self.scopes[-1]
        if kind == "let":
            here.append(a.let(OPS[r.choice(["add", "xor", "min"])], (self.atom(), self.atom())))
        elif kind == "load":
            here.append(a.load(self.given, (self.atom(),)))
        elif kind == "shared" and r.random() < 0.3:
            here.append(a.load(self.shared, (self.atom(),)))
        elif kind == "uniform" and r.random() < 0.3:
            here.append(a.uniform_load(self.shared, (const(u32, 0),)))
        elif kind == "rest":
            here.append(a.load(self.array, (self.atom(),)))
        elif kind == "store":
            a.store(self.array, (self.atom(),), self.atom())
        elif kind == "barrier":
            a.barrier()
        elif kind == "get":
            here.append(a.get(r.choice(self.variables)))
        elif kind == "set":
            a.set(r.choice(self.variables), self.atom())
        elif kind == "escape":
            a.if_(self.condition())
            (r.choice([a.break_, a.continue_, a.continue_, a.return_]) if in_loop else a.return_)()
            a.end()
        elif depth < 3:
            self.nested(kind, depth, in_loop)

    def nested(self, kind: str, depth: int, in_loop: bool) -> None:
        a = self.a
        if kind == "loop":
            a.loop()
            if self.array is not self.shared:  # one that nothing leaves has no phase behind it, and here every loop is left
                a.if_(a.let(OPS["eq"], (self.param, const(u32, 1))))
                a.break_()
                a.end()
            self.block(depth + 1, True)
            a.end()
        elif kind == "for":
            k = a.for_(self.atom(), self.atom(), const(u32, 1))
            self.scopes.append([k])
            self.block(depth + 1, True)
            self.scopes.pop()
            a.end()
        elif kind == "if":
            a.if_(self.condition())
            self.block(depth + 1, in_loop)
            if self.random.random() < 0.5:
                a.else_()
                self.block(depth + 1, in_loop)
            a.end()


_WAITS = (Barrier, UniformLoad)
_Key = tuple[int, tuple[int, ...]]  # a statement, and the turn of each loop around it
_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: (a + b) % 7,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "lt": lambda a, b: int(a < b),
    "eq": lambda a, b: int(a == b),
}


class _Invocation:
    """What one invocation does: the value bound, if any, at every statement that it reaches. `array` is what its workgroup shares."""

    def __init__(self, program: Program, group: int, lane: int, array: list[int]) -> None:
        self.program, self.group, self.lane, self.array = program, group, lane, array
        self.values: dict[int, int] = {}
        self.variables: dict[int, int] = {}
        self.loops: list[list[int]] = []  # opener, turn, turns
        self.trace: dict[_Key, int | None] = {}
        self.at = 0

    def phases(self) -> Iterator[_Key]:
        """Goes on to the next barrier, which it gives, or to the end."""
        while self.at < len(self.program.body):
            statement = self.program.body[self.at]
            self.step(statement)
            if isinstance(statement, _WAITS):
                yield self.key

    def atom(self, atom: Atom) -> int:
        if isinstance(atom, Value):
            return self.values[atom.id]
        return atom.bits if isinstance(atom, Const) else 2  # 2: the param

    def bind(self, statement: Statement, value: int) -> None:
        assert statement.result is not None
        self.values[statement.result.id] = self.trace[self.key] = value

    def source(self, statement: Statement, args: list[int]) -> int:
        """What a statement that binds a value without touching control gives."""
        if isinstance(statement, Let):
            place = {"local_id.x": self.lane, "workgroup_id.x": self.group}.get(statement.op.name)
            return _OPS[statement.op.name](*args) if place is None else place
        if isinstance(statement, UniformLoad):
            return hash((self.key, self.group)) % 4
        if isinstance(statement, Get):
            return self.variables[statement.variable.id]
        assert isinstance(statement, Load)
        if statement.memory.space is Space.WORKGROUP:
            return self.array[args[0]] if args[0] < _SIZE else 0
        return hash((self.key, self.lane, self.group)) % 4 if statement.memory.access.writes else args[0] * 3 % 5

    def step(self, s: Statement) -> None:
        self.key = (self.at, tuple(turn for _, turn, _ in self.loops))
        self.trace[self.key] = None
        match, args = self.program.match, [self.atom(a) for a in s.args]
        here, self.at = self.at, self.at + 1
        if isinstance(s, (Var, Set)):
            self.variables[s.variable.id] = args[0]
        elif isinstance(s, Store):
            if args[0] < _SIZE:
                self.array[args[0]] = args[1]
        elif isinstance(s, If):
            self.at = here + 1 if args[0] else match[here] + 1
        elif isinstance(s, Else):
            self.at = match[here] + 1
        elif isinstance(s, (For, Loop)):
            turns = min(_TURNS, max(0, args[1] - args[0])) if isinstance(s, For) else _TURNS
            self.loops.append([here, -1, turns])
            self.turn(args[0] if args else 0)
        elif isinstance(s, Return):
            self.at = len(self.program.body)
        elif isinstance(s, Break):
            self.at = match[self.loops.pop()[0]] + 1
        elif isinstance(s, Continue) or (
            isinstance(s, End) and isinstance(self.program.body[match[here]], (For, Loop))
        ):
            opener = self.program.body[self.loops[-1][0]]
            self.turn(self.values[opener.result.id] + 1 if opener.result is not None else 0)
        elif s.result is not None:
            self.bind(s, self.source(s, args))

    def turn(self, value: int) -> None:
        """The next turn of the innermost loop, or the way out of it."""
        loop = self.loops[-1]
        loop[1] += 1
        if loop[1] >= loop[2]:
            self.loops.pop()
            self.at = self.program.match[loop[0]] + 1
            return
        self.at = loop[0] + 1
        opener = self.program.body[loop[0]]
        if opener.result is not None:
            self.values[opener.result.id] = value


def _traces(program: Program, group: int, r: random.Random) -> list[dict[_Key, int | None]]:
    """What the invocations of a workgroup do: each runs to its next barrier, in an order that is drawn for each phase, and all come to the same one."""
    array = [group + k for k in range(_SIZE)]
    invocations = [_Invocation(program, group, lane, array) for lane in range(_SIZE)]
    running = [one.phases() for one in invocations]
    if not any(s.memory.space is Space.WORKGROUP for s in program.body if isinstance(s, Load)):  # what waits may be reached by some alone
        for one in running:
            list(one)
    while True:
        reached = {lane: next(running[lane], None) for lane in r.sample(range(_SIZE), _SIZE)}
        assert len(set(reached.values())) == 1, reached
        if reached[0] is None:
            return [one.trace for one in invocations]


def _agreements(program: Program, seed: int) -> int:
    """How often control was uniform, once it is seen that invocations which meet at one statement in one turn agree on values as far as the level says, and
    that control that is uniform is reached by all or by none."""
    uniform, levels, r = 0, analyse(program), random.Random(seed)
    groups = [_traces(program, group, r) for group in range(2)]
    together = {GRID: [[t for group in groups for t in group]], WORKGROUP: groups}
    for index, statement in enumerate(program.body):
        for traces in together.get(levels.control[index], []) if not isinstance(statement, (Else, End)) else []:
            reached = [{key for key in t if key[0] == index} for t in traces]
            assert all(keys == reached[0] for keys in reached), (seed, index)
            uniform += 1
        if statement.result is None or isinstance(statement, For):
            continue
        for traces in together.get(levels.values[statement.result.id], []):
            bound: dict[_Key, int | None] = {}
            for trace in traces:
                for key, value in trace.items():
                    assert key[0] != index or bound.setdefault(key, value) == value, (seed, index)
    return uniform


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_programs_do_what_the_analysis_says(first: int) -> None:
    uniform = sum(_agreements(_Random(seed).a.finish(), seed) for seed in range(first, first + 100))
    assert uniform > 1000  # the Programs are not all varying


def test_random_phases_do_what_the_analysis_says() -> None:
    """Programs whose barriers the analysis accepts: no invocation passes one alone, and loads from an array at rest give all the same."""
    seen = 0
    for seed in range(6000):
        program = _Random(seed, phases=True).a.finish()
        waits = [index for index, s in enumerate(program.body) if isinstance(s, _WAITS)]
        if not steady_loads(program) or not any(isinstance(s, Store) for s in program.body):
            continue
        control = analyse(program).control
        if all(control[index] <= WORKGROUP for index in waits):
            _agreements(program, seed)
            seen += 1
    assert seen > 100


# ---------------------------------------------------------------- linear


def _reverse_chain(size: int) -> Program:
    """Each turn moves a difference one variable along, against program order."""
    a = Assembler("chain")
    lane = a.let(OPS["local_id.x"], ())
    variables = [a.var(u32, const(u32, 0)) for _ in range(size // 3)]
    a.loop()
    for target, source in pairwise(variables):
        a.set(target, a.get(source))
    a.set(variables[-1], lane)
    a.break_()
    a.end()
    return a.finish()


def _escapes(size: int) -> Program:
    """Deeply nested loops with escapes at every level, over and over."""
    a = Assembler("escapes")
    condition = a.let(OPS["lt"], (a.let(OPS["local_id.x"], ()), const(u32, 3)))
    while len(a.body) < size:
        for _ in range(100):
            a.loop()
            a.if_(condition)
        a.return_()
        for escape in (a.continue_, a.break_) * 50:
            a.end()
            escape()
            a.end()
    return a.finish()


def _long_block(size: int) -> Program:
    a = Assembler("block")
    value = a.let(OPS["workgroup_id.x"], ())
    condition = a.let(OPS["lt"], (value, const(u32, 3)))
    while len(a.body) < size:
        value = a.let(OPS["add"], (value, value))
        a.if_(condition)
        a.return_()
        a.end()
        a.barrier()
    return a.finish()


@pytest.mark.parametrize("make", [_reverse_chain, _escapes, _long_block])
def test_work_is_linear(make: Callable[[int], Program]) -> None:
    work = [Analysis(make(size)).visits / size for size in (1000, 2000, 4000)]
    assert max(work) < 8
    assert max(work) < 1.25 * min(work)


def test_levels_travel_against_program_order() -> None:
    levels = analyse(_reverse_chain(300))
    assert set(levels.variables) == {Level.VARYING}
