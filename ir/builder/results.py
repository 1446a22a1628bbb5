"""Several results of a function, as one vector: a function of a Program computes one value.

Results of one type are its components. Those of several types of one width are kept as unsigned integers of it, floats by their bits, and bools as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.builder.expressions import Expr, apply
from vyre_py.ir.language.types import Kind, Type, unsigned_of, vector_of

__all__ = ["packed", "packed_type", "unpacked"]

_MOST: Final = 4  # components


def packed_type(types: Sequence[Type]) -> Type | None:
    """The vector that holds a value of each of several types; None where there is none."""
    if not 2 <= len(types) <= _MOST or any(type_.is_vector for type_ in types):
        return None
    if len(set(types)) == 1:
        return vector_of(types[0], len(types))
    words = {unsigned_of(type_) for type_ in types if type_.kind is not Kind.BOOL}
    return vector_of(words.pop(), len(types)) if len(words) == 1 else None


def packed(values: Sequence[Expr], type_: Type) -> Expr:
    """The vector of this type that holds several values."""
    parts = [value if value.type is type_.scalar else _kept(value, type_.scalar) for value in values]
    return apply(f"vec{len(parts)}", *parts)


def _kept(value: Expr, word: Type) -> Expr:
    return value.cast(word) if value.type.kind is Kind.BOOL else value.bitcast(word)


def unpacked(vector: Expr, types: Sequence[Type]) -> tuple[Expr, ...]:
    """The values of these types that a vector holds."""
    parts = [getattr(vector, axis) for axis in "xyzw"[: len(types)]]
    return tuple([part if part.type is type_ else _given(part, type_) for part, type_ in zip(parts, types, strict=True)])


def _given(part: Expr, type_: Type) -> Expr:
    return part.cast(type_) if type_.kind is Kind.BOOL else part.bitcast(type_)
