"""What is done when the driver has no memory, whatever it was asked for: what is kept for speed is given back, a step at a time, and the call made again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["NO_MEMORY", "Relief"]

NO_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"


class Relief:
    """The steps of one device. Attributes: `steps`, what gives memory back, the least first; `on_retry`, which counts.

    A step waits for our stream, so none is taken while somebody captures it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.steps: list[Callable[[], None]] = []
        self.on_retry: Callable[[], None] = lambda: None
        self._climbed = threading.local()

    def attempt(self, call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What a call of the driver gives, in the end. Raises what giving back raises: whoever waits for the device may be told that a kernel failed."""
        given = call()
        for step in self.steps:
            if not given[0] or given[0].name != NO_MEMORY or not self._taken(step):
                break
            given = call()
        return given

    def resume(self, resume: Callable[[], object]) -> bool:
        """Makes a native call again after the next step, and comes here again if there is still no memory; false where there is nothing left to give."""
        climbed = getattr(self._climbed, "steps", 0)
        if climbed == len(self.steps) or not self._taken(self.steps[climbed]):
            return False
        self._climbed.steps = climbed + 1
        try:
            resume()
        finally:
            self._climbed.steps = climbed
        return True

    def _taken(self, step: Callable[[], None]) -> bool:
        context = self._context
        context.busy.value += 1  # no capture begins meanwhile
        try:
            if context.capture is not None:
                return False
            with context.entered():
                step()
        finally:
            context.busy.value -= 1
        self.on_retry()
        return True
