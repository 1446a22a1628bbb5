"""Stream capture: our compute stream while a function runs, as nodes of a graph.

During a capture the mode word sends every native call to its handler, and the handler records it here. The call is made on the capturing stream, where it
does not run but becomes a node; the stream's next work depends on that node. Work that other libraries enqueue on the stream becomes nodes by itself.
The capture is local to the thread: calls that could wait for the device fail in this thread, and in no other.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection
from math import prod
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.cuda.graph.graph_memory import GraphMemory
from vyre_py.drivers.cuda.graph.sequence import command_of
from vyre_py.drivers.cuda.launch.launch import BoundKernel
from vyre_py.drivers.cuda.native.call_list import LAUNCH_EX, Call
from vyre_py.drivers.cuda.native.command_list import CommandList, Guard, NativeCommand, perform
from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, LaunchError
from vyre_py.drivers.many.commands import REPLAY, Command, CommandView, command_view, freed_names
from vyre_py.drivers.many.graph import Recording, empty_capture
from vyre_py.drivers.memory.allocation import Allocation
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.graph.graph import Replay

__all__ = ["CudaRecorder", "KernelNode", "node_count", "part_view"]


class _NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2, as the driver's header declares it."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("grid", ctypes.c_uint32 * 3), ("workgroup", ctypes.c_uint32 * 3), ("workgroup_bytes", ctypes.c_uint32),
        ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p),
    )  # fmt: skip


def _one_by_one(kernel: BoundKernel, base: int) -> ctypes.Array[ctypes.c_void_p]:
    """The address of each argument in a kernel's block, which begins at `base`."""
    slots = kernel.plan.step.layout.slots
    return (ctypes.c_void_p * max(1, len(slots)))(*[base + slot.offset_bytes for slot in slots])


def _captured(kernel: BoundKernel) -> tuple[Call, Any]:
    """A kernel's call as a capture takes it, and what it reads: of a cooperative launch the driver captures arguments that are given one by one, and none
    that come as a block."""
    call = kernel.call()
    if call.form != LAUNCH_EX:
        return call, None
    pointers = _one_by_one(kernel, kernel.block_address)
    return Call(call.function, (*call.arguments[:2], ctypes.addressof(pointers), 0)), pointers


class KernelNode:
    """A captured launch: its node in the graph, and the arguments that the graph has for it, which later changes of the launch leave alone.

    Attributes: `kernel`, `node` (CUgraphNode), `held`, the buffers that the graph uses, `dirty`: whether the graph it was captured into has older arguments.
    """

    __slots__ = ("_block", "_entry", "_memory", "_parameters", "_pointers", "_within", "dirty", "held", "kernel", "node")

    def __init__(self, kernel: BoundKernel, node: int, memory: Collection[GraphMemory]) -> None:
        """`memory` is all that the graph allocates itself; what there is of it now is there whenever the node runs."""
        self.kernel, self.node = kernel, node
        self._memory, self._within = memory, frozenset(one for one in memory if not one.freed)
        self.held = tuple(kernel.held)
        self.dirty = False
        plan, module = kernel.plan, kernel.module
        self._block = (ctypes.c_char * len(kernel.block)).from_buffer_copy(kernel.block)
        self._pointers = _one_by_one(kernel, ctypes.addressof(self._block))
        self._parameters = _NodeParameters(
            int(module.function), kernel.grid, plan.workgroup, module.workgroup_bytes, ctypes.addressof(self._pointers), None, None, None
        )
        self._entry = plan.entry

    @property
    def parameters(self) -> int:
        """The address of the node's parameters, as the driver takes them."""
        return ctypes.addressof(self._parameters)

    def names(self) -> list[tuple[str, Buffer]]:
        """The buffers that the graph uses and has not allocated itself, by the names of their slots."""
        pairs = zip([slot.name for slot in self.kernel.plan.step.layout.buffers], self.held, strict=True)
        return [(name, buffer) for name, buffer in pairs if buffer.allocation not in self._within]

    def view(self) -> CommandView:
        """What pictures show of it, with the arguments that the graph has."""
        plan = self.kernel.plan
        return plan.view(dict(zip([slot.name for slot in plan.step.layout.buffers], self.held, strict=True)))

    def require_memory(self) -> None:
        """Raises BindingError when a buffer of the launch was freed, or is memory of the graph that is not there at this node."""
        others = {name: buffer for name, buffer in self.kernel.buffers.items() if buffer.allocation not in self._within}
        problems = freed_names(others)
        problems += [f"{name!r} is memory that the graph allocates after this launch" for name, buffer in others.items()
                     if buffer.allocation in self._memory and not buffer.allocation.freed]  # fmt: skip
        if problems:
            raise BindingError(self.kernel.plan.binding.interface.name, problems)

    def update(self) -> bool:
        """Takes the arguments that the launch has now; false if they are the same. Raises what `require_memory` raises."""
        kernel = self.kernel
        self.require_memory()
        with kernel.changing():
            self.held, block, entry = tuple(kernel.held), bytes(kernel.block), kernel.plan.entry
            if entry != self._entry:
                self._parameters.function, self._parameters.grid = int(kernel.module.function), kernel.grid
        if block == self._block.raw and entry == self._entry:
            return False
        self._block.raw, self._entry = block, entry
        self.dirty = True
        return True


def node_count(cuda: Any, graph: Any) -> int:
    """How many nodes a graph has, those of graphs within it not counted; 0 where the driver does not say."""
    status, *_, count = cuda.cuGraphGetNodes(graph, 0)
    return 0 if status else int(count)


def part_view(part: KernelNode | NativeCommand | Replay) -> CommandView:
    """What pictures show of a part of a capture."""
    if isinstance(part, KernelNode):
        return part.view()
    return command_view(part.kind, part.name, part.buffers.items()) if isinstance(part, NativeCommand) else command_view(REPLAY, part.name, part.names())


_REPLACE: Final = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES


class CudaRecorder(Recording):
    """One capture. Attributes: `kernels`, what was launched, in order; `buffers`, what else the graph uses, with names; `kept`, what it keeps alive; `counts`,
    what a replay adds to counters; `guards`, what else has to be there; `parts`, all that was captured, in order; `scratch`, whether a command has memory in
    common with others (`CommandKind`); `memory`, what the graph allocates itself, `left`, what of that the function did not free, and `peak_bytes`, the most
    that is there at once."""

    def __init__(self, device: CudaDevice, loops: bool = False) -> None:
        """`loops` says that what is captured is repeated."""
        super().__init__(device)
        self._device = device
        self.kernels: list[KernelNode] = []
        self.buffers: list[tuple[str, Buffer]] = []
        self.kept: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.guards: list[Guard] = []
        self.parts: list[KernelNode | NativeCommand | Replay] = []
        self.scratch = False
        self.memory: list[GraphMemory] = []
        self.left: list[GraphMemory] = []
        self.peak_bytes = 0
        self._loops = loops

    # ---- what is captured

    def kernel(self, kernel: BoundKernel) -> None:
        """Makes a launch a node. Raises LaunchError for one on a stream that is not part of the capture, and in other threads."""
        doing = f"{kernel.plan.binding.interface.name!r} was not launched on {self.device.name}"
        self.require_own(doing)
        self._require_captured(kernel.stream, doing)
        with kernel.changing():  # the node's buffers are those of the call
            call, _arguments = _captured(kernel)
            perform(self._device, (call,), doing)
            self.kernels.append(KernelNode(kernel, self.last_node(kernel.stream), self.memory))
            self.parts.append(self.kernels[-1])
        self.counts.update(kernel.rows[0].counts, graph_launches=1)
        del self.counts["parameter_bytes"]  # the graph holds them already

    def take(self, what: Command) -> None:
        """Makes a copy, a fill or a product a node."""
        self.require_own(f"{what!r} was not enqueued")
        self.item(command_of(self._device, what))

    def item(self, item: NativeCommand | CommandList) -> None:
        """Makes a part of a list nodes. Raises LaunchError."""
        if isinstance(item, CommandList):
            item.record_into(self)
            return
        doing = f"the {item.name} cannot be captured on {self.device.name}"
        with self._device.context.relaxed(doing):  # a library may load code at its first call
            perform(self._device, item.calls, doing, item.failure)
        self.parts.append(item)
        self.buffers += item.buffers.items()
        self.kept.append(item.kept)
        self.guards += [] if item.guard is None or item.guard in self.guards else [item.guard]
        self.counts.update(item.counts)
        self.scratch |= item.kind.scratch

    def allocate(self, sizes: tuple[int, ...], type_: Type) -> Buffer:
        """A buffer of zeros that each replay allocates here, and frees where it is freed in the captured function, else when the next replay begins.

        Raises LaunchError in other threads, in what is repeated, where the driver has no pools, and when it refuses. Raises OutOfMemory for more than the
        device has, or the budget leaves, of all that a replay holds at this place. The capture goes on after any of these.
        """
        device, context, size_bytes = self._device, self._device.context, prod(sizes) * type_.size_bytes
        doing = f"{device.name} cannot allocate {shown(size_bytes)} bytes in a graph"
        self.require_own(doing)
        if self._loops:
            raise LaunchError(doing, cause="what is captured is repeated", remedy="allocate before the capture")
        if not size_bytes:
            return Buffer(device, Allocation(device, 0, 0), 0, sizes, type_)
        there_bytes = size_bytes + sum(one.size_bytes for one in self.memory if not one.freed)
        memory = GraphMemory(device, self, device.memory.allocate_node(size_bytes, there_bytes, device.limits.buffer_bytes, doing), size_bytes)
        self.memory.append(memory)
        try:
            context.ok(context.cuda.cuMemsetD8Async(memory.handle, 0, size_bytes, context.stream), doing)
        except DriverError:
            memory.free()
            raise
        self.peak_bytes = max(self.peak_bytes, there_bytes)
        return Buffer(device, memory, 0, sizes, type_)

    def outside(self) -> list[tuple[str, Buffer]]:
        """The other buffers that the graph uses and has not allocated itself, with names."""
        return [(name, buffer) for name, buffer in self.buffers if buffer.allocation not in self.memory]

    def _leave(self, doing: str) -> None:
        """Takes note of the memory that the function has not freed. Raises LaunchError where that is used on several streams."""
        left = [one for one in self.memory if not one.freed]
        if any(one.forked for one in left):
            cause = "memory that is not freed in the captured function is used on another stream there"
            raise LaunchError(doing, cause=cause, remedy="free it in the function, once the streams have met")
        self.left = left

    def release(self, memory: GraphMemory) -> None:
        """Frees memory of the graph here. Raises LaunchError in other threads."""
        doing = f"{self.device.name} cannot free memory of a graph"
        self.require_own(doing)
        context = self._device.context
        context.ok(context.cuda.cuMemFreeAsync(memory.handle, context.stream), doing)

    def graph(self, replay: Replay) -> None:
        """Makes another graph, as it is now, one node."""
        doing = f"the graph was not replayed on {self.device.name}"
        self.require_own(doing)
        if replay.has_memory:
            raise LaunchError(doing, cause="it allocates memory, which the driver does not allow of a part of another graph", remedy="replay it by itself")
        self._require_captured(replay.stream, doing)
        self._add_child(replay.stream, replay.plain(doing), doing)
        self.parts.append(replay)
        self.buffers += replay.names()
        self.kept.append(replay)
        self.guards += [guard for guard in replay.guards if guard not in self.guards]
        self.counts.update(replay.rows[0].counts)
        self.scratch |= replay.scratch

    def _add_child(self, stream: int, child: Any, doing: str) -> None:
        """Adds a copy of a graph behind what a stream has captured: replays themselves are not captured."""
        context, cuda = self._device.context, self._device.context.cuda
        status, _, _, graph, nodes, *_ = cuda.cuStreamGetCaptureInfo(cuda.CUstream(stream))
        if status:
            raise context.failure(status, doing, LaunchError)
        before = list(nodes or ())
        status, node = cuda.cuGraphAddChildGraphNode(graph, before, len(before), child)
        if status:
            raise context.failure(status, doing, LaunchError)
        # CUDA 12 has two calls of this name; the later one, which tells of edges, is the only one of CUDA 13.
        update = getattr(cuda, "cuStreamUpdateCaptureDependencies_v2", None) or cuda.cuStreamUpdateCaptureDependencies
        (status,) = update(cuda.CUstream(stream), [node], None, 1, _REPLACE)
        if status:
            raise context.failure(status, doing, LaunchError)

    def _require_captured(self, stream: int, doing: str) -> None:
        context, cuda = self._device.context, self._device.context.cuda
        if stream == int(context.stream):
            return
        status, state = cuda.cuStreamIsCapturing(cuda.CUstream(stream))
        if status and isinstance(error := context.failure(status, doing), DeviceLost):
            raise error
        if status or int(state) != int(cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE):
            cause = "it goes to a stream that is not part of the capture"
            raise LaunchError(doing, cause=cause, remedy="in the captured function, device.wait_event(device.record_event(), stream) makes it part first")

    def last_node(self, stream: int) -> int:
        """The node that a stream depends on next (CUgraphNode); 0 if there are several."""
        nodes = self._last_nodes(stream)
        return int(nodes[0]) if len(nodes) == 1 else 0

    def require_work(self) -> None:
        """Raises LaunchError while nothing was captured."""
        if not self._last_nodes(int(self._device.context.stream)):
            raise empty_capture(self.device)

    def _last_nodes(self, stream: int) -> Any:
        cuda = self._device.context.cuda
        status, *answer = cuda.cuStreamGetCaptureInfo(cuda.CUstream(stream))
        if status:
            raise self._device.context.failure(status, f"{self.device.name} does not say what it captured", LaunchError)
        return answer[3] or ()

    # ---- from beginning to end

    def record(self, function: Callable[[], Any], into: Any = None) -> tuple[Any, Any]:
        """Runs a function under capture: the graph, which the caller destroys, and what the function gave. `into` is a graph to add the nodes to.

        The stream is as before in any case. Raises what the function raises, LaunchError for an empty graph and what the driver does not capture.
        """
        context, cuda = self._device.context, self._device.context.cuda
        doing = f"{context.name} cannot capture a graph"
        context.begin_capture(self)
        try:
            self._device._recording = self
            with context.entered():
                self._begin(into, doing)
                try:
                    value = function()
                    self._leave(doing)
                except BaseException:
                    status, graph = cuda.cuStreamEndCapture(context.stream)
                    if context.note((status,), doing) and into is None:
                        cuda.cuGraphDestroy(graph)
                    raise
                status, graph = cuda.cuStreamEndCapture(context.stream)
        finally:
            for memory in self.memory:
                memory.seal(memory in self.left)
            self._device._recording = None
            context.end_capture()
        if status:
            raise context.failure(status, doing, LaunchError)
        status, *_, count = cuda.cuGraphGetNodes(graph, 0)
        if status or not count:
            if into is None:
                cuda.cuGraphDestroy(graph)
            raise context.failure(status, doing, LaunchError) if status else empty_capture(self.device)
        return graph, value

    def _begin(self, into: Any, doing: str) -> None:
        context, cuda = self._device.context, self._device.context.cuda
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        if into is None:
            result = cuda.cuStreamBeginCapture(context.stream, mode)
        else:
            result = cuda.cuStreamBeginCaptureToGraph(context.stream, into, None, None, 0, mode)
        if result[0]:
            raise context.failure(result[0], doing, LaunchError)
