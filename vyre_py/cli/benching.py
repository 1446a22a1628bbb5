"""The command `bench`: a Program bound once and launched many times."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Final

from vyre_py.cli.compiling import stages_data
from vyre_py.cli.output import CommandError, name_text, say, say_json, size_text, time_text
from vyre_py.cli.running import opened
from vyre_py.drivers.progress import Progress
from vyre_py.ir.dims import Dim, dims_of, evaluate_dim
from vyre_py.ir.nodes import Memory

if TYPE_CHECKING:
    from vyre_py.drivers.launch import Launch
    from vyre_py.drivers.pipeline import Pipeline
    from vyre_py.drivers.resident import Buffer

__all__ = ["bench"]

_ROUND_NS: Final = 20_000_000  # how long a round of launches takes about, where one launch is shorter
_MOST_LAUNCHES: Final = 10_000


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


def _round(launch: Launch, wait: Callable[[], None], count: int) -> float:
    """Nanoseconds a launch, of so many in a row and the wait for them."""
    begin = time.perf_counter_ns()
    for _ in range(count):
        launch()
    wait()
    return (time.perf_counter_ns() - begin) / count


def _measure(launch: Launch, wait: Callable[[], None], rounds: int) -> tuple[list[float], int]:
    """Nanoseconds a launch in each round, and the launches in a round. The first launch is left out: it may load and allocate."""
    _round(launch, wait, 1)
    once = _round(launch, wait, 1)
    count = max(1, min(_MOST_LAUNCHES, round(_ROUND_NS / max(once, 1.0))))
    taken = []
    with Progress("bench") as progress:
        for number in range(rounds):
            progress(number, rounds)
            taken.append(_round(launch, wait, count))
    return taken, count


def bench(arguments: argparse.Namespace) -> int:
    """Launches the code in a file many times; medians, their spread, and bytes a second from the buffers' sizes."""
    pipeline, values = opened(arguments)
    sizes = _sizes(pipeline, values)
    buffers: dict[str, Buffer] = {}
    try:
        declared = pipeline.artifact.interface.buffers
        for memory in declared:
            buffers[memory.name] = _resident(pipeline, memory, values, sizes)
        launch = pipeline.bind({**values, **buffers})
        taken, count = _measure(launch, pipeline.device.synchronize, arguments.repeat)
    finally:
        for buffer in buffers.values():
            buffer.free()
    sizes_bytes = [prod(buffers[m.name].shape) * m.type.size_bytes for m in declared]
    rows = [
        {
            "name": m.name, "type": str(m.type), "shape": list(buffers[m.name].shape), "access": m.access.value, "given": m.name in values,
            "size_bytes": size_bytes,
        }
        for m, size_bytes in zip(declared, sizes_bytes, strict=True)
    ]  # fmt: skip
    moved = sum(size_bytes * (m.access.reads + m.access.writes) for m, size_bytes in zip(declared, sizes_bytes, strict=True))
    middle = statistics.median(taken)
    report = {
        "program": pipeline.name, "device": pipeline.device.name, "description": pipeline.device.description, "numerics": pipeline.numerics,
        "rounds": len(taken), "launches_per_round": count, "buffers": rows,
        "launch_ns": {"median": middle, "least": min(taken), "most": max(taken)},
        "bytes_per_launch": moved, "bytes_per_second": moved / middle * 1e9, "stages": stages_data(pipeline.stages),
    }  # fmt: skip
    if arguments.json:
        say_json(report)
        return 0
    say(f"program {name_text(pipeline.name)} on {pipeline.device.name} ({pipeline.device.description}), {pipeline.numerics}")
    for row, memory in zip(rows, declared, strict=True):
        say(f"  {name_text(memory.name)}: {memory.type} {row['shape']} {row['access']}" + ("" if row["given"] else ", zeros"))
    say(f"a launch: {time_text(middle)} (median of {len(taken)} rounds of {count}; {time_text(min(taken))} to {time_text(max(taken))})")
    say(f"memory: {size_text(moved)} a launch, {moved / middle:.3g} GB/s")
    say(str(pipeline.stages))
    return 0
