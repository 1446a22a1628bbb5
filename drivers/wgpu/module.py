"""Modules: WGSL compiled into a compute pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from vyre_py.drivers.errors import DeviceLost, OutOfMemory
from vyre_py.drivers.wgpu.library import errors
from vyre_py.drivers.wgpu.refusal import refused
from vyre_py.drivers.wgpu.status import failure
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Entry, Image, Step
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import WORD_BYTES
from vyre_py.lowering.wgsl.memory import READ, READ_WRITE
from vyre_py.lowering.wgsl.uniform_block import block_words

__all__ = ["Variant", "WgpuModule", "compiled_variant", "layout_entries", "require_limits"]


def require_limits(name: str, limits: dict[str, int], step: Step, image: Image) -> None:
    """Raises Unsupported for what this adapter cannot take beyond the contract's limits."""
    bindings = len(step.layout.buffers) + bool(image.data)
    found: list[Missing] = []
    for axis, size in zip("xyz", step.workgroup, strict=True):
        if size > (most := limits[f"max-compute-workgroup-size-{axis}"]):
            found.append(Missing(f"workgroups of {size} along {axis}", help=f"the limit is {most}"))
    if bindings > (most := limits["max-storage-buffers-per-shader-stage"]):
        found.append(Missing(f"{bindings} buffers in a Program", help=f"the limit is {most}, tables counting as one"))
    if len(image.data) > (most := limits["max-storage-buffer-binding-size"]):
        found.append(Missing(f"{len(image.data)} bytes of tables", help=f"the limit is {most}"))
    if found:
        raise Unsupported(name, found)


@dataclass(frozen=True, slots=True)
class Variant:
    """A pipeline, and the layout of its one bind group."""

    pipeline: Any
    layout: Any


def layout_entries(package: ModuleType, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The layout of a bind group whose bindings are of these kinds, in order."""
    stage = package.ShaderStage.COMPUTE
    return [{"binding": number, "visibility": stage, "buffer": {"type": kind}} for number, kind in enumerate(kinds)]


def compiled_variant(gpu: Any, text: str, symbol: str, entries: list[dict[str, Any]], emitted: bool = True) -> Variant:
    """WGSL, ours or, where it was not `emitted`, a user's, compiled. Raises ToolchainError with what naga says, and what wgpu-py raises for lost devices and
    lack of memory."""
    try:
        layout = gpu.create_bind_group_layout(entries=entries)
        module = gpu.create_shader_module(code=text)
        whole = gpu.create_pipeline_layout(bind_group_layouts=[layout])
        pipeline = gpu.create_compute_pipeline(layout=whole, compute={"module": module, "entry_point": symbol})
    except errors() as error:
        if isinstance(failure(error, symbol), (DeviceLost, OutOfMemory)):
            raise
        raise refused(str(error), text, emitted) from error
    return Variant(pipeline, layout)


class WgpuModule:
    """One loaded entry: `variant(False)` is the code as it was emitted, `block_bytes` the size of its uniform block, `tables` the
    bind group's entry for its tables, if any.

    WebGPU's rules of usage are per buffer: where an argument that is read and one that is written are ranges of one buffer, both must
    be bound for writing. `variant(True)` is the same code with every buffer declared so; it is compiled when first needed.
    """

    __slots__ = ("__weakref__", "_device", "_package", "_step", "_symbol", "_text", "_variants", "block_bytes", "tables")

    def __init__(self, package: ModuleType, device: Any, step: Step, image: Image, entry: Entry) -> None:
        self._package, self._device, self._step = package, device, step
        self._text, self._symbol = image.code.decode(), entry.symbol
        self.block_bytes = block_words(step.layout) * WORD_BYTES
        self.tables: dict[str, Any] | None = None
        if image.data:
            usage = package.BufferUsage.STORAGE | package.BufferUsage.COPY_DST
            buffer = device.create_buffer(size=len(image.data), usage=usage)
            device.queue.write_buffer(buffer, 0, np.frombuffer(image.data, np.uint8))
            self.tables = {"binding": len(step.layout.buffers) + 1, "resource": {"buffer": buffer, "offset": 0, "size": len(image.data)}}
        self._variants: dict[bool, Variant] = {}

    def load(self) -> None:
        """Compiles the code as it was emitted. Raises ToolchainError."""
        self.variant(False)

    def variant(self, shared: bool) -> Variant:
        """The pipeline; `shared` when a buffer that is written is also bound to an argument that is read. Raises ToolchainError."""
        found = self._variants.get(shared)
        if found is None:
            found = self._variants[shared] = self._compile(shared)
        return found

    def _compile(self, shared: bool) -> Variant:
        text = self._text.replace(READ, READ_WRITE) if shared else self._text
        return compiled_variant(self._device, text, self._symbol, self._layout_entries(shared))

    def _layout_entries(self, shared: bool) -> list[dict[str, Any]]:
        kinds = ["uniform"]
        for slot in self._step.layout.buffers:
            assert slot.memory is not None  # a buffer slot has a memory (layout.lay_out)
            kinds.append("storage" if shared or slot.memory.access.writes else "read-only-storage")
        if self.tables:
            kinds.append("storage" if shared else "read-only-storage")
        return layout_entries(self._package, kinds)
