"""How objects are copied and pickled. Immutable ones go through a form that is read back with every check. Objects of one process are refused.

Pickle is supported for other libraries (worker pools, schedulers); vyre-py itself neither reads nor writes it. What a pickle of ours names are public classes
and their methods, so that another Python, and a vyre-py whose modules lie elsewhere, read it too. Methods go by name alone (`made_by`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from operator import methodcaller
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

__all__ = ["Contained", "Portable", "Stationary", "ValueRecord", "made_by"]


class Portable:
    """An immutable object: a copy of it is itself. What it is pickled as, `__reduce__` of each class says, and `_identity` what tells it from others."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any], /) -> Self:
        return self

    def _identity(self) -> Any:
        """Plain values, the same for equal objects in every process."""
        raise NotImplementedError

    def __dask_tokenize__(self) -> tuple[str, str]:
        """What Dask knows the object by: equal for equal objects, in every process. Raises TypeError where a field belongs to this process."""
        identity = repr(_plain(self._identity())).encode("utf-8", "surrogatepass")
        return f"vyre_py.{type(self).__name__}", sha256(identity).hexdigest()


class ValueRecord(Portable):
    """An immutable dataclass that arrives through its constructor: by name, and without what is as it is by default, so that fields may be added."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        values = [(f, getattr(self, f.name)) for f in _fields(self)]
        given = {f.name: value for f, value in values if f.default is MISSING or value != f.default}
        views = [name for name, value in given.items() if isinstance(value, MappingProxyType)]  # of mappings, which alone can be pickled
        return made_by(type(self)._with, given | {name: dict(given[name]) for name in views}, *views)

    @classmethod
    def _with(cls, given: Mapping[str, Any], /, *views: str) -> Self:
        return cls(**{name: MappingProxyType(value) if name in views else value for name, value in given.items()})

    def _identity(self) -> Any:
        return tuple([getattr(self, f.name) for f in _fields(self) if f.compare])


class Contained(Portable):
    """An immutable piece of a larger object, which has the form that is sent."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(f"{_one(self)} is a piece of an artifact and cannot be pickled: send the artifact")


class Stationary:
    """An object of one process. `belongs_to` says what it is part of there, `travels_as` what to send, or to make, in its place."""

    __slots__ = ()
    belongs_to: ClassVar[str] = "a device in this process"
    travels_as: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        # TypeError is what Python's own objects raise, and what schedulers look for.
        raise TypeError(f"{_one(self)} belongs to {self.belongs_to} and can be neither pickled nor copied: {self.travels_as}")


def made_by(method: Callable[..., Any], /, *given: Any) -> tuple[Any, ...]:
    """What `__reduce__` gives for an object that a class method makes of plain values. A bound method itself would not do: a pickler that takes functions by
    value, as cloudpickle does those that no module has under their name, takes it apart."""
    bound: Any = method
    return methodcaller(bound.__name__, *given), (bound.__self__,)


def _one(thing: object) -> str:
    name = type(thing).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _fields(record: Any) -> tuple[Field[Any], ...]:
    return fields(record)


def _plain(value: Any) -> Any:
    """A value as one whose text is the same in every process; numbers that are equal, such as 1 and 1.0, are the same."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) or value.is_integer() else value
    if isinstance(value, Portable):
        return value.__dask_tokenize__()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted([repr(_plain(item)) for item in value])
    if isinstance(value, Mapping):
        return sorted([(repr(_plain(key)), repr(_plain(item))) for key, item in value.items()])
    if is_dataclass(value):
        return [type(value).__name__, *[_plain(getattr(value, f.name)) for f in _fields(value) if f.compare]]
    raise TypeError(f"{_one(value)} belongs to this process, and what holds it has no token: leave it out")
