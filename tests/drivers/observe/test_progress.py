"""Progress bars: where a person watches and nowhere else, within the terminal's width, and gone at the end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from children import child_environment

from vyre_py.drivers.observe import progress
from vyre_py.drivers.observe.progress import Progress
from vyre_py.lowering.errors import Unsupported


class Terminal(io.StringIO):
    """A terminal, as far as a bar sees one; `screen` is what its line shows."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> str:
        line: list[str] = []
        column = 0
        for character in self.getvalue():
            if character in "\r\b":
                column = 0 if character == "\r" else column - 1
                continue
            line[column : column + 1] = character
            column += 1
        return "".join(line)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "monotonic", made)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """What a test makes its standard error, which pytest sets again when the test itself begins."""
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    yield made
    assert made.getvalue() and not made.getvalue().count("\n") and "\x1b" not in made.getvalue()


def test_a_bar_comes_after_a_second_and_goes(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("compiling") as bar:
        bar(1, 8, "quick")
        assert terminal.getvalue() == "" and bar.interval_s
        clock.now += 2
        bar(2, 8, "axpy")
        assert terminal.screen == "compiling [######                  ] 2/8, 6 s left: axpy"
        bar(3, 8, "at once")
        assert "at once" not in terminal.getvalue(), "it is drawn too often"
        clock.now += 1
        bar(4, 8, "b")
        assert terminal.screen.rstrip() == "compiling [############            ] 4/8, 3 s left: b"
        clock.now += 1
        bar.again()
        assert "4 s left" in terminal.screen
        clock.now += 1
        bar(8, 8)
        assert terminal.screen.rstrip().endswith("] 8/8")
    assert terminal.screen.strip() == ""
    written = terminal.getvalue()
    bar(1, 8, "late")
    bar.again()
    assert terminal.getvalue() == written


def test_of_how_much_nobody_knows(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("exporting", True) as bar:
        bar(0, 0, "an entry")
        assert terminal.screen == "exporting an entry ..."


def test_names_of_strangers_stay_in_the_line(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("compiling", True) as bar:
        bar(0, 0, "\x1b[2J\r\n\u202eevil\u4e16\U0001f600")
        assert terminal.screen.isascii() and terminal.screen.isprintable() and "evil\\u4e16\\U0001f600" in terminal.screen
        for _ in range(2):
            clock.now += 1
            bar(1, 2, "n" * 1000)
            assert len(terminal.screen) == 79, "the last column of 80 is left alone"


def test_where_nobody_watches_there_is_nothing(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    for stream, how, term in ((io.StringIO(), None, "xterm"), (Terminal(), None, "dumb"), (Terminal(), False, "xterm"), (None, True, "xterm")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("compiling", how) as bar:
            clock.now += 10
            bar(1, 2, "a")
            assert bar.interval_s is None
        assert stream is None or stream.getvalue() == ""


def test_where_it_is_forced_there_are_lines(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with Progress("compiling", True) as bar:
        for done in range(1, 13):
            bar(done, 12, f"p{done}")
            clock.now += 1
    assert stream.getvalue().splitlines() == [
        "compiling [##                      ] 1/12, 0 s left: p1", "compiling [############            ] 6/12, 5 s left: p6",
        "compiling [######################  ] 11/12, 1 s left: p11", "compiling [########################] 12/12: p12",
    ]  # fmt: skip


def test_a_stream_that_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    class Broken(Terminal):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    closed = Terminal()
    closed.close()
    for stream in (Broken(), closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("compiling", True) as bar:
            bar(1, 2)
            clock.now += 1
            bar(2, 2)


def test_a_callable_is_told_all() -> None:
    told: list[tuple[int, int, str]] = []
    with Progress("compiling", lambda *what: told.append(what)) as bar:
        bar(1, 2, "a")
        bar.again()
        bar(2, 2, "b")
        assert bar.interval_s is None
    assert told == [(1, 2, "a"), (2, 2, "b")]
    with pytest.raises(Unsupported, match="progress 3"):
        Progress("compiling", 3)  # type: ignore[arg-type]  # what it refuses


def test_a_real_terminal_has_its_own_width() -> None:
    import fcntl
    import struct
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    text = "from vyre_py.drivers.observe.progress import Progress\nwith Progress('compiling', True) as bar:\n    bar(1, 2, 'n' * 100)\n"
    environment = child_environment(TERM="xterm")
    subprocess.run([sys.executable, "-c", text], stderr=slave, check=True, env=environment, timeout=60)
    os.close(slave)
    written = os.read(master, 4096).decode()
    os.close(master)
    _, bar, blank, rest = written.split("\r")
    assert len(bar) == 39 and bar.startswith("compiling [####") and blank == " " * 39 and rest == ""
