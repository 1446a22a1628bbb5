"""CUDA graphs: what was captured, instantiated and replayed by one native call.

A device holds 64 executable graphs at most. One more takes the place of one that was not replayed lately; that one is instantiated again at its next
replay, with the arguments that it had. The graph that was captured stays with its object until that goes.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from vyre_py.drivers.cuda.calls import perform
from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.launch import CudaLaunch, Kernel, stream_handle
from vyre_py.drivers.cuda.native import Call, CallList
from vyre_py.drivers.cuda.recorder import KernelNode, Recorder, node_count
from vyre_py.drivers.errors import BindingError, DeviceLost, LaunchError
from vyre_py.drivers.graph import Graph, checked_launches, checked_times
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.resident import Buffer
from vyre_py.drivers.watched import Watched

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["GRAPH_LIMIT", "CudaGraph", "Executables", "Replay", "capture"]

GRAPH_LIMIT: Final = 64


class _Handles:
    """What has to be given back: the captured graph, the executable one if there is one now, and an event where one is needed."""

    __slots__ = ("context", "event", "executable", "graph")

    def __init__(self, context: Context, graph: Any) -> None:
        self.context, self.graph = context, graph
        self.executable: Any = None
        self.event: Any = None

    def drop(self) -> None:
        """Destroys the executable graph; what it has running goes on to its end. Quiet, since a finaliser may call it."""
        executable, self.executable = self.executable, None
        context = self.context
        if executable is not None and not context.gone:
            with context.visited():
                context.note(context.cuda.cuGraphExecDestroy(executable), f"{context.name} cannot destroy a graph")

    def destroy(self) -> None:
        """Destroys both, once no capture runs that would take it amiss. A forked child leaves them to its parent."""
        context = self.context
        if not context.gone and not context.later(self.destroy):
            with context.visited():
                self.drop()
                context.note(context.cuda.cuGraphDestroy(self.graph), f"{context.name} cannot destroy a graph")
            if self.event is not None:
                context.events.give(self.event)


class Replay:
    """A captured graph, its executable form, and the native list with its one call.

    `ready` is a live word of the list: zero while there is no executable graph, or it is being changed, so that native code comes to the handler. Its
    lock is held by whoever changes it. Attributes: `kernels`, `stream` (a handle), `calls`, `shares` (see `Piece`).
    """

    def __init__(self, device: CudaDevice, graph: Any, recorder: Recorder, loops: bool) -> None:
        context = device.context
        self.device, self.kernels, self._others, self._kept = device, recorder.kernels, recorder.outside(), recorder.kept
        self.shares = recorder.shares
        self.lock = threading.RLock()
        self.stream = int(context.stream)
        self._owner: Any = None
        self._loops, self.has_memory = loops, bool(recorder.memory)
        self._closed = False
        self._seen = 0
        self._ready = ctypes.c_uint64(0)
        self._handles = _Handles(context, graph)
        self._finalizer = weakref.finalize(self, self._handles.destroy)
        self._finalizer.atexit = False
        counts = {"graph_launches": len(self.kernels)}
        for node in self.kernels:
            for name, amount in device.launch_amounts(node.kernel.plan, node.kernel.module).items():
                if name != "parameter_bytes":  # which the graph holds already
                    counts[name] = counts.get(name, 0) + amount
        self._record = device.telemetry.record(**counts)
        self.calls = self._list()
        with self.lock:
            self._instantiate()

    @property
    def name(self) -> str:
        """What traces call it."""
        return f"graph of {len(self.kernels)} kernels"

    def call(self) -> Call:
        """The call that replays the graph, as it is now."""
        executable = self._handles.executable
        return Call(self.device.context.function("cuGraphLaunch"), (0 if executable is None else int(executable), self.stream))

    def _list(self) -> CallList:
        """The native list: one call, or where the graph shares memory and was moved to another stream, that call in the order of our own stream as well."""
        device, context = self.device, self.device.context
        own, calls = int(context.stream), [self.call()]
        if self.shares and self.stream != own:
            if self._handles.event is None:
                self._handles.event = context.events.take()
            event, record, wait = int(self._handles.event), context.function("cuEventRecord"), context.function("cuStreamWaitEvent")
            before = [Call(record, (event, own)), Call(wait, (self.stream, event, 0))]
            calls = [*before, *calls, Call(record, (event, self.stream)), Call(wait, (own, event, 0))]
        self._at = len(calls) // 2
        room = 1 + len(self._others) + sum(len(node.held) for node in self.kernels)
        counters = ((device.telemetry.address("graph_replays"), 1), (self._record.address, 1))
        return CallList(calls, self.trouble, context.mode_address, self._words(), counters, exclusive=True, room=room)

    def names(self) -> list[tuple[str, Buffer]]:
        """The buffers that the graph uses, with the names that they have in Programs and steps."""
        return [*self._others, *(pair for node in self.kernels for pair in node.names())]

    def _words(self) -> list[int]:
        alive = {ctypes.addressof(buffer.allocation.alive) for _, buffer in self.names()}
        return [ctypes.addressof(self._ready), *sorted(alive)]

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
                status, *executables = context.relief.attempt(lambda: cuda.cuGraphInstantiate(self._handles.graph, 0))
            if status:
                raise context.failure(status, doing, LaunchError)
            (executable,) = executables
            self._handles.executable = executable
            self.calls.patch(self._at, 0, int(executable))
            self._ready.value = 1
            with suppress(LaunchError), context.using(doing):  # within a capture, which refuses it, the first replay does it
                context.note(cuda.cuGraphUpload(executable, cuda.CUstream(self.stream)), doing)

    def plain(self, doing: str) -> Any:
        """The graph that executable ones are made of (CUgraph), with the arguments of now; whoever calls holds the lock. Raises LaunchError."""
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

    def _drop(self) -> None:
        self._pause()
        self._handles.drop()

    @property
    def instantiated(self) -> bool:
        """Whether there is an executable graph now."""
        return self._handles.executable is not None

    def used(self) -> bool:
        """Whether it was replayed since it was last asked this."""
        count = ctypes.c_uint64.from_address(self._record.address).value
        before, self._seen = self._seen, count
        return before != count

    def evict(self) -> bool:
        """Gives the executable graph up, unless another thread is busy with it."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._drop()
        finally:
            self.lock.release()
        return True

    def close(self) -> None:
        """Gives all up."""
        if self.device.context.gone:  # in a forked child a thread of the parent may have held the lock
            return
        with self.lock:
            self._closed = True
            self._pause()
            self._finalizer()

    # ---- replaying

    def _prepare(self) -> None:
        """Has an executable graph ready; the lock is held. Raises BindingError, LaunchError, DeviceLost."""
        self.device.require_usable()
        if self._closed:
            raise LaunchError(f"{self.name} cannot be replayed on {self.device.name}", cause="it was closed")
        freed = sorted({name for name, buffer in self.names() if buffer.allocation.freed})
        if freed:
            raise BindingError("graph", [f"{name!r} was freed" for name in freed])
        if not self._ready.value:
            self._instantiate()

    def trouble(self, index: int, status: int) -> None:
        """Does, or refuses, what the native call could not: see `native`."""
        device, context = self.device, self.device.context
        doing = f"{self.name} cannot be replayed on {context.name}"
        if index < 0:
            device.require_usable()  # which waits for no other thread
        with self.lock:
            if index < 0:
                self._prepare()
                if context.capture is not None and status > 0:
                    context.capture.graph(self)
                    return
                if status < 0:
                    self.calls.resume(0)
                    return
            try:
                context.recover(self.calls, index, status, doing, LaunchError, self.name)
            except DeviceLost:
                device.require_usable()  # which tells the first cause
                raise

    def repeat(self, times: int) -> None:
        """So many replays in one native call."""
        context = self.device.context
        self.device.require_usable()
        with self.lock:
            self._prepare()
            if context.capture is None and not context.mode.value:
                with context.entered():
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
            if self.shares:
                old, self.calls = self.calls, self._list()
                old.retire()
            self.calls.patch(self._at, 1, stream)
            self._ready.value = self.instantiated

    def _kernels_use(self, stream: int, owner: Any) -> None:
        """Notes a stream for the kernels of the graph, and of those within it."""
        found = [self]
        for replay in found:
            for node in replay.kernels:
                node.kernel.use_on(stream, owner)
            found += [one for one in replay._kept if isinstance(one, Replay)]

    def update(self, kernels: set[Kernel]) -> int:
        """Takes the arguments that these launches have now, or all; gives how many nodes changed."""
        device = self.device
        device.require_usable()
        with self.lock:
            self._prepare()
            chosen = [node for node in self.kernels if not kernels or node.kernel in kernels]
            for node in chosen:
                node.kernel.require_memory(in_graph=True)
            self._pause()
            try:
                changed = [node for node in chosen if node.update()]
                device.use_on(self.stream, self._owner, [buffer for _, buffer in self.names()])
                if changed:
                    self._change(changed)
                    device.telemetry.graph_updates += 1
            except BaseException:
                self._drop()  # it may use buffers that nobody holds any more; the next replay makes it anew
                raise
            finally:
                self.calls.watch(self._words())
                self._ready.value = self.instantiated
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


class Executables:
    """The graphs of a device, weakly held; of those that have an executable form now, the oldest first. Its length is the number of all."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finaliser may run inside a call that holds it
        self._all: Watched[Replay] = Watched()
        self._members: list[weakref.ref[Replay]] = []

    def __len__(self) -> int:
        return len(self._all.now())

    def admit(self, newcomer: Replay) -> None:
        """Makes room for one: those that were not replayed since the last time go first, then the oldest. None goes that a thread is busy with."""
        with self._lock:
            self._members = [one for one in self._members if (known := one()) is not None and known.instantiated and known is not newcomer]
            for spares in (True, False):
                for one in list(self._members):
                    if len(self._members) < GRAPH_LIMIT:
                        break
                    known = one()
                    if known is not None and ((spares and known.used()) or not known.evict()):
                        continue
                    self._members.remove(one)
            self._members.append(weakref.ref(newcomer))
            self._all.add(newcomer)

    def trim(self) -> None:
        """Gives up the executable graphs that no thread is busy with; the next replay of each makes it anew."""
        for one in self._all.now():
            one.evict()

    def close(self) -> None:
        """Destroys all."""
        for one in self._all.now():
            one.close()


class CudaGraph(Graph):
    """A CUDA graph whose `__call__` is a builtin. `raw` is the executable graph's handle (CUgraphExec) as an integer, 0 when there is none now."""

    __slots__ = ("__call__", "_replay")

    def __init__(self, device: CudaDevice, value: Any, nodes: int, replay: Replay) -> None:
        super().__init__(device, value, nodes)
        self._replay = replay
        self.__call__ = replay.calls.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin

    @property
    def raw(self) -> int:
        """The executable graph's handle; another one after updates that the driver can't make in place, and after 64 more graphs."""
        return self._replay.call().arguments[0]

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
        with context.entered():
            if handle != int(context.stream):
                self._replay.device.memory.marks.after([handle])
            self._replay.move(handle, stream)
        self.__call__ = self._replay.calls.builtin()  # type: ignore[method-assign]  # as in `__init__`
        return self

    def close(self) -> None:
        """See `Graph.close`."""
        self._replay.close()


def capture(device: CudaDevice, function: Callable[..., Any], arguments: tuple[Any, ...]) -> CudaGraph:
    """A CUDA graph of what a function enqueues on the device's stream, other libraries' work included."""
    recorder = Recorder(device)
    graph, value = recorder.record(lambda: function(*arguments))
    nodes = node_count(device.context.cuda, graph)
    replay = Replay(device, graph, recorder, False)
    device.telemetry.graphs_captured += 1
    return CudaGraph(device, value, nodes, replay)
