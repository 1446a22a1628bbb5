"""Every page of the site as people see it: in Chromium, narrow and wide, light and dark. It says what breaks out of the window, what does not stand out, what
axe-core finds where `npm install axe-core` has put it, and what a page complains of; a picture of each lies under out/views.

    make site && python tests/site_views.py         exits with 1 where it found something; words after it name the pages to look at
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from accessibility import AXE, axe_findings, poor_contrast
from browser import Tab, browser_tab
from tree import ROOT

__all__ = ["VIEWS", "findings", "site_pages_in"]

# Name -> width, height, dark.
VIEWS: Final = {"narrow-light": (390, 844, False), "narrow-dark": (390, 844, True), "wide-light": (1280, 900, False), "wide-dark": (1280, 900, True)}
_TALLEST: Final = 16_000  # of a picture; a texture holds no more
_THEIRS: Final = {"page-has-heading-one"}  # the theme's page of search has no heading
# What reaches past the window, but for what something around it scrolls or cuts.
_WIDER: Final = """[...document.querySelectorAll('body *')].filter(e => {
  if (e.getBoundingClientRect().right <= innerWidth + 1 || !e.offsetParent) return false;
  for (let a = e; a; a = a.parentElement) {
    const style = getComputedStyle(a);
    if (a !== e && style.overflowX !== 'visible' || style.position === 'fixed') return false;
  }
  return true;
}).slice(0, 3).map(e => e.outerHTML.slice(0, 120))"""


def site_pages_in(site: Path) -> list[Path]:
    """The pages of a site; the one at its root only leads on."""
    return [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts and page != site / "index.html"]


def findings(tab: Tab, page: Path, picture: Path, width: int, height: int, dark: bool) -> Iterator[str]:
    """What is wrong with a page in a view, whose picture is written."""
    tab.look(width, height, dark=dark)
    tab.open(page.as_uri())
    tall = min(tab.run("document.documentElement.scrollHeight"), _TALLEST)
    clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_bytes(base64.b64decode(tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]))
    yield from (f"wider than the window: {one}" for one in tab.run(_WIDER))
    yield from (f"stands out {ratio:.2f} to 1: {words!r}, {colour}" for words, colour, ratio in poor_contrast(tab))
    if AXE.exists():
        yield from (f"axe, {rule}: {element}" for rule, element in axe_findings(tab) if rule not in _THEIRS)
    yield from tab.errors
    tab.errors.clear()


def main(words: list[str]) -> int:
    """Looks at all pages; the exit status."""
    site, out = ROOT / "out" / "site", ROOT / "out" / "views"
    pages = [page for page in site_pages_in(site) if not words or any(word in page.as_posix() for word in words)]
    if shutil.which("chromium") is None or not pages:
        print("nothing was looked at: it takes chromium, and the pages that `make site` makes")
        return 1
    shutil.rmtree(out, ignore_errors=True)
    found = 0
    with tempfile.TemporaryDirectory() as folder, browser_tab(Path(folder)) as tab:
        for page in pages:
            name = page.relative_to(site).with_suffix("").as_posix()
            for view, (width, height, dark) in VIEWS.items():
                for said in findings(tab, page, out / view / f"{name.replace('/', '-')}.png", width, height, dark):
                    found += 1
                    print(f"{name}, {view}: {said}", flush=True)
    print(f"{len(pages)} pages in {len(VIEWS)} views, {'with' if AXE.exists() else 'without'} axe: {found or 'no'} findings; their pictures are in {out}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
