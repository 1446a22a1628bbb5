"""Programs over the blocks of Dask arrays, on one machine or on many.

    from vyre_py.interop.dask import map_blocks, map_overlap, reduction

    y = map_blocks(axpy, x, z, a=2.0, targets=["cpu:x86-64-v3"])            # a Dask array of what the Program writes
    t = map_overlap(heat, t, depth=1, boundary=0.0, rate=0.2)               # blocks with a halo of their neighbours
    s = reduction(vp.ops.sum(), x, combine=vp.ops.sum(rank=2, axis=0))      # partial results, folded in a tree

The Program's dims say which blocks go together: axes of one dim have the same chunks, and block k along it of one array meets block k of the others. A result
has an axis in blocks where one of its dims is such an axis; an axis of an array that results have not is one block. So types, shapes and chunks of results are
known, and arguments that do not fit are a BindingError, while the graph is built.

The Program is compiled once, where the graph is built. Its artifact is one key of the graph, comes to each worker once, as bytes, and is loaded there once.
`targets` are as for `compile_native`; without them the code is for the device here, and may not run on other machines: name a level, such as "cpu:x86-64-v3".
`device` is the kind, the first of which a worker runs on: for several GPUs start a worker for each, with `CUDA_VISIBLE_DEVICES`, as dask-cuda does. Dask's
nannies spawn, as CUDA wants. Tasks in threads of one worker share the device, and on the CPU its threads: one thread a worker is enough.

Blocks are NumPy's arrays, Buffers, or arrays that lie on the device: CuPy's are used where they are, and results are CuPy's. With `resident=True` the result is
a `ResidentArray`, whose blocks are Buffers on their workers' devices: `map_blocks` and `reduction` take it without a copy, and `read` gives NumPy's blocks. A
Buffer that moves, to another worker or to the client, travels as host bytes to a device of the same kind, in a process that has imported this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import element_of, lost_mask
from vyre_py.drivers.registry import device as device_of
from vyre_py.ir.extras import with_extra
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.grids import writes_whole
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.artifact.parts import Interface
from vyre_py.native import Targets, compile_native

with with_extra("dask", __name__):
    import dask
    import dask.array as da
    from dask.array.overlap import coerce_boundary, coerce_depth, overlap, trim_overlap
    from dask.array.utils import meta_from_array
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    from vyre_py.interop.dask.axes import Axes, Label, bound_shapes
    from vyre_py.interop.dask.buffers import ResidentArray, register
    from vyre_py.interop.dask.tasks import BlockTask, FoldTask

__all__ = ["ResidentArray", "map_blocks", "map_overlap", "reduction"]

register()

_NUMBERS: Final = "biufc"  # kinds of dtypes, of which binding says what does not fit

Arrays: TypeAlias = "da.Array | ResidentArray | dict[str, Any]"


class _Code:
    """A Program's artifact as a key of graphs. Attributes: `interface`, `digest` of the bytes, `kind` of device, `key`, a Delayed of them, and the names of the
    buffers that are known to be written as a `whole`."""

    def __init__(self, program: Program | Artifact, targets: Targets | None, kind: str) -> None:
        self.whole: frozenset[str] = frozenset()
        if isinstance(program, Program):
            self.whole = frozenset(memory.name for memory in program.buffers if memory.access.writes and writes_whole(program, memory))
            program = compile_native(program, str(device_of(kind).target) if targets is None else targets)
        elif not isinstance(program, Artifact):
            raise BindingError("map_blocks", [f"a Program or an artifact is needed, got {shown(program)}"])
        data = program.to_bytes()
        self.interface: Interface = program.interface
        self.digest, self.kind = sha256(data).hexdigest(), kind
        self.key = dask.delayed(data, name=f"vyre-artifact-{self.digest}", traverse=False)

    def axes(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Axes:
        """The arrays by buffer, aligned. Raises BindingError."""
        match arrays:
            case (Mapping() as mapping,):
                arrays, named = (), {**mapping, **named}
        read = [memory.name for memory in self.interface.buffers if memory.access.reads]
        given = dict(zip(read, arrays, strict=False))
        problems = [f"{len(arrays)} arrays for {len(read)} buffers that are read ({', '.join(read) or 'none'})"] if len(arrays) > len(read) else []
        problems += [f"{name!r} is given twice" for name in named if name in given]
        problems += [f"{m.name!r} is only written: it is a result" for m in self.interface.buffers if m.name in named and not m.access.reads]
        given |= {name: value for name, value in named.items() if name in read}
        problems += [f"buffer {name!r} is missing" for name in read if name not in given]
        problems += [] if read else ["it reads no array: there are no blocks to go over"]
        if problems:
            raise BindingError(self.interface.name, problems)
        blocks = {name: _blocks(value) for name, value in given.items()}
        types = {memory.name: memory.type for memory in self.interface.buffers}
        wrong = [f"{name!r}: {why}" for name, array in blocks.items() if (why := lost_mask(array._meta))]
        wrong += [
            f"{name!r} needs an array of {types[name]}, Dask's or one that becomes a block, got {shown(given[name])}"
            for name, array in blocks.items()
            if array.dtype.kind not in _NUMBERS and element_of(array.dtype) is None and not hasattr(given[name], "dtype")
        ]
        if wrong:
            raise BindingError(self.interface.name, wrong)
        return Axes.of(self.interface, blocks, {name: value for name, value in named.items() if name not in read})

    def task(self, axes: Axes, resident: bool = False, only: str | None = None) -> BlockTask:
        """What runs on the blocks of these arrays."""
        return BlockTask(self.digest, self.kind, tuple(axes.arrays), axes.named, resident, only, self.whole)


def map_blocks(
    program: Program | Artifact, /, *arrays: Any, targets: Targets | None = None, device: str = "cpu", resident: bool = False, **named: Any
) -> Arrays:
    """What a Program writes, block by block: a Dask array, or of several written buffers a dict of arrays by name.

    `arrays` are what it reads, in order of declaration; buffers, params and dims also go by name, or all as one mapping. What is no Dask array is one block. A
    buffer that is read and written takes an array, which stays as it is. An artifact may stand in the Program's place.

    Raises BindingError for arguments, types, shapes and chunks that do not fit, and what `compile_native` raises. Tasks raise what `load` raises,
    KernelAssertion and DeviceLost.
    """
    code = _Code(program, targets, device)
    return _single(_mapped(code, code.axes(arrays, named), resident))


def map_overlap(
    program: Program | Artifact, /, *arrays: Any, depth: Any, boundary: Any = "none", trim: bool = True, targets: Targets | None = None,
    device: str = "cpu", **named: Any,
) -> Arrays:  # fmt: skip
    """`map_blocks` over blocks that have `depth` elements of their neighbours on each side, and at the edges what `boundary` says; both as for
    `dask.array.map_overlap`, a list with an item for each array included. With `trim` results lose as much along axes that are the same dim.

    Raises what `map_blocks` raises, and ValueError and NotImplementedError where Dask refuses a depth or a boundary.
    """
    code = _Code(program, targets, device)
    if any(isinstance(value, ResidentArray) for value in (*arrays, *named.values())):
        raise BindingError(code.interface.name, ["Dask cuts halos out of NumPy's arrays: pass read() of a ResidentArray"])
    axes = code.axes(arrays, named)
    depths, edges, wide = _each(axes, depth), _each(axes, boundary), {}
    halo: dict[str, tuple[Any, Any]] = {}  # by dim
    for memory in [memory for memory in axes.interface.buffers if memory.name in axes.arrays]:
        array = axes.arrays[memory.name]
        deep, edge = coerce_depth(array.ndim, depths[memory.name]), coerce_boundary(array.ndim, edges[memory.name])
        if any(isinstance(deep[axis], tuple) and edge[axis] != "none" for axis in range(array.ndim)):
            raise NotImplementedError(f"{memory.name!r}: a depth that differs between the sides is for boundary='none' alone, as in Dask")
        wide[memory.name] = overlap(array, deep, edge)
        for axis, expr in enumerate(memory.shape):
            if isinstance(expr, Dim) and deep[axis]:
                halo.setdefault(expr.name, (deep[axis], edge[axis]))
    results = _mapped(code, Axes(axes.interface, wide, axes.labels, axes.named))
    if trim:
        results = {name: _trimmed(results[name], memory, halo) for name, memory in axes.written().items()}
    return _single(results)


def reduction(
    program: Program | Artifact, /, *arrays: Any, combine: Program | Artifact, split_every: int = 8, targets: Targets | None = None,
    device: str = "cpu", **named: Any,
) -> da.Array:  # fmt: skip
    """A fold over the axes in blocks that results have not: `program` makes a partial result of each block, and `combine` one of up to `split_every` of them,
    in a tree whose order depends on the chunks alone. `combine` reads one buffer, the partial results along a new first axis, and writes one like each of them.

    Each Program writes one buffer; params and dims are those of `program`. Raises what `map_blocks` raises.
    """
    code, fold = _Code(program, targets, device), _Code(combine, targets, device)
    if not isinstance(split_every, int) or split_every < 2:
        raise BindingError("reduction", [f"split_every is a whole number from 2, got {shown(split_every)}"])
    axes = code.axes(arrays, named)
    counts, results = axes.counts(), axes.results()
    name, (labels, chunks) = _only(axes.interface, results)
    memory = axes.written()[name]
    task = _fold_task(fold, memory, chunks, split_every)
    # The blocks that become one are those along axes of arrays that the result has not.
    kept = [label for label in labels if label in counts]
    folded = [label for label in counts if label not in kept]
    meta = _meta(axes, memory, len(chunks))
    partials = _blockwise(axes, code.task(axes, only=name), [*kept, *folded], {label: (1,) * counts[label] for label in counts}, meta, artifact=code.key)
    token = f"vyre-reduction-{tokenize(partials.name, task, split_every)}"
    graph: dict[Any, Any] = {}
    for row in np.ndindex(*[counts[label] for label in kept]):
        keys = [(partials.name, *row, *rest) for rest in np.ndindex(*[counts[label] for label in folded])]
        level = 0
        while len(keys) > split_every:
            groups = [keys[at : at + split_every] for at in range(0, len(keys), split_every)]
            keys = [(f"{token}-{level}", *row, number) for number in range(len(groups))]
            graph |= {key: (task, fold.key.key, group) for key, group in zip(keys, groups, strict=True)}
            level += 1
        place = dict(zip(kept, row, strict=True))
        graph[token, *[place.get(label, 0) for label in labels]] = (task, fold.key.key, keys)
    layers = HighLevelGraph.from_collections(token, graph, dependencies=[partials, fold.key])
    return da.Array(layers, token, chunks, dtype=meta.dtype, meta=meta)


def _blocks(value: Any) -> da.Array:
    """A Dask array; what is none is one block."""
    if isinstance(value, ResidentArray):
        return value.array
    return value if isinstance(value, da.Array) else da.asarray(value, chunks=-1)


def _mapped(code: _Code, axes: Axes, resident: bool = False) -> dict[str, Any]:
    """The results by name, of one task for each block."""
    counts, results, written = axes.counts(), axes.results(), axes.written()
    shared = [label for label in counts if all(label in labels for labels, _ in results.values())]
    axes.require_whole(shared)
    metas = {name: _meta(axes, written[name], len(chunks)) if not resident else np.empty((0,) * len(chunks), written[name].type.dtype)
             for name, (_, chunks) in results.items()}  # fmt: skip
    if len(results) == 1:
        ((name, (labels, chunks)),) = results.items()
        mapped = {name: _blockwise(axes, code.task(axes, resident, name), labels, dict(zip(labels, chunks, strict=True)), metas[name], artifact=code.key)}
    else:
        blocks = _blockwise(axes, code.task(axes, resident), shared, {}, np.empty((0,) * len(shared), object), artifact=code.key)
        found = Axes(axes.interface, {"": blocks}, {"": tuple(shared)}, {})
        mapped = {
            name: _blockwise(found, itemgetter(name), labels, dict(zip(labels, chunks, strict=True)), metas[name])
            for name, (labels, chunks) in results.items()
        }
    return {name: ResidentArray(array) for name, array in mapped.items()} if resident else mapped


def _blockwise(
    axes: Axes, function: Callable[..., Any], labels: Sequence[Label], sizes: Mapping[Label, tuple[int, ...]], meta: Any, **named: Any
) -> da.Array:
    """A function over blocks that go together, whose results have axes of these labels, with chunks of these sizes."""
    here = {label for mine in axes.labels.values() for label in mine}
    number = {label: k for k, label in enumerate(dict.fromkeys([*labels, *here]))}
    pairs = [part for name, array in axes.arrays.items() for part in (array, [number[label] for label in axes.labels[name]])]
    new = {number[label]: sizes[label] for label in labels if label not in here}
    adjusted = {number[label]: size for label, size in sizes.items() if label in here and label in labels}
    array: da.Array = da.blockwise(
        function, [number[label] for label in labels], *pairs, new_axes=new, adjust_chunks=adjusted, align_arrays=False, concatenate=True,
        token=f"vyre-{axes.interface.name}", dtype=meta.dtype, meta=meta, **named,
    )  # fmt: skip
    return array


def _meta(axes: Axes, memory: Memory, rank: int) -> Any:
    """An empty array of the kind that results are: the library's of the first array that is not NumPy's."""
    like = next((array._meta for array in axes.arrays.values() if not isinstance(array._meta, np.ndarray)), np.empty(0, memory.type.dtype))
    return meta_from_array(like, ndim=rank, dtype=memory.type.dtype)


def _single(results: dict[str, Any]) -> Arrays:
    """The one result, or all by name."""
    single: Arrays = next(iter(results.values())) if len(results) == 1 else results
    return single


def _only(interface: Interface, results: Mapping[str, Any]) -> tuple[str, Any]:
    """The one result. Raises BindingError for several."""
    if len(results) != 1:
        raise BindingError(interface.name, [f"a Program of a reduction writes one buffer; this one writes {', '.join(results)}"])
    return next(iter(results.items()))


def _fold_task(fold: _Code, memory: Memory, chunks: tuple[tuple[int, ...], ...], most: int) -> FoldTask:
    """What makes one partial result of up to so many. Raises BindingError where the Program does not."""
    interface = fold.interface
    read, written = [m.name for m in interface.buffers if m.access.reads], [m.name for m in interface.buffers if m.access.writes]
    if len(read) != 1 or len(written) != 1 or read == written:
        raise BindingError(interface.name, ["what combines partial results reads one buffer and writes another"])
    for count, *shape in product(dict.fromkeys((2, most)), *map(set, chunks)):
        got = bound_shapes(interface, {read[0]: ((count, *shape), memory.type.dtype)}, {})[written[0]]
        (type_,) = [m.type for m in interface.buffers if m.name == written[0]]
        if got != tuple(shape) or type_.scalar is not memory.type.scalar:
            wanted = f"{count} partial results, {memory.type.scalar}{shape} each, become one"
            raise BindingError(interface.name, [f"{wanted}, and {written[0]!r} is {type_.scalar}{list(got)}"])
    return FoldTask(BlockTask(fold.digest, fold.kind, (read[0],), {}, only=written[0]))


def _each(axes: Axes, given: Any) -> dict[str, Any]:
    """A depth or a boundary for each array: the same, or the items of a list."""
    items = given if isinstance(given, list) else [given] * len(axes.arrays)
    if len(items) != len(axes.arrays):
        raise BindingError(axes.interface.name, [f"{len(items)} items are given for {len(axes.arrays)} arrays"])
    return dict(zip(axes.arrays, items, strict=True))


def _trimmed(array: da.Array, memory: Memory, halo: Mapping[str, tuple[Any, Any]]) -> da.Array:
    """A result without the halo that axes of the same dims had."""
    mine = {axis: halo[expr.name] for axis, expr in enumerate(memory.shape) if isinstance(expr, Dim) and expr.name in halo}
    trimmed: da.Array = trim_overlap(array, {axis: depth for axis, (depth, _) in mine.items()}, {axis: edge for axis, (_, edge) in mine.items()})
    return trimmed
