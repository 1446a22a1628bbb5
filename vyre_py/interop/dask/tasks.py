"""What a task of Dask does: a Program over one block of each array, with the code that came once to its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import evaluate_extent, is_size
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.artifact.artifact import Artifact

__all__ = ["BlockTask", "FoldTask", "read_block"]

_KEPT: Final = 256
_KEPT_BYTES: Final = 1 << 28
_EMPTY: Final = np.empty(0)


@dataclass(frozen=True, slots=True)
class _BlockCode:
    """What a process has of an artifact: the pipeline, its function, and what a task asks of them each time: the buffers, those that are written, whether the
    device's memory is the host's, and whether something is left to wait for once the function has returned."""

    pipeline: Pipeline
    entry: CallEntry
    buffers: tuple[tuple[str, Memory], ...]
    written: tuple[str, ...]
    on_host: bool
    waits: bool

    @classmethod
    def of(cls, pipeline: Pipeline) -> _BlockCode:
        """For a pipeline that was loaded."""
        interface, here = pipeline.artifact.interface, on_host(pipeline.device)
        buffers = tuple([(sys.intern(memory.name), memory) for memory in interface.buffers])  # as native code knows names
        written = tuple([name for name, memory in buffers if memory.access.writes])
        return cls(pipeline, pipeline.callable(), buffers, written, here, not here or bool(interface.reports))


# The code that tasks of this process have run, by its digest and the kind of device.
_loaded: Final[Bounded[_BlockCode]] = Bounded(_KEPT, _KEPT_BYTES)


def _load(digest: str, kind: str, artifact: bytes) -> _BlockCode:
    """The code, loaded on the first device of its kind that this process sees, once."""
    return _loaded.get_or_put((digest, kind), lambda: _BlockCode.of(device(kind).load(Artifact.from_bytes(artifact))), lambda _: len(artifact))


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
        code = _load(self.digest, self.device, artifact)
        given = {name: _native(block) for name, block in zip(self.names, blocks, strict=True)}
        plain = all(isinstance(block, np.ndarray) for block in blocks)
        if plain and not code.on_host and not self.resident:
            results = code.pipeline.dispatch({**given, **self.named})
        else:
            results = self._run(code, given, plain)
        return results if self.only is None else results[self.only]

    def _run(self, code: _BlockCode, given: dict[str, Any], plain: bool) -> dict[str, Any]:
        """Over the blocks where they lie, with results where they are wanted: copies are made of what is elsewhere, and of what is written. `plain` says that
        the blocks are NumPy's."""
        here = code.pipeline.device
        like = None if plain else next((block for block in given.values() if is_foreign(block) and lives_on(here, block)), None)
        like = _EMPTY if like is None and code.on_host else like
        sizes = {name: int(value) for name, value in self.named.items() if is_size(value)}
        for name, memory in code.buffers:
            if name in given:
                solve_axes(memory, _host_shape(given[name]), sizes)
        arguments = {}
        for name, memory in code.buffers:
            if name in code.written:
                arguments[name] = self._result(here, memory, given.get(name), like, sizes)
            else:
                arguments[name] = _in_order(given[name]) if plain and code.on_host else _placed(here, memory, given[name])
        code.entry(**arguments, **{sys.intern(name): value for name, value in self.named.items()})
        if code.waits:
            here.synchronize()
        results = {name: arguments[name] for name in code.written}
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
        elif before is not None and is_foreign(before) and lives_on(here, before):
            result.copy_from(here.wrap(_in_order(before)))  # of another library than `like`
        elif before is not None:
            result.write(read_block(before))
        return result


def _host_shape(block: Any) -> tuple[int, ...]:
    return block.host_shape if isinstance(block, Buffer) else tuple(block.shape)


def _native(block: Any) -> Any:
    """A block in the byte order of this machine, as `dispatch` takes any."""
    return block.astype(block.dtype.newbyteorder("=")) if isinstance(block, np.ndarray) and not block.dtype.isnative else block


def _placed(here: Device, memory: Memory, block: Any) -> Any:
    """A block as what `bind` takes: where it lies, or a contiguous copy."""
    if isinstance(block, Buffer):
        return block if block.device is here else here.upload(block.read(), block.type)
    if shares_memory(here, block) and (not is_foreign(block) or lives_on(here, block)):
        return _in_order(block)
    return here.upload(np.asarray(block), memory.type)


def _in_order(block: Any) -> Any:
    """An array without gaps. NumPy's blocks that arrived in one message with others may begin anywhere. Another library's array on a GPU is copied by that
    library, which NumPy's functions need not ask."""
    described = getattr(block, "__cuda_array_interface__", None)
    if described is not None:
        return block if described.get("strides") is None else block.copy()
    if not isinstance(block, np.ndarray):
        return np.ascontiguousarray(block)
    flags = block.flags
    return block if flags.c_contiguous and flags.aligned else np.require(block, requirements=["C", "A"])


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
