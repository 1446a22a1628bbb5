"""The messages of assert and print: text with a `{}` for each value, or a `{:SPEC}`, and `{{` and `}}` for braces.

    SPEC = [[FILL]ALIGN][SIGN][#][0][WIDTH][GROUP][.PRECISION][TYPE]

is Python's own format (its "Format Specification Mini-Language"), for each component of a vector by itself. Integers take the types b, d, o, x and X;
floats e, E, f, F, g, G and %; bools none, and no more than ALIGN and WIDTH. Without a precision and a type a float has the digits that it has in a `{}`: as few
as tell it apart from others of its type. Otherwise they are those of its exact value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from vyre_py.ir.language.types import Kind, Type, decode
from vyre_py.ir.text.lexer import literal_text

__all__ = ["MAX_WIDTH", "filled", "format_fault", "formats", "spread", "words_of"]

MAX_WIDTH: Final = 256  # characters that a format may ask for, and digits behind the point

_MARK: Final = r"\{\{|\}\}|\{(?P<hole>(?::(?P<format>[^{}]*))?)\}|[{}]"
_BRACES: Final = {"{{": "{", "}}": "}"}
_FORMAT: Final = (
    r"(?as:(?:(?P<fill>.)?(?P<align>[<>=^]))?(?P<sign>[-+ ])?(?P<alternate>#)?(?P<zero>0)?(?P<width>\d{1,9})?(?P<group>[,_])?(?:\.(?P<precision>\d{1,9}))?"
    r"(?P<type>[A-Za-z%])?)"
)
# The kind of a value -> the types of its formats, and the parts that no format of it has, by what a message calls them.
_TYPES: Final[Mapping[Kind, str]] = {Kind.BOOL: "", Kind.FLOAT: "eEfFgG%"}
_WHOLE: Final = "bdoxX"
_NO_PART: Final[Mapping[str, str]] = {"sign": "sign", "alternate": "#", "zero": "0", "group": "grouping", "precision": "precision"}


def formats(message: str) -> tuple[str, ...] | None:
    """The format of each value that a message takes, "" for a plain `{}`; None for a message with a brace that stands alone."""
    marks = list(re.finditer(_MARK, message))
    if any(mark[0] in ("{", "}") for mark in marks):
        return None
    return tuple([mark["format"] or "" for mark in marks if mark["hole"] is not None])


def format_fault(spec: str, type_: Type) -> str:
    """Why a value of a type, or its components, cannot be written in a format; "" where they can."""
    if type_.is_tile:
        return f"a {type_} has no format: scalars and vectors are written"
    found = re.fullmatch(_FORMAT, spec)
    if found is None:
        return f"{spec!r} is no format"
    kind, types = type_.scalar.kind, _TYPES.get(type_.scalar.kind, _WHOLE)
    if found["type"] and found["type"] not in types:
        return f"the format {spec!r} is not for {type_}, whose types are {', '.join(types) or 'none'}"
    for part, name in _NO_PART.items():
        if found[part] and (kind is Kind.BOOL or (part == "precision" and kind is not Kind.FLOAT)):
            return f"the format {spec!r} has a {name}, which {type_} does not take"
    if found["align"] == "=" and kind is Kind.BOOL:
        return f"the format {spec!r} aligns behind a sign, which {type_} does not have"
    if found["group"] == "," and found["type"] in ("b", "o", "x", "X"):
        return f"the format {spec!r} parts the digits of {found['type']} by commas: _ parts them"
    if max(int(found["width"] or 0), int(found["precision"] or 0)) > MAX_WIDTH:
        return f"the format {spec!r} asks for more than {MAX_WIDTH} characters"
    return ""


def filled(message: str, values: Iterable[tuple[Type, Sequence[int]]]) -> str:
    """A well-formed message with its values, each a type and the bits of its components: numbers in their shortest form where no format says otherwise."""
    following = iter(values)

    def text(mark: re.Match[str]) -> str:
        if mark["hole"] is None:
            return _BRACES[mark[0]]
        type_, found = next(following)
        parts = [_formatted(type_.scalar, bits, mark["format"] or "") for bits in found]
        return f"({', '.join(parts)})" if type_.is_vector else parts[0]

    return re.sub(_MARK, text, message)


def _formatted(type_: Type, bits: int, spec: str) -> str:
    """A scalar in a format that is for its type."""
    plain = literal_text(type_, bits, False)
    if not spec or type_.kind is Kind.BOOL:
        return format(plain, spec)
    value, found = decode(type_, bits), re.fullmatch(_FORMAT, spec)
    assert found is not None  # `format_fault` has looked
    if type_.is_float and math.isfinite(value) and not found["type"] and not found["precision"]:
        value = float(plain)  # of which Python writes as many digits
    return format(value, spec)


def spread(message: str, types: Sequence[Type]) -> str:
    """The message that takes each component by itself, from one that takes values of these types."""
    following = iter(types)

    def hole(mark: re.Match[str]) -> str:
        if mark["hole"] is None:
            return mark[0]
        type_ = next(following)
        return f"({', '.join([mark[0]] * type_.lanes)})" if type_.is_vector else mark[0]

    return re.sub(_MARK, hole, message)


def words_of(type_: Type) -> int:
    """How many words of 32 bits a value takes in a report: one for each component, two where that has 64 bits."""
    return type_.lanes * -(-type_.bits // 32)
