"""What WGSL lacks: functions that write the language's meaning out in WGSL, and what cannot be said in it at all.

WGSL leaves division by zero and of the least integer, conversion of floats out of range, and min and max over NaN to the
implementation; compilers may assume that no NaN exists, so tests look at bits. Wide products go through 16-bit halves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from vyre_py.ir.nodes import End, Let
from vyre_py.ir.program import Program
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import Layout
from vyre_py.lowering.wgsl.ops import ROWS
from vyre_py.lowering.wgsl.words import MAX_WORDS, block_words

__all__ = ["HELPERS", "helpers_of", "is_exact", "require_expressible", "with_requirements"]

# Name -> definition. A function may call those above it.
HELPERS: Final[Mapping[str, str]] = {
    "div_u32": """fn div_u32(a: u32, b: u32) -> u32 {
  return a / select(b, 1u, b == 0u);
}""",
    "div_i32": """fn div_i32(a: i32, b: i32) -> i32 {
  return a / select(b, 1i, (b == 0i) | ((a == i32(-2147483648)) & (b == -1i)));
}""",
    # Not by `%`, which Vulkan leaves undefined for negative operands.
    "rem_u32": """fn rem_u32(a: u32, b: u32) -> u32 {
  let safe = select(b, 1u, b == 0u);
  return a - (a / safe) * safe;
}""",
    "rem_i32": """fn rem_i32(a: i32, b: i32) -> i32 {
  let safe = select(b, 1i, (b == 0i) | ((a == i32(-2147483648)) & (b == -1i)));
  return a - (a / safe) * safe;
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
    "abs_diff_u32": """fn abs_diff_u32(a: u32, b: u32) -> u32 {
  return select(b - a, a - b, a > b);
}""",
    "abs_diff_i32": """fn abs_diff_i32(a: i32, b: i32) -> u32 {
  let x = bitcast<u32>(a);
  let y = bitcast<u32>(b);
  return select(y - x, x - y, a > b);
}""",
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
    "u8_of_f32": """fn u8_of_f32(a: f32) -> u32 {
  return select(u32(clamp(a, 0.0f, 255.0f)), 0u, is_nan_f32(a));
}""",
}

_WORD = re.compile(r"\w+")
_ORDER: Final = {name: number for number, name in enumerate(HELPERS)}


def helpers_of(text: str) -> tuple[str, ...]:
    """The functions that a piece of WGSL calls, those that they call in turn included."""
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


# Ops over floats that move or look at bits, and are exact everywhere.
_EXACT_OPS: Final = frozenset({"select", "bitcast", "is_nan", "is_inf", "is_finite"})


def is_exact(program: Program) -> bool:
    """Whether a Program computes nothing in floating point, so that WGSL gives the language's own bits."""
    for statement in program.body:
        if isinstance(statement, Let) and statement.op.name not in _EXACT_OPS:
            types = (statement.bound.type, *[a.type for a in statement.args])
            if any(t.is_float for t in types):
                return False
    return True


# naga and Tint stop at 127 braces, and so does the grammar's own recommendation. The function takes one, an access up to three.
_MAX_NESTING: Final = 120


def _missing(program: Program, layout: Layout) -> Iterator[Missing]:
    if block_words(layout) > MAX_WORDS:
        yield Missing(f"{len(layout.scalars)} scalar arguments and sizes", help=f"at most {MAX_WORDS - len(layout.buffers) - 3} fit the uniform block")
    depth = 0
    seen: set[str] = set()
    for index, statement in enumerate(program.body):
        if statement.opens:
            depth += 1
            if depth == _MAX_NESTING + 1:
                yield Missing(f"blocks more than {_MAX_NESTING} deep", program.place(index), "merge conditions")
        elif isinstance(statement, End):
            depth -= 1
        elif isinstance(statement, Let) and not statement.op.is_query and statement.op.name not in seen:
            seen.add(statement.op.name)
            if statement.op.name not in ROWS:
                yield Missing(f"op {statement.op.name}", program.place(index))


def require_expressible(program: Program, layout: Layout) -> None:
    """Raises Unsupported, naming everything that WGSL cannot say."""
    if missing := list(_missing(program, layout)):
        raise Unsupported("wgsl", missing)
