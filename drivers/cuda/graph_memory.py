"""Memory of a captured graph: nodes that allocate and free it at each replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vyre_py.drivers.resident import Allocation

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.recorder import Recorder

__all__ = ["GraphMemory"]


class GraphMemory(Allocation):
    """Memory that is there from one node of a graph to another. Its address is always the same; nothing outside of the graph may use it."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder, address: int, size_bytes: int) -> None:
        super().__init__(recorder.device, address, size_bytes, recycle=lambda handle, size: True)  # the graph gives it back
        self._recorder: Recorder | None = recorder

    def free(self) -> None:
        """Frees it here, as a node of the graph; again is quiet. Raises LaunchError in a thread that does not capture."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.release(self)
        super().free()

    def abandon(self) -> None:
        """After the capture has failed: nobody may use it any more."""
        self._recorder = None
        super().free()
