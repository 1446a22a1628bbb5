"""Python processes that a test starts."""

from __future__ import annotations

import os
import sys


def child_environment(**settings: str) -> dict[str, str]:
    """This process's environment, with what it imports for a child to find where it does, and settings of its own."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
