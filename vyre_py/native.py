"""Ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.drivers.cache.lookup import compiled, validated
from vyre_py.drivers.observe.process_trace import begin_process_trace
from vyre_py.drivers.observe.trace import tracing
from vyre_py.ir.check import Checked
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stopwatch
from vyre_py.lowering.target import Target, parse_target

__all__ = ["Source", "Targets", "compile_native", "parsed"]

Source = Program | Checked | bytes | bytearray | memoryview
Targets = str | Sequence[str]


@public
def compile_native(program: Source, targets: Targets, options: CompileOptions | None = None) -> Artifact:
    """Compiles a Program for one or more targets by name ("sm_90", "compute_90", "wgsl", "cpu:x86-64-v3"); needs no device and no toolkit. Bytes are what
    `Program.to_bytes` wrote. What was compiled before, here or by another process of this user, comes from memory or from the disk cache.

    `device.load(artifact)` runs the part for that device. Raises WireError, ValidationError, Unsupported, ToolchainError; CacheError where
    VYRE_CACHE_DIR is set and empty.
    """
    wanted, options = parsed(targets), CompileOptions.given(options)
    begin_process_trace()
    if (traces := tracing()) is None:
        return _compiled(program, wanted, options)
    with traces.range("compile", "compile", None, {"targets": ", ".join(map(str, wanted))}):
        artifact = _compiled(program, wanted, options)
        traces.stages(dict.fromkeys(stage for part in artifact.parts for stage in part.stages))  # parts share what was done once
        return artifact


def _compiled(program: Source, targets: Sequence[Target], options: CompileOptions) -> Artifact:
    watch = Stopwatch()
    if not isinstance(program, Checked):
        with watch("check"):
            program = validated(program)
    return compiled(program, targets, options, watch.stages)


def parsed(targets: Targets) -> list[Target]:
    """Targets by their names. Raises Unsupported for an unknown one."""
    if not isinstance(targets, Sequence):
        raise Unsupported("vyre-py", [Missing(f"targets {shown(targets)}", help="name one, or a list of them")])
    if not targets:
        raise Unsupported("vyre-py", [Missing("no target", help='name at least one, such as "compute_90", "wgsl" or "cpu"')])
    return [parse_target(name) for name in ([targets] if isinstance(targets, str) else targets)]
