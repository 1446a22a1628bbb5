"""Completion in shells, asked of the shells themselves: what each offers at a place on the line, and that nothing is missing."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from device_kinds import need_program

from vyre_py.__main__ import main
from vyre_py.cli.completion.shells import SCRIPTS
from vyre_py.cli.completion.tree import Command, tree_of
from vyre_py.cli.parser import make_parser

TREE: Final = tree_of(make_parser())

# What stands on the line, the last word being completed -> what is offered, at least, and what is not.
CASES: Final[list[tuple[list[str], set[str], set[str]]]] = [
    (["lo"], {"lower"}, {"bench"}),
    ([""], {"check", "lower", "cache", "completion"}, {"stats", "here.vir"}),
    (["lower", "--emit", "p"], {"ptx"}, {"sass", "pick.vir"}),
    (["cache", ""], {"stats", "list", "verify", "clear", "export", "import"}, {"check"}),
    (["cache", "stats", "--j"], {"--json"}, {"--help"}),
    (["explain", "V20"], {"V201", "V205"}, {"V401", "here.vir"}),
    (["run", "--device", "c"], {"cpu", "cuda"}, {"wgpu"}),
    (["check", "he"], {"here.vir"}, {"pick.vir"}),
    (["completion", ""], {"bash", "zsh", "fish"}, {"here.vir"}),
]


def script(shell: str, folder: Path) -> Path:
    path = folder / f"script.{shell}"
    path.write_text(SCRIPTS[shell](TREE))
    return path


def bash(words: Sequence[str], folder: Path) -> set[str]:
    given = " ".join(map(shlex.quote, ["vyre-py", *words]))
    text = f'source {script("bash", folder)}; COMP_WORDS=({given}); COMP_CWORD={len(words)}; _vyre_py; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(subprocess.run(["bash", "--norc", "-c", text], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout.split("\n"))


def fish(words: Sequence[str], folder: Path) -> set[str]:
    need_program("fish", "fish")
    text = f"source {script('fish', folder)}; complete -C {shlex.quote(' '.join(['vyre-py', *words]))}"
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(["fish", "--no-config", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return {line.partition("\t")[0] for line in done.stdout.split("\n")}


def zsh(words: Sequence[str], folder: Path) -> set[str]:
    """What zsh writes on a terminal once Tab was pressed: its completion works nowhere else."""
    need_program("zsh", "zsh")
    terminal, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "COLUMNS": "200"}
    child = subprocess.Popen(["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True)
    os.close(theirs)

    def read_until(mark: str) -> str:
        found, end = b"", time.monotonic() + 60
        while mark.encode() not in found:
            assert time.monotonic() < end, found
            if select.select([terminal], [], [], 0.2)[0]:
                found += os.read(terminal, 1 << 16)
        return found.decode(errors="replace")

    try:
        os.write(terminal, f"unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D; source {script('zsh', folder)}; echo rea''dy\n".encode())
        read_until("ready\r\n")
        # A second key prints a mark: it is read once the first has done its work.
        os.write(terminal, b"marked() { print -n MARK }; zle -N marked; bindkey '^X' marked; echo rea''dy\n")
        read_until("ready\r\n")
        os.write(terminal, " ".join(["vyre-py", *words]).encode() + b"\t\x18")
        return set(read_until("MARK").replace("\r", " ").split())
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


SHELLS: Final[dict[str, Callable[[Sequence[str], Path], set[str]]]] = {"bash": bash, "fish": fish, "zsh": zsh}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("words", "there", "absent"), CASES, ids=[" ".join(words) for words, _, _ in CASES])
def test_a_shell_offers_what_fits(shell: str, words: list[str], there: set[str], absent: set[str], tmp_path: Path) -> None:
    for name in ("here.vir", "pick.vir"):
        (tmp_path / name).touch()
    found = SHELLS[shell](words, tmp_path)
    assert there <= found and not absent & found


def test_bash_completes_values_behind_an_equals_sign(tmp_path: Path) -> None:
    assert bash(["lower", "--emit", "=", "s"], tmp_path) == {"sass", ""} and bash(["lower", "--emit", "="], tmp_path) >= {"vir", "ptx", "asm"}


@pytest.mark.parametrize("shell", SHELLS)
def test_no_command_and_no_option_is_missing(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out

    def look(command: Command) -> None:
        for option in command.options:
            for flag in option.flags:
                assert (f" -l {flag[2:]} " if shell == "fish" and flag.startswith("--") else flag if shell != "fish" else f" -s {flag[1:]} ") in text
        for below in command.commands:
            assert below.name in text and (shell == "bash" or below.help[:8] in text)
            look(below)

    look(TREE)
    assert {command.name for command in TREE.commands} >= {"check", "lower", "cache"} and not TREE.name
