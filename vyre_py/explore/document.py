"""What the page shows of a Program, as one document of JSON's types: its text, what is wrong with it, its facts, each pass, and its code for each target, with
the lines that belong together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypedDict

from vyre_py.explore.about_lines import About, IndexCheck, index_checks, levels, line_of
from vyre_py.explore.linked_text import Linked, linked, linked_program, linked_source
from vyre_py.explore.occupancy import Occupancy, occupancy_of
from vyre_py.explore.python_files import python_files
from vyre_py.ir.check import Checked, check
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.errors import Diagnostic, ProgramError, VyreError, printable
from vyre_py.ir.language.nodes import Memory, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, PassStep, annotate
from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.compile import lower_step, prepare_steps, step_of, text_of
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target, parse_target

__all__ = ["TARGETS", "CodeForm", "Known", "Pass", "Shown", "program_document"]

# The targets that are shown, unless others are named.
TARGETS: Final = ("sm_90", "wgsl", "cpu")
_FILE: Final = "program.vir"
_MAX_CHECKS: Final = 300  # of indices, that are listed for a target
_MAX_DIFFED: Final = 1500  # lines; longer texts are shown without what changed
_UNNAMED: Final = re.compile(r"\b[vt]\d+\b")


class PlacedFinding(TypedDict):
    """A finding at its place in the text; line 0 where it has none."""

    code: str
    message: str
    help: str
    line: int
    column: int
    width: int
    severity: str


class CodeForm(TypedDict):
    """Code of one form for one target, or `note`, why there is none."""

    id: str
    title: str
    target: str
    code: Linked | None
    note: str


class Pass(TypedDict):
    """A pass: statements before and after, its time, and the rows of the text after it: "+" came, "-" went, " " stayed, each with the lines of the source."""

    name: str
    before: int
    after: int
    elapsed_ns: int
    rows: list[tuple[str, str, list[int]]]
    note: str


class Passes(TypedDict):
    """The passes for a target, and the index checks that were kept and proven."""

    target: str
    steps: list[Pass]
    kept: int
    proven: int
    checks: list[IndexCheck]


class Kernel(TypedDict):
    """What a kernel takes on an NVIDIA GPU."""

    symbol: str
    target: str
    figures: dict[str, int]
    occupancy: Occupancy | None


class Facts(TypedDict):
    """The Program's declarations and shape, for people."""

    doc: str
    workgroup: list[int]
    subgroup: int
    tiles: bool
    over: bool
    extents: list[str]
    dims: list[str]
    params: list[tuple[str, str]]
    memories: list[dict[str, Any]]
    statements: int
    capabilities: list[str]


class Shown(TypedDict):
    """A Program on the page. Without `facts` it breaks a rule, and the findings say which. `partial` says that a document that was asked for quickly lacks what
    a whole one has."""

    name: str
    source: Linked
    text: str
    python: list[CodeForm]
    findings: list[PlacedFinding]
    facts: Facts | None
    about: dict[str, About]
    passes: list[Passes]
    forms: list[CodeForm]
    kernels: list[Kernel]
    partial: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What is to be shown: a Program's text, or a Program that has none, with the Python file that built it, if one did; the options of its code, and the
    targets."""

    text: str | None = None
    program: Program | None = None
    python: tuple[str, str] | None = None  # the file's name as places have it, and its text
    options: CompileOptions = CompileOptions()
    targets: tuple[str, ...] = TARGETS
    quick: bool = False  # without machine code as text, which another program has to read


def program_document(known: Known) -> Shown:
    """The document of a Program. A Program that breaks a rule has one, too, with its findings; what a target does not take is a note there."""
    text = known.text if known.text is not None else print_program(known.program) if known.program is not None else ""
    shown: Shown = {
        "name": "", "source": linked_source(text), "text": text, "python": [], "findings": [], "facts": None, "about": {}, "passes": [], "forms": [],
        "kernels": [], "partial": False,
    }  # fmt: skip
    try:
        program = Program.from_text(text, _FILE)
        shown["name"] = printable(program.name)
        checked = check(program)
    except ProgramError as error:
        shown["findings"] = [_finding(diagnostic, "error") for diagnostic in error.diagnostics]
        return shown
    shown["findings"] = [_finding(diagnostic, "warning") for diagnostic in checked.warnings]
    shown["facts"] = _facts(checked)
    shown["about"] = dict(levels(checked))
    if known.program is not None and known.python is not None:
        shown["python"] = [
            {"id": "python", "title": title, "target": "", "code": code, "note": ""} for title, code in python_files(known.program, program, *known.python)
        ]
    for name in known.targets:
        _add_target(shown, checked, parse_target(name), known)
    return shown


def _finding(diagnostic: Diagnostic, severity: str) -> PlacedFinding:
    place = diagnostic.place
    line, column, width = (place.line, place.column, place.width) if place is not None else (0, 0, 0)
    return {
        "code": diagnostic.code, "message": printable(diagnostic.message), "help": printable(diagnostic.help), "line": line, "column": column,
        "width": width, "severity": severity,
    }  # fmt: skip


# ---------------------------------------------------------------- what is known without a target


def _facts(checked: Checked) -> Facts:
    program = checked.program
    memories = [
        {
            "name": printable(m.name), "space": m.space.value, "type": str(m.type), "shape": [print_dim(extent) for extent in m.shape],
            "access": m.access.value if m.space is Space.BUFFER else "", "size_bytes": _size_bytes(m),
        }
        for m in program.memories
    ]  # fmt: skip
    return {
        "doc": printable(program.doc), "workgroup": list(program.workgroup), "subgroup": program.subgroup, "tiles": program.of_tiles,
        "over": program.grid.over, "extents": [print_dim(extent) for extent in program.grid.extents], "dims": [printable(d.name) for d in program.dims],
        "params": [(printable(p.name), str(p.type)) for p in program.params], "memories": memories, "statements": len(program.body),
        "capabilities": sorted(checked.capabilities),
    }  # fmt: skip


def _size_bytes(memory: Memory) -> int | None:
    """The bytes of a memory; None where its shape has sizes that are not known."""
    extents = [extent.value for extent in memory.shape if isinstance(extent, DimConst)]
    return prod(extents) * memory.type.size_bytes if len(extents) == memory.rank else None


# ---------------------------------------------------------------- passes


class _Watched:
    """Takes passes up as they run, with their texts."""

    def __init__(self) -> None:
        self.steps: list[Pass] = []
        self._texts: dict[int, tuple[Program, Linked]] = {}

    def _text(self, program: Program) -> Linked:
        if id(program) not in self._texts:
            self._texts[id(program)] = program, linked_program(program)  # the Program is kept, so that no other has its id
        return self._texts[id(program)][1]

    def __call__(self, step: PassStep, before: Program, after: Program) -> None:
        made: Pass = {"name": step.name, "before": step.before, "after": step.after, "elapsed_ns": step.end_ns - step.begin_ns, "rows": [], "note": ""}
        if after is before:
            made["note"] = "nothing changed"
        else:
            made["rows"], made["note"] = _changes(self._text(before), self._text(after))
        self.steps.append(made)


def _changes(before: Linked, after: Linked) -> tuple[list[tuple[str, str, list[int]]], str]:
    """The rows of the text after a pass, with those that it took away; where values have other numbers and nothing else, nothing changed."""
    rows = [list(zip(code["lines"], code["origins"], strict=True)) for code in (before, after)]
    if max(map(len, rows)) > _MAX_DIFFED or before["more"] or after["more"]:
        return [(" ", *row) for row in rows[1]], f"of more than {_MAX_DIFFED} lines it is not said which changed"
    old, new = [[_UNNAMED.sub("v", line) for line, _ in side] for side in rows]
    found: list[tuple[str, str, list[int]]] = []
    for tag, from_, to, start, stop in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found += [("-", *row) for row in rows[0][from_:to]]
        found += [(" " if tag == "equal" else "+", *row) for row in rows[1][start:stop]]
    return found, ""


# ---------------------------------------------------------------- targets


def _add_target(shown: Shown, checked: Checked, target: Target, known: Known) -> None:
    """Adds what a target makes of the Program. What it lacks is said in the place of its code."""
    watched, options = _Watched(), known.options
    forms = _FORMS[target.kind]
    try:
        steps = prepare_steps(checked, target, options, watched)
    except (VyreError, RecursionError) as error:
        shown["forms"] += [_form(id_, title, target, error) for id_, title, _ in forms]
        return
    checks = index_checks(shown["about"], steps, target)
    kept, proven = sum(step.report.checks_kept for step in steps), sum(step.report.checks_removed for step in steps)
    shown["passes"].append({"target": target.name, "steps": watched.steps, "kept": kept, "proven": proven, "checks": checks[:_MAX_CHECKS]})
    made = _Made(target, steps, known)
    for id_, title, make in forms:
        try:
            shown["forms"].append(_form(id_, title, target, make(made)))
        except (VyreError, RecursionError) as error:
            shown["forms"].append(_form(id_, title, target, error))
    shown["kernels"] += made.kernels
    shown["partial"] |= made.partial


def _form(id_: str, title: str, target: Target, made: Linked | Exception) -> CodeForm:
    code, note = (None, printable(str(made), "\n")) if isinstance(made, Exception) else (made, "")
    return {"id": id_, "title": title, "target": target.name, "code": code, "note": note}


class _Made:
    """The code of a target, each piece made once."""

    def __init__(self, target: Target, steps: Sequence[Optimised], known: Known) -> None:
        self.target, self.steps, self.quick = target, steps, known.quick
        self.options = replace(known.options, debug=True)
        self.kernels: list[Kernel] = []
        self.partial = False
        self._lowered: list[Lowered] = []
        self._refusal: Unsupported | None = None

    def program(self) -> Linked:
        """The Programs that reach the emitter, with what is known of each access."""
        texts = [linked_program(step.program, annotate(step, line_of)) for step in self.steps]
        return {
            "lines": [line for text in texts for line in text["lines"]], "origins": [origin for text in texts for origin in text["origins"]],
            "more": sum(text["more"] for text in texts),
        }  # fmt: skip

    def lowered(self) -> list[Lowered]:
        """What `lower` gives, with machine code where there is what makes it."""
        if not self._lowered:
            plain = replace(self.target, cubin=False)
            try:
                self._lowered = [lower_step(step, self.target, self.options) for step in self.steps]
            except Unsupported as error:
                if plain == self.target:
                    raise
                self._refusal, self._lowered = error, [lower_step(step, plain, self.options) for step in self.steps]
            self.kernels += [kernel for step, lowered in zip(self.steps, self._lowered, strict=True) for kernel in self._kernels(step, lowered)]
        return self._lowered

    def _kernels(self, step: Optimised, lowered: Lowered) -> Iterator[Kernel]:
        kept = step_of(step, lowered, self.options)
        for symbol, figures in kept.takes(lowered.images[0]).items():
            if "registers" in figures:
                held = occupancy_of(self.target.arch, kept.workgroup, figures["registers"], figures.get("workgroup_bytes", 0))
                yield {"symbol": printable(symbol), "target": self.target.name, "figures": figures, "occupancy": held}

    def text(self, form: str) -> Linked:
        """The emitted text, in one form."""
        if form in ("ptx", "wgsl") or (form, self.target.kind) == ("llvm", "host"):
            return linked(form, "\n".join([lowered.text for lowered in self.lowered()]))
        return linked(form, text_of(self.steps, replace(self.target, cubin=False), self.options, form))

    def sass(self) -> Linked:
        """Machine code of an NVIDIA GPU as text. Raises Unsupported where there is none, or nothing that reads it."""
        with importing:
            from vyre_py.lowering.llvm.gpu.machine_code.disassemble import disassemble

        lowered = self.lowered()
        if self._refusal is not None:
            raise self._refusal
        codes = [image.code for one in lowered for image in one.images if image.format == "cubin"]
        if not codes:
            raise Unsupported(self.target.name, ["machine code: name a target such as sm_90"])
        if self.quick:
            self.partial = True
            raise Unsupported("a quick look", ["disassembly"])
        return linked("sass", "\n".join([disassemble(code, lines=True) for code in codes]))


# Kind of target -> its forms: id, title, and what makes it.
_FORMS: Final[Mapping[str, tuple[tuple[str, str, Callable[[_Made], Linked]], ...]]] = {
    "ptx": (
        ("vir", "optimised", _Made.program), ("llvm", "LLVM IR", lambda made: made.text("llvm")), ("ptx", "PTX", lambda made: made.text("ptx")),
        ("sass", "SASS", _Made.sass),
    ),
    "wgsl": (("vir", "optimised", _Made.program), ("wgsl", "WGSL", lambda made: made.text("wgsl"))),
    "host": (
        ("vir", "optimised", _Made.program), ("llvm", "LLVM IR", lambda made: made.text("llvm")), ("asm", "assembly", lambda made: made.text("asm")),
    ),
    "reference": (("vir", "optimised", _Made.program),),
}  # fmt: skip
