"""The Program in a part of the reference target: in the wire form, so a hostile one is as safe as any untrusted Program.

Nothing that memory safety depends on is trusted: when it is read, the Program is checked, its argument layout computed, and the facts about bounds and
workgroup arrays proven anew. The names of dims, params and buffers are those of the interface that it is read for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vyre_py.ir.check import check
from vyre_py.ir.check.limits import MAX_NAME
from vyre_py.ir.functions.called import signature_of
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.errors import ProgramError, WireError
from vyre_py.ir.language.nodes import Let, Memory, Param, Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.passes import Optimised, PassReport, PassStep
from vyre_py.ir.passes.bounds.prove import axis_checks, bounds
from vyre_py.ir.passes.written import written_first
from vyre_py.lowering.artifact.form import OWN_ARRAY, OWN_VALUE, OWN_VARIABLE
from vyre_py.lowering.artifact.parts import Interface, Step
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.layout import Layout, SlotKind, invocations_of, lay_out

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.section import Section

__all__ = ["check_program", "own_names", "read_program", "write_program"]


class _Renaming:
    """A Program over other declarations: new dims, params and memories in place of its own."""

    def __init__(self, program: Program, dims: Sequence[Dim], params: Sequence[Param], memories: Sequence[Memory]) -> None:
        self.program = program
        self.dims = dict(zip(program.dims, dims, strict=True))
        self.params = dict(zip(program.params, params, strict=True))
        self.memories = dict(zip(program.memories, memories, strict=True))
        self.known: dict[DimExpr, DimExpr] = {}

    def size(self, expr: DimExpr) -> DimExpr:
        """A size over the new dims; recursion is bounded by the terms that it may have."""
        made = self.known.get(expr)
        if made is None:
            if isinstance(expr, DimOp):
                made = DimOp(expr.op, self.size(expr.left), self.size(expr.right))
            else:
                made = self.dims[expr] if isinstance(expr, Dim) else expr
            self.known[expr] = made
        return made

    def part(self, thing: Any) -> Any:
        """An operand, or what a statement holds beside them."""
        if isinstance(thing, (Dim, DimConst, DimOp)):
            return self.size(thing)
        if isinstance(thing, Param):
            return self.params[thing]
        return self.memories[thing] if isinstance(thing, Memory) else thing

    def run(self) -> Program:
        """The Program, with the values, variables and names that it has."""
        p, part = self.program, self.part
        body = [type(s)(s.result, tuple([part(a) for a in s.args]), *[part(getattr(s, name)) for name in s.payload]) for s in p.body]
        x, y, z = p.grid.extents
        grid = replace(p.grid, extents=(self.size(x), self.size(y), self.size(z)))
        return replace(
            p, dims=tuple(self.dims.values()), params=tuple(self.params.values()), memories=tuple(self.memories.values()), grid=grid, body=tuple(body),
            places=(), declared={},
        )  # fmt: skip


def _fits(name: str) -> bool:
    """Whether a name fits the wire form. Names in a target's Program may be longer than those of users."""
    return len(name) <= MAX_NAME and not any("\ud800" <= c <= "\udfff" for c in name)


def _fitting(names: Mapping[int, str], fits: bool = True) -> dict[int, str]:
    return {number: name for number, name in sorted(names.items()) if _fits(name) is fits}


def _anonymous(program: Program) -> Program:
    """The Program with numbers for the names of itself and of what it declares."""
    dims = [Dim(f"d{k}") for k in range(len(program.dims))]
    params = [Param(f"p{k}", param.type) for k, param in enumerate(program.params)]  # which argument each is a part of, the slots say
    size = _Renaming(program, dims, params, program.memories).size
    memories = [replace(memory, name=f"m{k}", shape=tuple(map(size, memory.shape))) for k, memory in enumerate(program.memories)]
    names, variables = _fitting(program.value_names), _fitting(program.variable_names)
    return replace(_Renaming(program, dims, params, memories).run(), name="p", doc="", value_names=names, variable_names=variables)


def own_names(program: Program) -> Iterator[tuple[int, int, str]]:
    """Kind, number and name of what a Program calls its own, ascending, where neither the interface nor the wire form says it."""
    yield from ((OWN_ARRAY, number, memory.name) for number, memory in enumerate(_own_arrays(program)))
    yield from ((OWN_VALUE, *named) for named in _fitting(program.value_names, False).items())
    yield from ((OWN_VARIABLE, *named) for named in _fitting(program.variable_names, False).items())


def _own_arrays(program: Program) -> list[Memory]:
    return [memory for memory in program.memories if memory.space is not Space.BUFFER]


def write_program(optimised: Optimised) -> tuple[bytes, bool]:
    """The wire form of a Program, and whether facts about bounds belong to it. Raises ArtifactError for what cannot be said there."""
    program = optimised.program
    known = any(optimised.proven)
    if known and optimised.proven != bounds(program):
        raise ArtifactError("part reference", "the facts about bounds are not those of its Program")
    try:
        return _anonymous(program).to_bytes(), known
    except WireError as error:
        raise ArtifactError("part reference", f"its Program cannot be written: {error}") from None


def read_program(section: Section, data: bytes, said: tuple[int, int, int], layout: Layout, interface: Interface) -> Optimised:
    """A Program that is ready to run over an interface, from its wire form. `said` is 1 where facts about bounds belong to it, and how many rows are about
    what was done to it and about names. Raises ArtifactError for one that breaks a rule, or that has other arguments."""
    proven, passes, names = said
    steps = tuple([PassStep(section.string(name), before, after) for name, before, after in section.take("passes", passes)])
    if proven > 1:
        raise section.fault(f"{proven} where 0 or 1 says whether bounds were proven")
    try:
        # Checked as it was written, since names mean nothing; the interface's are held against its rules where that is read.
        checked = check(Program.from_bytes(data))
    except ProgramError as error:
        raise section.fault(f"its Program: {error}") from error
    if any(isinstance(s, Let) and s.op.evaluate is None and not s.op.is_query and signature_of(s) is None for s in checked.program.body):
        raise section.fault("its Program has ops that are yet to be expanded")
    program = _declared(section, checked.program, _names(section, checked.program, names), layout, interface)
    facts = bounds(program) if proven else (0,) * len(program.body)
    removed = sum([bits.bit_count() for bits in facts])
    arrays = written_first(program, checked.uniformity) if proven else frozenset()
    return Optimised(program, checked.uniformity, facts, PassReport(steps, axis_checks(program) - removed, removed), arrays)


def check_program(section: Section, step: Step) -> None:
    """Raises ArtifactError unless the Program of a step is the one that the step describes."""
    program = step.images[0].program.program
    if lay_out(program) != step.layout or (invocations_of(program), program.grid) != (step.workgroup, step.grid):
        raise section.fault("its Program has another argument block, workgroup or grid than its step")


_Names = tuple[dict[int, str], dict[int, str], dict[int, str]]


def _names(section: Section, program: Program, count: int) -> _Names:
    """The names of own arrays, values and variables by number."""
    made: _Names = ({}, dict(program.value_names), dict(program.variable_names))
    limits = len(_own_arrays(program)), program.value_count, program.variable_count
    last: tuple[int, ...] = ()
    for row in section.take("names", count):
        kind, number, name = row
        if kind > OWN_VARIABLE or number >= limits[kind] or row[:2] <= last:
            raise section.fault("a row of names is for nothing in its Program, or does not come after the one before it")
        made[kind][number] = section.string(name)
        last = row[:2]
    arrays = made[OWN_ARRAY].values()
    if len(set(arrays)) != limits[OWN_ARRAY] or not all(0 < len(name) <= MAX_NAME for name in arrays):
        raise section.fault(f"an array of its Program has no name, another's, or one of more than {MAX_NAME} characters")
    return made


def _declared(section: Section, program: Program, names: _Names, layout: Layout, interface: Interface) -> Program:
    """The Program over the interface's declarations, which have to be its own but for their names."""
    buffers = [slot.memory for slot in layout.buffers if slot.memory is not None]
    params = [slot.param for slot in layout.slots if slot.kind is SlotKind.PARAM and slot.param is not None]
    numbers = len(interface.dims), len(params), len(buffers)
    if (len(program.dims), len(program.params), len(program.buffers)) != numbers or [p.type for p in params] != [p.type for p in program.params]:
        raise section.fault("its Program has other dims, params or buffers than its step")
    given, own = iter(buffers), iter(_free_names(interface, params, names[OWN_ARRAY]))
    memories = [next(given) if m.space is Space.BUFFER else replace(m, name=next(own)) for m in program.memories]
    renaming = _Renaming(program, interface.dims, params, memories)
    for old, new in zip(program.buffers, buffers, strict=True):
        if (old.type, old.access, tuple(map(renaming.size, old.shape))) != (new.type, new.access, new.shape):
            raise section.fault("its Program has other buffers than its step")
    return replace(renaming.run(), name=interface.name, doc=interface.doc, value_names=names[OWN_VALUE], variable_names=names[OWN_VARIABLE])


def _free_names(interface: Interface, params: Sequence[Param], names: Mapping[int, str]) -> Iterator[str]:
    """The names of a Program's own arrays, changed where another Program's declarations have them."""
    theirs: tuple[Dim | Param | Memory, ...] = (*interface.dims, *interface.buffers, *params)
    declared = {d.name for d in theirs}
    taken = declared | set(names.values())
    for name in names.values():
        made = name
        while made in (declared if made == name else taken):
            made += "'"
        taken.add(made)
        yield made
