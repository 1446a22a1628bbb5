"""Kernels for GPUs: an invocation has a strip of elements of its row, in registers where the row is short, and the subgroups of a workgroup share rows.

    what Inductor writes once        let tmp0 = in_ptr0[x0 * 2048 + r0_index]          acc = acc + tmp0
    becomes, for each of the strip   let tmp0c0 = in_ptr0[x0 * 512 + r0_groupc0, 0]    acc = acc + ((tmp0c0 + tmp0c1) + (tmp0c2 + tmp0c3))
                                     let tmp0c1 = in_ptr0[x0 * 512 + r0_groupc1, 1]

All loads of a strip come first, so that they are under way together, and neighbours are one access of a vector. Elements past the end of a row are not taken
into results, and not stored. Where neighbours in memory are of other rows, a workgroup has 32 of these columns; or, where there are many, an invocation
has one.

One module because the lines of a strip come together from all of its methods, as those of any kernel do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.utils import DeferredLineBase
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges

from vyre_py.interop.torch.accumulators import Fold
from vyre_py.interop.torch.gpu.strip_scans import StripScan
from vyre_py.interop.torch.gpu.strips import KEPT_ELEMENTS, SUBGROUP, Strips, columns_of, hint_of, strips_of
from vyre_py.interop.torch.indexing.printer import number_typed
from vyre_py.interop.torch.kernels import VyreKernel
from vyre_py.interop.torch.terms import compute_dtype, literal, type_name, typed

__all__ = ["StripKernel"]

_MANY: Final = 1 << 15  # rows: so many short ones keep a GPU busy with several in a workgroup
_ROWS: Final = 4
_INSIDE: Final = "@inside"  # where the test of an element's place goes
_COLUMN: Final = "in_column"  # whether there is a column for the invocation
_WAIT: Final = "@barrier"  # where one is needed if memory is read and written
_WAITS: Final = re.compile(rf"(?:\s*{_WAIT}\n)+")
_LET: Final = re.compile(r"\s*let (\w+) =")
_WORD: Final = re.compile(r"@?\b[A-Za-z_]\w*\b")
_PLACE: Final = re.compile(r"\b(\w+)@\[(.*?)@\|(.*?)@\]")


class StripKernel(VyreKernel):
    """One fused loop, for a GPU."""

    most_scanned = KEPT_ELEMENTS

    def __init__(self, tiling: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        numel, nodes = self.features.reduction_numel, [node for node in self.features.scheduler_nodes() if node.is_reduction()]
        self._takes: list[tuple[Sequence[str], Fold, Sequence[str]]] = []
        self._arrays: list[str] = []
        self._copied: set[str] = set()  # variables of which each element of a strip has its own
        self._size = int(numel) if isinstance(numel, sympy.Integer) else None
        self._strips: Strips | None = None
        self._across = False  # whether lanes share columns, rather than rows
        if nodes and not self._owning:
            self._strips = self._chosen(nodes)

    def _chosen(self, nodes: Sequence[Any]) -> Strips | None:
        scans = self.scans
        if scans and self.beside_each_other and (self._size or 0) >= SUBGROUP:
            strips = strips_of(self._size, side_by_side=True)
            self.together = strips.kept
            return strips if strips.kept else None
        if self.together:
            return strips_of(self._size)
        if scans:
            return None
        results = hint_of(self.features.numel, _MANY)
        strips = columns_of(self._size, results)
        self._across = strips.lanes > 1
        return strips

    # Elements of a strip.

    def _names(self, tree: Any) -> tuple[str, str]:
        return f"{tree.prefix}index", f"{tree.prefix}group"

    def _tree(self) -> Any:
        return self.range_trees[-1]

    def _insides(self, all_of_them: bool) -> list[str | None]:
        """For each element of a strip what has to be asked, None where it is in its row for certain."""
        strips, size = self._strips, self._size
        assert strips is not None
        index, group = self._names(self._tree())
        if all_of_them:
            return [None] * strips.count
        whole = size is not None and size % strips.vector == 0
        found: list[str | None] = []
        for copy in range(strips.count):
            last = ((copy // strips.vector + 1) * strips.lanes) * strips.vector
            limit = self.count_text(self._tree()) if size is None else f"{size // strips.vector if whole else size}{self.index_dtype}"
            known = strips.kept and size is not None and last <= size
            found.append(None if known else f"{group}c{copy} < {limit}" if whole else f"{index}c{copy} < {limit}")
        return found

    def _placed(self, base: str | None) -> list[str]:
        """The lines that say where each element of a strip is."""
        strips = self._strips
        assert strips is not None
        index, group = self._names(self._tree())
        self._copied |= {index, group}
        lines = []
        for copy in range(strips.count):
            number, beside = divmod(copy, strips.vector)
            terms = [*([base] if base else []), *(["lane"] if strips.lanes > 1 else []), *([f"{number * strips.lanes}"] if number else [])]
            lines.append(f"let {group}c{copy} = {number_typed(' + '.join(terms) or '0', self.index_dtype)}")
            place = f"{group}c{copy} * {strips.vector} + {beside}" if strips.vector > 1 else f"{group}c{copy}"
            lines.append(f"let {index}c{copy} = {place}")
        return lines

    def _of_copy(self, text: str, copy: int, inside: str | None, mark: str = "") -> str:
        vector = self._strips.vector if self._strips is not None else 1

        asked = "true" if inside is None else f"({inside})"

        def renamed(found: re.Match[str]) -> str:
            word = found[0]
            return f"{word}c{copy}{mark}" if word in self._copied else asked if word == _INSIDE else word

        return _WORD.sub(renamed, text).replace("@lane", str(copy % vector))

    def _is_copied(self, text: str) -> bool:
        return _INSIDE in text or any(word in self._copied for word in _WORD.findall(text))

    def _write_copies(self, lines: Any, buffer: Any, insides: Sequence[str | None]) -> None:
        """The lines of a buffer, for each element of a strip where it has its own."""
        for line in buffer._lines:
            text = line.line if isinstance(line, DeferredLineBase) else line
            if not isinstance(text, str) or not self._is_copied(text):
                lines.writeline(line)
                continue
            if bound := _LET.match(text):
                self._copied.add(bound[1])
            lines.writelines([self._of_copy(text, copy, inside) for copy, inside in enumerate(insides)])

    def _write_stores(self, lines: Any, buffer: Any, insides: Sequence[str | None]) -> None:
        for line in buffer._lines:
            text = line.line if isinstance(line, DeferredLineBase) else line
            if not self._is_copied(text):
                lines.writeline(line)
                continue
            stores: dict[str, list[str]] = {}
            for copy, inside in enumerate(insides):
                asked = " && ".join([*([_COLUMN] if self._across else []), *([self._of_group(inside, copy)] if inside else [])])
                stores.setdefault(asked, []).append(self._of_copy(text, copy, inside))
            for asked, same in stores.items():
                written = "\n".join([f"if {asked} {{", *same, "}"] if asked else same)
                lines.writeline(line._new_line(written) if isinstance(line, DeferredLineBase) else written)

    def _of_group(self, inside: str, copy: int) -> str:
        """The same words for all elements of a group."""
        if self._strips is None:
            return inside
        _, group = self._names(self._tree())
        return inside.replace(f"{group}c{copy} ", f"{group}c{copy - copy % self._strips.vector} ")

    # What differs from kernels for the CPU.

    def place_text(self, memory: str, index: Any) -> str:
        """An element, and how it is reached where its memory is declared as groups."""
        scalar = self.index_text(index)
        return f"{memory}@[{scalar}@|{self._group_text(index)}@]" if self._strips is not None else f"{memory}[{scalar}]"

    def _group_text(self, index: Any) -> str:
        """The number of the group that an element is of, and its place there; nothing where groups are not what a strip goes through."""
        strips = self._strips
        if strips is None or strips.vector == 1 or not self.inside_reduction:
            return ""
        index = sympy.expand(self.prepare_indexing(index))
        tree = self._tree()
        own = {symbol: entry for symbol, entry in self.range_tree_nodes.items() if entry.root is tree and symbol in index.free_symbols}
        rows = [symbol for symbol, entry in own.items() if entry.divisor == 1 and entry.length == tree.numel]
        if len(own) != 1 or not rows or any(symbol_is_type(symbol, SymT.TMP) for symbol in index.free_symbols):
            return ""
        rest = index - rows[0]
        terms = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(rest)]
        if rows[0] in rest.free_symbols or not all(term.is_integer and term % strips.vector == 0 for term in terms):
            return ""
        whole = self.index_text(sympy.expand(rest / strips.vector))
        return f"{self._names(tree)[1]} + {whole}, @lane"

    def placed(self, body: str, extents: Mapping[str, Any]) -> tuple[str, Mapping[str, int]]:
        """Memory all of whose accesses go by groups is declared so."""
        if self._strips is None:
            return body, {}
        body = _WAITS.sub("\nbarrier\n" if self._is_changed_in_place(body) else "\n", body)
        vector, alone = self._strips.vector, set()
        for memory, _, group in _PLACE.findall(body):
            if not group or vector == 1 or not V.graph.sizevars.statically_known_multiple_of(extents[memory], vector):
                alone.add(memory)
        text = _PLACE.sub(lambda found: f"{found[1]}[{found[2] if found[1] in alone else found[3]}]", body)
        return text, {memory: vector for memory in extents if vector > 1 and memory not in alone and memory in {found[0] for found in _PLACE.findall(body)}}

    @property
    def _apart(self) -> bool:
        """Whether several subgroups share a row, which do not go in step."""
        return self._across or (self._strips is not None and self.together and self._strips.lanes > SUBGROUP)

    @staticmethod
    def _is_changed_in_place(body: str) -> bool:
        stored, loaded = set[str](), set[str]()
        for found in _PLACE.finditer(body):
            before = body[body.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
            (loaded if before and not before.endswith("{") else stored).add(found[1])
        return bool(stored & loaded)

    def store(self, name: str, index: Any, value: Any, mode: str | None = None) -> None:
        """Writes an element, or adds to it; what one invocation writes for all, where all have read it."""
        if self._apart and not self.inside_reduction:
            self.stores.writeline(_WAIT)
        super().store(name, index, value, mode)

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        """Writes a result."""
        if self._apart:
            self.results.writeline(_WAIT)
        super().store_reduction(name, index, value)

    def _store_line(self, name: str, index: Any, value: Any, mode: str | None) -> str:
        dtype = V.graph.get_dtype(name)
        if self._strips is not None and self.inside_reduction and getattr(value, "dtype", dtype) != dtype:
            value = self.let(typed(value, dtype), dtype)  # so that stores of neighbours stand side by side
        return super()._store_line(name, index, value, mode)

    def _report(self, wrong: str, problem: tuple[str, str]) -> None:
        asked = [*([_INSIDE] if self._strips is not None and self.inside_reduction else []), *([_COLUMN] if self._across else [])]
        super()._report(" && ".join([*asked, f"({wrong})"]), problem)

    def _alone(self, line: str, once: bool) -> str:
        if self._across and once:
            return f"if {_COLUMN} && lane == 0 {{ {line} }}"
        return super()._alone(line, once)

    def take(self, state: Sequence[str], fold: Fold, elements: Sequence[str]) -> None:
        """Takes the strip's elements into a state."""
        if self._strips is None:
            super().take(state, fold, elements)
        else:
            names = [self.let(text, dtype) if not text.isidentifier() else text for text, dtype in zip(elements, fold.dtypes, strict=False)]
            self._takes.append((state, fold, [str(name) for name in names]))

    def _write_takes(self, lines: Any, insides: Sequence[str | None]) -> None:
        for state, fold, elements in self._takes:
            let = self._letting(lines)
            strip = [[self._of_copy(element, copy, None) for element in elements] for copy in range(len(insides))]
            if fold.take is not fold.combine:
                self._take_strip(lines, state, fold, strip, insides)
                continue
            for copy, inside in enumerate(insides):
                if inside is not None:
                    strip[copy] = [let(f"select({inside}, {text}, {start})", None) for text, start in zip(strip[copy], fold.starts, strict=True)]
            while len(strip) > 1:
                pairs = zip(strip[::2], strip[1::2], strict=False)
                strip = [[let(text, None) for text in fold.combine(let, a, b)] for a, b in pairs] + strip[len(strip) - len(strip) % 2 :]
            self._assign(lines, state, fold, fold.combine, strip[0])

    def _take_strip(self, lines: Any, state: Sequence[str], fold: Fold, strip: Sequence[Sequence[str]], insides: Sequence[str | None]) -> None:
        if fold.gather is not None and not any(insides):
            self._assign(lines, state, fold, fold.combine, fold.gather(self._letting(lines), strip))
            return
        let = self._letting(lines)
        for element, inside in zip(strip, insides, strict=True):
            before = [let(name, None) for name in state]
            after = [let(text, None) for text in fold.take(let, before, element)]
            chosen = after if inside is None else [let(f"select({inside}, {new}, {old})", None) for new, old in zip(after, before, strict=True)]
            lines.writelines([f"{name} = {text}" for name, text in zip(state, chosen, strict=True)])

    def _reduced(self, dtype: Any, kind: str, value: Any) -> Any:
        if kind != "welford_reduce" or self._strips is None or not self._strips.kept:
            return super()._reduced(dtype, kind, value)
        # The row is in registers: its mean first, and then what the elements differ from it by.
        count = self.cse.generate(self.folded, literal(self._size, dtype), dtype=dtype)
        total = self.reduction(dtype, dtype, "sum", value)
        mean = self.cse.generate(self.folded, f"{total} / {count}", dtype=dtype)
        self._kept.update((mean, count))
        self.codegen_body()
        apart = self.let(f"{typed(value, dtype)} - {mean}", dtype)
        return mean, self.reduction(dtype, dtype, "sum", self.let(f"{apart} * {apart}", dtype)), count

    def _folded(self, state: Sequence[str], fold: Fold) -> list[Any]:
        if self._across:
            return self._folded_across(state, fold)
        if self._strips is None or self._strips.lanes <= SUBGROUP:
            return super()._folded(state, fold)
        names, let = self._over_subgroup(state, fold), self._letting(self.folded)
        count = self._strips.lanes // SUBGROUP
        arrays = [self._array(dtype, count) for dtype in fold.dtypes]
        stores = " ".join(f"{array}[subgroup_id] = {name}\n" for array, name in zip(arrays, names, strict=True))
        self.folded.writeline(f"if subgroup_lane == 0 {{\n{stores}}}")
        self.folded.writeline("barrier")
        within = let(f"subgroup_lane < {count}", None)
        parts = [
            let(f"select({within}, {let(f'{array}[subgroup_lane]', None)}, {start})", None) for array, start in zip(arrays, fold.starts, strict=True)
        ]
        names = self._over_subgroup(parts, fold)
        found = [self.cse.generate(self.folded, name, dtype=its) for name, its in zip(names, fold.dtypes, strict=True)]
        self._kept.update(found)
        return found

    def _folded_across(self, state: Sequence[str], fold: Fold) -> list[Any]:
        """The state of all lanes of a column."""
        assert self._strips is not None
        let, lanes = self._letting(self.folded), self._strips.lanes
        arrays = [self._array(dtype, f"{lanes}, {SUBGROUP}") for dtype in fold.dtypes]
        self.folded.writelines([f"{array}[local_id.y, local_id.x] = {name}" for array, name in zip(arrays, state, strict=True)])
        self.folded.writeline("barrier")
        whole = [f"acc{next(self._numbers)}" for _ in arrays]
        for name, dtype, array in zip(whole, fold.dtypes, arrays, strict=True):
            self.folded.writeline(f"var {name}: {type_name(dtype)} = {array}[0, local_id.x]")
        self.folded.writeline(f"for fold_lane in 1u32..{lanes} {{")
        with self.folded.indent():
            self._assign(self.folded, whole, fold, fold.combine, [let(f"{array}[fold_lane, local_id.x]", None) for array in arrays])
        self.folded.writeline("}")
        found = [self.cse.generate(self.folded, name, dtype=its) for name, its in zip(whole, fold.dtypes, strict=True)]
        self._kept.update(found)
        return found

    def scan(self, dtypes: Sequence[Any], combine_fn: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, ...]:
        """Each element folded with all before it."""
        if self._strips is None:
            return super().scan(dtypes, combine_fn, values)
        wide = [compute_dtype(dtype) for dtype in dtypes]
        elements = [str(self.let(typed(value, dtype), dtype)) for value, dtype in zip(values, wide, strict=True)]
        self.codegen_body()
        combined = partial(self._combined, combine_fn, dtypes=wide)
        scan = StripScan(self._letting(self.body), self.body.writeline, combined, self._array, wide, self._strips.lanes)
        scan.begin([[self._of_copy(name, copy, None) for name in elements] for copy in range(self._strips.count)])
        found = [self.create_cse_var(f"scan{next(self._numbers)}", ValueRanges.unknown(), dtype) for dtype in wide]
        self._copied |= {variable.name for variable in found}
        for copy in range(self._strips.count):
            self.body.writelines([f"let {variable.name}c{copy} = {name}" for variable, name in zip(found, scan.whole(copy), strict=True)])
        return tuple(found)

    def _combined(self, combine: Callable[..., Any], before: Sequence[str], after: Sequence[str], dtypes: Sequence[Any]) -> list[str]:
        """The names of what Inductor's function makes of two states, in the body."""
        operands = [tuple(self.create_cse_var(name, ValueRanges.unknown(), dtype) for name, dtype in zip(s, dtypes, strict=True)) for s in (before, after)]
        compute, cse = self.compute, self.cse
        self.compute, self.cse = IndentedBuffer(), cse.clone()
        try:
            made = combine(*operands)
            texts = [typed(value, dtype) for value, dtype in zip(made, dtypes, strict=True)]
            self.body.splice(self.compute)
        finally:
            self.compute, self.cse = compute, cse
        let = self._letting(self.body)
        return [text if text.isidentifier() else let(text, None) for text in texts]

    def _array(self, dtype: Any, shape: int | str) -> str:
        name = f"shared{len(self._arrays)}"
        self._arrays.append(f"workgroup {name}: {type_name(dtype)}[{shape}]")
        return name

    def codegen_body(self) -> None:
        """Moves what was written so far to the body, for each element of a strip."""
        if self._strips is None or not self._strips.kept or not self.inside_reduction:
            super().codegen_body()
            return
        parts = (self.indexing_code, self.loads, self.compute, self.stores)
        if not any((*parts, self.folded, self.results, self._takes)):
            return
        if not self._copied:
            self.body.writelines(self._placed(None))
        self.body.splice(self.starts)
        self._write_strip(self.body, parts, self._insides(False))
        for part in (self.folded, self.results):
            self.body.splice(part)
        for part in (*parts, self.folded, self.results, self.starts):
            part.clear()

    def _write_strip(self, lines: Any, parts: Iterable[Any], insides: Sequence[str | None]) -> None:
        *others, stores = parts
        for part in others:
            self._write_copies(lines, part, insides)
        self._write_takes(lines, insides)
        self._write_stores(lines, stores, insides)
        if self._strips is not None and self._strips.kept:
            self._takes.clear()

    def _write_loop(self, tree: Any, parts: Iterable[Any]) -> None:
        strips = self._strips
        if strips is None:
            super()._write_loop(tree, parts)
            return
        parts, type_, prefix = list(parts), self.index_dtype, tree.prefix
        turn = strips.lanes * strips.groups
        units = None if self._size is None else -(-self._size // strips.vector)
        if units is not None:
            count, whole = f"{units}{type_}", f"{units - units % turn}{type_}"
        else:
            count, whole = self.count_text(self._tree()), f"{prefix}whole"
            self._wholes[whole] = f"{count} - {count} % {turn}"
        zero, base = f"0{type_}", f"{prefix}base"
        if units is None or units >= turn:
            self._write_turns(*self.loop_lines(base, zero, whole, turn), base, parts, self._insides(True))
        if units is None or units % turn:
            self._write_turns(*self.loop_lines(base, whole, count, turn), base, parts, self._insides(False))
        self._takes.clear()
        self._copied.clear()

    def _write_turns(self, head: Sequence[str], end: str, base: str, parts: Sequence[Any], insides: Sequence[str | None]) -> None:
        self.body.writelines(head)
        with self.body.indent():
            self.body.writelines(self._placed(base))
            self._write_strip(self.body, parts, insides)
        self.body.writeline(end)

    def frame(self) -> tuple[str, list[str], list[str]]:
        """Rows are shared by workgroups, or, where they are short and many, by their subgroups."""
        strips = self._strips
        if self._across:
            return self._frame_across()
        if strips is None or not self.together:
            shape, head, guards = super().frame()
            return shape, [*head, *[f"let {name} = {text}" for name, text in self._wholes.items()]], guards
        (tree,) = [tree for tree in self.range_trees if not tree.is_reduction] or [None]
        extent = self.extent_text(tree) if tree is not None else "1"
        many = strips.lanes == SUBGROUP and tree is not None and hint_of(tree.numel, 0) >= _MANY
        rows = _ROWS if many else 1
        row = f"workgroup_id.x * {rows} + subgroup_id" if many else "workgroup_id.x"
        head = [*self._arrays, f"let row = {row}"]
        head += [f"let {tree.prefix}index = cast(row, {self.index_dtype})"] if tree is not None else []
        head.append(f"let lane = cast({'subgroup_lane' if many else 'local_index'}, {self.index_dtype})")
        head += [f"let {name} = {text}" for name, text in self._wholes.items()]
        grid = f"ceil_div({extent}, {rows})" if many else extent
        return f"workgroup({strips.lanes * rows}) subgroup({SUBGROUP}) grid({grid})", head, [f"row < {extent}"]

    def _frame_across(self) -> tuple[str, list[str], list[str]]:
        """A workgroup for each 32 columns."""
        assert self._strips is not None
        (tree,) = [tree for tree in self.range_trees if not tree.is_reduction] or [None]
        extent, type_ = self.extent_text(tree) if tree is not None else "1", self.index_dtype
        head = [*self._arrays, f"let lane = cast(local_id.y, {type_})", f"let {_COLUMN} = global_id.x < {extent}"]
        head += [f"let {tree.prefix}index = cast(global_id.x, {type_})"] if tree is not None else []
        head += [f"let {name} = {text}" for name, text in self._wholes.items()]
        return f"workgroup({SUBGROUP}, {self._strips.lanes}) grid(ceil_div({extent}, {SUBGROUP}))", head, []
