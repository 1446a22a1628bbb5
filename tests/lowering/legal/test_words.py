"""64-bit integers in words, and narrow integers in 32 bits: each op, rewritten and interpreted, against its own evaluation."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fuzz.elements import INTERESTING, random_array

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Const, Let, Memory, MemoryStatement, Param, Space
from vyre_py.ir.language.op import Op, Result
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import SCALARS, Type, bf16, bool_, encode, f16, f32, f64, i32, i64, u32, u64
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.legal import integers, split64_ops
from vyre_py.lowering.legal.integers import is_narrow_integer, narrow_integers
from vyre_py.lowering.legal.split64 import split_words
from vyre_py.lowering.legal.split64_ops import FUNCTIONS, is_wide

Array = np.ndarray[Any, np.dtype[Any]]
Case = tuple[Op, tuple[Type, ...], Type | None]

TYPES = [t for t in SCALARS.values() if t not in (f16, bf16) and not t.is_storage]  # the rewrite of small floats comes before
RANDOM = 500
EDGES = {t: np.array([encode(t, x) for x in INTERESTING[t]], f"u{t.size_bytes}").view(t.dtype) for t in TYPES}


def legal(program: Program) -> Program:
    return split_words(narrow_integers(program))


# ---------------------------------------------------------------- ops


def cases() -> list[Case]:
    """Every op that is neither expanded nor over vectors, over every choice of types with an integer that the rewrites touch."""
    found: list[Case] = []
    for op in OPS.values():
        if op.evaluate is None or 1 not in op.lanes or op.name.startswith(("swizzle", "vec", "unpack")):
            continue
        given = (*TYPES, None) if op.result is Result.GIVEN else (None,)
        for types, target in itertools.product(itertools.product(TYPES, repeat=len(op.operands)), given):
            touched = any(is_wide(t) or is_narrow_integer(t) for t in (*types, *([target] if target else [])))
            if touched and types[-1] not in op.expands and op.result_type(types, target) is not None:
                found.append((op, types, target))
    return found


def name_of(case: Case) -> str:
    op, types, given = case
    return "-".join([op.name, *[t.name for t in types], *([given.name] if given else [])])


def operands_of(types: tuple[Type, ...]) -> list[Array]:
    """Interesting values in all pairs (of three operands: the third at random), then random ones."""
    rng = np.random.default_rng(len(types))
    grids = [g.reshape(-1) for g in np.meshgrid(*[EDGES[t] for t in types[:2]], indexing="ij")]
    grids += [rng.permutation(np.resize(EDGES[t], grids[0].size)) for t in types[2:]]
    return [np.concatenate([g, random_array(rng, t, (RANDOM,))]) for g, t in zip(grids, types, strict=True)]


def op_program(op: Op, types: tuple[Type, ...], given: Type | None, constants: tuple[Const | None, ...] = ()) -> Program:
    a = Assembler("op", (64, 1, 1))
    n = a.dim("n")
    inputs = [a.memory(f"x{k}", Space.BUFFER, t, (n,), Access.READ) for k, t in enumerate(types)]
    result = op.result_type(types, given)
    assert result is not None
    out = a.memory("out", Space.BUFFER, result, (n,), Access.WRITE)
    i = a.let(OPS["global_id.x"], ())
    args = tuple(c or a.load(m, (i,)) for m, c in itertools.zip_longest(inputs, constants))
    a.store(out, (i,), a.let(op, args, given))
    return a.finish()


def stored(t: Type, array: Array) -> Array:
    """An array as the rewritten Program has it: 64-bit integers as two words."""
    return array.view(np.uint32).reshape(*array.shape, 2) if is_wide(t) else array


def run(program: Program, **arguments: Any) -> dict[str, Array]:
    """What a Program leaves in its buffers, by way of the rewritten one."""
    split = legal(program)
    require_legal(split)
    check(of_the_language(split))
    arrays = {m.name: np.array(arguments[m.name], m.type.dtype) for m in program.buffers}
    given: dict[str, Any] = {m.name: stored(m.type, arrays[m.name]) for m in program.buffers}
    given |= {p.name: p.type.dtype.type(arguments[p.name]) for p in program.params}
    interpret(SimpleNamespace(program=split), given, {d.name: arguments[d.name] for d in program.dims})
    return arrays


def of_the_language(program: Program) -> Program:
    """The Program with vectors of the first words in place of functions, and plain memories: targets have more of both than the language."""
    called = {f: f.fixed.lanes for f in FUNCTIONS.values() if f.fixed is not None}
    body = [replace(s, args=s.args[: called[s.op]], op=OPS[f"vec{called[s.op]}"]) if isinstance(s, Let) and s.op in called else s for s in program.body]
    plain = {memory: Memory(*(getattr(memory, f.name) for f in fields(memory))) for memory in program.memories}
    body = [replace(s, memory=plain[s.memory]) if isinstance(s, MemoryStatement) and s.memory in plain else s for s in body]
    return replace(program, body=tuple(body), memories=tuple(plain.values()))


def require_legal(program: Program) -> None:
    """Nothing 64 bits wide is left, and narrow integers are only moved and cast from and to 32 bits."""
    for statement in program.body:
        types = [a.type for a in (*statement.args, *([statement.result] if statement.result else []))]
        assert not any(is_wide(t) for t in types)
        if isinstance(statement, Let) and statement.op.name not in integers.MOVES and any(map(is_narrow_integer, types)):
            assert statement.op.name == "cast" and {t for t in types if not is_narrow_integer(t)} <= {i32, u32} and len(set(types)) == 2
    assert not any(is_wide(d.type) for d in (*program.params, *program.memories))


def assert_same(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        keep, word = ~np.isnan(want), f"u{got.dtype.itemsize}"
        np.testing.assert_array_equal(got[keep].view(word), want[keep].view(word))
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_an_op_over_interesting_and_random_values(case: Case) -> None:
    op, types, given = case
    arrays = operands_of(types)
    result = op.result_type(types, given)
    assert op.evaluate is not None and result is not None
    with np.errstate(all="ignore"):
        want = op.evaluate(result, *arrays)
    got = run(op_program(op, types, given), out=np.zeros(want.shape, result.dtype), n=want.size, **{f"x{k}": x for k, x in enumerate(arrays)})
    assert_same(got["out"], want)


@pytest.mark.parametrize("case", [c for c in cases() if len(c[1]) == 2], ids=name_of)
def test_an_op_with_a_constant_on_either_side(case: Case) -> None:
    op, types, given = case
    result = op.result_type(types, given)
    assert op.evaluate is not None and result is not None
    for side, bits in itertools.product((0, 1), (5, 1 << types[0].bits - 1, (1 << types[0].bits) - 1)):
        constant = Const(types[side], bits)
        arrays = [EDGES[t] for t in types]
        args = list(arrays)
        args[side] = np.array([bits], f"u{types[side].size_bytes}").view(types[side].dtype)
        with np.errstate(all="ignore"):
            want = op.evaluate(result, *args)
        constants = (constant, None) if side == 0 else (None, constant)
        made = op_program(op, types, given, constants)
        got = run(made, out=np.zeros(want.shape, result.dtype), n=want.size, **{f"x{k}": x for k, x in enumerate(arrays)})
        assert_same(got["out"], want)


def test_every_integer_op_has_a_row() -> None:
    """In either table, or is expanded, or taken apart with its vectors."""
    over = {name for name, op in OPS.items() if i64 in op.of and 1 in op.lanes and i64 not in op.expands and not name.startswith("vec")}
    assert set(split64_ops.ROWS) == over - {"cast", "bitcast", "swizzle"}
    assert set(integers.ROWS) | integers.PLAIN == over - {"cast", "bitcast", "swizzle", "select"}
    assert not set(integers.ROWS) & integers.PLAIN
    others = {bool_, i32, u32, f32, f64}
    assert {t for name, t in split64_ops.FROM_WORDS if name == "cast"} == {t for name, t in split64_ops.TO_WORDS if name == "cast"} == others


# ---------------------------------------------------------------- statements


EVERYTHING = """program everything(n) workgroup(4) over(n) {
  param a: i64
  param small: i16
  buffer x: i64[n] read
  buffer y: u64[n, 3] read_write
  buffer z: u8[n] read_write
  workgroup tile: i64[4]
  private own: u64[2]
  table t: u64[3] = [1, 0xfedcba9876543210, 18446744073709551615]
  let i = global_id.x
  let k = local_index
  var total: i64 = a
  var byte: u8 = z[i]
  for m in 0u32..5u32 {
    total = total * 3i64 + x[i]
    byte = byte * 7u8 + 250u8
    if total < 0 { total = total + cast(small, i64) } else { total = total - 1i64 }
  }
  tile[k] = total
  own[1u32] = cast(total, u64) ^ t[k]
  barrier
  let first = uniform_load(tile[0u32])
  y[i, 0u32] = cast(first, u64) + cast(tile[3u32 - k], u64)
  y[i, 1u32] = own[k & 1u32]
  let "long name" = select(total > first, t[1u32], cast(byte, u64))
  y[i, 2u32] = "long name"
  y[i, 7u32] = 5u64
  z[i] = byte
}"""


def everything(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {
        "n": n, "a": -(1 << 40) - 12345, "small": -300, "x": random_array(rng, i64, (n,)), "y": random_array(rng, u64, (n, 3)),
        "z": random_array(rng, SCALARS["u8"], (n,)),
    }  # fmt: skip


def test_params_variables_memories_and_control_flow() -> None:
    program, arguments = Program.from_text(EVERYTHING), everything(24)
    want = {name: np.array(arguments[name]) for name in "xyz"}
    interpret(SimpleNamespace(program=program), {**arguments, **want}, {"n": 24})
    got = run(program, **arguments)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)


def test_what_a_param_and_a_memory_become() -> None:
    split = legal(Program.from_text(EVERYTHING))
    low, high, small = split.params
    assert (low.name, low.part, high.name, high.part, small.name, small.part) == ("a.low", ("a", 0), "a.high", ("a", 4), "small", None)
    shapes = {m.name: (m.type.name, m.rank) for m in split.memories}
    assert shapes == {"x": ("u32", 2), "y": ("u32", 3), "z": ("u8", 1), "tile": ("u32", 2), "own": ("u32", 2), "t": ("u32", 2)}
    assert {"long name.low", "long name.high"} <= set(split.value_names.values())
    assert {"total.low", "total.high", "byte"} == set(split.variable_names.values())


def test_a_part_is_split_further_and_names_stay_apart() -> None:
    a = Assembler("parts", (1, 1, 1))
    a.params += [Param("v.y", u64, ("v", 8)), Param("v.y.low", u32)]
    y = a.memory("y", Space.BUFFER, u64, (a.dim("n"),), Access.WRITE)
    a.store(y, (a.let(OPS["global_id.x"], ()),), a.params[0])
    assert [(p.name, p.part) for p in split_words(a.finish()).params] == [("v.y.low'", ("v", 8)), ("v.y.high", ("v", 12)), ("v.y.low", None)]


def test_a_program_without_such_integers_is_left_alone() -> None:
    body = "buffer y: u32[n] write\n buffer z: u8[n] read_write\n y[global_id.x] = 1u32\n z[global_id.x] = z[global_id.x]"
    program = Program.from_text(f"program p(n) {{ {body} }}")
    assert split_words(program) is program and narrow_integers(program) is program


def test_atomics_on_64_bit_integers_are_refused_by_name_and_place() -> None:
    text = """program p(n) {
  buffer y: u64[n] read_write
  buffer z: i64[n] read_write
  atomic_add(y[global_id.x], 1u64)
  let old = atomic_max(z[global_id.x], 1i64)
}"""
    with pytest.raises(Unsupported, match=r"atomic add on u64 at .*:4:.*atomic max on i64 at .*:5:"):
        split_words(Program.from_text(text, "p.vir"))


def test_the_rewrites_are_linear() -> None:
    def chain(length: int) -> Program:
        a = Assembler("chain", (64, 1, 1))
        y = a.memory("y", Space.BUFFER, u64, (a.dim("n"),), Access.READ_WRITE)
        i = a.let(OPS["global_id.x"], ())
        value = a.load(y, (i,))
        for k in range(length):
            value = a.let(OPS["mul" if k % 2 else "add"], (value, Const(u64, k)))
        a.store(y, (i,), value)
        return a.finish()

    sizes = [len(split_words(chain(n)).body) for n in (100, 200, 400)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])
