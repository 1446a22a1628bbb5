"""Writes those run filetests whose expected values are computed rather than thought of.

    python tests/write_filetests.py [NAME ...]      writes tests/filetests/run/NAME.vir; without a name, all of them

The oracles share no code with the project: fractions and Python's integers (`exact_floats`, `exact_integers`, `exact_conversions`), and mpmath.
`test_filetests.py` holds the committed files against what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from tree import ROOT, on_path

on_path()

import vir_atomics  # noqa: E402 - the path above must stand first
import vir_conversions  # noqa: E402 - as above
import vir_math  # noqa: E402 - as above
import vir_scalars  # noqa: E402 - as above
import vir_vectors  # noqa: E402 - as above

__all__ = ["FILES", "FOLDER"]

FOLDER: Final = ROOT / "tests" / "filetests" / "run"
# A file's name, without its ending, and what makes its text.
FILES: Final[Mapping[str, Callable[[], str]]] = {**vir_scalars.FILES, **vir_conversions.FILES, **vir_vectors.FILES, **vir_atomics.FILES, **vir_math.FILES}


def main(names: list[str]) -> int:
    """Writes the named files, or all."""
    for name in names or FILES:
        if name not in FILES:
            print(f"{name} is none of {', '.join(FILES)}", file=sys.stderr)
            return 2
        (FOLDER / f"{name}.vir").write_text(FILES[name](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
