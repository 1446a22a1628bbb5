"""The words of `.vir` text: names, strings and literals, for the parser and the printer alike."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

from vyre_py.ir.imports import importing
from vyre_py.ir.language.nodes import GridScan, TileAtomicAdd
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS
from vyre_py.ir.language.types import SCALARS, TYPES, Kind, Type, decode, element, encode

__all__ = [
    "CALLED", "INFIX", "KEYWORDS", "LEADING", "LEVEL_COMPARISON", "LEVEL_UNARY", "MAX_FINDINGS", "PREFIX", "QUERIES", "TILE_CALLED", "WORDS",
    "literal_bits", "literal_text", "malformed", "quote", "split_literal", "swizzle_named", "unquote", "written_name",
]  # fmt: skip

MAX_NUMBER: Final = 400
MAX_FINDINGS: Final = 20
_NARROW_DIGITS: Final = 5  # four significant digits tell all bf16 apart, fewer those of 8 bits

# Words that begin a declaration or a statement: one of them at the start of a line ends whatever bracket was left open.
LEADING: Final = frozenset({
    "program", "doc", "function", "param", "buffer", "workgroup", "private", "table", "let", "var", "if", "else", "for", "loop", "break",
    "continue", "return", "barrier", "grid_barrier", "region", "assert", "print", "copy_async", "copy_commit", "copy_wait",
})  # fmt: skip
# Queries of one word.
WORDS: Final = frozenset(name for name, row in OPS.items() if row.is_query and "." not in name)
KEYWORDS: Final = LEADING | {"true", "false", "inf", "nan"} | WORDS | frozenset(TYPES)

# What stands before a parenthesis and is no function of a Program.
CALLED: Final = frozenset({
    *OPS, "dim", "uniform_load", GridScan.spelling, *(f"atomic_{name}" for name in ATOMICS), *(f"subgroup_{name}" for name in SUBGROUPS),
})  # fmt: skip
# The same, in a Program of tiles alone.
TILE_CALLED: Final = frozenset({*TILE_OPS, TileAtomicAdd.spelling})

LEVEL_COMPARISON: Final = 3
LEVEL_UNARY: Final = 10
_LEVELS: Final = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7, "+": 8, "-": 8,
    "*": 9, "/": 9, "%": 9,
}  # fmt: skip
# Spelling between two operands -> (op, precedence): the higher binds tighter. And spelling before one operand -> op.
INFIX: Final = {row.infix: (row, _LEVELS[row.infix]) for row in OPS.values() if row.infix and len(row.operands) == 2}
PREFIX: Final = {row.infix: row for row in OPS.values() if row.infix and len(row.operands) == 1}

# What stands before the axis of a query; a dot behind such a name asks where the invocation is, and picks no component.
QUERIES: Final = frozenset(name.partition(".")[0] for name, row in OPS.items() if row.is_query and "." in name)

# The marks, each a token of its own, and the newline.
_MARKS: Final = frozenset([*"-+*/%&|^~!<>=(){}[],;:.\n", "..", "==", "!=", "<=", ">=", "<<", ">>", "&&", "||"])
_NUMBER: Final = re.compile(r"(?:(0[xX][0-9a-fA-F]+)|([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))([A-Za-z_][A-Za-z0-9_]*)?")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SWIZZLE: Final = re.compile("[xyzw]{1,4}")
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_UNESCAPES: Final = {value: "\\" + key for key, value in _ESCAPES.items()}


def malformed(word: str) -> tuple[str, str] | None:
    """What is wrong with a token, as the code and the message of a finding; None where nothing is."""
    if word in _MARKS or (word.isidentifier() and word.isascii()):
        return None
    if word[0] == '"':
        if len(word) < 2 or not word.endswith('"') or (len(word) - len(word[:-1].rstrip("\\"))) % 2 == 0:
            return "P101", "the string does not end on its line"
        return ("P101", f"the string has the unknown escape {quote(bad)}") if (bad := _bad_escape(word)) else None
    if not "0" <= word[0] <= "9":
        return "P101", f"the character {quote(word)} means nothing here"
    if len(word) > MAX_NUMBER:
        return "P108", f"the number has {len(word)} characters; at most {MAX_NUMBER} are read"
    match = _NUMBER.fullmatch(word)
    if match is None or (match[3] and match[3] not in SCALARS):
        return "P101", f"{word[:40]} is not a number; a literal is like 1, 1u32, -1i32, 0xffu32, 1.5, 1.5e-3f32"
    return None


# ---------------------------------------------------------------- names and strings


def quote(text: str) -> str:
    """A string as the text writes it: in quotes, with everything that is not plainly printable escaped."""
    return '"' + "".join([c if c.isprintable() and c not in '"\\' else _UNESCAPES.get(c) or f"\\u{{{ord(c):x}}}" for c in text]) + '"'


def _bad_escape(text: str) -> str:
    for match in _ESCAPE.finditer(text):
        if (match[1] is not None and int(match[1], 16) > 0x10FFFF) or (match[1] is None and match[2] not in _ESCAPES):
            return match[0]
    return ""


def unquote(text: str) -> str:
    """The string that a well-formed string token stands for."""
    if "\\" not in text:
        return text[1:-1]
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] is not None else _ESCAPES[m[2]], text[1:-1])


def written_name(name: str) -> str:
    """A name as the text writes it: bare when it is an identifier that means nothing else, else quoted."""
    return name if _IDENTIFIER.fullmatch(name) and name not in KEYWORDS and name not in QUERIES else quote(name)


def swizzle_named(text: str) -> bool:
    """Whether these letters name one to four components of a vector."""
    return _SWIZZLE.fullmatch(text) is not None


# ---------------------------------------------------------------- literals


@lru_cache(maxsize=1 << 12)
def split_literal(text: str) -> tuple[str, Type | None]:
    """The digits of a well-formed number token, and the type of its suffix, if any."""
    match = _NUMBER.fullmatch(text)
    assert match is not None  # `malformed` lets no other number pass
    return match[1] or match[2], SCALARS[match[3]] if match[3] else None


@lru_cache(maxsize=1 << 12)  # tables hold the same numbers many times
def literal_bits(type_: Type, digits: str, negative: bool, suffixed: bool = True) -> int:
    """The bit pattern of a literal as a value of `type_`; `digits` may also be `inf`, `nan`, `true` and `false`.

    A float is rounded once, to nearest even. Raises ValueError, whose text says what is wrong: the number does not fit the type, or is of
    another kind (a float for an integer; an integer for a float, unless a suffix said so).
    """
    hexadecimal = digits[:2] in ("0x", "0X")
    word = digits in ("inf", "nan", "true", "false")
    if type_.is_vector:
        raise ValueError(f"a literal is one number, and {type_} is needed: write {'-' * negative}{_suffixed(digits, type_.scalar)}.{'x' * type_.lanes}")
    fraction = not hexadecimal and (any(c in ".eE" for c in digits) or digits in ("inf", "nan"))
    sign = "-" if negative else ""
    if digits in ("true", "false") or type_.kind is Kind.BOOL:
        if digits not in ("true", "false") or type_.kind is not Kind.BOOL or negative:
            raise ValueError(f"{sign}{digits} is not a valid {type_}")
        return int(digits == "true")
    if type_.is_integer:
        if fraction:
            raise ValueError(f"{sign}{digits} is a float, and {type_} is needed")
        value = int(digits, 16 if hexadecimal else 10)
        value = -value if negative else value
        if not type_.minimum <= value <= type_.maximum:
            raise ValueError(f"{sign}{digits} does not fit {type_} ({type_.minimum} to {type_.maximum})")
        return encode(type_, value)
    if hexadecimal:
        raise ValueError(f"{digits} is an integer, and {type_} is needed; its bits are written {type_}:{digits}")
    if not fraction and not suffixed:
        raise ValueError(f"{sign}{digits} is an integer, and {type_} is needed: write {sign}{digits}.0")
    if digits == "nan":
        return encode(type_, math.nan)
    bits = encode(type_, _rounded(type_, digits))
    if not type_.has_infinities and bits > type_.greatest_bits:
        raise ValueError(f"{sign}{digits} is beyond {type_}, which ends at {decode(type_, type_.greatest_bits)} and has no infinity")
    if not word and bits > type_.greatest_bits:
        raise ValueError(f"{sign}{digits} is beyond {type_}; the infinity is written {sign}inf")
    return bits | 1 << (type_.bits - 1) if negative else bits


def _suffixed(digits: str, type_: Type) -> str:
    """A literal that names its type, for a message."""
    if digits in ("inf", "nan"):
        return f"{type_}:{digits}"
    return digits if type_.kind is Kind.BOOL else f"{digits}{type_}"


def _rounded(type_: Type, digits: str) -> float:
    """A Python float that rounds to the float of `type_` nearest to the decimal.

    Rounding twice, to f64 and then to the narrower type, goes wrong only where the first result lies halfway between two
    narrow ones: there the exact decimal decides.
    """
    value = float(digits)
    if value == 0.0 or math.isinf(value):
        return value
    quantum = max(math.frexp(value)[1] - 1, type_.least_exponent) - type_.fraction_bits
    scaled = math.ldexp(value, -quantum)
    if scaled % 1.0 != 0.5:
        return value
    with importing:
        from fractions import Fraction  # few numbers lie there

    exact = Fraction(digits)
    return value if exact == value else math.nextafter(value, math.inf if exact > value else 0.0)


def literal_text(type_: Type, bits: int, suffix: bool) -> str:
    """A constant as the text writes it, shortest among those that read back to the same bits.

    Without `suffix` the context must fix the type; the form that gives a float's bits names its type always.
    """
    if type_.kind is Kind.BOOL:
        return "true" if bits else "false"
    if type_.is_integer:
        return str(bits - (1 << type_.bits) if type_.is_signed and bits >> (type_.bits - 1) else bits) + (type_.name if suffix else "")
    value = decode(type_, bits)
    if math.isnan(value):
        plain = bits == encode(type_, math.nan)
        return ("nan" if not suffix else f"{type_}:nan") if plain else f"{type_}:{bits:#0{2 + type_.bits // 4}x}"
    if math.isinf(value):
        word = "-inf" if value < 0 else "inf"
        return word if not suffix else f"{type_}:{word}"
    return _decimal(type_, bits) + (type_.name if suffix else "")


def _decimal(type_: Type, bits: int) -> str:
    """The shortest decimal that reads back to these bits of a finite float, and of several the nearest."""
    if type_.in_numpy:
        return str(element(type_, bits)[()])  # NumPy's own are shortest
    with importing:
        from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal  # the others' are NumPy's

    exact = Decimal(decode(type_, bits))
    if not exact:
        return str(float(exact))
    for digits in range(1, _NARROW_DIGITS):
        for rounding in (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING):
            near = Context(digits, rounding).plus(exact)
            if encode(type_, float(near)) == bits:
                return str(float(near))
    return str(float(exact))
