"""Those run filetests whose expected values are computed rather than thought of; they are written when tests are collected.

    python tests/write_filetests.py [NAME ...]      prints them; without a name, says which there are

The oracles share no code with the project: fractions and Python's integers (`exact_floats`, `exact_integers`, `exact_conversions`), and mpmath.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from tree import on_path

on_path()

import vir_atomics  # noqa: E402 - the path above must stand first
import vir_complex  # noqa: E402 - as above
import vir_conversions  # noqa: E402 - as above
import vir_float_functions  # noqa: E402 - as above
import vir_math  # noqa: E402 - as above
import vir_scalars  # noqa: E402 - as above
import vir_subgroups  # noqa: E402 - as above
import vir_vectors  # noqa: E402 - as above

__all__ = ["FILES"]

# A file's name, without its ending, and what makes its text.
FILES: Final[Mapping[str, Callable[[], str]]] = {
    **vir_scalars.FILES, **vir_float_functions.FILES, **vir_conversions.FILES, **vir_vectors.FILES, **vir_atomics.FILES, **vir_math.FILES,
    **vir_subgroups.FILES, **vir_complex.FILES,
}


def main(names: list[str]) -> int:
    """Prints the named files."""
    if unknown := [name for name in names if name not in FILES]:
        print(f"{', '.join(unknown)}: none of {', '.join(FILES)}", file=sys.stderr)
        return 2
    print("\n".join(FILES[name]() for name in names) or "\n".join(FILES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
