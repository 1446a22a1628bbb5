"""The content of an artifact, as text for people. Names and texts in it are untrusted, so they are shown escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from vyre_py.ir.language.errors import shown
from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.ir.text.lexer import written_name
from vyre_py.lowering.artifact.form import STEP_FLAGS
from vyre_py.lowering.artifact.parts import Aligned, Entry, Image, Need, Part, Step, Within

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["describe", "need_text"]

_KIB: Final = 1 << 10


def describe(artifact: Artifact) -> str:
    """The interface, then for each target its formats with their sizes, its entries with what they need, what functions take, and what made it."""
    return "\n".join([*_interface(artifact), *[line for part in artifact.parts for line in _part(part)]])


def _plain(text: str) -> str:
    """A text in one line, without what would move a terminal's cursor."""
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])


def _bytes(count: int) -> str:
    return f"{count} bytes" if count < 10 * _KIB else f"{count / _KIB:.1f} KiB"


def _interface(artifact: Artifact) -> Iterator[str]:
    interface = artifact.interface
    yield f"artifact {shown(interface.name)} for {', '.join(artifact.targets) or 'no target'}; code {artifact.code_digest.hex()[:16]}"
    if interface.doc:
        yield f"  {_plain(interface.doc)}"
    for dim in interface.dims:
        yield f"  dim {written_name(dim.name)}"
    for param in interface.params:
        yield f"  param {written_name(param.name)}: {param.type}"
    for memory in interface.buffers:
        yield f"  buffer {written_name(memory.name)}: {memory.type}[{', '.join(map(print_dim, memory.shape))}] {memory.access.value}"
    if artifact.capabilities:
        yield f"  needs {', '.join(sorted(artifact.capabilities))}"


def _part(part: Part) -> Iterator[str]:
    yield f"{part.target.name}: {part.numerics}"
    if part.made_by:
        yield "  made by " + ", ".join([f"{_plain(name)} {_plain(value)}" for name, value in part.made_by.items()])
    for step in part.steps:
        yield f"  {_step(step)}"
        yield from (line for image in step.images for line in _image(image, step))
        yield from map(_entry, step.entries)


def _step(step: Step) -> str:
    count = "invocations" if step.grid.over else "workgroups"
    said = [f"workgroup {' x '.join(map(str, step.workgroup))}", f"{' x '.join(map(print_dim, step.grid.extents))} {count}"]
    said += [f"{_bytes(step.workgroup_bytes)} of workgroup memory"] if step.workgroup_bytes else []
    said += [f"{step.layout.size_bytes} bytes of arguments", *[name for name in STEP_FLAGS if getattr(step, name)]]
    return ", ".join(said)


def _figures(figures: Mapping[str, int]) -> str:
    return ", ".join([f"{_plain(name)} {value}" for name, value in figures.items()])


def _image(image: Image, step: Step) -> Iterator[str]:
    if image.program is not None:
        yield f"  {image.format}: {len(image.program.program.body)} statements"
        return
    yield f"  {image.format}: {_bytes(len(image.code))}" + (f" and {_bytes(len(image.data))} of tables" if image.data else "")
    for symbol, figures in step.takes(image).items():
        yield f"    {_plain(symbol)} takes {_figures(figures) or 'nothing that is known'}"


def need_text(need: Need) -> str:
    """What must hold of the arguments, in words."""
    if isinstance(need, Aligned):
        return f"{written_name(need.buffer)} on a multiple of {need.size_bytes} bytes"
    if isinstance(need, Within):
        return f"{print_dim(need.expr)} from 1 to {need.most}"
    return f"{print_dim(need.expr)} a multiple of {need.by}"


def _entry(entry: Entry) -> str:
    said = f"  entry {_plain(entry.symbol)}: {' and '.join(map(need_text, entry.needs)) or 'any arguments'}"
    said += f"; {entry.elements} elements an invocation" if entry.elements != 1 else ""
    return said + (f"; {_figures(entry.details)}" if entry.details else "")
