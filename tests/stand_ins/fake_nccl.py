"""NCCL in Python: C functions that write their calls down and do, at once, the work of ranks that all hold what this one holds."""

from __future__ import annotations

import ctypes
from functools import reduce

import numpy as np

__all__ = ["FakeNccl"]

_WORD, _INT = ctypes.c_void_p, ctypes.c_int
_DTYPES = {0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16, 7: np.float32, 8: np.float64}
_OPS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}
_AVERAGE = 4


class FakeNccl:
    """The library. `handle` is a communicator of so many `ranks`, of which this process is `rank`, on the GPU `number`; `calls` are names and arguments, after
    the addresses; `fail` has statuses by name, each given once; `open_groups` is how deep groups are open;
    `told` is the error of the communicator that it tells of itself, `ended` how the communicator was ended, of which `on_end` is told."""

    def __init__(self, ranks: int = 1, rank: int = 0, number: int = 0) -> None:
        self.handle, self.ranks, self.rank, self.number = 0xC0FFEE0, ranks, rank, number
        self.calls: list[tuple[object, ...]] = []
        self.fail: dict[str, int] = {}
        self.open_groups = 0
        self.told = 0
        self.ended: list[str] = []
        self.on_end = lambda how: None
        self.sent: list[bytes] = []
        self._receives: list[tuple[int, int]] = []
        self.ncclGetErrorString = ctypes.CFUNCTYPE(_WORD, _INT)(self._words)
        size, stream = ctypes.c_size_t, _WORD
        for name, types in {
            "AllReduce": (_WORD, _WORD, size, _INT, _INT, _WORD, stream), "ReduceScatter": (_WORD, _WORD, size, _INT, _INT, _WORD, stream),
            "AllGather": (_WORD, _WORD, size, _INT, _WORD, stream), "Broadcast": (_WORD, _WORD, size, _INT, _INT, _WORD, stream),
            "Send": (_WORD, size, _INT, _INT, _WORD, stream), "Recv": (_WORD, size, _INT, _INT, _WORD, stream), "GroupStart": (), "GroupEnd": (),
            "CommCount": (_WORD, ctypes.POINTER(_INT)), "CommUserRank": (_WORD, ctypes.POINTER(_INT)), "CommCuDevice": (_WORD, ctypes.POINTER(_INT)),
            "CommGetAsyncError": (_WORD, ctypes.POINTER(_INT)), "CommAbort": (_WORD,), "CommRevoke": (_WORD, _INT),
        }.items():  # fmt: skip
            setattr(self, f"nccl{name}", ctypes.CFUNCTYPE(_INT, *types)(self._doing(name)))

    def _doing(self, name: str):
        work = getattr(self, f"_{name}")

        def call(*arguments):
            if name in ("AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Send", "Recv"):
                self.calls.append((name, *arguments))
                if arguments[-2] != self.handle:
                    return 4
            else:
                self.calls.append((name,))
            if name == "GroupEnd":
                work()
                return self.fail.pop(name, 0)
            if status := self.fail.pop(name, 0):
                return status
            work(*arguments)
            return 0

        return call

    def _words(self, status):
        self._said = ctypes.create_string_buffer(f"stand-in's words for {status}".encode())
        return ctypes.addressof(self._said)

    def _CommCount(self, comm, found):
        found[0] = self.ranks

    def _CommUserRank(self, comm, found):
        found[0] = self.rank

    def _CommCuDevice(self, comm, found):
        found[0] = self.number

    def _CommGetAsyncError(self, comm, found):
        found[0] = self.told

    def _CommAbort(self, comm):
        self.ended.append("abort")
        self.on_end("abort")

    def _CommRevoke(self, comm, flags):
        self.ended.append("revoke")
        self.on_end("revoke")

    def _folded(self, values, op):
        found = reduce(_OPS[op], [values] * self.ranks)
        return found / self.ranks if op == _AVERAGE else found

    def _AllReduce(self, source, target, count, dtype, op, comm, stream):
        _array(target, count, dtype)[:] = self._folded(_array(source, count, dtype).copy(), op)

    def _ReduceScatter(self, source, target, count, dtype, op, comm, stream):
        whole = self._folded(_array(source, count * self.ranks, dtype).copy(), op)
        _array(target, count, dtype)[:] = whole[self.rank * count : (self.rank + 1) * count]

    def _AllGather(self, source, target, count, dtype, comm, stream):
        _array(target, count * self.ranks, dtype)[:] = np.tile(_array(source, count, dtype).copy(), self.ranks)

    def _Broadcast(self, source, target, count, dtype, root, comm, stream):
        _array(target, count, dtype)[:] = _array(source, count, dtype)

    def _Send(self, source, count, dtype, peer, comm, stream):
        self.sent.append(bytes(_array(source, count, dtype)))
        self._match()

    def _Recv(self, target, count, dtype, peer, comm, stream):
        self._receives.append((target, count))
        self._match()

    def _match(self):
        """What is received is what was sent, in order, once the group has ended."""
        while not self.open_groups and self.sent and self._receives:
            target, count = self._receives.pop(0)
            data = self.sent.pop(0)
            assert len(data) == count
            ctypes.memmove(target, data, count)

    def _GroupStart(self):
        self.open_groups += 1

    def _GroupEnd(self):
        self.open_groups -= 1
        self._match()


def _array(address, count, dtype):
    type_ = np.dtype(_DTYPES[dtype])
    return np.frombuffer((ctypes.c_char * (count * type_.itemsize)).from_address(address), type_) if count else np.empty(0, type_)
