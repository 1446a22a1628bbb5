"""What launches of one kernel have in common where their buffers have the same types and shapes: made with the first, and taken by those after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from vyre_py.drivers.cuda.launch.boxes import BoxForm
from vyre_py.drivers.cuda.native.call_list import ListForm
from vyre_py.drivers.launch import LaunchPlan
from vyre_py.drivers.observe.telemetry import LaunchRecord

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.launch.launch import BoundKernel

__all__ = ["KernelCommon", "common_of"]


class KernelCommon(NamedTuple):
    """Of launches that have neither attributes nor device words of their own: the grid; where slots are in the block, by name, the `names` of buffers, and
    what describes boxes of them; the native call, but for its block; what a launch counts; the stream that all go to at first; and the form of their native
    lists."""

    grid: tuple[int, int, int]
    offsets: dict[str, int]
    names: list[str]
    boxes: tuple[BoxForm, ...]
    function: int
    arguments: tuple[int, ...]
    block_bytes: int
    name: str
    counts: Mapping[str, int]
    record: LaunchRecord | None
    stream: int
    form: ListForm

    @classmethod
    def of(cls, kernel: BoundKernel, offsets: dict[str, int]) -> KernelCommon:
        """That of a launch which was made by itself."""
        (row,) = kernel.rows
        (call,) = row.calls
        names = [slot.name for slot in kernel.plan.step.layout.buffers]
        form = ListForm(kernel.calls, kernel.block_address)
        return cls(
            kernel.grid, offsets, names, kernel._boxes, call.function, call.arguments, call.block_bytes, row.name, row.counts, kernel._record, kernel.stream,
            form,
        )  # fmt: skip


def common_of(plan: LaunchPlan) -> KernelCommon | None:
    """What is there already for a plan's entry, if anything is."""
    return None if plan.common is None else plan.common.get(plan.entry)
