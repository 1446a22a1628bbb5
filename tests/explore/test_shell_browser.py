"""What all pages share, in Chromium."""

from __future__ import annotations

from pathlib import Path

from browser import HOSTILE, browser_tab

from vyre_py.explore.page import VIEWS, Page, write_page


def test_a_hostile_title_stays_text(tmp_path: Path) -> None:
    write_page(Page(HOSTILE, VIEWS[0], {"programs": [], "name": HOSTILE}), tmp_path / "page.html")
    with browser_tab(tmp_path) as tab:
        tab.open(f"file://{tmp_path / 'page.html'}")
        assert "<img src=x" in tab.run("document.querySelector('h1').textContent")
        assert tab.run("[document.images.length, document.scripts.length, typeof window.hacked]") == [0, 3, "undefined"]
        assert tab.errors == []
