"""The commands behind `vyre-py`, by what they are about: machines, Programs, tables. Each gives the exit status."""

from __future__ import annotations

import sys

__all__ = ["complain"]


def complain(message: str) -> int:
    """Says on standard error why a command could not do its work; gives the exit status for that."""
    print(f"vyre-py: {message}", file=sys.stderr)
    return 1
