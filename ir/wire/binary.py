"""The binary form: a header, the columns, the strings, the tables' data, and SHA-256 of all that. `ir/WIRE.md` says every byte.

One Program, its names and places included, has one form: `pack(unpack(data)) == data` for whatever `unpack` accepts. One with functions is of version 2,
whose header says how many there are, and whose last section is their bodies, each the bytes of a Program of version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from vyre_py.ir.check.limits import MAX_FUNCTIONS
from vyre_py.ir.language.errors import WireError
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.wire.build import build
from vyre_py.ir.wire.flat import COLUMNS, COUNTS, Fault, Flat
from vyre_py.ir.wire.flatten import flatten
from vyre_py.ir.wire.record import DIGEST_BYTES, Flaw, Malformed, Record, Section, view_of
from vyre_py.ir.wire.verify import verify

__all__ = ["PROGRAM", "WITH_FUNCTIONS", "pack", "unpack", "verified"]

_VERSION: Final = 1
_WITH_FUNCTIONS: Final = 2
_MAX_BYTES: Final = 64 << 20

_FIELDS: Final = {
    "magic": ("4s", "89 56 59 52"),
    "version": ("H", f"{_VERSION}; {_WITH_FUNCTIONS} where there are functions"),
    "subgroup": ("H", "invocations of a subgroup, 0 where there are none"),
    "length": ("I", f"bytes of all, the digest included; at most {_MAX_BYTES}"),
    **{name: ("I", f"how many: {what}") for name, what in COUNTS.items()},
    "name": ("I", "string: the Program's name"),
    "doc": ("I", "string: its doc"),
    "workgroup": ("3I", "invocations along x, y, z; 0, 0, 0 for a Program of tiles"),
    "over": ("I", "1 where the grid counts invocations, 0 where it counts workgroups"),
    "extents": ("3I", "sizes: the grid along x, y, z; three sizes of 0 where none is given and the stores say none, which `check` refuses"),
}  # fmt: skip
_SECTIONS: Final = [*[Section(column.name, column.count, column.width) for column in COLUMNS], Section("text", "text_bytes"), Section("data", "data_bytes")]
_MAGIC: Final = b"\x89VYR"

PROGRAM: Final = Record(_FIELDS, _SECTIONS, magic=_MAGIC, versions=[(_VERSION,)], sealed=True, limit_bytes=_MAX_BYTES)
WITH_FUNCTIONS: Final = Record(
    {
        **_FIELDS,
        "functions": ("I", "how many: functions, at least one; only in version 2"),
        "function_bytes": ("I", "how many: bytes of all bodies of functions; only in version 2"),
    },
    [*_SECTIONS, Section("functions", "function_bytes")],
    magic=_MAGIC, versions=[(_WITH_FUNCTIONS,)], sealed=True, limit_bytes=_MAX_BYTES,
)  # fmt: skip
_CODES: Final[Mapping[Flaw, str]] = {
    Flaw.BYTES: "W116", Flaw.MAGIC: "W101", Flaw.VERSION: "W102", Flaw.SIZE: "W107", Flaw.LAYOUT: "W103", Flaw.DIGEST: "W104",
}  # fmt: skip


def pack(program: Program, names: bool = True, places: bool = False) -> bytes:
    """The bytes of a Program, with the names of its values and variables, and its places, where asked.

    Raises WireError W113 for a Program that `check` would refuse for its form or for the shape of a tile, W107 and W108 for names that cannot be written.
    """
    return _packed(verified(program, names, places))


def _packed(flat: Flat) -> bytes:
    columns = [getattr(flat, column.name).astype(column.dtype, copy=False).tobytes() for column in COLUMNS]
    counts = {name: flat.count(name) for name in COUNTS}
    own = {"name": flat.name, "doc": flat.doc, "workgroup": flat.workgroup, "subgroup": flat.subgroup, "over": bool(flat.over), "extents": flat.extents}
    bodies = [_packed(body) for body in flat.functions]
    record, more = (WITH_FUNCTIONS, {"functions": len(bodies), "function_bytes": sum(map(len, bodies))}) if bodies else (PROGRAM, {})
    try:
        return record.write(counts | own | more, [*columns, flat.text, flat.data, *bodies])
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
    reader = _Columns(view, WITH_FUNCTIONS if _says(view, _WITH_FUNCTIONS) or not _says(view, _VERSION) else PROGRAM)
    try:
        flat = reader.flat()
        verify(flat, canonical=True)
        return build(flat)
    except Fault as fault:
        offset = reader.offset(fault)
        raise WireError(finding(fault.code, f"byte {offset}: {fault.message}", None, fault.help), offset) from None


def _says(view: memoryview, version: int) -> bool:
    return view[4:6] == version.to_bytes(2, "little")


class _Columns:
    """Reads the columns of one Program. `header` has its numbers once they are read."""

    def __init__(self, view: memoryview, record: Record) -> None:
        self.view, self.record = view, record
        self.header: tuple[Any, ...] = ()
        self.bodies: list[int] = []  # where each function's body begins

    def flat(self) -> Flat:
        """The columns. Raises Fault."""
        try:
            self.header, places = self.record.read(self.view)
        except Malformed as bad:
            raise Fault(_CODES[bad.flaw], str(bad), bad.field) from None
        header = self.record.named(self.header)
        flat = _columns(self.view, header, places)
        if self.record is WITH_FUNCTIONS:
            flat.functions = tuple(self._functions(header["functions"], *places[-2:]))
        return flat

    def _functions(self, count: int, at: int, end: int) -> Iterator[Flat]:
        """The columns of the bodies, which lie one behind the other."""
        if not 1 <= count <= MAX_FUNCTIONS:
            raise Fault("W109" if not count else "W107", f"{count} functions, from 1 to {MAX_FUNCTIONS} are possible in version 2", "functions")
        for number in range(count):
            if at == end:
                raise Fault("W103", f"{count} functions, and only {number} bodies", "functions")
            self.bodies.append(at)
            rest = self.view[at:end]
            try:
                size = PROGRAM.named(PROGRAM.begin(rest))["length"]
            except Malformed as bad:
                raise Fault(_CODES[bad.flaw], f"function {number}: {bad}", "function", number) from None
            body = _Columns(rest[:size], PROGRAM)
            try:
                yield body.flat()
            except Fault as fault:
                raise Fault(fault.code, f"function {number}, byte {body.offset(fault)}: {fault.message}", "function", number, fault.help) from None
            at += size
        if at != end:
            raise Fault("W103", f"the bodies of functions take {at - self.bodies[0]} bytes, the header counts {end - self.bodies[0]}", "function_bytes")

    def offset(self, fault: Fault) -> int:
        """The byte of the Program at which something is at fault: that where its body begins, for a function."""
        if fault.column == "digest":
            return len(self.view) - DIGEST_BYTES
        if fault.column == "function":
            return self.bodies[fault.index] if fault.index < len(self.bodies) else self.record.offset("functions")
        return self.record.offset(fault.column, fault.index, self.header)


def _columns(view: memoryview, header: Mapping[str, Any], places: list[int]) -> Flat:
    """The columns, without a copy."""
    columns: dict[str, Any] = {}
    for column, at in zip(COLUMNS, places, strict=False):
        made = np.frombuffer(view, column.dtype, header[column.count] * column.per, at)
        columns[column.name] = made.reshape(-1, column.per) if column.per > 1 else made
    if header["over"] > 1:
        raise Fault("W105", f"{header['over']} where 0 or 1 is expected", "over")
    text, data, end = places[len(COLUMNS) : len(COLUMNS) + 3]
    own = {name: header[name] for name in ("name", "doc", "workgroup", "subgroup", "extents")}
    return Flat(**own, over=bool(header["over"]), text=view[text:data], data=view[data:end], **columns)
