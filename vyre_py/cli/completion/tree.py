"""The parser as a tree of plain data, of which each shell's script is made."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from vyre_py.drivers.registry import KINDS
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.rules import RULES

__all__ = ["Command", "Option", "Value", "tree_of"]

# What the parser takes as any text, by where it goes, and the words that people mean.
_WORDS: Final = {
    "device": KINDS, "code": tuple(RULES), "target": ("sm_90", "compute_90", "wgsl", "cpu", "reference"),
    "targets": ("sm_90", "compute_90", "wgsl", "cpu", "reference"),
}  # fmt: skip
# The names in messages of what is a file.
_FILES: Final = frozenset({"FILE", "OUT", "REPORT", "PICTURE", "NAME=FILE.npy"})


@dataclass(frozen=True, slots=True)
class Value:
    """What stands at a place: a name for people, the words it may be (none: any), whether it is a file, whether there may be several."""

    name: str
    words: tuple[str, ...] = ()
    file: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its flags, what it says, and its value where it has one."""

    flags: tuple[str, ...]
    help: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class Command:
    """A command by the words that call it, `("cache", "stats")`, with its options and operands, or the commands below it."""

    words: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    operands: tuple[Value, ...]
    commands: tuple[Command, ...]

    @property
    def name(self) -> str:
        """The last of its words."""
        return self.words[-1] if self.words else ""

    def all(self) -> Iterator[Command]:
        """It, and those below it."""
        yield self
        for command in self.commands:
            yield from command.all()


def _value(action: argparse.Action) -> Value:
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    words = tuple(map(str, action.choices)) if action.choices is not None else _WORDS.get(action.dest, ())
    return Value(name, words, name in _FILES, action.nargs in ("*", "+"))


def _said(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def tree_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), help: str = "") -> Command:
    """The tree of a parser."""
    options: list[Option] = []
    operands: list[Value] = []
    commands: list[Command] = []
    for action in parser._actions:  # argparse has no other way to ask for them
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands += [tree_of(below, (*words, name), said.get(name, "")) for name, below in action.choices.items()]
        elif action.option_strings:
            options.append(Option(tuple(action.option_strings), _said(parser, action), None if action.nargs == 0 else _value(action)))
        else:
            operands.append(_value(action))
    return Command(words, help, tuple(options), tuple(operands), tuple(commands))
