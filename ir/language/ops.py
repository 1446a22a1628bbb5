"""The op table: one row is one op.

Builder, checker, interpreter, folding, printer, parser, digest, wire form, public functions, generated pages, tests and fuzzers read this
table; each target has a table of its own with the same names. A row is plain data, and names the functions in `ir/math` and the rules
in `passes/bounds` that are about it.

One module because the ops are one table, which is read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.ir.imports import deferred, made_once
from vyre_py.ir.language.op import ORDERS, RELAXED, AtomicOp, GridFold, Law, Level, Op, Operand, Result, SubgroupOp
from vyre_py.ir.language.types import (
    SCALARS,
    Array,
    Kind,
    Type,
    bool_,
    f32,
    f64,
    i8,
    i32,
    i64,
    scalar_of,
    u8,
    u32,
    u64,
    vector_of,
)

if TYPE_CHECKING:
    from vyre_py.ir.evaluate import (
        angles,
        bits,
        comparisons,
        conversions,
        float_parts,
        fused,
        integers,
        interpolation,
        numbers,
        packing,
        subgroups,
        vectors,
    )
else:  # a process calls few of them, where a constant is folded, unless it interprets
    angles, bits, comparisons, conversions, float_parts, fused, integers, interpolation, numbers, packing, subgroups, vectors = deferred(
        "vyre_py.ir.evaluate",
        "angles", "bits", "comparisons", "conversions", "float_parts", "fused", "integers", "interpolation", "numbers", "packing", "subgroups", "vectors",
    )  # fmt: skip

__all__ = [
    "ANY_ORDER", "ATOMICS", "ATOMICS_BY_SPELLING", "EXPANDED_ONLY", "FOLDS", "GRID_FOLDS", "GRID_OPS", "JOINED", "LAUNCHED", "OPS", "REDUCTIONS", "SUBGROUPS", "TRANSCENDENTAL",
    "swizzle_bits", "swizzle_lanes",
]


# How the elements of the ranks of a collective become one.
REDUCTIONS: Final = ("sum", "prod", "max", "min", "avg")


def swizzle_bits(names: str) -> int:
    """The pattern of a swizzle: two bits per component, the first lowest; "zyx" is 0b000110. Raises ValueError for other letters."""
    return sum("xyzw".index(name) << 2 * k for k, name in enumerate(names))


def swizzle_lanes(bits: int, count: int) -> tuple[int, ...]:
    """Which component of the source each of `count` components of a swizzle's result is."""
    return tuple(bits >> 2 * k & 3 for k in range(count))


def _bitcasts(source: Type, target: Type) -> bool:
    kinds = (source.kind, target.kind)
    return source.total_bits == target.total_bits and source is not target and Kind.BOOL not in kinds


_T, _B, _A, _U, _I, _C, _L = Operand.T, Operand.BOOL, Operand.ANY, Operand.U32, Operand.I32, Operand.COMPONENT, Operand.LANES
_INT = frozenset(t for t in SCALARS.values() if t.is_integer)
_FLOAT = frozenset(t for t in SCALARS.values() if t.is_float and not t.is_storage)
_NUMERIC = _INT | _FLOAT
_BOOL = frozenset({bool_})
_ALL = frozenset(SCALARS.values())
_SCALAR, _VECTOR = frozenset({1}), frozenset({2, 3, 4})


def _row(
    name: str, code: int, operands: tuple[Operand, ...], result: Result, of: frozenset[Type], evaluate: Callable[..., Array] | None, doc: str, **rest: Any
) -> Op:
    return Op(name, code, operands, result, of, evaluate, doc, **rest)


def _math(name: str, code: int, expansion: str, doc: str, operands: int = 1, of: frozenset[Type] = _FLOAT, **rest: Any) -> Op:
    through = tuple([t for t in (f32, f64) if t in of])
    return _row(name, code, (_T,) * operands, Result.T, of, None, doc, expands=of, through=through, expansion=expansion, **rest)


def _exact(name: str, code: int, evaluate: Callable[..., Array], expansion: str, doc: str, names: tuple[str, ...] = ("x",), **rest: Any) -> Op:
    """An op over floats whose every step is rounded or exact, so that all strict targets give the same bits."""
    return _row(name, code, (_T,) * len(names), Result.T, _FLOAT, evaluate, doc, names=names, expands=_FLOAT, expansion=f"exact.{expansion}", **rest)


def _complex(name: str, code: int, doc: str, operands: tuple[str, ...] = ("z",), result: Result = Result.T) -> Op:
    """An op over complex numbers, which are vectors of two."""
    expansion = f"exact.complex.complex_{name}"
    return _row(f"complex_{name}", code, (_T,) * len(operands), result, _FLOAT, None, doc, lanes=frozenset({2}), names=operands, expands=_FLOAT, expansion=expansion)


# Form, type of the components, what packing does. Codes count from the first, so a new form is a row of its own below.
_PACKED: tuple[tuple[str, Type, str], ...] = (
    ("4x8_snorm", f32, "Four bytes round(clamp(x, -1, 1) * 127), the first lowest."),
    ("4x8_unorm", f32, "Four bytes round(clamp(x, 0, 1) * 255), the first lowest."),
    ("4x8_sint", i32, "The low bytes of four integers, the first lowest."),
    ("4x8_uint", u32, "The low bytes of four integers, the first lowest."),
    ("2x16_snorm", f32, "Two halves round(clamp(x, -1, 1) * 32767), the first lowest."),
    ("2x16_unorm", f32, "Two halves round(clamp(x, 0, 1) * 65535), the first lowest."),
    ("2x16_sint", i32, "The low halves of two integers, the first lowest."),
    ("2x16_uint", u32, "The low halves of two integers, the first lowest."),
    ("2x16_float", f32, "Two f16, each rounded once, the first lowest."),
)

_CALCULATIONS: tuple[Op, ...] = (
    _row("add", 1, (_T, _T), Result.T, _NUMERIC, numbers.add, "The sum; integers wrap.", infix="+", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=0, range_rule="add"),
    _row("sub", 2, (_T, _T), Result.T, _NUMERIC, numbers.sub, "The difference; integers wrap.", infix="-", laws=Law.SELF_ZERO_INT, right_identity=0, range_rule="sub"),
    _row("mul", 3, (_T, _T), Result.T, _NUMERIC, numbers.mul, "The product; integers wrap.", infix="*", laws=Law.COMMUTES | Law.ASSOCIATIVE_INT, right_identity=1, right_absorber=0, range_rule="mul"),
    _row("div", 4, (_T, _T), Result.T, _NUMERIC, numbers.div, "The quotient; integers round toward zero, x / 0 = x, MIN / -1 = MIN.", infix="/", right_identity=1, range_rule="div"),
    _row("rem", 5, (_T, _T), Result.T, _NUMERIC, numbers.rem, "The remainder with the dividend's sign, exact; integers x % 0 = 0, MIN % -1 = 0, floats as C's fmod.", infix="%", expands=_FLOAT, range_rule="rem", expansion="exact.remainder.rem"),
    _row("neg", 6, (_T,), Result.T, _NUMERIC, numbers.neg, "The negation; integers wrap, a float's sign flips.", infix="-", laws=Law.INVOLUTION, range_rule="neg"),
    _row("abs", 7, (_T,), Result.T, _NUMERIC, numbers.abs_, "The magnitude; abs(MIN) = MIN.", laws=Law.PROJECTION, range_rule="abs", builtin=True),
    _row("sign", 8, (_T,), Result.T, _NUMERIC, numbers.sign, "1 above zero, -1 below; zeros and NaN stay what they are.", laws=Law.PROJECTION, range_rule="sign"),
    _row("min", 9, (_T, _T), Result.T, _NUMERIC, numbers.min_, "The lesser; the number wins over NaN, -0 < +0.", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, names=("a", "b"), range_rule="min"),
    _row("max", 10, (_T, _T), Result.T, _NUMERIC, numbers.max_, "The greater; the number wins over NaN, -0 < +0.", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, names=("a", "b"), range_rule="max"),
    _row("clamp", 11, (_T, _T, _T), Result.T, _NUMERIC, numbers.clamp, "min(max(x, low), high).", names=("x", "low", "high"), range_rule="clamp"),
    _row("fma", 12, (_T, _T, _T), Result.T, _FLOAT, fused.fma, "a * b + c, rounded once.", names=("a", "b", "c")),
    _row("sqrt", 13, (_T,), Result.T, _FLOAT, numbers.sqrt, "The square root, correctly rounded."),
    _row("floor", 14, (_T,), Result.T, _FLOAT, numbers.floor, "The greatest whole number not above.", laws=Law.PROJECTION),
    _row("ceil", 15, (_T,), Result.T, _FLOAT, numbers.ceil, "The least whole number not below.", laws=Law.PROJECTION),
    _row("trunc", 16, (_T,), Result.T, _FLOAT, numbers.trunc, "The whole part, toward zero.", laws=Law.PROJECTION),
    _row("round", 17, (_T,), Result.T, _FLOAT, numbers.round_, "The nearest whole number, ties to even.", laws=Law.PROJECTION),
    _row("fract", 18, (_T,), Result.T, _FLOAT, numbers.fract, "x - floor(x)."),
    _row("and", 19, (_T, _T), Result.T, _INT, bits.and_, "Bitwise and.", infix="&", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, right_identity=-1, right_absorber=0, range_rule="and"),
    _row("or", 20, (_T, _T), Result.T, _INT, bits.or_, "Bitwise or.", infix="|", laws=Law.COMMUTES | Law.IDEMPOTENT | Law.ASSOCIATIVE_INT, right_identity=0, right_absorber=-1, range_rule="or"),
    _row("xor", 21, (_T, _T), Result.T, _INT, bits.xor, "Bitwise exclusive or.", infix="^", laws=Law.COMMUTES | Law.SELF_ZERO_INT | Law.ASSOCIATIVE_INT, right_identity=0, range_rule="xor"),
    _row("not", 22, (_T,), Result.T, _INT, bits.not_, "Bitwise not.", infix="~", laws=Law.INVOLUTION, range_rule="not"),
    _row("shl", 23, (_T, _T), Result.T, _INT, bits.shl, "Shift left; the count is masked by the width.", infix="<<", right_identity=0, range_rule="shl"),
    _row("shr", 24, (_T, _T), Result.T, _INT, bits.shr, "Shift right, arithmetic for signed types; the count is masked by the width.", infix=">>", right_identity=0, range_rule="shr"),
    _row("rotl", 25, (_T, _T), Result.T, _INT, bits.rotl, "Rotate left; the count is masked by the width.", right_identity=0, names=("x", "count")),
    _row("rotr", 26, (_T, _T), Result.T, _INT, bits.rotr, "Rotate right; the count is masked by the width.", right_identity=0, names=("x", "count")),
    _row("popcount", 27, (_T,), Result.T, _INT, bits.popcount, "How many bits are one.", range_rule="bits"),
    _row("clz", 28, (_T,), Result.T, _INT, bits.clz, "How many leading bits are zero; the width for 0.", range_rule="bits"),
    _row("ctz", 29, (_T,), Result.T, _INT, bits.ctz, "How many trailing bits are zero; the width for 0.", range_rule="bits"),
    _row("reverse_bits", 30, (_T,), Result.T, _INT, bits.reverse_bits, "The bits in the opposite order.", laws=Law.INVOLUTION),
    _row("mul_hi", 31, (_T, _T), Result.T, _INT, integers.mul_hi, "The upper half of the exact product.", laws=Law.COMMUTES, right_absorber=0, names=("a", "b"), range_rule="mul_hi"),
    _row("abs_diff", 32, (_T, _T), Result.UNSIGNED, _INT, integers.abs_diff, "The distance, unsigned.", laws=Law.COMMUTES | Law.SELF_ZERO_INT, names=("a", "b"), range_rule="abs_diff"),
    _row("eq", 33, (_T, _T), Result.BOOL, _NUMERIC | _BOOL, comparisons.eq, "Equal; NaN equals nothing.", infix="==", laws=Law.COMMUTES | Law.SELF_TRUE, negation="ne"),
    _row("ne", 34, (_T, _T), Result.BOOL, _NUMERIC | _BOOL, comparisons.ne, "Not equal; true for NaN.", infix="!=", laws=Law.COMMUTES | Law.SELF_FALSE, negation="eq"),
    _row("lt", 35, (_T, _T), Result.BOOL, _NUMERIC, comparisons.lt, "Less.", infix="<", laws=Law.SELF_FALSE, negation="ge"),
    _row("le", 36, (_T, _T), Result.BOOL, _NUMERIC, comparisons.le, "Less or equal.", infix="<=", laws=Law.SELF_TRUE, negation="gt"),
    _row("gt", 37, (_T, _T), Result.BOOL, _NUMERIC, comparisons.gt, "Greater.", infix=">", laws=Law.SELF_FALSE, negation="le"),
    _row("ge", 38, (_T, _T), Result.BOOL, _NUMERIC, comparisons.ge, "Greater or equal.", infix=">=", laws=Law.SELF_TRUE, negation="lt"),
    _row("logical_and", 39, (_T, _T), Result.T, _BOOL, bits.and_, "Both; both sides are computed.", infix="&&", laws=Law.COMMUTES | Law.IDEMPOTENT, right_identity=1, right_absorber=0),
    _row("logical_or", 40, (_T, _T), Result.T, _BOOL, bits.or_, "Either; both sides are computed.", infix="||", laws=Law.COMMUTES | Law.IDEMPOTENT, right_identity=0, right_absorber=1),
    _row("logical_not", 41, (_T,), Result.T, _BOOL, bits.not_, "The opposite.", infix="!", laws=Law.INVOLUTION),
    _row("select", 42, (_B, _T, _T), Result.T, _ALL, comparisons.select, "The second operand where the first is true, else the third; bits are kept.", names=("condition", "a", "b"), moves_bits=True),
    _row("is_nan", 43, (_T,), Result.BOOL, _FLOAT, comparisons.is_nan, "Whether this is a NaN.", moves_bits=True),
    _row("is_inf", 44, (_T,), Result.BOOL, _FLOAT, comparisons.is_inf, "Whether this is an infinity.", moves_bits=True),
    _row("is_finite", 45, (_T,), Result.BOOL, _FLOAT, comparisons.is_finite, "Whether this is neither NaN nor an infinity.", moves_bits=True),
    _row("cast", 46, (_A,), Result.GIVEN, _ALL, conversions.cast, "The value in another type: rounds once; float to int saturates, NaN to 0; past the greatest float is infinity, or for f8e4m3, which has none, NaN; int narrowing wraps; non-zero is true. Sizes of 2^32 and more are taken whole by i64 and u64.", range_rule="cast", accepts=lambda source, target: source is not target and source.lanes == target.lanes, conversions="any type to each other of as many components"),
    _row("bitcast", 47, (_A,), Result.GIVEN, _ALL, conversions.bitcast, "The bits as another type of the same width; a NaN gives the canonical quiet NaN.", range_rule="cast", moves_bits=True, accepts=_bitcasts, conversions="any type but bools to each other of the same width in all, little end first: u64 to u32x2"),
    _row("swizzle", 48, (_A, _L), Result.GIVEN, _ALL, vectors.swizzle, "Components picked by name, in any order and repeated: v.x, v.zyx, s.xxx; bits are kept.", accepts=lambda source, target: source.scalar is target.scalar, conversions="any type to 1 to 4 of its components"),
    _row("vec2", 49, (_T, _T), Result.VECTOR, _ALL, vectors.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("vec3", 50, (_T, _T, _T), Result.VECTOR, _ALL, vectors.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("vec4", 51, (_T, _T, _T, _T), Result.VECTOR, _ALL, vectors.vector, "The vector of these components; bits are kept.", lanes=_SCALAR),
    _row("dot", 52, (_T, _T), Result.COMPONENT, _NUMERIC, vectors.dot, "The sum of the products of components, left to right, each step rounded; integers wrap.", laws=Law.COMMUTES, lanes=_VECTOR, names=("a", "b"), expansion="exact.geometry.dot"),
    _row("length", 53, (_T,), Result.COMPONENT, _FLOAT, vectors.length, "sqrt(dot(v, v)).", lanes=_VECTOR, names=("v",), expansion="exact.geometry.length"),
    _row("cross", 54, (_T, _T), Result.T, _NUMERIC, vectors.cross, "The cross product a.yzx * b.zxy - a.zxy * b.yzx, each step rounded.", lanes=frozenset({3}), names=("a", "b"), expansion="exact.geometry.cross"),
    _row("all", 55, (_T,), Result.FIXED, _BOOL, vectors.all_, "Whether all components are true.", lanes=_VECTOR, fixed=bool_, names=("v",), expansion="exact.geometry.all_"),
    _row("any", 56, (_T,), Result.FIXED, _BOOL, vectors.any_, "Whether any component is true.", lanes=_VECTOR, fixed=bool_, names=("v",), expansion="exact.geometry.any_"),
    _row("saturating_add", 57, (_T, _T), Result.T, _INT, integers.saturating_add, "The sum, or the nearest value that the type holds.", laws=Law.COMMUTES, right_identity=0, expands=_INT, names=("a", "b"), range_rule="saturating_add", expansion="exact.saturating.saturating_add"),
    _row("saturating_sub", 58, (_T, _T), Result.T, _INT, integers.saturating_sub, "The difference, or the nearest value that the type holds.", laws=Law.SELF_ZERO_INT, right_identity=0, expands=_INT, names=("a", "b"), range_rule="saturating_sub", expansion="exact.saturating.saturating_sub"),
    _row("saturating_mul", 59, (_T, _T), Result.T, _INT, integers.saturating_mul, "The product, or the nearest value that the type holds.", laws=Law.COMMUTES, right_identity=1, right_absorber=0, expands=_INT, names=("a", "b"), range_rule="saturating_mul", expansion="exact.saturating.saturating_mul"),
    _row("extract_bits", 60, (_T, _U, _U), Result.T, _INT, bits.extract_bits, "The `count` bits from bit `offset` up, sign-extended for signed types; both are cut to the width.", expands=_INT, names=("x", "offset", "count"), range_rule="extract_bits", expansion="exact.fields.extract_bits"),
    _row("insert_bits", 61, (_T, _T, _U, _U), Result.T, _INT, bits.insert_bits, "x with its `count` bits from bit `offset` up taken from the low bits of y; both are cut to the width.", expands=_INT, names=("x", "y", "offset", "count"), expansion="exact.fields.insert_bits"),
    _row("rsqrt", 62, (_T,), Result.T, _FLOAT, numbers.rsqrt, "1 / sqrt(x), in two roundings.", expands=_FLOAT, expansion="roots.rsqrt"),
    *(
        _row(f"pack{form}", 63 + k, (_T,), Result.FIXED, frozenset({component}), made_once(packing.packer, form), doc, lanes=frozenset({int(form[0])}), fixed=u32, names=("v",))
        for k, (form, component, doc) in enumerate(_PACKED)
    ),
    *(
        _row(f"unpack{form}", 72 + k, (_T,), Result.FIXED, frozenset({u32}), made_once(packing.unpacker, form), f"The components of a pack{form}.", lanes=_SCALAR, fixed=vector_of(component, int(form[0])))
        for k, (form, component, _) in enumerate(_PACKED)
    ),
    _math("exp", 81, "exp.exp", "e to the power x."),
    _math("exp2", 82, "exp.exp2", "2 to the power x."),
    _math("exp10", 83, "exp.exp10", "10 to the power x."),
    _math("expm1", 84, "exp.expm1", "e to the power x, less 1."),
    _math("log", 85, "log.log", "The natural logarithm."),
    _math("log2", 86, "log.log2", "The logarithm to base 2."),
    _math("log10", 87, "log.log10", "The logarithm to base 10."),
    _math("log1p", 88, "log.log1p", "The natural logarithm of 1 + x."),
    _math("sin", 89, "sincos.sin", "The sine of x radians."),
    _math("cos", 90, "sincos.cos", "The cosine of x radians."),
    _math("tan", 91, "tan.tan", "The tangent of x radians."),
    _math("asin", 92, "asin.asin", "The angle in [-pi/2, pi/2] whose sine is x."),
    _math("acos", 93, "asin.acos", "The angle in [0, pi] whose cosine is x."),
    _math("atan", 94, "atan.atan", "The angle in [-pi/2, pi/2] whose tangent is x."),
    _math("atan2", 95, "atan.atan2", "The angle in [-pi, pi] of the point with abscissa x and ordinate y; the operands are y, x.", 2, names=("y", "x")),
    _math("sinh", 96, "hyperbolic.sinh", "The hyperbolic sine."),
    _math("cosh", 97, "hyperbolic.cosh", "The hyperbolic cosine."),
    _math("tanh", 98, "hyperbolic.tanh", "The hyperbolic tangent."),
    _math("asinh", 99, "inverse_hyperbolic.asinh", "The inverse hyperbolic sine."),
    _math("acosh", 100, "inverse_hyperbolic.acosh", "The inverse hyperbolic cosine, not negative."),
    _math("atanh", 101, "inverse_hyperbolic.atanh", "The inverse hyperbolic tangent."),
    _math("pow", 102, "pow.power", "x to the power y, as C's pow.", 2),
    _math("cbrt", 103, "roots.cbrt", "The cube root."),
    _math("hypot", 104, "roots.hypot", "sqrt(x^2 + y^2) without overflow on the way.", 2),
    _math("erf", 105, "special.erf.erf", "The error function."),
    _math("erfc", 106, "special.erf.erfc", "1 - erf(x), without loss for large x."),
    _exact("step", 123, interpolation.step, "interpolation.step", "0 where x < edge, else 1; for NaN too.", ("edge", "x")),
    _exact("smoothstep", 124, interpolation.smoothstep, "interpolation.smoothstep", "t * t * (3 - 2 * t) for t = clamp((x - low) / (high - low), 0, 1), each step rounded; 0 where t is NaN.", ("low", "high", "x")),
    _exact("mix", 125, interpolation.mix, "interpolation.mix", "Linear interpolation, lerp: fma(t, b, fma(-t, a, a)), so of finite ends a for t = 0 and b for t = 1.", ("a", "b", "t")),
    _exact("saturate", 126, interpolation.saturate, "interpolation.saturate", "clamp(x, 0, 1); 0 for NaN.", laws=Law.PROJECTION),
    _exact("degrees", 127, angles.degrees, "angles.degrees", "Radians in degrees: x * c, rounded once, for the c of the type nearest to 180 / pi."),
    _exact("radians", 128, angles.radians, "angles.radians", "Degrees in radians: x * c, rounded once, for the c of the type nearest to pi / 180."),
    _exact("copysign", 129, float_parts.copysign, "float_parts.copysign", "The magnitude of x with the sign of y; a NaN y counts as positive.", ("x", "y"), moves_bits=True),
    _exact("nextafter", 130, float_parts.nextafter, "float_parts.nextafter", "The number beside x toward y, as C's nextafter: y where they are equal, NaN where either is.", ("x", "y"), moves_bits=True),
    _exact("modf_fraction", 131, float_parts.modf_fraction, "float_parts.modf_fraction", "The fraction of C's modf, x - trunc(x) with the sign of x, exact; a zero for infinities. Its whole part is trunc(x)."),
    _exact("frexp_fraction", 132, float_parts.frexp_fraction, "float_parts.frexp_fraction", "The fraction of C's frexp: x by a power of two, its magnitude from 0.5 up to 1; zeros, infinities and NaN stay."),
    _exact("remainder", 133, float_parts.remainder, "remainder.remainder", "IEEE's remainder, exact: x - n * y for the whole number n nearest to x / y, the even one of two; a zero has x's sign.", ("x", "y")),
    _row("frexp_exponent", 134, (_T,), Result.I32, _FLOAT, float_parts.frexp_exponent, "The exponent of C's frexp: x = frexp_fraction(x) * 2^e; 0 for zeros, infinities and NaN.", expands=_FLOAT, expansion="exact.float_parts.frexp_exponent"),
    _row("ldexp", 135, (_T, _I), Result.T, _FLOAT, float_parts.ldexp, "x * 2^e for any e, rounded once, as C's scalbn.", names=("x", "e"), expands=_FLOAT, expansion="exact.float_parts.ldexp"),
    _row("distance", 136, (_T, _T), Result.COMPONENT, _FLOAT, vectors.distance, "length(a - b).", laws=Law.COMMUTES, lanes=_VECTOR, names=("a", "b"), expansion="exact.geometry.distance"),
    _row("normalize", 137, (_T,), Result.T, _FLOAT, vectors.normalize, "v / length(v), each step rounded; NaN for the zero vector.", lanes=_VECTOR, names=("v",), expansion="exact.geometry.normalize"),
    _row("reflect", 138, (_T, _T), Result.T, _FLOAT, vectors.reflect, "i - 2 * dot(n, i) * n, each step rounded: what comes in at i, turned at a surface whose normal n has length 1.", lanes=_VECTOR, names=("i", "n"), expansion="exact.geometry.reflect"),
    _row("refract", 139, (_T, _T, _C), Result.T, _FLOAT, vectors.refract, "eta * i - (eta * dot(n, i) + sqrt(k)) * n for k = 1 - eta * eta * (1 - dot(n, i) * dot(n, i)), each step rounded; 0 where k < 0.", lanes=_VECTOR, names=("i", "n", "eta"), expansion="exact.geometry.refract"),
    _row("quantize_f16", 140, (_T,), Result.T, frozenset({f32}), conversions.quantize_f16, "The nearest number that f16 holds, ties to even; an infinity from 65520 on.", laws=Law.PROJECTION, expands=frozenset({f32}), expansion="exact.float_parts.quantize_f16"),
    _math("hypot3", 141, "roots.hypot3", "sqrt(x^2 + y^2 + z^2) without overflow on the way.", 3),
    _row("dot4_i8", 142, (_T, _T, _I), Result.I32, frozenset({u32}), made_once(packing.dot4, i8), "The sum of c and the products of the four bytes of a and b, signed as in pack4x8_sint; wraps.", names=("a", "b", "c"), expands=frozenset({u32}), expansion="exact.packing.dot4_i8"),
    _row("dot4_u8", 143, (_T, _T, _T), Result.T, frozenset({u32}), made_once(packing.dot4, u8), "The sum of c and the products of the four bytes of a and b, unsigned as in pack4x8_uint; wraps.", names=("a", "b", "c"), expands=frozenset({u32}), expansion="exact.packing.dot4_u8"),
    _math("erfcx", 148, "special.erf.erfcx", "exp(x^2) erfc(x), without overflow on the way: infinity below about -9.38, of f64 -26.6.", ulp=2),
    _math("erfinv", 149, "special.inverse_erf.erfinv", "The inverse of the error function: the y with erf(y) = x.", ulp=2),
    _math("lgamma", 152, "special.gamma.lgamma", "log |gamma(x)|: infinity for 0, negative whole numbers and infinities.", ulp=2),
    _complex("mul", 144, "The product of complex numbers (x = real, y = imaginary part), each part within 1.5 ULP unless a product underflows.", ("a", "b")),
    _complex("div", 145, "The quotient of complex numbers, scaled so that nothing overflows on the way; each part within 5 ULP where those of an operand are less than 2^60 apart.", ("a", "b")),
    _complex("abs", 146, "The magnitude of a complex number: hypot(z.x, z.y).", result=Result.COMPONENT),
    _complex("exp", 147, "e to the power z: exp(z.x) by cos(z.y) and sin(z.y), each part within 5 ULP, and 8 near overflow."),
)

# Ops that a target may approximate, one by one: `fast_exp` is exp where it does not. Their codes count from the first, so a new one stands last.
_APPROXIMATED: Final = ("div", "sqrt", "rsqrt", "exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tanh", "pow")
_FIRST_APPROXIMATION: Final = 160


def _approximation(code: int, op: Op) -> Op:
    """The row of an op that may be approximated: no law holds of it, since none holds of every approximation."""
    return replace(
        op, name=f"fast_{op.name}", code=code, approximates=op.name, evaluate=None, of=_FLOAT, laws=Law.NONE, infix=None, right_identity=None, range_rule="",
        expands=_FLOAT, expansion=op.expansion or f"exact.itself.{op.name}", doc=f"{op.name}, within the bounds of lowering/FAST.md.",
    )  # fmt: skip


# name, code of its first axis, level, doc; each has three axes
_QUERIES: tuple[tuple[str, int, Level, str], ...] = (
    ("global_id", 107, Level.VARYING, "The invocation's place in the whole grid: workgroup_id * workgroup_size + local_id."),
    ("local_id", 110, Level.VARYING, "The invocation's place in its workgroup."),
    ("workgroup_id", 113, Level.WORKGROUP, "The workgroup's place in the grid."),
    ("num_workgroups", 116, Level.GRID, "How many workgroups the grid has."),
    ("workgroup_size", 119, Level.GRID, "How many invocations a workgroup has."),
)

OPS: Final[Mapping[str, Op]] = {
    row.name: row
    for row in (
        *_CALCULATIONS,
        *(_approximation(_FIRST_APPROXIMATION + k, next(row for row in _CALCULATIONS if row.name == name)) for k, name in enumerate(_APPROXIMATED)),
        *(
            _row(f"{name}.{axis}", code + k, (), Result.FIXED, frozenset(), None, doc, level=level, fixed=u32)
            for name, code, level, doc in _QUERIES
            for k, axis in enumerate("xyz")
        ),
        _row("local_index", 122, (), Result.FIXED, frozenset(), None, "The invocation's number in its workgroup, x fastest.", level=Level.VARYING, fixed=u32),
        _row("subgroup_lane", 150, (), Result.FIXED, frozenset(), None, "The invocation's number in its subgroup: local_index % S.", level=Level.VARYING, fixed=u32),
        _row("subgroup_id", 151, (), Result.FIXED, frozenset(), None, "The subgroup's number in its workgroup: local_index / S.", level=Level.SUBGROUP, fixed=u32),
    )
}


# Only in Programs that were made for a target: two elements of 16 bits as they are, the first in the lower half of a word.
JOINED: Final = _row(
    "joined", 0, (_T, _T), Result.FIXED, frozenset(t for t in SCALARS.values() if t.bits == 16), packing.joined, "The bits of two elements.", lanes=_SCALAR,
    fixed=u32,
)  # fmt: skip

# And where workgroups walk through the grid, how many of them run. Their numbers are workgroup_id.x.
LAUNCHED: Final = _row("launched_workgroups.x", 0, (), Result.FIXED, frozenset(), None, "How many workgroups run.", level=Level.GRID, fixed=u32)

# Ops that only their expansion defines.
EXPANDED_ONLY: Final = frozenset(name for name, row in OPS.items() if row.evaluate is None and not row.is_query)
# Those of them that are approximated, in f32 or f64.
TRANSCENDENTAL: Final = frozenset(name for name, row in OPS.items() if row.through and not row.approximates)


def _compare_exchange(old: Array, expected: Array, desired: Array) -> Array:
    return np.where(old == expected, desired, old)


_WORDS = frozenset({i32, u32, i64, u64})


def _atomic(name: str, code: int, evaluate: Callable[..., Array], doc: str, operands: int = 1, of: frozenset[Type] = _WORDS, **rest: Any) -> AtomicOp:
    return AtomicOp(name, code, operands, of, evaluate, doc, **rest)


def _least(old: Array, x: Array) -> Array:
    return numbers.min_(scalar_of(old.dtype) or u32, old, x)


def _greatest(old: Array, x: Array) -> Array:
    return numbers.max_(scalar_of(old.dtype) or u32, old, x)


ATOMICS: Final[Mapping[str, AtomicOp]] = {
    row.name: row
    for row in (
        _atomic("add", 1, lambda old, x: old + x, "Adds; integers wrap; the order of float additions is unspecified, and subnormals may be flushed.", of=_WORDS | {f32, f64}),
        _atomic("sub", 2, lambda old, x: old - x, "Subtracts; wraps."),
        _atomic("min", 3, _least, "Keeps the lesser, as min does.", of=_WORDS | {f32}),
        _atomic("max", 4, _greatest, "Keeps the greater, as max does.", of=_WORDS | {f32}),
        _atomic("and", 5, lambda old, x: old & x, "Bitwise and."),
        _atomic("or", 6, lambda old, x: old | x, "Bitwise or."),
        _atomic("xor", 7, lambda old, x: old ^ x, "Bitwise exclusive or."),
        _atomic("exchange", 8, lambda old, x: x, "Stores the operand."),
        _atomic("compare_exchange", 9, _compare_exchange, "Stores `desired` where the old value equals `expected`.", 2),
        _atomic("load", 10, lambda old: old, "Reads the element.", 0, _WORDS | {f32, f64}, writes=False),
        _atomic("store", 11, lambda old, x: x, "Stores the operand, and gives nothing.", of=_WORDS | {f32, f64}, reads=False),
        _atomic("nand", 12, lambda old, x: ~(old & x), "Bitwise and, of which every bit is flipped: ~(old & x)."),
    )
}
# In every order that each may have: `add`, `add.acquire`, `add.acquire.workgroup`.
ATOMICS_BY_SPELLING: Final[Mapping[str, AtomicOp]] = {
    made.spelling: made
    for row in ATOMICS.values()
    for order in dict.fromkeys(ORDERS.values()) if order.name in row.orders
    for made in (row if order is RELAXED else row.ordered(order),)
}  # fmt: skip


def _together(name: str, code: int, of: frozenset[Type], evaluate: subgroups.Together, doc: str, names: tuple[str, ...] = ("x",), **rest: Any) -> SubgroupOp:
    return SubgroupOp(name, code, of, evaluate, doc, names, **rest)


def _shuffle(name: str, code: int, evaluate: subgroups.Together, doc: str, operand: str, level: Level = Level.VARYING) -> SubgroupOp:
    return _together(name, code, _ALL, evaluate, doc, ("x", operand), index=level, level=level, moves_bits=True)


def _bits(operation: Callable[[Array, Array], Array]) -> Callable[[Type, Array, Array], Array]:
    return lambda t, a, b: operation(a, b)


# Name -> what it folds with, over which types.
FOLDS: Final[tuple[tuple[str, Callable[[Type, Array, Array], Array], frozenset[Type]], ...]] = (
    ("add", numbers.add, _NUMERIC), ("mul", numbers.mul, _NUMERIC), ("min", numbers.min_, _NUMERIC), ("max", numbers.max_, _NUMERIC),
    ("and", _bits(np.bitwise_and), _INT | _BOOL), ("or", _bits(np.bitwise_or), _INT | _BOOL), ("xor", _bits(np.bitwise_xor), _INT | _BOOL),
)  # fmt: skip


def _folds() -> Iterator[SubgroupOp]:
    for number, (name, fold, of) in enumerate(FOLDS):
        doc = f"{name} over all lanes: x = {name}(x, x of lane ^ d) for d = S / 2, ..., 2, 1."
        yield _together(f"reduce_{name}", 32 + number, of, made_once(subgroups.reduction, fold), doc, level=Level.SUBGROUP, fold=name)
        doc = f"{name} over the lanes up to this one: x = {name}(x, x of lane - d) where there is one, for d = 1, 2, ..., S / 2."
        yield _together(f"inclusive_{name}", 48 + number, of, made_once(subgroups.scan, name, fold, exclusive=False), doc, fold=name)
        doc = f"{name} over the lanes before this one: inclusive_{name} of lane - 1, in lane 0 the identity."
        yield _together(f"exclusive_{name}", 64 + number, of, made_once(subgroups.scan, name, fold, exclusive=True), doc, fold=name)


SUBGROUPS: Final[Mapping[str, SubgroupOp]] = {
    row.name: row
    for row in (
        _shuffle("shuffle", 1, subgroups.shuffle, "x of lane i, its bits as they are; zero where there is no such lane.", "i"),
        _shuffle("shuffle_xor", 2, subgroups.shuffle_xor, "x of lane ^ mask; zero where there is no such lane.", "mask"),
        _shuffle("shuffle_up", 3, subgroups.shuffle_up, "x of lane - d; zero where there is no such lane.", "d"),
        _shuffle("shuffle_down", 4, subgroups.shuffle_down, "x of lane + d; zero where there is no such lane.", "d"),
        _shuffle("broadcast", 5, subgroups.shuffle, "x of lane i, where all lanes have the same i; zero where there is no such lane.", "i", Level.SUBGROUP),
        _together("ballot", 6, _BOOL, subgroups.ballot, "The mask of the lanes whose c is true.", ("c",), level=Level.SUBGROUP, vectors=False, masks=True),
        _together("all", 7, _BOOL, subgroups.all_, "Whether c is true in all lanes.", ("c",), level=Level.SUBGROUP, vectors=False),
        _together("any", 8, _BOOL, subgroups.any_, "Whether c is true in any lane.", ("c",), level=Level.SUBGROUP, vectors=False),
        _together("match", 9, _NUMERIC | _BOOL, subgroups.match, "The mask of the lanes whose x is equal to this lane's: -0 is equal to 0, a NaN to nothing, vectors in all components.", masks=True),
        *_folds(),
    )
}

# What says that any order of a fold will do, behind the name of its op.
ANY_ORDER: Final = "any_order"


def _grid_folds() -> Iterator[tuple[str, GridFold]]:
    for name, _, of in FOLDS:
        identity = partial(subgroups.identity, name)
        integers, floats = of & {i32, u32, i64, u64}, of & {f32, f64}
        rounds = name in ("add", "mul")
        yield name, GridFold(OPS[name], integers if rounds else integers | floats, False, identity)
        if rounds:
            yield f"{name} {ANY_ORDER}", GridFold(OPS[name], floats, True, identity)


GRID_FOLDS: Final[Mapping[str, GridFold]] = dict(_grid_folds())
GRID_OPS: Final = tuple([name for name, fold in GRID_FOLDS.items() if not fold.any_order])
