"""The machine: one loop over the flat body, all lanes of a batch in lockstep, masks where they diverge.

Values are computed for every lane, active or not; the values of inactive lanes are never used. A value that is equal for the whole
batch may be an array of one element. The second axis of a vector is its components.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from vyre_py.ir.evaluate.arrays import aligned
from vyre_py.ir.functions.called import Signature, function_program, parameters_of, result_of, signature_of
from vyre_py.ir.interpret.arguments import Arguments, axis_of_components
from vyre_py.ir.interpret.lanes import Lanes
from vyre_py.ir.interpret.memory import Bank
from vyre_py.ir.interpret.reports import Reports
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    Assert,
    Atom,
    Atomic,
    Barrier,
    Break,
    Const,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    Fence,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    Print,
    Region,
    Return,
    Set,
    Statement,
    Store,
    Subgroup,
    UniformLoad,
    Value,
    Var,
)
from vyre_py.ir.language.ops import GRID_FOLDS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import WITHOUT_TILES, Handlers
from vyre_py.ir.language.widths import whole_size

__all__ = ["Machine", "Step"]

Step = Callable[[Any, int, Any], int]


class _ActiveBlock:
    """An open block: the lanes that `entered`, the `turn` of the loop around it as it was then, where the block `close`s,
    and an If's condition."""

    __slots__ = ("close", "condition", "entered", "turn")

    def __init__(self, entered: Array, turn: Array, close: int, condition: Array) -> None:
        self.entered, self.turn, self.close, self.condition = entered, turn, close, condition


class _Turns(_ActiveBlock):
    """An open loop. `live` lanes have not left it; `now` are those that have not left its current turn either. A For has
    `trips` per lane, and gives `first + count * step` to its value; a Loop has none."""

    __slots__ = ("count", "first", "live", "now", "opener", "step", "trips")

    def __init__(self, entered: Array, turn: Array, close: int, opener: int) -> None:
        super().__init__(entered, turn, close, entered)
        self.live = self.now = entered
        self.opener = opener
        self.count = 0
        self.trips: Array | None = None
        self.first: Array = np.zeros(1, np.int64)
        self.step: Array = self.first


class Machine:
    """Runs a Program for one batch of lanes. `steps` has what each kind of statement does: given its index, it gives that of the next."""

    steps: ClassVar[Handlers[Step]]

    def __init__(self, program: Program, arguments: Arguments, lanes: Lanes, reports: Reports, active: Array | None = None) -> None:
        self.program = program
        self.reports = reports
        self.arguments = arguments
        self.lanes = lanes
        self.banks = {m: Bank(m, arguments, lanes) for m in program.memories}
        nothing = np.zeros(1, np.uint8)
        self.values: list[Array] = [nothing] * program.value_count
        self.variables: list[Array] = [nothing] * program.variable_count
        self.used = {a.id for s in program.body for a in s.args if isinstance(a, Value)}
        self.active: Array = np.ones(lanes.count, np.bool_) if active is None else active
        # The whole body is a loop of one turn, which Return leaves.
        body = _Turns(self.active, self.active, len(program.body), -1)
        self.blocks: list[_ActiveBlock] = [body]
        self.loops: list[_Turns] = [body]

    def run(self) -> None:
        """Runs to the end of the Program."""
        self.steps.require(self.program)
        body, steps, index = self.program.body, self.steps, 0
        while index < len(body):
            statement = body[index]
            index = steps[type(statement)](self, index, statement)

    # ---- operands

    def _atom(self, atom: Atom) -> Array:
        return self.values[atom.id] if isinstance(atom, Value) else self.arguments.atom(atom)

    def _atoms(self, atoms: tuple[Atom, ...]) -> tuple[Array, ...]:
        return tuple([self._atom(a) for a in atoms])

    def _bind(self, statement: Statement, value: Array) -> None:
        if statement.result is not None:
            self.values[statement.result.id] = value

    # ---- masks

    @staticmethod
    def _narrow(mask: Array, condition: Array) -> Array:
        if condition.size == 1:
            return mask if condition[0] else np.zeros_like(mask)
        return mask & condition

    def _enter(self, mask: Array, index: int) -> int:
        """Continues at `index` with these lanes, or at the end of the block without any."""
        self.active = mask
        return index if mask.any() else self.blocks[-1].close

    def _leave(self, block: _ActiveBlock, index: int) -> int:
        """Goes on at `index` with the lanes that entered a block and are still in the loop's turn around it."""
        now = self.loops[-1].now
        return self._enter(block.entered if now is block.turn else block.entered & now, index)

    # ---- statements without control flow: each gives the index of the next

    def _let(self, index: int, s: Let) -> int:
        if s.op.is_query:
            self._bind(s, self.lanes.query(s.op.name))
        elif (size := whole_size(s)) is not None:
            self._bind(s, np.array([self.arguments.size(size)], s.bound.type.dtype))
        elif s.op.evaluate is not None:
            self._bind(s, s.op.evaluate(s.bound.type, *self._atoms(s.args)))
        else:
            signature = signature_of(s)
            assert signature is not None  # Arguments refuses what is not expanded
            self._bind(s, self._called(signature, self._atoms(s.args), self.lanes, self.active))
        return index + 1

    def _called(self, signature: Signature, operands: tuple[Array, ...], lanes: Lanes, active: Array | None = None) -> Array:
        """The result of a call, or of an op that a function computes, for the lanes that are on."""
        callee, arguments = _callee(signature)
        machine = Machine(callee, arguments, lanes, self.reports, active)
        for memory, operand in zip(parameters_of(callee), operands, strict=True):
            machine.banks[memory] = Bank.of_each(memory, arguments, lanes, operand)
        nothing = np.zeros((1, *axis_of_components(signature.result)), signature.result.dtype)
        result = machine.banks[result_of(callee)] = Bank.of_each(result_of(callee), arguments, lanes, nothing)
        machine.run()
        return result.flat

    def _load(self, index: int, s: Load) -> int:
        self._bind(s, self.banks[s.memory].load(self._atoms(s.indices)))
        return index + 1

    def _uniform_load(self, index: int, s: UniformLoad) -> int:
        found = self.banks[s.memory].load(self._atoms(s.indices))
        if len(found) == self.lanes.count:  # the first lane speaks for its workgroup
            found = np.repeat(found[:: self.lanes.group_lanes], self.lanes.group_lanes, axis=0)
        self._bind(s, found)
        return index + 1

    def _store(self, index: int, s: Store | CopyAsync) -> int:
        self.banks[s.memory].store(self._atoms(s.indices), self._atom(s.value), self.active)
        return index + 1

    def _atomic(self, index: int, s: Atomic) -> int:
        wants_old = s.result is not None and s.result.id in self.used
        old = self.banks[s.memory].atomic(s.op, self._atoms(s.indices), self._atoms(s.operands), self.active, wants_old)
        if s.result is not None:
            self._bind(s, old)
        return index + 1

    def _fence(self, index: int, s: Fence) -> int:
        return index + 1  # statement by statement, everything is in order

    def _var(self, index: int, s: Var) -> int:
        # No mask: a lane that is off here does not come back while the variable is in scope.
        self.variables[s.variable.id] = self._atom(s.args[0])
        return index + 1

    def _get(self, index: int, s: Get) -> int:
        self._bind(s, self.variables[s.variable.id])
        return index + 1

    def _set(self, index: int, s: Set) -> int:
        # A new array: values read before keep the old one.
        value = self._atom(s.args[0])
        if not self.active.all():
            value = np.where(*aligned(self.active, value, self.variables[s.variable.id]))
        self.variables[s.variable.id] = value
        return index + 1

    def _together(self, index: int, s: Subgroup) -> int:
        """Every lane of a subgroup is here, or none; what those compute that are not here is never used."""
        count, size = self.lanes.count, self.lanes.subgroup
        operands = [np.broadcast_to(a, (count, *a.shape[1:])).reshape(-1, size, *a.shape[1:]) for a in self._atoms(s.args)]
        made = s.op.evaluate(s.bound.type, *operands)
        self._bind(s, made.reshape(count, *made.shape[2:]))
        return index + 1

    def _copies(self, index: int, s: CopyCommit | CopyWait) -> int:
        return index + 1  # what is copied is there at once

    def _barrier(self, index: int, s: Barrier) -> int:
        return index + 1  # lockstep: every lane is here, of a grid that waits for itself every one there is (`Batches`)

    def _grid_scan(self, index: int, s: GridScan) -> int:
        """Workgroup by workgroup; what those of earlier batches came to is kept with the lanes."""
        type_, row = s.bound.type, GRID_FOLDS[s.fold]
        fold = row.op.evaluate
        assert fold is not None  # the ops of folds have a meaning of their own
        given = np.broadcast_to(self._atom(s.args[0]), self.lanes.count)[:: self.lanes.group_lanes]
        found = np.empty(len(given) + 1, type_.dtype)
        found[:1] = self.lanes.totals.get(index, row.identity(type_))
        for k in range(len(given)):
            found[k + 1 : k + 2] = fold(type_, found[k : k + 1], given[k : k + 1])
        self.lanes.totals[index] = found[-1]
        self._bind(s, np.repeat(found[:-1], self.lanes.group_lanes))
        return index + 1

    def _assert(self, index: int, s: Assert) -> int:
        self.reports.take(s, self._atoms(s.values), self._narrow(self.active, ~self._atom(s.condition)), self.lanes)
        return index + 1

    def _print(self, index: int, s: Print) -> int:
        self.reports.take(s, self._atoms(s.values), self.active, self.lanes)
        return index + 1

    # ---- control flow: each gives the index to go on at

    def _if(self, index: int, s: If) -> int:
        condition = self._atom(s.args[0])
        self.blocks.append(_ActiveBlock(self.active, self.loops[-1].now, self.program.match[index], condition))
        return self._enter(self._narrow(self.active, condition), index + 1)

    def _else(self, index: int, s: Else) -> int:
        block = self.blocks[-1]
        block.close = self.program.match[index]
        return self._enter(self._narrow(block.entered, ~block.condition), index + 1)

    def _region(self, index: int, s: Region) -> int:
        self.blocks.append(_ActiveBlock(self.active, self.loops[-1].now, self.program.match[index], self.active))
        return index + 1

    def _for(self, index: int, s: For) -> int:
        # In 64 bits and before the first turn, so that nothing wraps: ceil((stop - start) / step).
        start, stop, step = (a.astype(np.int64) for a in self._atoms(s.args))
        turns = _Turns(self.active, self.loops[-1].now, self.program.match[index], index)
        turns.first, turns.step = start, step
        turns.trips = -((start - stop) // np.where(step == 0, 1, step))
        if not isinstance(s.args[2], Const):
            turns.trips = np.where(step > 0, turns.trips, 0)
        return self._open_loop(turns)

    def _loop(self, index: int, s: Loop) -> int:
        return self._open_loop(_Turns(self.active, self.loops[-1].now, self.program.match[index], index))

    def _open_loop(self, turns: _Turns) -> int:
        self.blocks.append(turns)
        self.loops.append(turns)
        return self._turn(turns)

    def _turn(self, turns: _Turns) -> int:
        """Begins the next turn, or leaves the loop when no lane wants one."""
        mask = turns.live if turns.trips is None else self._narrow(turns.live, turns.trips > turns.count)
        if not mask.any():
            self.blocks.pop()
            self.loops.pop()
            return self._leave(turns, turns.close + 1)
        self.active = turns.now = mask
        opener = self.program.body[turns.opener]
        if opener.result is not None:
            self._bind(opener, (turns.first + turns.count * turns.step).astype(opener.result.type.dtype))
        turns.count += 1
        return turns.opener + 1

    def _end(self, index: int, s: End) -> int:
        block = self.blocks[-1]
        if isinstance(block, _Turns):
            return self._turn(block)
        self.blocks.pop()
        return self._leave(block, index + 1)

    def _break(self, index: int, s: Break) -> int:
        turns = self.loops[-1]
        turns.live = turns.live & ~self.active
        return self._continue(index, s)

    def _continue(self, index: int, s: Break | Continue) -> int:
        turns = self.loops[-1]
        turns.now = turns.now & ~self.active
        return self.blocks[-1].close

    def _return(self, index: int, s: Return) -> int:
        staying = ~self.active
        for turns in self.loops:
            turns.live, turns.now = turns.live & staying, turns.now & staying
        return self.blocks[-1].close


@lru_cache(maxsize=64)
def _callee(signature: Signature) -> tuple[Program, Arguments]:
    """A function's Program, and its tables. Its buffers hold nothing: each call has its own."""
    program = function_program(signature)
    return program, Arguments(program, {m.name: np.zeros((1, *axis_of_components(m.type)), m.type.dtype) for m in program.buffers}, {})


Machine.steps = Handlers("the interpreter", {
    Let: Machine._let, Load: Machine._load, Store: Machine._store, UniformLoad: Machine._uniform_load, **dict.fromkeys(ATOMIC_KINDS, Machine._atomic),
    Var: Machine._var, Get: Machine._get, Set: Machine._set, If: Machine._if, Else: Machine._else, End: Machine._end,
    For: Machine._for, Loop: Machine._loop, Region: Machine._region, Break: Machine._break, Continue: Machine._continue,
    Return: Machine._return, Barrier: Machine._barrier, GridBarrier: Machine._barrier,
    Subgroup: Machine._together, GridScan: Machine._grid_scan,
    CopyAsync: Machine._store, CopyCommit: Machine._copies, CopyWait: Machine._copies,
    **dict.fromkeys(FENCES.values(), Machine._fence),
    Assert: Machine._assert, Print: Machine._print,
}, without=WITHOUT_TILES)  # fmt: skip
