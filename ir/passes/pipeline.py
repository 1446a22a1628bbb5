"""The pipeline: which passes run, in which order, and what they leave for the emitters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from time import perf_counter_ns
from typing import Final

from vyre_py.ir.check import Checked
from vyre_py.ir.check.uniformity import Uniformity, analyse
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.functions.called import Signature, function_program, signature_of
from vyre_py.ir.functions.function import Function
from vyre_py.ir.language.nodes import Let, Memory
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.bounds.guards import guarded, guards
from vyre_py.ir.passes.bounds.prove import axis_checks, bounds
from vyre_py.ir.passes.cse import cse
from vyre_py.ir.passes.dce import dce
from vyre_py.ir.passes.expand import expand as expand_ops
from vyre_py.ir.passes.expand_subgroups import expand_subgroups
from vyre_py.ir.passes.fold import fold
from vyre_py.ir.passes.inline import inline, rewrite_functions
from vyre_py.ir.passes.rewriter import Overgrown
from vyre_py.ir.passes.scalarise import scalarise
from vyre_py.ir.passes.simplify import simplify
from vyre_py.ir.passes.steps import constant_steps
from vyre_py.ir.passes.written import written_first

__all__ = ["PASSES", "Optimised", "PassReport", "PassStep", "Rewrite", "Watcher", "as_written", "optimise", "unoptimised"]

Rewrite = Callable[[Program], Program]

PASSES: Final[Mapping[str, Rewrite]] = {
    "scalarise": scalarise,
    "fold": fold,
    "simplify": simplify,
    "cse": cse,
    "dce": dce,
    "guards": guards,
}

# Level -> the passes after legalisation; what one leaves may give another something to do, so the cheap ones
# run twice, unless nothing has changed since.
_CHEAP: Final = ("fold", "simplify", "dce")
_THOROUGH: Final = ("fold", "simplify", "cse", "dce")
_LEVELS: Final[tuple[tuple[str, ...], ...]] = ((), (*_CHEAP, *_CHEAP), (*_THOROUGH, *_THOROUGH, "guards"))
_PROOFS_LEVEL: Final = 2

# Live statements beyond so many times what is taken are refused before the passes, which take time for each.
_HOPELESS: Final = 2


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass, how many statements there were before and after it, and when it began and ended, by `time.perf_counter_ns`."""

    name: str
    before: int
    after: int
    begin_ns: int = field(default=0, compare=False)
    end_ns: int = field(default=0, compare=False)


# Who looks on: told each pass that left a step, with the Program before and after it.
Watcher = Callable[[PassStep, Program, Program], None]


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
    other statements. `written_first` holds the workgroup arrays whose elements are all known to be written before any is read: they need no zeros
    to begin with. All of it, and `uniformity`, hold for this very Program. `functions` has what calls compute, and ops
    that were left to functions, ready likewise.
    """

    program: Program
    uniformity: Uniformity
    proven: tuple[int, ...]
    report: PassReport
    written_first: frozenset[Memory] = frozenset()
    functions: Mapping[Signature, Optimised] = field(default_factory=dict)


class _Run:
    """A Program on its way through the passes, with a step for each that changed it or was asked for by its level."""

    def __init__(self, program: Program, known: Uniformity | None = None, watcher: Watcher | None = None) -> None:
        self.given, self.known, self.watcher = program, known, watcher
        self.program = program
        self.proven: tuple[int, ...] | None = None  # by `guards`, of the Program that it gave
        self.steps: list[PassStep] = []

    def take(self, name: str, one: Rewrite, *, silent: bool = False) -> None:
        """Runs one pass; a `silent` one that does nothing leaves no step."""
        before, begin_ns = self.program, perf_counter_ns()
        self.program = one(before)
        if not silent or self.program is not before:
            self.steps.append(PassStep(name, len(before.body), len(self.program.body), begin_ns, perf_counter_ns()))
            if self.watcher is not None:
                self.watcher(self.steps[-1], before, self.program)

    def guards(self, program: Program) -> Program:
        """The pass of that name, which may prove what `result` needs on its way."""
        made, self.proven = guarded(program)
        return made

    def require(self, most: int | None, times: int = 1) -> None:
        """Raises Overgrown where there are more than so many times the statements that are taken."""
        if most is not None and len(self.program.body) > times * most:
            raise Overgrown(len(self.program.body), most)

    def result(self, *, proves: bool) -> Optimised:
        """The Program as it is now, with what is known of it; facts about its memory only where it is asked for `proves`."""
        program = self.program
        proven = (0,) * len(program.body) if not proves else bounds(program) if self.proven is None else self.proven
        removed = sum([bits.bit_count() for bits in proven])
        report = PassReport(tuple(self.steps), axis_checks(program) - removed, removed)
        uniformity = self.known if self.known is not None and program is self.given else analyse(program)
        return Optimised(program, uniformity, proven, report, written_first(program, uniformity) if proves else frozenset())


def _all_together(program: Program) -> Program:
    return expand_subgroups(program, lambda statement: True)


def optimise(
    checked: Checked, *, expand: frozenset[str], legal: Sequence[Rewrite] = (), level: int = 2, fast: Sequence[Rewrite] = (), most: int | None = None,
    subgroups: Sequence[Rewrite] = (), reports: Rewrite | None = None, copies: Sequence[Rewrite] = (), watcher: Watcher | None = None,
) -> Optimised:  # fmt: skip
    """Makes a checked Program ready for a target: calls of its functions are written out or stay, vectors become scalars, the ops named in `expand`
    arithmetic, the rewrites in `legal` take what the target lacks out of it, `subgroups` what it lacks of those (nothing, if not given), and the passes of
    `level` make it better. The rewrites in `fast` give results up for speed; they see the ops that the Program asks for, before any is expanded. Before all
    others `reports` says what becomes of asserts and prints, `copies` what becomes of copies into workgroup memory.

    Level 0 runs none, 1 folds, simplifies and drops dead code, 2 also merges what is computed twice, gathers bounds checks under guards, removes
    those that are proven, and says which workgroup arrays are written before they are read. Each pass takes time linear in the number of
    statements. Raises Overgrown where those are more than a Program may have, or more than `most` when a first round of the passes has made them
    fewer, or far more than that before it. A `watcher` is told of each pass over the Program, not of those over its functions.
    """
    run = _Run(checked.program, checked.uniformity, watcher)
    if reports is not None:
        run.take("reports", reports, silent=True)
    for rewrite in copies:
        run.take("copies", rewrite, silent=True)
    run.take("inline", inline, silent=True)
    run.take("steps", constant_steps, silent=True)
    run.take("scalarise", scalarise, silent=True)
    for rewrite in fast:
        run.take("fast", rewrite, silent=True)
    for rewrite in subgroups or (_all_together,):
        run.take("subgroups", rewrite, silent=True)
    run.take("expand", lambda p: expand_ops(p, expand), silent=True)
    made = _finished(run, legal, level, most)
    called = dict.fromkeys([signature_of(s) for s in made.program.body if isinstance(s, Let) and (s.op.name in expand or isinstance(s.op, Function))])
    rest = (lambda p: expand_ops(p, expand, calls=False), *legal)  # an expansion may be of ops that the target lacks
    functions = {
        signature: _finished(_Run(function_program(signature)), (*fast, *rest) if isinstance(signature.op, Function) else rest, level)
        for signature in called if signature is not None
    }  # fmt: skip
    return replace(made, functions=functions) if functions else made


def _finished(run: _Run, legal: Sequence[Rewrite], level: int, most: int | None = None) -> Optimised:
    """Takes what the target lacks out of a Program, and runs the passes of a level."""
    for rewrite in legal:
        run.take("legalise", rewrite, silent=True)
    if most is not None and len(run.program.body) > _HOPELESS * most:
        run.take("dce", dce, silent=True)
        run.require(most, _HOPELESS)
    settled: dict[str, Program] = {}  # what each pass left; it has nothing to do there
    for name in _LEVELS[level]:
        if settled.get(name) is not run.program:
            run.take(name, run.guards if name == "guards" else PASSES[name])
            settled[name] = run.program
        if name == "dce":
            run.require(most)
    run.require(most)
    return run.result(proves=level >= _PROOFS_LEVEL)


def unoptimised(checked: Checked, *, expand: frozenset[str]) -> Optimised:
    """The Program as it was written, vectors included, but for the ops named in `expand`."""
    run = _Run(checked.program, checked.uniformity)
    run.take("expand", lambda p: rewrite_functions(expand_ops(p, expand), lambda body: expand_ops(body, expand, calls=False)), silent=True)
    return run.result(proves=False)


def as_written(checked: Checked, reports: Rewrite) -> Optimised:
    """A Program of tiles for the interpreter, which alone runs it as it is; `reports` says what becomes of asserts and prints."""
    run = _Run(checked.program, checked.uniformity)
    run.take("reports", reports, silent=True)
    return run.result(proves=False)
