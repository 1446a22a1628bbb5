"""The pictures of `vyre-py explore` in the guide, as Chromium shows its page. Written by hand, since a browser's pixels are its own:

    python tests/explore_pictures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from browser import Tab, browser_tab
from PIL import Image
from tree import ROOT

from vyre_py.explore.document import TARGETS, Known
from vyre_py.explore.page import page_bytes
from vyre_py.explore.pages import explore_page
from vyre_py.explore.subject import subjects_of

__all__ = ["write_pictures"]

_PICTURES: Final = ROOT / "docs" / "pictures"
_SIZE: Final = (1440, 900)
_COLOURS: Final = 256
# A product of matrices: an instruction of its PTX is chosen.
_CHOSEN: Final = "[...document.querySelectorAll('section[aria-label^=PTX] .line')].find(line => line.textContent.includes('fma.rn')).click()"
# Heat in a plate: after a few steps of its run.
_STEPS: Final = "for (let k = 0; k < 4; k++) document.querySelector('[aria-label=\"step\"]').click()"


def _written(tab: Tab, folder: Path, example: str, view: str, script: str, picture: Path) -> None:
    page = explore_page(subjects_of(str(ROOT / "examples" / example))[:1], Known(targets=TARGETS), whole=True)
    (folder / "page.html").write_bytes(page_bytes(page))
    tab.look(*_SIZE)
    tab.open(f"file://{folder / 'page.html'}")
    tab.wait("document.documentElement.dataset.ready")
    tab.run(f"[...document.querySelectorAll('[role=tab]')].find(tab => tab.textContent === '{view}').click(); {script}; 0")
    tab.picture(folder / "seen.png")
    with Image.open(folder / "seen.png") as seen:
        seen.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)


def write_pictures() -> None:
    """Makes both pictures anew."""
    with tempfile.TemporaryDirectory() as name, browser_tab(Path(name)) as tab:
        _written(tab, Path(name), "09_matmul.py", "Code", _CHOSEN, _PICTURES / "explore-code.png")
        _written(tab, Path(name), "04_heat.py", "Run", _STEPS, _PICTURES / "explore-run.png")


if __name__ == "__main__":
    write_pictures()
