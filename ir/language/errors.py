"""The root of the error tree, and the errors of Programs.

    VyreError
    +- ProgramError                      the Program, or what should have become one, is at fault: `.diagnostics` says where
    |  +- ParseError                     text
    |  +- WireError                      bytes, JSON or flat arrays
    |  +- ValidationError                a Program that breaks a rule, or a wrong call on a builder
    |  +- RaceError                      invocations that race, seen while the Program ran
    |  +- UnwrittenRead                  reads of what nothing had written, seen while the Program ran
    +- InterpretError                    vyre_py.ir.interpret
    +- LoweringError                     a valid Program could not be lowered; more of them in vyre_py.lowering.errors
    |  +- Unsupported                    a target, a walk or a device lacks something
    +- DriverError                       vyre_py.drivers.errors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord, made_by

__all__ = [
    "Diagnostic", "LoweringError", "Missing", "ParseError", "Place", "ProgramError", "ProgramWarning", "RaceError", "Unsupported",
    "UnwrittenRead", "ValidationError", "VyreError", "WireError", "escaped", "printable", "remade", "shown",
]  # fmt: skip


_Error = TypeVar("_Error", bound="VyreError")

_SHOWN: Final = 80  # characters of a value that a message shows


def shown(value: object) -> str:
    """A value as messages show it, whatever it is: cut when it is long, and only its type where Python cannot print it."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a number of too many digits, or whatever a stranger's __repr__ raises
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def printable(text: str, kept: str = "") -> str:
    """An untrusted text, safe to show: control characters, terminals' escapes and marks of writing direction are replaced one by one, except those in
    `kept`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in kept else "\ufffd" for c in text])


def escaped(text: str, takes: Callable[[str], bool]) -> str:
    """An untrusted text, safe to have in code: each byte of a character that is not taken is `%` and two digits, as in the path of a URI."""
    return "".join([c if takes(c) else "".join([f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass")]) for c in text])


# Read-only by custom: every statement has one, and a frozen dataclass takes a microsecond to make.
@public
@dataclass(slots=True, unsafe_hash=True)
class Place(ValueRecord):
    """Where something was written: a file (or `<builder>`, `<text>`), a line and a column from 1; column 0 is unknown.
    `source` is that line's text where it is at hand, `width` the number of columns meant, `around` the lines before and after it."""

    file: str
    line: int
    column: int = 0
    width: int = 1
    source: str = ""
    around: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{printable(self.file)}:{self.line}" + (f":{self.column}" if self.column else "")

    def excerpt(self) -> list[str]:
        """The line meant, with its neighbours and a mark below what is meant in it; no lines where the text is not at hand.

        Characters that would move a terminal's cursor are replaced, since the text is untrusted.
        """
        if not self.source:
            return []
        if not self.column:
            return [f"    {self.line} | {_on_one_line(self.source.strip())}"]
        digits = len(str(self.line + 1))
        neighbours = zip((-1, 1), self.around, strict=True)
        before, after = ([f"    {self.line + k:{digits}d} | {_on_one_line(text)}"] if text.strip() else [] for k, text in neighbours)
        mark = f"    {'':{digits}s} | {' ' * (self.column - 1)}^{'~' * (self.width - 1)}"
        return [*before, f"    {self.line:{digits}d} | {_on_one_line(self.source)}", mark, *after]


def _on_one_line(text: str) -> str:
    return printable(text.rstrip("\r\n").replace("\t", " "))


@public
@dataclass(frozen=True, slots=True)
class Diagnostic(ValueRecord):
    """One finding: a code from `rules.RULES`, the sentence about this case, the place, and what to do."""

    code: str
    message: str
    place: Place | None = None
    help: str = ""

    def __str__(self) -> str:
        lines = [f"{self.code} {self.message}"]
        if self.place is not None:
            lines += [f"  {self.place}", *self.place.excerpt()]
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


@public
class ProgramWarning(UserWarning):
    """A Program keeps every rule and hardly means what it says. The builder gives one at the caller's line; `check(program).warnings` holds the
    same as diagnostics, for Programs of any origin."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(f"{diagnostic.code} {diagnostic.message} (help: {diagnostic.help})")
        self.diagnostic = diagnostic

    def __reduce__(self) -> tuple[Any, ...]:
        return ProgramWarning, (self.diagnostic,)


@public
class VyreError(Exception):
    """Everything that vyre-py raises on purpose. Errors are equal that have the same class, text, fields and notes, as on either side of a pickle."""

    @classmethod
    def _kind(cls) -> type[VyreError]:
        """The class as which the error arrives elsewhere: of one of some module of ours the public one that it is a kind of."""
        return next(known for known in cls.__mro__ if known.__module__ == "vyre_py" and issubclass(known, VyreError))

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the composed text, which is not what constructors here take.
        return *made_by(self._kind()._again, self.args), dict(vars(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VyreError):
            return NotImplemented
        return self is other or (self._kind() is other._kind() and self._told() == other._told())

    def __hash__(self) -> int:
        return hash((self._kind(), repr(self.args)))  # fields and notes may be added later

    def _told(self) -> str:
        """What travels, as text, in which a NaN among the fields is equal to itself."""
        return repr((self.args, sorted(vars(self).items())))

    @classmethod
    def _again(cls, args: tuple[Any, ...]) -> Self:
        return remade(cls, args)

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.ir.text.notebook.markup import (
                error_html,  # notebooks alone ask for it, and it imports HTML's tables
            )

        return error_html(self)


def remade(kind: type[_Error], args: tuple[Any, ...]) -> _Error:
    """An error of a class, without its constructor, which would compose the text again from what is in it already."""
    error = kind.__new__(kind, *args)
    error.args = args  # which an error that is an OSError as well takes from its constructor alone
    return error


@public
class ProgramError(VyreError):
    """The Program is at fault. `diagnostics` holds every finding."""

    def __init__(self, diagnostics: Iterable[Diagnostic] | Diagnostic) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = found
        super().__init__("\n".join(map(str, found)))

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.ir.text.notebook.markup import findings_html

        return findings_html((diagnostic.code, str(diagnostic)) for diagnostic in self.diagnostics)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings, in order."""
        return tuple(d.code for d in self.diagnostics)


@public
class ParseError(ProgramError):
    """Text that is no Program."""


@public
class WireError(ProgramError):
    """Bytes, JSON or flat arrays that are no Program, or a Program that cannot be written as such.

    `where` is the place at fault: the offset of a byte, a JSON pointer such as `/body/3/args/0`, an entry such as `codes[17]`, or None.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic] | Diagnostic, where: int | str | None = None) -> None:
        super().__init__(diagnostics)
        self.where = where


@public
class ValidationError(ProgramError):
    """A Program that breaks a rule of the language, or a wrong call on a builder."""


@public
class RaceError(ProgramError):
    """Two invocations that race for an element of memory, seen while the Program ran: a finding at the place of the later access, and one at that of the
    earlier. What the Program had written by then stays written."""


@public
class UnwrittenRead(ProgramError):
    """Elements of workgroup or private arrays that a Program read, as it ran, before anything had written them: a finding for each statement that did, at
    its place, with the first such read. The Program has run to its end."""


@public
class LoweringError(VyreError):
    """A valid Program could not be lowered."""


@public
@dataclass(frozen=True, slots=True)
class Missing(ValueRecord):
    """One thing that a target lacks: what it is (`op exp`, `type u8`, `option interruptible`), where it was asked for, and
    what to do instead."""

    what: str
    place: Place | None = None
    help: str = ""

    def __str__(self) -> str:
        text = self.what if self.place is None else f"{self.what} at {self.place}"
        return f"{text} ({self.help})" if self.help else text


@public
class Unsupported(LoweringError):
    """A target or device lacks what was asked for; it says so by name and never does something else instead."""

    def __init__(self, who: str, items: Iterable[Missing | str]) -> None:
        self.who = who
        self.items: tuple[Missing, ...] = tuple(i if isinstance(i, Missing) else Missing(i) for i in items)
        super().__init__(f"{who} does not support " + "; ".join(map(str, self.items)))
