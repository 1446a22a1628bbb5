"""Collectives of vyre's, as compilers emit them into Programs that run on any number of ranks. Among one rank they are copies, or nothing, and are written as
such; among more they are steps between launches, of devices that have them, and a Program is told so."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from vyre_py.ir.builder.expressions import Expr
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.builder.where import fail, user_place
from vyre_py.ir.language.errors import Missing, Unsupported, shown
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.ops import REDUCTIONS

if TYPE_CHECKING:
    from vyre_py.ir.builder.program_builder import ProgramBuilder

__all__ = ["written_collective"]

_USE: Final = 'b.collective("all_gather", x, y), or b.collective("all_reduce", x)'


class _Form(NamedTuple):
    """Whether a collective has a buffer for its result, beside that of its argument, and the step that it is among several ranks."""

    copies: bool
    step: str


_KINDS: Final = {
    "all_reduce": _Form(False, "all_reduce_step"), "all_gather": _Form(True, "all_gather_step"),
    "reduce_scatter": _Form(True, "reduce_scatter_step"), "broadcast": _Form(False, "broadcast_step"),
}  # fmt: skip


def written_collective(b: ProgramBuilder, name: str, source: object, target: object, op: str, root: int, ranks: int) -> None:
    """See `ProgramBuilder.collective`."""
    kind = _KINDS.get(name)
    if kind is None:
        fail("B108", f"a collective is {', '.join(_KINDS)}, got {shown(name)}", _USE)
    if (target is not None) != kind.copies:
        fail("B108", f"{name} takes {'a source and a target' if kind.copies else 'one buffer, which it changes'}", _USE)
    buffers = [_buffer(b, handle) for handle in (source, target)[: 1 + kind.copies]]
    if op not in REDUCTIONS:  # any of them, of one rank's numbers, are these numbers
        fail("B108", f"{name} folds by {', '.join(REDUCTIONS)}, got {shown(op)}", 'b.collective("all_reduce", x, op="max")')
    whole = all(type(number) is int for number in (root, ranks))
    if not whole or not 0 <= root < ranks:
        fail("B108", f"a rank is a whole number from 0 to how many there are, got rank {shown(root)} of {shown(ranks)}", _USE)
    if ranks > 1:
        help_ = f"end the Program before it, and put vp.{kind.step}(communicator, ...) between two launches, in a sequence or a graph"
        raise Unsupported("a Program", [Missing(f"{name} among {ranks} ranks", user_place(), help_)])
    if kind.copies:
        _copy(b, *buffers)


def _buffer(b: ProgramBuilder, handle: object) -> ArrayHandle:
    if not isinstance(handle, ArrayHandle) or handle.builder is not b or handle.memory.space is not Space.BUFFER:
        fail("B105", f"a collective is between buffers of its own builder, got {shown(handle)}", _USE)
    return handle


def _copy(b: ProgramBuilder, source: ArrayHandle, target: ArrayHandle) -> None:
    """Stores every element of an array to the same place of another, shared out among all invocations of the grid."""
    if source.type is not target.type or source.memory.shape != target.memory.shape:
        what = f"{source!r} and {target!r}"
        fail("V204" if source.type is not target.type else "V202", f"among one rank a part is the whole, and {what} differ", "give both one type and shape")
    workgroups = [b.num_workgroups(axis) for axis in range(3)]
    place = (b.workgroup_id(2) * workgroups[1] + b.workgroup_id(1)) * workgroups[0] + b.workgroup_id(0)
    size = prod(b.workgroup_sizes)
    first, step = place * size + b.local_index(), workgroups[0] * workgroups[1] * workgroups[2] * size

    def along(index: tuple[Expr, ...]) -> None:
        """Loops over the axes behind those that have a place already; all invocations share the last one."""
        extent, is_last = source.shape[len(index)], len(index) == len(source.shape) - 1
        with b.for_(first, extent, step) if is_last else b.for_(0, extent) as k:
            if is_last:
                target[(*index, k)] = source[(*index, k)]
            else:
                along((*index, k))

    along(())
