"""Comparisons with a constant that the type's range decides: valid, but hardly ever intended.

Law, which is a warning, for a Program of sound form and types:

* V471: a comparison with a constant can come out both ways. `u < 0` cannot for an unsigned u, and nothing is above the greatest number of its
  type, below its least one, or equal to a NaN. A comparison of two constants is not reported: it is intended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, Let, Value
from vyre_py.ir.language.program import Program

__all__ = ["decided_comparisons"]

# Comparison -> what it gives where its right side is the least number of the type, and the greatest; None where that depends on the left one.
_AT_ENDS: Final[dict[str, tuple[bool | None, bool | None]]] = {
    "lt": (False, None), "ge": (True, None), "gt": (None, False), "le": (None, True), "eq": (None, None), "ne": (None, None),
}  # fmt: skip
_LOOKED_AT: Final = frozenset((*_AT_ENDS, "swizzle"))
_TURNED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def decided_comparisons(program: Program) -> Iterator[tuple[int, str]]:
    """The statements that compute one, with what is to be said of each."""
    splats: dict[int, Const] = {}  # vectors whose components are all one constant, by value id
    for index, statement in enumerate(program.body):
        if not isinstance(statement, Let) or statement.op.name not in _LOOKED_AT:
            continue
        if statement.op.name == "swizzle":
            if isinstance(statement.args[0], Const):
                splats[statement.bound.id] = statement.args[0]
            continue
        left, right = [splats.get(a.id, a) if splats and isinstance(a, Value) else a for a in statement.args]
        if isinstance(left, Const) != isinstance(right, Const) and (said := _decided(statement.op.name, left, right)) is not None:
            yield index, said


def _decided(name: str, left: Atom, right: Atom) -> str | None:
    """Why a comparison with a constant is always true or always false, if it is."""
    if isinstance(left, Const):
        name, right = _TURNED[name], left
    assert isinstance(right, Const)  # one of the two is
    type_ = right.type
    if type_.is_float:
        infinity = type_.canonical_nan & (type_.canonical_nan - 1)  # the NaN less its quiet bit
        if right.bits & infinity != infinity:
            return None  # what is finite decides nothing, and most constants are
    value = right.value
    if isinstance(value, float) and math.isnan(value):
        return f"this comparison is always {'true' if name == 'ne' else 'false'}: a NaN is neither less than, greater than nor equal to anything"
    if type_.is_integer:
        least, greatest = type_.minimum, type_.maximum
        answer = _AT_ENDS[name][value == greatest] if value in (least, greatest) else None
        return None if answer is None else f"this comparison is always {str(answer).lower()}: {type_} goes from {least} to {greatest}"
    # A NaN on the left makes any other answer depend on it.
    if type_.is_float and (name, value) in (("lt", float("-inf")), ("gt", float("inf"))):
        return f"this comparison is always false: nothing is beyond the infinity of {type_}"
    return None
