"""Pictures as SVG text: the same bits wherever they are made, and no library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

__all__ = ["DARK", "INK", "LIGHT", "MIDDLE", "PALE", "WARM", "Picture"]

INK, PALE, LIGHT, MIDDLE, DARK, WARM = "#222222", "#eef2f7", "#c6dbef", "#6baed6", "#2171b5", "#fdae6b"

class Picture:
    """The parts of an SVG picture."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title, self._parts = (width, height), title, list[str]()

    def box(self, x: float, y: float, width: float, height: float, fill: str, *, dashed: bool = False, line: str = INK) -> None:
        """A rectangle."""
        dash = ' stroke-dasharray="3 3"' if dashed else ""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{line}"{dash}/>')

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK) -> None:
        """A line of text."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A line along an axis, or slanted, with a head at its end."""
        across, down = to_x - x, to_y - y
        length = (across * across + down * down) ** 0.5
        u, v = across / length, down / length
        head = " ".join(f"{to_x - 8 * u + s * 4 * v:.4g},{to_y - 8 * v - s * 4 * u:.4g}" for s in (-1, 1))
        self._parts.append(f'<path d="M{x:g},{y:g} L{to_x - 8 * u:.4g},{to_y - 8 * v:.4g}" stroke="{INK}" fill="none"/>')
        self._parts.append(f'<polygon points="{to_x:g},{to_y:g} {head}" fill="{INK}"/>')

    def labelled(self, x: float, y: float, width: float, height: float, lines: Sequence[str], fill: str = PALE) -> None:
        """A rectangle with lines of text in its middle."""
        self.box(x, y, width, height, fill)
        for number, words in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 4 + 15 * (number - (len(lines) - 1) / 2), words, anchor="middle", fill="white" if fill == DARK else INK)

    def legend(self, x: float, y: float, rows: Iterable[tuple[str, str]]) -> None:
        """What colours stand for, one below the other."""
        for number, (fill, words) in enumerate(rows):
            self.box(x, y + 20 * number, 12, 12, fill)
            self.text(x + 20, y + 20 * number + 11, words)

    def svg(self) -> str:
        """The whole of it."""
        width, height = self._size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif" font-size="12">'
        return "\n".join([head, f"<title>{escape(self._title)}</title>", f'<rect width="{width}" height="{height}" fill="white"/>', *self._parts, "</svg>", ""])
