"""The binary form: a header, the columns, the strings, the tables' data, and SHA-256 of all that. `ir/WIRE.md` says every byte.

One Program, its names and places included, has one form: `pack(unpack(data)) == data` for whatever `unpack` accepts.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from vyre_py.ir.language.errors import WireError, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.wire.build import build
from vyre_py.ir.wire.flat import COLUMNS, COUNTS, Fault, Flat
from vyre_py.ir.wire.flatten import flatten
from vyre_py.ir.wire.verify import verify

__all__ = ["DIGEST_BYTES", "FIXED", "HEADER", "MAGIC", "MAX_BYTES", "VERSION", "column_offsets", "pack", "unpack", "verified"]

MAGIC: Final = b"\x89VYR"
VERSION: Final = 1
MAX_BYTES: Final = 64 << 20
DIGEST_BYTES: Final = 32

# Field of the header -> struct format and meaning, in order. The first two mean the same in every version.
FIXED: Final[dict[str, tuple[str, str]]] = {
    "magic": ("4s", "89 56 59 52"),
    "version": ("H", f"{VERSION}"),
    "reserved": ("H", "0"),
    "length": ("I", f"bytes of all, the digest included; at most {MAX_BYTES}"),
    **{name: ("I", f"how many: {what}") for name, what in COUNTS.items()},
    "name": ("I", "string: the Program's name"),
    "doc": ("I", "string: its doc"),
    "workgroup": ("3I", "invocations along x, y, z"),
    "over": ("I", "1 where the grid counts invocations, 0 where it counts workgroups"),
    "extents": ("3I", "sizes: the grid along x, y, z; three sizes of 0 where none is given and the stores say none, which `check` refuses"),
}
HEADER: Final = struct.Struct("<" + "".join(code for code, _ in FIXED.values()))
_VERSIONED: Final = struct.Struct("<4sH")


def pack(program: Program, names: bool = True, places: bool = False) -> bytes:
    """The bytes of a Program, with the names of its values and variables, and its places, where asked.

    Raises WireError W113 for a Program that `check` would refuse for its form, W107 and W108 for names that cannot be written.
    """
    flat = verified(program, names, places)
    columns = [getattr(flat, column.name).astype(column.dtype, copy=False).tobytes() for column in COLUMNS]
    payload = b"".join([*columns, flat.text, flat.data])
    length = HEADER.size + len(payload) + DIGEST_BYTES
    if length > MAX_BYTES:
        raise WireError(finding("W107", f"the Program takes {length} bytes, at most {MAX_BYTES} are allowed"), "the Program")
    counts = [flat.count(name) for name in COUNTS]
    header = HEADER.pack(MAGIC, VERSION, 0, length, *counts, flat.name, flat.doc, *flat.workgroup, bool(flat.over), *flat.extents)
    return header + payload + hashlib.sha256(header + payload).digest()


def verified(program: Program, names: bool, places: bool) -> Flat:
    """The columns of a Program that can be written. Raises WireError."""
    try:
        flat = flatten(program, names, places)
        verify(flat, canonical=False)
    except Fault as fault:
        where = f"statement {fault.index}" if fault.column in ("codes", "types", "counts", "refs") else "the Program"
        raise WireError(finding(fault.code, f"{where}: {fault.message}", None, fault.help), where) from None
    return flat


def unpack(data: bytes | bytearray | memoryview) -> Program:
    """The Program that bytes hold. Raises WireError with the offset of the byte at fault; nothing is built before all bytes are verified."""
    view = _view(data)
    try:
        flat = _columns(view)
        verify(flat, canonical=True)
    except Fault as fault:
        offset = _offset(view, fault)
        raise WireError(finding(fault.code, f"byte {offset}: {fault.message}", None, fault.help), offset) from None
    return build(flat)


def _view(data: object) -> memoryview:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        help = "a text goes to from_text or from_json" if isinstance(data, str) else "give bytes, a bytearray or a memoryview"
        raise WireError(finding("W116", f"bytes were expected, got {shown(data) if data is None else type(data).__name__}", None, help))
    view = memoryview(data)
    if not view.c_contiguous:
        raise WireError(finding("W116", "the bytes are not contiguous", None, "copy them first: bytes(view)"))
    return view.cast("B") if view.nbytes else memoryview(b"")


def _columns(view: memoryview) -> Flat:
    """The columns, without a copy. Raises Fault where magic, version, length, digest or header are not right."""
    header = _header(view)
    numbers = iter(header[4:])
    counts = {name: next(numbers) for name in COUNTS}
    sizes = {column.name: (counts[column.count], column.width) for column in COLUMNS}
    wanted = HEADER.size + sum(rows * width for rows, width in sizes.values()) + counts["text_bytes"] + counts["data_bytes"] + DIGEST_BYTES
    if wanted != len(view):
        raise Fault("W103", f"the header counts what takes {wanted} bytes, there are {len(view)}", "strings")
    columns = {}
    at = HEADER.size
    for column in COLUMNS:
        rows, width = sizes[column.name]
        made = np.frombuffer(view, column.dtype, rows * column.per, at)
        columns[column.name] = made.reshape(rows, column.per) if column.per > 1 else made
        at += rows * width
    text = view[at : at + counts["text_bytes"]]
    name, doc, x, y, z, over, *extents = numbers
    if over > 1:
        raise Fault("W105", f"{over} where 0 or 1 is expected", "over")
    return Flat(
        name=name, doc=doc, workgroup=(x, y, z), over=bool(over), extents=(extents[0], extents[1], extents[2]),
        text=text, data=view[at + len(text) : len(view) - DIGEST_BYTES], **columns,
    )


def _header(view: memoryview) -> tuple[int, ...]:
    if len(view) < _VERSIONED.size or bytes(view[: len(MAGIC)]) != MAGIC:
        raise Fault("W101", f"found {bytes(view[: len(MAGIC)]).hex(' ') or 'nothing'}, expected {MAGIC.hex(' ')}", "magic")
    _, version = _VERSIONED.unpack_from(view)
    if version != VERSION:
        raise Fault("W102", f"format version {version}; this vyre-py reads version {VERSION}", "version")
    if len(view) > MAX_BYTES:
        raise Fault("W107", f"{len(view)} bytes, at most {MAX_BYTES} are read", "length")
    if len(view) < HEADER.size + DIGEST_BYTES:
        raise Fault("W103", f"{len(view)} bytes; a header and a digest take {HEADER.size + DIGEST_BYTES}", "length")
    header: tuple[int, ...] = HEADER.unpack_from(view)
    if header[3] != len(view):
        raise Fault("W103", f"the header says {header[3]} bytes, there are {len(view)}", "length")
    found = hashlib.sha256(view[:-DIGEST_BYTES]).digest()
    if found != bytes(view[-DIGEST_BYTES:]):
        raise Fault("W104", f"the digest is {bytes(view[-DIGEST_BYTES:]).hex()[:16]}..., the bytes give {found.hex()[:16]}...", "digest")
    if header[2]:
        raise Fault("W109", f"{header[2]} in a reserved field: 0 stands there", "reserved")
    return header


def _offset(view: memoryview, fault: Fault) -> int:
    """The offset of the entry at fault."""
    if fault.column == "digest":
        return len(view) - DIGEST_BYTES
    column = next((column for column in COLUMNS if column.name == fault.column), None)
    # Some columns are named as the counts of their entries.
    if column is None and fault.column in FIXED:
        names = list(FIXED)
        before = "".join(FIXED[name][0] for name in names[: names.index(fault.column)])
        return struct.calcsize("<" + before) + 4 * fault.index
    counts = dict(zip(COUNTS, HEADER.unpack_from(view)[4:], strict=False))
    return dict(column_offsets(counts))[fault.column] + (column.width if column is not None else 1) * fault.index


def column_offsets(counts: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Where each column begins, then the text, the data and the digest, for a header's counts."""
    at = HEADER.size
    for column in COLUMNS:
        yield column.name, at
        at += column.width * counts[column.count]
    for name in ("text", "data", "digest"):
        yield name, at
        at += counts.get(f"{name}_bytes", 0)
