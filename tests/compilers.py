"""A C compiler, to compile and run what vyre-py writes in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

__all__ = ["compile_c", "find_cc"]

_NAMES = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}
STRICT = ("-Wall", "-Wextra", "-Werror")


@cache
def find_cc(language: str = "c") -> str:
    """A compiler for C, or C++. Where there is none, tests are skipped, or fail when VYRE_REQUIRE_DEVICES names `cc`."""
    for name in _NAMES[language]:
        if found := shutil.which(name):
            return found
    if "cc" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","):
        pytest.fail(f"a compiler for {language} is required: install gcc and g++")
    pytest.skip(f"there is no compiler for {language} here")


def compile_c(target: Path, sources: Sequence[Path | str], *options: str, standard: str = "c99", optimise: int = 0) -> Path:
    """Compiles, and links unless an option says otherwise; a warning is an error."""
    language = "c++" if standard.startswith("c++") else "c"
    command = [find_cc(language), f"-std={standard}", *STRICT, f"-O{optimise}", *map(str, sources), "-o", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    assert not done.stderr, done.stderr  # the linker's warnings, of code that cannot be moved for one
    return target
