"""Artifacts: all that a machine without the Program and without the compiler needs to run a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vyre_py.ir.dims import Dim, DimExpr
from vyre_py.ir.nodes import Memory, Param
from vyre_py.ir.program import Grid
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.stages import Stages
from vyre_py.lowering.target import Target

__all__ = ["Aligned", "Artifact", "Divisible", "Entry", "Image", "Interface", "Need", "Part", "Step"]


@dataclass(frozen=True, slots=True)
class Image:
    """The code of a step in one format: "cubin" (machine code of an NVIDIA GPU), "ptx", "wgsl", "object" (a relocatable file for the host) or
    "program" (`program` is then the optimised Program that the reference device runs).

    `data` is constant data that the driver binds beside the code (the tables of WGSL). `log` is what the assembler said, `resources` what it says that
    each function takes, by symbol: registers, bytes of stack and of spills.
    """

    format: str
    code: bytes = b""
    data: bytes = b""
    program: Any = None
    log: str = field(default="", compare=False)
    resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Aligned:
    """The memory that is bound to a buffer begins on a multiple of so many bytes."""

    buffer: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Divisible:
    """A size is a multiple of a number."""

    expr: DimExpr
    by: int


Need = Aligned | Divisible


@dataclass(frozen=True, slots=True)
class Entry:
    """A function in the code of a step: `symbol` names it there, `needs` are what must hold of the arguments. An invocation of it does the work of
    `elements` neighbours of the Program's along x. `details` are numbers that the device's driver asks for by name."""

    symbol: str
    needs: tuple[Need, ...] = ()
    elements: int = 1
    details: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel: its code in one or more formats, best first, its entries, best first (the last takes any arguments), argument layout, workgroup
    size, grid rule and bytes of workgroup memory. A `cooperative` one has a grid barrier: all its workgroups must run at once. A `persistent` one is
    launched with as many workgroups as the device holds at once, along x, whatever the grid; a `dependent` one may be started while the one
    before it runs; a `streaming` one has neither loops nor atomics, so that slow memory slows it only as far as it is large."""

    images: tuple[Image, ...]
    entries: tuple[Entry, ...]
    layout: Layout
    workgroup: tuple[int, int, int]
    grid: Grid
    workgroup_bytes: int
    cooperative: bool = False
    persistent: bool = False
    dependent: bool = False
    streaming: bool = False

    def image(self, format_: str) -> Image | None:
        """The code in a format, where there is some."""
        return next((image for image in self.images if image.format == format_), None)

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
