"""The script for zsh: a function for each command, over its own `_arguments`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from vyre_py.cli.completion.tree import Command, Option, Value

__all__ = ["script"]


def _function(command: Command) -> str:
    return "_".join(["_vyre_py", *command.words])


def _described(text: str) -> str:
    """A description within brackets."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _action(value: Value) -> str:
    """What zsh does at a place: `:message:action`."""
    name = value.name.replace(":", "\\:")
    return f":{name}:" + ("_files" if value.file else f"({' '.join(value.words)})" if value.words else "")


def _option(option: Option) -> Iterator[str]:
    for flag in option.flags:
        takes = "" if option.value is None else ("=" if flag.startswith("--") else "") + f"[{_described(option.help)}]{_action(option.value)}"
        yield shlex.quote(f"*{flag}{takes}" if takes else f"*{flag}[{_described(option.help)}]")


def _body(command: Command) -> Iterator[str]:
    rows = [row for option in command.options for row in _option(option)]
    if not command.commands:
        rows += [shlex.quote(("*" if value.many else "") + _action(value)) for value in command.operands]
        yield f"    _arguments {' '.join(rows)}"
        return
    yield "    local line state"
    yield f"    _arguments -C {' '.join(rows)} '1: :->command' '*:: :->rest'"
    yield "    if [[ $state == command ]]; then"
    described = " ".join(shlex.quote(f"{below.name}:{below.help}") for below in command.commands)
    yield f"        local -a commands=({described})"
    yield "        _describe command commands"
    yield "    elif [[ $state == rest ]]; then"
    yield "        case $line[1] in"
    yield from (f"            {below.name}) {_function(below)} ;;" for below in command.commands)
    yield "        esac"
    yield "    fi"


def script(tree: Command) -> str:
    """The whole of it, for a file `_vyre-py` in `fpath`, or to be evaluated once `compinit` has run."""
    lines = ["#compdef vyre-py", '# Completion of vyre-py for zsh: source <(vyre-py completion zsh)']
    for command in tree.all():
        lines += [f"{_function(command)}() {{", *_body(command), "}"]
    # As a file in fpath it is called at once; evaluated, it says what it completes.
    lines += ['if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _vyre_py "$@"; else compdef _vyre_py vyre-py; fi', ""]
    return "\n".join(lines)
