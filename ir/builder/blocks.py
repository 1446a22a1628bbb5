"""Blocks: what `b.if_`, `b.for_` and their like hand to `with`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from vyre_py.ir.builder.where import fail, user_place
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.nodes import Value

if TYPE_CHECKING:
    from vyre_py.ir.builder.common_builder import CommonBuilder
    from vyre_py.ir.language.assembler import Assembler

if TYPE_CHECKING:
    from vyre_py.ir.builder import hints
else:
    (hints,) = deferred("vyre_py.ir.builder", "hints")

__all__ = ["Block", "Ended"]

T = TypeVar("T")

_BINDING: Final = r"\s*([A-Za-z_]\w*)\s*(?:[-+*/%&|^]|//|\*\*|<<|>>)?=[^=]"


class Block(Generic[T]):
    """A block of statements, opened by `with` and ended when it ends. One that `with` never opens is refused when the builder ends,
    since its statements would silently run always."""

    __slots__ = ("_begin", "_builder", "first", "name", "place")

    def __init__(self, builder: CommonBuilder[Any], name: str, begin: Callable[[], T]) -> None:
        self._builder = builder
        self._begin = begin
        self.first = 0  # the number of the first value bound in it
        self.name = name
        self.place = user_place()
        builder.unopened.append(self)

    def __enter__(self) -> T:
        if self in self._builder.unopened:
            self._builder.unopened.remove(self)
        self.first = self._builder.bound
        value = self._begin()
        self._builder.inside.append(self)
        return value

    @property
    def turns(self) -> bool:
        """Whether it is a loop."""
        return self.name in ("b.for_", "b.loop")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._builder.end_block(self)

    def __iter__(self) -> NoReturn:
        fail("B107", f"{self.name} opens a block, and Python cannot loop over it", "write `with b.for_(start, stop) as k:`")


class Ended:
    """The values of blocks that have ended, which nothing may use any more. Values are numbered in program order, so each block's are a range; those from
    `live` on are in none."""

    def __init__(self) -> None:
        self.live = 0
        self._starts: list[int] = []
        self._ranges: list[tuple[int, Block[Any]]] = []  # by start: the end, and the block

    def add(self, start: int, end: int, block: Block[Any]) -> None:
        """Values `start` up to `end` have gone out of scope, and with them those of the blocks inside."""
        while self._starts and self._starts[-1] >= start:
            self._starts.pop()
            self._ranges.pop()
        if end > start:
            self._starts.append(start)
            self._ranges.append((end, block))
            self.live = end

    def refuse(self, value: Value, assembler: Assembler) -> None:
        """Raises ValidationError V108 for a value that has gone out of scope; says which Python name was bound to it, where the line tells."""
        at = bisect_right(self._starts, value.id) - 1
        if at < 0 or value.id >= self._ranges[at][0]:
            return
        block = self._ranges[at][1]
        index = next(k for k, statement in enumerate(assembler.body) if statement.result is value)
        made = assembler.places[index]
        bound = re.match(_BINDING, made.source) if made is not None else None
        name, source = (bound[1], made.source.strip()) if made is not None and bound is not None else ("v", "")
        message = f"a value made in the {block.name} block at {block.place} is used after its end" + (f": `{source}`" if source else "")
        why = "a Python name is not a variable, so that line made a new value that lives in the block: " if source else ""
        fail("V108", message, f"{why}declare {name} = {hints.variable_hint(name, value.type)} before the block, and write it by {name}.set(...) or +=")
