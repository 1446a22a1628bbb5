"""An NVIDIA GPU through the CUDA driver."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from vyre_py.drivers import dlpack
from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.context import Context, Mode
from vyre_py.drivers.cuda.launch import CudaLaunch
from vyre_py.drivers.cuda.memory import Memory
from vyre_py.drivers.cuda.module import Module
from vyre_py.drivers.device import Device, Limits
from vyre_py.drivers.errors import DeviceUnavailable, DriverError
from vyre_py.drivers.hostarray import Bytes
from vyre_py.drivers.launch import LaunchPlan
from vyre_py.drivers.telemetry import LaunchRecord
from vyre_py.drivers.watched import Watched
from vyre_py.ir.dims import evaluate_dim
from vyre_py.lowering.artifact import Entry, Step
from vyre_py.lowering.llvm.architectures import nearest_arch, runs_on
from vyre_py.lowering.target import Target

__all__ = ["CudaDevice", "RawHandles"]


@dataclass(frozen=True, slots=True)
class RawHandles:
    """The driver's own handles as integers: CUdevice, CUcontext, and the CUstream that everything goes through."""

    device: int
    context: int
    stream: int


def _limits(context: Context) -> Limits:
    x, y, z = [context.attribute(f"MAX_GRID_DIM_{axis}") for axis in "XYZ"]
    total = int(context.ok(context.cuda.cuDeviceTotalMem(context.device), f"{context.name} does not say its memory"))
    return Limits((x, y, z), context.attribute("MAX_THREADS_PER_BLOCK"), context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), total)


def _description(context: Context, capability: tuple[int, int], limits: Limits) -> str:
    name = context.ok(context.cuda.cuDeviceGetName(128, context.device), f"{context.name} has no name")
    version = context.ok(context.cuda.cuDriverGetVersion(), f"{context.name} has no driver version")
    text = name.split(b"\0", 1)[0].decode(errors="replace")
    return f"{text}, sm_{capability[0]}{capability[1]}, {limits.buffer_bytes >> 20} MiB, driver for CUDA {version // 1000}.{version % 1000 // 10}"


class CudaDevice(Device):
    """One GPU: its primary context, one stream, one pool.

    Attributes besides the contract's: `context`, `capability` (major, minor). Raises DeviceUnavailable for GPUs before sm_70.
    """

    kind: ClassVar[str] = "cuda"

    def __init__(self, ordinal: int) -> None:
        self.context = Context(library.load(), ordinal)
        try:
            capability = (self.context.attribute("COMPUTE_CAPABILITY_MAJOR"), self.context.attribute("COMPUTE_CAPABILITY_MINOR"))
            arch = nearest_arch(*capability)
            if arch is None:
                found = f"its compute capability is {capability[0]}.{capability[1]}, 7.0 is needed"
                raise DeviceUnavailable(f"cuda:{ordinal} is too old", meaning=found, remedy="choose another device")
            limits = _limits(self.context)
            super().__init__(ordinal, Target("ptx", arch), limits, _description(self.context, capability, limits))
            self.capability = capability
            self._memory = Memory(self.context)
        except DriverError:
            self.context.close()
            raise
        self.context.on_loss = self._mark_lost
        self.dlpack_device = (dlpack.CUDA, ordinal)
        self._modules: Watched[Module] = Watched()

    @property
    def raw(self) -> RawHandles:
        """The driver's own handles."""
        self.require_usable()
        return RawHandles(int(self.context.device), int(self.context.handle), int(self.context.stream))

    def launch_record(self, plan: LaunchPlan, module: Module) -> LaunchRecord:
        """What each launch of a plan counts for."""
        x, y, z = plan.grid
        wx, wy, wz = plan.step.workgroup
        elements = prod(evaluate_dim(e, plan.binding.sizes) for e in plan.step.grid.extents) if plan.step.grid.over else 0
        threads = x * y * z * wx * wy * wz
        return self.telemetry.record(
            elements_launched=elements or threads, threads_scheduled=threads, parameter_bytes=plan.step.layout.size_bytes
        )

    def _accepts(self, target: Target) -> bool:
        return target.kind == "ptx" and runs_on(target.arch, self.capability)

    def _allocate(self, size_bytes: int) -> int:
        return self._memory.allocate(size_bytes)

    def _free(self, handle: int, size_bytes: int) -> None:
        if handle:
            self._memory.free(handle)

    def _pass_on(self, handle: int) -> int | None:
        context = self.context
        if context.capturing or not context.usable:
            return None
        if context.foreign:  # nothing orders the next owner's launches after those on streams of others
            context.cuda.cuCtxSetCurrent(context.handle)
            context.cuda.cuCtxSynchronize()
        return handle

    def _address(self, handle: int) -> int:
        return handle

    def _adopt(self, address: int, size_bytes: int) -> int:
        return address

    def _leave(self, handle: int) -> None:
        # Its owner may give it to somebody else at once, who knows nothing of our stream.
        self.context.finish()

    def _exchange_stream(self) -> int:
        return int(self.context.stream)

    def _order(self, first: int | None, then: int | None) -> None:
        self.context.enter()
        self.context.order(first, then)

    def _write(self, handle: int, offset: int, source: Bytes) -> None:
        self._memory.write(handle + offset, source)

    def _read(self, handle: int, offset: int, target: Bytes) -> None:
        self._memory.read(handle + offset, target)

    def _copy(self, source: int, source_offset: int, target: int, target_offset: int, size_bytes: int) -> None:
        self._memory.copy(source + source_offset, target + target_offset, size_bytes)

    def _load_entry(self, step: Step, entry: Entry) -> Module:
        module = Module(self.context, entry, step.workgroup_bytes)
        self._modules.add(module)
        return module

    def _make_launch(self, plan: LaunchPlan, code: Module) -> CudaLaunch:
        return CudaLaunch(self, plan, code)

    def _synchronize(self) -> None:
        self.context.enter()
        self.context.wait(f"{self.name} failed while it ran")

    def _warmup(self) -> None:
        self._memory.free(self._memory.allocate(1))

    def _trim(self) -> None:
        self.require_usable()
        self.context.enter()
        self.context.wait(f"{self.name} failed while it ran")
        self._memory.trim()

    def _close(self) -> None:
        self.context.stop(Mode.CLOSED)
        for module in self._modules.now():
            module.unload()
        self._memory.close()
        self.context.close()
