"""Integer and bool ops by Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vyre_py.ir.language.types import Type, i32, u32


def wrap(t: Type, value: int) -> int:
    return (value - t.minimum) % (1 << t.bits) + t.minimum


def pattern(t: Type, value: int) -> int:
    return value % (1 << t.bits)


def saturate(t: Type, value: int) -> int:
    return min(max(value, t.minimum), t.maximum)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _text(t: Type, a: int) -> str:
    return f"{pattern(t, a):0{t.bits}b}"


def _rotated(t: Type, a: int, count: int) -> int:
    text, count = _text(t, a), count % t.bits
    return wrap(t, int(text[count:] + text[:count], 2))


def field(t: Type, offset: int, count: int) -> tuple[int, int]:
    """First bit and mask (unshifted) of a field, cut to the width."""
    start = min(offset, t.bits)
    return start, (1 << min(count, t.bits - start)) - 1


def extract_bits(t: Type, a: int, offset: int, count: int) -> int:
    start, mask = field(t, offset, count)
    found = pattern(t, a) >> start & mask
    return found - mask - 1 if t.is_signed and found > mask >> 1 else found


def insert_bits(t: Type, a: int, b: int, offset: int, count: int) -> int:
    start, mask = field(t, offset, count)
    return wrap(t, (pattern(t, a) & ~(mask << start)) | (pattern(t, b) & mask) << start)


def _bytes_of(word: int, signed: bool) -> list[int]:
    found = [word >> 8 * k & 255 for k in range(4)]
    return [byte - 256 if signed and byte > 127 else byte for byte in found]


def _dot4(result: Type, signed: bool, a: int, b: int, c: int) -> int:
    return wrap(result, c + sum(x * y for x, y in zip(_bytes_of(a, signed), _bytes_of(b, signed), strict=True)))


INTEGER_ORACLES: Mapping[str, Callable[..., Any]] = {
    "dot4_i8": lambda t, a, b, c: _dot4(i32, True, a, b, c),
    "dot4_u8": lambda t, a, b, c: _dot4(u32, False, a, b, c),
    "add": lambda t, a, b: wrap(t, a + b),
    "sub": lambda t, a, b: wrap(t, a - b),
    "mul": lambda t, a, b: wrap(t, a * b),
    "div": lambda t, a, b: wrap(t, _quotient(a, b)) if b else a,
    "rem": lambda t, a, b: a - b * _quotient(a, b) if b else 0,
    "neg": lambda t, a: wrap(t, -a),
    "abs": lambda t, a: wrap(t, abs(a)),
    "sign": lambda t, a: (a > 0) - (a < 0),
    "min": lambda t, a, b: min(a, b),
    "max": lambda t, a, b: max(a, b),
    "clamp": lambda t, x, low, high: min(max(x, low), high),
    "and": lambda t, a, b: a & b,
    "or": lambda t, a, b: a | b,
    "xor": lambda t, a, b: a ^ b,
    "nand": lambda t, a, b: wrap(t, ~(a & b)),
    "not": lambda t, a: wrap(t, ~a),
    "shl": lambda t, a, b: wrap(t, a << (b % t.bits)),
    "shr": lambda t, a, b: a >> (b % t.bits),
    "rotl": _rotated,
    "rotr": lambda t, a, b: _rotated(t, a, -b),
    "popcount": lambda t, a: pattern(t, a).bit_count(),
    "clz": lambda t, a: t.bits - pattern(t, a).bit_length(),
    "ctz": lambda t, a: ("1" + _text(t, a))[::-1].index("1"),
    "reverse_bits": lambda t, a: wrap(t, int(_text(t, a)[::-1], 2)),
    "mul_hi": lambda t, a, b: (a * b) >> t.bits,
    "abs_diff": lambda t, a, b: abs(a - b),
    "saturating_add": lambda t, a, b: saturate(t, a + b),
    "saturating_sub": lambda t, a, b: saturate(t, a - b),
    "saturating_mul": lambda t, a, b: saturate(t, a * b),
    "extract_bits": extract_bits,
    "insert_bits": insert_bits,
    "eq": lambda t, a, b: a == b,
    "ne": lambda t, a, b: a != b,
    "lt": lambda t, a, b: a < b,
    "le": lambda t, a, b: a <= b,
    "gt": lambda t, a, b: a > b,
    "ge": lambda t, a, b: a >= b,
}

BOOL_ORACLES: Mapping[str, Callable[..., Any]] = {
    "eq": lambda t, a, b: a == b,
    "ne": lambda t, a, b: a != b,
    "logical_and": lambda t, a, b: a and b,
    "logical_or": lambda t, a, b: a or b,
    "logical_not": lambda t, a: not a,
}
