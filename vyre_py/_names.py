"""Public names that are imported only when asked for, and where they live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LAZY"]

_HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "vyre_py.ir.check": ("Checked", "check"),
    "vyre_py.lowering.artifact": ("Artifact",),
    "vyre_py.lowering.errors": ("ArtifactError", "LoweringError", "ToolchainError", "Unsupported"),
    "vyre_py.lowering.options": ("CompileOptions",),
    "vyre_py.drivers.arena": ("Arena",),
    "vyre_py.drivers.cache": ("DiskCache",),
    "vyre_py.drivers.compilation": ("cache_layers", "disk_cache"),
    "vyre_py.drivers.arena_plan": ("ArenaPlan", "ArenaStep", "ArenaValue", "plan_arena"),
    "vyre_py.drivers.chain": ("Chain", "plan_chain"),
    "vyre_py.drivers.config": ("DispatchConfig",),
    "vyre_py.drivers.device": ("Device",),
    "vyre_py.drivers.errors": (
        "BindingError", "CacheError", "DeviceLost", "DeviceUnavailable", "DispatchTimeout", "DriverError", "LaunchError", "OutOfMemory",
    ),
    "vyre_py.drivers.executor": ("Executor",),
    "vyre_py.drivers.graph": ("Graph",),
    "vyre_py.drivers.launch": ("Launch",),
    "vyre_py.drivers.pipeline": ("Pipeline",),
    "vyre_py.drivers.registry": ("device", "devices", "is_available"),
    "vyre_py.drivers.resident": ("Buffer",),
    "vyre_py.drivers.sequence": ("Sequence", "copy_step", "fill_step", "gemm_step"),
    "vyre_py.drivers.snapshot": ("Snapshot", "prometheus_text"),
    "vyre_py.drivers.store": ("ResidentStore",),
    "vyre_py.drivers.trace": ("trace",),
    "vyre_py.drivers.weights": ("Weights",),
    "vyre_py.export_c": ("export_c",),
    "vyre_py.headers": ("include_dir",),
    "vyre_py.many": ("compile_many",),
    "vyre_py.native": ("compile_native",),
    "vyre_py.ops.sobol": ("Sobol", "sobol_program"),
}

LAZY: Final[Mapping[str, str]] = {name: module for module, names in _HOMES.items() for name in names}
