"""The command `bench`: a Program bound once and launched many times."""

from __future__ import annotations

import argparse
import statistics
from math import prod
from typing import TYPE_CHECKING, Any

from vyre_py.cli.compiling import stages_data
from vyre_py.cli.output import CommandError, name_text, say, say_json, size_text, time_text
from vyre_py.cli.running import opened
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.observe.progress import Progress
from vyre_py.drivers.observe.rounds import measured
from vyre_py.ir.language.dims import Dim, dims_of, evaluate_dim
from vyre_py.ir.language.nodes import Memory

if TYPE_CHECKING:
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["bench"]


def _sizes(pipeline: Pipeline, values: dict[str, Any]) -> dict[str, int]:
    """The sizes that are given by name, and those that the arrays have."""
    interface = pipeline.artifact.interface
    sizes = {dim.name: values[dim.name] for dim in interface.dims if dim.name in values}
    for memory in interface.buffers:
        if memory.name in values:
            axes = zip(memory.shape, values[memory.name].shape, strict=False)
            sizes |= {expr.name: size for expr, size in axes if isinstance(expr, Dim) and expr.name not in sizes}
    return sizes


def _resident(pipeline: Pipeline, memory: Memory, values: dict[str, Any], sizes: dict[str, int]) -> Buffer:
    """A buffer of the array that was given, or of zeros. Raises CommandError for a size that nothing tells, and what uploading raises."""
    if memory.name in values:
        return pipeline.device.upload(values[memory.name], memory.type if memory.type.is_vector else None)
    unknown = sorted({dim.name for expr in memory.shape for dim in dims_of(expr)} - set(sizes))
    if unknown:
        raise CommandError(f"how large {name_text(memory.name)} is, nothing tells: give {' '.join(f'{name_text(name)}=1000' for name in unknown)}")
    try:
        shape = [evaluate_dim(expr, sizes) for expr in memory.shape]
    except ZeroDivisionError as error:
        raise CommandError(f"the shape of {name_text(memory.name)} divides by zero") from error
    return pipeline.device.allocate(shape, memory.type)


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
            "size_bytes": size_bytes, "moved_bytes": size_bytes * (memory.access.reads + memory.access.writes),
        })  # fmt: skip
    return rows


def _report(pipeline: Pipeline, rows: list[dict[str, Any]], taken: list[float], count: int) -> dict[str, Any]:
    moved, middle = sum(row["moved_bytes"] for row in rows), statistics.median(taken)
    return {
        "program": pipeline.name, "device": pipeline.device.name, "description": pipeline.device.description, "numerics": pipeline.numerics,
        "buffers": rows, "rounds": len(taken), "launches_per_round": count, "launch_ns": {"median": middle, "least": min(taken), "most": max(taken)},
        "bytes_per_launch": moved, "bytes_per_second": moved / middle * 1e9, "stages": stages_data(pipeline.stages),
    }  # fmt: skip


def _say_report(report: dict[str, Any], stages: str) -> None:
    say(f"program {name_text(report['program'])} on {report['device']} ({report['description']}), {report['numerics']}")
    for row in report["buffers"]:
        say(f"  {name_text(row['name'])}: {row['type']} {row['shape']} {row['access']}" + ("" if row["given"] else ", zeros"))
    median, least, most = (time_text(report["launch_ns"][name]) for name in ("median", "least", "most"))
    say(f"a launch: {median} (median of {report['rounds']} rounds of {report['launches_per_round']}; {least} to {most})")
    say(f"memory: {size_text(report['bytes_per_launch'])} a launch, {report['bytes_per_second'] / 1e9:.3g} GB/s")
    say(stages)


def bench(arguments: argparse.Namespace) -> int:
    """Launches the code in a file many times; medians, their spread, and bytes a second from the buffers' sizes."""
    pipeline, values = opened(arguments)
    sizes = _sizes(pipeline, values)
    buffers: dict[str, Buffer] = {}
    try:
        for memory in pipeline.artifact.interface.buffers:
            buffers[memory.name] = _resident(pipeline, memory, values, sizes)
        launch = pipeline.bind({**values, **buffers}, config=DispatchConfig(on_print=_ignore))
        with Progress("bench") as progress:
            taken, count = measured(launch, pipeline.device.synchronize, arguments.repeat, progress)
        report = _report(pipeline, _buffers_data(pipeline, buffers, values), taken, count)
    finally:
        for buffer in buffers.values():
            buffer.free()
    if arguments.json:
        say_json(report)
    else:
        _say_report(report, str(pipeline.stages))
    return 0
