"""A device that WebGPU reaches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakSet

from vyre_py.drivers.device import Device, Limits
from vyre_py.drivers.dispatch import Run
from vyre_py.drivers.errors import DeviceLost, DeviceUnavailable, DispatchTimeout, DriverError, OutOfMemory
from vyre_py.drivers.launch import Launch, LaunchPlan
from vyre_py.drivers.many.commands import Command, CommandRunner
from vyre_py.drivers.memory.host_arrays import Bytes
from vyre_py.drivers.observers import Watched
from vyre_py.drivers.pending import Pending
from vyre_py.drivers.wgpu.adapter import properties_of
from vyre_py.drivers.wgpu.batch import Batch, Pattern, is_whole
from vyre_py.drivers.wgpu.clock import TIMESTAMPS, timed
from vyre_py.drivers.wgpu.completion import Completions, Mark, WgpuEvent
from vyre_py.drivers.wgpu.launch import WgpuLaunch
from vyre_py.drivers.wgpu.library import adapters, errors, is_software, load, refusals
from vyre_py.drivers.wgpu.memory import WORD_BYTES, Storage, WgpuMemory
from vyre_py.drivers.wgpu.module import WgpuModule, require_limits
from vyre_py.drivers.wgpu.pending import WgpuPending
from vyre_py.drivers.wgpu.readback import Readback, Reading
from vyre_py.drivers.wgpu.runner import BatchRunner
from vyre_py.drivers.wgpu.shader import Shader, load_wgsl
from vyre_py.drivers.wgpu.status import failure
from vyre_py.drivers.wgpu.trials import HALVES, SUBGROUPS, converts_halves, lanes_of
from vyre_py.drivers.wgpu.uniforms import Uniforms
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Entry, Image, Part, Step
from vyre_py.lowering.target import wgsl_target

__all__ = ["WgpuDevice", "WgpuHandles"]

_T = TypeVar("_T")

# Open devices, and objects that a forked child must not even release.
_opened: WeakSet[WgpuDevice] = WeakSet()
_abandoned: list[Any] = []

_MAX_GROUPS: Final = 2**32 - 1
_MAX_ELEMENTS: Final = 2**32 - 1

_WAIT_LIMIT_SECONDS: Final = 60.0
# Fills of so many bytes are written, which needs no submission.
_WRITTEN_BYTES: Final = 64 << 10

# What code for a target with a feature of ours needs of an adapter's: the bits of an f64 are those of a 64-bit integer.
_FEATURES: Final = {
    "f64": frozenset({"shader-f64", "shader-int64"}),
    "i64": frozenset({"shader-int64"}),
    "i64atomics": frozenset({"shader-int64", "shader-int64-atomic-min-max", "shader-int64-atomic-all-ops"}),
    "f32atomics": frozenset({"shader-float32-atomic"}),
}


@dataclass(frozen=True, slots=True)
class WgpuHandles:
    """wgpu-py's own objects."""

    adapter: Any
    device: Any
    queue: Any


def _limits(limits: dict[str, int]) -> Limits:
    groups = limits["max-compute-workgroups-per-dimension"]
    # A whole buffer must fit one binding, in whole words.
    buffer_bytes = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"]) // WORD_BYTES * WORD_BYTES
    # Along x a grid is folded along z where need be.
    return Limits(
        (min(groups * groups, _MAX_GROUPS), groups, groups), limits["max-compute-invocations-per-workgroup"],
        limits["max-compute-workgroup-storage-size"], buffer_bytes, _MAX_ELEMENTS,
    )


class WgpuDevice(Device):
    """One adapter with its largest limits, and those of its features that code here is made for.

    Attributes besides the contract's: `properties`, `gpu` is wgpu-py's device, `package` wgpu-py, `launches` are those that are bound; `has_clock`:
    whether dispatches are timed by the device itself; `grid_limit` workgroups can be dispatched along an axis; bindings begin at multiples of
    `offset_alignment` bytes. `wait_limit_seconds`, which may be set, is how long any wait for the device may take, 60 at first: then it raises
    DispatchTimeout, and may be made again.
    """

    kind: ClassVar[str] = "wgpu"
    ends_kernels: ClassVar[bool] = False
    reads_grids: ClassVar[bool] = True
    sizes_are_words: ClassVar[bool] = True
    reopens: ClassVar[bool] = True
    honoured_options: ClassVar[frozenset[str]] = Device.honoured_options | {"timeout"}

    def __init__(self, ordinal: int) -> None:
        package, found = load(), adapters()
        if ordinal >= len(found):
            raise DeviceUnavailable(f"there is no wgpu:{ordinal}", meaning=f"{len(found)} adapters are here", remedy="vyre_py.devices() lists them")
        self._adapter = found[ordinal]
        usable = [name for name, needed in _FEATURES.items() if needed <= self._adapter.features]
        features = sorted(frozenset().union(*[_FEATURES[name] for name in usable]) | ({HALVES, SUBGROUPS, TIMESTAMPS} & self._adapter.features))
        try:
            self.gpu: Any = self._adapter.request_device_sync(required_features=features)
            lanes = lanes_of(package, self._adapter, self.gpu)
            usable += ["f16"] * converts_halves(package, self._adapter, self.gpu)
        except errors() as error:
            raise DeviceUnavailable(f"wgpu:{ordinal} cannot be opened", status=str(error), remedy="update the graphics driver") from error
        self.package = package
        self.uniforms = Uniforms(package, self.gpu)
        self._gpu_limits: dict[str, int] = dict(self.gpu.limits)
        self.has_clock = TIMESTAMPS in features
        self.is_software = is_software(self._adapter)
        self.grid_limit = self._gpu_limits["max-compute-workgroups-per-dimension"]
        self.offset_alignment = self._gpu_limits["min-storage-buffer-offset-alignment"]
        self.properties = found_here = properties_of(self._adapter, features, self._gpu_limits, lanes)
        kind = "software on the CPU" if self.is_software else found_here.kind
        target = wgsl_target([*usable, f"subgroup{lanes}"])
        super().__init__(ordinal, target, _limits(self._gpu_limits), f"{found_here.name}, {kind}, through {found_here.backend}")
        self.wait_limit_seconds = _WAIT_LIMIT_SECONDS
        self.completions = Completions(self.gpu)
        self.readback = Readback(package, self.gpu, self.completions, self.telemetry)
        self._memory = WgpuMemory(package, self.gpu, self.readback, self.telemetry, self._await_reading)
        self._storages: Watched[Storage] = Watched()
        self.launches: Watched[WgpuLaunch] = Watched()
        _opened.add(self)

    @property
    def raw(self) -> WgpuHandles:
        """wgpu-py's own objects."""
        self.require_usable()
        return WgpuHandles(self._adapter, self.gpu, self.gpu.queue)

    def load_wgsl(self, code: str, entry: str, signature: Sequence[Any]) -> Shader:
        """A kernel from WGSL of your own. The signature lists the parameters in order of their bindings, all in group 0: `("x", vp.f32, "read")` is a storage
        buffer that is read, written ("write") or both ("read_write"), `("a", vp.f32)` a uniform, which is a u32, i32, f32 or a vector of them.

        WebGPU keeps such code within its buffers. Raises BindingError for a signature that makes no sense and for an entry that is not there, ToolchainError
        with what naga says, also of bindings that are others than the signature's.
        """
        return load_wgsl(self, code, entry, signature)

    # ---- for the launches of this folder, and for forks

    def abandon(self) -> None:
        """In a forked child: makes every later call raise. The driver's threads and locks stayed in the parent, so any call of the driver, and even the
        release of its objects, may wait for them forever."""
        self._mark_lost(DeviceLost(f"{self.name} was opened before this process was forked"))
        for launch in self.launches.now():
            launch.disarm()
        storages = [storage.buffer for storage in self._storages.now() if not storage.released]
        _abandoned.append((self.gpu, self._memory, self.readback, self.completions, self.uniforms, storages))

    def failure(self, error: Exception, doing: str, otherwise: type[DriverError] = DriverError) -> DriverError:
        """The error for what wgpu-py raised; a lost device is remembered. Raises what is a defect of ours."""
        if isinstance(error, AttributeError):
            raise error
        made = failure(error, doing, otherwise)
        if isinstance(made, DeviceLost):
            self._mark_lost(made)
        return made

    # ---- hooks

    def _fit(self, part: Part) -> int | None:
        """Of parts whose features are here, the one of most."""
        needed = part.target.features
        return len(needed) if part.target.kind == "wgsl" and needed <= self.target.features else None

    def attempt(self, doing: str, call: Callable[..., _T], *arguments: Any, otherwise: type[DriverError] = DriverError) -> _T:
        """A call of wgpu's. Raises our error for what wgpu-py raises, of class `otherwise` where that does not tell what the caller should do."""
        try:
            return call(*arguments)
        except DispatchTimeout:  # which is an OSError as well
            raise
        except refusals() as error:
            self.require_usable()
            raise self.failure(error, f"{self.name} cannot {doing}", otherwise) from error

    def await_mark(self, mark: Mark) -> None:
        """Waits until something is done. Raises DispatchTimeout at the limit of waits, and what wgpu-py raises."""
        limit = self.wait_limit_seconds
        if not self.completions.wait(mark, limit):
            self.telemetry.timeouts += 1
            raise DispatchTimeout(
                f"{self.name} was not done after {limit} s", meaning="the wait was given up; the work goes on, and may be waited for again",
                remedy="give it less work at once, or set device.wait_limit_seconds",
            )  # fmt: skip

    def _await_reading(self, reading: Reading) -> None:
        self.await_mark(reading.mark)

    def _allocate(self, size_bytes: int) -> Storage:
        return self._allocated(size_bytes, True)

    def _allocate_unset(self, size_bytes: int) -> Storage:
        return self._allocated(size_bytes, False)

    def _allocated(self, size_bytes: int, zeroed: bool) -> Storage:
        doing = f"allocate {size_bytes} bytes"
        try:
            storage = self.attempt(doing, self._memory.allocate, size_bytes, zeroed, otherwise=OutOfMemory)
        except OutOfMemory:
            self._trim()
            self._synchronize()  # until then wgpu holds what was dropped
            self.telemetry.oom_retries += 1
            storage = self.attempt(doing, self._memory.allocate, size_bytes, zeroed, otherwise=OutOfMemory)
        self._storages.add(storage)
        return storage

    def _free(self, handle: Storage, size_bytes: int) -> None:
        self._memory.free(handle)

    def _pass_on(self, handle: Storage) -> Storage:
        passed_on = Storage(handle.buffer)
        self._storages.add(passed_on)
        handle.release()
        return passed_on

    def _begin(self, handle: Storage) -> int:
        return 0  # bindings begin at multiples of `offset_alignment`, from where the code counts

    def _write(self, handle: Storage, offset: int, source: Bytes) -> None:
        self.attempt(f"write {source.size} bytes", self._memory.write, handle, offset, source)

    def _read(self, handle: Storage, offset: int, target: Bytes) -> None:
        if self.is_software:
            # Such a driver takes one submission at a time: the one that reads would wait within it, without a bound.
            self.attempt("wait", lambda: self.await_mark(self.completions.submitted()))
        self.attempt(f"read {target.size} bytes", self._memory.read, handle, offset, target)

    def _copy(self, source: Storage, source_offset: int, target: Storage, target_offset: int, size_bytes: int) -> None:
        self.attempt(f"copy {size_bytes} bytes", self._memory.copy, source, source_offset, target, target_offset, size_bytes)

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> WgpuModule:
        require_limits(self.name, self._gpu_limits, step, image)
        module = WgpuModule(self.package, self.gpu, step, image, entry)
        if entry is step.entries[-1]:
            self.attempt(f"load {entry.symbol}", module.load)
        return module  # an entry for some arguments is loaded by the first launch with such

    def _make_launch(self, plan: LaunchPlan, codes: tuple[WgpuModule, ...]) -> WgpuLaunch:
        return WgpuLaunch(self, plan, codes)

    def record_event(self, stream: Any = None) -> WgpuEvent:
        """See `Device.record_event`."""
        super().record_event(stream)  # refuses
        return WgpuEvent(self)

    def _submit(self, run: Run) -> Pending:
        if run.config.fixpoint is not None or run.config.timeout is not None:
            return super()._submit(run)  # the host looks in between, in a thread of its own
        return WgpuPending(run, self)

    def _whole(self, run: Run) -> dict[str, Any]:
        if run.config.fixpoint is not None or run.config.timeout is not None:
            return super()._whole(run)
        results: dict[str, Any] = WgpuPending(run, self).result()  # whose results come in the launch's own submission
        return results

    def _timed(self, launch: Launch, start: Callable[[], None]) -> Callable[[], int | None]:
        return timed(self, launch, start) if self.has_clock else super()._timed(launch, start)

    def _finish_by(self, launch: Launch, deadline: float, timeout: float) -> None:
        doing = f"wait for {launch.plan.binding.interface.name!r}"
        mark = self.attempt(doing, self.completions.submitted)
        if not self.attempt(doing, self.completions.wait, mark, max(0.0, deadline - time.monotonic())):
            self.telemetry.timeouts += 1
            raise DispatchTimeout(
                f"{launch.plan.binding.interface.name!r} ran longer than {timeout} s on {self.name}",
                meaning="the call was given up, and nothing of its results is kept; WebGPU cannot end a kernel, which runs on",
                remedy="allow more time, give it less work, or use an Executor, whose worker can be ended",
            )

    def _runner(self, commands: Sequence[Command], title: Callable[[int, Command], str]) -> CommandRunner:
        return BatchRunner(self, commands, title)

    def _fill(self, handle: Storage, offset: int, size_bytes: int, pattern: bytes) -> None:
        if size_bytes <= _WRITTEN_BYTES or not is_whole(offset, size_bytes):
            super()._fill(handle, offset, size_bytes, pattern)
        else:
            batch, source, doing = Batch(self), Pattern(self, size_bytes, pattern), f"fill {size_bytes} bytes"
            self.attempt(doing, batch.fill, handle.buffer, offset, size_bytes, source)
            self.attempt(doing, batch.submit)

    def _synchronize(self) -> None:
        self.attempt("wait", lambda: self.await_mark(self.completions.submitted()))
        # Of lost devices, too, wgpu says that all is done; this it refuses. And it has what was only written so far go to the device.
        self.attempt("wait", lambda: self.gpu.queue.submit([self.gpu.create_command_encoder().finish()]))

    def _trim(self) -> None:
        self._memory.clear()
        self.readback.clear()

    def _close(self) -> None:
        # As with buffers, wgpu's own `destroy` would end the process if another thread were submitting: all is released instead.
        for launch in self.launches.now():
            launch.disarm()
        for storage in self._storages.now():
            storage.release()
        self._memory.close()
        self.readback.close()
        self.gpu = None


def _after_fork() -> None:
    for device in list(_opened):
        device.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
