"""The CPUs that host code is made for, and which of them this machine supports. Importing this loads no LLVM, since loading compiled code needs it too.

Every name but "native" means an ELF object for Linux with the calling convention of System V (x86-64) or AAPCS64 (aarch64), whatever the machine that
compiles. "native" is this machine's own CPU and object format, and `machine_number` tells whether code of that kind was made on one like this.
"""

from __future__ import annotations

import hashlib
import platform
import struct
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing

__all__ = ["LIBRARY", "MAX_ELEMENTS", "NATIVE", "TARGETS", "HostTarget", "loads_objects", "machine_number", "obstacle", "own_machine", "rank_here", "runs_here"]

NATIVE: Final = "native"

# Of an array. Offsets of vector accesses are computed modulo 2^32 from their last lane, and those of tiles from their first element, so the last elements that
# 32 bits reach must not exist.
MAX_ELEMENTS: Final = (1 << 32) - (1 << 18)

# What C libraries have everywhere, and host code may call. Anything else would be missing in the process that loads the object.
LIBRARY: Final = frozenset({
    "memset", "memcpy", "memmove", "sched_yield", *(name + end for name in ("fma", "floor", "ceil", "trunc", "roundeven") for end in ("", "f")),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostTarget:
    """A CPU to compile for.

    `machine` is the architecture as Linux names it, `cpu` and `features` are what LLVM is told, `needs` what Linux lists in /proc/cpuinfo where such
    code runs. `lanes` of 32 bits suit its vectors, of which it has `registers`; `fma` and `halves` say whether it has instructions for fused multiply-adds,
    and between f16 and f32, `masked_bytes` how small elements may be for it to mask accesses of vectors, `gathers` and `scatters` whether it is good at
    those. Of two that run on a machine, the one of the higher `rank` is better there.
    """

    machine: str
    cpu: str
    features: str
    needs: frozenset[str]
    lanes: int
    fma: bool
    halves: bool
    rank: int
    registers: int = 16
    masked_bytes: int = 4
    gathers: bool = False
    scatters: bool = False

    @property
    def vector_bytes(self) -> int:
        """The bytes of one vector: the lanes of 32 bits fill two."""
        return self.lanes * 2

    @property
    def triple(self) -> str:
        """What LLVM calls the machine and the system."""
        return f"{self.machine}-unknown-linux-gnu"


# The levels of the x86-64 psABI: what each adds, as /proc/cpuinfo spells it. Beside them, cmov, sse2 and the like are every x86-64's.
_V2: Final = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3: Final = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4: Final = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

# Lanes are two vectors of 32-bit values, so that one hides the other's latency. Measured: mandelbrot with 16 and 32 lanes of AVX-512 made 57 and 80
# Mpixel/s on one core, with 8 and 16 of AVX2 27 and 37; no kernel tried was slower. 64-bit ARM has vectors of 128 bits, as SSE.
TARGETS: Final[Mapping[str, HostTarget]] = {
    "x86-64": HostTarget("x86_64", "x86-64", "", frozenset(), 8, False, False, 1),
    "x86-64-v2": HostTarget("x86_64", "x86-64-v2", "", _V2, 8, False, False, 2),
    "x86-64-v3": HostTarget("x86_64", "x86-64-v3", "", _V3, 16, True, True, 3),
    "x86-64-v4": HostTarget("x86_64", "x86-64-v4", "", _V4, 32, True, True, 4, registers=32, masked_bytes=1, gathers=True, scatters=True),
    # Armv8.0-A. Its atomics are loops of its own instructions: the functions that newer code calls instead are in no process of ours.
    "aarch64": HostTarget("aarch64", "generic", "+fp-armv8,+neon,-outline-atomics", frozenset(), 8, True, True, 1, registers=32),
}
_NATIVE_RANK: Final = 1 + max(target.rank for target in TARGETS.values())
_MACHINES: Final = frozenset(target.machine for target in TARGETS.values())
# What of /proc/cpuinfo tells CPUs apart: LLVM chooses instructions by model as well. (x86-64, then 64-bit ARM.)
_FLAGS: Final = ("flags", "Features")
_MODEL: Final = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")
_CPUINFO: Final = Path("/proc/cpuinfo")


def own_machine() -> str:
    """The architecture that this process runs on, as Linux names it: "x86_64", "aarch64"; "" for a process of 32 bits."""
    if struct.calcsize("P") != 8:
        return ""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def loads_objects() -> bool:
    """Whether this process loads ELF objects by itself (`drivers.cpu.linker`): on Linux, on both architectures. Elsewhere only "native" code runs, and
    LLVM loads it."""
    return sys.platform == "linux" and own_machine() in _MACHINES


@lru_cache(maxsize=1)
def _cpuinfo() -> Mapping[str, str]:
    """What Linux says of the first CPU; nothing elsewhere."""
    found: dict[str, str] = {}
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if colon:
                    found[name.strip()] = value.strip()
                elif found:
                    break  # an empty line, and then the next CPU; with hundreds of them the whole file takes long
    except OSError:
        return {}
    return found


def _flags() -> frozenset[str]:
    return frozenset(flag for name in _FLAGS for flag in _cpuinfo().get(name, "").split())


@lru_cache(maxsize=1)
def machine_number() -> int:
    """A number below 2^62 that "native" code bears: it runs where this number is the same. 0 where the CPU is not known, and such code does not.

    It is a digest of the system, the CPU's model and everything that the kernel lists of its features, so an update of the kernel may change it: code
    that is shipped is better made for a level.
    """
    if info := _cpuinfo():
        told = [*(info.get(name, "") for name in _MODEL), *sorted(_flags())]
    else:
        try:
            with importing:
                from llvmlite import binding as llvm  # here LLVM loads the code, too
        except ImportError:
            return 0
        told = [llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    digest = hashlib.sha256("\n".join([sys.platform, own_machine(), *told]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2


def obstacle(arch: str, machine: int | None = None) -> str:
    """Why code for a CPU does not run in this process, in words that follow its name; "" where it does. `machine` is the number that "native" code
    bears, None for code that was made here."""
    if arch == NATIVE:
        same = machine is None or (machine != 0 and machine == machine_number())
        return "" if same else "was made on another machine; one for a level such as x86-64-v3 runs on all that have it"
    target = TARGETS.get(arch)
    if target is None:
        return f"is not one of {', '.join([NATIVE, *TARGETS])}"
    if not loads_objects():
        return f"is for Linux on {target.machine}; here only {NATIVE} code runs"
    if target.machine != own_machine():
        return f"is for {target.machine}, and this machine is {own_machine()}"
    if lacking := target.needs - _flags():
        what = f"lacks {', '.join(sorted(lacking))}" if _flags() else f"is not described by {_CPUINFO}"
        return f"cannot run here: this CPU {what}"
    return ""


def rank_here(arch: str, machine: int | None = None) -> int | None:
    """How well code for a CPU suits this process, more is better: "native" before x86-64-v4, -v3, -v2, x86-64. None where it does not run (`obstacle`)."""
    if obstacle(arch, machine):
        return None
    return _NATIVE_RANK if arch == NATIVE else TARGETS[arch].rank


def runs_here(arch: str, machine: int | None = None) -> bool:
    """Whether code for a CPU runs in this process."""
    return not obstacle(arch, machine)
