"""Targets: what a Program is compiled for, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
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
# What only some devices for WGSL have, in the order of targets' names -> what a Program asks for that it serves (`ir.check.facts.CAPABILITIES`).
_FEATURES: Final = {_F64: "float64", "i64": "int64", "f16": "float16", "i64atomics": "int64_atomics", "f32atomics": "float32_atomics"}


@public
@dataclass(frozen=True, slots=True)
class Target(ValueRecord):
    """A kind of code, and the machine within that kind.

    `kind`: "ptx" (`arch` is sm_70 or newer; `cubin` asks for machine code beside the PTX), "wgsl" (`arch` names what only some devices
    have, each behind a colon: "f64" for those that compute in f64, "i64" in 64-bit integers, "f16" for those that convert to f16 as the language does,
    "i64atomics" and "f32atomics" for atomics on such elements, "subgroup32" and the like for those whose built-ins see so many neighbours by
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
        return self.has(_F64)

    def has(self, feature: str) -> bool:
        """Whether WGSL for this target may use what `arch` names so."""
        return self.kind == "wgsl" and feature in self.features

    @property
    def subgroup(self) -> int:
        """The lanes of the subgroups that WGSL's built-ins are used for; 0 for none."""
        return next((size for name, size in _SUBGROUPS.items() if name in self.features), 0) if self.kind == "wgsl" else 0

    def for_program(self, program: Program) -> Target:
        """The target of this machine's code for a Program: of WGSL without features that the Program has no use for, so that more devices take it,
        with products of warpgroups for what tensor cores may compute, and with one lane of a CPU where constant axes alone make 2^32 elements."""
        if self.arch in WITH_WARPGROUPS and program.of_tiles and any(isinstance(s, Tile) and s.op.name == "mma_tensor" for s in program.body):
            return replace(self, arch=WITH_WARPGROUPS[self.arch])
        if self.kind == "host" and any(least_count(memory) >= WORD_LIMIT for memory in program.buffers):
            return replace(self, lanes=1)
        return wgsl_target(self._of_use(program)) if self.kind == "wgsl" and self.arch else self

    def _of_use(self, program: Program) -> Iterable[str]:
        with importing:
            from vyre_py.ir.check.facts import capabilities

        asked = capabilities(program)
        return [name for name in self.features if (_SUBGROUPS[name] == program.subgroup if name in _SUBGROUPS else _FEATURES[name] in asked)]

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
_NAMED: Final = frozenset({*_FEATURES, *_SUBGROUPS})
_SM = re.compile(r"(sm|compute)_(\d{2,3}[af]?)\Z", re.ASCII)
_CPU = re.compile(r"cpu(?::([A-Za-z0-9_.+-]+?))?(?::(\d{1,2}))?\Z", re.ASCII)


def parse_target(name: str) -> Target:
    """The target of this name: "sm_90" (machine code, and PTX for newer GPUs), "compute_90" (PTX alone), "wgsl", "wgsl:f64",
    "wgsl:subgroup32", "wgsl:f64:i64:subgroup32", "cpu", "cpu:x86-64-v3", "cpu:native:8" or "reference". Features of WGSL stand in the order of
    `Target.arch`, the size of subgroups last.

    Raises Unsupported for any other name.
    """
    if not isinstance(name, str):
        raise Unsupported("vyre-py", [Missing(f"target {shown(name)}", help="a target is named by a string")])
    if name == "reference":
        return Target("reference")
    kind, *features = name.split(":")
    if kind == "wgsl" and set(features) <= _NAMED and (target := wgsl_target(features)).name == name:
        return target
    if (found := _SM.match(name)) and int(found[2].rstrip("af")) >= _MIN_SM:
        return Target("ptx", f"sm_{found[2]}", cubin=found[1] == "sm")
    if found := _CPU.match(name):
        return Target("host", found[1] or "native", int(found[2] or 0))
    known = f"targets are sm_70, compute_70 and newer, wgsl, wgsl:{':'.join(_FEATURES)}:subgroup32 or some of these, cpu, cpu:NAME:LANES and reference"
    raise Unsupported("vyre-py", [Missing(f"target {shown(name)}", help=known)])


def wgsl_target(features: Iterable[str]) -> Target:
    """The target of devices for WGSL that have these features, of which no more than one is a size of subgroups."""
    wanted = set(features)
    sizes = [name for name in _SUBGROUPS if name in wanted]
    return Target("wgsl", ":".join([*[name for name in _FEATURES if name in wanted], *sizes[:1]]))
