"""What a whole workgroup computes together, written in subgroup ops, workgroup arrays and barriers.

Who has loaded from an array and who stores to it next are parted by a barrier. Inner arrays are loaded from before the last barrier of a call, and so are
free for the next. Others are loaded from behind it. Two of a kind then take turns, the second if the first has not become free; and only where neither has,
or in the turn of a loop no barrier has come yet, a call begins with a barrier of its own. `written` is the builder's body, which grows meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from vyre_py.ir.builder.expressions import Expr, apply, const
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.builder.where import fail
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.effects import SYNCHRONISES
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Else, End, For, Load, Loop, Statement
from vyre_py.ir.language.ops import SUBGROUPS
from vyre_py.ir.language.types import Kind, Type

if TYPE_CHECKING:
    from vyre_py.ir.builder.program_builder import ProgramBuilder

if TYPE_CHECKING:
    from vyre_py.ir.evaluate import subgroups
else:
    (subgroups,) = deferred("vyre_py.ir.evaluate", "subgroups")

__all__ = ["reduced", "scanned"]

_OF_BOOLS: Final = {"and": "logical_and", "or": "logical_or", "xor": "ne"}
# How many elements every invocation of a workgroup loads and folds for itself, rather than wait for others to do so.
_ALONE: Final = 32
# By how many steps, which double the distance, an invocation takes a scan on from one barrier to the next: 2 ** _STEPS - 1 loads.
_STEPS: Final = 3


def _fold(op: str, a: Expr, b: Expr) -> Expr:
    return apply(_OF_BOOLS[op] if a.type.kind is Kind.BOOL else op, a, b)


def _require(b: ProgramBuilder, op: str, x: object) -> Expr:
    row = SUBGROUPS.get(f"reduce_{op}")
    if row is None or not isinstance(x, Expr):
        fail("B108", f"a workgroup folds expressions with add, mul, min, max, and, or, xor, got {shown(op)} and {shown(x)}", "b.workgroup_reduce('add', x)")
    if x.type not in row.of:
        fail("V201", f"a workgroup does not fold {x.type} with {op}", "scalars: numbers by add, mul, min, max; integers and bools by and, or, xor")
    return Expr(x.builder, x.atom)  # a variable is read once


# ---- arrays, which the calls of one builder share


def _inner(b: ProgramBuilder, type_: Type, count: int) -> ArrayHandle:
    return b.shared(f"workgroup:{type_}[{count}].inner", type_, count)


def _free(b: ProgramBuilder, written: Sequence[Statement], type_: Type, count: int) -> ArrayHandle:
    """An array that nobody loads from any more; behind a barrier, where there is none."""
    names = [f"workgroup:{type_}[{count}].{turn}" for turn in (0, 1)]
    loaded = _loaded_since_barrier(written)
    free = [] if loaded is None else [name for name in names if name not in loaded]
    if not free:
        b.barrier()
    return b.shared((free or names)[0], type_, count)


def _loaded_since_barrier(written: Sequence[Statement]) -> set[str] | None:
    """The names of what has been loaded from since the last barrier on every way to here; None where that may be anything, in an earlier turn of a loop."""
    loaded: set[str] = set()
    ended = 0  # blocks that stand before, or beside: their barriers are not on every way
    for s in reversed(written):
        if isinstance(s, End) or (isinstance(s, Else) and not ended):
            ended += 1
        elif s.opens and ended:
            ended -= 1
        elif isinstance(s, (For, Loop)):
            return None
        elif SYNCHRONISES[type(s)] and not ended:
            return loaded
        elif isinstance(s, Load):
            loaded.add(s.memory.name)
    return loaded


# ---- reductions


def reduced(b: ProgramBuilder, written: Sequence[Statement], op: str, given: Expr) -> Expr:
    """x of all invocations, the same for the workgroup. Of subgroups first, where there are some; then of what these have: by each of them where its lanes
    are enough, else x[k] = op(x[k], x[k + h]) for h = P / 2, ..., 2, 1, where P is the least power of two that is not below their number.

    That all do alike, with loads that are the same for all, since nothing stores there before the next barrier. Of more than `_ALONE` elements some
    invocations have folded a share each before."""
    x, size, invocations = _require(b, op, given), b.subgroup_size, prod(b.workgroup_sizes)
    count, here, is_first = invocations, b.local_index(), None
    if size > 1:
        x, count = b.subgroup_reduce(op, x), invocations // size
        here, is_first = b.subgroup_id(), b.subgroup_lane() == 0
    if count == 1 < size:
        return x  # the workgroup is one subgroup
    together = 1 < count <= size
    values = _inner(b, x.type, count) if count > _ALONE else _free(b, written, x.type, count)
    if is_first is None:
        values[here] = x
    else:
        with b.if_(is_first):
            values[here] = x
    b.barrier()
    if count > _ALONE:
        few = 1 << (count - 1).bit_length() // 2
        shares, k = _free(b, written, x.type, few), b.local_index()
        with b.if_(k < few):
            shares[k] = _share(op, values, k, count, few)
        b.barrier()
        values, count = shares, few
    return b.subgroup_reduce(op, _of_subgroups(b, op, values, count)) if together else _share(op, values, None, count, 1)


def _of_subgroups(b: ProgramBuilder, op: str, values: ArrayHandle, count: int) -> Expr:
    """In each subgroup what the `count` subgroups have stored, one a lane, and the subgroups.identity in the lanes behind."""
    found = values[b.subgroup_lane()]
    return apply("select", b.subgroup_lane() < count, found, const(subgroups.identity(op, found.type), found.type))


def _share(op: str, values: ArrayHandle, k: Expr | None, count: int, width: int) -> Expr:
    """What x[k] = op(x[k], x[k + h]) for h = P / 2, ..., 2 * width, width gives of the first `count` elements, for k < `width`; k is 0 without one."""
    found = {j: values[j if k is None else k + j if j else k] for j in range(0, count, width)}
    half = (1 << (count - 1).bit_length()) // 2
    while half >= width:
        for j in range(0, min(half, count - half), width):  # no other reaches the first
            both = _fold(op, found[j], found[j + half])
            found[j] = both if k is None or j + half + width <= count else apply("select", k < count - half - j, both, found[j])
        half //= 2
    return found[0]


# ---- scans


def scanned(b: ProgramBuilder, written: Sequence[Statement], op: str, given: Expr, exclusive: bool) -> Expr:
    """x of the invocations up to this one, or before it, by `local_index`. Of subgroups first, where a subgroup has as many lanes as there are subgroups; else
    x[k] = op(x[k], x[k - d]) for d = 1, 2, ..."""
    x, size, invocations = _require(b, op, given), b.subgroup_size, prod(b.workgroup_sizes)
    count = invocations // max(1, size)
    if size == 0 or count > size:
        return _scanned_through_memory(b, written, op, x, exclusive)
    through = b.subgroup_scan(op, x)
    own = b.subgroup_scan(op, x, exclusive=True) if exclusive else through
    if count == 1:
        return own
    values, lane = _free(b, written, x.type, count), b.subgroup_lane()
    with b.if_(lane == size - 1):
        values[b.subgroup_id()] = through
    b.barrier()
    before = b.subgroup_shuffle(b.subgroup_scan(op, _of_subgroups(b, op, values, count), exclusive=True), b.subgroup_id())
    # The subgroups.identity is folded with nothing: 0 + -0 is not -0.
    behind = apply("select", lane == 0, before, _fold(op, own, before)) if exclusive else _fold(op, own, before)
    return apply("select", b.subgroup_id() == 0, own, behind)


def _scanned_through_memory(b: ProgramBuilder, written: Sequence[Statement], op: str, x: Expr, exclusive: bool) -> Expr:
    """One barrier for each stretch of at most `_STEPS` steps. Stretches are one, or an even number: then every other one takes the inner array."""
    invocations, k, d = prod(b.workgroup_sizes), b.local_index(), 1
    steps = (invocations - 1).bit_length()
    stretches = min(steps, 1) if steps <= _STEPS else 2 * -(-steps // (2 * _STEPS))
    for number in range(stretches):
        values = _inner(b, x.type, invocations) if stretches > 1 and number % 2 == 0 else _free(b, written, x.type, invocations)
        values[k] = x
        b.barrier()
        reach = 1 << (steps + number) // stretches
        first = 1 if exclusive and number == stretches - 1 else 0
        # What it reaches back to: its own place or the one before, and on.
        found = {place: values[k - place] if place else x for place in range(first, min(first + reach * d, invocations), d)}
        x = _folded_back(op, found, k, d, first)
        d *= reach
    return apply("select", k == 0, const(subgroups.identity(op, x.type), x.type), x) if exclusive else x


def _folded_back(op: str, found: dict[int, Expr], k: Expr, d: int, first: int) -> Expr:
    """What x[k] = op(x[k], x[k - h]) for h = d, 2 * d, ... gives at k - first, of the elements that are found, by how far before k they are."""
    last = max(found)
    h = d
    while first + h <= last:
        for place in range(first, last - h + 1, 2 * h):
            found[place] = apply("select", k >= place + h, _fold(op, found[place], found[place + h]), found[place])
        h *= 2
    return found[first]
