"""Artifacts for tests: one in which every field says something, artifacts as plain data for comparison, and files with a word changed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from tree import TESTS

from vyre_py.ir.language.dims import Dim, DimConst, DimOp, Grid
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Access, Memory, Param, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import TYPES as ALL_TYPES
from vyre_py.ir.language.types import Type, f32, i64, u32, u64
from vyre_py.ir.text.parser import parse
from vyre_py.ir.wire.record import DIGEST_BYTES
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.form import FILE, INTERFACE, PART, SECTION, SectionForm
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Entry, Image, Interface, Part, Step, Within
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.layout import Layout, Slot, SlotKind
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.reports import Form, prints_at
from vyre_py.lowering.target import parse_target

__all__ = ["AXPY", "FOLDER", "compiled", "edited", "full", "offsets", "plain", "redigested", "section_of"]

FOLDER: Final = TESTS / "vectors" / "artifacts"

REPORTS: Final = (
    Form(True, "{} is not {}, \u00e9", (ALL_TYPES["f16x3"], u32), Place("x\ud800.vir", 3, 5)), Form(False, "{}", (u64,), Place("y.py", 7)),
)

AXPY: Final = """\
program axpy(n) workgroup(64) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  let i = global_id.x
  y[i] = a * x[i] + y[i]
}
"""


def compiled(program: Program | str, *targets: str, **options: Any) -> Artifact:
    """An artifact of a Program, or of its text."""
    made = parse(program) if isinstance(program, str) else program
    return compile_for(made, [parse_target(name) for name in targets], CompileOptions(**options))


def full() -> Artifact:
    """An artifact in which every field of every record has a value of its own, with a part for each kind of target. Its code is none."""
    n, m = Dim("n"), Dim("größe \x1b[31m 大")
    wide = DimOp("ceil_div", DimOp("mul", n, m), DimConst(3 << 40))
    x = Memory("x", Space.BUFFER, ALL_TYPES["f32x3"], (n, wide), Access.READ)
    y = Memory("y z", Space.BUFFER, i64, (m,), Access.READ_WRITE)
    w = Memory("w", Space.BUFFER, f32, (DimConst(7),), Access.WRITE)
    v, s = Param("v", ALL_TYPES["f32x2"]), Param("s", u64)
    interface = Interface("full \ud800\n", (n, m), (v, s), (x, y, w), frozenset({"y z", "n"}), "What it is\nfor.", REPORTS)
    parted = Memory("x", Space.BUFFER, f32, (n, wide, DimConst(3)), Access.READ)
    told = Memory("report", Space.BUFFER, u32, (DimConst(prints_at(REPORTS) + 5),), Access.READ_WRITE, hidden=True)
    slots = (
        Slot(SlotKind.BUFFER, "x", f32, 0, 8, memory=parted),
        Slot(SlotKind.BUFFER, "y z", i64, 8, 8, memory=y),
        Slot(SlotKind.BUFFER, "w", f32, 16, 8, memory=w),
        Slot(SlotKind.PARAM, "v.x", f32, 24, 4, param=Param("v.x", f32, ("v", 0))),
        Slot(SlotKind.PARAM, "v.y'", f32, 28, 4, param=Param("v.y'", f32, ("v", 4))),
        Slot(SlotKind.PARAM, "s", u64, 32, 8, param=s),
        Slot(SlotKind.EXTENT, "", u32, 40, 4, expr=n),
        Slot(SlotKind.EXTENT, "", u64, 48, 8, expr=wide),
        Slot(SlotKind.ARRIVALS, "", u32, 56, 8),
        Slot(SlotKind.CANCEL, "", u32, 64, 8),
        *(Slot(SlotKind.GROUPS, "", u32, 72 + 4 * axis, 4, axis=axis) for axis in range(3)),
        Slot(SlotKind.REPORT, "report", u32, 88, 8, memory=told),
        Slot(SlotKind.SCANS, "", u64, 96, 8),
        Slot(SlotKind.BOXES, "", f32, 112, 128, memory=w, box=(8,)),
    )
    taken = {"full": {"registers": 40, "spills": 0}, "full_4": {}}
    images = (Image("cubin", b"\x7fELF code", b"tables", None, "ptxas info: 40 registers é", taken), Image("ptx", b".version 7.8"))
    needs = (Aligned("y z", 16), Divisible(DimOp("add", n, m), 4), Within(m, 1 << 20))
    entries = (Entry("full_4", needs, 4, {"assembler_level": 4, "least": -(1 << 63)}), Entry("full", details={"most": (1 << 63) - 1}))
    step = Step(images, entries, Layout(slots, 240, frozenset({"x", "n"})), (32, 4, 2), Grid(True, (n, m, wide)), 4096, True, True, True, True)
    part = Part(parse_target("sm_90"), (step,), "fast", {"checks_kept": 3}, made_by={"LLVM": "22.1.0", "options": "opt=3"})
    formats = {"wgsl:f64": "wgsl", "cpu:x86-64-v3": "object"}
    others = [replace(part, target=parse_target(name), steps=(_plainer(step, format_),)) for name, format_ in formats.items()]
    return Artifact(interface, (part, *others), frozenset({"int64", "grid_barrier", "grid_scan"}), bytes(range(32)), bytes(range(32, 64)))


def _plainer(step: Step, format_: str) -> Step:
    """The step with a few slots less and other code; the grid counts workgroups."""
    hidden = (SlotKind.ARRIVALS, SlotKind.CANCEL, SlotKind.GROUPS, SlotKind.REPORT, SlotKind.SCANS, SlotKind.BOXES)
    kept = tuple([slot for slot in step.layout.slots if slot.kind not in hidden])
    return Step(
        (Image(format_, b"code"),), (Entry("main", details={"scratch_bytes": 0}),), Layout(kept, 56), (1, 1, 1), replace(step.grid, over=False), 0,
    )  # fmt: skip


# What no file says, since whoever reads a Program proves it again.
FOUND_ANEW = ("written_first", "functions")


def plain(thing: Any) -> Any:
    """Anything that an artifact holds as data that JSON has, all fields of all records included. Times, and what is found anew, are left out."""
    if isinstance(thing, Program):
        own = {f.name: plain(getattr(thing, f.name)) for f in fields(thing) if f.name in ("dims", "params", "memories", "workgroup", "grid")}
        return {"digest": thing.code_digest.hex(), "interface": thing.interface_digest.hex(), "names": plain(dict(thing.value_names)), **own}
    if isinstance(thing, Type):
        return thing.name
    if isinstance(thing, Enum):
        return thing.value
    if is_dataclass(thing):
        return {f.name: plain(getattr(thing, f.name)) for f in fields(thing) if f.name not in ("stages", "begin_ns", "end_ns", *FOUND_ANEW)}
    if isinstance(thing, bytes):
        return thing.hex()
    if isinstance(thing, Mapping):
        return {str(key): plain(value) for key, value in thing.items()}
    if isinstance(thing, (set, frozenset)):
        return sorted(map(plain, thing))
    return [plain(item) for item in thing] if isinstance(thing, (list, tuple)) else thing


# ---------------------------------------------------------------- files with something changed


def _rows(data: bytes) -> Iterator[tuple[int, str, int, int]]:
    """Of each section: where its row stands, its name, its offset and length."""
    count = FILE.head.unpack_from(data)[5]
    for number in range(count):
        at = FILE.head.size + number * SECTION.head.size
        _, _, offset, length, _, name = SECTION.head.unpack_from(data, at)
        yield at, name.rstrip(b"\0").decode(), offset, length


def section_of(data: bytes, name: str) -> tuple[int, bytes]:
    """Where a section begins, and its bytes."""
    return next((offset, data[offset : offset + length]) for _, found, offset, length in _rows(data) if found == name)


def redigested(data: bytes) -> bytes:
    """A file whose digests are those of its bytes, whatever these are."""
    made = bytearray(data)
    digest_at = FILE.head.size + FILE.head.unpack_from(data)[5] * SECTION.head.size
    for at, _, offset, length in _rows(data):
        begin = at + struct.calcsize("<IIQQ")
        made[begin : begin + DIGEST_BYTES] = hashlib.sha256(data[offset : offset + length]).digest()
    made[digest_at : digest_at + DIGEST_BYTES] = hashlib.sha256(made[:digest_at]).digest()
    return bytes(made)


def offsets(form: SectionForm, section: bytes) -> dict[str, int]:
    """Where each word of a section lies: `head`, `count table` and `table.row.field`."""
    shape = form.shapes[struct.unpack_from("<I", section)[0]]
    counts = shape.record.head.unpack_from(section)[len(shape.names) :]
    words = [*shape.names, *[f"count {name}" for name, *_ in shape.tables]]
    made = {name: 4 * number for number, name in enumerate(words)}
    at = shape.record.head.size
    known = {table.name: table for table in form.tables}
    for (table, width, _), count in zip(shape.tables, counts, strict=True):
        names = [field.name for field in known[table].fields][:width]
        for row in range(count):
            made |= {f"{table}.{row}.{name}": at + 4 * number for number, name in enumerate(names)}
            at += 4 * width
    return made


def edited(data: bytes, section: str, word: str, value: int) -> bytes:
    """A file with one word of a section, or one field of the header or of a section's row, changed under digests that fit."""
    made = bytearray(data)
    if section in ("header", "row"):
        table = FILE.fields if section == "header" else SECTION.fields
        before = [code for name, (code, _) in table.items()][: list(table).index(word)]
        at = struct.calcsize("<" + "".join(before)) + (FILE.head.size if section == "row" else 0)
        code = table[word][0]
        struct.pack_into("<" + code, made, at, value)
        return _header_redigested(bytes(made), data) if section == "header" else redigested(bytes(made))
    begin, inside = section_of(data, section)
    at = offsets(INTERFACE if section == "interface" else PART, inside)[word]
    struct.pack_into("<I", made, begin + at, value)
    return redigested(bytes(made))


def _header_redigested(made: bytes, data: bytes) -> bytes:
    """The number of sections may be what was changed, so the digest goes where it was."""
    at = FILE.head.size + FILE.head.unpack_from(data)[5] * SECTION.head.size
    return made[:at] + hashlib.sha256(made[:at]).digest() + made[at + DIGEST_BYTES :]
