"""Graphs: the launches of a function, recorded once and replayed as one call.

While a function is captured its launches do not run. A replay runs them with the arguments of the capture, or those that `update` has set since. Where the
device's library has graphs, one is made there (`drivers.cuda.graph.graph`); elsewhere the launches are copied and replayed one after the other, on WebGPU in
one submission.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from vyre_py.drivers.errors import BindingError, LaunchError
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.many.commands import LAUNCH, TURN_LIMIT, Command, CommandView, require_memory
from vyre_py.drivers.many.sequence import CopyStep, FillStep
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = [
    "Graph", "HostLoop", "RecordedGraph", "Recording", "capture", "check_loop", "checked_launches", "checked_times", "empty_capture",
]


class Recording:
    """One thread's capture on a device. Launches of other threads are refused meanwhile."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._thread = threading.get_ident()
        self._thread_name = threading.current_thread().name

    def refusal(self, doing: str) -> LaunchError:
        """Why something can't be done while this captures."""
        if not self.is_own:
            cause = f"the thread {self._thread_name!r} captures a graph on {self.device.name}"
            return LaunchError(doing, cause=cause, remedy="wait until its capture has ended")
        remedy = "allocate, bind, upload and read before the capture, or after it: the captured function launches, copies and fills"
        return LaunchError(doing, cause="a graph is being captured", remedy=remedy)

    @property
    def is_own(self) -> bool:
        """Whether it is the calling thread that captures."""
        return threading.get_ident() == self._thread

    def require_own(self, doing: str) -> None:
        """Raises LaunchError in threads other than the one that captures."""
        if not self.is_own:
            raise self.refusal(doing)

    def take(self, what: Command) -> None:
        """Makes a command part of the graph."""
        raise NotImplementedError

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Makes a copy part of the graph."""
        self.take(CopyStep(source, target))

    def fill(self, buffer: Buffer, value: Any, pattern: bytes) -> None:
        """Makes a fill part of the graph: of a value, whose bytes in memory are `pattern`."""
        self.take(FillStep(buffer, value, pattern))

    def allocate(self, sizes: tuple[int, ...], type_: Type) -> Buffer:
        """A buffer of zeros in memory of the graph. Raises LaunchError where graphs have none."""
        raise self.refusal(f"{self.device.name} cannot allocate memory")


@public
class Graph(Closing, Stationary):
    """Captured work. Made by `device.capture` and `device.capture_while`.

    It keeps buffers, code and launches alive, and a replay refuses (BindingError) once a buffer was freed explicitly. Attributes: `device`, `value`
    that the captured function gave, `nodes`, how many launches, copies and fills there are, `conditional`: where a graph of `capture_while` looks at
    its flag, "device" or "host", else "".
    """

    travels_as = "send pipelines, and capture there"

    conditional: str = ""
    __slots__ = ("__weakref__", "device", "nodes", "value")

    def __init__(self, device: Device, value: Any, nodes: int) -> None:
        self.device, self.value, self.nodes = device, value, nodes

    def __repr__(self) -> str:
        return f"<Graph of {self.nodes} nodes on {self.device.name}>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.graph_picture import graph_html

        return graph_html(self)

    def _views(self) -> list[CommandView]:
        """What was captured, in order, with the arguments that the next replay has."""
        raise NotImplementedError

    def __call__(self) -> None:
        """Replays the graph. Raises BindingError when a buffer was freed, LaunchError, DeviceLost."""
        raise NotImplementedError

    def update(self, *launches: Launch) -> int:
        """Gives the graph the arguments that captured launches have now, after `launch.set`: of these launches, or of all. The next replays use them.

        Gives the number of nodes that changed. Raises BindingError for what is no launch that was captured, and when a buffer was freed.
        """
        raise NotImplementedError

    def set(self, launch: Launch, arguments: Any = None, /, **named: Any) -> Self:
        """`launch.set` and then `update(launch)`; gives the graph."""
        launch.set(arguments, **named)
        self.update(launch)
        return self

    def repeat(self, times: int) -> None:
        """So many replays, one after the other. Raises what a replay raises, and BindingError for what is no number of times."""
        for _ in range(checked_times(times)):
            self()

    def on(self, stream: Any) -> Self:
        """The graph, replayed on another stream from now on. A kernel with grid barriers, or scans over the grid, has words of its own launch: no two of
        them, replays or launches, may run at once."""
        self.device._lacks("streams")

    def turns(self) -> int:
        """How many times the last replay of a graph of `capture_while` ran its body; waits for it. Raises LaunchError for other graphs."""
        raise LaunchError("the graph has no turns", meaning="it was captured by capture, not by capture_while")

    def close(self) -> None:
        """Gives back what the device holds for the graph; later replays raise LaunchError."""
        raise NotImplementedError


def checked_times(times: Any) -> int:
    """A number of replays. Raises BindingError for anything else."""
    if not is_count(times):
        raise BindingError("repeat", [f"a whole number of times is needed, got {shown(times)}"])
    return int(times)


def empty_capture(device: Device) -> LaunchError:
    """The error for a capture of nothing."""
    return LaunchError(
        f"{device.name} has captured no graph", meaning="the function launched nothing there", remedy="launch bound launches of this device in it"
    )


# ---- on devices without graphs of their own

# A command that was captured, and its copy, whose arguments later changes of the command leave alone.
_Node = tuple[Command, Command]


class _Recorder(Recording):
    """Collects commands, each with the copy of it that replays."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.nodes: list[_Node] = []

    def take(self, what: Command) -> None:
        self.require_own("the launch was not made")
        require_memory(what._title, what._bound())
        self.nodes.append((what, what._copy()))

    def take_graph(self, graph: RecordedGraph) -> None:
        """Makes another graph's nodes, as they are now, part of this one."""
        self.require_own("the graph was not replayed")
        self.nodes += [(copy, copy._copy()) for _, copy in graph.recorded]


class RecordedGraph(Graph):
    """Copies of commands, run one after the other. `recorded` has each after the command that was captured, in order."""

    __slots__ = ("_closed", "_launches", "_runner", "recorded")

    def __init__(self, device: Device, value: Any, recorded: list[_Node]) -> None:
        super().__init__(device, value, len(recorded))
        self.recorded = recorded
        self._launches = sum([copy._kind is LAUNCH for _, copy in recorded])
        self._closed = False
        self._runner = device._runner([copy for _, copy in recorded], lambda _, command: command._title)

    def __call__(self) -> None:
        """Replays the graph. Raises BindingError when a buffer was freed, LaunchError, DeviceLost."""
        self.device.require_usable()
        if self._closed:
            raise LaunchError("the graph cannot be replayed", cause="it was closed")
        recording = self.device._recording
        if recording is not None:
            self._runner.require()
            assert isinstance(recording, _Recorder)  # the same device made both
            recording.take_graph(self)
            return
        self._runner()
        telemetry = self.device.telemetry
        telemetry.graph_replays += 1
        telemetry.graph_launches += self._launches

    def _views(self) -> list[CommandView]:
        return [copy._view() for _, copy in self.recorded]

    def update(self, *launches: Launch) -> int:
        """See `Graph.update`."""
        wanted = {id(launch.inner) for launch in checked_launches(launches)}
        if wanted - {id(command) for command, _ in self.recorded}:
            raise BindingError("update", ["a launch is not part of the graph"])
        changed = sum([copy._follow(command) for command, copy in self.recorded if not wanted or id(command) in wanted])
        self.device.telemetry.graph_updates += bool(changed)
        return changed

    def close(self) -> None:
        """See `Graph.close`."""
        self._closed = True


def checked_launches(launches: tuple[Any, ...]) -> tuple[Launch, ...]:
    """Launches. Raises BindingError for anything else."""
    wrong = [one for one in launches if not isinstance(one, Launch)]
    if wrong:
        raise BindingError("update", [f"launches are needed, got {shown(wrong[0])}"])
    return launches


def capture(device: Device, function: Callable[..., Any], arguments: tuple[Any, ...]) -> RecordedGraph:
    """A graph of what a function launches on a device without graphs of its own."""
    recorder = _Recorder(device)
    with device._lock:
        device.require_no_capture(f"{device.name} cannot capture a graph")
        device._record(recorder)
    try:
        value = function(*arguments)
    finally:
        device._record(None)
    if not recorder.nodes:
        raise empty_capture(device)
    device.telemetry.graphs_captured += 1
    return RecordedGraph(device, value, recorder.nodes)


# ---- loops


def check_loop(device: Device, flag: Any, function: Any, limit: Any) -> None:
    """Raises BindingError for arguments that `capture_while` does not take."""
    problems = []
    if not isinstance(flag, Buffer) or flag.device is not device or flag.type is not u32 or not flag.size_bytes:
        problems.append(f"the flag is a u32 buffer on {device.name} of one element at least, got {shown(flag)}")
    elif flag.allocation.freed:
        problems.append(f"the flag {flag.allocation.absence}")
    if not callable(function):
        problems.append(f"a function is needed, got {shown(function)}")
    if not is_count(limit) or limit > TURN_LIMIT:
        problems.append(f"limit is a whole number up to 2^32 - 1, got {shown(limit)}")
    if problems:
        raise BindingError("capture_while", problems)


class HostLoop(Graph):
    """A graph that is replayed while a flag is not zero, which the host reads between replays."""

    conditional = "host"
    __slots__ = ("_body", "_flag", "_limit", "_turns")

    def __init__(self, body: Graph, flag: Buffer, limit: int) -> None:
        super().__init__(body.device, body.value, body.nodes)
        self._body, self._flag, self._limit = body, flag.reshape(flag.size_bytes // flag.type.size_bytes)[:1], limit
        self._turns = 0

    def __call__(self) -> None:
        """Replays the body while the flag is not zero, up to the limit; waits for every turn. Raises what a replay raises."""
        self.device.require_no_capture("a graph that the host repeats cannot be replayed")
        turns = 0
        while turns < self._limit and self._flag.read()[0]:
            self._body()
            turns += 1
        self._turns = turns

    def _views(self) -> list[CommandView]:
        return self._body._views()

    def update(self, *launches: Launch) -> int:
        """See `Graph.update`."""
        return self._body.update(*launches)

    def turns(self) -> int:
        """How many times the last replay ran the body."""
        return self._turns

    def close(self) -> None:
        """See `Graph.close`."""
        self._body.close()
