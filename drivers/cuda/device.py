"""An NVIDIA GPU through the CUDA driver.

One module because it is the contract of `drivers.device`, hook by hook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from vyre_py.drivers import event as plain
from vyre_py.drivers import selftest
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.context import Context
from vyre_py.drivers.cuda.events import (
    CudaEvent,
    DeviceStreams,
    Stream,
    beside_captures,
    device_streams,
    make_stream,
    record_event,
    wait_event,
)
from vyre_py.drivers.cuda.graph.executables import Executables
from vyre_py.drivers.cuda.graph.graph import capture
from vyre_py.drivers.cuda.graph.graph_memory import GraphMemory
from vyre_py.drivers.cuda.graph.loop import capture_while, has_loops
from vyre_py.drivers.cuda.graph.sequence import CudaSequence
from vyre_py.drivers.cuda.kernels.collective import CudaCollective, NcclCommunicator, opened
from vyre_py.drivers.cuda.kernels.gemm import CudaGemm, Library
from vyre_py.drivers.cuda.kernels.lost_ranks import CudaRankWatch, Lookout
from vyre_py.drivers.cuda.kernels.raw import CudaHandles, RawFunction, RawKernel, load_ptx
from vyre_py.drivers.cuda.kernels.strided import StridedKernels, copy_strided
from vyre_py.drivers.cuda.launch.boxes import encoder
from vyre_py.drivers.cuda.launch.cooperative import occupancy
from vyre_py.drivers.cuda.launch.launch import CudaLaunch, stream_handle
from vyre_py.drivers.cuda.launch.module import CudaModule
from vyre_py.drivers.cuda.launch.pending import CudaPending
from vyre_py.drivers.cuda.launch.small_dispatch import Dispatcher, Preparations
from vyre_py.drivers.cuda.launch.waiting import finish_by, timed
from vyre_py.drivers.cuda.memory.kernel_flags import Words
from vyre_py.drivers.cuda.memory.memory import CudaMemory
from vyre_py.drivers.cuda.memory.peer import copy_between
from vyre_py.drivers.cuda.memory.pinned import PinnedPool
from vyre_py.drivers.cuda.memory.transfer import Transfers
from vyre_py.drivers.cuda.properties import choose_arch, probe
from vyre_py.drivers.cuda.ptx_compiler import makes_machine_code
from vyre_py.drivers.device import Device, Limits
from vyre_py.drivers.dispatch import Run
from vyre_py.drivers.errors import DeviceLost
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.many.collectives import CollectiveStep, Communicator, Transfer
from vyre_py.drivers.many.commands import Command
from vyre_py.drivers.many.graph import Graph, HostLoop
from vyre_py.drivers.many.sequence import GemmStep
from vyre_py.drivers.memory.allocation import Lender
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.host_arrays import Bytes, Host
from vyre_py.drivers.memory.strided import StridedCopy
from vyre_py.drivers.native.mode import Mode
from vyre_py.drivers.observe.trace import tracing
from vyre_py.drivers.observers import Watched
from vyre_py.drivers.pending import Pending
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.sharing import dlpack
from vyre_py.ir.check import Checked
from vyre_py.ir.imports import importing
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Entry, Image, Part, Step
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.gpu.architectures import generation, runs_on
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

__all__ = ["CudaDevice", "CudaHandles"]

# How many seconds closing waits for threads that are making calls. It may be a finaliser within such a call that closes.
_CLOSING: Final = 5.0
# What machine code for this very GPU is preferred by: more than any architecture's number.
_EXACT: Final = 1 << 16


class CudaDevice(Device):
    """One GPU: its primary context, one stream, one pool.

    Attributes besides the contract's: `properties`, `capability` (major, minor), `context`, `memory` (the pool of device memory), `pinned_pool`;
    `loads_ptx`: whether the driver has a compiler for PTX, and may use it.
    Raises DeviceUnavailable for GPUs before sm_70, and for a driver that loads nothing that is compiled for it.
    """

    kind: ClassVar[str] = "cuda"
    reads_grids: ClassVar[bool] = True
    observes_launches: ClassVar[bool] = True
    honoured_options: ClassVar[frozenset[str]] = Device.honoured_options | {"timeout", "stream", "cooperative", "cluster"}

    def __init__(self, ordinal: int) -> None:
        self.context = Context(library.load(), ordinal)
        try:
            with self.context.entered():
                self._open(ordinal)
        except BaseException:
            if hasattr(self, "memory"):
                self.memory.close()
            self.context.close()
            raise

    def _open(self, ordinal: int) -> None:
        """The part of `__init__` that needs the context."""
        self.properties = found = probe(self.context)
        self.capability = found.compute_capability
        arch, self.loads_ptx = choose_arch(self.context, self.capability)
        target = Target("ptx", arch, cubin=makes_machine_code(arch))
        limits = Limits(found.grid, found.workgroup_invocations, found.workgroup_bytes, found.memory_bytes)
        super().__init__(ordinal, target, limits, found.description)
        self.context.on_loss = self._mark_lost
        self.context.refuse = self.require_usable
        self.memory = CudaMemory(self.context, self.telemetry)
        self.pinned_pool = PinnedPool(self.context, self.telemetry)
        self.context.require_usable()  # a call whose status was ignored may have failed
        for name, pool in (("streams", self.context.streams), ("events", self.context.events)):
            self.telemetry.gauge(name, partial(getattr, pool, "made"))
            self.telemetry.gauge(f"{name}_idle", partial(getattr, pool, "idle"))
        self.dlpack_device = (dlpack.CUDA, ordinal)
        self.words = Words(self.context)
        self._transfers = Transfers(self.context, self.memory, self.pinned_pool, self.telemetry)
        self.context.relief.steps = [self._drop_kept, self._evict]
        self.context.relief.on_retry = self._count_retry
        self._peers: set[str] = set()
        self._modules: Watched[CudaModule] = Watched()
        self.preparations = Preparations(self.memory, self.pinned_pool)
        self.strided_kernels = StridedKernels(self.context, target.arch, self._modules, self.loads_ptx)
        self.graphs = Executables()
        self.telemetry.gauge("graphs", self.graphs.__len__)
        self.gemm_library: Library | None = None
        self.communicators: WeakValueDictionary[int, NcclCommunicator] = WeakValueDictionary()
        self.watches: set[Lookout] = set()
        self._loop_module: CudaModule | None = None

    @property
    def raw(self) -> CudaHandles:
        """The driver's own handles, and how many streams there are, as of now."""
        self.require_usable()
        context, products, streams = self.context, self.gemm_library, self.context.streams
        return CudaHandles(
            int(context.device), int(context.handle), int(context.stream), int(context.copy_stream), 0 if products is None else products.handle,
            streams.made, streams.idle,
        )  # fmt: skip

    @property
    def streams(self) -> DeviceStreams:
        """The device's own streams, `compute` and `copy`, for other libraries to join."""
        self.require_usable()
        return device_streams(self)

    def stream(self, priority: int = 0) -> Stream:
        """A stream of its own, for `launch.on` and other libraries. Priority 0 is the usual one, less is more urgent.

        Raises BindingError for a priority that the device has not got, LaunchError when 128 streams are in use.
        """
        self.require_usable()
        return make_stream(self, priority)

    def record_event(self, stream: Any = None) -> CudaEvent:
        """An event after what a stream holds so far: any object with `__cuda_stream__`, or None for the compute stream.

        Raises BindingError for any other object, LaunchError when 128 events are in use.
        """
        return record_event(self, stream)

    def wait_event(self, event: plain.Event, stream: Any = None) -> None:
        """Has what a stream is given from now on wait for an event; within a capture this makes the stream part of it. Raises BindingError, LaunchError."""
        wait_event(self, event, stream)

    def load_ptx(self, code: str | bytes, entry: str, signature: Sequence[Any]) -> RawKernel:
        """A kernel from PTX text, or machine code (a cubin) as bytes. The signature lists its parameters in order: `("n", vp.u32)` is a value,
        `("x", vp.f32, "read")` the address of a buffer that is read, written ("write") or both ("read_write").

        Nothing checks what such code does with memory: that it stays within its buffers is the caller's business, and a fault loses the device for this
        process. Raises BindingError for a signature that does not fit the code and for an entry that is not there, ToolchainError with the driver's log.
        """
        return load_ptx(self, code, entry, signature)

    def launch_amounts(self, plan: LaunchPlan, module: CudaModule) -> dict[str, int]:
        """The amounts that each launch of a plan adds to the counters, by name."""
        return plan.amounts(module.occupancy)

    def lose(self, why: str) -> DeviceLost:
        """Gives up a device that does not answer, and gives the error that says so: nothing is asked of it any more."""
        error = DeviceLost(why, remedy="start a new process; an Executor does so by itself")
        self.context.abandon(error, Mode.LOST)
        return error

    def _observe(self, on: bool) -> None:
        (self.context.stop if on else self.context.go_on)(Mode.OBSERVED)

    def _show(self, run: Callable[[], object], name: str, args: Mapping[str, str]) -> None:
        """Makes the calls of a list as a span of the traces that run; one without a name is copies and waits of the driver's own."""
        if (traces := tracing()) is None:
            run()  # the trace ended a moment ago
            return
        with traces.range(name or "driver calls", "launch" if name else "driver", self, args):
            run()

    def _fit(self, part: Part) -> int | None:
        if part.target.kind != "ptx":
            return None
        plain = [step for step in part.steps if step.image("ptx") is None]
        if runs_on(part.target.arch, self.capability) and not plain:
            return generation(part.target.arch) + (_EXACT if self._runs_as_it_is(part) else 0)
        return _EXACT if self._runs_as_it_is(part) else None

    def _runs_as_it_is(self, part: Part) -> bool:
        """Whether all of a part is there as machine code of this very kind of GPU."""
        own = generation(part.target.arch) == 10 * self.capability[0] + self.capability[1]
        return own and all(step.image("cubin") is not None for step in part.steps)

    def _best_part(self, artifact: Artifact) -> Part:
        part = super()._best_part(artifact)
        describes = not any(entry.boxes for step in part.steps for entry in step.entries) or encoder(self.context)
        return part if describes else replace(part, steps=tuple([step.without_boxes() for step in part.steps]))

    def _best_image(self, part: Part, step: Step) -> Image:
        best = step.image("cubin") if self._runs_as_it_is(part) else step.image("ptx")
        assert best is not None  # `_fit` looked
        return best

    def _allocate(self, size_bytes: int) -> int:
        return self.memory.allocate(size_bytes)

    def _allocate_unset(self, size_bytes: int) -> int:
        return self.memory.allocate(size_bytes, zeroed=False)

    def _free(self, handle: int, size_bytes: int) -> None:
        if handle:
            self.memory.free(handle)

    def _pass_on(self, handle: int) -> int | None:
        return self.memory.pass_on(handle)

    def _address(self, handle: int) -> int:
        return handle

    def _adopt(self, address: int, size_bytes: int, lender: object) -> tuple[int, object]:
        self.memory.foreign_use.adopt(address)
        return address, Lender(partial(self._leave, address, lender))

    def _leave(self, address: int, lender: object) -> None:
        """Waits until nothing launched so far uses memory of another library: its owner may reuse it at once, and does not order that with our stream."""
        if not self.context.later(partial(self._leave, address, lender)):
            self.context.finish()
            self.memory.foreign_use.leave(address)

    def use_on(self, stream: int, owner: Any, buffers: Iterable[Buffer]) -> None:
        """Records that a stream (a handle, which `owner` keeps alive) uses buffers from now on. Raises LaunchError for memory of graphs."""
        if stream != int(self.context.stream):
            for buffer in buffers:
                if isinstance(buffer.allocation, GraphMemory):
                    buffer.allocation.fork(f"a buffer on {self.name} cannot be used on another stream")
                    continue
                self.memory.foreign_use.add(buffer.allocation.handle, buffer.allocation.size_bytes, stream, owner)

    def _use_on(self, buffer: Buffer, stream: Any) -> None:
        self.use_on(stream_handle(stream), stream, [buffer])

    @contextmanager
    def _ordered(self, *buffers: Buffer) -> Iterator[None]:
        foreign = self.memory.foreign_use
        if not foreign or self.context.capture is not None:
            yield
            return
        ranges = [(buffer.handle + buffer.offset_bytes, buffer.size_bytes) for buffer in buffers]
        with self.context.entered():
            streams = foreign.before(f"{self.name} cannot copy", *ranges)
            yield
            foreign.after(streams)

    def _copy_peer(self, source: Buffer, target: Buffer) -> bool:
        if not isinstance(source.device, CudaDevice):
            return False
        copy_between(source, target, self._peers)
        return True

    def pinned(self, shape: int | Sequence[int], type_: Type) -> Host:
        """See `Device.pinned`."""
        self.require_usable()
        return self.pinned_pool.array(shape, type_)

    def _exchange_stream(self) -> int:
        return int(self.context.stream)

    def _current(self) -> AbstractContextManager[None]:
        return self.context.entered()

    def _order(self, first: int | None, then: int | None) -> None:
        with beside_captures(self, f"{self.name} cannot order two streams"), self.context.entered():
            self.context.order(first, then)

    def _follow(self, stream: int) -> bool:
        context, cuda = self.context, self.context.cuda
        if self._recording is not None:
            return False
        if stream == int(context.stream):
            return True
        with context.entered():
            handle = cuda.CUstream(stream)
            status, state = cuda.cuStreamIsCapturing(handle)
            if status or state != cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
                return False
            if cuda.cuStreamQuery(handle)[0]:  # what is done needs no order, for which the next wait for our stream would have to wait, too
                with beside_captures(self, f"{self.name} cannot order two streams"):
                    context.order(stream, None)
        return True

    def _write(self, handle: int, offset: int, source: Bytes) -> None:
        with self.context.moving():
            self._transfers.write(handle + offset, source)

    def _write_array(self, handle: int, offset: int, source: Host) -> None:
        with self.context.moving():
            self._transfers.write(handle + offset, source)

    def _stage(self, array: Host, shape: tuple[int, ...], type_: Type) -> Buffer:
        """See `Device._stage`. Large arrays go beside what is enqueued, to memory that nothing uses any more."""
        with self._transfers.apart(array.nbytes) as stream:
            if stream is None:
                return super()._stage(array, shape, type_)

            def write(handle: int, offset: int, source: Host) -> None:
                with self.context.moving():
                    self._transfers.write_apart(stream, handle + offset, source)

            return self._staged(array, shape, type_, lambda size_bytes: self.memory.take_apart(size_bytes, stream), write)

    def _read(self, handle: int, offset: int, target: Bytes) -> None:
        with self.context.moving():
            self._transfers.read(handle + offset, target)

    def _read_array(self, handle: int, offset: int, target: Host) -> None:
        with self.context.moving():
            self._transfers.read(handle + offset, target)

    def _read_after(self, handle: int, offset: int, target: Host, event: plain.Event) -> None:
        if not isinstance(event, CudaEvent):  # of a device without streams
            super()._read_after(handle, offset, target, event)
            return
        event.device.require_usable()
        with self.context.moving():
            self._transfers.read_after(handle + offset, target, event._handle)

    def _read_arrays(self, wanted: Sequence[tuple[int, int, Host]]) -> None:
        with self.context.moving():
            self._transfers.read_all([(handle + offset, target) for handle, offset, target in wanted])

    def _copy(self, source: int, source_offset: int, target: int, target_offset: int, size_bytes: int) -> None:
        self.memory.copy(source + source_offset, target + target_offset, size_bytes)

    def _copy_strided(self, source: Buffer, target: Buffer, copy: StridedCopy) -> None:
        copy_strided(self, source, target, copy)

    def _fill(self, handle: int, offset: int, size_bytes: int, pattern: bytes) -> None:
        self.memory.fill(handle + offset, size_bytes, pattern)

    def compile_native(self, program: Program | Checked | bytes, options: CompileOptions | None = None) -> Pipeline:
        """See `Device.compile_native`. An architecture that nvJitLink lacks is left to the driver from then on."""
        try:
            return super().compile_native(program, options)
        except Unsupported as error:
            if not self.target.cubin or not error.who.startswith(nvjitlink.WHO):
                raise
        self.telemetry.fallbacks += 1
        self.target = replace(self.target, cubin=False)
        return super().compile_native(program, options)

    def _load_step(self, step: Step, image: Image) -> tuple[CudaModule, ...]:
        try:
            return self._load_entries(step, image)
        except ToolchainError:
            ptx = step.image("ptx")
            if ptx is None or image is ptx:
                raise
        self.telemetry.fallbacks += 1  # machine code of another driver's time
        return self._load_entries(step, ptx)

    def _load_entries(self, step: Step, image: Image) -> tuple[CudaModule, ...]:
        modules: list[CudaModule] = []
        for number, entry in enumerate(step.entries):
            made = modules[0].another(self.context, entry.symbol) if modules else self._load_entry(step, image, entry)
            made.occupancy = occupancy(self.context, made.function, step.workgroup_of(number), step.workgroup_bytes)
            modules.append(made)
        return tuple(modules)

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> CudaModule:
        module = CudaModule(self.context, image, entry.symbol, step.workgroup_bytes, entry.details.get("assembler_level", 4))
        self._modules.add(module)
        return module

    def _make_launch(self, plan: LaunchPlan, codes: tuple[CudaModule, ...]) -> CudaLaunch:
        return CudaLaunch(self, plan, codes)

    def _reading(self, pipeline: Pipeline) -> Pipeline:
        """See `Device._reading`: code of its own."""
        if pipeline._source is None:
            help_ = "compile it with CompileOptions(indirect=True), or on the device"
            raise Unsupported(self.name, [Missing("dispatch option grid as a buffer for an artifact that has no code for it", help=help_)])
        program, options = pipeline._source
        return self.compile_native(program, replace(options, indirect=True))

    def _callable(self, pipeline: Pipeline) -> CallEntry:
        with importing:
            from vyre_py.drivers.cuda.callable import make  # native code is made where it is asked for

        return make(self, pipeline)

    def _raw_code(self, code: CudaModule) -> RawFunction:
        return RawFunction.of(code)

    def keep(self, module: CudaModule) -> None:
        """Has a module unloaded when the device is closed, if it is there then."""
        self._modules.add(module)

    def loop_module(self, image: Image, symbol: str) -> CudaModule:
        """The module of the kernel that sets the conditions of loops, loaded once."""
        if self._loop_module is None:
            self._loop_module = CudaModule(self.context, image, symbol, 0)
            self.keep(self._loop_module)
        return self._loop_module

    def _make_sequence(self, steps: Sequence[Command]) -> CudaSequence:
        return CudaSequence(self, steps)

    def _capture(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Graph:
        return capture(self, function, arguments)

    def _capture_while(self, flag: Buffer, function: Callable[..., Any], arguments: tuple[Any, ...], limit: int) -> Graph:
        if not has_loops(self):
            return HostLoop(capture(self, function, arguments, loops=True), flag, limit)
        return capture_while(self, flag, function, arguments, limit)

    def _gemm_step(
        self, a: Buffer, b: Buffer, out: Buffer, alpha: float, beta: float, transpose_a: bool, transpose_b: bool, math: str
    ) -> GemmStep:
        return CudaGemm(self, a, b, out, alpha, beta, (transpose_a, transpose_b), math)

    def _communicator(self, owner: Any) -> Communicator:
        return opened(self, owner)

    def _collective_step(self, communicator: Any, name: str, transfers: tuple[Transfer, ...]) -> CollectiveStep:
        return CudaCollective(self, communicator, name, transfers)

    def _watch_ranks(self, communicator: Any, timeout: float) -> CudaRankWatch:
        return CudaRankWatch(self, communicator, timeout)

    def _dispatcher(self, pipeline: Pipeline) -> Dispatcher | None:
        if pipeline.part.steps[0].layout.find(SlotKind.REPORT) is not None:
            return None  # a dispatch has a report of its own
        return self.preparations.dispatcher(pipeline)

    def _submit(self, run: Run) -> Pending:
        if run.config.fixpoint is not None or run.config.timeout is not None:
            return super()._submit(run)  # Python tests between launches
        return CudaPending(run, self)

    def _timed(self, launch: Launch, start: Callable[[], None]) -> Callable[[], int | None]:
        stream = launch.kernel.stream if isinstance(launch, CudaLaunch) else int(self.context.stream)
        return timed(self.context, stream, start)

    def _finish_by(self, launch: Launch, deadline: float, timeout: float) -> None:
        assert isinstance(launch, CudaLaunch)  # an empty one is not waited for
        finish_by(launch, deadline, timeout)

    def _synchronize(self) -> None:
        with self.context.entered():
            self.context.wait(f"{self.name} failed while it ran")
            self.memory.foreign_use.wait(f"{self.name} failed while it ran")

    def _warmup(self) -> None:
        selftest.run(self)

    def _trim(self) -> None:
        with self.context.entered():
            self.preparations.clear()
            self.graphs.trim()
            self._loop_module = None  # loops hold it
            self._transfers.trim()
            self.memory.trim()
            self.words.trim()
            self.pinned_pool.trim()
            self.context.events.trim()
            self.context.streams.trim()

    def _count_retry(self) -> None:
        self.telemetry.oom_retries += 1

    def _drop_kept(self) -> None:
        """When memory is short: frees what the pools keep."""
        self.memory.drop_kept()
        self.words.drop_kept()
        self.pinned_pool.trim()

    def _evict(self) -> None:
        """When memory is still short: evicts everything that holds memory for speed only."""
        self.preparations.clear()
        self.constants.clear()
        self.arenas.clear()
        self.resident.evict()
        self._pipelines.clear()
        self._codes.clear()
        self._drop_kept()

    def close(self) -> None:
        """See `Device.close`. Nothing is touched in a forked child, since all of it is the parent's, nor behind a kernel that never ends."""
        if self.context.calls_forbidden:
            self._closed = True
        super().close()

    def _close(self) -> None:
        context = self.context
        context.stop(Mode.CLOSED)
        for watch in list(self.watches):
            watch.end()
        deadline = time.monotonic() + _CLOSING
        while (context.busy.value or context.moves.value or context.callers.value) and time.monotonic() < deadline:
            time.sleep(0)
        with context.visited():
            context.cuda.cuCtxSynchronize()
            self.graphs.close()
            if self.gemm_library is not None:
                self.gemm_library.close()
            for module in self._modules.now():
                module.unload()
            self.preparations.clear()
            self.memory.close()
            self._transfers.close()
            self.pinned_pool.close()
            self.words.close()
            self.context.close()
