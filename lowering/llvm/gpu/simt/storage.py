"""Memory that is a kernel's own: private arrays, the workgroup's block, tables."""

from __future__ import annotations

from math import prod

from vyre_py.ir.check.facts import has_grid_scan, is_told
from vyre_py.ir.language.nodes import Memory, Space
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.layout import element_count
from vyre_py.lowering.llvm.gpu.simt.workgroup import Workgroup
from vyre_py.lowering.llvm.gpu.tensor_cores import TensorCores, uses_tensor_cores
from vyre_py.lowering.llvm.legal import SWIZZLE_BYTES, WORKGROUP_ALIGN, workgroup_offsets
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import bytes_literal

__all__ = ["Storage"]


class Storage:
    """That of one kernel: `declare` writes it, and enters the addresses in `bases`.

    Attributes: `size`, the bytes of workgroup memory; `told` and `grid_told`, where in it one invocation tells the others what a uniform load found, or what
    grid it read; and whether the kernel `clears` some of it, or has any for itself.
    """

    def __init__(self, w: Writer, module: ModuleText, optimised: Optimised, bases: dict[Memory, str], cores: TensorCores, workgroup: Workgroup) -> None:
        self._w, self._module, self._optimised, self._bases, self._cores, self._workgroup = w, module, optimised, bases, cores, workgroup
        self.size, self.told, self.grid_told, self.clears = 0, "", "", False

    def declare(self, *, prefix: str = "", reads_grid: bool = False) -> None:
        """Declares what is no argument, and fills it with zeros where it may be read so; the names of tables have a prefix."""
        program = self._optimised.program
        offsets, zeros, self.size = workgroup_offsets(self._optimised)
        for index, memory in enumerate(program.memories):
            if self._cores.owns(memory):
                continue  # its elements are by themselves
            if memory.space is Space.PRIVATE:
                size_bytes = element_count(memory) * memory.type.size_bytes
                base = self._bases[memory] = self._w.local(f"[{size_bytes} x i8]", align=WORKGROUP_ALIGN)
                self._w.run("llvm.memset.p0.i64", ("ptr", base), ("i8", "0"), ("i64", str(size_bytes)), ("i1", "false"))
            elif memory.space is Space.WORKGROUP:
                self._bases[memory] = _at(offsets[memory])
            elif memory.space is Space.TABLE:
                name = f"@{prefix}table_{index}"
                self._module.add_global(f"{name} = internal addrspace(1) constant {bytes_literal(memory.data)}, align {WORKGROUP_ALIGN}")
                self._bases[memory] = name
        if zeros:
            self._clear(zeros)
        if has_grid_scan(program) or any(is_told(s) for s in program.body):
            self.told = self._room()
        self.clears = self.size > 0
        if reads_grid:
            self.grid_told = self._room()
        if self.size:
            # One block whose size the launch gives: static arrays stop at 48 KiB.
            # Every entry of a module says the same.
            align = SWIZZLE_BYTES if uses_tensor_cores(program) else WORKGROUP_ALIGN
            self._module.add_global(f"@shared = external addrspace(3) global [0 x i8], align {align}")

    def _room(self) -> str:
        """The address of some more workgroup memory."""
        self.size += WORKGROUP_ALIGN
        return _at(self.size - WORKGROUP_ALIGN)

    def _clear(self, size_bytes: int) -> None:
        """The workgroup's threads fill the beginning of its block with zeros, 16 bytes at a time, and wait at a barrier."""
        w = self._w
        start = self._workgroup.local_index()
        head, body, done = w.label("fill"), w.label("fill_more"), w.label("filled")
        before = w.current
        w.block(head)
        at, following = w.name(), w.name()
        w.line(f"{at} = phi i32 [ {start}, %{before} ], [ {following}, %{body} ]")
        w.branch(w.let(f"icmp ult i32 {at}, {size_bytes // WORKGROUP_ALIGN}"), body, done)
        w.block(body)
        wide = w.let(f"zext i32 {at} to i64")
        place = w.let(f"getelementptr <4 x i32>, ptr addrspace(3) @shared, i64 {wide}")
        w.line(f"store <4 x i32> zeroinitializer, ptr addrspace(3) {place}, align {WORKGROUP_ALIGN}")
        w.line(f"{following} = add i32 {at}, {prod(self._optimised.program.workgroup)}")
        w.jump(head)
        w.block(done)
        self._workgroup.barrier()


def _at(offset_bytes: int) -> str:
    """An address in the workgroup's block."""
    return f"getelementptr (i8, ptr addrspace(3) @shared, i64 {offset_bytes})"
