"""Copies into workgroup memory that go on beside the invocation, where the hardware does them; plain stores where it does not."""

from __future__ import annotations

from collections.abc import Mapping

from vyre_py.ir.language.nodes import CopyAsync, Load, Memory, StripCopy
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import u32, u64
from vyre_py.lowering.llvm import addressing
from vyre_py.lowering.llvm.addressing import inside, offset
from vyre_py.lowering.llvm.gpu import async_copies
from vyre_py.lowering.llvm.gpu.async_copies import Copied
from vyre_py.lowering.llvm.gpu.placed import Place
from vyre_py.lowering.llvm.gpu.simt.accesses import Accesses
from vyre_py.lowering.llvm.gpu.simt.elements import Elements
from vyre_py.lowering.llvm.gpu.simt.names import Names
from vyre_py.lowering.llvm.gpu.tensor_cores import uses_tensor_cores
from vyre_py.lowering.llvm.text import Writer
from vyre_py.lowering.llvm.types import memory_type
from vyre_py.lowering.rows import Row

__all__ = ["AsyncCopies"]


class AsyncCopies:
    """Those of one kernel, of which instructions do what is `copied`."""

    def __init__(
        self, w: Writer, program: Program, names: Names, bases: Mapping[Memory, str], elements: Elements, accesses: Accesses, copied: Copied,
        rows: Mapping[int, Row],
    ) -> None:  # fmt: skip
        self._w, self._program, self._names, self._bases, self._elements, self._accesses = w, program, names, bases, elements, accesses
        self._copied, self._rows = copied, rows
        self._by_cores = uses_tensor_cores(program)

    def begin(self, index: int, s: CopyAsync) -> None:
        """Begins the copy of an element, or of a row of them."""
        done, elements = self._accesses.done, self._elements
        if index in done:
            return
        if (number := self._copied.loads.get(index)) is None:
            self._store(index, s)
            return
        load, count = self._program.body[number], self._copied.counts.get(index, 1)
        assert isinstance(load, Load)  # what is copied

        def copy() -> str:
            w, axes = self._w, elements.axes(load)
            target = w.let(f"ptrtoint {elements.pointer(index, s)} to i64")
            condition = inside(w, *axes, elements.row_proven(number, load) if count > 1 else elements.proven(number))
            place, bits = addressing.number(w, *axes) if self._by_cores else (offset(w, *axes), 64)
            if condition:
                place = w.let(f"select i1 {condition}, i{bits} {place}, i{bits} 0")  # nothing is read there, yet it is an address
            source: str | Place
            if self._by_cores:
                source = Place(load.memory.type.size_bytes, self._bases[load.memory], place, bits)
            else:
                element = w.let(f"getelementptr {memory_type(load.memory.type)}, ptr addrspace(1) {self._bases[load.memory]}, i64 {place}")
                source = w.let(f"ptrtoint ptr addrspace(1) {element} to i64")
            async_copies.copy(w, target, source, count * s.memory.type.size_bytes, condition)
            return ""

        elements.guarded(s, elements.row_proven(index, s) if count > 1 else elements.proven(index), copy)
        done.update(range(index, index + count))

    def _store(self, index: int, s: CopyAsync) -> None:
        """Stores an element that no instruction copies, or a row of them."""
        row = self._rows.get(index)
        if row is not None and self._copied.loads.keys().isdisjoint(range(index, index + row.width)):
            self._accesses.store_row(index, s)
        else:
            self._accesses.write(index, s)

    def strip(self, index: int, s: StripCopy) -> None:
        """Begins the copy of a strip of neighbours."""
        wide = s.source in self._program.widths.buffers
        extents = [self._names.size(e, u64 if wide else u32) for e in s.source.shape]
        indices = [self._names.atom(a) for a in s.args[1:]]
        places = self._bases[s.memory], self._names.atom(s.args[0]), self._bases[s.source]
        async_copies.copy_strip(self._w, s, places, indices, [a.type for a in s.args[1:]], extents, wide=wide)
