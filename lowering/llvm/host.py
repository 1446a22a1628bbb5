"""Host code: the lanes walk's LLVM IR, through LLVM's pipeline, as a relocatable object."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from llvmlite import binding as llvm

from vyre_py.lowering.artifact import Entry, Image
from vyre_py.lowering.compile import Lowered
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.exact import is_exact
from vyre_py.lowering.legal.grids import missing_grid_barriers
from vyre_py.lowering.llvm.lanes import SYMBOL, emit_lanes
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stopwatch
from vyre_py.lowering.target import Target

if TYPE_CHECKING:
    from vyre_py.ir.passes import Optimised

__all__ = ["assembly", "choose_lanes", "has_fma", "lower", "runs_here", "target_machine"]

WIDTHS: Final = (1, 2, 4, 8, 16, 32)
# Feature -> lanes of 32 bits, first match wins: two vectors of them, so that one hides the other's latency. Measured: mandelbrot with 16
# and 32 lanes of AVX-512 made 57 and 80 Mpixel/s on one core, with 8 and 16 of AVX2 27 and 37; no kernel tried was slower.
_LANES_BY_FEATURE: Final = (("avx512f", 32), ("avx2", 16))
_LANES_ELSEWHERE: Final = 8
_SHORTEST_ROW: Final = 4
# What C libraries have everywhere. Anything else would be missing in the process that loads the object.
_LIBRARY: Final = frozenset({
    "memset", "memcpy", "memmove", "_GLOBAL_OFFSET_TABLE_",
    *(name + end for name in ("fma", "floor", "ceil", "trunc", "roundeven") for end in ("", "f")),
})  # fmt: skip


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


# x86-64 levels -> the features that tell them apart here.
_LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "x86-64": (), "x86-64-v2": ("sse4.2",), "x86-64-v3": ("avx2", "fma", "bmi2", "f16c"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"),
}  # fmt: skip


@lru_cache(maxsize=1)
def _host_features() -> frozenset[str]:
    _initialize()
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def _levels() -> Mapping[str, tuple[str, ...]]:
    """The levels that this kind of machine has."""
    return _LEVELS if llvm.get_default_triple().startswith("x86_64") else {}


@lru_cache(maxsize=8)
def target_machine(arch: str, opt: int) -> Any:
    """LLVM's target machine for "native", this machine's CPU by name, or an x86-64 level on x86-64. Raises Unsupported for others."""
    _initialize()
    native = arch == "native"
    # LLVM itself takes any name, and says on standard error that it does not know it.
    if not native and arch not in _levels() and arch != llvm.get_host_cpu_name():
        raise Unsupported("the cpu target", [Missing(f"CPU {arch!r}", help=f"use {', '.join(['native', *_levels()])}")])
    return llvm.Target.from_triple(llvm.get_default_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name() if native else arch, features=llvm.get_host_cpu_features().flatten() if native else "",
        # The JIT may put code and constants further apart than an instruction reaches, as soon as another library (a GPU's driver) has
        # taken the addresses between, and LLVM then ends the process; so every address is written out whole.
        opt=opt, reloc="static", codemodel="large",
    )


def _features(arch: str) -> frozenset[str]:
    """What code for `arch` may use, of what is asked for here."""
    return frozenset(_levels()[arch]) if arch in _levels() else _host_features()


_ARM: Final = ("aarch64", "arm64")


def _has_halves(arch: str) -> bool:
    """Whether there are instructions between f16 and f32: every 64-bit ARM has them."""
    return "f16c" in _features(arch) or llvm.get_default_triple().startswith(_ARM)


def has_fma(arch: str) -> bool:
    """Whether code for `arch` may use a fused multiply-add, which is a library call a lane without: every 64-bit ARM has it."""
    return "fma" in _features(arch) or llvm.get_default_triple().startswith(_ARM)


def runs_here(arch: str) -> bool:
    """Whether this machine has all that code for `arch` may use."""
    if arch in _levels():
        return _host_features().issuperset(_features(arch))
    return arch in ("native", llvm.get_host_cpu_name())


def choose_lanes(workgroup: tuple[int, int, int], arch: str) -> int:
    """How many lanes to use: as many as the CPU likes, no more than fill a row (in two and three dimensions) or the workgroup."""
    lanes = next((n for feature, n in _LANES_BY_FEATURE if feature in _features(arch)), _LANES_ELSEWHERE)
    x, rest = workgroup[0], workgroup[1] * workgroup[2]
    row = x & -x  # the largest power of two that divides a row
    if rest > 1 and row >= _SHORTEST_ROW:
        return min(lanes, row)
    while lanes > 1 and -(-x * rest // lanes) == -(-x * rest // (lanes // 2)):
        lanes //= 2
    return lanes


def _undefined_symbols(code: bytes) -> Iterator[str]:
    """The symbols that an ELF object of 64 bits wants from elsewhere; nothing for other formats, which the loader checks."""
    if code[:6] != b"\x7fELF\x02\x01":
        return
    (offset,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + k * size) for k in range(count)]
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB; its link is the section of the names
            continue
        names = sections[section[6]][4]
        for entry in range(section[4], section[4] + section[5], 24):
            name, _, _, index = struct.unpack_from("<IBBH", code, entry)
            if index == 0 and name:
                yield code[names + name : code.index(b"\0", names + name)].decode()


# Past so many lines of text, which some 6,000 statements make, LLVM's pipeline takes minutes where a few linear passes take a second.
_LARGE_LINES: Final = 20_000


def _optimise(text: str, module: Any, machine: Any, opt: int) -> None:
    """Runs LLVM's pipeline over a module, or what is linear of it over a large one."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
    # The walk has made vectors already; and the loop vectoriser of LLVM 22 fails an assertion, which ends the process, on loops with
    # many exits.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    if text.count("\n") < _LARGE_LINES:
        builder.getModulePassManager().run(module, builder)
        return
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_sccp_pass()
    passes.add_aggressive_dce_pass()
    passes.run(module, builder)


def _optimised(text: str, machine: Any, opt: int) -> Any:
    """The module of a text, after LLVM's passes. Raises ToolchainError with the text when LLVM refuses it."""
    try:
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        _optimise(text, module, machine, opt)
    except RuntimeError as error:
        raise ToolchainError("LLVM", str(error), text) from error
    return module


def assembly(text: str, target: Target, options: CompileOptions) -> str:
    """The host's assembly of LLVM IR that `lower` emitted for the same target and options."""
    machine = target_machine(target.arch, options.opt)
    return str(machine.emit_assembly(_optimised(text, machine, options.opt)))


def _compile(text: str, machine: Any, opt: int) -> bytes:
    """The object of a module. Raises ToolchainError with the text when LLVM refuses it, or the object needs what no process has."""
    code = bytes(machine.emit_object(_optimised(text, machine, opt)))
    if unknown := sorted(set(_undefined_symbols(code)) - _LIBRARY):
        raise ToolchainError("LLVM", f"the object wants {', '.join(unknown)}, which no process has", text)
    return code


def lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """Compiles for the host. Raises Unsupported for options and lane counts that mean nothing here, and for grid barriers."""
    options.refuse("the cpu target", frozenset({"workgroup", "opt"}), numerics=("strict", "fast"))
    if missing := list(missing_grid_barriers(optimised.program)):
        raise Unsupported("the cpu target", missing)
    width = target.lanes or choose_lanes(optimised.program.workgroup, target.arch)
    if width not in WIDTHS:
        raise Unsupported("the cpu target", [Missing(f"{width} lanes", help=f"use {', '.join(map(str, WIDTHS))}")])
    watch = Stopwatch()
    with watch("emit"):
        kernel = emit_lanes(optimised, width, _has_halves(target.arch))
    with watch("llvm"):
        code = _compile(kernel.text, target_machine(target.arch, options.opt), options.opt)
    details = {"lanes": width, "scratch_bytes": kernel.scratch_bytes}
    fast = options.numerics == "fast" and has_fma(target.arch) and not is_exact(optimised.program)
    entry = Entry(SYMBOL, details=details)
    return Lowered((Image("object", code),), (entry,), kernel.workgroup_bytes, kernel.text, "fast" if fast else "strict", watch.stages)
