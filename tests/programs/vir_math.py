"""Filetests of the transcendental functions, against mpmath with 400 bits; what C's Annex F says at zeros, poles and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, Final

import mpmath
import numpy as np
from exact_floats import FORMATS, Format
from exact_samples import Number
from math_double import exact
from vir_scalars import Result, columns
from vir_text import NEEDS_F64, NO_SPECIALS, call, file_text, number

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, vector_of

__all__ = ["FILES", "GROUPS", "rounded"]

_BITS: Final = 400  # 256 for the largest f32 in turns, and as many again as a result needs
_NOTHING: Final = 2000  # exponent past which no format has a number
_INF, _NAN, _PI = math.inf, math.nan, math.pi

# ---------------------------------------------------------------- the functions

def _by_oracle(name: str, x: Any) -> Any:
    """By the oracle of f64, which knows how to compute functions that mpmath lacks or loses bits of."""
    return exact(name, float(x), bits=_BITS)


# Name -> function, and its limits at -inf and +inf; NaN where there is none.
_UNARY: Final[Mapping[str, tuple[Callable[[Any], Any], float, float]]] = {
    "exp": (mpmath.exp, 0, _INF), "exp2": (lambda x: mpmath.power(2, x), 0, _INF), "exp10": (lambda x: mpmath.power(10, x), 0, _INF),
    "expm1": (mpmath.expm1, -1, _INF), "sinh": (mpmath.sinh, -_INF, _INF), "cosh": (mpmath.cosh, _INF, _INF), "tanh": (mpmath.tanh, -1, 1),
    "log": (mpmath.log, _NAN, _INF), "log2": (lambda x: mpmath.log(x, 2), _NAN, _INF), "log10": (mpmath.log10, _NAN, _INF),
    "log1p": (mpmath.log1p, _NAN, _INF), "acosh": (mpmath.acosh, _NAN, _INF), "asinh": (mpmath.asinh, -_INF, _INF),
    "cbrt": (lambda x: mpmath.cbrt(abs(x)) * mpmath.sign(x), -_INF, _INF),
    "sin": (mpmath.sin, _NAN, _NAN), "cos": (mpmath.cos, _NAN, _NAN), "tan": (mpmath.tan, _NAN, _NAN), "asin": (mpmath.asin, _NAN, _NAN),
    "acos": (mpmath.acos, _NAN, _NAN), "atan": (mpmath.atan, -_PI / 2, _PI / 2), "atanh": (mpmath.atanh, _NAN, _NAN),
    "erf": (mpmath.erf, -1, 1), "erfc": (mpmath.erfc, 2, 0), "erfcx": (partial(_by_oracle, "erfcx"), _INF, 0),
    "erfinv": (partial(_by_oracle, "erfinv"), _NAN, _NAN), "lgamma": (partial(_by_oracle, "lgamma"), _INF, _INF),
}  # fmt: skip
_ODD: Final = frozenset({"expm1", "sinh", "tanh", "log1p", "asinh", "cbrt", "sin", "tan", "asin", "atan", "atanh", "erf", "erfinv"})
def _is_pole(x: float) -> bool:
    return x <= 0 and x == math.floor(x)


# Name -> where it is no number, and its poles.
_DOMAINS: Final[Mapping[str, tuple[Callable[[float], bool], Mapping[float, float]]]] = {
    **dict.fromkeys(("log", "log2", "log10"), (lambda x: x < 0, {0.0: -_INF})),
    "log1p": (lambda x: x < -1, {-1.0: -_INF}), "acosh": (lambda x: x < 1, {}),
    **dict.fromkeys(("atanh", "erfinv"), (lambda x: abs(x) > 1, {1.0: _INF, -1.0: -_INF})),
    **dict.fromkeys(("asin", "acos"), (lambda x: abs(x) > 1, {})),
}  # fmt: skip


def _bits(f: Format, value: float) -> Number:
    """A Python float, which is special or lies near no middle between two numbers of the format."""
    return f.rounded(Fraction(value)) if value and math.isfinite(value) else f.from_special(value)


def rounded(f: Format, value: Any, zero_sign: Number = 0) -> Number:
    """An mpmath number, rounded once."""
    sign, mantissa, exponent, length = value._mpf_
    if mantissa and abs(exponent + length) > _NOTHING:
        return (f.sign if sign else 0) | (f.infinity if exponent > 0 else 0)
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return f.rounded(-exact if sign else exact, zero_sign)


def _unary(name: str, f: Format, bits: Number) -> Number:
    x = f.value(bits)
    function, low, high = _UNARY[name]
    if math.isinf(x) or math.isnan(x):
        return _bits(f, x if math.isnan(x) else high if x > 0 else low)
    if name == "lgamma" and _is_pole(x):
        return f.infinity
    outside, poles = _DOMAINS.get(name, (lambda x: False, {}))
    if outside(x) or x in poles:
        return _bits(f, poles.get(x, _NAN))
    with mpmath.workprec(_BITS):
        return rounded(f, mpmath.re(function(mpmath.mpf(x))), bits & f.sign if name in _ODD else 0)


def _special(name: str, x: float, y: float) -> float:
    """Two operands of which one is a zero, an infinity or NaN: f64's own functions know what C says."""
    with np.errstate(all="ignore"):
        return float({"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[name](np.float64(x), np.float64(y)))


def _hypot3(f: Format, *bits: Number) -> Number:
    values = [f.value(x) for x in bits]
    if not all(map(math.isfinite, values)):
        return _bits(f, _INF if any(map(math.isinf, values)) else _NAN)
    with mpmath.workprec(_BITS):
        return rounded(f, mpmath.sqrt(sum(mpmath.mpf(x) ** 2 for x in values)))


def _several(name: str, f: Format, first: Number, second: Number, *third: Number) -> Number:
    if third:
        return _hypot3(f, first, second, *third)
    x, y = f.value(first), f.value(second)
    if not (x and y and math.isfinite(x) and math.isfinite(y)):
        return _bits(f, _special(name, x, y))
    with mpmath.workprec(_BITS):
        a, b = mpmath.mpf(x), mpmath.mpf(y)
        if name == "atan2":
            return rounded(f, mpmath.atan2(a, b), first & f.sign)
        if name == "hypot":
            return rounded(f, mpmath.hypot(a, b))
        if x < 0 and y != math.floor(y):
            return f.nan
        negative = f.sign if x < 0 and math.fmod(y, 2) else 0
        return rounded(f, mpmath.power(abs(a), b)) | negative


# ---------------------------------------------------------------- Programs

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "exponentials": ("exp", "exp2", "exp10", "expm1", "sinh", "cosh", "tanh"),
    "logarithms": ("log", "log2", "log10", "log1p", "acosh", "asinh", "cbrt"),
    "angles": ("sin", "cos", "tan", "asin", "acos", "atan", "atanh"),
    "errors": ("erf", "erfc"),
    "special": ("erfcx", "erfinv", "lgamma"),
    "two_operands": ("pow", "atan2", "hypot"),
    "three_operands": ("hypot3",),
}
_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "exponentials": (
        "1", "-1", "0.5", "-0.5", "2", "-3.25", "10", "-10", "0.001", "-0.0001", "1e-10", "0.34657359", "17.25", "-17.5", "37.9", "-37.9", "38.5", "-44.8",
        "-45.5", "88.6", "-87.2", "88.75", "89.4", "-103.2", "-104.5", "126.5", "127.9", "-126.7", "128", "-148.6", "-149.6", "-151", "1e5", "-1e5", "3e38",
        "-3e38", "1e-40",
    ),
    "logarithms": (
        "2", "0.5", "3", "10", "100", "0.01", "1e6", "2.7182817", "1.5", "0.9", "1.1", "0.70710677", "1.4142135", "0.99999994", "1.0000001", "1e-45", "1e-40",
        "1.1754944e-38", "1e-10", "16777216", "1e10", "1e30", "3e38", "-0.5", "-0.999", "-2", "-8", "-1e-5", "-1e30", "1", "-1", "27", "1000", "1.001",
    ),
    "angles": (
        "0.5", "-0.5", "0.1", "0.78539816", "-0.9999", "0.99999994", "-0.99999994", "1e-4", "1e-10", "1e-40", "-1e-45", "1.5707963", "-1.5707964", "3.1415927",
        "6.2831855", "2", "-3", "22", "355", "1000", "-52174.88", "117435.99", "123456.79", "16777216", "1e10", "-1e20", "3e38", "0.70710677", "-0.25", "1.01",
    ),
    "errors": (
        "0.5", "-0.5", "0.1", "1", "-1", "2", "-2.5", "3.5", "-3.9", "4.1", "1e-10", "-1e-40", "0.84375", "1.25", "6", "9", "9.19", "10.05", "10.1", "-5",
        "0.001", "2.857", "1e30", "-1e30",
    ),
    "special": (
        "0.5", "-0.5", "0.999", "-0.99999994", "1.5", "-2.5", "3", "-3.25", "7.75", "-9.25", "20", "1e4", "1e30", "-1e30", "1e-10", "-1e-40", "0.01",
        "-2.4570248", "-4.0393", "1.0001", "2.0625", "-30.7", "1e36", "4.2e36",
    ),
}  # fmt: skip
_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    ("2", "0.5"), ("2", "10"), ("2", "-149"), ("2", "-150.5"), ("2", "127.9"), ("2", "128"), ("10", "38"), ("10", "-44.9"), ("0.5", "3.25"),
    ("-2", "3"), ("-2", "4"), ("-2", "0.5"), ("-1.5", "-7"), ("-1", "1e30"), ("-1", "16777215"), ("-1", "16777217"),
    ("1", "1e30"), ("1.0000001", "1e8"), ("0.99999994", "1e9"),
    ("1.0000001", "-3e8"), ("3", "-3"), ("3", "4"), ("-3", "4"), ("5", "-12"), ("1e-30", "1e-30"), ("1e-30", "2"), ("1e30", "1e30"), ("3e38", "3e38"),
    ("3e38", "-1"), ("1e-40", "1e-40"), ("1e-40", "-1"), ("-1e-45", "1e-45"), ("1e-10", "1e10"), ("1e10", "1e-10"), ("0.001", "-0.001"), ("100", "0.01"),
    ("-1e-20", "-1e20"), ("7", "1"), ("9", "-0.5"), ("12345.678", "0.75"),
)  # fmt: skip
# Of f64 also those at its own ends.
_WIDE_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "exponentials": (
        "308.2", "308.3", "-307.8", "-323.4", "-323.7", "709.7", "709.8", "710.4", "710.5", "-708.5", "-745.1", "-745.2", "1023.9", "1024", "-1022.5",
        "-1074.4", "-1075.5", "1e300", "-1e300", "1e-17", "1e-310",
    ),
    "logarithms": ("1e300", "1e-300", "1e-310", "5e-324", "2.2250738585072014e-308", "1.0000000000000002", "0.9999999999999999", "-1e-300", "1e15"),
    "angles": (
        "1e-9", "1e-310", "1.5707963267948966", "-3.141592653589793", "1048576.5", "-1e15", "1e22", "5.319372648326541e255", "1.7e308", "0.9999999999999999",
    ),
    "errors": ("1e-20", "5.9", "6.1", "26.5", "27.2", "-5.8", "1e-310"),
    "special": (
        "-26.6", "-26.7", "1e300", "1e-310", "0.9999999999999999", "-3.1435808883499797", "-4.991544640560047", "-15.99999999999995", "-17.000000000000004",
        "2.0000000000000004", "2.5599833278516383e305", "2.5599833278516387e305", "-4503599627370495.5",
    ),
}  # fmt: skip
_WIDE_PAIRS: Final = (
    ("2", "-1074"), ("2", "-1075.5"), ("2", "1023.9"), ("2", "1024"), ("10", "308"), ("10", "-323"), ("1.0000000000000002", "3e18"),
    ("0.9999999999999999", "6e18"), ("-1", "9007199254740991"), ("-1", "9007199254740993"), ("1e-310", "0.5"), ("1e300", "1e300"), ("1e-300", "1e-300"),
    ("1e-310", "-1e-310"), ("1.7e308", "-1"), ("-5e-324", "5e-324"), ("1e-160", "1e160"), ("3e-320", "4e-320"),
)  # fmt: skip
_SPECIAL: Final = ("0", "-0", "1", "-1", "inf", "-inf", "nan")


def _number(t: Type, text: str) -> Number:
    """As vir_text.number, and infinities and NaN; a decimal beyond the type is its largest number."""
    f = FORMATS[t]
    if text.lstrip("-") in ("inf", "nan"):
        return f.from_special(float(text))
    bits = number(t, text)
    return bits - 1 if f.is_inf(bits) else bits


def _operands(name: str) -> str:
    return "xyz"[: len(OPS[name].operands)]


def _outputs(t: Type, names: Sequence[str]) -> dict[str, Result]:
    right = {name: partial(_unary if name in _UNARY else _several, name, FORMATS[t]) for name in names if t in OPS[name].of}
    return {name: (t, call(name, *_operands(name)), right[name]) for name in right}


def _inputs(t: Type, rows: Sequence[Sequence[Number]]) -> dict[str, tuple[Type, Sequence[Number]]]:
    """Columns x, y and z, as many as the rows have numbers, without repeating a row."""
    return {name: (t, list(column)) for name, column in zip("xyz", zip(*dict.fromkeys(map(tuple, rows)), strict=True), strict=False)}


def _triples(pairs: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Each pair with the first of the next."""
    return [(*pair, following[0]) for pair, following in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]


def _rows(t: Type, group: str) -> list[tuple[Number, ...]]:
    texts: list[tuple[str, ...]] = [(text,) for text in _NUMBERS[group]] if group in _NUMBERS else [*_PAIRS]
    if t is f64:
        texts += [(text,) for text in _WIDE_NUMBERS[group]] if group in _WIDE_NUMBERS else _WIDE_PAIRS
    if group == "three_operands":
        texts = _triples(texts)
    return [tuple(_number(t, text) for text in row) for row in texts]


def _group(t: Type, group: str, remarks: Sequence[str] = ()) -> str:
    return columns(group, _inputs(t, _rows(t, group)), _outputs(t, GROUPS[group]), remarks)


# Of these functions some special values are parts of pi, which are rounded like any other number.
_PARTS_OF_PI: Final = ("acos", "atan", "atan2")
_EXACT_AT_ONE: Final = ("log", "log2", "log10", "acosh", "atanh", "cbrt")


def _special_group(t: Type, group: str) -> str:
    """What is exact: all but hypot(1, 1) of pairs, of three those with less than two of size 1, and of one operand what 0 and infinity give."""
    names = [name for name in GROUPS[group] if name not in _PARTS_OF_PI]
    count = len(OPS[names[0]].operands)
    rows = [row for k, row in enumerate(product(_SPECIAL, repeat=count)) if count < 3 or k % 5 == 0]
    texts = [row for row in rows if (not set(row) <= {"1", "-1"} if count == 2 else sum("1" in text for text in row) < (count + 1) // 2)]
    return columns(f"special_{group}", _inputs(t, [[_number(t, text) for text in row] for row in texts]), _outputs(t, names))


def _special_angles(t: Type) -> list[str]:
    near = ["// tolerance: ulp 2"]
    some, pairs = ([[_number(t, text) for text in row] for row in product(_SPECIAL, repeat=count)] for count in (1, 2))
    parts = columns("parts_of_pi", _inputs(t, some), _outputs(t, ("acos", "atan")), near)
    return [parts, columns("angles_of_points", _inputs(t, pairs), _outputs(t, ("atan2",)), near)]


def _needs(t: Type) -> list[str]:
    return [NEEDS_F64] if t is f64 else []


def _file(t: Type, ulp: int) -> str:
    title = f"The transcendental functions on {t}, against mpmath: {ulp} ULP and what their rows say, special values exact."
    # Narrow types round what f32 gives.
    ulps = {group: max(ulp, *(0 if t.bits < f32.bits else OPS[name].ulp for name in names)) for group, names in GROUPS.items()}
    ordinary = [_group(t, group, [f"// tolerance: ulp {ulps[group]}"]) for group in GROUPS]
    poles = columns("ones", _inputs(t, [(_number(t, "1"),), (_number(t, "-1"),)]), _outputs(t, _EXACT_AT_ONE))
    return file_text(title, [*ordinary, *[_special_group(t, group) for group in GROUPS], poles, *_special_angles(t)], [NO_SPECIALS, *_needs(t)])


# ---------------------------------------------------------------- on WebGPU

# Title -> functions, numbers, and what WGSL's built-ins, and expansions where fma is not fused, are off by at most: in ULP of f32, and absolutely.
_EVERYDAY: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], int, str]]] = {
    "exponentials": (("exp", "exp2", "exp10", "expm1"), ("0", "1", "-1", "0.5", "2", "-3.25", "5", "10", "-10", "0.001"), 64, "0"),
    "hyperbolic": (("sinh", "cosh", "tanh", "asinh"), ("0", "1", "-1", "0.5", "2", "-3.25", "5", "-0.25", "0.125"), 64, "0.00002"),
    "logarithms": (("log", "log2", "log10", "log1p"), ("1", "2", "0.5", "3", "10", "100", "0.01", "1e4", "2.7182817", "1.5"), 8, "0.000001"),
    "roots": (("cbrt", "acosh"), ("1", "2", "3", "10", "100", "1.5", "27", "1000", "1.25"), 16, "0.00001"),
    "angles": (("sin", "cos"), ("0", "0.5", "-0.5", "1", "-1", "1.5", "-2", "3", "3.1415927", "0.001"), 0, "0.0005"),
    "tangents": (("tan",), ("0", "0.5", "-0.5", "1", "-1", "1.25", "0.001", "-0.75"), 0, "0.006"),
    "inverses": (("asin", "acos", "atan", "atanh"), ("0", "0.5", "-0.5", "0.25", "-0.75", "0.9", "0.001", "-0.96875"), 4096, "0.0005"),
    "special": (("erfcx", "erfinv", "lgamma"), ("0.5", "0.25", "0.875", "0.125"), 64, "0.00001"),
    "errors": (("erf", "erfc"), ("0", "0.5", "-0.5", "1", "-1", "2", "-2.5", "3.5", "0.1", "1.25"), 64, "0.00001"),
}  # fmt: skip
_EVERYDAY_PAIRS: Final = (
    ("2", "0.5"), ("2", "10"), ("10", "3"), ("0.5", "3.25"), ("3", "-3"), ("3", "4"), ("5", "12"), ("100", "0.01"), ("7", "1"), ("9", "-0.5"),
)  # fmt: skip
_PAIRS_NEAR: Final = (128, "0.00001")


def _near(t: Type, ulp: int, absolute: str) -> list[str]:
    """f16 and bf16 are computed in f32 and rounded: what f32 is off by moves a result to a neighbour. f64 is expanded everywhere."""
    if t is f64:
        return ["// tolerance: ulp 2", "// tolerance on wgpu: ulp 4096 abs 1e-13"]
    return [f"// tolerance: ulp {2 if t is f32 else 1}", f"// tolerance on wgpu: ulp {ulp if t is f32 else 2} abs {absolute}"]


def _everyday_file(t: Type) -> str:
    programs = []
    for title, (names, texts, ulp, absolute) in _EVERYDAY.items():
        programs.append(columns(title, _inputs(t, [(_number(t, text),) for text in texts]), _outputs(t, names), _near(t, ulp, absolute)))
    pairs = [(_number(t, a), _number(t, b)) for a, b in _EVERYDAY_PAIRS]
    programs.append(columns("two_operands", _inputs(t, pairs), _outputs(t, GROUPS["two_operands"]), _near(t, *_PAIRS_NEAR)))
    triples = [tuple(_number(t, text) for text in row) for row in _triples(_EVERYDAY_PAIRS)]
    programs.append(columns("three_operands", _inputs(t, triples), _outputs(t, GROUPS["three_operands"]), _near(t, *_PAIRS_NEAR)))
    return file_text(f"The transcendental functions on everyday {t} numbers, on wgpu as near as its own functions are.", programs, _needs(t))


def _vectors_file() -> str:
    """All of them, each over vectors of one type."""
    programs = []
    kinds = zip(GROUPS.items(), ((f32, 2), (f16, 2), (bf16, 3), (f32, 4), (f32, 3), (f16, 3), (f32, 2)), strict=True)
    for (group, names), (t, lanes) in kinds:
        v, numbers = vector_of(t, lanes), [_number(t, text) for text in ("0.5", "0.25", "1", "0.125", "0.75", "0.875", "0.0625")]
        count = len(OPS[names[0]].operands)
        rows = [[tuple(numbers[(k + 2 * j + 3 * m) % len(numbers)] for j in range(lanes)) for k in range(5)] for m in range(count)]
        inputs = {name: (v, column) for name, column in zip("xyz", rows, strict=False)}
        outputs: dict[str, Result] = {name: (v, call(name, *_operands(name)), partial(_each, name, FORMATS[t])) for name in names}
        programs.append(columns(f"{group}_of_{v}", inputs, outputs, _near(t, 64, "0.0005")))
    return file_text("Transcendental functions over vectors.", programs)


def _each(name: str, f: Format, *operands: tuple[Number, ...]) -> tuple[Number, ...]:
    compute = _unary if name in _UNARY else _several
    return tuple(compute(name, f, *parts) for parts in zip(*operands, strict=True))


FILES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"math_{t}": partial(_file, t, ulp) for t, ulp in ((f32, 2), (f16, 1), (bf16, 1), (f64, 1))},
    **{f"math_{t}_everyday": partial(_everyday_file, t) for t in (f32, f16, bf16, f64)},
    "math_vectors": _vectors_file,
}
