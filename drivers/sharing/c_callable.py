"""Pipelines as functions for C: `vyre_callable_t` of `include/vyre.h`, over ctypes. How one runs is each device kind's own native code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.native.structs import c_struct
from vyre_py.drivers.sharing.c_launch import ABI_VERSION, ACCESSES, DEVICES, CParameter
from vyre_py.ir.language.types import u64
from vyre_py.lowering.llvm.callable import PlanCode

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CALLABLE", "KERNEL", "CCallable", "CCallableWords", "CKernel"]

_BUFFER, _VALUE, _DIM = 1, 2, 3


class CKernel(ctypes.Structure):
    """`vyre_callable_kernel_t`."""

    _fields_ = (("function", ctypes.c_void_p), ("scratch_bytes", ctypes.c_uint64), ("workgroup_bytes", ctypes.c_uint64), ("ordered", ctypes.c_uint64))


class CCallableWords(ctypes.Structure):
    """`vyre_callable_t`."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32), ("size_bytes", ctypes.c_uint32), ("call", ctypes.c_void_p), ("plan", ctypes.c_void_p), ("device", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32), ("name", ctypes.c_char_p), ("arguments", ctypes.POINTER(CParameter)), ("argument_count", ctypes.c_uint64),
        ("address_count", ctypes.c_uint64), ("size_count", ctypes.c_uint64), ("params_bytes", ctypes.c_uint64), ("block_bytes", ctypes.c_uint64),
        ("kernels", ctypes.POINTER(CKernel)), ("kernel_count", ctypes.c_uint64), ("workgroup", ctypes.c_uint32 * 3), ("reserved", ctypes.c_uint32),
        ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("state", ctypes.c_void_p),
    )  # fmt: skip


KERNEL: Final = c_struct("Kernel", CKernel)
CALLABLE: Final = c_struct("Callable", CCallableWords)


def _arguments(pipeline: Pipeline, code: PlanCode) -> list[CParameter]:
    """Buffers, whose offset is the number of the first of their sizes and whose parts are their axes; params; dims."""
    interface, at, found = pipeline.artifact.interface, 0, []
    for memory in interface.buffers:
        type_ = memory.type
        found.append(CParameter(memory.name.encode(), type_.name.encode(), _BUFFER, ACCESSES[memory.access], at, type_.size_bytes, memory.rank, 0))
        at += memory.rank
    found += [
        CParameter(param.name.encode(), param.type.name.encode(), _VALUE, 0, code.params[param.name], param.type.size_bytes, 0, 0)
        for param in interface.params
    ]
    found += [CParameter(dim.name.encode(), u64.name.encode(), _DIM, 0, at + number, u64.size_bytes, 0, 0) for number, dim in enumerate(interface.dims)]
    return found


class CCallable:
    """The descriptor of a pipeline's function, and all that it points to.

    Attribute: `words`, the descriptor itself.
    """

    __slots__ = ("_held", "words")

    def __init__(
        self, pipeline: Pipeline, code: PlanCode, call: int, plan: int, kernels: Sequence[CKernel], state: int, context: int = 0, stream: int = 0
    ) -> None:
        """`call` and `plan` are addresses of native code, `state` that of the words which it looks at."""
        interface, step, device = pipeline.artifact.interface, pipeline.part.steps[0], pipeline.device
        arguments = _arguments(pipeline, code)
        table = (CParameter * max(1, len(arguments)))(*arguments)
        rows = (CKernel * len(kernels))(*kernels)
        self.words = CCallableWords(
            abi_version=ABI_VERSION, size_bytes=ctypes.sizeof(CCallableWords), call=call, plan=plan, device=DEVICES[device.kind], ordinal=device.ordinal,
            name=interface.name.encode(), arguments=table, argument_count=len(arguments), address_count=len(interface.buffers),
            size_count=sum(memory.rank for memory in interface.buffers) + len(interface.dims), params_bytes=code.params_bytes,
            block_bytes=step.layout.size_bytes, kernels=rows, kernel_count=len(kernels), workgroup=step.workgroup, context=context, stream=stream,
            state=state,
        )  # fmt: skip
        self._held: tuple[Any, ...] = (table, arguments, rows, pipeline)

    @property
    def kernels_address(self) -> int:
        """Where the table of kernels is."""
        return ctypes.addressof(self.words.kernels.contents)

    @property
    def address(self) -> int:
        """Where the descriptor is, for as long as this object lives."""
        return ctypes.addressof(self.words)
