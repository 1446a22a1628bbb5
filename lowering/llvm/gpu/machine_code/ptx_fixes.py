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

# Products of warps of floats of 8 bits came with a version of PTX behind that of the first architecture that has them.
_BYTE_PRODUCT: Final = re.compile(r"\bmma\.sync\S+\.e[45]m[23]\.")
_VERSION: Final = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)
_LEAST_VERSION: Final = (8, 4)


def mend(ptx: str) -> str:
    """The same kernel without what the assembler gets wrong, and with f16 as it was meant."""
    ptx = _FLUSHED_F16.sub("", _ABS_16.sub(_IN_32_BITS, ptx))
    return _VERSION.sub(_raised, ptx) if _BYTE_PRODUCT.search(ptx) else ptx


def _raised(version: re.Match[str]) -> str:
    return ".version {}.{}".format(*max((int(version[1]), int(version[2])), _LEAST_VERSION))
