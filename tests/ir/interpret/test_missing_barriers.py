"""Each barrier of Programs that share tiles is taken out in turn: the interpreter finds the race, and none in the Programs as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pytest
from filetest import ROOT, WATCHING, Case, read_cases
from filetest_arguments import Arguments
from tree import ROOT as TREE

import vyre_py as vp
from vyre_py.demo import programs

PICTURE: Final = np.random.default_rng(7).integers(0, 256, (35, 41, 3), np.uint8)
BINS: Final = np.random.default_rng(8).integers(1, 9, 256, np.uint32)
BOTH: Final = vp.DispatchConfig(races=True, unwritten=True)

# Program, its arguments, and the barriers that no race is found without, by their number in the text.
DEMO: Final[Mapping[str, tuple[vp.Program, Mapping[str, Any], set[int]]]] = {
    # It parts atomics and loads, which are no race in this language.
    "histogram": (programs.histogram(), {"picture": PICTURE, "bins": np.zeros(256, np.uint32)}, {0}),
    # The one at the end of the scan: each invocation goes on with its own sum. The one before the uniform_load, which is a barrier itself.
    "tone_curve": (programs.tone_curve(), {"bins": BINS}, {16, 17}),
    # The one at the end of a turn: between any two uses of an array in two turns lies another.
    "blur": (programs.blur(), {"picture": PICTURE}, {2}),
}


def run(program: vp.Program, arguments: Mapping[str, Any], config: vp.DispatchConfig = WATCHING) -> dict[str, Any]:
    result: dict[str, Any] = vp.device("reference").compile_native(program, vp.CompileOptions(opt=0)).dispatch(arguments, config=config)
    return result


def without_each_barrier(text: str) -> Iterator[str]:
    """A Program's text without its first barrier, without its second, and so on."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.strip() in ("barrier", "grid_barrier"):
            yield "\n".join(["" if k == index else other for k, other in enumerate(lines)])


def unnoticed(text: str, arguments: Mapping[str, Any]) -> tuple[int, set[int]]:
    """How many barriers a Program has, and those without which no race is found."""
    count, found_none = 0, set()
    for count, without in enumerate(without_each_barrier(text), 1):
        try:
            run(vp.Program.from_text(without), arguments)
        except vp.RaceError:
            continue
        found_none.add(count - 1)
    return count, found_none


@pytest.mark.parametrize("name", DEMO)
def test_the_demo_without_a_barrier_races(name: str) -> None:
    program, arguments, not_needed = DEMO[name]
    run(program, arguments, BOTH)
    count, found_none = unnoticed(str(program), arguments)
    assert (found_none, count > 0) == (not_needed, True)


# Example -> its arguments, and the barriers as above.
EXAMPLES: Final[Mapping[str, tuple[Mapping[str, Any], set[int]]]] = {
    "09_matmul": ({"left": np.random.default_rng(9).random((20, 34), np.float32), "right": np.random.default_rng(10).random((34, 18), np.float32)}, set()),
    "10_stencil": ({"source": np.random.default_rng(11).random((20, 18), np.float32)}, set()),
    # It parts atomics and loads, which are no race in this language.
    "11_histogram": ({"values": np.arange(5000, dtype=np.uint16).astype(np.uint8), "counts": np.zeros(256, np.uint32)}, {0}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_without_a_barrier_races(name: str) -> None:
    source = (TREE / "examples" / f"{name}.py").read_text("utf-8")
    names: dict[str, Any] = {}
    exec(compile(source[: source.index("\ndevice = ")], name, "exec"), names)
    arguments, not_needed = EXAMPLES[name]
    run(names["b"].program, arguments, BOTH)
    assert unnoticed(str(names["b"].program), arguments)[1] == not_needed


def test_every_program_of_the_demo_that_has_a_barrier_is_here() -> None:
    others = (programs.equalise(), programs.sharpen())
    assert {maker.name for maker, _, _ in DEMO.values()} | {program.name for program in others} == set(programs.__all__)
    assert not [program.name for program in others if "barrier" in str(program)]


# Program, and the barriers that no race is found without.
NOT_NEEDED: Final[Mapping[str, set[int]]] = {
    "barrier_under_a_uniform_condition": {1},  # the second of two with nothing in between
    "all_but_mine": {0},  # it parts atomics and loads, which are no race in this language
}
CASES: Final = [
    pytest.param(case, id=f"{file}-{case.parse().name}")
    for file in ("barriers", "grid_barriers")
    for case in read_cases(ROOT / "run" / f"{file}.vir")
    if any(True for _ in without_each_barrier(case.text))
]


@pytest.mark.parametrize("case", CASES)
def test_a_filetest_without_a_barrier_races(case: Case) -> None:
    """Those Programs as they are run in test_filetests, watched."""
    unseen: set[int] | None = None
    for directive in case.all("run"):
        given, _, _ = directive.text.partition("==>")
        _, found_none = unnoticed(case.text, Arguments(case.parse(), given, pytest.fail).read())
        unseen = found_none if unseen is None else unseen & found_none
    assert unseen == NOT_NEEDED.get(case.parse().name, set())
