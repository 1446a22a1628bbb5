"""Targets: what a Program is compiled for, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Target", "parse_target"]


@public
@dataclass(frozen=True, slots=True)
class Target:
    """A kind of code, and the machine within that kind.

    `kind`: "ptx" (`arch` is sm_70 or newer; `cubin` asks for machine code beside the PTX), "wgsl" (`arch` is empty, or "f64" for devices
    that compute in f64), "host" (`arch` is "native" for this machine's CPU, or one of `llvm.host_targets`; `lanes` is how many invocations run as
    one vector, 0 lets the target choose), or "reference".
    """

    kind: Literal["ptx", "wgsl", "host", "reference"]
    arch: str = ""
    lanes: int = 0
    cubin: bool = False

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
_PLAIN: Final = {t.name: t for t in (Target("wgsl"), Target("wgsl", "f64"), Target("reference"))}
_SM = re.compile(r"(sm|compute)_(\d{2,3}[af]?)\Z", re.ASCII)
_CPU = re.compile(r"cpu(?::([A-Za-z0-9_.+-]+?))?(?::(\d{1,2}))?\Z", re.ASCII)


def parse_target(name: str) -> Target:
    """The target of this name: "sm_90" (machine code, and PTX for newer GPUs), "compute_90" (PTX alone), "wgsl", "wgsl:f64", "cpu",
    "cpu:x86-64-v3", "cpu:native:8" or "reference".

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
    known = "targets are sm_70, compute_70 and newer, wgsl, wgsl:f64, cpu, cpu:NAME:LANES and reference"
    raise Unsupported("vyre-py", [Missing(f"target {shown(name)}", help=known)])
