"""Cards of compiled code for notebooks. They read what artifacts say of their code, and not the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.ir.text.lexer import written_name
from vyre_py.ir.text.notebook.cards import Cell, Markup, card, folded, size_text, table
from vyre_py.lowering.artifact.parts import Interface, Part, Step

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["artifact_html", "code_rows", "interface_table"]


def interface_table(interface: Interface) -> Markup:
    """What a caller binds."""
    rows = [("size", written_name(dim.name), "") for dim in interface.dims]
    rows += [("param", written_name(param.name), str(param.type)) for param in interface.params]
    for memory in interface.buffers:
        shape = f"{memory.type}[{', '.join(map(print_dim, memory.shape))}]"
        rows.append((f"buffer {memory.access.value}", written_name(memory.name), shape))
    return table(rows)


def _code(step: Step) -> Iterator[str]:
    for image in step.images:
        if image.program is not None:
            yield f"{len(image.program.program.body)} statements for the interpreter"
        else:
            yield f"{image.format} {size_text(len(image.code))}"


def _takes(part: Part) -> str:
    """What machine code takes, where its assembler said so."""
    report = part.report
    known = [(name, report[name]) for name in ("registers", "workgroup_bytes") if report.get(name)]
    spilled = report.get("spill_store_bytes", 0) + report.get("spill_load_bytes", 0)
    return ", ".join([*[f"{figure} {name.replace('_', ' ')}" for name, figure in known], *([f"{spilled} bytes of spills"] if spilled else [])])


def code_rows(part: Part) -> list[tuple[str, Cell]]:
    """One target's code, as the facts of a card."""
    workgroups = dict.fromkeys(" x ".join(map(str, step.workgroup)) for step in part.steps)
    return [
        ("target", part.target.name), ("numerics", part.numerics), ("code", "; ".join([", ".join(_code(step)) for step in part.steps])),
        ("workgroup", ", ".join(workgroups)), ("takes", _takes(part)),
    ]  # fmt: skip


def artifact_html(artifact: Artifact) -> str:
    """The interface, a row for each target, and all that `describe` says, folded."""
    parts = table([[fact for _, fact in code_rows(part)] for part in artifact.parts], ("target", "numerics", "code", "workgroup", "takes"))
    facts = [("needs", ", ".join(sorted(artifact.capabilities))), ("code digest", artifact.code_digest.hex()[:16])]
    about = interface_table(artifact.interface)
    return card("Artifact", written_name(artifact.interface.name), facts, about, parts, folded("all of it", artifact.describe()))
