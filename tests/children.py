"""Python processes that a test starts."""

from __future__ import annotations

import os
import sys
from typing import Final

# The first line of a script that is sent SIGINT: a process starts with it ignored where its parent has it so, as a background job of a shell has.
TAKES_CTRL_C: Final = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def child_environment(**settings: str) -> dict[str, str]:
    """This process's environment, with what it imports for a child to find where it does, and settings of its own."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
