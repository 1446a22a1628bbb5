"""Blocks: what `b.if_`, `b.for_` and their like hand to `with`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from vyre_py.ir.expressions import fail
from vyre_py.ir.where import user_place

if TYPE_CHECKING:
    from vyre_py.ir.builder import ProgramBuilder

__all__ = ["Block"]

T = TypeVar("T")


class Block(Generic[T]):
    """A block of statements, opened by `with` and ended when it ends. One that `with` never opens is refused when the builder ends,
    since its statements would silently run always."""

    __slots__ = ("_begin", "_builder", "_depth", "name", "place")

    def __init__(self, builder: ProgramBuilder, name: str, begin: Callable[[], T]) -> None:
        self._builder = builder
        self._begin = begin
        self._depth = 0
        self.name = name
        self.place = user_place()
        builder.unopened.append(self)

    def __enter__(self) -> T:
        if self in self._builder.unopened:
            self._builder.unopened.remove(self)
        value = self._begin()
        self._depth = self._builder.depth
        return value

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._builder.end_block(self._depth)

    def __iter__(self) -> NoReturn:
        fail("B107", f"{self.name} opens a block, and Python cannot loop over it", "write `with b.for_(start, stop) as k:`")
