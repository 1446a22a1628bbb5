"""Recordings: what a workgroup does, lane by lane, is what the interpreter leaves in memory; and their bounds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from filetest import read_cases
from tree import ROOT

import vyre_py as vp
from vyre_py.explore.given import arguments_of
from vyre_py.explore.recording import MOST_ELEMENTS, Recording, record
from vyre_py.ir.interpret.params import InterpretError
from vyre_py.ir.language.program import Program

SUMS = """program sums(n) workgroup(8) over(n) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  workgroup t: u32[8]
  let i = global_id.x
  var s: u32 = 0u32
  t[local_index] = x[i] * 2u32
  barrier
  for k in 0u32..3u32 {
    s = s + k
  }
  if i < 4u32 {
    y[i] = t[7u32 - local_index] + s
  }
}
"""


def played(recording: Recording) -> dict[str, list[Any]]:
    """Memories once all moments have changed them."""
    memory = {held["name"]: list(held["first"]) for held in recording["memories"]}
    for moment in recording["moments"]:
        for index, value in moment["changes"]:
            memory[moment["memory"]][index] = value
    return memory


def test_moments_are_what_each_lane_does() -> None:
    made = record(SUMS, {"n": "13", "x": "ramp"})
    assert (made["groups"], made["lanes"], made["findings"], made["ended"]) == ([2, 1, 1], 8, [], "")
    by_line = {line: [m for m in made["moments"] if m["line"] == line] for line in range(1, 15)}
    (first,) = by_line[5]
    assert (first["name"], first["value"], first["does"], first["mask"]) == ("i", list(range(8)), "global_id.x", "")
    store = by_line[7][-1]
    assert (store["memory"], store["writes"], store["touched"]) == ("t", True, list(range(8)))
    assert store["changes"] == [(k, 2 * k) for k in range(1, 8)]
    assert [m["value"] for m in by_line[9]] == [[0], [1], [2]]
    assert [m["value"] for m in by_line[10] if m["does"] == "set"] == [[0], [1], [3]]
    inside = by_line[13][-1]
    assert (inside["mask"], inside["touched"][4:]) == ("11110000", [-1] * 4)
    text = SUMS.split("\n")
    for moment in made["moments"]:
        assert text[moment["line"] - 1][moment["column"] - 1 :][: moment["width"]].strip()
    assert played(made)["y"][:4] == [17, 15, 13, 11]
    json.dumps(made)


def test_another_workgroup_has_moments_of_its_own() -> None:
    made = record(SUMS, {"n": "13"}, 1)
    assert made["moments"][0]["value"] == list(range(8, 16))
    load = next(m for m in made["moments"] if m["memory"] == "x")
    assert load["touched"] == [8, 9, 10, 11, 12, -1, -1, -1]


# Loops, vectors, functions, atomics, subgroups, private arrays, tiles.
@pytest.mark.parametrize("name", ["control_flow", "functions", "atomics", "barriers", "reports", "subgroup_control", "small_floats", "tiles_control", "copies"])
def test_what_is_played_is_what_the_interpreter_leaves(name: str) -> None:
    device = vp.device("reference")
    compared = 0
    cases = read_cases(ROOT / "tests" / "filetests" / "run" / f"{name}.vir")
    for case in cases[:4]:
        program = case.parse()
        sizes = {dim.name: "12" for dim in program.dims}
        made = record(case.text, sizes)
        if made["findings"] or made["ended"] or any(held["count"] > MOST_ELEMENTS for held in made["memories"]):
            continue  # a run that is ended early leaves less
        given = arguments_of(program, sizes)
        out = device.compile_native(program, vp.CompileOptions(opt=0, asserts=False, print_bytes=0)).dispatch({**given.arguments, **given.sizes})
        left = played(made)
        for buffer, array in out.items():
            found = np.array([[float(x) for x in np.ravel(value)] for value in left[buffer]], float).reshape(-1)
            wanted = np.array(array, float).reshape(-1)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=f"{program.name} {buffer}")
            compared += 1
    assert compared


def test_a_program_of_tiles_is_played_workgroup_by_workgroup() -> None:
    text = "program p(n) tiles grid(ceil_div(n, 8)) {\n  buffer x: f32[n] read\n  buffer y: f32[n] write\n  let a = x[workgroup_id.x * 8 : 8]\n"
    text += "  y[workgroup_id.x * 8 : 8] = exp(a)\n}\n"
    made = record(text, {"n": "12"}, 1)
    assert (made["tiles"], made["groups"], made["lanes"]) == (True, [2, 1, 1], 1)
    (load,) = [m for m in made["moments"] if m["name"] == "a"]
    assert (load["shape"], load["value"]) == ([8], [8.0, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0, 0.0])
    assert (load["memory"], load["writes"], load["touched"]) == ("x", False, [8, 9, 10, 11, -1, -1, -1, -1])
    assert played(made)["y"][8:] == pytest.approx([float(f"{np.exp(k):.6g}") for k in range(8, 12)], rel=1e-5)


def test_races_asserts_and_prints_are_marked() -> None:
    text = SUMS.replace("  barrier\n", "").replace("  var s", '  print "at {}", i\n  assert x[i] < 6u32, "x is {}", x[i]\n  var s')
    made = record(text, {"n": "13"})
    assert [(one["kind"], one["line"]) for one in made["findings"]] == [("race", 14), ("race", 9), ("assert", 7)]
    assert [one["elements"] for one in made["findings"]] == [{"t": [7]}, {"t": [7]}, {"x": [6, 7]}]
    assert made["moments"][-1]["bad"] == [0]  # which reads what lane 7 wrote
    assert "x is 6" in made["findings"][2]["message"]
    assert [m["bad"] for m in made["moments"] if m["does"] == "assert"] == [[6, 7]]
    (said,) = [m["said"] for m in made["moments"] if m["does"] == "print"]
    assert said[:2] == ["(0, 0, 0): at 0", "(1, 0, 0): at 1"]


def test_a_read_of_what_nothing_wrote_is_found() -> None:
    made = record(SUMS.replace("  t[local_index] = x[i] * 2u32\n", ""))
    assert [(one["kind"], one["elements"]) for one in made["findings"]] == [("unwritten", {"t": [4, 5, 6, 7]})]
    assert record(SUMS.replace("  t[local_index] = x[i] * 2u32\n", ""), {}, 1)["findings"][0]["elements"] == {}  # its lanes read nothing
    assert made["moments"]


def test_a_run_without_end_is_ended() -> None:
    made = record("program p(n) workgroup(4) over(n) {\n  buffer y: u32[n] write\n  loop {\n    y[global_id.x] = 1u32\n  }\n}\n")
    assert "ended after" in made["ended"]
    assert 100 < len(made["moments"]) <= 3000


def test_a_long_run_is_written_down_in_part() -> None:
    text = SUMS.replace("0u32..3u32", "0u32..1200u32")
    made = record(text)
    assert "are shown" in made["ended"]
    assert len(made["moments"]) == 3000


def test_arguments_are_made_up_or_read() -> None:
    program = Program.from_text(
        "program p(n, m) workgroup(8, 4) over(n, m) {\n  param a: f32x3\n  param b: bool\n  buffer x: f16[n] read\n  buffer f: bool[n] read\n"
        "  buffer w: i32x2[m] read\n  buffer y: u64[m, n] write\n  y[global_id.y, global_id.x] = 1u64\n}\n"
    )
    made = arguments_of(program, {"x": "1.5, 2, -3", "n": "3"})
    assert made.sizes == {"n": 3, "m": 7}
    assert made.texts == {"n": "3", "m": "7", "a": "2,2,2", "b": "true", "x": "1.5, 2, -3", "f": "ramp", "w": "ramp", "y": "zeros"}
    assert made.arguments["x"].tolist() == [1.5, 2.0, -3.0]
    assert made.arguments["f"].tolist() == [0, 1, 1]
    assert made.arguments["w"].shape == (7, 2)
    assert (made.arguments["y"].shape, made.arguments["y"].dtype) == ((7, 3), np.uint64)
    assert record(str(program), {"x": "1.5, 2, -3", "n": "3"})["given"]["m"] == "7"
    with pytest.raises(InterpretError, match="shape"):
        record(str(program), {"x": "1, 2", "n": "3"})
    for name, text in (("n", "x"), ("x", "1,,2"), ("x", "@x.npy"), ("y", "1,2"), ("b", "3"), ("none", "1"), ("n", "1e9"), ("n", "400000000")):
        with pytest.raises(vp.VyreError):
            record(str(program), {name: text})
