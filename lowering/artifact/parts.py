"""What artifacts are made of: a part for each target, its step, the images of code in it, and the interface that all share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Self

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, DimExpr, Grid
from vyre_py.ir.language.nodes import Memory, Param
from vyre_py.ir.language.program import Program
from vyre_py.ir.public import public
from vyre_py.ir.travel import Contained
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.reports import Form, forms_of
from vyre_py.lowering.stages import Stages
from vyre_py.lowering.target import Target

__all__ = ["Aligned", "Divisible", "Entry", "Image", "Interface", "Need", "Part", "Step", "Within"]


@public
@dataclass(frozen=True, slots=True)
class Image(Contained):
    """The code of a step in one format: "cubin" (machine code of an NVIDIA GPU), "ptx", "wgsl", "object" (a relocatable file for the host) or
    "program" (`program` is then the optimised Program that the reference device runs).

    `data` is constant data that the driver binds beside the code (the tables of WGSL). `log` is what the assembler said, `resources` what it says that
    each function takes, by symbol: registers, bytes of stack and of spills, workgroup memory but for what a launch gives (`Step.takes` has all).
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


@dataclass(frozen=True, slots=True)
class Within:
    """A size is at least 1, and at most a number."""

    expr: DimExpr
    most: int


Need = Aligned | Divisible | Within


@public
@dataclass(frozen=True, slots=True)
class Entry(Contained):
    """A function in the code of a step: `symbol` names it there, `needs` are what must hold of the arguments. Where
    `elements` is not 1, the first workgroups along x are those in which each invocation does so many neighbours, as many workgroups as that fills, and
    those after them do one an invocation. `details` are numbers that the device's driver asks for by name."""

    symbol: str
    needs: tuple[Need, ...] = ()
    elements: int = 1
    details: Mapping[str, int] = field(default_factory=dict)

    @property
    def boxes(self) -> int:
        """How many descriptions of boxes the function takes (`SlotKind.BOXES`)."""
        return self.details.get("boxes", 0)

    @property
    def rows_beside(self) -> int:
        """How many more invocations a workgroup of the function has along y than the step says."""
        return self.details.get("rows_beside", 0)

    @property
    def cluster(self) -> int:
        """In clusters of how many workgroups along x the function may be launched, where the grid has a multiple of so many rows; these copy boxes for each
        other then, those whose number is a bit of `shared_boxes` among the details."""
        return self.details.get("cluster", 1)

    @property
    def walks(self) -> bool:
        """Whether the function is launched as a persistent step is: with as many workgroups as the device holds at once, along x."""
        return bool(self.details.get("walks", 0))


@public
@dataclass(frozen=True, slots=True)
class Step(Contained):
    """One kernel: its code in one or more formats, best first, its entries, best first (the last takes any arguments), argument layout, workgroup
    size, grid rule and bytes of workgroup memory. A `cooperative` one has a grid barrier: all its workgroups must run at once. A `persistent` one is
    launched with as many workgroups as the device holds at once, along x, whatever the grid; a `dependent` one may be started while the one
    before it runs; a `streaming` one has neither loops nor atomics, so that its time over slow (host) memory is proportional to the bytes moved."""

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

    def takes(self, image: Image) -> dict[str, dict[str, int]]:
        """The known resources of each function of an image at a launch, by symbol: what the assembler says, and the workgroup memory that the
        launch gives, of which the assembler knows nothing."""
        return {
            symbol: {name: figure + self.workgroup_bytes * (name == "workgroup_bytes") for name, figure in figures.items()}
            for symbol, figures in image.resources.items()
        }

    @property
    def has_groups(self) -> bool:
        """Whether the kernels are told how many workgroups the grid has."""
        return not self.indirect and (self.persistent or any(entry.walks for entry in self.entries))

    @property
    def indirect(self) -> bool:
        """Whether the kernels, which are persistent, read from memory how many workgroups the grid has."""
        return self.layout.find(SlotKind.GRID) is not None

    def workgroup_of(self, number: int) -> tuple[int, int, int]:
        """The size of a workgroup of an entry, by its number."""
        across, down, layers = self.workgroup
        return across, down + self.entries[number].rows_beside, layers

    def without_boxes(self) -> Step:
        """The step for a driver that describes no boxes: without the entries that take such descriptions."""
        entries = tuple([entry for entry in self.entries if not entry.boxes])
        return self if len(entries) == len(self.entries) else replace(self, entries=entries)

    @property
    def interruptible(self) -> bool:
        """Whether its loops look at a flag."""
        return self.layout.find(SlotKind.CANCEL) is not None


@public
@dataclass(frozen=True, slots=True)
class Interface(Contained):
    """What a caller binds: declarations in order, the names of the buffers and dims that may be 2^32 and more (`ir.language.widths`), the
    Program's doc, and its asserts and prints in order of the body."""

    name: str
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    buffers: tuple[Memory, ...]
    wide: frozenset[str] = frozenset()
    doc: str = ""
    reports: tuple[Form, ...] = ()

    @classmethod
    def of(cls, program: Program) -> Self:
        """That of a Program."""
        return cls(program.name, program.dims, program.params, program.buffers, program.widths.names, program.doc, forms_of(program))

    def apart(self) -> Iterator[tuple[Memory, Memory]]:
        """The pairs of buffers that must not share memory: one that is written, and another; of two that are written, the first declared comes first."""
        for number, memory in enumerate(self.buffers):
            if memory.access.writes:
                yield from ((memory, other) for at, other in enumerate(self.buffers) if at > number or (at < number and not other.access.writes))


@public
@dataclass(frozen=True, slots=True)
class Part(Contained):
    """Compiled code for one target. `report` counts what the passes did, and has what the entry that takes any arguments `takes`; `numerics` says which
    rules the code follows, `stages` where the time of the compilation went, `made_by` what made the code: compilers with their versions, and options."""

    target: Target
    steps: tuple[Step, ...]
    numerics: str
    report: Mapping[str, int] = field(default_factory=dict)
    stages: Stages = field(default=Stages(), compare=False)
    made_by: Mapping[str, str] = field(default_factory=dict, compare=False)
