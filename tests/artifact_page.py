"""The page `lowering/ARTIFACT.md`, from the tables of the form, and the kept files of a version.

    python tests/artifact_page.py        writes the kept files of versions that have none; those that are there stay as they are
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tree import on_path

on_path()

from artifacts import AXPY, FOLDER, compiled, full, plain  # noqa: E402 - the path above must stand first

from vyre_py.ir.wire.record import DIGEST_BYTES  # noqa: E402 - as above
from vyre_py.lowering.artifact import form  # noqa: E402 - as above
from vyre_py.lowering.artifact.artifact import Artifact  # noqa: E402 - as above
from vyre_py.lowering.artifact.file import encode  # noqa: E402 - as above
from vyre_py.lowering.artifact.form import Field, SectionForm  # noqa: E402 - as above
from vyre_py.lowering.artifact.parts import Step  # noqa: E402 - as above

__all__ = ["artifact_page"]

_HEAD: Final = """\
# The form of artifact files

The tables are made from `lowering/artifact/form.py` by `python tests/pages.py`; changes belong there, and words in `tests/artifact_page.py`.

An artifact is a compiled Program: what a caller binds, and code for one target or several. `artifact.save(path)` writes the file,
`vp.Artifact.load(path or bytes)` reads it, on a machine that needs neither the Program nor a compiler. By custom the name ends in `.vyre`.

**Load what you would run.** The code inside is machine code, or text for a compiler, and runs with the rights of the process. A digest tells damage; it does
not tell who made the file, and whoever changes code can change the digest with it. What reading promises is less: whatever the bytes are, it ends, in time
and memory that are a small multiple of the file's size, with an artifact or an `ArtifactError` that names the part at fault. Nothing is unpickled, imported or
run. What a launch writes and where it begins follows from tables that are held against each other when they are read. A part for the target
`reference` holds a Program: it is checked as any Program from a stranger, and what its memory safety rests on is proven anew, not taken from the file.

**Nothing is left out.** A kind of section, field, flag, format, slot or need that a reader does not know is an error, not something to skip: an artifact
does all that was meant, or nothing. A file of a newer version is refused as a whole, and the error says so.

## Versions

This vyre-py writes {current} and reads {read}. Fields are only ever added at the end of a row, tables at the end of a form, and that makes a new minor
version; a reader takes what an older file lacks for 0. Whatever would change what is there makes a new major version. What came later than 1.0
is marked in the tables. Kept files of each version are in `tests/vectors/artifacts/`.

## The file

All numbers are unsigned and little-endian. A file is

1. a header of {header} bytes,
2. a table of sections, {section} bytes a row,
3. {digest} bytes: SHA-256 of header and table,
4. the sections, one behind the other, without gaps, to the end of the file.

There is one section for the interface, which comes first, and one for each part; no two parts are for one target. A file has at most {most} bytes.

### Header
"""

_SECTIONS: Final = """\
### A row of the table of sections
"""

_INSIDE: Final = f"""\
## A section

1. The head: words of 32 bits, beginning with the version, then for each table the number of its rows, in the order of the tables below.
2. The rows of each table, one table behind the other; each field is a word.
3. The text: UTF-8, all strings one behind the other. Rows refer to strings by number, and string 0 is empty.
4. The code: bytes that rows count out, one behind the other.

The four are all there is: counts that do not add up to the section's length are an error. A table has at most {form.MAX_ROWS} rows, a section
{form.MAX_WORDS} words, and a string {form.MAX_STRING} bytes, but for docs and logs.
Where a row counts rows of another table, those are the next ones of it, so every row belongs to one other, and none is left.
Types, access and kinds of sizes are numbered as in `ir/WIRE.md`.
"""

_TEXTS: Final = {
    "interface": """\
What a caller binds. The code is the SHA-256 digest of the Program's code and, where it is known, that of its interface, {digest} bytes each. Names of
dims, params and buffers differ from each other; each has 1 to 256 characters.
""",
    "part": """\
Code for one target. It refers to declarations by number, not by name, so that the disk cache can use the same bytes for every Program whose code digest is the
same, whatever its names are. There they stand without the file around them.

* **Slots** are in the order of their kinds: a slot for each buffer of the interface in order; params in order, whole or in parts that do not overlap;
  sizes; hidden addresses and counts. Each begins at the first multiple of its alignment behind the one before it (8 for addresses, else its component's
  size and at least 4), and takes whole words; the block ends with the last one. A step is cooperative exactly where it has a slot of kind arrivals, and has
  the three of kind groups where it is persistent or an entry walks; in their place one of kind grid, the last, is the address of a buffer that says so. In the
  code, elements and params may be in components, and 64-bit integers in two words.
* **Images**: formats belong to kinds of targets: {formats}. None is there twice. PTX and WGSL are UTF-8 without a zero byte.
* **Entries**: the symbol is ASCII; that of a Program is empty. Several elements an invocation need a grid that counts invocations.
* **A Program** (format {program}) is in the wire form of `ir/WIRE.md`, with the interface's dims, params or their parts, and buffers, in order, and with the
  step's workgroup, grid and slots. What it calls itself and what it declares there means nothing: names of the interface, and rows of `names` for its own
  arrays, take their place. Where it was written is left out.
""",
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def _record(table: Mapping[str, tuple[str, str]]) -> str:
    rows, at = [], 0
    for name, (code, doc) in table.items():
        size = struct.calcsize("<" + code)
        rows.append([str(at), str(size), f"`{name}`", doc])
        at += size
    return _table(("offset", "bytes", "field", "meaning"), rows)


def _since(minor: int) -> str:
    return f" (since 1.{minor})" if minor else ""


def _fields(fields: Iterable[Field]) -> str:
    return _table(("field", "meaning"), ([f"`{field.name}`", field.doc + _since(field.since)] for field in fields))


def _form(one: SectionForm) -> str:
    formats = "; ".join(f"{kind} {', '.join(sorted(names))}" for kind, names in form.FORMATS.items())
    words = _TEXTS[one.name].format(digest=DIGEST_BYTES, formats=formats, program=form.IMAGE_CODES["program"])
    parts = [f"## Section of kind {form.SECTION_KINDS[one.name]}: {one.name}\n", words, "### Head\n", _fields(one.head)]
    for table in one.tables:
        parts += [f"### Table `{table.name}`{_since(table.since)}\n", table.doc + "\n", _fields(table.fields)]
    return "\n".join(parts)


def artifact_page() -> str:
    """The page."""
    head = _HEAD.format(
        current=form.version_text(form.VERSION), read=" and ".join(map(form.version_text, form.VERSIONS)), header=form.FILE.head.size,
        section=form.SECTION.head.size, digest=DIGEST_BYTES, most=form.MAX_BYTES,
    )  # fmt: skip
    parts = [head, _record(form.FILE.fields), _SECTIONS, _record(form.SECTION.fields)]
    kinds = ", ".join(f"{number} {name}" for name, number in form.SECTION_KINDS.items())
    return "\n".join([*parts, f"Kinds: {kinds}.\n", _INSIDE, _form(form.INTERFACE), _form(form.PART)])


def _kept(version: tuple[int, int]) -> Artifact:
    """What a kept file holds: every field, and a Program, as far as the version has a place for them."""
    artifact = full()
    if version == (1, 0):
        return replace(artifact, parts=tuple([replace(part, steps=tuple(map(_older, part.steps))) for part in artifact.parts]))
    return artifact


def _older(step: Step) -> Step:
    """A step with what 1.0 has a place for."""
    return replace(step, images=tuple([replace(image, log="", resources={}) for image in step.images]))


def write_kept() -> None:
    """Writes the kept files that are not there."""
    FOLDER.mkdir(exist_ok=True)
    for version in form.VERSIONS:
        for name, artifact in (("full", _kept(version)), ("axpy", compiled(AXPY, "reference", "wgsl"))):
            path = FOLDER / f"{name}_{version[0]}_{version[1]}.vyre"
            if not path.exists():
                path.write_bytes(encode(artifact, version))
                path.with_suffix(".json").write_text(json.dumps(plain(artifact), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_kept()
