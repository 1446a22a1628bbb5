"""Pipelines: loaded code, ready to bind and dispatch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.binding import BindingPlan, bind_arguments, too_wide
from vyre_py.drivers.cache.known_plans import KnownPlans
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.dispatch import Run, Timed
from vyre_py.drivers.launch import EmptyLaunch, Launch
from vyre_py.drivers.many.stepped import SteppedLaunch, plan_steps
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Host
from vyre_py.drivers.observe.trace import spanned, tracing
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.public import public
from vyre_py.ir.travel import Portable, made_by
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Part
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.stages import Stages

if TYPE_CHECKING:
    from vyre_py.drivers.callable import CallEntry
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.pending import Pending
    from vyre_py.ir.language.program import Program
    from vyre_py.lowering.options import CompileOptions

if TYPE_CHECKING:
    from vyre_py.drivers.observe import traced
else:
    (traced,) = deferred("vyre_py.drivers.observe", "traced")

__all__ = ["Pipeline"]

# Options that say how to wait for a launch, or what its results may be: a bound launch does neither.
_OF_DISPATCHES: Final = frozenset({"timeout", "fixpoint", "fixpoint_limit", "max_output_bytes"})


@public
class Pipeline(Portable):
    """A Program compiled for a device and loaded. Immutable; use it from any thread.

    Attributes: `device`, `artifact` and its `part` for this device, `numerics` that the code follows ("strict", "fast" or "native"), `report`
    of what the passes did, `stages` that compiling and loading took, with their times.
    """

    __slots__ = ("__weakref__", "_codes", "_known", "_prepared", "_reads", "_source", "_wide", "artifact", "device", "part", "stages")

    def __init__(self, device: Device, artifact: Artifact, part: Part, codes: tuple[tuple[Any, ...], ...], stages: Stages) -> None:
        self.device = device
        self.artifact = artifact
        self.part = part
        self._codes = codes
        self.stages = stages
        self._source: tuple[Program, CompileOptions] | None = None  # where the device compiled it
        self._wide: Pipeline | None = None  # what takes arrays of 2^32 elements and more, where this does not, made when such are bound first
        self._reads: Pipeline | None = None  # what reads its grid from a buffer, which may be this one, once such a grid was bound
        self._prepared = device._dispatcher(self)
        self._known = KnownPlans(device, artifact.interface, part.steps[0]) if len(part.steps) == 1 else None

    @property
    def name(self) -> str:
        """The Program's name."""
        return self.artifact.interface.name

    @property
    def raw(self) -> Any:
        """The device library's own handles of the loaded code: on CUDA `module` and `function` as integers."""
        return self.device._raw_code(self._codes[-1][-1])

    @property
    def _program(self) -> Program | None:
        """The Program, where the device compiled it here."""
        return None if self._source is None else self._source[0]

    @property
    def numerics(self) -> str:
        """Which rules the code's floating point follows."""
        return self.part.numerics

    @property
    def report(self) -> Mapping[str, int]:
        """Counts of what the passes did; of machine code for NVIDIA GPUs also "registers", "spill_store_bytes" and what else the assembler
        says, and "workgroup_bytes", with those that the launch gives; of products of floats by tensor cores how these add: "tensor_bf16_at_once" products
        in order of k, cut at "tensor_bf16_bits" below the greatest, of whose sum "tensor_bf16_kept" bits are kept; "tensor_f16_to_f16_kept" of sums of f16."""
        return self.part.report

    def __reduce__(self) -> tuple[Any, ...]:
        return made_by(Pipeline._opened, self.device.kind, self.artifact, self._source)

    @classmethod
    def _opened(cls, kind: str, artifact: Artifact, source: tuple[Program, CompileOptions] | None) -> Pipeline:
        """A pipeline that came from elsewhere, on the first device of its kind here: its code, and where that does not fit its Program,
        compiled again. What it was compiled from stays with it. Raises what `vyre_py.device`, `load` and `compile_native` raise."""
        with importing:
            from vyre_py.drivers.registry import device  # few pipelines travel

        here = device(kind)
        try:
            arrived = here.load(artifact)
        except Unsupported:  # another CPU or GPU than that which it was compiled for
            if source is None:
                raise
            return here.compile_native(*source)
        arrived._source = source
        return arrived

    def _identity(self) -> Any:
        return self.device.kind, self.artifact

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return self is other or (self.device is other.device and self.artifact == other.artifact)

    def __hash__(self) -> int:
        return hash((self.device.name, self.artifact.code_digest, self.artifact.interface_digest))

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import pipeline_html

        return pipeline_html(self)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r} on {self.device.name}>"

    @spanned("bind", lambda pipeline: {"program": pipeline.name})
    def bind(self, arguments: Any = None, /, *, config: DispatchConfig | None = None, **named: Any) -> Launch:
        """A launch over resident buffers and scalars, given as one mapping or sequence and keywords. What another library holds on the device is taken as it
        is; on the CPU that is also NumPy's arrays and whatever has the buffer protocol. Over a grid of no workgroups the launch does nothing.

        Raises BindingError with every mismatch; Unsupported for a config that the device can't honour, and for options of a dispatch as a whole.
        """
        self.device.require_usable()
        if config is None and self._known is not None and (plan := self._known.find(arguments, named)) is not None:
            self.device.telemetry.binds += 1
            return self._traced(self.device._make_launch(plan, self._codes[0]))
        known = self._known if config is None else None
        config = self._config(config)
        config.refuse(f"a bound launch on {self.device.name}", self.device.honoured_options - _OF_DISPATCHES)
        binding = bind_arguments(self.device, self.artifact.interface, arguments, named, staged=False)
        launch = self._launch(binding, config)
        if launch.plan.report is not None:
            self.device.reports.watch(launch.plan.report)
        if known is not None and launch.plan.step is self.part.steps[0]:
            known.learn(launch.plan, arguments, named)
        return launch

    def callable(self) -> CallEntry:
        """The pipeline as a function of arguments of any shapes, `entry(x, y, a=2.0)`: each call is a bind and a launch, planned in native code on the CPU
        and on CUDA. Make it once, and keep it. Raises ToolchainError there where llvmlite cannot be loaded."""
        self.device.require_usable()
        return self.device._callable(self)

    def _config(self, config: DispatchConfig | None) -> DispatchConfig:
        config = DispatchConfig.given(config)
        config.refuse(self.device.name, self.device.honoured_options)
        return config

    def _launch(self, binding: BindingPlan, config: DispatchConfig) -> Launch:
        if isinstance(config.grid, Buffer) and not self.part.steps[-1].indirect and (reading := self._reading()) is not self:
            return reading._launch(binding, config)
        if binding.interface.wide and (wide := self._widened(binding)) is not None:
            return wide._launch(binding, config)
        plans = plan_steps(self.device, self.part.steps, binding, config)
        self.device.telemetry.binds += 1
        if plans[-1].empty:
            return EmptyLaunch(plans[-1])
        launches = [self.device._make_launch(plan, codes) for plan, codes in zip(plans, self._codes, strict=True)]
        launch = launches[0] if len(launches) == 1 else SteppedLaunch(launches)
        if config.stream is not None:
            launch.on(config.stream)
        return self._traced(launch)

    def _reading(self) -> Pipeline:
        """The pipeline for grids that are buffers. Raises what `Device._reading` raises."""
        if self._reads is None:
            self._reads = self.device._reading(self)
        return self._reads

    def _widened(self, binding: BindingPlan) -> Pipeline | None:
        """The pipeline for arrays that are too large for this one's code; None where they are not, or there is none."""
        if not self.device.takes_wide or not any(too_wide(step.layout, binding, self.device) for step in self.part.steps):
            return None
        if self._wide is None:
            self._wide = self.device._widen(self)
        return self._wide

    def _traced(self, launch: Launch) -> Launch:
        return launch if tracing() is None or self.device.observes_launches else traced.TracedLaunch(launch, self._program)

    @spanned("dispatch", lambda pipeline: {"program": pipeline.name})
    def dispatch(
        self, arguments: Any = None, /, *, config: DispatchConfig | None = None, out: Mapping[str, Host] | None = None, **named: Any
    ) -> dict[str, Any]:
        """Runs once over host arrays (never changed) and resident buffers, waits, and gives the written buffers by name.

        A buffer that is only written may be left out. A written host argument comes back as a new array, or in `out[name]`, which is written in place and
        shares memory with no other result and no other argument; a written resident buffer comes back as itself. Raises BindingError with every mismatch,
        and then nothing was run.
        """
        if self._prepared is not None and config is None and out is None:
            self.device.require_usable()
            results: dict[str, Any] | None = self._prepared.run(arguments, named)
            if results is not None:
                return results
        return self.device._whole(self._run(arguments, named, config, out))

    def _run(self, arguments: Any, named: Mapping[str, Any], config: DispatchConfig | None, out: Mapping[str, Host] | None) -> Run:
        """One dispatch, staged and bound, and counted."""
        self.device.require_usable()
        self.device.require_no_capture(f"{self.name!r} cannot be dispatched on {self.device.name}")
        config = self._config(config)
        binding = bind_arguments(self.device, self.artifact.interface, arguments, named, staged=True, out=out, max_output_bytes=config.max_output_bytes)
        self.device.telemetry.dispatches += 1
        return Run(self, binding, config, out or {})

    def measure(self, arguments: Any, rounds: int, config: DispatchConfig | None = None, out: Mapping[str, Host] | None = None) -> list[float]:
        """`dispatch`, whose results go to `out`, and then nanoseconds a launch in each of so many rounds of launches over the same memory, so that what is
        both read and written goes on changing. Raises what `dispatch` raises."""
        with importing:
            from vyre_py.drivers.observe.rounds import measured  # for the command line

        run = self._run(arguments, {}, config, out)
        try:
            run.start()
            run.collect()
            taken, _ = measured(run.launch, self.device.synchronize, rounds)
            run.settle()
        finally:
            run.finish()
        return taken

    @spanned("submit", lambda pipeline: {"program": pipeline.name})
    def submit(
        self, arguments: Any = None, /, *, config: DispatchConfig | None = None, out: Mapping[str, Host] | None = None, **named: Any
    ) -> Pending:
        """Starts what `dispatch` does, and gives a pending result at once: `done()`, `result(timeout)`, `await`.

        Arguments were copied when this returns; they may be changed then. Raises what `dispatch` raises for arguments that do not fit; what goes wrong
        later is raised by the result.
        """
        run = self._run(arguments, named, config, out)
        self.device.telemetry.submits += 1
        return self.device._submit(run)

    @spanned("dispatch", lambda pipeline: {"program": pipeline.name, "timed": "yes"})
    def dispatch_timed(
        self, arguments: Any = None, /, *, config: DispatchConfig | None = None, out: Mapping[str, Host] | None = None, **named: Any
    ) -> Timed:
        """`dispatch`, with the time that each part took. Raises what `dispatch` raises."""
        begin = time.perf_counter_ns()
        return self._run(arguments, named, config, out).timed(begin)
