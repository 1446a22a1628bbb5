"""What a task of Dask does: a Program over one block of each array, with the code that came once to its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from vyre_py.drivers.binding import solve_axes
from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.device import Device
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.lru import Bounded
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.registry import device
from vyre_py.drivers.sharing.exchange import is_foreign, lives_on, on_host, shares_memory
from vyre_py.ir.language.dims import evaluate_extent, is_size
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["BlockTask", "FoldTask", "read_block"]

_KEPT: Final = 256
_KEPT_BYTES: Final = 1 << 28
# The code that tasks of this process have run, by its digest and the kind of device.
_loaded: Final[Bounded[tuple[Pipeline, CallEntry]]] = Bounded(_KEPT, _KEPT_BYTES)


def _load(digest: str, kind: str, artifact: bytes) -> tuple[Pipeline, CallEntry]:
    """The pipeline, loaded on the first device of its kind that this process sees, once."""

    def make() -> tuple[Pipeline, CallEntry]:
        pipeline = device(kind).load(Artifact.from_bytes(artifact))
        return pipeline, pipeline.callable()

    return _loaded.get_or_put((digest, kind), make, lambda _: len(artifact))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loaded.forked)


@dataclass(frozen=True, slots=True)
class BlockTask:
    """A Program over the blocks of `names`. `digest` and `device` say which code; `named` are its params, and dims that were given; where `resident`, results
    are Buffers. Called with the blocks, it gives a dict of the results, or with `only` that one. Blocks are never changed. Results named in `whole` are written
    everywhere: their memory may hold anything before."""

    digest: str
    device: str
    names: tuple[str, ...]
    named: dict[str, Any]
    resident: bool = False
    only: str | None = None
    whole: frozenset[str] = frozenset()

    def __call__(self, *blocks: Any, artifact: bytes) -> Any:
        """Runs, and waits. Raises what `load` and `bind` raise, KernelAssertion, DeviceLost."""
        pipeline, entry = _load(self.digest, self.device, artifact)
        given = dict(zip(self.names, blocks, strict=True))
        if not self.resident and not on_host(pipeline.device) and all(isinstance(block, np.ndarray) for block in blocks):
            results = pipeline.dispatch({**given, **self.named})
        else:
            results = self._run(pipeline, entry, given)
        return results if self.only is None else results[self.only]

    def _run(self, pipeline: Pipeline, entry: CallEntry, given: dict[str, Any]) -> dict[str, Any]:
        """Over the blocks where they lie, with results where they are wanted: copies are made of what is elsewhere, and of what is written."""
        here = pipeline.device
        buffers = pipeline.artifact.interface.buffers
        like = next((block for block in given.values() if is_foreign(block) and lives_on(here, block)), None)
        like = np.empty(0) if like is None and on_host(here) else like
        sizes = {name: int(value) for name, value in self.named.items() if is_size(value)}
        for memory in buffers:
            if memory.name in given:
                solve_axes(memory, _host_shape(given[memory.name]), sizes)
        arguments = {}
        for memory in buffers:
            if memory.access.writes:
                arguments[memory.name] = self._result(here, memory, given.get(memory.name), like, sizes)
            else:
                arguments[memory.name] = _placed(here, memory, given[memory.name])
        entry(**{sys.intern(name): value for name, value in {**arguments, **self.named}.items()})  # as native code knows names
        here.synchronize()
        results = {memory.name: arguments[memory.name] for memory in buffers if memory.access.writes}
        return {name: array.read() if isinstance(array, Buffer) and not self.resident else array for name, array in results.items()}

    def _result(self, here: Device, memory: Memory, before: Any, like: Any, sizes: dict[str, int]) -> Any:
        """Memory for a result: a Buffer, or an array of the library that the blocks are of; with the values of a block that is read as well."""
        shape = tuple([evaluate_extent(expr, sizes) for expr in memory.shape])
        if not self.resident and like is not None and (before is None or isinstance(before, type(like))):
            make = np.empty_like if memory.name in self.whole else np.zeros_like
            return make(like, shape=host_shape(shape, memory.type), dtype=memory.type.dtype) if before is None else before.copy()
        result = here.allocate(shape, memory.type)
        if isinstance(before, Buffer) and before.device is here:
            result.copy_from(before)
        elif before is not None:
            result.write(read_block(before))
        return result


def _host_shape(block: Any) -> tuple[int, ...]:
    return block.host_shape if isinstance(block, Buffer) else tuple(block.shape)


def _placed(here: Device, memory: Memory, block: Any) -> Any:
    """A block as what `bind` takes: where it lies, or a contiguous copy."""
    if isinstance(block, Buffer):
        return block if block.device is here else here.upload(block.read(), block.type)
    if shares_memory(here, block) and (not is_foreign(block) or lives_on(here, block)):
        # Blocks that arrived in one message with others may begin anywhere. Copies of others' arrays are made by their own library.
        return np.require(block, requirements=["C", "A"]) if isinstance(block, np.ndarray) else np.ascontiguousarray(block)
    return here.upload(np.asarray(block), memory.type)


def read_block(block: Any) -> Any:
    """A Buffer as a NumPy array; any other block as it is."""
    return block.read() if isinstance(block, Buffer) else block


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Partial results of one shape, stacked along a new first axis, and given to a task that makes one of them."""

    task: BlockTask

    def __call__(self, artifact: bytes, partials: Sequence[Any]) -> Any:
        """Raises what the task raises, BindingError for partial results of other shapes."""
        if len(shapes := {tuple(np.shape(partial)) for partial in partials}) != 1:
            raise BindingError("reduction", [f"partial results have the shapes {sorted(shapes)}; one shape is needed"])
        return self.task(np.stack(partials), artifact=artifact)
