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
from vyre_py.ir.builder import ProgramBuilder  # noqa: E402 - the path above must stand first
from vyre_py.ir.errors import ParseError, ProgramError, ValidationError, VyreError, WireError  # noqa: E402 - as above
from vyre_py.ir.expressions import const  # noqa: E402 - the path above must stand first
from vyre_py.ir.functions import (  # noqa: E402 - the path above must stand first
    abs_diff,
    bitcast,
    cast,
    ceil,
    ceil_div,
    clamp,
    clz,
    cos,
    ctz,
    exp,
    floor,
    fma,
    fract,
    is_finite,
    is_inf,
    is_nan,
    log,
    max,
    min,
    mul_hi,
    popcount,
    reverse_bits,
    rotl,
    rotr,
    round,
    select,
    sign,
    sin,
    sqrt,
    trunc,
)
from vyre_py.ir.program import Program  # noqa: E402 - the path above must stand first
from vyre_py.ir.types import bool_, f32, i32, u8, u32  # noqa: E402 - the path above must stand first

if TYPE_CHECKING:
    from vyre_py.drivers.config import DispatchConfig
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.errors import (
        BindingError,
        DeviceLost,
        DeviceUnavailable,
        DispatchTimeout,
        DriverError,
        LaunchError,
        OutOfMemory,
    )
    from vyre_py.drivers.launch import Launch
    from vyre_py.drivers.pipeline import Pipeline
    from vyre_py.drivers.registry import device, devices, is_available
    from vyre_py.drivers.resident import Buffer
    from vyre_py.ir.check import Checked, check
    from vyre_py.lowering.artifact import Artifact
    from vyre_py.lowering.errors import LoweringError, ToolchainError, Unsupported
    from vyre_py.lowering.options import CompileOptions
    from vyre_py.native import compile_native

__all__ = [
    "Artifact", "BindingError", "Buffer", "Checked", "CompileOptions", "Device", "DeviceLost", "DeviceUnavailable", "DispatchConfig",
    "DispatchTimeout", "DriverError", "Launch", "LaunchError", "LoweringError", "OutOfMemory", "ParseError", "Pipeline", "Program",
    "ProgramBuilder", "ProgramError", "ToolchainError", "Unsupported", "ValidationError", "VyreError", "WireError", "abs_diff", "bitcast",
    "bool_", "cast", "ceil", "ceil_div", "check", "clamp", "clz", "compile_native", "const", "cos", "ctz", "device", "devices", "exp", "f32",
    "floor", "fma", "fract", "i32", "is_available", "is_finite", "is_inf", "is_nan", "log", "max", "min", "mul_hi", "popcount",
    "reverse_bits", "rotl", "rotr", "round", "select", "sign", "sin", "sqrt", "trunc", "u32", "u8",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Names of the lower floors, imported when first asked for, so that `import vyre_py` stays quick."""
    from importlib import import_module

    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'vyre_py' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    found: object = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
