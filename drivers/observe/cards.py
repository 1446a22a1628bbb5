"""Cards of what devices give, for notebooks. They show what an object holds on the host: no element of a buffer is read, and nothing is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.memory.encoding import decode_params
from vyre_py.drivers.observe.metrics import METRICS
from vyre_py.ir.text.lexer import written_name
from vyre_py.ir.text.notebook.cards import Cell, Markup, bars, card, folded, size_text, table
from vyre_py.lowering.artifact.cards import code_rows, interface_table
from vyre_py.lowering.artifact.summary import need_text
from vyre_py.lowering.stages import shown_ns

if TYPE_CHECKING:
    from vyre_py.drivers.dispatch import Timed
    from vyre_py.drivers.launch import LaunchPlan
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.drivers.observe.snapshot import Snapshot
    from vyre_py.drivers.pending import Pending
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["bound_text", "buffer_html", "pending_html", "pipeline_html", "plan_html", "snapshot_html", "timed_html"]

_FIRST: Final = 8  # elements of a result


def pipeline_html(pipeline: Pipeline) -> str:
    """Where it runs, what it binds, what its code takes, and what compiling took."""
    facts: list[tuple[str, Cell]] = [("device", f"{pipeline.device.name} ({pipeline.device.description})"), *code_rows(pipeline.part)]
    passes = folded("what the passes did", table(list(pipeline.report.items())))
    stages = folded(f"compiled and loaded in {shown_ns(pipeline.stages.total_ns)}", bars(pipeline.stages.bars()))
    return card("Pipeline", written_name(pipeline.name), facts, interface_table(pipeline.artifact.interface), stages, passes)


def bound_text(buffer: Buffer) -> str:
    """A buffer in a line."""
    return f"{buffer.type}{list(buffer.shape)}, {size_text(buffer.size_bytes)}{' (freed)' if buffer.allocation.freed else ''}"


def _arguments(plan: LaunchPlan, buffers: Mapping[str, Buffer]) -> Markup:
    """Sizes, params as the argument block has them now, and buffers."""
    rows = [("size", written_name(name), str(size)) for name, size in plan.binding.sizes.items()]
    params = decode_params(plan.step.layout, plan.block)
    rows += [("param", written_name(slot.name), f"{slot.type} {params[slot.name]}") for slot in plan.step.layout.params]
    named = [memory for memory in plan.binding.interface.buffers if memory.name in buffers]
    return table(rows + [(f"buffer {memory.access.value}", written_name(memory.name), bound_text(buffers[memory.name])) for memory in named])


def plan_html(kind: str, plan: LaunchPlan, buffers: Mapping[str, Buffer]) -> str:
    """What a launch will do: its grid, which entry it runs and why, and its arguments as they are now."""
    entry = plan.step.entries[plan.entry]
    grid, group = (" x ".join(map(str, sizes)) for sizes in (plan.grid, plan.workgroup))
    facts: list[tuple[str, Cell]] = [
        ("label", plan.label), ("device", plan.device.name),
        ("grid", f"{grid if plan.grid_buffer is None else 'as many as a buffer says'} workgroups of {group}"),
        ("entry", f"{entry.symbol}, for {' and '.join(map(need_text, entry.needs)) or 'any arguments'}"),
        ("elements an invocation", entry.elements if entry.elements != 1 else ""), ("argument block", f"{len(plan.block)} bytes"),
    ]  # fmt: skip
    return card(kind, written_name(plan.binding.interface.name), facts, _arguments(plan, buffers))


def buffer_html(buffer: Buffer) -> str:
    """Type, shape, place and state. Its elements stay on the device."""
    allocation = buffer.allocation
    within = f"{buffer.offset_bytes} bytes into an allocation of {size_text(allocation.size_bytes)}" if buffer.size_bytes != allocation.size_bytes else ""
    facts: list[tuple[str, Cell]] = [
        ("device", buffer.device.name), ("size", size_text(buffer.size_bytes)), ("view", within), ("belongs to", allocation.owner),
        ("state", "freed" if allocation.freed else "may only be read" if buffer.readonly else ""),
        ("elements", "" if allocation.freed else "on the device: read() copies them"),
    ]  # fmt: skip
    return card("Buffer", f"{buffer.type}{list(buffer.shape)}", facts)


def snapshot_html(snapshot: Snapshot) -> str:
    """The figures that are not zero, and what each counts."""
    rows = []
    for name, value in snapshot.items():
        metric = METRICS[name]
        said = f"{value:.3f}" if metric.unit == "ratio" else size_text(int(value)) if metric.unit == "bytes" else f"{value:,}"
        if value:
            rows.append((name, shown_ns(int(value)) if metric.unit == "ns" else said, metric.doc))
    return card("Snapshot", snapshot.device, [("figures", "" if rows else "nothing was counted")], table(rows))


def _result(value: np.ndarray[Any, Any] | Buffer) -> tuple[str, str]:
    """What a result is, and its first elements where the host has them."""
    if not isinstance(value, np.ndarray):
        return bound_text(value), "on the device"
    first = " ".join(map(str, value.reshape(-1)[:_FIRST].tolist())) if value.flags.c_contiguous else ""
    return f"{value.dtype}{list(value.shape)}", first + (" ..." if first and value.size > _FIRST else "")


def _results(results: Mapping[str, Any]) -> Markup:
    return table([(written_name(name), *_result(value)) for name, value in results.items()])


def pending_html(pending: Pending) -> str:
    """How far it is, and its results once somebody has asked for them: it waits for nothing."""
    there = Future.done(pending) and not pending.cancelled()
    error = Future.exception(pending, 0) if there else None
    results = Future.result(pending, 0) if there and error is None else None
    state = "cancelled" if pending.cancelled() else "failed" if error is not None else "done" if pending.done() else "running"
    facts = [("state", state), ("error", f"{type(error).__name__}: {error}" if error is not None else ""), ("results", "" if there else "result() gives them")]
    return card("Pending", pending.title, facts, _results(results) if isinstance(results, Mapping) else Markup(""))


def timed_html(timed: Timed) -> str:
    """Where the time of a dispatch went, and its results."""
    rows = [("in all", timed.wall_ns), ("until enqueued", timed.enqueue_ns), ("from there", timed.wait_ns)]
    rows += [] if timed.device_ns is None else [("of it on the device", timed.device_ns)]
    return card("Timed", shown_ns(timed.wall_ns), (), bars([(name, taken, shown_ns(taken)) for name, taken in rows]), _results(timed.results))
