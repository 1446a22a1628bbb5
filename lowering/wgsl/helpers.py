"""Functions that implement the language's ops in WGSL; a kernel contains those that it calls.

WGSL leaves division by zero and of the least integer, conversion of floats out of range, and min and max over NaN to the
implementation; compilers may assume that no NaN exists, so tests look at bits. Wide products go through 16-bit halves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from vyre_py.lowering.wgsl.uniform_block import ZERO, word_text

__all__ = ["HELPERS", "OF_HALVES", "helpers_of", "with_requirements"]

# Name -> definition. A function may call those above it.
HELPERS: Final[Mapping[str, str]] = {
    "div_u32": """fn div_u32(a: u32, b: u32) -> u32 {
  return a / select(b, 1u, b == 0u);
}""",
    # Over magnitudes: no processor divides the least number by -1, not even one on which a compiler computes ahead.
    "div_i32": """fn div_i32(a: i32, b: i32) -> i32 {
  let x = bitcast<u32>(abs(a));
  let y = bitcast<u32>(abs(b));
  let size = bitcast<i32>(x / select(y, 1u, y == 0u));
  return select(size, -size, (a ^ b) < 0i);
}""",
    # Of 64 bits in words, the low one first; a divisor of 0 counts as 1. Shift and subtract (H. S. Warren, "Hacker's Delight", 2nd edition, chapter 9), one
    # bit of the quotient a turn, from the dividend's first one bit on: the dividend moves up out of q into r, and the bits of the quotient follow it into q
    # from below. The rest has at most 63 bits before the last turn, so doubling it loses none. Compilers of WGSL must not fold the loop: see `folding`.
    "divide_u64": f"""fn divide_u64(n0: u32, n1: u32, d0: u32, d1: u32) -> vec4<u32> {{
  let e0 = select(d0, 1u, (d0 | d1) == 0u);
  let first = select(countLeadingZeros(n1), 32u + countLeadingZeros(n0), n1 == 0u);
  let step = first & 31u;
  let unknown = {word_text(ZERO)};
  var q0 = select(n0 << step, 0u, first > 31u);
  var q1 = select((n1 << step) | ((n0 >> 1u) >> (step ^ 31u)), n0 << step, first > 31u);
  var r0 = 0u;
  var r1 = 0u;
  for (var k = first; k < 64u; k++) {{
    let s0 = (r0 << 1u) | (q1 >> 31u);
    let s1 = (r1 << 1u) | (r0 >> 31u);
    let borrows = s0 < e0;
    let fits = (s1 > d1) | ((s1 == d1) & !borrows);
    q1 = ((q1 << 1u) | (q0 >> 31u)) ^ unknown;
    q0 = ((q0 << 1u) | select(0u, 1u, fits)) ^ unknown;
    r0 = select(s0, s0 - e0, fits) ^ unknown;
    r1 = select(s1, s1 - d1 - select(0u, 1u, borrows), fits) ^ unknown;
  }}
  return vec4<u32>(q0, q1, r0, r1);
}}""",
    # The words, negated where `sign` has all bits set.
    "negated_words": """fn negated_words(a0: u32, a1: u32, sign: u32) -> vec2<u32> {
  let low = (a0 ^ sign) + (sign & 1u);
  return vec2<u32>(low, (a1 ^ sign) + select(0u, sign & 1u, low == 0u));
}""",
    "divide_i64": """fn divide_i64(n0: u32, n1: u32, d0: u32, d1: u32) -> vec4<u32> {
  let n_sign = 0u - (n1 >> 31u);
  let d_sign = 0u - (d1 >> 31u);
  let n = negated_words(n0, n1, n_sign);
  let d = negated_words(d0, d1, d_sign);
  let sizes = divide_u64(n[0], n[1], d[0], d[1]);
  return vec4<u32>(negated_words(sizes[0], sizes[1], n_sign ^ d_sign), negated_words(sizes[2], sizes[3], n_sign));
}""",
    "minus_words": """fn minus_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a[0] - b[0], a[1] - b[1] - select(0u, 1u, a[0] < b[0]));
}""",
    # Not by `%`, which Vulkan leaves undefined for negative operands.
    "rem_u32": """fn rem_u32(a: u32, b: u32) -> u32 {
  let safe = select(b, 1u, b == 0u);
  return a - (a / safe) * safe;
}""",
    "rem_i32": """fn rem_i32(a: i32, b: i32) -> i32 {
  let x = bitcast<u32>(abs(a));
  let y = bitcast<u32>(abs(b));
  let safe = select(y, 1u, y == 0u);
  let size = bitcast<i32>(x - (x / safe) * safe);
  return select(size, -size, a < 0i);
}""",
    "rotl_u32": """fn rotl_u32(a: u32, n: u32) -> u32 {
  return (a << (n & 31u)) | (a >> ((32u - (n & 31u)) & 31u));
}""",
    "mul_hi_u32": """fn mul_hi_u32(a: u32, b: u32) -> u32 {
  let low_a = a & 0xffffu;
  let low_b = b & 0xffffu;
  let high_a = a >> 16u;
  let high_b = b >> 16u;
  let middle = high_a * low_b + ((low_a * low_b) >> 16u);
  let low = low_a * high_b + (middle & 0xffffu);
  return high_a * high_b + (middle >> 16u) + (low >> 16u);
}""",
    "mul_hi_i32": """fn mul_hi_i32(a: i32, b: i32) -> i32 {
  let high = mul_hi_u32(bitcast<u32>(a), bitcast<u32>(b));
  return bitcast<i32>(high - select(0u, bitcast<u32>(b), a < 0i) - select(0u, bitcast<u32>(a), b < 0i));
}""",
    # The product's words by columns (H. S. Warren, "Hacker's Delight", 2nd edition, chapter 8); signed, less each operand that stands above a negative other.
    "mul_hi_u64": """fn mul_hi_u64(a0: u32, a1: u32, b0: u32, b1: u32) -> vec2<u32> {
  let first = mul_hi_u32(a0, b0);
  let one = a1 * b0 + first;
  let one_high = mul_hi_u32(a1, b0) + select(0u, 1u, one < first);
  let other_high = mul_hi_u32(a0, b1) + select(0u, 1u, a0 * b1 + one < one);
  let low = a1 * b1 + one_high;
  let sum = low + other_high;
  return vec2<u32>(sum, mul_hi_u32(a1, b1) + select(0u, 1u, low < one_high) + select(0u, 1u, sum < other_high));
}""",
    "mul_hi_i64": """fn mul_hi_i64(a0: u32, a1: u32, b0: u32, b1: u32) -> vec2<u32> {
  let a_sign = vec2<u32>(0u - (a1 >> 31u));
  let b_sign = vec2<u32>(0u - (b1 >> 31u));
  return minus_words(minus_words(mul_hi_u64(a0, a1, b0, b1), vec2<u32>(b0, b1) & a_sign), vec2<u32>(a0, a1) & b_sign);
}""",
    "abs_diff_u32": """fn abs_diff_u32(a: u32, b: u32) -> u32 {
  return select(b - a, a - b, a > b);
}""",
    "abs_diff_i32": """fn abs_diff_i32(a: i32, b: i32) -> u32 {
  let x = bitcast<u32>(a);
  let y = bitcast<u32>(b);
  return select(y - x, x - y, a > b);
}""",
    # The same number, of which no compiler knows anything: see `rounding` and `folding`.
    "opaque_f32": f"""fn opaque_f32(a: f32) -> f32 {{
  return bitcast<f32>(bitcast<u32>(a) | {word_text(ZERO)});
}}""",
    "opaque_i32": f"""fn opaque_i32(a: i32) -> i32 {{
  return a | bitcast<i32>({word_text(ZERO)});
}}""",
    "opaque_u32": f"""fn opaque_u32(a: u32) -> u32 {{
  return a | {word_text(ZERO)};
}}""",
    "is_nan_f32": """fn is_nan_f32(a: f32) -> bool {
  return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u;
}""",
    "bits_f32": """fn bits_f32(a: f32) -> u32 {
  return select(bitcast<u32>(a), 0x7fc00000u, is_nan_f32(a));
}""",
    "sign_f32": """fn sign_f32(a: f32) -> f32 {
  return select(select(a, -1.0f, a < 0.0f), 1.0f, a > 0.0f);
}""",
    # Equal numbers differ at most in the sign of zero, which the bits settle.
    "min_f32": """fn min_f32(a: f32, b: f32) -> f32 {
  let tie = bitcast<f32>(bitcast<u32>(a) | bitcast<u32>(b));
  let least = select(select(b, a, a < b), tie, a == b);
  return select(select(least, a, is_nan_f32(b)), b, is_nan_f32(a));
}""",
    "max_f32": """fn max_f32(a: f32, b: f32) -> f32 {
  let tie = bitcast<f32>(bitcast<u32>(a) & bitcast<u32>(b));
  let greatest = select(select(b, a, a > b), tie, a == b);
  return select(select(greatest, a, is_nan_f32(b)), b, is_nan_f32(a));
}""",
    # The bounds are the floats next to the integers' own, so that every conversion is of a number in range.
    "i32_of_f32": """fn i32_of_f32(a: f32) -> i32 {
  let inside = i32(clamp(a, -2147483648.0f, 2147483520.0f));
  return select(select(inside, 0x7fffffffi, a >= 2147483648.0f), 0i, is_nan_f32(a));
}""",
    "u32_of_f32": """fn u32_of_f32(a: f32) -> u32 {
  let inside = u32(clamp(a, 0.0f, 4294967040.0f));
  return select(select(inside, 0xffffffffu, a >= 4294967296.0f), 0u, is_nan_f32(a));
}""",
    # Small floats as bits, in integers alone: no subnormal is flushed, and each conversion down rounds once, to nearest even.
    "f32_of_bf16": """fn f32_of_bf16(a: u32) -> f32 {
  return bitcast<f32>(a << 16u);
}""",
    "bf16_of_f32": """fn bf16_of_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, is_nan_f32(a));
}""",
    "bits_f8e4m3": """fn bits_f8e4m3(a: u32) -> u32 {
  return select(a, 0x7fu, (a & 0x7fu) > 0x7eu);
}""",
    "bits_f8e5m2": """fn bits_f8e5m2(a: u32) -> u32 {
  return select(a, 0x7eu, (a & 0x7fu) > 0x7cu);
}""",
    "bits_bf16": """fn bits_bf16(a: u32) -> u32 {
  return select(a, 0x7fc0u, (a & 0x7fffu) > 0x7f80u);
}""",
    # A subnormal number is moved up until its first one bit is the one that f32 leaves unsaid.
    "f32_of_f16": """fn f32_of_f16(a: u32) -> f32 {
  let size = a & 0x7fffu;
  let zeros = countLeadingZeros(size);
  let subnormal = select(((133u - zeros) << 23u) + (size << (zeros - 8u)), 0u, size == 0u);
  let normal = (size << 13u) + select(0x38000000u, 0x70000000u, size >= 0x7c00u);
  return bitcast<f32>(((a & 0x8000u) << 16u) | select(normal, subnormal, size < 0x400u));
}""",
    # A subnormal result counts steps of 2^-24; from 25 bits down on there is nothing left to round.
    "f16_of_f32": """fn f16_of_f32(a: f32) -> u32 {
  let bits = bitcast<u32>(a);
  let size = bits & 0x7fffffffu;
  let scaled = size - 0x38000000u;
  let normal = min((scaled + 0xfffu + ((scaled >> 13u) & 1u)) >> 13u, 0x7c00u);
  let digits = (size & 0x7fffffu) | 0x800000u;
  let down = clamp(126u - min(size >> 23u, 126u), 1u, 25u);
  let subnormal = (digits + (1u << (down - 1u)) - 1u + ((digits >> down) & 1u)) >> down;
  let number = select(normal, subnormal, size < 0x38800000u);
  return ((bits >> 16u) & 0x8000u) | select(number, 0x7e00u, is_nan_f32(a));
}""",
    "bits_f16": """fn bits_f16(a: u32) -> u32 {
  return select(a, 0x7e00u, (a & 0x7fffu) > 0x7c00u);
}""",
    # Only for devices that have 64-bit integers, and below f64, in naga's spelling, which is where these are called.
    "u64_of_words": """fn u64_of_words(low: u32, high: u32) -> u64 {
  return u64(low) | (u64(high) << 32u);
}""",
    "words_of_u64": """fn words_of_u64(a: u64) -> vec2<u32> {
  return vec2<u32>(u32(a & 0xfffffffflu), u32(a >> 32u));
}""",
    "opaque_u64": f"""fn opaque_u64(a: u64) -> u64 {{
  return a | u64({word_text(ZERO)});
}}""",
    "opaque_i64": f"""fn opaque_i64(a: i64) -> i64 {{
  return a | bitcast<i64>(u64({word_text(ZERO)}));
}}""",
    "div_u64": """fn div_u64(a: u64, b: u64) -> u64 {
  return a / select(b, 1lu, b == 0lu);
}""",
    "rem_u64": """fn rem_u64(a: u64, b: u64) -> u64 {
  let safe = select(b, 1lu, b == 0lu);
  return a - (a / safe) * safe;
}""",
    "size_i64": """fn size_i64(a: i64) -> u64 {
  return bitcast<u64>(select(a, -a, a < 0li));
}""",
    "div_i64": """fn div_i64(a: i64, b: i64) -> i64 {
  let size = bitcast<i64>(div_u64(size_i64(a), size_i64(b)));
  return select(size, -size, (a ^ b) < 0li);
}""",
    "rem_i64": """fn rem_i64(a: i64, b: i64) -> i64 {
  let size = bitcast<i64>(rem_u64(size_i64(a), size_i64(b)));
  return select(size, -size, a < 0li);
}""",
    "rotl_u64": """fn rotl_u64(a: u64, n: u32) -> u64 {
  return (a << (n & 63u)) | (a >> ((64u - (n & 63u)) & 63u));
}""",
    "f64_of_words": """fn f64_of_words(low: u32, high: u32) -> f64 {
  return bitcast<f64>(u64_of_words(low, high));
}""",
    "opaque_f64": f"""fn opaque_f64(a: f64) -> f64 {{
  return bitcast<f64>(bitcast<u64>(a) | u64({word_text(ZERO)}));
}}""",
    "is_nan_f64": """fn is_nan_f64(a: f64) -> bool {
  return (bitcast<u64>(a) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}""",
    "is_inf_f64": """fn is_inf_f64(a: f64) -> bool {
  return (bitcast<u64>(a) & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu;
}""",
    # NaNs keep their payloads.
    "raw_words_of_f64": """fn raw_words_of_f64(a: f64) -> vec2<u32> {
  return words_of_u64(bitcast<u64>(a));
}""",
    "words_of_f64": """fn words_of_f64(a: f64) -> vec2<u32> {
  return words_of_u64(select(bitcast<u64>(a), 0x7ff8000000000000lu, is_nan_f64(a)));
}""",
    "sign_f64": """fn sign_f64(a: f64) -> f64 {
  return select(select(a, -1.0lf, a < 0.0lf), 1.0lf, a > 0.0lf);
}""",
    # Written out, since some drivers' own lose the sign of zero and round ties wrongly.
    "trunc_f64": """fn trunc_f64(a: f64) -> f64 {
  let bits = bitcast<u64>(a);
  let exponent = u32(bits >> 52u) & 2047u;
  let fraction = 0xffffffffffffflu >> min(max(exponent, 1023u) - 1023u, 63u);
  return bitcast<f64>(select(bits & ~fraction, bits & 0x8000000000000000lu, exponent < 1023u));
}""",
    "round_f64": """fn round_f64(a: f64) -> f64 {
  let whole = trunc_f64(a);
  let rest = abs(a - whole);
  let half = 0.5lf * whole;
  let is_odd = !(trunc_f64(half) == half);
  let away = whole + select(1.0lf, -1.0lf, a < 0.0lf);
  return select(whole, away, (rest > 0.5lf) | ((rest == 0.5lf) & is_odd));
}""",
    "min_f64": """fn min_f64(a: f64, b: f64) -> f64 {
  let tie = bitcast<f64>(bitcast<u64>(a) | bitcast<u64>(b));
  let least = select(select(b, a, a < b), tie, a == b);
  return select(select(least, a, is_nan_f64(b)), b, is_nan_f64(a));
}""",
    "max_f64": """fn max_f64(a: f64, b: f64) -> f64 {
  let tie = bitcast<f64>(bitcast<u64>(a) & bitcast<u64>(b));
  let greatest = select(select(b, a, a > b), tie, a == b);
  return select(select(greatest, a, is_nan_f64(b)), b, is_nan_f64(a));
}""",
    "i32_of_f64": """fn i32_of_f64(a: f64) -> i32 {
  return select(i32(clamp(a, -2147483648.0lf, 2147483647.0lf)), 0i, is_nan_f64(a));
}""",
    "u32_of_f64": """fn u32_of_f64(a: f64) -> u32 {
  return select(u32(clamp(a, 0.0lf, 4294967295.0lf)), 0u, is_nan_f64(a));
}""",
}

# The same where the device's own conversions of f16 are exact, in place of those above.
OF_HALVES: Final[Mapping[str, str]] = {
    "f32_of_f16": """fn f32_of_f16(a: u32) -> f32 {
  return unpack2x16float(a).x;
}""",
    "f16_of_f32": """fn f16_of_f32(a: f32) -> u32 {
  return pack2x16float(vec2<f32>(a, 0.0f));
}""",
}

_WORD = re.compile(r"\w+")
_ORDER: Final = {name: number for number, name in enumerate(HELPERS)}


def helpers_of(text: str) -> tuple[str, ...]:
    """The functions that a piece of WGSL calls, directly and indirectly."""
    found = [name for name in _WORD.findall(text) if name in HELPERS]
    return tuple(with_requirements(found))


def with_requirements(names: Iterable[str]) -> list[str]:
    """The functions of these names and all that they call, each after what it calls."""
    known: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting += [other for other in _WORD.findall(HELPERS[name]) if other in HELPERS]
    return sorted(known, key=_ORDER.__getitem__)
