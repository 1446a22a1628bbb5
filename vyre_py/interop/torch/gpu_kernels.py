"""Kernels of compiled graphs on CUDA, called with tensors and a stream of PyTorch's.

Like those on the CPU each is compiled when it is first called. A call writes addresses into a block of arguments that is there for each set of sizes, and
is one call of the driver; with the sizes of the last one it is native code (`drivers/cuda/native/planned_enqueue.py`). Where memory and sizes allow, an
invocation does several elements.

A Program that reports a problem writes its number to host memory that the GPU reaches. It is raised by a later call of the same kernel, or by `raise_problems`,
as PyTorch's own assertions on a GPU come later, too. Unlike after those the device goes on: what an index beyond an axis reads is zero, what it writes nothing.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final
from weakref import WeakSet

import torch

import vyre_py as vp
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cuda.launch.launcher import Launcher
from vyre_py.drivers.cuda.native.planned_enqueue import PlannedEnqueue, planned_method
from vyre_py.drivers.launch import LaunchPlan, is_met, plan_launch
from vyre_py.interop.hidden_device import gpu_device
from vyre_py.interop.torch.runtime import EXCHANGES, MODE, WATCHERS, TensorKernel, binding_of, element_count, span_bytes
from vyre_py.lowering.artifact.parts import Aligned

__all__ = ["GpuKernel", "gpu_kernel", "raise_problems"]

_ALIGNED: Final = 16
_PLANS: Final = 128  # sets of sizes that a kernel remembers, each for aligned memory and for any
_ADDRESS: Final = struct.Struct("<Q")
_reporting: Final[WeakSet[GpuKernel]] = WeakSet()
_lock = threading.Lock()


class _GpuPlan:
    """A launch but for addresses. Attributes: the number of the `entry`, the `grid`, None where there is nothing to run, the `block` and what makes one of it,
    `pack`, which puts the addresses of all tensors into it from `first` on, at their `offsets`, and `counts`, how many elements each tensor needs, `needs` in
    bytes."""

    __slots__ = ("block", "counts", "entry", "first", "grid", "memories", "name", "needs", "offsets", "pack", "structure")

    def __init__(self, plan: LaunchPlan, tensors: int) -> None:
        self.entry, self.grid, self.block = plan.entry, None if plan.empty else Launcher.grid(plan.launched), bytes(plan.block)
        interface, sizes = plan.binding.interface, plan.binding.sizes
        self.name, self.memories = interface.name, interface.buffers[:tensors]
        self.counts = [element_count(memory, sizes) for memory in self.memories]
        self.needs = [count * memory.type.size_bytes for count, memory in zip(self.counts, self.memories, strict=True)]
        self.structure = (ctypes.c_char * len(self.block)).from_buffer_copy
        self.offsets = tuple(slot.offset_bytes for slot in plan.step.layout.buffers[:tensors])
        self.pack, self.first = _packing(self.offsets)


@cache
def _packing(offsets: tuple[int, ...]) -> tuple[Callable[..., None], int]:
    """What puts addresses into a block at these offsets, which follow one another as a rule, given the first."""
    first = offsets[0] if offsets else 0
    if offsets == tuple(range(first, first + _ADDRESS.size * len(offsets), _ADDRESS.size)):
        whole = struct.Struct(f"<{len(offsets)}Q").pack_into
        return whole, first

    def pack(block: Any, _: int, *addresses: int) -> None:
        for offset, address in zip(offsets, addresses, strict=True):
            _ADDRESS.pack_into(block, offset, address)

    return pack, first


class GpuKernel(TensorKernel):
    """A Program on one GPU, called with the tensors of its buffers, the values of its dims and params, and the handle of a stream. Attribute: `ordinal`."""

    __slots__ = ("__weakref__", "_enqueues", "_gpu_plans", "_launcher", "_word", "ordinal")

    def __init__(self, text: str, buffers: int, problems: Sequence[tuple[str, str]], ordinal: int) -> None:
        self.ordinal = ordinal
        super().__init__(text, buffers, problems)
        self._gpu_plans: dict[tuple[Any, ...], _GpuPlan] = {}
        self._enqueues: dict[tuple[Any, ...], PlannedEnqueue] = {}  # by sizes, what native code reads
        self._launcher: Launcher | None = None
        self._word: Any = None  # pinned memory, where the Program reports problems

    def open(self) -> Any:
        """The hidden device of its GPU."""
        return gpu_device(self.ordinal)

    def __call__(self, *arguments: Any) -> None:
        """Enqueues it. Raises IndexError and RuntimeError where an earlier call reported a problem, BindingError where a tensor is too small or on another
        device, and LaunchError."""
        self._slow(*arguments)

    def _slow(self, *arguments: Any) -> None:
        """A call that native code did not take. It takes the next one of these sizes, where it can."""
        if WATCHERS:
            self.watched(arguments[:-1])
        if not torch._C._len_torch_function_stack():
            self._enqueue(*arguments)
        else:
            with torch._C.DisableTorchFunction():  # a mode, as `set_default_device` sets one, would be asked about each of the calls below
                self._enqueue(*arguments)
        if not WATCHERS:
            self._go_native(arguments[: self.tensor_count], arguments[self.tensor_count : -1])

    def _enqueue(self, *arguments: Any) -> None:
        tensors, numbers, addresses, bits = arguments[: self.tensor_count], arguments[self.tensor_count : -1], [], 0
        for tensor in tensors:
            if not tensor.is_cuda:
                return self._with_numbers(tensors, arguments)
            addresses.append(address := tensor.data_ptr())
            bits |= address
        aligned = not bits % _ALIGNED
        plan = self._gpu_plans.get((numbers, aligned)) or self._gpu_planned(numbers, aligned)
        if self._word is not None:
            self.raise_problem()
        if plan.grid is None:
            return None
        for tensor, count, memory in zip(tensors, plan.counts, plan.memories, strict=True):
            if tensor.numel() < count and span_bytes(tensor) < count * memory.type.size_bytes:
                raise self._misfit(memory, tensor, count)
        block = plan.structure(plan.block)
        plan.pack(block, plan.first, *addresses)
        assert self._launcher is not None  # a plan has one
        return self._launcher.enqueue(plan.entry, plan.grid, arguments[-1], block, plan.name)

    def _go_native(self, tensors: Sequence[Any], numbers: tuple[Any, ...]) -> None:
        """Has native code take calls of these sizes, and with tensors of these types."""
        enqueue = self._enqueues.get(numbers)
        if enqueue is None:
            plans = [self._gpu_plans.get((numbers, aligned)) or self._gpu_planned(numbers, aligned) for aligned in (True, False)]
            place = self.pipeline.device.dlpack_device
            if any(plan.grid is None for plan in plans) or place is None or self._launcher is None:
                return
            enqueue = PlannedEnqueue(
                place, self._launcher, [(plan.entry, plan.grid) for plan in plans], _ALIGNED, 0 if self._word is None else self._word.data_ptr(),
                plans[0].block, list(zip(plans[0].needs, plans[0].offsets, strict=True)), [int(number) for number in numbers], MODE.address, EXCHANGES,
            )  # fmt: skip
            with _lock:
                if len(self._enqueues) >= _PLANS:
                    del self._enqueues[next(iter(self._enqueues))]
                self._enqueues[numbers] = enqueue
        if sum(map(EXCHANGES.learn, tensors)):
            for known in tuple(self._enqueues.values()):
                known.know(EXCHANGES)
        enqueue.know(EXCHANGES)  # of what other kernels have learned
        self._state = enqueue

    def _with_numbers(self, tensors: Sequence[Any], arguments: Sequence[Any]) -> None:
        """A call some of whose tensors lie on the CPU: those without axes are numbers of the host's, and go over."""
        for tensor, memory in zip(tensors, self.pipeline.artifact.interface.buffers, strict=False):
            if not tensor.is_cuda and tensor.dim():
                raise self._misfit(memory, tensor, 0)
        self._enqueue(*[tensor if tensor.is_cuda else tensor.to(f"cuda:{self.ordinal}") for tensor in tensors], *arguments[len(tensors) :])

    def _misfit(self, memory: Any, tensor: Any, count: int) -> vp.BindingError:
        if not tensor.is_cuda:
            return vp.BindingError(self.pipeline.name, [f"{memory.name!r} is a tensor on {tensor.device}; cuda:{self.ordinal} runs the kernel"])
        return vp.BindingError(self.pipeline.name, [f"{memory.name!r} spans {span_bytes(tensor)} bytes; {count * memory.type.size_bytes} are needed"])

    def _gpu_planned(self, numbers: tuple[Any, ...], aligned: bool) -> _GpuPlan:
        pipeline = self.pipeline
        interface, (step,) = pipeline.artifact.interface, pipeline.part.steps
        binding = binding_of(interface, numbers)
        sizes, plan = binding.sizes, plan_launch(pipeline.device, step, binding, DispatchConfig())
        met = [not entry.boxes and all(aligned if isinstance(need, Aligned) else is_met(need, sizes, {}) for need in entry.needs) for entry in step.entries]
        # The last entry needs nothing.
        made = _GpuPlan(plan._replace(entry=met.index(True)), self.tensor_count)
        with _lock:
            if self._launcher is None:
                self._launcher = Launcher(pipeline.device, step, pipeline._codes[0])
                if self.problems:
                    self._word = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=True)
                    _reporting.add(self)
            if self._word is not None:
                block = bytearray(made.block)
                _ADDRESS.pack_into(block, step.layout.buffers[self.tensor_count].offset_bytes, self._word.data_ptr())
                made.block = bytes(block)
            if len(self._gpu_plans) >= _PLANS:
                del self._gpu_plans[next(iter(self._gpu_plans))]
            self._gpu_plans[numbers, aligned] = made
        return made

    def raise_problem(self) -> None:
        """Raises what a launch that has run has reported, once."""
        word = ctypes.c_int32.from_address(self._word.data_ptr())
        told, word.value = word.value, 0
        self._raise(told)


class _NativeGpuKernel(GpuKernel):
    """The same, called in native code."""

    __slots__ = ()


def gpu_kernel(text: str, buffers: int, problems: Sequence[tuple[str, str]], ordinal: int) -> GpuKernel:
    """What generated code calls."""
    with _lock:
        if "__call__" not in vars(_NativeGpuKernel):
            _NativeGpuKernel.__call__ = planned_method(_NativeGpuKernel)  # type: ignore[method-assign]  # what is assigned is a method of native code
    return _NativeGpuKernel(text, buffers, problems, ordinal)


def raise_problems(result: Any = None) -> Any:
    """Waits for all GPUs, and raises what kernels of compiled graphs have reported there: IndexError for an index beyond its axis, RuntimeError for an
    assertion. Without it a problem is raised by the next call of the kernel that reported it. Gives `result`."""
    for ordinal in {kernel.ordinal for kernel in tuple(_reporting)}:
        torch.cuda.synchronize(ordinal)
    for kernel in tuple(_reporting):
        kernel.raise_problem()
    return result
