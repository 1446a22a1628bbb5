"""The form of artifact files: every field of every record, in order, and the version that brought it. `lowering/ARTIFACT.md` is made from these tables.

A file is a header, a table of sections, a digest of both, and the sections, one behind the other. A section is words of 32 bits (a head, then the
rows of tables), text, and code. One version follows another by adding fields at the end of a row, and tables at the end of a form: a reader
takes what an older file lacks for 0, and refuses a newer file as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.cached import cached_property
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.wire.record import Record, Section
from vyre_py.lowering.layout import MOST_SCANS, SlotKind

__all__ = [
    "BUFFER", "DIM", "FILE", "FORMATS", "IMAGE_CODES", "INTERFACE", "IN_STEPS", "MAX_BYTES", "MAX_FILE", "MAX_ROWS", "MAX_SECTIONS", "MAX_STEPS", "MAX_STRING",
    "MAX_TARGET", "MAX_WORDS", "NEEDS", "NUMERICS", "OWN_ARRAY", "OWN_VALUE", "OWN_VARIABLE", "PART", "SECTION", "SECTION_KINDS", "SLOT_CODES", "STEP_FLAGS",
    "VERSION", "VERSIONS", "WORD_BYTES", "Field", "SectionForm", "Shape", "Table", "version_text",
]

VERSIONS: Final = ((1, 0), (1, 1), (1, 2), (1, 3), (1, 4))  # those that are read
VERSION: Final = VERSIONS[-1]  # the one that is written

MAX_BYTES: Final = 1 << 30
MAX_SECTIONS: Final = 64
MAX_TARGET: Final = 64  # bytes of its name
MAX_ROWS: Final = 1 << 16  # of one table
MAX_WORDS: Final = 1 << 19  # of one section
MAX_STRING: Final = 2048  # bytes of one, but for docs and logs: some four times what a name may have
MAX_FILE: Final = 500  # characters of the name of a file in which an assert or print was written, the last ones
MAX_STEPS: Final = 2 * MOST_SCANS + 1  # kernels of a Program: two for each scan over the grid that is made in steps, and itself
IN_STEPS: Final = frozenset({"wgsl"})  # the kinds of targets where scans are
WORD_BYTES: Final = 4


def version_text(version: tuple[int, int]) -> str:
    """A version of the format as people read it."""
    return f"{version[0]}.{version[1]}"


# ---------------------------------------------------------------- the file

SECTION: Final = Record(
    {
        "kind": ("I", "what it holds"),
        "reserved": ("I", "0"),
        "offset": ("Q", "where it begins: the end of the one before, or of the digest that follows this table"),
        "length": ("Q", "its bytes"),
        "digest": ("32s", "their SHA-256"),
        "name": (f"{MAX_TARGET}s", "`interface`, or the target of a part, ASCII, filled up with zeros"),
    }
)
# The first three fields mean the same in every version.
FILE: Final = Record(
    {
        "magic": ("8s", "the text VYRE-ART"),
        "major": ("H", "version of the format; another one is another format"),
        "minor": ("H", "a higher one has more fields or tables"),
        "flags": ("I", "0"),
        "length": ("Q", f"bytes of the whole file; at most {MAX_BYTES}"),
        "sections": ("I", f"rows of the table of sections; at most {MAX_SECTIONS}"),
        "reserved": ("I", "0"),
    },
    [Section("sections", "sections", SECTION.head.size, MAX_SECTIONS)],
    magic=b"VYRE-ART", versions=VERSIONS, reserved=["flags", "reserved"], sealed=True, rest=True, limit_bytes=MAX_BYTES,
)  # fmt: skip

SECTION_KINDS: Final[Mapping[str, int]] = {"interface": 1, "part": 2}

# ---------------------------------------------------------------- what words say

SLOT_CODES: Final[Mapping[SlotKind, int]] = {
    SlotKind.BUFFER: 1, SlotKind.PARAM: 2, SlotKind.EXTENT: 3, SlotKind.ARRIVALS: 4, SlotKind.CANCEL: 5, SlotKind.GROUPS: 6,
    SlotKind.REPORT: 7, SlotKind.SCANS: 8, SlotKind.TOTALS: 9, SlotKind.BOXES: 10, SlotKind.GRID: 11,
}  # fmt: skip
IMAGE_CODES: Final[Mapping[str, int]] = {"cubin": 1, "ptx": 2, "wgsl": 3, "object": 4, "program": 5}
# Kind of target -> the formats that its steps may have.
FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "ptx": frozenset({"cubin", "ptx"}), "wgsl": frozenset({"wgsl"}), "host": frozenset({"object"}), "reference": frozenset({"program"}),
}  # fmt: skip
NEEDS: Final[Mapping[str, int]] = {"Aligned": 1, "Divisible": 2, "Within": 3}
STEP_FLAGS: Final[Mapping[str, int]] = {"cooperative": 1, "persistent": 2, "dependent": 4, "streaming": 8}
NUMERICS: Final = frozenset({"strict", "fast", "native"})
BUFFER, DIM = 0, 1  # what a row of `wide` refers to
OWN_ARRAY, OWN_VALUE, OWN_VARIABLE = 0, 1, 2  # what a row of `names` names

# ---------------------------------------------------------------- sections


@dataclass(frozen=True, slots=True)
class Field:
    """A word of a row: its name, what it says, and the minor version that brought it."""

    name: str
    doc: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of so many words each."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    since: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A form in one version: its record; the names of the words of its head that count no rows; and for each table its name, the words of a row, and those
    that it lacks, as zeros."""

    record: Record
    names: tuple[str, ...]
    tables: tuple[tuple[str, int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class SectionForm:
    """A kind of section: the words of its head (behind them, the number of rows of each table), and its tables in order."""

    name: str
    head: tuple[Field, ...]
    tables: tuple[Table, ...]

    @cached_property
    def shapes(self) -> Mapping[int, Shape]:
        """Every version that is read, by the word that begins a section of it."""
        return {major << 16 | minor: self._shape(minor) for major, minor in VERSIONS}

    def _shape(self, minor: int) -> Shape:
        names = tuple([field.name for field in self.head if field.since <= minor])
        widths = {table: sum(field.since <= minor for field in table.fields) for table in self.tables if table.since <= minor}
        tables = tuple([(table.name, width, (0,) * (len(table.fields) - width)) for table, width in widths.items()])
        rows = [Section(name, name, WORD_BYTES * width, MAX_ROWS) for name, width, _ in tables]
        behind = [Section("text", "text_bytes"), Section("code", "code_bytes")]
        words = [*names, *[name for name, *_ in tables]]
        return Shape(Record(dict.fromkeys(words, ("I", "")), [*rows, *behind]), names, tables)


_VERSION = Field("version", "65536 * major + minor, as in the file's header")
_TEXT = Field("text_bytes", "bytes of the text: all strings, one behind the other")
_CODE = Field("code_bytes", "bytes of the code, which ends the section")
_STRINGS = Table("strings", "The text in pieces. The first is empty.", (Field("bytes", "its UTF-8; a surrogate, where a name has one, takes 3 bytes"),))
_SIZES = Table(
    "sizes", "Sizes, each before those that are made of it.",
    (
        Field("op", "1 a constant, 2 a dim, from 3 on an operation, as in `ir/WIRE.md`"),
        Field("left", "of a constant the low 32 bits, of a dim its number, else the left size"),
        Field("right", "of a constant the bits from 32 up, of an operation the right size, else 0"),
    ),
)  # fmt: skip
_WIDE = Table(
    "wide", "Buffers and dims that may be 2^32 and more, ascending.",
    (Field("kind", f"{BUFFER} a buffer, {DIM} a dim"), Field("number", "which, in order of declaration")),
)  # fmt: skip

INTERFACE: Final = SectionForm(
    "interface",
    (
        _VERSION,
        Field("name", "string: the Program's name"),
        Field("doc", "string: its doc"),
        _TEXT,
        _CODE,
    ),
    (
        _STRINGS,
        _SIZES,
        Table("dims", "Dims in order of declaration.", (Field("name", "string"),)),
        Table("params", "Params in order of declaration.", (Field("name", "string"), Field("type", "as in `ir/WIRE.md`"))),
        Table(
            "buffers", "Argument buffers in order of declaration.",
            (
                Field("name", "string"),
                Field("type", "of an element, as in `ir/WIRE.md`"),
                Field("access", "1 read, 2 write, 3 read_write"),
                Field("rank", "how many rows of `axes` are its shape"),
            ),
        ),
        Table("axes", "The shapes, one behind the other, outermost axis first.", (Field("size", "size"),)),
        _WIDE,
        Table("capabilities", "What the Program asks of a device, ascending.", (Field("name", "string"),)),
        Table(
            "reports", "Asserts and prints in order of the body.",
            (
                Field("asserts", "1 an assert, 0 a print"), Field("message", "string"), Field("values", "rows of `values`"),
                Field("file", "string: where it was written; empty where that is not known"), Field("line", "from 1"),
                Field("column", "from 1; 0 is not known"),
            ),
            since=2,
        ),
        Table("values", "What asserts and prints tell, one behind the other.", (Field("type", "as in `ir/WIRE.md`"),), since=2),
    ),
)  # fmt: skip

PART: Final = SectionForm(
    "part",
    (
        _VERSION,
        Field("target", "string: its name"),
        Field("numerics", "string: strict, fast or native"),
        Field("report", "how many `numbers` say what the passes did"),
        _TEXT,
        _CODE,
    ),
    (
        _STRINGS,
        _SIZES,
        Table("labels", "What made the code: compilers with their versions, and options.", (Field("name", "string"), Field("value", "string"))),
        Table(
            "steps", f"Kernels, in the order in which a launch runs them; at most {MAX_STEPS}, one but for {', '.join(IN_STEPS)}.",
            (
                Field("images", "rows of `images`"), Field("entries", "rows of `entries`"), Field("slots", "rows of `slots`"),
                Field("wide", "rows of `wide` that the code takes from 2^32 on"),
                Field("workgroup_x", "invocations of a workgroup along x"), Field("workgroup_y", "along y"), Field("workgroup_z", "along z"),
                Field("over", "1 where the grid counts invocations, 0 where it counts workgroups"),
                Field("grid_x", "size: the grid along x"), Field("grid_y", "size: along y"), Field("grid_z", "size: along z"),
                Field("workgroup_bytes", "bytes of workgroup memory"),
                Field("block_bytes", "bytes of the argument block"),
                Field("flags", ", ".join(f"{code} {name}" for name, code in STEP_FLAGS.items())),
            ),
        ),
        Table(
            "images", "The code of a step, best first.",
            (
                Field("format", ", ".join(f"{code} {name}" for name, code in IMAGE_CODES.items())),
                Field("code", "its bytes of the section's code: machine code, text, an object file; a Program as in `ir/WIRE.md`"),
                Field("data", "bytes of constant data, behind its code"),
                Field("bounds", "of a Program: 1 where indices that are proven to lie inside may go unchecked, else 0"),
                Field("passes", "of a Program: rows of `passes`"),
                Field("names", "of a Program: rows of `names`"),
                Field("log", "string: what the assembler said", since=1),
                Field("resources", "rows of `resources`", since=1),
            ),
        ),
        Table(
            "passes", "What was done to a Program, in order.",
            (Field("name", "string: the pass"), Field("before", "statements before it"), Field("after", "statements after it")),
        ),
        Table(
            "names", "What a Program calls its own arrays, and values and variables whose names the wire form has no place for, ascending.",
            (
                Field("kind", f"{OWN_ARRAY} an array that is not a buffer, {OWN_VALUE} a value, {OWN_VARIABLE} a variable"),
                Field("number", "which, in order"), Field("name", "string"),
            ),
        ),
        Table(
            "entries", "Functions of a step's code, best first; the last takes any arguments.",
            (
                Field("symbol", "string: its name in the code"), Field("needs", "rows of `needs`"),
                Field("elements", "how many neighbours along x an invocation works on"),
                Field(
                    "details",
                    "how many `numbers`: of descriptions of boxes that it takes (`boxes`), of invocations that a workgroup has along y beside the step's"
                    " (`rows_beside`), whether as many workgroups are launched as run at once (`walks`), in clusters of how many (`cluster`) that copy which"
                    " boxes for each other (`shared_boxes`), and others",
                ),
            ),
        ),
        Table(
            "needs", "What must hold for an entry to be launched.",
            (
                Field("kind", ", ".join(f"{code} {name}" for name, code in NEEDS.items())),
                Field("number", "Aligned: the buffer; Divisible, Within: the size"),
                Field("by", "Aligned: its address is a multiple of so many bytes; Divisible: the size is a multiple of this; Within: 1 to this"),
            ),
        ),
        Table(
            "slots", "The argument block: buffers, params, then what is hidden. No room is left between slots but to align them, boxes to 64 k + 48.",
            (
                Field("kind", ", ".join(f"{code} {kind.value}" for kind, code in SLOT_CODES.items())),
                Field("type", "of an element or value, as in `ir/WIRE.md`"),
                Field("offset", "its first byte in the block"),
                Field("size", "its bytes"),
                Field("number", "buffer, param, or size of that number; of groups the axis; of report its u32; of boxes the buffer; else 0"),
                Field("more", "of a buffer rows of `axes`, of a param 1 where it has a row of `parts`, of boxes rows of `boxes`; else 0"),
            ),
        ),
        Table("axes", "Axes that a buffer has in the code beyond those of the interface: components and words of its elements.", (Field("size", "a number"),)),
        Table(
            "parts", "Params that are a part of an argument.",
            (Field("offset", "the byte of the argument where it begins"), Field("suffix", "string: its name is the argument's and this")),
        ),
        _WIDE,
        Table(
            "numbers", "Figures by name: of the report, then for each step those of its resources and of its entries.",
            (Field("name", "string"), Field("low", "the low 32 bits, two's complement"), Field("high", "the high 32 bits")),
        ),
        Table(
            "resources", "What a function takes, as the assembler says.", (Field("symbol", "string"), Field("numbers", "how many `numbers`")), since=1,
        ),
        Table(
            "boxes", "The boxes of a buffer that a GPU copies by itself, with its rows swizzled over as many bytes as a row of the box has.",
            (Field("extent", "elements along an axis of the buffer, the outermost first"),), since=4,
        ),
    ),
)  # fmt: skip
