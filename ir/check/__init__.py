"""The checker: proves once that a Program keeps every rule of the language, so that later stages need no checks.

Each module opens with the laws it proves. They run in the order of what they rely on: the form of every object, the nesting of
blocks, then scope, types, memory and limits side by side, and uniformity where every value is known.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from vyre_py.ir.check.facts import capabilities
from vyre_py.ir.check.findings import Findings
from vyre_py.ir.check.limits import check_limits, check_size
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.errors import Diagnostic, ValidationError
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.public import public
from vyre_py.ir.travel import Portable

if TYPE_CHECKING:
    from vyre_py.ir.check.uniformity import Uniformity

if TYPE_CHECKING:
    from vyre_py.ir.check import (
        calls,
        comparisons,
        convergence,
        form,
        grid,
        memory,
        scope,
        structure,
        tile_laws,
        types,
    )
else:  # code that others compiled is loaded and run without a check, and takes no more of this folder than its tables
    calls, comparisons, convergence, form, grid, memory, scope, structure, tile_laws, types = deferred(
        "vyre_py.ir.check", "calls", "comparisons", "convergence", "form", "grid", "memory", "scope", "structure", "tile_laws", "types",
    )  # fmt: skip

__all__ = ["Checked", "check"]


@public
@dataclass(frozen=True, slots=True)
class Checked(Portable):
    """A Program that keeps every rule, with the proof: how uniform its values and control are, and the capabilities that its ops
    ask of a device. Only `check`, and passes that keep the rules, make one; `check` adds the `warnings` about it, in program order."""

    program: Program
    uniformity: Uniformity
    capabilities: frozenset[str]
    warnings: tuple[Diagnostic, ...] = field(default=(), compare=False)  # they follow from the Program, but for their places

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.ir.text.notebook.cards import checked_html

        return checked_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A proof is made again where it is used: one from another process is not trusted.
        return check, (self.program,)

    def _identity(self) -> Any:
        return self.program, self.uniformity, self.capabilities


@public
def check(program: Program) -> Checked:
    """Checks `program`, from any source, in time linear in its size.

    Raises ValidationError with all findings, at most `findings.MAX_FINDINGS` and the number of the others.
    """
    given: object = program
    if not isinstance(given, Program) or type(getattr(given, "body", None)) is not tuple:
        raise ValidationError(finding("V101", f"a {type(given).__name__} is not a Program with a body"))
    findings = Findings(program)
    check_size(program, findings)
    findings.raise_if_any()
    form.check_form(program, findings)
    findings.raise_if_any()
    if not structure.check_blocks(program, findings):
        raise findings.error()
    warnings = Findings(program)
    calls.check_functions(program, findings, warnings)
    before = findings.count
    scope.check_scope(program, findings)
    known = findings.count == before
    types.check_types(program, findings)
    tile_laws.check_tiles(program, findings)
    memory.check_memory(program, findings)
    check_limits(program, findings)
    if not known:
        raise findings.error()
    if not findings.count:  # an access at fault says nothing of where it goes
        grid.check_grid(program, findings)
    uniformity = convergence.check_convergence(program, findings)
    findings.raise_if_any()
    for index, message in comparisons.decided_comparisons(program):
        warnings.add("V471", index, message)
    return Checked(program, uniformity, capabilities(program), warnings.diagnostics)
