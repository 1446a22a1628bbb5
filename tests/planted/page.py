"""The list of plants, `tests/PLANTED.md`."""

from __future__ import annotations

import difflib
import textwrap
from typing import Final

from planted.plant import ROOT, Plant
from planted.table import FLOORS, PLANTS

__all__ = ["COMMAND", "PAGE", "page", "write_page"]

PAGE: Final = ROOT / "tests" / "PLANTED.md"
COMMAND: Final = "python tests/planted --list"


def _entry(plant: Plant) -> str:
    before, after = (textwrap.dedent(text).splitlines() for text in (plant.before, plant.after))
    change = "\n".join([line.rstrip() for line in difflib.ndiff(before, after) if not line.startswith("?")])
    crash = ", or by the end of the process" if plant.may_crash else ""
    caught = f"Survives: {plant.survives}" if plant.survives else f"Caught by {plant.caught_by.title}{crash}."
    return f"### {plant.name}\n\n{plant.breaks} `{plant.path.relative_to(ROOT).as_posix()}`:\n\n```diff\n{change}\n```\n\n{caught}\n"


def page() -> str:
    """The whole page."""
    survivors = [plant.name for plant in PLANTS.values() if plant.survives]
    head = f"""# Planted bugs

Made from `tests/planted/` by `{COMMAND}`; changes belong there.

Each is a mistake of the kind that people make here: a piece of one module's text replaced. `tests/test_planted.py` plants each in a process of its
own and runs the check of the suite that is named with it, which must fail. `python tests/planted NAME` does the same by hand.

{len(PLANTS)} bugs, {len(PLANTS) - len(survivors)} caught{f"; not caught: {', '.join(survivors)}" if survivors else ""}.
"""
    parts = [head]
    for title, plants in FLOORS.items():
        parts += [f"## {title}\n", *map(_entry, plants)]
    return "\n".join(parts)


def write_page() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
