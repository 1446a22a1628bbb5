"""Relocatable ELF objects of any contents, right or wrong, for tests of who reads them."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["READ_FLAGS", "TEXT_FLAGS", "WRITE_FLAGS", "Row", "build"]

TEXT_FLAGS: Final = 6  # loaded, executable
READ_FLAGS: Final = 2
WRITE_FLAGS: Final = 3


class Row(NamedTuple):
    """A section of an object to be: name, type, flags, contents, and for those that have it link, info, entry size and size in memory."""

    name: str
    type: int
    flags: int
    data: bytes = b""
    align: int = 16
    link: int = 0
    info: int = 0
    entry_bytes: int = 0
    size_bytes: int | None = None



def build(machine: str, rows: list[Row], symbols: list[tuple[str, int, int]], relocations: list[tuple[int, int, int, int]]) -> bytes:
    """An object of these sections, numbered from 1, symbols (name, section, value), numbered from 1, and relocations of section 1."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in symbols)
    table = [bytes(24)] + [struct.pack("<IBBHQQ", names.index(name.encode() + b"\0"), 0x10, 0, section, value, 0) for name, section, value in symbols]
    count = len(rows)
    rela = b"".join(struct.pack("<QIIq", at, kind, symbol, addend) for at, kind, symbol, addend in relocations)
    rows = [
        *rows, Row(".symtab", 2, 0, b"".join(table), 8, count + 2, 1, 24), Row(".strtab", 3, 0, names, 1),
        Row(".rela.text", 4, 0x40, rela, 8, count + 1, 1, 24), Row(".shstrtab", 3, 0, b"", 1),
    ]  # fmt: skip
    titles = b"\0" + b"".join(row.name.encode() + b"\0" for row in rows)
    rows[-1] = rows[-1]._replace(data=titles)
    data, headers = bytearray(64), [bytes(64)]
    for row in rows:
        headers.append(struct.pack(
            "<IIQQQQIIQQ", titles.index(row.name.encode() + b"\0"), row.type, row.flags, 0, len(data),
            len(row.data) if row.size_bytes is None else row.size_bytes, row.link, row.info, row.align, row.entry_bytes,
        ))  # fmt: skip
        data += row.data
    number = {"x86_64": 62, "aarch64": 183}[machine]
    struct.pack_into("<16sHHIQQQIHHHHHH", data, 0, b"\x7fELF\x02\x01\x01", 1, number, 1, 0, 0, len(data), 0, 64, 0, 0, 64, len(headers), len(rows))
    return bytes(data + b"".join(headers))
