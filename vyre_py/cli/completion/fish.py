"""The script for fish: a line for each thing that may stand somewhere."""

from __future__ import annotations

from collections.abc import Iterator

from vyre_py.cli.completion.tree import Command, Option, Value

__all__ = ["script"]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _where(command: Command) -> str:
    """The condition that a command stands on the line, and none of those below it."""
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.words]
    below = " ".join(one.name for one in command.commands)
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {below}"] if below else [])])


def _offer(value: Value | None) -> str:
    if value is None:
        return ""
    return (" -r -F" if value.file else " -x") + (f" -a {_quoted(' '.join(value.words))}" if value.words else "")


def _option(option: Option) -> str:
    flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    return f"{' '.join(flags)}{_offer(option.value)} -d {_quoted(option.help)}"


def _lines(command: Command) -> Iterator[str]:
    head = f"complete -c vyre-py -n {_quoted(_where(command))}"
    yield from (f"{head} -a {below.name} -d {_quoted(below.help)}" for below in command.commands)
    yield from (f"{head} {_option(option)}" for option in command.options)
    for value in command.operands:
        if value.file:
            yield f"{head} -F"
        elif value.words:
            yield f"{head} -a {_quoted(' '.join(value.words))} -d {_quoted(value.name)}"


def script(tree: Command) -> str:
    """The whole of it."""
    lines = ["# Completion of vyre-py for fish: vyre-py completion fish | source", "complete -c vyre-py -f"]
    return "\n".join([*lines, *[line for command in tree.all() for line in _lines(command)], ""])
