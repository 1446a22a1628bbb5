"""The report that every check writes into, and how messages name things."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.dims import Dim, DimConst
from vyre_py.ir.language.errors import Diagnostic, Place, ValidationError
from vyre_py.ir.language.nodes import Atom, Const, Param, Value, Variable
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.spans import Spans

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["HEAD", "MAX_FINDINGS", "Findings", "Where", "atom_text", "number", "place_text", "quoted", "variable_text"]

MAX_FINDINGS: Final = 100
HEAD: Final = None  # stands for the Program itself where a declaration's name may stand

Where = int | str | None  # a statement's index, a declaration's name, or the Program itself

_SHOWN = 60  # characters of a name that a message shows


def quoted(name: str) -> str:
    """A name as messages show it: in quotes, escaped, and cut when it is long."""
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")


def number(value: int) -> str:
    """A whole number as messages show it. Python refuses to print very long ones, so they are not printed."""
    return str(value) if abs(value) < 1 << 64 else f"a number of {value.bit_length()} bits"


def atom_text(program: Program, atom: Atom) -> str:
    """An operand as messages show it."""
    if isinstance(atom, Value):
        name = program.value_names.get(atom.id)
        return quoted(name) if name is not None else f"value {number(atom.id)}"
    if isinstance(atom, (Param, Dim)):
        return quoted(atom.name)
    if isinstance(atom, Const):
        return str(atom.value).lower() if atom.type.bits == 1 else f"{atom.value}{atom.type}"
    return number(atom.value) if isinstance(atom, DimConst) else f"the size {atom.op}(...)"


def variable_text(program: Program, variable: Variable) -> str:
    """A variable as messages show it."""
    name = program.variable_names.get(variable.id)
    return quoted(name) if name is not None else f"variable {number(variable.id)}"


def place_text(program: Program, index: int) -> str:
    """Where statement `index` stands: its place, or its number where no place is known."""
    place = program.place(index)
    return f"statement {index}" if place is None else str(place)


class Findings:
    """Collects the findings about one Program: keeps the first `MAX_FINDINGS`, counts the rest."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.count = 0
        self._kept: list[tuple[int, Diagnostic]] = []

    @property
    def full(self) -> bool:
        """Whether further findings are only counted, so that their messages need not be made."""
        return self.count >= MAX_FINDINGS

    def add(self, code: str, where: Where, message: str, help: str | None = None) -> None:
        """Reports rule `code`, broken by a statement, a declaration, or the Program itself."""
        self.count += 1
        if self.count <= MAX_FINDINGS:
            self._kept.append(
                (where if isinstance(where, int) else -1, finding(code, message, self._place(where), help))
            )

    def take(self, other: Findings, of: str) -> None:
        """Reports what was found in a part of the Program, named `of`, whose diagnostics have places of their own."""
        self.count += other.count
        room = MAX_FINDINGS - len(self._kept)
        self._kept += [(-1, replace(diagnostic, message=f"{of}: {diagnostic.message}")) for _, diagnostic in other._kept[: max(room, 0)]]

    def _place(self, where: Where) -> Place | None:
        # Asked before the form of the Program is proven, too.
        places = getattr(self.program, "places", None)
        declared = getattr(self.program, "declared", None)
        place: object = None
        if isinstance(where, int):
            place = places[where] if isinstance(places, (tuple, Spans)) and where < len(places) else None
        elif isinstance(declared, dict):
            place = declared.get(where)
        return place if isinstance(place, Place) else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, those of declarations first and then in program order."""
        found = [diagnostic for _, diagnostic in sorted(self._kept, key=lambda kept: kept[0])]
        if self.count > MAX_FINDINGS:
            found.append(finding("V599", f"{self.count - MAX_FINDINGS} more findings are not shown"))
        return tuple(found)

    def error(self) -> ValidationError:
        """The error that holds all findings."""
        return ValidationError(self.diagnostics)

    def raise_if_any(self) -> None:
        """Raises ValidationError when there is a finding."""
        if self.count:
            raise self.error()
