"""Uniformity: the cases that make it hard, what the messages say, and the work it takes."""

from __future__ import annotations

import pytest

from vyre_py.ir.check import check
from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.dims import Dim, DimConst
from vyre_py.ir.language.errors import ValidationError
from vyre_py.ir.language.nodes import (
    const,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import bool_, i32, u32

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
    "under a branch on vectors of uniform values": "if all(vec2(w, p) < p.xx) { barrier }",
    "under a branch on a component of a varying vector": "if vec2(w, i).x < p { barrier } // refused",
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
    "condition read from workgroup memory that is written before the next barrier": """
        if tile[p] > 3 {
          barrier // refused
        }
        tile[l] = p""",
    "condition read from workgroup memory that rests": "tile[l] = p\nbarrier\nif tile[p] > 3 { barrier }",
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


# The same of grid barriers.
GRID_BARRIERS = {
    "at the top": "grid_barrier",
    "under a grid-uniform branch": "if p < n { grid_barrier }",
    "under a branch of the workgroup": "if w < p { grid_barrier } // refused",
    "under a varying branch": "if i < n { grid_barrier } // refused",
    "behind a branch of the workgroup": "if w < p { y[i] = 1 }\ngrid_barrier",
    "behind a return of the workgroup": """
        if w < p {
          return
        }
        grid_barrier // refused""",
    "behind a return of the grid": "if p > 3 { return }\ngrid_barrier",
    "in a loop of the grid": "for k in 0u32..p { grid_barrier }",
    "in a loop of the workgroup": "for k in 0u32..w { grid_barrier } // refused",
    "a break of the workgroup": """
        for k in 0u32..p {
          grid_barrier // refused
          if w == k { break }
          barrier
          grid_barrier // refused
        }
        grid_barrier""",
    "a continue of the workgroup": """
        for k in 0u32..p {
          grid_barrier
          if w == k { continue }
          grid_barrier // refused
        }
        grid_barrier""",
    "a break of the grid": """
        for k in 0u32..p {
          grid_barrier
          if x[k] == 0 { break }
          grid_barrier
        }
        grid_barrier""",
    "a variable that workgroups set": """
        var v: u32 = p
        grid_barrier
        if w == 0 { v = 1 }
        if v == p {
          barrier
          grid_barrier // refused
        }""",
    "what was read between barriers": """
        let v = uniform_load(y[0])
        if v == p {
          barrier
          grid_barrier // refused
        }""",
    "queries of the grid": "if num_workgroups.x > 3 { if workgroup_size.x == p { grid_barrier } }",
}


@pytest.mark.parametrize("name", BARRIERS)
def test_barriers(name: str) -> None:
    refused_where_marked(BARRIERS[name], "V401")


@pytest.mark.parametrize("name", GRID_BARRIERS)
def test_grid_barriers(name: str) -> None:
    refused_where_marked(GRID_BARRIERS[name], "V404")


def refused_where_marked(body: str, code: str) -> None:
    program = parse(body)
    lines = (HEAD + body).splitlines()
    expected = [number for number, line in enumerate(lines, 1) if "// refused" in line]
    if not expected:
        check(program)
        return
    with pytest.raises(ValidationError) as caught:
        check(program)
    assert set(caught.value.codes) == {code}
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
    "loop {\nif tile[0] > 3 { break }\ntile[l] = 1\nbarrier\n}": "the branch at case.vir:12:1 depends on a load from 'tile', which can be written",
    "let o = atomic_max(y[i], 1)\nlet u = o + 1\nif u > 3 { barrier }": "the branch at case.vir:13:1 depends on what atomic_max on 'y' gave",
    "var v: u32 = 0\nif l > 3 { v = 1 }\nif v > 0 { barrier }": "the branch at case.vir:13:1 depends on local_id.x",
    "if w > 3 { grid_barrier }": "not reached by the whole grid together: the branch at case.vir:11:1 depends on workgroup_id.x",
    "if uniform_load(y[0]) > 3 { grid_barrier }": "depends on a uniform_load from 'y', which workgroups make each for itself",
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
