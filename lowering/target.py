"""Targets: what a Program is compiled for, by name."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Final, Literal

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import WORD_LIMIT
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Tile
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.widths import least_count
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["SUBGROUP_SIZES", "WITH_WARPGROUPS", "Target", "parse_target", "wgsl_target"]

# The lanes that a subgroup may have on WebGPU.
SUBGROUP_SIZES: Final = (4, 8, 16, 32, 64, 128)
# The architecture of the same GPUs that has what no later one has: products of warpgroups.
WITH_WARPGROUPS: Final = {"sm_90": "sm_90a"}
_F64: Final = "f64"
_SUBGROUPS: Final = {f"subgroup{size}": size for size in SUBGROUP_SIZES}


@public
@dataclass(frozen=True, slots=True)
class Target(ValueRecord):
    """A kind of code, and the machine within that kind.

    `kind`: "ptx" (`arch` is sm_70 or newer; `cubin` asks for machine code beside the PTX), "wgsl" (`arch` names what only some devices
    have, each behind a colon: "f64" for those that compute in f64, "subgroup32" and the like for those whose built-ins see so many neighbours by
    `local_index` as a subgroup), "host" (`arch` is "native" for this machine's CPU, or one of `llvm.host_targets`; `lanes` is how many invocations run as
    one vector, 0 lets the target choose; code of one lane takes arrays of 2^32 elements and more), or "reference".
    """

    kind: Literal["ptx", "wgsl", "host", "reference"]
    arch: str = ""
    lanes: int = 0
    cubin: bool = False

    @property
    def has_f64(self) -> bool:
        """Whether WGSL for this target has f64."""
        return self.kind == "wgsl" and _F64 in self.features

    @property
    def subgroup(self) -> int:
        """The lanes of the subgroups that WGSL's built-ins are used for; 0 for none."""
        return next((size for name, size in _SUBGROUPS.items() if name in self.features), 0) if self.kind == "wgsl" else 0

    def for_program(self, program: Program) -> Target:
        """The target of this machine's code for a Program: without built-ins for subgroups of another size than the Program's, so that more devices take it,
        with products of warpgroups for what tensor cores may compute, and with one lane of a CPU where constant axes alone make 2^32 elements."""
        if self.arch in WITH_WARPGROUPS and program.of_tiles and any(isinstance(s, Tile) and s.op.name == "mma_tensor" for s in program.body):
            return replace(self, arch=WITH_WARPGROUPS[self.arch])
        if self.kind == "host" and any(least_count(memory) >= WORD_LIMIT for memory in program.buffers):
            return replace(self, lanes=1)
        return wgsl_target(f64=self.has_f64, subgroup=0) if self.subgroup not in (0, program.subgroup) else self

    @property
    def features(self) -> frozenset[str]:
        """The names in `arch` of what a device for WGSL has to have."""
        return frozenset(filter(None, self.arch.split(":")))

    @property
    def name(self) -> str:
        """The name that `parse_target` reads."""
        if self.kind == "ptx":
            return self.arch if self.cubin else self.arch.replace("sm_", "compute_")
        if self.kind == "host":
            parts = ["cpu", *([self.arch] if self.arch != "native" or self.lanes else []), *([str(self.lanes)] if self.lanes else [])]
            return ":".join(parts)
        return f"{self.kind}:{self.arch}" if self.arch else self.kind

    def __str__(self) -> str:
        return self.name


_MIN_SM: Final = 70
_WGSL: Final = tuple([Target("wgsl", ":".join(filter(None, names))) for names in product(("", _F64), ("", *_SUBGROUPS))])
_PLAIN: Final = {t.name: t for t in (*_WGSL, Target("reference"))}
_SM = re.compile(r"(sm|compute)_(\d{2,3}[af]?)\Z", re.ASCII)
_CPU = re.compile(r"cpu(?::([A-Za-z0-9_.+-]+?))?(?::(\d{1,2}))?\Z", re.ASCII)


def parse_target(name: str) -> Target:
    """The target of this name: "sm_90" (machine code, and PTX for newer GPUs), "compute_90" (PTX alone), "wgsl", "wgsl:f64",
    "wgsl:subgroup32", "wgsl:f64:subgroup32", "cpu", "cpu:x86-64-v3", "cpu:native:8" or "reference".

    Raises Unsupported for any other name.
    """
    if not isinstance(name, str):
        raise Unsupported("vyre-py", [Missing(f"target {shown(name)}", help="a target is named by a string")])
    if name in _PLAIN:
        return _PLAIN[name]
    if (found := _SM.match(name)) and int(found[2].rstrip("af")) >= _MIN_SM:
        return Target("ptx", f"sm_{found[2]}", cubin=found[1] == "sm")
    if found := _CPU.match(name):
        return Target("host", found[1] or "native", int(found[2] or 0))
    known = "targets are sm_70, compute_70 and newer, wgsl, wgsl:f64, wgsl:subgroup32, wgsl:f64:subgroup32, cpu, cpu:NAME:LANES and reference"
    raise Unsupported("vyre-py", [Missing(f"target {shown(name)}", help=known)])


def wgsl_target(*, f64: bool, subgroup: int) -> Target:
    """The target of devices for WGSL that have f64, or not, and subgroups of so many lanes, 0 for none that are of use."""
    return next(target for target in _WGSL if target.has_f64 == f64 and target.subgroup == subgroup)
