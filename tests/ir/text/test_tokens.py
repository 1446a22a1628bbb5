"""Tokens of text read in blocks, places that are found when somebody asks, and the garbage collector held back meanwhile."""

from __future__ import annotations

import gc
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from filetest import ROOT

from vyre_py.ir.check import check
from vyre_py.ir.collector import YOUNG, held_back
from vyre_py.ir.language.errors import ParseError, Place, ProgramError
from vyre_py.ir.language.spans import Spans
from vyre_py.ir.text import tokens
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.ir.text.tokens import Standing, Tokens, kind_of

HEAD = "program p(n) over(n) {\n  buffer y: f32[n] read_write\n  let i = global_id.x\n"
ODD = """// first
program "a(b" (n) // ( in a comment
  over(n) {

  // [
  buffer y: f32[n,
    // within brackets
    2
  ] read_write
  table t: i8[3] = [1,

    -1, 1]\r
  let i = global_id.x; let "]" = y[i, // here
    0] +
    // behind an operator

    (1.0 +
     2.0)
  y[i, 1] = "]" / min("]",
    3.5)
  region "// (" { return }
}
// last"""


def told(text: str) -> object:
    """All that parsing gives: the Program with every place, or what is reported."""
    try:
        program = parse(text)
    except ProgramError as error:
        return error.diagnostics
    return print_program(program), list(program.places), dict(program.declared), dict(program.value_names)


def texts() -> list[str]:
    sound = [ODD, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "check").glob("*.vir"))[:40])]
    r, broken = random.Random(3), []
    for _ in range(150):
        text = list(ODD)
        for _ in range(r.choice((1, 2, 5))):
            text[r.randrange(len(text))] = r.choice(("", "(", ")", "[", "]", "{", "}", "\n", "\nlet ", "//", '"', "$", "0x", "é"))
        broken.append("".join(text))
    return sound + broken


@pytest.mark.parametrize(("size", "run"), [(1, 1), (1, 2), (7, 3), (40, 100)])
def test_blocks_are_not_seen(monkeypatch: pytest.MonkeyPatch, size: int, run: int) -> None:
    """Wherever text is cut: at ends of lines, and within those that are longer than a block."""
    given = texts()
    whole = [told(text) for text in given]
    assert len({str(one) for one in whole}) > 100
    monkeypatch.setattr(tokens, "_BLOCK", size)
    monkeypatch.setattr(tokens, "_TOKENS", re.compile(rf"(?:{tokens._TOKEN.pattern}){{1,{run}}}+"))
    assert [told(text) for text in given] == whole
    assert len(Tokens(ODD, "f").standing._firsts) > 4


def test_a_line_longer_than_a_block_is_cut_between_tokens() -> None:
    names = [f"name{k}" for k in range(20_000)]
    read = Tokens(" ".join(names), "f")
    assert read.words == [*names, ""] and len(read.standing._firsts) > 10
    for index in (0, 1023, 1024, 1025, 19_999):
        place = read.place(index, index)
        assert (place.line, place.width) == (1, len(names[index]))
        assert place.column == sum(len(name) + 1 for name in names[:index]) + 1
    assert read.place(20_000, 20_000).column == len(" ".join(names)) + 1


def test_newlines_end_nothing_in_brackets_unless_a_statement_begins() -> None:
    words = Tokens("\n\n a // b\n\n// c\nd (\n\n1,\n2) [\nlet x\n}\n\n", "f").words
    assert words == ["a", "\n", "d", "(", "1", ",", "2", ")", "[", "\n", "let", "x", "\n", "}", "\n", ""]
    assert [kind_of(word) for word in ("a", "\n", "12u8", '"s"', "..", "")] == ["name", "newline", "number", "string", "..", "end"]


def test_malformed_tokens_of_all_blocks_are_reported_before_anything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BLOCK", 5)
    with pytest.raises(ParseError) as caught:
        parse("nonsense $\n 1zz é\n\n" + "a = \n" * 20 + '"\\q" 0xg')
    assert [(d.code, d.place and (d.place.line, d.place.column)) for d in caught.value.diagnostics] == [
        ("P101", (1, 10)), ("P101", (2, 2)), ("P101", (2, 6)), ("P101", (24, 1)), ("P101", (24, 6)),
    ]  # fmt: skip


def test_too_many_tokens_are_refused_where_the_first_of_them_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 50)
    with pytest.raises(ParseError, match="the text has more than 50 tokens") as caught:
        parse("a\n" * 20 + "b c\n" * 20)
    assert caught.value.diagnostics[0].place == Place("<text>", 24, 3, 1, "b c", ("b c", "b c"))  # 20 lines of two tokens, and three of three


# ---------------------------------------------------------------- places


def test_places_are_found_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    plain = Standing.places

    def counted(self: Standing, spans: object) -> object:
        nonlocal calls
        calls += 1
        return plain(self, spans)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Standing, "places", counted)
    program = parse(HEAD + "  y[i] = y[i] * 2.0\n}")
    check(program)
    assert isinstance(program.places, Spans) and len(program.places) == len(program.body) and calls == 0
    assert program.place(0) == Place("<text>", 3, 11, 11, "  let i = global_id.x", ("  buffer y: f32[n] read_write", "  y[i] = y[i] * 2.0"))
    assert program.places[1:] == tuple(program.places)[1:] and program.places == tuple(program.places) and program.places != ()
    assert program.place(len(program.body)) is None and calls == 1


def test_places_asked_for_in_several_threads_are_right() -> None:
    text = HEAD + "".join(f"  y[i] = y[i] * {k}.5 // {k}\n" for k in range(300)) + "}"
    expected = list(parse(text).places)
    for _ in range(20):
        program, start = parse(text), threading.Barrier(4)

        def ask(index: int, program=program, start=start) -> object:
            start.wait()
            return program.place(index)

        indices = [0, 450, 700, 900]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, indices)) == [expected[index] for index in indices]


# ---------------------------------------------------------------- the collector


def test_the_collector_is_held_back_and_let_go() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(500, 7, 9)
        with held_back():
            assert gc.get_threshold() == (YOUNG, 7, 9) and gc.isenabled()
            with held_back():
                assert gc.get_threshold()[0] == YOUNG
            assert gc.get_threshold()[0] == YOUNG
        assert gc.get_threshold() == (500, 7, 9)
        with pytest.raises(ParseError):
            parse("nothing")
        assert gc.get_threshold() == (500, 7, 9)
        with held_back():
            gc.set_threshold(300)  # by somebody else
        assert gc.get_threshold()[0] == 300
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("young", [0, YOUNG + 1])
def test_a_collector_that_is_held_back_further_stays_so(young: int) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(young)
        with held_back():
            assert gc.get_threshold()[0] == young
        assert gc.get_threshold()[0] == young
    finally:
        gc.set_threshold(*before)


def test_a_disabled_collector_stays_disabled() -> None:
    enabled = gc.isenabled()
    gc.disable()
    try:
        parse(HEAD + "}")
        assert not gc.isenabled()
    finally:
        if enabled:
            gc.enable()


def test_the_collector_looks_seldom_while_text_is_read() -> None:
    text = HEAD + "  y[i] = y[i] * 2.0\n" * 5000 + "}"
    looked: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        looked.append(info["generation"])

    gc.collect()
    gc.callbacks.append(look)
    try:
        program = parse(text)
    finally:
        gc.callbacks.remove(look)
    assert len(program.body) == 15001 and len(looked) < 10
