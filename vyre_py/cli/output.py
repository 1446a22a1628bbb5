"""What commands print: results on standard output, as text or as JSON; complaints on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, TextIO

from vyre_py.drivers.errors import KernelAssertion
from vyre_py.ir.language.errors import Diagnostic, ProgramError, VyreError, printable
from vyre_py.ir.text.lexer import written_name

__all__ = [
    "CommandError", "complain", "coloured", "error_data", "finding_data", "flush", "leave", "name_text", "rate_text", "say", "say_beside",
    "say_bytes", "say_json", "size_text", "time_text",
]  # fmt: skip

_KEPT: Final = "\n\t"
_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}
_NS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_THOUSANDS: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class CommandError(VyreError):
    """A command can't do its work for a reason of its own: a file that can't be read or written, an argument that says nothing."""


def coloured(stream: IO[str]) -> bool:
    """Whether colours go to a stream: where it is a terminal, unless NO_COLOR is set; everywhere when FORCE_COLOR is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _painted(stream: IO[str], text: str, lead: str, colour: str, end: str) -> str:
    painted = f"\x1b[{_COLOURS[colour]}m{lead}\x1b[0m" if lead and colour and coloured(stream) else lead
    return painted + printable(text, _KEPT) + end


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Standard output. Raises CommandError where it cannot be written, such as a full disk, and closes it; BrokenPipeError where its reader has ended."""
    if sys.stdout is None:  # as Python has it where its descriptor was closed before the process began
        raise CommandError("standard output is closed")
    try:
        yield sys.stdout
    except BrokenPipeError:
        raise
    except OSError as error:
        leave()
        raise CommandError(f"standard output: {error.strerror or error}") from error


def leave() -> None:
    """Has standard output go nowhere from now on: what it holds back would fail again as Python ends."""
    with suppress(OSError):  # what stands in for a stream has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def flush() -> None:
    """Writes out what standard output holds back. Raises what writing there raises."""
    if sys.stdout is not None:
        with _standard_output() as stream:
            stream.flush()


def say(text: str = "", *, lead: str = "", colour: str = "", end: str = "\n") -> None:
    """Prints a result. `lead` stands before it, in a colour where there are colours; it is our own word, while the text is untrusted."""
    with _standard_output() as stream:
        stream.write(_painted(stream, text, lead, colour, end))


def say_beside(text: str) -> None:
    """Shows on standard error what is no complaint, as far as that takes anything."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(printable(text, _KEPT) + "\n")


def say_bytes(data: bytes) -> None:
    """Prints a result that is no text."""
    with _standard_output() as stream:
        stream.flush()
        stream.buffer.write(data)


def say_json(data: object) -> None:
    """Prints a result as JSON, in ASCII, so that nothing in it can mean anything to a terminal."""
    with _standard_output() as stream:
        stream.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def complain(message: str) -> int:
    """Says on standard error why a command could not do its work, as far as that takes anything; gives the exit status for it."""
    if sys.stderr is not None:  # None where its descriptor was closed before the process began
        with suppress(OSError):
            sys.stderr.write(_painted(sys.stderr, f" {message}", "vyre-py:", "red", "\n"))
    return 1


def finding_data(diagnostic: Diagnostic, file: str | None, where: object) -> dict[str, Any]:
    """A finding as JSON. Line and column count from 1, and are null where they are unknown; `where` is a place in bytes or JSON, which have no lines."""
    place = diagnostic.place
    return {
        "code": diagnostic.code, "message": diagnostic.message, "help": diagnostic.help, "file": file if place is None else place.file,
        "line": None if place is None else place.line, "column": None if place is None else place.column or None,
        "width": None if place is None else place.width, "where": where,
    }  # fmt: skip


def error_data(error: VyreError, file: str | None = None) -> dict[str, Any]:
    """An error as JSON: its class and message, and what each class has to tell apart."""
    data: dict[str, Any] = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, ProgramError):
        data["diagnostics"] = [finding_data(diagnostic, file, getattr(error, "where", None)) for diagnostic in error.diagnostics]
    for field in ("problems", "status", "meaning", "cause", "remedy"):
        if value := getattr(error, field, None):
            data[field] = list(value) if field == "problems" else str(value)
    if isinstance(error, KernelAssertion):
        ids = {name: list(getattr(error, name)) for name in ("global_id", "workgroup_id", "local_id")}
        data["assert"] = {"message": error.message, "values": [_value_data(value) for value in error.values], **ids, "where": error.where}
    return data


def _value_data(value: Any) -> Any:
    """A number, or several, as JSON: what JSON has no number for as text."""
    if isinstance(value, tuple):
        return [_value_data(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def name_text(name: str) -> str:
    """A name of a Program as its text would write it: bare where it is an identifier, else in quotes and escaped."""
    return written_name(name)


def size_text(size_bytes: float) -> str:
    """A number of bytes for people: `1.5 MiB`."""
    return next((f"{size_bytes / unit:.1f} {name}" for unit, name in _BYTES if size_bytes >= unit), f"{size_bytes:.0f} bytes")


def rate_text(count: float, unit: str) -> str:
    """A number of operations, or how many bytes or operations a second, for people: `1.5 TFLOP/s`."""
    return next((f"{count / size:.3g} {name}{unit}" for size, name in _THOUSANDS if count >= size), f"{count:.3g} {unit}")


def time_text(elapsed_ns: float) -> str:
    """A time for people: `12.3 us`."""
    return next((f"{elapsed_ns / unit:.3g} {name}" for unit, name in _NS if elapsed_ns >= unit), f"{elapsed_ns:.0f} ns")
