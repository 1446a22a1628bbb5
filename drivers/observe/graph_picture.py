"""A captured graph as a picture: its commands in order, the memory that each uses, and which of them another one waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final

from vyre_py.drivers.observe.cards import bound_text
from vyre_py.ir.language.errors import printable
from vyre_py.ir.text.lexer import written_name
from vyre_py.ir.text.notebook.cards import Cell, Markup, card, table
from vyre_py.ir.text.notebook.markup import escaped

if TYPE_CHECKING:
    from vyre_py.drivers.many.commands import CommandView
    from vyre_py.drivers.many.graph import Graph
    from vyre_py.drivers.memory.buffer import Buffer

__all__ = ["graph_html"]

_MOST: Final = 40  # commands in a picture
# Of a box, and of a letter in it.
_WIDTH: Final = 360
_HEIGHT: Final = 40
_APART: Final = 18
_LEFT: Final = 4
_PER_LETTER: Final = 6.4
_COLOURS: Final = {"launch": "#2f80c8", "copy": "#4a9a4a", "fill": "#4a9a4a"}
_OTHER: Final = "#a0569c"

# The bytes of an allocation: which, and from where to where.
_Place = tuple[int, int, int]


def _place(buffer: Buffer) -> _Place:
    return id(buffer.allocation), buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes


def _meet(one: _Place, other: _Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _waits(views: Sequence[CommandView]) -> Iterator[tuple[int, int]]:
    """Pairs of commands of which the later one reads or writes what the earlier one wrote, or writes what that read: the nearest ones, for each place."""
    for number, view in enumerate(views):
        found = set()
        for use in view.uses:
            mine = _place(use.buffer)
            for before in range(number - 1, -1, -1):
                theirs = [other for other in views[before].uses if _meet(mine, _place(other.buffer)) and (use.writes or other.writes)]
                if theirs:
                    found.add(before)
                if any(other.writes for other in theirs):  # what came before that, it waited for
                    break
        yield from ((before, number) for before in sorted(found))


def _letter(number: int) -> str:
    """A, B, ..., Z, A1, B1, ..."""
    return ascii_uppercase[number % 26] + (str(number // 26) if number >= 26 else "")


def _letters(views: Sequence[CommandView]) -> dict[_Place, tuple[str, Buffer]]:
    """A letter for each piece of memory, in the order of use."""
    found: dict[_Place, tuple[str, Buffer]] = {}
    for view in views:
        for use in view.uses:
            found.setdefault(_place(use.buffer), (_letter(len(found)), use.buffer))
    return found


def _fitted(text: str, width: float) -> str:
    text, most = printable(text), int(width / _PER_LETTER)
    return escaped(text if len(text) <= most else text[: most - 3] + "...")


def _used(view: CommandView, letters: dict[_Place, tuple[str, Buffer]]) -> str:
    named = [(written_name(use.name) if view.kind == "launch" else use.name, letters[_place(use.buffer)][0], use.writes) for use in view.uses]
    read, written = (" ".join([f"{name}={letter}" for name, letter, writes in named if writes is which]) for which in (False, True))
    return f"{read} \u2192 {written}" if read and written else read or f"\u2192 {written}" if read or written else ""


def _box(number: int, view: CommandView, letters: dict[_Place, tuple[str, Buffer]]) -> str:
    top, colour = number * (_HEIGHT + _APART) + 1, _COLOURS.get(view.kind, _OTHER)
    title = view.kind if view.title == view.kind else f"{view.kind} {written_name(view.title)}"
    lines = [f'<text x="{_LEFT + 10}" y="{top + 16}">{_fitted(title, _WIDTH - 20)}</text>']
    lines.append(f'<text x="{_LEFT + 10}" y="{top + 32}" fill-opacity="0.7">{_fitted(_used(view, letters), _WIDTH - 20)}</text>')
    return f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{colour}" fill-opacity="0.15" stroke="{colour}"/>{"".join(lines)}'


def _arc(before: int, after: int) -> str:
    """From the right of one box to the right of a later one; a straight arrow between neighbours."""
    step = _HEIGHT + _APART
    if after == before + 1:
        x, y, tip = _LEFT + _WIDTH / 2, before * step + _HEIGHT + 1, before * step + _HEIGHT + 1 + _APART
        return f'<path d="M{x:g},{y} V{tip - 5}"/><path d="M{x - 4:g},{tip - 6} L{x:g},{tip} L{x + 4:g},{tip - 6} Z" fill="currentColor"/>'
    x, y, end = _LEFT + _WIDTH, before * step + 26, after * step + 14
    bow = x + 14 + 6 * min(after - before, 12)
    return f'<path d="M{x},{y} C{bow},{y} {bow},{end} {x + 6},{end}"/><path d="M{x + 7},{end - 4} L{x},{end} L{x + 7},{end + 4} Z" fill="currentColor"/>'


def _svg(views: Sequence[CommandView], letters: dict[_Place, tuple[str, Buffer]]) -> Markup:
    width, height = _LEFT + _WIDTH + 92, len(views) * (_HEIGHT + _APART)
    arcs = "".join(_arc(before, after) for before, after in _waits(views))
    boxes = "".join(_box(number, view, letters) for number, view in enumerate(views))
    head = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="sans-serif" font-size="12">'
    return Markup(f'{head}<title>commands in order</title><g stroke="currentColor" fill="none">{arcs}</g><g fill="currentColor">{boxes}</g></svg>')


def graph_html(graph: Graph) -> str:
    """The picture, and which memory its letters stand for. It shows the arguments of the next replay, and reads no memory."""
    views = graph._views()
    letters = _letters(views[:_MOST])
    facts: list[tuple[str, Cell]] = [
        ("device", graph.device.name), ("nodes", graph.nodes), ("looks at its flag", f"on the {graph.conditional}" if graph.conditional else ""),
        ("not drawn", f"{len(views) - _MOST} more commands" if len(views) > _MOST else ""),
    ]  # fmt: skip
    memory = table([(letter, bound_text(buffer)) for letter, buffer in letters.values()])
    return card("Graph", f"of {graph.nodes} nodes", facts, _svg(views[:_MOST], letters), memory)
