"""HTML for notebooks: it shows what the text shows, and nothing in a Program or error becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.text.notebook.markup import MAX_LINES, text_html
from vyre_py.lowering.errors import Unsupported

HOSTILE = [
    "<script>alert(1)</script>", "</pre><img src=x onerror=alert(1)>", "\"><b>", "&lt;b&gt;", "a' onmouseover='x", "]]>", "<!--", "\u202e", "// <i>",
    "\n</pre>", "\\\"<u>", "\x00<s>",
]  # fmt: skip


class Tags(HTMLParser):
    """Collects the elements, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        for _, value in attrs:
            assert re.fullmatch(r"color:color-mix\(in srgb,#[0-9a-f]{6} 60%,currentcolor\)(;font-weight:bold)?", value or "")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def plain(markup: str) -> str:
    """The text of markup that has no elements but ours."""
    found = Tags(markup)
    assert found.tags[0] == ("pre", ()) and set(found.tags[1:]) <= {("span", ("style",))}
    return found.text


def hostile(name: str) -> vp.Program:
    with vp.ProgramBuilder(name, doc=name) as b:
        a = b.param(name + "a", vp.f32)
        y = b.read_write(name, vp.f32x3, b.dim(name + "n"))
        with b.region(name):
            v = b.let(name, y[0])
            t = b.var(name, vp.f32x3)
            t.set(v * a)
            y[0] = t
    return b.program


@pytest.mark.parametrize("name", HOSTILE)
def test_a_programs_html_is_its_text(name: str) -> None:
    program = hostile(name)
    assert plain(program._repr_html_()) == str(program).rstrip("\n")


def test_words_of_the_language_stand_out() -> None:
    markup = vp.Program.from_text("program p(n) { param a: f32x3 // why\n let b = -a }")._repr_html_()
    assert re.search(r'<span style="[^"]*">param</span> a: <span style="[^"]*">f32x3</span>', markup)
    assert re.search(r'<span style="[^"]*">let</span> b = -a', markup)


def test_a_long_program_is_cut() -> None:
    program = vp.Program.from_text("program p() {\n" + "barrier\n" * (MAX_LINES + 50) + "}")
    text = plain(program._repr_html_())
    assert text.count("\n") == MAX_LINES and text.endswith("\n52 more lines")


@pytest.mark.parametrize("name", HOSTILE)
def test_an_errors_html_is_its_text(name: str) -> None:
    with pytest.raises(vp.ValidationError) as parsed:
        vp.Program.from_text("program p(n) {\n// " + name.replace("\n", " ") + "\nparam a: f32\nlet b = a + n // " + name.replace("\n", " ") + "\n}")
    builder = vp.ProgramBuilder(name)
    builder.param(name, vp.f32)
    with pytest.raises(vp.ValidationError) as built:
        builder.param(name, vp.f32)
    for error in (parsed.value, built.value, Unsupported(name, [name]), vp.VyreError(name)):
        said = str(error).replace("\x00", "\ufffd")
        assert plain(error._repr_html_()) in (said, f"{type(error).__name__} {said}")


def test_the_marks_below_a_place_stand_out() -> None:
    with pytest.raises(vp.VyreError) as caught:
        check(vp.Program.from_text("program p() {\n  break\n}"))
    assert re.search(r'<span style="[^"]*"> +\| +\^~~~~</span>', caught.value._repr_html_())


def test_a_long_text_is_cut() -> None:
    assert plain(text_html("a\n" * MAX_LINES)) == "\n".join("a" * MAX_LINES)
    assert plain(text_html("<a>\n" * (MAX_LINES + 2))).endswith("<a>\n2 more lines")
