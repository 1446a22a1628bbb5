"""Data classes that are written late do what the standard library's do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field
from threading import Barrier, Thread
from typing import Any, ClassVar

import pytest

from vyre_py.ir.data_classes import dataclass as late

OPTIONS = {
    "frozen": {"frozen": True, "slots": True},
    "frozen, with a dict": {"frozen": True},
    "by identity": {"frozen": True, "slots": True, "eq": False},
    "plain": {"slots": True},
    "plain, by identity": {"slots": True, "eq": False},
    "hashed": {"slots": True, "unsafe_hash": True},
    "by name": {"slots": True, "kw_only": True},
    "weak": {"frozen": True, "slots": True, "weakref_slot": True},
}


def made(by: Callable[..., Any], options: dict[str, bool]) -> type[Any]:
    """A class with every kind of field, and one that inherits it."""

    @by(**options)
    class Base:
        """Fields of all kinds."""

        first: int
        shown: str = field(default="a", repr=False)
        apart: object = field(default=None, compare=False)
        unhashed: int = field(default=3, hash=False)
        many: list[int] = field(default_factory=list, hash=False)
        fixed: int = field(default=1, init=False)
        counted: int = field(init=False, compare=False)
        kinds: ClassVar[int] = 2

        def __post_init__(self) -> None:
            object.__setattr__(self, "counted", self.first + 1)

    @by(**options)
    class Child(Base):
        """One field more, and words of its own."""

        last: int = 9

        def __repr__(self) -> str:
            return f"child of {self.first}"

    return type("Both", (), {"base": Base, "child": Child})


def seen(call: Callable[[], object]) -> object:
    """What a call gives, or how it fails."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error)


def observed(cls: Any, options: dict[str, bool]) -> dict[str, object]:
    """What can be seen of a class and its objects."""
    one, same, other = cls(first=1, shown="b", many=[1]), cls(first=1, shown="b", many=[1], apart=5), cls(first=1, unhashed=4)
    found: dict[str, object] = {
        "repr": repr(one), "equal": one == same, "unequal": one == other, "to itself": one == one, "to others": one == (1, "b"),  # noqa: PLR0124 - __eq__ is what is tried
        "hashes alike": seen(lambda: hash(one) == hash(same)), "hashes over fields": seen(lambda: hash(other) == hash(cls(first=1, unhashed=5))),
        "set": seen(lambda: setattr(one, "first", 4)), "deleted": seen(lambda: delattr(other, "shown")),
        "new": cls(first=1).many == [] and cls(first=1).many is not cls(first=1).many,
        "replaced": repr(dataclasses.replace(same, first=7)), "dict": dataclasses.asdict(same),
        "copied": repr(copy.copy(one)), "shared": copy.copy(one).many is one.many,
        "deeply": repr(copy.deepcopy(one)), "apart": copy.deepcopy(one).many is one.many,
        "no arguments": seen(cls), "too many": seen(lambda: cls(1, 2, 3, 4, 5, 6, 7)), "unknown": seen(lambda: cls(1, nothing=1)),
        "parameters": [(p.name, p.kind, p.annotation) for p in inspect.signature(cls).parameters.values()],
        "match": cls.__match_args__, "dict of it": hasattr(one, "__dict__"), "doc": cls.__doc__, "module": cls.__init__.__module__,
        "qualified": cls.__init__.__qualname__, "counted": one.counted, "fixed": one.fixed, "kinds": cls.kinds,
    }
    if not options.get("kw_only"):
        found["in order"] = repr(cls(1, "c", None, 4, [2]))
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_as_the_standard_library(name: str) -> None:
    ours, theirs = made(late, OPTIONS[name]), made(dataclasses.dataclass, OPTIONS[name])
    for kind in ("base", "child"):
        assert observed(getattr(ours, kind), OPTIONS[name]) == observed(getattr(theirs, kind), OPTIONS[name])


def test_own_methods_stay() -> None:
    @late(frozen=True, slots=True)
    class Own:
        """All methods are its own."""

        a: int

        def __init__(self) -> None:
            object.__setattr__(self, "a", 5)

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (Own().a, Own() == 3, hash(Own())) == (5, True, 7)


def test_threads_that_ask_at_once() -> None:
    for _ in range(20):

        @late(frozen=True, slots=True)
        class Together:
            """Made by many at once."""

            a: int

        start, found = Barrier(4), []

        def make(kind: Any = Together, start: Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append(kind(3))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1
        assert len(found) == 4


def test_a_class_is_made_without_its_methods() -> None:
    @late(frozen=True, slots=True)
    class Unused:
        """Nobody makes one."""

        a: int

    assert not any(callable(vars(Unused)[name]) for name in ("__init__", "__eq__", "__hash__"))
    assert Unused(3).a == 3
    assert callable(vars(Unused)["__init__"])
    assert not callable(vars(Unused)["__eq__"])
