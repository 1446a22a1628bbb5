"""What pages owe people who use the keyboard, a screen reader, or weak eyes: names, stops of the tab key that are seen, contrast; and what axe-core says,
where `npm install axe-core` has put it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from browser import Tab
from tree import ROOT

__all__ = ["AXE", "NEEDS_AXE", "axe_findings", "poor_contrast", "tab_stops", "unnamed"]

AXE: Final = ROOT / "node_modules" / "axe-core" / "axe.min.js"
NEEDS_AXE: Final = pytest.mark.skipif(not AXE.exists(), reason="npm install axe-core; other tests look at names, roles, order and contrast without it")
# Roles of what acts or says something, each of which needs a name.
_ACTS: Final = {"button", "tab", "listbox", "combobox", "slider", "textbox", "link", "image", "img", "table", "region", "option", "tabpanel"}

_CONTRAST: Final = r"""(() => {
  const number = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), poor = [];
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement, style = getComputedStyle(e);
    if (!node.textContent.trim() || !e.offsetParent || e.closest("script, svg, textarea, :disabled, .unseen, .skip") || Number(style.opacity) < 1) continue;
    const [a, b] = [light(rgb(style.color)), light(ground(e))].sort((p, q) => q - p);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([node.textContent.trim().slice(0, 30), style.color, (a + 0.05) / (b + 0.05)]);
  }
  return poor;
})()"""


def axe_findings(tab: Tab) -> list[Any]:
    """The rules of axe that the page breaks, each with the first element that does. It asks for no style sheet anew, which pages in files may not."""
    tab.run(f"{AXE.read_text('utf-8')};0")
    found: list[Any] = tab.run("axe.run({preload: false}).then(told => told.violations.map(one => [one.id, one.nodes[0].html]))")
    return found


def poor_contrast(tab: Tab) -> list[Any]:
    """Texts that stand out less than 4.5 to 1 (WCAG 2, AA)."""
    found: list[Any] = tab.run(_CONTRAST)
    return found


def unnamed(tab: Tab) -> list[str]:
    """The roles of what a screen reader comes to and has no name for."""
    nodes = [node for node in tab.tree() if node["role"]["value"] in _ACTS]
    return [node["role"]["value"] for node in nodes if not node.get("name", {}).get("value", "").strip()]


def tab_stops(tab: Tab) -> list[str]:
    """The names of what the tab key comes to, in order, each of which has one, is seen, and shows that it is chosen."""
    tab.run("document.activeElement.blur()")
    stops: list[Any] = []
    for _ in range(80):
        tab.press("Tab", code=9)
        stop = tab.run("""(e => e === document.body ? null : [e.tagName,
          e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent.trim().slice(0, 40),
          e.getBoundingClientRect().width > 0 && getComputedStyle(e).outlineStyle !== "none"])(document.activeElement)""")
        if stop is None or (stops and stop == stops[0]):
            break
        assert stop[1] and stop[2], stop
        stops.append(stop)
    return [stop[1] for stop in stops]
