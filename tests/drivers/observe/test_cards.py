"""What notebooks show of objects: it says what they are, nothing in a name becomes markup, and looking does no work."""

from __future__ import annotations

import re
import threading
from html.parser import HTMLParser
from typing import Any, Final

import numpy as np
import pytest
from device_kinds import open_device

import vyre_py as vp
from vyre_py.drivers.device import Device
from vyre_py.drivers.dispatch import Timed
from vyre_py.drivers.pending import ThreadPending
from vyre_py.ir.check import check
from vyre_py.ir.language.errors import shown
from vyre_py.ir.text.notebook.cards import MAX_ROWS, Markup, table
from vyre_py.lowering.stages import Stage, Stages

HOSTILE: Final = ["<script>alert(1)</script>", "\"><b onclick='x'>", "&lt;i&gt;", "</td></table><img src=x>", "\x1b[2J\u202e\0<u>", "]]><!--", "plain"]
# Element -> the attributes that cards give it.
KNOWN: Final[dict[str, set[str]]] = {
    "div": set(), "table": set(), "tr": set(), "pre": set(), "details": set(), "summary": set(), "title": set(),
    "th": {"style"}, "td": {"style"}, "span": {"style"}, "svg": {"viewbox", "width", "height", "role", "font-family", "font-size"},
    "g": {"stroke", "fill"}, "path": {"d", "fill"}, "text": {"x", "y", "fill-opacity"},
    "rect": {"x", "y", "width", "height", "rx", "fill", "fill-opacity", "stroke"},
}  # fmt: skip
VALUE: Final = re.compile(r"[A-Za-z0-9 .,:;#%()-]*")


class Card(HTMLParser):
    """Reads a card: only elements and attributes that cards have, each closed. `text` is what a person reads, `cells` the rows of all tables."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.count: dict[str, int] = {}
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= KNOWN[tag] and all(VALUE.fullmatch(value or "") for _, value in attrs), (tag, attrs)
        # A ground or a text of a colour of its own would not read in one of the themes; bars are no text.
        assert not any("background" in (value or "") and "inline-block" not in (value or "") for _, value in attrs)
        self.count[tag] = self.count.get(tag, 0) + 1
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        data = data.replace("\u00a0", " ")
        self.text += data
        if self.rows and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def axpy(name: str) -> vp.Program:
    with vp.ProgramBuilder(name, doc=name) as b:
        n, a = b.dim(name + "n"), b.param(name + "a", vp.f32)
        x, y = b.read(name + "x", vp.f32, n), b.read_write(name + "y", vp.f32, n)
        y[b.global_id(0)] = a * x[b.global_id(0)]
    return b.program


def made(device: Device, name: str) -> dict[str, Any]:
    """An object of each class that has a card."""
    program = axpy(name)
    pipeline = device.compile_native(program)
    given = {name + "x": np.ones(300, np.float32), name + "y": np.zeros(300, np.float32), name + "a": 2.5}
    x, y, z = (device.upload(np.full(300, value, np.float32)) for value in (1, 2, 3))
    launch = pipeline.bind({**given, name + "x": x, name + "y": y}, config=vp.DispatchConfig(label=name))
    other = pipeline.bind({**given, name + "x": y, name + "y": z})

    pending = pipeline.submit(given)
    pending.result()  # or it would be at work while a test looks

    def work() -> None:
        z.fill(1.0)
        launch()
        other()
        x.copy_from(z)

    return {
        "Checked": check(program), "Artifact": pipeline.artifact, "Pipeline": pipeline, "Stages": pipeline.stages, "Launch": launch, "Launch plan": launch.plan,
        "Pending": pending, "Tried": vp.Tried({name: name, "k": 3}, 0, 1234.5),
        "Tuned": vp.Tuned({name: name}, program, 1e6, 3, (vp.Tried({name: 1}, 0, 1e6), vp.Tried({name: 2}, 1, 3e6), vp.Tried({name: 3}, 2, None, name))),
        "Buffer": x, "Graph": device.capture(work), "Timed": pipeline.dispatch_timed(given), "Snapshot": device.telemetry.snapshot(),
    }  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_a_card_becomes_markup(name: str) -> None:
    for kind, thing in made(open_device("cpu"), name).items():
        card = Card(thing._repr_html_())
        assert card.text.startswith(kind), kind


# The colours of text and of the ground below it: JupyterLab, VS Code and the site, light and dark.
THEMES: Final = [("#212121", "#ffffff"), ("#3b3b3b", "#ffffff"), ("#000000", "#f8f8f8"), ("#dedede", "#111111"), ("#cccccc", "#1f1f1f"), ("#cfd0d0", "#131416")]


def luminance(colour: list[float]) -> float:
    """As WCAG 2 defines it, of red, green and blue from 0 to 255."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (value / 255 for value in colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("text", "ground"), THEMES)
def test_words_stand_out_in_light_themes_and_in_dark_ones(text: str, ground: str) -> None:
    shown = [thing._repr_html_() for thing in made(open_device("cpu"), "axpy").values()]
    shown.append(vp.Program.from_text('program p() workgroup(1) grid(1) { // why\nbuffer y: u32[1] write\nassert y[0] == 1, "no"\n}')._repr_html_())
    with pytest.raises(vp.ProgramError) as caught:
        vp.Program.from_text("program p() { let a = b }")
    shown.append(caught.value._repr_html_())
    tints = set(re.findall(r"[\";]color:([^;\"]*)", "".join(shown)))
    assert len(tints) == 5  # what is quiet, at fault, a keyword, a type, a string
    for tint in tints:
        mixed = re.fullmatch(r"color-mix\(in srgb,#(\w{6}) 60%,currentcolor\)", tint)
        assert mixed, tint
        around, below, hue = ([int(colour[at : at + 2], 16) for at in (0, 2, 4)] for colour in (text[1:], ground[1:], mixed[1]))
        darker, lighter = sorted([luminance([0.6 * a + 0.4 * b for a, b in zip(hue, around, strict=True)]), luminance(below)])
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, tint


def test_looking_does_no_work(device: Device) -> None:
    things = made(device, "axpy")
    before = device.telemetry.snapshot().figures
    for thing in things.values():
        Card(thing._repr_html_())
    assert device.telemetry.snapshot().figures == before


def test_a_program_says_what_was_proven() -> None:
    card = Card(check(vp.Program.from_text("program p(n) { buffer y: u32[n] write\nlet a = n * 2\nlet i = global_id.x\ny[i] = i + a }"))._repr_html_())
    assert ["the same for the grid", "", "1"] in card.rows and "program p(n)" in card.text and ["warnings", "none"] in card.rows
    warned = Card(check(vp.Program.from_text("program p(n) { buffer y: u32[n] write\nif n < 0 { y[global_id.x] = 1 } }"))._repr_html_())
    assert ["warnings", "1"] in warned.rows and "V" in warned.text


def test_an_artifact_has_a_row_for_each_target() -> None:
    card = Card(vp.compile_native(axpy("axpy"), targets=["cpu", "compute_90", "wgsl"])._repr_html_())
    assert [row[:2] for row in card.rows if row[0] in ("cpu", "compute_90", "wgsl")] == [["cpu", "strict"], ["compute_90", "strict"], ["wgsl", "native"]]
    assert "entry" in card.text  # what `describe` says, folded


def test_launches_and_timings_say_what_they_are() -> None:
    device = open_device("cpu")
    hostile = "<b>axpy\x1b[2J\0"
    with vp.ProgramBuilder(hostile) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        y[b.global_id(0)] = x[b.global_id(0)]
    pipeline = device.compile_native(b.program)
    xd, yd = device.upload(np.ones(300, np.float32)), device.allocate(300, vp.f32)
    launch = pipeline.bind({"x": xd, "y": yd}, config=vp.DispatchConfig(label="first"))
    name = shown(hostile)
    assert repr(launch) == f"<Launch of {name} ('first') on cpu:0: 2 x 1 x 1 workgroups of 256 x 1 x 1, n = 300, x: f32[300], y: f32[300]>"
    rows = Card(launch._repr_html_()).rows
    assert ["grid", "2 x 1 x 1 workgroups of 256 x 1 x 1"] in rows and ["size", "n", "300"] in rows and ["buffer read", "x", "f32[300], 1.172 KiB"] in rows
    xd.free()
    launch.set(y=device.allocate(300, vp.f32))
    assert repr(launch).endswith("x: f32[300] (freed), y: f32[300]>")
    assert ["buffer read", "x", "f32[300], 1.172 KiB (freed)"] in Card(launch._repr_html_()).rows
    assert ["state", "freed"] in Card(xd._repr_html_()).rows
    timed = Timed({"y": np.ones(3)}, 1_234_567, 200, 2 * 10**9, 15)
    assert repr(timed) == "<Timed: 1.23 ms in all, 200 ns until enqueued, 2 s from there, 15 ns on the device; results y>"
    rows = Card(timed._repr_html_()).rows
    assert ["of it on the device", "", "15 ns"] in rows and ["y", "float64[3]", "1.0 1.0 1.0"] in rows
    pending = pipeline.submit({"x": np.ones(3, np.float32)})
    pending.result()
    assert Card(pending._repr_html_()).rows == [["state", "done"], ["y", "float32[3]", "1.0 1.0 1.0"]]
    assert repr(pending) == f"<Pending result of {name}, done>"
    stages = Stages((Stage("check", 0, 0, 1500), Stage("lower", 0, 2000, 5000), Stage("llvm", 1, 2500, 4000)))
    assert repr(stages) == "<Stages: check 1.5 us, lower 3 us, total 4.5 us>"
    assert Card(stages._repr_html_()).rows == [["check", "", "1.5 us"], ["lower", "", "3 us"], ["\u00b7 llvm", "", "1.5 us"]]


def test_what_tuning_tried_is_in_the_order_of_its_time() -> None:
    program = axpy("axpy")
    slow, fast, none = vp.Tried({"k": 1}, 0, 3e6), vp.Tried({"k": 2}, 1, 1e6), vp.Tried({"k": 3}, 2, None, "LaunchError: no")
    rows = Card(vp.Tuned({"k": 2}, program, 1e6, 9, (slow, fast, none))._repr_html_()).rows
    assert rows[1:] == [["time", "1 ms a launch"], ["tried", "3 of 9 candidates"], ["k=2", "", "1 ms"], ["k=1", "", "3 ms"], ["k=3", "LaunchError: no"]]
    assert Card(none._repr_html_()).rows == [["in the model's order", "number 3"], ["failed", "LaunchError: no"]]
    kept = Card(vp.Tuned({"k": 2}, program, None, 9, ())._repr_html_())
    assert ["time", "never timed"] in kept.rows and "failed" not in kept.text


def test_a_pending_result_says_how_far_it_is_and_waits_for_nothing() -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> dict[str, Any]:
        begun.set()
        end.wait()
        raise ValueError("<b>")

    pending = ThreadPending("<i>", work)
    begun.wait()
    card = Card(pending._repr_html_())
    assert card.rows == [["state", "running"], ["results", "result() gives them"]] and "<i>" in card.text
    end.set()
    with pytest.raises(ValueError, match="<b>"):
        pending.result()
    assert Card(pending._repr_html_()).rows == [["state", "failed"], ["error", "ValueError: <b>"]]


def test_a_launch_shows_the_params_that_it_has_now() -> None:
    launch = made(open_device("cpu"), "p")["Launch"]
    assert ["param", "pa", "f32 2.5"] in Card(launch._repr_html_()).rows
    launch.set(pa=-1.0)
    assert ["param", "pa", "f32 -1.0"] in Card(launch._repr_html_()).rows


def test_a_graph_is_drawn_with_what_waits_for_what(device: Device) -> None:
    card = Card(made(device, "p")["Graph"]._repr_html_())
    assert card.count["rect"] == 4
    for said in ("fill", "\u2192 buffer=A", "launch p", "px=B \u2192 py=C", "px=C \u2192 py=A", "copy", "source=A \u2192 target=B"):
        assert said in card.text, said
    # Neighbours: the launches, the second and the copy. Further apart: the fill and the second launch, the first, which reads B, and the copy.
    assert card.count["path"] == 2 * 4


def test_a_long_table_is_cut() -> None:
    card = Card(table([[number, "<a>"] for number in range(MAX_ROWS + 5)]))
    assert len(card.rows) == MAX_ROWS and card.text.endswith("5 more") and table([]) == "" and isinstance(table([]), Markup)
