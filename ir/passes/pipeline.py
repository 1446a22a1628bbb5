"""The pipeline: which passes run, in which order, and what they leave for the emitters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from vyre_py.ir.check import Checked
from vyre_py.ir.check.uniformity import Uniformity, analyse
from vyre_py.ir.nodes import MemoryStatement
from vyre_py.ir.passes.bounds import axis_checks, bounds
from vyre_py.ir.passes.cse import cse
from vyre_py.ir.passes.dce import dce
from vyre_py.ir.passes.expand import expand as expand_ops
from vyre_py.ir.passes.fold import fold
from vyre_py.ir.passes.guards import guards
from vyre_py.ir.passes.simplify import simplify
from vyre_py.ir.program import Program

__all__ = ["PASSES", "Optimised", "PassReport", "PassStep", "annotate", "optimise", "unoptimised"]

PASSES: Final[Mapping[str, Callable[[Program], Program]]] = {
    "fold": fold,
    "simplify": simplify,
    "cse": cse,
    "dce": dce,
    "guards": guards,
}

# Level -> the passes after expansion; what one leaves may give another something to do, so the cheap ones
# run twice, unless nothing has changed since.
_CHEAP: Final = ("fold", "simplify", "dce")
_THOROUGH: Final = ("fold", "simplify", "cse", "dce")
_LEVELS: Final[tuple[tuple[str, ...], ...]] = ((), (*_CHEAP, *_CHEAP), (*_THOROUGH, *_THOROUGH, "guards"))
_BOUNDS_LEVEL: Final = 2


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass, and how many statements there were before and after it."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PassReport:
    """What the passes did. A check is that of one index of one access against its axis: `checks_kept` remain in the code,
    `checks_removed` were proven true."""

    steps: tuple[PassStep, ...]
    checks_kept: int
    checks_removed: int

    def counts(self) -> dict[str, int]:
        """The figures by name: checks, and statements before the first pass and after the last."""
        counts = {"checks_kept": self.checks_kept, "checks_removed": self.checks_removed}
        if self.steps:
            counts |= {"statements_before": self.steps[0].before, "statements_after": self.steps[-1].after}
        return counts

    def __str__(self) -> str:
        lines = [f"{step.name:<10}{step.before:>8} -> {step.after} statements" for step in self.steps]
        return "\n".join([*lines, f"checks: {self.checks_kept} kept, {self.checks_removed} removed"])


@dataclass(frozen=True, slots=True)
class Optimised:
    """A Program that is ready for an emitter or the interpreter.

    `proven[i]` has bit k set where the index of axis k of access i is known to lie inside, so that it needs no check; it is 0 for
    other statements. It and `uniformity` hold for this very Program.
    """

    program: Program
    uniformity: Uniformity
    proven: tuple[int, ...]
    report: PassReport


def optimise(checked: Checked, *, expand: frozenset[str], level: int = 2) -> Optimised:
    """Makes a checked Program ready: replaces the ops named in `expand` by arithmetic, then runs the passes of `level`.

    Level 0 runs none, 1 folds, simplifies and drops dead code, 2 also merges what is computed twice, gathers bounds checks under
    guards and removes those that are proven. Each pass takes time linear in the number of statements.
    """
    program = checked.program
    steps: list[PassStep] = []

    def run(name: str, one: Callable[[Program], Program]) -> None:
        nonlocal program
        before = len(program.body)
        program = one(program)
        steps.append(PassStep(name, before, len(program.body)))

    if expand:
        run("expand", lambda p: expand_ops(p, expand))
    settled: dict[str, Program] = {}  # what each pass left; it has nothing to do there
    for name in _LEVELS[level]:
        if settled.get(name) is not program:
            run(name, PASSES[name])
            settled[name] = program
    proven = bounds(program) if level >= _BOUNDS_LEVEL else (0,) * len(program.body)
    removed = sum([bits.bit_count() for bits in proven])
    report = PassReport(tuple(steps), axis_checks(program) - removed, removed)
    uniformity = checked.uniformity if program is checked.program else analyse(program)
    return Optimised(program, uniformity, proven, report)


def unoptimised(checked: Checked, *, expand: frozenset[str]) -> Optimised:
    """The Program as it was written, but for the ops named in `expand`."""
    return optimise(checked, expand=expand, level=0)


def annotate(optimised: Optimised) -> Callable[[int], str]:
    """A remark on each access for the printer: `proven`, or the axes that are checked."""

    def remark(index: int) -> str:
        statement = optimised.program.body[index]
        if not isinstance(statement, MemoryStatement):
            return ""
        kept = [str(axis) for axis in range(statement.memory.rank) if not optimised.proven[index] >> axis & 1]
        return f"checked axis {', '.join(kept)}" if kept else "proven"

    return remark
