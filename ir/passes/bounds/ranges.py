"""The range analysis: bounds of the integers that a Program computes, at each point.

Each value has a `Range` (see `transfer`), computed once from its operands. A condition adds facts for the block that it guards. After
a block that ends in a jump the negated condition holds for the rest of the enclosing block. Both are removed when the block ends.
Loads and variables have the range of their type. Nothing is assumed about the grid, which a launch may override, except that
invocations per axis stay below 2^32.

One module because all that is learned in a block is taken back together: ranges, distances and facts about sizes share one list of what was before.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import numpy as np

from vyre_py.ir.language.dims import DimConst, DimExpr, DimOp
from vyre_py.ir.language.effects import JUMPS
from vyre_py.ir.language.nodes import (
    Atom,
    Const,
    Else,
    End,
    For,
    If,
    Let,
    Load,
    Memory,
    MemoryStatement,
    Param,
    Space,
    UniformLoad,
    Value,
)
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.widths import whole_size
from vyre_py.ir.passes.bounds.polynomials import WORD_MAX, Form, SizeFacts, constant, minus, shifted
from vyre_py.ir.passes.bounds.transfer import (
    BOOLEAN,
    TRANSFER,
    Range,
    difference,
    exactly,
    full,
    join,
    meet,
    shift,
    total,
)

__all__ = ["Ranges"]

# How far a condition is taken apart, and how deep a value is computed again under facts learned after it.
MAX_CONJUNCTS: Final = 32
MAX_STEPS_BACK: Final = 8
REFINE_DEPTH: Final = 4

_MISSING: Final = object()

_Key = int | Param  # what facts are kept about: values by id, and params


def _key(atom: Value | Param) -> _Key:
    return atom.id if isinstance(atom, Value) else atom


def _asked(program: Program) -> bytearray:
    """Of each value, whether its range decides anything: whether indices, conditions or loops' bounds are computed from it, through integers and bools."""
    asked = bytearray(program.value_count)
    for statement in reversed(program.body):
        if isinstance(statement, MemoryStatement):
            sinks = statement.indices
        elif isinstance(statement, (If, For)) or (isinstance(statement, Let) and asked[statement.bound.id] and not statement.bound.type.is_float):
            sinks = statement.args
        else:
            continue
        for atom in sinks:
            if isinstance(atom, Value):
                asked[atom.id] = 1
    return asked


class Ranges:
    """Walks a body: `visit` every statement in order; between two visits, `of` and `inside` answer for the point reached."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sizes = SizeFacts(program)
        self.defined: list[Let | None] = [None] * program.value_count
        self._asked = _asked(program)
        self._ranges: dict[_Key, Range] = {}
        self._distances: dict[tuple[_Key, _Key], int] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._marks: list[tuple[int, int, int]] = []
        self._state, self._states = 0, count(1)  # a number for all that is known of the values that are there; what is known again has its number again
        self._refined: dict[tuple[int, int], tuple[int, Range]] = {}  # (value, depth) -> the state in which it was found, without learning more; and the range
        self._inside: dict[tuple[Atom, DimExpr], tuple[int, bool]] = {}  # likewise, of an index and an extent: whether it is known to lie inside
        self._tables: dict[Memory, Range] = {}
        self._then_jumped: dict[int, bool] = {}  # Else -> whether the block before it ended in a jump

    # ---- scopes

    def _write(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key, _MISSING)))
        table[key] = value

    def _enter(self) -> None:
        self._marks.append((len(self._undo), len(self.sizes.facts), self._state))

    def _leave(self) -> None:
        length, facts, self._state = self._marks.pop()
        while len(self._undo) > length:
            table, key, old = self._undo.pop()
            if old is _MISSING:
                del table[key]
            else:
                table[key] = old
        del self.sizes.facts[facts:]

    # ---- the walk

    def visit(self, index: int) -> None:
        """Takes in statement `index`."""
        statement = self.program.body[index]
        if isinstance(statement, Let):
            if not self._asked[statement.bound.id]:
                return
            self.defined[statement.bound.id] = statement
            self._bind(statement.bound, self._computed(statement, self.of))
        elif isinstance(statement, If):
            self._enter()
            self._guarded(index, True)
        elif isinstance(statement, For):
            self._enter()
            self._counted(index, statement)
        elif isinstance(statement, Else):
            self._turn(index)
        elif isinstance(statement, End):
            self._close(index)
        elif statement.opens:
            self._enter()
        elif isinstance(statement, (Load, UniformLoad)) and statement.memory.space is Space.TABLE:
            self._bind(statement.bound, self._elements(statement.memory))

    def _bind(self, atom: Value | Param, range_: Range) -> None:
        self._write(self._ranges, _key(atom), range_)

    def _jumped(self, index: int) -> bool:
        return index > 0 and JUMPS[type(self.program.body[index - 1])]

    def _turn(self, index: int) -> None:
        """From an If's first block to its second."""
        self._then_jumped[index] = self._jumped(index)
        self._leave()
        self._enter()
        self._guarded(self.program.match[self.program.match[index]], False)  # the If that this Else belongs to

    def _close(self, index: int) -> None:
        """Leaves a block; where one branch of an If jumped away, what follows runs after the other."""
        self._leave()
        opened = self.program.match[index]
        statement = self.program.body[opened]
        if isinstance(statement, If):
            middle = self.program.match[opened]
            then_jumped = self._then_jumped[middle] if middle != index else self._jumped(index)
            else_jumped = middle != index and self._jumped(index)
            if then_jumped != else_jumped:
                self._guarded(opened, else_jumped)

    def _guarded(self, index: int, truth: bool) -> None:
        """Takes in what the If at an index says of the code that comes now."""
        self._assume(self.program.body[index].args[0], truth)

    def _counted(self, index: int, loop: For) -> None:
        """Takes in what the loop at an index says of its turns."""
        self._bind(loop.bound, self._counter(loop))
        self._relate(loop)

    def _elements(self, memory: Memory) -> Range:
        """What a load gives: an element, or the zero that stands for one outside."""
        if memory.space is not Space.TABLE or not memory.type.is_integer or not memory.data:
            return full(memory.type)
        found = self._tables.get(memory)
        if found is None:
            data = np.frombuffer(memory.data, dtype=memory.type.dtype)
            found = self._tables[memory] = Range(min(0, int(data.min())), max(0, int(data.max())))
        return found

    # ---- ranges

    def of(self, atom: Atom) -> Range:
        """What is known of an integer or bool atom here."""
        if isinstance(atom, Const):
            return exactly(int(atom.value)) if not atom.type.is_float else BOOLEAN
        if isinstance(atom, (Value, Param)):
            return self._ranges.get(_key(atom)) or full(atom.type)
        return self._size(atom, WORD_MAX)

    def _size(self, expr: DimExpr, most: int) -> Range:
        """The range of a size that binding has found to be at most `most`."""
        if isinstance(expr, DimConst):
            return exactly(expr.value)
        form = self.sizes.form(expr)
        low = max(0, self.sizes.least(form) or 0)
        return Range(low, most, tuple(self.sizes.form(e) for e in self.sizes.parts(expr, "min"))[:2], (form,))

    def _computed(self, let: Let, of: Callable[[Atom], Range]) -> Range:
        """The range of a Let's result, from its operands' ranges."""
        type_ = let.bound.type
        if let.op.is_query:
            return self._query(let.op.name)
        if not type_.is_integer:
            return BOOLEAN
        if any(a.type.is_vector for a in (*let.args, let.bound)):
            return full(type_)
        made: Range | None = None
        if (whole := whole_size(let)) is not None:
            made = self._size(whole, self.sizes.greatest(whole))
        elif let.op.name == "select":
            made = self._select(let, of)
        elif (rule := TRANSFER.get(let.op.name)) is not None:
            made = rule(self, type_, let.args, tuple([of(a) for a in let.args]))
        return full(type_) if made is None else made

    def _select(self, let: Let, of: Callable[[Atom], Range]) -> Range:
        """Each arm counts only where the condition picks it."""
        arms: list[Range] = []
        for atom, truth in ((let.args[1], True), (let.args[2], False)):
            if isinstance(atom, Const):  # which no condition says more of
                arms.append(of(atom))
                continue
            self._enter()
            self._assume(let.args[0], truth)
            arms.append(of(atom))
            self._leave()
        return join(self, *arms)

    def _query(self, name: str) -> Range:
        kind, _, axis = name.partition(".")
        workgroup = self.program.workgroup
        if kind == "local_index":
            return Range(0, workgroup[0] * workgroup[1] * workgroup[2] - 1)
        if not axis:
            lanes = max(1, self.program.subgroup)
            return Range(0, lanes - 1 if kind == "subgroup_lane" else workgroup[0] * workgroup[1] * workgroup[2] // lanes - 1)
        size = workgroup["xyz".index(axis)]
        groups = WORD_MAX // size  # invocations per axis stay below 2^32
        return {
            "local_id": Range(0, size - 1), "workgroup_size": exactly(size), "num_workgroups": Range(0, groups), "launched_workgroups": Range(0, WORD_MAX),
            "workgroup_id": Range(0, max(0, groups - 1)), "global_id": Range(0, max(0, groups * size - 1)),
        }[kind]  # fmt: skip

    def _counter(self, loop: For) -> Range:
        """The values that a For's variable takes."""
        start, stop = self.of(loop.args[0]), self.of(loop.args[1])
        step = self.of(loop.args[2]).low
        if step < 0:
            return Range(min(stop.low + 1, start.high), start.high, start.uppers, tuple(shifted(f, 1) for f in stop.lowers))
        high = max(stop.high - 1, start.low)
        if start.low == start.high:
            high = start.low + (high - start.low) // step * step
        return Range(start.low, high, tuple(shifted(f, -1) for f in stop.uppers), start.lowers)

    def _relate(self, loop: For) -> None:
        up = self.of(loop.args[2]).low > 0
        first, last = (loop.args[0], loop.args[1]) if up else (loop.args[1], loop.args[0])
        # Running upward start <= k and k + 1 <= stop; running downward stop + 1 <= k and k <= start.
        self._at_most(first, loop.bound, 0 if up else -1)
        self._at_most(loop.bound, last, -1 if up else 0)

    def refined(self, atom: Atom, depth: int = REFINE_DEPTH) -> Range:
        """`of`, computed again from operands at most `depth` ops back, for the facts that were learned since."""
        known = self.of(atom)
        let = self.defined[atom.id] if isinstance(atom, Value) else None
        if let is None or depth == 0 or not atom.type.is_integer:
            return known
        asked, state = (let.bound.id, depth), self._state
        found = self._refined.get(asked)
        if found is not None and found[0] == state:
            return found[1]
        again = meet(known, self._computed(let, lambda operand: self.refined(operand, depth - 1)))
        if again != known:
            self._learned()
            self._bind(let.bound, again)
        if self._state == state:
            self._refined[asked] = state, again
        return again

    def _learned(self) -> None:
        """Something is known from here on that was not."""
        self._state = next(self._states)

    def distance(self, a: Atom, b: Atom) -> int | None:
        """The least c known with a <= b + c, from conditions that compare these two values."""
        if isinstance(a, (Value, Param)) and isinstance(b, (Value, Param)):
            return self._distances.get((_key(a), _key(b)))
        return None

    # ---- conditions

    def _assume(self, condition: Atom, truth: bool) -> None:
        """Takes in that a condition is true, or false, from here to the end of the block."""
        pending = [(condition, truth)]
        for _ in range(MAX_CONJUNCTS):
            if not pending:
                break
            atom, wanted = pending.pop()
            let = self.defined[atom.id] if isinstance(atom, Value) else None
            if let is None:
                continue
            name = let.op.name
            if name == "logical_not":
                pending.append((let.args[0], not wanted))
            elif name == ("logical_and" if wanted else "logical_or"):
                pending += [(a, wanted) for a in let.args]
            elif let.op.negation is not None and let.args[0].type.is_integer and not let.args[0].type.is_vector:
                self._compare(name if wanted else let.op.negation, *let.args)

    def _compare(self, name: str, a: Atom, b: Atom) -> None:
        if name in ("lt", "le", "eq"):
            self._at_most(a, b, -1 if name == "lt" else 0)
        if name in ("gt", "ge", "eq"):
            self._at_most(b, a, -1 if name == "gt" else 0)
        if name == "ne":
            for one, other in ((a, b), (b, a)):
                known, edge = self.of(one), self.of(other)
                if edge.low == edge.high:
                    low, high = known.low + (known.low == edge.low), known.high - (known.high == edge.low)
                    self._learn(one, Range(low, high))

    def _at_most(self, a: Atom, b: Atom, by: int) -> None:
        """Takes in a <= b + by."""
        self._learned()
        if isinstance(a, (Value, Param)) and isinstance(b, (Value, Param)):
            pair = (_key(a), _key(b))
            self._write(self._distances, pair, min(by, self._distances.get(pair, by)))
        ra, rb = self.of(a), self.of(b)
        for upper in rb.uppers[:2]:
            self._fact(shifted(upper, by - ra.low))
        for lower in ra.lowers[:2]:
            self._fact(minus(constant(rb.high + by), lower))
            for upper in rb.uppers[:2]:
                self._fact(shifted(minus(upper, lower), by))
        self._learn(a, Range(ra.low, rb.high + by, shift(rb, by).uppers))
        self._learn(b, Range(ra.low - by, rb.high, (), shift(ra, -by).lowers))

    def _fact(self, form: Form) -> None:
        """Takes in that a form of sizes is not negative."""
        if not any(form) or self.sizes.positive(form):
            return
        self.sizes.facts.append(form)
        terms = [(m, c) for m, c in form.items() if m]
        rest = form.get((), 0)
        if len(terms) == 1 and terms[0][1] == 1 and rest < 0:
            # A product of sizes that is at least 1 has no factor 0.
            monomial = terms[0][0]
            lows = [self.sizes.low[number] for number in monomial]
            for number, low in zip(monomial, lows, strict=True):
                if low is not None and None not in lows:
                    self._write(self.sizes.low, number, max(low, -rest if len(monomial) == 1 else 1))

    def _learn(self, atom: Atom, fact: Range) -> None:
        """Takes in a fact about a value, and what follows for the values that it was computed from."""
        self._learned()
        pending = [(atom, fact)]
        for _ in range(MAX_STEPS_BACK):
            if not pending:
                break
            one, new = pending.pop()
            if not isinstance(one, (Value, Param)):
                continue
            self._bind(one, meet(self.of(one), new))
            let = self.defined[one.id] if isinstance(one, Value) else None
            if let is not None:
                pending += self._backwards(let, new)

    def _backwards(self, let: Let, fact: Range) -> list[tuple[Atom, Range]]:
        """What a fact about a result says of the operands."""
        name, args = let.op.name, let.args
        if name in ("add", "sub") and isinstance(args[1], Const):
            by = int(args[1].value)
            r = (self.of(args[0]), exactly(by))
            exact = total(self, let.bound.type, *r) if name == "add" else difference(self, let.bound.type, args, *r)
            return [] if exact is None else [(args[0], shift(fact, -by if name == "add" else by))]
        everything = full(let.bound.type)
        if name == "max":
            return [(a, Range(everything.low, fact.high, fact.uppers)) for a in args]
        if name == "min":
            return [(a, Range(fact.low, everything.high, (), fact.lowers)) for a in args]
        if name in ("cast", "bitcast") and args[0].type.is_integer and not args[0].type.is_vector:
            source, target = self.of(args[0]), everything
            above, below = source.high > target.high, source.low < target.low
            # Narrowing only lowers a value too great, and only raises one too small.
            low, lowers = (fact.low, fact.lowers) if not below else (source.low, ())
            high, uppers = (fact.high, fact.uppers) if not above else (source.high, ())
            return [(args[0], Range(low, high, uppers, lowers))]
        return []

    # ---- the question

    def inside(self, index: Atom, extent: DimExpr) -> bool:
        """Whether an index is known to lie inside an axis here."""
        if type(index) is Const and type(extent) is DimConst:
            return 0 <= int(index.value) < extent.value
        asked, state = (index, extent), self._state
        found = self._inside.get(asked)
        if found is not None and found[0] == state:
            return found[1]
        inside = self._below(self.of(index), extent) or self._below(self.refined(index), extent)
        if self._state == state:
            self._inside[asked] = state, inside
        return inside

    def _below(self, known: Range, extent: DimExpr) -> bool:
        if known.low < 0:
            return False
        return all(self._below_one(known, part) for part in self.sizes.parts(extent, "min"))

    def _below_one(self, known: Range, extent: DimExpr) -> bool:
        """Whether some upper bound lies below some operand of the extent's maximum."""
        parts = [extent, *self.sizes.parts(extent, "max")] if isinstance(extent, DimOp) else [extent]
        for part in parts:
            room = shifted(self.sizes.form(part), -1)
            if any(self.sizes.positive(minus(room, upper)) for upper in known.above()):
                return True
        return False
