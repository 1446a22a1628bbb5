"""What is known of a line of a Program's text: how widely its values are the same, and why no further; the checks of its indices, and what proves them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypedDict

from vyre_py.ir.check import Checked
from vyre_py.ir.check.causes import why
from vyre_py.ir.check.uniformity import Analysis
from vyre_py.ir.language.errors import Place, printable
from vyre_py.ir.language.nodes import MemoryStatement
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, proofs
from vyre_py.lowering.target import Target

__all__ = ["About", "IndexCheck", "index_checks", "levels", "line_of"]


class About(TypedDict):
    """What is known of a line of the source: how widely its values are the same, and which code reaches it together, each with why not further, in words;
    checks of indices by target, and the memories that each of what proves them is for."""

    level: str
    why: str
    control: str
    why_control: str
    proven: dict[str, int]
    kept: dict[str, int]
    by: dict[str, list[str]]


class IndexCheck(TypedDict):
    """The check of one index at a line: of which memory and axis, whether the code keeps it, and else what proves it, in words."""

    line: int
    what: str
    kept: bool
    by: str


def levels(checked: Checked) -> Iterator[tuple[str, About]]:
    """By line: the widest difference between the values that are bound there, or, where none is, between the invocations that get there."""
    program, known, analysis = checked.program, checked.uniformity, Analysis(checked.program)

    def reason(level: Level, node: int) -> str:
        return why(analysis, node, _place_of) if level > Level.GRID else ""

    by_line: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(len(program.body)):
        if (place := program.place(index)) is not None:
            by_line[place.line].append(index)
    for line, indices in sorted(by_line.items()):
        control, at = max([(known.control[index], analysis.control[index]) for index in indices], key=lambda found: found[0])
        values = [(known.values[s.result.id], s.result.id) for index in indices if (s := program.body[index]).result is not None]
        level, value = max(values, key=lambda found: found[0], default=(control, at))
        yield str(line), {
            "level": level.name.lower(), "why": reason(level, value), "control": control.name.lower(), "why_control": reason(control, at),
            "proven": {}, "kept": {}, "by": {},
        }  # fmt: skip


def _place_of(program: Program, index: int) -> str:
    place = program.place(index)
    return f"statement {index}" if place is None else line_of(place)


def line_of(place: Place) -> str:
    """How places are called where the text is at hand."""
    return f"line {place.line}"


def index_checks(about: dict[str, About], steps: Sequence[Optimised], target: Target) -> list[IndexCheck]:
    """The checks of indices, in the order of the code; they are counted for their lines, too."""
    found: list[IndexCheck] = []
    for optimised in steps:
        by = proofs(optimised, line_of)
        for index, statement in enumerate(optimised.program.body):
            place = optimised.program.place(index)
            if not isinstance(statement, MemoryStatement) or place is None or (line := about.get(str(place.line))) is None:
                continue
            for axis in range(statement.memory.rank):
                name = printable(statement.memory.name)
                what = name if statement.memory.rank == 1 else f"{name}, axis {axis}"
                kept = not optimised.proven[index] >> axis & 1
                said = by.get((index, axis), "")
                found.append({"line": place.line, "what": what, "kept": kept, "by": said})
                counts = line["kept"] if kept else line["proven"]
                counts[target.name] = counts.get(target.name, 0) + 1
                if said and name not in line["by"].setdefault(said, []):
                    line["by"][said].append(name)
    return found
