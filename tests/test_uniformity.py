"""Uniformity: the cases that make it hard, by text, and random Programs against what single invocations really do."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from vyre_py.ir.assembler import Assembler
from vyre_py.ir.check import check
from vyre_py.ir.check.uniformity import Analysis, analyse
from vyre_py.ir.dims import Dim, DimConst
from vyre_py.ir.errors import ValidationError
from vyre_py.ir.nodes import (
    Access,
    Atom,
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
    UniformLoad,
    Value,
    Var,
    const,
)
from vyre_py.ir.ops import Level, op
from vyre_py.ir.program import Program
from vyre_py.ir.types import bool_, i32, u32

GRID, WORKGROUP, VARYING = Level.GRID, Level.WORKGROUP, Level.VARYING

HEAD = """program t(n) workgroup(64) over(n) {
  param p: u32
  buffer x: u32[n] read
  buffer y: u32[n] read_write
  workgroup tile: u32[64]
  private own: u32[4]
  table t: u32[4] = [1, 2, 3, 4]
  let i = global_id.x
  let l = local_id.x
  let w = workgroup_id.x
"""


def parse(body: str) -> Program:
    return Program.from_text(HEAD + body + "\n}\n", "case.vir")


# ---------------------------------------------------------------- which barriers are refused

# The barriers that are refused carry `// refused`; all others are accepted.
BARRIERS = {
    "at the top": "barrier",
    "under a uniform branch": "if w < p { barrier }",
    "under a varying branch": "if i < n { barrier } // refused",
    "in the else of a varying branch": """
        if i < n { } else {
          barrier // refused
        }""",
    "after a varying branch": "if i < n { y[i] = 1 }\nbarrier",
    "under a uniform branch in a varying one": """
        if l < 3 {
          if p < 3 {
            barrier // refused
          }
        }
        barrier""",
    "after a varying return": """
        if i >= n { return }
        barrier // refused""",
    "before a varying return": "barrier\nif i >= n { return }",
    "after a uniform return": "if w >= p { return }\nbarrier",
    "varying return inside a uniform branch": """
        if p < 3 {
          barrier
          if i >= n { return }
          barrier // refused
        }
        barrier // refused""",
    "varying return inside a region": """
        region "r" {
          barrier
          if l > 3 { return }
          barrier // refused
        }
        barrier // refused""",
    "both arms return": """
        if p < 3 {
          if l < 3 { return } else { return }
        }
        barrier // refused""",
    "uniform loop": "for k in 0..p { barrier }",
    "loop with a varying bound": """
        for k in 0..l {
          barrier // refused
        }
        barrier""",
    "loop with a varying start": """
        for k in l..9 {
          barrier // refused
        }""",
    "varying continue": """
        for k in 0..p {
          barrier
          if l < k { continue }
          barrier // refused
        }
        barrier""",
    "uniform continue": """
        for k in 0..p {
          if k < 3 { continue }
          barrier
        }""",
    "varying break, barrier before and behind it": """
        for k in 0..p {
          barrier // refused
          if l < k { break }
          barrier // refused
        }
        barrier""",
    "uniform break with barriers": """
        loop {
          barrier
          if x[0] > p { break }
          barrier
        }
        barrier""",
    "varying break of an inner loop": """
        for k in 0..p {
          loop {
            if l < k { break }
          }
          barrier
        }""",
    "varying break inside a nested uniform branch": """
        loop {
          barrier // refused
          if w < 2 {
            if l < 3 { break }
          }
        }""",
    "varying continue decides a break": """
        loop {
          barrier // refused
          if l < 3 { continue }
          break
        }""",
    "varying return in nested loops": """
        barrier
        for k in 0..p {
          barrier // refused
          for j in 0..k {
            barrier // refused
            if l < j { return }
          }
          barrier // refused
        }
        barrier // refused""",
    "varying return behind a break": """
        loop {
          barrier // refused
          loop {
            break
          }
          if y[0] == 0 { return }
          break
        }""",
    "return under a varying trip count": """
        for k in 0..l { return }
        barrier // refused""",
    "condition from a variable set under varying control": """
        var c: bool = false
        if l < 3 { c = true }
        if c {
          barrier // refused
        }""",
    "condition from a variable set to the same varying-free value": """
        var c: bool = false
        if w < 3 { c = true }
        if c { barrier }""",
    "both arms set different constants": """
        var c: u32 = 0
        if l < 3 { c = 1 } else { c = 2 }
        if c == 1 {
          barrier // refused
        }""",
    "variable copied around a loop in reverse order": """
        var a: u32 = 0
        var b: u32 = 0
        var c: u32 = 0
        for k in 0..p {
          if a == 1 {
            barrier // refused
          }
          a = b
          b = c
          c = l
        }""",
    "variable set in a loop with a varying exit": """
        var c: u32 = 0
        loop {
          c = c + 1
          if c > l { break }
        }
        if c > 3 {
          barrier // refused
        }""",
    "variable set after a varying continue": """
        var c: u32 = 0
        for k in 0..p {
          if l < k { continue }
          c = k
        }
        if c > 3 {
          barrier // refused
        }""",
    "variable set before a varying continue": """
        var c: u32 = 0
        for k in 0..p {
          c = k
          if l < k { continue }
        }
        if c > 3 { barrier }""",
    "variable set after a varying return": """
        var c: u32 = 0
        for k in 0..p {
          if c == 9 {
            barrier // refused
          }
          if l < k { return }
          c = 9
        }""",
    "condition read through uniform_load": "if uniform_load(tile[p]) > 3 { barrier }",
    "condition read from workgroup memory": """
        if tile[p] > 3 {
          barrier // refused
        }""",
    "condition from a read buffer at a uniform index": "if x[p + w] > 3 { barrier }",
    "condition from a read buffer at a varying index": """
        if x[i] > 3 {
          barrier // refused
        }""",
    "condition from a table": "if t[w] > 3 { barrier }",
    "condition from a private array": """
        if own[0] > 3 {
          barrier // refused
        }""",
    "condition from an atomic": """
        let old = atomic_add(tile[0], 1)
        if old == 0 {
          barrier // refused
        }""",
}


@pytest.mark.parametrize("name", BARRIERS)
def test_barriers(name: str) -> None:
    program = parse(BARRIERS[name])
    lines = (HEAD + BARRIERS[name]).splitlines()
    expected = [number for number, line in enumerate(lines, 1) if "// refused" in line]
    if not expected:
        check(program)
        return
    with pytest.raises(ValidationError) as caught:
        check(program)
    assert set(caught.value.codes) == {"V401"}
    assert [d.place and d.place.line for d in caught.value.diagnostics] == expected


def test_uniform_load_needs_uniform_control_and_indices() -> None:
    program = parse(
        "if l < 3 { let a = uniform_load(tile[0]) }\nlet b = uniform_load(tile[l])\nlet c = uniform_load(tile[w])"
    )
    with pytest.raises(ValidationError) as caught:
        check(program)
    assert caught.value.codes == ("V402", "V403")


# ---------------------------------------------------------------- why

WHY = {
    "if i < n { barrier }": "the branch at case.vir:11:1 depends on global_id.x",
    "for k in 0..l { barrier }": "the loop at case.vir:11:1 depends on local_id.x",
    "if l > 3 { return }\nbarrier": "the return at case.vir:11:12 takes some invocations away: the branch at case.vir:11:1 depends on local_id.x",
    "loop {\nif tile[0] > 3 { break }\nbarrier\n}": "the branch at case.vir:12:1 depends on a load from 'tile', which can be written",
    "let o = atomic_max(y[i], 1)\nlet u = o + 1\nif u > 3 { barrier }": "the branch at case.vir:13:1 depends on what atomic_max on 'y' gave",
    "var v: u32 = 0\nif l > 3 { v = 1 }\nif v > 0 { barrier }": "the branch at case.vir:13:1 depends on local_id.x",
    "let u = uniform_load(tile[l + 1])": "the index value 3 is not the same for a whole workgroup: it depends on local_id.x",
}


@pytest.mark.parametrize("body", WHY)
def test_message_says_why(body: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check(parse(body))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.endswith(WHY[body])


# ---------------------------------------------------------------- levels

LEVELS = {
    "let v = n + p": GRID,
    "let v = num_workgroups.x * workgroup_size.y": GRID,
    "let v = dim(n * n + 1) + 1": GRID,
    "let v = w + p": WORKGROUP,
    "let v = w + l": VARYING,
    "let v = local_index + 1": VARYING,
    "let v = x[p]": GRID,
    "let v = x[w]": WORKGROUP,
    "let v = x[l]": VARYING,
    "let v = t[p]": GRID,
    "let v = y[p]": VARYING,
    "let v = uniform_load(y[p])": WORKGROUP,
    "let v = uniform_load(x[p])": WORKGROUP,
    "for v in 0..p { }": GRID,
    "for v in 0..w { }": WORKGROUP,
    "for v in 0..l { }": VARYING,
    "for v in l..9 { }": VARYING,
    # Who reaches the statement agrees, so the condition is no part of the value's level ...
    "if l < 3 { let v = p + 1 }": GRID,
    "if l < 3 { for v in 0u32..9 { } }": GRID,
    # ... but it is of a variable's, which keeps its old value where the branch is not taken.
    "var v: u32 = 1": GRID,
    "var v: u32 = 1\nif w < 3 { v = 2 }": WORKGROUP,
    "var v: u32 = 1\nif l < 3 { v = 2 }": VARYING,
    "var v: u32 = 1\nfor k in 0..l { v = v + 1 }": VARYING,
    "var v: u32 = 1\nfor k in 0..w { v = v + 1 }": WORKGROUP,
    "var v: u32 = 1\nif i >= n { return }\nv = 2": VARYING,
    "var v: u32 = 1\nfor k in 0u32..9 { v = x[k] }": GRID,
}


@pytest.mark.parametrize("body", LEVELS)
def test_levels(body: str) -> None:
    program = parse(body)
    levels = check(program).uniformity
    named = {name: levels.values[number] for number, name in program.value_names.items()}
    named |= {name: levels.variables[number] for number, name in program.variable_names.items()}
    assert named["v"] == LEVELS[body]


def test_control_of_markers_and_operands() -> None:
    program = parse("if l < 3 {\n y[i] = 1\n} else {\n return\n}\ny[i] = 2")
    levels = analyse(program)
    kinds = [type(s).__name__ for s in program.body]
    assert levels.control[kinds.index("If")] == levels.control[kinds.index("Else")] == GRID
    assert levels.control[kinds.index("Store")] == levels.control[kinds.index("End")] == levels.control[-1] == VARYING
    assert [levels.atom(a) for a in (program.params[0], Dim("n"), DimConst(3), const(u32, 1))] == [GRID] * 4
    assert levels.atom(next(s.result for s in program.body if s.result is not None)) == VARYING


# ---------------------------------------------------------------- linear


def _reverse_chain(size: int) -> Program:
    """Each turn moves a difference one variable along, against program order."""
    a = Assembler("chain")
    lane = a.let(op("local_id.x"), ())
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
    condition = a.let(op("lt"), (a.let(op("local_id.x"), ()), const(u32, 3)))
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
    value = a.let(op("workgroup_id.x"), ())
    condition = a.let(op("lt"), (value, const(u32, 3)))
    while len(a.body) < size:
        value = a.let(op("add"), (value, value))
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
    assert set(levels.variables) == {VARYING}


# ---------------------------------------------------------------- against single invocations

_TURNS = 4  # a loop that would go on is left after so many turns, by every invocation alike
_SIZE = 3


class _Random:
    """A random Program over u32 values, with every kind of control flow."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        a = self.a = Assembler(f"random{seed}", (_SIZE, 1, 1))
        self.param = a.param("p", u32)
        self.given = a.memory("x", Space.BUFFER, u32, (DimConst(8),), Access.READ)
        self.shared = a.memory("s", Space.BUFFER, u32, (DimConst(8),), Access.READ_WRITE)
        self.variables = [a.var(u32, const(u32, k)) for k in range(3)]
        self.scopes: list[list[Atom]] = [[self.param, const(u32, 1)]]
        for name in ("local_id.x", "workgroup_id.x"):
            self.scopes[0].append(a.let(op(name), ()))
        self.block(0, False)

    def atom(self) -> Atom:
        return self.random.choice([v for scope in self.scopes for v in scope])

    def condition(self) -> Atom:
        return self.a.let(op(self.random.choice(["lt", "eq"])), (self.atom(), self.atom()))

    def block(self, depth: int, in_loop: bool) -> None:
        self.scopes.append([])
        for _ in range(self.random.randrange(1, 6)):
            self.statement(depth, in_loop)
        self.scopes.pop()

    def statement(self, depth: int, in_loop: bool) -> None:
        a, r = self.a, self.random
        kind = r.choice(["let", "load", "get", "set", "set", "if", "loop", "for", "escape", "uniform", "shared"])
        here = self.scopes[-1]
        if kind == "let":
            here.append(a.let(op(r.choice(["add", "xor", "min"])), (self.atom(), self.atom())))
        elif kind == "load":
            here.append(a.load(self.given, (self.atom(),)))
        elif kind == "shared" and r.random() < 0.3:
            here.append(a.load(self.shared, (self.atom(),)))
        elif kind == "uniform" and r.random() < 0.3:
            here.append(a.uniform_load(self.shared, (const(u32, 0),)))
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


_Key = tuple[int, tuple[int, ...]]  # a statement, and the turn of each loop around it
_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: (a + b) % 7,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "lt": lambda a, b: int(a < b),
    "eq": lambda a, b: int(a == b),
}


class _Invocation:
    """What one invocation does: the value bound, if any, at every statement that it reaches."""

    def __init__(self, program: Program, group: int, lane: int) -> None:
        self.program, self.group, self.lane = program, group, lane
        self.values: dict[int, int] = {}
        self.variables: dict[int, int] = {}
        self.loops: list[list[int]] = []  # opener, turn, turns
        self.trace: dict[_Key, int | None] = {}
        self.at = 0
        while self.at < len(program.body):
            self.step(program.body[self.at])

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
        return hash((self.key, self.lane, self.group)) % 4 if statement.memory.access.writes else args[0] * 3 % 5

    def step(self, s: Statement) -> None:
        self.key = (self.at, tuple(turn for _, turn, _ in self.loops))
        self.trace[self.key] = None
        match, args = self.program.match, [self.atom(a) for a in s.args]
        here, self.at = self.at, self.at + 1
        if isinstance(s, (Var, Set)):
            self.variables[s.variable.id] = args[0]
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


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_programs_do_what_the_analysis_says(first: int) -> None:
    """Invocations that meet at one statement in one turn agree on values as far as the level says; control that is uniform
    is reached by all or by none."""
    uniform = 0
    for seed in range(first, first + 100):
        program = _Random(seed).a.finish()
        levels = analyse(program)
        groups = [[_Invocation(program, group, lane).trace for lane in range(_SIZE)] for group in range(2)]
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
    assert uniform > 1000  # the Programs are not all varying


def test_types_beside() -> None:
    """A signed loop that counts down is as uniform as its bounds."""
    a = Assembler("down")
    k = a.for_(const(i32, 5), const(i32, -1), const(i32, -1))
    a.barrier()
    a.end()
    a.if_(const(bool_, True))
    a.barrier()
    a.end()
    assert check(a.finish()).uniformity.values[k.id] == GRID
