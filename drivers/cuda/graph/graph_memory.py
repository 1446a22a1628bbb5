"""Memory of a captured graph: nodes that allocate it, and free it, at each replay."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import BindingError, LaunchError
from vyre_py.drivers.memory.allocation import Allocation

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.graph.graph import Replay
    from vyre_py.drivers.cuda.graph.recorder import CudaRecorder

__all__ = ["GraphMemory", "LeftMemory", "Nodes"]

_OWNER: Final = "a graph: its next replay frees it, and so does graph.close()"


class GraphMemory(Allocation):
    """Memory that a node of a graph allocates. Its address is always the same.

    Memory that the captured function frees exists from one node to another, for the graph only. Memory that it leaves exists from one replay to the next,
    which frees it and allocates it anew. Outside the graph it may be used on the device's own stream only: that orders its uses with the replays.
    """

    __slots__ = ("_node", "_recorder", "_replay", "forked")

    def __init__(self, device: CudaDevice, recorder: CudaRecorder, address: int, size_bytes: int) -> None:
        self._node = node = object()
        nodes = device.memory.nodes
        super().__init__(device, address, size_bytes, recycle=lambda handle, size: nodes.free(node))
        self._recorder: CudaRecorder | None = recorder
        self._replay: weakref.ref[Replay] | None = None
        self.forked = False

    @property
    def freed(self) -> bool:
        """Whether it may not be used now."""
        return not self.alive.value

    @property
    def absence(self) -> str:
        """Why it may not be used now."""
        return super().absence if self._unwanted else "is memory of a graph that was not replayed yet: replay that first"

    @property
    def transient(self) -> bool:
        """See `Allocation.transient`; within the capture it is as any other."""
        return self._recorder is None

    def fork(self, doing: str) -> None:
        """Notes that another stream is to use it, as part of the capture. Raises LaunchError after that."""
        if self.transient:
            raise LaunchError(
                doing, cause="memory of a graph, which a replay frees, is used in the order of the device's own stream", remedy="copy it to another buffer"
            )
        self.forked = True

    def free(self) -> None:
        """Frees it here, as a node of the graph, or after the capture for good; again is quiet. Raises LaunchError in a thread that does not capture."""
        if self._recorder is not None and not self._unwanted:
            self._recorder.release(self)
        super().free()

    def seal(self, left: bool) -> None:
        """The capture has ended: from now on it may be used only after a replay that left it, or never."""
        self._recorder = None
        self.alive.value = 0
        if left and not self._unwanted:
            self.owner = _OWNER
        else:
            super().free()

    def belong(self, replay: Replay) -> None:
        """Tells whose replays free it."""
        self._replay = weakref.ref(replay)

    def arrive(self, device: CudaDevice) -> None:
        """A replay was enqueued, and leaves it there."""
        device.memory.nodes.keep(self._node, self.handle, self.size_bytes)
        self.alive.value = 1

    def depart(self, device: CudaDevice) -> None:
        """Frees what a replay left, behind what is enqueued."""
        self.alive.value = 0
        device.memory.nodes.free(self._node)

    @contextmanager
    def held(self) -> Iterator[None]:
        """See `Allocation.held`: replays of other threads wait."""
        replay = None if self._replay is None else self._replay()
        if replay is None:  # the graph is gone, and its last replay's memory is the buffer's
            with super().held():
                yield
            return
        with replay.still():
            if self.freed:
                raise BindingError("buffer", [f"the buffer {self.absence}"])
            yield


class Nodes:
    """The memory that graphs of one device allocate, which is in no pool of ours."""

    def __init__(self, context: Context, pool: Any, free: Callable[[int], None]) -> None:
        """`pool` is the driver's pool, None without one; `free` frees an address in the order of our stream."""
        self._context, self._pool, self._free = context, pool, free
        self._there: dict[object, tuple[int, int]] = {}  # address and size, by the allocation's own key: addresses come again
        self._any = False

    @property
    def there_bytes(self) -> int:
        """The bytes that replays have left."""
        return sum(size for _, size in self._there.values())

    def ask(self, size_bytes: int, doing: str) -> tuple[Any, ...]:
        """An address from the driver, as a node of the graph that is being captured. Raises LaunchError where the driver has no such memory."""
        if self._pool is None:
            raise LaunchError(doing, cause="the driver has no pools of memory", remedy="allocate before the capture")
        self._any = True
        given: tuple[Any, ...] = self._context.cuda.cuMemAllocFromPoolAsync(size_bytes, self._pool, self._context.stream)
        return given

    def keep(self, key: object, address: int, size_bytes: int) -> None:
        """Takes note of memory that a replay leaves there."""
        self._there[key] = (address, size_bytes)

    def free(self, key: object) -> bool:
        """Frees it, if it exists. Always true: the caller need not free anything."""
        if node := self._there.pop(key, None):
            self._free(node[0])
        return True

    def drain(self) -> list[int]:
        """The addresses of what is there, for an owner that frees it."""
        addresses = [address for address, _ in self._there.values()]
        self._there.clear()
        return addresses

    def now(self, what: str) -> int:
        """The driver's figure for memory of graphs in bytes, of other libraries in this process too: USED_MEM_CURRENT or RESERVED_MEM_CURRENT. 0 as long as
        no graph of ours has any, and while the driver cannot be asked."""
        context, cuda = self._context, self._context.cuda
        if not self._any or not context.usable or context.capture is not None:
            return 0
        with context.visited():
            status, *value = cuda.cuDeviceGetGraphMemAttribute(context.device, getattr(cuda.CUgraphMem_attribute, f"CU_GRAPH_MEM_ATTR_{what}"))
        return int(value[0]) if context.note((status,), f"{context.name} does not say what graphs have") else 0

    def trim(self) -> None:
        """Gives what no graph uses now back to the system. Raises DriverError."""
        context = self._context
        if self._any:
            context.ok(context.cuda.cuDeviceGraphMemTrim(context.device), f"{context.name} cannot trim the memory of graphs")


class LeftMemory:
    """All memory that the replays of one graph leave. False without any. Attribute: `there`, whether a replay has left it."""

    def __init__(self, device: CudaDevice, replay: Replay, members: Sequence[GraphMemory]) -> None:
        self._device, self._members, self.there = device, tuple(members), False
        for one in self._members:
            one.belong(replay)

    def __bool__(self) -> bool:
        return bool(self._members)

    def arrive(self) -> None:
        """A replay was enqueued."""
        for one in self._members:
            one.arrive(self._device)
        self.there = True

    def depart(self) -> None:
        """Frees what the last replay left; the next one leaves it there again. Quiet where nothing is there."""
        self.there = False
        for one in self._members:
            one.depart(self._device)

    def end(self) -> None:
        """Frees it for good."""
        for one in self._members:
            one.free()
