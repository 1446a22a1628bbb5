"""Workgroup arrays that are written before they are read: which are found, and that nobody fills those with zeros."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
import simt_host
from device_kinds import open_device

from vyre_py.drivers.device import Device
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.ops import EXPANDED_ONLY
from vyre_py.ir.passes import optimise, unoptimised
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.kinds import STRICT_EXPANSIONS
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

PTX: Final = Target("ptx", "sm_90")

# What stands in a Program over a workgroup of 64 x 4 and the array w: f32[64] unless it says more -> whether all of w is written first.
WRITTEN: Final = {
    "by each its own": "if local_id.y == 0 { w[local_id.x] = x[local_id.x] }\nbarrier\ny[i] = w[63 - local_id.x]",
    "by several each": "w[local_index & 63] = 1.0\nbarrier\ny[i] = w[local_id.x]",
    "in another order": "w[63 - local_id.x] = x[local_id.x]\nbarrier\ny[i] = w[local_id.x]",
    "in a loop over it": "for k in local_id.x * 2..local_id.x * 2 + 2 { if k < 64 { w[k] = x[local_id.x] } }\nbarrier\ny[i] = w[5]",
    "in strides": "for k in local_index..64 step 256 { w[k] = x[local_id.x] }\nbarrier\ny[i] = w[5]",
    "in strides down": "for k in 63 - cast(local_index, i32)..-1 step -64 { w[k] = x[local_id.x] }\nbarrier\ny[i] = w[5]",
    "by one": "if local_index == 3 { for k in 0u32..64 { w[k] = 0.0 } }\nbarrier\ny[i] = w[local_id.x]",
    "in parts": "if local_index < 32 { w[local_index] = 1.0 } else { if local_index < 64 { w[local_index] = 2.0 } }\nbarrier\ny[i] = w[3]",
    "in a turn, where it is read": "for t in 0..n { w[local_id.x] = x[t]\nbarrier\ny[i] = w[63 - local_id.x]\nbarrier }",
    "before a loop that has the barrier": "w[local_id.x] = x[local_id.x]\nfor t in 0..n { barrier\ny[i] = w[3] + y[i]\nbarrier\nw[local_id.x] = 3.0 }",
    "before a uniform_load": "w[local_id.x] = x[local_id.x]\ny[i] = uniform_load(w[5])",
    "under a condition that all share": "if n > 3 { w[local_id.x] = x[local_id.x]\nbarrier\ny[i] = w[3] }",
    "in a region": "region \"tile\" { w[local_id.x] = x[local_id.x] }\nbarrier\ny[i] = w[3]",
    "not read": "w[local_id.x] = x[local_id.x]\ny[i] = 1.0",
    "before an atomic": "a[local_id.x] = 1\nbarrier\natomic_add(a[3], 2)\nbarrier\ny[i] = cast(a[local_id.x], f32)",
    "of two axes": "t[local_id.y, local_id.x] = x[local_id.x]\nbarrier\ny[i] = t[3 - local_id.y, local_id.x]",
    "by copies": "copy_async w[local_id.x] = x[local_id.x]\ncopy_wait 0\nbarrier\ny[i] = w[63 - local_id.x]",
    "by copies of some, in a turn": "for t in 0..n { if local_index < 64 { copy_async w[local_index] = x[t] }\ncopy_commit\ncopy_wait 0\nbarrier\n"
                                    "y[i] = w[63 - local_id.x]\nbarrier }",
    "by copies, behind a read of others": "w[local_id.x / 2] = x[local_id.x / 2]\nbarrier\nlet a = w[5]\n"
                "if local_index >= 32 { if local_index < 64 { copy_async w[local_index] = x[local_index] } }\n"
                "copy_wait 0\nbarrier\ny[i] = w[63 - local_id.x] + a * 0.0",
    "less one that nobody reads": "if local_index < 63 { w[local_index] = x[local_id.x] }\nbarrier\ny[i] = w[3]",
    "every other, of which one is read": "w[local_id.x * 2] = x[local_id.x]\nbarrier\ny[i] = w[local_id.x * 4]",
    "as far as it is read": "w[cast(local_id.x, i32) - 1] = x[local_id.x]\nbarrier\ny[i] = w[3]",
    "each time what is read": "w[local_id.x / 2] = x[local_id.x / 2]\nbarrier\n"
                "let a = w[5]\nbarrier\nw[63 - local_id.x / 2] = x[local_id.x / 2] + a * 0.0\nbarrier\ny[i] = w[local_id.x]",
    "in turns, as far as it is read": "for t in 0..n { w[local_id.x / 2] = x[t]\nbarrier\ny[i] = w[local_id.x / 4] + w[31]\nbarrier }",
    "in each branch what is read": "if n > 3 { w[local_id.x / 2] = x[0]\nbarrier\n"
                "y[i] = w[3] } else { w[63 - local_id.x / 2] = x[0]\nbarrier\ny[i] = w[60] }",
    "before a uniform_load of one": "if local_index == 5 { w[5] = x[0] }\ny[i] = uniform_load(w[5])",
    "past a return that all make": "if n == 0 { return }\nw[local_id.x] = x[local_id.x]\nbarrier\ny[i] = w[3]",
}
UNWRITTEN: Final = {
    "less one": "if local_index < 63 { w[local_index] = x[local_id.x] }\nbarrier\ny[i] = w[63 - local_id.x]",
    "every other": "w[local_id.x * 2] = x[local_id.x]\nbarrier\ny[i] = w[3]",
    "read as data say": "w[local_id.x / 2] = x[local_id.x / 2]\nbarrier\ny[i] = w[cast(x[local_id.x] * 9.0, u32)]",
    "read in more turns": "w[local_id.x / 2] = x[local_id.x / 2]\nbarrier\nfor t in 0u32..64 { y[i] = w[t] }",
    "in one branch, and read in the other": "if n > 3 { w[local_id.x / 2] = x[0]\nbarrier\n"
                "y[i] = w[3] } else { w[63 - local_id.x / 2] = x[0]\nbarrier\ny[i] = w[3] }",
    "in a branch before": "if n > 3 { w[local_id.x / 2] = x[0]\nbarrier\ny[i] = w[3] }\nbarrier\ny[i] = w[3] + y[i]",
    "an atomic beside": "a[local_id.x / 2] = 1\nbarrier\natomic_add(a[3], 2)",
    "as data say": "w[cast(x[local_id.x], u32)] = x[local_id.x]\nbarrier\ny[i] = w[3]",
    "where data say": "if x[local_id.x] > 0.0 { w[local_id.x] = x[local_id.x] }\nbarrier\ny[i] = w[3]",
    "where a size says": "if i < n { w[local_id.x] = x[local_id.x] }\nbarrier\ny[i] = w[3]",
    "where all share, and read beyond": "if n > 3 { w[local_id.x] = x[local_id.x] }\nbarrier\ny[i] = w[3]",
    "without a barrier": "w[local_id.x] = x[local_id.x]\ny[i] = w[3]",
    "with the barrier before": "barrier\nw[local_id.x] = x[local_id.x]\ny[i] = w[3]",
    "after a read": "let first = w[3]\nbarrier\nw[local_id.x] = x[local_id.x]\nbarrier\ny[i] = w[3] + first",
    "after a read in the first turn": "for t in 0..n { y[i] = w[3]\nbarrier\nw[local_id.x] = x[local_id.x]\nbarrier }",
    "in a loop that may not turn": "for t in 0..n { w[local_id.x] = x[local_id.x]\nbarrier }\nbarrier\ny[i] = w[3]",
    "in strides too wide": "for k in local_index * 2..64 step 256 { w[k] = x[local_id.x] }\nbarrier\ny[i] = w[5]",
    "in a loop that data leave": "for k in 0u32..64 { if x[k] > 0.5 { break }\nw[k] = x[k] }\nbarrier\ny[i] = w[5]",
    "in a turn that data skip": "for k in 0u32..64 { if x[k] > 0.5 { continue }\nw[k] = x[k] }\nbarrier\ny[i] = w[5]",
    "in the other branch": "for t in 0..n { if t % 2 == 1 { w[local_id.x] = x[local_id.x] } else { barrier\ny[i] = w[3]\nbarrier } }",
    "outside": "w[cast(local_id.x, i32) - 1] = x[local_id.x]\nbarrier\ny[i] = w[local_id.x]",
    "by an atomic": "atomic_add(a[local_id.x], 1)\nbarrier\ny[i] = cast(a[local_id.x], f32)",
    "of two axes, one axis": "t[0, local_id.x] = x[local_id.x]\nbarrier\ny[i] = t[3 - local_id.y, local_id.x]",
    "by copies of another group": "copy_async w[local_id.x] = x[local_id.x]\ncopy_commit\ncopy_wait 1\nbarrier\ny[i] = w[3]",
    "by copies for which some wait": "copy_async w[local_id.x] = x[local_id.x]\nif local_index < 9 { copy_wait 0 }\nbarrier\ny[i] = w[3]",
    "by copies that are awaited too late": "copy_async w[local_id.x] = x[local_id.x]\nbarrier\ncopy_wait 0\ny[i] = w[3]",
    "by a variable": "var k: u32 = local_id.x\nif x[local_id.x] > 0.0 { k = 0 }\nw[k] = x[local_id.x]\nbarrier\ny[i] = w[3]",
}
RACES: Final = {
    "without a barrier", "with the barrier before", "by copies of another group", "by copies for which some wait", "by copies that are awaited too late",
}  # fmt: skip
ALL: Final = [*[(text, True) for text in WRITTEN.values()], *[(text, False) for text in UNWRITTEN.values()]]


def program_of(text: str):
    arrays = {"w": "f32[64]", "a": "u32[64]", "t": "f32[4, 64]"}
    used = "\n".join(f"workgroup {name}: {type_}" for name, type_ in arrays.items() if f"{name}[" in text)
    return parse(
        f"program p(n) workgroup(64, 4) grid(40) {{\nbuffer x: f32[n] read\nbuffer y: f32[10240] read_write\n{used}\n"
        f"let i = workgroup_id.x * 256 + local_index\n{text}\n}}"
    )


@pytest.mark.parametrize(("text", "written"), ALL, ids=[*WRITTEN, *UNWRITTEN])
def test_what_is_found(text: str, written: bool) -> None:
    checked = check(program_of(text))
    for level in (0, 1):
        assert optimise(checked, expand=EXPANDED_ONLY, level=level).written_first == frozenset()
    assert unoptimised(checked, expand=EXPANDED_ONLY).written_first == frozenset()
    found = optimise(checked, expand=STRICT_EXPANSIONS)
    assert len(found.written_first) == written, found.program


@pytest.mark.parametrize(("turns", "written"), [(1, True), (150, True), (225, False)])
def test_how_much_is_computed_is_bounded(turns: int, written: bool) -> None:
    """A workgroup of 1,024 over so many turns of a loop: five figures for each invocation and turn, at most 2^20 in all. What would take more is not
    proven."""
    program = parse(f"""program p(n) workgroup(1024) over(n) {{
  buffer y: u8[n] write
  workgroup w: u8[{1024 * turns}]
  for k in 0u32..{turns} {{ w[k * 1024 + local_index] = 1 }}
  barrier
  y[global_id.x] = w[3]
}}""")
    assert len(optimise(check(program), expand=STRICT_EXPANSIONS).written_first) == written


@pytest.mark.parametrize("name", [name for name in (*WRITTEN, *UNWRITTEN) if name not in RACES])
def test_it_changes_no_result(name: str, device: Device) -> None:
    """Many workgroups on few threads, where each finds what the one before has left."""
    text = (WRITTEN | UNWRITTEN)[name]
    x = np.linspace(0, 1, 70, dtype=np.float32)
    want = open_device("reference").compile_native(program_of(text)).dispatch({"x": x, "y": np.zeros(10240, np.float32)})["y"]
    got = device.compile_native(program_of(text)).dispatch({"x": x, "y": np.zeros(10240, np.float32)})["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [name for name in (*WRITTEN, *UNWRITTEN) if name not in RACES])
def test_a_gpu_finds_no_zeros_there(name: str) -> None:
    """Workgroup memory holds anything at all before a workgroup runs."""
    text = (WRITTEN | UNWRITTEN)[name].replace("0..n", "0u32..4")
    program = parse(str(program_of(text)).replace("workgroup(64, 4) grid(40)", "workgroup(64, 4) grid(1)"))
    arguments = {"x": np.linspace(0, 1, 256, dtype=np.float32), "y": np.zeros(10240, np.float32)}
    results = []
    for run, prepared in ((interpret, unoptimised(check(program), expand=EXPANDED_ONLY)), (simt_host.run, prepare(program, PTX, CompileOptions()))):
        copies = {key: value.copy() for key, value in arguments.items()}
        run(prepared, copies, {"n": 256})
        results.append(copies)
    simt_host.assert_same(program, results[1], results[0])
