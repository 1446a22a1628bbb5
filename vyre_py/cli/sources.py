"""What commands read: Programs as text, bytes or JSON, and artifacts. The content tells which; the name of a file means nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vyre_py.cli.output import CommandError, say_bytes
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.wire.binary import PROGRAM
from vyre_py.lowering.artifact.form import FILE
from vyre_py.lowering.files import replacing

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["label_of", "read_bytes", "read_code", "read_program", "read_source", "write_bytes"]

# More than any reader takes, so that an endless file ends here and everything else in its reader, which says why.
_MAX_BYTES: Final = 1 << 30


def label_of(name: str) -> str:
    """What a file is called in messages."""
    return "<stdin>" if name == "-" else name


def read_bytes(name: str) -> bytes:
    """All bytes of a file, or of standard input for `-`. Raises CommandError."""
    label = label_of(name)
    try:
        if name == "-" and sys.stdin is None:  # as Python has it where its descriptor was closed before the process began
            raise CommandError("standard input is closed")
        if name == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{label}: {error.strerror or error}") from error
    except ValueError as error:  # a name that no file can have
        raise CommandError(f"{shown(label)}: {error}") from error
    if len(data) > _MAX_BYTES:
        raise CommandError(f"{label}: more than {_MAX_BYTES} bytes")
    return data


def _source(data: bytes, label: str) -> Program | str:
    """A Program in bytes or JSON, or the text of one, which is not read."""
    if data.startswith(PROGRAM.magic):
        return Program.from_bytes(data)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":  # with which no text of a Program begins
        return Program.from_json(data.removeprefix(b"\xef\xbb\xbf"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{label}: no UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})") from error


def _program(data: bytes, label: str) -> Program:
    if label.endswith(".py"):
        raise CommandError(f"{label}: this is Python, and the text of a Program is needed: have it print(program), or look at it with vyre-py explore")
    source = _source(data, label)
    return Program.from_text(source, label) if isinstance(source, str) else source


def read_program(name: str) -> Program:
    """The Program in a file: .vir text, bytes or JSON. Not checked. Raises CommandError; ParseError and WireError for malformed content."""
    data = read_bytes(name)
    if data.startswith(FILE.magic):  # with which no text of a Program begins
        raise CommandError(f"{label_of(name)}: this is compiled code, and a Program is needed")
    return _program(data, label_of(name))


def _artifact(data: bytes, label: str) -> Artifact:
    from vyre_py.lowering.artifact.artifact import Artifact
    from vyre_py.lowering.errors import ArtifactError

    try:
        return Artifact.load(data)
    except ArtifactError as error:
        raise error.at(label) from None


def read_code(name: str) -> Program | Artifact:
    """The Program or the artifact in a file. Raises what `read_program` raises, and ArtifactError."""
    data = read_bytes(name)
    return _artifact(data, label_of(name)) if data.startswith(FILE.magic) else _program(data, label_of(name))


def read_source(name: str) -> Program | Artifact | str:
    """What `read_code` gives, but of a Program in text the text as it stands. Raises CommandError, WireError, ArtifactError."""
    data = read_bytes(name)
    return _artifact(data, label_of(name)) if data.startswith(FILE.magic) else _source(data, label_of(name))


def write_bytes(name: str, data: bytes) -> None:
    """Writes a file, `-` being standard output. Raises CommandError."""
    if name == "-":
        say_bytes(data)
        return
    try:
        with replacing(name) as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise CommandError(f"{shown(name)} could not be written: {error.strerror if isinstance(error, OSError) else error}") from error
