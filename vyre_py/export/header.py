"""The header of an exported Program: statuses, the struct of arguments, and the functions that its source defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.export.arguments import Arguments
from vyre_py.export.names import commented
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Part

__all__ = ["LAUNCH_STATUSES", "STATUSES", "header"]

# What running gives. The first are those of vyre.h, which a program may include as well.
LAUNCH_STATUSES: Final[Mapping[str, tuple[int, str]]] = {
    "OK": (0, ""),
    "ERROR_LOST": (-1, "the device was closed or lost, or this is a child forked from the process that opened it"),
    "ERROR_FREED": (-2, "a buffer that the launch uses was freed"),
    "ERROR_MEMORY": (-3, "there is no memory for the scratch space of the kernel"),
    "ERROR_BUSY": (-4, "a graph is being captured on the device, or the launch is being changed: try again later"),
    "ERROR_STREAM": (-5, "a stream was given, and the device has none"),
}
STATUSES: Final[Mapping[str, tuple[int, str]]] = {
    "ERROR_NULL": (-16, "a buffer that has elements has no address"),
    "ERROR_ALIGNMENT": (-17, "a buffer's address is not a multiple of the size of its elements"),
    "ERROR_OVERLAP": (-18, "a buffer that is written shares bytes with another one"),
    "ERROR_SHAPE": (-19, "an axis has not the size that the others ask for"),
    "ERROR_SIZE": (-20, "a size is larger than the code takes, or negative where something is to run, divides by zero, or leaves 64 bits on the way"),
    "ERROR_GRID": (-21, "the grid is larger than the device takes, or its size cannot be computed"),
    "ERROR_CODE": (-22, "no code here is for this GPU"),
}


def _defined(guard: str, statuses: Mapping[str, tuple[int, str]]) -> list[str]:
    rows = [f"#define VYRE_{name} {value if value >= 0 else f'({value})'}{f' /* {text} */' if text else ''}" for name, (value, text) in statuses.items()]
    return [f"#ifndef {guard}", *rows, "#endif"]


def header(
    artifact: Artifact, part: Part, arguments: Arguments, version: str, includes: Sequence[str], example: Sequence[str], functions: str
) -> str:
    """The whole text. `example` are lines of C that use it, `functions` their declarations."""
    name = arguments.name
    title = f"{commented(repr(artifact.interface.name))}, a Program of vyre-py, for {commented(part.target.name)}"
    made = f"Made by vyre-py {version}; numerics {commented(part.numerics)}; code {artifact.code_digest.hex()[:16]}."
    doc = [f" * {commented(line)}" for line in artifact.interface.doc.splitlines()]
    lines = [
        f"/* {name}.h: {title}.", f" * {made}", *([" *", *doc] if doc else []), " *", *[f" *     {line}" if line else " *" for line in example],
        " *", " * Statuses: 0, or one of VYRE_ERROR_*, which are negative; positive ones are the CUDA driver's. See drivers/C_ABI.md of vyre-py.", " */", "",
        f"#ifndef VYRE_EXPORT_{name}_H", f"#define VYRE_EXPORT_{name}_H", "", *[f"#include <{include}>" for include in includes], "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        *_defined("VYRE_OK", LAUNCH_STATUSES), *_defined("VYRE_ERROR_NULL", STATUSES), "",
        *arguments.declaration(), "", functions, "", "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)
