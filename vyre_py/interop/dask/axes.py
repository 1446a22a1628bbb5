"""Which blocks of Dask arrays go together, and what comes of them, by the dims of a Program: looked at while the graph is built, without any block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import dask.array as da
import numpy as np
from dask.array.core import unify_chunks

from vyre_py.drivers.binding import bind_arguments
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import host_shape
from vyre_py.drivers.registry import device
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, dims_of
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.lowering.artifact.parts import Interface

__all__ = ["Axes", "Chunks", "bound_shapes"]

Shape = tuple[int, ...]
Chunks = tuple[tuple[int, ...], ...]
# What tells axes from each other: a dim, or for an axis that goes with no other a buffer and the number of the axis.
Label = str | tuple[str, int]
_BINDS_ON: Final = "reference"  # takes every Program and size, and is everywhere


def bound_shapes(interface: Interface, blocks: Mapping[str, tuple[Shape, np.dtype[Any]]], named: Mapping[str, Any]) -> dict[str, Shape]:
    """The host shape of every buffer, as `bind` works it out from arrays of these shapes and dtypes. Raises BindingError in its words."""
    arrays = {name: np.broadcast_to(np.zeros((), dtype), shape) for name, (shape, dtype) in blocks.items()}
    shapes = bind_arguments(device(_BINDS_ON), interface, {**arrays, **named}, {}, staged=True).shapes
    return {memory.name: host_shape(shapes[memory.name], memory.type) for memory in interface.buffers}


def _labels(memory: Memory, rank: int) -> tuple[Label, ...]:
    """What each axis of an array goes with: its dim, if it has one, at the first axis that has. The components of vectors go with nothing."""
    found: list[Label] = []
    for axis in range(rank):
        dims = {dim.name for dim in dims_of(memory.shape[axis])} if axis < memory.rank else set()
        found.append(name if len(dims) == 1 and (name := min(dims)) not in found else (memory.name, axis))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Axes:
    """Arrays by buffer, in aligned chunks, and the labels of their axes; the `interface` of the Program, and the params and dims that are `named`."""

    interface: Interface
    arrays: dict[str, da.Array]
    labels: dict[str, tuple[Label, ...]]
    named: dict[str, Any]

    @classmethod
    def of(cls, interface: Interface, arrays: Mapping[str, da.Array], named: Mapping[str, Any]) -> Axes:
        """The arrays, rechunked so that axes of one dim have the same chunks. Raises BindingError where they cannot, and for chunks of unknown sizes."""
        memories = {memory.name: memory for memory in interface.buffers}
        labels = {name: _labels(memories[name], array.ndim) for name, array in arrays.items()}
        unknown = [f"chunks of {name!r} have unknown sizes: {name}.compute_chunk_sizes() finds them" for name, a in arrays.items() if np.isnan(a.size)]
        if unknown:
            raise BindingError(interface.name, unknown)
        plain = {
            name: tuple([axis < memories[name].rank and isinstance(memories[name].shape[axis], Dim) for axis in range(a.ndim)])
            for name, a in arrays.items()
        }
        _require_equal_sizes(interface.name, arrays, labels, plain)
        # An axis that is an expression in a dim keeps its own chunks; so does one that goes with no other.
        pairs = [
            part
            for name, array in arrays.items()
            for part in (array, [label if is_plain else (name, axis) for axis, (label, is_plain) in enumerate(zip(labels[name], plain[name], strict=True))])
        ]
        _, aligned = unify_chunks(*pairs, warn=False)
        return cls(interface, dict(zip(arrays, aligned, strict=True)), labels, dict(named))

    def written(self) -> dict[str, Memory]:
        """The buffers of results, by name."""
        return {memory.name: memory for memory in self.interface.buffers if memory.access.writes}

    def counts(self) -> dict[Label, int]:
        """How many blocks there are along each label. Raises BindingError where arrays differ, and for several along an axis that goes with no other."""
        counts: dict[Label, int] = {}
        problems = []
        for name, axis, label, blocks in self._each():
            if blocks > 1 and isinstance(label, tuple):
                problems.append(f"axis {axis} of {name!r} goes with no dim alone, and is in {blocks} blocks: {name}.rechunk({{{axis}: -1}})")
            if counts.setdefault(label, blocks) != blocks:
                problems.append(f"axis {axis} of {name!r} is in {blocks} blocks, and others along {label!r} in {counts[label]}")
        if problems:
            raise BindingError(self.interface.name, problems)
        return counts

    def require_whole(self, out: Sequence[Label]) -> None:
        """Raises BindingError for an axis in several blocks that results have not: each block would give the same part of them."""
        problems = [
            f"axis {axis} of {name!r} is in {blocks} blocks, and no axis of what is written goes with it: {name}.rechunk({{{axis}: -1}}), or `reduction`"
            for name, axis, label, blocks in self._each()
            if blocks > 1 and label not in out
        ]
        if problems:
            raise BindingError(self.interface.name, problems)

    def _each(self) -> Iterator[tuple[str, int, Label, int]]:
        for name, array in self.arrays.items():
            for axis, (label, blocks) in enumerate(zip(self.labels[name], array.numblocks, strict=True)):
                yield name, axis, label, blocks

    def results(self) -> dict[str, tuple[tuple[Label, ...], Chunks]]:
        """For every result the labels and the chunks of its axes. Raises BindingError for blocks that do not fit, in the words of `bind`."""
        counts = self.counts()
        first = self._shapes({})
        labels = {name: _labels(memory, len(first[name])) for name, memory in self.written().items()}
        sizes = {name: [{0: size} for size in shape] for name, shape in first.items() if name in labels}
        for label, number, shapes in self._varied(counts):
            for name, axes in labels.items():
                for axis, size in enumerate(shapes[name]):
                    if axes[axis] == label:
                        sizes[name][axis][number] = size
                    elif size != first[name][axis]:
                        expr = print_dim(self.written()[name].shape[axis])
                        raise BindingError(self.interface.name, [f"axis {axis} of {name!r}, {expr}, is not of one size in all blocks along {label!r}"])
        same = {label: self._same(label, blocks) for label, blocks in counts.items()}
        return {
            name: (axes, tuple([tuple([sizes[name][axis][k] for k in same.get(label, (0,))]) for axis, label in enumerate(axes)]))
            for name, axes in labels.items()
        }

    def _same(self, label: Label, blocks: int) -> tuple[int, ...]:
        """For each block along a label the first one whose sizes along it are the same."""
        along = [a.chunks[axis] for name, a in self.arrays.items() for axis, other in enumerate(self.labels[name]) if other == label]
        seen: dict[Shape, int] = {}
        return tuple([seen.setdefault(tuple([chunks[k] for chunks in along]), k) for k in range(blocks)])

    def _varied(self, counts: Mapping[Label, int]) -> Iterator[tuple[Label, int, dict[str, Shape]]]:
        """The shapes in blocks that differ from the first along one label each: sizes along a label follow from that label's dim alone."""
        for label, blocks in counts.items():
            for number in sorted(set(self._same(label, blocks)) - {0}):
                yield label, number, self._shapes({label: number})

    def _shapes(self, at: Mapping[Label, int]) -> dict[str, Shape]:
        """The shapes in the block that is the first along every label that `at` does not name."""
        blocks = {
            name: (tuple([chunks[at.get(label, 0)] for label, chunks in zip(self.labels[name], array.chunks, strict=True)]), array.dtype)
            for name, array in self.arrays.items()
        }
        try:
            return bound_shapes(self.interface, blocks, self.named)
        except BindingError as error:
            error.add_note("blocks: " + ", ".join([f"{name} {list(shape)}" for name, (shape, _) in blocks.items()]))
            raise


def _require_equal_sizes(
    doing: str, arrays: Mapping[str, da.Array], labels: Mapping[str, tuple[Label, ...]], plain: Mapping[str, tuple[bool, ...]]
) -> None:
    sizes: dict[Label, tuple[int, str]] = {}
    problems = []
    for name, array in arrays.items():
        for axis, (label, is_plain, size) in enumerate(zip(labels[name], plain[name], array.shape, strict=True)):
            if is_plain and not isinstance(label, tuple):
                known, source = sizes.setdefault(label, (size, f"axis {axis} of {name!r}"))
                if known != size:
                    problems.append(f"dim {label!r} is {known} from {source}, but axis {axis} of {name!r} has {size}")
    if problems:
        raise BindingError(doing, problems)
