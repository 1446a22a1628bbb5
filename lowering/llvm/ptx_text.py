"""PTX that NVIDIA's assembler gets wrong, written another way."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["mend"]

# ptxas (13.0, from level 1 on) takes the result of abs.s16 for not negative, and that of -32768 is: sign-extended, it comes out as 32768.
# LLVM makes abs.s16 of many forms, so it is caught here, behind it.
_ABS_16: Final = re.compile(r"\babs\.s16\s+(%rs\d+), (%rs\d+);")
_IN_32_BITS: Final = r"{ .reg .b32 %wide; cvt.s32.s16 %wide, \2; abs.s32 %wide, %wide; cvt.u16.u32 \1, %wide; }"


def mend(ptx: str) -> str:
    """The same kernel without what the assembler gets wrong."""
    return _ABS_16.sub(_IN_32_BITS, ptx)
