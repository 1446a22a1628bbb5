"""From a Program to an Artifact: check, optimise, and the target's own lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final

from vyre_py.ir.check import Checked, check
from vyre_py.ir.ops import OPS
from vyre_py.ir.passes import Optimised, optimise
from vyre_py.ir.program import Program
from vyre_py.lowering.artifact import Artifact, Entry, Interface, Part, Step
from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.layout import lay_out
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

__all__ = ["STRICT_EXPANSIONS", "Lowered", "compile_for", "emit_text", "prepare"]

# Ops that strict targets compute with the IR's own arithmetic, so that all of them give the same bits.
STRICT_EXPANSIONS: Final = frozenset(name for name, row in OPS.items() if row.expands)


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a target's `lower` gives: entries best first, the bytes of workgroup memory, and the text that was emitted."""

    entries: tuple[Entry, ...]
    workgroup_bytes: int
    text: str
    numerics: str = "strict"


# Target kind -> (module with `lower(optimised, target, options) -> Lowered`, ops that its own code computes).
_TARGETS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "ptx": ("vyre_py.lowering.llvm.nvptx", frozenset()),
    "host": ("vyre_py.lowering.llvm.host", frozenset()),
    "wgsl": ("vyre_py.lowering.wgsl", STRICT_EXPANSIONS),
    "reference": ("vyre_py.lowering.reference", frozenset()),
}

Lower = Callable[[Optimised, Target, CompileOptions], Lowered]


def prepare(program: Program | Checked, target: Target, options: CompileOptions) -> Optimised:
    """Checks (once) and optimises for a target. Raises ValidationError."""
    checked = program if isinstance(program, Checked) else check(program)
    if options.workgroup is not None and options.workgroup != checked.program.workgroup:
        checked = check(replace(checked.program, workgroup=options.workgroup))
    return optimise(checked, expand=STRICT_EXPANSIONS - _TARGETS[target.kind][1], level=min(options.opt, 2))


def _lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    lower: Lower = import_module(_TARGETS[target.kind][0]).lower
    return lower(optimised, target, options)


def compile_for(program: Program | Checked, targets: Sequence[Target], options: CompileOptions | None = None) -> Artifact:
    """Compiles a Program for each target; needs no device and no toolkit. Checked once.

    Raises ValidationError for a Program that breaks a rule, Unsupported for what a target lacks, ToolchainError for a defect of ours.
    """
    options = CompileOptions.given(options)
    checked = program if isinstance(program, Checked) else check(program)
    plain = checked.program
    parts = tuple(_part(checked, target, options) for target in targets)
    return Artifact(Interface(plain.name, plain.dims, plain.params, plain.buffers), parts, checked.capabilities, plain.code_digest)


def _part(checked: Checked, target: Target, options: CompileOptions) -> Part:
    optimised = prepare(checked, target, options)
    lowered = _lower(optimised, target, options)
    program = optimised.program
    step = Step(lowered.entries, lay_out(program), program.workgroup, program.grid, lowered.workgroup_bytes)
    return Part(target, (step,), lowered.numerics, optimised.report.counts())


def emit_text(program: Program | Checked, target: str, options: CompileOptions | None = None) -> str:
    """The text that a target emits for a Program: PTX for sm_NN, WGSL, LLVM IR for the host, optimised .vir for the reference."""
    parsed = parse_target(target)
    options = CompileOptions.given(options)
    text = _lower(prepare(program, parsed, options), parsed, options).text
    if not text:
        raise ToolchainError(target, "nothing was emitted")
    return text
