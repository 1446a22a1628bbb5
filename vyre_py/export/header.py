"""The header of an exported Program: statuses, the struct of arguments, and the functions that its source defines."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.export.arguments import Arguments
from vyre_py.export.names import commented
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Part
from vyre_py.lowering.statuses import LAUNCH_STATUSES, PLAN_STATUSES, CStatus

__all__ = ["header"]

def _defined(guard: str, statuses: Sequence[CStatus]) -> list[str]:
    rows = [f"#define {status.macro} {status if status >= 0 else f'({status})'}{f' /* {status.words} */' if status.words else ''}" for status in statuses]
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
        *_defined("VYRE_OK", LAUNCH_STATUSES), *_defined("VYRE_ERROR_NULL", PLAN_STATUSES), "",
        *arguments.declaration(), "", functions, "", "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)
