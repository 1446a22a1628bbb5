"""Launches that traces see, made at bind while one runs: other launches know nothing of traces."""

from __future__ import annotations

from typing import Any, Self

from vyre_py.drivers.launch import Launch
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.observe.trace import tracing

__all__ = ["TracedLaunch"]


class TracedLaunch(Launch):
    """A launch around another one of the same plan, which shows each call as a span as long as a trace runs."""

    __slots__ = ("_args", "_launch", "_name")

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch.plan)
        plan = launch.plan
        self._launch = launch
        self._name = plan.label or plan.binding.interface.name
        self._args = {"program": plan.binding.interface.name, "grid": "x".join(map(str, plan.grid))}

    def __call__(self) -> None:
        """Enqueues the kernel."""
        if (traces := tracing()) is None:
            self._launch()
            return
        with traces.range(self._name, "launch", self.plan.device, self._args):
            self._launch()

    def set(self, arguments: Any = None, /, **named: Any) -> Self:
        """Rebinds params or buffers, as `Launch.set` does."""
        self._launch.set(arguments, **named)
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
