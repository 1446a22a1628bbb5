"""Inductor's fused loops as Programs.

A kernel without a reduction has an invocation for each point, or, where it adds by index in columns of their own, for each column. One that reduces has either
an invocation for each result, which goes through its elements one after the other, or, where the elements of a result lie side by side, a subgroup: its lanes
take neighbours, and fold what they have at the end.

One module because the lines of a kernel come together from all of its methods: loads, stores, loops and folds write to buffers that one text is made of.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.common import DeferredLine, IndentedBuffer, PythonPrinter, SizeArg, TensorArg
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Min
from torch.utils._sympy.symbol import SymT, free_symbol_is_type, symbol_is_type

from vyre_py.interop.torch.accumulators import Fold, fold_of
from vyre_py.interop.torch.elementwise import ElementwiseOps
from vyre_py.interop.torch.indexing.bounds import Bounds
from vyre_py.interop.torch.indexing.printer import IndexPrinter, is_float, number_typed
from vyre_py.interop.torch.owners import rows_and_columns
from vyre_py.interop.torch.randomness import WORDS
from vyre_py.interop.torch.terms import compute_dtype, literal, type_name, typed
from vyre_py.lowering.errors import Unsupported

__all__ = ["VyreKernel"]

_ATOMIC: Final = ("i32", "i64", "u32", "u64", "f32", "f64")
_SERIAL: Final = 32  # reductions of fewer elements are not worth a subgroup
_LANES: Final = 32  # of a subgroup: enough to keep sums apart, and few enough for the registers of a CPU
_RAGGED: Final = 4 * _LANES  # fewer elements than these go with a test in every turn, where they are no multiple of lanes
_POINTWISE: Final = 256  # invocations of a workgroup without a reduction
_SQUARE: Final = "4, 64"  # where memory is contiguous along different axes: cache lines are used up by neighbours
_RESULTS: Final = 32  # and of one whose invocations reduce alone
_BLOCK: Final = 1 << 24  # elements of an index of 64 bits that one loop goes through: many turns of all lanes
_PROBLEM: Final = "problem"  # the buffer that tells what went wrong


def _index_text(expr: Any) -> str:
    return str(V.kernel.printed(expr, V.kernel.index_dtype))


class VyreKernel(SIMDKernel):  # type: ignore[misc]  # PyTorch has no types for this checker
    """One fused loop."""

    inside_reduction: bool
    compute: Any
    cse: Any
    overrides = ElementwiseOps
    newvar_prefix = "let "
    kexpr = sexpr = staticmethod(_index_text)
    pexpr = PythonPrinter().doprint
    most_scanned: int | None = None  # elements of a scan, where an invocation does not go through all of them

    def __init__(self, tiling: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.starts, self.folded, self.results = IndentedBuffer(), IndentedBuffer(), IndentedBuffer()
        self.problems: list[tuple[str, str]] = []
        self.never_zero: set[Any] = set()  # variables of constants
        self._kept: set[Any] = set()  # variables that are not a loop's own
        self._dtypes: dict[str, Any] = {}
        self._bounds = Bounds(self.features, self.range_tree_nodes, self._dtypes)
        self._numbers = itertools.count()
        self._read: set[str] = set()
        self._changed: set[str] = set()  # by atomics
        self._arguments: list[str] = []
        self._draws = False  # random numbers
        self._wholes: dict[str, str] = {}  # names of where whole turns of all lanes end
        numel = self.features.reduction_numel
        few = isinstance(numel, sympy.Integer) and numel < _SERIAL
        nodes = [node for node in self.features.scheduler_nodes() if node.is_reduction()]
        self.scans = scans = any(isinstance(node.node.data, ir.Scan) for node in nodes)
        self.beside_each_other = beside = self._lie_beside(nodes)
        self.together = bool(nodes) and beside and not few and not scans
        owned = rows_and_columns(self.features.scheduler_nodes())
        self._owning = bool(owned) and tuple(tree.numel for tree in self.range_trees if not tree.is_reduction) == tuple(owned)
        # An invocation that scans alone reads neighbours one after the other; lanes would read far apart.
        self._width = 1 if scans and beside and not few else _RESULTS

    def _lie_beside(self, nodes: Iterable[Any]) -> bool:
        """Whether most of what is read has the elements of a result side by side, rather than those of neighbouring results."""
        along, across = 0, 0
        for node in nodes:
            body = node._body
            for index in body.get_read_exprs():
                strides = V.graph.sizevars.stride_hints(index, [*body.iter_vars, *body.reduce_vars])
                results, elements = strides[: len(body.iter_vars)], strides[len(body.iter_vars) :]
                along += 1 in elements
                across += 1 in results
        return along >= across

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on CUDA rather than on the CPU."""
        return bool(V.graph.get_current_device_or_throw().type == "cuda")

    # What Inductor asks of any kernel.

    def dtype_to_str(self, dtype: Any) -> str:
        """The name of a type."""
        return type_name(dtype)

    def should_use_persistent_reduction(self) -> bool:
        """Loops are what there is."""
        return False

    def create_cse_var(self, *args: Any, **kwargs: Any) -> Any:
        """A variable, whose dtype indices ask for by its name."""
        variable = super().create_cse_var(*args, **kwargs)
        self._dtypes[variable.name] = variable.dtype
        return variable

    def let(self, text: str, dtype: Any) -> Any:
        """A variable of an expression."""
        return self.cse.generate(self.compute, text, dtype=dtype)

    def random_words(self, seed: Any, place: Any) -> Any:
        """A variable of four random words."""
        self._draws = True
        whole = f"cast({typed(seed, torch.int64)}, u64)" if self.on_gpu else f"cast({typed(seed, torch.uint32)}, u64)"
        return self.let(f"random_words({whole}, {typed(place, torch.uint32)})", None)

    # Indices.

    def symbol_text(self, type_: str, name: str) -> str:
        """A symbol of an index, in a type."""
        if name in self._dtypes:
            own = type_name(self._dtypes[name])
        else:
            own = "u32" if name.endswith("numel") else "i64" if name.startswith("ks") else self.index_dtype
        return name if own == type_ else f"cast({name}, {type_})"

    def printed(self, expr: Any, type_: str) -> str:
        """An expression of a kernel's own symbols, its whole numbers in a type."""
        return number_typed(IndexPrinter(partial(self.symbol_text, type_), type_).doprint(expr), type_)

    def whole_type(self, *exprs: Any, trusting: bool = False) -> str:
        """The type in which expressions are computed: the index type, or i64 where they may be larger than that."""
        return "i32" if self.index_dtype == "i32" and all(self._bounds.fits_i32(expr, trusting=trusting) for expr in exprs) else "i64"

    def index_text(self, index: Any) -> str:
        """An index into memory."""
        index = self.prepare_indexing(index)
        type_ = self.whole_type(index, trusting=True)
        text = self.printed(self.rename_indexing(index), type_)
        return text if type_ == self.index_dtype else f"cast({text}, {self.index_dtype})"

    def index_as(self, expr: Any, dtype: Any) -> Any:
        """An index as a value of a dtype, or, for None, of the type in which it is computed."""
        expr = self.prepare_indexing(expr)
        type_ = self.whole_type(expr)
        text = self.printed(self.rename_indexing(expr), type_)
        whole = torch.int32 if type_ == "i32" else torch.int64
        own = torch.float64 if is_float(expr) else whole if isinstance(expr, sympy.Expr) else torch.bool
        wanted = own if dtype is None else dtype
        return self.let(text if wanted is own else f"cast({text}, {type_name(wanted)})", wanted)

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        """The line that computes one of a loop's indices."""
        text = self.kexpr(self.rename_indexing(entry.expr))
        (self.indexing_code if entry.root.is_loop else self.body).writeline(f"let {entry.name} = {text}")

    def check_bounds(self, expr: Any, size: Any, lower: bool, upper: bool) -> None:
        """Has an index that PyTorch refuses raise IndexError."""
        if not (lower or upper):
            return
        place, end = self.prepare_indexing(expr), self.prepare_indexing(size)
        type_ = self.whole_type(place, end, trusting=not free_symbol_is_type(place, SymT.TMP))  # variables of i64 are compared whole
        text, limit = (self.printed(self.rename_indexing(part), type_) for part in (place, end))
        wrong = " || ".join([*([f"{text} < 0"] if lower else []), *([f"{text} >= {limit}"] if upper else [])])
        self._report(wrong, ("IndexError", f"index out of range: {self._axis_text(size)} is indexed beyond its ends"))

    def _axis_text(self, size: Any) -> str:
        """An axis in the words of an error; a size that only a call tells stands in braces, by the name of its param, where the kernel knows of which call."""
        shown = str(size) if isinstance(size, sympy.Integer) else f"{{{self.rename_indexing(size)}}}"
        return f"an axis of {shown} elements" if isinstance(size, sympy.Integer) or (isinstance(size, sympy.Symbol) and not self.on_gpu) else "an axis"

    def check_divisor(self, value: Any, dtype: Any) -> None:
        """Has a division of whole numbers by zero raise RuntimeError, in PyTorch's word. Its own code on a GPU says nothing of one, and so does ours."""
        if not self.on_gpu and value not in self.never_zero:
            self._report(f"{typed(value, dtype)} == 0", ("RuntimeError", "ZeroDivisionError"))

    def device_assert_async(self, cond: Any, msg: str) -> None:
        """Has a false condition raise RuntimeError."""
        self._report(f"!{typed(cond, torch.bool)}", ("RuntimeError", str(msg)))

    def _report(self, wrong: str, problem: tuple[str, str]) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
        if self._load_mask is not None:
            wrong = f"{self._load_mask} && ({wrong})"
        self.compute.writeline(f"if {wrong} {{ {_PROBLEM}[0] = {self.problems.index(problem) + 1}u32 }}")

    # Memory.

    def load(self, name: str, index: Any) -> Any:
        """An element of a buffer; half precision as f32."""
        memory = self.args.input(name)
        self._read.add(memory)
        dtype = V.graph.get_dtype(name)
        found, wide = self.cse.generate(self.loads, self.place_text(memory, index), dtype=dtype), compute_dtype(dtype)
        return found if wide is dtype else self.cse.generate(self.loads, f"cast({found}, {type_name(wide)})", dtype=wide)

    def place_text(self, memory: str, index: Any) -> str:
        """An element of a buffer of the Program."""
        return f"{memory}[{self.index_text(index)}]"

    def store(self, name: str, index: Any, value: Any, mode: str | None = None) -> None:
        """Writes an element, or adds to it."""
        self.stores.writeline(DeferredLine(name, self._alone(self._store_line(name, index, value, mode), not self.inside_reduction)))

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        """Writes a result."""
        prior, self.inside_reduction = self.inside_reduction, False
        try:
            line = self._store_line(name, index, value, None)
        finally:
            self.inside_reduction = prior
        self.results.writeline(DeferredLine(name, self._alone(line, True)))

    def _store_line(self, name: str, index: Any, value: Any, mode: str | None) -> str:
        memory, dtype = self.args.output(name), V.graph.get_dtype(name)
        place = self.place_text(memory, index)
        if mode is None:
            return f"{place} = {typed(value, dtype)}"
        if mode != "atomic_add" or type_name(dtype) not in _ATOMIC:
            raise Unsupported("the backend vyre", [f"stores of the mode {mode} to {dtype}"])
        self._changed.add(memory)
        return f"{place} = {place} + {typed(value, dtype)}" if self._owning else f"atomic_add({place}, {typed(value, dtype)})"

    def _alone(self, line: str, once: bool) -> str:
        """Where a subgroup has one value, one of its lanes writes it."""
        return f"if lane == 0 {{ {line} }}" if self.together and self.features.is_reduction() and once else line

    # Reductions.

    def reduction(self, dtype: Any, src_dtype: Any, reduction_type: str, value: Any) -> Any:
        """The result of a reduction, known behind its loop."""
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = self._reduced(compute_dtype(dtype), reduction_type, value)
        return self.cse.reduction_cache[key]

    def _reduced(self, dtype: Any, kind: str, value: Any) -> Any:
        values = value if isinstance(value, tuple) else (value,)
        if kind in ("argmax", "argmin"):
            own = "r0_index" if self.index_dtype == "i64" else "cast(r0_index, i64)"
            place = self.let(typed(values[1], torch.int64) if len(values) > 1 else own, torch.int64)
            fold, values = fold_of(kind, values[0].dtype), (values[0], place)
        else:
            fold = fold_of(kind, torch.bool if kind == "any" else values[0].dtype if kind in ("max", "min") else dtype)
        elements = [typed(element, its) for element, its in zip(values, fold.dtypes, strict=False)]
        state = [f"acc{next(self._numbers)}" for _ in fold.dtypes]
        for name, its, start in zip(state, fold.dtypes, fold.starts, strict=True):
            self.starts.writeline(f"var {name}: {type_name(its)} = {start}")
        self.take(state, fold, elements)
        found = self._folded(state, fold)
        return tuple(found) if kind.startswith("welford") else found[1] if kind in ("argmax", "argmin") else found[0]

    def take(self, state: Sequence[str], fold: Fold, elements: Sequence[str]) -> None:
        """Takes the element of this turn into a state."""
        self._assign(self.compute, state, fold, fold.take, elements)

    def _assign(self, lines: Any, state: Sequence[str], fold: Fold, combine: Callable[..., list[str]], other: Sequence[str]) -> None:
        let = self._letting(lines)
        found = [let(text, its) for text, its in zip(combine(let, [let(name, None) for name in state], other), fold.dtypes, strict=True)]
        lines.writelines([f"{name} = {text}" for name, text in zip(state, found, strict=True)])

    def _letting(self, lines: Any) -> Callable[[str, Any], str]:
        def let(text: str, dtype: Any) -> str:
            del dtype
            name = f"m{next(self._numbers)}"
            lines.writeline(f"let {name} = {text}")
            return name

        return let

    def _folded(self, state: Sequence[str], fold: Fold) -> list[Any]:
        """The state of all lanes together, as variables."""
        let = self._letting(self.folded)
        names = self._over_subgroup(state, fold) if self.together else [let(name, None) for name in state]
        found = [self.cse.generate(self.folded, name, dtype=its) for name, its in zip(names, fold.dtypes, strict=True)]
        self._kept.update(found)
        return found

    def _over_subgroup(self, state: Sequence[str], fold: Fold) -> list[str]:
        let = self._letting(self.folded)
        names = [let(name, None) for name in state]
        if fold.subgroup:
            return [let(f"subgroup_reduce_{fold.subgroup}({name})", None) for name in names]
        step = _LANES // 2
        while step:
            others = [let(f"subgroup_shuffle_xor({name}, {step})", None) for name in names]
            names = [let(text, None) for text in fold.combine(let, names, others)]
            step //= 2
        return [let(f"subgroup_broadcast({name}, 0)", None) for name in names]

    def scan(self, dtypes: Sequence[Any], combine_fn: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, ...]:
        """Each element folded with all before it: an invocation goes through them, and keeps what it has."""
        state = [f"acc{next(self._numbers)}" for _ in dtypes]
        wide = [compute_dtype(dtype) for dtype in dtypes]
        elements = [self.let(typed(value, dtype), dtype) for value, dtype in zip(values, wide, strict=True)]
        for name, dtype in zip(state, wide, strict=True):
            self.starts.writeline(f"var {name}: {type_name(dtype)} = {literal(0, dtype)}")
        before = [self.let(name, dtype) for name, dtype in zip(state, wide, strict=True)]
        both = combine_fn(tuple(before), tuple(elements))
        first = self.let("r0_index == 0", torch.bool)
        found = []
        for name, element, joined, dtype in zip(state, elements, both, wide, strict=True):
            found.append(self.let(f"select({first}, {element}, {typed(joined, dtype)})", dtype))
            self.compute.writeline(f"{name} = {found[-1]}")
        return tuple(found)

    # The text.

    def codegen_body(self) -> None:
        """Moves what was written so far to the body, in its loop where it is within one."""
        parts = (self.indexing_code, self.loads, self.compute, self.stores)
        if not any((*parts, self.folded, self.results)):
            return
        loops = [tree for tree in self.range_trees if tree.is_loop]
        if self.inside_reduction and loops:
            (tree,) = loops
            self.body.splice(self.starts)
            self._write_loop(tree, parts)
            self.cse.invalidate(self._kept)
            tree.cache_clear()
        else:
            for part in parts:
                self.body.splice(part)
            self._kept.update(self.cse._cache.values())
        self.body.splice(self.folded)
        self.body.splice(self.results)
        for part in (*parts, self.folded, self.results, self.starts):
            part.clear()

    def count_text(self, tree: Any) -> str:
        """How many points an axis of loops has, in the index type: one word, or a number, beside which anything may stand."""
        return f"{tree.numel}{self.index_dtype}" if isinstance(tree.numel, sympy.Integer) else f"cast({tree.prefix}numel, {self.index_dtype})"

    def loop_lines(self, name: str, first: str, end: str, step: int = 1) -> tuple[list[str], str]:
        """The lines that begin a loop over an index, and what ends it. The language counts in 32 bits: an index of 64 goes by blocks."""
        if self.index_dtype == "i32":
            return [f"for {name} in {first}..{end}{f' step {step}' if step > 1 else ''} {{"], "}"
        return [
            f"for {name}_block in 0u32..cast(({end} - {first} + {_BLOCK - 1}) / {_BLOCK}, u32) {{",
            f"let {name}_first = {first} + cast({name}_block, i64) * {_BLOCK}",
            f"for {name}_within in 0u32..cast(min({end} - {name}_first, {_BLOCK}), u32){f' step {step}' if step > 1 else ''} {{",
            f"let {name} = {name}_first + cast({name}_within, i64)",
        ], "} }"

    def _write_loop(self, tree: Any, parts: Iterable[Any]) -> None:
        name, prefix, type_, count = f"{tree.prefix}index", tree.prefix, self.index_dtype, self.count_text(tree)
        zero, base = f"0{type_}", f"{prefix}base"
        if not self.together:
            self._write_block(*self.loop_lines(name, zero, count), parts)
            return
        size = tree.numel if isinstance(tree.numel, sympy.Integer) else None
        if size is not None and size % _LANES and size < _RAGGED:
            whole = zero
        elif size is not None:
            whole = f"{size - size % _LANES}{type_}"
        else:
            whole = f"{prefix}whole"
            self._wholes[whole] = f"{count} - {count} % {_LANES}"
        if whole != zero:
            head, end = self.loop_lines(base, zero, whole, _LANES)
            self._write_block([*head, f"let {name} = {base} + lane"], end, parts)
        if size is None or size % _LANES:  # what is left: a test in every turn would keep lanes from being one vector
            head, end = self.loop_lines(base, whole, count, _LANES)
            self._write_block([*head, f"let {name} = {base} + lane", f"if {name} < {count} {{"], f"{end} }}", parts)

    def _write_block(self, head: Sequence[str], end: str, parts: Iterable[Any]) -> None:
        self.body.writelines(head)
        with self.body.indent():
            for part in parts:
                self.body.splice(part)
        self.body.writeline(end)

    def codegen_kernel(self, name: str | None = None) -> str:
        """The text of the Program, within the call that makes a kernel of it."""
        del name
        self.codegen_body()
        body, dims, params, memories = self.body.getvalue(), [], [], []
        tensors, sizes, numbers = [], [], []
        renamed = {inner: self.args.output_buffers[outer] for outer, inner in self.args.input_buffers.items() if self._is_written(outer)}
        if renamed:
            body = re.sub(rf"\b({'|'.join(renamed)})\b", lambda found: renamed[found[1]], body)
        arguments = [a for a in self._tensor_arguments() if a.name not in renamed and re.search(rf"\b{a.name}\b", body)]
        extents = {argument.name: self._extent(argument.buffer) for argument in arguments}
        body, groups = self.placed(body, extents)
        for argument in arguments:
            extent = extents[argument.name]
            group = groups.get(argument.name, 1)
            if group > 1:
                extent = V.graph.sizevars.simplify(FloorDiv(extent, group)) if not isinstance(extent, sympy.Integer) else extent // group
            size = str(extent) if isinstance(extent, sympy.Integer) else f"n_{argument.name}"
            if not isinstance(extent, sympy.Integer):
                dims.append(size)
                sizes.append(self._python(extent))
            axes = size if group == 1 else f"{size}, {group}"
            memories.append(f"buffer {argument.name}: {type_name(argument.dtype)}[{axes}] {self._access(argument.name, renamed)}")
            tensors.append(argument.buffer)
        for tree in self.range_trees:
            if not isinstance(tree.numel, sympy.Integer):
                dims.append(f"{tree.prefix}numel")
                sizes.append(self._python(tree.numel))
        for outer, inner in self.args.sizevars.items():
            if isinstance(outer, sympy.Symbol) and symbol_is_type(outer, SymT.UNBACKED_FLOAT):
                raise Unsupported("the backend vyre", ["numbers that are known only as the graph runs"])
            params.append(f"param {inner}: i64")
            numbers.append(str(outer))
        if self.problems:
            memories.append(f"buffer {_PROBLEM}: u32[1] read_write")
        self._arguments = [*tensors, *sizes, *numbers]
        self.text = text = self._program(dims, [*params, *memories], body)
        if self.on_gpu:
            return f"vyre_gpu_kernel('''\n{text}''', {len(tensors)}, {self.problems!r}, {V.graph.get_current_device_or_throw().index})"
        return f"vyre_kernel('''\n{text}''', {len(tensors)}{f', {self.problems!r}' if self.problems else ''})"

    def placed(self, body: str, extents: Mapping[str, Any]) -> tuple[str, Mapping[str, int]]:
        """The body with its accesses as they stay, and the buffers that are declared as groups of so many elements."""
        del extents
        return body, {}

    def _tensor_arguments(self) -> list[Any]:
        _, _, kinds, _ = self.args.python_argdefs()
        if odd := [kind for kind in kinds if not isinstance(kind, (TensorArg, SizeArg))]:
            raise Unsupported("the backend vyre", [f"arguments such as {odd[0]}"])
        return [kind for kind in kinds if isinstance(kind, TensorArg)]

    def _is_written(self, outer: str) -> bool:
        return isinstance(self.args.output_buffers.get(outer), str)

    def _access(self, memory: str, renamed: dict[str, Any]) -> str:
        if memory.startswith("in_out") or memory in renamed.values() or memory in self._changed:
            return "read_write"
        return "read" if not memory.startswith("out_") else "read_write" if memory in self._read else "write"

    def _extent(self, outer: str) -> Any:
        """How many elements lie behind a buffer's address."""
        layout = V.graph.get_buffer(outer).get_layout() if outer in V.graph.name_to_buffer else V.graph.graph_inputs[outer].get_layout()
        spans = [(size - 1) * stride for size, stride in zip(layout.size, layout.stride, strict=True)]
        if any(size == 0 for size in layout.size):
            return sympy.S.Zero
        sizevars = V.graph.sizevars
        some = [Min(sympy.S.One, size) for size in layout.size if not sizevars.statically_known_geq(size, 1)]  # of none, zero
        return sizevars.simplify(sympy.Mul(sympy.Add(sympy.S.One, *spans), *some))

    def _python(self, expr: Any) -> str:
        wrapper = V.graph.wrapper_code
        return str(wrapper.codegen_python_sizevar(V.graph.sizevars.simplify(expr)))

    def _program(self, dims: Sequence[str], declared: Sequence[str], body: str) -> str:
        shape, head, guards = self.frame()
        if self._owning:
            rows = next(tree for tree in self.range_trees if not tree.is_reduction)
            loop, end = self.loop_lines(f"{rows.prefix}index", f"0{self.index_dtype}", self.count_text(rows))
            body = "\n".join([*loop, f"{body}{end}\n"])
        text = IndentedBuffer()
        text.writeline(f"program kernel({', '.join(dims)}) {shape} {{")
        with text.indent():
            if self._draws:
                text.splice(WORDS)
            text.writelines([*declared, *head])
            text.writeline(f"if {' && '.join(guards) or 'true'} {{")  # where it is known to hold, indices need no check of their own
            with text.indent():
                text.splice(body)
            text.writeline("}")
        text.writeline("}")
        return str(text.getvalue())

    def frame(self) -> tuple[str, list[str], list[str]]:
        """The workgroups and the grid, what comes first, and the conditions under which there is something to do."""
        head, guards, extents = [], [], []
        trees = [tree for tree in self.range_trees if not tree.is_reduction][self._owning :]
        for tree, axis in zip(trees[::-1], "xyz", strict=False):
            query, extent = f"{'workgroup_id' if self.together else 'global_id'}.{axis}", self.extent_text(tree)
            extents.append(extent)
            head.append(f"let {tree.prefix}index = cast({query}, {self.index_dtype})")
            guards.append(f"{query} < {extent}")
        if self.together:
            shape = f"workgroup({_LANES}) subgroup({_LANES}) grid({', '.join(extents) or '1'})"
            head.append(f"let lane = cast(local_index, {self.index_dtype})")
            head += [f"let {name} = {text}" for name, text in self._wholes.items()]
        else:
            width = self._width if self.features.is_reduction() or self._owning else _POINTWISE if len(extents) < 2 else _SQUARE
            shape = f"workgroup({width}) over({', '.join(extents) or '1'})"
        return shape, head, guards

    @staticmethod
    def extent_text(tree: Any) -> str:
        """How many points an axis of loops has."""
        return str(tree.numel) if isinstance(tree.numel, sympy.Integer) else f"{tree.prefix}numel"

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Writes the call."""
        del node, deallocate_ws
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        device, arguments = V.graph.get_current_device_or_throw(), self._arguments
        if self.on_gpu:
            stream = wrapper.write_get_raw_stream(device.index, V.graph.name)
            wrapper.writeline(wrapper.wrap_kernel_call(name, [*arguments, stream]))
            return
        wrapper.generate_kernel_call(name, arguments, device=device, triton=False, arg_types=[None] * len(arguments))
