"""Plants a bug and runs what should notice it, in a process of its own, since a dropped check may take the process with it.

    python tests/planted NAME        exits with 3 where the bug is noticed, and says by what; with 0 where it is not
    python tests/planted --list      rewrites tests/PLANTED.md
    python tests/planted --without   runs what compares generated Programs, without a bug: exits with 0
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(TESTS.parent), str(TESTS), str(TESTS / "fuzz")]

from planted.page import write_page  # noqa: E402 - the path above must stand first
from planted.plant import Plant  # noqa: E402 - as above
from planted.table import DETECTORS, PLANTS  # noqa: E402 - as above

CAUGHT = 3


def main(name: str) -> int:
    """Does what the command line asks; gives the exit status."""
    if name == "--list":
        write_page()
        return 0
    plant: Plant | None = None
    detectors = DETECTORS
    if name != "--without":
        plant = PLANTS[name]
        plant.install()
        detectors = (plant.caught_by,)
    for detector in detectors:
        finding = detector.run()
        assert plant is None or plant.imported, f"{plant.module} was never imported"
        if finding is not None:
            print(f"caught: {finding}")
            return CAUGHT
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    # Without waiting for the threads and devices of a process that may be in any state.
    os._exit(status)
