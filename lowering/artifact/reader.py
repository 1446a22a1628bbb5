"""From sections of an artifact's file to the interface and parts.

A part is read over an interface. Declarations go by number, so a part serves every Program with the same code digest, whatever its names. Every row is
checked against the declarations, the tables of the form and the rows around it. Unknown content is refused, never skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from vyre_py.ir.check.facts import CAPABILITIES
from vyre_py.ir.check.limits import MAX_NAME, MAX_RANK, MAX_WORKGROUP, MAX_WORKGROUP_Z, SPACE_LIMITS_BYTES
from vyre_py.ir.imports import deferred, imported
from vyre_py.ir.language.dims import Dim, DimExpr, Grid
from vyre_py.ir.language.errors import Place, shown
from vyre_py.ir.language.nodes import REPORT_HEAD_WORDS, REPORT_MAX_WORDS, Memory, Param, Space
from vyre_py.ir.language.types import Type
from vyre_py.ir.wire.codes import ACCESSES, TYPES_BY_CODE
from vyre_py.ir.wire.record import DIGEST_BYTES
from vyre_py.lowering.artifact.form import (
    FORMATS,
    IMAGE_CODES,
    IN_STEPS,
    INTERFACE,
    MAX_STEPS,
    MAX_TARGET,
    NEEDS,
    NUMERICS,
    PART,
    STEP_FLAGS,
)
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Entry, Image, Interface, Need, Part, Step, Within
from vyre_py.lowering.artifact.section import Row, Section
from vyre_py.lowering.artifact.slots import read_slots
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.layout import Layout, SlotKind
from vyre_py.lowering.reports import Form
from vyre_py.lowering.target import Target, parse_target

if TYPE_CHECKING:
    from vyre_py.ir.text import messages
else:
    (messages,) = deferred("vyre_py.ir.text", "messages")

__all__ = ["read_interface", "read_part"]

_WORKGROUP_BYTES: Final = SPACE_LIMITS_BYTES[Space.WORKGROUP][1]
_FORMATS: Final = {code: name for name, code in IMAGE_CODES.items()}
_parsed: Final = lru_cache(maxsize=64)(parse_target)
_TEXTS: Final = frozenset({"ptx", "wgsl"})
_SYMBOL_CHARACTERS: Final = 1024
_ELEMENTS: Final = 1 << 16  # of an invocation
# The word of a step's flags -> what it says.
_FLAGS: Final = [{name: bool(word & bit) for name, bit in STEP_FLAGS.items()} for word in range(sum(STEP_FLAGS.values()) + 1)]

# ---------------------------------------------------------------- the interface


def read_interface(data: memoryview) -> tuple[Interface, frozenset[str], bytes, bytes]:
    """The interface, the capabilities, and the digests of code and interface. Raises ArtifactError."""
    section = Section(INTERFACE, data, "interface")
    head = section.head
    dims = tuple([Dim(section.string(name)) for (name,) in section.rest("dims")])
    sizes = section.sizes(dims)
    params = tuple([Param(section.string(name), _type(section, code)) for name, code in section.rest("params")])
    buffers = tuple([_buffer(section, row, sizes) for row in section.rest("buffers")])
    names = [*[d.name for d in dims], *[p.name for p in params], *[b.name for b in buffers]]
    wide = section.wide(section.left("wide"), buffers, dims)
    capabilities = [section.string(name) for (name,) in section.rest("capabilities")]
    if unknown := [name for name in capabilities if name not in CAPABILITIES]:
        raise section.fault(f"this vyre-py does not know the capability {shown(unknown[0])}")
    if capabilities != sorted(set(capabilities)):
        raise section.fault("the capabilities do not ascend")
    name = section.string(head["name"])
    if not all(names) or len(set(names)) != len(names) or max(map(len, [name, *names])) > MAX_NAME:
        raise section.fault(f"a name of a dim, param or buffer is empty, is there twice, or has more than {MAX_NAME} characters")
    reports = tuple([_form(section, row) for row in section.rest("reports")])
    digests = section.cut(head["code_bytes"])
    if len(digests) not in (DIGEST_BYTES, 2 * DIGEST_BYTES):
        raise section.fault(f"its digests have {len(digests)} bytes, one or two of {DIGEST_BYTES} are expected")
    section.finish()
    interface = Interface(name, dims, params, buffers, wide, section.text(head["doc"]), reports)
    return interface, frozenset(capabilities), digests[:DIGEST_BYTES], digests[DIGEST_BYTES:]


def _type(section: Section, code: int) -> Type:
    type_ = TYPES_BY_CODE.get(code)
    if type_ is None:
        raise section.fault(f"this vyre-py does not know the type {code}")
    return type_


def _buffer(section: Section, row: Row, sizes: Sequence[DimExpr]) -> Memory:
    name, type_, access, rank = row
    if access not in ACCESSES:
        raise section.fault(f"this vyre-py does not know the access {access}")
    if not 1 <= rank <= MAX_RANK:
        raise section.fault(f"a buffer has {rank} axes; it has 1 to {MAX_RANK}")
    shape = tuple([section.size(sizes, size) for (size,) in section.take("axes", rank)])
    return Memory(section.string(name), Space.BUFFER, _type(section, type_), shape, ACCESSES[access])


def _form(section: Section, row: Row) -> Form:
    asserts, text, values, file, line, column = row
    if asserts > 1:
        raise section.fault(f"this vyre-py does not know the report {asserts}")
    types = tuple([_type(section, code) for (code,) in section.take("values", values)])
    message, where = section.string(text), section.string(file)
    form = Form(bool(asserts), message, types, Place(where, line, column) if where else None)
    specs = messages.formats(message) or ()
    fits = len(specs) == len(types) and messages.formats(message) is not None and not any(map(messages.format_fault, specs, types))
    if len(message) > MAX_NAME or not fits or form.words > REPORT_HEAD_WORDS + REPORT_MAX_WORDS:
        raise section.fault(f"the message {shown(message)} is too long, or not one of {len(types)} values that a report holds")
    return form


# ---------------------------------------------------------------- parts


def read_part(data: memoryview, interface: Interface, where: str = "part") -> Part:
    """A part for a Program of this interface. Raises ArtifactError, which names it by `where`, and by its target where that is known."""
    section = Section(PART, data, where)
    head = section.head
    target = _target(section, section.string(head["target"]))
    section.where = f"part {target.name}"
    numerics = section.string(head["numerics"])
    if numerics not in NUMERICS:
        raise section.fault(f"this vyre-py does not know the numerics {shown(numerics)}")
    sizes = section.sizes(interface.dims)
    labels = section.rest("labels")
    made_by = {section.string(name): section.string(value) for name, value in labels}
    if len(made_by) != len(labels):
        raise section.fault("two labels have one name")
    report = section.numbers(head["report"])
    rows = section.rest("steps")
    most = MAX_STEPS if target.kind in IN_STEPS else 1
    if not 1 <= len(rows) <= most:
        raise section.fault(f"{len(rows)} steps; this vyre-py runs parts of {most} at most for {target.kind}")
    steps = tuple([_step(section, row, interface, sizes, target) for row in rows])
    section.finish()
    return Part(target, steps, numerics, report, made_by=made_by)


def _target(section: Section, name: str) -> Target:
    if len(name) > MAX_TARGET:
        raise section.fault(f"a target is named in {MAX_TARGET} characters at most")
    try:
        target = _parsed(name)
    except Unsupported:
        raise section.fault(f"this vyre-py does not know the target {shown(name)}") from None
    if target.name != name:
        raise section.fault(f"target {shown(name)} is written {target.name}")
    return target


def _step(section: Section, row: Row, interface: Interface, sizes: Sequence[DimExpr], target: Target) -> Step:
    images, entries, slots, wide, x, y, z, over, grid_x, grid_y, grid_z, workgroup_bytes, block_bytes, flags = row
    if not (x and y and z) or z > MAX_WORKGROUP_Z or x * y * z > MAX_WORKGROUP:
        raise section.fault(f"a workgroup of {x} x {y} x {z}")
    if workgroup_bytes > _WORKGROUP_BYTES:
        raise section.fault(f"{workgroup_bytes} bytes of workgroup memory; at most {_WORKGROUP_BYTES} are there")
    if over > 1 or flags >= len(_FLAGS):
        raise section.fault(f"this vyre-py does not know its grid or its flags, {over} and {flags}")
    extents = section.size(sizes, grid_x), section.size(sizes, grid_y), section.size(sizes, grid_z)
    made, end = read_slots(section, section.take("slots", slots), interface, sizes)
    if end != block_bytes:
        raise section.fault(f"its slots take {end} bytes, its argument block has {block_bytes}")
    layout = Layout(made, block_bytes, section.wide(wide, interface.buffers, interface.dims))
    set_flags = _FLAGS[flags]
    found = _images(section, section.take("images", images), target, layout, interface)
    functions = _entries(section, section.take("entries", entries), interface, sizes, found[0])
    if not over and any(entry.elements > 1 for entry in functions):
        raise section.fault("an entry works on several elements at once, and the grid counts workgroups")
    step = Step(found, functions, layout, (x, y, z), Grid(bool(over), extents), workgroup_bytes, **set_flags)
    if any(x * (y + entry.rows_beside) * z > MAX_WORKGROUP for entry in functions):
        raise section.fault(f"an entry has more than {MAX_WORKGROUP} invocations a workgroup")
    kinds = [slot.kind for slot in made]
    for flag, needed, kind in (("cooperative", step.cooperative, SlotKind.ARRIVALS), ("persistent or walking", step.has_groups, SlotKind.GROUPS)):
        if needed != (kind in kinds):
            raise section.fault(f"a {flag} step has a slot of kind {kind.value}, and no other step has one")
    if step.indirect and not (step.persistent and target.kind == "ptx"):
        raise section.fault("a step that reads its grid is a persistent one for NVIDIA GPUs")
    if found[0].program is not None:
        _reference_part().check_program(section, step)
    return step


def _reference_part() -> Any:
    """The module for Programs in parts. It brings all passes, which reading compiled code must not wait for."""
    return imported("vyre_py.lowering.artifact.reference_part")


def _images(section: Section, rows: Sequence[Row], target: Target, layout: Layout, interface: Interface) -> tuple[Image, ...]:
    made: list[Image] = []
    for number, (code, code_bytes, data_bytes, proven, passes, names, log, resources) in enumerate(rows):
        name = _FORMATS.get(code, "")
        if name not in FORMATS[target.kind] or (made and any(image.format == name for image in made)):
            raise section.fault(f"image {number} is of format {code}, none that this vyre-py knows for this target, or there already")
        if not code_bytes or (name != "program" and (proven or passes or names)):
            raise section.fault(f"image {number} has no code, or what only a Program has")
        text, data = section.cut(code_bytes), section.cut(data_bytes)
        takes = {section.string(symbol): section.numbers(count) for symbol, count in section.take("resources", resources)} if resources else {}
        if len(takes) != resources:
            raise section.fault(f"image {number} has the resources of a function twice")
        said = section.text(log)
        if name == "program":
            made.append(Image(name, b"", data, _reference_part().read_program(section, text, (proven, passes, names), layout, interface), said, takes))
        else:
            if name in _TEXTS and not _is_text(text):
                raise section.fault(f"image {number} is not text in UTF-8")
            made.append(Image(name, text, data, None, said, takes))
    if not made:
        raise section.fault("a step has no image")
    return tuple(made)


def _is_text(code: bytes) -> bool:
    if b"\0" in code:
        return False
    try:
        code.decode()
    except UnicodeDecodeError:
        return False
    return True


def _entries(section: Section, rows: Sequence[Row], interface: Interface, sizes: Sequence[DimExpr], image: Image) -> tuple[Entry, ...]:
    made: list[Entry] = []
    own_name = image.program is not None  # a Program is called as the interface says
    for number, (name, needs, elements, details) in enumerate(rows):
        symbol = section.string(name)
        if own_name != (not symbol) or not (symbol.isascii() and len(symbol) <= _SYMBOL_CHARACTERS and "\0" not in symbol):
            raise section.fault(f"entry {number} has no symbol that code has, {shown(symbol)}")
        if not 1 <= elements <= _ELEMENTS:
            raise section.fault(f"entry {number} works on {elements} elements at once")
        found = tuple([_need(section, row, interface, sizes) for row in section.take("needs", needs)])
        made.append(Entry(interface.name if own_name else symbol, found, elements, section.numbers(details)))
    if not made or made[-1].needs or made[-1].elements != 1:
        raise section.fault("a step's last entry has to take any arguments, and work on one element at once")
    if own_name and len(made) > 1:
        raise section.fault("a Program is one entry")
    return tuple(made)


def _need(section: Section, row: Row, interface: Interface, sizes: Sequence[DimExpr]) -> Need:
    kind, number, by = row
    if not by:
        raise section.fault("a need of a multiple of 0, or of sizes up to 0")
    if kind == NEEDS["Aligned"]:
        if number >= len(interface.buffers):
            raise section.fault(f"a need of buffer {number} of {len(interface.buffers)}")
        return Aligned(interface.buffers[number].name, by)
    if kind == NEEDS["Divisible"]:
        return Divisible(section.size(sizes, number), by)
    if kind == NEEDS["Within"]:
        return Within(section.size(sizes, number), by)
    raise section.fault(f"this vyre-py does not know needs of kind {kind}")
