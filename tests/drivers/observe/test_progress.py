"""Progress bars: where a person watches and nowhere else, within the terminal's width, and gone at the end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

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


# ---------------------------------------------------------------- notebooks


class Bars:
    """In place of tqdm: keeps what its bars are told. Without `widgets` making one fails, as tqdm's does; `broken` ones fail for another reason."""

    def __init__(self, widgets: bool = True, broken: bool = False) -> None:
        self.said: list[Any] = []
        self.broken = broken
        self.notebook = SimpleNamespace(tqdm=self._widget, IProgress=object if widgets else None)

    def _widget(self, **given: Any) -> Any:
        if self.broken or self.notebook.IProgress is None:
            raise RuntimeError("no front end")
        return self._made("widget", **given)

    def tqdm(self, **given: Any) -> Any:
        return self._made("text", **given)

    def _made(self, kind: str, **given: Any) -> Any:
        self.said.append((kind, given["desc"], given["leave"]))
        bar = SimpleNamespace(n=0, total=given["total"], close=lambda: self.said.append("closed"))
        bar.set_postfix_str = lambda text, refresh: setattr(bar, "name", text)
        bar.refresh = lambda: self.said.append((bar.n, bar.total, bar.name))
        return bar


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def with_tqdm(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", module)
    monkeypatch.setitem(sys.modules, "tqdm.notebook", module and module.notebook)


@pytest.mark.usefixtures("in_notebook")
@pytest.mark.parametrize(("widgets", "kind"), [(True, "widget"), (False, "text")])
def test_in_a_notebook_the_bar_is_that_of_tqdm(widgets: bool, kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Bars(widgets)
    with_tqdm(monkeypatch, bars)
    with Progress("compiling") as bar:
        bar(1, 8, "quick")
        assert not bars.said and bar.interval_s
        clock.now += 2
        bar(2, 8, "axpy")
        bar(3, 8, "at once")
        clock.now += 1
        bar(4, 0, "how many?")
    assert bars.said == [(kind, "compiling", False), (2, 8, "axpy"), (4, None, "how many?"), "closed"]


@pytest.mark.usefixtures("in_notebook")
def test_a_bar_that_fails_does_not_make_work_fail(clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_tqdm(monkeypatch, Bars(broken=True))
    with Progress("compiling", True) as bar:
        bar(1, 8, "a")
        clock.now += 1
        bar(2, 8, "b")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("in_notebook")
def test_a_notebook_without_tqdm_has_lines_of_text_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_tqdm(monkeypatch, None)
    with Progress("compiling") as quiet, Progress("compiling", True) as told:
        quiet(1, 8, "a")
        told(1, 8, "a")
    assert quiet.interval_s is None and capsys.readouterr().err.startswith("compiling [###")


@pytest.mark.usefixtures("in_notebook")
def test_the_real_tqdm_takes_what_a_bar_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its line of text: there is no front end here to have a widget."""
    monkeypatch.setattr("tqdm.notebook.IProgress", None)
    with Progress("compiling", True) as bar:
        bar(3, 8, "axpy")
    assert "compiling:  38%" in (said := capsys.readouterr().err) and "3/8" in said and "axpy" in said
