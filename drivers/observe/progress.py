"""Progress of long work, on standard error where a person watches.

    with Progress("compiling") as progress:
        progress(done, total, name)

A bar is written to terminals only, and removed when the block ends, so that logs and pipes never hold one. In a notebook it is tqdm's, where that is there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import IO, Final, Self

from vyre_py.drivers.observe.notebook_bar import NotebookBar
from vyre_py.ir.language.errors import printable, shown
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Progress", "Report"]

Report = Callable[[int, int, str], object]

_PATIENCE_S: Final = 1.0  # work that is done by then needs no bar
_BETWEEN_S: Final = 0.1  # two bars
_BETWEEN_LINES_S: Final = 5.0  # where there is no terminal and a report was asked for all the same
_CELLS: Final = 24
_COLUMNS: Final = 80  # where the terminal does not say


class Progress:
    """How far some work is: called with how much is done, of how much in all, and the name of what was done last. For one thread.

    `how` None shows a bar on a terminal, and in a notebook where tqdm is installed, once the work has taken a second; True at once, and as lines of text every
    few seconds where there is neither; False nothing. A callable gets `(done, total, name)` each time, and nothing is written; what it raises, the call raises.
    A total of 0 says that the amount is unknown.
    Raises Unsupported for any other `how`.
    """

    def __init__(self, what: str, how: bool | Report | None = None) -> None:
        if how is not None and not isinstance(how, bool) and not callable(how):
            raise Unsupported("vyre-py", [Missing(f"progress {shown(how)}", help="it is True, False, None, or a callable of done, total, name")])
        self._what = what
        self._report = how if callable(how) else None
        self._stream: IO[str] | None = None if callable(how) or how is False else sys.stderr  # which may be None as well
        self._bar = None if callable(how) or how is False else NotebookBar.where_fit(what)
        self._stream = None if self._bar is not None else self._stream
        self._terminal = self._bar is not None or (self._stream is not None and _is_terminal(self._stream))
        if how is None and not self._terminal:
            self._stream = None
        self._begin = monotonic()
        self._next = self._begin + (0.0 if how else _PATIENCE_S)
        self._state = (0, 0, "")
        self._width = 0  # columns that the bar takes now

    @property
    def interval_s(self) -> float | None:
        """After how many seconds without progress `again` should be called; None without a terminal or a notebook."""
        return 5 * _BETWEEN_S if self._stream is not None or self._bar is not None else None

    def __call__(self, done: int, total: int, name: str = "") -> None:
        """Shows how far it is."""
        self._state = done, total, name
        if self._report is not None:
            self._report(done, total, name)
        else:
            self.again()

    def again(self) -> None:
        """Shows what was last said, for work that takes long between two calls. A bar is drawn ten times a second at most."""
        now, (done, total, _) = monotonic(), self._state
        last = done == total and not self._terminal  # a bar is taken away anyhow, a line says how it ended
        if (self._stream is None and self._bar is None) or (now < self._next and not last):
            return
        if self._bar is not None:
            self._bar.draw(*self._state)
            self._next = now + _BETWEEN_S
            return
        text = self._text(now)
        if self._terminal:
            self._draw(text)
            self._next = now + _BETWEEN_S
        else:
            self._put(text + "\n")
            self._next = now + _BETWEEN_LINES_S

    def _text(self, now: float) -> str:
        """One line of ASCII, so that each character takes one column in every terminal."""
        done, total, name = self._state
        if not total:  # the amount is unknown
            return _ascii(f"{self._what} {name} ...")
        filled = _CELLS * min(done, total) // max(total, 1)
        left = f", {(now - self._begin) / done * (total - done):.0f} s left" if 0 < done < total else ""
        said = f": {name}" if name else ""
        text = f"{self._what} [{'#' * filled}{' ' * (_CELLS - filled)}] {done}/{total}{left}{said}"
        return _ascii(text)

    def _draw(self, text: str) -> None:
        """Writes over the bar that is there. The last column stays empty, in which some terminals begin a new line."""
        assert self._stream is not None  # the caller has tested it
        text = text[: _columns(self._stream) - 1]
        self._put("\r" + text.ljust(self._width) + ("\b" * (self._width - len(text))))
        self._width = len(text)

    def _put(self, text: str) -> None:
        """Writes the bar. If that fails, nothing more is written: a bar must not make work fail."""
        assert self._stream is not None  # the caller has tested it
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Takes the bar away."""
        if self._stream is not None and self._width:
            self._put("\r" + " " * self._width + "\r")
        if self._bar is not None:
            self._bar.close()
        self._stream, self._report, self._bar = None, None, None


def _ascii(text: str) -> str:
    return printable(text).encode("ascii", "backslashreplace").decode("ascii")


def _is_terminal(stream: IO[str]) -> bool:
    """Whether a person sees it at once, and it takes a line back."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def _columns(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):  # no terminal of the system's, such as that of a test
        return _COLUMNS
