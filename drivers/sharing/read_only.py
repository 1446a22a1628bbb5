"""Memory that may only be read, and what is said where it would be written.

DLPack's capsules have a flag for it. JAX's arrays never change, since several of them may be one piece of memory; their capsules say nothing of it, so that
their type has to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

__all__ = ["never_changes", "unwritable"]

_READ_ONLY: Final = "its memory may only be read: a constant's, bytes, or another library's that allows no writes"
_PACKAGES: Final = frozenset({"jax", "jaxlib"})
_CURE: Final = (
    "; arrays of JAX never change: pass them as what is read, use vyre_py.interop.jax.vyre_call, or leave an output of callable() out, which makes a new array"
)


@lru_cache(maxsize=256)  # a bound, since it holds the types
def never_changes(type_: type) -> bool:
    """Whether arrays of a type are immutable, whatever their library's capsules say."""
    return any(str(each.__module__).partition(".")[0] in _PACKAGES for each in type_.__mro__)


def unwritable(name: str, value: Any) -> str:
    """The sentence for an argument that is written, and may only be read."""
    library: Any = type(value)
    return f"{name!r} is written, and {_READ_ONLY}{_CURE if never_changes(library) else ''}"
