"""Kernels of compiled graphs, called with tensors: the one place that knows how a Program is run on them.

Generated code makes a `TensorKernel` of the text of each Program. It compiles it when it is first called, and plans a launch once for each set of sizes; calls
with the sizes of the last one are native code (`drivers/cpu/planned_call.py`). Strides are Inductor's business; that each tensor reaches as far as its kernel
may go is looked at. Several may lie in one memory, as the parts of a concatenation do, in elements of their own.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import torch

import vyre_py as vp
from vyre_py.drivers.binding import BindingPlan
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.cores import thread_count
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.launch import no_scratch, run_grid
from vyre_py.drivers.cpu.native_run import CLOCK
from vyre_py.drivers.cpu.planned_call import PlannedCall, planned_method
from vyre_py.drivers.cpu.workers import run_alone, run_together
from vyre_py.drivers.launch import plan_launch
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.native.arrays import ExchangeTable
from vyre_py.drivers.native.mode import Mode, ModeWord
from vyre_py.drivers.native.planned import unplanned
from vyre_py.interop.hidden_device import host_device
from vyre_py.interop.torch.ahead import begin_compiling, program_of
from vyre_py.interop.torch.tensors import require_cpu
from vyre_py.ir.language.dims import evaluate_extent

__all__ = ["EXCHANGES", "MODE", "WATCHERS", "TensorKernel", "binding_of", "element_count", "kernel", "programs", "span_bytes", "watching"]

_PLANS: Final = 64  # sets of sizes that a kernel remembers
_ADDRESS: Final = struct.Struct("<Q")
_GRID: Final = struct.Struct("<3q")
_lock = threading.RLock()
WATCHERS: Final[list[Callable[[TensorKernel, Sequence[Any]], None]]] = []  # who is told of calls
EXCHANGES: Final = ExchangeTable()  # of tensors' types: PyTorch's own and its subclasses
MODE: Final = ModeWord()  # stops native calls while anybody watches
_never: Final = ModeWord(ctypes.c_uint64(int(Mode.OBSERVED)))


def _threads() -> int:
    return min(thread_count(), int(torch.get_num_threads()))


def span_bytes(tensor: Any) -> int:
    """How many bytes there are from the first element to the last."""
    if not tensor.numel():
        return 0
    return int(1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))) * int(tensor.element_size())


def element_count(memory: Any, sizes: Mapping[str, int]) -> int:
    """How many elements a buffer of a Program has."""
    return prod(evaluate_extent(extent, sizes) for extent in memory.shape)


def binding_of(interface: Any, numbers: Sequence[Any]) -> BindingPlan:
    """What a launch is planned from, for the values of dims, of which none is below zero, and params."""
    count = len(interface.dims)
    sizes = {dim.name: max(0, int(size)) for dim, size in zip(interface.dims, numbers[:count], strict=True)}
    params = {param.name: encode_param(param, value) for param, value in zip(interface.params, numbers[count:], strict=True)}
    shapes = {memory.name: tuple(evaluate_extent(extent, sizes) for extent in memory.shape) for memory in interface.buffers}
    return BindingPlan(interface, sizes, params, {}, {}, shapes)


class TensorKernel:
    """A Program, called with the tensors of its buffers, then with the values of its dims and params.

    `problems` are the errors that the Program reports: it writes the number of one, counted from 1, to its last buffer, which the kernel adds itself. They are
    pairs of a name of an exception and a message.

    Attributes: `text`, `tensor_count`, `problems`.
    """

    __slots__ = ("_pipeline", "_plans", "_state", "problems", "tensor_count", "text")

    def __init__(self, text: str, buffers: int, problems: Sequence[tuple[str, str]] = ()) -> None:
        self.text = text
        self.tensor_count, self.problems = buffers, tuple(problems)
        self._plans: dict[tuple[Any, ...], PlannedCall] = {}
        self._pipeline: Any = None
        self._state: bytearray = unplanned(_never.address)  # what native code reads
        begin_compiling(text, self.open())

    def __repr__(self) -> str:
        return f"<TensorKernel of {self.text.partition('(')[0].removeprefix('program ')!r}>"

    @property
    def pipeline(self) -> Any:
        """The compiled Program."""
        if self._pipeline is None:
            with _lock:
                if self._pipeline is None:
                    device = self.open()
                    self._pipeline = device.compile_native(program_of(self.text, device))
        return self._pipeline

    def open(self) -> Any:
        """The hidden device that it runs on."""
        return host_device()

    def watched(self, arguments: Sequence[Any]) -> None:
        """Tells who watches of a call."""
        for watcher in tuple(WATCHERS):
            watcher(self, arguments)

    def __call__(self, *arguments: Any) -> None:
        """Runs it. Raises IndexError and RuntimeError where the Program reports a problem, BindingError where a tensor is too small or a number is none of its
        type, Unsupported for tensors on other devices, and LaunchError where there is no memory for it."""
        self._slow(*arguments)

    def _slow(self, *arguments: Any) -> None:
        """A call that native code did not take. Where it lacked the plan, or did not know the types of tensors, it is asked again."""
        self.watched(arguments)
        tensors, numbers = arguments[: self.tensor_count], arguments[self.tensor_count :]
        call = self._plans.get(numbers) or self._planned(numbers)
        learned = sum(map(EXCHANGES.learn, tensors))
        if learned:
            for known in tuple(self._plans.values()):
                known.know(EXCHANGES)
        if (learned or self._state is not call) and not WATCHERS:
            self._state = call
            self(*arguments)
            return
        if call.plan.empty:
            return
        self._require_room(call, tensors)
        block, slots, word = bytearray(call.plan.block), call.plan.step.layout.buffers, ctypes.c_uint32(0)
        for slot, address in zip(slots, [*(tensor.data_ptr() for tensor in tensors), ctypes.addressof(word)], strict=False):
            _ADDRESS.pack_into(block, slot.offset_bytes, address)
        code, grid = self.pipeline._codes[0][call.plan.entry], call.plan.grid
        try:
            run_grid(code, Arguments(block, {}), grid, prod((*grid, *call.plan.step.workgroup)), call.alone, _threads())
        except MemoryError as error:
            raise no_scratch(self.pipeline.name, self.pipeline.device.name, code, error) from error
        self._raise(word.value, bytes(block))

    def sizes(self, numbers: tuple[Any, ...]) -> tuple[dict[str, int], list[int]]:
        """The dims, and how many elements each buffer has, for the values of dims and params."""
        sizes = (self._plans.get(numbers) or self._planned(numbers)).plan.binding.sizes
        return dict(sizes), [element_count(memory, sizes) for memory in self.pipeline.artifact.interface.buffers]

    def _require_room(self, call: PlannedCall, tensors: Sequence[Any]) -> None:
        problems = []
        for memory, tensor in zip(self.pipeline.artifact.interface.buffers, tensors, strict=False):
            require_cpu(tensor.device, "the backend vyre")
            needed = element_count(memory, call.plan.binding.sizes) * memory.type.size_bytes
            if (found := span_bytes(tensor)) < needed:
                problems.append(f"{memory.name!r} spans {found} bytes; {needed} are needed")
        if problems:
            raise vp.BindingError(self.pipeline.name, problems)

    def _rest(self, number: int, begin: int, grid: bytes, block: bytes) -> None:
        """Runs the workgroups from `begin` on of a grid that native code began, or found large; the words that the block points to are on its stack."""
        pipeline, (x, y, z) = self.pipeline, _GRID.unpack_from(grid)
        step, code = pipeline.part.steps[0], pipeline._codes[0][number]
        total, threads = x * y * z, _threads()
        alone = threads == 1 or total == 1 or bool(step.entries[number].details.get("ordered"))
        try:
            if alone:
                run_alone(code, Arguments(block, {}), begin, total, (x, y, z))
            elif begin < total:
                run_together(code, Arguments(block, {}), begin, total, (x, y, z), threads)
        except MemoryError as error:
            raise no_scratch(pipeline.name, pipeline.device.name, code, error) from error
        if self.problems:
            (address,) = _ADDRESS.unpack_from(block, step.layout.buffers[self.tensor_count].offset_bytes)
            self._raise(ctypes.c_uint32.from_address(address).value, block)

    def _raise(self, told: int, block: bytes = b"") -> None:
        if told:
            name, message = self.problems[told - 1]
            for slot in self.pipeline.part.steps[0].layout.params:  # of a message's names in braces
                message = message.replace(f"{{{slot.name}}}", str(int.from_bytes(block[slot.offset_bytes :][: slot.size_bytes], "little", signed=True)))
            raise (IndexError if name == "IndexError" else RuntimeError)(message)

    def _planned(self, numbers: tuple[Any, ...]) -> PlannedCall:
        """The plan for the values of dims and params."""
        pipeline = self.pipeline
        interface, (step,), (codes,) = pipeline.artifact.interface, pipeline.part.steps, pipeline._codes
        binding = binding_of(interface, numbers)
        sizes, plan = binding.sizes, plan_launch(pipeline.device, step, binding, DispatchConfig())
        slots = step.layout.buffers
        rows = [
            (element_count(memory, sizes) * memory.type.size_bytes, slot.offset_bytes)
            for memory, slot in zip(interface.buffers, slots, strict=True)
        ]
        report = rows[self.tensor_count][1] if self.problems else None
        call = PlannedCall(plan, codes[plan.entry], rows[: self.tensor_count], report, [int(number) for number in numbers], MODE.address, EXCHANGES)
        with _lock:
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[numbers] = call
        return call


class _NativeKernel(TensorKernel):
    """The same, called in native code."""

    __slots__ = ()


def _type() -> type[TensorKernel]:
    if CLOCK is None:  # native code has no clock to tell when other threads are worth it
        return TensorKernel
    with _lock:
        if "__call__" not in vars(_NativeKernel):
            _NativeKernel.__call__ = planned_method(_NativeKernel)  # type: ignore[method-assign]  # what is assigned is a method of native code
    return _NativeKernel


def kernel(text: str, buffers: int, problems: Sequence[tuple[str, str]] = ()) -> TensorKernel:
    """What generated code calls."""
    return _type()(text, buffers, problems)


class watching:  # noqa: N801 - a context manager is called like a function
    """`with watching(function):` calls it with each kernel that is launched, in any thread, as it begins; with its arguments too, if asked for."""

    def __init__(self, function: Callable[..., None], *, arguments: bool = False) -> None:
        self._watcher: Callable[[TensorKernel, Sequence[Any]], None] = function if arguments else lambda kernel, _: function(kernel)

    def __enter__(self) -> None:
        with _lock:
            WATCHERS.append(self._watcher)
            MODE.stop(Mode.OBSERVED)

    def __exit__(self, *_: object) -> None:
        with _lock:
            WATCHERS.remove(self._watcher)
            if not WATCHERS:
                MODE.go_on(Mode.OBSERVED)


def programs(function: Callable[..., Any], *arguments: Any, **named: Any) -> list[vp.Program]:
    """The Programs that run while `function(*arguments, **named)` is called, each once, in the order of their first launch: of a compiled model those of its
    forward pass. It is called once, with all that follows it here, and what it raises is raised. A compiled function has none where all of it is PyTorch's own.

    Raises ValueError where none runs and the function is not a compiled one.
    """
    found: dict[str, vp.Program] = {}

    def note(launched: TensorKernel) -> None:
        if launched.text not in found:
            found[launched.text] = vp.Program.from_text(launched.text)

    with watching(note):
        try:
            function(*arguments, **named)
        except TypeError as error:
            if not arguments and not named:
                error.add_note("programs(function, *arguments) calls the function, and was given no arguments for it")
            raise
    if not found and not _is_compiled(function):
        raise ValueError('no Program ran, and the function is not compiled: programs(torch.compile(function, backend="vyre"), *arguments) has those of loops')
    return list(found.values())


def _is_compiled(function: Any) -> bool:
    """Whether `torch.compile` made it, or compiled the module in place."""
    in_place = isinstance(function, torch.nn.Module) and function._compiled_call_impl is not None
    return in_place or isinstance(function, torch._dynamo.OptimizedModule) or hasattr(function, "_torchdynamo_orig_callable")


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
