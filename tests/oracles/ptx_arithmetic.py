"""What instructions of PTX compute, over registers as numbers: integers as they wrap, floats through `exact_floats`."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import exact_floats as exact
from exact_floats import FORMATS

from vyre_py.ir.language.types import f16, f32, f64

__all__ = ["FLOATS", "bits_of", "changed", "compared", "computed", "converted", "extracted", "funnel_shifted", "inserted", "permuted", "taken"]

Compute = Callable[..., int]

FLOATS = {"f16": FORMATS[f16], "f32": FORMATS[f32], "f64": FORMATS[f64]}
_CODES = {"f32": (struct.Struct("<f"), struct.Struct("<I")), "f64": (struct.Struct("<d"), struct.Struct("<Q"))}


def bits_of(type_: str) -> int:
    """How wide a type is."""
    return 1 if type_ == "pred" else int(type_[1:])


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def taken(type_: str) -> Callable[[int], int]:
    """A register's number as a type takes it."""
    bits = bits_of(type_)
    mask = (1 << bits) - 1
    return (lambda x: _signed(x, bits)) if type_.startswith("s") else lambda x: x & mask


def _quick(type_: str, compute: Callable[[float, float], float], slow: Compute) -> Callable[[int, int], int]:
    """Arithmetic in f64, rounded: for these operations the same as rounding once. What is no plain number goes the exact way."""
    format_, code = FLOATS[type_], _CODES.get(type_)
    if code is None:
        return lambda a, b: slow(format_, a, b)
    number, word = code

    def apply(a: int, b: int) -> int:
        if format_.is_finite(a) and format_.is_finite(b):
            try:
                found: int = word.unpack(number.pack(compute(number.unpack(word.pack(a))[0], number.unpack(word.pack(b))[0])))[0]
            except (OverflowError, ZeroDivisionError):
                return slow(format_, a, b)
            return found if format_.is_finite(found) else slow(format_, a, b)
        return slow(format_, a, b)

    return apply


_FLOAT_OPS: Mapping[str, tuple[Callable[[float, float], float], Compute]] = {
    "add": (operator.add, exact.add), "sub": (operator.sub, exact.sub), "mul": (operator.mul, exact.mul), "div": (operator.truediv, exact.div),
}  # fmt: skip


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER_OPS: Mapping[str, Compute] = {
    "add": operator.add, "sub": operator.sub, "mul.lo": operator.mul, "mul.wide": operator.mul, "mad.lo": lambda a, b, c: a * b + c, "div": _quotient,
    "rem": lambda a, b: a - b * _quotient(a, b), "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "neg": operator.neg, "abs": abs, "not": operator.invert, "popc": int.bit_count, "mov": lambda a: a, "cvta": lambda a: a,
}  # fmt: skip
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_ROUNDED: Mapping[str, Callable[[float], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def converted(rounding: str, target: str, source: str, x: int) -> int:
    if source not in FLOATS:
        value = taken(source)(x)
        return FLOATS[target].rounded(Fraction(value)) if target in FLOATS else taken(target)(value)
    given = FLOATS[source]
    if target not in FLOATS:
        bits, value = bits_of(target), given.value(x)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target.startswith("s") else (0, (1 << bits) - 1)
        if math.isnan(value):
            return 1 << bits - 1 if 64 in (bits, bits_of(source)) else 0
        return low if value == -math.inf else high if value == math.inf else min(max(_ROUNDED[rounding](value), low), high)
    made = FLOATS[target]
    if not given.is_finite(x):
        return made.from_special(given.value(x))
    sign = made.sign if x & given.sign else 0
    number = Fraction(given.value(x))
    return made.rounded(Fraction(_ROUNDED[rounding](number)) if rounding in _ROUNDED else number, sign)


def permuted(a: int, b: int, selector: int) -> int:
    source = (a & 0xFFFFFFFF) | (b & 0xFFFFFFFF) << 32
    found = 0
    for k in range(4):
        pick = selector >> 4 * k & 15
        byte = source >> 8 * (pick & 7) & 255
        found |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * k
    return found


def funnel_shifted(left: bool) -> Callable[[int, int, int], int]:
    def apply(low: int, high: int, count: int) -> int:
        both, count = (high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF, count & 31
        return (both << count >> 32 if left else both >> count) & 0xFFFFFFFF

    return apply


def extracted(type_: str) -> Callable[[int, int, int], int]:
    """A field of so many bits from a place on, with the type's sign (bfe)."""
    bits = bits_of(type_)

    def apply(a: int, place: int, count: int) -> int:
        place, count = place & 255, count & 255
        sign = a >> min(place + count - 1, bits - 1) & 1 if type_.startswith("s") and count else 0
        return sum((a >> place + k & 1 if k < count and place + k < bits else sign) << k for k in range(bits))

    return apply


def inserted(bits: int) -> Callable[[int, int, int, int], int]:
    def apply(a: int, b: int, place: int, count: int) -> int:
        mask = ((1 << count) - 1) << place & ((1 << bits) - 1)
        return b & ~mask | a << place & mask

    return apply


def _products_of_bytes(type_: str) -> Compute:
    code = "<4b" if type_.startswith("s") else "<4B"

    def apply(a: int, b: int, c: int) -> int:
        x, y = (struct.unpack(code, struct.pack("<I", word & 0xFFFFFFFF)) for word in (a, b))
        return c + sum(map(operator.mul, x, y))

    return apply


def _integer(name: str, type_: str) -> Compute:
    take, bits = taken(type_), bits_of(type_)
    if name == "dp4a":
        return _products_of_bytes(type_)
    if name == "mul.hi":
        return lambda a, b: take(a) * take(b) >> bits
    if name == "shl":
        return lambda a, b: take(a) << min(b & 0xFFFFFFFF, bits)
    if name == "shr":
        return lambda a, b: take(a) >> min(b & 0xFFFFFFFF, bits)
    if name == "bfe" and type_.startswith("u"):
        return lambda a, place, count: take(a) >> (place & 255) & (1 << (count & 255)) - 1
    if name == "clz":
        return lambda a: bits - take(a).bit_length()
    if name == "brev":
        return lambda a: int(f"{take(a):0{bits}b}"[::-1], 2)
    apply = _INTEGER_OPS[name]
    return lambda *x: apply(*map(take, x))


def _float(name: str, type_: str) -> Compute:
    format_, mask = FLOATS[type_], (1 << bits_of(type_)) - 1
    if name in _FLOAT_OPS:
        apply = _quick(type_, *_FLOAT_OPS[name])
        return lambda a, b: apply(a & mask, b & mask)
    made: Mapping[str, Compute] = {
        "fma": lambda a, b, c: exact.fma(format_, a, b, c), "sqrt": lambda a: exact.sqrt(format_, a), "rcp": lambda a: exact.div(format_, format_.one, a),
        "min": lambda a, b: exact.least(format_, a, b), "max": lambda a, b: exact.greatest(format_, a, b),
        "abs": format_.magnitude, "neg": lambda a: exact.neg(format_, a), "mov": lambda a: a,
        "copysign": lambda a, b: format_.magnitude(b) | a & format_.sign,
    }  # fmt: skip
    chosen = made[name]
    return lambda *x: chosen(*[v & mask for v in x])


_NAMES = {name.split(".")[0] for name in _INTEGER_OPS} | {"shl", "shr", "bfe", "clz", "brev", "dp4a", "fma", "sqrt", "rcp", "copysign"}


def computed(parts: list[str]) -> Compute:
    """What an instruction of this name, in parts, makes of its operands, as wide as its result is."""
    name, type_ = parts[0], parts[-1]
    assert name in _NAMES, f"no instruction of this machine's: {'.'.join(parts)}"
    words = [p for p in parts[1:-1] if p in ("lo", "hi", "wide")]
    mask = (1 << (bits_of(type_) * (2 if "wide" in words else 1))) - 1
    if parts[-2:] == ["f32", "f16"]:
        both = _float(name, "f32")
        return lambda a, b: both(converted("", "f32", "f16", a & 0xFFFF), b)
    compute = _float(name, type_) if type_ in FLOATS else _integer(".".join([name, *words]), type_)
    return lambda *x: compute(*x) & mask


def compared(name: str, type_: str) -> Compute:
    """Whether a comparison of this name holds, 1 or 0."""
    if type_ not in FLOATS:
        take, base = taken(type_), _COMPARED[name]
        return lambda a, b: int(base(take(a), take(b)))
    format_, mask = FLOATS[type_], (1 << bits_of(type_)) - 1
    unordered = name in ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")
    holds = _COMPARED.get(name.removesuffix("u"), lambda a, b: name == "num")

    def compare(a: int, b: int) -> int:
        a, b = a & mask, b & mask
        return int(unordered if format_.is_nan(a) or format_.is_nan(b) else holds(format_.value(a), format_.value(b)))

    return compare


def changed(name: str, type_: str) -> Compute:
    """What an atomic of this name makes of the old element and its operands."""
    if name == "add":
        return _quick(type_, *_FLOAT_OPS["add"]) if type_ in FLOATS else operator.add
    own: Mapping[str, Compute] = {"exch": lambda old, x: x, "cas": lambda old, x, y: y if old == x else old}
    return own.get(name) or _INTEGER_OPS[name]
