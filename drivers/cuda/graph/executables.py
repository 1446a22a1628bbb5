"""Executable graphs: the driver's handles of each, and how many a device holds.

A device holds 64 at most. One more evicts one that was not replayed lately, which is instantiated again at its next replay, with the arguments that
it had. The captured graph belongs to its object and is freed with it.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.observers import Watched

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.graph.graph import Replay

__all__ = ["GRAPH_LIMIT", "Executables", "Handles"]

GRAPH_LIMIT: Final = 64


class Handles:
    """Handles to release: the captured graph, the executable one if there is one now, and an event where one is needed."""

    __slots__ = ("context", "event", "executable", "graph")

    def __init__(self, context: Context, graph: Any) -> None:
        self.context, self.graph = context, graph
        self.executable: Any = None
        self.event: Any = None

    def drop(self) -> None:
        """Destroys the executable graph; running replays finish. Raises nothing, since a finaliser may call it."""
        executable, self.executable = self.executable, None
        context = self.context
        if executable is not None and not context.handles_invalid:
            with context.visited():
                context.note(context.cuda.cuGraphExecDestroy(executable), f"{context.name} cannot destroy a graph")

    def destroy(self) -> None:
        """Destroys both, once no capture runs that would take it amiss. A forked child leaves them to its parent."""
        context = self.context
        if not context.handles_invalid and not context.later(self.destroy):
            with context.visited():
                self.drop()
                context.note(context.cuda.cuGraphDestroy(self.graph), f"{context.name} cannot destroy a graph")
            if self.event is not None:
                context.events.give(self.event)


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
