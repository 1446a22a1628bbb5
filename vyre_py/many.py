"""Ahead-of-time compilation of many Programs at once, in worker processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Final, Literal, overload

from vyre_py.drivers.cores import core_count
from vyre_py.drivers.observe.process_trace import begin_process_trace
from vyre_py.drivers.observe.progress import Progress, Report
from vyre_py.drivers.observe.trace import tracing
from vyre_py.drivers.process.compile_pool import SUPPORTED, CompilePool, Done, Outcome, idle
from vyre_py.drivers.process.compile_task import Task
from vyre_py.ir.check import Checked
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import ProgramError, VyreError, WireError, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.native import Source, Targets, compile_native, parsed

__all__ = ["compile_many"]

Item = Source | tuple[Source, Targets | None, CompileOptions | None]
Errors = Literal["raise", "return"]

# What compiling takes, in statements for each target. Some 10,000 take about as long as starting a worker process.
_PROGRAM_COST: Final = 50
_STATEMENT_BYTES: Final = 16
_WORTH_STARTING: Final = 10_000
_WORTH_ASKING: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Job:
    """One of many: the Program, and what to compile it for and how."""

    program: Source
    targets: tuple[str, ...]
    options: CompileOptions

    @property
    def plain(self) -> Program | bytes | bytearray | memoryview:
        """The Program itself, or its bytes."""
        return self.program.program if isinstance(self.program, Checked) else self.program

    @property
    def cost(self) -> int:
        """About how many statements are compiled."""
        plain = self.plain
        statements = len(plain.body) if isinstance(plain, Program) else len(plain) // _STATEMENT_BYTES
        return (statements + _PROGRAM_COST) * len(self.targets)

    def here(self) -> Outcome:
        """Compiles it in this process."""
        try:
            return compile_native(self.program, self.targets, self.options)
        except VyreError as error:
            return error

    def task(self, index: int) -> Task | Done:
        """What a worker is given. A Program that cannot be written is compiled here, which says what is wrong with it."""
        plain = self.plain
        try:
            # Without debug information places are in errors alone, which are found again here.
            data = plain.to_bytes(places=self.options.debug) if isinstance(plain, Program) else bytes(plain)
        except WireError:
            return Done(index, self.here())
        return Task(index, data, self.targets, self.options)

    def name(self, outcome: Outcome) -> str:
        """The Program's name; nothing where that is not known."""
        plain = self.plain
        return plain.name if isinstance(plain, Program) else outcome.interface.name if isinstance(outcome, Artifact) else ""

    def settled(self, done: Done) -> Outcome:
        """What a worker gave, as this process gives it: errors with their number, with places and the lines of text there, which do not go along."""
        outcome = done.outcome
        if isinstance(outcome, Artifact):
            return outcome
        if done.worker and isinstance(outcome, (ProgramError, Unsupported)) and isinstance(self.plain, Program):
            again = self.here()
            outcome = again if isinstance(again, VyreError) else outcome
        name = self.name(outcome)
        outcome.args = (f"Program {done.index}{f' ({shown(name)})' if name else ''}: {outcome}",)
        return outcome


def _jobs(programs: Iterable[Item], targets: Targets, options: CompileOptions | None) -> list[_Job]:
    """What to compile. Raises Unsupported for what is no Program, target or option, and says which."""
    if isinstance(programs, (Program, Checked, str, bytes, bytearray, memoryview)) or not isinstance(programs, Iterable):
        raise Unsupported("vyre-py", [Missing(f"programs {shown(programs)}", help="compile_many takes a list of Programs; compile_native takes one")])
    common, usual = _names(targets), CompileOptions.given(options)
    jobs = []
    for index, given in enumerate(programs):
        program, own, special = given if isinstance(given, tuple) and len(given) == 3 else (given, None, None)
        if not isinstance(program, (Program, Checked, bytes, bytearray, memoryview)):
            wanted = "a Program, Checked, bytes, or a tuple of one of these, targets and options"
            raise Unsupported("vyre-py", [Missing(f"Program {index}: {shown(given)}", help=f"{wanted} is needed")])
        jobs.append(_Job(program, common if own is None else _names(own), usual if special is None else CompileOptions.given(special)))
    return jobs


def _names(targets: Targets) -> tuple[str, ...]:
    return tuple(target.name for target in parsed(targets))


def _size(workers: int | None, timeout: float | None, jobs: Sequence[_Job]) -> int:
    """How many worker processes to use; 0 is to compile in this process. Raises Unsupported for an invalid number."""
    if workers is not None and (type(workers) is not int or workers < 1):
        raise Unsupported("vyre-py", [Missing(f"workers={shown(workers)}", help="it is a whole number of processes from 1 on, or None")])
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise Unsupported("vyre-py", [Missing(f"timeout={shown(timeout)}", help="it is a time in seconds")])
    if workers is None:
        worth = _WORTH_ASKING if idle() else _WORTH_STARTING
        workers = core_count() if SUPPORTED and sum(job.cost for job in jobs) >= worth else 1
    return 0 if workers == 1 and timeout is None else min(workers, len(jobs))


@public
@overload
def compile_many(
    programs: Iterable[Item], targets: Targets, options: CompileOptions | None = None, *, workers: int | None = None,
    progress: bool | Report | None = None, errors: Literal["raise"] = "raise", timeout: float | None = None,
) -> list[Artifact]: ...  # fmt: skip


@public
@overload
def compile_many(
    programs: Iterable[Item], targets: Targets, options: CompileOptions | None = None, *, workers: int | None = None,
    progress: bool | Report | None = None, errors: Literal["return"], timeout: float | None = None,
) -> list[Artifact | VyreError]: ...  # fmt: skip


@public
def compile_many(
    programs: Iterable[Item], targets: Targets, options: CompileOptions | None = None, *, workers: int | None = None,
    progress: bool | Report | None = None, errors: Errors = "raise", timeout: float | None = None,
) -> list[Artifact] | list[Artifact | VyreError]:  # fmt: skip
    """Compiles many Programs, as `compile_native` does each, in worker processes, since LLVM compiles one at a time in a process. Gives the artifacts in
    the order of the Programs. `(program, targets, options)` in place of a Program has its own; None there is what the call has.

    `workers` is how many processes; 1 is this one alone. None is as many as there are processors, or this process alone for what is done before others
    have started: less than about 10,000 statements, counted for each target, and 1,000 while workers of an earlier call wait, which they do for a minute.
    A worker that ends over a Program, as LLVM makes it do, ends no other and not this process. What one leaves that is killed from outside, or dies as it
    starts, another compiles; after three such deaths over one Program that is an error.

    `timeout` bounds each Program, in seconds, and has it compiled in a worker in any case. `progress` is a bar on standard error where a person watches
    and it takes long: True always, False never, or a callable of `(done, total, name)`, called in this thread.

    `errors="raise"` raises the error of the first Program, in their order, that has one, and gives up those after it; "return" puts errors into the
    list in place of artifacts. They begin with the Program's number and name, and are those of `compile_native`; DispatchTimeout past `timeout`; and
    ToolchainError where a worker ended: the Program is kept, in `error.program_bytes` and in the folder `error.report`. Raises Unsupported for arguments
    that are none, and ToolchainError where no worker starts.
    """
    if errors not in ("raise", "return"):
        raise Unsupported("vyre-py", [Missing(f"errors={shown(errors)}", help="it is 'raise' or 'return'")])
    begin_process_trace()
    jobs = _jobs(programs, targets, options)
    size = _size(workers, timeout, jobs)
    outcomes: dict[int, Outcome] = {}
    failed: tuple[int, VyreError] | None = None  # of the errors that are raised, the first by place
    with CompilePool(size, timeout) if size else nullcontext() as pool, Progress("compiling", progress) as bar:
        here = (Done(index, job.here()) for index, job in enumerate(jobs))
        for done in here if pool is None else pool.run((job.task(index) for index, job in enumerate(jobs)), bar.interval_s):
            if done is None:
                bar.again()
                continue
            job = jobs[done.index]
            outcome = outcomes[done.index] = job.settled(done)
            _trace(job.name(outcome), job.targets, done)
            bar(len(outcomes), len(jobs), job.name(outcome))
            if errors == "raise" and isinstance(outcome, VyreError):
                failed = (done.index, outcome) if failed is None or done.index < failed[0] else failed
                if pool is None:
                    break
                pool.stop_at(failed[0])
    if failed is not None:
        raise failed[1]
    return [outcomes[index] for index in range(len(jobs))]


def _trace(name: str, targets: tuple[str, ...], done: Done) -> None:
    """Shows in traces what a worker did."""
    if done.worker and (traces := tracing()) is not None:
        traces.span(f"compile {name}", "compile", done.begin_ns, done.end_ns, f"worker process {done.worker}", {"targets": ", ".join(targets)})
