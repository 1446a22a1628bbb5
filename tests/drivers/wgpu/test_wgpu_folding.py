"""No Program ends the process in a driver of WebGPU that computes its loops ahead: ways to step by -1 from the least number that a driver may see
through."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest
from children import child_environment
from device_kinds import open_device

_LEAVE: Final = "if x[0u32] > 0u32 { break }"

# Name -> the declaration and the body of a Program that counts in `b`, which a u32 or an i32 may be. A driver that computes (last - first) / step
# divides the least number by -1.
BODIES: Final = {
    "an i32": ("", f"var b: i32 = -2147483648\nloop {{ b = b - 1\nif b < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b, u32)"),
    "a u32, by equality": ("", f"var b: u32 = 0\nloop {{ b = b - 1\nif b == 2147483648u32 {{ break }}\n{_LEAVE} }}\ny[i] = b"),
    "a u32 as an i32": ("", f"var b: u32 = 2147483648\nloop {{ b = b + 4294967295u32\nif bitcast(b, i32) < 0 {{ break }}\n{_LEAVE} }}\ny[i] = b"),
    "a step in a variable": (
        "", f"var b: i32 = -2147483648\nvar s: i32 = 1\ns = -1\nloop {{ b = b + s\nif b < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b, u32)"
    ),
    "a step by an inner loop": (
        "", f"var b: i32 = -2147483648\nloop {{ for k in 0i32..2i32 {{ b = b - k }}\nif b < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b, u32)"
    ),
    "a private array": (
        "private b: i32[2]", f"b[0u32] = -2147483648\nloop {{ b[0u32] = b[0u32] - 1\nif b[0u32] < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b[0u32], u32)"
    ),
    "a for": ("", f"var b: i32 = -2147483648\nfor k in 0u32..n {{ b = b - 1\nif b < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b, u32)"),
    "two words": ("", f"var b: i64 = -9223372036854775808\nloop {{ b = b - 1\nif b < 0i64 {{ break }}\n{_LEAVE} }}\ny[i] = cast(b, u32)"),
    "a step by the workgroup's size": (
        "", f"var b: i32 = -2147483648\nloop {{ b = b - cast(workgroup_size.y, i32)\nif b < 0 {{ break }}\n{_LEAVE} }}\ny[i] = bitcast(b, u32)"
    ),
    "a division": ("", f"var b: i32 = -2147483648\nvar c: i32 = -1\nloop {{ y[i] = bitcast(b / c, u32) + bitcast(b % c, u32)\n{_LEAVE} }}"),
    "a division by zero": ("", f"var b: i32 = -2147483648\nvar c: i32 = 0\nloop {{ y[i] = bitcast(b / c, u32) + bitcast(b % c, u32)\n{_LEAVE} }}"),
}

# Runs a Program on the interpreter and by a driver, in a process that may end there.
_CHILD: Final = """
import sys
import numpy as np
import vyre_py as vp

for text in sys.stdin.read().split("----"):
    name, program = text.strip().split("\\n", 1)
    print(name, flush=True)
    found = []
    for device in ("reference", "wgpu"):
        pipeline = vp.device(device).compile_native(vp.Program.from_text(program), vp.CompileOptions(opt=int(sys.argv[1])))
        found.append(pipeline.dispatch({"x": np.ones(1, np.uint32), "n": 5})["y"])
    assert (found[0] == found[1]).all(), found
print("all", flush=True)
"""


@pytest.mark.parametrize("opt", [0, 3])
def test_what_a_driver_may_compute_ahead_does_not_trap(opt: int) -> None:
    open_device("wgpu")
    texts = []
    for name, (declaration, body) in BODIES.items():
        declared = f"buffer x: u32[1] read\nbuffer y: u32[n] write\n{declaration}"
        texts.append(f"{name}\nprogram p(n) workgroup(64) over(n) {{\n{declared}\nlet i = global_id.x\n{body}\n}}")
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(opt)], input="----".join(texts), text=True, capture_output=True, env=child_environment(), timeout=120, check=False
    )
    assert child.returncode == 0, f"the process ended with {child.returncode}, after {child.stdout!r}: {child.stderr[-2000:]}"
    assert child.stdout.split("\n")[-2] == "all"
