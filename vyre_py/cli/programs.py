"""Commands that read the text of a Program: `check`, `lower`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from vyre_py.cli import complain
from vyre_py.ir.errors import ProgramError
from vyre_py.ir.program import Program

__all__ = ["FORMS", "check", "lower"]


# Form of text -> the target that is meant where none is named.
FORMS: Final = {"vir": "reference", "llvm": "cpu", "ptx": "sm_90", "wgsl": "wgsl", "asm": "cpu"}


class _Unreadable(Exception):
    """A file that is not there, may not be read, or is no text."""


def _read(name: str) -> Program:
    """The Program in a file, or on standard input for `-`. Raises _Unreadable and ProgramError."""
    label = "<stdin>" if name == "-" else name
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise _Unreadable(f"{label}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _Unreadable(f"{label}: no UTF-8 text (byte {error.start} is 0x{error.object[error.start]:02x})") from error
    except ValueError as error:  # a name that no file can have
        raise _Unreadable(f"{label!r}: {error}") from error
    return Program.from_text(text, label)


def check(arguments: argparse.Namespace) -> int:
    """Every finding about each file, and which files are valid."""
    from vyre_py.ir.check import check as checked

    status = 0
    for name in arguments.files:
        try:
            program = checked(_read(name)).program
        except ProgramError as error:
            print(error)
            status = 1
        except _Unreadable as error:
            status = complain(str(error))
        else:
            print(f"{'<stdin>' if name == '-' else name}: program {program.name} is valid")
    return status


def lower(arguments: argparse.Namespace) -> int:
    """The text that a target emits for the Program in a file, or another form of it."""
    from vyre_py.lowering.compile import emit_text
    from vyre_py.lowering.options import CompileOptions

    form = arguments.emit
    if form is None and arguments.target is None:
        arguments.refuse("one of --emit and --target is needed")
    try:
        program = _read(arguments.file)
    except _Unreadable as error:
        return complain(str(error))
    options = CompileOptions() if arguments.opt is None else CompileOptions(opt=arguments.opt)
    text = emit_text(program, arguments.target or FORMS[form], options, form)
    print(text, end="" if text.endswith("\n") else "\n")
    return 0
