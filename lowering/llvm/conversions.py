"""Conversions between types in LLVM IR: one rounding each, saturation spelled out, and small floats as integers of their width.

f16 and bf16 meet f32 only (`lowering.legal` sees to it). Where the machine converts f16 by an instruction that is what is written; elsewhere, and for
bf16, it is integer arithmetic, since LLVM would call a function that neither a GPU nor the process has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.types import Kind, Type, bf16, f16, f32, f64
from vyre_py.lowering.llvm.idioms import Emitter, choose, intrinsic
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type, integer, is_small_float, llvm_type, number

__all__ = ["bitcast", "cast", "param_value"]

# (writer, lanes, operand name) -> result name
_Conversion = Callable[[Writer, int, str], str]


def _reinterpret(w: Writer, source: str, name: str, target: str) -> str:
    return w.let(f"bitcast {source} {name} to {target}")


# ---------------------------------------------------------------- f16 and bf16


def _half_to_f32(w: Writer, width: int, x: str) -> str:
    half = bits_type(16, width).replace("i16", "half")
    return w.let(f"fpext {half} {_reinterpret(w, bits_type(16, width), x, half)} to {llvm_type(f32, width)}")


def _f32_to_half(w: Writer, width: int, x: str) -> str:
    half = bits_type(16, width).replace("i16", "half")
    narrow = w.let(f"fptrunc {llvm_type(f32, width)} {x} to {half}")
    return _reinterpret(w, half, narrow, bits_type(16, width))


_F16_INFINITY: Final = f16.greatest_bits + 1
# The bits of an f32: its sign, infinity, and, of a magnitude that no f16 holds, the least.
_SIGN: Final = 1 << 31
_INFINITY: Final = 0x7F800000
_PAST_F16: Final = 143 << 23
_LEAST_NORMAL_F16: Final = 113 << 23
_REBIAS: Final = 112  # what the exponents' biases differ by


def _f16_to_f32(w: Writer, width: int, x: str) -> str:
    """Moves exponent and fraction to their places, as a number 2^112 times too small (subnormals too), and multiplies, exactly."""
    word, single = bits_type(32, width), llvm_type(f32, width)
    wide = w.let(f"zext {bits_type(16, width)} {x} to {word}")
    magnitude = w.let(f"shl {word} {w.let(f'and {word} {wide}, {integer(0x7FFF, 32, width)}')}, {integer(13, 32, width)}")
    scaled = w.let(f"fmul {single} {_reinterpret(w, word, magnitude, single)}, {number(f32, 2.0**_REBIAS, width)}")
    # Infinities and NaNs take the greatest exponent instead, which keeps their fraction.
    special = w.let(f"or {word} {magnitude}, {integer(_INFINITY, 32, width)}")
    is_special = w.let(f"icmp uge {word} {magnitude}, {integer(_F16_INFINITY << 13, 32, width)}")
    found = choose(w, width, word, is_special, special, _reinterpret(w, single, scaled, word))
    sign = w.let(f"shl {word} {w.let(f'and {word} {wide}, {integer(0x8000, 32, width)}')}, {integer(16, 32, width)}")
    return _reinterpret(w, word, w.let(f"or {word} {found}, {sign}"), single)


def _f32_to_f16(w: Writer, width: int, x: str) -> str:
    """To nearest even. Normal results by adding half of the last place to the bits and cutting, a carry going into the exponent; subnormal
    ones by adding a power of two whose last place is theirs, so that the addition rounds."""
    word, single = bits_type(32, width), llvm_type(f32, width)

    def constant(value: int) -> str:
        return integer(value, 32, width)

    bits = _reinterpret(w, single, x, word)
    magnitude = w.let(f"and {word} {bits}, {constant(_SIGN - 1)}")
    odd = w.let(f"and {word} {w.let(f'lshr {word} {magnitude}, {constant(13)}')}, {constant(1)}")
    raised = w.let(f"add {word} {w.let(f'sub {word} {magnitude}, {constant((_REBIAS << 23) - 0xFFF)}')}, {odd}")
    normal = w.let(f"lshr {word} {raised}, {constant(13)}")
    # 0.5 has the last place 2^-24.
    summed = w.let(f"fadd {single} {_reinterpret(w, word, magnitude, single)}, {number(f32, 0.5, width)}")
    tiny = w.let(f"sub {word} {_reinterpret(w, single, summed, word)}, {constant(126 << 23)}")
    is_tiny = w.let(f"icmp ult {word} {magnitude}, {constant(_LEAST_NORMAL_F16)}")
    found = choose(w, width, word, is_tiny, tiny, normal)
    is_nan = w.let(f"icmp ugt {word} {magnitude}, {constant(_INFINITY)}")
    special = choose(w, width, word, is_nan, constant(f16.canonical_nan), constant(_F16_INFINITY))
    found = choose(w, width, word, w.let(f"icmp uge {word} {magnitude}, {constant(_PAST_F16)}"), special, found)
    sign = w.let(f"and {word} {w.let(f'lshr {word} {bits}, {constant(16)}')}, {constant(0x8000)}")
    return w.let(f"trunc {word} {w.let(f'or {word} {found}, {sign}')} to {bits_type(16, width)}")


def _bf16_to_f32(w: Writer, width: int, x: str) -> str:
    """The upper half of an f32."""
    word = bits_type(32, width)
    wide = w.let(f"zext {bits_type(16, width)} {x} to {word}")
    return _reinterpret(w, word, w.let(f"shl {word} {wide}, {integer(16, 32, width)}"), llvm_type(f32, width))


def _f32_to_bf16(w: Writer, width: int, x: str) -> str:
    """To nearest even: half of the last place is added to the bits, less one where the last bit is 0, and the rest is cut."""
    word, single = bits_type(32, width), llvm_type(f32, width)
    bits = _reinterpret(w, single, x, word)
    odd = w.let(f"and {word} {w.let(f'lshr {word} {bits}, {integer(16, 32, width)}')}, {integer(1, 32, width)}")
    raised = w.let(f"add {word} {w.let(f'add {word} {bits}, {integer(0x7FFF, 32, width)}')}, {odd}")
    is_nan = w.let(f"fcmp uno {single} {x}, {number(f32, 0.0, width)}")
    kept = choose(w, width, word, is_nan, integer(bf16.canonical_nan << 16, 32, width), raised)
    return w.let(f"trunc {word} {w.let(f'lshr {word} {kept}, {integer(16, 32, width)}')} to {bits_type(16, width)}")


_BY_INTEGERS: Final[Mapping[tuple[Type, Type], _Conversion]] = {
    (f16, f32): _f16_to_f32, (f32, f16): _f32_to_f16, (bf16, f32): _bf16_to_f32, (f32, bf16): _f32_to_bf16,
}  # fmt: skip
_BY_HALVES: Final[Mapping[tuple[Type, Type], _Conversion]] = {**_BY_INTEGERS, (f16, f32): _half_to_f32, (f32, f16): _f32_to_half}


# ---------------------------------------------------------------- the rest


def _to_bool(w: Writer, width: int, t: Type, x: str) -> str:
    return w.let(f"{'fcmp une' if t.is_float else 'icmp ne'} {llvm_type(t, width)} {x}, {number(t, 0, width)}")


def _saturate(w: Writer, width: int, t: Type, result: Type, x: str) -> str:
    """Float to integer: the conversion sees only what it can convert, 0 in place of the rest, and the ends are chosen after."""
    type_, target, bit = llvm_type(t, width), llvm_type(result, width), bits_type(1, width)
    least, past = number(t, result.minimum, width), number(t, result.maximum + 1, width)
    not_below = w.let(f"fcmp oge {type_} {x}, {least}")
    not_above = w.let(f"fcmp olt {type_} {x}, {past}")
    inside = choose(w, width, type_, w.let(f"and {bit} {not_below}, {not_above}"), x, number(t, 0.0, width))
    # The signed conversion is one instruction where the unsigned one is several, so the narrow types go through it.
    wide = bits_type(max(result.bits, 32), width)
    whole = w.let(f"{'fptosi' if result.is_signed or result.bits < 32 else 'fptoui'} {type_} {inside} to {wide}")
    if wide != target:
        whole = w.let(f"trunc {wide} {whole} to {target}")
    above = w.let(f"fcmp oge {type_} {x}, {past}")
    whole = choose(w, width, target, above, integer(result.maximum, result.bits, width), whole)
    if not result.minimum:
        return whole
    below = w.let(f"fcmp olt {type_} {x}, {least}")
    return choose(w, width, target, below, integer(result.minimum, result.bits, width), whole)


def _saturate_by_machine(w: Writer, width: int, t: Type, result: Type, x: str) -> str:
    """Float to integer on PTX, whose conversion goes to the nearest number that its result holds. It gives 0 for NaN where both types have 32 bits; of
    other NaNs PTX says that they become 2^31 or 2^63, so that 0 is chosen after. Narrow results are cut off at their ends as whole words."""
    type_, bits = llvm_type(t, width), max(result.bits, 32)
    word = bits_type(bits, width)
    name = f"llvm.nvvm.{'d' if t is f64 else 'f'}2{'' if result.is_signed else 'u'}{'i' if bits == 32 else 'll'}.rz"
    whole = w.call(word, name, (type_, x))
    if 64 in (t.bits, bits):
        whole = choose(w, width, word, w.let(f"fcmp uno {type_} {x}, {number(t, 0.0, width)}"), integer(0, bits, width), whole)
    if result.bits == bits:
        return whole
    ends = (("smax", result.minimum), ("smin", result.maximum)) if result.is_signed else (("umin", result.maximum),)
    for nearer, end in ends:
        whole = intrinsic(w, nearer, word, whole, integer(end, bits, width))
    return w.let(f"trunc {word} {whole} to {llvm_type(result, width)}")


def _resize(w: Writer, width: int, t: Type, result: Type, x: str) -> str:
    if t.bits == result.bits:
        return x
    longer = "fpext" if t.is_float else "sext" if t.is_signed else "zext"
    name = longer if t.bits < result.bits else "fptrunc" if t.is_float else "trunc"
    return w.let(f"{name} {llvm_type(t, width)} {x} to {llvm_type(result, width)}")


def cast(halves: bool, saturates: bool = False) -> Emitter:
    """The row of cast; `halves` says that the machine has instructions between f16 and f32, `saturates` that its conversions to integers are PTX's."""
    saturated = _saturate_by_machine if saturates else _saturate
    narrow = _BY_HALVES if halves else _BY_INTEGERS

    def emit(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
        x = args[0]
        if (conversion := narrow.get((t, result))) is not None:
            return conversion(w, width, x)
        if result.kind is Kind.BOOL:
            return _to_bool(w, width, t, x)
        if t.kind is Kind.BOOL:
            return choose(w, width, llvm_type(result, width), x, number(result, 1, width), number(result, 0, width))
        if t.is_float and result.is_integer:
            return saturated(w, width, t, result, x)
        if t.is_integer and result.is_float:
            return w.let(f"{'s' if t.is_signed else 'u'}itofp {llvm_type(t, width)} {x} to {llvm_type(result, width)}")
        return _resize(w, width, t, result, x)

    return emit


def bitcast(w: Writer, width: int, t: Type, result: Type, args: Sequence[str]) -> str:
    """The row of bitcast: a NaN gives the canonical one."""
    source, target, bits = llvm_type(t, width), llvm_type(result, width), bits_type(t.bits, width)
    word = args[0] if source == bits else _reinterpret(w, source, args[0], bits)
    if is_small_float(t):
        magnitude = w.let(f"and {bits} {word}, {integer((1 << t.bits - 1) - 1, t.bits, width)}")
        nan = w.let(f"icmp ugt {bits} {magnitude}, {integer(t.greatest_bits + t.has_infinities, t.bits, width)}")
        word = choose(w, width, bits, nan, integer(t.canonical_nan, t.bits, width), word)
    elif t.is_float:
        nan = w.let(f"fcmp uno {source} {args[0]}, {number(t, 0.0, width)}")
        word = choose(w, width, bits, nan, integer(t.canonical_nan, t.bits, width), word)
    return word if bits == target else _reinterpret(w, bits, word, target)


def param_value(w: Writer, type_: Type, word: str) -> str:
    """A param's value from its slot in the argument block, an integer of 32 or 64 bits."""
    if type_.kind is Kind.BOOL:
        return w.let(f"icmp ne i32 {word}, 0")
    if type_.bits < 32:
        return w.let(f"trunc i32 {word} to {llvm_type(type_)}")
    return _reinterpret(w, f"i{type_.bits}", word, llvm_type(type_)) if type_.is_float else word
