"""Shorthand for memory in texts of LLVM IR: fields of structs by name, and elements of arrays by number.

    %count = load Head.alive_count of %state      the field of the struct at %state
    store i64 %first, Slot.begin of %slot
    %mine_at = address Head.in_flight of %state   where the field is
    %value = load ptr %t of %args                 element %t of the array of pointers at %args
    store ptr %value, ptr 1 of %given

Structs that a text names need no definition in it.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Final

from vyre_py.drivers.native.structs import STRUCTS, StructType

__all__ = ["argument_loads", "written_out"]

_PLACE: Final = r"(?:(?P<struct>\w+)\.(?P<field>\w+)|(?P<type>\w+) (?P<number>\S+)) of (?P<base>%[\w.]+)$"
_LOAD: Final = re.compile(rf"^(?P<indent> *)(?P<result>%\w+) = (?P<what>load|address) {_PLACE}", re.MULTILINE)
_STORE: Final = re.compile(rf"^(?P<indent> *)store (?P<value>\w+ \S+), {_PLACE}", re.MULTILINE)
_NAMED: Final = re.compile(r"%([A-Z]\w*)")


def written_out(text: str, *others: StructType) -> str:
    """LLVM IR in full, after the definitions of the structs that it names: those of `structs`, and others that are given."""
    known = {**STRUCTS, **{one.name: one for one in others}}
    numbers = count()

    def place(match: re.Match[str]) -> tuple[str, str]:
        """The type of what lies there, and the address."""
        if not match["struct"]:
            return match["type"], f"getelementptr {match['type']}, ptr {match['base']}, i64 {match['number']}"
        struct = known[match["struct"]]
        number = struct.number(match["field"])
        return struct.fields[match["field"]], f"getelementptr %{struct.name}, ptr {match['base']}, i64 0, i32 {number}"

    def load(match: re.Match[str]) -> str:
        type_, address = place(match)
        if match["what"] == "address":
            return f"{match['indent']}{match['result']} = {address}"
        at = f"%at.{next(numbers)}"
        return f"{match['indent']}{at} = {address}\n{match['indent']}{match['result']} = load {type_}, ptr {at}"

    def store(match: re.Match[str]) -> str:
        _, address = place(match)
        at = f"%at.{next(numbers)}"
        return f"{match['indent']}{at} = {address}\n{match['indent']}store {match['value']}, ptr {at}"

    text = _STORE.sub(store, _LOAD.sub(load, text))
    named = set(_NAMED.findall(text))
    return "\n".join([*[one.definition for name, one in known.items() if name in named], text])


def argument_loads(count_: int) -> str:
    """LLVM IR in shorthand that loads the first arguments of `%call` as `%v0` and so on."""
    return "\n  ".join(["%arguments = address Call.arguments of %call", *[f"%v{n} = load i64 {n} of %arguments" for n in range(count_)]])
