"""What users get from `vyre_py` itself, and how they give things back."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

__all__ = ["Closing", "public"]

_T = TypeVar("_T")


def public(thing: _T) -> _T:
    """Marks a class or function as one that users import from `vyre_py`, which is the module that it names: in reprs, messages and pickles."""
    thing.__module__ = "vyre_py"
    return thing


class Closing:
    """Something that holds memory, handles or processes: `close()` gives them back, and so does the end of a `with` block."""

    __slots__ = ()

    def close(self) -> None:
        """Gives back what it holds. Again is quiet."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()
