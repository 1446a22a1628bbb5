"""How objects are copied and pickled. Immutable ones go through a form that is read back with every check. Objects of a device are refused.

Pickle is supported for other libraries (worker pools, schedulers); vyre-py itself neither reads nor writes it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

__all__ = ["Portable", "Stationary"]


class Portable:
    """An immutable object: a copy of it is itself. What it is pickled as, `__reduce__` of each class says."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any], /) -> Self:
        return self


class Stationary:
    """An object of one process and one device. `travels_as` says what to send, or to make, in its place."""

    __slots__ = ()
    travels_as: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        # TypeError is what Python's own objects raise, and what schedulers look for.
        raise TypeError(f"a {type(self).__name__} belongs to a device in this process and can be neither pickled nor copied: {self.travels_as}")
