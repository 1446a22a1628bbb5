"""Kernels for arguments whose memory and sizes allow more: over views of buffers, several neighbouring elements as one along an axis more, and with copies of
whole boxes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.nodes import BoxCopy, Memory, StripCopy
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Need, Within
from vyre_py.lowering.coarsen import Coarsened
from vyre_py.lowering.layout import MOST_BOXED, Layout, lay_out
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.rows import WIDEST_BYTES, element_rows, needs_of
from vyre_py.lowering.tiles.grid_walk import walks_grid

__all__ = ["WithViews", "layout_of", "viewed", "with_views"]


@dataclass(frozen=True, slots=True)
class WithViews(Optimised):
    """A Program for any arguments, and the same in other `forms` for some, the best first."""

    forms: tuple[Optimised, ...] = ()


def with_views(optimised: Optimised, forms: Sequence[Optimised]) -> WithViews:
    """A Program with other forms, which are launched as the Program is: with as many invocations, or more along y."""
    for form in forms:
        (x, y, z), (across, down, layers) = form.program.workgroup, optimised.program.workgroup
        assert (x, z) == (across, layers) and y >= down, (form.program.workgroup, optimised.program.workgroup)
    return WithViews(**{f.name: getattr(optimised, f.name) for f in fields(optimised)}, forms=tuple(forms))


def layout_of(optimised: Optimised, options: CompileOptions) -> Layout:
    """The layout of the arguments that all forms of a Program have, with the boxes that they copy."""
    forms = [form.program for form in optimised.forms] if isinstance(optimised, WithViews) else []
    boxes = dict.fromkeys([(s.source, s.box) for form in forms for s in form.body if isinstance(s, BoxCopy)])
    return lay_out(optimised.program, options, boxes, forms, walks=any(walks_grid(form) for form in forms))


def viewed(optimised: Optimised, form: Optimised) -> Coarsened | None:
    """A form of a Program some of whose buffers are views of its own, with one axis more, of several elements, or are copied from by boxes; None where it has
    neither."""
    own = {memory.name: memory for memory in optimised.program.buffers}
    views = [(own[memory.name], memory) for memory in form.program.buffers if memory.rank > own[memory.name].rank]
    boxed = dict.fromkeys([s.source for s in form.program.body if isinstance(s, BoxCopy)])
    if not (views or boxed):
        return None
    needs: list[Need] = [need for memory in boxed for need in _boxed(memory)]
    for memory, view in views:
        last, several = memory.shape[-1], view.shape[-1]
        if isinstance(several, DimConst) and not isinstance(last, DimConst):
            needs.append(Divisible(last, several.value))
    copied = dict.fromkeys([s.source for s in form.program.body if isinstance(s, StripCopy)])  # by whole groups
    needs += [Aligned(view.name, several.value * view.type.size_bytes) for view in copied if isinstance(several := view.shape[-1], DimConst)]
    return Coarsened(form, 1, needs_of(element_rows(form), form.program.body, list(dict.fromkeys(needs))), {})


def _boxed(memory: Memory) -> Iterator[Need]:
    """What boxes need of a buffer."""
    yield Aligned(memory.name, WIDEST_BYTES)
    if not isinstance(memory.shape[-1], DimConst):
        yield Divisible(memory.shape[-1], WIDEST_BYTES // memory.type.size_bytes)
    yield from [Within(extent, MOST_BOXED) for extent in memory.shape if not isinstance(extent, DimConst)]
