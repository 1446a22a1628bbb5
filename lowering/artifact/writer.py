"""From the interface and the parts of an artifact to sections of its file; the inverse of `reader`.

It refuses only what has no place in the file. A written file is read once by its writer, which makes certain that it can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from vyre_py.ir.imports import imported
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.nodes import Memory, Param
from vyre_py.ir.wire.codes import ACCESS_CODES, TYPE_NUMBERS
from vyre_py.ir.wire.flat import Fault
from vyre_py.ir.wire.intern import Strings
from vyre_py.ir.wire.record import DIGEST_BYTES, Malformed
from vyre_py.ir.wire.size_table import SizeTable
from vyre_py.lowering.artifact.form import (
    BUFFER,
    DIM,
    IMAGE_CODES,
    INTERFACE,
    MAX_FILE,
    NEEDS,
    PART,
    SLOT_CODES,
    STEP_FLAGS,
    VERSION,
    SectionForm,
    version_text,
)
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Entry, Image, Interface, Need, Part, Step
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.layout import Slot, SlotKind, element_count, totals_number

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["write_interface", "write_part"]

_WORD: Final = 0xFFFFFFFF
_FIGURE: Final = 1 << 63


class _Draft:
    """A section that grows: rows by table, strings and sizes once each, code."""

    def __init__(self, where: str, dims: Iterable[Dim]) -> None:
        self.where = where
        self.sizes = SizeTable({dim: number for number, dim in enumerate(dims)})
        self.rows: dict[str, list[tuple[int, ...]]] = {}
        self.strings = Strings()
        self.string = self.strings.add
        self.string("")
        self.code: list[bytes] = []

    def fault(self, message: str) -> ArtifactError:
        return ArtifactError(self.where, message)

    def row(self, table: str, *words: int) -> None:
        """Adds a row."""
        self.rows.setdefault(table, []).append(words)

    def blob(self, code: bytes) -> int:
        self.code.append(code)
        return len(code)

    def size(self, expr: DimExpr) -> int:
        """A size's row."""
        try:
            return self.sizes.add(expr)
        except KeyError as lost:
            raise self.fault(f"the interface has no dim {lost.args[0].name!r}") from None
        except (OverflowError, Fault) as error:
            raise self.fault(f"size {expr}: {error}") from None

    def numbers(self, figures: Mapping[str, int]) -> int:
        for name, value in figures.items():
            if not -_FIGURE <= value < _FIGURE:
                raise self.fault(f"{name!r} does not fit 64 bits")
            self.row("numbers", self.string(name), value & _WORD, value >> 32 & _WORD)
        return len(figures)

    def wide(self, names: frozenset[str], interface: Interface) -> int:
        numbers = {b.name: (BUFFER, k) for k, b in enumerate(interface.buffers)} | {d.name: (DIM, k) for k, d in enumerate(interface.dims)}
        if lost := sorted(names - numbers.keys()):
            raise self.fault(f"the interface has no buffer or dim {lost[0]!r}, which is wide")
        for row in sorted(numbers[name] for name in names):
            self.row("wide", *row)
        return len(names)

    def finish(self, form: SectionForm, version: tuple[int, int], head: Mapping[str, int]) -> bytes:
        """The section in a version. Raises ArtifactError for what that has no place for, and for numbers that do not fit."""
        texts = [text.encode("utf-8", "surrogatepass") for text in self.strings.rows]
        rows: dict[str, Sequence[tuple[int, ...]]] = {**self.rows, "strings": [(len(text),) for text in texts], "sizes": [*self.sizes.rows]}
        code = version[0] << 16 | version[1]
        shape = form.shapes[code]
        words = {**head, "version": code, "text_bytes": sum(map(len, texts)), "code_bytes": sum(map(len, self.code))}
        body: list[int] = []
        for name, width, _ in shape.tables:
            found = rows.pop(name, ())
            words[name] = len(found)
            for row in found:
                if any(row[width:]):
                    raise self.fault(f"a row of {name} has no place in format {version_text(version)}")
                body += row[:width]
        if any(rows.values()):
            raise self.fault(f"{', '.join(rows)} have no place in format {version_text(version)}")
        try:
            return shape.record.write(words, [struct.pack(f"<{len(body)}I", *body), *texts, *self.code])
        except struct.error:
            raise self.fault("a number in it does not fit 32 bits") from None
        except Malformed as bad:
            raise self.fault(str(bad)) from None


# ---------------------------------------------------------------- the interface


def write_interface(artifact: Artifact, version: tuple[int, int] = VERSION) -> bytes:
    """The section of the interface. Raises ArtifactError."""
    interface = artifact.interface
    draft = _Draft("interface", interface.dims)
    head = {"name": draft.string(interface.name), "doc": draft.string(interface.doc)}
    for dim in interface.dims:
        draft.row("dims", draft.string(dim.name))
    for param in interface.params:
        if param.part is not None:
            raise draft.fault(f"param {param.name!r} is a part of another: the Program was made for a target")
        draft.row("params", draft.string(param.name), TYPE_NUMBERS[param.type])
    for memory in interface.buffers:
        draft.row("buffers", draft.string(memory.name), TYPE_NUMBERS[memory.type], ACCESS_CODES[memory.access.value], memory.rank)
        for axis in memory.shape:
            draft.row("axes", draft.size(axis))
    draft.wide(interface.wide, interface)
    for name in sorted(artifact.capabilities):
        draft.row("capabilities", draft.string(name))
    for form in interface.reports:
        file, line, column = ("", 0, 0) if form.place is None else (form.place.file[-MAX_FILE:], form.place.line, form.place.column)
        draft.row("reports", int(form.asserts), draft.string(form.message), len(form.types), draft.string(file), line, column)
        for type_ in form.types:
            draft.row("values", TYPE_NUMBERS[type_])
    if len(artifact.code_digest) != DIGEST_BYTES or len(artifact.interface_digest) not in (0, DIGEST_BYTES):
        raise draft.fault(f"its digests have {len(artifact.code_digest)} and {len(artifact.interface_digest)} bytes, not {DIGEST_BYTES}")
    draft.blob(artifact.code_digest)
    draft.blob(artifact.interface_digest)
    return draft.finish(INTERFACE, version, head)


# ---------------------------------------------------------------- parts


def write_part(part: Part, interface: Interface, version: tuple[int, int] = VERSION) -> bytes:
    """The section of a part that was made for a Program of this interface. Raises ArtifactError."""
    draft = _Draft(f"part {part.target.name}", interface.dims)
    writer = _PartWriter(draft, interface)
    head = {"target": draft.string(part.target.name), "numerics": draft.string(part.numerics), "report": draft.numbers(part.report)}
    for name, value in part.made_by.items():
        draft.row("labels", draft.string(name), draft.string(value))
    for step in part.steps:
        writer.step(step)
    return draft.finish(PART, version, head)


class _PartWriter:
    """The steps of a part, over the numbers of the interface's declarations."""

    def __init__(self, draft: _Draft, interface: Interface) -> None:
        self.draft, self.interface = draft, interface
        self.buffers = {memory.name: number for number, memory in enumerate(interface.buffers)}
        self.params = {param.name: number for number, param in enumerate(interface.params)}

    def number(self, numbers: Mapping[str, int], name: str) -> int:
        if name not in numbers:
            raise self.draft.fault(f"the interface does not declare {name!r}")
        return numbers[name]

    def step(self, step: Step) -> None:
        draft = self.draft
        for slot in step.layout.slots:
            self.slot(slot)
        wide = draft.wide(step.layout.wide, self.interface)
        for image in step.images:
            self.image(image)
        for entry in step.entries:
            self.entry(entry, step.images)
        flags = sum(bit for name, bit in STEP_FLAGS.items() if getattr(step, name))
        draft.row(
            "steps", len(step.images), len(step.entries), len(step.layout.slots), wide, *step.workgroup, int(step.grid.over),
            *map(draft.size, step.grid.extents), step.workgroup_bytes, step.layout.size_bytes, flags,
        )  # fmt: skip

    def image(self, image: Image) -> None:
        draft, code, known, passes, names = self.draft, image.code, False, 0, 0
        if image.program is not None:
            if image.code:
                raise draft.fault("an image has a Program and other code")
            part = imported("vyre_py.lowering.artifact.reference_part")  # which brings all passes
            code, known = part.write_program(image.program)
            for step in image.program.report.steps:
                draft.row("passes", draft.string(step.name), step.before, step.after)
            for kind, number, name in part.own_names(image.program.program):
                draft.row("names", kind, number, draft.string(name))
                names += 1
            passes = len(image.program.report.steps)
        for symbol, figures in image.resources.items():
            draft.row("resources", draft.string(symbol), draft.numbers(figures))
        sizes = draft.blob(code), draft.blob(image.data)
        draft.row("images", IMAGE_CODES.get(image.format, 0), *sizes, int(known), passes, names, draft.string(image.log), len(image.resources))

    def entry(self, entry: Entry, images: Sequence[Image]) -> None:
        draft, symbol = self.draft, entry.symbol
        if any(image.program is not None for image in images):
            if symbol != self.interface.name:
                raise draft.fault(f"its entry {symbol!r} is not called as its Program")
            symbol = ""
        for need in entry.needs:
            self.need(need)
        draft.row("entries", draft.string(symbol), len(entry.needs), entry.elements, draft.numbers(entry.details))

    def need(self, need: Need) -> None:
        kind = NEEDS[type(need).__name__]
        if isinstance(need, Aligned):
            self.draft.row("needs", kind, self.number(self.buffers, need.buffer), need.size_bytes)
        else:
            self.draft.row("needs", kind, self.draft.size(need.expr), need.by if isinstance(need, Divisible) else need.most)

    def slot(self, slot: Slot) -> None:
        number = more = 0
        if slot.kind is SlotKind.REPORT and slot.memory is not None:
            number = element_count(slot.memory)
        elif slot.kind is SlotKind.TOTALS and slot.memory is not None:
            number, more = self.draft.size(slot.memory.shape[0]), totals_number(slot.name)
        elif slot.kind is SlotKind.BOXES and slot.memory is not None:
            number, more = self.number(self.buffers, slot.memory.name), len(slot.box)
            for extent in slot.box:
                self.draft.row("boxes", extent)
        elif slot.memory is not None:
            number = self.number(self.buffers, slot.memory.name)
            more = self.components(slot.memory, self.interface.buffers[number])
        elif slot.param is not None:
            number, more = self.param(slot.param)
        elif slot.expr is not None:
            number = self.draft.size(slot.expr)
        elif slot.axis is not None:
            number = slot.axis
        self.draft.row("slots", SLOT_CODES[slot.kind], TYPE_NUMBERS[slot.type], slot.offset_bytes, slot.size_bytes, number, more)

    def components(self, memory: Memory, declared: Memory) -> int:
        """The axes that a buffer has beyond those that were declared."""
        more = memory.shape[declared.rank :]
        axes = [axis.value for axis in more if isinstance(axis, DimConst)]
        if memory.shape[: declared.rank] != declared.shape or memory.access is not declared.access or len(axes) != len(more):
            raise self.draft.fault(f"buffer {memory.name!r} is not as it was declared")
        for axis in axes:
            self.draft.row("axes", axis)
        return len(axes)

    def param(self, param: Param) -> tuple[int, int]:
        """The number of the argument that a param stands for, and 1 for a part of it."""
        if param.part is None:
            return self.number(self.params, param.name), 0
        whole, begin = param.part
        if not param.name.startswith(whole):
            raise self.draft.fault(f"param {param.name!r} is not called after {whole!r}, which it is a part of")
        self.draft.row("parts", begin, self.draft.string(param.name[len(whole) :]))
        return self.number(self.params, whole), 1
