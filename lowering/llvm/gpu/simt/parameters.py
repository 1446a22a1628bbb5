"""The parameters of a kernel: one for each slot of its layout, with what LLVM is promised of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap

from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.lowering.layout import BOXES_ALIGN, Layout, Slot, SlotKind
from vyre_py.lowering.llvm.conversions import param_value
from vyre_py.lowering.llvm.gpu.persistent import GROUPS
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.legal import shares_memory
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import bits_type
from vyre_py.lowering.options import CompileOptions

__all__ = ["Parameters"]


class Parameters:
    """Those of one kernel; making them enters params and sizes in its `names`. `aligned` are bytes that the address of a buffer is a multiple of.

    Attributes: `signature`, type, attributes and name of each; the names of addresses, of buffers in `bases`, of descriptions of boxes by buffer and box in
    `boxes`, of hidden memory in `words`; and those of the grid's size in `groups`.
    """

    def __init__(self, w: Writer, program: Program, layout: Layout, options: CompileOptions, names: Names, aligned: Mapping[str, int]) -> None:
        self._w, self._program, self._options, self._names, self._aligned = w, program, options, names, aligned
        self.bases: dict[Memory, str] = {}
        self.boxes: dict[tuple[str, tuple[int, ...]], str] = {}
        self.words: dict[SlotKind, str] = {}
        self.groups: list[str] = list(GROUPS) if options.indirect else []
        self._own = {memory.name: memory for memory in program.buffers}
        self.signature = list(starmap(self._enter, enumerate(layout.slots)))

    def _enter(self, position: int, slot: Slot) -> tuple[str, str, str]:
        """Enters a parameter; gives its type, attributes and name. Of a buffer the Program may have a view of its own."""
        name = f"%a{position}"
        if slot.kind is SlotKind.BOXES:
            assert slot.memory is not None  # of which they are
            self.boxes[slot.memory.name, slot.box] = name
            return "ptr", f'byval([{slot.size_bytes} x i8]) align {BOXES_ALIGN} "nvvm.grid_constant" ', name
        if slot.memory is not None:
            memory = self._own.get(slot.memory.name, slot.memory)
            self.bases[memory] = name
            align = max(slot.type.size_bytes, self._aligned.get(slot.name, 1))
            return "ptr addrspace(1)", f"{self.promises(memory)}align {align} ", name
        if slot.kind in (SlotKind.ARRIVALS, SlotKind.CANCEL, SlotKind.SCANS, SlotKind.GRID):
            self.words[slot.kind] = name
            return "ptr addrspace(1)", f"align {slot.type.size_bytes if slot.kind is SlotKind.GRID else slot.size_bytes} ", name
        if slot.param is not None:
            self._names.params[slot.param] = param_value(self._w, slot.param.type, name)
        elif slot.expr is not None:
            self._names.sizes[slot.expr, slot.type] = name
        else:
            self.groups.append(name)
        return bits_type(8 * slot.size_bytes), "", name

    def promises(self, memory: Memory) -> str:
        """Attributes of a buffer. Binding proves that written memory overlaps nothing; yet LLVM takes `noalias` to mean that a barrier
        does not change the memory, so a buffer through which invocations may talk over a barrier, a fence or an ordered atomic goes without."""
        if self._options.dependent:
            return ""  # what an earlier kernel writes is there only after a wait, past which no load may move either
        if not memory.access.writes:
            return "noalias readonly "
        return "" if memory.access.reads and shares_memory(self._program) else "noalias "
