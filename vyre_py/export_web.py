"""Compiled Programs for browsers: an ES module that loads the WGSL part, and a page that shows it."""

from __future__ import annotations

import html
import json
import os
from importlib.resources import files
from pathlib import Path

import vyre_py
from vyre_py.export.files import written
from vyre_py.export.names import commented, require_title, title_of
from vyre_py.export.web import described
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import f8e4m3, f8e5m2
from vyre_py.ir.public import public
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Part
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import SlotKind

__all__ = ["export_web"]

_MODULE = """\
// {title}: a Program that vyre-py {version} compiled to WGSL. See webgpu.js for how it is called.
import {{ Kernel }} from "./webgpu.js";

export const description = {description};

/** The Program, compiled for a GPUDevice, or for a new one. */
export async function load(options = {{}}) {{
  return Kernel.load(description, options);
}}

export default load;
"""


@public
def export_web(artifact: Artifact, folder: str | os.PathLike[str], *, name: str | None = None) -> tuple[Path, ...]:
    """Writes NAME.js, an ES module with the part of an artifact for the target "wgsl", webgpu.js, which runs it, and NAME.html, a page that shows it; gives the
    files' paths. A web server has to serve them: browsers load no modules from files.

    `load()` of the module gives a kernel, whose `dispatch` takes and gives typed arrays, and whose `bind` gives a launch. Arguments are checked as binding
    does in Python: a BindingError has all that does not fit. `name` is what the files are called; without it the Program's name, as an identifier.

    Raises Unsupported for an artifact without code for "wgsl", since what other WGSL targets have is wgpu's own; for a Program that asserts or prints, and
    one with params of 8-bit floats; DriverError where files can't be written.
    """
    if not isinstance(artifact, Artifact):
        raise Unsupported("export_web", [Missing(f"exporting {shown(artifact)}", help="it takes an Artifact, which compile_native gives")])
    part = _part(artifact)
    title = title_of(artifact.interface.name) if name is None else require_title(name, "export_web")
    shipped = {name: (files("vyre_py.export") / name).read_text("utf-8") for name in ("webgpu.js", "page.html")}
    description = json.dumps(described(artifact.interface, part), indent=1)
    page = shipped["page.html"].replace("@TITLE@", html.escape(artifact.interface.name)).replace("@FILE@", title)
    module = _MODULE.format(title=commented(artifact.interface.name), version=vyre_py.__version__, description=description)
    return written(Path(folder), {f"{title}.js": module, "webgpu.js": shipped["webgpu.js"], f"{title}.html": page})


def _part(artifact: Artifact) -> Part:
    found = next((part for part in artifact.parts if part.target.kind == "wgsl" and not part.target.features), None)
    if found is None:
        listed = ", ".join(artifact.targets) or "no target"
        raise Unsupported("export_web", [Missing(f"an artifact for {listed}", help="compile for the target 'wgsl', beside others if need be")])
    missing = []
    if any(step.layout.find(SlotKind.REPORT) is not None for step in found.steps):
        help_ = "nobody reads there what it tells: compile with asserts=False and print_bytes=0"
        missing.append(Missing("a Program that asserts or prints", help=help_))
    small = [p for p in artifact.interface.params if p.type.scalar in (f8e4m3, f8e5m2)]
    missing += [Missing(f"the param {p.name!r} of {p.type}", help="pass a wider float, and cast it") for p in small]
    if missing:
        raise Unsupported("export_web", missing)
    return found
