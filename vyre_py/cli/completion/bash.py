"""The script for bash: one function, which finds the command that stands on the line and offers its words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from vyre_py.cli.completion.tree import Command, Value

__all__ = ["script"]

_HEAD = """# Completion of vyre-py for bash: eval "$(vyre-py completion bash)"
_vyre_py() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" words="" files="" i
    # bash takes --emit=ptx for three words.
    if [[ $word == "=" ]]; then word=""; elif [[ $before == "=" ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command ${COMP_WORDS[i]}" in
"""
_MIDDLE = """        esac
    done
    case "$command $before" in
"""
_TAIL = """    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ -n $files && $word != -* ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -F _vyre_py vyre-py
"""


def _offer(value: Value | None) -> str:
    return f"words={shlex.quote(' '.join(value.words))}; files={'1' if value.file else ''}" if value is not None else ""


def _after_options(command: Command) -> Iterator[str]:
    """A line for each option that takes a value, which comes next then."""
    path = "".join(f" {word}" for word in command.words)
    for option in command.options:
        if option.value is not None:
            places = "|".join(shlex.quote(f"{path} {flag}") for flag in option.flags)
            yield f"        {places}) {_offer(option.value)} ;;"


def _others(command: Command) -> str:
    """What may stand anywhere else: commands, options, operands."""
    words = [below.name for below in command.commands] + [flag for option in command.options for flag in option.flags]
    words += [word for value in command.operands for word in value.words]
    file = any(value.file for value in command.operands)
    return _offer(Value("", tuple(words), file))


def script(tree: Command) -> str:
    """The whole of it."""
    commands = list(tree.all())
    found = [f"            {shlex.quote(' '.join(['', *c.words]))}) command={shlex.quote(' '.join(['', *c.words]))} ;;\n" for c in commands if c.words]
    values = [line + "\n" for command in commands for line in _after_options(command)]
    # The deepest first: `cache` alone would take what `cache stats` offers.
    others = [f"        {shlex.quote(' '.join(['', *c.words]) + ' ')}*) {_others(c)} ;;\n" for c in sorted(commands, key=lambda c: -len(c.words))]
    return _HEAD + "".join(found) + _MIDDLE + "".join(values) + "".join(others) + _TAIL
