"""Kernels over views of buffers: several neighbouring elements as one, along an axis more, for arguments whose memory and sizes allow it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import StripCopy
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Need
from vyre_py.lowering.coarsen import Coarsened
from vyre_py.lowering.rows import element_rows, needs_of

__all__ = ["WithViews", "viewed", "with_views"]


@dataclass(frozen=True, slots=True)
class WithViews(Optimised):
    """A Program for any arguments, with `over_views`, the same over views of its buffers."""

    over_views: Optimised | None = None


def with_views(optimised: Optimised, form: Optimised) -> WithViews:
    """A Program with a form over views, which is launched as the Program is: with as many invocations."""
    assert form.program.workgroup == optimised.program.workgroup, (form.program.workgroup, optimised.program.workgroup)
    return WithViews(**{f.name: getattr(optimised, f.name) for f in fields(optimised)}, over_views=form)


def viewed(optimised: Optimised, form: Optimised) -> Coarsened | None:
    """A form of a Program some of whose buffers are views of its own, with one axis more, of several elements; None where it has no view."""
    own = {memory.name: memory for memory in optimised.program.buffers}
    views = [(own[memory.name], memory) for memory in form.program.buffers if memory.rank > own[memory.name].rank]
    if not views:
        return None
    needs: list[Need] = []
    for memory, view in views:
        last, several = memory.shape[-1], view.shape[-1]
        if isinstance(several, DimConst) and not isinstance(last, DimConst):
            needs.append(Divisible(last, several.value))
    copied = dict.fromkeys([s.source for s in form.program.body if isinstance(s, StripCopy)])  # by whole groups
    needs += [Aligned(view.name, several.value * view.type.size_bytes) for view in copied if isinstance(several := view.shape[-1], DimConst)]
    return Coarsened(form, 1, needs_of(element_rows(form), form.program.body, needs), {})
