"""NVIDIA's architectures by name, and which code each runs. Importing this loads no LLVM, since loading compiled code needs it too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["ARCHITECTURES", "fitting_archs", "generation", "runs_on"]

# The architectures that LLVM 22 knows, and the version of PTX that it writes for each: the oldest that has the architecture. LLVM takes any
# other name with a word on stderr and then emits PTX that can't be loaded, so names are looked up here first.
ARCHITECTURES: Final[Mapping[str, str]] = {
    "sm_70": "6.0", "sm_72": "6.1", "sm_75": "6.3", "sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4", "sm_88": "9.0", "sm_89": "7.8",
    "sm_90": "7.8", "sm_90a": "8.0", "sm_100": "8.6", "sm_100a": "8.6", "sm_100f": "8.8", "sm_101": "8.6", "sm_101a": "8.6", "sm_101f": "8.8",
    "sm_103": "8.8", "sm_103a": "8.8", "sm_103f": "8.8", "sm_110": "9.0", "sm_110a": "9.0", "sm_110f": "9.0", "sm_120": "8.7", "sm_120a": "8.7",
    "sm_120f": "8.8", "sm_121": "8.8", "sm_121a": "8.8", "sm_121f": "8.8",
}  # fmt: skip

_NAME: Final = re.compile(r"sm_(\d+)([af]?)\Z", re.ASCII)


def fitting_archs(major: int, minor: int) -> tuple[str, ...]:
    """The architectures whose PTX runs on a GPU of this compute capability, its own first, then the newest ones before it.

    PTX for a plain architecture runs on all later ones; for one with a suffix only on its own, so those are left out.
    """
    fitting = [int(name[3:]) for name in ARCHITECTURES if name[-1].isdigit() and runs_on(name, (major, minor))]
    return tuple(f"sm_{number}" for number in sorted(fitting, reverse=True))


def generation(arch: str) -> int:
    """The number of an architecture's compute capability, 90 for sm_90 and sm_90a; 0 for any other name."""
    found = _NAME.match(arch)
    return int(found[1]) if found else 0


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether PTX for an architecture runs on a GPU of this compute capability: plain PTX on newer ones too, with an `f` on newer ones
    of its family, with an `a` on its own only."""
    found = _NAME.match(arch)
    if found is None:
        return False
    wanted, here = int(found[1]), 10 * capability[0] + capability[1]
    oldest = {"": 0, "f": here - here % 10, "a": here}[found[2]]
    return oldest <= wanted <= here
