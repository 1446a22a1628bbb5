"""Every float type as bits, exactly: an oracle of fractions, for the ops on floats and for what they are converted from."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from vyre_py.ir.language.types import Type, bf16, f8e4m3, f8e5m2, f16, f32, f64

Bits = int

# Number, its bits, and where they lie in them: a bf16 is the upper half of an f32, an f8e5m2 of an f16.
_CODES = {
    t: (struct.Struct(number), struct.Struct(word), shift)
    for t, number, word, shift in ((f8e5m2, "<e", "<H", 8), (f16, "<e", "<H", 0), (bf16, "<f", "<I", 16), (f32, "<f", "<I", 0), (f64, "<d", "<Q", 0))
}


@dataclass(frozen=True)
class Format:
    """A float type, by the widths of exponent and fraction. Numbers are bit patterns. Without infinities, one pattern of either sign is NaN, the last, and
    what is past the greatest number."""

    type: Type
    exponent: int
    fraction: int
    infinities: bool = True

    @cached_property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @cached_property
    def sign(self) -> Bits:
        return 1 << (self.exponent + self.fraction)

    @cached_property
    def infinity(self) -> Bits:
        return ((1 << self.exponent) - 1) << self.fraction if self.infinities else self.sign - 1

    @cached_property
    def nan(self) -> Bits:
        return self.infinity | 1 << (self.fraction - 1)

    @cached_property
    def one(self) -> Bits:
        return self.bias << self.fraction

    def magnitude(self, bits: Bits) -> Bits:
        return bits & (self.sign - 1)

    def is_nan(self, bits: Bits) -> bool:
        return self.magnitude(bits) > self.infinity - (not self.infinities)

    def is_inf(self, bits: Bits) -> bool:
        return self.infinities and self.magnitude(bits) == self.infinity

    def is_finite(self, bits: Bits) -> bool:
        return self.magnitude(bits) < self.infinity

    def value(self, bits: Bits) -> float:
        """As a Python float, which holds every number of every format."""
        if not self.infinities:
            size, field = self.magnitude(bits), self.magnitude(bits) >> self.fraction
            significand = size & (1 << self.fraction) - 1 | (field > 0) << self.fraction
            found = math.nan if self.is_nan(bits) else math.ldexp(significand, max(field, 1) - self.bias - self.fraction)
            return -found if bits & self.sign else found
        number, word, shift = _CODES[self.type]
        return float(number.unpack(word.pack(bits << shift))[0])

    def rounded(self, exact: Fraction, zero_sign: Bits = 0) -> Bits:
        """The nearest number, ties to even, subnormals and overflow included."""
        if exact == 0:
            return zero_sign
        sign, over, under = (self.sign if exact < 0 else 0), abs(exact.numerator), exact.denominator
        exponent = over.bit_length() - under.bit_length()
        if over << max(-exponent, 0) < under << max(exponent, 0):
            exponent -= 1
        quantum = max(exponent, 1 - self.bias) - self.fraction
        over, under = over << max(-quantum, 0), under << max(quantum, 0)
        scaled, rest = divmod(over, under)
        scaled += 2 * rest > under or (2 * rest == under and scaled & 1)
        # The exponent's field is one less for subnormals, and a carry into the next binade is what adding to the bits does by itself.
        bits = scaled + ((quantum + self.bias + self.fraction - 1) << self.fraction)
        return sign | min(bits, self.infinity)

    def special(self, compute: Callable[..., Any], *bits: Bits) -> Bits:
        """A result that is a zero, an infinity or NaN, by IEEE arithmetic in f64."""
        with np.errstate(all="ignore"):
            value = float(compute(*(np.float64(self.value(b)) for b in bits)))
        return self.from_special(value)

    def from_special(self, value: float) -> Bits:
        assert value == 0 or not math.isfinite(value)
        if math.isnan(value):
            return self.nan
        return (self.infinity if value else 0) | (self.sign if math.copysign(1, value) < 0 else 0)


FORMATS: Mapping[Type, Format] = {
    f8e4m3: Format(f8e4m3, 4, 3, infinities=False), f8e5m2: Format(f8e5m2, 5, 2), f16: Format(f16, 5, 10), bf16: Format(bf16, 8, 7), f32: Format(f32, 8, 23),
    f64: Format(f64, 11, 52),
}  # fmt: skip
COMPUTED: tuple[Type, ...] = (f16, bf16, f32, f64)  # what ops compute with

# ---------------------------------------------------------------- ops


def add(f: Format, a: Bits, b: Bits) -> Bits:
    if not (f.is_finite(a) and f.is_finite(b)):
        return f.special(lambda x, y: x + y, a, b)
    return f.rounded(Fraction(f.value(a)) + Fraction(f.value(b)), a & b & f.sign if not f.magnitude(a) else 0)


def neg(f: Format, a: Bits) -> Bits:
    return a ^ f.sign


def sub(f: Format, a: Bits, b: Bits) -> Bits:
    return add(f, a, neg(f, b))


def mul(f: Format, a: Bits, b: Bits) -> Bits:
    if not (f.is_finite(a) and f.is_finite(b)):
        return f.special(lambda x, y: x * y, a, b)
    return f.rounded(Fraction(f.value(a)) * Fraction(f.value(b))) | ((a ^ b) & f.sign)


def div(f: Format, a: Bits, b: Bits) -> Bits:
    if not (f.is_finite(a) and f.is_finite(b) and f.magnitude(b)):
        return f.special(lambda x, y: x / y, a, b)
    return f.rounded(Fraction(f.value(a)) / Fraction(f.value(b))) | ((a ^ b) & f.sign)


def rem(f: Format, a: Bits, b: Bits) -> Bits:
    if f.is_nan(a) or f.is_nan(b) or f.is_inf(a) or not f.magnitude(b):
        return f.nan
    if f.is_inf(b):
        return a
    x, y = abs(Fraction(f.value(a))), abs(Fraction(f.value(b)))
    return f.rounded(x % y) | (a & f.sign)


def fma(f: Format, a: Bits, b: Bits, c: Bits) -> Bits:
    if not (f.is_finite(a) and f.is_finite(b)):
        return f.special(lambda x, y, z: x * y + z, a, b, c)
    if not f.is_finite(c):
        return f.nan if f.is_nan(c) else c
    product = Fraction(f.value(a)) * Fraction(f.value(b))
    return f.rounded(product + Fraction(f.value(c)), (a ^ b) & c & f.sign if product == 0 else 0)


def sqrt(f: Format, a: Bits) -> Bits:
    if f.is_nan(a) or not f.magnitude(a) or a == f.infinity:
        return a
    if a & f.sign:
        return f.nan
    # An integer root with so many bits that the last one only says "more than".
    shift = 2 * (f.bias + 2 * f.fraction)
    scaled = Fraction(f.value(a)) * 2**shift
    root = math.isqrt(int(scaled))
    return f.rounded(Fraction(2 * root + (root * root != scaled), 2 ** (shift // 2 + 1)))


def _whole(pick: Callable[[float], int]) -> Callable[[Format, Bits], Bits]:
    def apply(f: Format, a: Bits) -> Bits:
        return f.rounded(Fraction(pick(f.value(a))), a & f.sign) if f.is_finite(a) else a

    return apply


floor = _whole(math.floor)


def _extreme(wanted: Callable[[float, float], bool], zero: Callable[[Bits, Bits], Bits]) -> Callable[[Format, Bits, Bits], Bits]:
    def apply(f: Format, a: Bits, b: Bits) -> Bits:
        if f.is_nan(a) or f.is_nan(b):
            return b if f.is_nan(a) else a
        x, y = f.value(a), f.value(b)
        if x == y:
            return zero(a, b)
        return a if wanted(x, y) else b

    return apply


least = _extreme(lambda x, y: x < y, lambda a, b: a | b)
greatest = _extreme(lambda x, y: x > y, lambda a, b: a & b)


def sign(f: Format, a: Bits) -> Bits:
    return a if f.is_nan(a) or not f.magnitude(a) else f.one | (a & f.sign)


def clamp(f: Format, x: Bits, low: Bits, high: Bits) -> Bits:
    return least(f, greatest(f, x, low), high)


def saturate(f: Format, x: Bits) -> Bits:
    return clamp(f, x, 0, f.one)


def smoothstep(f: Format, low: Bits, high: Bits, x: Bits) -> Bits:
    t = saturate(f, div(f, sub(f, x, low), sub(f, high, low)))
    two, three = f.rounded(Fraction(2)), f.rounded(Fraction(3))
    return mul(f, mul(f, t, t), sub(f, three, mul(f, two, t)))


# 50 digits: the nearest number of every format follows from them.
_PI = Fraction("3.1415926535897932384626433832795028841971693993751")


def _nan_or(f: Format, *bits: Bits) -> bool:
    return any(f.is_nan(b) for b in bits)


def nextafter(f: Format, a: Bits, b: Bits) -> Bits:
    x, y = f.value(a), f.value(b)
    if _nan_or(f, a, b):
        return f.nan
    if x == y:
        return b
    if x == 0:
        return 1 | (b & f.sign)
    return a + 1 if (y > x) == (x > 0) else a - 1


def modf_fraction(f: Format, a: Bits) -> Bits:
    if not f.is_finite(a):
        return f.nan if f.is_nan(a) else a & f.sign
    return f.rounded(abs(Fraction(f.value(a))) % 1) | (a & f.sign)


def frexp_fraction(f: Format, a: Bits) -> Bits:
    return f.rounded(Fraction(math.frexp(f.value(a))[0]), a & f.sign) if f.is_finite(a) else a


def ldexp(f: Format, a: Bits, e: int) -> Bits:
    if not f.is_finite(a) or not f.magnitude(a):
        return a
    return f.rounded(Fraction(f.value(a)) * Fraction(2) ** min(max(e, -5000), 5000))


def remainder(f: Format, a: Bits, b: Bits) -> Bits:
    if _nan_or(f, a, b) or f.is_inf(a) or not f.magnitude(b):
        return f.nan
    if f.is_inf(b):
        return a
    x, y = Fraction(f.value(a)), Fraction(f.value(b))
    return f.rounded(x - round(x / y) * y, a & f.sign)


def quantize_f16(f: Format, a: Bits) -> Bits:
    if not f.is_finite(a):
        return a
    half = FORMATS[f16]
    near = half.value(half.rounded(Fraction(f.value(a))))
    return f.rounded(Fraction(near), a & f.sign) if math.isfinite(near) else f.infinity | (a & f.sign)


FLOAT_ORACLES: Mapping[str, Callable[..., Any]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "rem": rem,
    "fma": fma,
    "neg": neg,
    "abs": lambda f, a: f.magnitude(a),
    "sign": sign,
    "min": least,
    "max": greatest,
    "clamp": clamp,
    "sqrt": sqrt,
    "rsqrt": lambda f, a: div(f, f.one, sqrt(f, a)),
    "floor": floor,
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
    "fract": lambda f, a: sub(f, a, floor(f, a)),
    "eq": lambda f, a, b: f.value(a) == f.value(b),
    "ne": lambda f, a, b: f.value(a) != f.value(b),
    "lt": lambda f, a, b: f.value(a) < f.value(b),
    "le": lambda f, a, b: f.value(a) <= f.value(b),
    "gt": lambda f, a, b: f.value(a) > f.value(b),
    "ge": lambda f, a, b: f.value(a) >= f.value(b),
    "is_nan": Format.is_nan,
    "is_inf": Format.is_inf,
    "is_finite": Format.is_finite,
    "step": lambda f, edge, x: 0 if f.value(x) < f.value(edge) else f.one,
    "smoothstep": smoothstep,
    "mix": lambda f, a, b, t: fma(f, t, b, fma(f, neg(f, t), a, a)),
    "saturate": saturate,
    "degrees": lambda f, a: mul(f, a, f.rounded(180 / _PI)),
    "radians": lambda f, a: mul(f, a, f.rounded(_PI / 180)),
    "copysign": lambda f, a, b: f.magnitude(a) | (0 if f.is_nan(b) else b & f.sign),
    "nextafter": nextafter,
    "modf_fraction": modf_fraction,
    "frexp_fraction": frexp_fraction,
    "frexp_exponent": lambda f, a: math.frexp(f.value(a))[1] if f.is_finite(a) else 0,
    "ldexp": ldexp,
    "remainder": remainder,
    "quantize_f16": quantize_f16,
}
