"""Kernels of compiled graphs, called with tensors: the one place that knows how a Program is run on them.

Generated code makes a `TensorKernel` of the text of each Program. It compiles it when it is first called, plans a launch once for each set of sizes, and calls
the machine code with the tensors' addresses. Arguments are not looked at here, since Inductor has checked sizes and strides; several may lie in one memory, as
the parts of a concatenation do, in elements of their own.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import vyre_py as vp
from vyre_py.drivers.binding import solve_grid
from vyre_py.drivers.cores import core_count
from vyre_py.drivers.cpu.arguments import Arguments
from vyre_py.drivers.cpu.launch import run_grid
from vyre_py.drivers.cpu.module import CpuKernel
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.lowering.artifact.parts import Aligned
from vyre_py.lowering.layout import SlotKind

__all__ = ["TensorKernel", "kernel", "programs", "watching"]

_PLANS: Final = 64  # sets of sizes that a kernel remembers
_watchers: Final[list[Callable[[TensorKernel], None]]] = []


@dataclass(frozen=True, slots=True)
class _SizedPlan:
    """What is launched for one set of sizes: the code, its grid, and the argument block without addresses."""

    code: CpuKernel
    grid: tuple[int, int, int]
    invocations: int
    alone: bool
    block: bytes


class TensorKernel:
    """A Program, called with the tensors of its buffers, then with the values of its dims and params.

    `problems` are the errors that the Program reports: it writes the number of one, counted from 1, to its last buffer, which the kernel adds itself. They are
    pairs of a name of an exception and a message.
    """

    def __init__(self, text: str, buffers: int, problems: Sequence[tuple[str, str]] = ()) -> None:
        self.text = text
        self._count, self._problems = buffers, tuple(problems)
        self._plans: dict[tuple[int | float, ...], _SizedPlan] = {}
        self._lock = threading.Lock()
        self._pipeline: Any = None
        self._pack: Callable[..., None] = struct.Struct(f"{buffers + bool(problems)}Q").pack_into

    def __repr__(self) -> str:
        return f"<TensorKernel of {self.text.partition('(')[0].removeprefix('program ')!r}>"

    @property
    def pipeline(self) -> Any:
        """The compiled Program."""
        if self._pipeline is None:
            with self._lock:
                if self._pipeline is None:
                    self._pipeline = vp.device("cpu").compile_native(vp.Program.from_text(self.text))
        return self._pipeline

    def __call__(self, *arguments: Any) -> None:
        """Runs it. Raises IndexError and RuntimeError where the Program reports a problem, and LaunchError where there is no memory for it."""
        if _watchers:
            for watcher in tuple(_watchers):
                watcher(self)
        count = self._count
        sizes = arguments[count:]
        plan = self._plans.get(sizes)
        if plan is None:
            plan = self._plan(sizes)
        if not plan.invocations:
            return
        tensors = arguments[:count]
        block = Arguments(plan.block, {})
        addresses = [tensor.data_ptr() for tensor in tensors]
        if not self._problems:
            self._pack(block.block, 0, *addresses)
            run_grid(plan.code, block, plan.grid, plan.invocations, plan.alone, min(core_count(), torch.get_num_threads()))
            return
        word = ctypes.c_uint32(0)
        self._pack(block.block, 0, *addresses, ctypes.addressof(word))
        run_grid(plan.code, block, plan.grid, plan.invocations, plan.alone, min(core_count(), torch.get_num_threads()))
        if word.value:
            name, message = self._problems[word.value - 1]
            raise (IndexError if name == "IndexError" else RuntimeError)(message)

    def _plan(self, sizes: tuple[int | float, ...]) -> _SizedPlan:
        pipeline = self.pipeline
        interface = pipeline.artifact.interface
        (step,), (codes,) = pipeline.part.steps, pipeline._codes
        dims = {dim.name: max(0, int(size)) for dim, size in zip(interface.dims, sizes, strict=False)}
        params = {param.name: (param, value) for param, value in zip(interface.params, sizes[len(dims) :], strict=True)}
        grid = solve_grid(step, dims, None, pipeline.device.limits.workgroups, pipeline.device.name)
        block = bytearray(step.layout.size_bytes)
        for slot in step.layout.scalars:
            if slot.kind is SlotKind.PARAM:
                data = slot.cut(encode_param(*params[slot.source[0]]))
            elif slot.axis is not None:
                data = grid[slot.axis].to_bytes(slot.size_bytes, "little")
            else:
                data = evaluate_dim(slot.expr, dims).to_bytes(slot.size_bytes, "little")
            block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = data
        number = _entry(step.entries, dims)
        width, height, depth = step.workgroup
        total = grid[0] * grid[1] * grid[2]
        alone = total == 1 or bool(step.entries[number].details.get("ordered"))
        plan = _SizedPlan(codes[number], grid, total * width * height * depth, alone, bytes(block))
        with self._lock:
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[sizes] = plan
        return plan


def _entry(entries: Sequence[Any], dims: Mapping[str, int]) -> int:
    """The first entry, each better than those behind it, whose needs are met whatever the addresses; the last needs nothing."""
    for number, entry in enumerate(entries[:-1]):
        if entry.elements == 1 and all(not isinstance(need, Aligned) and evaluate_dim(need.expr, dims) % need.by == 0 for need in entry.needs):
            return number
    return len(entries) - 1


def kernel(text: str, buffers: int, problems: Sequence[tuple[str, str]] = ()) -> TensorKernel:
    """What generated code calls."""
    return TensorKernel(text, buffers, problems)


class watching:  # noqa: N801 - a context manager is called like a function
    """`with watching(function):` calls it with each kernel that is launched, in any thread."""

    def __init__(self, function: Callable[[TensorKernel], None]) -> None:
        self._function = function

    def __enter__(self) -> None:
        _watchers.append(self._function)

    def __exit__(self, *_: object) -> None:
        _watchers.remove(self._function)


def programs(function: Callable[..., Any], *arguments: Any, **named: Any) -> list[vp.Program]:
    """The Programs that run while `function(*arguments, **named)` is called, each once, in the order of their first launch: of a compiled model those of its
    forward pass. What the function raises is raised."""
    found: dict[str, vp.Program] = {}

    def note(launched: TensorKernel) -> None:
        if launched.text not in found:
            found[launched.text] = vp.Program.from_text(launched.text)

    with watching(note):
        function(*arguments, **named)
    return list(found.values())
