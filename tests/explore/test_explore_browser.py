"""The page of a Program in Chromium: it loads, links, takes edits, steps; a hostile name stays text; keys and screen readers reach all of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from accessibility import NEEDS_AXE, axe_findings, poor_contrast, tab_stops, unnamed
from browser import HOSTILE, Tab, browser_tab
from device_kinds import need_nvdisasm, need_nvjitlink
from tree import ROOT

import vyre_py as vp
from vyre_py.explore.document import Known
from vyre_py.explore.page import page_bytes
from vyre_py.explore.pages import answers_of, explore_page
from vyre_py.explore.server import PageServer
from vyre_py.explore.subject import Subject, subjects_of

TEXT = """program sums(n) workgroup(8) over(n) {
  buffer x: u32[n] read
  buffer y: u32[n] write
  workgroup t: u32[8]
  let i = global_id.x
  t[local_index] = x[i] * 2u32
  barrier
  assert x[i] < 6u32, "x is {}", x[i]
  if i < 4u32 {
    y[i] = t[7u32 - local_index]
  }
}
"""
KNOWN = Known(targets=("compute_90", "wgsl", "cpu:x86-64-v3"))
GOLDEN = ROOT / "tests" / "explore" / "page_outline.txt"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser_tab(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one Program, in a file."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_bytes(page_bytes(explore_page([Subject("sums.vir", Known(TEXT))], KNOWN, whole=True)))
    return path


@contextmanager
def served(subjects: list[Subject], known: Known = KNOWN) -> Iterator[str]:
    with PageServer(lambda: explore_page(subjects, known), answers_of(subjects, known)) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()


def opened(tab: Tab, address: str, view: str = "Code") -> None:
    tab.errors.clear()
    tab.look(1400, 900)
    tab.open(address)
    tab.wait("document.documentElement.dataset.ready")
    tab.run(f"[...document.querySelectorAll('[role=tab]')].find(tab => tab.textContent === {json.dumps(view)}).click()")


def marked(tab: Tab) -> dict[str, list[str]]:
    """The lines that are marked, by the pane that they are in."""
    told: dict[str, list[str]] = tab.run("""Object.fromEntries([...document.querySelectorAll("section.pane, section.source")].map(pane =>
      [pane.getAttribute("aria-label"), [...pane.querySelectorAll(".marked")].map(line => line.textContent.trim())]))""")
    return told


# What the structure of the page is: elements with their roles and names, without those that only repeat.
OUTLINE = r"""(() => {
  const told = [];
  const walk = (node, depth) => {
    const tag = node.tagName.toLowerCase(), role = node.getAttribute("role"), name = node.getAttribute("aria-label");
    const kept = role || name || /^(h[1-6]|main|header|section|table|select|textarea|input|button|figure|svg|ul)$/.test(tag);
    const own = /^(h[1-6]|button|label)$/.test(tag) ? " " + node.textContent.trim().replace(/\s+/g, " ") : "";
    if (kept && role !== "option" && tag !== "option") told.push("  ".repeat(depth) + tag + (role ? ` role=${role}` : "") + (name ? ` "${name}"` : "") + own);
    if (node.hidden || tag === "svg" || role === "listbox" || tag === "table") return;
    for (const child of node.children) walk(child, depth + (kept ? 1 : 0));
  };
  walk(document.body, 0);
  return told.join("\n");
})()"""


def test_the_structure_of_the_page_is_as_it_was(tab: Tab, file: Path, request: pytest.FixtureRequest) -> None:
    """VYRE_UPDATE=1 in the environment writes it anew."""
    outlines = []
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        outlines.append(f"==== {view}\n{tab.run(OUTLINE)}")
    found = "\n".join(outlines) + "\n"
    if os.environ.get("VYRE_UPDATE"):
        GOLDEN.write_text(found, "utf-8")
    assert found == GOLDEN.read_text("utf-8")


def test_a_line_is_marked_in_every_pane_from_either_side(tab: Tab, file: Path) -> None:
    opened(tab, f"file://{file}")
    spot = "(r => ({clientX: r.x + 40, clientY: r.y + 8, bubbles: true}))(document.querySelectorAll('.stack-of-text .line')[5].getBoundingClientRect())"
    tab.run(f"document.querySelectorAll('.stack-of-text .line')[5].dispatchEvent(new MouseEvent('mousemove', {spot}))")
    found = marked(tab)
    assert found["Program"] == ["t[local_index] = x[i] * 2u32"]
    assert any("shl.b32" in line for line in found["PTX, compute_90"])
    assert any("st.shared" in line for line in found["PTX, compute_90"])
    assert any("2u" in line or "1u" in line for line in found["WGSL, wgsl"]), found["WGSL, wgsl"]
    assert found["assembly, cpu:x86-64-v3"]
    tab.run("document.querySelectorAll('.stack-of-text .line')[5].dispatchEvent(new MouseEvent('click', " + spot + "))")
    told = tab.run("document.getElementById('line').textContent")
    assert "differs between invocations: it depends on local_index; the invocations of the grid get here together" in told
    assert "1 not needed (t by the index's range)" in told
    # And back: a click on an instruction marks the line that it comes from, and the rest of what comes from it.
    tab.run("[...document.querySelectorAll('section[aria-label^=PTX] .line')].find(line => line.textContent.includes('st.shared')).click()")
    assert marked(tab) == found
    tab.run("document.querySelector('.stack-of-text').dispatchEvent(new MouseEvent('mouseleave'))")
    assert marked(tab) == found
    assert tab.errors == []


def test_the_keyboard_walks_through_code_and_tabs(tab: Tab, file: Path) -> None:
    opened(tab, f"file://{file}")
    tab.run("document.querySelector('section[aria-label^=WGSL] [role=listbox]').focus()")
    tab.press("End", code=35)
    for _ in range(6):
        tab.press("ArrowUp", code=38)
    at = tab.run("(list => document.getElementById(list.getAttribute('aria-activedescendant')).textContent)(document.activeElement)")
    assert tab.run("document.activeElement.querySelectorAll('[aria-selected=true]').length") == 1
    assert at.strip() in marked(tab)["WGSL, wgsl"]
    tab.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    tab.press("ArrowRight", code=39)
    assert tab.run("document.activeElement.textContent") == "Passes"
    assert tab.run("[...document.querySelectorAll('[role=tabpanel]')].filter(panel => !panel.hidden).length") == 1
    tab.press("Home", code=36)
    assert tab.run("document.activeElement.textContent") == "Code"


def test_every_stop_of_the_tab_key_is_seen_and_named(tab: Tab, file: Path) -> None:
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        stops = tab_stops(tab)
        assert stops[0] == "To the content"
        assert view in stops


def test_a_screen_reader_gets_names_for_all_that_acts(tab: Tab, file: Path) -> None:
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        assert {"main", "banner", "tablist", "heading"} <= {node["role"]["value"] for node in tab.tree()}
        assert unnamed(tab) == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_in_dark(tab: Tab, file: Path, dark: bool) -> None:
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        tab.look(1400, 900, dark=dark)
        assert poor_contrast(tab) == []
        tab.run("document.querySelector('button.still')?.click()")
        assert poor_contrast(tab) == []


def test_nothing_is_wider_than_a_narrow_window(tab: Tab, file: Path) -> None:
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        tab.look(360, 800)
        assert tab.run("document.documentElement.scrollWidth") <= 360


def test_a_run_is_stepped_through(tab: Tab, file: Path) -> None:
    opened(tab, f"file://{file}", "Run")
    assert "assert" in tab.run("document.querySelector('[aria-label=\"What the run found\"]').textContent")
    assert tab.run("document.querySelector('.what').textContent").startswith("1 of ")
    tab.click("[aria-label='next line']")
    told = tab.run("document.querySelector('.what').textContent")
    assert "line 6" in told
    assert marked(tab)["Program"] == ["t[local_index] = x[i] * 2u32"]
    tab.click("[aria-label='What the run found'] button")
    assert "fails in 2 lanes" in tab.run("document.querySelector('.what').textContent")
    assert tab.run("document.querySelectorAll('.lane.bad-lane').length") == 2
    assert tab.run("[...document.querySelectorAll('.cell.at-fault')].map(cell => cell.title)") == [f"x[{k}] = {k}: an assert failed for it" for k in (6, 7)]
    assert "at fault: 6, 7" in tab.run("document.querySelector('.memories').textContent")
    assert "Made up: n, x, y" in tab.run("document.querySelector('[role=tabpanel]:not([hidden])').textContent")
    tab.click("[aria-label='last step']")
    t = tab.run("[...document.querySelectorAll('.memory')].find(one => one.textContent.startsWith('t:')).querySelector('[role=img]').textContent")
    assert t == "".join(str(2 * k) for k in range(8))
    assert tab.run("document.querySelector('.values').textContent").count("i") > 0
    tab.click("[aria-label='first step']")
    assert tab.run("document.querySelector('.what').textContent").startswith("1 of ")
    assert tab.errors == []


def test_facts_name_what_proves_each_index(tab: Tab, file: Path) -> None:
    opened(tab, f"file://{file}", "Facts")
    tab.click("[aria-label='Checks of indices'] summary")
    rows = tab.run("[...document.querySelectorAll('section.panel details tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    assert ["line 6", "t", *["the index's range"] * 3] in rows
    assert ["line 10", "y", *["the guard at line 9"] * 3] not in rows  # i < 4 says nothing of n
    tab.run("[...document.querySelectorAll('[aria-label=\"Checks of indices\"] details button')].find(one => one.textContent === 'line 6').click()")
    assert marked(tab)["Program"] == ["t[local_index] = x[i] * 2u32"]


def test_a_race_is_marked_in_the_picture_of_memory(tab: Tab, tmp_path: Path) -> None:
    text = TEXT.replace("  barrier\n", "")
    (tmp_path / "race.html").write_bytes(page_bytes(explore_page([Subject("race", Known(text))], Known(targets=()), {"x": "zeros"}, whole=True)))
    opened(tab, f"file://{tmp_path / 'race.html'}", "Run")
    (cell,) = tab.run("[...document.querySelectorAll('.cell.at-fault')].map(cell => cell.title)")
    assert cell.startswith("t[") and cell.endswith("accesses of it race")
    tab.click("[aria-label='last step']")
    assert " races" in tab.run("document.querySelector('.what').textContent")
    assert tab.run("document.querySelectorAll('.lane.bad-lane').length") == 1


def test_an_edit_checks_and_lowers_again(tab: Tab) -> None:
    with served([Subject("sums.vir", Known(TEXT))]) as address:
        opened(tab, address)
        tab.run("document.querySelector('textarea').focus(); document.querySelector('textarea').setSelectionRange(0, 0)")

        def typed(text: str) -> None:
            before = tab.run("document.documentElement.dataset.ready")
            tab.run(f"document.querySelector('textarea').value = {json.dumps(text)}; document.querySelector('textarea').dispatchEvent(new Event('input'))")
            tab.wait(f"document.documentElement.dataset.ready !== {json.dumps(before)}")

        typed(TEXT.replace("2u32\n", "i32(7)\n"))
        finding = tab.run("document.querySelector('.findings').textContent")
        assert "line 6" in finding
        assert tab.run("document.querySelectorAll('.fault.error').length") == 1
        assert tab.run("document.querySelector('.fault').closest('.line').dataset.number") == "6"
        assert not tab.run("document.getElementById('old').hidden")
        assert "shl.b32" in tab.run("document.querySelector('section[aria-label^=PTX]').textContent")
        tab.click(".findings button")
        assert tab.run("document.activeElement.tagName") == "TEXTAREA"
        typed(TEXT.replace("* 2u32", "* 12345u32"))
        assert tab.run("[document.querySelector('.findings').hidden, document.getElementById('old').hidden]") == [True, True]
        assert "12345" in tab.run("document.querySelector('section[aria-label^=PTX]').textContent")
        assert "12345" in tab.run("document.querySelector('section[aria-label^=WGSL]').textContent")
        # Typing by keys: the caret's line is marked.
        tab.run("document.querySelector('textarea').focus(); document.querySelector('textarea').setSelectionRange(0, 0)")
        for _ in range(4):
            tab.press("ArrowDown", code=40)
        assert marked(tab)["Program"] == ["let i = global_id.x"]
        tab.run("[...document.querySelectorAll('[role=tab]')].find(tab => tab.textContent === 'Run').click()")
        tab.wait("!!document.querySelector('.what')")
        assert tab.run("document.getElementById('given-0').value") == "13"
        tab.run("document.getElementById('given-0').value = '9'; document.querySelector('form').requestSubmit()")
        tab.wait("document.querySelector('.memory').textContent.includes('u32[9]')")
        tab.run("document.getElementById('given-1').value = '@/etc/passwd'; document.querySelector('form').requestSubmit()")
        assert "reads no files" in tab.wait("document.querySelector('[role=alert]')?.textContent")


def test_what_takes_long_comes_after_the_rest(tab: Tab) -> None:
    need_nvjitlink()
    need_nvdisasm()
    known = Known(targets=("sm_90",))
    subjects = [Subject("sums.vir", Known(TEXT))]
    with served(subjects, known) as address:
        opened(tab, address)
        assert tab.wait("[...document.querySelectorAll('section[aria-label^=SASS] .line')].filter(line => line.textContent.includes('STS')).length") > 0
        assert tab.run("document.querySelectorAll('section[aria-label^=PTX]').length") == 1
        assert tab.errors == []


def test_a_hostile_name_stays_text(tab: Tab, tmp_path: Path) -> None:
    name = HOSTILE.replace("\0", "").replace("\ud800", "")
    with vp.ProgramBuilder(name) as b:
        y = b.write(name, vp.u32, b.dim("n"))
        with b.region(name):
            y[b.global_id(0)] = 1
            b.print(name.replace("{", "").replace("}", ""))
    subjects = [Subject(name, Known(program=b.program), told=name), Subject(name, Known("program p(n) { " + name))]
    (tmp_path / "page.html").write_bytes(page_bytes(explore_page(subjects, KNOWN, whole=True)))
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{tmp_path / 'page.html'}", view)
        assert "<img src=x" in tab.run("document.body.textContent")
        assert tab.run("[document.images.length, document.querySelectorAll('script').length, typeof window.hacked]") == [0, 6, "undefined"]
        assert tab.errors == []
    tab.run("document.getElementById('subject').selectedIndex = 1; document.getElementById('subject').dispatchEvent(new Event('change'))")
    assert tab.run("[document.images.length, typeof window.hacked]") == [0, "undefined"]
    assert tab.run("document.querySelector('.findings').textContent")


def test_a_page_in_a_file_asks_for_nothing(tab: Tab, file: Path) -> None:
    opened(tab, f"file://{file}")
    assert tab.run("performance.getEntriesByType('resource').length") == 0
    refused = tab.run("fetch('http://127.0.0.1:9/').then(() => 'asked', error => String(error))")
    assert "Failed to fetch" in refused


def test_the_python_that_built_it_is_linked(tab: Tab, tmp_path: Path) -> None:
    text = "import vyre_py as vp\nwith vp.ProgramBuilder('p') as b:\n    y = b.write('y', vp.u32, b.dim('n'))\n    y[b.global_id(0)] = 7\n"
    (tmp_path / "build.py").write_text(text, "utf-8")
    with served(subjects_of(str(tmp_path / "build.py"))) as address:
        opened(tab, address)
        tab.run("[...document.querySelectorAll('section[aria-label^=Python] .line')].find(line => line.textContent.includes('= 7')).click()")
        found = marked(tab)
        assert found["Program"] == ["y[global_id.x] = 7"]
        assert any("7" in line for line in found["PTX, compute_90"])


def test_the_modules_that_helped_are_shown_too(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "seven.py").write_text("def seven(b, y):\n    y[b.global_id(0)] = 7\n", "utf-8")
    text = "import vyre_py as vp\nfrom parts.seven import seven\nwith vp.ProgramBuilder('p') as b:\n    seven(b, b.write('y', vp.u32, b.dim('n')))\n"
    (tmp_path / "build.py").write_text(text, "utf-8")
    with served(subjects_of(str(tmp_path / "build.py"))) as address:
        opened(tab, address)
        tab.run("[...document.querySelectorAll('section[aria-label^=\"parts/seven.py\"] .line')].find(line => line.textContent.includes('= 7')).click()")
        assert marked(tab)["Program"] == ["y[global_id.x] = 7"]
        assert tab.errors == []


@NEEDS_AXE
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(tab: Tab, file: Path, dark: bool) -> None:
    for view in ("Code", "Passes", "Run", "Facts"):
        opened(tab, f"file://{file}", view)
        tab.look(1400, 900, dark=dark)
        assert axe_findings(tab) == []
