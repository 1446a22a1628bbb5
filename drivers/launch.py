"""Launch plans and launches: everything decided once, at bind; calling a launch only runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from vyre_py.drivers.binding import BindingPlan, arguments_by_name, solve_grid, too_wide
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.many.commands import LAUNCH, Command, CommandView, Use
from vyre_py.drivers.many.indirect import require_grid, written_grid
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.observe.telemetry import LaunchRecord
from vyre_py.drivers.reports import ReportHolder, report_of
from vyre_py.drivers.sharing.exchange import shares_memory, wrap
from vyre_py.drivers.sharing.read_only import unwritable
from vyre_py.ir.imports import deferred, importing
from vyre_py.ir.language.dims import DimExpr, evaluate_dim
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import u32
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary
from vyre_py.lowering.artifact.parts import Aligned, Need, Step, Within
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.sharing.c_launch import CLaunch

if TYPE_CHECKING:
    from vyre_py.ir.text import lexer
else:
    (lexer,) = deferred("vyre_py.ir.text", "lexer")

__all__ = ["EmptyLaunch", "Launch", "LaunchPlan", "choose_entry", "is_met", "plan_launch"]

_PLAIN: Final = DispatchConfig()
_NO_OWN: Final[Mapping[str, Buffer]] = MappingProxyType({})


class LaunchPlan(NamedTuple):
    """The plan of one launch: the number of the entry, the grid in workgroups, each of which has an invocation for each element, the argument block, and what
    holds the report of code that asserts or prints. `own` are other buffers than arguments, by slot name: what the steps of one launch share, and the grid of
    code that reads it.

    `block` holds every slot of the step's layout at its offset; buffer slots are left zero for the device to fill with addresses.
    `common` is shared by known plans (`cache.known_plans`) of the same types and shapes: what a kind of device worked out for an entry, by its number.
    """

    device: Device
    step: Step
    entry: int
    grid: tuple[int, int, int]
    block: bytearray
    binding: BindingPlan
    config: DispatchConfig = _PLAIN
    report: ReportHolder | None = None
    own: Mapping[str, Buffer] = _NO_OWN
    common: dict[int, Any] | None = None

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """The buffers by slot name: the arguments, and the device's own for what the code reports."""
        base: Mapping[str, Buffer] = self.binding.buffers
        if self.report is not None and self.report.report.buffer is not None:
            slot = self.step.layout.find(SlotKind.REPORT)
            assert slot is not None  # where there is a buffer, there is its slot (`report_of`)
            base = {**base, slot.name: self.report.report.buffer}
        return {**base, **self.own} if self.own else base

    @property
    def grid_buffer(self) -> Buffer | None:
        """The buffer that the device reads the grid from; `grid` is one workgroup then."""
        return self.config.grid if isinstance(self.config.grid, Buffer) else None

    @property
    def label(self) -> str:
        """The launch's name for people."""
        return self.config.label

    @property
    def empty(self) -> bool:
        """Whether there is nothing to run."""
        return 0 in self.grid

    @property
    def workgroup(self) -> tuple[int, int, int]:
        """The size of a workgroup of the entry."""
        return self.step.workgroup_of(self.entry)

    @property
    def launched(self) -> tuple[int, int, int]:
        """The workgroups that the entry takes for the grid."""
        entry, width = self.step.entries[self.entry], self.step.workgroup[0]
        if entry.elements == 1:
            return self.grid
        full, left = divmod(evaluate_dim(self.step.grid.extents[0], self.binding.sizes), width * entry.elements)
        return full + -(-left // width), *self.grid[1:]

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import plan_html

        return plan_html("Launch plan", self, self.buffers)

    def view(self, buffers: Mapping[str, Buffer]) -> CommandView:
        """What pictures show of a launch over these buffers."""
        declared = [memory for memory in self.binding.interface.buffers if memory.name in buffers]
        uses = [Use(memory.name, buffers[memory.name], memory.access.reads, memory.access.writes) for memory in declared]
        uses += [Use("grid", self.grid_buffer, True, False)] if self.grid_buffer is not None else []
        return CommandView(LAUNCH.name, self.label or self.binding.interface.name, tuple(uses))

    def copied(self) -> LaunchPlan:
        """The same plan, with buffers and params of its own."""
        return self._replace(block=bytearray(self.block), binding=self.binding._replace(buffers=dict(self.binding.buffers)))

    def record(self) -> LaunchRecord:
        """A record for the launches of this plan."""
        return self.device.telemetry.record(**self.amounts())

    def amounts(self, occupancy: float = 0.0) -> dict[str, int]:
        """The amounts a launch adds to the counters, by name: invocations that the Program asks for and that run, bytes of arguments. `occupancy` is the
        share of a multiprocessor's threads that the kernel can keep busy, 0 to 1, where that is known."""
        if self.grid_buffer is not None:
            return {"parameter_bytes": len(self.block)}  # how many run, the device alone knows
        threads = asked = prod(self.launched) * prod(self.workgroup)
        if self.step.grid.over:
            extents = [evaluate_dim(extent, self.binding.sizes) for extent in self.step.grid.extents]
            # A grid that was given in place of the Program's own may go beyond it, or not reach its end.
            asked = prod(min(e, g * w) for e, g, w in zip(extents, self.grid, self.step.workgroup, strict=True))
        return {
            "elements_launched": asked, "threads_scheduled": threads, "threads_occupied": round(threads * occupancy), "parameter_bytes": len(self.block),
        }  # fmt: skip


def plan_launch(device: Device, step: Step, binding: BindingPlan, config: DispatchConfig) -> LaunchPlan:
    """The plan for bound arguments. Where the grid is empty there is nothing to run, so that no size has to be a value. Raises BindingError for a size that
    is needed and is none, and what `solve_grid` and `require_grid` raise; OutOfMemory."""
    if binding.interface.wide and (problems := too_wide(step.layout, binding, device)):
        raise BindingError(binding.interface.name, problems)
    given, read = config.grid, step.layout.find(SlotKind.GRID)
    if isinstance(given, Buffer):
        require_grid(device, binding, given)
    grid = (1, 1, 1) if isinstance(given, Buffer) else solve_grid(step, binding.sizes, given, device.limits.workgroups, device.name)
    empty = 0 in grid
    if not empty:
        binding.require_sizes()
    block = bytearray(step.layout.size_bytes)
    for slot in step.layout.scalars:
        if slot.kind is SlotKind.PARAM:
            data = slot.cut(binding.params[slot.source[0]])
        elif slot.axis is not None:
            data = grid[slot.axis].to_bytes(slot.size_bytes, "little")
        else:
            assert slot.expr is not None  # an extent slot has an expression (layout.lay_out)
            data = (0 if empty else _extent(slot, slot.expr, binding)).to_bytes(slot.size_bytes, "little")
        block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = data
    entry = choose_entry(step, binding.sizes, binding.buffers, config)
    report = None if empty else report_of(device, step, entry, binding.interface.name, binding.interface.reports, config)
    own = _NO_OWN if read is None or empty else {read.name: given if isinstance(given, Buffer) else device.upload(np.array(grid, np.uint32))}
    return LaunchPlan(device, step, entry, grid, block, binding, config, report, own)


def choose_entry(step: Step, sizes: Mapping[str, int], buffers: Mapping[str, Buffer], config: DispatchConfig, *, boxes: bool = True) -> int:
    """The number of the best entry of a step whose needs are met. One that does several elements an invocation is left out where the grid was given, one that
    takes descriptions of boxes unless `boxes`, or where a cluster was: it may walk through the grid by itself."""
    last = len(step.entries) - 1
    given, boxes = config.grid is not None or config.cluster is not None, boxes and config.cluster is None
    for number, entry in enumerate(step.entries[:last]):
        if not (given and entry.elements > 1) and (boxes or not entry.boxes) and all(is_met(need, sizes, buffers) for need in entry.needs):
            return number
    return last


def is_met(need: Need, sizes: Mapping[str, int], buffers: Mapping[str, Buffer]) -> bool:
    """Whether sizes and buffers meet a need of an entry. Memory that is not known does not."""
    if isinstance(need, Aligned):
        buffer = buffers.get(need.buffer)  # None where a plan is for any memory
        begin = None if buffer is None else buffer.device._begin(buffer.allocation.handle)
        return buffer is not None and begin is not None and (begin + buffer.offset_bytes) % need.size_bytes == 0
    try:
        size = evaluate_dim(need.expr, sizes)
        return 1 <= size <= need.most if isinstance(need, Within) else size % need.by == 0
    except ZeroDivisionError:
        return False


def _extent(slot: Slot, expr: DimExpr, binding: BindingPlan) -> int:
    """The size that a slot carries. Raises BindingError for one that it does not hold."""
    try:
        size = evaluate_dim(expr, binding.sizes)
    except ZeroDivisionError:
        raise BindingError(binding.interface.name, ["a size used as a value divides by zero"]) from None
    power, cure = (32, "; vp.cast(size, vp.u64) takes it whole") if slot.type is u32 else (48, "")
    if not 0 <= size < 1 << power:
        cure = cure if size > 0 else ""
        raise BindingError(binding.interface.name, [f"a size used as a value is {size}, which is outside 0 to 2^{power} - 1{cure}"])
    return size


@public
class Launch(Command, Stationary):
    """A bound launch. Call it to enqueue the kernel; it neither waits nor allocates.

    Attributes: `plan`, and `counted`, how many launches a call counts for: none where a graph replays it.

    Device kinds subclass it with `_run` (or `__call__`), `_set_buffer` and `_set_slot` (or `_put`) and, where they have streams, `on`.
    """

    travels_as = "send the pipeline, and bind it there"
    _kind = LAUNCH

    __slots__ = ("_c_launch", "counted", "plan")

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.counted = 1
        self._c_launch: CLaunch | None = None

    def __repr__(self) -> str:
        plan = self.plan
        label = f" ({shown(plan.label)})" if plan.label else ""
        grid, group = (" x ".join(map(str, sizes)) for sizes in (plan.grid, plan.workgroup))
        grid = grid if plan.grid_buffer is None else "as many as a buffer says"
        written = lexer.written_name
        said = [f"{written(name)} = {size}" for name, size in plan.binding.sizes.items()]
        said += [f"{written(name)}: {buffer.type}{list(buffer.shape)}{' (freed)' if buffer.allocation.freed else ''}" for name, buffer in self._bound().items()]
        return f"<Launch of {shown(plan.binding.interface.name)}{label} on {plan.device.name}: {grid} workgroups of {group}{''.join(f', {s}' for s in said)}>"

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.drivers.observe.cards import plan_html

        return plan_html("Launch", self.plan, self._bound())

    @property
    def _device(self) -> Device:
        return self.plan.device

    @property
    def _title(self) -> str:
        return self.plan.binding.interface.name

    def set(self, arguments: Any = None, /, **named: Any) -> Self:
        """Rebinds params or buffers, given as for `bind`; a buffer must have the shape and type of the one it replaces. Gives the launch itself.

        Raises BindingError for anything that does not fit; then nothing was changed.
        """
        plan = self.plan
        wanted, problems = arguments_by_name(plan.binding.interface, arguments, named)
        buffers = self._bound()
        encoded: dict[str, bytes] = {}
        params = {p.name: p for p in plan.binding.interface.params}
        written = {b.name for b in plan.binding.interface.buffers if b.access.writes}
        for name, value in wanted.items():
            try:
                if name in buffers:
                    buffers[name] = _replacement(name, buffers[name], value, name in written)
                elif name in params:
                    encoded[name] = encode_param(params[name], value)
                else:
                    problems.append(f"there is no param or buffer {shown(name)}")
            except BindingError as error:
                problems += error.problems
        changed = {name: buffers[name] for name in wanted if name in buffers}
        if changed:
            problems += plan.binding.overlaps(buffers, changed)
            problems += written_grid(plan.binding, changed, plan.grid_buffer) if plan.grid_buffer is not None else []
        if problems:
            raise BindingError(plan.binding.interface.name, problems)
        self._accept(changed, encoded)
        if self._c_launch is not None:
            self._c_launch.follow(self)
        return self

    def _bound(self) -> dict[str, Buffer]:
        return dict(self.plan.binding.buffers)

    def _view(self) -> CommandView:
        return self.plan.view(self._bound())

    def _accept(self, buffers: Mapping[str, Buffer], params: Mapping[str, bytes]) -> None:
        """Takes arguments that fit: all of them, or none where it raises."""
        self._place(buffers, [(slot, slot.cut(params[slot.source[0]])) for slot in self.plan.step.layout.params if slot.source[0] in params] if params else [])

    def _place(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        """Puts what fits in its place."""
        self._put(buffers, slots)
        for slot, data in slots:
            self.plan.block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = data
        self.plan.binding.buffers.update(buffers)

    def _put(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        """Has later calls take these buffers and params."""
        for name, buffer in buffers.items():
            self._set_buffer(name, buffer)
        for slot, data in slots:
            self._set_slot(slot, data)

    def _run_steps(self, steps: Sequence[Self]) -> None:
        """Enqueues the steps of one launch, of which this is the last, with no other command between them."""
        raise Unsupported(self.plan.device.name, [Missing("launches of several steps")])

    def on(self, stream: Any) -> Self:
        """The launch, enqueued on another stream from now on."""
        raise Unsupported(self.plan.device.name, [Missing("streams")])

    @property
    def inner(self) -> Launch:
        """The launch itself; of one that is wrapped around another, that one."""
        return self

    @property
    def c_address(self) -> int:
        """The address of the launch as C sees it: a `vyre_launch_t` of `vyre.h`, in the folder that `vyre_py.include_dir()` gives. It is there for as long
        as this object, and follows what `set` and `on` change. No thread may run it while another changes or drops the launch.

        Raises Unsupported on devices other than cpu and cuda; DeviceLost.
        """
        with importing:
            from vyre_py.drivers.sharing.c_launch import c_launch_of  # few launches are for C

        return c_launch_of(self.inner).address

    @property
    def raw(self) -> Any:
        """The device library's own handles."""
        raise Unsupported(self.plan.device.name, [Missing("raw handles")])

    def _copy(self) -> Launch:
        made = self._of(self.plan.copied())
        made.counted = 0
        return made

    def _of(self, plan: LaunchPlan) -> Launch:
        """A launch of another plan for the same code."""
        raise Unsupported(self.plan.device.name, [Missing("capture")])

    def _follow(self, other: Command) -> bool:
        assert isinstance(other, Launch)  # what this one is a copy of
        now, then = other.plan, self.plan
        buffers = {name: buffer for name, buffer in now.buffers.items() if then.buffers[name] is not buffer}
        slots = []
        for slot in now.step.layout.params:
            place = slice(slot.offset_bytes, slot.offset_bytes + slot.size_bytes)
            if now.block[place] != then.block[place]:
                slots.append((slot, bytes(now.block[place])))
        if buffers or slots:
            self._place(buffers, slots)
        return bool(buffers or slots)

    def _set_buffer(self, name: str, buffer: Buffer) -> None:
        raise Unsupported(self.plan.device.name, [Missing("launch.set of a buffer")])

    def _set_slot(self, slot: Slot, data: bytes) -> None:
        raise Unsupported(self.plan.device.name, [Missing("launch.set of a param")])


def _replacement(name: str, old: Buffer, value: Any, written: bool) -> Buffer:
    """The replacement of a bound buffer. Raises BindingError with all problems of it."""
    try:
        new = wrap(old.device, value, name) if not isinstance(value, Buffer) and shares_memory(old.device, value) else value
    except BindingError as error:
        raise BindingError(name, [f"{name!r}: {problem}" for problem in error.problems]) from error
    problems = []
    if not isinstance(new, Buffer) or new.device is not old.device or not new.is_like(old):
        problems.append(f"{name!r} must be a {old.type}{list(old.shape)} buffer on {old.device.name}, got {shown(value)}")
    if isinstance(new, Buffer) and new.allocation.freed:
        problems.append(f"{name!r} {new.allocation.absence}")
    if isinstance(new, Buffer) and new.readonly and written:
        problems.append(unwritable(name, value))
    if not isinstance(new, Buffer) or problems:
        raise BindingError(name, problems)
    return new


class EmptyLaunch(Launch):
    """A launch over a grid of no workgroups: it runs nothing."""

    __slots__ = ()

    def __call__(self) -> None:
        """Does nothing."""

    def on(self, stream: Any) -> Self:
        """The launch itself."""
        return self

    def _set_buffer(self, name: str, buffer: Buffer) -> None:
        pass

    def _set_slot(self, slot: Slot, data: bytes) -> None:
        pass
