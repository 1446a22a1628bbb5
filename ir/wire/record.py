"""Records: the container of Program bytes, of artifact files and their sections, of entries of the disk cache and of bundles of them.

    header      fields, one behind the other: magic and version, what is reserved, how many rows each section has, and what else there is one of
    sections    so many rows of so many bytes, one section behind the other
    digest      SHA-256 of all before it, where the record is sealed
    rest        what follows, where more may follow

A format is a `Record`, made of tables, with its own rules for the rows. Every count is checked against the number of bytes before anything is allocated, and
nothing is copied. Malformed bytes raise `Malformed`, which each format turns into an error of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import accumulate, chain, pairwise
from operator import itemgetter, mul
from typing import Any, Final, NamedTuple

__all__ = ["DIGEST_BYTES", "Flaw", "Malformed", "Record", "Section", "digest", "strings_of", "unknown_version", "view_of"]

DIGEST_BYTES: Final = 32

_ANY: Final = 1 << 64
_SHORT_TEXT: Final = 1 << 16  # bytes up to which a text is copied, since that is quicker to cut


class Flaw(StrEnum):
    """What is wrong with bytes, in the order of the checks."""

    BYTES = "bytes"  # no bytes object, or not contiguous
    MAGIC = "magic"  # another format, or none
    VERSION = "version"  # of another version
    SIZE = "size"  # more than are read
    LAYOUT = "layout"  # cut short, or not as long as the header says
    DIGEST = "digest"  # not what was written
    RESERVED = "reserved"  # a field that means nothing says something


class Malformed(Exception):
    """What makes bytes no record: the flaw, what was found and expected, the field of the header at fault or "digest", and what may help."""

    def __init__(self, flaw: Flaw, message: str, field: str = "", help: str | None = None) -> None:
        super().__init__(message)
        self.flaw, self.field, self.help = flaw, field, help


class Section(NamedTuple):
    """Rows of `width` bytes each: as many as the header's field `counted_by` says, and `most` at most."""

    name: str
    counted_by: str
    width: int = 1
    most: int = _ANY


def digest(data: bytes | memoryview) -> bytes:
    """The SHA-256 of bytes, which is against damage and not against malice."""
    return sha256(data).digest()


def unknown_version(version: tuple[Any, ...], last: tuple[int, ...]) -> str:
    """Why what is of a version is not read, where `last` is the last that is."""
    newer = "a newer vyre-py wrote it; this one" if version > last else "this vyre-py"
    said, known = (".".join(map(str, numbers)) for numbers in (version, last))
    return f"it is of format {said}: {newer} reads formats up to {known}"


def strings_of(text: bytes | memoryview, lengths: Iterable[int], errors: str = "strict") -> list[str]:
    """Strings by their lengths in UTF-8, one behind the other. Raises UnicodeDecodeError."""
    spans = pairwise(accumulate(lengths, initial=0))
    if len(text) <= _SHORT_TEXT:
        text = bytes(text)
        if text.isascii():
            whole = text.decode("ascii")
            return [whole[start:end] for start, end in spans]
    return [str(text[start:end], "utf-8", errors) for start, end in spans]


def view_of(data: object) -> memoryview:
    """What a reader was given, as bytes. Raises Malformed."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        found = "None" if data is None else type(data).__name__
        raise Malformed(Flaw.BYTES, f"bytes were expected, got {found}", help="give bytes, a bytearray or a memoryview")
    view = memoryview(data)
    if not view.c_contiguous:
        raise Malformed(Flaw.BYTES, "the bytes are not contiguous", help="copy them first: bytes(view)")
    return view.cast("B") if view.nbytes else memoryview(b"")


class Record:
    """A format: the fields of its header, as name -> (struct code, meaning), and its sections.

    With a `magic`, the first field holds it, and those that follow one of `versions`, of which the last is written: so much is the same in every
    version. A field `length` counts all bytes; those named by `reserved` are 0.
    """

    def __init__(
        self, fields: Mapping[str, tuple[str, str]], sections: Iterable[Section] = (), *, magic: bytes = b"", versions: Sequence[tuple[int, ...]] = ((),),
        reserved: Sequence[str] = (), sealed: bool = False, rest: bool = False, limit_bytes: int = _ANY,
    ) -> None:  # fmt: skip
        self.fields, self.sections, self.magic, self.limit_bytes = fields, tuple(sections), magic, limit_bytes
        codes = [code for code, _ in fields.values()]
        counts = [len(struct.unpack("<" + code, bytes(struct.calcsize("<" + code)))) for code in codes]
        # Field -> its first number in the header, and how many it has.
        self._numbers = dict(zip(fields, zip(accumulate(counts, initial=0), counts, strict=False), strict=True))
        self.head: Final = struct.Struct("<" + "".join(codes))
        self.least: Final = self.head.size + DIGEST_BYTES * sealed  # bytes of a record without rows
        self._first = struct.Struct("<" + "".join(codes[: 1 + len(versions[-1])]))
        self._begins = frozenset([self._first.pack(magic, *version) for version in versions]) if magic else frozenset()
        self._written = dict(zip(fields, (magic, *versions[-1]), strict=False)) | dict.fromkeys(reserved, 0) if magic else {}
        self._length = self._numbers["length"][0] if "length" in fields else -1
        self._reserved, self._last = reserved, versions[-1]
        self._sealed, self._rest = sealed, rest
        self._ordered = _getter(list(fields))
        self._nested = max(counts) > 1
        self._rows: Callable[[Any], Iterable[int]] = _getter([self._numbers[section.counted_by][0] for section in self.sections])
        self._widths = [section.width for section in self.sections]
        self._few = min([section.most for section in self.sections], default=_ANY)

    # ---------------------------------------------------------------- reading

    def begin(self, data: bytes | memoryview) -> tuple[Any, ...]:
        """The numbers of the header that bytes begin with, of which nothing but magic, version and size was looked at. Raises Malformed."""
        size = len(data)
        if self.magic and bytes(data[: self._first.size]) not in self._begins:
            raise self._another(data)
        if size > self.limit_bytes:
            raise Malformed(Flaw.SIZE, f"{size} bytes, at most {self.limit_bytes} are read", "length")
        if size < self.head.size:
            raise Malformed(Flaw.LAYOUT, f"{size} bytes; a header takes {self.head.size}", "length")
        return self.head.unpack_from(data)

    def read(self, data: bytes | memoryview) -> tuple[tuple[Any, ...], list[int]]:
        """The numbers of the header, and where each section begins and the last one ends. Raises Malformed."""
        header, size = self.begin(data), len(data)
        if self._length >= 0 and header[self._length] != size:
            raise Malformed(Flaw.LAYOUT, f"the header says {header[self._length]} bytes, there are {size}", "length")
        places = self.places(header)
        end = places[-1] + DIGEST_BYTES * self._sealed
        if end != size and not (self._rest and end < size):
            self._bound(header)
            if self._length >= 0 and not self._rest:
                self._seal(data, size)  # the digest's place is known, so damage is told as damage
            first = min([list(self.fields).index(section.counted_by) for section in self.sections], default=0)
            raise Malformed(Flaw.LAYOUT, f"the header counts what takes {end} bytes, there are {size}", list(self.fields)[first])
        if size > self._few:  # which no count is, of those that fit
            self._bound(header)
        if self._sealed:
            self._seal(data, end)
        for name in self._reserved:
            if found := header[self._numbers[name][0]]:
                raise Malformed(Flaw.RESERVED, f"{name} is {found}: it must be 0", name)
        return header, places

    def _another(self, data: bytes | memoryview) -> Malformed:
        found = bytes(data[: len(self.magic)])
        if found != self.magic or len(data) < self._first.size:
            return Malformed(Flaw.MAGIC, f"found {found.hex(' ') or 'nothing'}, expected {self.magic.hex(' ')}", next(iter(self.fields)))
        return Malformed(Flaw.VERSION, unknown_version(self._first.unpack_from(data)[1:], self._last), list(self.fields)[1])

    def _bound(self, header: Any) -> None:
        for count, section in zip(self._rows(header), self.sections, strict=True):
            if count > section.most:
                raise Malformed(Flaw.LAYOUT, f"{count} {section.name}, at most {section.most} are allowed", section.counted_by)

    @staticmethod
    def _seal(data: bytes | memoryview, end: int) -> None:
        found, made = data[end - DIGEST_BYTES : end], sha256(memoryview(data)[: end - DIGEST_BYTES]).digest()
        if found != made:
            raise Malformed(Flaw.DIGEST, f"the digest is {bytes(found).hex()[:16]}..., the bytes give {made.hex()[:16]}...", "digest")

    # ---------------------------------------------------------------- what was read

    def places(self, header: Sequence[Any]) -> list[int]:
        """Where each section begins, and the last one ends, by the numbers of a header."""
        return list(accumulate(map(mul, self._rows(header), self._widths), initial=self.head.size))

    def named(self, header: Sequence[Any]) -> dict[str, Any]:
        """The fields of a header by name; one of several numbers as a tuple."""
        return {name: header[at] if count == 1 else tuple(header[at : at + count]) for name, (at, count) in self._numbers.items()}

    def offset(self, name: str, index: int = 0, header: Sequence[Any] = ()) -> int:
        """The byte at which a row of a section begins, or a number of a field of the header, which is not needed for that."""
        for number, section in enumerate(self.sections):
            if section.name == name:
                return self.places(header)[number] + section.width * index
        before = list(self.fields)[: list(self.fields).index(name)]
        at = struct.calcsize("<" + "".join([self.fields[field][0] for field in before]))
        return at + struct.calcsize("<" + self.fields[name][0]) // self._numbers[name][1] * index

    # ---------------------------------------------------------------- writing

    def write(self, values: Mapping[str, Any], parts: Iterable[bytes | memoryview], rest: Sequence[bytes] = ()) -> bytes:
        """The bytes of a record: `values` by field, but for magic, version, length and what is reserved, which it knows, and its sections.

        Raises Malformed for more rows or bytes than are read, struct.error for a number that its field has no room for.
        """
        body = b"".join(parts)
        length = self.least + len(body) + sum(map(len, rest))
        if length > self.limit_bytes:
            raise Malformed(Flaw.SIZE, f"{length} bytes, at most {self.limit_bytes} are written", "length")
        given = self._ordered({**self._written, "length": length, **values})
        header = tuple(chain.from_iterable(map(_several, given))) if self._nested else given
        made = self.head.pack(*header) + body
        if length > self._few:
            self._bound(header)
        return b"".join((made, sha256(made).digest(), *rest)) if self._sealed else b"".join((made, *rest))


def _getter(keys: list[Any]) -> Callable[[Any], Iterable[Any]]:
    return itemgetter(*keys) if len(keys) > 1 else lambda given: [given[key] for key in keys]


def _several(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple) else (value,)
