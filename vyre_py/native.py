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
from vyre_py.lowering.target import Target, parse_target

__all__ = ["Source", "Targets", "compile_native", "parsed"]

Source = Program | Checked | bytes | bytearray | memoryview
Targets = str | Sequence[str]


def compile_native(program: Source, targets: Targets, options: CompileOptions | None = None) -> Artifact:
    """Compiles a Program for one or more targets by name ("sm_90", "wgsl", "cpu"); needs no device and no toolkit. Bytes are what `Program.to_bytes` wrote.

    `device.load(artifact)` runs the part for that device. Raises WireError, ValidationError, Unsupported, ToolchainError.
    """
    wanted = parsed(targets)
    if isinstance(program, (bytes, bytearray, memoryview)):
        program = Program.from_bytes(program)
    if (traces := tracing()) is None:
        return compile_for(program, wanted, options)
    with traces.range("compile", "compile", None, {"targets": ", ".join(map(str, wanted))}):
        artifact = compile_for(program, wanted, options)
        traces.stages(dict.fromkeys(stage for part in artifact.parts for stage in part.stages))  # parts share what was done once
        return artifact


def parsed(targets: Targets) -> list[Target]:
    """Targets by their names. Raises Unsupported for what is none."""
    if not isinstance(targets, Sequence):
        raise Unsupported("vyre-py", [Missing(f"targets {shown(targets)}", help="name one, or a list of them")])
    return [parse_target(name) for name in ([targets] if isinstance(targets, str) else targets)]
