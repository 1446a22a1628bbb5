"""Plants a bug and runs what should notice it, in a process of its own, since a dropped check may take the process with it.

    python tests/planted NAME        exits with 3 where the bug is noticed, and says by what; with 0 where it is not
    python tests/planted --list      rewrites tests/PLANTED.md
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # instead of this folder: some of its modules are named as others are

from tree import on_path  # noqa: E402 - the path above must stand first

on_path()

from planted.page import write_page  # noqa: E402 - as above
from planted.plant import CAUGHT  # noqa: E402 - as above
from planted.table import PLANTS  # noqa: E402 - as above


def main(name: str) -> int:
    """Does what the command line asks; gives the exit status."""
    if name == "--list":
        write_page()
        return 0
    plant = PLANTS[name]
    plant.install()
    finding = plant.caught_by.run()
    assert plant.imported, f"{plant.module} was never imported"
    if finding is None:
        return 0
    print(f"caught: {finding}")
    return CAUGHT


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    # Without waiting for the threads and devices of a process that may be in any state.
    os._exit(status)
