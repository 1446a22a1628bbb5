"""The binary form: a header, the columns, the strings, the tables' data, and SHA-256 of all that. `ir/WIRE.md` says every byte.

One Program, its names and places included, has one form: `pack(unpack(data)) == data` for whatever `unpack` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.errors import WireError
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.wire.build import build
from vyre_py.ir.wire.flat import COLUMNS, COUNTS, Fault, Flat
from vyre_py.ir.wire.flatten import flatten
from vyre_py.ir.wire.record import DIGEST_BYTES, Flaw, Malformed, Record, Section, view_of
from vyre_py.ir.wire.verify import verify

__all__ = ["PROGRAM", "pack", "unpack", "verified"]

_VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20

PROGRAM: Final = Record(
    {
        "magic": ("4s", "89 56 59 52"),
        "version": ("H", f"{_VERSION}"),
        "subgroup": ("H", "invocations of a subgroup, 0 where there are none"),
        "length": ("I", f"bytes of all, the digest included; at most {_MAX_BYTES}"),
        **{name: ("I", f"how many: {what}") for name, what in COUNTS.items()},
        "name": ("I", "string: the Program's name"),
        "doc": ("I", "string: its doc"),
        "workgroup": ("3I", "invocations along x, y, z"),
        "over": ("I", "1 where the grid counts invocations, 0 where it counts workgroups"),
        "extents": ("3I", "sizes: the grid along x, y, z; three sizes of 0 where none is given and the stores say none, which `check` refuses"),
    },
    [*[Section(column.name, column.count, column.width) for column in COLUMNS], Section("text", "text_bytes"), Section("data", "data_bytes")],
    magic=b"\x89VYR", versions=[(_VERSION,)], sealed=True, limit_bytes=_MAX_BYTES,
)  # fmt: skip
_CODES: Final[Mapping[Flaw, str]] = {
    Flaw.BYTES: "W116", Flaw.MAGIC: "W101", Flaw.VERSION: "W102", Flaw.SIZE: "W107", Flaw.LAYOUT: "W103", Flaw.DIGEST: "W104",
}  # fmt: skip


def pack(program: Program, names: bool = True, places: bool = False) -> bytes:
    """The bytes of a Program, with the names of its values and variables, and its places, where asked.

    Raises WireError W113 for a Program that `check` would refuse for its form, W107 and W108 for names that cannot be written.
    """
    flat = verified(program, names, places)
    columns = [getattr(flat, column.name).astype(column.dtype, copy=False).tobytes() for column in COLUMNS]
    counts = {name: flat.count(name) for name in COUNTS}
    own = {"name": flat.name, "doc": flat.doc, "workgroup": flat.workgroup, "subgroup": flat.subgroup, "over": bool(flat.over), "extents": flat.extents}
    try:
        return PROGRAM.write(counts | own, [*columns, flat.text, flat.data])
    except Malformed as bad:
        raise WireError(finding(_CODES[bad.flaw], str(bad)), "the Program") from None


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
    try:
        view = view_of(data)
    except Malformed as bad:
        help = "a text goes to from_text or from_json" if isinstance(data, str) else bad.help
        raise WireError(finding(_CODES[bad.flaw], str(bad), None, help)) from None
    header: tuple[Any, ...] = ()
    try:
        try:
            header, places = PROGRAM.read(view)
        except Malformed as bad:
            raise Fault(_CODES[bad.flaw], str(bad), bad.field) from None
        flat = _columns(view, PROGRAM.named(header), places)
        verify(flat, canonical=True)
    except Fault as fault:
        offset = len(view) - DIGEST_BYTES if fault.column == "digest" else PROGRAM.offset(fault.column, fault.index, header)
        raise WireError(finding(fault.code, f"byte {offset}: {fault.message}", None, fault.help), offset) from None
    return build(flat)


def _columns(view: memoryview, header: Mapping[str, Any], places: list[int]) -> Flat:
    """The columns, without a copy."""
    columns: dict[str, Any] = {}
    for column, at in zip(COLUMNS, places, strict=False):
        made = np.frombuffer(view, column.dtype, header[column.count] * column.per, at)
        columns[column.name] = made.reshape(-1, column.per) if column.per > 1 else made
    if header["over"] > 1:
        raise Fault("W105", f"{header['over']} where 0 or 1 is expected", "over")
    text, data, end = places[-3:]
    own = {name: header[name] for name in ("name", "doc", "workgroup", "subgroup", "extents")}
    return Flat(**own, over=bool(header["over"]), text=view[text:data], data=view[data:end], **columns)
