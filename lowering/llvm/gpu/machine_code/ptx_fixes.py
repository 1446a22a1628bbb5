"""PTX that NVIDIA's assembler gets wrong, or LLVM itself, written another way."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["mend"]

# ptxas (13.0, from level 1 on) takes the result of abs.s16 for not negative, and that of -32768 is: sign-extended, it comes out as 32768.
# LLVM makes abs.s16 of many forms, so it is caught here, behind it.
_ABS_16: Final = re.compile(r"\babs\.s16\s+(%rs\d+), (%rs\d+);")
_IN_32_BITS: Final = r"{ .reg .b32 %wide; cvt.s32.s16 %wide, \2; abs.s32 %wide, %wide; cvt.u16.u32 \1, %wide; }"

# Where f32 is to be flushed LLVM flushes f16 as well, whose subnormal numbers begin at 2^-14.
_FLUSHED_F16: Final = re.compile(r"\.ftz(?=\.f16)")

# Instructions that came with a version of PTX behind that of the first architecture that has them: products of warps of floats of 8 bits, additions of four
# elements at once.
_LATER: Final = ((re.compile(r"\bmma\.sync\S+\.e[45]m[23]\."), (8, 4)), (re.compile(r"\bred\.\S+\.v4\.f32\b"), (8, 1)))
_VERSION: Final = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)


def mend(ptx: str) -> str:
    """The same kernel without what the assembler gets wrong, and with f16 as it was meant."""
    ptx = _FLUSHED_F16.sub("", _ABS_16.sub(_IN_32_BITS, ptx))
    least = max((version for used, version in _LATER if used.search(ptx)), default=(0, 0))
    return _VERSION.sub(lambda found: ".version {}.{}".format(*max((int(found[1]), int(found[2])), least)), ptx)
