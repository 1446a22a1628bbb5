"""Reports: what asserts and prints tell the host while a kernel runs, and how it lies in the device's memory.

A report's memory is an array of u32: a header, records of failed asserts, then records of prints. A record is the number of its statement (`Form`s are in
order of the body), the invocation's global id, and the words of its values. The header is zero before a launch; the rest may hold anything.

* `LEAST`: the greatest complement of the numbers of invocations in which an assert failed, so that the least such number is found by an atomic. An invocation
  that lowers it appends a record; then no later one of a higher number does. `FAILED` counts those records, of which `FAILED_RECORDS` are kept, each in
  as many words as the longest takes. So the least invocation has a record, unless more than `FAILED_RECORDS` invocations ran in falling order.
* `PRINTED` counts the words of prints. A print takes the words behind those before it; one that does not fit is dropped, and so are all after it, as
  `DROPPED` counts. Where the record that did not fit begins, at least its first word is written, as far as there is room.

Nothing waits for another invocation. The number of an invocation counts workgroups, along x first, and within one as `local_index` does, modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import REPORT_HEAD_WORDS, Assert, Memory, Param, ReportStatement
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, decode
from vyre_py.lowering.layout import name_beside

if TYPE_CHECKING:
    from vyre_py.ir.text import messages
else:
    (messages,) = deferred("vyre_py.ir.text", "messages")

__all__ = [
    "DROPPED", "FAILED", "FAILED_RECORDS", "HEADER", "LEAST", "PRINTED", "Form", "Record", "failed_words", "failures", "forms_of", "prints", "prints_at",
    "report_name",
]

HEADER: Final = 4
LEAST, FAILED, PRINTED, DROPPED = range(HEADER)
FAILED_RECORDS: Final = 64

Values = tuple[bool | int | float | tuple[bool | int | float, ...], ...]


@dataclass(frozen=True, slots=True)
class Form:
    """An assert or a print of a Program: its message, the types of its values, and where it was written, if that is known."""

    asserts: bool
    message: str
    types: tuple[Type, ...]
    place: Place | None = field(default=None, compare=False)

    @property
    def words(self) -> int:
        """The words of a record."""
        return REPORT_HEAD_WORDS + sum(map(messages.words_of, self.types))

    def _bits(self, words: Sequence[int]) -> Iterator[tuple[Type, list[int]]]:
        """Each value's type, and the bits of its components."""
        following = iter(words)
        for type_ in self.types:
            scalar = type_.scalar
            found = []
            for _ in range(type_.lanes):
                low = next(following)
                found.append((low | next(following) << 32 if scalar.bits == 64 else low) & ((1 << scalar.bits) - 1))
            yield type_, found

    def values(self, words: Sequence[int]) -> Values:
        """The values that words stand for, as Python numbers, those of vectors as tuples."""
        made = [(type_, tuple([decode(type_.scalar, bits) for bits in found])) for type_, found in self._bits(words)]
        return tuple([parts if type_.is_vector else parts[0] for type_, parts in made])

    def text(self, words: Sequence[int]) -> str:
        """The message with the values that words stand for."""
        return messages.filled(self.message, self._bits(words))


class Record(NamedTuple):
    """What one invocation said at one statement: the number of its form, its global id (x, y, z), and the words of the values."""

    form: int
    global_id: tuple[int, ...]
    words: tuple[int, ...]


def forms_of(program: Program) -> tuple[Form, ...]:
    """The asserts and prints of a Program, in order of its body."""
    return tuple([
        Form(isinstance(s, Assert), s.message, tuple([value.type for value in s.values]), program.place(index))
        for index, s in enumerate(program.body) if isinstance(s, ReportStatement)
    ])  # fmt: skip


def report_name(declared: Iterable[Dim | Param | Memory]) -> str:
    """The name of a report's memory, beside what is declared."""
    return name_beside("report", declared)


def failed_words(forms: Sequence[Form]) -> int:
    """The words that each record of a failed assert takes."""
    return max([form.words for form in forms if form.asserts], default=0)


def prints_at(forms: Sequence[Form]) -> int:
    """The word at which records of prints begin."""
    return HEADER + FAILED_RECORDS * failed_words(forms)


def failures(words: Sequence[int], forms: Sequence[Form]) -> Iterator[Record]:
    """The records of failed asserts in a report's memory, in no order."""
    size = failed_words(forms)
    for number in range(min(words[FAILED], FAILED_RECORDS)):
        at = HEADER + number * size
        if (record := _record(words, at, forms)) is not None:
            yield record


def prints(words: Sequence[int], forms: Sequence[Form]) -> Iterator[Record]:
    """The records of prints in a report's memory, as they came; those of one invocation are in its own order."""
    at = prints_at(forms)
    end = min(len(words), at + words[PRINTED])
    while at < end and (record := _record(words, at, forms)) is not None:
        yield record
        at += forms[record.form].words


def _record(words: Sequence[int], at: int, forms: Sequence[Form]) -> Record | None:
    """The record at a word; None where there is none, or no whole one."""
    number = words[at]
    if number >= len(forms) or at + forms[number].words > len(words):
        return None
    x, y, z, *values = words[at + 1 : at + forms[number].words]
    return Record(number, (x, y, z), tuple(values))
