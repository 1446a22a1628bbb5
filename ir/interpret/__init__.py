"""The reference interpreter: the meaning of the language, over NumPy. Every device is tested against it.

Invocations run in lockstep, one array per value over the invocations of a batch of workgroups, with masks where they diverge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from vyre_py.ir.interpret.arguments import Arguments
from vyre_py.ir.interpret.lanes import Batches
from vyre_py.ir.interpret.machine import Machine
from vyre_py.ir.interpret.params import InterpretError
from vyre_py.ir.interpret.reports import Reports
from vyre_py.ir.interpret.tile_machine import TileMachine
from vyre_py.ir.interpret.watched import Watch, WatchedMachine
from vyre_py.ir.interpret.watched_tiles import WatchedTileMachine
from vyre_py.ir.language.dims import evaluate_extent
from vyre_py.ir.language.program import Program

__all__ = ["InterpretError", "Reports", "interpret"]


class HasProgram(Protocol):
    """Whatever carries a Program in which nothing is left to expand: `passes.pipeline.Optimised`, or a test's own."""

    @property
    def program(self) -> Program:
        """The Program to run."""


def interpret(
    optimised: HasProgram, arguments: Mapping[str, Any], sizes: Mapping[str, int], *, races: bool = False, unwritten: bool = False,
    reports: Reports | None = None,
) -> None:  # fmt: skip
    """Runs a Program to its end; the arrays of written buffers are changed in place.

    `arguments` maps each buffer's name to a C-contiguous array of its exact dtype and shape (uint8 will do for bool; of vectors,
    with one more axis, the components), and each param's name to a Python number, or to a NumPy scalar or 0-d array of its exact
    dtype; a vector to a list of numbers or an array of its components. `sizes` maps each dim's name to its size. Bounds facts that
    passes may have proven are not looked at: every index is checked. Raises InterpretError, before anything has run, for arguments
    that do not fit and for a Program with ops over vectors that only an expansion defines. What asserts and prints say goes to `reports`.

    With `races` it watches for invocations that race, of a Program of tiles for workgroups (`ir.interpret.races` says what a race is), and raises RaceError
    at the first that is seen. That takes 32 bytes for each element of a memory that is stored to, for each of reads, writes and atomics there, and makes
    accesses some times slower.
    With `unwritten` it watches for reads of elements of workgroup and private arrays that nothing has written (`ir.interpret.unwritten` says which count),
    runs to the end, and raises UnwrittenRead if there were any. That takes a byte for each element of those arrays in a batch, and each access looks up where
    it goes once more. With both, a race is raised before anything that was read unwritten.
    """
    program = optimised.program
    bound = Arguments(program, arguments, sizes)
    heard = Reports() if reports is None else reports
    if heard.extents is None and program.grid.over:
        heard.extents = tuple([bound.size(extent, evaluate_extent) for extent in program.grid.extents])
    watch = Watch(program, races, unwritten) if races or unwritten else None
    # Inactive lanes compute on whatever they hold, so a NaN, an overflow or a division by zero says nothing.
    with np.errstate(all="ignore"):
        batches = Batches(program, bound)
        for lanes in batches:
            if watch is None:
                (TileMachine if program.of_tiles else Machine)(program, bound, lanes, heard).run()
            else:
                (WatchedTileMachine if program.of_tiles else WatchedMachine)(program, bound, lanes, heard, watch).run()
    if watch is not None and watch.unwritten is not None:
        watch.unwritten.require_none(bound, batches.groups)
