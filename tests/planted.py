"""Bugs planted on purpose, one a run: the suite's own comparisons must catch each.

    python tests/planted.py NAME        exit 0: nothing noticed; anything else, a crash included: caught

Each runs in a process of its own, since a dropped bounds check may take the process with it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT.parent), str(ROOT), str(ROOT / "fuzz")]

import vyre_py.lowering.llvm.host  # noqa: E402 - the path above must stand first
from vyre_py.ir.assembler import Rewriter  # noqa: E402 - as above
from vyre_py.ir.check.uniformity import _RULES, Analysis  # noqa: E402 - as above
from vyre_py.ir.nodes import Barrier, Load, MemoryStatement, Set  # noqa: E402 - as above
from vyre_py.ir.passes import Optimised  # noqa: E402 - as above
from vyre_py.ir.passes.cse import _Sharer as Sharer  # noqa: E402 - as above
from vyre_py.lowering.llvm import ops  # noqa: E402 - as above
from vyre_py.lowering.llvm.lanes_forms import LaneWriter  # noqa: E402 - as above
from vyre_py.lowering.llvm.lanes_masks import Control  # noqa: E402 - as above


def _before_lowering(change: Callable[[Optimised], Optimised]) -> None:
    """Puts a change between the passes and the host's lowering."""
    lower = vyre_py.lowering.llvm.host.lower
    vyre_py.lowering.llvm.host.lower = lambda optimised, target, options: lower(change(optimised), target, options)


def wrong_mask() -> None:
    """The other side of a branch runs with the mask of the first."""
    LaneWriter.negated = lambda self, mask: mask  # type: ignore[method-assign]  # the planted mistake


def missed_barrier() -> None:
    """Barriers are dropped after checking."""

    def without(optimised: Optimised) -> Optimised:
        program = optimised.program
        writer = Rewriter(program)
        for index, statement in enumerate(program.body):
            if not isinstance(statement, Barrier):
                writer.copy(index)
        kept = [index for index, s in enumerate(program.body) if not isinstance(s, Barrier)]
        control = tuple(optimised.uniformity.control[k] for k in kept)
        proven = tuple(optimised.proven[k] for k in kept)
        return replace(optimised, program=writer.finish(), proven=proven, uniformity=replace(optimised.uniformity, control=control))

    _before_lowering(without)


def dropped_check() -> None:
    """Every index of a load is taken to be inside."""

    def trusted(optimised: Optimised) -> Optimised:
        proven = tuple((1 << s.memory.rank) - 1 if isinstance(s, Load) else p for s, p in zip(optimised.program.body, optimised.proven, strict=True))
        return replace(optimised, proven=proven)

    _before_lowering(trusted)


def dropped_store_check() -> None:
    """Every access is taken to be inside."""

    def trusted(optimised: Optimised) -> Optimised:
        proven = tuple((1 << s.memory.rank) - 1 if isinstance(s, MemoryStatement) else 0 for s in optimised.program.body)
        return replace(optimised, proven=proven)

    _before_lowering(trusted)


def short_loop() -> None:
    """A loop with a step other than one takes a turn too few."""
    trips = Control._trips

    def fewer(self: Control, type_: Any, start: Any, stop: Any, step: int, width: int) -> str:
        return trips(self, type_, start, stop, step if abs(step) == 1 else step * 2, width)

    Control._trips = fewer  # type: ignore[method-assign]  # the planted mistake


def uniform_by_mistake() -> None:
    """A variable that is set under a varying condition is taken to be uniform."""

    def assign(self: Analysis, index: int, s: Set) -> None:
        self._feed(s.args, self.variables + s.variable.id)

    _RULES[Set] = assign  # type: ignore[index]  # the planted mistake


def merged_loads() -> None:
    """Loads of memory that is written between them are merged."""
    pure = Sharer._pure

    def careless(self: Sharer, statement: Any) -> Any:
        if isinstance(statement, Load):
            return (statement.memory, *[repr(getattr(self.atom(a), "id", a)) for a in statement.args])
        return pure(self, statement)

    Sharer._pure = careless  # type: ignore[method-assign]  # the planted mistake


def wrong_way() -> None:
    """Rotating left rotates right."""
    ops.HOST_EMITTERS["rotl"] = ops.HOST_EMITTERS["rotr"]  # type: ignore[index]  # the planted mistake


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (wrong_mask, missed_barrier, dropped_check, dropped_store_check, short_loop, uniform_by_mistake, merged_loads, wrong_way)
}


def main(name: str) -> None:
    """Plants a bug and runs generated Programs until one disagrees."""
    if name != "none":
        PLANTS[name]()
    from generator import generate
    from test_generated import Seeded, assert_agrees

    from vyre_py.drivers.registry import device

    for number in random.Random(5).sample(range(100_000), 120 if name != "none" else 10):
        assert_agrees(device("cpu"), generate(Seeded(number)))


if __name__ == "__main__":
    main(sys.argv[1])
