"""What a kernel does where a stand-in for the CUDA driver is asked to run it: the code of the GPU walk itself, run on the host over the argument block that
the driver was given, whose addresses are of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import simt_host

from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.ir.language.dims import Dim, evaluate_dim
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import prepare
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target
from vyre_py.lowering.views import layout_of

__all__ = ["WalkedDevice", "walked_kernel"]

_WALKING = 3


class WalkedDevice(CudaDevice):
    """CUDA over the stand-in for its driver, which runs what the GPU walk writes of each Program."""

    def compile_native(self, program: Any, options: CompileOptions | None = None) -> Pipeline:
        """Compiles, and says what the kernel does."""
        made, driver = super().compile_native(program, options), self.context.cuda
        for entry in made.part.steps[0].entries:
            driver.argument_bytes[entry.symbol], driver.kernels[entry.symbol] = walked_kernel(program, options or CompileOptions())
        return made


def walked_kernel(program: Program, options: CompileOptions) -> tuple[int, Callable[[bytes], None]]:
    """The bytes of a kernel's arguments, and what it does with them. The grid is the Program's own, over dims that the kernel is given, or some workgroups that
    walk."""
    prepared = prepare(program, Target("ptx", "sm_90"), options)
    text, shared_bytes = simt_host.host_text(prepared, options)
    engine, kernel = simt_host._compiled(text, 2)
    layout, workgroup = layout_of(prepared, options), prepared.program.workgroup

    def run(block: bytes) -> None:
        sizes = {}
        for slot in layout.slots:
            if isinstance(slot.expr, Dim):
                sizes[slot.expr.name] = int.from_bytes(block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes], "little")
        extents = [evaluate_dim(extent, sizes) for extent in program.grid.extents]
        groups = [-(-extent // size) if program.grid.over else extent for extent, size in zip(extents, workgroup, strict=True)]
        groups = [_WALKING, 1, 1] if options.indirect else groups
        for index in np.ndindex(*reversed(groups)):
            simt_host._run_all(simt_host._workgroup(kernel, workgroup, groups, tuple(reversed(index)), block, "call void %wait()" in text, shared_bytes))
        assert engine is not None  # which holds the code

    return layout.size_bytes, run
