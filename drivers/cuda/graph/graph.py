"""CUDA graphs: what was captured, instantiated and replayed by one native call."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self

from vyre_py.drivers.cuda.graph.executables import Handles
from vyre_py.drivers.cuda.graph.graph_memory import LeftMemory
from vyre_py.drivers.cuda.graph.recorder import CudaRecorder, KernelNode, node_count, part_view
from vyre_py.drivers.cuda.launch.launch import BoundKernel, CudaLaunch, stream_handle
from vyre_py.drivers.cuda.memory.relief import NO_MEMORY, NUMBER
from vyre_py.drivers.cuda.native.call_list import Call
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand, perform
from vyre_py.drivers.errors import BindingError, DeviceLost, DriverError, LaunchError, OutOfMemory
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.many.commands import REPLAY, CommandView, freed_names
from vyre_py.drivers.many.graph import Graph, checked_launches, checked_times
from vyre_py.drivers.memory.buffer import Buffer

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaGraph", "Replay", "capture"]


class Replay(CommandList):
    """A list of one replay: a captured graph, its executable form, and the call that launches it.

    `ready` is a live word of the list: zero while there is no executable graph, or it is being changed, or memory that its replays leave is not there yet, so
    that native code calls the handler. Each change holds the lock. Attributes besides those of a list: `kernels`, `stream` (a handle), `scratch`: whether a
    command in it has memory in common with others (`CommandKind`), `guards`, what else has to be there (`Guard`), `parts`, all that was captured, in order,
    `has_memory`: whether it allocates memory itself, `left`, what of that is not freed in it.
    """

    names_first_cause: ClassVar[bool] = True

    def __init__(self, device: CudaDevice, graph: Any, recorder: CudaRecorder, loops: bool) -> None:
        context = device.context
        self.device, self.kernels, self._others, self._kept = device, recorder.kernels, recorder.outside(), recorder.kept
        self.scratch, self.guards, self.parts = recorder.scratch, recorder.guards, recorder.parts
        self.lock = threading.RLock()
        self.stream = int(context.stream)
        self._owner: Any = None
        self._loops, self.has_memory, self._peak_bytes = loops, bool(recorder.memory), recorder.peak_bytes
        self.left = LeftMemory(device, self, recorder.left)
        self._closed = False
        self._seen = 0
        self._ready = ctypes.c_uint64(0)
        self._handles = Handles(context, graph)
        self._finalizer = weakref.finalize(self, self._handles.destroy)
        self._finalizer.atexit = False
        self._counts = recorder.counts
        self._record = device.telemetry.record(**self._counts)
        self._count = ctypes.c_uint64.from_address(self._record.address)
        super().__init__(device)
        with self.lock:
            self._instantiate()

    @property
    def name(self) -> str:
        """Its name in traces."""
        return f"graph of {len(self.kernels)} kernels"

    def call(self) -> Call:
        """The call that replays the graph, as it is now."""
        executable = self._handles.executable
        return Call(self.device.context.function("cuGraphLaunch"), (0 if executable is None else int(executable), self.stream))

    def _build(self) -> None:
        """Makes the native list: one call, or where commands have scratch memory and the graph was moved to another stream, that call in the order of our own
        stream as well."""
        context = self.device.context
        own, calls = int(context.stream), [self.call()]
        if self.scratch and self.stream != own:
            if self._handles.event is None:
                self._handles.event = context.events.take()
            event, record, wait = int(self._handles.event), context.function("cuEventRecord"), context.function("cuStreamWaitEvent")
            before = [Call(record, (event, own)), Call(wait, (self.stream, event, 0))]
            calls = [*before, *calls, Call(record, (event, self.stream)), Call(wait, (own, event, 0))]
        self._at = len(calls) // 2
        self.rows = [NativeCommand(REPLAY, self.name, tuple(calls), counts=self._counts)]
        room = 1 + len(self.guards) + len(self._others) + sum(len(node.held) for node in self.kernels)
        self.calls = self._native(calls, self._words(), REPLAY.counter, exclusive=True, room=room)

    def names(self) -> list[tuple[str, Buffer]]:
        """The buffers that the graph uses, with the names that they have in Programs and steps."""
        return [*self._others, *(pair for node in self.kernels for pair in node.names())]

    def _words(self) -> list[int]:
        alive = {ctypes.addressof(buffer.allocation.alive) for _, buffer in self.names()}
        return [ctypes.addressof(self._ready), *[ctypes.addressof(guard.alive) for guard in self.guards], *sorted(alive)]

    # ---- the executable graph

    def _instantiate(self) -> None:
        """Makes the executable graph, with the arguments of now. Raises LaunchError, OutOfMemory."""
        device, context, cuda = self.device, self.device.context, self.device.context.cuda
        doing = f"{self.name} cannot be instantiated on {context.name}"
        with context.entered():
            self.plain(doing)
            with context.relaxed(doing):
                self._handles.drop()  # one that an earlier attempt left
                device.graphs.admit(self)
                flags = int(cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) if self.left else 0
                status, *executables = context.relief.attempt(lambda: cuda.cuGraphInstantiate(self._handles.graph, flags))
            if status:
                if self.has_memory and status.name == NO_MEMORY:
                    raise self._exhausted(doing)
                raise context.failure(status, doing, LaunchError)
            (executable,) = executables
            self._handles.executable = executable
            self.calls.patch(self._at, 0, int(executable))
            self._go_on()
            with suppress(LaunchError), context.using(doing):  # within a capture, which refuses it, the first replay does it
                context.note(cuda.cuGraphUpload(executable, cuda.CUstream(self.stream)), doing)

    def plain(self, doing: str) -> Any:
        """The graph that is instantiated (CUgraph), with the present arguments. The caller holds the lock. Raises LaunchError."""
        dirty = [node for node in self.kernels if node.dirty]
        change = self.device.context.function("cuGraphKernelNodeSetParams")
        perform(self.device, tuple([Call(change, (node.node, node.parameters)) for node in dirty]), doing)
        for node in dirty:
            node.dirty = False
        return self._handles.graph

    def _pause(self) -> None:
        """Has later replays wait for the lock, and waits for those that are being enqueued."""
        self._ready.value = 0
        while self.calls.in_flight:
            time.sleep(0)

    def _go_on(self) -> None:
        """Takes `_pause` back, where native code has all that it needs."""
        self._ready.value = self.instantiated and (self.left.there or not self.left)

    def _drop(self) -> None:
        self._pause()
        self.left.depart()  # an executable graph knows nothing of what another one has left
        self._handles.drop()

    def _arrived(self) -> None:
        """A replay was enqueued by the handler: what it leaves is there, and native code makes the next ones."""
        if self.left and not self.left.there:
            self.left.arrive()
            self._go_on()

    def _leave_none(self) -> None:
        """A replay failed: the executable graph goes, and then what the replay before had left is freed, once.

        The driver's documentation does not say what has become of that by then. Seen on an H200 (driver 580): a replay that is refused (status 900) has touched
        nothing. One that finds too little memory has freed what was left, and yet the address has to be freed; the executable graph counts it as
        freed and as there: after that free, or after what graphs do not use was given back, another replay of it may end the process or the context, as does
        another executable graph that is made before the free. Destroyed first, all is well. Of other failures nothing is known, so they are taken for such.
        The driver never gives back what the failed replay could still reserve, in any order of these calls, to the system or to other graphs
        (`graph_memory_reserved_bytes` counts it): only the end of the process does.
        """
        self._pause()
        self._handles.drop()
        self.left.depart()

    @contextmanager
    def still(self) -> Iterator[None]:
        """A block in which no thread replays the graph, which would free the memory that it left."""
        with self.lock:
            self._pause()
            try:
                yield
            finally:
                self._go_on()

    def _exhausted(self, doing: str) -> OutOfMemory:
        return self.device.memory.exhausted(doing, self._peak_bytes, "the device has too little free memory for what the graph allocates")

    @property
    def instantiated(self) -> bool:
        """Whether there is an executable graph now."""
        return self._handles.executable is not None

    def used(self) -> bool:
        """Whether it was replayed since it was last asked this."""
        before, self._seen = self._seen, self._count.value
        return before != self._seen

    def evict(self) -> bool:
        """Drops the executable graph, unless another thread uses it, or memory that its replay left may still be read."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if self.left.there:
                return False
            self._drop()
        finally:
            self.lock.release()
        return True

    def close(self) -> None:
        """Gives all up."""
        if self.device.context.handles_invalid:  # in a forked child a thread of the parent may have held the lock
            return
        with self.lock:
            self._closed = True
            self._pause()
            self.left.end()
            self._finalizer()

    # ---- replaying

    def doing(self, row: int | None) -> str:
        """See `CommandList.doing`."""
        return f"{self.name} cannot be replayed on {self.device.name}"

    def record_into(self, recorder: CudaRecorder) -> None:
        """Makes the graph one node. Raises LaunchError."""
        recorder.graph(self)

    def require_ready(self) -> None:
        """Has an executable graph ready; the lock is held. Raises BindingError, LaunchError, DeviceLost."""
        self.device.require_usable()
        if self._closed:
            raise LaunchError(self.doing(None), cause="it was closed")
        freed = sorted({problem for name, buffer in self.names() for problem in freed_names({name: buffer})})
        if freed:
            raise BindingError("graph", freed)
        for guard in self.guards:
            guard.require_ready()
        if not self.instantiated:
            self._instantiate()

    def handle_status(self, index: int, status: int) -> None:
        """See `CommandList.handle_status`. Memory that the replays leave comes and goes with them."""
        if index < 0:
            self.device.require_usable()  # which waits for no other thread
        with self.lock:
            if status == NUMBER and index >= 0 and self.left.there:
                self._leave_none()  # before kept memory is freed and the call repeated
                self._instantiate()
            try:
                super().handle_status(index, status)
            except DeviceLost:
                raise
            except DriverError as error:
                if index >= 0 and self.left.there:
                    self._leave_none()
                if index >= 0 and self.has_memory and isinstance(error, OutOfMemory):
                    raise self._exhausted(self.doing(None)) from None
                raise
            self._arrived()

    def repeat(self, times: int) -> None:
        """So many replays in one native call."""
        context = self.device.context
        self.device.require_usable()
        with self.lock:
            self.require_ready()
            if context.capture is None and not context.mode.value:
                with context.entered():
                    if self.left and not self.left.there:  # one by itself: if a later one fails, that has left memory there
                        self.calls.resume(0)
                        self._arrived()
                        times -= 1
                    if times:
                        self.calls.repeat(times)
                return
        builtin = self.calls.builtin()
        for _ in range(times):
            builtin()

    def move(self, stream: int, owner: Any) -> None:
        """Goes to another stream from now on; its `owner` is kept alive."""
        with self.lock:
            self._pause()
            self.stream, self._owner = stream, owner
            self.device.use_on(stream, owner, [buffer for _, buffer in self.names()])
            self._kernels_use(stream, owner)
            if self.scratch:
                old = self.calls
                self._build()
                old.invalidate()
            self.calls.patch(self._at, 1, stream)
            self._go_on()

    def _kernels_use(self, stream: int, owner: Any) -> None:
        """Notes a stream for the kernels of the graph, and of those within it."""
        found = [self]
        for replay in found:
            for node in replay.kernels:
                node.kernel.use_on(stream, owner)
            found += [one for one in replay._kept if isinstance(one, Replay)]

    def update(self, kernels: set[BoundKernel]) -> int:
        """Takes the arguments that these launches have now, or all; gives how many nodes changed."""
        device = self.device
        device.require_usable()
        with self.lock:
            self.require_ready()
            chosen = [node for node in self.kernels if not kernels or node.kernel in kernels]
            for node in chosen:
                node.require_memory()
            self._pause()
            try:
                changed = [node for node in chosen if node.update()]
                device.use_on(self.stream, self._owner, [buffer for _, buffer in self.names()])
                if changed:
                    self._change(changed)
                    device.telemetry.graph_updates += 1
            except BaseException:
                self._drop()  # it may use buffers that were freed; the next replay instantiates it again
                raise
            finally:
                self.calls.watch(self._words())
                self._go_on()
        return len(changed)

    def _change(self, changed: list[KernelNode]) -> None:
        """Gives the executable graph the arguments of nodes, in place; where the driver does not allow that, by making it anew."""
        device, context = self.device, self.device.context
        doing = f"{self.name} cannot be updated on {context.name}"
        if not self._loops and all(node.node for node in changed):
            change, executable = context.function("cuGraphExecKernelNodeSetParams"), int(self._handles.executable)
            calls = tuple([Call(change, (executable, node.node, node.parameters)) for node in changed])
            try:
                perform(device, calls, doing)
            except LaunchError:
                device.telemetry.fallbacks += 1
            else:
                return
        self._drop()
        self._instantiate()


class CudaGraph(Graph):
    """A CUDA graph whose `__call__` is a builtin. `raw` is the executable graph's handle (CUgraphExec) as an integer, 0 when there is none now."""

    __slots__ = ("__call__", "_replay")

    def __init__(self, device: CudaDevice, value: Any, nodes: int, replay: Replay) -> None:
        super().__init__(device, value, nodes)
        self._replay = replay
        self.__call__ = replay.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin

    @property
    def raw(self) -> int:
        """The executable graph's handle; another one after updates that the driver can't make in place, and after 64 more graphs."""
        return self._replay.call().arguments[0]

    def _views(self) -> list[CommandView]:
        return [part_view(part) for part in self._replay.parts]

    def update(self, *launches: Launch) -> int:
        """See `Graph.update`. In place and without a wait; a graph of `capture_while` is instantiated again."""
        chosen = [launch.inner for launch in checked_launches(launches)]
        kernels = {launch.kernel for launch in chosen if isinstance(launch, CudaLaunch)}
        if len(kernels) < len(set(chosen)) or kernels - {node.kernel for node in self._replay.kernels}:
            raise BindingError("update", ["a launch is not part of the graph"])
        return self._replay.update(kernels)

    def repeat(self, times: int) -> None:
        """See `Graph.repeat`; one native call."""
        if count := checked_times(times):
            self._replay.repeat(count)

    def on(self, stream: Any) -> Self:
        """The graph, replayed on another stream from now on: any object whose `__cuda_stream__()` gives (version, handle). It comes after what the
        device's own stream holds so far; what follows is ordered as for `launch.on`. Each replay of a graph with products of matrices also comes after what
        the own stream holds then, and before what it is given later: products share a workspace. Raises BindingError for any other object."""
        handle, context = stream_handle(stream), self._replay.device.context
        self._replay.device.require_usable()
        self._replay.device.require_no_capture("a graph cannot go to another stream")
        if self._replay.left and handle != int(context.stream):
            cause = "it leaves memory there that is used in the order of the device's own stream"
            raise LaunchError("a graph cannot go to another stream", cause=cause, remedy="free all that the captured function allocates in it")
        with context.entered():
            if handle != int(context.stream):
                self._replay.device.memory.foreign_use.after([handle])
            self._replay.move(handle, stream)
        self.__call__ = self._replay.builtin()  # type: ignore[method-assign]  # as in `__init__`
        return self

    def close(self) -> None:
        """See `Graph.close`."""
        self._replay.close()


def capture(device: CudaDevice, function: Callable[..., Any], arguments: tuple[Any, ...], loops: bool = False) -> CudaGraph:
    """A CUDA graph of what a function enqueues on the device's stream, other libraries' work included; `loops` says that it is to be repeated."""
    recorder = CudaRecorder(device, loops)
    graph, value = recorder.record(lambda: function(*arguments))
    nodes = node_count(device.context.cuda, graph)
    replay = Replay(device, graph, recorder, False)
    device.telemetry.graphs_captured += 1
    return CudaGraph(device, value, nodes, replay)
