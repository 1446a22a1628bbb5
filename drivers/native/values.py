"""Native code that turns Python's numbers into values of the language's types."""

from __future__ import annotations

from typing import Final

__all__ = ["CONVERT", "VALUE_FORMS", "VALUE_KINDS"]

# Type -> its number in native code; values of other types, and numbers that are not Python's own, go through Python.
VALUE_KINDS: Final = {
    "f32": 1, "f64": 2, "i32": 3, "u32": 4, "i64": 5, "u64": 6, "i8": 8, "u8": 9, "i16": 10, "u16": 11, "bool": 12,
}  # fmt: skip
# The type of Python's that native code takes for each.
VALUE_FORMS: Final = {name: (bool,) if name == "bool" else (float,) if name.startswith("f") else (int,) for name in VALUE_KINDS}
_COUNT: Final = 1 + max(VALUE_KINDS.values())
_MOST: Final = (1 << 63) - 1  # of what PyLong_AsLongLongAndOverflow gives; what is larger goes through Python
_RANGES: Final = {
    "i8": (-(1 << 7), (1 << 7) - 1), "i16": (-(1 << 15), (1 << 15) - 1), "i32": (-(1 << 31), (1 << 31) - 1), "i64": (-_MOST - 1, _MOST),
    "u8": (0, (1 << 8) - 1), "u16": (0, (1 << 16) - 1), "u32": (0, (1 << 32) - 1), "u64": (0, _MOST),
}  # fmt: skip


def _table(end: int) -> str:
    """One end of each kind's range; of what is no integer it is never looked at."""
    ranges = {VALUE_KINDS[name]: range_ for name, range_ in _RANGES.items()}
    return ", ".join([f"i64 {ranges.get(kind, (0, 0))[end]}" for kind in range(_COUNT)])


# A value for a slot of type %kind, in the low bytes; the flag is false for what has to go through Python.
CONVERT: Final = f"""
@least = internal constant [{_COUNT} x i64] [{_table(0)}]
@greatest = internal constant [{_COUNT} x i64] [{_table(1)}]

define internal {{ i64, i1 }} @convert(ptr %value, i64 %kind) {{
entry:
  %overflow = alloca i32, align 4
  %type_at = getelementptr i8, ptr %value, i64 {{type_at}}
  %type = load ptr, ptr %type_at
  %no = insertvalue {{ i64, i1 }} {{ i64 0, i1 false }}, i64 0, 0
  switch i64 %kind, label %integer [ i64 0, label %slow
    i64 {VALUE_KINDS["f32"]}, label %float
    i64 {VALUE_KINDS["f64"]}, label %float
    i64 7, label %slow
    i64 {VALUE_KINDS["bool"]}, label %truth ]
slow:
  ret {{ i64, i1 }} %no
truth:
  %is_true = icmp eq ptr %value, {{true}}
  %is_false = icmp eq ptr %value, {{false}}
  %is_bool = or i1 %is_true, %is_false
  %one = zext i1 %is_true to i64
  %t0 = insertvalue {{ i64, i1 }} poison, i64 %one, 0
  %t1 = insertvalue {{ i64, i1 }} %t0, i1 %is_bool, 1
  ret {{ i64, i1 }} %t1
float:
  %is_float = icmp eq ptr %type, {{float_type}}
  br i1 %is_float, label %real, label %slow
real:
  %d = call double @PyFloat_AsDouble(ptr %value)
  %wide = bitcast double %d to i64
  %magnitude = and i64 %wide, 9223372036854775807
  ; the finite ones that f32 holds without a doubt: below 2^127
  %sane = icmp ult i64 %magnitude, 5174543760652009472
  br i1 %sane, label %rounded, label %slow
rounded:
  %f = fptrunc double %d to float
  %f_bits = bitcast float %f to i32
  %narrow = zext i32 %f_bits to i64
  %is_f32 = icmp eq i64 %kind, {VALUE_KINDS["f32"]}
  %bits = select i1 %is_f32, i64 %narrow, i64 %wide
  %f0 = insertvalue {{ i64, i1 }} {{ i64 0, i1 true }}, i64 %bits, 0
  ret {{ i64, i1 }} %f0
integer:
  %is_int = icmp eq ptr %type, {{int_type}}
  br i1 %is_int, label %whole, label %slow
whole:
  %n = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits64 = icmp eq i32 %over, 0
  %least_at = getelementptr i64, ptr @least, i64 %kind
  %least = load i64, ptr %least_at
  %greatest_at = getelementptr i64, ptr @greatest, i64 %kind
  %greatest = load i64, ptr %greatest_at
  %above = icmp sge i64 %n, %least
  %below = icmp sle i64 %n, %greatest
  %within = and i1 %above, %below
  %fits = and i1 %within, %fits64
  br i1 %fits, label %taken, label %slow
taken:
  %i0 = insertvalue {{ i64, i1 }} {{ i64 0, i1 true }}, i64 %n, 0
  ret {{ i64, i1 }} %i0
}}
"""
