"""What tests of the transcendental functions of f64 share: exact values, errors in units of the last place, and arguments.

* `exact(name, *arguments)` is mpmath's value of one set of arguments, as a fraction of an f64's last place can be told from it.
* `wide(name)` computes over arrays in the 80 bits of x87, by NumPy and the C library: good to some 2^-61 of the result, so a million arguments
  take a second. `HAS_WIDE` says whether this machine has them. What it finds to be worst is told again by `exact`.
* `errors(got, exact)` measures, `error(got, exact)` a single one; a wrong NaN, infinity or sign of zero is an infinite error.
* `samples(name, count)` draws arguments: all exponents alike, where the function bends, and around its borders; `hard(name)` has those that
  reductions and expansions find hardest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Final

import mpmath
import numpy as np

from vyre_py.ir.language.ops import OPS

__all__ = ["HAS_WIDE", "WIDE_ULP", "error", "errors", "exact", "hard", "nearby", "samples", "wide"]

Array = np.ndarray[Any, np.dtype[Any]]

HAS_WIDE: Final = np.finfo(np.longdouble).nmant == 63
WIDE_ULP: Final = 0.01  # what `wide` may be off by, in ULP of f64: at most 5 of its own, by the manual of the C library

# ---------------------------------------------------------------- exact values


def _power(x: Any, y: Any) -> Any:
    return mpmath.power(abs(x), y) * (-1 if x < 0 and y % 2 else 1)


def _erfcx(x: Any) -> Any:
    if x > _SERIES:
        return (1 - 1 / (2 * x * x) + 3 / (2 * x * x) ** 2) / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x) if x > -_NOTHING else mpmath.mpf(2) ** 2000


def _lgamma(x: Any) -> Any:
    if x <= 0 and mpmath.isint(x):
        return mpmath.inf
    return mpmath.re(mpmath.loggamma(x)) if x > 0 else mpmath.log(abs(mpmath.gamma(x)))


_SERIES: Final = 2.0**20  # from here on three terms of the asymptotic series are enough
_EXACT: Final[Mapping[str, Callable[..., Any]]] = {
    "exp2": lambda x: mpmath.power(2, x), "exp10": lambda x: mpmath.power(10, x), "log2": lambda x: mpmath.log(x, 2),
    "cbrt": lambda x: mpmath.cbrt(abs(x)) * mpmath.sign(x), "pow": _power,
    "hypot3": lambda x, y, z: mpmath.sqrt(x * x + y * y + z * z), "erfcx": _erfcx, "lgamma": _lgamma,
}  # fmt: skip
_BITS: Final = 160
_NOTHING: Final = 100.0  # erfc is far below the least f64 from here on, and mpmath slow
_ANGLES: Final = ("sin", "cos", "tan")


def exact(name: str, *arguments: float, bits: int = _BITS) -> Any:
    """The function of finite arguments inside its domain, as an mpmath number of so many significant bits and more."""
    if name == "erfc" and arguments[0] > _NOTHING:
        return mpmath.mpf(2) ** -2000
    # mpmath reduces angles by itself, but a value next to its root or to 1 needs as many bits again as the argument has exponent.
    with mpmath.workprec(bits + (1200 if name in _ANGLES else 120)):
        return mpmath.re(_EXACT.get(name, getattr(mpmath, name, None))(*map(mpmath.mpf, arguments)))


_NAMES: Final = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2", "pow": "power",
}  # fmt: skip


def wide(name: str, *arguments: Array) -> Array:
    """The function over arrays of f64, in x87's 80 bits; those that NumPy lacks by mpmath."""
    operands = [x.astype(np.longdouble) for x in arguments]
    with np.errstate(all="ignore"):
        if name == "exp10":
            return np.power(np.longdouble(10), operands[0])
        if name == "hypot3":
            return np.asarray(np.hypot(np.hypot(operands[0], operands[1]), operands[2]))
        if name in _ENDS:
            return np.array([_extended(name, float(x)) for x in arguments[0]], np.longdouble)
        found: Array = getattr(np, _NAMES.get(name, name))(*operands)
        return found


# Of the functions that NumPy lacks, what they are for -infinity and infinity.
_ENDS: Final = {"erf": (-1.0, 1.0), "erfc": (2.0, 0.0), "erfcx": (math.inf, 0.0), "erfinv": (math.nan, math.nan), "lgamma": (math.inf, math.inf)}


def _extended(name: str, x: float) -> Any:
    if not math.isfinite(x):
        return np.longdouble(math.nan if math.isnan(x) else _ENDS[name][x > 0])
    if name == "erfinv" and abs(x) >= 1:
        return np.longdouble(math.copysign(math.inf, x) if abs(x) == 1 else math.nan)
    if name == "lgamma" and (x in (1.0, 2.0) or (x <= 0 and x == math.floor(x))):  # which have no fraction and exponent
        return np.longdouble(math.inf if x <= 0 else 0.0)
    if x == 0:
        return np.longdouble(1.0 if name.startswith("erfc") else x)
    with mpmath.workprec(80):
        value, shift = mpmath.frexp(exact(name, x, bits=0))
        upper = float(value)
        return np.ldexp(np.longdouble(upper) + np.longdouble(float(value - upper)), shift)


# ---------------------------------------------------------------- errors

_PRECISION, _LEAST, _OVERFLOW = 53, -1022, 1024


def errors(got: Array, exact: Array) -> Array:
    """The errors of f64 results in ULP, which are those of the exact result, subnormal ones included: `exact` is what `wide` gives. Infinite where one of
    the two is NaN alone, a pole is missed, or a zero has the wrong sign. An infinite result counts as 2^1024, and so does an exact value above it.
    """
    with np.errstate(all="ignore"):
        top = np.longdouble(2) ** _OVERFLOW
        bounded = np.clip(exact, -top, top)
        exponent = np.where(bounded == 0, _LEAST, np.clip(np.frexp(bounded)[1] - 1, _LEAST, _OVERFLOW - 1))
        found = np.abs(np.clip(got.astype(np.longdouble), -top, top) - bounded) / np.ldexp(np.longdouble(1), exponent - (_PRECISION - 1))
        number = ~np.isnan(exact)
        wrong = np.isnan(got) == number
        wrong |= np.isinf(exact) & (got != exact)
        wrong |= number & (got == 0) & (np.signbit(got) != np.signbit(exact))
        return np.where(wrong, np.inf, np.where(number, found, 0)).astype(np.float64)


def error(got: float, exact: Any) -> float:
    """The error of one f64 in ULP, of an mpmath number."""
    if mpmath.isinf(exact) or mpmath.isnan(exact):
        return 0.0 if got == exact or (math.isnan(got) and mpmath.isnan(exact)) else math.inf
    with mpmath.workprec(_BITS + 1200):
        sign, mantissa, exponent, bits = exact._mpf_
        place = max(exponent + bits - 1, _LEAST) if mantissa else _LEAST
        if place >= _OVERFLOW:
            exact, place = mpmath.mpf(2) ** _OVERFLOW * (-1 if sign else 1), _OVERFLOW - 1
        found = mpmath.mpf(got) if math.isfinite(got) else mpmath.mpf(2) ** _OVERFLOW * math.copysign(1, got)
        return math.inf if math.isnan(got) else float(abs(found - exact) * mpmath.mpf(2) ** (_PRECISION - 1 - place))


# ---------------------------------------------------------------- arguments


def nearby(values: Any, steps: int = 2) -> Array:
    """The values as f64, and `steps` neighbours on each side."""
    bits = np.atleast_1d(np.asarray(values, np.float64)).view(np.int64)
    with np.errstate(over="ignore"):
        return (bits[:, None] + np.arange(-steps, steps + 1)).ravel().view(np.float64)


@cache
def near_quarter_turns() -> Array:
    """For every exponent the significands that come nearest to multiples of pi/2: denominators of the convergents of
    2^e 2/pi (best approximations), as far as they have 40 bits and more."""
    found = []
    with mpmath.workprec(2600):
        turns = 2 / mpmath.pi
        for exponent in range(-60, 972):
            scaled = Fraction(int(mpmath.floor(turns * mpmath.mpf(2) ** (exponent + 400))), 2**400)
            before, now, rest = 0, 1, scaled
            while now < 1 << 53:
                if now >> 40:
                    found.append(now * 2.0**exponent)
                part = rest - rest.numerator // rest.denominator
                if part == 0:
                    break
                rest = 1 / part
                before, now = now, before + (rest.numerator // rest.denominator) * now
    return np.array(sorted(set(found)))


_LN2: Final = math.log(2.0)
_POWERS: Final = 2.0 ** np.arange(-1074, 1024)
# Where a function is neither trivial nor constant, and ranges inside of it.
_RANGES: Final[Mapping[str, tuple[tuple[float, float], ...]]] = {
    "exp": ((-746.0, 711.0), (-1.0, 1.0)), "exp2": ((-1076.0, 1025.0), (-1.0, 1.0)), "exp10": ((-325.0, 310.0), (-1.0, 1.0)),
    "expm1": ((-38.0, 711.0), (-1.0, 1.0)),
    "log": ((0.0, 8.0), (0.5, 2.0)), "log2": ((0.0, 8.0), (0.5, 2.0)), "log10": ((0.0, 8.0), (0.5, 2.0)), "log1p": ((-1.0, 8.0), (-0.5, 0.5)),
    "sin": ((-8.0, 8.0), (-2e7, 2e7)), "cos": ((-8.0, 8.0), (-2e7, 2e7)), "tan": ((-8.0, 8.0), (-2e7, 2e7)),
    "asin": ((-1.0, 1.0), (0.4, 0.6)), "acos": ((-1.0, 1.0), (0.4, 0.6)), "atan": ((-8.0, 8.0), (-1.0, 1.0)),
    "sinh": ((-712.0, 712.0), (-2.0, 2.0)), "cosh": ((-712.0, 712.0), (-2.0, 2.0)), "tanh": ((-20.0, 20.0), (-1.0, 1.0)),
    "asinh": ((-8.0, 8.0), (-0.6, 0.6)), "acosh": ((1.0, 8.0), (1.0, 1.2)), "atanh": ((-1.0, 1.0), (-0.6, 0.6)),
    "cbrt": ((-8.0, 8.0), (1.0, 8.0)), "erf": ((-6.0, 6.0), (-1.2, 1.2)), "erfc": ((-6.0, 27.3), (-1.0, 2.0)),
    "erfcx": ((-26.7, 27.0), (-1.0, 20.0)), "erfinv": ((-1.0, 1.0), (0.99, 1.0)), "lgamma": ((-18.0, 18.0), (0.5, 2.5)),
    "atan2": ((-4.0, 4.0), (-1.0, 1.0)), "pow": ((0.0, 4.0), (0.99, 1.01)), "hypot": ((-4.0, 4.0), (1.0, 2.0)),
    "hypot3": ((-4.0, 4.0), (1.0, 2.0)),
}  # fmt: skip


def samples(name: str, count: int, seed: int = 1) -> tuple[Array, ...]:
    """About `count` f64 arguments for each operand: a third of all bit patterns, the others from the ranges where the function bends. Those of several
    operands are put together at random, and some are small multiples of one another."""
    draw = np.random.default_rng([seed, *name.encode()])
    if name == "pow":
        return _powers(draw, count)
    drawn = [_drawn(draw, name, count) for _ in OPS[name].operands]
    some = slice(0, count // 6)
    for other in drawn[1:]:
        with np.errstate(all="ignore"):
            other[some] = drawn[0][some] * 2.0 ** draw.uniform(-30.0, 30.0, count // 6)
    return tuple(drawn)


def _drawn(draw: np.random.Generator, name: str, count: int) -> Array:
    third = count // 3
    parts = [draw.integers(0, 1 << 64, third, dtype=np.uint64).view(np.float64), *(draw.uniform(low, high, third) for low, high in _RANGES[name])]
    return np.concatenate(parts)


def _powers(draw: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Bases of all sizes and near 1, with exponents that give results of all sizes, subnormal ones and those near overflow among them, and any at all."""
    third = count // 3
    any_, other = (draw.integers(0, 1 << 64, third, dtype=np.uint64).view(np.float64) for _ in range(2))
    near = 1.0 + draw.choice([-1.0, 1.0], third) * 2.0 ** draw.uniform(-53.0, -1.0, third)
    ranges = [draw.uniform(0.0, 4.0, third), near]
    with np.errstate(all="ignore"):
        exponents = [draw.uniform(-1080.0, 1030.0, third) / np.log2(x) for x in ranges]
        # Of negative bases whole exponents, and of any base some that fit its size.
        other[::2] = draw.uniform(-1080.0, 1030.0, other[::2].size) / np.log2(np.abs(any_[::2]))
    whole = np.round(exponents[0][::5])
    exponents[0][::5], ranges[0][::5] = whole, -ranges[0][::5]
    return np.concatenate([any_, *ranges]), np.concatenate([other, *exponents])


def _halves(low: int, high: int, width: float) -> Array:
    """The borders of the ranges n - 1/2 to n + 1/2 of a reduction, times the width of one."""
    return (np.arange(low, high) + 0.5) * width


def _signed(x: Array) -> Array:
    return np.concatenate([x, -x])


_LOGARITHMS: Final = nearby(np.concatenate([np.outer(_POWERS, [math.sqrt(0.5), 1.0]).ravel(), 1.0 + _signed(_POWERS[974:1074:3])]), 1)
_EXPONENTS: Final[Mapping[str, tuple[float, tuple[float, ...]]]] = {
    "exp": (_LN2, (709.782712893384, -708.3964185322641, -744.4400719213812, -745.1332191019412, -746.0, 710.0)),
    "exp2": (1.0, (-1022.0, -1074.0, -1074.5, -1075.0, 1024.0)),
    "exp10": (_LN2 / math.log(10.0), (308.25471555991675, -307.6526555685888, -323.3062153431158, -323.60724533877976, *map(float, range(-323, 309)))),
    "expm1": (_LN2, (709.782712893384, -37.42994775023705, -36.7368005696771, 2.0**-54, -(2.0**-54))),
    "sinh": (_LN2, (710.4758600739439, 711.0)),
    "cosh": (_LN2, (710.4758600739439, 711.0)),
    "tanh": (_LN2 / 2, (0.36, -0.36, 19.06154746539849, 20.0)),
}


@cache
def hard(name: str) -> tuple[Array, ...]:
    """Finite arguments at the borders of reductions and formulas, at the ends of domains, near roots and poles, and powers of two of all sizes."""
    sizes = _signed(_POWERS)
    if len(OPS[name].operands) == 2:
        return _hard_pairs(name)
    if name == "hypot3":
        x, y = _hard_pairs("hypot")
        return x, y, np.roll(x, 3) * 0.75
    if name in _EXPONENTS:
        width, ends = _EXPONENTS[name]
        return (nearby(np.concatenate([_halves(-1080, 1026, width), ends, sizes[::5]]), 1),)
    if name in _ANGLES:
        borders = nearby(2.0 ** np.arange(-28.0, 22.0))
        return (_signed(np.concatenate([near_quarter_turns(), nearby(np.arange(1, 400) * math.pi / 4, 1), borders, _POWERS[::3]])),)
    if name in ("log", "log2", "log10", "log1p"):
        return (_LOGARITHMS - 1.0 if name == "log1p" else _LOGARITHMS,)
    own = {
        "asin": nearby([0.5, 1.0]), "acos": nearby([0.5, 1.0]), "atan": nearby([1.0, 2.0**120]), "acosh": nearby([math.sqrt(1.25), 2.0**30]),
        "asinh": nearby([0.5, 2.0**30]), "atanh": nearby([0.5, 1.0]), "cbrt": nearby(np.concatenate([np.arange(1.0, 99.0) ** 3, [2.0**-700]])),
        "erf": nearby([1.0, 6.0, 5.921587195794507]), "erfc": nearby([0.5, 1.5, 2.5, 26.543258454250987, 27.226017111108366, 27.3]),
        "erfinv": nearby(1.0 - 2.0 ** -np.arange(1.0, 54.0)), "erfcx": nearby([2.0**28, 26.628735713751492, 26.7]),
        "lgamma": _gamma_borders(),
    }[name]  # fmt: skip
    ends = 1.0 - 2.0 ** np.arange(-53.0, 0.0)
    beyond = 1.0 + 2.0 ** np.arange(-52.0, 10.0)
    return (np.concatenate([_signed(np.concatenate([own, ends, beyond])), sizes]),)


def _gamma_borders() -> Array:
    """Numbers next to poles, and to roots and where their polynomials end, down to where f64 holds none; and where formulas of the others meet."""
    roots = np.array([-3.143580888349980, -2.747682646727413, -2.457024738220801, *(
        -n + side / math.factorial(n) for n in range(4, 19) for side in (-1.0, 1.0)
    ), 1.0, 2.0])  # fmt: skip
    poles = np.array([*(-n for n in range(4, 19) for _ in range(2))], np.float64)
    ends = np.concatenate([nearby(poles + (root - poles) * share) for root in [roots[3:-2]] for share in (0.95, 0.99, 1.01, 1.05)])
    whole = -np.arange(1.0, 30.0)
    formulas = nearby([8.0, -8.0, 2.0**-27, -(2.0**-27), 0.95, 1.05, 1.9375, 2.0625, 0.5, 2.5, -17.5, 2.5599833278516383e305, -(2.0**51) - 0.5])
    return np.concatenate([nearby(roots), ends, nearby(whole), formulas])


def _hard_pairs(name: str) -> tuple[Array, Array]:
    if name == "pow":
        near = np.concatenate([1.0 + 2.0 ** np.arange(-52.0, -2.0), 1.0 - 2.0 ** np.arange(-53.0, -2.0)])
        x = np.concatenate([np.repeat(near, 3), -np.arange(1.0, 60.0), _POWERS[::9], np.full(20, 10.0), np.full(9, -1.0)])
        edge = np.outer(1.0 / np.log2(near), [1023.99, -1021.3, -1073.8]).ravel()
        whole = np.tile([3.0, 4.0, -5.0], 20)[:59]
        return x, np.concatenate([edge, whole, np.resize([0.5, -0.5, 1.0, -1.0, 2.0], _POWERS[::9].size), np.arange(1.0, 21.0), 2.0 ** np.arange(50.0, 59.0)])
    sizes = np.concatenate([_POWERS[::40], nearby([1.0, 2.0**500, 2.0**-400, 2.2250738585072014e-308])])
    x, y = (grid.ravel() for grid in np.meshgrid(sizes, sizes))
    return (x, -y) if name == "hypot" else (np.concatenate([x, -x]), np.concatenate([y, -y[::-1]]))
