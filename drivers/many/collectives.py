"""Collectives as steps of sequences: what the ranks of a communicator do together. Each rank makes the same steps, and runs them in the same order.

A communicator is NCCL's, and belongs to who made it: nccl4py, PyTorch, CuPy, or other code that gives its address. Who made it also aborts it, in every
process that still waits, once a rank is lost: work that was enqueued never ends by itself then.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.many.commands import COLLECTIVE
from vyre_py.drivers.many.sequence import SequenceStep, require_buffer
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.ops import REDUCTIONS
from vyre_py.ir.public import public

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = [
    "CollectiveStep", "Communicator", "Transfer", "all_gather_step", "all_reduce_step", "broadcast_step", "exchange_step",
    "reduce_scatter_step",
]  # fmt: skip


class Communicator(Protocol):
    """A device's view of a communicator: how many `ranks` it has, and which one this process is, its `rank`."""

    ranks: int
    rank: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One call of a collective: `kind` ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send" or "receive"), the buffers that it reads and writes,
    the `reduction`, and the `peer`: the root of a broadcast, or who sends or receives."""

    kind: str
    source: Buffer | None = None
    target: Buffer | None = None
    reduction: str = ""
    peer: int = 0


class CollectiveStep(SequenceStep):
    """A collective, through the device's own library. Made by `all_reduce_step` and its like. Attribute: `transfers`, its calls."""

    _kind = COLLECTIVE
    __slots__ = ("transfers",)

    def __init__(self, device: Device, name: str, transfers: tuple[Transfer, ...]) -> None:
        used = [(f"{what}{'' if len(transfers) == 1 else f' {k}'}", buffer) for k, one in enumerate(transfers)
                for what, buffer in (("source", one.source), ("target", one.target)) if buffer is not None]  # fmt: skip
        super().__init__(device, name, dict(used))
        self.transfers = transfers


def _opened(doing: str, communicator: Any, source: Any, target: Any) -> Communicator:
    """The communicator, for two buffers of one type on one device. Raises BindingError, Unsupported."""
    require_buffer(doing, "source", source, False)
    require_buffer(doing, "target", target, True)
    problems = []
    if source.device is not target.device:
        problems.append(f"the buffers are on {source.device.name} and {target.device.name}; one device is needed")
    if source.type.scalar is not target.type.scalar:
        problems.append(f"'target' needs elements of {source.type.scalar}, got {target.type}")
    if problems:
        raise BindingError(doing, problems)
    opened: Communicator = source.device._communicator(communicator)
    return opened


def _require_count(doing: str, name: str, buffer: Buffer, wanted: int, why: str) -> None:
    count = prod(buffer.host_shape)
    if count != wanted:
        raise BindingError(doing, [f"{name!r} needs {wanted} elements, {why}, got {count}"])


def _require_apart(doing: str, whole: Buffer, other: Buffer, part: Buffer) -> None:
    """Raises BindingError where the two overlap, unless in the way that NCCL calls in place: the other is this `part` of the whole."""
    if whole.overlaps(other) and (part.address, part.size_bytes) != (other.address, other.size_bytes):
        raise BindingError(doing, ["'target' overlaps 'source'; the two are separate, or in place, this rank's part where it stands in the whole"])


def _part(whole: Buffer, size_bytes: int, rank: int) -> Buffer:
    """A rank's part of a buffer."""
    return whole.as_bytes()[rank * size_bytes : (rank + 1) * size_bytes]


def _require_reduction(doing: str, op: Any) -> None:
    if op not in REDUCTIONS:
        raise BindingError(doing, [f"op is one of {', '.join(map(repr, REDUCTIONS))}, got {shown(op)}"])


@public
def all_reduce_step(communicator: Any, source: Buffer, target: Buffer, *, op: str = "sum") -> CollectiveStep:
    """target = the elements of `source` on all ranks, added or folded by `op` ("sum", "prod", "max", "min", "avg"), on every rank, for `device.sequence`.

    The two are of one type and count, and may be the same buffer. Elements are i8, u8, i32, u32, i64, u64, f16, bf16, f32 or f64. `communicator` is nccl4py's,
    PyTorch's (a ProcessGroupNCCL that has communicated), CuPy's, or the address of an ncclComm_t as an integer; it is blocking, and of this device. Floats are
    added in an order of NCCL's. On other devices than CUDA Unsupported is raised, DeviceUnavailable without NCCL, BindingError for what does not fit.
    """
    comm = _opened("all_reduce_step", communicator, source, target)
    _require_reduction("all_reduce_step", op)
    _require_count("all_reduce_step", "target", target, prod(source.host_shape), "as 'source' has")
    _require_apart("all_reduce_step", source, target, source)
    return source.device._collective_step(comm, f"all_reduce over {comm.ranks} ranks", (Transfer("all_reduce", source, target, op),))


@public
def all_gather_step(communicator: Any, source: Buffer, target: Buffer) -> CollectiveStep:
    """target = the elements of `source` on all ranks, one rank's after the other's, on every rank. `target` has as many times the elements as there are ranks;
    elements are of any type, the same on both sides. In place `source` is this rank's part of `target`. Communicators and errors as for `all_reduce_step`."""
    comm = _opened("all_gather_step", communicator, source, target)
    _require_count("all_gather_step", "target", target, comm.ranks * prod(source.host_shape), f"those of 'source' on {comm.ranks} ranks")
    _require_apart("all_gather_step", target, source, _part(target, source.size_bytes, comm.rank))
    return source.device._collective_step(comm, f"all_gather over {comm.ranks} ranks", (Transfer("all_gather", source, target),))


@public
def reduce_scatter_step(communicator: Any, source: Buffer, target: Buffer, *, op: str = "sum") -> CollectiveStep:
    """target = this rank's part of what `all_reduce_step` gives: `source` has as many times the elements of `target` as there are ranks. In place `target` is
    this rank's part of `source`. Types, ops, communicators and errors as for `all_reduce_step`."""
    comm = _opened("reduce_scatter_step", communicator, source, target)
    _require_reduction("reduce_scatter_step", op)
    _require_count("reduce_scatter_step", "source", source, comm.ranks * prod(target.host_shape), f"those of 'target' on {comm.ranks} ranks")
    _require_apart("reduce_scatter_step", source, target, _part(source, target.size_bytes, comm.rank))
    return source.device._collective_step(comm, f"reduce_scatter over {comm.ranks} ranks", (Transfer("reduce_scatter", source, target, op),))


@public
def broadcast_step(communicator: Any, buffer: Buffer, *, root: int = 0) -> CollectiveStep:
    """buffer = what it is on the rank `root`, on every rank; elements are of any type. Communicators and errors as for `all_reduce_step`."""
    comm = _opened("broadcast_step", communicator, buffer, buffer)
    _require_rank("broadcast_step", "root", root, comm)
    return buffer.device._collective_step(comm, f"broadcast from rank {root}", (Transfer("broadcast", buffer, buffer, peer=root),))


@public
def exchange_step(communicator: Any, sends: Iterable[tuple[Buffer, int]], receives: Iterable[tuple[Buffer, int]]) -> CollectiveStep:
    """Sends buffers to ranks and receives others from ranks, all at once: a halo. `sends` and `receives` are pairs of a buffer and a rank, at least one. What
    one rank sends to another arrives there in order, in buffers of as many bytes. Buffers that are received overlap no other. Communicators and errors as
    for `all_reduce_step`."""
    doing = "exchange_step"
    pairs = [("send", *_pair(doing, "sends", pair)) for pair in sends] + [("receive", *_pair(doing, "receives", pair)) for pair in receives]
    if not pairs:
        raise BindingError(doing, ["nothing is sent or received"])
    device = pairs[0][1].device
    for kind, buffer, _ in pairs:
        require_buffer(doing, kind, buffer, kind == "receive")
        if buffer.device is not device:
            raise BindingError(doing, [f"the buffers are on {device.name} and {buffer.device.name}; one device is needed"])
    comm = device._communicator(communicator)
    for kind, _, peer in pairs:
        _require_rank(doing, f"the rank to {kind}", peer, comm)
    for number, (kind, buffer, _) in enumerate(pairs):
        if kind == "receive" and any(buffer.overlaps(other) for k, (_, other, _) in enumerate(pairs) if k != number):
            raise BindingError(doing, ["a buffer that is received overlaps another one"])
    transfers = [
        Transfer(kind, source=buffer if kind == "send" else None, target=buffer if kind == "receive" else None, peer=peer) for kind, buffer, peer in pairs
    ]
    return device._collective_step(comm, f"exchange of {len(pairs)} buffers", tuple(transfers))


def _pair(doing: str, name: str, pair: Any) -> tuple[Buffer, int]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], Buffer):
        raise BindingError(doing, [f"{name} are pairs of a buffer and a rank, got {shown(pair)}"])
    return pair[0], pair[1]


def _require_rank(doing: str, name: str, rank: Any, communicator: Communicator) -> None:
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < communicator.ranks:
        raise BindingError(doing, [f"{name} is a whole number below {communicator.ranks}, got {shown(rank)}"])
