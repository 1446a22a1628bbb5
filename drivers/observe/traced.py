"""Launches that traces see, made at bind while one runs: other launches know nothing of traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import decode_params
from vyre_py.drivers.observe.trace import tracing
from vyre_py.ir.imports import importing

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program

__all__ = ["TracedLaunch", "launch_facts"]


def launch_facts(plan: LaunchPlan, program: Program | None) -> dict[str, Any]:
    """What traces say of a launch: where it runs, its grid, the bytes of its buffers, once for each way that they are accessed, and the operations of its
    Program where that is known and tells them."""
    with importing:
        from vyre_py.drivers.observe.work import work_of

    interface, buffers = plan.binding.interface, plan.buffers
    ways = [(buffers[memory.name].size_bytes, memory.access.reads + memory.access.writes) for memory in interface.buffers if memory.name in buffers]
    facts = {"program": interface.name, "device": plan.device.name, "grid": "x".join(map(str, plan.grid)), "bytes": sum(size * times for size, times in ways)}
    if program is not None and plan.grid_buffer is None:
        work = work_of(program, plan.binding.sizes, decode_params(plan.step.layout, plan.block))
        facts |= {} if work.uncounted else {"operations": work.total}
    return facts


class TracedLaunch(Launch):
    """A launch around another one of the same plan, which shows each call as a span as long as a trace runs."""

    __slots__ = ("_args", "_launch", "_name", "_program")

    def __init__(self, launch: Launch, program: Program | None) -> None:
        super().__init__(launch.plan)
        plan = launch.plan
        self._launch, self._program = launch, program
        self._name = plan.label or plan.binding.interface.name
        self._args: dict[str, Any] | None = None  # not yet known, or changed since

    def __call__(self) -> None:
        """Enqueues the kernel."""
        if (traces := tracing()) is None:
            self._launch()
            return
        if self._args is None:
            self._args = launch_facts(self.plan, self._program)
        with traces.range(self._name, "launch", self.plan.device, self._args):
            self._launch()

    def set(self, arguments: Any = None, /, **named: Any) -> Self:
        """Rebinds params or buffers, as `Launch.set` does."""
        self._launch.set(arguments, **named)
        self._args = None
        return self

    def on(self, stream: Any) -> Self:
        """The launch, enqueued on another stream from now on."""
        self._launch.on(stream)
        return self

    @property
    def inner(self) -> Launch:
        """The launch that this one is around."""
        return self._launch.inner

    def _bound(self) -> dict[str, Buffer]:
        return self._launch._bound()
