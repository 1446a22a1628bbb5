"""Parameters that were measured to be fast, by device, type and size: tuning tries them first, and takes them where nothing is kept and nothing may run.

What is not here was not measured: the model of `estimate` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.program import Program
from vyre_py.lowering.target import Target
from vyre_py.ops.products import TILES

__all__ = ["DEFAULTS", "Default", "default_for", "is_default"]

_FIGURES: Final = "docs/beside/figures.md, Products of matrices, on one NVIDIA H200: python -m tests.bench.cuda --only matmul"
_PROCESSOR: Final = "python tests/bench/bench_cpu.py, one thread, of NumPy's BLAS: f32 0.82 by small tiles and 0.89 by these, bf16 0.95 and 1.00"


@dataclass(frozen=True, slots=True)
class Default:
    """Of the Programs of a name whose first buffer has one of these types, on an architecture of CUDA or a kind of device: what is fast where each of these
    dims is `least` or more. `source` says where the measured figures are, and how to get them."""

    program: str
    device: str
    types: tuple[str, ...]
    dims: tuple[str, ...]
    least: int
    parameters: Mapping[str, Any]
    source: str


DEFAULTS: Final[tuple[Default, ...]] = (
    Default("matmul", "sm_90a", ("f16", "bf16"), ("m", "n"), 2048, {"tiles": (128, 256, 64)}, _FIGURES),
    Default("matmul", "sm_90a", ("i8", "u8", "f8e4m3", "f8e5m2"), ("m", "n"), 8192, {"tiles": (128, 256, 128)}, _FIGURES),
    Default("matmul", "sm_90a", ("f32",), ("m", "n"), 8192, {"tiles": (128, 256, 32)}, _FIGURES),
    Default("matmul", "sm_90", ("f32",), ("m", "n"), 8192, {"tiles": (64, 128, 32)}, _FIGURES),
    Default("matmul", "sm_90", ("f64",), ("m", "n"), 4096, {"tiles": (128, 128, 16)}, _FIGURES),
    Default("matmul", "host", ("f32", "bf16"), ("m", "n"), 512, {"tiles": TILES["medium"]}, _PROCESSOR),
)


def default_for(program: Program, target: Target, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """The parameters of the row for a Program on a device's target, with dims of these sizes; none where nothing was measured."""
    if not program.buffers:
        return {}
    type_, made = program.buffers[0].type.name, target.for_program(program)
    device = made.arch if made.kind == "ptx" else made.kind
    for row in DEFAULTS:
        if (row.program, row.device) == (program.name, device) and type_ in row.types and all(sizes.get(dim, 0) >= row.least for dim in row.dims):
            return row.parameters
    return {}


def is_default(default: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether parameters have the values of a default that is there, tiles by name or by shape."""
    return bool(default) and all(name in parameters and _shape(parameters[name]) == value for name, value in default.items())


def _shape(value: Any) -> Any:
    return TILES.get(value, value) if isinstance(value, str) else value
