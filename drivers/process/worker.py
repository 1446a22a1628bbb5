"""A worker process, of an `Executor` or of those that compile. It opens a device where it is asked to, and answers one request at a time.

`python -m vyre_py.drivers.process.worker FD` starts it.

Requests come through the standard input, answers go through the former standard output; Programs and arrays lie in the shared memory behind `FD`. An error
is an answer too. A malformed request ends the process: its sender cannot be trusted with a device.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from vyre_py.drivers.cache.lookup import compiled, validated
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import DeviceLost, DriverError, KernelAssertion, OutOfMemory
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.memory.host_arrays import Bytes, Host
from vyre_py.drivers.observe.process_trace import end_process_trace
from vyre_py.drivers.observe.rounds import MAX_ROUNDS
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.process.channel import (
    MAX_FRAME,
    Channel,
    ChannelBroken,
    ChannelClosed,
    MessageTooLarge,
    list_of,
    text_of,
    whole_of,
)
from vyre_py.drivers.process.error_data import describe
from vyre_py.drivers.process.shared_memory import SharedMemory
from vyre_py.drivers.registry import device as device_of
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import VyreError
from vyre_py.ir.language.types import TYPES, u8
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

__all__ = ["REQUESTS", "Answer", "Request", "Worker", "from_plain", "main"]

Request = Mapping[str, Any]
Answer = dict[str, Any]

_BYTE: Final = np.dtype(np.uint8)
_MAX_RANK: Final = 64
_PRINTED: Final = MAX_FRAME // 16  # characters of lines in an answer, each of which JSON may write as twelve bytes
_REPORT: Final = "this is a defect of vyre-py: please report it"
_ORPHAN_MS: Final = 2000  # how often a worker checks that its parent lives: another process may hold its pipe open


def from_plain(value: Any) -> Any:
    """A value of an option as it was before JSON: lists were tuples."""
    return tuple(map(from_plain, value)) if isinstance(value, list) else value


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MAX_RANK or not all(type(size) is int and 0 <= size < 1 << 63 for size in value):
        raise ChannelBroken("a shape is not whole numbers")
    return tuple(value)


class _Lines:
    """Lines that a Program prints, as many as an answer holds."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._left, self._dropped = _PRINTED, 0

    def add(self, line: str) -> None:
        self._left -= len(line) + 1
        if self._left >= 0:
            self._kept.append(line)
        else:
            self._dropped += 1

    def whole(self) -> list[str]:
        return [*self._kept, f"... {self._dropped} more lines are too much for an answer of the worker"] if self._dropped else self._kept


class Worker:
    """The state of the process between requests: its device, the pipelines by the names that the parent gave them, and resident memory by number."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        self.pipelines: dict[str, Pipeline] = {}
        self.held: dict[int, Buffer] = {}
        self._device: Device | None = None
        self._next = 1

    @property
    def device(self) -> Device:
        """The device. Raises ChannelBroken before `open`."""
        if self._device is None:
            raise ChannelBroken("a device is used before it is opened")
        return self._device

    def lost(self) -> bool:
        """Whether nothing more can be done with the device in this process."""
        try:
            if self._device is not None:
                self._device.require_usable()
        except DeviceLost:
            return True
        return False

    # ---- requests: each takes a message and gives the answer's fields

    def open(self, request: Request) -> Answer:
        """Opens the device of a name, the best for none; gives what the parent has to know of it."""
        opened = self._device = device_of(text_of(request, "device") or None)
        opened.warmup()
        limits = {field.name: getattr(opened.limits, field.name) for field in fields(opened.limits)}
        target, honoured = opened.target.name, sorted(opened.honoured_options)
        return {"name": opened.name, "description": opened.description, "limits": limits, "target": target, "honoured": honoured}

    def compile(self, request: Request) -> Answer:
        """Compiles the Program at a place in shared memory and keeps the pipeline under a name."""
        made = self.pipelines[text_of(request, "pipeline")] = self.device.compile_native(self._bytes(request).tobytes(), _options(request))
        return {"numerics": made.numerics}

    def ready(self, request: Request) -> Answer:
        """Answers as soon as all is imported, so that what ends the process from now on is not its start."""
        return {}

    def compile_artifact(self, request: Request) -> Answer:
        """Compiles the Program at a place in shared memory for targets by name, without a device; the artifact then lies at the beginning of that memory."""
        with importing:
            from vyre_py.lowering.artifact.file import encode  # executors do without it

        targets = [parse_target(name) for name in list_of(request, "targets")]
        data = encode(compiled(validated(self._bytes(request).tobytes()), targets, _options(request)))
        self.memory.put(np.frombuffer(data, _BYTE))
        return {"size_bytes": len(data)}

    def forget(self, request: Request) -> Answer:
        """Releases a pipeline."""
        self.pipelines.pop(text_of(request, "pipeline"), None)
        return {}

    def dispatch(self, request: Request) -> Answer:
        """Runs a pipeline: sizes, params and buffers stand in order of declaration; results are written over shared arguments. With `rounds`
        it is then launched many times over, and the answer has the nanoseconds of a launch in each round."""
        pipeline = self.pipelines.get(text_of(request, "pipeline"))
        if pipeline is None:
            raise ChannelBroken("a pipeline is run that was not compiled")
        interface = pipeline.artifact.interface
        arguments: dict[str, Any] = dict(_paired(interface.dims, list_of(request, "sizes")))
        for param, data in _paired_with(interface.params, list_of(request, "params")):
            components = np.frombuffer(bytes.fromhex(data), param.type.dtype)
            arguments[param.name] = components if param.type.is_vector else components[0]
        out: dict[str, Host] = {}
        for memory, place in _paired_with(interface.buffers, list_of(request, "buffers")):
            if place["kind"] == "resident":
                arguments[memory.name] = self._resident(place)
                continue
            shape = host_shape(_shape(place.get("shape")), memory.type)
            array = self.memory.array(whole_of(place, "at"), shape, memory.type.dtype)
            if place["kind"] == "given":
                arguments[memory.name] = array
            if memory.access.writes:
                out[memory.name] = array
        lines = _Lines()
        config = DispatchConfig(**{name: from_plain(value) for name, value in dict(request.get("config", ())).items()}, on_print=lines.add)
        taken: list[float] = []
        try:
            if rounds := whole_of(request, "rounds", MAX_ROUNDS):
                taken = pipeline.measure(arguments, rounds, config, out)
            else:
                pipeline.dispatch(arguments, config=config, out=out)
        except KernelAssertion as failed:  # the launch went on to its end, and so does the dispatch
            return {"printed": lines.whole(), "failed": describe(failed), "launch_ns": taken}
        return {"printed": lines.whole(), "launch_ns": taken}

    def allocate(self, request: Request) -> Answer:
        """Zeroed resident memory; gives its number."""
        number, self._next = self._next, self._next + 1
        self.held[number] = self.device.allocate(whole_of(request, "size_bytes"), u8)
        return {"number": number}

    def free(self, request: Request) -> Answer:
        """Gives resident memory back; again is quiet."""
        found = self.held.pop(whole_of(request, "number"), None)
        if found is not None:
            found.free()
        return {}

    def write(self, request: Request) -> Answer:
        """Copies shared bytes into resident memory."""
        data = self._bytes(request)
        self._range(request, "number", "offset", data.size).write(data)
        return {}

    def read(self, request: Request) -> Answer:
        """Copies resident memory into shared bytes."""
        data = self._bytes(request)
        self._range(request, "number", "offset", data.size).read(data)
        return {}

    def copy(self, request: Request) -> Answer:
        """Copies resident memory to resident memory."""
        size = whole_of(request, "size_bytes")
        self._range(request, "number", "offset", size).copy_from(self._range(request, "source", "source_offset", size))
        return {}

    def close(self, request: Request) -> Answer:
        """Gives the device back; the process ends after the answer."""
        if self._device is not None:
            self._device.close()
        return {}

    # ---- what requests speak of

    def _bytes(self, request: Request) -> Bytes:
        return self.memory.array(whole_of(request, "at"), (whole_of(request, "size_bytes"),), _BYTE)

    def _held(self, request: Request, key: str) -> Buffer:
        found = self.held.get(whole_of(request, key))
        if found is None:
            raise ChannelBroken("memory is used that was not allocated")
        return found

    def _range(self, request: Request, number: str, offset: str, size: int) -> Buffer:
        start = whole_of(request, offset)
        return self._held(request, number)[start : start + size]

    def _resident(self, place: Mapping[str, Any]) -> Buffer:
        buffer, type_ = self._held(place, "number"), TYPES.get(text_of(place, "type"))
        if type_ is None:
            raise ChannelBroken("memory has an unknown type")
        made = Buffer(self.device, buffer.allocation, whole_of(place, "offset"), _shape(place.get("shape")), type_)
        if made.offset_bytes + made.size_bytes > buffer.size_bytes:
            raise ChannelBroken("memory is used past its end")
        return made


def _options(request: Request) -> CompileOptions:
    return CompileOptions(**{name: from_plain(value) for name, value in dict(request.get("options", ())).items()})


def _paired(declared: Sequence[Any], given: list[Any]) -> list[tuple[str, Any]]:
    return [(declaration.name, value) for declaration, value in _paired_with(declared, given)]


def _paired_with(declared: Sequence[Any], given: list[Any]) -> list[tuple[Any, Any]]:
    if len(declared) != len(given):
        raise ChannelBroken(f"{len(given)} arguments for {len(declared)} declarations")
    return list(zip(declared, given, strict=True))


# Kind of request -> what answers it.
REQUESTS: Final[Mapping[str, Callable[[Worker, Request], Answer]]] = {
    "open": Worker.open, "compile": Worker.compile, "forget": Worker.forget, "dispatch": Worker.dispatch,
    "ready": Worker.ready, "compile_artifact": Worker.compile_artifact,
    "allocate": Worker.allocate, "free": Worker.free, "write": Worker.write, "read": Worker.read, "copy": Worker.copy, "close": Worker.close,
}  # fmt: skip


def answer(worker: Worker, request: Request) -> Answer:
    """The answer to a request, or the error that it raised. Raises ChannelBroken for a malformed request."""
    does = REQUESTS.get(text_of(request, "kind"))
    if does is None:
        raise ChannelBroken("a request of an unknown kind")
    try:
        return {"done": does(worker, request)}
    except VyreError as error:
        failed = error
    except MemoryError as error:
        failed = OutOfMemory("the worker has no memory left", cause=str(error), remedy="pass smaller arrays, or free buffers")
    except ChannelBroken:
        raise
    except Exception as error:  # noqa: BLE001 - a defect of ours, which the parent raises; the device has not said that it is lost
        failed = DriverError(f"the worker failed in {text_of(request, 'kind')!r}", cause=f"{type(error).__name__}: {error}", remedy=_REPORT)
    return {"error": describe(failed), "lost": worker.lost()}


def serve(worker: Worker, channel: Channel) -> None:
    """Answers requests until one asks to close. Raises ChannelClosed when the parent is gone, ChannelBroken for what is no request."""
    kind = ""
    while kind != "close":
        request = channel.receive()
        reply = {"id": whole_of(request, "id"), **answer(worker, request)}
        try:
            channel.send(reply)
        except MessageTooLarge:  # the parent is told at least what it was
            short = DriverError(str(reply.get("error", {}).get("text"))[:1000], cause=f"its description takes more than {MAX_FRAME} bytes")
            channel.send({"id": reply["id"], "error": describe(short), "lost": worker.lost()})
        kind = text_of(request, "kind")


def _take_pipes() -> tuple[int, int]:
    """The two pipes, on descriptors of their own: what a library prints goes to the standard error from now on."""
    source, sink = os.dup(0), os.dup(1)  # not inherited by processes that a library starts
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _watch(source: int, parent: int) -> None:
    """Ends the process when its parent has ended, even while it computes: an endless kernel would keep the device for ever."""
    pipe = select.poll()
    pipe.register(source, 0)  # errors and hang-ups alone
    while not pipe.poll(_ORPHAN_MS) and os.getppid() == parent:
        pass
    os._exit(0)


def main() -> None:
    """Runs the worker. Its exit status is 0 after `close` and when the parent is gone, and 2 after what is no request."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the parent to decide what Ctrl-C ends
    faulthandler.enable()
    source, sink = _take_pipes()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    worker, channel = Worker(SharedMemory(descriptor)), Channel(source, sink)
    threading.Thread(target=_watch, args=(source, parent), name="vyre-orphan", daemon=True).start()
    status = 0
    try:
        serve(worker, channel)
    except ChannelClosed:
        pass
    except ChannelBroken as error:
        sys.stderr.write(f"vyre-py worker: {error}\n")
        status = 2
    try:
        end_process_trace()
    except DriverError as error:
        sys.stderr.write(f"vyre-py worker: {error}\n")
    sys.stderr.flush()
    os._exit(status)  # the device is closed, or lost with the process: nothing is left that an orderly exit could do


if __name__ == "__main__":
    main()
