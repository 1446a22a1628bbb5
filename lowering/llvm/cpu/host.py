"""Host code: the lanes walk's LLVM IR, through LLVM's pipeline, as a relocatable object, for any CPU of `host_targets` on any machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from llvmlite import binding as llvm

from vyre_py.ir.check.facts import has_grid_barrier, has_grid_scan
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import TARGET_KINDS, Subgroup
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.exact import is_exact
from vyre_py.lowering.llvm.cpu.elf import read_elf
from vyre_py.lowering.llvm.cpu.host_targets import (
    LIBRARY,
    NATIVE,
    TARGETS,
    HostTarget,
    loads_objects,
    machine_number,
    own_machine,
)
from vyre_py.lowering.llvm.cpu.lanes import HANDLERS, SYMBOL, LaneKernel, emit_lanes
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.large import Size, measure
from vyre_py.lowering.llvm.ops import host_emitters
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stopwatch
from vyre_py.lowering.target import Target

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program
    from vyre_py.ir.passes import Optimised

__all__ = ["assembly", "choose_lanes", "described", "has_fma", "lanes_for", "lower", "target_machine"]

_T = TypeVar("_T")

WIDTHS: Final = (1, 2, 4, 8, 16, 32)
_MOST_LANES: Final = 64  # whose masks are words
_FEWEST_LANES: Final = 8
_NARROW: Final = (8, 16)
_SHORTEST_ROW: Final = 4
_MOST_STACK_BYTES: Final = 4 << 20  # of a call; threads have 8 MiB where nobody asks for more
# Which level's lanes suit a CPU: the first whose vectors it has.
# CPUs without AVX-512 for which LLVM gathers; for others it writes a branch for each lane.
_FAST_GATHERS: Final = frozenset({"haswell", "broadwell", "skylake", "alderlake", "raptorlake", "meteorlake", "arrowlake", "lunarlake"})
_VECTORS: Final = (("x86-64-v4", "avx512f"), ("x86-64-v3", "avx2"))


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=1)
def _own() -> HostTarget:
    """The CPU of this machine, with all that LLVM finds in it."""
    _initialize()
    features = llvm.get_host_cpu_features()
    has = frozenset(name for name, present in features.items() if present)
    is_arm = llvm.get_default_triple().startswith(("aarch64", "arm64"))
    like = TARGETS["aarch64" if is_arm else next((level for level, feature in _VECTORS if feature in has), "x86-64")]
    name = llvm.get_host_cpu_name()
    return replace(
        like, cpu=name, features=features.flatten(), fma=is_arm or "fma" in has, halves=is_arm or "f16c" in has,
        masked_bytes=1 if "avx512bw" in has else 4, scatters="avx512f" in has, gathers="avx512f" in has or ("avx2" in has and name in _FAST_GATHERS),
    )  # fmt: skip


def described(arch: str) -> HostTarget:
    """The CPU of a name. Raises Unsupported for others."""
    if arch == NATIVE:
        return _own()
    if arch not in TARGETS:
        raise Unsupported("the cpu target", [Missing(f"CPU {shown(arch)}", help=f"use {', '.join([NATIVE, *TARGETS])}")])
    return TARGETS[arch]


@lru_cache(maxsize=8)
def target_machine(arch: str, opt: int) -> Any:
    """LLVM's target machine for "native" or a CPU of `TARGETS`. Raises Unsupported for others."""
    target = described(arch)
    if arch != NATIVE and target.machine != own_machine():
        _initialize_all()
    _initialize()
    # Our loader puts an object into one block of memory, where all of it is within reach, and linkers of C take it for programs and libraries alike.
    # LLVM's JIT may put code and constants further apart than an instruction reaches, as soon as another library (a GPU's driver) has taken the
    # addresses between, and then ends the process; so for it every address is written out whole.
    near = arch != NATIVE or loads_objects()
    return llvm.Target.from_triple(llvm.get_default_triple() if arch == NATIVE else target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic" if near else "static", codemodel="small" if near else "large",
    )  # fmt: skip


def has_fma(arch: str) -> bool:
    """Whether code for `arch` may use a fused multiply-add, which is a library call a lane without."""
    return described(arch).fma


def _rows(arch: str) -> Mapping[str, Emitter]:
    target = described(arch)
    return host_emitters(target.machine, target.halves)


def choose_lanes(workgroup: tuple[int, int, int], arch: str, bits: int = 32) -> int:
    """How many lanes to use: as many of `bits` as the CPU likes, no more than fill a row (in two and three dimensions) or the workgroup."""
    lanes = min(described(arch).lanes * (32 // bits), _MOST_LANES)
    x, rest = workgroup[0], workgroup[1] * workgroup[2]
    row = x & -x  # the largest power of two that divides a row
    if rest > 1 and row >= _SHORTEST_ROW:
        return min(lanes, row)
    while lanes > 1 and -(-x * rest // lanes) == -(-x * rest // (lanes // 2)):
        lanes //= 2
    return lanes


def lanes_for(program: Program, target: Target) -> int:
    """The lanes that a Program's kernel has: those that the target says, else what suits the CPU, and whole subgroups where these have anything to do
    together, and no more lanes than there are widths for."""
    if target.lanes:
        return target.lanes
    lanes = choose_lanes(program.workgroup, target.arch)
    wanted = program.subgroup if any(isinstance(s, Subgroup) for s in program.body) else 1
    return max(lanes, wanted) if wanted in WIDTHS else lanes


def _unknown_symbols(code: bytes) -> list[str]:
    """What an ELF object wants that processes lack; nothing of other formats, which LLVM's linker checks."""
    return sorted(set(read_elf(code).wanted()) - LIBRARY) if code.startswith(b"\x7fELF") else []


def _optimise(module: Any, machine: Any, opt: int, size: Size) -> None:
    """Runs LLVM's pipeline over a module, or what is linear of it over a large one."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
    # The walk has made vectors already; and the loop vectoriser of LLVM 22 fails an assertion, which ends the process, on loops with
    # many exits.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    if size.large:
        size.optimise(module, builder)
    else:
        builder.getModulePassManager().run(module, builder)


def _optimised(text: str, machine: Any, opt: int, size: Size) -> Any:
    """The module of a text, after LLVM's passes. Raises ToolchainError with the text when LLVM refuses it."""
    try:
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        _optimise(module, machine, opt, size)
    except RuntimeError as error:
        raise ToolchainError("LLVM", str(error), text) from error
    return module


def _generated(text: str, arch: str, opt: int, generate: Callable[[Any, Any], _T]) -> _T:
    """What `generate` makes of the target machine and the optimised module. Raises what `_optimised` raises."""
    size = measure(text)
    machine = target_machine(arch, size.generation(opt))
    return size.run(lambda: generate(machine, _optimised(text, machine, opt, size)))


def assembly(text: str, target: Target, options: CompileOptions) -> str:
    """The host's assembly of LLVM IR that `lower` emitted for the same target and options."""
    return _generated(text, target.arch, options.opt, lambda machine, module: str(machine.emit_assembly(module)))


def _compile(text: str, arch: str, opt: int) -> bytes:
    """The object of a module. Raises ToolchainError with the text when LLVM refuses it, or the object needs what no process has."""
    code = _generated(text, arch, opt, lambda machine, module: bytes(machine.emit_object(module)))
    if unknown := _unknown_symbols(code):
        raise ToolchainError("LLVM", f"the object wants {', '.join(unknown)}, which no process has", text)
    return code


def _emitted(optimised: Optimised, width: int, target: Target, options: CompileOptions) -> tuple[int, LaneKernel]:
    """The kernel and its lanes: more where all values are narrow, fewer where most would gather, or where a call would take too much stack. Raises
    Unsupported where it would in any case."""
    emit = partial(emit_lanes, optimised, rows=_rows(target.arch), options=options, host=described(target.arch))
    kernel = emit(width)
    body = optimised.program.body
    free = not target.lanes and not any(isinstance(s, Subgroup) for s in body)  # what subgroups do is written for the lanes that were chosen
    if kernel.scattered and free and not any(isinstance(s, TARGET_KINDS) for s in body):
        # Lanes that are fewer may have more in common, such as those of one row.
        while kernel.scattered and width > 1:
            width = width // 2 if width > _FEWEST_LANES else 1
            kernel = emit(width)
    elif free and kernel.widest in _NARROW and not kernel.parts:
        wider = choose_lanes(optimised.program.workgroup, target.arch, kernel.widest)
        if wider > width and prod(optimised.program.workgroup) % wider == 0:
            # Masks of chunks at a border, which are many, fit one vector of bytes.
            width, kernel = wider, emit(wider, border=min(wider, described(target.arch).vector_bytes))
    while (taken := measure(kernel.text).stack_bytes(options.opt, width)) > _MOST_STACK_BYTES:
        if not free or width == 1:
            help_ = "compile it with opt=1 or more, or with fewer lanes, or write loops in place of statements"
            raise Unsupported("the cpu target", [Missing(f"code of {width} lanes that takes some {taken >> 20} MiB of stack a call", help=help_)])
        width //= 2
        kernel = emit(width)
    return width, kernel


def lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """Compiles for the host. Raises Unsupported for options and lane counts that mean nothing here, for a grid barrier beside a scan over the
    grid, and for bodies that are too long."""
    options.refuse("the cpu target", frozenset({"workgroup", "opt", "debug", "interruptible"}), numerics=("strict", "fast"))
    HANDLERS.require(optimised.program)
    if has_grid_scan(optimised.program) and has_grid_barrier(optimised.program):
        raise Unsupported("the cpu target", [Missing("a grid_scan and a grid_barrier in one Program", help="part it in two, and launch one after the other")])
    width = lanes_for(optimised.program, target)
    if width not in WIDTHS:
        raise Unsupported("the cpu target", [Missing(f"{width} lanes", help=f"use {', '.join(map(str, WIDTHS))}")])
    watch = Stopwatch()
    with watch("emit"):
        width, kernel = _emitted(optimised, width, target, options)
    with watch("llvm"):
        code = _compile(kernel.text, target.arch, options.opt)
    details = {"lanes": width, "scratch_bytes": kernel.scratch_bytes, **({"machine": machine_number()} if target.arch == NATIVE else {})}
    if has_grid_scan(optimised.program):
        details["ordered"] = 1  # one call runs all workgroups, one after another
    fast = options.numerics == "fast" and has_fma(target.arch) and not is_exact(optimised.program)
    entry = Entry(SYMBOL, details=details)
    return Lowered((Image("object", code),), (entry,), kernel.workgroup_bytes, kernel.text, "fast" if fast else "strict", watch.stages)
