"""Compiled Programs as C: a header and a source for each, and for host code the object beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import vyre_py
from vyre_py.export import cuda, host
from vyre_py.export.arguments import Arguments
from vyre_py.export.files import written
from vyre_py.export.header import header
from vyre_py.export.names import require_title, title_of
from vyre_py.ir.language.errors import shown
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Part, Step
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import SlotKind

__all__ = ["export_c"]

_OF: Final = "C is made of code for cpu, sm_NN and compute_NN"

# Steps of which C can't be made, and why: they are launched in ways that need the driver of vyre-py.
_REFUSED: Final[Mapping[str, tuple[Callable[[Step], bool], str]]] = {
    "a Program with a grid barrier": (
        lambda s: s.cooperative or s.layout.find(SlotKind.ARRIVALS) is not None, "its workgroups must all run at once, and count themselves in device memory",
    ),
    "a Program with a grid_scan": (
        lambda s: any("scan_words" in entry.details for entry in s.entries), "its workgroups take tickets in device memory",
    ),
    "a Program that asserts or prints": (
        lambda s: s.layout.find(SlotKind.REPORT) is not None, "nobody reads there what it tells: compile with asserts=False and print_bytes=0",
    ),
    "code compiled with interruptible=True": (lambda s: s.interruptible, "its loops look at a word of the device: compile without the option"),
    "code compiled with indirect=True": (lambda s: s.indirect, "its grid lies in memory: compile without the option"),
    "code compiled with dependent=True": (lambda s: s.dependent, "it is launched with an attribute: compile without the option"),
}  # fmt: skip


@public
def export_c(artifact: Artifact, folder: str | os.PathLike[str], *, target: str | None = None, name: str | None = None) -> tuple[Path, ...]:
    """Writes NAME.h and NAME.c, which run one part of an artifact from C99 or C++ without Python, and gives the files' paths.

    For host code ("cpu", "cpu:x86-64-v3", ...) the object is written as well, NAME_kernel.o, which a program links; `NAME_run` runs the grid in the calling
    thread. For an NVIDIA GPU ("sm_90", "compute_90") the code is in NAME.c; `NAME_load`, `NAME_launch` and `NAME_unload` go through the CUDA driver. The
    header's comment has an example.

    `target` names the part, where the artifact has several that C can be made of: one call exports one, and several go to folders or under names of their
    own. `name` is what all names in C begin with; without it the Program's name,
    as an identifier. Arguments are checked as binding does in Python, and statuses say what is wrong; a size whose computation leaves 64 bits is refused.

    Raises Unsupported for parts that C can't be made of (wgsl, reference, grid barriers, interruptible, indirect and dependent code), and a `name` that
    is no identifier; DriverError where files can't be written.
    """
    if not isinstance(artifact, Artifact):
        raise Unsupported("export_c", [Missing(f"exporting {shown(artifact)}", help="it takes an Artifact, which compile_native gives")])
    part = _part(artifact, target)
    step = _step(part)
    title = title_of(artifact.interface.name) if name is None else require_title(name, "export_c")
    files = _KINDS[part.target.kind](artifact, part, step, title)
    return written(Path(folder), files)


def _part(artifact: Artifact, target: str | None) -> Part:
    """The part of that name, or the only one that there is."""
    here = [part for part in artifact.parts if part.target.kind in _KINDS]
    listed = ", ".join(artifact.targets) or "no target"
    if target is not None:
        named = [part for part in artifact.parts if part.target.name == target]
        if not named:
            raise Unsupported("export_c", [Missing(f"target {shown(target)}", help=f"the artifact is for {listed}")])
        if named[0].target.kind not in _KINDS:
            raise Unsupported("export_c", [Missing(f"target {target}", help=_OF)])
        return named[0]
    if len(here) != 1:
        those = [part.target.name for part in here]
        help_ = f"one call makes C of one part: give target={those[0]!r} or another of {', '.join(those)}" if here else _OF
        raise Unsupported("export_c", [Missing(f"an artifact for {listed}", help=help_)])
    return here[0]


def _step(part: Part) -> Step:
    """The one kernel of a part. Raises Unsupported for what C can't launch."""
    missing = [] if len(part.steps) == 1 else [Missing(f"a Program of {len(part.steps)} kernels")]
    missing += [Missing(what, help=why) for what, (is_so, why) in _REFUSED.items() if any(map(is_so, part.steps))]
    if missing:
        raise Unsupported(f"export_c for {part.target}", missing)
    return part.steps[0].without_boxes()


def _host_files(artifact: Artifact, part: Part, step: Step, name: str) -> dict[str, str | bytes]:
    image = step.image("object")
    if image is None or not image.code.startswith(b"\x7fELF"):
        raise Unsupported("export_c", [Missing("host code that is not an ELF object", help="export on Linux, or compile for a level such as cpu:x86-64-v3")])
    arguments = Arguments(name, artifact.interface, step, host.LIMITS)
    entries = dict.fromkeys(entry.symbol for entry in step.entries)
    symbols = {symbol: f"{name}_kernel" if len(entries) == 1 else f"{name}_kernel_{number}" for number, symbol in enumerate(entries)}
    head = header(artifact, part, arguments, vyre_py.__version__, ["stdint.h"], host.example(arguments), host.functions(name))
    return {f"{name}.h": head, f"{name}.c": host.source(arguments, step, symbols), f"{name}_kernel.o": host.renamed(image.code, symbols)}


def _cuda_files(artifact: Artifact, part: Part, step: Step, name: str) -> dict[str, str | bytes]:
    arguments = Arguments(name, artifact.interface, step, cuda.LIMITS, address="CUdeviceptr")
    head = header(artifact, part, arguments, vyre_py.__version__, ["cuda.h", "stdint.h"], cuda.example(arguments), cuda.functions(name, step))
    return {f"{name}.h": head, f"{name}.c": cuda.source(arguments, step)}


# Kind of target -> what makes the files.
_KINDS: Final[Mapping[str, Callable[[Artifact, Part, Step, str], dict[str, str | bytes]]]] = {"host": _host_files, "ptx": _cuda_files}
