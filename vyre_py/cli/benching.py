"""The command `bench`: a Program bound once and launched many times, beside what the device can do."""

from __future__ import annotations

import argparse
import json
import statistics
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.cli.compiling import stages_data
from vyre_py.cli.output import CommandError, name_text, rate_text, say, say_json, size_text, time_text
from vyre_py.cli.running import opened
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.observe.progress import Progress
from vyre_py.drivers.observe.rounds import measured
from vyre_py.drivers.observe.work import Work, work_of
from vyre_py.interop.roofline import Row, draw
from vyre_py.ir.language.dims import Dim, dims_of, evaluate_dim
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import Kind
from vyre_py.lowering.errors import Unsupported
from vyre_py.tuning.roof import roof_of

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["bench", "measured_row", "read_report"]

_SEED: Final = 1
_BLOCK_BYTES: Final = 1 << 20


def _sizes(pipeline: Pipeline, values: dict[str, Any]) -> dict[str, int]:
    """The sizes that are given by name, and those that the arrays have."""
    interface = pipeline.artifact.interface
    sizes = {dim.name: values[dim.name] for dim in interface.dims if dim.name in values}
    for memory in interface.buffers:
        if memory.name in values:
            axes = zip(memory.shape, values[memory.name].shape, strict=False)
            sizes |= {expr.name: size for expr, size in axes if isinstance(expr, Dim) and expr.name not in sizes}
    return sizes


def _fill(made: Buffer, generator: np.random.Generator) -> None:
    """Writes random floats from -1 to 1, a block of them again and again. To multiply zeros takes less power, so the clock would be higher than with data.

    Integers and bools are zeros, since they may be indices, and tell how often a loop turns.
    """
    of = made.type
    if of.kind is not Kind.FLOAT:
        zero = False if of.kind is Kind.BOOL else 0
        made.fill([zero] * of.lanes if of.is_vector else zero)  # pages that nothing has written may all be one, which a cache holds
        return
    count = prod(made.shape)
    each = min(count, _BLOCK_BYTES // of.size_bytes)
    block = generator.uniform(-1, 1, (each, of.lanes) if of.is_vector else each).astype(of.dtype)
    for first in range(0, count, max(1, each)):
        made.device.upload_ranges([(made, first, block[: count - first])])


def _resident(pipeline: Pipeline, memory: Memory, values: dict[str, Any], sizes: dict[str, int], generator: np.random.Generator) -> Buffer:
    """A buffer of the array that was given, or made. Raises CommandError for a size that nothing tells, and what uploading raises."""
    if memory.name in values:
        return pipeline.device.upload(values[memory.name], memory.type if memory.type.is_vector else None)
    unknown = sorted({dim.name for expr in memory.shape for dim in dims_of(expr)} - set(sizes))
    if unknown:
        raise CommandError(f"how large {name_text(memory.name)} is, nothing tells: give {' '.join(f'{name_text(name)}=1000' for name in unknown)}")
    try:
        shape = [evaluate_dim(expr, sizes) for expr in memory.shape]
    except ZeroDivisionError as error:
        raise CommandError(f"the shape of {name_text(memory.name)} divides by zero") from error
    made = pipeline.device.allocate(shape, memory.type)
    _fill(made, generator)
    return made


def _ignore(line: str) -> None:
    """What a Program prints thousands of times nobody wants to see."""


def _buffers_data(pipeline: Pipeline, buffers: dict[str, Buffer], values: dict[str, Any]) -> list[dict[str, Any]]:
    """What was bound, as JSON; `moved_bytes` counts a buffer for each way that it is touched."""
    rows = []
    for memory in pipeline.artifact.interface.buffers:
        shape = buffers[memory.name].shape
        size_bytes = prod(shape) * memory.type.size_bytes
        rows.append({
            "name": memory.name, "type": str(memory.type), "shape": list(shape), "access": memory.access.value, "given": memory.name in values,
            "made_of": None if memory.name in values else "random" if memory.type.kind is Kind.FLOAT else "zeros",
            "size_bytes": size_bytes, "moved_bytes": size_bytes * (memory.access.reads + memory.access.writes),
        })  # fmt: skip
    return rows


def _rates(device: Device, work: Work, moved: float, taken: float) -> dict[str, Any]:
    """What a launch of so many nanoseconds does in a second, beside the most that the device can, as JSON. Rates that nothing tells are null, and `roof` says
    why."""
    total = None if work.uncounted else work.total
    rates: dict[str, Any] = {
        "bytes_per_launch": moved, "bytes_per_second": moved / taken * 1e9, "operations_per_launch": total,
        "operations_per_second": None if total is None else total / taken * 1e9, "operations_at_most": work.at_most,
        "operations": {str(kind): count for kind, count in work.operations.items()}, "uncounted": work.uncounted,
    }  # fmt: skip
    try:
        roof = roof_of(device, work.operations)
    except Unsupported as error:
        return rates | {"roof": {"bytes_per_second": None, "operations_per_second": None, "share": None, "missing": str(error), "source": ""}}
    missing = f"no figures of {', '.join(roof.missing)}" if roof.missing else ""
    about = {
        "bytes_per_second": roof.bytes_per_second, "operations_per_second": roof.operations_per_second(work), "share": roof.least_ns(work, moved) / taken,
        "missing": missing, "source": roof.source,
    }  # fmt: skip
    return rates | {"roof": about}


def _report(pipeline: Pipeline, work: Work, rows: list[dict[str, Any]], taken: list[float], count: int) -> dict[str, Any]:
    moved, middle = sum(row["moved_bytes"] for row in rows), statistics.median(taken)
    return {
        "program": pipeline.name, "device": pipeline.device.name, "description": pipeline.device.description, "numerics": pipeline.numerics,
        "buffers": rows, "rounds": len(taken), "launches_per_round": count, "launch_ns": {"median": middle, "least": min(taken), "most": max(taken)},
        **_rates(pipeline.device, work, moved, middle), "stages": stages_data(pipeline.stages),
    }  # fmt: skip


def _of(most: float | None, unit: str) -> str:
    return "" if most is None else f" of {rate_text(most, unit)}"


def _say_rates(report: dict[str, Any]) -> None:
    roof, total = report["roof"], report["operations_per_launch"]
    memory = f"{size_text(report['bytes_per_launch'])} a launch, {rate_text(report['bytes_per_second'], 'B/s')}"
    say(f"memory: {memory}{_of(roof['bytes_per_second'], 'B/s')}")
    if total:
        most = "at most " if report["operations_at_most"] else ""
        arithmetic = f"{most}{rate_text(total, 'FLOP')} a launch, {rate_text(report['operations_per_second'], 'FLOP/s')}"
        say(f"arithmetic: {arithmetic}{_of(roof['operations_per_second'], 'FLOP/s')} ({', '.join(report['operations'])})")
    elif report["uncounted"]:
        say(f"arithmetic: not counted, {report['uncounted']}")
    if roof["missing"]:
        say(f"roof: {roof['missing']}")
    if roof["share"] is not None:
        what = "memory allows" if roof["operations_per_second"] is None else "memory and arithmetic allow"
        beyond = "; more than 100 % is of caches, or of a machine that was busier while the roof was measured" if roof["share"] > 1 else ""
        say(f"roof: {100 * roof['share']:.3g} % of what {what} ({roof['source']}{beyond})")


def _say_report(report: dict[str, Any], stages: str) -> None:
    say(f"program {name_text(report['program'])} on {report['device']} ({report['description']}), {report['numerics']}")
    for row in report["buffers"]:
        say(f"  {name_text(row['name'])}: {row['type']} {row['shape']} {row['access']}" + ("" if row["given"] else f", {row['made_of']}"))
    median, least, most = (time_text(report["launch_ns"][name]) for name in ("median", "least", "most"))
    say(f"a launch: {median} (median of {report['rounds']} rounds of {report['launches_per_round']}; {least} to {most})")
    _say_rates(report)
    say(stages)


def measured_row(report: dict[str, Any], where: str) -> Row:
    """A report of `bench --json` as a row of a roofline. Raises CommandError for one that is none, or that has no rates."""
    try:
        roof, name = report["roof"], str(report["program"])
        numbers = [report["bytes_per_launch"], report["operations_per_launch"], report["operations_per_second"]]
        lines = [roof["bytes_per_second"], roof["operations_per_second"]]
    except (KeyError, TypeError) as error:
        raise CommandError(f"{where} is no report of bench --json") from error
    if reason := report.get("uncounted") or roof.get("missing"):
        raise CommandError(f"{where}: {name_text(name)} is no point of a roofline: {reason}")
    if not all(isinstance(value, (int, float)) and value > 0 for value in (*numbers, *lines)):
        raise CommandError(f"{where}: {name_text(name)} is no point of a roofline: it has no arithmetic, or moves nothing")
    moved, total, rate = numbers
    return Row(name, total / moved, rate, *lines)


def read_report(file: str) -> dict[str, Any]:
    """A report of `bench --json` in a file. Raises CommandError."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{file} is no report of bench --json")
    return found


def _draw(report: dict[str, Any], others: list[tuple[str, dict[str, Any]]], file: str) -> None:
    """Draws the rows of reports into a picture. Raises CommandError for reports of another device, and what drawing raises."""
    for where, other in others:
        if other.get("description") != report["description"]:
            raise CommandError(f"{where} is of another device: {shown(other.get('description'))}")
    rows = [measured_row(report, "this run"), *[measured_row(other, where) for where, other in others]]
    draw(Path(file), f"{report['device']} ({report['description']})", rows)


def bench(arguments: argparse.Namespace) -> int:
    """Launches the code in a file many times; medians, their spread, and what it moves and computes in a second beside what the device can."""
    if arguments.beside and arguments.plot is None:
        arguments.refuse("--beside goes with --plot")
    others = [(file, read_report(file)) for file in arguments.beside]
    pipeline, values, program = opened(arguments)
    sizes = _sizes(pipeline, values)
    buffers: dict[str, Buffer] = {}
    generator = np.random.default_rng(_SEED)
    try:
        for memory in pipeline.artifact.interface.buffers:
            buffers[memory.name] = _resident(pipeline, memory, values, sizes, generator)
        launch = pipeline.bind({**values, **buffers}, config=DispatchConfig(on_print=_ignore))
        with Progress("bench") as progress:
            taken, count = measured(launch, pipeline.device.synchronize, arguments.repeat, progress)
        rows = _buffers_data(pipeline, buffers, values)
    finally:
        for buffer in buffers.values():
            buffer.free()
    work = Work({}, uncounted="the file is compiled code, its Program tells") if program is None else work_of(program, launch.plan.binding.sizes, values)
    report = _report(pipeline, work, rows, taken, count)
    if arguments.plot is not None:
        _draw(report, others, arguments.plot)
    if arguments.json:
        say_json(report)
    else:
        _say_report(report, str(pipeline.stages))
    return 0
