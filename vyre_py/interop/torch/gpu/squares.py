"""Kernels for GPUs over two axes, where some memory is contiguous along the other axis than what is stored.

A workgroup has a square of points. It loads such memory with neighbours in memory side by side, and turns it in memory of its own:

    let tmp0 = in_ptr0[y0 + x0 * 1024]      ->      turned0[local_id.y + k, local_id.x] = in_ptr0[y0 of local_id.x + x0 of local_id.y + k * 1024]
                                                    barrier
                                                    let tmp0 = turned0[local_id.x, local_id.y + k]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import SymT, symbol_is_type

from vyre_py.interop.torch.gpu.strip_kernels import StripKernel
from vyre_py.interop.torch.gpu.strips import hint_of
from vyre_py.interop.torch.terms import compute_dtype, type_name

__all__ = ["SquareKernel"]

_SIDE: Final = 32
_ROWS: Final = 8  # of invocations: each has the points of every eighth row
_COPIES: Final = _SIDE // _ROWS
_ROOM: Final = 32_768  # bytes for what is turned
_LONGEST: Final = 65_535 * _SIDE  # along the second axis of the grid


class SquareKernel(StripKernel):
    """One fused loop, for a GPU."""

    def __init__(self, tiling: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self._turned: list[tuple[str, str, str]] = []  # arrays, the memory that they are loaded from, and its index
        self._room = _ROOM
        self._entries: list[str] = []
        trees = [tree for tree in self.range_trees if not tree.is_reduction]
        self._square = len(trees) == 2 and not self._owning and not self.features.is_reduction() and self._fit(*trees)

    @staticmethod
    def _fit(y: Any, x: Any) -> bool:
        """Whether squares fill most of their invocations, and the grid has room for them."""
        fits = bool(V.graph.sizevars.statically_known_leq(y.numel, _LONGEST))
        return fits and all(hint_of(tree.numel, _SIDE) >= _SIDE // 2 for tree in (y, x))

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        """The line that computes one of a loop's indices."""
        if not self._square:
            super().codegen_iteration_ranges_entry(entry)
            return
        line = f"let {entry.name} = {self.kexpr(self.rename_indexing(entry.expr))}"
        self._entries.append(line)
        self.indexing_code.writeline(line)

    def load(self, name: str, index: Any) -> Any:
        """An element of a buffer, turned where its neighbours are other points' than those of neighbouring invocations."""
        dtype = V.graph.get_dtype(name)
        if not (self._square and self._load_mask is None and self._lies_across(index) and self._room >= _SIDE * (_SIDE + 1) * dtype.itemsize):
            return super().load(name, index)
        memory, text = self.args.input(name), self.index_text(index)
        self._read.add(memory)
        known = [array for array, *place in self._turned if place == [memory, text]]
        if not known:
            known = [f"turned{len(self._turned)}"]
            self._turned.append((known[0], memory, text))
            self._arrays.append(f"workgroup {known[0]}: {type_name(dtype)}[{_SIDE}, {_SIDE + 1}]")  # columns lie in banks of their own
            self._room -= _SIDE * (_SIDE + 1) * dtype.itemsize
        found, wide = self.cse.generate(self.loads, f"{known[0]}[local_id.x, place]", dtype=dtype), compute_dtype(dtype)
        return found if wide is dtype else self.cse.generate(self.loads, f"cast({found}, {type_name(wide)})", dtype=wide)

    def _lies_across(self, index: Any) -> bool:
        index = sympy.expand(self.prepare_indexing(index))
        if any(symbol_is_type(symbol, SymT.TMP) for symbol in index.free_symbols):
            return False
        strides = {tree.prefix: index.coeff(symbol) for symbol in index.free_symbols
                   if (entry := self.range_tree_nodes.get(symbol)) is not None and entry.divisor == 1 for tree in [entry.root]}  # fmt: skip
        return strides.get("y") == 1 and strides.get("x") != 1

    def _report(self, wrong: str, problem: tuple[str, str]) -> None:
        super()._report(f"@inside && ({wrong})" if self._square else wrong, problem)

    def codegen_body(self) -> None:
        """Moves what was written to the body: first what is turned, then the work on each of an invocation's points."""
        parts = (self.indexing_code, self.loads, self.compute, self.stores)
        if not self._square or not any(parts):
            super().codegen_body()
            return
        type_ = self.index_dtype
        self._copied |= {"yindex", "place"}
        insides: Sequence[str | None] = [f"xindex < {self._limit('x')} && yindexc{copy} < {self._limit('y')}" for copy in range(_COPIES)]
        if self._turned:
            self._write_turned()
        for copy in range(_COPIES):
            self.body.writeline(f"let placec{copy} = local_id.y + {copy * _ROWS}")
            self.body.writeline(f"let yindexc{copy} = cast(workgroup_id.y, {type_}) * {_SIDE} + cast(placec{copy}, {type_})")
        *others, stores = parts
        for part in others:
            self._write_copies(self.body, part, insides)
        self._write_stores(self.body, stores, insides)
        for part in parts:
            part.clear()

    def _limit(self, prefix: str) -> str:
        (tree,) = [tree for tree in self.range_trees if tree.prefix == prefix]
        return self.count_text(tree)

    def _write_turned(self) -> None:
        type_ = self.index_dtype
        copied, self._copied = self._copied, {"xindex", "yindex", *[line.split()[1] for line in self._entries]}
        for copy in range(_COPIES):
            self.body.writeline(f"let turned_row{copy} = local_id.y + {copy * _ROWS}")
            self.body.writeline(f"let xindexc{copy}t = cast(workgroup_id.x, {type_}) * {_SIDE} + cast(turned_row{copy}, {type_})")
            self.body.writeline(f"let yindexc{copy}t = cast(workgroup_id.y, {type_}) * {_SIDE} + cast(local_id.x, {type_})")
            self.body.writelines([self._turned_text(line, copy) for line in self._entries])
        for array, memory, text in self._turned:
            for copy in range(_COPIES):
                self.body.writeline(f"let {array}_{copy} = {memory}[{self._turned_text(text, copy)}]")
        for array, _, _ in self._turned:
            self.body.writelines([f"{array}[turned_row{copy}, local_id.x] = {array}_{copy}" for copy in range(_COPIES)])
        self.body.writeline("barrier")
        self._copied = copied

    def _turned_text(self, text: str, copy: int) -> str:
        return self._of_copy(text, copy, None, "t")

    def frame(self) -> tuple[str, list[str], list[str]]:
        """A workgroup for each square."""
        if not self._square:
            return super().frame()
        y, x = [tree for tree in self.range_trees if not tree.is_reduction]
        head = [*self._arrays, f"let xindex = cast(global_id.x, {self.index_dtype})"]
        grid = ", ".join(f"ceil_div({self.extent_text(tree)}, {_SIDE})" for tree in (x, y))
        return f"workgroup({_SIDE}, {_ROWS}) grid({grid})", head, []
