"""Workers that are lost before they begin a call: whether another is started for it, and after which pause."""

from __future__ import annotations

from time import monotonic
from typing import Final

__all__ = ["Losses"]

_OWN: Final = 3  # workers that end of themselves, after which there is nothing to be hoped for
_PATIENCE: Final = 60.0  # seconds, where none are given
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class Losses:
    """Losses in a row, which no call is to blame for: a worker that begins one ends the row.

    What ends of itself as it starts does so again, and is tried three times. What is killed from outside, by hand or for want of memory, is replaced for
    `patience` seconds from the first loss on, 60 for None.
    """

    __slots__ = ("_count", "_first", "_last", "_own", "_patience")

    def __init__(self, patience: float | None) -> None:
        self._patience = _PATIENCE if patience is None else patience
        self._first = self._last = 0.0
        self.clear()

    def clear(self) -> None:
        """Ends the row."""
        self._count = self._own = 0

    def forget(self) -> None:
        """Ends a row that nothing was added to for as long as the patience lasts. For the beginning of a call, since starts may take as long."""
        if monotonic() - self._last > self._patience:
            self.clear()

    def add(self, killed: bool) -> bool:
        """Counts a worker that ended of itself, or was `killed`; gives whether another is worth a try."""
        self._last = monotonic()
        self._first = self._first if self._count else self._last
        self._count += 1
        self._own += not killed
        return self._own < _OWN and self._last - self._first < self._patience

    @property
    def pause(self) -> float:
        """Seconds to wait before the next start: none after the first loss, then ever more."""
        return min(_FIRST_PAUSE * 2 ** min(self._count - 2, 16), _LONGEST_PAUSE) if self._count > 1 else 0.0

    def __str__(self) -> str:
        return f"{self._count} worker{'s' if self._count > 1 else ''} in a row, within {self._last - self._first:.1f} s"
