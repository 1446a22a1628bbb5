"""Floats as words of their own width: what expansions that work on bit patterns share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Atom, Const
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, signed_of, u16, u32, u64
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["FORMATS", "NARROW", "Format", "Words", "with_sign_of", "words_of"]

NARROW: Final = frozenset({f16, bf16})


@dataclass(frozen=True, slots=True)
class Format:
    """A float format in words of its own width: `fraction` bits below the exponent."""

    type: Type
    word: Type
    fraction: int

    @property
    def signed(self) -> Type:
        """The word as a signed integer."""
        return signed_of(self.word)

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.word.bits - 1)

    @property
    def magnitude(self) -> int:
        """All bits but the sign."""
        return self.sign - 1

    @property
    def infinity(self) -> int:
        """The bits of infinity."""
        return self.sign - (1 << self.fraction)

    @property
    def bias(self) -> int:
        """The exponent's field of 1."""
        return self.infinity >> (self.fraction + 1)


FORMATS: Final[Mapping[Type, Format]] = {
    t: Format(t, word, fraction) for t, word, fraction in ((f16, u16, 10), (bf16, u16, 7), (f32, u32, 23), (f64, u64, 52))
}


class Words:
    """Arithmetic on the words of a format; whole numbers stand for constants."""

    def __init__(self, m: MathBuilder, format_: Format) -> None:
        self.m, self.format, self.t = m, format_, format_.word

    def __call__(self, name: str, *operands: Atom | int) -> Atom:
        """The op of this name."""
        return self.m(name, *[Const(self.t, a) if isinstance(a, int) else a for a in operands])

    def pick(self, condition: Atom, a: Atom | int, b: Atom | int) -> Atom:
        """a where the condition is true, else b."""
        return self.m("select", condition, *[Const(self.t, x) if isinstance(x, int) else x for x in (a, b)])

    def split(self, x: Atom) -> tuple[Atom, Atom]:
        """Magnitude and sign of a float, as bits; a NaN is the canonical one, which is positive."""
        bits = self.m.bitcast(x, self.t)
        return self("and", bits, self.format.magnitude), self("and", bits, self.format.sign)

    def joined(self, magnitude: Atom, sign: Atom) -> Atom:
        """The float of these bits."""
        return self.m.bitcast(self("or", magnitude, sign), self.format.type)

    def normalised(self, magnitude: Atom) -> tuple[Atom, Atom]:
        """A magnitude that is finite and not 0, as a word with its top bit set, and a number that counts its exponent: 1 for the least normal
        one's, and below 0, wrapped, for subnormal ones."""
        fraction = self.format.fraction
        field = self("shr", magnitude, fraction)
        normal = self("ne", field, 0)
        significand = self("or", self("and", magnitude, (1 << fraction) - 1), self.pick(normal, 1 << fraction, 0))
        zeros = self("clz", significand)
        exponent = self("sub", self("max", field, 1), self("sub", zeros, self.t.bits - 1 - fraction))
        return self("shl", significand, zeros), exponent


def words_of(m: MathBuilder, type_: Type) -> Words:
    """The words of a float type."""
    return Words(m, FORMATS[type_])


def with_sign_of(m: MathBuilder, magnitude: Atom, x: Atom) -> Atom:
    """`magnitude`, which has no sign of its own or is NaN, with the sign of x, zeros included: what odd functions do."""
    w = words_of(m, x.type)
    sign = w("and", m.bitcast(x, w.t), w.format.sign)
    return w.joined(m.bitcast(magnitude, w.t), sign)
