"""Artifacts as files: one container, the interface and a part for each target in it. `lowering/ARTIFACT.md` says every byte.

A file is data: reading it runs nothing. Every byte lies under a digest, which protects against damage, but not against malice: the code inside is run as it
is, so load only what you would run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vyre_py.ir.imports import deferred
from vyre_py.ir.language.errors import shown
from vyre_py.ir.wire.record import DIGEST_BYTES, Flaw, Malformed, digest, view_of
from vyre_py.lowering.artifact.form import FILE, MAX_BYTES, MAX_TARGET, SECTION, SECTION_KINDS, VERSION
from vyre_py.lowering.artifact.parts import Interface, Part
from vyre_py.lowering.artifact.reader import read_interface, read_part
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.files import reading, replacing

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact

if TYPE_CHECKING:
    from vyre_py.lowering.artifact import writer
else:
    (writer,) = deferred("vyre_py.lowering.artifact", "writer")

__all__ = ["decode", "decode_part", "encode", "encode_part", "load", "save"]

# An artifact's fields, in their order: `Artifact` makes itself of them.
Contents = tuple[Interface, tuple[Part, ...], frozenset[str], bytes, bytes]

_KIND_NAMES: Final = {number: name for name, number in SECTION_KINDS.items()}


# ---------------------------------------------------------------- bytes


def encode(artifact: Artifact, version: tuple[int, int] = VERSION) -> bytes:
    """The bytes of an artifact; the same for the same artifact. Raises ArtifactError for what has no place in them, in an older version for what
    came later. What is written has been read once."""
    sections = [("interface", "interface", writer.write_interface(artifact, version))]
    sections += [("part", part.target.name, writer.write_part(part, artifact.interface, version)) for part in artifact.parts]
    begin = FILE.least + len(sections) * SECTION.head.size
    rows: list[bytes] = []
    for kind, name, data in sections:
        rows.append(SECTION.head.pack(SECTION_KINDS[kind], 0, begin, len(data), digest(data), _section_name(name)))
        begin += len(data)
    try:
        made = FILE.write({"major": version[0], "minor": version[1], "sections": len(sections)}, rows, [data for *_, data in sections])
    except Malformed as bad:
        raise ArtifactError("file", str(bad)) from None
    decode(made)
    return made


def _section_name(name: str) -> bytes:
    made = name.encode("ascii", "replace")
    if len(made) > MAX_TARGET:
        raise ArtifactError(f"part {name}", f"the name of its target has more than {MAX_TARGET} bytes")
    return made


def decode(data: bytes | bytearray | memoryview) -> Contents:
    """The fields of the artifact that bytes hold. Raises ArtifactError, which names the part at fault; nothing is left out or repaired."""
    (_, inside), *parts = _sections(_view(data))
    interface, capabilities, code_digest, interface_digest = read_interface(inside)
    made = [read_part(section, interface, f"part {name}") for name, section in parts]
    for (name, _), part in zip(parts, made, strict=True):
        if part.target.name != name:
            raise ArtifactError(f"part {name}", f"it is for {part.target.name}")
    return interface, tuple(made), capabilities, code_digest, interface_digest


def encode_part(part: Part, interface: Interface) -> bytes:
    """The bytes of one part, without a digest: a cache keeps one of its own. Raises ArtifactError for what has no place in them."""
    made = writer.write_part(part, interface)
    read_part(memoryview(made), interface)
    return made


def decode_part(data: bytes | bytearray | memoryview, interface: Interface) -> Part:
    """The part that bytes hold, for a Program of this interface, whose declarations it refers to by number: any with the same code digest as
    the one that it was compiled from. Raises ArtifactError."""
    return read_part(_view(data), interface)


def _view(data: object) -> memoryview:
    try:
        return view_of(data)
    except Malformed as bad:
        raise ArtifactError("file", f"{bad}; {bad.help}") from None


def _sections(view: memoryview) -> list[tuple[str, memoryview]]:
    """The name and bytes of each section, of which the first is the interface, all under digests that fit."""
    try:
        _, (table, end) = FILE.read(view)
    except Malformed as bad:
        said = {Flaw.MAGIC: f"this is not an artifact: {bad}", Flaw.DIGEST: f"{bad}: the file was damaged"}.get(bad.flaw, str(bad))
        raise ArtifactError("file" if bad.flaw is Flaw.SIZE else "header", said) from None
    made: dict[str, memoryview] = {}
    begin = end + DIGEST_BYTES
    for kind, reserved, offset, length, sealed, padded in SECTION.head.iter_unpack(view[table:end]):
        name = padded.rstrip(b"\0").decode("ascii", "replace")
        if not (name.isascii() and name.isprintable()):
            raise ArtifactError("header", f"a section has the invalid name {shown(name)}")
        if kind not in _KIND_NAMES or reserved:
            raise ArtifactError("header", f"section {shown(name)} is of kind {kind}, which this vyre-py does not know")
        if offset != begin or length > len(view) - begin:
            raise ArtifactError("header", f"section {shown(name)} begins at byte {offset} and has {length}; byte {begin} is due, of {len(view)}")
        section = view[offset : offset + length]
        where = name if _KIND_NAMES[kind] == "interface" else f"part {name}"
        if name in made:
            raise ArtifactError(where, "it is there twice")
        if (kind == SECTION_KINDS["interface"]) == bool(made) or (not made and name != "interface"):
            raise ArtifactError("header", f"section {shown(name)} is where another is due: one interface, then parts")
        if digest(section) != sealed:
            raise ArtifactError(where, "its digest is not that of its bytes: the file was damaged")
        made[name] = section
        begin += length
    if not made:
        raise ArtifactError("header", "0 sections; there is one interface, then parts")
    if begin != len(view):
        raise ArtifactError("file", f"{len(view) - begin} bytes belong to no section")
    return list(made.items())


# ---------------------------------------------------------------- files


def save(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Writes an artifact as a whole, in place of what was at `path`. Raises ArtifactError."""
    data = encode(artifact)
    try:
        with replacing(path) as file:
            file.write(data)
    except (OSError, TypeError, ValueError) as error:  # no path, or one that the system refuses
        raise ArtifactError("file", f"it cannot be written: {error}", _plain(path)) from error


def load(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Contents:
    """The fields of the artifact in a file, or in bytes. Raises ArtifactError, with the path where there is one."""
    if not isinstance(source, (str, os.PathLike)):
        return decode(source)
    try:
        data = _read(Path(source))
    except (OSError, TypeError, ValueError) as error:
        raise ArtifactError("file", f"it cannot be read: {error}", _plain(source)) from error
    try:
        return decode(data)
    except ArtifactError as error:
        raise error.at(_plain(source)) from error.__cause__


def _plain(path: object) -> str:
    """A path, or what was given as one, as a text."""
    return str(os.fspath(path) if isinstance(path, os.PathLike) else path)


def _read(path: Path) -> bytes:
    with reading(path) as (file, size):
        if size > MAX_BYTES:
            raise OSError(f"it has {size} bytes, at most {MAX_BYTES} are read")
        return file.read(MAX_BYTES + 1)
