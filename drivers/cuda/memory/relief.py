"""What happens when a call of the driver finds no memory: memory that is kept for speed is freed step by step, and the call is repeated after each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import OutOfMemory

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["NO_MEMORY", "NUMBER", "Relief", "exhausted"]

NO_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"
NUMBER: Final = 2  # that status as the driver has it


def exhausted(context: Context, doing: str, asked: int, held: int, budget: int | None, meaning: str, over_budget: bool) -> OutOfMemory:
    """The error for memory that is not to be had, with figures in bytes; `meaning` says why where the driver was not asked, or does not say enough."""
    status, *figures = context.cuda.cuMemGetInfo()
    free, total = (0, 0) if status else map(int, figures)
    cause, remedy = "buffers of this process, or of another on the same device", "free buffers, call device.trim(), or ask for less"
    if over_budget:
        meaning = f"the budget of device.memory.limit_bytes is {budget}"
        cause, remedy = "buffers of this process", "free buffers, ask for less, or raise the budget"
    return OutOfMemory(
        doing, status="" if meaning else f"{NO_MEMORY} ({NUMBER})", meaning=meaning or "the device has too little free memory", cause=cause, remedy=remedy,
        asked=asked, free=free, held=held, limit=total if budget is None else budget,
    )  # fmt: skip


class Relief:
    """The steps of one device. Attributes: `steps`, functions that free memory, the cheapest first; `on_retry`, which counts.

    A step waits for our stream, so none is taken while it is being captured.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.steps: list[Callable[[], None]] = []
        self.on_retry: Callable[[], None] = lambda: None
        self._climbed = threading.local()

    def attempt(self, call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The last result of a call of the driver. Raises what a step raises: a step that waits for the device may raise the error of a kernel."""
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
