"""All plants, by floor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planted.ahead import AHEAD
from planted.checker import CHECKER, MEANING
from planted.decoders import DECODERS
from planted.detectors import Generated, RoundTrip
from planted.lowering import ARGUMENTS, HOST, LEGAL, PTX, WGSL
from planted.passes import PASSES
from planted.plant import Detector, Plant
from planted.wide import WIDE

__all__ = ["DETECTORS", "FLOORS", "PLANTS"]

FLOORS: Final[Mapping[str, tuple[Plant, ...]]] = {
    "The checker": CHECKER,
    "The meaning: interpreter, evaluation, sizes": MEANING,
    "Passes and expansions": PASSES,
    "Rewrites for targets": LEGAL,
    "Code for hosts": HOST,
    "Code for GPUs": PTX,
    "WGSL": WGSL,
    "Layouts and binding": ARGUMENTS,
    "64-bit indices": WIDE,
    "Decoders": DECODERS,
    "Compiled ahead": AHEAD,
}
PLANTS: Final[Mapping[str, Plant]] = {plant.name: plant for plants in FLOORS.values() for plant in plants}

# What is no test of the suite itself is shown to notice nothing where nothing is planted.
DETECTORS: Final[tuple[Detector, ...]] = (
    *(Generated(kind, 10) for kind in ("reference", "cpu", "wgpu")),
    *(RoundTrip(form) for form in ("text", "JSON", "bytes")),
)
