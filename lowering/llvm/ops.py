"""The op table of LLVM IR: one row per op, for scalars and vectors, for PTX and the host alike.

No row uses a flag or a form that lets LLVM assume anything (nsw, exact, fast-math, poison), and intrinsics come from a closed list
that every back end expands inline: others abort the process on NVPTX, or become calls that a JIT can't resolve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.types import Kind, Scalar
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, integer, llvm_type, number

__all__ = ["EMITTERS", "HOST_EMITTERS", "Emitter", "atomic_operation", "param_value"]

# (writer, lanes, operand type T (that of the last operand), result type, operand names) -> result name
Emitter = Callable[[Writer, int, Scalar, Scalar, Sequence[str]], str]

_CANONICAL_NAN: Final[Mapping[int, int]] = {32: 0x7FC00000, 64: 0x7FF8000000000000}


def _plain(signed: str, unsigned: str, floating: str) -> Emitter:
    """An instruction over two operands, by kind of T."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        instruction = floating if t.is_float else signed if t.is_signed else unsigned
        return w.let(f"{instruction} {llvm_type(t, width)} {args[0]}, {args[1]}")

    return emit


def _with(instruction: str, constant: int) -> Emitter:
    """An integer or bool instruction over the operand and a constant."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        return w.let(f"{instruction} {llvm_type(t, width)} {args[0]}, {integer(constant, t.bits, width)}")

    return emit


def _intrinsic_name(name: str, type_: str) -> str:
    suffix = type_.replace("float", "f32").replace("double", "f64")
    if type_.startswith("<"):
        count, _, element = suffix[1:-1].partition(" x ")
        suffix = f"v{count}{element}"
    return f"llvm.{name}.{suffix}"


def _call(w: Writer, name: str, type_: str, *args: str, flag: str | None = None) -> str:
    """An intrinsic over operands of one type, with an i1 flag after them for some."""
    operands = [(type_, a) for a in args] + ([("i1", flag)] if flag is not None else [])
    return w.call(type_, _intrinsic_name(name, type_), *operands)


def _intrinsic(signed: str, unsigned: str = "", floating: str = "", flag: str | None = None) -> Emitter:
    """An intrinsic over operands of T, by kind of T; the flag is for integers only."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        name = floating or signed if t.is_float else signed if t.is_signed or not unsigned else unsigned
        return _call(w, name, llvm_type(t, width), *args, flag=None if t.is_float else flag)

    return emit


def _compare(integers: str, floating: str) -> Emitter:
    """A comparison; "s" in `integers` becomes "u" for unsigned types."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        predicate = f"fcmp {floating}" if t.is_float else "icmp " + (integers if t.is_signed else integers.replace("s", "u"))
        return w.let(f"{predicate} {llvm_type(t, width)} {args[0]}, {args[1]}")

    return emit


def _choose(w: Writer, width: int, t: str, condition: str, yes: str, no: str) -> str:
    return w.let(f"select {bits_type(1, width)} {condition}, {t} {yes}, {t} {no}")


# ---------------------------------------------------------------- integers


def _safe_divisor(w: Writer, width: int, t: Scalar, a: str, b: str) -> str:
    """The divisor, with 1 in place of 0, and of -1 under MIN: then x / 0 = x, MIN / -1 = MIN and both remainders are 0.

    In every lane, since a vector division traps in lanes that are off as well.
    """
    type_, bit = llvm_type(t, width), bits_type(1, width)
    bad = w.let(f"icmp eq {type_} {b}, {integer(0, t.bits, width)}")
    if t.is_signed:
        least = w.let(f"icmp eq {type_} {a}, {integer(t.minimum, t.bits, width)}")
        minus = w.let(f"icmp eq {type_} {b}, {integer(-1, t.bits, width)}")
        over = w.let(f"and {bit} {least}, {minus}")
        bad = w.let(f"or {bit} {bad}, {over}")
    return _choose(w, width, type_, bad, integer(1, t.bits, width), b)


def _quotient(w: Writer, width: int, t: Scalar, a: str, b: str) -> str:
    type_, sign = llvm_type(t, width), "s" if t.is_signed else "u"
    if width == 1 or t.bits > 32:
        return w.let(f"{sign}div {type_} {a}, {b}")
    # Hosts have no vector division. Through f64 it is exact: a quotient that is no whole number lies at least 2^-32 (relative)
    # below the next one, and f64 rounds by 2^-53.
    double = f"<{width} x double>"
    wide = [w.let(f"{sign}itofp {type_} {x} to {double}") for x in (a, b)]
    quotient = w.let(f"fdiv {double} {wide[0]}, {wide[1]}")
    return w.let(f"fpto{sign}i {double} {quotient} to {type_}")


def _div(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    a, b = args
    if t.is_float:
        return w.let(f"fdiv {llvm_type(t, width)} {a}, {b}")
    return _quotient(w, width, t, a, _safe_divisor(w, width, t, a, b))


def _rem(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    a, b = args
    type_, safe = llvm_type(t, width), _safe_divisor(w, width, t, a, b)
    if width == 1:
        return w.let(f"{'s' if t.is_signed else 'u'}rem {type_} {a}, {safe}")
    whole = w.let(f"mul {type_} {_quotient(w, width, t, a, safe)}, {safe}")
    return w.let(f"sub {type_} {a}, {whole}")


def _shift(signed: str, unsigned: str) -> Emitter:
    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        type_ = llvm_type(t, width)
        count = w.let(f"and {type_} {args[1]}, {integer(t.bits - 1, t.bits, width)}")
        return w.let(f"{signed if t.is_signed else unsigned} {type_} {args[0]}, {count}")

    return emit


def _rotate(name: str) -> Emitter:
    """A funnel shift of a value with itself; it takes its count modulo the width."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        return _call(w, name, llvm_type(t, width), args[0], args[0], args[1])

    return emit


def _mul_hi(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    type_, wide, extend = llvm_type(t, width), bits_type(2 * t.bits, width), "sext" if t.is_signed else "zext"
    a, b = [w.let(f"{extend} {type_} {x} to {wide}") for x in args]
    product = w.let(f"mul {wide} {a}, {b}")
    return w.let(f"trunc {wide} {w.let(f'lshr {wide} {product}, {integer(t.bits, 2 * t.bits, width)}')} to {type_}")


def _abs_diff(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    type_, sign = llvm_type(t, width), "s" if t.is_signed else "u"
    high, low = [_call(w, f"{sign}{end}", type_, *args) for end in ("max", "min")]
    return w.let(f"sub {type_} {high}, {low}")


# ---------------------------------------------------------------- numbers


def _neg(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    type_ = llvm_type(t, width)
    return w.let(f"fneg {type_} {args[0]}" if t.is_float else f"sub {type_} {integer(0, t.bits, width)}, {args[0]}")


def _abs(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    if t.is_float:
        return _call(w, "fabs", llvm_type(t, width), args[0])
    return _call(w, "abs", llvm_type(t, width), args[0], flag="false") if t.is_signed else args[0]


def _sign(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    type_, zero, x = llvm_type(t, width), number(t, 0, width), args[0]
    if t.kind is Kind.UINT:
        return _call(w, "umin", type_, x, number(t, 1, width))
    above, below = ("fcmp ogt", "fcmp olt") if t.is_float else ("icmp sgt", "icmp slt")
    kept = _choose(w, width, type_, w.let(f"{below} {type_} {x}, {zero}"), number(t, -1, width), x)
    return _choose(w, width, type_, w.let(f"{above} {type_} {x}, {zero}"), number(t, 1, width), kept)


_MIN = _intrinsic("smin", "umin", "minimumnum")
_MAX = _intrinsic("smax", "umax", "maximumnum")


def _clamp(least: Emitter, greatest: Emitter) -> Emitter:
    """min(max(x, low), high) by these two."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        x, low, high = args
        return least(w, width, t, result, (greatest(w, width, t, result, (x, low)), high))

    return emit


def _spelled(intrinsic: Emitter, predicate: str, tie: str) -> Emitter:
    """min or max of floats by comparisons: a number wins over NaN, and of equal ones, which differ in a zero's sign at most, `tie` of the
    bits is right. LLVM 22's x86 back end gives NaN for minimumnum(maximumnum(-inf, NaN), NaN)."""

    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        if not t.is_float:
            return intrinsic(w, width, t, result, args)
        a, b = args
        type_, bits = llvm_type(t, width), bits_type(t.bits, width)
        first, second = (w.let(f"bitcast {type_} {x} to {bits}") for x in (a, b))
        tied = w.let(f"bitcast {bits} {w.let(f'{tie} {bits} {first}, {second}')} to {type_}")
        picked = _choose(w, width, type_, w.let(f"fcmp {predicate} {type_} {a}, {b}"), a, b)
        picked = _choose(w, width, type_, w.let(f"fcmp oeq {type_} {a}, {b}"), tied, picked)
        return _choose(w, width, type_, w.let(f"fcmp uno {type_} {b}, {b}"), a, picked)

    return emit


def _fract(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    type_ = llvm_type(t, width)
    return w.let(f"fsub {type_} {args[0]}, {_call(w, 'floor', type_, args[0])}")


def _is_nan(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    return w.let(f"fcmp uno {llvm_type(t, width)} {args[0]}, {number(t, 0.0, width)}")


def _against_infinity(predicate: str) -> Emitter:
    def emit(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
        type_ = llvm_type(t, width)
        return w.let(f"fcmp {predicate} {type_} {_call(w, 'fabs', type_, args[0])}, {number(t, math.inf, width)}")

    return emit


def _select(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    return _choose(w, width, llvm_type(t, width), *args)


# ---------------------------------------------------------------- conversions


def _to_bool(w: Writer, width: int, t: Scalar, args: Sequence[str]) -> str:
    return w.let(f"{'fcmp une' if t.is_float else 'icmp ne'} {llvm_type(t, width)} {args[0]}, {number(t, 0, width)}")


def _saturate(w: Writer, width: int, t: Scalar, result: Scalar, x: str) -> str:
    """Float to integer: the conversion sees only what it can convert, 0 in place of the rest, and the ends are chosen after."""
    type_, target, bit = llvm_type(t, width), llvm_type(result, width), bits_type(1, width)
    least, past = number(t, result.minimum, width), number(t, result.maximum + 1, width)
    not_below = w.let(f"fcmp oge {type_} {x}, {least}")
    not_above = w.let(f"fcmp olt {type_} {x}, {past}")
    inside = _choose(w, width, type_, w.let(f"and {bit} {not_below}, {not_above}"), x, number(t, 0.0, width))
    # The signed conversion is one instruction where the unsigned one is several, so the narrow types go through it.
    wide = "i32" if result.bits < 32 else f"i{result.bits}"
    wide = wide if width == 1 else f"<{width} x {wide}>"
    whole = w.let(f"{'fptosi' if result.is_signed or result.bits < 32 else 'fptoui'} {type_} {inside} to {wide}")
    if wide != target:
        whole = w.let(f"trunc {wide} {whole} to {target}")
    above = w.let(f"fcmp oge {type_} {x}, {past}")
    whole = _choose(w, width, target, above, integer(result.maximum, result.bits, width), whole)
    if not result.minimum:
        return whole
    below = w.let(f"fcmp olt {type_} {x}, {least}")
    return _choose(w, width, target, below, integer(result.minimum, result.bits, width), whole)


def _resize(w: Writer, width: int, t: Scalar, result: Scalar, x: str) -> str:
    if t.bits == result.bits:
        return x
    instruction = "trunc" if t.bits > result.bits else "sext" if t.is_signed else "zext"
    return w.let(f"{instruction} {llvm_type(t, width)} {x} to {llvm_type(result, width)}")


def _cast(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    x = args[0]
    if result.kind is Kind.BOOL:
        return _to_bool(w, width, t, args)
    if t.kind is Kind.BOOL:
        return _choose(w, width, llvm_type(result, width), x, number(result, 1, width), number(result, 0, width))
    if t.is_float:
        return _saturate(w, width, t, result, x)
    if result.is_float:
        return w.let(f"{'s' if t.is_signed else 'u'}itofp {llvm_type(t, width)} {x} to {llvm_type(result, width)}")
    return _resize(w, width, t, result, x)


def _bitcast(w: Writer, width: int, t: Scalar, result: Scalar, args: Sequence[str]) -> str:
    source, target = llvm_type(t, width), llvm_type(result, width)
    if source == target:
        return args[0]
    bits = w.let(f"bitcast {source} {args[0]} to {target}")
    if not t.is_float:
        return bits
    nan = w.let(f"fcmp uno {source} {args[0]}, {number(t, 0.0, width)}")
    return _choose(w, width, target, nan, integer(_CANONICAL_NAN[t.bits], t.bits, width), bits)


EMITTERS: Final[Mapping[str, Emitter]] = {
    "add": _plain("add", "add", "fadd"),
    "sub": _plain("sub", "sub", "fsub"),
    "mul": _plain("mul", "mul", "fmul"),
    "div": _div,
    "rem": _rem,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "min": _MIN,
    "max": _MAX,
    "clamp": _clamp(_MIN, _MAX),
    "fma": _intrinsic("fma"),
    "sqrt": _intrinsic("sqrt"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "fract": _fract,
    "and": _plain("and", "and", ""),
    "or": _plain("or", "or", ""),
    "xor": _plain("xor", "xor", ""),
    "not": _with("xor", -1),
    "shl": _shift("shl", "shl"),
    "shr": _shift("ashr", "lshr"),
    "rotl": _rotate("fshl"),
    "rotr": _rotate("fshr"),
    "popcount": _intrinsic("ctpop"),
    "clz": _intrinsic("ctlz", flag="false"),
    "ctz": _intrinsic("cttz", flag="false"),
    "reverse_bits": _intrinsic("bitreverse"),
    "mul_hi": _mul_hi,
    "abs_diff": _abs_diff,
    "eq": _compare("eq", "oeq"),
    "ne": _compare("ne", "une"),
    "lt": _compare("slt", "olt"),
    "le": _compare("sle", "ole"),
    "gt": _compare("sgt", "ogt"),
    "ge": _compare("sge", "oge"),
    "logical_and": _plain("and", "and", ""),
    "logical_or": _plain("or", "or", ""),
    "logical_not": _with("xor", -1),
    "select": _select,
    "is_nan": _is_nan,
    "is_inf": _against_infinity("oeq"),
    "is_finite": _against_infinity("olt"),
    "cast": _cast,
    "bitcast": _bitcast,
}

_HOST_MIN, _HOST_MAX = _spelled(_MIN, "olt", "or"), _spelled(_MAX, "ogt", "and")

# The rows that host code takes.
HOST_EMITTERS: Final[Mapping[str, Emitter]] = {**EMITTERS, "min": _HOST_MIN, "max": _HOST_MAX, "clamp": _clamp(_HOST_MIN, _HOST_MAX)}

# Atomic -> its `atomicrmw` operation for signed and unsigned types; compare_exchange is an instruction of its own.
_ATOMICS: Final[Mapping[str, tuple[str, str]]] = {
    "add": ("add", "add"), "sub": ("sub", "sub"), "min": ("min", "umin"), "max": ("max", "umax"), "and": ("and", "and"), "or": ("or", "or"),
    "xor": ("xor", "xor"), "exchange": ("xchg", "xchg"),
}


def atomic_operation(w: Writer, name: str, t: Scalar, pointer: str, operands: Sequence[str], ordering: str) -> str:
    """An atomic on the element at `pointer` ("ptr %p"), `ordering` being all that follows the operands; gives the old value."""
    type_, align = llvm_type(t), f"align {t.size_bytes}"
    if name == "compare_exchange":
        expected, desired = operands
        pair = w.let(f"cmpxchg {pointer}, {type_} {expected}, {type_} {desired} {ordering}, {align}")
        return w.let(f"extractvalue {{ {type_}, i1 }} {pair}, 0")
    return w.let(f"atomicrmw {_ATOMICS[name][not t.is_signed]} {pointer}, {type_} {operands[0]} {ordering}, {align}")


def param_value(w: Writer, type_: Scalar, word: str) -> str:
    """A param's value from its word in the argument block."""
    if type_.kind is Kind.BOOL:
        return w.let(f"icmp ne i32 {word}, 0")
    if type_.is_float:
        return w.let(f"bitcast i32 {word} to {llvm_type(type_)}")
    return word if type_.bits == 32 else w.let(f"trunc i32 {word} to {llvm_type(type_)}")
