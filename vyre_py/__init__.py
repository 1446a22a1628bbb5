"""vyre-py: typed kernel Programs, one exact meaning on every device.

    import numpy as np, vyre_py as vp

    with vp.ProgramBuilder("axpy") as b:
        n = b.dim("n")
        a = b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]

    out = vp.device().compile_native(b.program).dispatch({"x": xs, "y": ys, "a": 2.0})
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "ir").is_dir():
    # In a checkout the floors lie beside this folder; in the wheel they lie inside it.
    __path__.append(str(_root))

from vyre_py._names import LAZY as _LAZY  # noqa: E402 - the path above must stand first
from vyre_py.ir.imports import imported as _imported  # noqa: E402 - as above

if TYPE_CHECKING:
    from vyre_py.drivers.cache.disk import DiskCache
    from vyre_py.drivers.cache.lookup import cache_layers, disk_cache
    from vyre_py.drivers.config import DispatchConfig
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.errors import (
        BindingError,
        CacheError,
        DeviceLost,
        DeviceUnavailable,
        DispatchTimeout,
        DriverError,
        LaunchError,
        OutOfMemory,
    )
    from vyre_py.drivers.launch import Launch
    from vyre_py.drivers.many.chain import Chain, plan_chain
    from vyre_py.drivers.many.graph import Graph
    from vyre_py.drivers.many.sequence import Sequence, copy_step, fill_step, gemm_step
    from vyre_py.drivers.memory.arena.arena import Arena
    from vyre_py.drivers.memory.arena.planner import ArenaPlan, ArenaStep, ArenaValue, plan_arena
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.drivers.memory.store import ResidentStore
    from vyre_py.drivers.memory.weights import Weights
    from vyre_py.drivers.observe.snapshot import Snapshot, prometheus_text
    from vyre_py.drivers.observe.trace import trace
    from vyre_py.drivers.pipeline import Pipeline
    from vyre_py.drivers.process.executor import Executor
    from vyre_py.drivers.registry import device, devices, is_available
    from vyre_py.export_c import export_c
    from vyre_py.headers import include_dir
    from vyre_py.ir.builder.expressions import const
    from vyre_py.ir.builder.functions import (
        abs_diff,
        bitcast,
        cast,
        ceil,
        ceil_div,
        clamp,
        clz,
        ctz,
        extract_bits,
        floor,
        fma,
        fract,
        insert_bits,
        is_finite,
        is_inf,
        is_nan,
        max,
        min,
        mul_hi,
        popcount,
        reverse_bits,
        rotl,
        rotr,
        round,
        rsqrt,
        saturating_add,
        saturating_mul,
        saturating_sub,
        select,
        sign,
        sqrt,
        trunc,
    )
    from vyre_py.ir.builder.functions_math import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        cbrt,
        cos,
        cosh,
        erf,
        erfc,
        exp,
        exp2,
        exp10,
        expm1,
        hypot,
        log,
        log1p,
        log2,
        log10,
        pow,
        sin,
        sinh,
        tan,
        tanh,
    )
    from vyre_py.ir.builder.functions_vectors import (
        all,
        any,
        cross,
        dot,
        length,
        pack2x16_float,
        pack2x16_sint,
        pack2x16_snorm,
        pack2x16_uint,
        pack2x16_unorm,
        pack4x8_sint,
        pack4x8_snorm,
        pack4x8_uint,
        pack4x8_unorm,
        splat,
        unpack2x16_float,
        unpack2x16_sint,
        unpack2x16_snorm,
        unpack2x16_uint,
        unpack2x16_unorm,
        unpack4x8_sint,
        unpack4x8_snorm,
        unpack4x8_uint,
        unpack4x8_unorm,
        vec2,
        vec3,
        vec4,
    )
    from vyre_py.ir.builder.program_builder import ProgramBuilder
    from vyre_py.ir.check import Checked, check
    from vyre_py.ir.language.errors import (
        ParseError,
        ProgramError,
        ProgramWarning,
        RaceError,
        ValidationError,
        VyreError,
        WireError,
    )
    from vyre_py.ir.language.program import Program
    from vyre_py.ir.language.types import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from vyre_py.ir.language.vectors import (
        bf16x2,
        bf16x3,
        bf16x4,
        boolx2,
        boolx3,
        boolx4,
        f16x2,
        f16x3,
        f16x4,
        f32x2,
        f32x3,
        f32x4,
        f64x2,
        f64x3,
        f64x4,
        i8x2,
        i8x3,
        i8x4,
        i16x2,
        i16x3,
        i16x4,
        i32x2,
        i32x3,
        i32x4,
        i64x2,
        i64x3,
        i64x4,
        u8x2,
        u8x3,
        u8x4,
        u16x2,
        u16x3,
        u16x4,
        u32x2,
        u32x3,
        u32x4,
        u64x2,
        u64x3,
        u64x4,
    )
    from vyre_py.lowering.artifact.artifact import Artifact
    from vyre_py.lowering.errors import ArtifactError, LoweringError, ToolchainError, Unsupported
    from vyre_py.lowering.options import CompileOptions
    from vyre_py.many import compile_many
    from vyre_py.native import compile_native
    from vyre_py.ops.sobol import Sobol, sobol_program

__all__ = [
    "Arena", "ArenaPlan", "ArenaStep", "ArenaValue", "Artifact", "ArtifactError", "BindingError", "Buffer", "CacheError", "Chain",
    "Checked", "CompileOptions", "Device", "DeviceLost", "DeviceUnavailable", "DiskCache", "DispatchConfig", "DispatchTimeout",
    "DriverError", "Executor", "Graph", "Launch", "LaunchError", "LoweringError", "OutOfMemory", "ParseError", "Pipeline", "Program",
    "ProgramBuilder", "ProgramError", "ProgramWarning", "RaceError", "ResidentStore", "Sequence", "Snapshot", "Sobol", "ToolchainError", "Unsupported",
    "ValidationError", "VyreError", "Weights", "WireError", "abs_diff", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bf16",
    "bf16x2", "bf16x3", "bf16x4", "bitcast", "bool_", "boolx2", "boolx3", "boolx4", "cache_layers", "cast", "cbrt", "ceil", "ceil_div",
    "check", "clamp", "clz", "compile_many", "compile_native", "const", "copy_step", "cos", "cosh", "cross", "ctz", "device", "devices",
    "disk_cache", "dot", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "export_c", "extract_bits", "f16", "f16x2", "f16x3", "f16x4",
    "f32", "f32x2", "f32x3", "f32x4", "f64", "f64x2", "f64x3", "f64x4", "fill_step", "floor", "fma", "fract", "gemm_step", "hypot", "i16",
    "i16x2", "i16x3", "i16x4", "i32", "i32x2", "i32x3", "i32x4", "i64", "i64x2", "i64x3", "i64x4", "i8", "i8x2", "i8x3", "i8x4",
    "include_dir", "insert_bits", "is_available", "is_finite", "is_inf", "is_nan", "length", "log", "log10", "log1p", "log2", "max", "min",
    "mul_hi", "pack2x16_float", "pack2x16_sint", "pack2x16_snorm", "pack2x16_uint", "pack2x16_unorm", "pack4x8_sint", "pack4x8_snorm",
    "pack4x8_uint", "pack4x8_unorm", "plan_arena", "plan_chain", "popcount", "pow", "prometheus_text", "reverse_bits", "rotl", "rotr",
    "round", "rsqrt", "saturating_add", "saturating_mul", "saturating_sub", "select", "sign", "sin", "sinh", "sobol_program", "splat",
    "sqrt", "tan", "tanh", "trace", "trunc", "u16", "u16x2", "u16x3", "u16x4", "u32", "u32x2", "u32x3", "u32x4", "u64", "u64x2", "u64x3",
    "u64x4", "u8", "u8x2", "u8x3", "u8x4", "unpack2x16_float", "unpack2x16_sint", "unpack2x16_snorm", "unpack2x16_uint", "unpack2x16_unorm",
    "unpack4x8_sint", "unpack4x8_snorm", "unpack4x8_uint", "unpack4x8_unorm", "vec2", "vec3", "vec4",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What is public, imported when first asked for: `import vyre_py` itself takes no time, and Ctrl-C meets the command line at work."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'vyre_py' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    found: object = getattr(_imported(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
