"""Which Programs of invocations a Program of tiles becomes for each kind of target: the last one for any arguments, those before it better ones for some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vyre_py.ir.check import Checked, check
from vyre_py.ir.check.facts import capabilities
from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target
from vyre_py.lowering.tiles.cores import for_tensor_cores, uses_tensor_cores
from vyre_py.lowering.tiles.rewrite import without_tiles

__all__ = ["host_tiles", "ptx_tiles", "wgsl_tiles"]

# What tiles take of workgroup memory: on the CPU and for old GPUs what leaves room for other workgroups, for WebGPU what every device has.
_TILE_BYTES: Final = 48 << 10
_WGSL_TILE_BYTES: Final = 16 << 10
_WARPGROUPS: Final = ("sm_90a",)  # the architecture alone that has products of warpgroups
# What a workgroup may have, by the generation from which on it may: programs for tensor cores have one or two workgroups a multiprocessor.
_CORES_BYTES: Final = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 88: 96 << 10, 90: 224 << 10, 120: 96 << 10}


def ptx_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """For tensor cores where the target has them and something uses them: a form for views of buffers, and one for any."""
    of = generation(target.arch)
    if options.workgroup is None and of >= min(_CORES_BYTES) and uses_tensor_cores(program):
        memory_bytes = _CORES_BYTES[max(known for known in _CORES_BYTES if known <= of)]
        warpgroups = target.arch in _WARPGROUPS
        forms = [for_tensor_cores(program, target.name, memory_bytes, wide=wide, warpgroups=warpgroups) for wide in (True, False)]
        # A statement of a target's is none of the language, which `check` takes alone.
        return [Checked(form, analyse(form), capabilities(form)) for form in forms]
    return _invocations(program, target, options, _TILE_BYTES)


def host_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """The one form that there is."""
    return _invocations(program, target, options, _TILE_BYTES)


def wgsl_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    """The one form that there is."""
    return _invocations(program, target, options, _WGSL_TILE_BYTES)


def _invocations(program: Program, target: Target, options: CompileOptions, memory_bytes: int) -> Sequence[Checked]:
    return (check(without_tiles(program, target.name, memory_bytes, options.workgroup)),)
