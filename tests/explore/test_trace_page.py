"""The page of a trace: what is read of any JSON, what it adds up to, and the page in Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accessibility import NEEDS_AXE, axe_findings, poor_contrast, tab_stops, unnamed
from browser import HOSTILE, Tab, browser_tab

import vyre_py as vp
from vyre_py.__main__ import main
from vyre_py.drivers.errors import DriverError
from vyre_py.explore import trace_page as module
from vyre_py.explore.page import page_bytes
from vyre_py.explore.trace_page import Bench, trace_page

ROOF = Bench("peer", 100e9, 1e12, 2.0, 1e11, 5000.0)


def event(name: str, begin: float, length: float, *, cat: str = "launch", tid: Any = 1, **said: Any) -> dict[str, Any]:
    return {"name": name, "cat": cat, "ph": "X", "pid": 7, "tid": tid, "ts": begin, "dur": length, "args": said}


def data(*events: Any, roofs: tuple[Bench, ...] = ()) -> Any:
    return trace_page(json.dumps({"traceEvents": events}).encode(), "t.json", roofs).data


def traced(path: Path, name: str = "scale") -> None:
    """A real trace: of a Program that computes 3 n operations over 8 n bytes."""
    with vp.ProgramBuilder(name) as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f32, n), b.write("y", vp.f32, n)
        y[b.global_id(0)] = vp.fma(x[b.global_id(0)], 2.0, 1.0) * 3.0
    device = vp.device("cpu")
    with vp.trace(path):
        pipeline = device.compile_native(b.program)
        launch = pipeline.bind(x=device.upload(np.ones(1000, np.float32)), y=device.allocate(1000, vp.f32))
        for _ in range(3):
            launch()


def test_spans_have_a_track_a_kind_and_a_depth() -> None:
    named = {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "main"}}
    compiled = event("lower", 2, 3, cat="compile"), event("compile", 0, 10, cat="compile")
    found = data(named, *compiled, event("x", 10, 1, cat="upload"), event("k", 3, 4, tid=2, grid="4"))
    assert found["tracks"] == [{"name": "main", "depth": 1}, {"name": "thread 2", "depth": 0}]
    assert [[row[0], found["names"][row[1]], row[2], row[5]] for row in found["rows"]] == [
        [0, "compile", 0, 0], [0, "lower", 0, 1], [1, "k", 2, 0], [0, "x", 4, 0],
    ]  # fmt: skip
    assert found["said"][found["rows"][2][6]] == {"grid": "4"} and found["notes"] == []


def test_what_is_no_span_is_counted() -> None:
    odd = [
        None, 3, "x", [], {}, {"ph": "X"}, event("a", float(1 << 60), -1.0), event("a", 0, True), {**event("a", 0, 1), "ts": "0"}, {"ph": "B", "ts": 1},
        {**event("a", 0, 1), "dur": 10**400},
    ]  # fmt: skip
    found = data(*odd, {"ph": "M", "name": "thread_name", "args": 5}, {**event("good", 0, 1), "args": [1], "cat": None, "name": {"a": 1}})
    assert found["notes"] == [f"{len(odd)} events are no complete spans, and are not shown."] and len(found["rows"]) == 1
    assert found["names"] == ['{"a": 1}'] and found["rows"][0][2] == 5


@pytest.mark.parametrize("text", [b"", b"{", b"3", b"{}", b'{"traceEvents": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_trace_is_refused(text: bytes) -> None:
    with pytest.raises(DriverError, match="no trace"):
        trace_page(text, "t.json")


def test_of_many_spans_the_longest_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SPANS", 3)
    found = data(*[event("k", at, length) for at, length in ((0, 1), (10, 5), (20, 2), (30, 7), (40, 3))])
    assert [row[4] for row in found["rows"]] == [5, 7, 3] and found["notes"] == ["The 2 shortest spans are left out."]


def test_a_point_is_the_median_of_the_devices_own_times_where_there_are_any() -> None:
    work = {"program": "p", "bytes": 8000, "operations": 4000}
    launches = [event("p", at, took, device="cpu:0", **work) for at, took in ((0, 1), (10, 2), (20, 9))]
    (point,) = data(*launches)["points"]
    assert (point["us"], point["times"], point["bytes_rate"], point["rate"], point["intensity"]) == (2, 3, 4e9, 2e9, 0.5)
    (point,) = data(*launches, event("p", 30, 4, cat="device", **work))["points"]
    assert (point["us"], point["how"]) == (4, "the device's clock")
    # A launch on a GPU ends when it is enqueued, and without the work, or a time, there is no rate.
    assert data(event("p", 0, 1, device="cuda:0", **work), event("p", 0, 1, device="cpu"), event("p", 0, 0, device="cpu", **work))["points"] == []
    found = data(*launches, roofs=(ROOF, ROOF))
    assert found["roofs"] == [{"bytes": 100e9, "operations": 1e12}] and [p["beside"] for p in found["points"]] == [False, True, True]


def test_a_launch_says_its_work_in_a_trace(tmp_path: Path) -> None:
    traced(tmp_path / "t.json")
    page = trace_page((tmp_path / "t.json").read_bytes(), "t.json")
    (point,) = page.data["points"]
    assert (point["name"], point["times"]) == ("scale", 3) and point["intensity"] == pytest.approx(3 / 8)
    assert page.data["notes"] == [] and {"compile", "lower", "bind", "upload", "scale"} <= set(page.data["names"])


def test_the_command_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traced(tmp_path / "t.json")
    report = {
        "program": "peer", "bytes_per_launch": 50, "operations_per_launch": 100, "operations_per_second": 1e11, "uncounted": "", "launch_ns": {"median": 5e3},
        "roof": {"bytes_per_second": 100e9, "operations_per_second": 1e12, "missing": ""},
    }  # fmt: skip
    (tmp_path / "bench.json").write_text(json.dumps(report))
    assert main(["trace", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html"), "--beside", str(tmp_path / "bench.json")]) == 0
    text = (tmp_path / "t.html").read_text()
    assert '"peer"' in text and '"scale"' in text and "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    (tmp_path / "t.json").write_text("[")
    for arguments in (["t.json"], ["none.json"], ["t.json", "--beside", "t.json"]):
        assert main(["trace", *[str(tmp_path / a) if a.endswith("json") else a for a in arguments], "--html", str(tmp_path / "no.html")]) == 1
    assert capsys.readouterr().err.count("vyre-py: ") == 3 and not (tmp_path / "no.html").exists()


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    hostile = event(HOSTILE, 70, 20, program=HOSTILE, device="cpu:0", bytes=8, operations=4)
    events = [event("compile", 0, 60, cat="compile"), event("lower", 5, 40, cat="compile"), hostile]
    page = trace_page(json.dumps(events).encode(), HOSTILE, (ROOF,))
    (tmp_path / "t.html").write_bytes(page_bytes(page))
    with browser_tab(tmp_path) as tab:
        for width, dark in ((1200, False), (400, True)):
            tab.look(width, 900, dark=dark)
            tab.open(f"file://{tmp_path / 't.html'}")
            assert tab.run("document.querySelectorAll('.spans rect').length") == 3
            assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        # By keys: the next span, closer, further on.
        tab.run("document.querySelector('.spans').focus()")
        tab.press("n")
        tab.press("n")
        assert tab.run("document.querySelector('#about h2').textContent") == "lower"
        before = tab.run("document.querySelector('.spans rect.chosen').getAttribute('width')")
        tab.press("+")
        assert float(tab.run("document.querySelector('.spans rect.chosen').getAttribute('width')")) > float(before)
        tab.press("0")
        tab.click(".spans rect:last-of-type")
        assert "<img src=x" in tab.run("document.querySelector('#about h2').textContent")
        assert "40.0 µs" not in tab.run("document.querySelector('#about').textContent")
        tab.run("document.querySelectorAll('[role=tab]')[1].click()")
        rows = tab.run("[...document.querySelectorAll('#totals tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
        assert rows[0] == ["compile", "compiling", "1", "60.0 µs", "60.0 µs", "60.0 µs", "60.0 µs"] and len(rows) == 3
        tab.run("document.querySelectorAll('[role=tab]')[2].click()")
        assert tab.run("document.querySelectorAll('.roof circle').length") == 2 and tab.run("document.querySelectorAll('#rates tbody tr').length") == 2
        assert tab.run("[document.images.length, document.scripts.length, typeof window.hacked]") == [0, 3, "undefined"]
        assert unnamed(tab) == []
        assert tab.errors == []


VIEWS = ("Spans", "Totals", "Roofline")


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Tab]]:
    """A tab with a trace, at a view, where a span is chosen."""
    folder = tmp_path_factory.mktemp("trace")
    launch = event("scale", 70, 20, program="scale", device="cpu:0", bytes=8, operations=4)
    events = [event("compile", 0, 60, cat="compile"), event("lower", 5, 40, cat="compile"), launch]
    (folder / "t.html").write_bytes(page_bytes(trace_page(json.dumps(events).encode(), "t.json", (ROOF,))))
    with browser_tab(folder) as tab:

        def at(view: str) -> Tab:
            tab.look(1200, 900)
            tab.open(f"file://{folder / 't.html'}")
            tab.run("document.querySelector('.spans rect').dispatchEvent(new MouseEvent('click'))")
            tab.run(f"[...document.querySelectorAll('[role=tab]')].find(one => one.textContent === {json.dumps(view)}).click()")
            return tab

        yield at


@pytest.mark.parametrize("view", VIEWS)
def test_a_trace_is_for_the_keyboard_a_screen_reader_and_weak_eyes(views: Callable[[str], Tab], view: str) -> None:
    tab = views(view)
    stops = tab_stops(tab)
    assert stops[0] == "To the content" and view in stops
    assert {"main", "banner", "tablist", "heading"} <= {node["role"]["value"] for node in tab.tree()} and unnamed(tab) == []
    for dark in (False, True):
        tab.look(1200, 900, dark=dark)
        assert poor_contrast(tab) == []


@NEEDS_AXE
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_on_a_trace(views: Callable[[str], Tab], view: str, dark: bool) -> None:
    tab = views(view)
    tab.look(1200, 900, dark=dark)
    assert axe_findings(tab) == []


def test_a_trace_of_nothing_is_a_page(tmp_path: Path) -> None:
    (tmp_path / "t.html").write_bytes(page_bytes(trace_page(b"[]", "empty")))
    with browser_tab(tmp_path) as tab:
        tab.open(f"file://{tmp_path / 't.html'}")
        assert "0 spans" in tab.run("document.body.textContent") and "No launch" in tab.run("document.querySelectorAll('[role=tabpanel]')[2].textContent")
        tab.run("document.querySelector('.spans').focus()")
        for key in ("n", "+", "ArrowRight", "0"):
            tab.press(key)
        assert tab.errors == []
