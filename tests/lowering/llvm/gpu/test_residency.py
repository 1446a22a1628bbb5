"""How machine code is linked again so that more workgroups run at once: over an assembler that answers as told, and by nvJitLink."""

from __future__ import annotations

import re

import pytest
from device_kinds import need_nvjitlink

import vyre_py as vp
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.lowering.llvm.gpu.machine_code.nvjitlink import Linked
from vyre_py.lowering.llvm.gpu.machine_code.residency import settled
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

PTX = ".visible .entry k(\n)\n.reqntid 256, 1, 1\n{\n}\n.visible .entry k_x4(\n)\n.reqntid 256, 1, 1\n{\n}\n"


def asked_of(found: dict[int, tuple[int, int]], workgroup_bytes: int = 0, arch: str = "sm_90", ptx: str = PTX) -> tuple[list[int], int]:
    """Which numbers of workgroups are asked for, 0 for none, and the registers of what is taken. `found` has registers and spills by that number."""
    asked: list[int] = []

    def link(text: str) -> Linked:
        counts = {int(n) for n in re.findall(r"\.reqntid 256, 1, 1\n\.minnctapersm (\d+)\n", text)} or {0}
        assert text.count(".minnctapersm") in (0, 2) and len(counts) == 1  # both kernels, alike
        asked.extend(counts)
        registers, spills = found[asked[-1]]
        if registers == 0:
            raise ToolchainError("nvJitLink", "(C7602) Insufficient registers")
        kernel = {"registers": registers, "stack_bytes": spills, "spill_store_bytes": spills, "spill_load_bytes": spills}
        return Linked(b"", "", {"k": {**kernel, "registers": 8}, "k_x4": kernel, "function": {"stack_bytes": 0}})

    taken = settled(link, ptx, arch, 256, workgroup_bytes)
    return asked, taken.resources["k_x4"]["registers"]


@pytest.mark.parametrize(
    ("found", "asked", "registers"),
    [
        ({0: (32, 0)}, [0], 32),
        ({0: (39, 0), 8: (31, 0)}, [0, 8], 31),
        ({0: (50, 0), 8: (32, 28), 6: (40, 0)}, [0, 8, 6], 40),
        ({0: (90, 0), 8: (32, 8), 6: (40, 8), 4: (64, 8)}, [0, 8, 6, 4], 90),
        ({0: (80, 16), 8: (32, 80), 6: (40, 16)}, [0, 8, 6], 40),  # what has to lie in memory anyway
        ({0: (96, 0), 8: (0, 0), 6: (0, 0), 4: (64, 0)}, [0, 8, 6, 4], 64),  # fewer than an instruction takes are refused
        ({0: (96, 0), 8: (0, 0), 6: (0, 0), 4: (0, 0)}, [0, 8, 6, 4], 96),
        ({0: (50, 0), 8: (50, 0), 6: (50, 0)}, [0, 8, 6], 50),  # an architecture that has no such number
    ],
)
def test_the_most_that_costs_no_memory_is_taken(found: dict[int, tuple[int, int]], asked: list[int], registers: int) -> None:
    assert asked_of(found) == (asked, registers)


def test_no_more_is_asked_for_than_workgroup_memory_has_room_for() -> None:
    assert asked_of({0: (96, 0), 3: (80, 0)}, workgroup_bytes=64 << 10) == ([0, 3], 80)
    assert asked_of({0: (96, 0)}, workgroup_bytes=64 << 10, arch="sm_86") == ([0], 96)


def test_long_kernels_are_linked_once() -> None:
    assert asked_of({0: (96, 0)}, ptx=PTX + "\n" * (1 << 17)) == ([0], 96)


def rows(columns: int) -> str:
    """A kernel that holds so many sines of each invocation over a barrier."""
    values = "\n".join(f"  let v{k} = sin(x[i * {columns}u32 + {k}u32])\n  s = s + v{k}" for k in range(columns))
    stores = "\n".join(f"  x[i * {columns}u32 + {k}u32] = v{k} * t[511u32 - local_id.x]" for k in range(columns))
    return f"""program rows(n) workgroup(512) over(n) {{
  buffer x: f32[n] read_write
  workgroup t: f32[512]
  let i = global_id.x
  var s: f32 = 0.0
{values}
  t[local_id.x] = s
  barrier
{stores}
}}"""


def test_nvjitlink_gives_more_workgroups_at_once_and_debugging_leaves_it_alone() -> None:
    need_nvjitlink()
    program = parse(rows(8))
    plain = nvjitlink.link(emit_text(program, "sm_90").encode(), "sm_90", name="rows").resources["vyre_rows"]
    for debug in (False, True):
        (part,) = compile_for(program, [parse_target("sm_90")], CompileOptions(debug=debug)).parts
        (step,) = part.steps
        found = step.images[0].resources["vyre_rows"]
        assert step.images[1].format == "ptx" and b"minnctapersm" not in step.images[1].code
        assert found["spill_store_bytes"] == 0 and (found["registers"] < plain["registers"]) is not debug


def test_products_of_warpgroups_have_code_where_fewer_registers_are_refused() -> None:
    """Workgroup memory has room for three, for which there are 80 registers; the sums of a lane alone are 64."""
    need_nvjitlink()
    (part,) = vp.compile_native(vp.ops.matmul(vp.bf16, tiles="medium", stages=2), ["sm_90a"]).parts
    assert part.steps[0].images[0].resources["vyre_matmul_x1"]["spill_store_bytes"] == 0
