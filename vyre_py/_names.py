"""Public names, and the modules that they are imported from when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LAZY", "MODULES", "TABLES"]

_HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "vyre_py.ir.builder.program_builder": ("ProgramBuilder",),
    "vyre_py.ir.builder.tiles.tile_builder": ("TileBuilder",),
    "vyre_py.ir.builder.tiles.tile_array": ("TileArrayHandle",),
    "vyre_py.ir.language.errors": (
        "ParseError", "ProgramError", "ProgramWarning", "RaceError", "UnwrittenRead", "ValidationError", "VyreError", "WireError",
        "Diagnostic", "Place", "Missing",
    ),
    "vyre_py.ir.builder.expressions": ("const", "Expr"),
    "vyre_py.ir.builder.functions": ("fast",),
    "vyre_py.ir.builder.traced": ("function", "Traced"),
    "vyre_py.ir.language.program": ("Program",),
    "vyre_py.ir.language.types": ("bf16", "bool_", "f8e4m3", "f8e5m2", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "Type"),
    "vyre_py.ir.check": ("Checked", "check"),
    "vyre_py.lowering.artifact.artifact": ("Artifact",),
    "vyre_py.lowering.artifact.parts": ("Entry", "Image", "Interface", "Part", "Step"),
    "vyre_py.lowering.errors": ("ArtifactError", "LoweringError", "ToolchainError", "Unsupported"),
    "vyre_py.lowering.options": ("CompileOptions",),
    "vyre_py.drivers.callable": ("CallEntry",),
    "vyre_py.drivers.memory.arena.arena": ("Arena",),
    "vyre_py.drivers.cache.disk": ("DiskCache",),
    "vyre_py.drivers.cache.lookup": ("cache_layers", "disk_cache"),
    "vyre_py.drivers.memory.arena.planner": ("ArenaPlan", "ArenaStep", "ArenaValue", "plan_arena"),
    "vyre_py.drivers.many.chain": ("Chain",),
    "vyre_py.drivers.config": ("DispatchConfig",),
    "vyre_py.drivers.device": ("Device", "Limits"),
    "vyre_py.drivers.errors": (
        "BindingError", "CacheError", "DeviceLost", "DeviceUnavailable", "DispatchTimeout", "DriverError", "KernelAssertion", "LaunchError",
        "OutOfMemory",
    ),
    "vyre_py.drivers.process.executor": ("Executor",),
    "vyre_py.drivers.many.graph": ("Graph",),
    "vyre_py.drivers.launch": ("Launch",),
    "vyre_py.drivers.pipeline": ("Pipeline",),
    "vyre_py.drivers.registry": ("device", "devices", "is_available", "DeviceInfo"),
    "vyre_py.drivers.memory.buffer": ("Buffer",),
    "vyre_py.drivers.many.collectives": ("all_gather_step", "all_reduce_step", "broadcast_step", "exchange_step", "reduce_scatter_step"),
    "vyre_py.drivers.many.rank_watch": ("RankWatch", "watch_ranks"),
    "vyre_py.drivers.many.sequence": ("Sequence", "copy_step", "fill_step", "gemm_step", "SequenceStep"),
    "vyre_py.drivers.observe.snapshot": ("Snapshot", "prometheus_text"),
    "vyre_py.drivers.memory.store": ("ResidentStore", "StoreSnapshot"),
    "vyre_py.drivers.observe.trace": ("trace", "Trace"),
    "vyre_py.drivers.memory.weights": ("Weights",),
    "vyre_py.ir.builder.handles": ("ArrayHandle", "VariableHandle"),
    "vyre_py.ir.builder.sizes": ("Size",),
    "vyre_py.lowering.target": ("Target",),
    "vyre_py.lowering.stages": ("Stages",),
    "vyre_py.drivers.dispatch": ("Timed",),
    "vyre_py.drivers.event": ("Event",),
    "vyre_py.drivers.pending": ("Pending",),
    "vyre_py.drivers.cache.directory": ("CacheWarning",),
    "vyre_py.drivers.lru": ("LayerSnapshot",),
    "vyre_py.export_c": ("export_c",),
    "vyre_py.export_web": ("export_web",),
    "vyre_py.headers": ("include_dir",),
    "vyre_py.many": ("compile_many",),
    "vyre_py.native": ("compile_native",),
    "vyre_py.tuning.tune": ("Tried", "Tuned", "tune"),
    "vyre_py.ops.sobol": ("Sobol", "sobol_program"),
    "vyre_py.ops.sorts": ("Sort",),
}

LAZY: Final[Mapping[str, str]] = {name: module for module, names in _HOMES.items() for name in names}

# Modules and their tables whose rows are public by their names: functions of ops, vector types.
TABLES: Final = (("vyre_py.ir.language.types", "VECTORS"), ("vyre_py.ir.builder.functions", "FUNCTIONS"))

# Modules that are public as they are, by the name that they have in `vyre_py`.
MODULES: Final[Mapping[str, str]] = {"ops": "vyre_py.ops"}
