"""Artifacts as files: one container, the interface and a part for each target in it. `lowering/ARTIFACT.md` says every byte.

A file is data and never instructions for whoever reads it, and every byte of it lies under a digest. A digest is against damage; against malice there is
none: the code inside is run as it is, so load what you would run.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vyre_py.ir.language.errors import shown
from vyre_py.lowering.artifact.artifact import Artifact, Interface, Part
from vyre_py.lowering.artifact.form import (
    DIGEST_BYTES,
    HEADER,
    MAGIC,
    MAX_BYTES,
    MAX_SECTIONS,
    MAX_TARGET,
    SECTION,
    SECTION_KINDS,
    VERSION,
    VERSIONS,
)
from vyre_py.lowering.artifact.reader import read_interface, read_part
from vyre_py.lowering.artifact.section import unknown_version
from vyre_py.lowering.artifact.writer import write_interface, write_part
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.files import replacing

__all__ = ["decode", "decode_part", "encode", "encode_part", "load", "save"]

_KIND_NAMES: Final = {number: name for name, number in SECTION_KINDS.items()}


# ---------------------------------------------------------------- bytes


def encode(artifact: Artifact, version: tuple[int, int] = VERSION) -> bytes:
    """The bytes of an artifact; the same for the same artifact. Raises ArtifactError for what has no place in them, in an older version for what
    came later. What is written has been read once."""
    sections = [("interface", "interface", write_interface(artifact, version))]
    sections += [("part", part.target.name, write_part(part, artifact.interface, version)) for part in artifact.parts]
    begin = HEADER.size + len(sections) * SECTION.size + DIGEST_BYTES
    length = begin + sum(len(data) for *_, data in sections)
    if len(sections) > MAX_SECTIONS or length > MAX_BYTES:
        raise ArtifactError("file", f"{len(sections)} sections in {length} bytes; at most {MAX_SECTIONS} in {MAX_BYTES} are written")
    rows = [HEADER.pack(MAGIC, *version, 0, length, len(sections), 0)]
    for kind, name, data in sections:
        rows.append(SECTION.pack(SECTION_KINDS[kind], 0, begin, len(data), hashlib.sha256(data).digest(), _section_name(name)))
        begin += len(data)
    head = b"".join(rows)
    made = b"".join([head, hashlib.sha256(head).digest(), *[data for *_, data in sections]])
    decode(made)
    return made


def _section_name(name: str) -> bytes:
    made = name.encode("ascii", "replace")
    if len(made) > MAX_TARGET:
        raise ArtifactError(f"part {name}", f"the name of its target has more than {MAX_TARGET} bytes")
    return made


def decode(data: bytes | bytearray | memoryview) -> Artifact:
    """The artifact that bytes hold. Raises ArtifactError, which names the part at fault; nothing is left out or repaired."""
    view = _view(data)
    (_, _, inside), *parts = _sections(view)
    interface, capabilities, code_digest, interface_digest = read_interface(inside)
    made = [read_part(section, interface, f"part {name}") for _, name, section in parts]
    for (_, name, _), part in zip(parts, made, strict=True):
        if part.target.name != name:
            raise ArtifactError(f"part {name}", f"it is for {part.target.name}")
    return Artifact(interface, tuple(made), capabilities, code_digest, interface_digest)


def encode_part(part: Part, interface: Interface) -> bytes:
    """The bytes of one part, without a digest: a cache keeps one of its own. Raises ArtifactError for what has no place in them."""
    made = write_part(part, interface)
    read_part(memoryview(made), interface)
    return made


def decode_part(data: bytes | bytearray | memoryview, interface: Interface) -> Part:
    """The part that bytes hold, for a Program of this interface, whose declarations it refers to by number: any with the same code digest as
    the one that it was compiled from. Raises ArtifactError."""
    return read_part(_view(data), interface)


def _view(data: object) -> memoryview:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ArtifactError("file", f"bytes were expected, got {shown(data)}")
    view = memoryview(data)
    if not view.c_contiguous:
        raise ArtifactError("file", "its bytes are not contiguous; copy them first: bytes(view)")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _sections(view: memoryview) -> Sequence[tuple[int, str, memoryview]]:
    """The kind, name and bytes of each section, of which the first is the interface, all under digests that fit."""
    count = _count(view)
    begin = HEADER.size + count * SECTION.size + DIGEST_BYTES
    table = view[: begin - DIGEST_BYTES]
    if hashlib.sha256(table).digest() != view[len(table) : begin]:
        raise ArtifactError("header", "its digest is not that of its bytes: the file was damaged")
    made: list[tuple[int, str, memoryview]] = []
    for kind, reserved, offset, length, digest, padded in SECTION.iter_unpack(table[HEADER.size :]):
        name = padded.rstrip(b"\0").decode("ascii", "replace")
        if not (name.isascii() and name.isprintable()):
            raise ArtifactError("header", f"a section is called {shown(name)}, which is no name of one")
        if kind not in _KIND_NAMES or reserved:
            raise ArtifactError("header", f"section {shown(name)} is of kind {kind}, which this vyre-py does not know")
        if offset != begin or length > len(view) - begin:
            raise ArtifactError("header", f"section {shown(name)} begins at byte {offset} and has {length}; byte {begin} is due, of {len(view)}")
        section = view[offset : offset + length]
        where = name if _KIND_NAMES[kind] == "interface" else f"part {name}"
        if any(name == other for _, other, _ in made):
            raise ArtifactError(where, "it is there twice")
        if (kind == SECTION_KINDS["interface"]) == bool(made) or (not made and name != "interface"):
            raise ArtifactError("header", f"section {shown(name)} is where another is due: one interface, then parts")
        if hashlib.sha256(section).digest() != digest:
            raise ArtifactError(where, "its digest is not that of its bytes: the file was damaged")
        made.append((kind, name, section))
        begin += length
    if begin != len(view):
        raise ArtifactError("file", f"{len(view) - begin} bytes belong to no section")
    return made


def _count(view: memoryview) -> int:
    """How many sections a header that can be read says that there are."""
    size = len(view)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ArtifactError("header", f"this is no artifact: it begins with {shown(bytes(view[: len(MAGIC)]))}, not {shown(MAGIC)}")
    if size < HEADER.size:
        raise ArtifactError("header", f"{size} bytes, a header takes {HEADER.size}")
    _, major, minor, flags, length, count, reserved = HEADER.unpack_from(view)
    if (major, minor) not in VERSIONS:
        raise unknown_version("header", (major, minor))
    if size > MAX_BYTES:
        raise ArtifactError("file", f"{size} bytes, at most {MAX_BYTES} are read")
    if length != size:
        raise ArtifactError("header", f"it says {length} bytes, there are {size}")
    if flags or reserved:
        raise ArtifactError("header", f"flags {flags:#x} and {reserved:#x}, which this vyre-py does not know")
    if not 1 <= count <= MAX_SECTIONS or HEADER.size + count * SECTION.size + DIGEST_BYTES > size:
        raise ArtifactError("header", f"{count} sections in {size} bytes; there are 1 to {MAX_SECTIONS}")
    return int(count)


# ---------------------------------------------------------------- files


def save(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Writes an artifact as a whole, in place of what was at `path`. Raises ArtifactError."""
    data = encode(artifact)
    try:
        with replacing(path) as file:
            file.write(data)
    except (OSError, TypeError, ValueError) as error:  # a path that is none, or that no system takes
        raise ArtifactError("file", f"it cannot be written: {error}", _plain(path)) from error


def load(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Artifact:
    """The artifact in a file, or in bytes. Raises ArtifactError, with the path where there is one."""
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
    # A pipe that nobody writes to would be waited for without end.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        if found.st_size > MAX_BYTES:
            raise OSError(f"it has {found.st_size} bytes, at most {MAX_BYTES} are read")
        return file.read(MAX_BYTES + 1)
