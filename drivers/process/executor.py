"""An executor: Programs run in a worker process that is killed when it takes too long or breaks, and replaced."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import TracebackType
from typing import Any, Final

from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Limits
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Host
from vyre_py.drivers.observe.rounds import MAX_ROUNDS
from vyre_py.drivers.process.jobs import DispatchJob, PreparedProgram, key_of
from vyre_py.drivers.process.remote import Remote, RemoteDevice
from vyre_py.drivers.process.supervisor import Counters, PendingCall, Supervisor
from vyre_py.drivers.process.worker_process import Opened, to_plain
from vyre_py.drivers.registry import device as registered
from vyre_py.drivers.reports import show_line
from vyre_py.ir.check import Checked, check
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions

__all__ = ["Executor"]

_CACHED: Final = 256  # Programs that the parent knows
_GRACE: Final = 1.0  # seconds that a kernel which can be interrupted gets to end, before its process is killed


def _seconds(value: object, what: str) -> float | None:
    """A time in seconds; None and infinity are no limit. Raises Unsupported for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise Unsupported("vyre-py", [Missing(f"{what}={shown(value)}", help="it is a time in seconds")])
    return None if value > 1e9 else float(value)


@public
class Executor(Closing, Stationary):
    """Runs Programs on a device that a worker process owns, so that no Program can take this process with it.

    A call that takes longer than its timeout raises DispatchTimeout, and the worker is killed; when the worker dies, or its device is lost, the
    call that it ran raises DeviceLost with the cause. Either way the next call starts another worker, and waiting calls run there. A worker that ends before
    it has started a call is replaced, after growing pauses. The call raises DeviceUnavailable when three such workers in a row end by themselves, or when they
    are killed from outside for longer than `start_timeout` (60 seconds for None); then each waiting call has one try. Cancelling a running call ends it and
    its worker. One worker runs one call at a time, in the order of arrival; any number of threads may call. Host arrays travel through shared memory.

    `device` is a device's name, None the best that is here; `timeout` in seconds holds for every call that gives none, and does not count waiting,
    starting and compiling; `restart=False`, or more than `max_restarts` losses, makes the executor refuse with the first cause. `start_timeout` bounds
    a worker's start, `compile_timeout` one compilation. Close it, or use it in a `with` block; it ends with the process in any case.

    Attributes: `name` and `description` of the device, `counters`, `limits`, `pid` of the worker. Raises DeviceUnavailable; Unsupported on Windows.
    """

    travels_as = "make one there"

    def __init__(
        self, device: str | None = None, timeout: float | None = None, restart: bool = True, max_restarts: int | None = None, *,
        start_timeout: float | None = 60.0, compile_timeout: float | None = 300.0,
    ) -> None:  # fmt: skip
        if max_restarts is not None and (type(max_restarts) is not int or max_restarts < 0):
            raise Unsupported("vyre-py", [Missing(f"max_restarts={shown(max_restarts)}", help="it is a whole number")])
        if device is not None and not isinstance(device, str):
            device = registered(device).name  # raises, with the reason, where there is no such device
        self._timeout = _seconds(timeout, "timeout")
        self._compile_timeout = _seconds(compile_timeout, "compile_timeout")
        self._known: OrderedDict[Any, PreparedProgram] = OrderedDict()
        self._lock = threading.Lock()
        self._supervisor = Supervisor(device, max_restarts if restart else 0, _seconds(start_timeout, "start_timeout"))
        try:
            opened: Opened = self._supervisor.run("its start", lambda session: session.opened)
        except BaseException:
            self._supervisor.close(wait=False)
            raise
        self._device = RemoteDevice(self._supervisor, opened, self._timeout)
        # The device, not the executor: buffers keep it, and with it the worker that they lie in.
        weakref.finalize(self._device, self._supervisor.close, wait=False)

    def __repr__(self) -> str:
        return f"<Executor of {self.name}: {self.description}>"

    @property
    def name(self) -> str:
        """The worker's device: `kind:ordinal`."""
        return self._device.worker_name

    @property
    def description(self) -> str:
        """The device, for people."""
        return self._device.description

    @property
    def limits(self) -> Limits:
        """The limits of the device."""
        return self._device.limits

    @property
    def counters(self) -> Counters:
        """The counters: `counters.snapshot()` has all by name."""
        return self._supervisor.counters

    @property
    def pid(self) -> int | None:
        """The process id of the worker; None without one."""
        return self._supervisor.pid

    # ---- Programs

    def compile(self, program: Program | Checked | bytes, options: CompileOptions | None = None) -> str:
        """Does now what the first dispatch of a Program would: checks it, sends it, compiles it. Gives the numerics that the code follows.

        Raises WireError, ValidationError, Unsupported, ToolchainError, DispatchTimeout, DeviceLost.
        """
        prepared = self._prepared(program, CompileOptions.given(options))
        counters, timeout = self.counters, self._compile_timeout
        numerics: str = self._supervisor.run(repr(prepared.interface.name), lambda session: prepared.compiled(session, counters, timeout))
        return numerics

    def dispatch(
        self, program: Program | Checked | bytes, arguments: Any = None, *, config: DispatchConfig | None = None, options: CompileOptions | None = None,
        timeout: float | None = None, out: Mapping[str, Host] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs a Program once over host arrays (never changed) and buffers of this executor, waits, and gives the written buffers by name.

        As `Pipeline.dispatch`: what is only written may be left out; a written host argument comes back as a new array, or in `out[name]`; a written
        buffer as itself. A Program goes as itself or as `to_bytes` wrote it, and is sent and compiled once. Raises what compiling and dispatching raise
        in this process, DispatchTimeout after `timeout` (or `config.timeout`) seconds, DeviceLost when the worker is lost while it runs this.
        """
        job = self._bound(program, arguments, config, options, timeout, out)
        results: dict[str, Any] = self._supervisor.run(repr(job.prepared.interface.name), job.does, self._session_of(job))
        return results

    def measure(
        self, program: Program | Checked | bytes, arguments: Any = None, *, rounds: int = 5, options: CompileOptions | None = None,
        timeout: float | None = None,
    ) -> tuple[dict[str, Any], list[float]]:  # fmt: skip
        """What `dispatch` gives, and nanoseconds a launch in each of so many rounds of launches that follow it in the worker, over the same memory there.

        `timeout` bounds all of it, compiling left out. `rounds` is from 1 to 1000; raises Unsupported for another number, and what `dispatch` raises.
        """
        if type(rounds) is not int or not 1 <= rounds <= MAX_ROUNDS:
            raise Unsupported("vyre-py", [Missing(f"rounds={shown(rounds)}", help=f"it is a whole number from 1 to {MAX_ROUNDS}")])
        job = replace(self._bound(program, arguments, None, options, timeout, None), rounds=rounds)
        found: tuple[dict[str, Any], list[float]] = self._supervisor.run(repr(job.prepared.interface.name), job.measures, self._session_of(job))
        return found

    def submit(
        self, program: Program | Checked | bytes, arguments: Any = None, *, config: DispatchConfig | None = None, options: CompileOptions | None = None,
        timeout: float | None = None, out: Mapping[str, Host] | None = None,
    ) -> PendingCall:  # fmt: skip
        """As `dispatch`, without waiting: a pending result with `done()`, `result(timeout)`, `cancel()` and `await`.

        Cancelling takes back what waits. A call that runs is ended by ending its worker, with resident memory; so is one that a coroutine awaits, when that
        is cancelled or `asyncio.wait_for` has waited for long enough. The calls behind it run on the next worker.

        Host arrays are read when the worker's turn comes: leave them as they are until then. Arguments that do not fit raise at once.
        """
        job = self._bound(program, arguments, config, options, timeout, out)
        return self._supervisor.submit(repr(job.prepared.interface.name), job.does, self._session_of(job))

    def _bound(
        self, program: Program | Checked | bytes, arguments: Any, config: DispatchConfig | None, options: CompileOptions | None,
        timeout: float | None, out: Mapping[str, Host] | None,
    ) -> DispatchJob:  # fmt: skip
        device = self._device
        device.require_usable()
        prepared = self._prepared(program, CompileOptions.given(options))
        config = DispatchConfig.given(config)
        if config.stream is not None:
            raise Unsupported(device.name, [Missing("dispatch option stream", help="a stream means nothing in the worker's process")])
        config.refuse(device.worker_name, device.honoured | {"timeout"})
        given = _seconds(timeout, "timeout")
        limit = given if timeout is not None else _seconds(config.timeout, "timeout") if config.timeout is not None else self._timeout
        self._refuse_lost(arguments)
        binding = bind_arguments(device, prepared.interface, arguments, {}, staged=True, out=out, max_output_bytes=config.max_output_bytes)
        for memory in binding.interface.buffers:
            if memory.name not in binding.buffers:
                device.require_fitting(prod(binding.shapes[memory.name]) * memory.type.size_bytes)
        sent = {name: value for name, value in to_plain(replace(config, on_print=None)).items() if name != "timeout"}
        if limit is not None and prepared.options.interruptible and "timeout" in device.honoured:
            # The kernel itself looks at the clock's verdict, so that worker and resident memory live on.
            sent["timeout"], limit = limit, limit + _GRACE
        return DispatchJob(prepared, binding, sent, out or {}, self.counters, limit, self._compile_timeout, config.on_print or show_line)

    def _refuse_lost(self, arguments: Any) -> None:
        """Raises DeviceLost where an argument lies in a worker that is gone."""
        values: Any = arguments.values() if isinstance(arguments, Mapping) else arguments if isinstance(arguments, Sequence) else ()
        for value in values:
            lost = self._device.lost_buffer(value)
            if lost is not None:
                raise lost

    def _session_of(self, job: DispatchJob) -> int | None:
        """The session that resident arguments live in. Freed meanwhile or not, the worker refuses those that it has no longer."""
        for buffer in job.binding.buffers.values():
            handle: Remote = buffer.allocation.handle
            return handle.session
        return None

    def _prepared(self, program: Any, options: CompileOptions) -> PreparedProgram:
        """The checked Program, from memory where it was seen before. Raises WireError, ValidationError."""
        key: Any = None
        if isinstance(program, (bytes, bytearray, memoryview)):
            key = (hashlib.sha256(program).digest(), options)
            with self._lock:
                if key in self._known:
                    return self._known[key]
            program = Program.from_bytes(program)
        if isinstance(program, Checked):
            program = program.program
        elif not isinstance(program, Program) or "code_digest" not in vars(program):
            program = check(program).program  # before its digest: what breaks a rule may have none, or one that takes forever
        key = key or key_of(program, options)
        with self._lock:
            found = self._known.setdefault(key, PreparedProgram(program, options))
            self._known.move_to_end(key)
            while len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return found

    # ---- resident memory

    def upload(self, array: Any, type_: Type | None = None) -> Buffer:
        """A copy of a host array in the worker's device, as `Device.upload`. It ends with its worker: a later use raises DeviceLost.

        Raises BindingError, OutOfMemory, DispatchTimeout, DeviceLost.
        """
        return self._device.upload(array, type_)

    def allocate(self, shape: int | Sequence[int], type_: Type) -> Buffer:
        """A buffer of zeros in the worker's device, as `Device.allocate`."""
        return self._device.allocate(shape, type_)

    def download(self, buffer: Buffer, out: Host | None = None) -> Host:
        """A host copy of a buffer of this executor. `out` of the same shape and dtype is written in place."""
        return self._device.download(self._own(buffer, "download"), out)

    def free(self, buffer: Buffer) -> None:
        """Gives a buffer's memory back once the calls so far are done; again is quiet."""
        self._own(buffer, "free").free()

    def _own(self, buffer: Any, doing: str) -> Buffer:
        if not isinstance(buffer, Buffer) or buffer.device is not self._device:
            raise BindingError(doing, [f"a buffer of {self._device.name} is needed, got {shown(buffer)}"])
        return buffer

    # ---- life

    def restart(self) -> None:
        """Ends the worker at once. A running call raises DeviceLost, resident memory is lost, and the next call starts another worker."""
        self._device.require_usable()
        self._supervisor.end_worker("Executor.restart() ended it")

    def close(self, wait: bool = True) -> None:
        """Takes no more calls and ends the worker: once those that wait are done, or at once, in which case they raise DeviceLost. Again is quiet."""
        self._supervisor.close(wait)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(wait=kind is None)
