"""What tests of `ir/math` share: values to compare with, errors in units of the last place, arguments, and special values.

* `reference(name)` computes in f64, with errors of some 2^-50 of the result: exact for the purpose of comparing 24 bits.
* `compute(name, *arguments)` runs one op over arrays on the interpreter, expanded as targets expand it.
* `ulp_error(got, exact, type_)` measures; a wrong NaN, infinity or sign of zero is an infinite error.
* `samples(name, count)` draws arguments: all exponents alike, where the function bends, and around its borders.
* `SPECIAL[name]` lists arguments with the one right result, after C's Annex F.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Final

import mpmath
import numpy as np
import scipy.special

from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.nodes import Access, Space
from vyre_py.ir.language.ops import OPS, TRANSCENDENTAL
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16, f32
from vyre_py.ir.passes.pipeline import unoptimised

__all__ = [
    "SEVERAL", "REFERENCES", "SPECIAL", "UNARY", "around", "assert_bound", "assert_special", "compute", "drawn", "errors", "f32s", "near_quarter_turns",
    "program_of", "reference", "same_bits", "samples", "ulp_error", "widened",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]

UNARY: Final = tuple(name for name, row in OPS.items() if name in TRANSCENDENTAL and len(row.operands) == 1)
SEVERAL: Final = tuple(name for name in OPS if name in TRANSCENDENTAL and name not in UNARY)

# ---------------------------------------------------------------- the exact values


def _exp10(x: Array) -> Array:
    return np.power(10.0, x)


def _hypot3(x: Array, y: Array, z: Array) -> Array:
    return np.hypot(np.hypot(x, y), z)


def _erfinv(x: Array) -> Array:
    # SciPy's loses the sign of zero.
    return np.copysign(scipy.special.erfinv(x), x)


def _lgamma(x: Array) -> Array:
    found: Array = np.where(np.isinf(x), np.inf, scipy.special.gammaln(x))
    # SciPy's has an absolute error, which shows next to roots below -2.
    for k in np.flatnonzero((x < -2) & (np.abs(found) < _NEAR_ROOT)):
        with mpmath.workprec(160):
            found[k] = float(mpmath.log(abs(mpmath.gamma(mpmath.mpf(float(x[k]))))))
    return found


_NEAR_ROOT: Final = 2.0**-12
REFERENCES: Final[Mapping[str, Callable[..., Array]]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": _exp10, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": np.power, "cbrt": np.cbrt, "hypot": np.hypot, "hypot3": _hypot3, "erf": scipy.special.erf, "erfc": scipy.special.erfc,
    "erfcx": scipy.special.erfcx, "erfinv": _erfinv, "lgamma": _lgamma,
}  # fmt: skip


def reference(name: str) -> Callable[..., Array]:
    """The function over arrays of f16, bf16, f32 or f64, in f64."""

    def exact(*arguments: Array) -> Array:
        with np.errstate(all="ignore"):
            return REFERENCES[name](*map(widened, arguments))

    return exact


# ---------------------------------------------------------------- errors

# Bits of the significand, the exponent of the least normal number, and that of the first power of two that is too large.
_FORMATS: Final = {f16: (11, -14, 16), bf16: (8, -126, 128), f32: (24, -126, 128)}


def errors(xp: Any, got: Any, exact: Any, type_: Type = f32) -> tuple[Any, Any]:
    """The errors of results in ULP, and which special results are wrong: where one of the two is NaN alone, where a pole is missed, and
    where a result of zero has the wrong sign. The error there, and where both are NaN, is 0.

    A ULP is the last place that a result of `type_` has where `exact` lies. An infinite result counts as the power of two that it
    stands for, and so does an exact value above it. Both operands are in f64, arrays of NumPy or of PyTorch, whichever `xp` is.
    """
    precision, least, overflow = _FORMATS[type_]
    top = 2.0**overflow
    bounded = xp.clip(exact, -top, top)
    # The exponent's field of an f64, and from it 2^(exponent - precision + 1).
    field = xp.clip((bounded.view(xp.int64) >> 52) & 0x7FF, 1023 + least, 1023 + overflow - 1)
    unit = ((field - (precision - 1)) << 52).view(xp.float64)
    error = xp.abs(xp.clip(got, -top, top) - bounded) / unit
    number = ~xp.isnan(exact)
    wrong = xp.isnan(got) == number
    wrong = wrong | (xp.isinf(exact) & (got != exact))
    wrong = wrong | (number & (got == 0) & (xp.signbit(got) != xp.signbit(exact)))
    return xp.where(wrong | ~number, xp.zeros_like(error), error), wrong


def widened(x: Array) -> Array:
    """f16, bf16 or f32 as f64; bf16 has no direct way there in all versions of its package."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(np.float32).astype(np.float64)


def ulp_error(got: Array, exact: Array, type_: Type = f32) -> Array:
    """`errors` of results in the type, infinite where a special one is wrong."""
    with np.errstate(all="ignore"):
        error, wrong = errors(np, widened(got), exact, type_)
    return np.where(wrong, np.inf, error)


def assert_bound(name: str, bound: float, *arguments: Array, type_: Type = f32) -> None:
    """Computes the op over these arguments and holds each result against the exact one."""
    got = compute(name, *arguments, type_=type_)
    errors = ulp_error(got, reference(name)(*arguments), type_)
    worst = int(np.argmax(errors))
    at = ", ".join(float(x[worst]).hex() for x in arguments)
    print(f"{name} of {type_}: {errors.size} arguments, worst {errors[worst]:.4f} ULP at {at}")
    assert errors[worst] <= bound, f"{name}({at}) = {got[worst]} is off by {errors[worst]} ULP of {type_}"


# ---------------------------------------------------------------- computing


def program_of(name: str, type_: Type = f32) -> Program:
    """out[i] = op(x0[i], x1[i], ...)."""
    out = Assembler(f"{name}_{type_}")
    n = out.dim("n")
    i = out.let(OPS["global_id.x"], ())
    row = OPS[name]
    memories = [out.memory(f"x{k}", Space.BUFFER, type_, (n,), Access.READ) for k in range(len(row.operands))]
    result = out.memory("out", Space.BUFFER, type_, (n,), Access.READ_WRITE)
    out.store(result, (i,), out.let(row, tuple([out.load(memory, (i,)) for memory in memories])))
    return out.finish()


def compute(name: str, *arguments: Array, type_: Type = f32) -> Array:
    """The op over arrays of one length, on the interpreter."""
    result = np.zeros(arguments[0].shape, type_.dtype)
    buffers = {f"x{k}": np.ascontiguousarray(x, type_.dtype) for k, x in enumerate(arguments)}
    interpret(unoptimised(check(program_of(name, type_)), expand=frozenset({name})), {**buffers, "out": result}, {"n": result.size})
    return result


# ---------------------------------------------------------------- arguments


def around(values: Any, steps: int = 3) -> Array:
    """The values as f32, and `steps` neighbours on each side."""
    bits = np.atleast_1d(np.asarray(values, np.float32)).view(np.uint32).astype(np.int64)
    return ((bits[:, None] + np.arange(-steps, steps + 1)).ravel() & 0xFFFFFFFF).astype(np.uint32).view(np.float32)


@cache
def near_quarter_turns() -> Array:
    """For every exponent the significands that come nearest to multiples of pi/2: denominators of the convergents of
    2^e 2/pi (best approximations), and multiples of them."""
    found = []
    for exponent in range(-24, 105):
        with mpmath.workprec(400):
            scaled = mpmath.mpf(2) ** exponent * 2 / mpmath.pi
            rest = Fraction(int(mpmath.floor(scaled * 2**300)), 2**300)
        before, now = 0, 1
        while now < 1 << 24:
            found += [k * now * 2.0**exponent for k in (1, 2, 3, (1 << 23) // now + 1) if k * now < 1 << 24]
            part = rest - rest.numerator // rest.denominator
            if part == 0:
                break
            rest = 1 / part
            before, now = now, before + (rest.numerator // rest.denominator) * now
    return np.array(sorted(set(found)), np.float32)


# Where a function is neither trivial nor constant, and borders inside of it.
_RANGES: Final[Mapping[str, tuple[tuple[float, float], ...]]] = {
    "exp": ((-104.0, 89.0), (-1.0, 1.0)),
    "exp2": ((-151.0, 129.0), (-1.0, 1.0)),
    "exp10": ((-46.0, 39.0), (-1.0, 1.0)),
    "expm1": ((-18.0, 89.0), (-1.0, 1.0)),
    "log": ((0.0, 8.0), (0.5, 2.0)),
    "log2": ((0.0, 8.0), (0.5, 2.0)),
    "log10": ((0.0, 8.0), (0.5, 2.0)),
    "log1p": ((-1.0, 8.0), (-0.5, 0.5)),
    "sin": ((-8.0, 8.0), (-2e5, 2e5)),
    "cos": ((-8.0, 8.0), (-2e5, 2e5)),
    "tan": ((-8.0, 8.0), (-2e5, 2e5)),
    "asin": ((-1.0, 1.0), (0.9, 1.01)),
    "acos": ((-1.0, 1.0), (0.9, 1.01)),
    "atan": ((-8.0, 8.0), (-1.0, 1.0)),
    "sinh": ((-91.0, 91.0), (-2.0, 2.0)),
    "cosh": ((-91.0, 91.0), (-2.0, 2.0)),
    "tanh": ((-10.0, 10.0), (-1.0, 1.0)),
    "asinh": ((-8.0, 8.0), (-0.5, 0.5)),
    "acosh": ((1.0, 8.0), (1.0, 1.1)),
    "atanh": ((-1.0, 1.0), (-0.5, 0.5)),
    "cbrt": ((-8.0, 8.0), (1.0, 8.0)),
    "erf": ((-4.0, 4.0), (-1.0, 1.0)),
    "erfc": ((-4.0, 10.1), (9.1, 10.1)),
    "erfcx": ((-9.5, 4.0), (4.0, 2e4)),
    "erfinv": ((-1.0, 1.0), (0.99, 1.0)),
    "lgamma": ((-10.0, 10.0), (0.5, 2.5)),
    "atan2": ((-4.0, 4.0), (-1.0, 1.0)),
    "pow": ((0.0, 4.0), (0.99, 1.01)),
    "hypot": ((-4.0, 4.0), (1.0, 2.0)),
    "hypot3": ((-4.0, 4.0), (1.0, 2.0)),
}


def f32s(values: Any) -> Any:
    """The values, each rounded once."""
    return np.asarray(values).astype(np.float32)


def same_bits(a: Any, b: Any) -> Any:
    """Where two arrays of f32 have the same bits, or NaNs of any."""
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


def drawn(name: str) -> np.random.Generator:
    """Random numbers that are the same each time, for the tests of one op."""
    return np.random.default_rng([7, *name.encode()])


def samples(name: str, count: int, seed: int = 1) -> tuple[Array, ...]:
    """About `count` f32 arguments for each operand: a third spread evenly over all bit patterns (all exponents alike), two thirds over
    the ranges where the function bends, and all that lie around powers of two and the ends of those ranges. Those of several
    operands are put together at random, and some are close to each other."""
    draw = np.random.default_rng([seed, *name.encode()])
    operands = len(OPS[name].operands)
    return tuple(_drawn(draw, name, count, k) for k in range(operands)) if operands == 1 else _together(draw, name, count, operands)


def _drawn(draw: np.random.Generator, name: str, count: int, operand: int) -> Array:
    third = count // 3
    stride = (1 << 32) // third
    bits = (np.arange(third, dtype=np.uint64) * stride + draw.integers(0, stride, third, dtype=np.uint64)).astype(np.uint32)
    powers = 2.0 ** np.arange(-149, 128)
    borders = around([*powers, *(-powers), 0.0, np.finfo(np.float32).max, *(end for ends in _RANGES[name] for end in ends)])
    inner = [draw.uniform(low, high, third).astype(np.float32) for low, high in _RANGES[name]]
    # pow's second operand is an exponent, large where the first is near 1.
    if name == "pow" and operand == 1:
        inner = [draw.uniform(-40.0, 40.0, third).astype(np.float32), draw.uniform(-9000.0, 9000.0, third).astype(np.float32)]
    return np.concatenate([bits.view(np.float32), *inner, borders])


def _together(draw: np.random.Generator, name: str, count: int, operands: int) -> tuple[Array, ...]:
    first, *others = (_drawn(draw, name, count, k) for k in range(operands))
    third = count // 3
    for other in others:
        # The first third was in the order of the bits: any two may meet.
        draw.shuffle(other[:third])
        # Where the operands are of one magnitude, none is negligible.
        if name != "pow":
            scale = np.exp2(draw.uniform(-3.0, 3.0, third // 2)).astype(np.float32)
            with np.errstate(all="ignore"):
                other[: third // 2] = first[: third // 2] * scale
        tail = other[3 * third :]
        draw.shuffle(tail)
    return (first, *others)


# ---------------------------------------------------------------- special values

_INF, _NAN = np.inf, np.nan
_PI = np.pi
_ODD_AT_ZERO: Final = ((0.0, 0.0), (-0.0, -0.0), (_NAN, _NAN), (1e-45, 1e-45), (-1e-45, -1e-45))
_QUIET_PAIRS: Final = ((_NAN, 1.0, _NAN), (1.0, _NAN, _NAN), (_NAN, _NAN, _NAN))

_Rows = tuple[tuple[float, ...], ...]

# Name -> (operands..., result): results round to f32.
SPECIAL: Final[Mapping[str, _Rows]] = {
    "exp": (
        (0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, 0.0), (_NAN, _NAN), (88.72284, _INF), (3.4e38, _INF), (-104.0, 0.0), (-3.4e38, 0.0),
        (1e-45, 1.0), (-103.97, 1e-45),
    ),
    "exp2": (
        (0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, 0.0), (_NAN, _NAN), (128.0, _INF), (127.0, 2.0**127), (-149.0, 1e-45), (-150.0, 0.0),
        (-3.4e38, 0.0), (3.0, 8.0),
    ),
    "exp10": (
        (0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, 0.0), (_NAN, _NAN), (38.6, _INF), (-46.0, 0.0), (3.4e38, _INF), (-3.4e38, 0.0), (1.0, 10.0),
        (2.0, 100.0),
    ),
    "expm1": (*_ODD_AT_ZERO, (_INF, _INF), (-_INF, -1.0), (-3.4e38, -1.0), (88.72284, _INF), (3.4e38, _INF)),
    "log": ((1.0, 0.0), (0.0, -_INF), (-0.0, -_INF), (_INF, _INF), (-_INF, _NAN), (-1.0, _NAN), (-1e-45, _NAN), (_NAN, _NAN), (1e-45, -103.27893)),
    "log2": (
        (1.0, 0.0), (0.0, -_INF), (-0.0, -_INF), (_INF, _INF), (-_INF, _NAN), (-1.0, _NAN), (-1e-45, _NAN), (_NAN, _NAN), (1e-45, -149.0),
        (8.0, 3.0), (0.25, -2.0),
    ),
    "log10": ((1.0, 0.0), (0.0, -_INF), (-0.0, -_INF), (_INF, _INF), (-_INF, _NAN), (-1.0, _NAN), (-1e-45, _NAN), (_NAN, _NAN), (10.0, 1.0), (1000.0, 3.0)),
    "log1p": (*_ODD_AT_ZERO, (-1.0, -_INF), (-1.0000001, _NAN), (_INF, _INF), (-_INF, _NAN)),
    "sin": (*_ODD_AT_ZERO, (_INF, _NAN), (-_INF, _NAN), (1e-38, 1e-38)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (_INF, _NAN), (-_INF, _NAN), (_NAN, _NAN), (1e-45, 1.0)),
    "tan": (*_ODD_AT_ZERO, (_INF, _NAN), (-_INF, _NAN), (1e-38, 1e-38)),
    "asin": (*_ODD_AT_ZERO, (1.0, _PI / 2), (-1.0, -_PI / 2), (1.0000001, _NAN), (-1.0000001, _NAN), (_INF, _NAN), (-_INF, _NAN)),
    "acos": ((1.0, 0.0), (-1.0, _PI), (0.0, _PI / 2), (-0.0, _PI / 2), (1.0000001, _NAN), (-1.0000001, _NAN), (_INF, _NAN), (-_INF, _NAN), (_NAN, _NAN)),
    "atan": (*_ODD_AT_ZERO, (_INF, _PI / 2), (-_INF, -_PI / 2), (3.4e38, _PI / 2), (1.0, _PI / 4), (-1.0, -_PI / 4)),
    "sinh": (*_ODD_AT_ZERO, (_INF, _INF), (-_INF, -_INF), (90.0, _INF), (-3.4e38, -_INF)),
    "cosh": ((0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, _INF), (_NAN, _NAN), (90.0, _INF), (-3.4e38, _INF), (1e-45, 1.0)),
    "tanh": (*_ODD_AT_ZERO, (_INF, 1.0), (-_INF, -1.0), (3.4e38, 1.0), (-20.0, -1.0)),
    "asinh": (*_ODD_AT_ZERO, (_INF, _INF), (-_INF, -_INF)),
    "acosh": ((1.0, 0.0), (0.99999994, _NAN), (0.0, _NAN), (-0.0, _NAN), (-2.0, _NAN), (_INF, _INF), (-_INF, _NAN), (_NAN, _NAN)),
    "atanh": (*_ODD_AT_ZERO, (1.0, _INF), (-1.0, -_INF), (1.0000001, _NAN), (-1.0000001, _NAN), (_INF, _NAN), (-_INF, _NAN)),
    "cbrt": (
        (0.0, 0.0), (-0.0, -0.0), (_NAN, _NAN), (_INF, _INF), (-_INF, -_INF), (8.0, 2.0), (-27.0, -3.0), (2.0**-147, 2.0**-49),
        (-(2.0**-129), -(2.0**-43)),
    ),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (_NAN, _NAN), (1e-45, 1e-45), (-1e-45, -1e-45), (_INF, 1.0), (-_INF, -1.0), (4.0, 1.0), (-3.4e38, -1.0)),
    "erfc": ((0.0, 1.0), (-0.0, 1.0), (_NAN, _NAN), (_INF, 0.0), (-_INF, 2.0), (3.4e38, 0.0), (-3.4e38, 2.0), (11.0, 0.0), (-4.0, 2.0), (1e-45, 1.0)),
    "erfcx": ((0.0, 1.0), (-0.0, 1.0), (_NAN, _NAN), (_INF, 0.0), (-_INF, _INF), (-9.4, _INF), (-3.4e38, _INF), (1e-45, 1.0)),
    "erfinv": (*_ODD_AT_ZERO[:3], (1.0, _INF), (-1.0, -_INF), (1.0000001, _NAN), (-2.0, _NAN), (_INF, _NAN), (-_INF, _NAN)),
    "lgamma": ((1.0, 0.0), (2.0, 0.0), (0.0, _INF), (-0.0, _INF), (-3.0, _INF), (-16777216.0, _INF), (_INF, _INF), (-_INF, _INF), (_NAN, _NAN)),
    "atan2": (
        *_QUIET_PAIRS, (_NAN, _INF, _NAN), (0.0, _NAN, _NAN),
        (0.0, -0.0, _PI), (-0.0, -0.0, -_PI), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0),
        (0.0, -1.0, _PI), (-0.0, -1.0, -_PI), (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0),
        (-1.0, 0.0, -_PI / 2), (-1.0, -0.0, -_PI / 2), (1.0, 0.0, _PI / 2), (1.0, -0.0, _PI / 2),
        (1.0, -_INF, _PI), (-1.0, -_INF, -_PI), (1.0, _INF, 0.0), (-1.0, _INF, -0.0),
        (0.0, -_INF, _PI), (-0.0, _INF, -0.0), (_INF, 0.0, _PI / 2), (-_INF, -0.0, -_PI / 2),
        (_INF, 1.0, _PI / 2), (-_INF, 1.0, -_PI / 2), (_INF, -1.0, _PI / 2), (-_INF, -1.0, -_PI / 2),
        (_INF, -_INF, 3 * _PI / 4), (-_INF, -_INF, -3 * _PI / 4), (_INF, _INF, _PI / 4), (-_INF, _INF, -_PI / 4),
        (1e-45, 3e38, 0.0), (-1e-45, 3e38, -0.0), (3e38, 1e-45, _PI / 2), (1e-45, -3e38, _PI), (1e-45, 1e-45, _PI / 4), (3e38, 3e38, _PI / 4),
    ),
    "pow": (
        (_NAN, 1.0, _NAN), (2.0, _NAN, _NAN), (_NAN, _NAN, _NAN), (_NAN, 0.0, 1.0), (_NAN, -0.0, 1.0), (1.0, _NAN, 1.0),
        (0.0, -1.0, _INF), (-0.0, -1.0, -_INF), (-0.0, -3.0, -_INF), (0.0, -2.0, _INF), (-0.0, -2.0, _INF), (0.0, -0.5, _INF), (-0.0, -0.5, _INF),
        (0.0, -_INF, _INF), (-0.0, -_INF, _INF), (0.0, 1.0, 0.0), (-0.0, 3.0, -0.0), (0.0, 2.0, 0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0),
        (-1.0, _INF, 1.0), (-1.0, -_INF, 1.0), (1.0, _INF, 1.0), (1.0, -_INF, 1.0), (1.0, 3.4e38, 1.0), (3.4e38, 0.0, 1.0), (0.0, 0.0, 1.0), (-0.0, -0.0, 1.0),
        (_INF, 0.0, 1.0), (-_INF, -0.0, 1.0), (-2.0, 0.5, _NAN), (-1e-45, 1.5, _NAN), (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5),
        (0.5, -_INF, _INF), (-0.5, -_INF, _INF), (2.0, -_INF, 0.0), (-2.0, -_INF, 0.0), (0.5, _INF, 0.0), (-0.5, _INF, 0.0), (2.0, _INF, _INF),
        (-2.0, _INF, _INF),
        (-_INF, -1.0, -0.0), (-_INF, -2.0, 0.0), (-_INF, -0.5, 0.0), (-_INF, 3.0, -_INF), (-_INF, 2.0, _INF), (-_INF, 0.5, _INF), (_INF, -1.0, 0.0),
        (_INF, 0.5, _INF),
        (_INF, _INF, _INF), (_INF, -_INF, 0.0), (-_INF, _INF, _INF), (-_INF, -_INF, 0.0), (0.0, _INF, 0.0), (-0.0, _INF, 0.0),
        (-2.0, 3e38, _INF), (-2.0, 16777217.0, _INF), (-1.0, 16777215.0, -1.0), (-1.0, 16777216.0, 1.0), (2.0, -149.0, 1e-45), (2.0, 128.0, _INF),
        (10.0, 3.0, 1000.0),
    ),
    "hypot": (
        *_QUIET_PAIRS, (_INF, _NAN, _INF), (_NAN, _INF, _INF), (-_INF, _NAN, _INF), (_NAN, -_INF, _INF), (_INF, 1.0, _INF), (0.0, -_INF, _INF),
        (_INF, -_INF, _INF),
        (0.0, 0.0, 0.0), (-0.0, -0.0, 0.0), (-0.0, 3.0, 3.0), (-3.0, 0.0, 3.0), (3.0, 4.0, 5.0), (-3.0, -4.0, 5.0), (1e-45, 0.0, 1e-45),
        (3e-45, 4.2e-45, 5.6e-45),
        (3.4e38, 3.4e38, _INF), (2.0**-140, 2.0**-147, 2.0**-140),
    ),
    "hypot3": (
        (_INF, _NAN, _NAN, _INF), (_NAN, 1.0, -_INF, _INF), (_NAN, 1.0, 2.0, _NAN), (0.0, 0.0, _NAN, _NAN), (-_INF, 0.0, 1.0, _INF), (0.0, -0.0, 0.0, 0.0),
        (-0.0, -0.0, -0.0, 0.0), (2.0, -3.0, 6.0, 7.0), (-4.0, 0.0, 3.0, 5.0), (1e-45, 0.0, 0.0, 1e-45), (2.8e-45, 4.2e-45, -8.4e-45, 9.8e-45),
        (3.4e38, 1.0, 3.4e38, _INF), (2.0**126, -(2.0**127), 2.0**127, 3 * 2.0**126), (2.0**-140, 2.0**-147, 2.0**-147, 2.0**-140),
    ),
}  # fmt: skip


def assert_special(name: str) -> None:
    """Each row of `SPECIAL[name]` to the bit; any NaN will do for a NaN."""
    *arguments, expected = (np.array(column, np.float32) for column in zip(*SPECIAL[name], strict=True))
    got = compute(name, *arguments)
    same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
    assert same.all(), [(*row, float(value)) for row, value, ok in zip(SPECIAL[name], got, same, strict=True) if not ok]
