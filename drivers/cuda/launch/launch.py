"""Bound launches: everything packed at bind, so that a call is one native call of the driver."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from vyre_py.drivers.cuda.launch.attributes import Attribute, launch_attributes, packed_config
from vyre_py.drivers.cuda.launch.boxes import BoxForm, box_forms, pays_to_share
from vyre_py.drivers.cuda.launch.buffer_records import record_of, words_of
from vyre_py.drivers.cuda.launch.cooperative import require_resident
from vyre_py.drivers.cuda.launch.kernel_common import KernelCommon, common_of
from vyre_py.drivers.cuda.launch.kernel_words import take_words
from vyre_py.drivers.cuda.launch.module import CudaModule
from vyre_py.drivers.cuda.launch.persistent import launched_grid
from vyre_py.drivers.cuda.native import call_list
from vyre_py.drivers.cuda.native.call_list import Call, CallList, SlotRow
from vyre_py.drivers.cuda.native.command_list import CommandList, NativeCommand
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import Launch, LaunchPlan, choose_entry
from vyre_py.drivers.many.commands import LAUNCH, require_memory
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.lowering.layout import Slot, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice
    from vyre_py.drivers.cuda.graph.recorder import CudaRecorder

__all__ = ["BoundKernel", "CudaLaunch", "stream_handle"]

_ADDRESS: Final = struct.Struct("<Q")
# What a native list is made from, and made with it.
_LAUNCHED: Final = ("plan", "module", "grid", "stream", "rows", "_attributes", "_boxes", "_owner", "_record")


def stream_handle(stream: Any) -> int:
    """The driver's handle of any object whose `__cuda_stream__()` gives (version, handle). Raises BindingError for any other object."""
    method = getattr(stream, "__cuda_stream__", None)
    answer = method() if callable(method) else None
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, int) for part in answer):
        raise BindingError("stream", [f"a stream is an object with __cuda_stream__(), got {type(stream).__name__}"])
    return int(answer[1])


def _grid(device: CudaDevice, plan: LaunchPlan, module: CudaModule) -> tuple[int, int, int]:
    """The workgroups that are launched: those of the plan, fewer where an invocation does several elements, or where they are to be walked through."""
    entry = plan.step.entries[plan.entry]
    if not (plan.step.persistent or entry.walks):
        return plan.launched
    grid = plan.grid if plan.grid_buffer is None else None
    return launched_grid(device.context, module.function, plan.workgroup, module.workgroup_bytes, grid, entry.symbol)


def _attributes(device: CudaDevice, plan: LaunchPlan, module: CudaModule, grid: tuple[int, int, int]) -> tuple[Attribute, ...]:
    """The attributes of the launch. Raises Unsupported, BindingError, and LaunchError for a cooperative launch that does not fit."""
    step = plan.step
    found = launch_attributes(device.capability, step, plan.config, grid)
    if step.cooperative or plan.config.cooperative:
        require_resident(device.context, module.function, plan.workgroup, module.workgroup_bytes, grid, step.entries[plan.entry].symbol)
    cluster = step.entries[plan.entry].cluster
    if cluster > 1 and not found and plan.grid[1] % cluster == 0 and grid[0] % cluster == 0 and pays_to_share(plan):
        found = (Attribute("CLUSTER_DIMENSION", (cluster, 1, 1)),)
    return found


class BoundKernel(CommandList):
    """A list of one launch, whose arguments may be set: the argument block, the buffers, the native call. `CudaLaunch`, which users hold, is around it, so that
    a launch is freed as soon as it is dropped.

    Attributes besides those of a list: `plan`, `module` and `grid` of the entry that is launched, `block` (the argument block, which native code copies at each
    launch), `describes` (whether entries that take descriptions of boxes may be launched), `held` (buffers, in the order of their slots), `stream` (a handle),
    `streams` (foreign ones that it was ever launched on, each with the object that keeps it alive), and `lock`, which is held by each change from Python.
    """

    __slots__ = (
        "_attributes", "_boxes", "_configs", "_inside", "_modules", "_offsets", "_owner", "_retired", "_words", "block", "describes", "grid", "held", "lock",
        "module", "plan", "stream", "streams",
    )  # fmt: skip

    names_first_cause: ClassVar[bool] = True

    def __init__(self, device: CudaDevice, plan: LaunchPlan, modules: tuple[CudaModule, ...]) -> None:
        """`modules` are the kernels of the step's entries."""
        self.device, self._modules, self.describes = device, modules, True
        self._choose(plan)
        self._configs: list[Any] = []
        size = len(plan.block)
        self.block = (ctypes.c_char * size).from_buffer_copy(plan.block) if size else (ctypes.c_char * 8)()
        common = common_of(plan)
        layout, buffers = plan.step.layout, plan.buffers
        self._offsets = {slot.name: slot.offset_bytes for slot in layout.slots if slot.name} if common is None else common.offsets
        names = [slot.name for slot in layout.buffers] if common is None else common.names
        self.held: list[Buffer] = [buffers[name] for name in names]
        if common is None:  # else they are written with the list
            for name, buffer in zip(names, self.held, strict=True):
                _ADDRESS.pack_into(self.block, self._offsets[name], words_of(buffer)[1])
        self._owner: Any = None
        self._inside: set[int] = set()
        self._retired: list[Buffer] = []
        self.stream = int(device.context.stream)
        self.streams: dict[int, Any] = {}
        self.lock = threading.RLock()
        self._words = take_words(device, plan, self.block, self, self.streams) if common is None else {}
        super().__init__(device)
        if common is None and plan.common is not None and not (self._attributes or self._words):
            plan.common[plan.entry] = KernelCommon.of(self, self._offsets)

    def _choose(self, plan: LaunchPlan) -> None:
        """Selects the plan's entry."""
        self.plan, self.module = plan, self._modules[plan.entry]
        self._attributes: tuple[Attribute, ...] = ()
        self._boxes: tuple[BoxForm, ...]
        if (common := common_of(plan)) is not None:
            self.grid, self._boxes = common.grid, common.boxes
            return
        self._boxes = box_forms(self.device.context, plan)
        self.grid = _grid(self.device, plan, self.module)
        self._attributes = _attributes(self.device, plan, self.module, self.grid)

    def cancel(self) -> None:
        """Tells the loops of an interruptible kernel to end. Does not wait for what is enqueued."""
        self.device.words.raise_flag(self._words[SlotKind.CANCEL][0])

    def reset_flags(self) -> None:
        """Lets the kernel run again after `cancel`, once the cancelled launches have ended."""
        # Not all workgroups have arrived at a grid barrier, or taken a ticket.
        self.device.words.reset(self._words.values())

    @property
    def block_address(self) -> int:
        """Where the argument block begins."""
        return ctypes.addressof(self.block)

    def call(self) -> Call:
        """The native call that launches the kernel on its stream. Valid as long as the kernel lives."""
        return self.rows[0].calls[0]

    def _made_call(self) -> Call:
        plan, module, context = self.plan, self.module, self.device.context
        if self._attributes:
            config = packed_config(context.cuda, self.grid, plan.workgroup, module.workgroup_bytes, self.stream, self._attributes)
            self._configs.append(config)  # earlier ones are kept: a thread may be launching with one
            extended = (ctypes.addressof(config), int(module.function), 0, 0)
            return Call(context.function("cuLaunchKernelEx"), extended, call_list.LAUNCH_EX, self.block_address, plan.step.layout.size_bytes)
        function = context.function("cuLaunchKernel")
        arguments = (int(module.function), *self.grid, *plan.workgroup, module.workgroup_bytes, self.stream, 0, 0)
        return Call(function, arguments, call_list.LAUNCH, self.block_address, plan.step.layout.size_bytes)

    def _slots(self) -> list[SlotRow]:
        """The slots that `set` may change in native code."""
        rows = []
        written = {m.name for m in self.plan.binding.interface.buffers if m.access.writes}
        for place, slot in enumerate(self.plan.step.layout.buffers):
            signature, begin, end, _ = words_of(self.held[place])
            if slot.kind is SlotKind.GRID:  # which no buffer replaces, and none that is written may lie over
                rows.append(SlotRow("", call_list.SLOT_KINDS["buffer"], self.block_address + slot.offset_bytes, place, begin=begin, end=end))
            if slot.kind is not SlotKind.BUFFER:
                continue  # our own
            address = self.block_address + slot.offset_bytes
            boxes = next((form.address for form in self._boxes if form.name == slot.name), 0)
            rows.append(SlotRow(sys.intern(slot.name), call_list.SLOT_KINDS["buffer"], address, place, signature, slot.name in written, begin, end, boxes))
        for slot in self.plan.step.layout.params:
            if slot.source == (slot.name, 0):
                kind = call_list.SLOT_KINDS.get(slot.type.name, 0)
                rows.append(SlotRow(sys.intern(slot.name), kind, self.block_address + slot.offset_bytes))
        return rows

    def _described(self, buffers: Mapping[str, Buffer]) -> list[tuple[int, bytes]]:
        """Where the descriptions of boxes of some buffers lie in memory, and what they are; none where the entry takes none. Raises LaunchError."""
        return [
            (self.block_address + form.offset_bytes, form.described(self.device.context, words_of(buffers[form.name])[1]))
            for form in self._boxes if form.name in buffers
        ]  # fmt: skip

    def _build(self) -> None:
        for form in self._boxes:
            data = form.described(self.device.context, words_of(self.held[form.place])[1])
            ctypes.memmove(self.block_address + form.offset_bytes, data, len(data))
        common = common_of(self.plan)
        if common is not None and self.stream == common.stream:
            call = Call(common.function, common.arguments, call_list.LAUNCH, self.block_address, common.block_bytes)
            self.rows = [NativeCommand(LAUNCH, common.name, (call,), counts=common.counts)]
            self._record, records = common.record, list(map(words_of, self.held))
            for name, (_, begin, _, _) in zip(common.names, records, strict=True):
                _ADDRESS.pack_into(self.block, self._offsets[name], begin)
            self.calls = common.form.made(self.handle_status, self.block_address, self.held, records)
            return
        name, counts = self.plan.label or self.plan.binding.interface.name, self.device.launch_amounts(self.plan, self.module)
        self.rows = [NativeCommand(LAUNCH, name, (self._made_call(),), counts=counts)]
        self._record = self._recorded(self.rows)
        alive = [ctypes.addressof(buffer.allocation.alive) for buffer in self.held]
        self.calls = self._native(self.rows[0].calls, alive, slots=self._slots(), held=self.held, frozen=self._is_foreign)

    @contextmanager
    def _anew(self) -> Iterator[None]:
        """A block that changes what is launched, while no thread makes the calls; then a new native list takes the old one's place. A concurrent launch sees
        all that was before or all that is new. Where the block raises, all is as before."""
        with self.lock:
            old, before = self.calls, [(name, getattr(self, name)) for name in _LAUNCHED]
            changers = old.frozen - self._is_foreign
            old.invalidate()
            try:
                while old.in_flight:  # launches that other threads are making come first
                    time.sleep(0)
                yield
                self._build()
            except BaseException:
                for name, value in before:
                    setattr(self, name, value)
                old.restore()
                raise
            self.calls.freeze_buffers(changers)

    def move(self, stream: int, owner: Any) -> None:
        """Launches on another stream from now on, which its `owner` keeps alive. That stream waits for what is enqueued on our own and on the present one."""
        context, foreign = self.device.context, self.device.memory.foreign_use
        with self._anew():
            if stream != self.stream and context.capture is None:
                if self._is_foreign:
                    foreign.join(self.stream, f"{context.name} cannot change streams")
                foreign.after({stream} - {int(context.stream)})
            self.use_on(stream, owner)
            self.device.use_on(stream, owner, self.held)
            self.stream, self._owner = stream, owner

    @property
    def _is_foreign(self) -> bool:
        """Whether it is launched on another stream than our own."""
        return self.stream != int(self.device.context.stream)

    def use_on(self, stream: int, owner: Any) -> None:
        """Records a stream that the kernel runs on from now on, which its `owner` keeps alive."""
        if stream != int(self.device.context.stream):
            self.streams[stream] = owner

    def enter(self, number: int) -> None:
        """Launches another entry from now on."""
        with self._anew():
            self._choose(self.plan._replace(entry=number))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A block in which no other thread changes the buffers, neither in Python nor by `set` in native code."""
        with self.lock:
            self.calls.freeze_buffers(1)
            try:
                yield
            finally:
                self.calls.freeze_buffers(-1)  # another list by now, if the entry changed

    # ---- what is not plain

    @property
    def name(self) -> str:
        """See `CommandList.name`."""
        return self.rows[0].name

    @property
    def details(self) -> dict[str, str]:
        """See `CommandList.details`."""
        return {"program": self.plan.binding.interface.name, "grid": "x".join(map(str, self.grid))}

    def doing(self, row: int | None) -> str:
        """See `CommandList.doing`."""
        return f"{self.plan.step.entries[self.plan.entry].symbol} cannot be launched on {self.device.context.name}"

    def record_into(self, recorder: CudaRecorder) -> None:
        """Makes the launch a node. Raises LaunchError."""
        recorder.kernel(self)

    @contextmanager
    def entered(self) -> Iterator[CallList]:
        """See `CommandList.entered`. What replaces the list holds the lock, and waits for the end of the block as it waits for native code that makes the
        calls. So a thread whose call fails again within the block does not wait for the lock."""
        thread = threading.get_ident()
        if thread in self._inside:
            yield self.calls
            return
        with self.lock:
            calls = self.calls
            calls.enter()
        self._inside.add(thread)
        try:
            yield calls
        finally:
            self._inside.discard(thread)
            calls.leave()

    @property
    def buffers(self) -> dict[str, Buffer]:
        """The bound buffers, by the names of their slots."""
        return dict(zip([slot.name for slot in self.plan.step.layout.buffers], self.held, strict=True))

    def require_ready(self) -> None:
        """Raises BindingError when a bound buffer was freed."""
        require_memory(self.plan.binding.interface.name, self.buffers)

    def place(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        """Puts buffers and params, whose fit was checked, in their places, all at once for other threads."""
        pieces = [(self.block_address + slot.offset_bytes, data) for slot, data in slots]
        pieces += self._described(buffers)
        names = [slot.name for slot in self.plan.step.layout.buffers]
        for name, buffer in buffers.items():
            signature, begin, end, alive = record_of(buffer)
            pieces.append((self.block_address + self._offsets[name], struct.pack("<Q", begin)))
            pieces += self.calls.rebound(names.index(name), alive, signature, begin, end)
        if buffers and self._is_foreign:
            self.device.use_on(self.stream, self._owner, buffers.values())
            with self.device.context.entered():
                self.device.memory.foreign_use.after([self.stream])  # what was written to them so far
        call_list.scatter(pieces)
        # Dropped at the end, when all is in place: that may run code which launches or sets this very launch.
        olds, retired = list(self.held), self._retired
        for name, buffer in buffers.items():
            self.held[names.index(name)] = buffer
        # Buffers of a launch that another thread is making with the old block are kept until it is done.
        self._retired = [*retired, *olds] if self.calls.in_flight else []


class CudaLaunch(Launch):
    """A launch of one kernel. The object's `__call__` is the native builtin itself, and so is `set` for what is plain: buffers of the same
    shape and type, and params of 32 and 64 bits, given by keyword."""

    __slots__ = ("__call__", "__weakref__", "_state", "kernel")

    set: ClassVar[Any]  # made with the first launch: LLVM is not loaded before

    def __init__(self, device: CudaDevice, plan: LaunchPlan, modules: tuple[CudaModule, ...]) -> None:
        super().__init__(plan)
        if "set" not in CudaLaunch.__dict__:
            CudaLaunch.set = call_list.set_method(CudaLaunch)
        self._take(BoundKernel(device, plan, modules))

    def _take(self, kernel: BoundKernel) -> None:
        calls = kernel.calls
        self.kernel = kernel
        self._state = calls.state
        self.__call__ = calls.builtin()  # type: ignore[method-assign]  # a slot of that name, through which Python calls the builtin
        if self._c_launch is not None:
            self._c_launch.follow(self)

    @property
    def raw(self) -> Any:
        """The driver's own handles of the code: `module` and `function` as integers."""
        return self.plan.device._raw_code(self.kernel.module)

    def _set(self, arguments: Any = None, /, **named: Any) -> Self:
        if self.kernel.device.context.handles_invalid:  # in a forked child a thread of the parent may have held the lock
            return super().set(arguments, **named)
        with self.kernel.changing():
            return super().set(arguments, **named)

    def _bound(self) -> dict[str, Buffer]:
        return {slot.name: buffer for slot, buffer in zip(self.plan.step.layout.buffers, self.kernel.held, strict=True) if slot.kind is SlotKind.BUFFER}

    def _place(self, buffers: Mapping[str, Buffer], slots: Sequence[tuple[Slot, bytes]]) -> None:
        kernel, step = self.kernel, self.plan.step
        before = kernel.plan.entry
        entry = choose_entry(step, self.plan.binding.sizes, {**self._bound(), **buffers}, self.plan.config, boxes=kernel.describes)
        if entry != before:
            kernel.enter(len(step.entries) - 1)  # which takes the buffers of before and those of now
        kernel.place(buffers, slots)
        if entry != kernel.plan.entry:
            kernel.enter(entry)
        if entry != before:
            self.plan = kernel.plan
            self._take(kernel)

    def _leave_boxes(self) -> None:
        """Has the launch take an entry, from now on, for which nothing but the address of a buffer says where that is."""
        kernel = self.kernel
        kernel.describes = False
        if self.plan.step.entries[kernel.plan.entry].boxes:
            kernel.enter(choose_entry(self.plan.step, self.plan.binding.sizes, self._bound(), self.plan.config, boxes=False))
            self.plan = kernel.plan
            self._take(kernel)

    def on(self, stream: Any) -> Self:
        """The launch, enqueued on another stream from now on: any object whose `__cuda_stream__()` gives (version, handle).

        It comes after everything enqueued so far on the device's own stream, and on the one that it leaves. From then on reads, writes, copies, fills
        and frees of its buffers are ordered with that stream by themselves; other launches over them are not: `device.record_event` and
        `wait_event` order those. Raises BindingError for any other object.
        """
        handle = stream_handle(stream)
        self.kernel.device.require_usable()
        with self.kernel.device.context.entered(), self.kernel.lock:
            self.kernel.move(handle, stream)
            self._take(self.kernel)
        return self
