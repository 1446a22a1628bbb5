"""Ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.drivers.trace import tracing
from vyre_py.ir.check import Checked
from vyre_py.ir.errors import shown
from vyre_py.ir.program import Program
from vyre_py.lowering.artifact import Artifact
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

__all__ = ["compile_native"]


def compile_native(program: Program | Checked, targets: str | Sequence[str], options: CompileOptions | None = None) -> Artifact:
    """Compiles a Program for one or more targets by name ("sm_90", "wgsl", "cpu"); needs no device and no toolkit.

    `device.load(artifact)` runs the part for that device. Raises ValidationError, Unsupported, ToolchainError.
    """
    if not isinstance(targets, Sequence):
        raise Unsupported("vyre-py", [Missing(f"targets {shown(targets)}", help="name one, or a list of them")])
    names = [targets] if isinstance(targets, str) else list(targets)
    parsed = [parse_target(name) for name in names]
    if (traces := tracing()) is None:
        return compile_for(program, parsed, options)
    with traces.range("compile", "compile", None, {"targets": ", ".join(map(str, parsed))}):
        artifact = compile_for(program, parsed, options)
        traces.stages(dict.fromkeys(stage for part in artifact.parts for stage in part.stages))  # parts share what was done once
        return artifact
