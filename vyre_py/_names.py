"""Public names, and the modules that they are imported from when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LAZY"]

_HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "vyre_py.ir.builder.program_builder": ("ProgramBuilder",),
    "vyre_py.ir.language.errors": ("ParseError", "ProgramError", "ProgramWarning", "RaceError", "ValidationError", "VyreError", "WireError"),
    "vyre_py.ir.builder.expressions": ("const",),
    "vyre_py.ir.builder.functions": (
        "abs_diff", "bitcast", "cast", "ceil", "ceil_div", "clamp", "clz", "ctz", "extract_bits", "floor", "fma", "fract", "insert_bits",
        "is_finite", "is_inf", "is_nan", "max", "min", "mul_hi", "popcount", "reverse_bits", "rotl", "rotr", "round", "rsqrt", "saturating_add",
        "saturating_mul", "saturating_sub", "select", "sign", "sqrt", "trunc",
    ),
    "vyre_py.ir.builder.functions_math": (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp2", "exp10", "expm1", "hypot",
        "log", "log1p", "log2", "log10", "pow", "sin", "sinh", "tan", "tanh",
    ),
    "vyre_py.ir.builder.functions_vectors": (
        "all", "any", "cross", "dot", "length", "pack2x16_float", "pack2x16_sint", "pack2x16_snorm", "pack2x16_uint", "pack2x16_unorm",
        "pack4x8_sint", "pack4x8_snorm", "pack4x8_uint", "pack4x8_unorm", "splat", "unpack2x16_float", "unpack2x16_sint", "unpack2x16_snorm",
        "unpack2x16_uint", "unpack2x16_unorm", "unpack4x8_sint", "unpack4x8_snorm", "unpack4x8_uint", "unpack4x8_unorm", "vec2", "vec3", "vec4",
    ),
    "vyre_py.ir.language.program": ("Program",),
    "vyre_py.ir.language.types": ("bf16", "bool_", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "vyre_py.ir.language.vectors": (
        "bf16x2", "bf16x3", "bf16x4", "boolx2", "boolx3", "boolx4", "f16x2", "f16x3", "f16x4", "f32x2", "f32x3", "f32x4", "f64x2", "f64x3", "f64x4",
        "i8x2", "i8x3", "i8x4", "i16x2", "i16x3", "i16x4", "i32x2", "i32x3", "i32x4", "i64x2", "i64x3", "i64x4", "u8x2", "u8x3", "u8x4", "u16x2",
        "u16x3", "u16x4", "u32x2", "u32x3", "u32x4", "u64x2", "u64x3", "u64x4",
    ),
    "vyre_py.ir.check": ("Checked", "check"),
    "vyre_py.lowering.artifact.artifact": ("Artifact",),
    "vyre_py.lowering.errors": ("ArtifactError", "LoweringError", "ToolchainError", "Unsupported"),
    "vyre_py.lowering.options": ("CompileOptions",),
    "vyre_py.drivers.memory.arena.arena": ("Arena",),
    "vyre_py.drivers.cache.disk": ("DiskCache",),
    "vyre_py.drivers.cache.lookup": ("cache_layers", "disk_cache"),
    "vyre_py.drivers.memory.arena.planner": ("ArenaPlan", "ArenaStep", "ArenaValue", "plan_arena"),
    "vyre_py.drivers.many.chain": ("Chain", "plan_chain"),
    "vyre_py.drivers.config": ("DispatchConfig",),
    "vyre_py.drivers.device": ("Device",),
    "vyre_py.drivers.errors": (
        "BindingError", "CacheError", "DeviceLost", "DeviceUnavailable", "DispatchTimeout", "DriverError", "LaunchError", "OutOfMemory",
    ),
    "vyre_py.drivers.process.executor": ("Executor",),
    "vyre_py.drivers.many.graph": ("Graph",),
    "vyre_py.drivers.launch": ("Launch",),
    "vyre_py.drivers.pipeline": ("Pipeline",),
    "vyre_py.drivers.registry": ("device", "devices", "is_available"),
    "vyre_py.drivers.memory.buffer": ("Buffer",),
    "vyre_py.drivers.many.sequence": ("Sequence", "copy_step", "fill_step", "gemm_step"),
    "vyre_py.drivers.observe.snapshot": ("Snapshot", "prometheus_text"),
    "vyre_py.drivers.memory.store": ("ResidentStore",),
    "vyre_py.drivers.observe.trace": ("trace",),
    "vyre_py.drivers.memory.weights": ("Weights",),
    "vyre_py.export_c": ("export_c",),
    "vyre_py.headers": ("include_dir",),
    "vyre_py.many": ("compile_many",),
    "vyre_py.native": ("compile_native",),
    "vyre_py.ops.sobol": ("Sobol", "sobol_program"),
}

LAZY: Final[Mapping[str, str]] = {name: module for module, names in _HOMES.items() for name in names}
