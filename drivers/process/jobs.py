"""What an executor has its worker do with a Program: compile it once, and run it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np

from vyre_py.drivers.binding import BindingPlan
from vyre_py.drivers.memory.buffer import host_shape
from vyre_py.drivers.memory.host_arrays import Host, result_view
from vyre_py.drivers.process.channel import ChannelBroken, list_of, text_of
from vyre_py.drivers.process.error_data import rebuild
from vyre_py.drivers.process.remote import Remote
from vyre_py.drivers.process.shared_memory import places
from vyre_py.drivers.process.supervisor import Counters, Session
from vyre_py.drivers.process.worker_process import WorkerFailed, to_plain
from vyre_py.ir.cached import cached_property
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.digest import places_digest
from vyre_py.ir.language.errors import VyreError, WireError
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.options import CompileOptions

__all__ = ["DispatchJob", "PreparedProgram", "key_of"]

_CACHED: Final = 256  # pipelines that a worker keeps
_BYTE: Final = np.dtype(np.uint8)


def key_of(program: Program, options: CompileOptions) -> tuple[Any, ...]:
    """What a compiled Program is known by: errors of asserts name places."""
    return program.code_digest, program.interface_digest, options, places_digest(program) if program.reports else b""


def _told(done: Mapping[str, Any]) -> tuple[list[str], VyreError | None, list[float]]:
    """The lines that a Program printed, the error of an assert, and nanoseconds of launches. Raises ErrorDataBroken, ChannelBroken."""
    lines, failed, taken = list_of(done, "printed"), done.get("failed"), list_of(done, "launch_ns")
    if not all(isinstance(ns, (int, float)) for ns in taken):
        raise ChannelBroken("a time is no number")
    return [str(line) for line in lines], None if failed is None else rebuild(failed), [float(ns) for ns in taken]


@dataclass(frozen=True)
class PreparedProgram:
    """A Program that was checked, with its options; `name` is what workers know the pipeline by."""

    program: Program
    options: CompileOptions

    @cached_property
    def interface(self) -> Interface:
        """What arguments are bound to."""
        return Interface(self.program.name, self.program.dims, self.program.params, self.program.buffers, self.program.widths.names)

    @cached_property
    def name(self) -> str:
        """The name, a digest of all that makes the code."""
        return hashlib.sha256(repr(key_of(self.program, self.options)).encode()).hexdigest()

    def _bytes(self) -> bytes:
        """The Program, with its places; without what cannot be written, such as names of files that are no text."""
        try:
            return self.program.to_bytes(places=True)
        except WireError:
            return self.program.to_bytes(names=False)

    def _quote(self, error: VyreError) -> None:
        """Gives the places in an error the lines of text that bytes do not carry."""
        if isinstance(error, Unsupported):
            known = {(p.file, p.line, p.column): p for p in self.program.places if p is not None}
            here = [(m, m.place and (m.place.file, m.place.line, m.place.column)) for m in error.items]
            error.items = tuple(replace(m, place=known.get(key, m.place)) if key else m for m, key in here)

    def compiled(self, session: Session, counters: Counters, timeout: float | None) -> str:
        """Has the worker compile it, unless it has; gives the numerics that the code follows. Raises WireError, and what asking raises."""
        if self.name in session.compiled:
            session.compiled.move_to_end(self.name)
            return session.compiled[self.name]
        data = np.frombuffer(self._bytes(), _BYTE)
        session.process.memory.put(data)
        request = {"pipeline": self.name, "at": 0, "size_bytes": data.size, "options": to_plain(self.options)}
        try:
            numerics = session.process.ask_for("compile", request, timeout, lambda done: text_of(done, "numerics"))
        except WorkerFailed as failed:
            self._quote(failed.error)
            raise
        counters.compiles += 1
        counters.bytes_sent += data.size
        session.compiled[self.name] = numerics
        if len(session.compiled) > _CACHED:
            session.process.ask("forget", {"pipeline": session.compiled.popitem(last=False)[0]}, timeout)
        return numerics


@dataclass(frozen=True, slots=True)
class DispatchJob:
    """One dispatch whose arguments fit. `does` is called in the executor's thread, and so is `say`, with each line that the Program prints."""

    prepared: PreparedProgram
    binding: BindingPlan
    config: Mapping[str, Any]
    out: Mapping[str, Any]
    counters: Counters
    timeout: float | None
    compile_timeout: float | None
    say: Callable[[str], object]
    rounds: int = 0

    def does(self, session: Session) -> dict[str, Any]:
        """Sends the host arrays, has the Program run, and takes the results."""
        return self.measures(session)[0]

    def measures(self, session: Session) -> tuple[dict[str, Any], list[float]]:
        """The results, and the nanoseconds of a launch in each of `rounds`."""
        self.prepared.compiled(session, self.counters, self.compile_timeout)
        process, binding = session.process, self.binding
        staged = [m for m in binding.interface.buffers if m.name not in binding.buffers]
        shapes = {m.name: host_shape(binding.shapes[m.name], m.type) for m in staged}
        offsets, total = places([prod(shapes[m.name]) * m.type.dtype.itemsize for m in staged])
        process.memory.reserve(total)
        shared = {m.name: process.memory.array(at, shapes[m.name], m.type.dtype) for m, at in zip(staged, offsets, strict=True)}
        for name, array in binding.host.items():
            np.copyto(shared[name], array, casting="no")
            self.counters.bytes_sent += array.nbytes
        lines, failed, taken = process.ask_for("dispatch", self._request(dict(zip(shared, offsets, strict=True))), self.timeout, _told)
        results = {m.name: self._result(m, shared) for m in binding.interface.buffers if m.access.writes}
        shared.clear()
        process.memory.trim()
        self.counters.dispatches += 1
        try:
            for line in lines:
                self.say(line)
        finally:  # what a handler raises comes second
            if failed is not None:
                raise WorkerFailed(failed, False)
        return results, taken

    def _request(self, offsets: Mapping[str, int]) -> dict[str, Any]:
        binding = self.binding
        interface = binding.interface
        return {
            "pipeline": self.prepared.name, "config": self.config, "rounds": self.rounds,
            "sizes": [binding.sizes[dim.name] for dim in interface.dims],
            "params": [binding.params[param.name].hex() for param in interface.params],
            "buffers": [self._place(memory, offsets) for memory in interface.buffers],
        }  # fmt: skip

    def _place(self, memory: Memory, offsets: Mapping[str, int]) -> dict[str, Any]:
        binding = self.binding
        if memory.name in binding.buffers:
            buffer = binding.buffers[memory.name]
            handle: Remote = buffer.allocation.handle
            return {"kind": "resident", "number": handle.number, "offset": buffer.offset_bytes, "shape": buffer.shape, "type": buffer.type.name}
        kind = "given" if memory.name in binding.host else "left out"
        return {"kind": kind, "at": offsets[memory.name], "shape": binding.shapes[memory.name]}

    def _result(self, memory: Memory, shared: Mapping[str, Host]) -> Any:
        array = shared.get(memory.name)
        if array is None:
            return self.binding.buffers[memory.name]
        self.counters.bytes_received += array.nbytes
        given = self.out.get(memory.name)
        if given is None:
            return array.copy()
        view = result_view(given, array.shape, memory.type)
        assert view is not None  # or binding had refused it
        view[...] = array
        return given
