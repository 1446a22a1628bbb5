"""Machine code that lets a multiprocessor hold more workgroups at once.

nvJitLink assembles PTX as one of several modules to be linked. Its assembler then takes all the registers that it has a use for; of a whole program, as the
driver has it, it weighs them against how much runs at once (13.5, a softmax over rows of 8192: 79 registers a thread, and 32). Less than half of a
multiprocessor's threads may be there then, too few to hide its memory's latency. A kernel can ask for a number of workgroups (`.minnctapersm`), and the
assembler says what that costs: what takes no memory in place of registers is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.llvm.gpu.machine_code.nvjitlink import Linked

__all__ = ["settled"]

_REGISTERS: Final = 1 << 16  # of a multiprocessor, of every architecture since sm_70
_WARP, _UNIT = 32, 8  # threads get registers in such units
# What is asked for, in threads of a multiprocessor. An assembler leaves alone a kernel that asks for more than its architecture has.
_ASKED: Final = (2048, 1536, 1024)
# Workgroup memory of a multiprocessor in KiB, 100 where nothing is said; each workgroup takes one more.
_WORKGROUP_KIB: Final = {70: 96, 72: 96, 75: 64, 80: 164, 87: 164, 90: 228, 100: 228, 101: 228, 103: 228, 110: 228}
_LONGEST: Final = 1 << 17  # of PTX, in characters: longer kernels take seconds to link, and are linked once
_SIZE: Final = re.compile(r"(?m)^\.reqntid .*$(?!\n\.minnctapersm)")  # of a kernel that asks for nothing yet


def _held(linked: Linked, threads: int) -> int:
    """How many workgroups there are registers for, of the kernel that needs most."""
    most = max((found["registers"] for found in linked.resources.values() if "registers" in found), default=0)
    return _REGISTERS // (max(_UNIT, -(-most // _UNIT) * _UNIT) * threads)


def _in_memory(linked: Linked) -> int:
    """The bytes of memory that threads take in place of registers."""
    return sum(found.get(name, 0) for found in linked.resources.values() for name in ("stack_bytes", "spill_store_bytes", "spill_load_bytes"))


def settled(link: Callable[[str], Linked], ptx: str, arch: str, invocations: int, workgroup_bytes: int) -> Linked:
    """What `link` makes of the PTX for an architecture, with as many workgroups of so many invocations at once as cost no memory in place of registers. A
    kernel whose registers suffice is linked once, as a long one is, others up to four times."""
    plain, threads = link(ptx), -(-invocations // _WARP) * _WARP
    if len(ptx) > _LONGEST:
        return plain
    held, room = _held(plain, threads), (_WORKGROUP_KIB.get(generation(arch), 100) << 10) // (workgroup_bytes + 1024)
    for asked in _ASKED:
        count = min(asked // threads, room)
        if count <= held:
            break
        try:
            denser = link(_SIZE.sub(rf"\g<0>\n.minnctapersm {count}", ptx))
        except ToolchainError:  # an instruction of a warpgroup takes more registers by itself than there would be
            continue
        if _held(denser, threads) > held and _in_memory(denser) <= _in_memory(plain):
            return denser
    return plain
