"""The figures in the pages of `docs/kernels/` and `docs/beside/`: tables and pictures of what `bench_pages.py` and `bench_beside.py` have measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from svg_picture import DARK, LIGHT, MIDDLE, WARM, Picture
from tree import ROOT

__all__ = ["FIGURE_PAGES", "FIGURE_PICTURES"]

_KERNELS: Final = ROOT / "docs" / "kernels"
_BESIDE: Final = ROOT / "docs" / "beside"
_COMMANDS: Final[Mapping[str, str]] = {
    "cpu": "OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 taskset -c 1 python -m tests.bench.{} cpu",
    "cuda": "python -m tests.bench.{} cuda", "wgpu": "taskset -c 1 python -m tests.bench.{} wgpu",
}  # fmt: skip
_BETWEEN: Final = re.compile(r"(?<=<!-- figures: begin -->\n).*?(?=<!-- figures: end -->)", re.DOTALL)
_LESS_EXACT: Final = ("tensor", "16 bits", "fast", "tf32")  # what steps and peers of that kind are called
_WIDE, _BAR, _LEFT = 720, 330, 200


def _table(*rows: list[str]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _in_page(path: Any, made: str) -> str:
    """The page as it is, with these figures. Raises AssertionError where it has no place for them, or more than one."""
    text, count = _BETWEEN.subn(lambda _: made, path.read_text(encoding="utf-8"))
    assert count == 1, path
    return text


# ---------------------------------------------------------------- kernels


def _figures() -> dict[str, Any]:
    return json.loads((_KERNELS / "figures.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]  # what the bench wrote


def kernel_page(name: str) -> str:
    """A page with its table."""
    found = {kind: (report["machine"], report["kernels"][name]) for kind, report in _figures().items() if name in report["kernels"]}
    said, head = [], ["step"]
    for kind, (machine, figures) in found.items():
        said.append(f"{figures['size']} on {machine}, by `{_COMMANDS[kind].format('bench_pages')}`")
        head += [f"{_machine(kind, machine)}, ms", "times as fast as the first"]
    steps = list(dict.fromkeys(step for _, figures in found.values() for step in figures["ms"] if step not in figures["peers"]))
    peers = list(dict.fromkeys(peer for _, figures in found.values() for peer in figures["peers"]))
    rows = []
    for step in [*steps, *peers]:
        row = [step]
        for _, figures in found.values():
            ms = figures["ms"].get(step)
            row += ["", ""] if ms is None else [_number(ms), f"{_number(figures['ms'][steps[0]] / ms)}"]
        rows.append(row)
    text = "## Figures\n\n" + ". ".join(said) + ". Medians; the arrays are on the device already.\n\n" + _table(head, *rows)
    return _in_page(_KERNELS / f"{name}.md", f"{text}\n![How much faster the steps are](../pictures/kernel-{name}.svg)\n")


def overview() -> str:
    """The page of all kernels, with what the steps of each gained in all."""
    reports = _figures()
    head = ["kernel"]
    for kind, report in reports.items():
        head += [f"{_machine(kind, report['machine'])}: best over plain", "the quickest peer over the best"]
    rows = []
    for name in _NAMES:
        row = [f"[{_title(name)}]({name}.md)"]
        for report in reports.values():
            figures = report["kernels"][name]
            alike = {step: ms for step, ms in figures["ms"].items() if not any(word in step for word in _LESS_EXACT)}
            steps = {step: ms for step, ms in alike.items() if step not in figures["peers"]}
            peers = {peer: ms for peer, ms in alike.items() if peer in figures["peers"]}
            best = min(steps.values())
            peer = min(peers, key=lambda one: peers[one]) if peers else ""
            row += [_number(next(iter(steps.values())) / best), f"{_number(peers[peer] / best)}, {peer}" if peers else ""]
        rows.append(row)
    words = (
        "How many times as fast the best step is as the plain one; and the quickest peer's time over the best step's: above 1 the best step is ahead. Steps "
        "that are less exact, on tensor cores, in 16 bits or by fast functions, are left out."
    )
    return _in_page(_KERNELS / "index.md", f"## In all\n\n{words}\n\n{_table(head, *rows)}")


def _machine(kind: str, machine: str) -> str:
    return "one core" if kind == "cpu" else machine.partition(",")[0]


def _title(name: str) -> str:
    return (_KERNELS / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def kernel_picture(name: str) -> str:
    """How many times as fast as the first each step is."""
    reports = _figures()
    found = {kind: report["kernels"][name] for kind, report in reports.items() if name in report["kernels"]}
    height = sum(50 + 26 * len(figures["ms"]) for figures in found.values()) + 10
    picture, top = Picture(_WIDE, height, f"{name}: how many times as fast as the first step"), 0
    for kind, figures in found.items():
        first = next(iter(figures["ms"].values()))
        gains = {step: first / ms for step, ms in figures["ms"].items()}
        most, best = max(gains.values()), max(gain for step, gain in gains.items() if step not in figures["peers"])
        picture.text(10, top + 22, f"{reports[kind]['machine'].partition(',')[0]}: times as fast as the first step, {figures['size']}")
        picture.text(10, top + 38, _COMMANDS[kind].format("bench_pages"))
        for number, (step, gain) in enumerate(gains.items()):
            y = top + 48 + 26 * number
            fill = WARM if step in figures["peers"] else DARK if gain == best else LIGHT if number == 0 else MIDDLE
            picture.text(20, y + 14, step)
            picture.box(_LEFT, y, max(2.0, round(_BAR * gain / most, 1)), 18, fill)
            picture.text(_LEFT + max(2.0, round(_BAR * gain / most, 1)) + 8, y + 14, f"{_number(gain)}, {_number(figures['ms'][step])} ms")
        top += 50 + 26 * len(gains)
    return picture.svg()


# ---------------------------------------------------------------- other tools


def beside_page() -> str:
    """The page of all tools, with its tables."""
    parts = ["## Figures\n"]
    for kind, report in json.loads((_BESIDE / "figures.json").read_text(encoding="utf-8")).items():
        parts.append(
            f"On {report['machine']}, {kind}, by `{_COMMANDS[kind].format('bench_beside')}`: axpy over {report['elements']:,} elements, softmax over "
            f"{report['rows']:,} rows. Medians; the arrays are on the device already. \"First\" is the time until both kernels have run once over small "
            "arrays, with no cache anywhere, and imports left out.\n"
        )
        rows = [[tool, f"{_number(row['axpy'][0])} ms, {_number(row['axpy'][1])} GB/s", f"{_number(row['softmax'][0])} ms, {_number(row['softmax'][1])} GB/s",
                 f"{_number(row['first'])} ms"] for tool, row in report["tools"].items()]  # fmt: skip
        parts.append(_table(["tool", "axpy", "softmax", "first"], *rows))
    return _in_page(_BESIDE / "index.md", "\n".join(parts))


_NAMES: Final = sorted(page.stem for page in _KERNELS.glob("*.md") if page.stem != "index")
FIGURE_PAGES: Final[dict[str, Callable[[], str]]] = {
    **{f"docs/kernels/{name}.md": partial(kernel_page, name) for name in _NAMES}, "docs/kernels/index.md": overview,
    "docs/beside/index.md": beside_page,
}  # fmt: skip
FIGURE_PICTURES: Final[dict[str, Callable[[], str]]] = {f"docs/pictures/kernel-{name}.svg": partial(kernel_picture, name) for name in _NAMES}
