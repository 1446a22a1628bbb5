"""Subgroups in Python: each method emits the op of its name, and refuses at the caller's line what the op does not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import vyre_py as vp
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.text.parser import parse

FOLDS = ("add", "mul", "min", "max", "and", "or", "xor")


def built(write: Callable[[vp.ProgramBuilder, vp.Expr, vp.Expr], None], subgroup: int = 32) -> vp.Program:
    with vp.ProgramBuilder("made", workgroup=64, subgroup=subgroup) as b:
        x = b.read_write("x", vp.u32, b.dim("n"))
        b.over(64)
        v = b.let("v", x[b.global_id(0)])
        write(b, v, b.let("c", v > 3))
    return b.program


def test_each_method_emits_its_op() -> None:
    def write(b: vp.ProgramBuilder, v: vp.Expr, c: vp.Expr) -> None:
        b.subgroup_shuffle(v, b.subgroup_lane() ^ 1)
        b.subgroup_shuffle_xor(v, 1)
        b.subgroup_shuffle_up(v, v)
        b.subgroup_shuffle_down(v, 2)
        b.subgroup_broadcast(v, b.subgroup_id())
        b.subgroup_ballot(c)
        b.subgroup_all(c)
        b.subgroup_any(c)
        b.subgroup_match(v)
        for op in FOLDS:
            b.subgroup_reduce(op, v)
            b.subgroup_scan(op, v)
            b.subgroup_scan(op, v, exclusive=True)

    moves = "subgroup_shuffle(v, subgroup_lane ^ 1) subgroup_shuffle_xor(v, 1) subgroup_shuffle_up(v, v) subgroup_shuffle_down(v, 2)"
    lines = [*moves.replace(") ", ")\n").split("\n"), "subgroup_broadcast(v, subgroup_id)", *[f"subgroup_{name}(c)" for name in ("ballot", "all", "any")]]
    lines += ["subgroup_match(v)", *[f"subgroup_{kind}_{op}(v)" for op in FOLDS for kind in ("reduce", "inclusive", "exclusive")]]
    head = "program made(n) workgroup(64) subgroup(32) over(64) {\n  buffer x: u32[n] read_write\n  let v = x[global_id.x]\n  let c = v > 3\n  "
    program = built(write)
    assert program == parse(head + "\n  ".join(lines) + "\n}")
    assert len(lines) == len(SUBGROUPS)
    vp.check(program)


@pytest.mark.parametrize(("size", "type_"), [(1, vp.u32), (32, vp.u32), (64, vp.u32x2)])
def test_a_mask_has_a_bit_for_each_lane(size: int, type_: vp.Type) -> None:
    def write(b: vp.ProgramBuilder, v: vp.Expr, c: vp.Expr) -> None:
        assert b.subgroup_ballot(c).type is b.subgroup_match(v).type is type_

    built(write, size)


@pytest.mark.parametrize(
    ("write", "code", "words"),
    [
        (lambda b, v, c: b.subgroup_ballot(v), "V201", r"subgroup_ballot\(u32\): subgroup_ballot takes bools"),
        (lambda b, v, c: b.subgroup_all(vp.splat(c, 2)), "V201", "takes scalars"),
        (lambda b, v, c: b.subgroup_reduce("add", c), "V201", "takes numbers"),
        (lambda b, v, c: b.subgroup_reduce("and", vp.cast(v, vp.f32)), "V201", "integers and bools"),
        (lambda b, v, c: b.subgroup_shuffle(v, vp.cast(v, vp.i32)), "V201", "a u32 is needed where i32 stands"),
        (lambda b, v, c: b.subgroup_shuffle(v, -1), "B106", "-1 does not become u32"),
        (lambda b, v, c: b.subgroup_reduce("sub", v), "B108", "a subgroup does not fold with 'sub'"),
        (lambda b, v, c: b.subgroup_match(1), "B106", "nothing says what type 1 has in subgroup_match"),
    ],
)
def test_a_wrong_call_is_refused(write: Callable[..., None], code: str, words: str) -> None:
    with pytest.raises(vp.ValidationError, match=words) as caught:
        built(write)
    assert caught.value.codes == (code,)


def test_without_subgroups_there_are_no_lanes() -> None:
    for write in (lambda b, v, c: b.subgroup_lane(), lambda b, v, c: b.subgroup_id(), lambda b, v, c: b.subgroup_any(c)):
        with pytest.raises(vp.ValidationError, match=r"V211 subgroup_.* is used, and the Program has no subgroups"):
            built(write, 0)
    with pytest.raises(vp.ValidationError, match="a subgroup's size is a whole number, got -1"):
        vp.ProgramBuilder("made", subgroup=-1)
