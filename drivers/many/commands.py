"""Commands: what a device does in order. Sequences, graphs and dispatches are made of them; each is of a kind, whose effects stand in one table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.data_classes import dataclass

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = [
    "CLEAR", "COLLECTIVE", "COPY", "DOWNLOAD", "DRIVER", "FILL", "LAUNCH", "PRODUCT", "REPLAY", "TURN_LIMIT", "UPLOAD", "WAIT", "Command",
    "CommandKind", "CommandRunner", "CommandView", "Use", "command_view", "freed_names", "require_memory",
]  # fmt: skip

TURN_LIMIT: Final = 2**32 - 1  # of a graph that repeats commands


@dataclass(frozen=True, slots=True)
class CommandKind:
    """A kind of command, and its effects: `counter`, to which each adds one, and `counter_bytes`, to which it adds its bytes; whether it may be `captured`,
    which is part of a graph then; whether it is `ordered` with what foreign streams do with its buffers; whether commands of this kind have `scratch` memory
    in common, so that only the order of the device's own stream keeps them apart; the names of its buffers that it `only_reads`."""

    name: str
    counter: str = ""
    counter_bytes: str = ""
    captured: bool = True
    ordered: bool = False
    scratch: bool = False
    only_reads: frozenset[str] = frozenset()

    def counts(self, size_bytes: int) -> dict[str, int]:
        """What a command of so many bytes adds to the counters. One of none does nothing, and is not counted."""
        return {name: amount for name, amount in ((self.counter, 1), (self.counter_bytes, size_bytes)) if name} if size_bytes else {}


# How many invocations a launch has, and what else it counts, its plan says (`LaunchPlan.amounts`); and a replay what its graph has.
LAUNCH: Final = CommandKind("launch", "launches")
REPLAY: Final = CommandKind("replay", "graph_replays")
COPY: Final = CommandKind("copy", "copies", "bytes_copied", ordered=True, only_reads=frozenset({"source"}))
FILL: Final = CommandKind("fill", "fills", "bytes_filled", ordered=True)
PRODUCT: Final = CommandKind("product", scratch=True, only_reads=frozenset({"a", "b"}))
COLLECTIVE: Final = CommandKind("collective", scratch=True)  # which the communicator is, whose ranks go by its order
UPLOAD: Final = CommandKind("upload", "uploads", "bytes_uploaded", captured=False)
DOWNLOAD: Final = CommandKind("download", "downloads", "bytes_downloaded", captured=False)
CLEAR: Final = CommandKind("clear", captured=False)  # of memory that a dispatch stages
WAIT: Final = CommandKind("wait", "syncs", captured=False)
DRIVER: Final = CommandKind("driver", captured=False)  # calls about handles rather than memory


class Use(NamedTuple):
    """A buffer as a command uses it."""

    name: str
    buffer: Buffer
    reads: bool
    writes: bool


class CommandView(NamedTuple):
    """A command as people see it: the name of its kind, its title, what it uses."""

    kind: str
    title: str
    uses: tuple[Use, ...]


def command_view(kind: CommandKind, title: str, buffers: Iterable[tuple[str, Buffer]]) -> CommandView:
    """That of a command other than a launch. What is not only read may be read and written, but for fills."""
    return CommandView(kind.name, title, tuple([Use(name, buffer, kind is not FILL, name not in kind.only_reads) for name, buffer in buffers]))


class Command(ABC):
    """A launch, or a step of a sequence: call it to enqueue it. Within a capture it becomes part of the graph instead.

    A class of commands has its `_kind`, `_device`, `_title`, which errors call it, `_bound`, `_run` and, where arguments can change, `_copy` and `_follow`.
    """

    __slots__ = ()
    _kind: ClassVar[CommandKind]

    @property
    @abstractmethod
    def _device(self) -> Device:
        """Where it runs."""

    @property
    @abstractmethod
    def _title(self) -> str:
        """What errors call it."""

    def __call__(self) -> None:
        """Enqueues it."""
        if (recording := self._device._recording) is not None:
            recording.take(self)
        else:
            self._run()

    def _run(self) -> None:
        """Enqueues it, and asks for no capture. Classes that have a `__call__` of their own have no need of it."""
        raise NotImplementedError

    @abstractmethod
    def _bound(self) -> dict[str, Buffer]:
        """The buffers that it uses now, by name."""

    def _view(self) -> CommandView:
        """What pictures show of it, as it is now."""
        return command_view(self._kind, self._title, self._bound().items())

    def _copy(self) -> Command:
        """The same command with arguments of its own, for a graph. Itself where they cannot change."""
        return self

    def _follow(self, other: Command) -> bool:
        """Takes the arguments that another one of the same plan has now; false if it had them."""
        return False


def freed_names(buffers: Mapping[str, Buffer]) -> list[str]:
    """A sentence for each buffer that was freed, by name."""
    return [f"{name!r} {buffers[name].allocation.absence}" for name in sorted(buffers) if buffers[name].allocation.freed]


def require_memory(doing: str, buffers: Mapping[str, Buffer]) -> None:
    """Raises BindingError for buffers that were freed; `doing` is what uses them."""
    if freed := freed_names(buffers):
        raise BindingError(doing, freed)


class CommandRunner:
    """Commands in order, as one call: here a loop. `title` says what errors about freed memory call a command, by its number."""

    def __init__(self, commands: Sequence[Command], title: Callable[[int, Command], str]) -> None:
        self._commands, self._title = tuple(commands), title

    def __call__(self) -> None:
        """Runs all. Raises BindingError before anything ran when a buffer was freed, and what a command raises."""
        self.require()
        for command in self._commands:
            command()

    def require(self) -> None:
        """Raises BindingError when a buffer was freed."""
        for number, command in enumerate(self._commands):
            bound = command._bound()
            if any(buffer.allocation.freed for buffer in bound.values()):
                require_memory(self._title(number, command), bound)
