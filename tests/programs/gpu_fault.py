"""A kernel that stores one element past a buffer, for compute-sanitizer to find.

    compute-sanitizer --tool memcheck --error-exitcode 99 python tests/programs/gpu_fault.py pool

The argument says whose memory the buffer is: `pool` that of our pool, `driver` what `cuMemAlloc` gives; with `none` the store is within the buffer. A
Program cannot do this: the code is raw.
"""

from __future__ import annotations

import sys
from typing import Any

import vyre_py as vp

__all__ = ["COUNT", "STORE"]

COUNT = 1024  # 4 KiB, which the pool does not round up
STORE = """.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 address, .param .u32 place)
{
  .reg .u64 %a, %o;
  .reg .u32 %p;
  ld.param.u64 %a, [address];
  ld.param.u32 %p, [place];
  mul.wide.u32 %o, %p, 4;
  add.u64 %a, %a, %o;
  st.global.u32 [%a], %p;
  ret;
}
"""


def main(kind: str) -> None:
    """Stores once, and waits."""
    device: Any = vp.device("cuda")
    context = device.context
    buffer = device.allocate(COUNT, vp.u32)
    address = int(context.ok(context.cuda.cuMemAlloc(4 * COUNT), "no memory")) if kind == "driver" else buffer.address
    place = COUNT - 1 if kind == "none" else COUNT
    launch = device.load_ptx(STORE, "store", [("address", vp.u64), ("place", vp.u32)]).bind({"address": address, "place": place}, grid=1, workgroup=1)
    launch()
    device.synchronize()
    assert kind != "none" or buffer.read()[place] == place
    print("stored")


if __name__ == "__main__":
    main(sys.argv[1])
