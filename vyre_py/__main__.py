"""The command line: `vyre-py` and `python -m vyre_py`.

Exit status: 0 done, 1 the work failed (the message says why), 2 the command line was wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from vyre_py.cli.output import complain, error_data, say_json
from vyre_py.cli.parser import parse
from vyre_py.ir.errors import VyreError

__all__ = ["main"]

_INTERRUPTED: Final = 130  # as a shell has it for SIGINT


def _work(arguments: Any) -> int:
    """Does what a command does; says why where it can't."""
    module, _, function = arguments.run.partition(":")
    try:
        status: int = getattr(import_module(f"vyre_py.cli.{module}"), function)(arguments)
    except VyreError as error:
        if arguments.json:
            say_json({"error": error_data(error)})
        return complain(str(error))
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status. With --json a failure is an object with "error" on standard output, besides the message."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # what stands in for a stream may have one encoding for ever
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # typed as any text stream
    arguments = parse(argv)
    try:
        return _work(arguments)
    except KeyboardInterrupt:
        complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever reads the output, such as `head`, has seen enough; Python's own flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
