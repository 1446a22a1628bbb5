"""Several statements that belong together, for generated Programs: where a pass looks at how they stand to each other.

Each is a function of the generator, which imports this module, and of whether all invocations of a workgroup come here together. Those of the grid are
functions of the generator alone: it asks for them where the whole grid comes together, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.ops import GRID_FOLDS, OPS
from vyre_py.ir.language.types import bool_, i32, u32

__all__ = ["OF_THE_GRID", "SHAPES"]

_TURNS: Final = 4
_DEEP: Final = 6
# Results are compared to the bit, so none is of a fold that promises them in no order.
_FOLDS: Final = {name: fold for name, fold in GRID_FOLDS.items() if not fold.any_order}


def _counted(g: Any, uniform: bool) -> tuple[Any, bool]:
    """Opens a loop of a few turns; its counter, and whether it stays uniform."""
    t = g.pick((i32, u32))
    first = g.source.below(3)
    counter = g.a.for_(const(t, first), const(t, first + 1 + g.source.below(_TURNS)), const(t, 1))
    return counter, uniform and g.chance(2)


def _changed(g: Any, value: Atom) -> Atom:
    """Something else of the same type, of which each turn of a loop makes another."""
    made: Atom = g.a.let(OPS[g.pick(("add", "mul", "sub"))], (value, g.operand(value.type)))
    return made


def nested_loops(g: Any, uniform: bool) -> None:
    """A loop in a loop: the inner one reads a variable that the outer one sets after it, and sets one that the outer one reads."""
    if not g.has_turns(_TURNS * _TURNS):
        return
    step, total = (g.a.var(t, g.operand(t)) for t in (u32, u32))
    g.scopes[-1].variables += [step, total]
    counter, outer = _counted(g, uniform)
    with g.turns(counter, outer, _TURNS):
        if g.chance(2):
            g.keep(g.a.get(step))
        counter, inner = _counted(g, outer)
        with g.turns(counter, inner, _TURNS):
            g.a.set(total, g.a.let(OPS["add"], (g.a.get(total), g.a.get(step))))
            if g.chance(2):
                g.statements(1 + g.source.below(3), inner)
        if conditional := g.chance(3):
            g.a.if_(g.operand(bool_))
        g.a.set(step, _changed(g, g.a.get(step)))
        if conditional:
            g.a.end()
        g.seen(g.a.get(total))


def from_before_zero(g: Any, _uniform: bool) -> None:
    """A loop that starts below zero: its counter, cast to unsigned, is past every end at first; or it is an index itself."""
    if g.loops:
        return  # as many turns as there are elements: enough once
    a = g.a
    stop = a.let(OPS["cast"], (g.n,), i32) if g.chance(2) else const(i32, g.source.below(9))
    counter = a.for_(const(i32, -1 - g.source.below(3)), stop, const(i32, 1 + g.source.below(2)))
    with g.turns(counter, False, 203):  # from -3 to 200
        index = a.let(OPS["cast"], (counter,), u32) if g.chance(2) else counter
        if g.chance(2):
            index = a.let(OPS["add"], (index, const(index.type, g.source.below(3))))
        g.seen(a.load(g.pick([memory for memory in g.inputs if memory.rank == 1]), (index,)))
        if g.privates:
            memory = g.pick(g.privates)
            a.store(memory, (index,), g.operand(memory.type))


def guarded_stores(g: Any, uniform: bool) -> None:
    """Stores of the own element, which share a check, and between them gets and sets of a variable that the next turn reads; some sets under a condition."""
    if not g.has_turns(_TURNS):
        return
    a, outputs = g.a, [memory for memory in g.outputs if memory.rank == 1]
    first, second = g.pick(outputs), g.pick(outputs)
    variable = a.var(first.type, g.operand(first.type))
    g.scopes[-1].variables.append(variable)
    counter, stays = _counted(g, uniform)
    with g.turns(counter, stays, _TURNS):
        taken = a.get(variable)
        for _ in range(1 + g.source.below(2)):
            g.store_own(first, taken)
            if conditional := not g.chance(3):
                a.if_(g.operand(bool_))
            a.set(variable, g.operand(first.type))
            if conditional:
                a.end()
            if g.chance(2):
                taken = a.get(variable)
        g.store_own(first, taken)
        g.store_own(second, taken if second.type is first.type else g.operand(second.type))
        g.keep(taken)


def told(g: Any, uniform: bool) -> None:
    """All workgroups write an element, by atomics, which a uniform load reads meanwhile: what it gives is anybody's guess, but a workgroup agrees on it."""
    if not (uniform and g.barriers):
        return
    a, memory = g.a, g.pick(list(g.atomics))
    place = const(u32, g.source.below(8))
    for _ in range(1 + g.source.below(2)):
        a.atomic(g.atomic_row(g.pick(g.atomics[memory])), memory, (place,), (g.operand(memory.type),))
    word = g.word(a.uniform_load(memory, (place,)))
    tile = next(memory for memory in g.tiles if memory.type is u32)
    a.store(tile, (g.local,), word)
    a.barrier()
    next_one = a.let(OPS["rem"], (a.let(OPS["add"], (g.local, const(u32, 1))), const(u32, g.invocations)))
    g.mix(a.let(OPS["eq"], (word, a.load(tile, (next_one,)))))
    a.barrier()
    a.if_(a.let(OPS["eq"], (a.let(OPS["and"], (word, const(u32, 1))), const(u32, 0))))
    a.barrier()
    a.end()


SHAPES: Final[tuple[Callable[[Any, bool], None], ...]] = (nested_loops, from_before_zero, guarded_stores, told)


def scan(g: Any) -> None:
    """A scan over the grid, mostly of a value that each workgroup has another of: computed from its number, or what its invocations have counted together."""
    a, fold = g.a, g.pick(list(_FOLDS))
    t = g.pick([t for t in g.types if t in _FOLDS[fold].of])
    if g.barriers and g.counts.type is t and g.chance(2):
        x = a.uniform_load(g.counts, (const(u32, g.source.below(8)),))
    else:
        x = g.uniform_operand(t)
        if not g.chance(3):
            number = g.group if t is u32 else a.let(OPS["cast"], (g.group,), t)
            x = a.let(OPS[g.pick(("add", "mul", "sub"))], (x, number))
    g.mix(g.keep(a.grid_scan(fold, x), True))


def branch(g: Any) -> None:
    """A condition that the whole grid agrees on: in its blocks there may be scans."""
    if len(g.scopes) >= _DEEP:
        return
    a = g.a
    if g.chance(2):
        condition = next(param for param in g.params if param.type is bool_)
    else:
        condition = a.let(OPS["lt"], (g.n, const(u32, g.pick((1, 32, 65, 101)))))
    a.if_(condition)
    g.block(True, wide=True)
    if g.chance(2):
        a.else_()
        g.block(True, wide=True)
    a.end()


OF_THE_GRID: Final[tuple[Callable[[Any], None], ...]] = (scan, scan, branch)
