"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["cached_property"]

_T = TypeVar("_T")


class cached_property(Generic[_T]):  # noqa: N801 - a decorator, named as the one of functools
    """An attribute that `func(self)` computes when it is first asked for. Instances need a `__dict__`.

    That of `functools` holds one lock for all instances while it computes, before Python 3.12: others wait for the slowest, and a child that
    is forked meanwhile for ever. This one holds none. Threads that ask at once may each compute; all get what was ready first.
    """

    def __init__(self, func: Callable[[Any], _T]) -> None:
        self.func = func
        self.__doc__ = func.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        # Asked only as long as the instance has no such attribute.
        if instance is None:
            return self
        made: _T = vars(instance).setdefault(self._name, self.func(instance))
        return made
