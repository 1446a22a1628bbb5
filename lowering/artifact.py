"""Artifacts: all that a machine without the Program and without the compiler needs to run a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vyre_py.ir.dims import Dim
from vyre_py.ir.nodes import Memory, Param
from vyre_py.ir.program import Grid
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.stages import Stages
from vyre_py.lowering.target import Target

__all__ = ["Artifact", "Entry", "Interface", "Part", "Step"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of code for a step.

    `format` is "ptx", "wgsl", "object" (a relocatable file for the host) or "program" (`program` is then the optimised Program that
    the reference device runs). `symbol` names the function in the code. `details` are numbers that the device's driver asks for by name.
    `data` is constant data that the driver binds beside the code (the tables of WGSL).
    """

    format: str
    symbol: str
    code: bytes = b""
    program: Any = None
    details: Mapping[str, int] = field(default_factory=dict)
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel: its entries (the last of which takes any arguments, and is what a launch runs), argument layout, workgroup size, grid
    rule and bytes of workgroup memory. A `cooperative` one has a grid barrier: all its workgroups must run at once. A `persistent` one is
    launched with as many workgroups as the device holds at once, along x, whatever the grid; a `dependent` one may be started while the one
    before it runs; a `streaming` one has neither loops nor atomics, so that slow memory slows it only as far as it is large."""

    entries: tuple[Entry, ...]
    layout: Layout
    workgroup: tuple[int, int, int]
    grid: Grid
    workgroup_bytes: int
    cooperative: bool = False
    persistent: bool = False
    dependent: bool = False
    streaming: bool = False

    @property
    def interruptible(self) -> bool:
        """Whether its loops look at a flag."""
        return self.layout.find(SlotKind.CANCEL) is not None


@dataclass(frozen=True, slots=True)
class Interface:
    """What a caller binds: declarations in order, and the names of the buffers and dims that may be 2^32 and more (`ir.widths`)."""

    name: str
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    buffers: tuple[Memory, ...]
    wide: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """Compiled code for one target. `report` counts what the passes did, `numerics` says which rules the code follows, `stages` where the time of
    the compilation went."""

    target: Target
    steps: tuple[Step, ...]
    numerics: str
    report: Mapping[str, int] = field(default_factory=dict)
    stages: Stages = field(default=Stages(), compare=False)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled Program: what a caller binds, and one part per target it was compiled for."""

    interface: Interface
    parts: tuple[Part, ...]
    capabilities: frozenset[str]
    code_digest: bytes

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(p.target.name for p in self.parts)
