"""Transfer functions of the range analysis: one for each kind of op, by name in the op table. An op without one gives the range of its type.

A range bounds a value as a mathematical integer: it lies in [low, high], it is at most each form in `uppers`, and at least each form in
`lowers`. An op that may wrap gives the range of its type: facts never pass through a wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Final, Protocol

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Atom
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Kind, Type
from vyre_py.ir.passes.bounds.polynomials import Form, SizeFacts, constant, minus, plus, shifted, times

__all__ = ["BOOLEAN", "TRANSFER", "Facts", "Range", "difference", "exactly", "full", "join", "meet", "shift", "total"]

MAX_FORMS: Final = 4
MAX_COEFFICIENT: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Range:
    """See the module."""

    low: int
    high: int
    uppers: tuple[Form, ...] = ()
    lowers: tuple[Form, ...] = ()

    def above(self) -> Iterator[Form]:
        """Forms that are at least the value, the constant one last."""
        yield from self.uppers
        yield constant(self.high)

    def below(self) -> Iterator[Form]:
        """Forms that are at most the value, the constant one last."""
        yield from self.lowers
        yield constant(self.low)


class Facts(Protocol):
    """What a row may ask beyond its operands' ranges."""

    sizes: SizeFacts

    def distance(self, a: Atom, b: Atom) -> int | None:
        """The least c known with a <= b + c."""


Rule = Callable[[Facts, Type, tuple[Atom, ...], tuple[Range, ...]], Range | None]
BOOLEAN: Final = Range(0, 1)


def full(type_: Type) -> Range:
    """Every value of a type; a float's stands for nothing."""
    return Range(type_.minimum, type_.maximum) if type_.is_integer else BOOLEAN


def exactly(value: int) -> Range:
    """One value."""
    return Range(value, value)


def _few(forms: Iterable[Form | None]) -> tuple[Form, ...]:
    """The first forms that say something about sizes, without repeats; a bound of half a type's range says nothing."""
    kept: list[Form] = []
    for form in forms:
        if form is not None and any(form) and form not in kept and max(map(abs, form.values())) < MAX_COEFFICIENT:
            kept.append(form)
            if len(kept) == MAX_FORMS:
                break
    return tuple(kept)


def _bounded(low: int, high: int, uppers: Iterable[Form], lowers: Iterable[Form]) -> Range:
    """The range of these bounds; forms whose sizes have cancelled out are bounds like any number."""
    above, below = tuple(uppers), tuple(lowers)
    low = max([low, *(f.get((), 0) for f in below if not any(f))])
    high = min([high, *(f.get((), 0) for f in above if not any(f))])
    return Range(low, high, _few(above), _few(below))


def meet(a: Range, b: Range) -> Range:
    """Both are known. Where they contradict, the code is never reached, and `a` stays."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    return a if low > high else Range(low, high, _few((*b.uppers, *a.uppers)), _few((*b.lowers, *a.lowers)))


def shift(a: Range, by: int) -> Range:
    """The range of value + by, without wrapping."""
    return Range(
        a.low + by, a.high + by, tuple(shifted(u, by) for u in a.uppers), tuple(shifted(v, by) for v in a.lowers)
    )


def _within(facts: Facts, t: Type, made: Range) -> Range | None:
    """`made` where it is known to lie within the type, so that nothing wraps."""
    if made.low < t.minimum:
        return None
    if made.high <= t.maximum:
        return made
    if any(facts.sizes.fits(u, t.maximum) for u in made.uppers):
        return Range(made.low, t.maximum, made.uppers, made.lowers)
    return None


def _sum(a: Range, b: Range) -> Range:
    """a + b, exactly."""
    uppers = [plus(u, v) for u in a.above() for v in b.above()]
    lowers = [plus(u, v) for u in a.below() for v in b.below()]
    return _bounded(a.low + b.low, a.high + b.high, uppers, lowers)


def _gap(facts: Facts, args: tuple[Atom, ...], a: Range, b: Range) -> Range:
    """a - b, exactly."""
    low, high = a.low - b.high, a.high - b.low
    if (known := facts.distance(args[1], args[0])) is not None:
        low = max(low, -known)
    if (known := facts.distance(args[0], args[1])) is not None:
        high = min(high, known)
    uppers = [minus(u, v) for u in a.above() for v in b.below()]
    lowers = [minus(u, v) for u in a.below() for v in b.above()]
    if low < 0 and any(facts.sizes.positive(form) for form in lowers):
        low = 0
    return _bounded(low, high, uppers, lowers)


def total(facts: Facts, t: Type, a: Range, b: Range) -> Range | None:
    """a + b, or None where it may wrap."""
    return _within(facts, t, _sum(a, b))


def difference(facts: Facts, t: Type, args: tuple[Atom, ...], a: Range, b: Range) -> Range | None:
    """a - b, or None where it may wrap."""
    return _within(facts, t, _gap(facts, args, a, b))


def _add(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return total(facts, t, r[0], r[1])


def _sub(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return difference(facts, t, args, r[0], r[1])


def _exact_product(facts: Facts, a: Range, b: Range) -> Range:
    """a * b, exactly."""
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    made = Range(min(corners), max(corners))
    if a.low >= 0 and b.low >= 0:
        # Both factors lie between zero and their bounds, so the product lies below the bounds' product.
        lowers = _few(
            times(u, v) for u in a.lowers for v in b.lowers if facts.sizes.positive(u) and facts.sizes.positive(v)
        )
        made = Range(made.low, made.high, _few(times(u, v) for u in a.above() for v in b.above()), lowers)
    return made


def _product(facts: Facts, t: Type, a: Range, b: Range) -> Range | None:
    return _within(facts, t, _exact_product(facts, a, b))


def _mul(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return _product(facts, t, r[0], r[1])


def _count(t: Type, r: Range) -> int | None:
    """A shift count that is one known number."""
    return r.low & (t.bits - 1) if r.low == r.high else None


def _shl(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    if r[1].low >= 0 and r[1].high < t.bits:
        return _product(facts, t, r[0], Range(1 << r[1].low, 1 << r[1].high))
    count = _count(t, r[1])
    return None if count is None else _product(facts, t, r[0], exactly(1 << count))


def _divided(facts: Facts, form: Form, divisor: int) -> Form | None:
    """floor(form / divisor), where that is a form."""
    if all(c % divisor == 0 for m, c in form.items() if m):
        return {m: c // divisor for m, c in form.items() if c // divisor}
    # floor((f - 1) / d) = ceil(f / d) - 1
    quotient = facts.sizes.quotients.get((frozenset(plus(form, constant(1)).items()), divisor))
    return None if quotient is None else shifted(quotient, -1)


def _quotient(facts: Facts, a: Range, divisor: int) -> Range:
    """floor(a / divisor) for a >= 0 and divisor >= 1."""
    return Range(
        a.low // divisor, a.high // divisor, _few((*(_divided(facts, u, divisor) for u in a.uppers), *a.uppers))
    )


def _div(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    a, b = r
    if a.low < 0 or b.low < 0:
        return None
    if b.low == b.high and b.low > 0:
        return _quotient(facts, a, b.low)
    # x / 0 = x, so the quotient is at most x whatever the divisor is.
    divisor = next((v for v in b.lowers if v in b.uppers and len(v) == 1), None)
    made: list[Form] = list(a.uppers)
    if divisor is not None and b.low >= 1:
        made = [q for u in a.uppers if (q := _without(u, divisor)) is not None] + made
    return Range(0, a.high if b.low == 0 else a.high // b.low, _few(made))


def _without(form: Form, divisor: Form) -> Form | None:
    """floor(form / divisor) for a form f * divisor - c with 0 <= c < infinity, at most f - 1 where c > 0; else None."""
    ((factor, one),) = divisor.items()
    rest = form.get((), 0)
    if one != 1 or rest > 0:
        return None
    made: dict[tuple[int, ...], int] = {}
    for monomial, coefficient in form.items():
        if monomial:
            left = list(monomial)
            for number in factor:
                if number not in left:
                    return None
                left.remove(number)
            made[tuple(left)] = coefficient
    return shifted(made, -1 if rest < 0 else 0)


def _rem(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    a, b = r
    if a.low < 0 or b.low < 0:
        bound = max(abs(b.low), abs(b.high)) - 1
        return Range(max(a.low, -max(bound, 0)) if a.low < 0 else 0, min(max(a.high, 0), max(bound, 0)))
    below = [shifted(u, -1) for u in b.uppers] if b.low >= 1 else []
    return Range(0, max(0, min(a.high, b.high - 1)), _few((*below, *a.uppers)))


def _min(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    a, b = r
    uppers = [u for pair in zip_longest(a.uppers, b.uppers) for u in pair]
    return Range(min(a.low, b.low), min(a.high, b.high), _few(uppers), _common_lowers(facts, a, b))


def _max(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    a, b = r
    lowers = [u for pair in zip_longest(a.lowers, b.lowers) for u in pair]
    return Range(max(a.low, b.low), max(a.high, b.high), _common_uppers(facts, a, b), _few(lowers))


def _common_uppers(facts: Facts, a: Range, b: Range) -> tuple[Form, ...]:
    """The forms that are at least both: those of one, raised by what the other may lie above them."""
    raised: list[Form] = []
    for form, other in (*((u, b) for u in a.uppers), *((u, a) for u in b.uppers)):
        room = [minus(form, v) for v in other.above()]
        leasts = [least for least in map(facts.sizes.least, room) if least is not None]
        if any(facts.sizes.positive(r) for r in room):
            raised.append(form)
        elif leasts:
            raised.append(shifted(form, -max(leasts)))
    return _few(raised)


def _common_lowers(facts: Facts, a: Range, b: Range) -> tuple[Form, ...]:
    """The forms that are at most both."""
    pairs = [(u, b) for u in a.lowers] + [(u, a) for u in b.lowers]
    return _few(u for u, other in pairs if any(facts.sizes.positive(minus(v, u)) for v in other.below()))


def join(facts: Facts, a: Range, b: Range) -> Range:
    """One of the two."""
    return Range(min(a.low, b.low), max(a.high, b.high), _common_uppers(facts, a, b), _common_lowers(facts, a, b))


def _clamp(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    inner = _max(facts, t, args, (r[0], r[1]))
    return None if inner is None else _min(facts, t, args, (inner, r[2]))


def _and(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    positive = [x for x in r if x.low >= 0]
    return Range(0, min(x.high for x in positive), _few(u for x in positive for u in x.uppers)) if positive else None


def _or(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    if min(r[0].low, r[1].low) < 0:
        return None
    return Range(max(r[0].low, r[1].low), (1 << max(r[0].high, r[1].high).bit_length()) - 1)


def _xor(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    if min(r[0].low, r[1].low) < 0:
        return None
    return Range(0, (1 << max(r[0].high, r[1].high).bit_length()) - 1)


def _not(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    edge = -1 if t.is_signed else t.maximum
    return Range(edge - r[0].high, edge - r[0].low)


def _shr(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    count = _count(t, r[1])
    if r[0].low >= 0:
        return _quotient(facts, r[0], 1 << count) if count is not None else Range(0, r[0].high, r[0].uppers)
    return Range(r[0].low >> count, r[0].high >> count) if count is not None else None


def _neg(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return _within(facts, t, Range(-r[0].high, -r[0].low))


def _abs(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    if r[0].low >= 0:
        return r[0]
    low = 0 if r[0].high >= 0 else -r[0].high
    return Range(low, max(-r[0].low, r[0].high)) if r[0].low > t.minimum else None


def _abs_diff(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return Range(0, max(r[0].high - r[1].low, r[1].high - r[0].low, 0))


def _bits(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return Range(0, t.bits)


def _sign(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return Range(-1 if t.is_signed else 0, 1)


def _mul_hi(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    corners = [(x * y) >> t.bits for x in (r[0].low, r[0].high) for y in (r[1].low, r[1].high)]
    return Range(min(corners), max(corners))


def _cast(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    """Integer to integer: narrowing takes a multiple of 2^bits off a value too great, and adds one to a value too small."""
    source = args[0].type
    if source.kind is Kind.BOOL:
        return BOOLEAN
    if not source.is_integer:
        return None
    a = r[0]
    above, below = a.high > t.maximum, a.low < t.minimum
    if not above and not below:
        return a
    return Range(t.minimum, t.maximum, a.uppers if not below else (), a.lowers if not above else ())


def _saturated(t: Type, exact: Range) -> Range:
    """What the type holds of an exact result, the ends standing for what lies beyond. Only the greater end lowers, only the lesser raises."""
    low, high = (min(max(edge, t.minimum), t.maximum) for edge in (exact.low, exact.high))
    return Range(low, high, exact.uppers if exact.low >= t.minimum else (), exact.lowers if exact.high <= t.maximum else ())


def _saturating_add(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return _saturated(t, _sum(*r))


def _saturating_sub(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    made = _saturated(t, _gap(facts, args, *r))
    # Less something that is not negative, the first operand is an upper bound, saturated or not.
    return replace(made, uppers=_few((*made.uppers, *r[0].uppers))) if r[1].low >= 0 else made


def _saturating_mul(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    return _saturated(t, _exact_product(facts, *r))


def _extract_bits(facts: Facts, t: Type, args: tuple[Atom, ...], r: tuple[Range, ...]) -> Range | None:
    most = min(r[2].high, t.bits)
    if t.is_signed:
        return Range(-((1 << most) // 2), max(0, (1 << most) // 2 - 1))
    return Range(0, min(r[0].high, (1 << most) - 1), r[0].uppers)


# By the name that rows of the op table have for it. A row whose rule is not here fails the import.
_RULES: Final[Mapping[str, Rule]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "rem": _rem, "neg": _neg, "abs": _abs, "sign": _sign, "min": _min, "max": _max,
    "clamp": _clamp, "and": _and, "or": _or, "xor": _xor, "not": _not, "shl": _shl, "shr": _shr, "bits": _bits, "mul_hi": _mul_hi,
    "abs_diff": _abs_diff, "cast": _cast, "saturating_add": _saturating_add, "saturating_sub": _saturating_sub,
    "saturating_mul": _saturating_mul, "extract_bits": _extract_bits,
}  # fmt: skip

TRANSFER: Final[Mapping[str, Rule]] = {name: _RULES[op.range_rule] for name, op in OPS.items() if op.range_rule}
