"""One command, from its arguments to its exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from vyre_py.cli.output import CommandError, complain, error_data, flush, leave, say_json
from vyre_py.cli.parser import parse
from vyre_py.ir.language.errors import VyreError

__all__ = ["perform"]


def perform(argv: Sequence[str] | None) -> int:
    """Does what a command does; gives the exit status. Ends the process, as argparse does, after --help and for a wrong command line."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # what stands in for a stream may have one encoding for ever
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # typed as any text stream
    try:
        return _done(argv)
    except CommandError as error:  # of standard output
        return complain(str(error))
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        leave()
        return 1


def _done(argv: Sequence[str] | None) -> int:
    try:
        arguments = parse(argv)
    except SystemExit:
        flush()
        raise
    try:
        status = _work(arguments)
        flush()
    except VyreError as error:
        if arguments.json:
            say_json({"error": error_data(error)})
            flush()
        return complain(str(error))
    return status


def _work(arguments: Any) -> int:
    module, _, function = arguments.run.partition(":")
    status: int = getattr(import_module(f"vyre_py.cli.{module}"), function)(arguments)
    return status
