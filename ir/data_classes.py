"""Data classes whose methods are written when they are first called.

The standard library writes and compiles the methods of a data class when the class is made. The floors have some two hundred such classes, and that took half
of the time from the first import to the first result, although most methods are never called in a process. Here a class is made with its fields alone.
What sets its fields, compares and hashes it is written when somebody first asks for it, in the standard library's words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from dataclasses import dataclass as standard
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass"]


class _Late:
    """A method of a data class that nobody has asked for. The first who does puts the real one in its place; threads that ask at once put the same there."""

    __slots__ = ("made_for", "name", "write")

    def __init__(self, made_for: type, name: str, write: Callable[[type], Callable[..., Any]]) -> None:
        self.made_for, self.name, self.write = made_for, name, write

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self.write(self.made_for)
        setattr(self.made_for, self.name, method)
        return method.__get__(instance, owner)


def _method(cls: type, name: str, parameters: Sequence[str], body: Sequence[str], names: dict[str, object]) -> Callable[..., Any]:
    """The function that these lines are, as a method of the class; `names` are what they use beside the parameters."""
    lines = "\n    ".join(body or ["pass"])
    exec(f"def {name}({', '.join(['self', *parameters])}):\n    {lines}", names)  # noqa: S102 - its words are names of fields, which Python has read as such
    method: Any = names[name]
    method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
    return cast("Callable[..., Any]", method)


class _Made:
    """Stands where a value is made for each object, in signatures in the standard library's word."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, setting: str) -> Callable[..., Any]:
    """What sets the fields, in their order, from arguments, values by default and what makes them; then `__post_init__`."""
    names: dict[str, object] = {"_set": object.__setattr__, "_made": _Made()}
    body: list[str] = []
    parameters: list[str] = []
    by_name: list[str] = []
    for field in fields(cls):
        name, value = field.name, field.name
        if field.default is not MISSING:
            names[f"_default_{name}"], default = field.default, f"_default_{name}"
        elif field.default_factory is not MISSING:
            names[f"_make_{name}"], default = field.default_factory, "_made"
            value = f"_make_{name}()" if not field.init else f"_make_{name}() if {name} is _made else {name}"
        else:
            default = ""
        if field.init:
            (by_name if field.kw_only else parameters).append(f"{name}={default}" if default else name)
        elif default != "_made":
            value = default
        if value:
            body.append(setting.format(name=name, value=value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    method = _method(cls, "__init__", [*parameters, *(["*", *by_name] if by_name else [])], body, names)
    method.__annotations__ = {field.name: field.type for field in fields(cls) if field.init} | {"return": None}
    return method


def _plain_init(cls: type) -> Callable[..., Any]:
    return _init(cls, "self.{name} = {value}")


def _frozen_init(cls: type) -> Callable[..., Any]:
    return _init(cls, "_set(self, {name!r}, {value})")


def _tuple(owner: str, chosen: Sequence[Field[Any]]) -> str:
    return "(" + "".join(f"{owner}.{field.name}, " for field in chosen) + ")"


def _eq(cls: type) -> Callable[..., Any]:
    compared = [field for field in fields(cls) if field.compare]
    same = f"{_tuple('self', compared)} == {_tuple('other', compared)}"
    return _method(cls, "__eq__", ["other"], [f"return {same} if other.__class__ is self.__class__ else NotImplemented"], {})


def _hash(cls: type) -> Callable[..., Any]:
    hashed = [field for field in fields(cls) if (field.compare if field.hash is None else field.hash)]
    return _method(cls, "__hash__", [], [f"return hash({_tuple('self', hashed)})"], {})


@recursive_repr()
def _repr(self: Any) -> str:
    return f"{self.__class__.__qualname__}({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in fields(self) if field.repr)})"


def _refuse_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, unsafe_hash: bool = False, slots: bool = False, **others: bool) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, with methods that are written late. What a class of fields gets wrong is found when it is first called.

        A frozen class refuses to have any attribute set, be it a field or not.
        """
        late = {"__init__": _frozen_init if frozen else _plain_init}
        if eq:
            late["__eq__"] = _eq
        if unsafe_hash or (eq and frozen):
            late["__hash__"] = _hash
        at_once: dict[str, Any] = {"__repr__": _repr}
        if eq and "__hash__" not in late:
            at_once["__hash__"] = None
        if frozen:
            at_once |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if frozen and slots:  # nothing else could copy it
            at_once |= {"__getstate__": _state, "__setstate__": _set_state}

        def made(cls: type) -> type:
            own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}  # Python gives a class with an __eq__ this None
            cls = standard(init=False, repr=False, eq=False, slots=slots, **others)(cls)
            for name, write in late.items():
                if name not in own:
                    setattr(cls, name, _Late(cls, name, write))
            for name, method in at_once.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made
