"""Plants a bug and runs what should notice it, in a process of its own, since a dropped check may take the process with it.

    python tests/planted NAME            exits with 3 where the bug is noticed, and says by what; with 0 where it is not
    python tests/planted --serve FLOOR   does so for each name that it reads, as `server` says
    python tests/planted --list          rewrites tests/PLANTED.md
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # instead of this folder: some of its modules are named as others are

from tree import on_path  # noqa: E402 - the path above must stand first

on_path()

from planted.page import write_page  # noqa: E402 - as above
from planted.plant import CAUGHT  # noqa: E402 - as above
from planted.server import serve  # noqa: E402 - as above
from planted.table import PLANTS  # noqa: E402 - as above


def status_of(name: str) -> int:
    """Plants a bug and looks; gives the exit status."""
    plant = PLANTS[name]
    plant.install()
    finding = plant.caught_by.run()
    assert plant.imported, f"{plant.module} was never imported"
    if finding is None:
        return 0
    print(f"caught: {finding}")
    return CAUGHT


def end_with(name: str) -> NoReturn:
    """Ends the process with the status, without waiting for the threads and devices of a process that may be in any state."""
    try:
        status = status_of(name)
    except BaseException:  # noqa: BLE001 - whatever it is, it is no finding
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(words: list[str]) -> None:
    """Does what the command line asks."""
    if words == ["--list"]:
        write_page()
    elif words[0] == "--serve":
        serve(words[1], end_with)
    else:
        end_with(words[0])


if __name__ == "__main__":
    main(sys.argv[1:])
