"""Calls of a pipeline with any arguments: bound and launched at once, in native code where a device has that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CallEntry"]


@public
class CallEntry(Stationary):
    """A pipeline as a function, made by `pipeline.callable()`: `entry(x, y, a=2.0)` binds arguments of any shapes and launches, once.

    Arguments go as for `bind`, buffers before params in order of declaration, or by name. On the CPU device NumPy's arrays and Buffers go to native code, which
    keeps the rules of `bind`; whatever else there is, and all that breaks a rule, goes to `bind` itself. Any number of threads may call it.

    Attribute: `pipeline`.
    """

    travels_as = "send the pipeline, and ask it for callable() there"

    __slots__ = ("__weakref__", "_lacks", "pipeline")

    def __init__(self, pipeline: Pipeline, lacks: str = "") -> None:
        self.pipeline = pipeline
        self._lacks = lacks

    def __repr__(self) -> str:
        return f"<CallEntry of {self.pipeline!r}>"

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Runs the Program, as `pipeline.bind(arguments, **named)()`, and raises what that raises."""
        self._general(arguments, named)

    @property
    def c_address(self) -> int:
        """The address of the function as C sees it, a `vyre_callable_t` of `vyre.h`, for as long as this object lives.

        Raises Unsupported on devices and for Programs that have none: their launches need more than arguments.
        """
        raise Unsupported(self.pipeline.device.name, [Missing(self._lacks or "callable().c_address", help="bind, and launch.c_address")])

    def _general(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.pipeline.bind(arguments or None, **named)()
