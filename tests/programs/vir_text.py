"""Text of the written filetests: numbers, lists that break into rows, and Programs with the runs behind them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from exact_floats import FORMATS
from exact_samples import Number

from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import Type, bool_

__all__ = ["NEEDS_F64", "NO_SPECIALS", "Column", "call", "case", "file_text", "number", "number_text"]

_WIDTH: Final = 128
_MOST_COMPONENTS: Final = 4

NEEDS_F64: Final = "// needs on wgpu: shader-f64"
NO_SPECIALS: Final = "// not on wgpu: WGSL may assume that NaN, infinities and subnormals are absent"

# A scalar, or a tuple of the components of a vector; lists of them are axes of an array.
Nested = Any


def number(t: Type, text: str) -> Number:
    """The number of a type that is nearest to a decimal."""
    if not t.is_float:
        return text == "true" if t is bool_ else int(text)
    f = FORMATS[t]
    return f.rounded(Fraction(text), f.sign if text.startswith("-") else 0)


def number_text(t: Type, value: Number) -> str:
    """A number as the declared type reads it back: of a float's bits the shortest decimal, of a NaN `nan`, or its bits if it is not the
    canonical one."""
    if t is bool_:
        return "true" if value else "false"
    if not t.is_float:
        return str(value)
    f = FORMATS[t]
    if f.is_nan(value):
        return "nan" if value == f.nan else f"{t}:{value:#x}"
    if f.is_inf(value):
        return "-inf" if value & f.sign else "inf"
    exact = f.value(value)
    near = (float(f"{exact:.{digits}g}") for digits in range(1, 18))
    shortest = next(x for x in near if math.isfinite(x) and f.rounded(Fraction(x), value & f.sign) == value)
    return repr(shortest).removesuffix(".0")


_KEPT_SPACE: Final = "\N{NO-BREAK SPACE}"


def _texts(t: Type, value: Nested) -> Any:
    """The same nesting of lists, of texts; a vector is one of them, in which no line breaks."""
    if isinstance(value, tuple):
        return "[" + f",{_KEPT_SPACE}".join([number_text(t, part) for part in value]) + "]"
    return [_texts(t, part) for part in value] if isinstance(value, list) else number_text(t, value)


def _flat(texts: Any) -> str:
    return texts if isinstance(texts, str) else "[" + ", ".join([_flat(part) for part in texts]) + "]"


def _is_matrix(value: Nested) -> bool:
    """Whether rows are long enough to stand on lines of their own."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list) and len(_flat_parts(value[0])) > _MOST_COMPONENTS


def _flat_parts(value: Nested) -> list[Any]:
    return [x for part in value for x in _flat_parts(part)] if isinstance(value, (list, tuple)) else [value]


@dataclass(frozen=True)
class Column:
    """An argument of a Program: how it is declared, and its value before or after a run.

    `space` is "read", "write" or "read_write" for a buffer of `shape`, else "param" or "dim". Components of vectors are tuples.
    """

    name: str
    type: Type
    shape: str
    space: str
    value: Nested

    @property
    def declaration(self) -> str:
        """The line that declares it; a dim stands in the Program's first line."""
        if self.space == "dim":
            return ""
        return f"param {self.name}: {self.type}" if self.space == "param" else f"buffer {self.name}: {self.type}[{self.shape}] {self.space}"

    def lines(self) -> list[str]:
        """`name = value`, a row of a matrix on each line."""
        texts = _texts(self.type.scalar, self.value)
        if not _is_matrix(self.value):
            return [f"{self.name} = {_flat(texts)}"]
        rows = ["  " + _flat(row) for row in texts]
        return [f"{self.name} = [", *[row + "," for row in rows[:-1]], rows[-1] + "]"]


def _directive(first: str, lines: Iterable[str]) -> list[str]:
    """Comment lines of a directive, broken where they are too long."""
    made: list[str] = []
    for line in lines:
        inner = "  " if line.startswith("  ") else ""
        head = f"// {first}" if not made else f"//   {inner}"
        rest = "//     " if not line.startswith("  [") else f"//   {inner}  "
        made += textwrap.wrap(line.strip(), _WIDTH, initial_indent=head, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_KEPT_SPACE, " ") for line in made]


def run_lines(given: Sequence[Column], wanted: Sequence[Column]) -> list[str]:
    """A run directive."""
    before = [line for column in given for line in column.lines()]
    after = [line for column in wanted for line in column.lines()]
    return _directive("run: ", [*before, "==> " + after[0], *after[1:]])


def case(
    head: str,
    body: Sequence[str],
    given: Sequence[Column],
    wanted: Sequence[Column],
    remarks: Sequence[str] = (),
    local: Sequence[str] = (),
    comment: str = "",
) -> str:
    """A Program and one run of it.

    `head` is what stands between `program` and the brace; `local` declares memories that are no arguments; `remarks` are other directives.
    """
    declared = {c.name: c for c in (*given, *wanted)}
    lines = [f"// {comment}"] if comment else []
    lines += [f"program {head} {{", *[f"  {line}" for line in (*local, *[c.declaration for c in declared.values()], *body) if line], "}"]
    return "\n".join([*lines, *remarks, *run_lines(given, wanted)]) + "\n"


def file_text(title: str, cases: Iterable[str], remarks: Sequence[str] = ()) -> str:
    """A whole file."""
    head = "\n".join([*textwrap.wrap(title, _WIDTH, initial_indent="// ", subsequent_indent="// "), *remarks])
    return head + "\n\n" + "\n".join(cases)


def call(name: str, *operands: str) -> str:
    """An op over names, as the text spells it."""
    infix = OPS[name].infix
    if infix is None:
        return f"{name}({', '.join(operands)})"
    return f"{operands[0]} {infix} {operands[1]}" if len(operands) > 1 else f"{infix}{operands[0]}"
