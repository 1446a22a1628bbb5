"""NVIDIA's architectures by name, and which runs what. Importing this loads no LLVM: whoever loads compiled code asks it too."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ARCHITECTURES", "nearest_arch", "runs_on"]

# The architectures that LLVM 22 knows. It takes any other name with a word on stderr and then emits PTX that can't be loaded, so
# names are looked up here first.
ARCHITECTURES: Final = frozenset({
    "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_101", "sm_101a",
    "sm_101f", "sm_103", "sm_103a", "sm_103f", "sm_110", "sm_110a", "sm_110f", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
})  # fmt: skip

_NAME: Final = re.compile(r"sm_(\d+)([af]?)\Z", re.ASCII)


def nearest_arch(major: int, minor: int) -> str | None:
    """The newest known architecture whose PTX runs on a GPU of this compute capability, or None.

    PTX for a plain architecture runs on all later ones; for one with a suffix only on its own, so those are left out.
    """
    fitting = [int(name[3:]) for name in ARCHITECTURES if name[-1].isdigit() and runs_on(name, (major, minor))]
    return f"sm_{max(fitting)}" if fitting else None


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether PTX for an architecture runs on a GPU of this compute capability: plain PTX on newer ones too, with an `f` on newer ones
    of its family, with an `a` on its own only."""
    found = _NAME.match(arch)
    if found is None:
        return False
    wanted, here = int(found[1]), 10 * capability[0] + capability[1]
    oldest = {"": 0, "f": here - here % 10, "a": here}[found[2]]
    return oldest <= wanted <= here
