"""Tuning: which parameters of a Program are the fastest on a device, by trying the likely ones in a worker process."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any, Final

from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.cache.key import CacheKey
from vyre_py.drivers.cache.lookup import disk_cache, validated
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import LaunchError
from vyre_py.drivers.observe.progress import Progress, Report
from vyre_py.drivers.process.executor import Executor
from vyre_py.drivers.registry import device as device_of
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import ProgramError, VyreError, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.many import compile_many
from vyre_py.ops.spaces import Space, space_of
from vyre_py.tuning.defaults import default_for, is_default
from vyre_py.tuning.estimate import estimate
from vyre_py.tuning.results import Expected, is_exact

__all__ = ["Tried", "Tuned", "tune"]

Parameters = Mapping[str, Any]
Check = Callable[[Mapping[str, Any]], object]

_TRIES: Final = 10
_MOST: Final = 4096  # candidates, each of which is a Program in memory
_PLAIN: Final = (str, int, float, type(None))
# So many candidates at most, that took so much more time than the fastest, are timed so often again.
_NEAREST: Final = 4
_NEAR: Final = 1.1
_AGAIN: Final = 2


@public
@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate: its parameters, its place in the order from 0 on, and nanoseconds a launch, the median of rounds; or `error`, why it has none."""

    parameters: Parameters
    rank: int
    launch_ns: float | None
    error: str = ""

    def __repr__(self) -> str:
        found = self.error.partition("\n")[0] if self.launch_ns is None else f"{self.launch_ns / 1e3:.3g} us"
        return f"<Tried {dict(self.parameters)}: {found}>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.tuning.cards import tried_html

        return tried_html(self)


@public
@dataclass(frozen=True, slots=True)
class Tuned:
    """The fastest that was found: its `parameters`, its `program`, nanoseconds a launch (None where nothing was ever tried), and how many candidates there
    are. `tried` is all that this call has tried, in the model's order, and then those that break a rule; empty where the winner was kept already. `checked`
    says what their results were held against: the name of the device that computed what is right, "first" for the first candidate that ran, "check" for the
    caller's; "" where nothing ran."""

    parameters: Parameters
    program: Program
    launch_ns: float | None
    candidates: int
    tried: tuple[Tried, ...]
    checked: str = ""

    def __repr__(self) -> str:
        failed = sum(trial.launch_ns is None for trial in self.tried)
        time = "never timed" if self.launch_ns is None else f"{self.launch_ns / 1e3:.3g} us"
        return f"<Tuned {dict(self.parameters)}: {time}, of {self.candidates} candidates {len(self.tried)} tried, {failed} of them failed>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.tuning.cards import tuned_html

        return tuned_html(self)


@dataclass(frozen=True, slots=True)
class _Candidate:
    parameters: Parameters
    program: Program | None
    error: str = ""


def _refuse(what: str, help: str) -> Unsupported:
    return Unsupported("vyre-py", [Missing(what, help=help)])


def _plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_plain, value)))


def _points(space: Mapping[str, Sequence[Any]], allowed: Callable[..., object] | None) -> list[Parameters]:
    """All combinations that are allowed, the last name changing fastest. Raises Unsupported for a space that has none, or too many."""
    if not isinstance(space, Mapping) or not all(isinstance(name, str) for name in space):
        raise _refuse(f"space {shown(space)}", 'it is a mapping of names to values: {"tiles": ["small", "medium"]}')
    for name, values in space.items():
        if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
            raise _refuse(f"values {shown(values)} of {name!r}", f'a list of texts, numbers, None, and tuples of these: {{"{name}": [{shown(values)}]}}')
    rows = {name: list(values) for name, values in space.items()}
    for name, values in rows.items():
        if not values or not all(map(_plain, values)):
            raise _refuse(f"values {shown(values)} of {name!r}", "a list of texts, numbers, None, and tuples of these")
    if allowed is not None:
        _require_taken("allowed", allowed, rows)
    if math.prod(map(len, rows.values())) > _MOST:
        raise _refuse(f"a space of {math.prod(map(len, rows.values()))} candidates", f"at most {_MOST} are looked at")
    points = [dict(zip(rows, values, strict=True)) for values in product(*rows.values())]
    found: list[Parameters] = [point for point in points if allowed is None or allowed(**point)]
    if not found:
        raise _refuse("a space without a candidate", "`allowed` refuses every combination")
    return found


def _require_taken(what: str, function: object, names: Iterable[str]) -> None:
    """Raises Unsupported for what is no function of parameters of these names, as far as it says which it has."""
    if not callable(function):
        raise _refuse(f"{what} that is {shown(function)}", "a function that takes the parameters by name, and not what one gives: vp.ops.matmul")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # one in C that says nothing
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise _refuse(f"parameters {', '.join(names)} for {what}: {error}", f"it takes {', '.join(signature.parameters) or 'none'}") from None


def _candidate(make: Callable[..., Program], point: Parameters) -> _Candidate:
    try:
        program = make(**point)
        if not isinstance(program, Program):
            raise _refuse(f"make gave {shown(program)}", "it gives a Program for the parameters")
        validated(program)
    except ProgramError as error:
        return _Candidate(point, None, f"{type(error).__name__}: {error}")
    return _Candidate(point, program)


def _key(programs: Sequence[_Candidate], device: Device, sizes: Mapping[str, int], options: CompileOptions) -> CacheKey:
    """What a winner is kept by: all that was to be chosen from, the device, and for each dim the power of two from its size on."""
    digest = hashlib.sha256()
    for candidate in programs:
        digest.update(json.dumps(candidate.parameters, sort_keys=True).encode() + b"\n")
        digest.update(candidate.program.code_digest + candidate.program.interface_digest if candidate.program else b"none")
    classes = ",".join(f"{name}:{max(size - 1, 0).bit_length()}" for name, size in sorted(sizes.items()))
    fields = {
        "candidates": digest.hexdigest(), "device": device.description, "target": device.target.name, "sizes": classes, "options": repr(options),
    }  # fmt: skip
    return CacheKey("tuned", tuple(fields.items()))


def _kept(key: CacheKey, count: int) -> tuple[int, float, int] | None:
    """The winner's number, its time and how many were tried; None where nothing is kept, or what is makes no sense."""
    data = disk_cache().get(key)
    if data is None:
        return None
    try:
        found = json.loads(data)
        number, taken, tried = found["candidate"], found["launch_ns"], found["tried"]
    except (ValueError, KeyError, TypeError):
        return None
    sound = type(number) is int and 0 <= number < count and isinstance(taken, float) and type(tried) is int
    return (number, taken, tried) if sound else None


@public
def tune(
    make: Callable[..., Program], space: Mapping[str, Sequence[Any]] | None, arguments: Any, *, device: Device | str | None = None, tries: int | None = _TRIES,
    timeout: float = 60.0, check: Check | None = None, allowed: Callable[..., object] | None = None, options: CompileOptions | None = None,
    again: bool = False, progress: bool | Report | None = None,
) -> Tuned:  # fmt: skip
    """The parameters with which a Program is the fastest on a device.

    `make(**parameters)` gives the Program for each combination of the values in `space` for which `allowed(**parameters)` is true; all have the same
    arguments. For `vp.ops.matmul` and `vp.ops.attention`, by themselves or in `functools.partial`, `space` may be None: theirs is declared beside them
    (`vyre_py/ops/spaces.py`), of which devices other than CUDA try what makes other code on them. `arguments` are those of `Pipeline.dispatch`, as host
    arrays: their sizes decide what is fast.

    What was measured to be fast for such a Program, device and size (`vyre_py/tuning/defaults.py`) comes first, a model of the device orders the others, and
    the first `tries` of them are compiled in worker processes and timed in another, one after the other; None is all. One that takes longer than `timeout`
    seconds to compile, or to run, is ended with its worker, and counts as failed, as does one that the device cannot run. The fastest four, as far as they are
    within 10 % of one another, are timed again in turns: the clock of a device changes.

    Results have to be those of the Program of the first combination, as the CPU computes it, or for a CPU the interpreter, in a worker beside, before and
    after the launches that are timed. They have to have the same bits; within 2^-6 of them where sums have an order of their own: on tensor cores
    (`vp.mma(..., tensor=True)`), of floats by atomics or over the grid, where numerics are not strict, or where a declared space says so. A candidate whose
    results are others is refused by name, and never wins. Where the other device takes more than 20 seconds, or cannot compute it, the first candidate that
    ran is taken to be right, and `Tuned.checked` says so. `check` is given each candidate's results by name instead, and raises any exception for wrong
    ones; parameters of your own by which sums come in another order need it.

    The winner is kept in the disk cache, by the candidates, the device, the options and the power of two from the size of each dim on, and goes along in
    bundles. It is used again where as many were tried, unless `again` is true. With `tries=0` nothing runs: what is kept is used, or else what comes
    first. `progress` is as in `compile_many`.

    Raises Unsupported for arguments that make no sense, BindingError for arrays that do not fit, and LaunchError where no candidate ran, which says why.
    """
    if tries is not None and (type(tries) is not int or tries < 0):
        raise _refuse(f"tries={shown(tries)}", "it is a whole number from 0 up, or None for all")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise _refuse(f"timeout={shown(timeout)}", "it is a time in seconds")
    found = device if isinstance(device, Device) else device_of(device)
    options = CompileOptions.given(options)
    declared = space_of(make) if space is None else Space(space)
    if declared is None:
        raise _refuse("a space of None", "what is tuned declares none: say which values its parameters may have")
    values = declared.values_on(found.kind)
    points = _points(values, allowed)
    _require_taken("make", make, values)
    candidates = [_candidate(make, point) for point in points]
    sound = [(number, c.program) for number, c in enumerate(candidates) if c.program is not None]
    if not sound:
        raise LaunchError("no candidate is a Program", cause=candidates[0].error)
    first = sound[0][1]
    interface = Interface(first.name, first.dims, first.params, first.buffers, first.widths.names)
    sizes = bind_arguments(found, interface, arguments, {}, staged=True).sizes
    default = default_for(first, found.target, sizes)
    later = {number: not is_default(default, candidates[number].parameters) for number, _ in sound}
    order = [number for *_, number in sorted((later[number], estimate(program, found, sizes), number) for number, program in sound)]
    wanted = order if tries is None else order[:tries]
    key = _key(candidates, found, sizes, options)
    kept = None if again else _kept(key, len(candidates))
    if kept is not None and kept[2] >= len(wanted) and (program := candidates[kept[0]].program) is not None:
        return Tuned(candidates[kept[0]].parameters, program, kept[1], len(candidates), ())
    if not wanted:
        return Tuned(candidates[order[0]].parameters, dict(sound)[order[0]], None, len(candidates), ())
    expected = None if check is not None else Expected(first, arguments, found, options, timeout)
    judge = _Judge(check, expected, declared.reorders)
    tried = _try_all([(candidates[number].parameters, dict(sound)[number]) for number in wanted], found, arguments, options, timeout, judge, progress)
    timed = [(trial.launch_ns, number) for trial, number in zip(tried, wanted, strict=True) if trial.launch_ns is not None]
    if not timed:
        raise LaunchError(f"none of {len(tried)} candidates ran on {found.name}", cause="; ".join(dict.fromkeys(trial.error for trial in tried)))
    launch_ns, best = min(timed)
    disk_cache().put(key, json.dumps({"candidate": best, "launch_ns": float(launch_ns), "tried": len(wanted)}).encode())
    tried += [Tried(c.parameters, len(order), None, c.error) for c in candidates if c.program is None]
    return Tuned(candidates[best].parameters, dict(sound)[best], launch_ns, len(candidates), tuple(tried), "check" if expected is None else expected.by)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says of results whether they are right, by raising an exception where not."""

    check: Check | None
    expected: Expected | None
    reorders: bool

    def __call__(self, program: Program, artifact: Artifact, results: Mapping[str, Any]) -> None:
        if self.check is not None:
            self.check(results)
        if self.expected is not None:
            self.expected.compare(results, not self.reorders and is_exact(program, artifact))


def _try_all(
    rows: Sequence[tuple[Parameters, Program]], device: Device, arguments: Any, options: CompileOptions, timeout: float, judge: _Judge,
    progress: bool | Report | None,
) -> list[Tried]:  # fmt: skip
    """Compiles and times candidates, in order."""
    items = [(program, device.target.for_program(program).name, options) for _, program in rows]
    compiled = compile_many(items, device.target.name, options, progress=progress, errors="return", timeout=timeout)
    errors: dict[int, Exception] = {rank: outcome for rank, outcome in enumerate(compiled) if isinstance(outcome, VyreError)}
    taken: dict[int, list[float]] = {}
    with Executor(device.name, timeout, compile_timeout=timeout) as executor, Progress("tuning", progress) as bar:

        def timed(rank: int) -> Any:
            """What a candidate gives, before launches that are timed."""
            results, more = executor.measure(rows[rank][1], arguments, options=options)
            taken[rank] = taken.get(rank, []) + more
            return results

        for rank, ((parameters, program), outcome) in enumerate(zip(rows, compiled, strict=True)):
            if isinstance(outcome, Artifact):
                try:
                    judge(program, outcome, timed(rank))
                    judge(program, outcome, executor.dispatch(program, arguments, options=options))  # what differs now and then does so by now
                except Exception as failed:  # noqa: BLE001 - `check` may raise anything; what a candidate fails by is in the report
                    errors[rank] = failed
            bar(rank + 1, len(rows), str(parameters))
        for rank in _near({rank: median(times) for rank, times in taken.items() if rank not in errors}) * _AGAIN:
            if rank not in errors:
                try:
                    timed(rank)
                except VyreError as failed:
                    errors[rank] = failed
    return [
        Tried(parameters, rank, None, f"{type(errors[rank]).__name__}: {errors[rank]}") if rank in errors else Tried(parameters, rank, median(taken[rank]))
        for rank, (parameters, _) in enumerate(rows)
    ]  # fmt: skip


def _near(times: Mapping[int, float]) -> list[int]:
    """The fastest, which are timed again in turns where chance may decide between them: a device is slower while it is hot or others use it."""
    near = [rank for rank in sorted(times, key=times.__getitem__) if times[rank] <= _NEAR * min(times.values())]
    return near[:_NEAREST] if len(near) > 1 else []
