"""The driver's own handles, and kernels from raw code: PTX text or machine code with a signature."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.binding import arguments_by_name, bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.launch.cooperative import occupancy
from vyre_py.drivers.cuda.launch.module import CudaModule
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import EmptyLaunch, Launch, plan_launch
from vyre_py.drivers.sharing.exchange import is_foreign, wrap
from vyre_py.drivers.sharing.raw_signature import RawParameter, axes_of, declarations, parameters_of, shaped
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst, Grid, is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Access
from vyre_py.lowering.artifact.parts import Entry, Image, Interface, Step
from vyre_py.lowering.layout import Layout, Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["CudaHandles", "RawFunction", "RawKernel", "load_ptx"]

_ENTRY: Final = re.compile(r"\.entry\s+([\w$]+)")
_MAX_ALIGN: Final = 16
_ACCESSES: Final[Mapping[str, Access]] = {access.value: access for access in Access}


@dataclass(frozen=True, slots=True)
class CudaHandles:
    """The driver's own handles as integers: CUdevice, CUcontext, the CUstream that everything goes through, and the one for transfers beside it;
    `cublaslt` is the cublasLtHandle_t of products of matrices, 0 before the first. `streams` exist, of which `streams_idle` are idle."""

    device: int
    context: int
    stream: int
    copy_stream: int
    cublaslt: int
    streams: int
    streams_idle: int


@dataclass(frozen=True, slots=True)
class RawFunction:
    """The driver's own handles of loaded code as integers: CUmodule and CUfunction."""

    module: int
    function: int

    @classmethod
    def of(cls, module: CudaModule) -> RawFunction:
        """Those of a loaded entry."""
        return cls(int(module.handle), int(module.function))


def _offsets(parameters: tuple[RawParameter, ...]) -> tuple[list[int], int]:
    """Where each parameter begins in the block, and the size of that."""
    offsets, end = [], 0
    for parameter in parameters:
        end += -end % parameter.align_bytes
        offsets.append(end)
        end += parameter.size_bytes
    return offsets, end


def _check(device: CudaDevice, module: CudaModule, entry: str, parameters: tuple[RawParameter, ...], offsets: list[int]) -> None:
    """Compares a signature with what the code declares, where the driver says. Raises BindingError."""
    cuda = device.context.cuda
    if not hasattr(cuda, "cuFuncGetParamInfo"):
        return
    declared: list[tuple[int, int]] = []
    try:
        while len(declared) <= len(parameters):
            status, *found = cuda.cuFuncGetParamInfo(module.function, len(declared))
            if status:  # there are no more, or the device is lost
                device.context.note((status,), f"{device.name} does not say the parameters of {entry}")
                device.require_usable()
                break
            declared.append((int(found[0]), int(found[1])))
    except RuntimeError:  # what cuda-bindings raises for a function that the driver lacks
        return
    if len(declared) != len(parameters):
        more = "more" if len(declared) > len(parameters) else f"{len(declared)}"
        raise BindingError(entry, [f"the signature has {len(parameters)} parameters, the code {more}"])
    problems = [
        f"{p.name!r} takes {p.size_bytes} bytes at {at}, and parameter {n} of the code {size} bytes at {offset}"
        for n, (p, at, (offset, size)) in enumerate(zip(parameters, offsets, declared, strict=True))
        if (at, p.size_bytes) != (offset, size)
    ]
    if problems:
        raise BindingError(entry, problems)


class RawKernel:
    """A kernel from raw code. Made by `device.load_ptx`.

    Attributes: `device`, `entry`, its name; `raw`, its module's and its own handle.
    """

    def __init__(self, device: CudaDevice, module: CudaModule, entry: str, parameters: tuple[RawParameter, ...]) -> None:
        self.device, self.entry = device, entry
        self._module, self._parameters = module, parameters
        self._offsets, self._block_bytes = _offsets(parameters)
        self._names = declarations(entry, parameters)

    def __repr__(self) -> str:
        return f"<RawKernel {self.entry!r} on {self.device.name}>"

    @property
    def raw(self) -> RawFunction:
        """The driver's own handles."""
        return RawFunction.of(self._module)

    def bind(
        self, arguments: Any = None, /, *, grid: Any, workgroup: Any, workgroup_bytes: int = 0, config: DispatchConfig | None = None, **named: Any
    ) -> Launch:
        """A launch of `grid` workgroups of `workgroup` invocations each, one to three numbers along x, y, z, each with `workgroup_bytes` of dynamic
        workgroup memory. Arguments go as for `Pipeline.bind`; buffers may have any shape.

        Raises BindingError with every mismatch, Unsupported for what is over the device's limits.
        """
        device = self.device
        device.require_usable()
        given, problems = arguments_by_name(self._names, arguments, named)
        if problems:
            raise BindingError(self._names.name, problems)
        axes = axes_of("grid", grid), axes_of("workgroup", workgroup)
        if not is_count(workgroup_bytes) or 0 in axes[1]:
            raise BindingError("bind", [f"workgroup sizes are above 0, workgroup_bytes a whole number: got {shown(workgroup)}, {shown(workgroup_bytes)}"])
        buffers = {p.name: given[p.name] for p in self._parameters if p.access is not None and p.name in given}
        for name, value in buffers.items():
            if is_foreign(value):
                given[name] = buffers[name] = wrap(device, value, name)
        config = DispatchConfig.given(config)
        config.refuse(device.name, frozenset({"label"}))
        interface = shaped(self._names, buffers)
        binding = bind_arguments(device, interface, given, {}, staged=False)
        module = self._module.resized(device.context, int(workgroup_bytes))
        module.occupancy = occupancy(device.context, module.function, axes[1], int(workgroup_bytes))
        x, y, z = map(DimConst, axes[0])
        step = Step((), (Entry(self.entry),), self._layout(interface), axes[1], Grid(False, (x, y, z)), int(workgroup_bytes))
        device._check_limits(step)
        plan = plan_launch(device, step, binding, config)
        device.telemetry.binds += 1
        return EmptyLaunch(plan) if plan.empty else device._make_launch(plan, (module,))

    def _layout(self, interface: Interface) -> Layout:
        memories, params = {m.name: m for m in interface.buffers}, {p.name: p for p in interface.params}
        slots = []
        for p, offset in zip(self._parameters, self._offsets, strict=True):
            kind = SlotKind.PARAM if p.access is None else SlotKind.BUFFER
            slots.append(Slot(kind, p.name, p.type, offset, p.size_bytes, memory=memories.get(p.name), param=params.get(p.name)))
        return Layout(tuple(slots), self._block_bytes, interface.wide)


def load_ptx(device: CudaDevice, code: str | bytes, entry: str, signature: Any) -> RawKernel:
    """A kernel from PTX text, or from machine code (a cubin) for this device. See `Device.load_ptx`."""
    device.require_usable()
    parameters = parameters_of("load_ptx", signature)
    if not isinstance(code, (str, bytes)) or not isinstance(entry, str):
        raise BindingError("load_ptx", [f"code is text or bytes and the entry a name, got {type(code).__name__} and {shown(entry)}"])
    data = code.encode() if isinstance(code, str) else code
    names = _ENTRY.findall(data.decode(errors="replace")) if not data.startswith(b"\x7fELF") else []
    if names and entry not in names:
        raise BindingError("load_ptx", [f"the code has no entry {shown(entry)}; it has {', '.join(map(shown, names))}"])
    module = CudaModule(device.context, Image("ptx", data), entry, 0)
    device.keep(module)
    with device.context.entered():
        _check(device, module, entry, parameters, _offsets(parameters)[0])
    return RawKernel(device, module, entry, parameters)
