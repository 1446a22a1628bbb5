"""The command line: `vyre-py` and `python -m vyre_py`.

Exit status: 0 done, 1 the work failed (the message says why), 2 the command line was wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

__all__ = ["main"]

_INTERRUPTED: Final = 130  # as a shell has it for SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status. With --json a failure is an object with "error" on standard output, besides the message."""
    try:
        from vyre_py.cli.entry import perform  # here, so that Ctrl-C while it is imported is met as well

        return perform(argv)
    except KeyboardInterrupt:
        with suppress(OSError, AttributeError):  # full, or closed before this process began
            sys.stderr.write("vyre-py: interrupted\n")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
