"""From a Program to an Artifact: check, optimise, and the target's own lowering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from vyre_py.ir.check import Checked, check
from vyre_py.ir.check.facts import has_grid_barrier, has_grid_scan
from vyre_py.ir.check.limits import SPACE_LIMITS_BYTES
from vyre_py.ir.collector import held_back
from vyre_py.ir.imports import imported, importing
from vyre_py.ir.language.effects import Effect, at_most
from vyre_py.ir.language.errors import printable, shown
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, Rewrite, Watcher, annotate, as_written, optimise
from vyre_py.ir.passes.rewriter import Overgrown
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Interface, Part, Step
from vyre_py.lowering.artifact.tensor_models import tensor_counts
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.kinds import KINDS, TARGET_KINDS, Legal, asks, expanded_for
from vyre_py.lowering.layout import invocations_of
from vyre_py.lowering.legal.grid_steps import grid_steps
from vyre_py.lowering.legal.plain_copies import copies
from vyre_py.lowering.llvm import forking  # noqa: F401 - a fork waits for compilers from now on
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.provenance import made_by
from vyre_py.lowering.stages import Stage, Stages, Stopwatch
from vyre_py.lowering.target import Target, parse_target
from vyre_py.lowering.tiles.targets import modelled
from vyre_py.lowering.views import layout_of, with_views

__all__ = ["FORMS", "Prepared", "compile_for", "emit_text", "lower_step", "prepare", "prepare_steps", "step_of", "text_of"]

# The language's limit is on the arrays as they are declared; a target may take more for them.
_WORKGROUP_BYTES: Final = SPACE_LIMITS_BYTES[Space.WORKGROUP][1]

# Form of text -> the kinds of target that have it.
FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "vir": TARGET_KINDS, "llvm": ("host", "ptx"), "nvvm": ("ptx",), "ptx": ("ptx",), "wgsl": ("wgsl",), "asm": ("host",),
}  # fmt: skip


@held_back()
def prepare(program: Program | Checked, target: Target, options: CompileOptions, watcher: Watcher | None = None) -> Optimised:
    """Checks (once) and optimises for a target; a `watcher` is told of each pass. Raises ValidationError, and Unsupported for types that the target lacks, and
    for Programs that are too long for it."""
    checked, kind = _asked(program, options), KINDS[target.kind]
    if checked.program.of_tiles and kind.tiles is None:
        return as_written(checked, lambda program: kind.reports(program, options))
    if checked.program.of_tiles and kind.tiles is not None:
        *forms, plain = [_optimised(form, target, options, watcher) for form in kind.tiles(checked.program, target, options)]
        return with_views(plain, forms) if forms else plain
    sized = _of_size(checked, options)
    form = kind.grouped(sized.program) if kind.grouped is not None else None
    plain = _optimised(sized, target, options, watcher)
    return with_views(plain, [_optimised(check(form), target, options, watcher)]) if form is not None else plain


def _asked(program: Program | Checked, options: CompileOptions) -> Checked:
    """The Program, checked once, with products as the options ask for."""
    checked = program if isinstance(program, Checked) else check(program)
    return check(modelled(checked.program, options.tensor)) if checked.program.of_tiles and options.tensor is not None else checked


def _optimised(checked: Checked, target: Target, options: CompileOptions, watcher: Watcher | None = None) -> Optimised:
    kind = KINDS[target.kind]
    # Under fast all is approximated, what asks for it too.
    fast = kind.fast if options.numerics == "fast" else kind.asked if asks(checked.program) else None
    try:
        return optimise(
            checked, expand=expanded_for(target.kind), legal=_for(kind.legal, target), level=min(options.opt, 2), fast=_for(fast, target), most=kind.most,
            subgroups=_for(kind.subgroups, target), copies=_for(kind.copies, target),
            reports=lambda program: kind.reports(program, options), watcher=watcher,
        )  # fmt: skip
    except Overgrown as error:
        help_ = f"at most {error.most:,} are compiled, counting what vectors, ops and types that it lacks become: write loops, or several Programs"
        raise Unsupported(target.name, [Missing(f"a Program of {error.statements:,} statements", help=help_)]) from None


def prepare_steps(
    program: Program | Checked, target: Target, options: CompileOptions, watcher: Watcher | None = None
) -> tuple[Optimised, ...]:
    """What `prepare` gives, for each of the kernels that a launch runs one after another: one, but for scans over the grid that are made in steps. Raises
    what `prepare` raises."""
    checked, kind = _asked(program, options), KINDS[target.kind]
    if not kind.in_steps or not has_grid_scan(checked.program):
        return (prepare(checked, target, options, watcher),)
    (checked,) = kind.tiles(checked.program, target, options) if checked.program.of_tiles and kind.tiles is not None else (_of_size(checked, options),)
    sized = replace(options, workgroup=None)
    return tuple([prepare(step, target, sized, watcher) for step in grid_steps(checked, target.name)])


def _of_size(checked: Checked, options: CompileOptions) -> Checked:
    """The Program with the workgroups that the options ask for. Raises ValidationError."""
    if options.workgroup is None or options.workgroup == checked.program.workgroup:
        return checked
    return check(replace(checked.program, workgroup=options.workgroup))


def _for(rewrite: Legal | None, target: Target) -> tuple[Rewrite, ...]:
    return () if rewrite is None else (lambda p: rewrite(p, target),)


@held_back()
def lower_step(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """What a target makes of a Program that `prepare` gave. Raises Unsupported, ToolchainError."""
    try:
        module = imported(KINDS[target.kind].module)
    except ImportError as error:
        missing = Missing(f"compiling for {target} where llvmlite is not", help="pip install llvmlite; artifacts from elsewhere load without it")
        raise Unsupported("vyre-py", [missing]) from error
    lowered: Lowered = module.lower(optimised, target, options)
    if lowered.workgroup_bytes > _WORKGROUP_BYTES:
        help_ = f"no device has more than {_WORKGROUP_BYTES}: the arrays as {target.kind} lays them out, and what a uniform_load of a written buffer takes"
        raise Unsupported(target.name, [Missing(f"{lowered.workgroup_bytes} bytes of workgroup memory", help=help_)])
    return lowered


Prepared = dict[tuple[object, ...], tuple[tuple[Optimised, ...], Stages]]


def compile_for(
    program: Program | Checked, targets: Sequence[Target], options: CompileOptions | None = None, before: Iterable[Stage] = (),
    prepared: Prepared | None = None,
) -> Artifact:  # fmt: skip
    """Compiles a Program for each target; needs no device and no toolkit. Checked once. `before` are stages that are done, `prepared` what earlier calls
    for the same Program and options have left, which this one adds to.

    Raises ValidationError for a Program that breaks a rule, Unsupported for what a target lacks, ToolchainError for a defect of ours.
    """
    options = CompileOptions.given(options)
    first = Stopwatch(before)
    checked = program if isinstance(program, Checked) else _checked(program, first)
    plain = checked.program
    prepared = {} if prepared is None else prepared
    parts: list[Part] = []
    for target in targets:
        key = _preparation(plain, target, options)
        if key not in prepared:
            prepared[key] = _prepared(checked, target, options)
        steps, stages = prepared[key]
        part = _part(steps, target, options, Stopwatch([*first.stages, *stages]))
        parts.append(replace(part, made_by=made_by(plain, target, options)))
    return Artifact(Interface.of(plain), tuple(parts), checked.capabilities, plain.code_digest, plain.interface_digest)


def _checked(program: Program, watch: Stopwatch) -> Checked:
    with watch("check"):
        return check(program)


def _prepared(checked: Checked, target: Target, options: CompileOptions) -> tuple[tuple[Optimised, ...], Stages]:
    watch = Stopwatch()
    with watch("optimise"):
        steps = prepare_steps(checked, target, options)
        for optimised in steps:
            watch.add_passes(optimised.report.steps)
    return steps, watch.stages


def _preparation(program: Program, target: Target, options: CompileOptions) -> tuple[object, ...]:
    """The key of a result of `prepare`: every architecture of PTX has the same, unless something is approximated or there are subgroups; and every CPU, but for
    code of one lane."""
    kind = KINDS[target.kind]
    alone = target.kind == "wgsl" or target.lanes == 1 or options.numerics == "fast" or program.subgroup or program.of_tiles or asks(program) or copies(program)
    return (target,) if alone else (kind.table, kind.legal)


# Effects of statements that an invocation executes at most once, and not together with others.
_ONCE: Final = at_most(
    Effect.READS | Effect.WRITES | Effect.GETS | Effect.SETS | Effect.DECLARES | Effect.SYNCHRONISES | Effect.LEAVES | Effect.RETURNS | Effect.NESTS
    | Effect.BRANCHES
)  # fmt: skip


def _streams(program: Program) -> bool:
    """Whether an invocation touches storage memory a few times at most, and nothing there is touched together: no loops, no atomics."""
    return all(_ONCE[type(statement)] for statement in program.body)


def _part(prepared: tuple[Optimised, ...], target: Target, options: CompileOptions, watch: Stopwatch) -> Part:
    made: list[tuple[Step, Lowered]] = []
    for optimised in prepared:
        with watch("lower"):
            lowered = lower_step(optimised, target, options)
            watch.add(lowered.stages)
        made.append((step_of(optimised, lowered, options), lowered))
    step, lowered = made[-1]
    taken = step.takes(lowered.images[0]).get(lowered.entries[-1].symbol, {})  # of the entry that takes any arguments
    numerics = next((one.numerics for _, one in made if one.numerics != "strict"), "strict")
    report = {**prepared[-1].report.counts(), **taken, **tensor_counts(prepared[-1].program, target)}
    return Part(target, tuple([one for one, _ in made]), numerics, report, watch.stages)


def step_of(optimised: Optimised, lowered: Lowered, options: CompileOptions) -> Step:
    """What an artifact keeps of a Program that was lowered."""
    program, layout = optimised.program, layout_of(optimised, options)
    return Step(
        lowered.images, lowered.entries, layout, invocations_of(program), program.grid, lowered.workgroup_bytes, has_grid_barrier(program),
        options.walks, options.dependent, _streams(program),
    )  # fmt: skip


def emit_text(program: Program | Checked, target: str, options: CompileOptions | None = None, form: str | None = None) -> str:
    """The text that a target emits for a Program: PTX for sm_NN, WGSL, LLVM IR for the host, optimised .vir for the reference.

    A Program that is run in steps has a text for each, one behind the other. `form` asks for another one of `FORMS`: "vir" is the Program as it reaches the
    target's emitter, perhaps with statements of the target's that no text has, "nvvm" what libNVVM reads, "asm" the host's assembly. Raises Unsupported
    for a form that the target has not.
    """
    parsed = replace(parse_target(target), cubin=False)
    options = CompileOptions.given(options)
    if form is not None and parsed.kind not in FORMS.get(form, ()):
        has = [name for name, kinds in FORMS.items() if parsed.kind in kinds]
        raise Unsupported(target, [Missing(f"text of the form {shown(form)}", help=f"it has {', '.join(has)}")])
    return text_of(prepare_steps(program, parsed, options), parsed, options, form)


def text_of(steps: Sequence[Optimised], target: Target, options: CompileOptions, form: str | None = None) -> str:
    """The text, as `emit_text` gives it, of what `prepare_steps` gave for a target without machine code."""
    *earlier, optimised = steps
    if earlier:
        return "\n".join([_text_of_step(step, target, options, form) for step in steps])
    if form == "vir":
        return _text_of_step(optimised, target, options, form)
    if form in ("llvm", "nvvm") and target.kind == "ptx":
        with importing:
            from vyre_py.lowering.llvm.gpu.nvptx import llvm_text

        text = llvm_text(optimised, target, options)
        if form == "llvm":
            return text
        with importing:
            from vyre_py.lowering.llvm.gpu.nvvm.libnvvm import nvvm_text

        return nvvm_text(text, target.arch)
    text = lower_step(optimised, target, options).text
    if form == "asm":
        with importing:
            from vyre_py.lowering.llvm.cpu.host import assembly

        return assembly(text, target, options)
    if not text:
        raise ToolchainError(target.name, "nothing was emitted")
    return text


def _text_of_step(optimised: Optimised, target: Target, options: CompileOptions, form: str | None) -> str:
    if form == "vir":
        remark = annotate(optimised, lambda place: f"{printable(PurePath(place.file).name)}:{place.line}")
        return print_program(optimised.program, remark, once=True)
    return lower_step(optimised, target, options).text
