"""PTX by LLVM's own NVPTX back end: any sm, no CUDA toolkit, no GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any, Final

import llvmlite.binding as llvm

from vyre_py.ir.check.facts import has_grid_barrier, has_grid_scan
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.nodes import BoxCopy, Let, WarpgroupProduct
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.coarsen import Coarsened, aligned, coarsen
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.exact import is_exact
from vyre_py.lowering.llvm.gpu import dependent
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES, generation
from vyre_py.lowering.llvm.gpu.async_copies import copies_ahead
from vyre_py.lowering.llvm.gpu.fast import INSTRUCTIONS
from vyre_py.lowering.llvm.gpu.grid_scan import columns_of
from vyre_py.lowering.llvm.gpu.machine_code.ptx_fixes import mend
from vyre_py.lowering.llvm.gpu.simt import neighbouring_adds
from vyre_py.lowering.llvm.gpu.simt.kernel import write_kernel
from vyre_py.lowering.llvm.gpu.tensor_cores import uses_tensor_cores
from vyre_py.lowering.llvm.heap import keep_heap
from vyre_py.lowering.llvm.large import Size, measure
from vyre_py.lowering.llvm.legal import require_ops, symbol_of
from vyre_py.lowering.llvm.lines import LineTables
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stopwatch
from vyre_py.lowering.target import WITH_WARPGROUPS, Target
from vyre_py.lowering.tiles.grid_walk import walks_grid
from vyre_py.lowering.tiles.roles import CLUSTER
from vyre_py.lowering.views import WithViews, layout_of, viewed

__all__ = ["assemble", "llvm_text", "lower", "prepare", "version"]

_TRIPLE: Final = "nvptx64-nvidia-cuda"
_PARAMETER_BYTES: Final = 4096
_COARSENING_LEVEL: Final = 2
_INDIRECT: Final = "option indirect=True, for a grid that is a buffer,"
_WEIGHED: Final = 3  # the assembler's level at which registers are weighed against workgroups

# Bodies longer than this get LLVM's cheap passes: some of its others (straight-line strength reduction first) take time with the
# square of a body's length, and ptxas optimises what it is given anyway.
_LARGE_BODY: Final = 2048


def version() -> str:
    """The version of the LLVM inside llvmlite, such as "22.1.0"."""
    return ".".join(map(str, llvm.llvm_version_info))


# A level of its own, for elementwise kernels: the few passes that they are the better for. ptxas optimises them too, and the others take ten times as long.
_STRAIGHT: Final = -1
# And one for kernels with products of warpgroups: LLVM's highest level, but only those of its passes that are over a function, for all but the first kernel,
# which takes any arguments. Those over a module, and those that come last, take a third of the time; there the assembler makes the same instructions without.
_BY_FUNCTION: Final = 4
_MOST: Final = 3  # of LLVM's own levels


def _optimise(module: Any, machine: Any, level: int, size: Size) -> None:
    """Runs LLVM's pipeline over a module, or what is linear of it over a large one."""
    if size.large:
        inlining = llvm.create_new_module_pass_manager()
        inlining.add_always_inliner_pass()
        inlining.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
        size.optimise(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
        return
    if level == _STRAIGHT:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
        return
    tuning = llvm.create_pipeline_tuning_options(speed_level=min(level, _MOST))
    # A thread computes on scalars; wide loads come from the back end's own pass.
    tuning.loop_vectorization = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    if level != _BY_FUNCTION:
        builder.getModulePassManager().run(module, builder)
        return
    for function in module.functions:
        if not function.is_declaration:
            builder.getFunctionPassManager().run(function, builder)


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    keep_heap()


def assemble(written: ModuleText, arch: str, level: int, codegen_level: int) -> str:
    """The PTX of a module for an architecture of `ARCHITECTURES`; the levels, 0 to 3, are of LLVM's passes and of its code generation.
    Raises ToolchainError with the text that LLVM refuses."""
    _initialize()
    size = measure(str(written))
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=arch, opt=size.generation(codegen_level))
    written.heads = [f'target datalayout = "{machine.target_data}"', f'target triple = "{_TRIPLE}"']
    text = str(written)

    parts = (written.apart() if level == _BY_FUNCTION and not size.large else None) or (text,)

    def generate() -> str:
        module, *others = [llvm.parse_assembly(part) for part in parts]
        module.verify()
        _optimise(module, machine, min(level, _MOST), size)
        for other in others:
            other.verify()
            _optimise(other, machine, _BY_FUNCTION, size)
            module.link_in(other)
        return mend(str(machine.emit_assembly(module)))

    try:
        return size.run(generate)
    except RuntimeError as error:
        raise ToolchainError("LLVM", str(error), text) from error


def _is_fast(optimised: Optimised, options: CompileOptions) -> bool:
    return options.numerics == "fast" and not is_exact(optimised.program)


def _accept(optimised: Optimised, target: Target, options: CompileOptions) -> None:
    """Raises Unsupported for an option or op that is too much."""
    who = f"target {target}"
    honoured = {"workgroup", "codegen", "opt", "debug", "interruptible", "persistent", "indirect", "dependent", "boxes"}
    options.refuse(who, frozenset(honoured), numerics=("strict", "fast"))
    missing: list[Missing] = []
    if options.dependent and generation(target.arch) < dependent.SINCE:
        missing.append(Missing("option dependent=True", help=f"sm_{dependent.SINCE} and newer have it"))
    if options.boxes and target.arch not in WITH_WARPGROUPS.values():
        known = ", ".join(WITH_WARPGROUPS.values())
        missing.append(Missing("option boxes=True", help=f"{known} has it, which is what a GPU of that generation compiles tiles on tensor cores for"))
    if options.boxes and (options.persistent or options.interruptible or options.codegen != "llvm"):
        missing.append(Missing("option boxes=True beside persistent, interruptible or codegen='nvvm'", help="compile without one of these"))
    if options.codegen == "nvvm" and uses_tensor_cores(optimised.program):
        missing.append(Missing("option codegen='nvvm' for products on tensor cores", help="codegen='llvm' has it"))
    walk, cure = ("option persistent=True", "compile without the option") if not options.indirect else (_INDIRECT, "give the grid in numbers")
    if options.walks and has_grid_barrier(optimised.program):
        missing.append(Missing(f"{walk} with a grid barrier", help=f"its workgroups run one after another; {cure}"))
    if options.walks and has_grid_scan(optimised.program):
        missing.append(Missing(f"{walk} with a grid_scan", help=f"its workgroups are numbered as they start; {cure}"))
    if missing:
        raise Unsupported(who, missing)
    require_ops(who, optimised)


def _module(options: CompileOptions) -> ModuleText:
    """An empty module, which keeps line tables where that is asked for."""
    module = ModuleText()
    if options.debug:
        module.line_tables = LineTables(module, "ptx")
    return module


@dataclass(frozen=True, slots=True)
class _Written:
    """A Program's kernels in one module, with their entries, best first; the bytes of workgroup memory that each takes, and how hard LLVM's passes and its
    code generation try."""

    module: ModuleText
    entries: tuple[Entry, ...]
    workgroup_bytes: int
    level: int
    codegen_level: int


def _written(optimised: Optimised, target: Target, options: CompileOptions) -> _Written:
    module, symbol = _module(options), symbol_of(optimised.program)
    entries = [Entry(symbol)]
    better = _better(optimised, options)
    level, codegen_level = _levels(optimised, next(iter(better.values()), None), options)
    unchanged = level == _STRAIGHT and options.codegen == "llvm"
    write = partial(write_kernel, module=module, options=options, flush=_is_fast(optimised, options), says_unchanged=unchanged)
    if options.codegen == "llvm" and generation(target.arch) >= neighbouring_adds.SINCE:
        write = partial(write, adds_for_neighbours=True)
    workgroup_bytes = write(optimised, symbol=symbol)
    for number, (name, coarsened) in enumerate(better.items()):
        entries.insert(number, Entry(f"{symbol}_{name}", coarsened.needs, coarsened.elements, _details(coarsened, optimised.program)))
        workgroup_bytes = max(workgroup_bytes, write(optimised, symbol=entries[number].symbol, coarsened=coarsened))
    return _Written(module, tuple(entries), workgroup_bytes, level, codegen_level)


def llvm_text(optimised: Optimised, target: Target, options: CompileOptions) -> str:
    """The LLVM IR of all kernels, before LLVM's passes. Raises Unsupported for an option or op that is too much."""
    _accept(optimised, target, options)
    module = _written(optimised, target, options).module
    module.heads = [f'target triple = "{_TRIPLE}"']
    return str(module)


def _better(optimised: Optimised, options: CompileOptions) -> dict[str, Coarsened]:
    """The kernels for arguments that allow more, where they are worth entries of their own, the best first, by what their names end in: with several elements
    an invocation, or with vectors as they are; and those of other forms."""
    if options.opt < _COARSENING_LEVEL:
        return {}
    if isinstance(optimised, WithViews):
        made = [one for form in optimised.forms if (one := viewed(optimised, form)) is not None]
        return {"boxes" if _boxes(one) else f"x{one.elements}": one for one in made}
    several = None if options.interruptible or options.walks else coarsen(optimised)
    coarsened = several if several is not None else aligned(optimised)
    return {} if coarsened is None else {f"x{coarsened.elements}": coarsened}


def _boxes(coarsened: Coarsened) -> list[BoxCopy]:
    """A copy of each kind of box that a kernel takes a description of, in the order of these."""
    return list({(s.source, s.box): s for s in coarsened.optimised.program.body if isinstance(s, BoxCopy)}.values())


def _details(coarsened: Coarsened, program: Program) -> dict[str, int]:
    """What the driver is told of a kernel, beside that of a Program."""
    made, boxes = coarsened.optimised.program, _boxes(coarsened)
    shared = sum([1 << number for number, s in enumerate(boxes) if s.shared >= 0])
    told = {
        "boxes": len(boxes), "rows_beside": made.workgroup[1] - program.workgroup[1], "walks": int(walks_grid(made)),
        "cluster": CLUSTER if shared else 0, "shared_boxes": shared,
    }  # fmt: skip
    return {name: number for name, number in told.items() if number}


def _levels(optimised: Optimised, coarsened: Coarsened | None, options: CompileOptions) -> tuple[int, int]:
    """How hard LLVM's passes, and its code generation, try: little where every access beside another one is part of a vector's already."""
    program = optimised.program
    # The body of workgroups that walk is a function of its own.
    if options.opt == _MOST and not optimised.functions and not options.walks and any(isinstance(s, WarpgroupProduct) for s in program.body):
        return _BY_FUNCTION, options.opt
    if len(program.body) > _LARGE_BODY and not uses_tensor_cores(program):
        # At level 0 a loop's sums are moved at both of its ends, of which the assembler does not make one register each.
        return min(options.opt, 1), min(options.opt, int(copies_ahead(program)))
    rows = coarsened.rows() if coarsened is not None else {}
    within = {first + number for first, row in rows.items() for number in range(len(row.lanes))}
    elementwise = coarsened is not None and bool(coarsened.adjacent) and coarsened.adjacent.keys() <= within
    return (_STRAIGHT, 0) if elementwise else (options.opt, options.opt)


def prepare() -> None:
    """Has LLVM make ready what the first compilation would otherwise wait for."""
    for level, codegen_level in ((_STRAIGHT, 0), (3, 3)):
        module = ModuleText()
        module.functions.append("define ptx_kernel void @nothing() {\n  ret void\n}")
        assemble(module, "sm_90", level, codegen_level)


def _machine_code(ptx: str, size: Size, target: Target, options: CompileOptions, program: Program, workgroup_bytes: int) -> Image:
    with importing:
        from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink, residency

    level = size.assembler(options.opt)

    def link(text: str) -> nvjitlink.Linked:
        return size.run(lambda: nvjitlink.link(text.encode(), target.arch, level=level, debug=options.debug, name=symbol_of(program)))

    weighed = level == _WEIGHED and not options.debug
    linked = residency.settled(link, ptx, target.arch, prod(program.workgroup), workgroup_bytes) if weighed else link(ptx)
    return Image("cubin", linked.code, log=linked.log, resources=linked.resources)


def lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """PTX for one kernel. Raises Unsupported for an option, op, architecture or number of arguments that is too much, ToolchainError
    for text that LLVM refuses."""
    who = f"target {target}"
    _accept(optimised, target, options)
    if target.arch not in ARCHITECTURES:
        raise Unsupported("LLVM", [Missing(f"target {target}", help=f"the newest is sm_{max(int(a.strip('smaf_')) for a in ARCHITECTURES)}")])
    program = optimised.program
    if (size_bytes := layout_of(optimised, options).size_bytes) > _PARAMETER_BYTES:
        raise Unsupported(who, [Missing(f"{size_bytes} bytes of arguments", help=f"the limit is {_PARAMETER_BYTES}")])
    fast = _is_fast(optimised, options)
    watch = Stopwatch()
    with watch("emit"):
        written = _written(optimised, target, options)
    with watch(options.codegen):
        if options.codegen == "nvvm":
            with importing:
                from vyre_py.lowering.llvm.gpu.nvvm import libnvvm

            ptx = libnvvm.assemble(written.module, target.arch, options.opt, fast=fast)
        else:
            ptx = assemble(written.module, target.arch, written.level, written.codegen_level)
    images: tuple[Image, ...] = (Image("ptx", ptx.encode()),)
    size = measure(ptx)
    if target.cubin:
        with watch("assemble"):
            images = (_machine_code(ptx, size, target, options, program, written.workgroup_bytes), *images)
    details = {"assembler_level": size.assembler(4 if options.opt else 0)}  # level 0 shows whether a wrong result is the assembler's doing
    if has_grid_scan(program):
        details["scan_words"] = columns_of(program)
    entries = tuple([replace(entry, details={**details, **entry.details}) for entry in written.entries])
    approximated = fast or any(isinstance(s, Let) and s.op.name in INSTRUCTIONS for s in program.body)
    return Lowered(images, entries, written.workgroup_bytes, ptx, "fast" if approximated else "strict", watch.stages)
