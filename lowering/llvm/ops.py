"""The op table of LLVM IR: one row per op, for scalars and vectors, for PTX and the host alike.

No row uses a flag or a form that lets LLVM assume anything (nsw, exact, fast-math, poison), and intrinsics come from a closed list
that every back end expands inline: others abort the process on NVPTX, or become calls that a JIT can't resolve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.language.types import Kind, Type
from vyre_py.lowering.llvm.conversions import bitcast, cast
from vyre_py.lowering.llvm.idioms import (
    Emitter,
    choose,
    compare,
    instruction,
    intrinsic,
    intrinsic_row,
    suffix,
    with_constant,
)
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, integer, llvm_type, number

__all__ = ["ARM_EMITTERS", "EMITTERS", "HOST_EMITTERS", "host_emitters"]

# ---------------------------------------------------------------- integers


def _safe_divisor(w: Writer, width: int, t: Type, a: str, b: str) -> str:
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
    return choose(w, width, type_, bad, integer(1, t.bits, width), b)


# Integers of up to so many bits -> the float type that vectors of them are divided in.
_DIVIDED_IN: Final[Mapping[int, str]] = {8: "float", 16: "float", 32: "double"}


# So many divisions stand in the kernel itself, where LLVM knows most about them.
_DIVISIONS_INLINE: Final = 16


def _lane_by_lane(w: Writer, name: str, type_: str, a: str, b: str) -> str:
    """A division that is made lane by lane, after the first few by a call: LLVM writes each of a lane with branches, and its time grows with the square of
    their number in one function (500 divisions of i64 in 16 lanes: 26 s)."""
    function, instruction_ = f"vyre_{name}_{suffix(type_)}", f"{name} {type_}"
    if w.module.count("lane by lane") <= _DIVISIONS_INLINE:
        return w.let(f"{instruction_} {a}, {b}")
    head = f"define internal {type_} @{function}({type_} %a, {type_} %b) noinline nounwind willreturn memory(none) {{"
    w.module.define(f"{head}\n  %q = {instruction_} %a, %b\n  ret {type_} %q\n}}")
    return w.let(f"call {type_} @{function}({type_} {a}, {type_} {b})")


def _quotient(w: Writer, width: int, t: Type, a: str, b: str) -> str:
    type_, sign = llvm_type(t, width), "s" if t.is_signed else "u"
    if width == 1:
        return w.let(f"{sign}div {type_} {a}, {b}")
    if t.bits not in _DIVIDED_IN:
        return _lane_by_lane(w, f"{sign}div", type_, a, b)
    # Hosts have no vector division of integers. In floats it is exact: a quotient of
    # integers of n bits that is no whole number lies at least 2^-(n+1) (relative) below the next one; f32 rounds by 2^-24, f64 by 2^-53.
    wide = f"<{width} x {_DIVIDED_IN[t.bits]}>"
    first, second = [w.let(f"{sign}itofp {type_} {x} to {wide}") for x in (a, b)]
    quotient = w.let(f"fdiv {wide} {first}, {second}")
    if t.bits == 32:
        return w.let(f"fpto{sign}i {wide} {quotient} to {type_}")
    # To words first, by the signed conversion, which is one instruction; these quotients fit.
    words = bits_type(32, width)
    return w.let(f"trunc {words} {w.let(f'fptosi {wide} {quotient} to {words}')} to {type_}")


def _div(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    a, b = args
    if t.is_float:
        return w.let(f"fdiv {llvm_type(t, width)} {a}, {b}")
    return _quotient(w, width, t, a, _safe_divisor(w, width, t, a, b))


def _rem(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    a, b = args
    type_, safe = llvm_type(t, width), _safe_divisor(w, width, t, a, b)
    name = "srem" if t.is_signed else "urem"
    if width == 1:
        return w.let(f"{name} {type_} {a}, {safe}")
    if t.bits not in _DIVIDED_IN:
        return _lane_by_lane(w, name, type_, a, safe)
    whole = w.let(f"mul {type_} {_quotient(w, width, t, a, safe)}, {safe}")
    return w.let(f"sub {type_} {a}, {whole}")


def _shift(signed: str, unsigned: str) -> Emitter:
    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        type_ = llvm_type(t, width)
        known = width == 1 and args[1].isdigit()
        count = str(int(args[1]) & (t.bits - 1)) if known else w.let(f"and {type_} {args[1]}, {integer(t.bits - 1, t.bits, width)}")
        return w.let(f"{signed if t.is_signed else unsigned} {type_} {args[0]}, {count}")

    return emit


def _rotate(name: str) -> Emitter:
    """A funnel shift of a value with itself; it takes its count modulo the width."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        return intrinsic(w, name, llvm_type(t, width), args[0], args[0], args[1])

    return emit


def _mul_hi(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    if width > 1 and t.bits == 64:
        return _mul_hi_by_halves(w, width, t, args)
    type_, wide, extend = llvm_type(t, width), bits_type(2 * t.bits, width), "sext" if t.is_signed else "zext"
    a, b = [w.let(f"{extend} {type_} {x} to {wide}") for x in args]
    product = w.let(f"mul {wide} {a}, {b}")
    return w.let(f"trunc {wide} {w.let(f'lshr {wide} {product}, {integer(t.bits, 2 * t.bits, width)}')} to {type_}")


def _mul_hi_by_halves(w: Writer, width: int, t: Type, args: Sequence[str]) -> str:
    """Of 64 bits, by products of 32, which vectors have: unsigned, and then less each operand that stands above a negative other."""
    type_ = llvm_type(t, width)

    def two(name: str, a: str, b: str) -> str:
        return w.let(f"{name} {type_} {a}, {b}")

    half, low_half = integer(32, 64, width), integer(0xFFFFFFFF, 64, width)
    (high_a, low_a), (high_b, low_b) = [(two("lshr", x, half), two("and", x, low_half)) for x in args]
    middle = two("add", two("mul", high_a, low_b), two("lshr", two("mul", low_a, low_b), half))
    lower = two("add", two("mul", low_a, high_b), two("and", middle, low_half))
    upper = two("add", two("mul", high_a, high_b), two("lshr", middle, half))
    upper = two("add", upper, two("lshr", lower, half))
    if t.is_signed:
        for x, other in (tuple(args), tuple(reversed(args))):
            upper = two("sub", upper, two("and", two("ashr", x, integer(63, 64, width)), other))
    return upper


def _abs_diff(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    type_, sign = llvm_type(t, width), "s" if t.is_signed else "u"
    high, low = [intrinsic(w, f"{sign}{end}", type_, *args) for end in ("max", "min")]
    return w.let(f"sub {type_} {high}, {low}")


# ---------------------------------------------------------------- numbers


def _neg(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    type_ = llvm_type(t, width)
    return w.let(f"fneg {type_} {args[0]}" if t.is_float else f"sub {type_} {integer(0, t.bits, width)}, {args[0]}")


def _abs(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    if t.is_float:
        return intrinsic(w, "fabs", llvm_type(t, width), args[0])
    return intrinsic(w, "abs", llvm_type(t, width), args[0], flag="false") if t.is_signed else args[0]


def _sign(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    type_, zero, x = llvm_type(t, width), number(t, 0, width), args[0]
    if t.kind is Kind.UINT:
        return intrinsic(w, "umin", type_, x, number(t, 1, width))
    above, below = ("fcmp ogt", "fcmp olt") if t.is_float else ("icmp sgt", "icmp slt")
    kept = choose(w, width, type_, w.let(f"{below} {type_} {x}, {zero}"), number(t, -1, width), x)
    return choose(w, width, type_, w.let(f"{above} {type_} {x}, {zero}"), number(t, 1, width), kept)


_MIN = intrinsic_row("smin", "umin", "minimumnum")
_MAX = intrinsic_row("smax", "umax", "maximumnum")


def _clamp(least: Emitter, greatest: Emitter) -> Emitter:
    """min(max(x, low), high) by these two."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        x, low, high = args
        return least(w, width, t, result, (greatest(w, width, t, result, (x, low)), high))

    return emit


def _spelled(intrinsic: Emitter, predicate: str, tie: str) -> Emitter:
    """min or max of floats by comparisons: a number wins over NaN, and of equal ones, which differ in a zero's sign at most, `tie` of the
    bits is right. LLVM 22's x86 back end gives NaN for minimumnum(maximumnum(-inf, NaN), NaN)."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        if not t.is_float:
            return intrinsic(w, width, t, result, args)
        a, b = args
        type_, bits = llvm_type(t, width), bits_type(t.bits, width)
        first, second = (w.let(f"bitcast {type_} {x} to {bits}") for x in (a, b))
        tied = w.let(f"bitcast {bits} {w.let(f'{tie} {bits} {first}, {second}')} to {type_}")
        picked = choose(w, width, type_, w.let(f"fcmp {predicate} {type_} {a}, {b}"), a, b)
        picked = choose(w, width, type_, w.let(f"fcmp oeq {type_} {a}, {b}"), tied, picked)
        return choose(w, width, type_, w.let(f"fcmp uno {type_} {b}, {b}"), a, picked)

    return emit


def _fract(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    type_ = llvm_type(t, width)
    return w.let(f"fsub {type_} {args[0]}, {intrinsic(w, 'floor', type_, args[0])}")


def _is_nan(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    return w.let(f"fcmp uno {llvm_type(t, width)} {args[0]}, {number(t, 0.0, width)}")


def _against_infinity(predicate: str) -> Emitter:
    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        type_ = llvm_type(t, width)
        return w.let(f"fcmp {predicate} {type_} {intrinsic(w, 'fabs', type_, args[0])}, {number(t, math.inf, width)}")

    return emit


def _select(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    return choose(w, width, llvm_type(t, width), *args)


EMITTERS: Final[Mapping[str, Emitter]] = {
    "add": instruction("add", "add", "fadd"),
    "sub": instruction("sub", "sub", "fsub"),
    "mul": instruction("mul", "mul", "fmul"),
    "div": _div,
    "rem": _rem,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "min": _MIN,
    "max": _MAX,
    "clamp": _clamp(_MIN, _MAX),
    "fma": intrinsic_row("fma"),
    "sqrt": intrinsic_row("sqrt"),
    "floor": intrinsic_row("floor"),
    "ceil": intrinsic_row("ceil"),
    "trunc": intrinsic_row("trunc"),
    "round": intrinsic_row("roundeven"),
    "fract": _fract,
    "and": instruction("and", "and", ""),
    "or": instruction("or", "or", ""),
    "xor": instruction("xor", "xor", ""),
    "not": with_constant("xor", -1),
    "shl": _shift("shl", "shl"),
    "shr": _shift("ashr", "lshr"),
    "rotl": _rotate("fshl"),
    "rotr": _rotate("fshr"),
    "popcount": intrinsic_row("ctpop"),
    "clz": intrinsic_row("ctlz", flag="false"),
    "ctz": intrinsic_row("cttz", flag="false"),
    "reverse_bits": intrinsic_row("bitreverse"),
    "mul_hi": _mul_hi,
    "saturating_add": intrinsic_row("sadd.sat", "uadd.sat"),
    "saturating_sub": intrinsic_row("ssub.sat", "usub.sat"),
    "abs_diff": _abs_diff,
    "eq": compare("eq", "oeq"),
    "ne": compare("ne", "une"),
    "lt": compare("slt", "olt"),
    "le": compare("sle", "ole"),
    "gt": compare("sgt", "ogt"),
    "ge": compare("sge", "oge"),
    "logical_and": instruction("and", "and", ""),
    "logical_or": instruction("or", "or", ""),
    "logical_not": with_constant("xor", -1),
    "select": _select,
    "is_nan": _is_nan,
    "is_inf": _against_infinity("oeq"),
    "is_finite": _against_infinity("olt"),
    "cast": cast(halves=True),
    "bitcast": bitcast,
}

_HOST_MIN, _HOST_MAX = _spelled(_MIN, "olt", "or"), _spelled(_MAX, "ogt", "and")

# The rows that any x86-64's code takes.
HOST_EMITTERS: Final[Mapping[str, Emitter]] = {
    **EMITTERS, "min": _HOST_MIN, "max": _HOST_MAX, "clamp": _clamp(_HOST_MIN, _HOST_MAX), "cast": cast(halves=False),
}  # fmt: skip


def _hidden(comparison: Emitter) -> Emitter:
    """A comparison of floats that LLVM does not see to be of the operands of a select: where one of them is a constant, LLVM 22 makes an fmaxnm or fminnm of
    both, and their result for a signalling NaN is NaN, whatever the other operand."""

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        if not t.is_float:
            return comparison(w, width, t, result, args)
        return comparison(w, width, t, result, (intrinsic(w, "arithmetic.fence", llvm_type(t, width), args[0]), args[1]))

    return emit


# The rows of 64-bit ARM, whose minimumnum and maximumnum are right, and whose instructions convert f16.
ARM_EMITTERS: Final[Mapping[str, Emitter]] = {**EMITTERS, **{name: _hidden(EMITTERS[name]) for name in ("lt", "le", "gt", "ge")}}


def host_emitters(machine: str, halves: bool) -> Mapping[str, Emitter]:
    """The rows for a host, "x86_64" or "aarch64"; `halves` says that it has instructions between f16 and f32."""
    if machine == "aarch64":
        return ARM_EMITTERS
    return {**HOST_EMITTERS, "cast": EMITTERS["cast"]} if halves else HOST_EMITTERS
