"""What is explored: the Programs of a file, or compiled code. A Python file is run, as `python FILE` runs it, and every Program is taken that a builder
finishes meanwhile, or that a variable of the file holds at its end."""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vyre_py.cli.output import CommandError
from vyre_py.cli.sources import label_of, read_source
from vyre_py.explore.document import CodeForm, Known, Shown, program_document
from vyre_py.explore.linked_text import linked, linked_program, linked_source
from vyre_py.ir.builder.common_builder import watched
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.errors import VyreError, printable, shown
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import annotate

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact
    from vyre_py.lowering.artifact.parts import Image

__all__ = ["Subject", "read_again", "subjects_of"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A Program with its text, or compiled code; and what was said while it was read."""

    name: str
    known: Known | None = None
    artifact: Artifact | None = None
    told: str = ""

    def document(self, known: Known) -> Shown:
        """What the page shows of it; `known` has the options, the targets, and whether it is to be quick."""
        if self.artifact is not None:
            return _compiled(self.artifact)
        assert self.known is not None  # one of the two is there
        return program_document(replace(known, text=self.known.text, program=self.known.program, python=self.known.python))


def subjects_of(file: str) -> list[Subject]:
    """What a file holds. Raises CommandError for a file that can't be read or builds no Program, ArtifactError for compiled code that is not whole, WireError
    for bytes that are no Program. Text that is no Program is a subject, too: the page says what is wrong with it."""
    if file.endswith(".py"):
        return _built(file)
    found = read_source(file)
    if isinstance(found, str):
        return [Subject(printable(Path(file).name if file != "-" else label_of(file)), Known(found))]
    if isinstance(found, Program):
        return [Subject(printable(found.name), Known(program=found))]
    return [Subject(printable(found.interface.name), artifact=found)]


def read_again(subjects: list[Subject], file: str) -> None:
    """Puts what a file holds now in place of what it held; where it cannot be read any more, that is said of the old ones."""
    try:
        subjects[:] = subjects_of(file)
    except VyreError as error:
        subjects[:] = [replace(subject, told=printable(str(error))) for subject in subjects]


def _built(file: str) -> list[Subject]:
    """The Programs that a Python file builds, each once. What ends the file early is said, unless nothing was built before."""
    text = read_source(file)
    if not isinstance(text, str):
        raise CommandError(f"{label_of(file)}: no Python text")
    path = os.path.realpath(file)
    programs: list[Program] = []
    told, arguments, folder = "", sys.argv, str(Path(path).parent)
    sys.argv = [path]
    sys.path.insert(0, folder)
    try:
        with watched(programs.append), redirect_stdout(sys.stderr):
            left = runpy.run_path(path, run_name="__main__")
        programs += [value for value in left.values() if isinstance(value, Program)]  # from bytes, text or arrays
    except SystemExit as error:
        told = f"{label_of(file)} ended itself: {error.code}" if error.code else ""
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file raises
        told = f"{label_of(file)} raised {type(error).__name__}: {shown(str(error))}"
    finally:
        sys.argv = arguments
        sys.path.remove(folder)
    if not programs:
        raise CommandError(told or f"{label_of(file)}: it builds no Program")
    return [Subject(printable(program.name), Known(program=program, python=(path, text)), told=printable(told)) for program in dict.fromkeys(programs)]


# ---------------------------------------------------------------- compiled code

# Format of an image -> the form that it is shown as: id and title.
_FORMS: Final = {"cubin": ("sass", "SASS"), "ptx": ("ptx", "PTX"), "wgsl": ("wgsl", "WGSL"), "program": ("vir", "optimised")}


def _compiled(artifact: Artifact) -> Shown:
    """The document of compiled code: what is in it, and the code as text. The lines that it comes from are those of a text that is not in it."""
    forms = [_image(image, part.target.name) for part in artifact.parts for step in part.steps for image in step.images]
    source = linked_source(artifact.describe())
    source["origins"] = [[] for _ in source["lines"]]
    return {
        "name": printable(artifact.interface.name), "source": source, "text": "", "python": [], "findings": [], "facts": None, "about": {}, "passes": [],
        "forms": forms, "kernels": [], "partial": False,
    }  # fmt: skip


def _image(image: Image, target: str) -> CodeForm:
    id_, title = _FORMS.get(image.format, ("asm", "assembly"))
    code, note = None, ""
    try:
        if image.format == "cubin":
            with importing:
                from vyre_py.lowering.llvm.gpu.machine_code.disassemble import disassemble

            code = linked(id_, disassemble(image.code, lines=True))
        elif image.format == "program":
            code = linked_program(image.program.program, annotate(image.program))
        elif image.format in _FORMS:
            code = linked(id_, image.code.decode("utf-8", "replace"))
        else:
            note = f"{len(image.code):,} bytes of machine code: nothing here reads an object"
    except VyreError as error:
        note = printable(str(error), "\n")
    return {"id": id_, "title": title, "target": target, "code": code, "note": note}
