"""Cards for notebooks: the tables, bars and folded texts of which every object's HTML is made, and the card of a checked Program.

No card has a background or a colour of text of its own, only marks of middling brightness and tints, so that it reads in light themes and in dark ones.
Whatever it is given is escaped; what may be markup is `Markup`, which only functions here and their like make. A card shows what its object holds
already: making one compiles, launches, waits for and reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.errors import printable
from vyre_py.ir.language.op import Level
from vyre_py.ir.text.lexer import written_name
from vyre_py.ir.text.notebook.markup import QUIET, escaped, findings_html, styled
from vyre_py.ir.text.notebook.program_markup import program_html

if TYPE_CHECKING:
    from vyre_py.ir.check import Checked

__all__ = ["MAX_ROWS", "Cell", "Markup", "bars", "card", "checked_html", "folded", "size_text", "table"]

MAX_ROWS: Final = 60
_LONGEST: Final = 240  # characters of a cell
_BLUE: Final = "#2f80c8"
_CELL: Final = "text-align:left;vertical-align:top;padding:1px 16px 1px 0"
_BAR_EM: Final = 14.0
_BAR_OF_WINDOW: Final = 25.0  # per cent of its width at most, so that a narrow one has room for words
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Markup(str):
    """HTML as it stands."""

    __slots__ = ()


Cell = str | int | Markup


def _cell(content: Cell) -> str:
    if isinstance(content, Markup):
        return content
    text = printable(str(content))
    return escaped(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")


def table(rows: Iterable[Sequence[Cell]], head: Sequence[str] = ()) -> Markup:
    """Rows of cells, at most `MAX_ROWS` of them, below a head where there is one; nothing for no rows."""
    rows = list(rows)
    if not rows:
        return Markup("")
    top = "".join(f'<th style="{_CELL}">{escaped(name)}</th>' for name in head)
    body = ["<tr>" + "".join(f'<td style="{_CELL}">{_cell(cell)}</td>' for cell in row) + "</tr>" for row in rows[:MAX_ROWS]]
    more = styled(f"{len(rows) - MAX_ROWS} more", QUIET) if len(rows) > MAX_ROWS else ""
    return Markup(f"<table>{f'<tr>{top}</tr>' if top else ''}{''.join(body)}</table>{more}")


def bars(rows: Iterable[tuple[str, float, str]]) -> Markup:
    """A bar for each row, a name, an amount, and its words; the longest is as long as all are."""
    rows = list(rows)
    most = max([amount for _, amount, _ in rows], default=0) or 1
    # Without white space at which a narrow page would break the words.
    return table([(name, _bar(amount / most), Markup(_cell(said).replace(" ", "&nbsp;"))) for name, amount, said in rows])


def _bar(share: float) -> Markup:
    share = min(max(share, 0.0), 1.0)
    width = f"min({_BAR_EM * share:.2f}em,{_BAR_OF_WINDOW * share:.1f}vw)"
    return Markup(f'<span style="display:inline-block;height:0.7em;width:{width};background:{_BLUE}"></span>')


def folded(summary: str, content: Markup | str) -> Markup:
    """What opens at a click: HTML, or a text as it stands."""
    inner = content if isinstance(content, Markup) else f"<pre>{escaped(content)}</pre>"
    return Markup(f"<details><summary>{escaped(summary)}</summary>{inner}</details>")


def card(kind: str, name: str, facts: Iterable[tuple[str, Cell]], *parts: Markup) -> str:
    """One object: its class and name, its facts as a table of two columns (those that say nothing are left out), and what else there is to see."""
    said = table([(Markup(styled(word, QUIET)), fact) for word, fact in facts if fact != ""])
    title = f"<div>{styled(kind, 'font-weight:bold')} {_cell(name)}</div>"
    return f"<div>{title}{said}{''.join(parts)}</div>"


def size_text(size_bytes: int) -> str:
    """A number of bytes for people."""
    return next((f"{size_bytes / unit:.4g} {name}" for unit, name in _BYTES if size_bytes >= unit), f"{size_bytes} bytes")


_LEVELS: Final = {
    Level.GRID: "the same for the grid", Level.WORKGROUP: "the same for a workgroup", Level.SUBGROUP: "the same for a subgroup", Level.VARYING: "varying",
}  # fmt: skip


def checked_html(checked: Checked) -> str:
    """What was proven of a Program: how widely its values are the same, what it asks of a device; its warnings, and its text, folded."""
    program, values = checked.program, checked.uniformity.values
    counted = [(said, values.count(level)) for level, said in _LEVELS.items()]
    warnings = Markup(findings_html((warning.code, str(warning)) for warning in checked.warnings)) if checked.warnings else Markup("")
    facts: list[tuple[str, Cell]] = [
        ("statements", len(program.body)), ("needs", ", ".join(sorted(checked.capabilities))), ("warnings", len(checked.warnings) or "none"),
        ("values", Markup(bars([(said, count, str(count)) for said, count in counted if count]))),
    ]  # fmt: skip
    return card("Checked", written_name(program.name), facts, warnings, folded("the Program", Markup(program_html(program))))
