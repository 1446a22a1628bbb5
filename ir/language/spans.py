"""Places of statements, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from vyre_py.ir.language.errors import Place

__all__ = ["Spans"]


class Spans(Sequence[Place | None]):
    """The places of the statements of a text. They are kept as the first and the last token of each; the first use makes all places at once.

    Immutable for its readers, in any thread: two first uses at the same time both make the places, and one result is kept.
    """

    __slots__ = ("_places", "_spans")

    def __init__(self, spans: Sequence[tuple[int, int]], places: Callable[[Iterable[tuple[int, int]]], Iterator[Place]]) -> None:
        self._spans = spans
        self._places: Callable[[Iterable[tuple[int, int]]], Iterator[Place]] | tuple[Place, ...] = places

    def _made(self) -> tuple[Place, ...]:
        places = self._places
        if not isinstance(places, tuple):
            self._places = places = tuple(places(self._spans))
        return places

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> Place: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Place, ...]: ...
    def __getitem__(self, index: int | slice) -> Place | tuple[Place, ...]:
        return self._made()[index]

    def __iter__(self) -> Iterator[Place]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, (Spans, tuple)) and self._made() == tuple(other))

    def __hash__(self) -> int:
        return hash(self._made())
