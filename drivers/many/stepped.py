"""A launch of several kernels: the steps in which a device makes what its workgroups cannot do at once, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vyre_py.drivers.launch import Launch, LaunchPlan, plan_launch
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.binding import BindingPlan
    from vyre_py.drivers.config import DispatchConfig
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.many.commands import Command
    from vyre_py.drivers.memory.buffer import Buffer
    from vyre_py.lowering.artifact.parts import Step

__all__ = ["SteppedLaunch", "plan_steps"]


def plan_steps(device: Device, steps: Sequence[Step], binding: BindingPlan, config: DispatchConfig) -> list[LaunchPlan]:
    """A plan for each step of a part; they share the device's own buffers. Where the grid is empty there is one, of the last. Raises what `plan_launch`
    raises; Unsupported for a grid in place of the Program's, by which those buffers are sized; OutOfMemory."""
    last = plan_launch(device, steps[-1], binding, config)
    if len(steps) == 1 or last.empty:
        return [last]
    if config.grid is not None:
        raise Unsupported(device.name, [Missing("dispatch option grid for a Program with a grid_scan", help="leave it out, or take cuda, cpu or reference")])
    plans = [*[plan_launch(device, step, binding, config) for step in steps[:-1]], last]
    totals: dict[str, Buffer] = {}
    for slot in [slot for step in steps for slot in step.layout.slots if slot.kind is SlotKind.TOTALS]:
        if slot.name not in totals and slot.memory is not None:
            totals[slot.name] = device._new_buffer((evaluate_dim(slot.memory.shape[0], binding.sizes),), slot.type, device._allocate)
    return [plan._replace(own={s.name: totals[s.name] for s in plan.step.layout.slots if s.kind is SlotKind.TOTALS}) for plan in plans]


class SteppedLaunch(Launch):
    """Launches that run one after another, with no other command between them, and are set together. Its plan is that of the last.

    The steps of a call alone make what they share, and read it. So calls from several threads, and copies for graphs, may share it too.
    """

    __slots__ = ("_launches",)

    def __init__(self, launches: Sequence[Launch]) -> None:
        super().__init__(launches[-1].plan)
        self._launches = tuple(launches)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return self._launches

    def _run(self) -> None:
        self._launches[-1]._run_steps(self._launches)

    def _accept(self, buffers: Mapping[str, Buffer], params: Mapping[str, bytes]) -> None:
        bound, taken = self._bound(), []
        before = {name: bound[name] for name in buffers}
        try:
            for launch in self._launches:
                block, slots = launch.plan.block, [slot for slot in launch.plan.step.layout.params if slot.source[0] in params]
                held = [(slot, bytes(block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes])) for slot in slots]
                launch._accept(buffers, params)
                taken.append((launch, held))
        except BaseException:
            for launch, held in taken:
                launch._place(before, held)
            raise

    def _bound(self) -> dict[str, Buffer]:
        return self._launches[-1]._bound()

    def _copy(self) -> Launch:
        made = SteppedLaunch([launch._copy() for launch in self._launches])
        made.counted = 0
        return made

    def _follow(self, other: Command) -> bool:
        assert isinstance(other, SteppedLaunch)  # what this one is a copy of
        followed = [mine._follow(its) for mine, its in zip(self._launches, other._launches, strict=True)]
        return any(followed)
