"""NCCL in Python for several ranks of one process, a thread and a stand-in for the driver each: what ranks do together meets at a barrier, for real."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from fake_nccl import _DTYPES, _OPS

__all__ = ["RankedNccl"]

_BF16 = 9
_BYTES = 1
_AVERAGE = 4
_FIRST = 1000  # the address of the first rank's communicator


class RankedNccl:
    """The library. A communicator's address says which rank it is of; all calls of one rank come from one thread."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._barrier = threading.Barrier(ranks, timeout=60)
        self._told: list[Any] = [None] * ranks
        self._group = threading.local()
        self.wrong: list[BaseException] = []
        word, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        for name, types in {
            "AllReduce": (word, word, size, number, number, word, word), "ReduceScatter": (word, word, size, number, number, word, word),
            "AllGather": (word, word, size, number, word, word), "Broadcast": (word, word, size, number, number, word, word),
            "Send": (word, size, number, number, word, word), "Recv": (word, size, number, number, word, word), "GroupStart": (), "GroupEnd": (),
        }.items():  # fmt: skip
            setattr(self, f"nccl{name}", ctypes.CFUNCTYPE(number, *types)(self._careful(getattr(self, f"_{name}"))))

    def _careful(self, work: Callable[..., None]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - C takes a status, and the other ranks must not wait
                self.wrong.append(error)
                self._barrier.abort()
                return 3
            return 0

        return call

    # ---- communicators

    def ncclGetUniqueId(self, unique: Any) -> int:
        return 0

    def ncclCommInitRank(self, made: Any, ranks: int, unique: Any, rank: int) -> int:
        made._obj.value = _FIRST + rank
        return 0

    def ncclGetVersion(self, found: Any) -> int:
        found._obj.value = 22900
        return 0

    def ncclCommCount(self, comm: Any, found: Any) -> int:
        found._obj.value = self.ranks
        return 0

    def ncclCommUserRank(self, comm: Any, found: Any) -> int:
        found._obj.value = comm.value - _FIRST
        return 0

    def ncclCommCuDevice(self, comm: Any, found: Any) -> int:
        return self.ncclCommUserRank(comm, found)  # a GPU each

    # ---- what ranks do together

    def _shared(self, comm: int, data: Any) -> list[Any]:
        """What each rank gave."""
        self._told[comm - _FIRST] = data
        self._barrier.wait()
        found = list(self._told)
        self._barrier.wait()
        return found

    def _folded(self, values: list[Any], op: int) -> Any:
        total = reduce(_OPS[op], values)
        return (total / self.ranks).astype(total.dtype) if op == _AVERAGE else total

    def _AllReduce(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        _array(target, count, dtype)[:] = self._folded(self._shared(comm, _array(source, count, dtype).copy()), op)

    def _ReduceScatter(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        whole, rank = self._folded(self._shared(comm, _array(source, count * self.ranks, dtype).copy()), op), comm - _FIRST
        _array(target, count, dtype)[:] = whole[rank * count : (rank + 1) * count]

    def _AllGather(self, source: int, target: int, count: int, dtype: int, comm: int, stream: int) -> None:
        _array(target, count * self.ranks, dtype)[:] = np.concatenate(self._shared(comm, _array(source, count, dtype).copy()))

    def _Broadcast(self, source: int, target: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        _array(target, count, dtype)[:] = self._shared(comm, _array(source, count, dtype).copy())[root]

    def _GroupStart(self) -> None:
        self._group.calls = []

    def _GroupEnd(self) -> None:
        calls, self._group.calls = self._group.calls, None
        self._exchange(calls)

    def _Send(self, source: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._passed((True, source, count, peer, comm))

    def _Recv(self, target: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._passed((False, target, count, peer, comm))

    def _passed(self, call: tuple[bool, int, int, int, int]) -> None:
        if getattr(self._group, "calls", None) is None:
            self._exchange([call])
        else:
            self._group.calls.append(call)

    def _exchange(self, calls: list[tuple[bool, int, int, int, int]]) -> None:
        """What a rank sends to another arrives there in order."""
        comm = calls[0][-1]
        all_sent = self._shared(comm, [(peer, bytes(_array(at, count, _BYTES))) for sends, at, count, peer, _ in calls if sends])
        mine = {rank: [data for peer, data in sent if peer == comm - _FIRST] for rank, sent in enumerate(all_sent)}
        for sends, at, count, peer, _ in calls:
            if not sends:
                data = mine[peer].pop(0)
                assert len(data) == count
                ctypes.memmove(at, data, count)


def _array(address: int, count: int, dtype: int) -> Any:
    type_ = np.dtype(ml_dtypes.bfloat16 if dtype == _BF16 else _DTYPES[dtype])
    return np.frombuffer((ctypes.c_char * (count * type_.itemsize)).from_address(address), type_) if count else np.empty(0, type_)
