"""Which powers of two an offset is a multiple of, whatever runs: groups of neighbours begin there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Final

from vyre_py.ir.language.nodes import Atom, Const, For, Let, Statement, Value
from vyre_py.ir.language.program import Program

__all__ = ["Multiples"]

_MOST: Final = 1 << 31
_DEEPEST: Final = 8
_RULES: Final[Mapping[str, Callable[..., int]]] = {"add": gcd, "sub": gcd, "mul": lambda a, b: a * b, "min": gcd, "max": gcd}


class Multiples:
    """The values of a Program."""

    def __init__(self, program: Program) -> None:
        self._made_by: dict[int, Statement] = {s.result.id: s for s in program.body if s.result is not None}

    def of(self, atom: Atom, depth: int = _DEEPEST) -> int:
        """A power of two that an offset is known to be a multiple of, up to wrapping."""
        if isinstance(atom, Const):
            return atom.bits & -atom.bits or _MOST
        if not isinstance(atom, Value) or not depth:
            return 1
        s = self._made_by[atom.id]
        if isinstance(s, For):
            return gcd(self.of(s.args[0], depth - 1), self.of(s.args[2], depth - 1))
        if isinstance(s, Let) and s.op.name in _RULES:
            return min(_MOST, _RULES[s.op.name](*[self.of(a, depth - 1) for a in s.args[:2]]))
        return 1
