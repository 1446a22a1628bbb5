"""What a whole workgroup computes together, written in subgroup ops, workgroup arrays and barriers.

Every function leaves its array free: who has loaded from it last is behind a barrier.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from vyre_py.ir.builder.expressions import Expr, apply, const, fail
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.evaluate.subgroups import identity
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.types import Kind, Type

if TYPE_CHECKING:
    from vyre_py.ir.builder.program_builder import ProgramBuilder

__all__ = ["reduced", "scanned"]

_OF_BOOLS: Final = {"and": "logical_and", "or": "logical_or", "xor": "ne"}


def _fold(op: str, a: Expr, b: Expr) -> Expr:
    return apply(_OF_BOOLS[op] if a.type.kind is Kind.BOOL else op, a, b)


def _require(b: ProgramBuilder, op: str, x: object) -> Expr:
    row = SUBGROUPS.get(f"reduce_{op}")
    if row is None or not isinstance(x, Expr):
        fail("B108", f"a workgroup folds expressions with add, mul, min, max, and, or, xor, got {shown(op)} and {shown(x)}", "b.workgroup_reduce('add', x)")
    if x.type not in row.of:
        fail("V201", f"a workgroup does not fold {x.type} with {op}", "scalars: numbers by add, mul, min, max; integers and bools by and, or, xor")
    return Expr(x.builder, x.atom)  # a variable is read once


def _array(b: ProgramBuilder, type_: Type, count: int, turn: int = 0) -> ArrayHandle:
    """An array that the calls of one builder share."""
    return b.shared(f"workgroup:{type_}[{count}].{turn}", type_, count)


def _of_subgroups(b: ProgramBuilder, op: str, values: ArrayHandle, count: int) -> Expr:
    """In each subgroup what the `count` subgroups have stored, one a lane, and the identity in the lanes behind."""
    found = values[b.subgroup_lane()]
    return apply("select", b.subgroup_lane() < count, found, const(identity(op, found.type), found.type))


def reduced(b: ProgramBuilder, op: str, given: Expr) -> Expr:
    """x of all invocations, the same for the workgroup. Of subgroups first, where there are some; then of what these have, by one of them where its lanes
    are enough, else x[k] = op(x[k], x[k + h]) for h = P / 2, ..., 2, 1, where P is the least power of two that is not below their number."""
    x, size, invocations = _require(b, op, given), b.subgroup_size, prod(b.workgroup_sizes)
    count, here, is_first = invocations, b.local_index(), None
    if size > 1:
        x, count = b.subgroup_reduce(op, x), invocations // size
        here, is_first = b.subgroup_id(), b.subgroup_lane() == 0
    if count == 1 < size:
        return x  # the workgroup is one subgroup
    values = _array(b, x.type, max(count, size + 1))
    if is_first is None:
        values[here] = x
    else:
        with b.if_(is_first):
            values[here] = x
    if count <= size:
        b.barrier()
        total = b.subgroup_reduce(op, _of_subgroups(b, op, values, count))
        with b.if_(b.local_index() == 0):
            values[size] = total  # which no lane loads meanwhile
        return values.uniform_load(size)
    half = (1 << (count - 1).bit_length()) // 2
    while half:
        b.barrier()
        k = b.local_index()
        with b.if_((k < half) & (k + half < count)):
            values[k] = _fold(op, values[k], values[k + half])
        half //= 2
    return values.uniform_load(0)


def scanned(b: ProgramBuilder, op: str, given: Expr, exclusive: bool) -> Expr:
    """x of the invocations up to this one, or before it, by `local_index`. Of subgroups first, where a subgroup has as many lanes as there are subgroups; else
    x[k] = op(x[k], x[k - d]) for d = 1, 2, ..."""
    x, size, invocations = _require(b, op, given), b.subgroup_size, prod(b.workgroup_sizes)
    zero = const(identity(op, x.type), x.type)
    count = invocations // max(1, size)
    if size == 0 or count > size:
        return _scanned_through_memory(b, op, x, zero, exclusive)
    through = b.subgroup_scan(op, x)
    own = b.subgroup_scan(op, x, exclusive=True) if exclusive else through
    if count == 1:
        return own
    values, lane = _array(b, x.type, size + 1), b.subgroup_lane()
    with b.if_(lane == size - 1):
        values[b.subgroup_id()] = through
    b.barrier()
    before = b.subgroup_shuffle(b.subgroup_scan(op, _of_subgroups(b, op, values, count), exclusive=True), b.subgroup_id())
    b.barrier()
    # The identity is folded with nothing: 0 + -0 is not -0.
    behind = apply("select", lane == 0, before, _fold(op, own, before)) if exclusive else _fold(op, own, before)
    return apply("select", b.subgroup_id() == 0, own, behind)


def _scanned_through_memory(b: ProgramBuilder, op: str, x: Expr, zero: Expr, exclusive: bool) -> Expr:
    invocations, k, d, turn = prod(b.workgroup_sizes), b.local_index(), 1, 0
    arrays = [_array(b, x.type, invocations, turn) for turn in (0, 1)]
    while d < invocations:
        arrays[turn][k] = x
        b.barrier()
        x = apply("select", k >= d, _fold(op, x, arrays[turn][k - d]), x)
        d, turn = 2 * d, 1 - turn
    if exclusive:
        arrays[turn][k] = x
        b.barrier()
        x = apply("select", k == 0, zero, arrays[turn][k - 1])
    b.barrier()
    return x
