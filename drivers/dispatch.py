"""One dispatch, from arguments that fit to results: staging, launching once or to a fixpoint, waiting, collecting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.binding import BindingPlan
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError, DispatchTimeout, KernelAssertion
from vyre_py.drivers.launch import EmptyLaunch, Launch
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.observe.trace import tracing
from vyre_py.drivers.observe.traced import launch_facts
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.public import public
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.stages import shown_ns

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

if TYPE_CHECKING:
    from vyre_py.ir.text import lexer
else:
    (lexer,) = deferred("vyre_py.ir.text", "lexer")

__all__ = ["Run", "Timed"]


@public
@dataclass(frozen=True, slots=True)
class Timed:
    """The result of a timed dispatch: `results` by name, and nanoseconds. `wall_ns` from the call to the results; `enqueue_ns` of it until the
    kernel was enqueued, copies of arguments included; `wait_ns` from there to the results; `device_ns` between the kernel's start and its end as
    the device's own clock has it, None where the device has none."""

    results: dict[str, Any]
    wall_ns: int
    enqueue_ns: int
    wait_ns: int
    device_ns: int | None

    def __reduce__(self) -> tuple[Any, ...]:
        return Timed, (self.results, self.wall_ns, self.enqueue_ns, self.wait_ns, self.device_ns)

    def __repr__(self) -> str:
        device = "" if self.device_ns is None else f", {shown_ns(self.device_ns)} on the device"
        return (
            f"<Timed: {shown_ns(self.wall_ns)} in all, {shown_ns(self.enqueue_ns)} until enqueued, {shown_ns(self.wait_ns)} from there{device}; "
            f"results {', '.join(map(lexer.written_name, self.results)) or 'none'}>"
        )

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import timed_html

        return timed_html(self)


class Run:
    """One dispatch. Made, everything is staged and bound; `finish` has to be called in the end."""

    def __init__(self, pipeline: Pipeline, binding: BindingPlan, config: DispatchConfig, out: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.binding = binding
        self.config = config
        self.out = out
        self._check()
        self.staged = self._stage()
        try:
            self.launch: Launch = pipeline._launch(binding, config)
        except BaseException:
            self.finish()
            raise

    def _check(self) -> None:
        """Raises Unsupported for a time limit on code that can't be stopped, BindingError for a fixpoint over no writeable buffer of integers."""
        config = self.config
        ends = self.pipeline.device.ends_kernels
        if config.timeout is not None and ends and not all(step.interruptible for step in self.pipeline.part.steps):
            help_ = "compile with CompileOptions(interruptible=True), or use an Executor, whose worker can be ended"
            raise Unsupported(self.pipeline.device.name, [Missing(f"timeout={config.timeout} for {self.pipeline.name!r}", help=help_)])
        if config.fixpoint is not None:
            flags = {m.name: m for m in self.binding.interface.buffers if m.access.writes and m.type.is_integer and not m.type.is_vector}
            if config.fixpoint not in flags:
                those = ", ".join(map(lexer.written_name, flags)) or "none"
                raise BindingError(self.pipeline.name, [f"fixpoint {config.fixpoint!r} is not a written buffer of integers; those are {those}"])

    def _stage(self) -> dict[str, Buffer]:
        """Resident buffers for host arguments and omitted outputs, entered into the binding; all or none."""
        binding, device = self.binding, self.pipeline.device
        staged: dict[str, Buffer] = {}
        try:
            for memory in binding.interface.buffers:
                if memory.name in binding.buffers:
                    continue
                if memory.name in binding.host:
                    staged[memory.name] = device._stage(binding.host[memory.name], binding.shapes[memory.name], memory.type)
                else:
                    staged[memory.name] = device.allocate(binding.shapes[memory.name], memory.type)
        except BaseException:
            for buffer in staged.values():
                buffer.free()
            raise
        binding.buffers.update(staged)
        return staged

    def start(self) -> None:
        """Enqueues the kernel, on the stream that the config asks for, and waits where the config needs it: for a fixpoint, or within a time."""
        if self.config.fixpoint is not None:
            self._repeat(self.binding.buffers[self.config.fixpoint])
            return
        self._launch(None if self.config.timeout is None else time.monotonic() + self.config.timeout)

    def _repeat(self, flag: Buffer) -> None:
        """Launches until the flag, cleared before each launch, stays zero, or as often as is allowed."""
        deadline = None if self.config.timeout is None else time.monotonic() + self.config.timeout
        limit, turns = self.config.fixpoint_limit, 0
        while limit is None or turns < limit:
            flag.fill(0)
            self._launch(deadline)
            turns += 1
            if not flag.read().any():
                return

    def _launch(self, deadline: float | None) -> None:
        """Enqueues the kernel; with a deadline, waits for it."""
        if deadline is None or isinstance(self.launch, EmptyLaunch):
            self.launch()
        else:
            try:
                self.pipeline.device._run_by(self.launch, deadline, self.config.timeout or 0.0)
            except DispatchTimeout as error:
                if self.pipeline.device.ends_kernels:  # else it runs on, and looking at what it told would wait for it
                    try:
                        self.settle()
                    except KernelAssertion as failed:
                        error.add_note(str(failed))
                raise

    def collect(self) -> dict[str, Any]:
        """Waits, and gives the written buffers by name: those that were staged as arrays, resident ones as themselves."""
        results: dict[str, Any] = {}
        for memory in self.binding.interface.buffers:
            if memory.access.writes:
                name = memory.name
                results[name] = self.staged[name].read(self.out.get(name)) if name in self.staged else self.binding.buffers[name]
        if all(name not in self.staged for name in results):
            self.pipeline.device.synchronize()
        self.settle()
        return results

    def settle(self) -> None:
        """Shows what the launch printed, and raises KernelAssertion where an assert of it failed; what it read may be of no value (`Reports.doubt`)."""
        self.pipeline.device.reports.require_trust()
        if self.launch.plan.report is not None:
            self.launch.plan.report.report.settle()

    def finish(self) -> None:
        """Gives what was staged back, once the device is done with it."""
        for buffer in self.staged.values():
            buffer.free()

    def whole(self) -> dict[str, Any]:
        """Runs, waits, and gives the results."""
        try:
            self.start()
            return self.collect()
        finally:
            self.finish()

    def timed(self, begin_ns: int) -> Timed:
        """Runs, waits, and says how long each part took, since a time by `time.perf_counter_ns`."""
        device = self.pipeline.device
        try:
            device_time: Callable[[], int | None] = device._timed(self.launch, self.start)
            enqueued = time.perf_counter_ns()
            results = self.collect()
            device_ns = device_time()
        finally:
            self.finish()
        end = time.perf_counter_ns()
        telemetry = device.telemetry
        telemetry.timed_dispatches += 1
        telemetry.wall_ns += end - begin_ns
        if device_ns is not None:
            telemetry.timed_with_device += 1
            telemetry.device_ns += device_ns
            if (traces := tracing()) is not None:
                facts = launch_facts(self.launch.plan, self.pipeline._program)
                # The device's clock and the host's have no beginning in common: the span is put where the kernel was enqueued.
                traces.span(self.pipeline.name, "device", enqueued, enqueued + device_ns, f"{device.name} kernels", facts, device)
        return Timed(results, end - begin_ns, enqueued - begin_ns, end - enqueued, device_ns)
