"""The command `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.cli.completion import bash, fish, zsh
from vyre_py.cli.completion.tree import Command, tree_of
from vyre_py.cli.output import say
from vyre_py.cli.parser import make_parser

__all__ = ["SCRIPTS", "completion"]

SCRIPTS: Final[Mapping[str, Callable[[Command], str]]] = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}


def completion(arguments: argparse.Namespace) -> int:
    """The script that has a shell complete this command line."""
    say(SCRIPTS[arguments.shell](tree_of(make_parser())), end="")
    return 0
