"""The device of a worker process, as far as its parent sees it: resident memory, and what binding arguments asks of a device."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import DeviceLost, OutOfMemory
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.process.channel import whole_of
from vyre_py.drivers.process.supervisor import Session, Supervisor
from vyre_py.drivers.process.worker_process import Opened
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Entry, Image, Step

__all__ = ["Remote", "RemoteDevice"]

_CHUNK_BYTES: Final = 64 << 20  # of resident memory through shared memory at once
_BYTE: Final = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Remote:
    """A handle of memory in a worker: the session that it lives in, and the number that the worker knows it by."""

    session: int
    number: int


class RemoteDevice(Device):
    """Stands for the worker's device in buffers, and where arguments are bound. It compiles and launches nothing itself: `Executor.dispatch` does.

    `worker_name` is the device's own name, which its errors speak of; `honoured` the options of a launch that it takes.
    """

    kind: ClassVar[str] = "executor"

    def __init__(self, supervisor: Supervisor, opened: Opened, timeout: float | None) -> None:
        self.worker_name = opened.name  # what this device's own name is made of
        super().__init__(0, opened.target, opened.limits, opened.description)
        self.honoured = opened.honoured
        self._supervisor = supervisor
        self._timeout = timeout

    @property
    def name(self) -> str:
        """Tells it from the device of the same name in this process."""
        return f"the executor of {self.worker_name}"

    def require_usable(self) -> None:
        """Raises DeviceLost after `close`, and in a forked child."""
        self._supervisor.require_usable()

    def require_fitting(self, size_bytes: int) -> None:
        """Raises the OutOfMemory that the worker's device has for one buffer that is larger than it takes."""
        if size_bytes > self.limits.buffer_bytes:
            raise OutOfMemory(
                f"{self.worker_name} cannot allocate {size_bytes} bytes", meaning=f"one buffer holds at most {self.limits.buffer_bytes} bytes",
                remedy="ask for less, or split the data",
            )  # fmt: skip

    def lost_buffer(self, value: object) -> DeviceLost | None:
        """The error for a buffer of this device whose worker is gone; None for anything else."""
        if not isinstance(value, Buffer) or value.device is not self or value.allocation.freed:
            return None
        handle: Remote = value.allocation.handle
        return self._supervisor.stale(handle.session)

    # ---- memory: each a request to the worker

    def _run(self, what: str, does: Any, session: int | None) -> Any:
        return self._supervisor.run(what, does, session)

    def _allocate(self, size_bytes: int) -> Remote:
        def does(session: Session) -> Remote:
            number = session.process.ask_for("allocate", {"size_bytes": size_bytes}, self._timeout, partial(whole_of, key="number"))
            return Remote(session.number, number)

        made: Remote = self._run("an allocation", does, None)
        return made

    def _free(self, handle: Remote, size_bytes: int) -> None:
        timeout = self._timeout  # not the device, which then lives no longer than its buffers

        def does(session: Session) -> None:
            session.process.ask("free", {"number": handle.number}, timeout)

        self._supervisor.leave(does, handle.session)

    def _write(self, handle: Remote, offset: int, source: Bytes) -> None:
        for begin in range(0, source.size, _CHUNK_BYTES):
            self._run("an upload", partial(self._write_chunk, handle, offset + begin, source[begin : begin + _CHUNK_BYTES]), handle.session)

    def _write_chunk(self, handle: Remote, offset: int, data: Bytes, session: Session) -> None:
        session.process.memory.put(data)
        session.process.ask("write", {"number": handle.number, "offset": offset, "at": 0, "size_bytes": data.size}, self._timeout)
        self._supervisor.counters.bytes_sent += data.size

    def _read(self, handle: Remote, offset: int, target: Bytes) -> None:
        for begin in range(0, target.size, _CHUNK_BYTES):
            self._run("a download", partial(self._read_chunk, handle, offset + begin, target[begin : begin + _CHUNK_BYTES]), handle.session)

    def _read_chunk(self, handle: Remote, offset: int, data: Bytes, session: Session) -> None:
        session.process.memory.reserve(data.size)
        session.process.ask("read", {"number": handle.number, "offset": offset, "at": 0, "size_bytes": data.size}, self._timeout)
        data[:] = session.process.memory.array(0, (data.size,), _BYTE)
        self._supervisor.counters.bytes_received += data.size

    def _copy(self, source: Remote, source_offset: int, target: Remote, target_offset: int, size_bytes: int) -> None:
        request = {"number": target.number, "offset": target_offset, "source": source.number, "source_offset": source_offset, "size_bytes": size_bytes}

        def does(session: Session) -> None:
            if source.session == session.number:  # else `target` is what the next call refuses
                session.process.ask("copy", request, self._timeout)

        stale = self._supervisor.stale(source.session)
        if stale is not None:
            raise stale
        self._run("a copy", does, target.session)

    # ---- code

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> Any:
        self._lacks("code of its own: Executor.dispatch runs Programs")

    def _make_launch(self, plan: LaunchPlan, codes: tuple[Any, ...]) -> Launch:
        self._lacks("launches of its own: Executor.dispatch runs Programs")

    def _synchronize(self) -> None:
        pass  # every request has run to its end when it is answered

    def _close(self) -> None:
        self._supervisor.close(wait=False)
