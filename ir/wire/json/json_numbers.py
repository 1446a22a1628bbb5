"""Constants of the JSON form: from numbers and texts of bits to the bits of a type."""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type, decode, encode
from vyre_py.ir.wire.json.json_form import EXACT_INTEGERS

__all__ = ["bits_of", "rounded_bits"]

_BITS: Final = re.compile("0x[0-9a-fA-F]{1,16}")
_PACKED: Final[Mapping[str, tuple[str, str]]] = {"f64": ("<d", "<Q"), "f32": ("<f", "<I"), "f16": ("<e", "<H")}


def bits_of(type_: Type, value: Any) -> int:
    """The bits of a constant. Raises TypeError, OverflowError or ValueError, whose text says what is wrong."""
    if isinstance(value, str):
        if not _BITS.fullmatch(value):
            raise ValueError(f"found {shown(value)}, expected bits such as 0x7fc00001")
        if int(value, 16) >> type_.bits:
            raise ValueError(f"{value} has more bits than {type_}")
        return int(value, 16)
    if not type_.is_float or isinstance(value, bool) or (isinstance(value, int) and abs(value) > EXACT_INTEGERS):
        bits = encode(type_, value)
        if not type_.is_float or math.isfinite(decode(type_, bits)):
            return bits
    else:
        with contextlib.suppress(OverflowError):
            return rounded_bits(type_, float(value))
    raise OverflowError(f"{shown(value)} is beyond {type_}; infinities are written as bits")


def rounded_bits(type_: Type, value: float) -> int:
    """What `encode` gives for a finite float, without an array for each. Raises OverflowError for what rounds to infinity."""
    if type_.name in _PACKED:
        packed, bits = _PACKED[type_.name]
        number: int = struct.unpack(bits, struct.pack(packed, value))[0]
        return number
    least = type_.least_exponent - type_.fraction_bits
    quantum = max(math.frexp(value)[1] - 1 - type_.fraction_bits, least) if value else least
    # The exponent's field is one less for subnormal numbers; a carry into the next one is what adding to the bits does by itself.
    rounded = round(math.ldexp(abs(value), -quantum)) + (quantum - least << type_.fraction_bits)
    if rounded > type_.greatest_bits:
        raise OverflowError
    return rounded | (math.copysign(1.0, value) < 0) << type_.bits - 1
