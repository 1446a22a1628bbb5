"""The machine that watches a Program of tiles for races: of workgroups, each of which counts as one invocation."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from vyre_py.ir.interpret.machine import Step
from vyre_py.ir.interpret.races import AccessKind, Touch
from vyre_py.ir.interpret.tile_machine import TileMachine
from vyre_py.ir.interpret.watched import WatchedMachine
from vyre_py.ir.language.nodes import (
    GridScan,
    Load,
    Store,
    TileAtomicAdd,
    TileLoad,
    TileMemoryStatement,
    TileStore,
)
from vyre_py.ir.language.types import Array
from vyre_py.ir.language.walks import Handlers

__all__ = ["WatchedTileMachine"]


class WatchedTileMachine(WatchedMachine, TileMachine):
    """A machine of tiles that raises RaceError at the first access that races with one of another workgroup."""

    steps: ClassVar[Handlers[Step]]

    def _watch_tile_load(self, index: int, s: TileLoad) -> int:
        self._race_for_tile(index, s, AccessKind.READ)
        return self._tile_load(index, s)

    def _watch_tile_add(self, index: int, s: TileAtomicAdd) -> int:
        self._race_for_tile(index, s, AccessKind.ATOMIC)
        return self._tile_add(index, s)

    def _watch_tile_store(self, index: int, s: TileStore) -> int:
        touch, elements = self._touch_tile(index, s)
        return self._tile_store(index, s) if touch is None else self._store_watched(index, s, touch, self._written(s)[elements], self._tile_store)

    def _race_for_tile(self, index: int, s: TileMemoryStatement, access: AccessKind) -> None:
        """Holds what the workgroups that are on do against what was done before, and takes it up."""
        if s.memory in self.watch.stored and (touch := self._touch_tile(index, s)[0]) is not None:
            self._take(s, touch, access)

    def _touch_tile(self, index: int, s: TileMemoryStatement) -> tuple[Touch | None, Array]:
        """What the workgroups that are on touch, and which of the elements, one after the other, are inside."""
        indices, active = self._elements(s)
        return self._touch(index, s, indices, active, prod(s.shape))


WatchedTileMachine.steps = Handlers[Any]("the interpreter", {
    **TileMachine.steps,
    **{kind: WatchedMachine.steps[kind] for kind in (Load, Store, GridScan)},
    TileLoad: WatchedTileMachine._watch_tile_load, TileStore: WatchedTileMachine._watch_tile_store, TileAtomicAdd: WatchedTileMachine._watch_tile_add,
})  # fmt: skip
