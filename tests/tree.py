"""Where the project and the modules of its tests lie.

Tests, stand-ins, oracles and scripts import each other by name alone, wherever they lie, so no two have one name. This is the one list of the folders
in which they are looked for: pytest has a copy of it in `pyproject.toml`, and `test_suite.py` holds the two against each other.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["FOLDERS", "PATH", "ROOT", "TESTS", "file_of", "on_path"]

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ROOT / "tests"

# From the root. Of the folders of tests, those out of which others import. `tests/drivers` is none of them: it has folders named as NVIDIA's package and
# wgpu are, which would be taken for those where they are not installed.
FOLDERS: Final = (
    ".", "tests", "tests/fuzz", "tests/oracles", "tests/programs", "tests/stand_ins",
    "tests/ir/wire", "tests/lowering", "tests/lowering/legal", "tests/lowering/llvm", "tests/lowering/llvm/gpu", "tests/lowering/tiles",
    "tests/drivers/cpu", "tests/drivers/cuda", "tests/drivers/memory", "tests/gpus", "tests/interop",
)  # fmt: skip
PATH: Final = tuple(str(ROOT / folder) for folder in FOLDERS)


def on_path() -> None:
    """What the tests import can be imported from here on, in whatever process this is."""
    sys.path[:0] = [path for path in PATH if path not in sys.path]


def file_of(name: str) -> Path:
    """The file of the tests that has this name. Raises ValueError where there is none, or more than one."""
    found = list(TESTS.rglob(name))
    if len(found) != 1:
        raise ValueError(f"{len(found)} files of the tests are named {name}")
    return found[0]
