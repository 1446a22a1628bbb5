"""Vectors taken apart: every op over vectors of every type gives what the interpreter computes with vectors themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from elements import random_array
from op_programs import Signature, arguments_of, assert_same_results, differing, program_of, run, signatures

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DimConst, evaluate_dim
from vyre_py.ir.language.nodes import Let, MemoryStatement, UniformLoad
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES, Type, bool_, f32, u32
from vyre_py.ir.passes import optimise, unoptimised
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.passes.scalarise import scalarise
from vyre_py.ir.text.parser import parse


def types_in(program: Program) -> Iterable[Type]:
    """The types of everything declared and computed."""
    yield from (declared.type for declared in (*program.params, *program.memories))
    for s in program.body:
        yield from (a.type for a in (*s.args, *([s.result] if s.result is not None else ())))


def assert_scalar(program: Program) -> None:
    check(program)
    assert not any(t.is_vector for t in types_in(program)), str(program)
    assert not any(isinstance(s, Let) and s.op.name == "swizzle" for s in program.body)


CALCULATIONS = [name for name, op in OPS.items() if not op.is_query]


def of_vectors(name: str) -> list[Signature]:
    return [s for s in signatures(OPS[name]) if any(t.is_vector for t in (*s.operands, s.result))]


@pytest.mark.parametrize("name", [n for n in CALCULATIONS if n not in EXPANDED_ONLY])
def test_every_op_over_every_vector(name: str) -> None:
    rng = np.random.default_rng(sum(name.encode()))
    found = of_vectors(name)
    assert found
    for s in found:
        program = program_of(s)
        checked = check(program)
        made = optimise(checked, expand=frozenset(), level=0)
        assert_scalar(made.program)
        arguments = arguments_of(s, rng, 48)
        want = run(unoptimised(checked, expand=frozenset()), s, arguments)
        assert_same_results(s, arguments, want, run(made, s, arguments))


@pytest.mark.parametrize("name", ["exp", "atan2"])
def test_what_only_an_expansion_defines_is_expanded_by_component(name: str) -> None:
    rng = np.random.default_rng(7)
    for s in of_vectors(name):
        checked = check(program_of(s))
        arguments = arguments_of(s, rng, 48)
        native, made = unoptimised(checked, expand=EXPANDED_ONLY), optimise(checked, expand=EXPANDED_ONLY, level=2)
        check(native.program)
        assert_scalar(made.program)
        assert_same_results(s, arguments, run(native, s, arguments), run(made, s, arguments))


EVERYTHING = """program everything(n, m) workgroup(8, 4) over(n, m) {
  doc "all that a vector can be"
  param s: TYPEx3
  param k: u32
  buffer x: TYPEx3[m, n] read
  buffer y: TYPEx3[m, n] read_write
  buffer z: TYPEx2[n] write
  workgroup tile: TYPEx4[4, 8]
  private own: TYPEx2[3]
  table t: TYPEx2[2] = [[1, 0], [1, 1]]
  let i = global_id.x
  let j = global_id.y
  let v = x[j, i]
  var acc: TYPEx3 = v
  tile[local_id.y, local_id.x] = v.zyxx
  barrier
  let across = tile[local_id.x & 3u32, local_id.y + 5u32]
  let first = uniform_load(tile[1u32, 2u32])
  if i < k {
    acc = across.wzy
  } else {
    own[i % 4u32] = vec2(v.x, s.y)
    acc = select(v == s, first.xyz, acc)
  }
  for q in 0u32..3u32 {
    let o = own[q]
    acc = select(q == i, vec3(o.x, o.y, acc.x), acc.zxy)
  }
  y[j, i] = select(j < 2u32, acc, y[j, i])
  z[i + k] = select(i == 3u32, t[k], t[i])
}
"""


@pytest.mark.parametrize("name", ["bool", "i8", "u16", "f16", "bf16", "i32", "f32", "u64", "f64"])
def test_memories_variables_params_and_tables(name: str) -> None:
    element = {"b": "[[true, false], [true, true]]", "f": "[[1.0, -0.0], [nan, 2.5]]"}.get("f" if "f" in name else name[0], "[[1, 0], [3, 2]]")
    program = parse(EVERYTHING.replace("[[1, 0], [1, 1]]", element).replace("TYPE", name))
    checked = check(program)
    sizes = {"n": 11, "m": 6}
    rng = np.random.default_rng(3)
    drawn: dict[str, Any] = {m.name: random_array(rng, m.type, tuple(evaluate_dim(e, sizes) for e in m.shape)) for m in program.buffers}
    drawn["s"] = np.ascontiguousarray(random_array(rng, TYPES[f"{name}x3"], (1,))[0])
    drawn["k"] = 5
    results = []
    for ready in (unoptimised(checked, expand=frozenset()), *(optimise(checked, expand=frozenset(), level=level) for level in (0, 1, 2))):
        copies = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in drawn.items()}
        interpret(ready, copies, sizes)
        results.append(copies)
    for other in results[1:]:
        for key in ("y", "z"):
            assert not differing(results[0][key], other[key], TYPES[name]).any()


def test_declarations_names_and_places_are_kept() -> None:
    program = parse(EVERYTHING.replace("TYPE", "f32").replace("[[1, 0], [1, 1]]", "[[1.0, 0.0], [1.0, 1.0]]"), "here.vir")
    made = scalarise(program)
    assert_scalar(made)
    assert (made.name, made.doc, made.dims, made.workgroup, made.grid) == (program.name, program.doc, program.dims, program.workgroup, program.grid)
    assert [(p.name, p.type, p.part) for p in made.params] == [
        ("s.x", f32, ("s", 0)), ("s.y", f32, ("s", 4)), ("s.z", f32, ("s", 8)), ("k", u32, None),
    ]  # fmt: skip
    for old, new in zip(program.memories, made.memories, strict=True):
        assert (old.name, old.space, old.access, old.data) == (new.name, new.space, new.access, new.data)
        assert new.shape == (*old.shape, DimConst(old.type.lanes))
    names = set(made.value_names.values()) | set(made.variable_names.values())
    assert {"v.x", "v.y", "v.z", "acc.x", "acc.y", "acc.z", "first.w", "i"} <= names
    assert all(made.place(k) is not None for k in range(len(made.body)))
    assert made.declared["s.z"] == program.declared["s"]


def test_names_that_are_taken_get_a_mark() -> None:
    made = scalarise(parse('program p over(1) {\n param v: i32x2\n param "v.x": i32\n buffer y: i32x2[1] write\n y[0u32] = v + vec2("v.x", 1)\n}'))
    assert_scalar(made)
    assert [p.name for p in made.params] == ["v.x'", "v.y", "v.x"]


def test_a_uniform_load_stays_uniform() -> None:
    text = "program p {\n buffer y: u32x2[64] read_write\n let u = uniform_load(y[0u32])\n if u.y > 3u32 { barrier }\n}"
    made = scalarise(parse(text))
    assert sum(isinstance(s, UniformLoad) for s in made.body) == 2
    check(made)


def test_a_whole_element_is_inside_or_outside() -> None:
    program = parse("program p(n) over(n) {\n buffer y: f32x3[n] read_write\n let i = global_id.x\n y[i + 1u32] = y[i] * vec3(2.0f32, 3.0, 4.0)\n}")
    made = optimise(check(program), expand=frozenset())
    accesses = [(s, bits) for s, bits in zip(made.program.body, made.proven, strict=True) if isinstance(s, MemoryStatement)]
    assert len(accesses) == 6 and all(bits & 2 for _, bits in accesses), "the component's own index needs no check"


def test_a_program_of_scalars_is_given_back() -> None:
    program = parse("program p(n) {\n buffer y: f32[n] read_write\n y[global_id.x] = y[global_id.x] * 2.0\n}")
    assert scalarise(program) is program
    # Picking from a scalar is not arithmetic of targets either.
    assert scalarise(parse("program p over(1) {\n buffer y: f32[1] read_write\n y[0u32] = y[0u32].x\n}")).body[-1].args[-1].type is f32


def test_components_of_conditions() -> None:
    program = parse("program p over(2) {\n param a: boolx3\n buffer y: bool[2] write\n y[0u32] = all(a)\n y[1u32] = any(a)\n}")
    for given in ([True, True, True], [False, True, True], [False, False, False]):
        y = np.zeros(2, np.bool_)
        interpret(optimise(check(program), expand=frozenset()), {"a": given, "y": y}, {})
        assert y.tolist() == [all(given), any(given)]
    assert {p.type for p in scalarise(program).params} == {bool_}


def test_time_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    plain = Rewriter.atom

    def atom(self: Rewriter, *args: Any) -> Any:
        nonlocal count
        count += 1
        return plain(self, *args)

    monkeypatch.setattr(Rewriter, "atom", atom)
    visits = []
    for size in (200, 400):
        body = "".join(f" let a{k} = y[{k}u32] * s{k}\n y[{k}u32] = a{k}.yx + a{max(k - 1, 0)}\n" for k in range(size))
        params = "".join(f" param s{k}: f32x2\n" for k in range(size))
        program = parse(f"program p over(4) {{\n{params} buffer y: f32x2[4] read_write\n{body}}}")
        count = 0
        scalarise(program)
        visits.append(count)
    assert visits[1] < 2.1 * visits[0]
