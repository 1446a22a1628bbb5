"""Pipelines: loaded code, ready to bind and dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vyre_py.drivers.binding import BindingPlan, bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.hostarray import Host, takes
from vyre_py.drivers.launch import EmptyLaunch, Launch, plan_launch
from vyre_py.drivers.resident import Buffer, host_shape
from vyre_py.ir.errors import shown
from vyre_py.lowering.artifact import Artifact, Part
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Pipeline"]


class Pipeline:
    """A Program compiled for a device and loaded. Immutable; use it from any thread.

    Attributes: `device`, `artifact` and its `part` for this device, `numerics` that the code follows ("strict", "fast" or "native"), `report`
    of what the passes did.
    """

    __slots__ = ("__weakref__", "_codes", "artifact", "device", "part")

    def __init__(self, device: Device, artifact: Artifact, part: Part, codes: tuple[tuple[Any, ...], ...]) -> None:
        self.device = device
        self.artifact = artifact
        self.part = part
        self._codes = codes

    @property
    def name(self) -> str:
        """The Program's name."""
        return self.artifact.interface.name

    @property
    def numerics(self) -> str:
        """Which rules the code's floating point follows."""
        return self.part.numerics

    @property
    def report(self) -> Mapping[str, int]:
        """Counts of what the passes did."""
        return self.part.report

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r} on {self.device.name}>"

    def bind(self, arguments: Any = None, /, *, config: DispatchConfig | None = None, **named: Any) -> Launch:
        """A launch over resident buffers and scalars, given as one mapping or sequence and keywords.

        Raises BindingError with every mismatch; Unsupported for a config that the device can't honour.
        """
        self.device.require_usable()
        config = self._config(config)
        binding = bind_arguments(self.device, self.artifact.interface, arguments, named, staged=False)
        return self._launch(binding, config)

    def _config(self, config: DispatchConfig | None) -> DispatchConfig:
        config = DispatchConfig.given(config)
        config.refuse(self.device.name, self.device.honoured_options)
        return config

    def _launch(self, binding: BindingPlan, config: DispatchConfig) -> Launch:
        (step,), (codes,) = self.part.steps, self._codes
        plan = plan_launch(self.device, step, binding, config)
        self.device.telemetry.binds += 1
        return EmptyLaunch(plan) if plan.empty else self.device._make_launch(plan, codes[plan.entry])

    def dispatch(
        self, arguments: Any = None, /, *, config: DispatchConfig | None = None, out: Mapping[str, Host] | None = None, **named: Any
    ) -> dict[str, Any]:
        """Runs once over host arrays (never changed) and resident buffers, waits, and gives the written buffers by name.

        A buffer that is only written may be left out. A written host argument comes back as a new array, or in `out[name]`, which
        is written in place; a written resident buffer comes back as itself. Raises BindingError with every mismatch, and then
        nothing was run.
        """
        self.device.require_usable()
        config = self._config(config)
        binding = bind_arguments(self.device, self.artifact.interface, arguments, named, staged=True)
        out = {} if out is None else out
        self._check_outputs(binding, config, out)
        staged = self._stage(binding)
        try:
            self._launch(binding, config)()
            return self._collect(binding, out, staged)
        finally:
            for buffer in staged.values():
                buffer.free()

    def _check_outputs(self, binding: BindingPlan, config: DispatchConfig, out: Mapping[str, Any]) -> None:
        if not isinstance(out, Mapping):
            raise BindingError(binding.interface.name, [f"out is a mapping of names to arrays, got {type(out).__name__}"])
        problems: list[str] = []
        written = {m.name: m for m in binding.interface.buffers if m.access.writes}
        for name, array in out.items():
            if name not in written or name in binding.buffers:
                problems.append(f"out[{shown(name)}] names no written host argument")
            elif not takes(array, shape := host_shape(binding.shapes[name], written[name].type), written[name].type.dtype):
                problems.append(f"out[{name!r}] must be a writeable {written[name].type.dtype} array of shape {list(shape)}")
        total = sum(int(np.prod(binding.shapes[n], dtype=object)) * m.type.size_bytes for n, m in written.items() if n not in binding.buffers)
        if config.max_output_bytes is not None and total > config.max_output_bytes:
            problems.append(f"the outputs take {total} bytes; max_output_bytes is {config.max_output_bytes}")
        if problems:
            raise BindingError(binding.interface.name, problems)

    def _stage(self, binding: BindingPlan) -> dict[str, Buffer]:
        """Resident buffers for host arguments and omitted outputs, entered into the binding; all or none."""
        staged: dict[str, Buffer] = {}
        try:
            for memory in binding.interface.buffers:
                if memory.name in binding.buffers:
                    continue
                staged[memory.name] = self.device.allocate(binding.shapes[memory.name], memory.type)
                if memory.name in binding.host:
                    staged[memory.name].write(binding.host[memory.name])
        except BaseException:
            for buffer in staged.values():
                buffer.free()
            raise
        binding.buffers.update(staged)
        return staged

    def _collect(self, binding: BindingPlan, out: Mapping[str, Any], staged: Mapping[str, Buffer]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for memory in binding.interface.buffers:
            if memory.access.writes:
                name = memory.name
                results[name] = staged[name].read(out.get(name)) if name in staged else binding.buffers[name]
        if all(name not in staged for name in results):
            self.device.synchronize()
        return results

    # ---- named by the contract, and refused by name

    def _lacks(self, what: str) -> NoReturn:
        raise Unsupported(self.device.name, [Missing(what)])

    def submit(self, arguments: Any = None, /, **named: Any) -> Any:
        """A pending dispatch: done, result(timeout), await."""
        self._lacks("submit")

    def dispatch_timed(self, arguments: Any = None, /, **named: Any) -> Any:
        """A dispatch with wall, device, enqueue and wait times."""
        self._lacks("timed dispatch")
