"""What a target makes of a Program."""

from __future__ import annotations

from dataclasses import field

from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.stages import Stages

__all__ = ["Lowered"]


@dataclass(frozen=True, slots=True)
class Lowered:
    """The result of a target's `lower`: the code in each format and its entries, best first, the bytes of workgroup memory, the text that was emitted, and
    what it measured."""

    images: tuple[Image, ...]
    entries: tuple[Entry, ...]
    workgroup_bytes: int
    text: str
    numerics: str = "strict"
    stages: Stages = field(default_factory=Stages)
