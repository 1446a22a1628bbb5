"""From a Program to an Artifact: check, optimise, and the target's own lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vyre_py.ir.check import Checked, check
from vyre_py.ir.check.facts import capabilities, has_grid_barrier, has_grid_scan
from vyre_py.ir.check.limits import SPACE_LIMITS_BYTES
from vyre_py.ir.check.uniformity import analyse
from vyre_py.ir.imports import imported, importing
from vyre_py.ir.language.assembler import Overgrown
from vyre_py.ir.language.effects import Effect, at_most
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Let, Space
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, Rewrite, annotate, as_written, optimise
from vyre_py.ir.passes.contract import contract
from vyre_py.ir.passes.expand_subgroups import expand_subgroups
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Interface, Part, Step
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.layout import invocations_of, lay_out
from vyre_py.lowering.legal.asserts import lower_reports, number_reports
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.legal.grid_steps import grid_steps
from vyre_py.lowering.legal.indices import missing_elements, narrow_indices
from vyre_py.lowering.legal.plain_copies import copies, plain_copies
from vyre_py.lowering.legal.through_memory import EXCHANGES, missing_together, through_memory, told
from vyre_py.lowering.llvm import forking  # noqa: F401 - a fork waits for compilers from now on
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.llvm.text import MOST_LINES
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.provenance import made_by
from vyre_py.lowering.reports import forms_of
from vyre_py.lowering.stages import Stage, Stages, Stopwatch
from vyre_py.lowering.target import Target, parse_target
from vyre_py.lowering.tiles import for_tensor_cores, uses_tensor_cores, without_tiles

__all__ = ["FORMS", "STRICT_EXPANSIONS", "TARGET_KINDS", "Prepared", "compile_for", "emit_text", "expanded_for", "interface_of", "prepare", "prepare_steps"]

# Ops that have an expansion: strict targets compute them with the IR's own arithmetic, so that all of them give the same bits.
STRICT_EXPANSIONS: Final = frozenset(name for name, row in OPS.items() if row.expands)

# The language's limit is on the arrays as they are declared; a target may take more for them.
_WORKGROUP_BYTES: Final = SPACE_LIMITS_BYTES[Space.WORKGROUP][1]


# What tiles take of workgroup memory: on the CPU and for old GPUs what leaves room for other workgroups, for WebGPU what every device has.
_TILE_BYTES: Final = 48 << 10
_WGSL_TILE_BYTES: Final = 16 << 10
_WGSL_ELEMENT_BYTES: Final = 4  # what an element takes there at least
# What a workgroup may have, by the generation from which on it may: programs for tensor cores have one or two workgroups a multiprocessor.
_WARPGROUPS: Final = ("sm_90a",)  # the architecture alone that has products of warpgroups
_CORES_BYTES: Final = {80: 160 << 10, 86: 96 << 10, 87: 160 << 10, 88: 96 << 10, 90: 224 << 10, 120: 96 << 10}

Legal = Callable[[Program, Target], Program]
Reporting = Callable[[Program, CompileOptions], Program]


def _floats(program: Program, target: Target) -> Program:
    return narrow_floats(program)


def _by_memory(program: Program, target: Target, why: str) -> Program:
    """The Program without subgroup ops. Raises Unsupported for those that workgroup memory is no way for."""
    if missing := list(missing_together(program, why)):
        raise Unsupported(target.name, missing)
    return through_memory(expand_subgroups(told(program), lambda s: s.op.name in EXCHANGES))


def _ptx_subgroups(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.gpu.warps import WARP, takes

    if program.subgroup <= WARP:
        return expand_subgroups(program, takes(generation(target.arch)))
    return _by_memory(program, target, f"subgroups of more than {WARP} go through workgroup memory")


def _ptx_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    of = generation(target.arch)
    if options.workgroup is None and of >= min(_CORES_BYTES) and uses_tensor_cores(program):
        memory_bytes = _CORES_BYTES[max(known for known in _CORES_BYTES if known <= of)]
        warpgroups = target.arch in _WARPGROUPS
        forms = [for_tensor_cores(program, target.name, memory_bytes, wide=wide, warpgroups=warpgroups) for wide in (True, False)]
        # A statement of a target's is none of the language, which `check` takes alone.
        return [Checked(form, analyse(form), capabilities(form)) for form in forms]
    return _invocations(program, target, options, _TILE_BYTES)


def _host_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    return _invocations(program, target, options, _TILE_BYTES)


def _wgsl_tiles(program: Program, target: Target, options: CompileOptions) -> Sequence[Checked]:
    return _invocations(program, target, options, _WGSL_TILE_BYTES, _WGSL_ELEMENT_BYTES)


def _invocations(program: Program, target: Target, options: CompileOptions, memory_bytes: int, least_bytes: int = 1) -> Sequence[Checked]:
    if options.workgroup is not None and any(extent & extent - 1 for extent in options.workgroup):
        help_ = "tiles are shared out among numbers of invocations that are powers of two along x, y and z"
        raise Unsupported(target.name, [Missing(f"option workgroup={options.workgroup!r} for a Program of tiles", help=help_)])
    return (check(without_tiles(program, target.name, memory_bytes, options.workgroup, least_bytes)),)


def _ptx_copies(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.gpu.async_copies import COPIES_SINCE

    return program if generation(target.arch) >= COPIES_SINCE else plain_copies(program)


def _no_copies(program: Program, target: Target) -> Program:
    return plain_copies(program)


def _host_subgroups(program: Program, target: Target) -> Program:
    if not program.subgroup:
        return program
    try:
        with importing:
            from vyre_py.lowering.llvm.cpu.host import lanes_for
            from vyre_py.lowering.llvm.cpu.permutes import takes
    except ImportError:
        return program  # `_lower` says what is missing
    width = lanes_for(program, target)
    if width % program.subgroup == 0:
        return expand_subgroups(program, takes)
    return _by_memory(program, target, f"with {width} SIMD lanes, subgroups of {program.subgroup} go through workgroup memory")


def _wgsl_subgroups(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.wgsl.subgroups import has_builtins, takes

    if program.subgroup and has_builtins(program, target):
        return expand_subgroups(program, takes(program.subgroup))
    return _by_memory(program, target, f"for {target} subgroups of {program.subgroup} go through workgroup memory")


def _host(program: Program, target: Target) -> Program:
    if missing := list(missing_elements(program)):
        raise Unsupported(target.name, missing)
    return narrow_floats(narrow_indices(program))


def _wgsl(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.wgsl.legal import legalise

    return legalise(program, target)


def _approximated(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.gpu.fast import approximate

    return contract(approximate(program, target))


def _asked_for(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.gpu.fast import approximate

    return approximate(program, target, asked=True)


def _asks(program: Program) -> bool:
    """Whether a Program asks for approximations, one by one."""
    return any(isinstance(s, Let) and s.op.approximates for s in program.body)


def _fused(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.cpu.host import has_fma

    return contract(program) if has_fma(target.arch) else program


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of target is reached; each module is imported when it is first needed.

    `module` has `lower(optimised, target, options) -> Lowered`. `table`, `module:name`, has a key for every op that it takes: one that
    expands over all its types is left to it then. Without a table it takes every op that has an evaluation. `reports` says what becomes of
    asserts and prints. `legal` rewrites what the target lacks, `subgroups` what it lacks of those. `fast` approximates what it can, under the numerics of that
    name; `asked` what a Program names as such. `copies` makes plain stores of copies that it has no instructions for. It takes `most` statements, where
    it has a limit of its own. Scans over the grid are made `in_steps` where workgroups cannot wait for each other. Of a Program of tiles
    `tiles` makes Programs of invocations, the last for any arguments, those before it better ones for some; None leaves it as it is.
    """

    module: str
    reports: Reporting
    table: str = ""
    legal: Legal | None = None
    fast: Legal | None = None
    subgroups: Legal | None = None
    most: int | None = None
    asked: Legal | None = None
    copies: Legal | None = None
    in_steps: bool = False
    tiles: Callable[[Program, Target, CompileOptions], Sequence[Checked]] | None = None


_KINDS: Final[Mapping[str, _Kind]] = {
    "ptx": _Kind(
        "vyre_py.lowering.llvm.gpu.nvptx", lower_reports, "vyre_py.lowering.llvm.gpu.fast:NVPTX_EMITTERS", _floats, _approximated, _ptx_subgroups, MOST_LINES,
        _asked_for, _ptx_copies, tiles=_ptx_tiles,
    ),
    "host": _Kind(
        "vyre_py.lowering.llvm.cpu.host", lower_reports, "vyre_py.lowering.llvm.ops:EMITTERS", _host, _fused, _host_subgroups, MOST_LINES, copies=_no_copies,
        tiles=_host_tiles,
    ),
    "wgsl": _Kind(
        "vyre_py.lowering.wgsl", lower_reports, "vyre_py.lowering.wgsl.ops:ROWS", _wgsl, subgroups=_wgsl_subgroups, copies=_no_copies, in_steps=True,
        tiles=_wgsl_tiles,
    ),
    "reference": _Kind("vyre_py.lowering.reference", number_reports),
}
TARGET_KINDS: Final = tuple(_KINDS)

# Form of text -> the kinds of target that have it.
FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "vir": TARGET_KINDS, "llvm": ("host", "ptx"), "nvvm": ("ptx",), "ptx": ("ptx",), "wgsl": ("wgsl",), "asm": ("host",),
}  # fmt: skip


def expanded_for(kind: str) -> frozenset[str]:
    """The ops that a kind of target (`TARGET_KINDS`) leaves to `ir/math`, wherever they have an expansion."""
    module, _, table = _KINDS[kind].table.partition(":")
    if not module:
        return EXPANDED_ONLY
    taken = getattr(imported(module), table)
    return frozenset(name for name in STRICT_EXPANSIONS if name not in taken or OPS[name].expands != OPS[name].of)


def prepare(program: Program | Checked, target: Target, options: CompileOptions) -> Optimised:
    """Checks (once) and optimises for a target. Raises ValidationError, and Unsupported for types that the target lacks, and for Programs
    that are too long for it."""
    checked, kind = program if isinstance(program, Checked) else check(program), _KINDS[target.kind]
    if checked.program.of_tiles:
        if kind.tiles is None:
            return as_written(checked, lambda program: kind.reports(program, options))
        made = [_optimised(form, target, options) for form in kind.tiles(checked.program, target, options)]
        return replace(made[-1], better=tuple(made[:-1])) if len(made) > 1 else made[0]
    return _optimised(_of_size(checked, options), target, options)


def _optimised(checked: Checked, target: Target, options: CompileOptions) -> Optimised:
    kind = _KINDS[target.kind]
    # Under fast all is approximated, what asks for it too.
    fast = kind.fast if options.numerics == "fast" else kind.asked if _asks(checked.program) else None
    try:
        return optimise(
            checked, expand=expanded_for(target.kind), legal=_for(kind.legal, target), level=min(options.opt, 2), fast=_for(fast, target), most=kind.most,
            subgroups=_for(kind.subgroups, target), copies=_for(kind.copies, target),
            reports=lambda program: kind.reports(program, options),
        )  # fmt: skip
    except Overgrown as error:
        help_ = f"at most {error.most:,} are compiled, counting what vectors, ops and types that it lacks become: write loops, or several Programs"
        raise Unsupported(target.name, [Missing(f"a Program of {error.statements:,} statements", help=help_)]) from None


def prepare_steps(program: Program | Checked, target: Target, options: CompileOptions) -> tuple[Optimised, ...]:
    """What `prepare` gives, for each of the kernels that a launch runs one after another: one, but for scans over the grid that are made in steps. Raises
    what `prepare` raises."""
    kind = _KINDS[target.kind]
    checked = program if isinstance(program, Checked) else check(program)
    if not kind.in_steps or not has_grid_scan(checked.program):
        return (prepare(checked, target, options),)
    if checked.program.of_tiles and kind.tiles is not None:
        (checked,) = kind.tiles(checked.program, target, options)
    else:
        checked = _of_size(checked, options)
    sized = replace(options, workgroup=None)
    return tuple([prepare(step, target, sized) for step in grid_steps(checked, target.name)])


def _of_size(checked: Checked, options: CompileOptions) -> Checked:
    """The Program with the workgroups that the options ask for. Raises ValidationError."""
    if options.workgroup is None or options.workgroup == checked.program.workgroup:
        return checked
    return check(replace(checked.program, workgroup=options.workgroup))


def _for(rewrite: Legal | None, target: Target) -> tuple[Rewrite, ...]:
    return () if rewrite is None else (lambda p: rewrite(p, target),)


def _lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    try:
        module = imported(_KINDS[target.kind].module)
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
    return Artifact(interface_of(plain), tuple(parts), checked.capabilities, plain.code_digest, plain.interface_digest)


def interface_of(program: Program) -> Interface:
    """The interface that callers of a Program bind."""
    return Interface(program.name, program.dims, program.params, program.buffers, program.widths.names, program.doc, forms_of(program))


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
    """The key of a result of `prepare`: every architecture of PTX has the same, unless something is approximated or there are subgroups."""
    kind = _KINDS[target.kind]
    alone = target.kind == "wgsl" or options.numerics == "fast" or program.subgroup or program.of_tiles or _asks(program) or copies(program)
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
            lowered = _lower(optimised, target, options)
            watch.add(lowered.stages)
        made.append((_step(optimised.program, lowered, options), lowered))
    step, lowered = made[-1]
    taken = step.takes(lowered.images[0]).get(lowered.entries[-1].symbol, {})  # of the entry that takes any arguments
    numerics = next((one.numerics for _, one in made if one.numerics != "strict"), "strict")
    return Part(target, tuple([one for one, _ in made]), numerics, {**prepared[-1].report.counts(), **taken}, watch.stages)


def _step(program: Program, lowered: Lowered, options: CompileOptions) -> Step:
    return Step(
        lowered.images, lowered.entries, lay_out(program, options), invocations_of(program), program.grid, lowered.workgroup_bytes, has_grid_barrier(program),
        options.persistent, options.dependent, _streams(program),
    )  # fmt: skip


def emit_text(program: Program | Checked, target: str, options: CompileOptions | None = None, form: str | None = None) -> str:
    """The text that a target emits for a Program: PTX for sm_NN, WGSL, LLVM IR for the host, optimised .vir for the reference.

    A Program that is run in steps has a text for each, one behind the other. `form` asks for another one of `FORMS`: "vir" is the Program as it reaches the
    target's emitter, "nvvm" what libNVVM reads, "asm" the host's assembly. Raises Unsupported for a form that the target has not.
    """
    parsed = replace(parse_target(target), cubin=False)
    options = CompileOptions.given(options)
    if form is not None and parsed.kind not in FORMS.get(form, ()):
        has = [name for name, kinds in FORMS.items() if parsed.kind in kinds]
        raise Unsupported(target, [Missing(f"text of the form {shown(form)}", help=f"it has {', '.join(has)}")])
    *earlier, optimised = prepare_steps(program, parsed, options)
    if earlier:
        return "\n".join([_text_of_step(step, parsed, options, form) for step in (*earlier, optimised)])
    if form == "vir":
        return print_program(optimised.program, annotate(optimised))
    if form in ("llvm", "nvvm") and parsed.kind == "ptx":
        with importing:
            from vyre_py.lowering.llvm.gpu.nvptx import llvm_text

        text = llvm_text(optimised, parsed, options)
        if form == "llvm":
            return text
        with importing:
            from vyre_py.lowering.llvm.gpu.nvvm.libnvvm import nvvm_text

        return nvvm_text(text, parsed.arch)
    text = _lower(optimised, parsed, options).text
    if form == "asm":
        with importing:
            from vyre_py.lowering.llvm.cpu.host import assembly

        return assembly(text, parsed, options)
    if not text:
        raise ToolchainError(target, "nothing was emitted")
    return text


def _text_of_step(optimised: Optimised, target: Target, options: CompileOptions, form: str | None) -> str:
    return print_program(optimised.program, annotate(optimised)) if form == "vir" else _lower(optimised, target, options).text
