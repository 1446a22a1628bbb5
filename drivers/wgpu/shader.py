"""Kernels from WGSL of a user's own, with a signature."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.binding import arguments_by_name, bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import EmptyLaunch, Launch, plan_launch
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.sharing.raw_signature import RawParameter, axes_of, declarations, parameters_of, shaped
from vyre_py.drivers.wgpu.batch import Batch
from vyre_py.drivers.wgpu.launch import WgpuLaunch
from vyre_py.drivers.wgpu.module import Variant, compiled_variant, layout_entries
from vyre_py.drivers.wgpu.uniforms import UniformBlock
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import f32, i32, u32
from vyre_py.lowering.artifact.parts import Entry, Interface, Step
from vyre_py.lowering.layout import POINTER_BYTES, Layout, Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.wgpu.device import WgpuDevice

__all__ = ["Shader", "load_wgsl"]

_ENTRY: Final = re.compile(r"@compute\b[^;{}]*?\bfn\s+(\w+)")
_WORKGROUP: Final = re.compile(r"@workgroup_size\(\s*(\d+)[iu]?\s*(?:,\s*(\d+)[iu]?\s*)?(?:,\s*(\d+)[iu]?\s*)?,?\s*\)")
_VALUES: Final = frozenset({u32, i32, f32})  # that a uniform can have, and vectors of them
_BLOCK_BYTES: Final = 16


class ShaderLaunch(WgpuLaunch):
    """A launch of a user's shader: each param is a uniform of its own, and a buffer is bound as it lies."""

    __slots__ = ("_blocks",)

    def _take_words(self) -> None:
        self._blocks: dict[str, UniformBlock] = {}
        for slot in self.plan.step.layout.params:
            data = self.plan.block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes]
            self._blocks[slot.name] = self._device.uniforms.block(_BLOCK_BYTES)
            self._blocks[slot.name].write(0, data.ljust(_BLOCK_BYTES, b"\0"))

    def _entries(self) -> tuple[list[dict[str, Any]], list[int]]:
        entries = []
        for number, slot in enumerate(self.plan.step.layout.slots):
            resource = self._blocks[slot.name].resource if slot.kind is SlotKind.PARAM else self._whole(slot.name, self._buffers[slot.name])
            entries.append({"binding": number, "resource": resource})
        if self._is_shared():
            raise BindingError(self._title, ["WebGPU binds no memory for reading and for writing at once: two arguments are parts of one allocation"])
        return entries, []

    def _write_offsets(self, offsets: list[int]) -> None:
        pass  # there are none

    def _whole(self, name: str, buffer: Buffer) -> dict[str, Any]:
        resource, before = self._range(buffer, 1)
        if before:
            aligned = self._device.offset_alignment
            raise BindingError(self._title, [f"{name!r} begins at byte {buffer.offset_bytes} of its memory, where a multiple of {aligned} is needed"])
        return resource

    def _write(self, slot: Slot, data: bytes) -> None:
        self._blocks[slot.name].write(0, data)

    def _take_grid(self, batch: Batch, grid: Buffer) -> None:
        pass  # the code has no block that says it


class Shader:
    """A kernel from WGSL. Made by `device.load_wgsl`. Attributes: `device`, `entry`, its name; `raw`, wgpu-py's pipeline."""

    def __init__(self, device: WgpuDevice, code: str, entry: str, parameters: tuple[RawParameter, ...], workgroup: tuple[int, int, int]) -> None:
        self.device, self.entry = device, entry
        self._parameters, self._workgroup = parameters, workgroup
        self._names = declarations(entry, parameters)
        kinds = ["uniform" if p.access is None else "storage" if p.access.writes else "read-only-storage" for p in parameters]
        layout = layout_entries(device.package, kinds)
        self._variant: Variant = device.attempt(f"load {entry}", compiled_variant, device.gpu, code, entry, layout, False)

    def __repr__(self) -> str:
        return f"<Shader {self.entry!r} on {self.device.name}>"

    @property
    def raw(self) -> Any:
        """wgpu-py's pipeline."""
        return self._variant.pipeline

    def variant(self, shared: bool) -> Variant:
        """The one that there is."""
        return self._variant

    def bind(self, arguments: Any = None, /, *, grid: Any, config: DispatchConfig | None = None, **named: Any) -> Launch:
        """A launch of `grid` workgroups, one to three numbers along x, y, z, or a buffer of three u32 that the device reads. Arguments go as for
        `Pipeline.bind`; buffers may have any shape. Raises BindingError with every mismatch."""
        device = self.device
        device.require_usable()
        given, problems = arguments_by_name(self._names, arguments, named)
        if problems:
            raise BindingError(self._names.name, problems)
        config = DispatchConfig.given(config)
        config.refuse(device.name, frozenset({"label"}))
        read = isinstance(grid, Buffer)
        x, y, z = (1, 1, 1) if read else axes_of("grid", grid)
        if max(x, y, z) > device.grid_limit:
            raise BindingError("grid", [f"the grid is {x} x {y} x {z} workgroups, and {device.name} takes {device.grid_limit} along an axis"])
        config = DispatchConfig(label=config.label, grid=grid if read else (x, y, z))
        interface = shaped(self._names, {p.name: given.get(p.name) for p in self._parameters if p.access is not None})
        binding = bind_arguments(device, interface, given, {}, staged=False)
        step = Step((), (Entry(self.entry),), self._layout(interface), self._workgroup, Grid(False, (DimConst(x), DimConst(y), DimConst(z))), 0)
        plan = plan_launch(device, step, binding, config)
        device.telemetry.binds += 1
        return EmptyLaunch(plan) if plan.empty else ShaderLaunch(device, plan, (self,))

    def _layout(self, interface: Interface) -> Layout:
        memories, params = {m.name: m for m in interface.buffers}, {p.name: p for p in interface.params}
        slots, end = [], 0
        for p in self._parameters:
            kind = SlotKind.PARAM if p.access is None else SlotKind.BUFFER
            size = p.type.size_bytes if p.access is None else POINTER_BYTES
            slots.append(Slot(kind, p.name, p.type, end, size, memory=memories.get(p.name), param=params.get(p.name)))
            end += size
        return Layout(tuple(slots), end, interface.wide)


def load_wgsl(device: WgpuDevice, code: str, entry: str, signature: Any) -> Shader:
    """A kernel from WGSL. See `WgpuDevice.load_wgsl`."""
    device.require_usable()
    parameters = parameters_of("load_wgsl", signature)
    if not isinstance(code, str) or not isinstance(entry, str):
        raise BindingError("load_wgsl", [f"code is text and the entry a name, got {type(code).__name__} and {shown(entry)}"])
    odd = [p for p in parameters if p.access is None and p.type.scalar not in _VALUES]
    problems = [f"{p.name!r} is a {p.type}, and uniforms are u32, i32, f32 and vectors of them" for p in odd]
    entries: Mapping[str, str] = {found[1]: found[0] for found in _ENTRY.finditer(code)}
    if entries and entry not in entries:
        problems.append(f"the code has no entry {shown(entry)}; it has {', '.join(map(shown, entries))}")
    if problems:
        raise BindingError("load_wgsl", problems)
    sizes = _WORKGROUP.search(entries.get(entry, ""))
    x, y, z = [int(size or 1) for size in sizes.groups()] if sizes else (1, 1, 1)  # for people and counters: the code alone decides
    return Shader(device, code, entry, parameters, (x, y, z))
