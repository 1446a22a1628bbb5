"""The kinds of targets: what each takes as it is, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vyre_py.ir.check import Checked
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import imported, importing
from vyre_py.ir.language.nodes import Let
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes.contract import contract
from vyre_py.ir.passes.expand_subgroups import expand_subgroups
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.legal.asserts import lower_reports, number_reports
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.legal.indices import keeps_wide, missing_elements, narrow_indices
from vyre_py.lowering.legal.plain_copies import plain_copies
from vyre_py.lowering.legal.through_memory import EXCHANGES, missing_together, through_memory, told
from vyre_py.lowering.llvm.gpu.architectures import generation
from vyre_py.lowering.llvm.gpu.grouped import over_groups
from vyre_py.lowering.llvm.text import MOST_LINES
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target
from vyre_py.lowering.tiles.targets import host_tiles, ptx_tiles, wgsl_tiles

__all__ = ["KINDS", "STRICT_EXPANSIONS", "TARGET_KINDS", "Kind", "Legal", "asks", "expanded_for"]

# Ops that have an expansion: strict targets compute them with the IR's own arithmetic, so that all of them give the same bits.
STRICT_EXPANSIONS: Final = frozenset(name for name, row in OPS.items() if row.expands)

Legal = Callable[[Program, Target], Program]
Reporting = Callable[[Program, CompileOptions], Program]
Tiling = Callable[[Program, Target, CompileOptions], Sequence[Checked]]
Grouping = Callable[[Program], Program | None]


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
    if keeps_wide(program, target):
        return narrow_floats(program)
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


def asks(program: Program) -> bool:
    """Whether a Program asks for approximations, one by one."""
    return any(isinstance(s, Let) and s.op.approximates for s in program.body)


def _fused(program: Program, target: Target) -> Program:
    with importing:
        from vyre_py.lowering.llvm.cpu.host import has_fma

    return contract(program) if has_fma(target.arch) else program


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of target is reached; each module is imported when it is first needed.

    `module` has `lower(optimised, target, options) -> Lowered`. `table`, `module:name`, has a key for every op that it takes: one that
    expands over all its types is left to it then. Without a table it takes every op that has an evaluation. `reports` says what becomes of
    asserts and prints. `legal` rewrites what the target lacks, `subgroups` what it lacks of those. `fast` approximates what it can, under the numerics of that
    name; `asked` what a Program names as such. `copies` makes plain stores of copies that it has no instructions for. It takes `most` statements, where
    it has a limit of its own. Scans over the grid are made `in_steps` where workgroups cannot wait for each other. Of a Program of tiles
    `tiles` makes Programs of invocations, the last for any arguments, those before it better ones for some; None leaves it as it is. `grouped` makes a better
    one for some arguments of a Program of invocations, where it has one.
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
    tiles: Tiling | None = None
    grouped: Grouping | None = None


KINDS: Final[Mapping[str, Kind]] = {
    "ptx": Kind(
        "vyre_py.lowering.llvm.gpu.nvptx", lower_reports, "vyre_py.lowering.llvm.gpu.fast:NVPTX_EMITTERS", _floats, _approximated, _ptx_subgroups, MOST_LINES,
        _asked_for, _ptx_copies, tiles=ptx_tiles, grouped=over_groups,
    ),
    "host": Kind(
        "vyre_py.lowering.llvm.cpu.host", lower_reports, "vyre_py.lowering.llvm.ops:EMITTERS", _host, _fused, _host_subgroups, MOST_LINES, copies=_no_copies,
        tiles=host_tiles,
    ),
    "wgsl": Kind(
        "vyre_py.lowering.wgsl", lower_reports, "vyre_py.lowering.wgsl.ops:ROWS", _wgsl, subgroups=_wgsl_subgroups, copies=_no_copies, in_steps=True,
        tiles=wgsl_tiles,
    ),
    "reference": Kind("vyre_py.lowering.reference", number_reports),
}
TARGET_KINDS: Final = tuple(KINDS)


def expanded_for(kind: str) -> frozenset[str]:
    """The ops that a kind of target (`TARGET_KINDS`) leaves to `ir/math`, wherever they have an expansion."""
    module, _, table = KINDS[kind].table.partition(":")
    if not module:
        return EXPANDED_ONLY
    taken = getattr(imported(module), table)
    return frozenset(name for name in STRICT_EXPANSIONS if name not in taken or OPS[name].expands != OPS[name].of)
